//! The edge: sockets, connections, and what is answered before a service is reached.

mod connection;
mod descriptors;
mod doors;
mod endpoint;
mod front;
mod gathered;
mod handlers;
mod limit;
mod limits;
mod listen;
mod meter;
#[cfg(test)]
#[path = "../../../tests/tls/pki.rs"]
pub(crate) mod pki;
mod serve;
#[cfg(test)]
mod tests;
mod tls;
mod turn;
mod unix;
mod unknown;

pub(crate) use descriptors::connections_max;
pub(crate) use doors::Doors;
pub(crate) use endpoint::{Address, Endpoint, Serves};
pub(crate) use front::Grpc;
pub(crate) use limits::Limits;
pub(crate) use listen::{Listener, bind};
pub(crate) use serve::serve;
pub(crate) use tls::{Allowed, ClientCertificates, Named, SelfSigned, Tls, TlsSettings, Versions, suites};
pub(crate) use unknown::Methods;
