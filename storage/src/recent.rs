//! The changes of every table that are not yet in base.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;

use crate::base;
use crate::change::Change;
use crate::tables::{AlarmRow, Applied, LeaseRow, WriterRow};
use crate::types::{LeaseId, MemberId, Revision, RevisionPair};

/// What one part of `recent` holds: changes since the part before it, of every table.
#[derive(Debug, Default)]
pub(crate) struct PartData {
    /// Per key its changes, oldest first.
    pub(crate) keys: BTreeMap<Bytes, Vec<Arc<Change>>>,
    /// All changes, in order.
    pub(crate) changes: Vec<Arc<Change>>,
    /// Leases granted or altered (`Some`) and gone (`None`).
    pub(crate) leases: BTreeMap<LeaseId, Option<LeaseRow>>,
    /// Keys attached to (`true`) and detached from (`false`) a lease.
    pub(crate) lease_keys: BTreeMap<(LeaseId, Bytes), bool>,
    /// Alarms raised (`true`) and cleared (`false`).
    pub(crate) alarms: BTreeMap<(MemberId, AlarmRow), bool>,
    /// Writers' last frames.
    pub(crate) writers: BTreeMap<MemberId, WriterRow>,
    /// Wall-clock milliseconds to revision.
    pub(crate) marks: BTreeMap<u64, Revision>,
    /// How far the log was applied when the part was frozen.
    pub(crate) applied: Applied,
    /// The memory that the part takes, in bytes.
    pub(crate) weight: usize,
    /// The bytes of pages that it will take in base, about.
    pub(crate) page_bytes: u64,
    /// What the part's frames take in a log on a disk, in bytes, about; also those that changed nothing.
    pub(crate) log_bytes: usize,
}

impl PartData {
    /// Adds a change, which must be newer than all before it.
    pub(crate) fn push(&mut self, change: Change) {
        debug_assert!(self.changes.last().is_none_or(|last| last.at < change.at), "changes come in order");
        let change = Arc::new(change);
        self.weight += change.weight();
        self.page_bytes += base::change_bytes(&change);
        self.keys.entry(change.key.clone()).or_default().push(change.clone());
        self.changes.push(change);
    }

    /// Records a lease, or that it is gone.
    pub(crate) fn set_lease(&mut self, id: LeaseId, row: Option<LeaseRow>) {
        self.weight += SMALL_ROW;
        self.page_bytes += if row.is_some() { base::small_row_bytes(0) } else { 0 };
        self.leases.insert(id, row);
    }

    /// Records that a key is attached to a lease or detached from it.
    pub(crate) fn set_lease_key(&mut self, id: LeaseId, key: &Bytes, attached: bool) {
        self.weight += SMALL_ROW + key.len();
        self.page_bytes += if attached { base::small_row_bytes(key.len()) } else { 0 };
        self.lease_keys.insert((id, key.clone()), attached);
    }
}

/// The memory that a row of a small table takes, in bytes, rounded up.
const SMALL_ROW: usize = 96;

/// A part that one thread writes and any number read. What is above a reader's revision does not exist for it, so an
/// insert needs no coordination beyond the lock, which nobody holds for longer than a bounded copy.
#[derive(Debug, Default)]
pub(crate) struct Part {
    data: RwLock<PartData>,
}

impl Part {
    /// The part, for reading a bounded piece of it.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, PartData> {
        // Nothing is left half-done by a panic: an insert either happened or not, and readers look below their revision.
        self.data.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part, for the committer.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, PartData> {
        self.data.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest change of `key` at or below `at`.
    pub(crate) fn get(&self, key: &[u8], at: RevisionPair) -> Option<Arc<Change>> {
        let data = self.read();
        data.keys.get(key).and_then(|versions| newest(versions, at)).cloned()
    }

    /// For each key in [start, end) that has a change at or below `at`, the newest, in key order; at most `limit` keys are looked at.
    /// Answers also whether keys are left.
    pub(crate) fn scan(&self, start: &[u8], end: Option<&[u8]>, at: RevisionPair, limit: usize) -> Scanned {
        let data = self.read();
        let mut scanned = Scanned::default();
        let bounds = (Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded));
        if end.is_some_and(|end| end <= start) {
            return scanned;
        }
        for (looked_at, (key, versions)) in data.keys.range::<[u8], _>(bounds).enumerate() {
            if looked_at == limit {
                scanned.horizon = Some(key.clone());
                break;
            }
            scanned.found.extend(newest(versions, at).cloned());
        }
        scanned
    }

    /// The changes with `from` ≤ main revision ≤ `upto`, whole revisions, until `max_bytes` are reached, one revision at least.
    pub(crate) fn changes(&self, from: Revision, upto: Revision, max_bytes: usize) -> Vec<Arc<Change>> {
        let data = self.read();
        let begin = data.changes.partition_point(|change| change.at.main < from);
        let mut bytes = 0;
        let mut taken: Vec<Arc<Change>> = Vec::new();
        for change in data.changes.iter().skip(begin) {
            let new_revision = taken.last().is_none_or(|last| last.at.main != change.at.main);
            if change.at.main > upto || (new_revision && bytes >= max_bytes && !taken.is_empty()) {
                break;
            }
            bytes += change.weight();
            taken.push(change.clone());
        }
        taken
    }

    /// The last changes before a place, in ascending order, until `max_bytes` are reached, one at least.
    pub(crate) fn changes_below(&self, below: RevisionPair, max_bytes: usize) -> Vec<Arc<Change>> {
        let data = self.read();
        let end = data.changes.partition_point(|change| change.at < below);
        let mut bytes = 0;
        let before = data.changes.iter().take(end).rev();
        let mut taken: Vec<Arc<Change>> = before
            .take_while(|change| {
                let wanted = bytes < max_bytes;
                bytes += change.weight();
                wanted
            })
            .cloned()
            .collect();
        taken.reverse();
        taken
    }

    /// What this part says about the keys of a lease, in key order: attached or detached.
    pub(crate) fn lease_keys(&self, lease: LeaseId) -> Vec<(Bytes, bool)> {
        let data = self.read();
        let bounds = (lease, Bytes::new())..;
        let rows = data.lease_keys.range(bounds).take_while(|((id, _), _)| *id == lease);
        rows.map(|((_, key), attached)| (key.clone(), *attached)).collect()
    }
}

/// A bounded piece of a part.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    pub(crate) found: Vec<Arc<Change>>,
    /// The first key that was not looked at; `None` if the range is exhausted.
    pub(crate) horizon: Option<Bytes>,
}

fn newest(versions: &[Arc<Change>], at: RevisionPair) -> Option<&Arc<Change>> {
    let above = versions.partition_point(|change| change.at <= at);
    above.checked_sub(1).and_then(|index| versions.get(index))
}
