//! The tables of base, and a writer that keeps each table's row count and sum exact.

use std::ops::Bound;

use redb::{CursorError, Table, TableDefinition};

use super::commit::Txn;
use super::fault::{At, fault};
use super::layout;
use super::meta::{Sum, Sums};
use crate::error::Error;

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
        self.sum.add(row);
        if let Some(old) = &old {
            self.sum.subtract(old.value());
        }
        self.txn.changed(self.id, key, old.as_ref().map(|old| old.value()), Some(row));
        Ok(())
    }

    /// Writes sealed rows in ascending order of keys behind all that are there, packing pages. Errors: `Corrupt` for a row that does
    /// not come last; `Io`.
    pub(super) fn append(&mut self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Error> {
        let name = self.id.name();
        let mut end = self.table.upper_bound_mut(Bound::<&[u8]>::Unbounded).at(name)?;
        for (key, row) in rows {
            end.insert_before(key.as_slice(), row.as_slice()).map_err(|error| match error {
                CursorError::UnorderedKey => layout::out_of_order(name, key),
                other => fault(name, other.into()),
            })?;
            self.sum.add(row);
            self.txn.changed(self.id, key, None, Some(row));
        }
        end.close().at(name)
    }

    /// Removes a row; false if there is none.
    pub(super) fn remove(&mut self, key: &[u8]) -> Result<bool, Error> {
        let old = self.table.remove(key).at(self.id.name())?;
        if let Some(old) = &old {
            self.sum.subtract(old.value());
            self.txn.changed(self.id, key, Some(old.value()), None);
        }
        Ok(old.is_some())
    }

    /// Removes a row that another row says is there.
    pub(super) fn remove_known(&mut self, key: &[u8]) -> Result<(), Error> {
        if self.remove(key)? { Ok(()) } else { Err(layout::missing(self.id.name(), key)) }
    }

    /// Hands the new count and sum over.
    pub(super) fn close(self, sums: &mut Sums) {
        sums.set(self.id, self.sum);
    }
}
