//! A client with TLS: calls, pages, and the certificate that it is shown.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

/// Where to connect.
#[derive(Clone)]
pub enum Target {
    /// A port of this machine.
    Port(u16),
    /// A socket file.
    File(PathBuf),
}

impl Target {
    /// The URL of a port.
    pub fn url(&self) -> String {
        match self {
            Target::Port(port) => format!("https://127.0.0.1:{port}"),
            Target::File(path) => format!("unixs://{}", path.display()),
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

async fn connect(target: &Target) -> io::Result<Box<dyn Stream>> {
    Ok(match target {
        Target::Port(port) => Box::new(TcpStream::connect(("127.0.0.1", *port)).await?),
        Target::File(path) => Box::new(UnixStream::connect(path).await?),
    })
}

async fn shake(target: &Target, config: ClientConfig) -> io::Result<TlsStream<Box<dyn Stream>>> {
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, connect(target).await?).await
}

/// A connection that is made when it is first used.
pub fn channel(target: &Target, config: ClientConfig) -> Channel {
    let target = target.clone();
    let connector = tower::service_fn(move |_| {
        let (target, config) = (target.clone(), config.clone());
        async move { shake(&target, config).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}

/// The server's certificate as a new handshake shows it, in DER.
pub async fn shown(target: &Target, config: ClientConfig) -> io::Result<Vec<u8>> {
    let stream = shake(target, config).await?;
    let chain = stream.get_ref().1.peer_certificates().expect("a handshake shows one");
    Ok(chain.first().expect("a handshake shows one").to_vec())
}

/// The status of a page over HTTP/1.1, in the clear without `config`; `None` if there was no answer.
pub async fn page(target: &Target, path: &str, config: Option<ClientConfig>) -> Option<u16> {
    let mut stream: Box<dyn Stream> = match config {
        None => connect(target).await.ok()?,
        Some(mut config) => {
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Box::new(shake(target, config).await.ok()?)
        }
    };
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    // A server that closes without a last word has answered all the same.
    let _ = stream.read_to_end(&mut answer).await;
    let head = String::from_utf8_lossy(&answer);
    head.strip_prefix("HTTP/1.1 ")?.split(' ').next()?.parse().ok()
}
