//! Base: the store of record in redb, one durable commit per part.
//!
//! What a crash leaves: `flush` writes every table and the log position it reaches in one commit, so base is at the end of
//! the part before or of this one, never between. redb takes a snapshot's pages out of use only when the snapshot is
//! dropped, so readers never wait for a flush and a flush never for them.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use redb::{Database, ReadTransaction, ReadableDatabase};

use crate::error::Error;
use crate::fs::FileSystem;
use crate::recent::PartData;
use crate::tables::{AlarmRow, Applied, LeaseRow, WriterRow};
use crate::types::{LeaseId, MemberId, Revision};

mod backend;
mod beside;
mod build;
mod commit;
mod compact;
mod cut;
mod damaged;
mod fault;
mod flush;
mod key_rows;
mod layout;
mod meta;
mod open;
mod overlay;
mod pieces;
mod rewrite;
mod room;
mod rows;
mod salvage;
mod scan;
mod scrub;
mod small;
mod sweep;
#[cfg(test)]
mod tests;
mod usage;
mod verify;

use backend::Backend;
pub(crate) use beside::reached;
pub(crate) use build::Builder;
use commit::Txn;
pub(crate) use damaged::Damaged;
use fault::At;
pub(crate) use flush::Garbage;
use meta::Meta;
pub(crate) use open::check_pages;
pub(crate) use rewrite::{Rewrite, Step, unfinished};
pub(crate) use room::{COMMIT_BYTES, worst_part_bytes};
pub(crate) use rows::TableId;
pub use salvage::Lost;
pub(crate) use salvage::{Salvaged, Target, salvage};
use usage::Usage;
pub(crate) use usage::{change_bytes, command_bytes, small_row_bytes};

/// The small tables, whole, as a start needs them in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SmallTables {
    /// Every lease.
    pub(crate) leases: BTreeMap<LeaseId, LeaseRow>,
    /// Every alarm raised.
    pub(crate) alarms: Vec<(MemberId, AlarmRow)>,
    /// Every member's last frame.
    pub(crate) writers: BTreeMap<MemberId, WriterRow>,
    /// The newest mark, if any: wall-clock milliseconds.
    pub(crate) last_mark_ms: u64,
    /// How far the log was applied.
    pub(crate) applied: Applied,
}

/// What a version of a key is, without its value if that lies in `history`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
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
        /// The value, or where it is.
        value: Kept,
    },
}

/// Where the value of a put is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Beside the key.
    Inline(Bytes),
    /// In `history` at the version's revision; its length.
    History(u64),
}

/// What a flush did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushReport {
    /// Versions written.
    pub(crate) versions_written: u64,
    /// Versions dropped because the compacted revision made them unreadable, from base or before they got there.
    pub(crate) versions_dropped: u64,
}

/// What a step of the sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SweepReport {
    /// Rows of `history` visited.
    pub(crate) rows_visited: u64,
    /// Versions dropped.
    pub(crate) versions_dropped: u64,
    /// True if nothing below the compacted revision, as far as base reaches, is left to visit.
    pub(crate) done: bool,
}

/// Bytes of user data in base, kept with every commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Bytes of keys and values of the newest version of every living key.
    pub(crate) live_bytes: u64,
    /// Bytes of keys and values of all other versions, deletions included.
    pub(crate) dead_bytes: u64,
}

/// An open base.
#[derive(Debug)]
pub(crate) struct Base {
    database: Arc<Database>,
    backend: Backend,
    /// Held while a commit is prepared and made: it starts from the numbers of the one before.
    commits: Mutex<()>,
    /// What the last commit wrote. Never held while a disk is waited for: every put asks for the totals.
    meta: Mutex<Meta>,
    /// A walk over what the file holds, if one is under way.
    scrub: Mutex<scrub::State>,
    usage: Mutex<Usage>,
    fs: Arc<dyn FileSystem>,
    file: PathBuf,
    cache_bytes: usize,
}

/// Base at one commit, for reading. Cheap to share; pins pages while it lives.
pub(crate) struct Snapshot {
    index: scan::Rows,
    history: scan::Rows,
    lease_keys: scan::Rows,
    txn: ReadTransaction,
    meta: Meta,
    /// Dropping a redb database fails its readers, so each keeps it; last, because fields are dropped in order.
    _database: Arc<dyn Any + Send + Sync>,
}

impl Base {
    /// Creates base in a new file and makes both durable. A crash in the middle leaves a file that `open` refuses.
    /// Errors: `NoSpace`; `Io`, also if the file exists.
    pub(crate) fn create(fs: &Arc<dyn FileSystem>, file: &Path, cache_bytes: usize) -> Result<Base, Error> {
        Builder::create(fs, file, cache_bytes)?.finish(Meta::NEW.applied, Meta::NEW.cursor)
    }

    /// Opens base. Errors: `Corrupt` for a missing, empty, damaged or foreign file; `Io`, also for a newer format.
    pub(crate) fn open(fs: &Arc<dyn FileSystem>, file: &Path, cache_bytes: usize) -> Result<Base, Error> {
        open::open(fs, file, cache_bytes)
    }

    /// Reads the small tables. Errors: `Io`, `Corrupt`.
    pub(crate) fn small_tables(&self) -> Result<SmallTables, Error> {
        self.snapshot()?.small_tables()
    }

    /// Base as it is now. Errors: `Io`, `Corrupt`.
    pub(crate) fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        Snapshot::new(&self.database).map(Arc::new)
    }

    /// Makes sure that there is the room that `flush` of this part needs in the worst case. Answers what that flush may do with versions
    /// that nobody can read: where room is short they stay, because dropping them takes some first. Errors: `NoSpace` with nothing begun; `Io`.
    pub(crate) fn reserve(&self, part: &PartData, garbage: Garbage) -> Result<Garbage, Error> {
        let (free, in_use) = (self.free_bytes()?, self.rewritten_bytes_max());
        let fits = |choice: &Garbage| room::worst_flush_bytes(part, *choice, in_use) <= free;
        [garbage, Garbage::Keep].into_iter().find(fits).ok_or(Error::NoSpace)
    }

    /// Writes a part in one durable commit, with the log position that it reaches, and compacts the keys it touches unless told to
    /// keep everything: then the sweep does it later.
    /// Errors, all final: `Io`, after which the part may or may not be in base; `Corrupt`.
    ///
    /// # Panics
    ///
    /// If the part does not continue what is in base.
    pub(crate) fn flush(&self, part: &PartData, garbage: Garbage) -> Result<FlushReport, Error> {
        if planted!(MarkBeforeData) {
            let mark = |before: &Meta| Meta { applied: part.applied, ..*before };
            self.commit(|txn, before| mark(before).write(txn).map(|()| (*before, ())))?;
        }
        let report = self.commit(|txn, meta| flush::write(txn, meta, part, garbage))?;
        self.wrote(part);
        self.follow_usage();
        Ok(report)
    }

    /// Makes sure that there is the room that a step of the sweep needs. Answers how many rows it may visit: fewer where room is short.
    /// Errors: `NoSpace` with nothing begun; `Io`.
    pub(crate) fn reserve_sweep(&self, rows_max: usize) -> Result<usize, Error> {
        let (free, in_use) = (self.free_bytes()?, self.rewritten_bytes_max());
        let mut rows = rows_max.max(1);
        while room::worst_sweep_bytes(rows, in_use) > free {
            if rows == 1 {
                return Err(Error::NoSpace);
            }
            rows /= 2;
        }
        Ok(rows)
    }

    /// One step of the sweep in one durable commit: visits about `rows_max` versions written up to `compacted`, from where
    /// the last step ended, and drops what is unreadable. Errors, all final: `Io`, `Corrupt`.
    pub(crate) fn sweep(&self, compacted: Revision, rows_max: usize) -> Result<SweepReport, Error> {
        let report = self.commit(|txn, meta| sweep::step(txn, meta, compacted, rows_max.max(1)))?;
        self.follow_usage();
        Ok(report)
    }

    /// One durable commit of what `work` writes, given what the last one wrote; it answers what this one writes.
    fn commit<T>(&self, work: impl FnOnce(&Txn<'_>, &Meta) -> Result<(Meta, T), Error>) -> Result<T, Error> {
        let _commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *self.meta();
        let scrub = self.scrub.lock().unwrap_or_else(PoisonError::into_inner);
        let work = |redb: &_| work(&Txn { redb, scrub: scrub.as_ref() }, &before);
        let (after, report) = commit::durably(&self.database, work)?;
        *self.meta() = after;
        Ok(report)
    }

    fn meta(&self) -> MutexGuard<'_, Meta> {
        self.meta.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the sweep goes on: everything written before was visited.
    pub(crate) fn swept(&self) -> Revision {
        self.meta().cursor.main
    }

    /// Bytes of user data, as of the last commit.
    pub(crate) fn totals(&self) -> Totals {
        self.meta().totals
    }

    /// The bytes of disk that the file takes; 0 if the file system does not say.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.backend.allocated_bytes().unwrap_or(0)
    }

    /// Bytes read from the file since it was opened.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.backend.bytes_read()
    }

    /// Bytes written to the file since it was opened.
    #[cfg(test)]
    pub(crate) fn bytes_written(&self) -> u64 {
        self.backend.bytes_written()
    }

    /// Makes all further input and output of this base fail, so that dropping it writes nothing.
    pub(crate) fn halt(&self) {
        self.backend.halt();
    }

    /// Makes every further change fail; what is in base stays readable.
    pub(crate) fn refuse_changes(&self) {
        self.backend.refuse_changes();
    }

    /// Keeps the database for good: once something has panicked within redb, dropping it would panic again.
    pub(crate) fn keep_for_good(&self) {
        self.refuse_changes();
        std::mem::forget(Arc::clone(&self.database));
    }
}

impl Snapshot {
    /// Base as a file holds it that nobody has open; writes nothing. Errors: `Corrupt`; `Io`, also for a newer format.
    pub(crate) fn of_file(fs: &Arc<dyn FileSystem>, file: &Path, cache_bytes: usize) -> Result<Snapshot, Error> {
        open::read_only(fs, file, cache_bytes)
    }

    fn new<D: ReadableDatabase + Send + Sync + 'static>(database: &Arc<D>) -> Result<Snapshot, Error> {
        let txn = database.begin_read().at("begin")?;
        let meta = Meta::read(&txn.open_table(rows::META).at("meta")?)?;
        Snapshot::with(database, txn, meta)
    }

    /// The tables of a base that may say nothing, or nothing true, about itself.
    fn of_tables<D: ReadableDatabase + Send + Sync + 'static>(database: &Arc<D>) -> Result<Snapshot, Error> {
        let txn = database.begin_read().at("begin")?;
        Snapshot::with(database, txn, Meta::NEW)
    }

    fn with<D: Send + Sync + 'static>(database: &Arc<D>, txn: ReadTransaction, meta: Meta) -> Result<Snapshot, Error> {
        let open = |id: TableId| txn.open_table(id.definition()).at(id.name());
        Ok(Snapshot {
            index: open(TableId::Index)?,
            history: open(TableId::History)?,
            lease_keys: open(TableId::LeaseKeys)?,
            meta,
            txn,
            _database: Arc::<D>::clone(database),
        })
    }

    fn open_table(&self, id: TableId) -> Result<scan::Rows, Error> {
        self.txn.open_table(id.definition()).at(id.name())
    }

    /// How far the log was applied at this commit.
    pub(crate) fn applied(&self) -> Applied {
        self.meta.applied
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("meta", &self.meta).finish_non_exhaustive()
    }
}
