//! Sockets that listen at an endpoint.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};

use super::endpoint::{Address, Endpoint};
use super::unix::UnixSocket;

/// Connections that the kernel holds until they are accepted.
const BACKLOG: u32 = 1024;
/// Silence after which the kernel probes a client, and the pause between probes: a machine that vanished holds watches
/// for minutes, not for the hours that pass between pings.
const PROBE_AFTER: Duration = Duration::from_secs(30);

/// A socket that listens at an endpoint.
#[derive(Debug)]
pub(crate) struct Listener {
    endpoint: Endpoint,
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    /// Over TCP.
    Tcp(TcpListener),
    /// On a socket file.
    Unix(UnixSocket),
}

/// One accepted connection.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// Over TCP, and from where.
    Tcp(TcpStream, SocketAddr),
    /// On a socket file.
    Unix(UnixStream),
}

/// Listens at every endpoint, or at none; the error names the endpoint. Needs a runtime.
pub(crate) async fn bind(endpoints: &[Endpoint]) -> Result<Vec<Listener>, String> {
    let mut listeners = Vec::with_capacity(endpoints.len());
    for endpoint in endpoints {
        let bound = bind_one(endpoint.clone()).await;
        listeners.push(bound.map_err(|error| format!("cannot listen on {endpoint}: {error}"))?);
    }
    Ok(listeners)
}

async fn bind_one(mut endpoint: Endpoint) -> io::Result<Listener> {
    let socket = match &mut endpoint.address {
        Address::Tcp(address) => {
            let listener = bind_tcp(*address)?;
            // With the port that the system chose if none was asked for.
            *address = listener.local_addr()?;
            Socket::Tcp(listener)
        }
        Address::Unix(path) => Socket::Unix(UnixSocket::bind(path).await?),
    };
    Ok(Listener { endpoint, socket })
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart must not wait for connections of the last run that the kernel still remembers.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn prepare_tcp(stream: &TcpStream) -> io::Result<()> {
    // Replies are small and awaited: none may wait for the one before it to be acknowledged.
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_AFTER)?;
    Ok(())
}

impl Listener {
    /// Where it listens.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The next connection. Dropping the future loses none.
    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                prepare_tcp(&stream)?;
                Ok(Accepted::Tcp(stream, from))
            }
            Socket::Unix(socket) => socket.accept().await.map(Accepted::Unix),
        }
    }
}
