//! The small tables: leases and their keys, alarms, writers, marks.

use redb::ReadableTable;

use super::commit::Txn;
use super::fault::At;
use super::layout;
use super::meta::Sums;
use super::rows::{Rows, TableId};
use super::{SmallTables, Snapshot};
use crate::error::Error;
use crate::recent::PartData;
use crate::request::AlarmKind;
use crate::tables::{AlarmRow, LeaseRow, WriterRow};
use crate::types::{LeaseId, MemberId, Position, Revision, WriterId};

/// Marks below the compacted revision that one flush removes at most.
pub(super) const MARKS_REMOVED_MAX: usize = 1000;

const NO_SPACE: u8 = 1;
const CORRUPT: u8 = 2;
/// Since format 2.
const NO_SPACE_BY_ITSELF: u8 = 3;

/// Writes the small tables of a part.
pub(super) fn write(txn: &Txn<'_>, sums: &mut Sums, part: &PartData) -> Result<(), Error> {
    write_leases(txn, sums, part)?;
    write_lease_keys(txn, sums, part)?;
    write_alarms(txn, sums, part)?;
    write_writers(txn, sums, part)?;
    write_marks(txn, sums, part)
}

fn write_leases(txn: &Txn<'_>, sums: &mut Sums, part: &PartData) -> Result<(), Error> {
    let mut table = Rows::open(txn, TableId::Leases, sums)?;
    for (id, lease) in &part.leases {
        let key = id.0.to_be_bytes();
        match lease {
            Some(lease) => table.put(&key, &lease_row(&key, lease))?,
            None => drop(table.remove(&key)?),
        }
    }
    table.close(sums);
    Ok(())
}

fn write_lease_keys(txn: &Txn<'_>, sums: &mut Sums, part: &PartData) -> Result<(), Error> {
    let mut table = Rows::open(txn, TableId::LeaseKeys, sums)?;
    for ((id, user_key), attached) in &part.lease_keys {
        let mut key = id.0.to_be_bytes().to_vec();
        key.extend_from_slice(user_key);
        put_or_remove(&mut table, &key, *attached)?;
    }
    table.close(sums);
    Ok(())
}

fn write_alarms(txn: &Txn<'_>, sums: &mut Sums, part: &PartData) -> Result<(), Error> {
    let mut table = Rows::open(txn, TableId::Alarms, sums)?;
    for ((member, alarm), raised) in &part.alarms {
        let mut key = member.0.to_be_bytes().to_vec();
        key.push(match alarm {
            AlarmRow::Asked(AlarmKind::NoSpace) => NO_SPACE,
            AlarmRow::Asked(AlarmKind::Corrupt) => CORRUPT,
            AlarmRow::NoSpace => NO_SPACE_BY_ITSELF,
        });
        put_or_remove(&mut table, &key, *raised)?;
    }
    table.close(sums);
    Ok(())
}

fn write_writers(txn: &Txn<'_>, sums: &mut Sums, part: &PartData) -> Result<(), Error> {
    let mut table = Rows::open(txn, TableId::Writers, sums)?;
    for (member, writer) in &part.writers {
        let key = member.0.to_be_bytes();
        let row = layout::seal(&key, |out| {
            [writer.generation, writer.writer.0, writer.number].iter().for_each(|n| out.extend(n.to_be_bytes()));
        });
        table.put(&key, &row)?;
    }
    table.close(sums);
    Ok(())
}

/// Adds marks and removes those below the compacted revision, but never the newest: apply writes one a second at most and
/// takes the newest for the last, so what it does after a start must not depend on what was removed.
fn write_marks(txn: &Txn<'_>, sums: &mut Sums, part: &PartData) -> Result<(), Error> {
    let mut table = Rows::open(txn, TableId::Marks, sums)?;
    for (time_ms, revision) in &part.marks {
        let key = time_ms.to_be_bytes();
        table.put(&key, &layout::seal(&key, |out| out.extend(revision.0.to_be_bytes())))?;
    }
    for key in outdated_marks(&table, part.applied.compacted)? {
        table.remove(&key)?;
    }
    table.close(sums);
    Ok(())
}

fn outdated_marks(table: &Rows<'_>, compacted: Revision) -> Result<Vec<Vec<u8>>, Error> {
    let newest = table.table.last().at("marks")?.map(|(key, _)| key.value().to_vec());
    let mut outdated = Vec::new();
    for row in table.table.iter().at("marks")?.take(MARKS_REMOVED_MAX) {
        let (key, row) = row.at("marks")?;
        let revision = Revision(layout::unseal("marks", key.value(), row.value())?.i64()?);
        if revision >= compacted || newest.as_deref() == Some(key.value()) {
            break;
        }
        outdated.push(key.value().to_vec());
    }
    Ok(outdated)
}

fn put_or_remove(table: &mut Rows<'_>, key: &[u8], put: bool) -> Result<(), Error> {
    if put { table.put(key, &layout::seal(key, |_| ())) } else { table.remove(key).map(drop) }
}

fn lease_row(key: &[u8], lease: &LeaseRow) -> Vec<u8> {
    layout::seal(key, |out| {
        out.extend(lease.ttl.to_be_bytes());
        out.extend(lease.remaining_ms.to_be_bytes());
        out.extend(lease.since_ms.to_be_bytes());
        out.extend(lease.mark.0.to_be_bytes());
        out.push(u8::from(lease.renewed));
    })
}

impl Snapshot {
    /// The small tables at this commit. Errors: `Io`, `Corrupt`.
    pub(super) fn small_tables(&self) -> Result<SmallTables, Error> {
        let mut small = SmallTables { applied: self.applied(), ..SmallTables::default() };
        self.each_row(TableId::Leases, |key, row| {
            let (id, lease) = read_lease(key, row)?;
            small.leases.insert(id, lease);
            Ok(())
        })?;
        self.each_row(TableId::Alarms, |key, row| {
            small.alarms.push(read_alarm(key, row)?);
            Ok(())
        })?;
        self.each_row(TableId::Writers, |key, row| {
            let (member, writer) = read_writer(key, row)?;
            small.writers.insert(member, writer);
            Ok(())
        })?;
        small.last_mark_ms = self.last_mark()?.map_or(0, |(time_ms, _)| time_ms);
        Ok(small)
    }

    fn last_mark(&self) -> Result<Option<(u64, Revision)>, Error> {
        let table = self.open_table(TableId::Marks)?;
        let Some((key, row)) = table.last().at("marks")? else { return Ok(None) };
        read_mark(key.value(), row.value()).map(Some)
    }

    /// The newest mark at or before a wall-clock time, in milliseconds: the store had reached that revision by then. Errors:
    /// `Io`, `Corrupt`.
    pub(crate) fn mark_at(&self, time_ms: u64) -> Result<Option<(u64, Revision)>, Error> {
        let table = self.open_table(TableId::Marks)?;
        let bound = time_ms.to_be_bytes();
        let Some(row) = table.range::<&[u8]>(..=bound.as_slice()).at("marks")?.next_back() else { return Ok(None) };
        let (key, row) = row.at("marks")?;
        read_mark(key.value(), row.value()).map(Some)
    }
}

impl Snapshot {
    /// Marks behind a time, oldest first, so many at most. Errors: `Io`, `Corrupt`.
    pub(crate) fn marks(&self, behind: Option<u64>, max: usize) -> Result<Vec<(u64, Revision)>, Error> {
        let mut marks = Vec::new();
        let behind = behind.map_or(Vec::new(), |time_ms| time_ms.to_be_bytes().to_vec());
        self.rows_behind(TableId::Marks, &behind, |key, row| {
            marks.push(read_mark(key, row)?);
            Ok(marks.len() < max)
        })?;
        Ok(marks)
    }
}

pub(super) fn read_lease(key: &[u8], row: &[u8]) -> Result<(LeaseId, LeaseRow), Error> {
    let mut name = layout::Reader::new("leases", key);
    let id = LeaseId(name.i64()?);
    name.end()?;
    let mut reader = layout::unseal("leases", key, row)?;
    let lease = LeaseRow {
        ttl: reader.i64()?,
        remaining_ms: reader.i64()?,
        since_ms: reader.u64()?,
        mark: Position(reader.u64()?),
        renewed: reader.u8()? != 0,
    };
    reader.end()?;
    Ok((id, lease))
}

pub(super) fn read_alarm(key: &[u8], row: &[u8]) -> Result<(MemberId, AlarmRow), Error> {
    layout::unseal("alarms", key, row)?.end()?;
    let mut name = layout::Reader::new("alarms", key);
    let member = MemberId(name.u64()?);
    let kind = match name.u8()? {
        NO_SPACE => AlarmRow::Asked(AlarmKind::NoSpace),
        CORRUPT => AlarmRow::Asked(AlarmKind::Corrupt),
        NO_SPACE_BY_ITSELF => AlarmRow::NoSpace,
        other => return Err(Error::corrupt("alarms", format!("unknown kind {other}"))),
    };
    name.end()?;
    Ok((member, kind))
}

pub(super) fn read_writer(key: &[u8], row: &[u8]) -> Result<(MemberId, WriterRow), Error> {
    let mut name = layout::Reader::new("writers", key);
    let member = MemberId(name.u64()?);
    name.end()?;
    let mut reader = layout::unseal("writers", key, row)?;
    let writer = WriterRow { generation: reader.u64()?, writer: WriterId(reader.u64()?), number: reader.u64()? };
    reader.end()?;
    Ok((member, writer))
}

pub(super) fn read_mark(key: &[u8], row: &[u8]) -> Result<(u64, Revision), Error> {
    let mut name = layout::Reader::new("marks", key);
    let time_ms = name.u64()?;
    name.end()?;
    let mut reader = layout::unseal("marks", key, row)?;
    let revision = Revision(reader.i64()?);
    reader.end()?;
    Ok((time_ms, revision))
}
