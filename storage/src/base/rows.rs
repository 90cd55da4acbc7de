//! The tables of base, and a writer that keeps each table's row count and sum exact.

use std::ops::Bound;

use redb::{CursorError, Table, TableDefinition};

use super::commit::Txn;
use super::cut::Row;
use super::fault::{At, fault};
use super::layout;
use super::meta::{Sum, Sums};
use super::pieces::Chain;
use crate::error::Error;
use crate::types::RevisionPair;

/// Plain bytes to plain bytes, so that the order is memcmp and the bytes are ours.
pub(super) type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;

pub(super) const META: Definition = TableDefinition::new("meta");

/// A table with a count and a sum in `meta`; the numbers are the order in which `meta` holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableId {
    Index = 0,
    History = 1,
    Leases = 2,
    LeaseKeys = 3,
    Alarms = 4,
    Writers = 5,
    Marks = 6,
}

impl TableId {
    pub(crate) const ALL: [TableId; 7] = [
        TableId::Index,
        TableId::History,
        TableId::Leases,
        TableId::LeaseKeys,
        TableId::Alarms,
        TableId::Writers,
        TableId::Marks,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            TableId::Index => "index",
            TableId::History => "history",
            TableId::Leases => "leases",
            TableId::LeaseKeys => "lease_keys",
            TableId::Alarms => "alarms",
            TableId::Writers => "writers",
            TableId::Marks => "marks",
        }
    }

    /// True for a row that goes on with the one before.
    pub(super) fn is_piece(self, key: &[u8]) -> bool {
        self == TableId::History && layout::is_piece(key)
    }

    pub(super) fn definition(self) -> Definition {
        TableDefinition::new(self.name())
    }
}

/// A table open for writing.
pub(super) struct Rows<'t> {
    id: TableId,
    pub(super) table: Table<'t, &'static [u8], &'static [u8]>,
    sum: Sum,
    txn: &'t Txn<'t>,
}

impl<'t> Rows<'t> {
    /// Opens a table, creating it if it is missing, and goes on counting from `sums`.
    pub(super) fn open(txn: &'t Txn<'t>, id: TableId, sums: &Sums) -> Result<Rows<'t>, Error> {
        let table = txn.redb.open_table(id.definition()).at(id.name())?;
        Ok(Rows { id, table, sum: sums.of(id), txn })
    }

    /// Writes a sealed row, over an older one if there is one.
    pub(super) fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), Error> {
        let old = self.table.insert(key, row).at(self.id.name())?;
        self.sum.add(self.id, key, row);
        if let Some(old) = &old {
            self.sum.subtract(self.id, key, old.value());
        }
        self.txn.changed(self.id, key, old.as_ref().map(|old| old.value()), Some(row));
        Ok(())
    }

    /// Writes sealed rows in ascending order of keys behind all that are there, packing pages. Errors: `Corrupt` for a row that does
    /// not come last; `Io`.
    pub(super) fn append(&mut self, rows: &[Row]) -> Result<(), Error> {
        let name = self.id.name();
        let mut end = self.table.upper_bound_mut(Bound::<&[u8]>::Unbounded).at(name)?;
        for (key, row) in rows {
            end.insert_before(key.as_slice(), row.as_slice()).map_err(|error| match error {
                CursorError::UnorderedKey => layout::out_of_order(name, key),
                other => fault(name, other.into()),
            })?;
            self.sum.add(self.id, key, row);
            self.txn.changed(self.id, key, None, Some(row));
        }
        end.close().at(name)
    }

    /// Removes a row; false if there is none.
    pub(super) fn remove(&mut self, key: &[u8]) -> Result<bool, Error> {
        let Rows { id, table, sum, txn } = self;
        let old = table.remove(key).at(id.name())?;
        if let Some(old) = &old {
            sum.subtract(*id, key, old.value());
            txn.changed(*id, key, Some(old.value()), None);
        }
        Ok(old.is_some())
    }

    /// Removes a row that another row says is there.
    pub(super) fn remove_known(&mut self, key: &[u8]) -> Result<(), Error> {
        if self.remove(key)? { Ok(()) } else { Err(layout::missing(self.id.name(), key)) }
    }

    /// Removes a version from `history`, however many rows it has. Errors: `Corrupt` if one is missing.
    pub(super) fn remove_version(&mut self, at: RevisionPair) -> Result<(), Error> {
        let (place, last) = (layout::history_key(at), layout::piece_key(at, u32::MAX));
        let Rows { id, table, sum, txn } = self;
        let mut chain = Chain::default();
        let range = place.as_slice()..=last.as_slice();
        for row in table.extract_from_if::<&[u8], _>(range, |_, _| true).at(id.name())? {
            let (key, row) = row.at(id.name())?;
            // What is damaged may go: nobody can read it any more.
            chain.pass(key.value(), row.value())?;
            sum.subtract(*id, key.value(), row.value());
            txn.changed(*id, key.value(), Some(row.value()), None);
        }
        if chain.is_empty() { Err(layout::missing(id.name(), &place)) } else { chain.end() }
    }

    /// Hands the new count and sum over.
    pub(super) fn close(self, sums: &mut Sums) {
        sums.set(self.id, self.sum);
    }
}
