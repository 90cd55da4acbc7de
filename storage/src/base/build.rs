//! A new base, written row by row in key order: for a rewrite of base, and for a restore.
//!
//! Rows come table by table, each table in ascending order of keys, which packs pages as full as the rows allow. They are
//! written in several commits of bounded size. Until `finish` the file has no `meta`, so nothing takes it for a base: `open`
//! refuses it, and whoever finds it may remove it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::backend::Backend;
use super::commit::Txn;
use super::cut::Row;
use super::flush::Garbage;
use super::layout;
use super::meta::Meta;
use super::room::{COMMIT_BYTES, worst_flush_bytes};
use super::rows::{Rows, TableId};
use super::{Base, Database, commit, flush, open};
use crate::error::Error;
use crate::fs::FileSystem;
use crate::recent::PartData;
use crate::tables::Applied;
use crate::types::RevisionPair;

/// Keys and rows of one commit, in bytes: enough to share it, few enough that a log's sync never waits long behind it.
const COMMIT_BYTES_MAX: usize = 4 << 20;
/// Less than this is not worth a commit.
const COMMIT_BYTES_MIN: usize = 1 << 10;

/// The bytes of rows that go into one commit: what it dirties should fit into the cache with room to spare.
pub(super) fn commit_bytes(cache_bytes: usize) -> usize {
    small!((cache_bytes / 16).clamp(COMMIT_BYTES_MIN, COMMIT_BYTES_MAX), 1)
}

/// Writes a new base. After an error it is of no further use, and the file should be removed.
pub(crate) struct Builder {
    database: Database,
    backend: Backend,
    fs: Arc<dyn FileSystem>,
    file: PathBuf,
    cache_bytes: usize,
    /// What `meta` will say, as far as what was written goes.
    meta: Meta,
    table: TableId,
    waiting: Vec<Row>,
    waiting_bytes: usize,
    /// The key that the last row of `index` belongs to, escaped: the first row of a key is its newest version.
    last_prefix: Vec<u8>,
}

impl Builder {
    /// Creates the file, which must not exist. Errors: `NoSpace`; `Io`, also if it exists.
    pub(crate) fn create(fs: &Arc<dyn FileSystem>, file: &Path, cache_bytes: usize) -> Result<Builder, Error> {
        let (database, backend) = open::create_file(fs, file, cache_bytes)?;
        Ok(Builder {
            database,
            backend,
            fs: Arc::clone(fs),
            file: file.to_owned(),
            cache_bytes,
            meta: Meta::NEW,
            table: TableId::Index,
            waiting: Vec::new(),
            waiting_bytes: 0,
            last_prefix: Vec::new(),
        })
    }

    /// Takes a row as `layout.rs` describes it, checksum included. Errors: `Corrupt` if it does not match its checksum, cannot be
    /// read, or does not come after the rows that its table has; `NoSpace`; `Io`.
    pub(crate) fn append(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<(), Error> {
        if table != self.table {
            self.commit_rows()?;
            self.table = table;
        }
        if table == TableId::Index {
            self.count(key, row)?;
        } else {
            layout::unseal(table.name(), key, row)?;
        }
        self.waiting.push((key.to_vec(), row.to_vec()));
        self.waiting_bytes += key.len() + row.len();
        if self.waiting_bytes >= commit_bytes(self.cache_bytes) { self.commit_rows() } else { Ok(()) }
    }

    /// Writes changes on top of the rows so far, which must be complete up to there, dropping nothing; `history` has their rows of that
    /// table as another base has them. Errors: `NoSpace`; `Io`, `Corrupt`.
    ///
    /// # Panics
    ///
    /// If the part does not continue what was written.
    pub(crate) fn flush(&mut self, part: &PartData, history: &[Row]) -> Result<(), Error> {
        self.commit_rows()?;
        self.reserve(worst_flush_bytes(part, Garbage::Keep, self.backend.written_to()))?;
        let before = self.meta;
        let work = |txn: &_| flush::write_changes(&Txn::unseen(txn), &before, part, history);
        self.meta = commit::durably(&self.database, work)?;
        Ok(())
    }

    /// Says how far the log was applied, and where the sweep goes on, and makes it a base, durable with its name. Counts, sums and
    /// totals are those of the rows. Errors: `NoSpace`; `Io`, `Corrupt`.
    pub(crate) fn finish(mut self, applied: Applied, cursor: RevisionPair) -> Result<Base, Error> {
        self.commit_rows()?;
        let meta = Meta { applied, cursor, ..self.meta };
        commit::durably(&self.database, |txn| {
            let txn = &Txn::unseen(txn);
            for id in TableId::ALL {
                Rows::open(txn, id, &meta.sums)?;
            }
            meta.write(txn)
        })?;
        let Builder { database, backend, fs, file, cache_bytes, .. } = self;
        open::sync_directory(&fs, &file)?;
        open::base(&fs, &file, database, backend, cache_bytes)
    }

    /// Makes everything fail from now on, so that dropping it writes nothing.
    pub(crate) fn halt(&self) {
        self.backend.halt();
    }

    /// The bytes of disk that it takes; 0 if the file system does not say.
    pub(super) fn size_bytes(&self) -> u64 {
        self.backend.allocated_bytes().unwrap_or(0)
    }

    fn reserve(&self, worst_bytes: u64) -> Result<(), Error> {
        open::reserve(&self.fs, &self.file, worst_bytes)
    }

    fn commit_rows(&mut self) -> Result<(), Error> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        // A row a little larger than half a page has one to itself.
        self.reserve(2 * self.waiting_bytes as u64 + COMMIT_BYTES)?;
        let (id, mut sums, rows) = (self.table, self.meta.sums, std::mem::take(&mut self.waiting));
        self.meta.sums = commit::durably(&self.database, |txn| {
            let txn = &Txn::unseen(txn);
            let mut table = Rows::open(txn, id, &sums)?;
            table.append(&rows)?;
            table.close(&mut sums);
            Ok(sums)
        })?;
        self.waiting_bytes = 0;
        Ok(())
    }

    /// Live is the newest version of each key, if it is a put.
    fn count(&mut self, key: &[u8], row: &[u8]) -> Result<(), Error> {
        let (prefix, _) = layout::split_index_key(key)?;
        let mut newest = self.last_prefix != prefix;
        if newest {
            prefix.clone_into(&mut self.last_prefix);
        }
        let key_bytes = layout::unescape(prefix)?.len() as u64;
        let totals = &mut self.meta.totals;
        for version in layout::read_index_row(key, row)? {
            let (_, version) = version?;
            let live = std::mem::take(&mut newest) && !version.is_tombstone();
            *if live { &mut totals.live_bytes } else { &mut totals.dead_bytes } += key_bytes + version.value_len();
        }
        Ok(())
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("file", &self.file).field("meta", &self.meta).finish_non_exhaustive()
    }
}
