//! The handshake of one connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::name::{ClientName, common_name};
use super::reload::Tls;

impl Tls {
    /// Shakes hands within a time; tells who the client is, if certificates say that.
    pub(in crate::edge) async fn accept<S>(
        self: Arc<Self>,
        stream: S,
        patience: Duration,
    ) -> io::Result<(TlsStream<S>, Option<ClientName>)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let tls = Arc::clone(&self);
        let handshake = async {
            let config = tokio::task::spawn_blocking(move || tls.current()).await.map_err(io::Error::other)?;
            TlsAcceptor::from(config).accept(stream).await
        };
        let stream = tokio::time::timeout(patience, handshake).await??;
        let client = self.client_name(&stream);
        Ok((stream, client))
    }

    fn client_name<S>(&self, stream: &TlsStream<S>) -> Option<ClientName> {
        self.settings.clients.as_ref().filter(|clients| clients.names_the_user)?;
        let certificate = stream.get_ref().1.peer_certificates()?.first()?;
        common_name(certificate).map(|name| ClientName(name.into()))
    }
}
