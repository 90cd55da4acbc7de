//! The sweep: visits what was written up to the compacted revision, in order, and drops what it made unreadable.
//!
//! What a step drops leaves each table in the order of its keys: a page is changed once in a commit, however many of its rows go, and one
//! that redb's cache had no room for is not fetched and written again.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use redb::ReadableTable;

use super::commit::Txn;
use super::compact::Brief;
use super::fault::At;
use super::key_rows::{self, KeyRow};
use super::layout::{self, HistoryValue};
use super::meta::Meta;
use super::rows::{Rows, TableId};
use super::{SweepReport, Totals};
use crate::error::Error;
use crate::types::{Revision, RevisionPair};

/// Bytes of keys at which a step ends early.
const KEY_BYTES_MAX: usize = 16 << 20;

/// A row of `history` to visit.
struct Visit {
    at: RevisionPair,
    key: Vec<u8>,
    tombstone: bool,
}

/// One step. Behind the cursor each key has one version at most, and it is a put or was written at exactly the compacted
/// revision: the last visit of a key removes what the key had before, which is what an earlier step left, and what was visited in this one.
pub(super) fn step(
    txn: &Txn<'_>,
    before: &Meta,
    compacted: Revision,
    rows_max: usize,
) -> Result<(Meta, SweepReport), Error> {
    let mut meta = *before;
    let mut index = Rows::open(txn, TableId::Index, &meta.sums)?;
    let mut history = Rows::open(txn, TableId::History, &meta.sums)?;
    let upto = if planted!(SweepPastFlushed) { compacted } else { compacted.min(before.applied.revision) };
    let visits = to_visit(&history, meta.cursor, upto, rows_max)?;
    let last = visits.last().map(|visit| visit.at.main);
    let done = last.is_none_or(|last| last >= upto);
    // The last visit of a key counts.
    let keys: BTreeMap<&[u8], &Visit> = visits.iter().map(|visit| (visit.key.as_slice(), visit)).collect();
    let mut removed = Vec::new();
    for visit in keys.into_values() {
        let prefix = layout::key_prefix(&visit.key);
        let (rows, outdated) = outdated(&index, &prefix, visit, compacted)?;
        let Totals { dead_bytes, .. } = &mut meta.totals;
        for version in &outdated {
            *dead_bytes = dead_bytes.saturating_sub(visit.key.len() as u64 + version.value_bytes);
        }
        let mut gone: Vec<RevisionPair> = outdated.iter().map(|version| version.at).collect();
        gone.sort_unstable();
        key_rows::change(&mut index, &prefix, rows, &gone, std::iter::empty())?;
        removed.extend(gone);
    }
    removed.sort_unstable();
    for at in removed.iter().filter(|_| !planted!(HistoryRowLeft)) {
        history.remove_version(*at)?;
    }
    let report = SweepReport { rows_visited: visits.len() as u64, versions_dropped: removed.len() as u64, done };
    index.close(&mut meta.sums);
    history.close(&mut meta.sums);
    // A deletion at exactly the compacted revision stays for now, so that revision is visited again when it has moved on.
    let next = if done { upto } else { last.map_or(upto, Revision::next) };
    let next = if planted!(SweepSkipsRevision) { next.next() } else { next };
    meta.cursor = meta.cursor.max(RevisionPair { main: next, sub: 0 });
    failpoint!(SweepCursor, Err);
    meta.write(txn)?;
    Ok((meta, report))
}

/// Rows from the cursor on, about `rows_max` of them: a revision is never split, so the cursor is always at the first
/// change of one. The last revision is never left alone: a cursor there means that it was visited.
fn to_visit(history: &Rows<'_>, cursor: RevisionPair, upto: Revision, rows_max: usize) -> Result<Vec<Visit>, Error> {
    let mut visits: Vec<Visit> = Vec::new();
    let mut key_bytes = 0;
    if cursor.main > upto {
        return Ok(visits);
    }
    let (start, end) = (layout::history_key(cursor), layout::history_key(RevisionPair::last_of(upto)));
    for row in history.table.range::<&[u8]>(start.as_slice()..=end.as_slice()).at("history")? {
        let (place, row) = row.at("history")?;
        if layout::is_piece(place.value()) {
            continue;
        }
        let at = layout::read_history_key(place.value())?;
        let enough = (visits.len() >= rows_max || key_bytes >= KEY_BYTES_MAX) && at.main < upto;
        if enough && visits.last().is_some_and(|last| last.at.main != at.main) {
            break;
        }
        let row = layout::read_history_row(place.value(), row.value())?;
        key_bytes += row.key.len();
        visits.push(Visit { at, key: row.key.to_vec(), tombstone: row.value == HistoryValue::Tombstone });
    }
    Ok(visits)
}

/// What the version visited makes unreadable, itself included if it is a deletion that nobody can see any more; and the rows that it is in.
fn outdated(
    index: &Rows<'_>,
    prefix: &[u8],
    visit: &Visit,
    compacted: Revision,
) -> Result<(Vec<KeyRow>, Vec<Brief>), Error> {
    let (start, end) = (layout::index_key(prefix, visit.at), layout::after_key(prefix));
    let goes = |at: RevisionPair| match at.cmp(&visit.at) {
        Ordering::Greater => false,
        Ordering::Equal => visit.tombstone && (at.main < compacted || planted!(SweepTakesFloor)),
        Ordering::Less => at.main < visit.at.main || at.main < compacted,
    };
    let (mut rows, mut outdated) = (Vec::new(), Vec::new());
    for row in index.table.range::<&[u8]>(start.as_slice()..end.as_slice()).at("index")? {
        let (place, row) = row.at("index")?;
        let row = KeyRow::read(place.value(), row.value())?;
        let before = outdated.len();
        outdated.extend(row.versions.iter().filter(|(at, _)| goes(*at)).map(Brief::of_version));
        if outdated.len() > before {
            rows.push(row);
        }
    }
    Ok((rows, outdated))
}
