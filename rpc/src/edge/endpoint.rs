//! One URL to listen on: an address, TLS or not, and what is served there.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// One URL to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Where connections arrive.
    pub(crate) address: Address,
    /// True if they begin with a TLS handshake.
    pub(crate) tls: bool,
    /// What is answered on them.
    pub(crate) serves: Serves,
}

/// An address that a socket can listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a socket file.
    Unix(PathBuf),
}

/// What is answered at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    /// gRPC and the pages.
    Everything,
    /// gRPC alone.
    Grpc,
    /// The pages alone.
    Pages,
    /// The pages that say how the server is.
    Probes,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secure = if self.tls { "s" } else { "" };
        match &self.address {
            Address::Tcp(address) => write!(f, "http{secure}://{address}"),
            Address::Unix(path) => write!(f, "unix{secure}://{}", path.display()),
        }
    }
}

impl fmt::Display for Serves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Serves::Everything => "everything",
            Serves::Grpc => "grpc",
            Serves::Pages => "http",
            Serves::Probes => "metrics",
        })
    }
}
