//! What a keyspace answers.

use bytes::Bytes;

use crate::error::Error;
use crate::request::AlarmKind;
use crate::types::{Digest, LeaseId, MemberId, Position, Revision};

/// A key with its value and its numbers, at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The revision of the put that created it.
    pub create_revision: i64,
    /// The revision of its last put.
    pub mod_revision: i64,
    /// 1 when created, one more per put.
    pub version: i64,
    /// The value.
    pub value: Bytes,
    /// The lease it is attached to; 0 if none.
    pub lease: i64,
}

/// A range, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeReply {
    /// The store's revision when it was read.
    pub revision: Revision,
    /// The keys, in the order asked for.
    pub kvs: Vec<KeyValue>,
    /// True if the limit cut keys off.
    pub more: bool,
    /// The keys in the range, whatever limit and filters say.
    pub count: i64,
}

/// A put, done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutReply {
    /// The revision that the put made.
    pub revision: Revision,
    /// The key before, if asked for and if there was one.
    pub prev_kv: Option<KeyValue>,
}

/// A deletion, done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteRangeReply {
    /// The revision that the deletion made; the current one if nothing was deleted.
    pub revision: Revision,
    /// How many keys.
    pub deleted: i64,
    /// The keys before, if asked for.
    pub prev_kvs: Vec<KeyValue>,
}

/// The answer to one operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpReply {
    /// To a read.
    Range(RangeReply),
    /// To a write.
    Put(PutReply),
    /// To a deletion.
    DeleteRange(DeleteRangeReply),
    /// To a transaction within.
    Txn(TxnReply),
}

/// A transaction, done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnReply {
    /// The revision that it made; the current one if nothing changed.
    pub revision: Revision,
    /// True if the compares held.
    pub succeeded: bool,
    /// One answer per operation of the branch taken, in order.
    pub responses: Vec<OpReply>,
}

/// A lease, granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrantReply {
    /// The store's revision.
    pub revision: Revision,
    /// The lease's id.
    pub id: LeaseId,
    /// Its TTL in seconds.
    pub ttl: i64,
}

/// A lease's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseTimeToLive {
    /// The store's revision.
    pub revision: Revision,
    /// Whole seconds left; may be 0 or negative while an expired lease is being revoked.
    pub ttl: i64,
    /// The TTL it was granted, in seconds.
    pub granted_ttl: i64,
    /// The keys attached to it, in key order, if asked for.
    pub keys: Vec<Bytes>,
}

/// An alarm that is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alarm {
    /// The member that raised it.
    pub member: MemberId,
    /// Which.
    pub kind: AlarmKind,
}

/// What operators ask first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The current revision.
    pub revision: Revision,
    /// The compacted revision; -1 if nothing was ever compacted.
    pub compacted: Revision,
    /// Of what was written up to here nothing is left that was unreadable when the sweep passed.
    pub swept: Revision,
    /// The last position applied.
    pub applied: Position,
    /// The chain of digests over all frames up to there: the same history has the same.
    pub digest: Digest,
    /// The bytes of disk that base and log take.
    pub size_bytes: u64,
    /// The bytes of base's pages that are in use, and about what those changes will take that are in memory: what a quota counts. An upper
    /// bound as long as no limit is near.
    pub used_bytes: u64,
    /// The bytes of disk that base takes.
    pub base_bytes: u64,
    /// About the bytes that it would take if it were rewritten.
    pub base_bytes_if_rewritten: u64,
    /// Who this is.
    pub member: MemberId,
    /// The cluster's id.
    pub cluster: u64,
    /// The alarms raised.
    pub alarms: Vec<Alarm>,
    /// What it took to open.
    pub opened: OpenReport,
}

/// What rewriting base did to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// The bytes of disk that it took before.
    pub bytes_before: u64,
    /// The bytes that it takes now.
    pub bytes_after: u64,
}

/// What a step of a scrub did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubStep {
    /// Rows of base that it read again.
    pub rows: u64,
    /// Frames of the log that it read again.
    pub frames: u64,
    /// Bytes that it read for that.
    pub bytes_read: u64,
    /// What is not as it was written, although nobody is answered wrongly: `Corrupt`, with the file; `Io` for a log that cannot be read.
    pub damage: Vec<Error>,
    /// True if nothing is left: the next step begins anew.
    pub done: bool,
}

/// What it took to open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Bytes read from log and base through the file-system seam.
    pub bytes_read: u64,
    /// Frames applied on top of base.
    pub frames_replayed: u64,
    /// True if the directory was created by this open.
    pub created: bool,
    /// Damage in the log that does not matter: what is damaged is in base.
    pub damage: Vec<Error>,
}
