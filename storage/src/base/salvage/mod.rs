//! A new base with everything that is intact in a damaged one.
//!
//! Each version lies in two rows: `index` has its numbers, and its value if that is small; `history` has its key, and a large value, the
//! rest of it perhaps in further rows. Both are walked as far as they can be read, and joined. A version is taken over if all its rows are
//! sound and agree, or if the row of `history` is missing and that of `index` has everything. What is missing otherwise is known from the other row: which key, which
//! revision.
//!
//! If any version is missing, history is no longer whole, so everything below the revision counts as compacted; and a key whose
//! newest version is missing is left out altogether, for an older one would pass for it.

mod join;
mod small;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use self::join::Join;
use self::small::Small;
use super::build::Builder;
use super::damaged::{Damaged, Met};
use super::layout::{self, Indexed};
use super::meta::{Meta, Sum};
use super::pieces::Chain;
use super::rows::TableId;
use super::{Base, Version};
use crate::error::Error;
use crate::fs::FileSystem;
use crate::sort::Sorter;
use crate::tables::Applied;
use crate::types::{Digest, Position, Revision, RevisionPair};

/// Something that is not in the new base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The table that it was in, or `log`.
    pub table: &'static str,
    /// The first key concerned and the last one, if keys are known.
    pub keys: Option<(Bytes, Bytes)>,
    /// The first revision concerned and the last one, if they are known.
    pub revisions: Option<(Revision, Revision)>,
    /// What is missing, and why.
    pub what: String,
}

/// What was made of a damaged base.
#[derive(Debug)]
pub(crate) struct Salvaged {
    pub(crate) base: Base,
    pub(crate) lost: Vec<Lost>,
    /// Nothing is missing of what the log builds on.
    pub(crate) whole: bool,
}

/// Where a new base goes, and what it may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) fs: &'a Arc<dyn FileSystem>,
    /// For files that are gone at the end.
    pub(crate) dir: &'a Path,
    pub(crate) file: &'a Path,
    pub(crate) cache_bytes: usize,
    /// Memory for sorting.
    pub(crate) sort_bytes: usize,
    /// The wall clock, in milliseconds.
    pub(crate) now_ms: u64,
}

impl Target<'_> {
    fn sorter(&self, name: &'static str) -> Sorter {
        Sorter::new(self.fs, self.dir, name, self.sort_bytes)
    }
}

/// Makes a new base. Errors: `Corrupt` if no table can be opened; `NoSpace`, `Io` of the new one.
pub(crate) fn salvage(source: &Damaged, target: &Target<'_>) -> Result<Salvaged, Error> {
    let meta = source.meta();
    if let Err(error) = &meta
        && !source.is_readable()
    {
        return Err(error.clone());
    }
    let meta = meta.map_err(|error| Lost::of("meta", error.to_string()));
    let mut join = Join::new(source, target, meta.as_ref().ok())?;
    let mut lost = std::mem::take(&mut join.lost);
    lost.extend(meta.as_ref().err().cloned());
    let small = Small::read(source, meta.as_ref().ok(), &mut lost)?;
    let whole = join.whole && meta.is_ok();
    let mut builder = Builder::create(target.fs, target.file, target.cache_bytes)?;
    let mut copy = Copy { join: &join, builder: &mut builder, attached: target.sorter("leases"), small: &small };
    copy.index(source)?;
    copy.history(source)?;
    let attached = copy.attached;
    small.write(source, &mut builder, attached)?;
    let (applied, cursor) = applied(&join, meta.as_ref().ok(), whole, target.now_ms.max(small.last_mark_ms));
    let base = builder.finish(applied, cursor)?;
    Ok(Salvaged { base, lost, whole: whole && small.whole })
}

/// What the new base says of itself. Without all versions what lies below its revision cannot be promised.
fn applied(join: &Join, meta: Option<&Meta>, whole: bool, now_ms: u64) -> (Applied, RevisionPair) {
    let Some(meta) = meta else {
        let revision = join.newest.max(Revision::FIRST);
        let (position, digest) = (Position(1), Digest::default().chain(&revision.0.to_le_bytes()));
        return (Applied { position, digest, revision, compacted: revision, time_ms: now_ms }, Meta::NEW.cursor);
    };
    let revision = meta.applied.revision.max(join.newest);
    if whole {
        return (meta.applied, meta.cursor);
    }
    (Applied { revision, compacted: revision, ..meta.applied }, Meta::NEW.cursor)
}

/// The second walk: what the join found good is written.
struct Copy<'a> {
    join: &'a Join,
    builder: &'a mut Builder,
    /// Keys whose newest version names a lease.
    attached: Sorter,
    small: &'a Small,
}

impl Copy<'_> {
    fn index(&mut self, source: &Damaged) -> Result<(), Error> {
        let mut last = Vec::new();
        source.walk(TableId::Index, |met| {
            let Met::Row(key, row) = met else { return Ok(()) };
            let (prefix, _) = layout::split_index_key(&key)?;
            let user_key = layout::unescape(prefix)?;
            if self.join.is_left_out(&user_key) {
                return Ok(());
            }
            let mut versions = layout::versions_of(&key, &row)?;
            versions.retain(|(at, _)| !self.join.bad.contains(at));
            let (Some((oldest, _)), Some((_, newest))) = (versions.first(), versions.last()) else { return Ok(()) };
            if last != prefix {
                prefix.clone_into(&mut last);
                self.newest(&user_key, newest)?;
            }
            let key = layout::index_key(prefix, *oldest);
            self.builder.append(TableId::Index, &key, &layout::index_row(&key, &versions))
        })
    }

    fn newest(&mut self, user_key: &Bytes, version: &Version) -> Result<(), Error> {
        let Version::Put { lease, .. } = *version else { return Ok(()) };
        if self.small.leases.contains(&lease) {
            self.attached.push([&lease.to_be_bytes(), user_key.as_ref()].concat(), Vec::new())?;
        }
        Ok(())
    }

    /// Rows of `history` that are good, and those made from what `index` says.
    fn history(&mut self, source: &Damaged) -> Result<(), Error> {
        let (join, builder) = (self.join, &mut *self.builder);
        let mut made = join.made.iter().peekable();
        let left_out =
            |place: &[u8], row: &[u8]| layout::read_history_row(place, row).map(|row| join.is_left_out(row.key));
        let mut chain = None;
        source.walk(TableId::History, |met| {
            let Met::Row(place, row) = met else { return Ok(()) };
            if layout::is_piece(&place) {
                let follows = chain.as_mut().is_some_and(|chain: &mut Chain| chain.pass(&place, &row).is_ok());
                return if follows { builder.append(TableId::History, &place, &row) } else { Ok(()) };
            }
            let at = layout::read_history_key(&place)?;
            chain = None;
            while let Some((_, (place, row))) = made.next_if(|(other, _)| **other < at) {
                if !left_out(place, row)? {
                    builder.append(TableId::History, place, row)?;
                }
            }
            if join.bad.contains(&at) || join.stale.contains(&at) || left_out(&place, &row)? {
                return Ok(());
            }
            chain.get_or_insert_with(Chain::default).pass(&place, &row)?;
            builder.append(TableId::History, &place, &row)
        })?;
        made.try_for_each(
            |(_, (place, row))| {
                if left_out(place, row)? { Ok(()) } else { builder.append(TableId::History, place, row) }
            },
        )
    }
}

impl Lost {
    pub(crate) fn of(table: &'static str, what: String) -> Lost {
        Lost { table, keys: None, revisions: None, what }
    }

    fn version(table: &'static str, key: &Bytes, at: RevisionPair, what: &str) -> Lost {
        let keys = Some((key.clone(), key.clone()));
        Lost { table, keys, revisions: Some((at.main, at.main)), what: what.to_owned() }
    }
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.table)?;
        match &self.keys {
            Some((first, last)) if first == last => write!(f, ", key {first:?}")?,
            Some((first, last)) => write!(f, ", keys from {first:?} to {last:?}")?,
            None => {}
        }
        match self.revisions {
            Some((first, last)) if first == last => write!(f, ", revision {first}")?,
            Some((first, last)) => write!(f, ", revisions {first} to {last}")?,
            None => {}
        }
        write!(f, ": {}", self.what)
    }
}
