//! Reads of base: the newest version at or below a revision, for one key, for a range, and changes in order.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use redb::{Cursor, ReadOnlyTable, ReadableTable};

use super::fault::At;
use super::layout::{self, HistoryRow, HistoryValue, Indexed, Stored};
use super::pieces::OnPages;
use super::rows::TableId;
use super::{Snapshot, Version};
use crate::change::{Change, ChangeKind};
use crate::error::Error;
use crate::types::{LeaseId, Revision, RevisionPair};

/// Rows of one key that a scan steps over before it seeks instead. A seek costs about as much as twenty steps (measured: 7
/// and 0.3 µs), so this few keep the worst case near that of seeking at once, and spare keys with few versions the seek.
pub(super) const SEEK_AFTER_ROWS: usize = 8;

pub(super) type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// A place in `history` to go on from.
type History<'s> = Cursor<'s, &'static [u8], &'static [u8]>;

impl Snapshot {
    /// The newest version of `key` at or below `at`, with its place. Errors: `Io`, `Corrupt`.
    pub(crate) fn get(&self, key: &[u8], at: RevisionPair) -> Result<Option<(RevisionPair, Version)>, Error> {
        let prefix = layout::key_prefix(key);
        let mut rows = self.index_from(&layout::index_key(&prefix, at))?;
        let Some((key, row)) = rows.next().at("index")? else { return Ok(None) };
        let (found, _) = layout::split_index_key(key.value())?;
        if found != prefix {
            return Ok(None);
        }
        let (at, version) = layout::read_index_row(key.value(), row.value())?.newest(at)?;
        Ok(Some((at, version.to_version())))
    }

    /// For each key from `start` on (inclusive) and below `end` (no end if `None`) that has a version at or below `at`: the
    /// newest such version, tombstones included, in key order. `visit` returns false to stop; the key it stopped at was
    /// visited. Errors: `Io`, `Corrupt`, at the first row concerned.
    pub(crate) fn scan(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        at: RevisionPair,
        visit: &mut dyn FnMut(Bytes, RevisionPair, Version) -> bool,
    ) -> Result<(), Error> {
        if end.is_some_and(|end| end <= start) {
            return Ok(());
        }
        let end = end.map(layout::key_prefix);
        let mut rows = self.index_from(&layout::key_prefix(start))?;
        let mut run = Run::default();
        while let Some((key, row)) = rows.next().at("index")? {
            if end.as_deref().is_some_and(|end| key.value() >= end) {
                break;
            }
            let (prefix, oldest) = layout::split_index_key(key.value())?;
            run.enter(prefix);
            if !run.answered && oldest <= at {
                run.answered = true;
                let (found, version) = layout::read_index_row(key.value(), row.value())?.newest(at)?;
                if !visit(layout::unescape(prefix)?, found, version.to_version()) {
                    return Ok(());
                }
            } else if run.step() {
                let next = if run.answered { layout::after_key(prefix) } else { layout::index_key(prefix, at) };
                rows = self.index_from(&next)?;
            }
        }
        Ok(())
    }

    /// The rows of `index` from a key on. A range would look its other end up as well.
    fn index_from(&self, start: &[u8]) -> Result<Cursor<'_, &'static [u8], &'static [u8]>, Error> {
        self.index.lower_bound(Bound::Included(start)).at("index")
    }

    /// A version as `index` has it. `read` gets it while its page is at hand. Errors: `Io`; `Corrupt`, also if there is none.
    pub(super) fn indexed<T>(
        &self,
        key: &[u8],
        at: RevisionPair,
        read: impl FnOnce(Indexed<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let prefix = layout::key_prefix(key);
        let place = layout::index_key(&prefix, at);
        let missing = || layout::missing("index", &place);
        let (key, row) = self.index_from(&place)?.next().at("index")?.ok_or_else(missing)?;
        if layout::split_index_key(key.value())?.0 != prefix {
            return Err(missing());
        }
        let (found, version) = layout::read_index_row(key.value(), row.value())?.newest(at)?;
        if found == at { read(version) } else { Err(missing()) }
    }

    /// The value of the put at `at`, wherever it lies. Errors: `Io`; `Corrupt`, also if there is none.
    pub(crate) fn value(&self, at: RevisionPair) -> Result<Bytes, Error> {
        self.value_of(&self.version_behind(&mut None, at)?)
    }

    fn value_of(&self, version: &OnPages<'_>) -> Result<Bytes, Error> {
        match version.row()?.value {
            HistoryValue::Here(_) | HistoryValue::Cut { .. } => Ok(version.value()),
            HistoryValue::Tombstone => Err(Error::corrupt("history", "a deletion where a put was expected")),
            HistoryValue::InIndex => match self.change(version)?.kind {
                ChangeKind::Put { value, .. } => Ok(value),
                ChangeKind::Tombstone => Err(disagree(version.at)),
            },
        }
    }

    /// The version at `at` as `history` has it. Where the one found last is the one before it, no lookup is needed: `last` is the revision of
    /// that one, and where it ends. Errors: `Io`; `Corrupt`, also if there is none.
    fn version_behind<'s>(
        &'s self,
        last: &mut Option<(Revision, History<'s>)>,
        at: RevisionPair,
    ) -> Result<OnPages<'s>, Error> {
        let neighbour = last.take().filter(|(last, _)| at.main == *last || at.main == last.next());
        if let Some((_, mut rows)) = neighbour
            && let Some(version) = OnPages::next(&mut rows, |found| found == at)?
        {
            *last = Some((at.main, rows));
            return Ok(version);
        }
        let place = layout::history_key(at);
        let mut rows = self.history.lower_bound(Bound::Included(place.as_slice())).at("history")?;
        let version =
            OnPages::next(&mut rows, |found| found == at)?.ok_or_else(|| layout::missing("history", &place))?;
        *last = Some((at.main, rows));
        Ok(version)
    }

    /// The values of the puts at these places, which must be kept in `history`, on their pages; in the order asked for, fetched in the order
    /// in which they lie on disk. Errors: as `value`.
    pub(crate) fn on_pages(&self, places: &[RevisionPair]) -> Result<Vec<OnPages<'_>>, Error> {
        let mut last = None;
        in_disk_order(places, |at| {
            let version = self.version_behind(&mut last, at)?;
            if version.row()?.value.len().is_some() { Ok(version) } else { Err(disagree(at)) }
        })
    }

    /// The values of the puts at these places, in the order asked for, fetched in the order in which they lie on disk.
    /// Errors: as `value`.
    pub(crate) fn values(&self, places: &[RevisionPair]) -> Result<Vec<Bytes>, Error> {
        let mut last = None;
        in_disk_order(places, |at| self.value_of(&self.version_behind(&mut last, at)?))
    }

    /// The changes from revision `from` on, in order, whole revisions, until about `max_bytes` of keys and values are
    /// reached (one revision at least if there is one), none above `upto`. Errors: `Io`, `Corrupt`.
    pub(crate) fn changes(&self, from: Revision, upto: Revision, max_bytes: usize) -> Result<Vec<Arc<Change>>, Error> {
        let mut changes: Vec<Arc<Change>> = Vec::new();
        if from > upto {
            return Ok(changes);
        }
        let start = layout::history_key(RevisionPair { main: from, sub: 0 });
        let mut rows = self.history.lower_bound(Bound::Included(start.as_slice())).at("history")?;
        let (mut bytes, mut last) = (0, None);
        let wanted = |at: RevisionPair, bytes: usize, last: Option<Revision>| {
            at.main <= upto && (bytes < max_bytes || last.is_none_or(|last| last == at.main))
        };
        while let Some(version) = OnPages::next(&mut rows, |at| wanted(at, bytes, last))? {
            let change = self.change(&version)?;
            bytes += version.row_bytes();
            if let ChangeKind::Put { value, .. } = &change.kind {
                bytes += value.len().min(layout::INLINE_MAX_BYTES);
            }
            last = Some(change.at.main);
            changes.push(Arc::new(change));
        }
        Ok(changes)
    }

    /// The newest changes before a place, in ascending order, about `max_bytes` of keys and values, one at least if there is one. Errors: `Io`,
    /// `Corrupt`.
    pub(crate) fn changes_below(&self, below: RevisionPair, max_bytes: usize) -> Result<Vec<Arc<Change>>, Error> {
        let mut changes: Vec<Arc<Change>> = Vec::new();
        let end = layout::history_key(below);
        let mut bytes = 0;
        let mut rows = self.history.upper_bound(Bound::Excluded(end.as_slice())).at("history")?;
        while let Some(version) = OnPages::previous(&mut rows)? {
            let change = self.change(&version)?;
            bytes += change.weight();
            changes.push(Arc::new(change));
            if bytes >= max_bytes {
                break;
            }
        }
        changes.reverse();
        Ok(changes)
    }

    /// The versions in base, unreadable ones included.
    pub(crate) fn changes_stored(&self) -> u64 {
        self.meta.sums.of(TableId::History).rows
    }

    /// Joins a version in history with its index row, which has the numbers.
    fn change(&self, stored: &OnPages<'_>) -> Result<Change, Error> {
        let (at, HistoryRow { key, value: in_history }) = (stored.at, stored.row()?);
        let kind = self.indexed(key, at, |version| match (version, in_history) {
            (Indexed::Tombstone, HistoryValue::Tombstone) => Ok(ChangeKind::Tombstone),
            (Indexed::Put { create, version, lease, value }, in_history) => {
                let value = match (value, in_history) {
                    (Stored::Inline(value), HistoryValue::InIndex) => Bytes::copy_from_slice(value),
                    (Stored::History(len), in_history) if in_history.len() == Some(len) => stored.value(),
                    _ => return Err(disagree(at)),
                };
                Ok(ChangeKind::Put { create, version, lease, value })
            }
            _ => Err(disagree(at)),
        })?;
        Ok(Change { key: Bytes::copy_from_slice(key), at, kind })
    }

    /// The keys attached to a lease, in key order. Errors: `Io`, `Corrupt`.
    pub(crate) fn lease_keys(&self, lease: LeaseId) -> Result<Vec<Bytes>, Error> {
        let prefix = lease.0.to_be_bytes();
        let mut keys = Vec::new();
        for row in self.lease_keys.range::<&[u8]>(prefix.as_slice()..).at("lease_keys")? {
            let (key, row) = row.at("lease_keys")?;
            let Some(user_key) = key.value().strip_prefix(&prefix) else { break };
            layout::unseal("lease_keys", key.value(), row.value())?.end()?;
            keys.push(Bytes::copy_from_slice(user_key));
        }
        Ok(keys)
    }
}

/// What `fetch` answers for each place, in the order given, asked for in the order of the places.
fn in_disk_order<T>(
    places: &[RevisionPair],
    mut fetch: impl FnMut(RevisionPair) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let mut order: Vec<(usize, RevisionPair)> = places.iter().copied().enumerate().collect();
    order.sort_unstable_by_key(|(_, at)| *at);
    let mut found = Vec::with_capacity(places.len());
    for (asked, at) in order {
        found.push((asked, fetch(at)?));
    }
    found.sort_unstable_by_key(|(asked, _)| *asked);
    Ok(found.into_iter().map(|(_, fetched)| fetched).collect())
}

/// The rows of one key that a scan has met.
#[derive(Default)]
struct Run {
    prefix: Vec<u8>,
    stepped: usize,
    answered: bool,
}

impl Run {
    /// Notices where the next key begins.
    fn enter(&mut self, prefix: &[u8]) {
        if self.prefix != prefix {
            self.prefix.clear();
            self.prefix.extend_from_slice(prefix);
            self.stepped = 0;
            self.answered = false;
        }
    }

    /// Counts a row stepped over; true if it is time to seek.
    fn step(&mut self) -> bool {
        self.stepped = (self.stepped + 1) % SEEK_AFTER_ROWS;
        self.stepped == 0
    }
}

fn disagree(at: RevisionPair) -> Error {
    Error::corrupt("history", format!("index and history disagree at revision {}, change {}", at.main, at.sub))
}
