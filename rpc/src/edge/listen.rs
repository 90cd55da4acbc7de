//! Addresses and the sockets that listen on them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};

use super::unix::UnixSocket;

/// Connections that the kernel holds until they are accepted.
const BACKLOG: u32 = 1024;
/// Silence after which the kernel probes a client, and the pause between probes: a machine that vanished holds watches
/// for minutes, not for the hours that pass between pings.
const PROBE_AFTER: Duration = Duration::from_secs(30);

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a socket file.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "http://{address}"),
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub(crate) enum Listener {
    /// Over TCP.
    Tcp(TcpListener),
    /// On a socket file.
    Unix(UnixSocket),
}

/// One accepted connection.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// Over TCP.
    Tcp(TcpStream),
    /// On a socket file.
    Unix(UnixStream),
}

/// Listens on every address, or on none; the error names the address. Needs a runtime.
pub(crate) async fn bind(addresses: &[Address]) -> Result<Vec<Listener>, String> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        let bound = match address {
            Address::Tcp(address) => bind_tcp(*address).map(Listener::Tcp),
            Address::Unix(path) => UnixSocket::bind(path).await.map(Listener::Unix),
        };
        listeners.push(bound.map_err(|error| format!("cannot listen on {address}: {error}"))?);
    }
    Ok(listeners)
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
    /// Where it listens, with the port that the system chose if none was asked for.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Listener::Unix(socket) => Ok(Address::Unix(socket.path().to_owned())),
        }
    }

    /// The next connection. Dropping the future loses none.
    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                prepare_tcp(&stream)?;
                Ok(Accepted::Tcp(stream))
            }
            Listener::Unix(socket) => socket.accept().await.map(Accepted::Unix),
        }
    }
}
