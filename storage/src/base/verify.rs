//! A full walk over base that compares every row with its checksum, every table with its totals, and index with history.

use std::ops::Bound;

use bytes::Bytes;
use redb::ReadableTable;

use super::fault::At;
use super::layout::{self, HistoryValue, Indexed, Stored};
use super::meta::Sum;
use super::pieces::Chain;
use super::rows::TableId;
use super::scan::Rows;
use super::{Snapshot, Totals, Version};
use crate::error::Error;
use crate::types::RevisionPair;

impl Snapshot {
    /// Walks everything. A bit flipped within the tree makes rows vanish without an error; the counts and sums in `meta`
    /// notice. Cost: the whole file once, one lookup per row, and one look into `history` per row of `index`. Errors: `Corrupt`, `Io`.
    pub(crate) fn verify(&self) -> Result<(), Error> {
        for table in TableId::ALL {
            let (mut sum, mut chain) = (Sum::default(), Chain::default());
            let rows = self.open_table(table)?;
            self.each_row(table, |key, row| {
                layout::unseal(table.name(), key, row)?;
                // A walk does not depend on the keys in the branches of the tree; looking up does.
                if rows.get(key).at(table.name())?.is_none_or(|found| found.value() != row) {
                    return Err(layout::not_found(table.name(), key));
                }
                if table == TableId::History {
                    chain.pass(key, row)?;
                }
                sum.add(table, key, row);
                Ok(())
            })?;
            chain.end()?;
            expect_equal(table.name(), "rows and their sum", &sum, &self.meta.sums.of(table))?;
        }
        let ahead = self.meta.cursor.main > self.meta.applied.revision;
        expect_equal("meta", "the sweep is ahead of what it sweeps", &ahead, &false)?;
        let (versions, totals) = self.walk_index()?;
        expect_equal("history", "versions as in index", &self.changes_stored(), &versions)?;
        expect_equal("index", "totals", &totals, &self.meta.totals)
    }

    /// The rows of all tables.
    pub(crate) fn rows(&self) -> u64 {
        TableId::ALL.into_iter().map(|table| self.meta.sums.of(table).rows).sum()
    }

    /// Each key that is attached to a lease is there, names the lease, and the lease exists. The reverse need not be: a key may
    /// name a lease that it lost. Errors: `Corrupt`, `Io`.
    pub(crate) fn verify_lease_keys(&self) -> Result<(), Error> {
        let leases = self.open_table(TableId::Leases)?;
        self.each_row(TableId::LeaseKeys, |row_key, _| self.check_attached(&leases, row_key))
    }

    /// A row of `lease_keys`: the key is there and names the lease, and the lease exists.
    pub(super) fn check_attached(&self, leases: &Rows, row_key: &[u8]) -> Result<(), Error> {
        let (id, key) = row_key.split_first_chunk().ok_or_else(|| Error::corrupt("lease_keys", "a short key"))?;
        let lease = i64::from_be_bytes(*id);
        let exists = leases.get(id.as_slice()).at("leases")?.is_some();
        expect_equal("lease_keys", &format!("lease {lease:016x} exists"), &exists, &true)?;
        let attached = match self.get(key, RevisionPair::MAX)? {
            Some((_, Version::Put { lease, .. })) => lease,
            _ => 0,
        };
        expect_equal("lease_keys", &format!("the lease of {:?}", Bytes::copy_from_slice(key)), &attached, &lease)
    }

    /// Each version in `index` has its row in `history`, and no two share one; with equal counts, none is left over. Answers how many there
    /// are, and their totals.
    fn walk_index(&self) -> Result<(u64, Totals), Error> {
        let (mut versions, mut totals) = (0, Totals::default());
        let mut last: (Vec<u8>, Option<RevisionPair>) = (Vec::new(), None);
        self.each_row(TableId::Index, |key, row| {
            let (prefix, _) = layout::split_index_key(key)?;
            let user_key = layout::unescape(prefix)?;
            if last.0 != prefix {
                last = (prefix.to_vec(), None);
            }
            for version in layout::read_index_row(key, row)? {
                let (at, version) = version?;
                if last.1.is_some_and(|newer| newer <= at) {
                    return Err(layout::out_of_order("index", key));
                }
                self.check_history(&user_key, at, &version)?;
                let live = last.1.is_none() && !version.is_tombstone();
                *if live { &mut totals.live_bytes } else { &mut totals.dead_bytes } +=
                    user_key.len() as u64 + version.value_len();
                versions += 1;
                last.1 = Some(at);
            }
            Ok(())
        })?;
        Ok((versions, totals))
    }

    fn check_history(&self, user_key: &[u8], at: RevisionPair, version: &Indexed<'_>) -> Result<(), Error> {
        let place = layout::history_key(at);
        let stored = self.history.get(place.as_slice()).at("history")?;
        let stored = stored.ok_or_else(|| layout::missing("history", &place))?;
        let stored = layout::read_history_row(&place, stored.value())?;
        let fits = match (version, stored.value) {
            (Indexed::Tombstone, HistoryValue::Tombstone) => true,
            (Indexed::Put { value: Stored::Inline(_), .. }, HistoryValue::InIndex) => true,
            (Indexed::Put { value: Stored::History(len), .. }, stored) => stored.len() == Some(*len),
            _ => false,
        };
        expect_equal("history", "the row's key", &stored.key, &user_key)?;
        expect_equal("history", "a row that fits its index row", &fits, &true)
    }

    /// The rows of a table behind a key, in order, until `visit` answers false. The key of the last one visited; `None` if there was none.
    pub(super) fn rows_behind(
        &self,
        table: TableId,
        behind: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool, Error>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let bounds = (Bound::Excluded(behind), Bound::Unbounded);
        for row in self.open_table(table)?.range::<&[u8]>(bounds).at(table.name())? {
            let (key, row) = row.at(table.name())?;
            if !visit(key.value(), row.value())? {
                return Ok(Some(key.value().to_vec()));
            }
        }
        Ok(None)
    }

    /// Every row of a table, in key order, stopping at the first error.
    pub(super) fn each_row(
        &self,
        table: TableId,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for row in self.open_table(table)?.iter().at(table.name())? {
            let (key, row) = row.at(table.name())?;
            visit(key.value(), row.value())?;
        }
        Ok(())
    }
}

fn expect_equal<T: PartialEq + std::fmt::Debug>(
    table: &'static str,
    what: &str,
    found: &T,
    expected: &T,
) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::corrupt(table, format!("{what}: found {found:?}, expected {expected:?}")))
}
