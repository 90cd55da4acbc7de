//! The keyspace: open it, write, read at a revision, watch, compact, close.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::change::Change;
use crate::env::{Clock, Entropy};
use crate::error::Error;
use crate::fs::FileSystem;
use crate::reply::*;
use crate::request::*;
use crate::types::*;
use crate::watch::WatchStream;

/// The limits of a keyspace, all of them.
#[derive(Clone, Debug)]
pub struct Options {
    /// The memory that changes not yet in base may take, in bytes; at half of it a part is flushed.
    pub recent_bytes: usize,
    /// How many changes not yet in base there may be; at half of it a part is flushed.
    pub recent_changes: usize,
    /// redb's page cache, in bytes.
    pub cache_bytes: usize,
    /// The size of a log segment, in bytes.
    pub segment_bytes: u64,
    /// Commands that may wait; one more is refused with `TooManyRequests`.
    pub queue_commands: usize,
    /// What a frame aims at, in bytes.
    pub batch_bytes: usize,
    /// Messages that wait on a watch stream, in bytes; above it watches fall back to catching up.
    pub watch_queue_bytes: usize,
    /// The size of base at which puts and grants are refused with `NoSpace`; `None` means no quota.
    pub quota_bytes: Option<u64>,
}

impl Options {
    /// What the server uses.
    pub fn standard() -> Options {
        Options {
            recent_bytes: 64 << 20,
            recent_changes: 400_000,
            cache_bytes: 64 << 20,
            segment_bytes: 16 << 20,
            queue_commands: 10_000,
            batch_bytes: 256 << 10,
            watch_queue_bytes: 1 << 20,
            quota_bytes: Some(2 << 30),
        }
    }
}

/// What a keyspace stands on.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The file system.
    pub fs: Arc<dyn FileSystem>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
}

/// A command on its way: a future, or wait for it. Dropping it does not take the command back.
#[derive(Debug)]
pub struct Pending<T>(std::marker::PhantomData<T>);

impl<T> Pending<T> {
    /// Blocks until the outcome is durable.
    pub fn wait(self) -> Result<T, Error> {
        unimplemented!("written next")
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, Error>;
    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Self::Output> {
        unimplemented!("written next")
    }
}

/// What operators ask first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The current revision.
    pub revision: Revision,
    /// The compacted revision; -1 if nothing was ever compacted.
    pub compacted: Revision,
    /// The last position applied.
    pub applied: Position,
    /// The bytes of disk that base and log take.
    pub size_bytes: u64,
    /// The bytes of it that hold data.
    pub used_bytes: u64,
    /// Who this is.
    pub member: MemberId,
    /// The cluster's id.
    pub cluster: u64,
    /// The alarms raised.
    pub alarms: Vec<Alarm>,
    /// Bytes read from log and base to open, and frames replayed.
    pub opened: OpenReport,
}

/// What it took to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Bytes read through the file-system seam.
    pub bytes_read: u64,
    /// Frames applied on top of base.
    pub frames_replayed: u64,
    /// True if the directory was created by this open.
    pub created: bool,
}

/// An open keyspace; clones share it.
#[derive(Clone, Debug)]
pub struct Keyspace {}

impl Keyspace {
    /// Opens the keyspace in `dir`, creating it if `dir` is missing or empty.
    ///
    /// Errors, with nothing touched: `Io` if the directory is held by another process, foreign, unreadable or of a newer format; `Corrupt`,
    /// `LogMismatch` if it is damaged.
    pub fn open(_dir: &Path, _options: Options, _environment: Environment) -> Result<Keyspace, Error> {
        unimplemented!("written next")
    }
    /// Writes a key. Errors: `KeyNotFound`, `LeaseNotFound`, `NoSpace`.
    pub fn put(&self, _put: Put) -> Pending<PutReply> {
        unimplemented!("written next")
    }
    /// Deletes a range.
    pub fn delete_range(&self, _delete: DeleteRange) -> Pending<DeleteRangeReply> {
        unimplemented!("written next")
    }
    /// Runs a transaction that may write. Errors: those of its operations, `DuplicateKey`; nothing is applied then.
    pub fn txn(&self, _txn: Txn) -> Pending<TxnReply> {
        unimplemented!("written next")
    }
    /// Runs a transaction of reads alone (`Txn::is_read_only`), without the log; blocks on the disk.
    pub fn read_txn(&self, _txn: &Txn) -> Result<TxnReply, Error> {
        unimplemented!("written next")
    }
    /// Reads a range; blocks on the disk. Errors: `Compacted`, `Future`.
    pub fn range(&self, _request: &RangeRequest) -> Result<RangeReply, Error> {
        unimplemented!("written next")
    }
    /// Reads history in order: the changes from revision `from` on up to `upto`, whole revisions, about `max_bytes` a call; includes versions that
    /// compaction made unreachable as long as they are stored. For hashing and export. Blocks on the disk.
    pub fn stored_changes(&self, _from: Revision, _upto: Revision, _max_bytes: usize) -> Result<Vec<Arc<Change>>, Error> {
        unimplemented!("written next")
    }
    /// The newest change of `key` at or below `revision`, tombstones included, whatever is compacted.
    pub fn stored_version(&self, _key: &[u8], _revision: Revision) -> Result<Option<RevisionPair>, Error> {
        unimplemented!("written next")
    }
    /// Makes revisions below `revision` unreadable. Replies with the store's revision. Errors: `Compacted`, `Future`.
    pub fn compact(&self, _revision: i64) -> Pending<Revision> {
        unimplemented!("written next")
    }
    /// Grants a lease; `None` lets the keyspace choose the id. Errors: `LeaseExists`, `LeaseTtlTooLarge`, `NoSpace`.
    pub fn lease_grant(&self, _id: Option<LeaseId>, _ttl_seconds: i64) -> Pending<LeaseGrantReply> {
        unimplemented!("written next")
    }
    /// Revokes a lease and deletes its keys. Replies with the store's revision. Errors: `LeaseNotFound`.
    pub fn lease_revoke(&self, _id: LeaseId) -> Pending<Revision> {
        unimplemented!("written next")
    }
    /// Renews a lease. Replies with its TTL in seconds; `None` if there is no such lease. Waits for the outcome if the lease is being expired.
    pub fn lease_keep_alive(&self, _id: LeaseId) -> Pending<Option<i64>> {
        unimplemented!("written next")
    }
    /// A lease's time and, if asked for, its keys; `None` if there is no such lease. Blocks on the disk.
    pub fn lease_time_to_live(&self, _id: LeaseId, _keys: bool) -> Result<Option<LeaseTimeToLive>, Error> {
        unimplemented!("written next")
    }
    /// Every lease, by remaining time.
    pub fn leases(&self) -> Vec<LeaseId> {
        unimplemented!("written next")
    }
    /// Raises (`true`) or clears an alarm. Replies with the store's revision and whether the alarm was or is raised.
    pub fn set_alarm(&self, _alarm: Alarm, _raised: bool) -> Pending<(Revision, bool)> {
        unimplemented!("written next")
    }
    /// Makes sure that everything acknowledged before the call is visible to reads after it. Free on a local log.
    pub fn barrier(&self) -> Result<(), Error> {
        unimplemented!("written next")
    }
    /// The current revision.
    pub fn revision(&self) -> Revision {
        unimplemented!("written next")
    }
    /// A new stream of watches.
    pub fn watch_stream(&self) -> WatchStream {
        unimplemented!("written next")
    }
    /// What operators ask first.
    pub fn status(&self) -> Status {
        unimplemented!("written next")
    }
    /// Writes everything in memory to base now; returns when it is there.
    pub fn flush(&self) -> Result<(), Error> {
        unimplemented!("written next")
    }
    /// Resolves with the error that ended the keyspace; never if it is closed in order.
    pub async fn failed(&self) -> Error {
        unimplemented!("written next")
    }
    /// Refuses new commands with `Stopped`, finishes those begun, ends watch streams, flushes, and releases the directory. Blocks.
    pub fn close(&self) -> Result<(), Error> {
        unimplemented!("written next")
    }
    /// Reads one attached key list.
    #[doc(hidden)]
    pub fn lease_keys(&self, _id: LeaseId) -> Result<Vec<Bytes>, Error> {
        unimplemented!("written next")
    }
}

impl Txn {
    /// True if both branches hold only reads: such a transaction needs no log.
    pub fn is_read_only(&self) -> bool {
        self.success.iter().chain(&self.failure).all(|op| matches!(op, Op::Range(_)))
    }
}
