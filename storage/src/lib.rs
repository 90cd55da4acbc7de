//! A durable, versioned keyspace: log first, redb behind.

mod apply;
mod base;
mod change;
mod command;
mod engine;
mod env;
mod error;
mod files;
pub mod fs;
mod keyspace;
mod leases;
pub mod log;
mod open;
mod options;
mod overlap;
mod pending;
mod read;
mod recent;
mod reply;
mod request;
mod tables;
mod types;
mod watch;

pub use change::{Change, ChangeKind};
pub use env::{Clock, Entropy, SystemClock, SystemEntropy};
pub use error::Error;
pub use keyspace::Keyspace;
pub use leases::LEASE_TTL_MAX_SECONDS;
pub use options::{Environment, Options};
pub use pending::Pending;
pub use reply::*;
pub use request::*;
pub use types::*;
pub use watch::{Event, StartAt, WatchMessage, WatchSpec, WatchStream};
