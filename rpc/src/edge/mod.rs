//! The edge: sockets, connections, and what is answered before a service is reached.

mod connection;
mod descriptors;
mod front;
mod limit;
mod limits;
mod listen;
mod meter;
mod serve;
#[cfg(test)]
mod tests;
mod unix;
mod unknown;

pub(crate) use descriptors::connections_max;
pub(crate) use front::Front;
pub(crate) use limits::Limits;
pub(crate) use listen::{Address, Listener, bind};
pub(crate) use serve::serve;
pub(crate) use unknown::Methods;
