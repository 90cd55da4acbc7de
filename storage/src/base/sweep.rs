//! The sweep: visits what was written up to the compacted revision, in order, and drops what it made unreadable.

use redb::{ReadableTable, WriteTransaction};

use super::compact::Brief;
use super::fault::At;
use super::layout::{self, HistoryValue};
use super::meta::Meta;
use super::rows::{Rows, TableId};
use super::{SweepReport, Totals};
use crate::error::Error;
use crate::types::{Revision, RevisionPair};

/// A row of `history` to visit.
struct Visit {
    at: RevisionPair,
    key: Vec<u8>,
    tombstone: bool,
}

/// One step. Behind the cursor each key has one version at most, and it is a put or was written at exactly the compacted
/// revision: each visit removes what the key had before, which is what an earlier visit left.
pub(super) fn step(
    txn: &WriteTransaction,
    before: &Meta,
    compacted: Revision,
    rows_max: usize,
) -> Result<(Meta, SweepReport), Error> {
    let mut meta = *before;
    let mut index = Rows::open(txn, TableId::Index, &meta.sums)?;
    let mut history = Rows::open(txn, TableId::History, &meta.sums)?;
    let upto = compacted.min(before.applied.revision);
    let visits = to_visit(&history, meta.cursor, upto, rows_max)?;
    let done = visits.last().is_none_or(|last| last.at.main >= upto);
    let mut report = SweepReport { rows_visited: visits.len() as u64, versions_dropped: 0, done };
    for visit in &visits {
        for version in outdated(&index, visit, compacted)? {
            index.remove_known(&layout::index_key(&layout::key_prefix(&visit.key), version.at))?;
            history.remove_known(&layout::history_key(version.at))?;
            let Totals { dead_bytes, .. } = &mut meta.totals;
            *dead_bytes = dead_bytes.saturating_sub(visit.key.len() as u64 + version.value_bytes);
            report.versions_dropped += 1;
        }
    }
    index.close(&mut meta.sums);
    history.close(&mut meta.sums);
    // A deletion at exactly the compacted revision stays for now, so that revision is visited again when it has moved on.
    let next = if done { upto } else { visits.last().map_or(upto, |last| last.at.main.next()) };
    meta.cursor = meta.cursor.max(RevisionPair { main: next, sub: 0 });
    meta.write(txn)?;
    Ok((meta, report))
}

/// Rows from the cursor on, about `rows_max` of them: a revision is never split, so the cursor is always at the first
/// change of one. The last revision is never left alone: a cursor there means that it was visited.
fn to_visit(history: &Rows<'_>, cursor: RevisionPair, upto: Revision, rows_max: usize) -> Result<Vec<Visit>, Error> {
    let mut visits: Vec<Visit> = Vec::new();
    if cursor.main > upto {
        return Ok(visits);
    }
    let (start, end) = (layout::history_key(cursor), layout::history_key(RevisionPair::last_of(upto)));
    for row in history.table.range::<&[u8]>(start.as_slice()..=end.as_slice()).at("history")? {
        let (place, row) = row.at("history")?;
        let at = layout::read_history_key(place.value())?;
        let enough = visits.len() >= rows_max && at.main < upto;
        if enough && visits.last().is_some_and(|last| last.at.main != at.main) {
            break;
        }
        let row = layout::read_history_row(place.value(), row.value())?;
        visits.push(Visit { at, key: row.key.to_vec(), tombstone: row.value == HistoryValue::Tombstone });
    }
    Ok(visits)
}

/// What the version visited makes unreadable, itself included if it is a deletion that nobody can see any more.
fn outdated(index: &Rows<'_>, visit: &Visit, compacted: Revision) -> Result<Vec<Brief>, Error> {
    let prefix = layout::key_prefix(&visit.key);
    let (start, end) = (layout::index_key(&prefix, visit.at), layout::after_key(&prefix));
    let mut outdated = Vec::new();
    for row in index.table.range::<&[u8]>(start.as_slice()..end.as_slice()).at("index")? {
        let (place, row) = row.at("index")?;
        let (_, at) = layout::split_index_key(place.value())?;
        let itself = at == visit.at;
        let goes = if itself {
            visit.tombstone && at.main < compacted
        } else {
            at.main < visit.at.main || at.main < compacted
        };
        if goes {
            let row = layout::read_index_row(place.value(), row.value())?;
            outdated.push(Brief { at, tombstone: row.is_tombstone(), value_bytes: row.value_len() });
        }
    }
    Ok(outdated)
}
