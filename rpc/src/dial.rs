//! Connects to a running server, in the clear or with TLS.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

use crate::edge::Named;

/// How long a server may take to accept the connection, and to answer a ping.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a connection with TLS goes by.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    /// Authorities, one of which must have issued the server's certificate.
    pub(crate) cacert: Option<PathBuf>,
    /// Our own certificate and its key, for servers that ask for one.
    pub(crate) own: Option<(PathBuf, PathBuf)>,
}

/// Connects; a URL without scheme is in the clear. The error is one line.
pub(crate) async fn dial(endpoint: &str, trust: &Trust) -> Result<Channel, String> {
    let (url, tls) = match endpoint.split_once("://") {
        None => (format!("http://{endpoint}"), false),
        Some(("http", _)) => (endpoint.to_owned(), false),
        // The connector encrypts; to the library above it the connection is an ordinary one.
        Some(("https", rest)) => (format!("http://{rest}"), true),
        Some((scheme, _)) => return Err(format!("{endpoint}: {scheme} is not supported, http and https are")),
    };
    let address = Endpoint::from_shared(url).map_err(|error| format!("{endpoint}: {error}"))?;
    let address = address.connect_timeout(PATIENCE).http2_keep_alive_interval(PATIENCE).keep_alive_timeout(PATIENCE);
    let connected = if tls {
        let config = Arc::new(config(endpoint, trust)?);
        let connector = tower::service_fn(move |uri: Uri| {
            let config = Arc::clone(&config);
            async move { shake(&uri, config).await.map(TokioIo::new) }
        });
        address.connect_with_connector(connector).await
    } else {
        address.connect().await
    };
    connected.map_err(|error| format!("{endpoint}: {}", innermost(&error)))
}

async fn shake(uri: &Uri, config: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(443))).await?;
    TlsConnector::from(config).connect(name, stream).await
}

fn config(endpoint: &str, trust: &Trust) -> Result<ClientConfig, String> {
    let path = trust.cacert.as_deref();
    let ca = Named { flag: "cacert", path: path.ok_or_else(|| format!("{endpoint}: https needs --cacert"))? };
    let mut roots = RootCertStore::empty();
    for certificate in ca.certificates()? {
        roots.add(certificate).map_err(|error| ca.refuse(format_args!("a certificate cannot be read: {error}")))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("{endpoint}: {error}"))?
        .with_root_certificates(roots);
    let mut config = match &trust.own {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let (cert, key) = (Named { flag: "cert", path: cert }, Named { flag: "key", path: key });
            let paired = builder.with_client_auth_cert(cert.certificates()?, key.private_key()?);
            paired.map_err(|error| key.refuse(format_args!("not a key for the certificate: {error}")))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// The cause that says something.
fn innermost(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), innermost)
}
