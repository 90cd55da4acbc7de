//! A durable, versioned keyspace: log first, redb behind.
//!
//! One global revision orders all changes. A reply means durable: the change is in the log, and the log is on the disk. Every key
//! carries the revision that created it, the revision of its last change and its version; history can be read, watched and
//! compacted. No socket, no runtime: the caller brings a file system, a clock and randomness.
//!
//! ```
//! use std::sync::Arc;
//! use storage::fs::RealFs;
//! use storage::{
//!     At, ChangeKind, Environment, Error, Key, KeyRange, Keyspace, Options, Put, PutLease, PutValue, RangeRequest, StartAt,
//!     SystemClock, SystemEntropy, WatchMessage, WatchSpec,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let environment =
//!     Environment { fs: Arc::new(RealFs), clock: Arc::new(SystemClock::new()), entropy: Arc::new(SystemEntropy) };
//! let keyspace = Keyspace::open(&dir.path().join("data"), Options::standard(), environment)?;
//!
//! // Write; the reply means that it is on the disk.
//! let key = Key::new("colour")?;
//! let put = |value: &'static str| Put {
//!     key: key.clone(),
//!     value: PutValue::Set(value.into()),
//!     lease: PutLease::Detach,
//!     prev_kv: false,
//! };
//! let red = keyspace.put(put("red")).wait()?.revision;
//! let blue = keyspace.put(put("blue")).wait()?.revision;
//! assert_eq!((red.0, blue.0), (2, 3));
//!
//! // Read now, and at an old revision.
//! let now = RangeRequest::new(KeyRange::single(key.clone()));
//! let then = RangeRequest { at: At::Revision(red.0), ..now.clone() };
//! assert_eq!(keyspace.range(&now)?.kvs[0].value, "blue");
//! assert_eq!(keyspace.range(&then)?.kvs[0].value, "red");
//!
//! // Watch from the past.
//! let stream = keyspace.watch_stream();
//! stream.create(WatchSpec { start: StartAt::Revision(red.0), ..WatchSpec::new(KeyRange::all()) });
//! let mut seen = Vec::new();
//! while seen.len() < 2 {
//!     for message in stream.recv()? {
//!         if let WatchMessage::Events { events, .. } = message {
//!             seen.extend(events.iter().map(|event| event.change.clone()));
//!         }
//!     }
//! }
//! assert!(matches!(&seen[1].kind, ChangeKind::Put { value, version: 2, .. } if value == "blue"));
//!
//! // Compact: what lies below is gone for readers.
//! keyspace.compact(blue.0).wait()?;
//! assert_eq!(keyspace.range(&then), Err(Error::Compacted { asked: 2, floor: 3 }));
//! keyspace.close()?;
//! # Ok(())
//! # }
//! ```

#[macro_use]
mod macros;

mod apply;
mod base;
mod change;
mod checks;
mod command;
mod contain;
mod engine;
mod env;
mod error;
#[cfg(feature = "failpoints")]
pub mod failpoints;
mod files;
pub mod fs;
mod import;
mod keyspace;
mod leases;
pub mod log;
mod meters;
mod metrics;
mod open;
mod options;
mod overlap;
mod pending;
mod ranges;
mod read;
mod recent;
mod replay;
mod reply;
mod request;
mod salvage;
mod snapshot;
mod sort;
mod tables;
#[cfg(test)]
mod tests;
mod turns;
mod types;
mod verify;
mod watch;

pub use base::Lost;
pub use change::{Change, ChangeKind};
pub use command::COMMAND_BYTES_MAX;
pub use env::{Clock, Entropy, SystemClock, SystemEntropy};
pub use error::Error;
pub use import::{Import, ImportReport, ImportedLease};
pub use keyspace::Keyspace;
pub use leases::LEASE_TTL_MAX_SECONDS;
pub use metrics::{Distribution, Metrics, RecentPart, Sweep, Watches, Written};
pub use options::{Environment, Options, Tuning};
pub use pending::Pending;
pub use read::listing::{Entry, Listing};
pub use reply::*;
pub use request::*;
pub use salvage::{SalvageReport, salvage};
pub use snapshot::{SnapshotFile, SnapshotInfo, SnapshotStream};
pub use types::*;
pub use verify::{VerifyReport, verify};
pub use watch::{Event, StartAt, WatchMessage, WatchSpec, WatchStream};
