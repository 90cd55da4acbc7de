//! Everything that can go wrong, with the numbers that matter.

use std::fmt;

use crate::types::{LeaseId, Position, WatchId};

/// Why a request was not carried out, or why the keyspace cannot go on.
///
/// Refusals leave no trace: nothing was written. `OutcomeUnknown`, `Io` and `Corrupt` are final for the keyspace that
/// returned them: its writes are refused from then on, what was published stays readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A key is empty.
    KeyNotProvided,
    /// A put that keeps the value or the lease met no key.
    KeyNotFound,
    /// A put that keeps the value carries one.
    ValueProvided,
    /// A put that keeps the lease carries one.
    LeaseProvided,
    /// A transaction's list is longer than the limit, or transactions are nested deeper than it allows.
    TooManyOps {
        /// The length of the longest list, or the depth.
        found: usize,
        /// What is allowed at that place.
        limit: usize,
    },
    /// A transaction puts a key twice, or puts a key that it also deletes.
    DuplicateKey,
    /// A sort order or target outside the known ones.
    InvalidSortOption,
    /// A request is larger than the limit, in bytes.
    RequestTooLarge {
        /// The request's size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The revision asked for was compacted away.
    Compacted {
        /// The revision asked for.
        asked: i64,
        /// The compacted revision: the lowest that can be read.
        floor: i64,
    },
    /// The revision asked for does not exist yet.
    Future {
        /// The revision asked for.
        asked: i64,
        /// The store's revision.
        current: i64,
    },
    /// No such lease.
    LeaseNotFound(LeaseId),
    /// The lease id is taken.
    LeaseExists(LeaseId),
    /// The TTL is above the limit, in seconds.
    LeaseTtlTooLarge {
        /// The TTL asked for.
        ttl: i64,
        /// The largest TTL.
        limit: i64,
    },
    /// A watch's range holds no key.
    WatchRangeEmpty,
    /// The watch id is in use on the stream.
    WatchIdTaken(WatchId),
    /// A watch asks to start at a negative revision.
    WatchStartNegative(i64),
    /// No room: the quota or the disk is full. Deletes and compaction still work.
    NoSpace,
    /// Base cannot be rewritten: the disk has no room for a second one. Nothing has changed.
    NoRoomToShrink {
        /// The bytes that must be free.
        needed: u64,
        /// The bytes that are.
        free: u64,
    },
    /// Base could not be rewritten; it is as it was.
    ShrinkFailed {
        /// What went wrong.
        reason: String,
    },
    /// A CORRUPT alarm is raised: writes are refused.
    CorruptAlarm,
    /// The queue of commands is full.
    TooManyRequests {
        /// The commands that wait.
        queued: usize,
    },
    /// The keyspace is stopping or stopped; the command was not begun.
    Stopped,
    /// The command may or may not take effect: the log failed while it was being written.
    OutcomeUnknown,
    /// An input/output error that ends the keyspace.
    Io {
        /// What was being done, with the file.
        doing: String,
        /// The system's message.
        reason: String,
    },
    /// The disk gave back something that was never written.
    Corrupt {
        /// The file, or the table within it.
        place: String,
        /// What is wrong, with offsets and numbers.
        reason: String,
    },
    /// The log does not continue what base holds.
    LogMismatch {
        /// The position concerned.
        position: Position,
        /// What does not fit.
        reason: String,
    },
}

impl Error {
    /// An input/output error while `doing` something to a named file.
    pub fn io(doing: impl Into<String>, error: &std::io::Error) -> Error {
        Error::Io { doing: doing.into(), reason: error.to_string() }
    }

    /// Damage at a place.
    pub fn corrupt(place: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::Corrupt { place: place.into(), reason: reason.into() }
    }

    /// True if the keyspace cannot accept another write after this error.
    pub fn is_final(&self) -> bool {
        matches!(self, Error::OutcomeUnknown | Error::Io { .. } | Error::Corrupt { .. } | Error::LogMismatch { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::KeyNotProvided => write!(f, "a key is empty"),
            Error::KeyNotFound => write!(f, "a put that keeps the value or the lease met no key"),
            Error::ValueProvided => write!(f, "a put that keeps the value carries one"),
            Error::LeaseProvided => write!(f, "a put that keeps the lease carries one"),
            Error::TooManyOps { found, limit } => write!(f, "{found} operations in a transaction, {limit} allowed"),
            Error::DuplicateKey => write!(f, "a transaction puts a key twice, or puts and deletes it"),
            Error::InvalidSortOption => write!(f, "unknown sort order or target"),
            Error::RequestTooLarge { size, limit } => write!(f, "request of {size} bytes, {limit} allowed"),
            Error::Compacted { asked, floor } => write!(f, "revision {asked} is below the compacted revision {floor}"),
            Error::Future { asked, current } => write!(f, "revision {asked} is above the current revision {current}"),
            Error::LeaseNotFound(id) => write!(f, "lease {id} does not exist"),
            Error::LeaseExists(id) => write!(f, "lease {id} exists already"),
            Error::LeaseTtlTooLarge { ttl, limit } => write!(f, "lease TTL of {ttl} s, {limit} s allowed"),
            Error::WatchRangeEmpty => write!(f, "the range of a watch holds no key"),
            Error::WatchIdTaken(id) => write!(f, "watch id {id} is in use on this stream"),
            Error::WatchStartNegative(start) => write!(f, "a watch asks to start at revision {start}"),
            Error::NoSpace => write!(f, "no space left for more data"),
            Error::NoRoomToShrink { needed, free } => {
                write!(f, "no room to rewrite the database file: {needed} bytes needed, {free} free")
            }
            Error::ShrinkFailed { reason } => write!(f, "the database file was not rewritten: {reason}"),
            Error::CorruptAlarm => write!(f, "a CORRUPT alarm is raised"),
            Error::TooManyRequests { queued } => write!(f, "{queued} commands are waiting already"),
            Error::Stopped => write!(f, "the keyspace is stopped"),
            Error::OutcomeUnknown => write!(f, "the log failed: the command may or may not take effect"),
            Error::Io { doing, reason } => write!(f, "{doing}: {reason}"),
            Error::Corrupt { place, reason } => write!(f, "{place} is damaged: {reason}"),
            Error::LogMismatch { position, reason } => {
                write!(f, "the log does not fit at position {position}: {reason}")
            }
        }
    }
}

impl std::error::Error for Error {}
