//! A scrub: a walk over base as it lies on the disk, in steps, while flushes, the sweep and rewrites go on.
//!
//! Each step opens the file anew, beside the open database and with a small cache of its own. So it reads what the disk holds and not
//! what memory does, takes no room in the cache that requests use, and pins no page. No commit runs meanwhile: the caller does both.
//!
//! The walk goes table by table, in key order, and keeps the sum of the rows that it has passed. A commit that changes a row behind
//! that place changes this sum as it changes the total in `meta`. So at the end of a table the two are equal unless a row vanished
//! or turned up on the disk, although no single commit was looked at as a whole. What `index` and `history` say of each version is summed up
//! in the same way, and compared once both are walked.
//!
//! A copy that takes the place of base holds the same rows, so a scrub goes on in it where it was.

use std::cell::RefCell;
use std::sync::PoisonError;

use redb::ReadableTable;

use super::beside::beside;
use super::fault::At;
use super::layout::{self, HistoryValue, Indexed, Placed, Stored};
use super::meta::Sum;
use super::pieces::Chain;
use super::rows::TableId;
use super::{Base, Snapshot, scan};
use crate::error::Error;
use crate::types::RevisionPair;

/// The rows of one step, whatever their size: a part to flush waits for a step.
const ROWS_MAX: u64 = 8192;
/// The cache of a step: the way down the tree stays in it.
const CACHE_BYTES: usize = 1 << 20;
/// Rows looked at to say which one is missing, before the keyspace ends because one is.
const LOCATE_ROWS: u64 = 200_000;

/// What a step did.
#[derive(Debug, Default)]
pub(crate) struct Scrubbed {
    /// Rows visited.
    pub(crate) rows: u64,
    /// Bytes read from the file.
    pub(crate) bytes_read: u64,
    /// Rows that are not as they were written, but of which no read can make a wrong answer.
    pub(crate) damage: Vec<Error>,
    /// True if the walk is over.
    pub(crate) done: bool,
}

/// How far a walk has come.
#[derive(Debug, Default)]
pub(super) struct Scrub {
    /// The place in `TableId::ALL` of the table that it is in.
    table: usize,
    /// The last row of it that was visited; empty before the first.
    behind: Vec<u8>,
    /// Per table the sum of the rows behind that place, as they are now.
    passed: [Sum; TableId::ALL.len()],
    /// The same of what rows of `index` and of `history` say about their versions.
    versions: [u64; 2],
    /// Rows of each table that do not match their checksum.
    altered: [u64; TableId::ALL.len()],
}

impl Scrub {
    /// A row was written, replaced or removed.
    pub(super) fn changed(&mut self, table: TableId, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) {
        let number = table as usize;
        let behind = number < self.table || (number == self.table && !self.behind.is_empty() && *key <= *self.behind);
        let Some(passed) = self.passed.get_mut(number).filter(|_| behind) else { return };
        old.iter().for_each(|row| passed.subtract(table, key, row));
        new.iter().for_each(|row| passed.add(table, key, row));
        if let Some(versions) = self.versions.get_mut(number) {
            let of = |row: Option<&[u8]>| row.map_or(0, |row| fingerprint(table, key, row));
            *versions = versions.wrapping_sub(of(old)).wrapping_add(of(new));
        }
    }

    /// Walks on. Errors: `Corrupt` if a read could give a wrong answer; `Io`.
    fn step(&mut self, snapshot: &Snapshot, bytes_max: usize) -> Result<Scrubbed, Error> {
        let mut did = Scrubbed::default();
        let Some(table) = TableId::ALL.get(self.table).copied() else { return Ok(Scrubbed { done: true, ..did }) };
        let rows = snapshot.open_table(table)?;
        let leases = snapshot.open_table(TableId::Leases)?;
        let mut bytes = 0;
        let mut more = false;
        let mut chain = Chain::default();
        snapshot.rows_behind(table, &self.behind.clone(), |key, row| {
            // Between two steps a version may go, all of it.
            if (bytes >= bytes_max || did.rows >= ROWS_MAX) && !table.is_piece(key) {
                more = true;
                return Ok(false);
            }
            if !self.behind.is_empty() && *key <= *self.behind {
                return Err(layout::out_of_order(table.name(), key));
            }
            // Iterating passes over keys in the branches of the tree, which looking up depends on.
            if rows.get(key).at(table.name())?.is_none_or(|found| found.value() != row) {
                return Err(layout::not_found(table.name(), key));
            }
            if let Err(error) = check_row(snapshot, &leases, table, key, row) {
                if !is_harmless(snapshot, table, key) {
                    return Err(error);
                }
                did.damage.push(error);
                self.altered.iter_mut().skip(table as usize).take(1).for_each(|altered| *altered += 1);
            }
            if table == TableId::History {
                chain.pass(key, row)?;
            }
            self.pass(table, key, row);
            did.rows += 1;
            bytes += key.len() + row.len();
            Ok(true)
        })?;
        chain.end()?;
        if !more {
            self.check_end(snapshot, table)?;
            self.table += 1;
            self.behind.clear();
            did.done = self.table == TableId::ALL.len();
        }
        Ok(did)
    }

    fn pass(&mut self, table: TableId, key: &[u8], row: &[u8]) {
        key.clone_into(&mut self.behind);
        self.changed(table, key, None, Some(row));
    }

    /// A table is walked: what was passed is what commits have counted.
    fn check_end(&self, snapshot: &Snapshot, table: TableId) -> Result<(), Error> {
        let altered = |table: TableId| self.altered.get(table as usize).is_some_and(|altered| *altered > 0);
        let found = self.passed.get(table as usize).copied().unwrap_or_default();
        let expected = snapshot.meta.sums.of(table);
        if found.rows != expected.rows || (found.checksums != expected.checksums && !altered(table)) {
            let place = locate(snapshot, table)?;
            return Err(Error::corrupt(table.name(), format!("found {found:?}, expected {expected:?}: {place}")));
        }
        let [index, history] = self.versions;
        if table == TableId::History && index != history && !altered(TableId::Index) && !altered(TableId::History) {
            let place = locate(snapshot, TableId::Index)?;
            return Err(Error::corrupt("history", format!("it disagrees with index: {place}")));
        }
        Ok(())
    }
}

/// A row against its checksum, and as far as it goes against what it says.
fn check_row(snapshot: &Snapshot, leases: &scan::Rows, table: TableId, key: &[u8], row: &[u8]) -> Result<(), Error> {
    match table {
        TableId::Index => {
            layout::split_index_key(key)?;
            layout::versions_of(key, row).map(drop)
        }
        TableId::History => {
            let (_, number) = layout::read_place(key)?;
            if number > 0 {
                layout::read_piece(key, row).map(drop)
            } else {
                layout::read_history_row(key, row).map(drop)
            }
        }
        TableId::LeaseKeys => {
            layout::unseal(table.name(), key, row)?;
            snapshot.check_attached(leases, key)
        }
        _ => layout::unseal(table.name(), key, row).map(drop),
    }
}

/// True if the damaged row is the one that belongs at its key: whoever needs a version of it meets the damage. If its key were damaged, the
/// version would seem never to have been.
fn is_harmless(snapshot: &Snapshot, table: TableId, key: &[u8]) -> bool {
    match table {
        // It is looked up by what index says, or read in order, or with the row before: none of these passes over it.
        TableId::History => layout::read_place(key).is_ok(),
        TableId::Index => names_its_version(snapshot, key).unwrap_or(false),
        _ => false,
    }
}

fn names_its_version(snapshot: &Snapshot, key: &[u8]) -> Result<bool, Error> {
    let (prefix, at) = layout::split_index_key(key)?;
    let place = layout::history_key(at);
    let Some(row) = snapshot.history.get(place.as_slice()).at("history")? else { return Ok(false) };
    Ok(layout::read_history_row(&place, row.value())?.key == layout::unescape(prefix)?)
}

/// Says which row is missing, by the row of the other table that belongs to it. Bounded: then it names the whole table.
fn locate(snapshot: &Snapshot, table: TableId) -> Result<String, Error> {
    let other = match table {
        TableId::Index => TableId::History,
        TableId::History => TableId::Index,
        _ => return Ok("a row is missing, or is one too many".to_owned()),
    };
    let (mut looked_at, mut missing) = (0, None);
    let mut look = |key: &[u8], row: &[u8]| {
        looked_at += 1;
        if other.is_piece(key) {
            return Ok(looked_at < LOCATE_ROWS);
        }
        missing = match table {
            TableId::Index => {
                let (user_key, at) = (layout::read_history_row(key, row)?.key, layout::read_history_key(key)?);
                let there = snapshot.indexed(user_key, at, |_| Ok(()));
                there.err().map(|_| layout::index_key(&layout::key_prefix(user_key), at))
            }
            _ => missing_of(snapshot, &layout::versions_of(key, row)?)?,
        };
        Ok(missing.is_none() && looked_at < LOCATE_ROWS)
    };
    snapshot.rows_behind(other, &[], &mut look)?;
    let rows = snapshot.open_table(table)?;
    let ends = (rows.first().at(table.name())?, rows.last().at(table.name())?);
    Ok(match (missing, ends) {
        (Some(place), _) => layout::missing(table.name(), &place).to_string(),
        (None, (Some((first, _)), Some((last, _)))) => {
            format!("somewhere from {} to {}", layout::Hex(first.value()), layout::Hex(last.value()))
        }
        _ => "it has no row".to_owned(),
    })
}

/// The first of these versions that `history` does not have.
fn missing_of(snapshot: &Snapshot, versions: &[Placed]) -> Result<Option<Vec<u8>>, Error> {
    for (at, _) in versions {
        let place = layout::history_key(*at);
        if snapshot.history.get(place.as_slice()).at("history")?.is_none() {
            return Ok(Some(place.to_vec()));
        }
    }
    Ok(None)
}

/// A number for what a row says of its versions: the sum of one for each, which is the same in both tables.
fn fingerprint(table: TableId, key: &[u8], row: &[u8]) -> u64 {
    // A damaged row says nothing: that is counted elsewhere.
    versions_of(table, key, row).unwrap_or_default()
}

fn versions_of(table: TableId, key: &[u8], row: &[u8]) -> Result<u64, Error> {
    if table == TableId::Index {
        let (prefix, _) = layout::split_index_key(key)?;
        let mut sum = 0_u64;
        for version in layout::read_index_row(key, row)? {
            let (at, version) = version?;
            let kind = match version {
                Indexed::Tombstone => (0, 0),
                Indexed::Put { value: Stored::Inline(_), .. } => (1, 0),
                Indexed::Put { value: Stored::History(len), .. } => (2, len),
            };
            sum = sum.wrapping_add(mixed(prefix, at, kind));
        }
        return Ok(sum);
    }
    if table.is_piece(key) {
        return Ok(0);
    }
    let at = layout::read_history_key(key)?;
    let row = layout::read_history_row(key, row)?;
    let kind = match (row.value, row.value.len()) {
        (HistoryValue::Tombstone, _) => (0, 0),
        (_, None) => (1, 0),
        (_, Some(len)) => (2, len),
    };
    Ok(mixed(&layout::key_prefix(row.key), at, kind))
}

fn mixed(prefix: &[u8], at: RevisionPair, (kind, len): (u64, u64)) -> u64 {
    let mut hasher = blake3::Hasher::new();
    [at.main.0.cast_unsigned(), at.sub.cast_unsigned(), kind, len].iter().for_each(|number| {
        hasher.update(&number.to_be_bytes());
    });
    hasher.update(prefix);
    let mut short = [0; 8];
    hasher.finalize_xof().fill(&mut short);
    u64::from_be_bytes(short)
}

impl Base {
    /// Does a step of the scrub under way, or the first of a new one: about `bytes_max` of rows. No commit may run meanwhile.
    ///
    /// Errors, after which the next step begins anew: `Corrupt` if what the file holds could make a read answer wrongly, `Io`.
    pub(crate) fn scrub_step(&self, bytes_max: usize) -> Result<Scrubbed, Error> {
        let mut state = self.scrub.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.scrub_on(state.get_or_insert_default().get_mut(), bytes_max);
        if result.as_ref().map_or(true, |did| did.done) {
            *state = None;
        }
        let placed = |error| match error {
            Error::Corrupt { place, reason } => {
                Error::Corrupt { place: format!("{}, {place}", self.file.display()), reason }
            }
            other => other,
        };
        let did = result.map_err(placed)?;
        Ok(Scrubbed { damage: did.damage.into_iter().map(placed).collect(), ..did })
    }

    fn scrub_on(&self, scrub: &mut Scrub, bytes_max: usize) -> Result<Scrubbed, Error> {
        let (snapshot, backend) = beside(&self.fs, &self.file, CACHE_BYTES)?;
        let (found, written) = (snapshot.meta, *self.meta());
        if found != written {
            return Err(Error::corrupt("meta", format!("found {found:?}, the last commit wrote {written:?}")));
        }
        let did = scrub.step(&snapshot, bytes_max)?;
        Ok(Scrubbed { bytes_read: backend.bytes_read(), ..did })
    }

    /// Goes on with the scrub of the base whose place this one takes.
    pub(super) fn take_over_scrub(&self, old: &Base) {
        let state = old.scrub.lock().unwrap_or_else(PoisonError::into_inner).take();
        *self.scrub.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// A scrub as base keeps it: commits follow it.
pub(super) type State = Option<RefCell<Scrub>>;
