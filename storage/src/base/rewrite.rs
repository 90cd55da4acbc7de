//! A copy of base in a new file, made in steps while base goes on taking parts: what it no longer uses is left behind.
//!
//! While a copy is made nothing is dropped from base: no sweep, and flushes keep what they would drop. So versions are only ever
//! added, in `index` behind those that a row has; those up to a revision R stay as they are, and each step may look at base anew: no step holds
//! a snapshot for long, which would pin pages. The copy takes three passes:
//!
//! 1. The rows of both tables with a revision up to R, base's when the copy began, in key order.
//! 2. The changes above R, in order of revisions, until there are no more: what flushes brought meanwhile. Their rows of `history` are
//!    copied as they are too: cut anew, values would be cut elsewhere.
//! 3. With no flush between: the small tables, whole, and `meta`.
//!
//! The third pass reads as many rows as there are leases and keys attached to them: about two million a second.
//!
//! Then the copy holds the same rows, at the same position and digest. That is checked, not believed: the counts, checksum sums and
//! totals of every table that base has kept since it was created must equal those counted while the copy was written. No second
//! apply of the log is needed for that, and none would say more: it would compare one digest of the log, this compares each row.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::build::{Builder, commit_bytes};
use super::cut::Row;
use super::layout;
use super::room::COMMIT_BYTES;
use super::rows::TableId;
use super::usage::{EMPTY_BYTES, SMALL};
use super::{Base, Snapshot, open};
use crate::change::Change;
use crate::error::Error;
use crate::fs::FileSystem;
use crate::recent::PartData;
use crate::types::{Revision, RevisionPair};

/// Bytes of changes that one step brings up for each byte of rows that one copies: many, because they lie scattered over the keys as
/// those of a part do.
const CHANGES_SHARE: usize = 4;

/// Where a copy is made: beside base. Whatever has this name belongs to nobody.
pub(crate) fn unfinished(base: &Path) -> PathBuf {
    base.with_extension("new")
}

/// A copy in the making. Its errors concern the copy alone: base is as it was.
#[derive(Debug)]
pub(crate) struct Rewrite {
    base: Arc<Base>,
    builder: Builder,
    pass: Pass,
    /// Base's revision when the copy began.
    upto: Revision,
}

#[derive(Debug)]
enum Pass {
    /// Rows of this table behind this key.
    Rows(TableId, Vec<u8>),
    /// Changes from this revision on.
    Changes(Revision),
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It visited so many rows, or versions with all their rows.
    Went(u64),
    /// Nothing was left: if no flush comes between, `finish` may follow.
    CaughtUp,
}

impl Rewrite {
    /// Begins a copy, with everything swept that the caller wants to be gone. Errors: `NoRoomToShrink`, `ShrinkFailed`.
    pub(crate) fn begin(base: &Arc<Base>) -> Result<Rewrite, Error> {
        failpoint!(RewriteBegin, |error| Err(concerns_the_copy(error)));
        let free = base.free_bytes().map_err(concerns_the_copy)?;
        let needed = base.room_to_rewrite();
        if free < needed {
            return Err(Error::NoRoomToShrink { needed, free });
        }
        let file = unfinished(&base.file);
        remove(&base.fs, &file).map_err(concerns_the_copy)?;
        let builder = Builder::create(&base.fs, &file, base.cache_bytes).map_err(concerns_the_copy);
        let builder = builder.inspect_err(|_| drop(remove(&base.fs, &file)))?;
        let pass = Pass::Rows(TableId::Index, Vec::new());
        Ok(Rewrite { base: Arc::clone(base), builder, pass, upto: base.meta().applied.revision })
    }

    /// Does a bounded piece. Errors: `NoRoomToShrink`, `ShrinkFailed`; the copy is of no further use then.
    pub(crate) fn step(&mut self) -> Result<Step, Error> {
        let went = match &self.pass {
            Pass::Rows(table, behind) => self.copy_rows(*table, &behind.clone()),
            Pass::Changes(from) => self.copy_changes(*from),
        };
        went.map_err(|error| self.explain(error))
    }

    fn copy_rows(&mut self, table: TableId, behind: &[u8]) -> Result<Step, Error> {
        failpoint!(RewriteRows, Err);
        let (snapshot, upto, builder) = (self.base.snapshot()?, self.upto, &mut self.builder);
        let step_bytes = commit_bytes(self.base.cache_bytes);
        let (mut visited, mut bytes) = (0, 0);
        let last = snapshot.rows_behind(table, behind, |key, row| {
            if table == TableId::Index {
                copy_versions(builder, key, row, RevisionPair::last_of(upto))?;
            } else if layout::read_place(key)?.0 <= RevisionPair::last_of(upto) {
                builder.append(table, key, row)?;
            } else {
                return Ok(false);
            }
            visited += u64::from(!table.is_piece(key));
            bytes += key.len() + row.len();
            Ok(bytes < step_bytes)
        })?;
        self.pass = match (last, table) {
            (Some(last), _) if bytes >= step_bytes => Pass::Rows(table, last),
            (_, TableId::Index) => Pass::Rows(TableId::History, Vec::new()),
            _ if planted!(RewriteSkipsRevision) => Pass::Changes(upto.next().next()),
            _ => Pass::Changes(upto.next()),
        };
        Ok(Step::Went(visited))
    }

    fn copy_changes(&mut self, from: Revision) -> Result<Step, Error> {
        failpoint!(RewriteChanges, Err);
        let snapshot = self.base.snapshot()?;
        let max_bytes = CHANGES_SHARE * commit_bytes(self.base.cache_bytes);
        let changes = snapshot.changes(from, snapshot.applied().revision, max_bytes)?;
        let Some(last) = changes.last().map(|change| change.at.main) else { return Ok(Step::CaughtUp) };
        let visited = changes.len() as u64;
        let mut part = PartData::default();
        changes.iter().for_each(|change| part.push(Change::clone(change)));
        // The position is written at the end, with `meta`.
        part.applied.revision = last;
        self.builder.flush(&part, &rows_of(&snapshot, from, last)?)?;
        self.pass = Pass::Changes(last.next());
        Ok(Step::Went(visited))
    }

    /// Makes the copy a base, still under its own name. The last step must have caught up. Errors: `NoRoomToShrink`, `ShrinkFailed`; the
    /// file is gone then.
    pub(crate) fn finish(mut self) -> Result<Base, Error> {
        let snapshot = self.base.snapshot();
        let copied = snapshot.and_then(|snapshot| {
            failpoint!(RewriteFinish, Err);
            // As they are now: they have no revisions.
            for table in SMALL {
                snapshot.each_row(table, |key, row| self.builder.append(table, key, row))?;
            }
            Ok(snapshot)
        });
        let snapshot = match copied {
            Ok(snapshot) => snapshot,
            Err(error) => {
                let error = self.explain(error);
                self.abandon();
                return Err(error);
            }
        };
        let Rewrite { base, builder, .. } = self;
        let (fs, file) = (Arc::clone(&base.fs), unfinished(&base.file));
        let made =
            builder.finish(snapshot.meta.applied, snapshot.meta.cursor).and_then(|copy| compare(copy, &snapshot));
        made.map_err(|error| {
            drop(remove(&fs, &file));
            explain(&base, error)
        })
    }

    /// Gives the copy up and removes its file. What cannot be removed is removed by the next copy, or the next start.
    pub(crate) fn abandon(self) {
        let Rewrite { base, builder, .. } = self;
        builder.halt();
        drop(builder);
        drop(remove(&base.fs, &unfinished(&base.file)));
    }

    /// The bytes of disk that the copy takes.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.builder.size_bytes()
    }

    fn explain(&self, error: Error) -> Error {
        explain(&self.base, error)
    }
}

/// Copies a row of `index` as it was at a revision: flushes have added versions since.
fn copy_versions(builder: &mut Builder, key: &[u8], row: &[u8], upto: RevisionPair) -> Result<(), Error> {
    let (_, oldest) = layout::split_index_key(key)?;
    let mut versions = layout::versions_of(key, row)?;
    if versions.last().is_some_and(|(newest, _)| *newest <= upto) {
        return builder.append(TableId::Index, key, row);
    }
    if oldest > upto {
        return Ok(());
    }
    versions.retain(|(at, _)| *at <= upto);
    builder.append(TableId::Index, key, &layout::index_row(key, &versions))
}

impl Base {
    /// Gives a finished copy the name of base. A crash leaves one of the two under it, both at the same position. Errors: `Io`, final.
    pub(crate) fn take_name_of(&mut self, old: &Base) -> Result<(), Error> {
        let doing = || format!("renaming {} to {}", self.file.display(), old.file.display());
        failpoint!(Rename, Err);
        self.fs.rename(&self.file, &old.file).map_err(|error| Error::io(doing(), &error))?;
        self.file.clone_from(&old.file);
        failpoint!(Renamed, Err);
        self.take_over_scrub(old);
        if planted!(RenameUnsynced) {
            return Ok(());
        }
        open::sync_directory(&self.fs, &self.file)
    }

    /// True if nobody reads any more: its file can be let go.
    pub(crate) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.database) == 1
    }

    /// About the bytes that this base would take if it were written anew.
    pub(crate) fn bytes_if_rewritten(&self) -> u64 {
        // Pages are not quite full.
        (self.row_bytes() / 8 * 9 + EMPTY_BYTES).min(self.size_bytes())
    }

    /// What must be free for that: rows a little above half a page, as older formats have them, fill only half of one. No more than this base takes, or the pages
    /// that it has in use with what is obtained ahead of them.
    pub(crate) fn room_to_rewrite(&self) -> u64 {
        let copy = self.rewritten_bytes_max();
        (2 * self.bytes_if_rewritten()).min(copy + copy / 8) + COMMIT_BYTES
    }

    /// The bytes that are free where the file is. Errors: `Io`.
    pub(crate) fn free_bytes(&self) -> Result<u64, Error> {
        let doing = || format!("looking for room for {}", self.file.display());
        self.fs.volume(&self.file).map(|volume| volume.free).map_err(|error| Error::io(doing(), &error))
    }
}

/// The rows that `history` has of these revisions.
fn rows_of(snapshot: &Snapshot, from: Revision, upto: Revision) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let behind = layout::piece_key(RevisionPair::last_of(Revision(from.0 - 1)), u32::MAX);
    snapshot.rows_behind(TableId::History, &behind, |key, row| {
        let wanted = layout::read_place(key)?.0.main <= upto;
        rows.extend(wanted.then(|| (key.to_vec(), row.to_vec())));
        Ok(wanted)
    })?;
    Ok(rows)
}

/// Each row of the copy was counted while it was written, those of base as they came over the time: nothing is lost or made up.
fn compare(copy: Base, original: &Snapshot) -> Result<Base, Error> {
    let found = *copy.meta();
    if found == original.meta {
        return Ok(copy);
    }
    copy.halt();
    Err(Error::corrupt("base", format!("its copy has {found:?}, it says {:?}", original.meta)))
}

fn remove(fs: &Arc<dyn FileSystem>, file: &Path) -> Result<(), Error> {
    let fail = |error| Error::io(format!("removing {}", file.display()), &error);
    if fs.metadata(file).map_err(fail)?.is_some() { fs.remove(file).map_err(fail) } else { Ok(()) }
}

fn explain(base: &Base, error: Error) -> Error {
    match error {
        Error::NoSpace => {
            Error::NoRoomToShrink { needed: base.room_to_rewrite(), free: base.free_bytes().unwrap_or_default() }
        }
        other => concerns_the_copy(other),
    }
}

fn concerns_the_copy(error: Error) -> Error {
    Error::ShrinkFailed { reason: error.to_string() }
}
