//! Rows of `index`: the versions of a key, a bounded run of them in one row.

use bytes::Bytes;

use super::{Hex, IN_HISTORY, INLINE, INLINE_MAX_BYTES, Reader, TOMBSTONE, push_varint, seal, split_index_key, unseal};
use crate::base::{Kept, Version};
use crate::change::{Change, ChangeKind};
use crate::error::Error;
use crate::types::{Revision, RevisionPair};

/// Several versions in one row, newest first.
const RUN: u8 = 3;

/// What a version of a run begins with: its kind in the lowest bits, and what it has in common with the newer one before it.
const KIND_BITS: u8 = 0x03;
/// The same creation, and the version number before.
const PRECEDES: u8 = 0x04;
const SAME_LEASE: u8 = 0x08;
/// The first change of its revision.
const FIRST_CHANGE: u8 = 0x10;
/// A value of the same length, in `history`.
const SAME_LENGTH: u8 = 0x20;
const FLAGS: u8 = KIND_BITS | PRECEDES | SAME_LEASE | FIRST_CHANGE | SAME_LENGTH;

/// Puts of one key that share a row, at most; and a deletion behind them. Not part of the format.
const RUN_PUTS: i64 = 64;
/// The same for puts whose values lie in the row.
const RUN_PUTS_INLINE: i64 = 16;

/// Where a put's value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::base) enum Stored<'a> {
    /// In the index row.
    Inline(&'a [u8]),
    /// In `history`, this many bytes.
    History(u64),
}

/// A version as a row of `index` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::base) enum Indexed<'a> {
    Tombstone,
    Put { create: Revision, version: i64, lease: i64, value: Stored<'a> },
}

impl Indexed<'_> {
    /// The length of the value; 0 for a tombstone.
    pub(in crate::base) fn value_len(&self) -> u64 {
        match self {
            Indexed::Tombstone => 0,
            Indexed::Put { value: Stored::Inline(value), .. } => value.len() as u64,
            Indexed::Put { value: Stored::History(len), .. } => *len,
        }
    }

    pub(in crate::base) fn is_tombstone(&self) -> bool {
        matches!(self, Indexed::Tombstone)
    }

    /// The version that readers get, with a copy of an inline value.
    pub(in crate::base) fn to_version(self) -> Version {
        match self {
            Indexed::Tombstone => Version::Tombstone,
            Indexed::Put { create, version, lease, value } => {
                let value = match value {
                    Stored::Inline(value) => Kept::Inline(Bytes::copy_from_slice(value)),
                    Stored::History(len) => Kept::History(len),
                };
                Version::Put { create, version, lease, value }
            }
        }
    }
}

/// A version of a key and its place.
pub(in crate::base) type Placed = (RevisionPair, Version);

/// What `index` keeps of a change.
pub(in crate::base) fn placed(change: &Change) -> Placed {
    let version = match &change.kind {
        ChangeKind::Tombstone => Version::Tombstone,
        ChangeKind::Put { create, version, lease, value } => {
            let inline = value.len() <= INLINE_MAX_BYTES;
            let value = if inline { Kept::Inline(value.clone()) } else { Kept::History(value.len() as u64) };
            Version::Put { create: *create, version: *version, lease: *lease, value }
        }
    };
    (change.at, version)
}

/// True if a version begins a row, whatever its key has before it. Rows must not depend on how changes came in parts: a copy of base
/// is compared with it row by row.
pub(in crate::base) fn begins_row(version: &Version) -> bool {
    match version {
        Version::Tombstone => false,
        Version::Put { version, value, .. } => {
            let most = match value {
                Kept::Inline(_) => small!(RUN_PUTS_INLINE, 3),
                Kept::History(_) => small!(RUN_PUTS, 4),
            };
            *version == 1 || version % most == 0
        }
    }
}

/// The row of these versions of a key, oldest first, of which there is one at least. `key` names the oldest.
pub(in crate::base) fn index_row(key: &[u8], versions: &[Placed]) -> Vec<u8> {
    seal(key, |out| match versions {
        [(_, only)] => push_single(out, only),
        [(oldest, _), ..] => push_run(out, *oldest, versions),
        [] => {}
    })
}

fn push_single(out: &mut Vec<u8>, only: &Version) {
    out.push(kind(only));
    if let Version::Put { create, version, lease, value } = only {
        push_varint(out, create.0.cast_unsigned());
        push_varint(out, version.cast_unsigned());
        push_varint(out, lease.cast_unsigned());
        match value {
            Kept::Inline(value) => out.extend_from_slice(value),
            Kept::History(len) => push_varint(out, *len),
        }
    }
}

fn push_run(out: &mut Vec<u8>, oldest: RevisionPair, versions: &[Placed]) {
    out.push(RUN);
    let mut newer: Option<&Placed> = None;
    for placed in versions.iter().rev() {
        push_of_run(out, oldest, newer, placed);
        newer = Some(placed);
    }
}

fn push_of_run(out: &mut Vec<u8>, oldest: RevisionPair, newer: Option<&Placed>, (at, placed): &Placed) {
    let start = out.len();
    out.push(kind(placed));
    let mut flags = 0;
    let distance = match newer {
        Some((newer, _)) => newer.main.0.wrapping_sub(at.main.0),
        None => at.main.0.wrapping_sub(oldest.main.0),
    };
    push_varint(out, distance.cast_unsigned());
    if at.sub == 0 {
        flags |= FIRST_CHANGE;
    } else {
        push_varint(out, at.sub.cast_unsigned());
    }
    if let Version::Put { create, version, lease, value } = placed {
        let newer =
            newer.and_then(|(_, newer)| if let Version::Put { .. } = newer { Some(numbers(newer)) } else { None });
        if newer.is_some_and(|newer| newer.create == create.0 && newer.version.checked_sub(1) == Some(*version)) {
            flags |= PRECEDES;
        } else {
            push_varint(out, create.0.cast_unsigned());
            push_varint(out, version.cast_unsigned());
        }
        if newer.is_some_and(|newer| newer.lease == *lease) {
            flags |= SAME_LEASE;
        } else {
            push_varint(out, lease.cast_unsigned());
        }
        match value {
            Kept::Inline(value) => {
                push_varint(out, value.len() as u64);
                out.extend_from_slice(value);
            }
            Kept::History(len) if newer.is_some_and(|newer| newer.length == Some(*len)) => flags |= SAME_LENGTH,
            Kept::History(len) => push_varint(out, *len),
        }
    }
    out.iter_mut().skip(start).take(1).for_each(|first| *first |= flags);
}

fn kind(version: &Version) -> u8 {
    match version {
        Version::Tombstone => TOMBSTONE,
        Version::Put { value: Kept::Inline(_), .. } => INLINE,
        Version::Put { value: Kept::History(_), .. } => IN_HISTORY,
    }
}

/// What a version of a run can have in common with the newer one before it.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    create: i64,
    version: i64,
    lease: i64,
    /// Of a value in `history`.
    length: Option<u64>,
}

fn numbers(version: &Version) -> Numbers {
    match version {
        Version::Tombstone => Numbers { create: 0, version: 0, lease: 0, length: None },
        Version::Put { create, version, lease, value } => {
            let length = if let Kept::History(len) = value { Some(*len) } else { None };
            Numbers { create: create.0, version: *version, lease: *lease, length }
        }
    }
}

/// Checks a row of `index` against its checksum. Answers its versions, newest first.
pub(in crate::base) fn read_index_row<'a>(key: &[u8], row: &'a [u8]) -> Result<Versions<'a>, Error> {
    let mut reader = unseal("index", key, row)?;
    let (_, oldest) = split_index_key(key)?;
    let kind = reader.u8()?;
    let state = match kind {
        RUN => State::Run { newer: None },
        TOMBSTONE | INLINE | IN_HISTORY => State::Single(kind),
        other => return Err(Error::corrupt("index", format!("unknown kind {other}"))),
    };
    Ok(Versions { reader, oldest, state })
}

/// The versions of a row, newest first; an error ends them. The last one is at the place that the row's key names.
#[derive(Debug)]
pub(in crate::base) struct Versions<'a> {
    reader: Reader<'a>,
    oldest: RevisionPair,
    state: State,
}

#[derive(Debug)]
enum State {
    Single(u8),
    /// The version before, and its numbers if it was a put.
    Run {
        newer: Option<(RevisionPair, Option<Numbers>)>,
    },
    Over,
}

impl<'a> Versions<'a> {
    /// The newest version at or below a place that is not below the row's own.
    pub(in crate::base) fn newest(mut self, at: RevisionPair) -> Result<(RevisionPair, Indexed<'a>), Error> {
        self.find(|version| version.as_ref().map_or(true, |(place, _)| *place <= at)).unwrap_or_else(|| {
            Err(Error::corrupt("index", format!("a row has no version at or below {}, change {}", at.main, at.sub)))
        })
    }

    fn single(&mut self, kind: u8) -> Result<Indexed<'a>, Error> {
        let reader = &mut self.reader;
        let version = if kind == TOMBSTONE {
            Indexed::Tombstone
        } else {
            let create = Revision(reader.varint()?.cast_signed());
            let version = reader.varint()?.cast_signed();
            let lease = reader.varint()?.cast_signed();
            let value = if kind == INLINE { Stored::Inline(reader.rest()) } else { Stored::History(reader.varint()?) };
            Indexed::Put { create, version, lease, value }
        };
        reader.end()?;
        Ok(version)
    }

    fn of_run(
        &mut self,
        newer: Option<(RevisionPair, Option<Numbers>)>,
    ) -> Result<(RevisionPair, Indexed<'a>, Option<Numbers>), Error> {
        let odd = |what: &str| Error::corrupt("index", format!("a run of versions {what}"));
        let reader = &mut self.reader;
        let flags = reader.u8()?;
        if flags & !FLAGS != 0 {
            return Err(odd(&format!("has flags {flags:#04x}")));
        }
        let distance = reader.varint()?.cast_signed();
        let main = match newer {
            Some((newer, _)) => newer.main.0.checked_sub(distance),
            None => self.oldest.main.0.checked_add(distance),
        };
        let sub = if flags & FIRST_CHANGE != 0 { 0 } else { reader.varint()?.cast_signed() };
        let at = RevisionPair { main: Revision(main.ok_or_else(|| odd("leaves the numbers"))?), sub };
        if at < self.oldest || sub < 0 || newer.is_some_and(|(newer, _)| at >= newer) {
            return Err(odd("is not in order"));
        }
        let newer = newer.and_then(|(_, numbers)| numbers);
        let given = || newer.ok_or_else(|| odd("refers to a version that is not there"));
        let kind = flags & KIND_BITS;
        if kind == TOMBSTONE {
            return Ok((at, Indexed::Tombstone, None));
        }
        let (create, version) = if flags & PRECEDES != 0 {
            let newer = given()?;
            (newer.create, newer.version.checked_sub(1).ok_or_else(|| odd("leaves the numbers"))?)
        } else {
            (reader.varint()?.cast_signed(), reader.varint()?.cast_signed())
        };
        let lease = if flags & SAME_LEASE != 0 { given()?.lease } else { reader.varint()?.cast_signed() };
        let value = match kind {
            INLINE => {
                let len = reader.varint()?;
                Stored::Inline(reader.take(len)?)
            }
            IN_HISTORY if flags & SAME_LENGTH != 0 => {
                Stored::History(given()?.length.ok_or_else(|| odd("refers to a length that is not there"))?)
            }
            IN_HISTORY => Stored::History(reader.varint()?),
            other => return Err(odd(&format!("has a version of kind {other}"))),
        };
        let length = if let Stored::History(len) = value { Some(len) } else { None };
        let put = Indexed::Put { create: Revision(create), version, lease, value };
        Ok((at, put, Some(Numbers { create, version, lease, length })))
    }
}

impl<'a> Iterator for Versions<'a> {
    type Item = Result<(RevisionPair, Indexed<'a>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Over => None,
            State::Single(kind) => Some(self.single(kind).map(|version| (self.oldest, version))),
            State::Run { newer: Some((last, _)) } if self.reader.is_empty() => (last != self.oldest).then(|| {
                let reason = format!("a run ends at {}, change {}, not where its key says", last.main, last.sub);
                Err(Error::corrupt("index", reason))
            }),
            State::Run { newer } => Some(self.of_run(newer).map(|(at, version, numbers)| {
                self.state = State::Run { newer: Some((at, numbers)) };
                (at, version)
            })),
        }
    }
}

/// The versions of a row, oldest first, with copies of what lies in the row.
pub(in crate::base) fn versions_of(key: &[u8], row: &[u8]) -> Result<Vec<Placed>, Error> {
    let versions = read_index_row(key, row)?.map(|version| version.map(|(at, version)| (at, version.to_version())));
    let mut versions = versions.collect::<Result<Vec<Placed>, Error>>()?;
    versions.reverse();
    if versions.is_empty() { Err(Error::corrupt("index", format!("row {} is empty", Hex(key)))) } else { Ok(versions) }
}
