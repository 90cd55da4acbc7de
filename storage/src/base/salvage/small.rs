//! The small tables of a damaged base, and what the new one gets of them.

use super::*;
use crate::base::small::{read_alarm, read_lease, read_mark, read_writer};
use crate::types::LeaseId;

/// What is readable of them.
#[derive(Debug, Default)]
pub(super) struct Small {
    /// The ids of leases.
    pub(super) leases: BTreeSet<i64>,
    /// The newest mark.
    pub(super) last_mark_ms: u64,
    /// Nothing is missing of what commands depend on.
    pub(super) whole: bool,
    /// The keys attached to leases are exactly those that the table has.
    attached_exact: bool,
}

const WRITTEN: [TableId; 4] = [TableId::Leases, TableId::Alarms, TableId::Writers, TableId::Marks];

impl Small {
    pub(super) fn read(source: &Damaged, meta: Option<&Meta>, lost: &mut Vec<Lost>) -> Result<Small, Error> {
        let mut small = Small { whole: true, ..Small::default() };
        for table in [TableId::Leases, TableId::LeaseKeys, TableId::Alarms, TableId::Writers, TableId::Marks] {
            let mut sum = Sum::default();
            let mut first = None;
            source.walk(table, |met| {
                match met {
                    Met::Row(key, row) if is_sound(table, &key, &row) => {
                        sum.add(table, &key, &row);
                        small.learn(table, &key, &row)?;
                    }
                    Met::Row(key, _) => drop(first.get_or_insert(format!("row {}", layout::Hex(&key)))),
                    Met::Altered(_, error) | Met::Gap(_, _, error) => drop(first.get_or_insert(error.to_string())),
                }
                Ok(())
            })?;
            let expected = meta.map(|meta| meta.sums.of(table));
            let exact = first.is_none() && expected == Some(sum);
            if table == TableId::LeaseKeys {
                // They are made anew from what the keys say.
                small.attached_exact = exact;
                continue;
            }
            small.whole &= exact || table == TableId::Marks;
            if !exact {
                let rows = expected.map_or("an unknown number of rows".to_owned(), |sum| format!("{} rows", sum.rows));
                let why = first.map_or(String::new(), |first| format!(": {first}"));
                lost.push(Lost::of(table.name(), format!("{} of {rows} are intact{why}", sum.rows)));
            }
        }
        Ok(small)
    }

    fn learn(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<(), Error> {
        match table {
            TableId::Leases => drop(self.leases.insert(read_lease(key, row)?.0.0)),
            TableId::Marks => self.last_mark_ms = self.last_mark_ms.max(read_mark(key, row)?.0),
            _ => {}
        }
        Ok(())
    }

    /// Writes what is intact, and the keys of leases.
    pub(super) fn write(&self, source: &Damaged, builder: &mut Builder, attached: Sorter) -> Result<(), Error> {
        let copy = |builder: &mut Builder, table: TableId| {
            source.walk(table, |met| match met {
                Met::Row(key, row) if is_sound(table, &key, &row) => builder.append(table, &key, &row),
                _ => Ok(()),
            })
        };
        copy(builder, TableId::Leases)?;
        self.write_attached(source, builder, attached)?;
        WRITTEN.into_iter().skip(1).try_for_each(|table| copy(builder, table))
    }

    /// A key may name a lease that it lost, which only the table knows; but each that is in the table names its lease.
    fn write_attached(&self, source: &Damaged, builder: &mut Builder, attached: Sorter) -> Result<(), Error> {
        let mut attached = attached.finish()?.peekable();
        let table = TableId::LeaseKeys;
        if !self.attached_exact {
            return attached.try_for_each(|record| {
                let (key, _) = record?;
                builder.append(table, &key, &layout::seal(&key, |_| ()))
            });
        }
        source.walk(table, |met| {
            let Met::Row(key, row) = met else { return Ok(()) };
            while attached.next_if(|record| record.as_ref().is_ok_and(|(other, _)| *other < key)).is_some() {}
            match attached.next_if(|record| record.as_ref().map_or(true, |(other, _)| *other == key)).transpose()? {
                Some(_) => builder.append(table, &key, &row),
                None => Ok(()),
            }
        })
    }
}

/// A row that can be read, not only one with the right checksum.
fn is_sound(table: TableId, key: &[u8], row: &[u8]) -> bool {
    match table {
        TableId::Leases => read_lease(key, row).is_ok_and(|(id, _)| id != LeaseId(0)),
        TableId::Alarms => read_alarm(key, row).is_ok(),
        TableId::Writers => read_writer(key, row).is_ok(),
        TableId::Marks => read_mark(key, row).is_ok(),
        _ => true,
    }
}
