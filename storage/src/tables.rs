//! The rows of the small tables, and the numbers that say how far the log was applied.

use crate::request::AlarmKind;
use crate::types::{Digest, Position, Revision, WriterId};

/// A lease as the log knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRow {
    /// The TTL granted, in seconds.
    pub(crate) ttl: i64,
    /// Milliseconds left at `since_ms`.
    pub(crate) remaining_ms: i64,
    /// Frame time of the grant, of the last logged renewal, or of the last start.
    pub(crate) since_ms: u64,
    /// The frame of the grant or of the last logged renewal: what an expiry is judged by. No other lease under the same id ever has it.
    pub(crate) mark: Position,
    /// A renewal was logged since the last start.
    pub(crate) renewed: bool,
}

/// An alarm, and who raised it. The same alarm may be raised by both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AlarmRow {
    /// An operator did, and only an operator clears it.
    Asked(AlarmKind),
    /// The store itself raised NOSPACE; it clears it as well once there is room.
    NoSpace,
}

impl AlarmRow {
    /// What it is called outside.
    pub(crate) fn kind(self) -> AlarmKind {
        match self {
            AlarmRow::Asked(kind) => kind,
            AlarmRow::NoSpace => AlarmKind::NoSpace,
        }
    }
}

/// A member's last frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriterRow {
    /// The process, counted per member.
    pub(crate) generation: u64,
    /// Its random name.
    pub(crate) writer: WriterId,
    /// The number of its last frame.
    pub(crate) number: u64,
}

/// How far the log was applied, and the numbers of the state there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    /// The last frame applied; 0 if none.
    pub(crate) position: Position,
    /// The digest there.
    pub(crate) digest: Digest,
    /// The current revision.
    pub(crate) revision: Revision,
    /// The compacted revision; -1 if nothing was ever compacted.
    pub(crate) compacted: Revision,
    /// The largest frame time seen, in milliseconds since 1970.
    pub(crate) time_ms: u64,
}
