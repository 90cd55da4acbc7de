//! The bytes of a snapshot.
//!
//! ```text
//! offset  size  file; numbers are little-endian
//!      0     8  magic "STERNSNP"
//!      8     4  format: 2; 1 has no alarms and no marks
//!     12        blocks: the head, leases, changes, the end
//!               zeros up to a multiple of 512
//!           32  SHA-256 of everything before it
//!
//! offset  size  block
//!      0     4  kind
//!      4     4  number: 0 for the head, one more per block
//!      8     4  length of the content
//!     12     4  CRC-32 of the three fields before it and the content
//!     16        content
//!
//! kind          content
//!    1 head     cluster id u64, revision i64, wall clock in ms u64
//!    2 leases   per lease, in ascending order over all blocks: id i64, TTL in seconds i64, ms left i64
//!    3 changes  per change: main revision i64, sub-revision i64, kind u8 (0 deletion, 1 put), key length u32, value length u32,
//!               create revision i64, version i64, lease i64 (all 0 for a deletion), key, value
//!    4 end      compacted revision i64; numbers u64 of leases, of changes, of keys that live at the revision, of bytes of keys
//!               and values; sums u64, wrapping, of the CRC-32 of each lease, of each change; from format 2 on numbers u64 of
//!               alarms, of marks, and sums u64 of each
//!    5 alarms   per alarm, in ascending order: member u64, 0 for the one that the snapshot is of; kind u8 (1 NOSPACE, 2 CORRUPT)
//!    6 marks    per mark, in ascending order over all blocks: wall clock in ms u64, the revision reached by then i64
//! ```
//!
//! Blocks of changes go back in time, changes within a block forth. That makes compaction harmless while a snapshot is taken: a version
//! is dropped only in favour of a newer one, and a deletion only after everything before it, so whatever is missing is unreadable at the
//! compacted revision that the end names, and no deletion is missing that a change further on needs.

use bytes::Bytes;

use super::fields::Fields;
use crate::change::{Change, ChangeKind};
use crate::error::Error;
use crate::request::AlarmKind;
use crate::types::{LeaseId, MemberId, Revision, RevisionPair};

pub(super) const MAGIC: [u8; 8] = *b"STERNSNP";
/// What this release writes; it reads this one and older ones.
pub(super) const FORMAT: u32 = 2;
/// Magic and format.
pub(super) const PREFIX_LEN: usize = 12;
pub(super) const BLOCK_HEADER_LEN: usize = 16;
/// No block is longer: a few changes of the largest size.
pub(super) const CONTENT_MAX: usize = 16 << 20;
pub(super) const ALIGNMENT: u64 = 512;
pub(super) const HASH_LEN: usize = 32;
/// What a change takes besides key and value.
pub(super) const CHANGE_OVERHEAD: usize = 49;
pub(super) const LEASE_LEN: usize = 24;
const ALARM_LEN: usize = 9;
pub(super) const MARK_LEN: usize = 16;

const HEAD: u32 = 1;
const LEASES: u32 = 2;
const CHANGES: u32 = 3;
const END: u32 = 4;
const ALARMS: u32 = 5;
const MARKS: u32 = 6;

const NO_SPACE: u8 = 1;
const CORRUPT: u8 = 2;

/// A lease in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    /// Seconds.
    pub(crate) ttl: i64,
    pub(crate) left_ms: i64,
}

/// An alarm in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RaisedAlarm {
    /// Who raised it; none for the member that the snapshot is of.
    pub(super) member: Option<MemberId>,
    pub(super) kind: AlarmKind,
}

/// When a revision was reached: wall clock in ms.
pub(super) type Mark = (u64, Revision);

/// What a snapshot begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) cluster: u64,
    pub(super) revision: Revision,
    pub(super) created_ms: u64,
}

/// What a snapshot ends with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct End {
    pub(super) compacted: Revision,
    pub(super) leases: u64,
    pub(super) changes: u64,
    pub(super) keys: u64,
    pub(super) data_bytes: u64,
    pub(super) lease_sum: u64,
    pub(super) change_sum: u64,
    pub(super) alarms: u64,
    pub(super) marks: u64,
    pub(super) alarm_sum: u64,
    pub(super) mark_sum: u64,
}

impl End {
    /// Counts a lease, given its bytes.
    pub(super) fn count_lease(&mut self, bytes: &[u8]) {
        self.leases += 1;
        self.lease_sum = self.lease_sum.wrapping_add(u64::from(crc32fast::hash(bytes)));
    }

    fn count_alarm(&mut self, bytes: &[u8]) {
        self.alarms += 1;
        self.alarm_sum = self.alarm_sum.wrapping_add(u64::from(crc32fast::hash(bytes)));
    }

    fn count_mark(&mut self, bytes: &[u8]) {
        self.marks += 1;
        self.mark_sum = self.mark_sum.wrapping_add(u64::from(crc32fast::hash(bytes)));
    }

    /// Counts a change, given its bytes.
    pub(super) fn count_change(&mut self, bytes: &[u8]) {
        self.changes += 1;
        self.data_bytes += bytes.len().saturating_sub(CHANGE_OVERHEAD) as u64;
        self.change_sum = self.change_sum.wrapping_add(u64::from(crc32fast::hash(bytes)));
    }
}

/// The content of a block, and what it holds.
#[derive(Debug)]
pub(super) enum Block {
    Head(Head),
    Leases(Vec<Lease>),
    Alarms(Vec<RaisedAlarm>),
    Marks(Vec<Mark>),
    Changes(Vec<Change>),
    End(End),
}

/// The fields before the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    kind: u32,
    pub(super) number: u32,
    pub(super) len: usize,
    checksum: u32,
}

/// The first bytes of a file.
pub(super) fn prefix() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(FORMAT.to_le_bytes());
    bytes
}

pub(super) fn head_block(number: u32, head: &Head) -> Vec<u8> {
    let mut content = head.cluster.to_le_bytes().to_vec();
    content.extend(head.revision.0.to_le_bytes());
    content.extend(head.created_ms.to_le_bytes());
    block(HEAD, number, &content)
}

pub(super) fn leases_block(number: u32, leases: &[Lease], end: &mut End) -> Vec<u8> {
    let mut content = Vec::with_capacity(leases.len() * LEASE_LEN);
    for lease in leases {
        let bytes: Vec<u8> = [lease.id.0, lease.ttl, lease.left_ms].iter().flat_map(|n| n.to_le_bytes()).collect();
        end.count_lease(&bytes);
        content.extend(bytes);
    }
    block(LEASES, number, &content)
}

pub(super) fn alarms_block(number: u32, alarms: &[RaisedAlarm], end: &mut End) -> Vec<u8> {
    let mut content = Vec::with_capacity(alarms.len() * ALARM_LEN);
    for alarm in alarms {
        let mut bytes = alarm.member.map_or(0, |member| member.0).to_le_bytes().to_vec();
        bytes.push(match alarm.kind {
            AlarmKind::NoSpace => NO_SPACE,
            AlarmKind::Corrupt => CORRUPT,
        });
        end.count_alarm(&bytes);
        content.extend(bytes);
    }
    block(ALARMS, number, &content)
}

pub(super) fn marks_block(number: u32, marks: &[Mark], end: &mut End) -> Vec<u8> {
    let mut content = Vec::with_capacity(marks.len() * MARK_LEN);
    for (time_ms, revision) in marks {
        let bytes = [time_ms.to_le_bytes(), revision.0.to_le_bytes()].concat();
        end.count_mark(&bytes);
        content.extend(bytes);
    }
    block(MARKS, number, &content)
}

/// A block of changes in ascending order.
pub(super) fn changes_block<'a>(number: u32, changes: impl Iterator<Item = &'a Change>, end: &mut End) -> Vec<u8> {
    let mut content = Vec::new();
    for change in changes {
        let from = content.len();
        push_change(&mut content, change);
        end.count_change(content.get(from..).unwrap_or_default());
    }
    block(CHANGES, number, &content)
}

pub(super) fn end_block(number: u32, end: &End) -> Vec<u8> {
    let mut content = end.compacted.0.to_le_bytes().to_vec();
    let numbers = [end.leases, end.changes, end.keys, end.data_bytes, end.lease_sum, end.change_sum];
    let since_2 = [end.alarms, end.marks, end.alarm_sum, end.mark_sum];
    content.extend(numbers.iter().chain(&since_2).flat_map(|n| n.to_le_bytes()));
    block(END, number, &content)
}

fn push_change(out: &mut Vec<u8>, change: &Change) {
    let (kind, numbers, value) = match &change.kind {
        ChangeKind::Put { create, version, lease, value } => (1, [create.0, *version, *lease], value.as_ref()),
        ChangeKind::Tombstone => (0, [0; 3], &[][..]),
    };
    let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    out.extend(change.at.main.0.to_le_bytes());
    out.extend(change.at.sub.to_le_bytes());
    out.push(kind);
    out.extend(len(&change.key));
    out.extend(len(value));
    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    out.extend_from_slice(&change.key);
    out.extend_from_slice(value);
}

fn block(kind: u32, number: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK_HEADER_LEN + content.len());
    let len = u32::try_from(content.len()).unwrap_or(u32::MAX);
    [kind, number, len].iter().for_each(|field| bytes.extend(field.to_le_bytes()));
    let checksum = checksum(&bytes, content);
    bytes.extend(checksum.to_le_bytes());
    bytes.extend_from_slice(content);
    bytes
}

fn checksum(fields: &[u8], content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(fields);
    hasher.update(content);
    hasher.finalize()
}

/// Checks the magic and answers the format. Errors: `Corrupt`; `Io` for a newer format.
pub(super) fn read_prefix(bytes: [u8; PREFIX_LEN]) -> Result<u32, Error> {
    let mut fields = Fields { rest: &bytes };
    if fields.array()? != MAGIC {
        return Err(wrong("it is not a snapshot of this store"));
    }
    match fields.u32()? {
        0 => Err(wrong("format 0 never existed")),
        known @ 1..=FORMAT => Ok(known),
        found => Err(Error::Io {
            doing: "reading a snapshot".into(),
            reason: format!("it has format {found}, this release reads formats up to {FORMAT}"),
        }),
    }
}

impl BlockHeader {
    /// Reads the fields of a block header. Errors: `Corrupt`.
    pub(super) fn decode(bytes: [u8; BLOCK_HEADER_LEN]) -> Result<BlockHeader, Error> {
        let mut fields = Fields { rest: &bytes };
        let (kind, number, len, checksum) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > CONTENT_MAX {
            return Err(wrong(format!("a block of {len} bytes, {CONTENT_MAX} at most")));
        }
        Ok(BlockHeader { kind, number, len, checksum })
    }

    /// Reads the content, as a format has it, and counts what it holds. Errors: `Corrupt`.
    pub(super) fn read(&self, format: u32, content: &Bytes, found: &mut End) -> Result<Block, Error> {
        let len = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let fields: Vec<u8> = [self.kind, self.number, len].iter().flat_map(|field| field.to_le_bytes()).collect();
        if checksum(&fields, content) != self.checksum {
            return Err(wrong(format!("block {} does not match its checksum", self.number)));
        }
        let mut fields = Fields { rest: content };
        let block = match self.kind {
            HEAD => Block::Head(Head {
                cluster: fields.u64()?,
                revision: Revision(fields.i64()?),
                created_ms: fields.u64()?,
            }),
            LEASES => Block::Leases(read_leases(&mut fields, found)?),
            CHANGES => Block::Changes(read_changes(&mut fields, content, found)?),
            ALARMS if format >= 2 => Block::Alarms(read_alarms(&mut fields, found)?),
            MARKS if format >= 2 => Block::Marks(read_marks(&mut fields, found)?),
            END => Block::End(End {
                compacted: Revision(fields.i64()?),
                leases: fields.u64()?,
                changes: fields.u64()?,
                keys: fields.u64()?,
                data_bytes: fields.u64()?,
                lease_sum: fields.u64()?,
                change_sum: fields.u64()?,
                alarms: fields.u64_since(2, format)?,
                marks: fields.u64_since(2, format)?,
                alarm_sum: fields.u64_since(2, format)?,
                mark_sum: fields.u64_since(2, format)?,
            }),
            kind => return Err(wrong(format!("block {} is of unknown kind {kind}", self.number))),
        };
        if fields.rest.is_empty() { Ok(block) } else { Err(wrong(format!("block {} is too long", self.number))) }
    }
}

fn read_leases(fields: &mut Fields<'_>, found: &mut End) -> Result<Vec<Lease>, Error> {
    let mut leases = Vec::new();
    while !fields.rest.is_empty() {
        found.count_lease(fields.rest.get(..LEASE_LEN).unwrap_or_default());
        leases.push(Lease { id: LeaseId(fields.i64()?), ttl: fields.i64()?, left_ms: fields.i64()? });
    }
    Ok(leases)
}

fn read_alarms(fields: &mut Fields<'_>, found: &mut End) -> Result<Vec<RaisedAlarm>, Error> {
    let mut alarms = Vec::new();
    while !fields.rest.is_empty() {
        found.count_alarm(fields.rest.get(..ALARM_LEN).unwrap_or_default());
        let member = Some(MemberId(fields.u64()?)).filter(|member| member.0 != 0);
        let kind = match fields.array()? {
            [NO_SPACE] => AlarmKind::NoSpace,
            [CORRUPT] => AlarmKind::Corrupt,
            [other] => return Err(wrong(format!("an alarm of unknown kind {other}"))),
        };
        alarms.push(RaisedAlarm { member, kind });
    }
    Ok(alarms)
}

fn read_marks(fields: &mut Fields<'_>, found: &mut End) -> Result<Vec<Mark>, Error> {
    let mut marks = Vec::new();
    while !fields.rest.is_empty() {
        found.count_mark(fields.rest.get(..MARK_LEN).unwrap_or_default());
        marks.push((fields.u64()?, Revision(fields.i64()?)));
    }
    Ok(marks)
}

fn read_changes(fields: &mut Fields<'_>, content: &Bytes, found: &mut End) -> Result<Vec<Change>, Error> {
    let mut changes = Vec::new();
    while !fields.rest.is_empty() {
        let whole = fields.rest;
        let at = RevisionPair { main: Revision(fields.i64()?), sub: fields.i64()? };
        let [kind] = fields.array()?;
        let (key_len, value_len) = (fields.u32()?, fields.u32()?);
        let (create, version, lease) = (Revision(fields.i64()?), fields.i64()?, fields.i64()?);
        let (key, value) = (fields.slice(key_len)?, fields.slice(value_len)?);
        let kind = match kind {
            0 if (create.0, version, lease) == (0, 0, 0) && value.is_empty() => ChangeKind::Tombstone,
            1 => ChangeKind::Put { create, version, lease, value: content.slice_ref(value) },
            _ => return Err(wrong(format!("revision {}, change {}: of unknown kind {kind}", at.main, at.sub))),
        };
        changes.push(Change { key: content.slice_ref(key), at, kind });
        found.count_change(whole.get(..whole.len() - fields.rest.len()).unwrap_or_default());
    }
    Ok(changes)
}

/// A snapshot that cannot be.
pub(super) fn wrong(reason: impl Into<String>) -> Error {
    Error::corrupt("snapshot", reason)
}
