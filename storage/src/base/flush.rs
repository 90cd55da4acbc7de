//! Writes a part into the tables: index rows in key order, history in revision order, and drops what nobody can read.
//!
//! Measured on two cores with values of 256 bytes, random puts, nothing dropped: 50,000 over 200,000 keys 2.1 KiB and 10 µs a
//! put (1.2 KiB if the cache holds all dirty pages); 50,000 over a million keys 5.0 KiB and 24 µs with a cache of 64 MiB, 4.0
//! and 13 with 256; 200,000 over a million keys 2.3 KiB and 10 µs with 256. Each version dropped
//! cost 3 KiB more where the cache held all dirty pages, 6 to 9 where not: old versions lie scattered in `history`.
//! Bytes repeat from run to run; times are rough, compilers ran beside some of them.

use std::sync::Arc;

use bytes::Bytes;

use super::commit::Txn;
use super::compact::{Brief, InBase, Plan};
use super::cut::{self, Page, Row};
use super::layout;
use super::meta::{Meta, Sums};
use super::rows::{Rows, TableId};
use super::{FlushReport, Totals, key_rows, small};
use crate::change::Change;
use crate::error::Error;
use crate::recent::PartData;
use crate::types::{Revision, RevisionPair};

/// Old versions that a flush removes from base per change of the part, so that its pages stay within what was reserved.
/// Each put leaves one old version behind, so flushes alone keep up; after a pause the sweep does the rest.
const DROPS_PER_CHANGE: usize = 1;
const DROPS_MIN: usize = 1024;

/// The most rows that a flush of this part touches outside the end of `history`, each perhaps on a page of its own. Versions
/// of one key are neighbours in `index`, so there it is keys that count; what is dropped lies anywhere in `history`, with others
/// on its first page and on its last.
pub(super) fn scattered_rows_max(part: &PartData, garbage: Garbage) -> usize {
    let drops = if garbage == Garbage::Drop { drops_max(part) } else { 0 };
    part.keys.len() + 2 * drops + part.leases.len() + part.lease_keys.len() + MARK_PAGES_MAX
}

/// Marks lie in the order of time, added at one end and removed at the other.
const MARK_PAGES_MAX: usize = 2 + small::MARKS_REMOVED_MAX / 64;

fn drops_max(part: &PartData) -> usize {
    small!(DROPS_PER_CHANGE * part.changes.len() + DROPS_MIN, 1)
}

/// Whether versions that nobody can read are dropped on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Garbage {
    Drop,
    Keep,
}

/// Writes all of a part but the commit. Returns what `meta` says from then on.
pub(super) fn write(
    txn: &Txn<'_>,
    before: &Meta,
    part: &PartData,
    garbage: Garbage,
) -> Result<(Meta, FlushReport), Error> {
    assert_continues(before, part);
    let mut meta = Meta { applied: part.applied, ..*before };
    let Written { removed, skipped, report } = write_index(txn, &mut meta, part, garbage)?;
    failpoint!(FlushHistory, Err);
    write_history(Rows::open(txn, TableId::History, &meta.sums)?, &mut meta.sums, part, removed, skipped)?;
    failpoint!(FlushSmall, Err);
    small::write(txn, &mut meta.sums, part)?;
    failpoint!(FlushMeta, Err);
    meta.write(txn)?;
    Ok((meta, report))
}

/// Writes the versions of a part alone, all of them; `history` has the rows that another base has of them in that table.
pub(super) fn write_changes(txn: &Txn<'_>, before: &Meta, part: &PartData, history: &[Row]) -> Result<Meta, Error> {
    assert_continues(before, part);
    let mut meta = Meta { applied: part.applied, ..*before };
    write_index(txn, &mut meta, part, Garbage::Keep)?;
    let mut table = Rows::open(txn, TableId::History, &meta.sums)?;
    table.append(history)?;
    table.close(&mut meta.sums);
    Ok(meta)
}

/// A part continues what is in base, and names each change twice: by key and in order.
fn assert_continues(before: &Meta, part: &PartData) {
    let (old, new) = (&before.applied, &part.applied);
    assert!(new.position >= old.position, "a part ends at {}, base is at {}", new.position, old.position);
    assert!(new.compacted >= old.compacted, "the compacted revision goes back");
    if let Some(first) = part.changes.first() {
        assert!(first.at.main > old.revision, "a change at {}, base is at {}", first.at.main, old.revision);
    }
    let by_key: usize = part.keys.values().map(Vec::len).sum();
    assert_eq!(by_key, part.changes.len(), "changes by key and in order");
}

/// What was written to `index` means for `history`.
struct Written {
    /// Places of versions that leave it.
    removed: Vec<RevisionPair>,
    /// Versions of the part that never get there.
    skipped: Vec<RevisionPair>,
    report: FlushReport,
}

fn write_index(txn: &Txn<'_>, meta: &mut Meta, part: &PartData, garbage: Garbage) -> Result<Written, Error> {
    let mut work = Work {
        index: Rows::open(txn, TableId::Index, &meta.sums)?,
        totals: meta.totals,
        compacted: match garbage {
            Garbage::Drop => part.applied.compacted,
            Garbage::Keep => Revision(-1),
        },
        drops_left: drops_max(part),
        removed: Vec::new(),
        skipped: Vec::new(),
        report: FlushReport::default(),
    };
    for (key, changes) in &part.keys {
        work.write_key(key, changes)?;
    }
    let Work { index, totals, removed, skipped, report, .. } = work;
    meta.totals = totals;
    index.close(&mut meta.sums);
    Ok(Written { removed, skipped, report })
}

/// Rows that are appended at once, in bytes: few enough to have them twice, and below what redb itself writes at once.
const APPEND_BYTES: usize = 512 << 10;

/// Removals from low to high, then appends: neighbours share pages.
fn write_history(
    mut history: Rows<'_>,
    sums: &mut Sums,
    part: &PartData,
    mut removed: Vec<RevisionPair>,
    mut skipped: Vec<RevisionPair>,
) -> Result<(), Error> {
    removed.sort_unstable();
    skipped.sort_unstable();
    for at in removed {
        history.remove_version(at)?;
    }
    let mut page = Page::last_of(&history.table)?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for change in &part.changes {
        if skipped.binary_search(&change.at).is_err() {
            bytes += cut::push_rows(change, &mut page, &mut rows);
        }
        if bytes >= APPEND_BYTES && page.is_settled() {
            history.append(&rows)?;
            rows.clear();
            bytes = 0;
        }
    }
    history.append(&rows)?;
    history.close(sums);
    Ok(())
}

/// What goes from key to key.
struct Work<'t> {
    index: Rows<'t>,
    totals: Totals,
    compacted: Revision,
    drops_left: usize,
    /// Places in `history` of versions that left base.
    removed: Vec<RevisionPair>,
    /// Versions of the part that never get there.
    skipped: Vec<RevisionPair>,
    report: FlushReport,
}

impl Work<'_> {
    fn write_key(&mut self, key: &Bytes, changes: &[Arc<Change>]) -> Result<(), Error> {
        let prefix = layout::key_prefix(key);
        let base = InBase::find(&self.index.table, &prefix, self.compacted, self.drops_left)?;
        let briefs: Vec<Brief> = changes.iter().map(|change| Brief::of(change)).collect();
        let plan = Plan::new(&briefs, &base, self.compacted);
        self.count(key, base.newest, briefs.last().copied(), &plan);

        let mut gone: Vec<RevisionPair> = plan.remove.iter().map(|version| version.at).collect();
        gone.sort_unstable();
        let stays = |change: &&Arc<Change>| plan.write.binary_search_by_key(&change.at, |version| version.at).is_ok();
        let added = changes.iter().filter(stays).map(|change| layout::placed(change));
        key_rows::change(&mut self.index, &prefix, base.rows, &gone, added)?;
        self.drops_left = self.drops_left.saturating_sub(plan.remove.len());
        self.removed.extend(gone);
        self.skipped.extend(plan.skip.iter().map(|version| version.at));
        Ok(())
    }

    /// Live is the newest put of each key; the newest version of a part's key is in the part.
    fn count(&mut self, key: &Bytes, old: Option<Brief>, new: Option<Brief>, plan: &Plan) {
        let bytes = |version: &Brief| key.len() as u64 + version.value_bytes;
        let Totals { live_bytes: live, dead_bytes: dead } = &mut self.totals;
        if let Some(old) = old.filter(|old| !old.tombstone && !planted!(TotalsDrift)) {
            *live = live.saturating_sub(bytes(&old));
            *dead += bytes(&old);
        }
        for version in &plan.write {
            let newest = new.is_some_and(|new| new.at == version.at);
            *if newest && !version.tombstone { &mut *live } else { &mut *dead } += bytes(version);
        }
        for version in &plan.remove {
            *dead = dead.saturating_sub(bytes(version));
        }
        self.report.versions_written += plan.write.len() as u64;
        self.report.versions_dropped += (plan.skip.len() + plan.remove.len()) as u64;
    }
}
