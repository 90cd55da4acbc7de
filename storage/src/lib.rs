//! A durable, versioned keyspace: log first, redb behind.

mod base;
mod change;
mod env;
mod error;
pub mod fs;
mod keyspace;
pub mod log;
mod recent;
mod reply;
mod request;
mod tables;
mod types;
mod watch;

pub use change::{Change, ChangeKind};
pub use env::{Clock, Entropy, SystemClock, SystemEntropy};
pub use error::Error;
pub use keyspace::{Environment, Keyspace, Options, Pending, Status};
pub use reply::*;
pub use request::*;
pub use types::*;
pub use watch::{Event, StartAt, WatchMessage, WatchSpec, WatchStream};
