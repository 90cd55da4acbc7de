//! Snapshots: the keyspace at one revision in one file, with its history, and the way back.

mod fields;
mod file;
mod format;
mod restore;
mod save;

pub use file::{SnapshotFile, SnapshotInfo};
pub(crate) use format::Lease;
pub use save::SnapshotStream;

use crate::keyspace::Keyspace;

impl Keyspace {
    /// Begins a snapshot at the current revision. It holds every version that can be read from the compacted revision on, the
    /// leases, the alarms, and when revisions were reached.
    pub fn snapshot(&self) -> SnapshotStream {
        SnapshotStream::new(self)
    }
}
