//! Base: the store of record in redb, one durable commit per part.

use std::path::Path;
use std::sync::Arc;
use std::collections::BTreeMap;

use bytes::Bytes;

use crate::change::Change;
use crate::error::Error;
use crate::fs::FileSystem;
use crate::recent::PartData;
use crate::request::AlarmKind;
use crate::tables::{Applied, LeaseRow, WriterRow};
use crate::types::{LeaseId, MemberId, Revision, RevisionPair};

/// The small tables, whole, as a start needs them in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmallTables {
    /// Every lease.
    pub leases: BTreeMap<LeaseId, LeaseRow>,
    /// Every alarm raised.
    pub alarms: Vec<(MemberId, AlarmKind)>,
    /// Every member's last frame.
    pub writers: BTreeMap<MemberId, WriterRow>,
    /// The newest mark, if any: wall-clock milliseconds.
    pub last_mark_ms: u64,
    /// How far the log was applied.
    pub applied: Applied,
}

/// What a version of a key is, without its value if that lies in `history`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// A deletion.
    Tombstone,
    /// A put.
    Put {
        /// The create revision.
        create: Revision,
        /// The version number.
        version: i64,
        /// The lease; 0 if none.
        lease: i64,
        /// The value, if it is kept inline; otherwise it is in `history` at the version's revision.
        inline: Option<Bytes>,
    },
}

/// What a flush did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushReport {
    /// Index rows written.
    pub rows_written: u64,
    /// Versions dropped because the compacted revision made them unreadable, from base or before they got there.
    pub versions_dropped: u64,
}

/// Bytes of user data and rows in base, kept with every commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of keys and values of the newest version of every living key.
    pub live_bytes: u64,
    /// Bytes of everything else in `index` and `history`.
    pub dead_bytes: u64,
}

/// An open base.
#[derive(Debug)]
pub struct Base {}

/// Base at one commit, for reading. Cheap to share; pins pages while it lives.
#[derive(Debug)]
pub struct Snapshot {}

impl Base {
    /// Creates base in a new file. Errors: `Io`, `NoSpace`.
    pub fn create(_fs: &Arc<dyn FileSystem>, _file: &Path, _cache_bytes: usize) -> Result<Base, Error> {
        unimplemented!("written next")
    }
    /// Opens base. Errors: `Io`; `Corrupt` for an empty or foreign file.
    pub fn open(_fs: &Arc<dyn FileSystem>, _file: &Path, _cache_bytes: usize) -> Result<Base, Error> {
        unimplemented!("written next")
    }
    /// Reads the small tables.
    pub fn small_tables(&self) -> Result<SmallTables, Error> {
        unimplemented!("written next")
    }
    /// Base as it is now.
    pub fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        unimplemented!("written next")
    }
    /// Obtains the room that `flush` of this part needs in the worst case. Errors: `NoSpace` with nothing begun; `Io`.
    pub fn reserve(&self, _part: &PartData) -> Result<(), Error> {
        unimplemented!("written next")
    }
    /// Writes a part in one durable commit, with the log position that it reaches, and compacts the keys it touches.
    pub fn flush(&self, _part: &PartData) -> Result<FlushReport, Error> {
        unimplemented!("written next")
    }
    /// Bytes and rows, as of the last commit.
    pub fn totals(&self) -> Totals {
        unimplemented!("written next")
    }
    /// The bytes of disk that the file takes.
    pub fn size_bytes(&self) -> u64 {
        unimplemented!("written next")
    }
}

impl Snapshot {
    /// The newest version of `key` at or below `at`, with its place.
    pub fn get(&self, _key: &[u8], _at: RevisionPair) -> Result<Option<(RevisionPair, Version)>, Error> {
        unimplemented!("written next")
    }
    /// For each key from `start` on (inclusive) and below `end` (no end if `None`) that has a version at or below `at`: the newest such version,
    /// tombstones included, in key order. `visit` returns false to stop; the key it stopped at was visited.
    pub fn scan(
        &self,
        _start: &[u8],
        _end: Option<&[u8]>,
        _at: RevisionPair,
        _visit: &mut dyn FnMut(Bytes, RevisionPair, Version) -> bool,
    ) -> Result<(), Error> {
        unimplemented!("written next")
    }
    /// The value that `history` holds at `at`.
    pub fn value(&self, _at: RevisionPair) -> Result<Bytes, Error> {
        unimplemented!("written next")
    }
    /// The changes from revision `from` on, in order, whole revisions, until about `max_bytes` of keys and values are reached (one revision at
    /// least if there is one), none above `upto`.
    pub fn changes(&self, _from: Revision, _upto: Revision, _max_bytes: usize) -> Result<Vec<Arc<Change>>, Error> {
        unimplemented!("written next")
    }
    /// The keys attached to a lease, in key order.
    pub fn lease_keys(&self, _lease: LeaseId) -> Result<Vec<Bytes>, Error> {
        unimplemented!("written next")
    }
    /// How far the log was applied at this commit.
    pub fn applied(&self) -> Applied {
        unimplemented!("written next")
    }
}
