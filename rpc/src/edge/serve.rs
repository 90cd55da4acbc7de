//! The accept loop: one task per address, one per connection, ended together.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tracing::warn;

use super::connection::{self, Protocol};
use super::doors::Doors;
use super::limits::Limits;
use super::listen::{Accepted, Listener};
use super::tls::{self, Tls};

/// How long accepting pauses after an error that the next attempt would meet again, such as no file descriptor left.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Serves until `stop` turns true, then lets every connection finish what it has begun; returns when the last one has.
/// Dropping the future closes whatever is left. Endpoints with TLS need `tls`.
pub(crate) async fn serve(
    listeners: Vec<Listener>,
    doors: Doors,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    stop: watch::Receiver<bool>,
) {
    let limits = Arc::new(limits);
    let permits = Arc::new(Semaphore::new(limits.connections_max));
    let mut addresses = JoinSet::new();
    for listener in listeners {
        let endpoint = listener.endpoint();
        let tls = endpoint.tls.then(|| tls.clone().expect("without certificates no endpoint has TLS"));
        let protocol = Protocol::new(doors.front(endpoint.serves), Arc::clone(&limits), stop.clone());
        addresses.spawn(serve_address(listener, tls, protocol, Arc::clone(&permits), stop.clone()));
    }
    while addresses.join_next().await.is_some() {}
}

async fn serve_address(
    listener: Listener,
    tls: Option<Arc<Tls>>,
    protocol: Protocol,
    permits: Arc<Semaphore>,
    mut stop: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    let serve = |accepted| serve_accepted(accepted, tls.clone(), protocol.clone());
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => {}
        () = accept_all(&listener, serve, &permits, &mut connections) => {}
    }
    // From here on a connection attempt is refused; a socket file is gone.
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Each address may hold one connection that it has accepted and does not serve yet: nobody waits for one that never comes.
async fn accept_all<F>(
    listener: &Listener,
    serve: impl Fn(Accepted) -> F,
    permits: &Arc<Semaphore>,
    connections: &mut JoinSet<()>,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut pause = PAUSE_MIN;
    loop {
        // Ended connections leave their result behind until it is taken.
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok(accepted) => {
                pause = PAUSE_MIN;
                let Ok(permit) = Arc::clone(permits).acquire_owned().await else { return };
                let serving = serve(accepted);
                connections.spawn(async move {
                    serving.await;
                    drop(permit);
                });
            }
            Err(error) if concerns_one_connection(&error) => {}
            Err(error) => {
                warn!(%error, ?pause, "cannot accept connections, trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

async fn serve_accepted(accepted: Accepted, tls: Option<Arc<Tls>>, protocol: Protocol) {
    match accepted {
        Accepted::Tcp(stream, from) => serve_stream(stream, from, tls, protocol).await,
        Accepted::Unix(stream) => serve_stream(stream, "a unix socket", tls, protocol).await,
    }
}

async fn serve_stream<S>(stream: S, from: impl Display, tls: Option<Arc<Tls>>, mut protocol: Protocol)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(tls) = tls else { return connection::serve(stream, None, protocol).await };
    let accepted = tokio::select! {
        accepted = tls.accept(stream, protocol.limits.handshake_timeout) => accepted,
        // Nothing was asked yet that could be finished.
        _ = protocol.stop.wait_for(|stop| *stop) => return,
    };
    match accepted {
        Ok((stream, client)) => connection::serve(stream, client, protocol).await,
        Err(error) => tls::tell(&error, from),
    }
}

/// True if the client was gone before it was accepted: the next attempt is another connection's.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::Interrupted
            | ErrorKind::InvalidInput
            | ErrorKind::NotConnected
    )
}
