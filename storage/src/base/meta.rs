//! The rows of `meta`: what base knows about itself, read at once and written with every commit.

use redb::ReadableTable;

use super::Totals;
use super::commit::Txn;
use super::fault::At;
use super::layout::{self, Reader};
use super::rows::{self, TableId};
use crate::error::Error;
use crate::tables::Applied;
use crate::types::{Digest, Position, Revision, RevisionPair};

/// How many rows a table has, of `history` how many versions, and the wrapping sum of the checksums that all rows carry: equal for equal
/// rows in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) rows: u64,
    pub(super) checksums: u64,
}

impl Sum {
    pub(super) fn add(&mut self, table: TableId, key: &[u8], row: &[u8]) {
        self.rows = self.rows.wrapping_add(counted(table, key));
        self.checksums = self.checksums.wrapping_add(layout::carried_checksum(row));
    }

    pub(super) fn subtract(&mut self, table: TableId, key: &[u8], row: &[u8]) {
        self.rows = self.rows.wrapping_sub(counted(table, key));
        self.checksums = self.checksums.wrapping_sub(layout::carried_checksum(row));
    }
}

fn counted(table: TableId, key: &[u8]) -> u64 {
    u64::from(!table.is_piece(key))
}

/// The sum of each table, in the order of `TableId::ALL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums([Sum; TableId::ALL.len()]);

impl Sums {
    pub(super) fn of(&self, table: TableId) -> Sum {
        self.0.get(table as usize).copied().unwrap_or_default()
    }

    pub(super) fn set(&mut self, table: TableId, sum: Sum) {
        if let Some(slot) = self.0.get_mut(table as usize) {
            *slot = sum;
        }
    }
}

/// Everything in `meta` but the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) applied: Applied,
    pub(super) totals: Totals,
    /// Where the sweep goes on.
    pub(super) cursor: RevisionPair,
    pub(super) sums: Sums,
}

impl Meta {
    /// A keyspace in which nothing ever happened.
    pub(super) const NEW: Meta = Meta {
        applied: Applied {
            position: Position(0),
            digest: Digest([0; 16]),
            revision: Revision::FIRST,
            compacted: Revision(-1),
            time_ms: 0,
        },
        totals: Totals { live_bytes: 0, dead_bytes: 0 },
        cursor: RevisionPair { main: Revision(0), sub: 0 },
        sums: Sums([Sum { rows: 0, checksums: 0 }; TableId::ALL.len()]),
    };

    /// Checks the format, then reads the rest. Errors: `Corrupt`; `Io` for a format newer than this release.
    pub(super) fn read(table: &impl ReadableTable<&'static [u8], &'static [u8]>) -> Result<Meta, Error> {
        check_format(read_row(table, "format", |reader| reader.u32())?)?;
        Ok(Meta {
            applied: read_row(table, "applied", read_applied)?,
            totals: read_row(table, "totals", |reader| {
                Ok(Totals { live_bytes: reader.u64()?, dead_bytes: reader.u64()? })
            })?,
            cursor: read_row(table, "cursor", |reader| {
                Ok(RevisionPair { main: Revision(reader.i64()?), sub: reader.i64()? })
            })?,
            sums: read_row(table, "sums", read_sums)?,
        })
    }

    /// Writes all of it, and the format of this release.
    pub(super) fn write(&self, txn: &Txn<'_>) -> Result<(), Error> {
        let mut table = txn.redb.open_table(rows::META).at("meta")?;
        let mut put = |name: &str, fill: &dyn Fn(&mut Vec<u8>)| {
            let row = layout::seal(name.as_bytes(), fill);
            table.insert(name.as_bytes(), row.as_slice()).at("meta").map(drop)
        };
        put("format", &|out| out.extend(layout::FORMAT.to_be_bytes()))?;
        put("applied", &|out| push_applied(out, &self.applied))?;
        put("totals", &|out| push_u64s(out, [self.totals.live_bytes, self.totals.dead_bytes]))?;
        put("cursor", &|out| push_u64s(out, [self.cursor.main.0, self.cursor.sub].map(i64::cast_unsigned)))?;
        put("sums", &|out| self.sums.0.iter().for_each(|sum| push_u64s(out, [sum.rows, sum.checksums])))
    }
}

fn check_format(found: u32) -> Result<(), Error> {
    match found {
        1..=layout::FORMAT => Ok(()),
        0 => Err(Error::corrupt("meta", "format 0 never existed")),
        newer => Err(Error::Io {
            doing: "opening base".into(),
            reason: format!("it has format {newer}, this release reads formats up to {}", layout::FORMAT),
        }),
    }
}

fn read_row<T>(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    name: &str,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let row = table.get(name.as_bytes()).at("meta")?;
    let row = row.ok_or_else(|| Error::corrupt("meta", format!("{name} is missing")))?;
    let mut reader = layout::unseal("meta", name.as_bytes(), row.value())?;
    let found = read(&mut reader)?;
    reader.end()?;
    Ok(found)
}

fn push_u64s<const N: usize>(out: &mut Vec<u8>, numbers: [u64; N]) {
    numbers.iter().for_each(|number| out.extend(number.to_be_bytes()));
}

fn push_applied(out: &mut Vec<u8>, applied: &Applied) {
    out.extend(applied.position.0.to_be_bytes());
    out.extend(applied.digest.0);
    out.extend(applied.revision.0.to_be_bytes());
    out.extend(applied.compacted.0.to_be_bytes());
    out.extend(applied.time_ms.to_be_bytes());
}

fn read_applied(reader: &mut Reader<'_>) -> Result<Applied, Error> {
    Ok(Applied {
        position: Position(reader.u64()?),
        digest: Digest(reader.array()?),
        revision: Revision(reader.i64()?),
        compacted: Revision(reader.i64()?),
        time_ms: reader.u64()?,
    })
}

fn read_sums(reader: &mut Reader<'_>) -> Result<Sums, Error> {
    let mut sums = Sums::default();
    for sum in &mut sums.0 {
        *sum = Sum { rows: reader.u64()?, checksums: reader.u64()? };
    }
    Ok(sums)
}
