//! The byte layout of every row in base, in one place.
//!
//! Every row value begins with a CRC-32 over the row's key and the payload behind it:
//!
//! ```text
//! row value      crc u32 · payload
//!
//! index key      user key with 0x00 → 0x00 0xFF · 0x00 0x01 · !main i64 · !sub i64     (newest version first)
//! index payload  0 | 1 · create · version · lease · value | 2 · create · version · lease · value length
//!                tombstone | value inline                | value in history            (numbers are varints)
//!                3 · versions, newest first               (since format 3; the key has the place of the oldest)
//! in a run       kind and flags u8 · distance · [sub] · [create · version] · [lease] · [value length · [value]]
//!                distance: of revisions, to the version before; of the first to the oldest. Left out if a flag says so:
//!                0x04 create and version (same, one less) · 0x08 same lease · 0x10 sub is 0 · 0x20 same length, in history
//! history key    main i64 · sub i64
//! history payload  kind as in index · key length varint · key · value, if kind is 2
//!                  3 · key length varint · key · value length varint · first piece of the value
//! further pieces   main i64 · sub i64 · number u32 → piece    (1, 2, … directly behind the row that they continue)
//! leases         id i64                  → ttl i64 · remaining_ms i64 · since_ms u64 · mark u64 · renewed u8
//! lease_keys     id i64 · user key       → nothing
//! alarms         member u64 · kind u8    → nothing    (1 NOSPACE, 2 CORRUPT: asked for; 3 NOSPACE: raised by the store itself)
//! writers        member u64              → generation u64 · writer u64 · number u64
//! marks          milliseconds u64        → revision i64
//! meta           a name                  → see `meta.rs`
//! ```
//!
//! Fixed-width numbers are big-endian, so that the order of bytes is the order of numbers; inverting a revision puts the
//! newest first. The escape makes every key's rows one run: no encoded key is a prefix of another. The index row repeats the
//! length of a value in history, so that totals are kept without fetching it.

use crate::change::{Change, ChangeKind};
use crate::error::Error;

mod index;
mod key;
mod reader;
#[cfg(test)]
mod tests;

pub(super) use index::{Indexed, Placed, Stored, begins_row, index_row, placed, read_index_row, versions_of};
pub(super) use key::{
    after_key, history_key, index_key, is_piece, key_prefix, piece_key, read_history_key, read_place, split_index_key,
    unescape,
};
pub(super) use reader::Reader;

/// The format this release writes; it reads this one and older ones.
///
/// | format | what older releases do not know |
/// |---|---|
/// | 1 | |
/// | 2 | alarms that the store raised itself |
/// | 3 | several versions of a key in a row of `index`, and values in several rows of `history` |
pub(super) const FORMAT: u32 = 3;

/// Values up to this size lie in `index`, larger ones in `history`. Not part of the format: each row says where its value is.
///
/// Measured with limits of 64 and 1024 (256 puts these values where one of them does), 200,000 keys, parts of 50,000 random
/// puts, nothing dropped, a cache of 64 MiB, two cores, one run each; times are rough, compilers ran beside some of them:
///
/// | value | limit | a put | list with values | keys only | get |
/// |---|---|---|---|---|---|
/// | 256 B | 64 | 2.1 KiB, 10 µs | 4.5 µs a key | 0.7 µs a key | 10 µs |
/// | 256 B | 256 and more | 5.6 KiB, 19 µs | 2.0 µs a key | 2.0 µs a key | 8 µs |
/// | 1000 B | 64 and 256 | 4.5 KiB, 15 µs | 6.9 µs a key | 0.5 µs a key | 16 µs |
/// | 1000 B | 1024 | 11.0 KiB, 49 µs | 3.5 µs a key | 3.5 µs a key | 5 µs |
///
/// Writes and counts gain more than lists lose, so the limit stays low.
pub(super) const INLINE_MAX_BYTES: usize = 64;

const TOMBSTONE: u8 = 0;
const INLINE: u8 = 1;
const IN_HISTORY: u8 = 2;
const CUT: u8 = 3;

/// What the checksum takes of each row.
pub(super) const CHECKSUM_BYTES: usize = 4;

/// What a row of `history` says about the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HistoryValue<'a> {
    Tombstone,
    InIndex,
    Here(&'a [u8]),
    /// Here it begins; the rest of its `len` bytes lies in the rows behind.
    Cut {
        len: u64,
        piece: &'a [u8],
    },
}

impl<'a> HistoryValue<'a> {
    /// The length of the whole value, if it lies in `history`.
    pub(super) fn len(&self) -> Option<u64> {
        match self {
            HistoryValue::Tombstone | HistoryValue::InIndex => None,
            HistoryValue::Here(value) => Some(value.len() as u64),
            HistoryValue::Cut { len, .. } => Some(*len),
        }
    }

    /// What of the value lies in this row.
    pub(super) fn piece(&self) -> &'a [u8] {
        match self {
            HistoryValue::Tombstone | HistoryValue::InIndex => &[],
            HistoryValue::Here(piece) | HistoryValue::Cut { piece, .. } => piece,
        }
    }
}

/// A row of `history`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HistoryRow<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: HistoryValue<'a>,
}

/// The history row of a change, with all of its value.
pub(super) fn history_row(key: &[u8], change: &Change) -> Vec<u8> {
    seal(key, |out| {
        let (kind, value) = match &change.kind {
            ChangeKind::Tombstone => (TOMBSTONE, &[][..]),
            ChangeKind::Put { value, .. } if value.len() <= INLINE_MAX_BYTES => (INLINE, &[][..]),
            ChangeKind::Put { value, .. } => (IN_HISTORY, value.as_ref()),
        };
        push_head(out, kind, &change.key);
        out.extend_from_slice(value);
    })
}

/// The history row of a put of which only the first piece of the value lies in it; `len` is that of the whole value.
pub(super) fn cut_row(key: &[u8], user_key: &[u8], len: usize, piece: &[u8]) -> Vec<u8> {
    seal(key, |out| {
        push_head(out, CUT, user_key);
        push_varint(out, len as u64);
        out.extend_from_slice(piece);
    })
}

/// The length of such a row without the piece; without the length of the value that of one which is not cut.
pub(super) fn head_len(user_key: &[u8], len: Option<usize>) -> usize {
    let mut head = Vec::new();
    push_varint(&mut head, user_key.len() as u64);
    len.iter().for_each(|len| push_varint(&mut head, *len as u64));
    CHECKSUM_BYTES + 1 + head.len() + user_key.len()
}

fn push_head(out: &mut Vec<u8>, kind: u8, user_key: &[u8]) {
    out.push(kind);
    push_varint(out, user_key.len() as u64);
    out.extend_from_slice(user_key);
}

/// A row with a further piece of a value.
pub(super) fn piece_row(key: &[u8], piece: &[u8]) -> Vec<u8> {
    seal(key, |out| out.extend_from_slice(piece))
}

/// Checks and reads a history row.
pub(super) fn read_history_row<'a>(key: &[u8], row: &'a [u8]) -> Result<HistoryRow<'a>, Error> {
    history_payload(unseal("history", key, row)?)
}

/// Reads a history row that was checked before.
pub(super) fn checked_history_row(row: &[u8]) -> Result<HistoryRow<'_>, Error> {
    history_payload(Reader::new("history", row.get(CHECKSUM_BYTES..).unwrap_or_default()))
}

fn history_payload(mut reader: Reader<'_>) -> Result<HistoryRow<'_>, Error> {
    let kind = reader.u8()?;
    let len = reader.varint()?;
    let key = reader.take(len)?;
    let value = match kind {
        TOMBSTONE => HistoryValue::Tombstone,
        INLINE => HistoryValue::InIndex,
        IN_HISTORY => HistoryValue::Here(reader.rest()),
        CUT => HistoryValue::Cut { len: reader.varint()?, piece: reader.rest() },
        other => return Err(Error::corrupt("history", format!("unknown kind {other}"))),
    };
    reader.end()?;
    Ok(HistoryRow { key, value })
}

/// Checks and reads a row with a further piece of a value.
pub(super) fn read_piece<'a>(key: &[u8], row: &'a [u8]) -> Result<&'a [u8], Error> {
    Ok(unseal("history", key, row)?.rest())
}

/// A row value: what `fill` writes, behind the checksum of it and the key.
pub(super) fn seal(key: &[u8], fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut row = vec![0; 4];
    fill(&mut row);
    if let Some((head, payload)) = row.split_first_chunk_mut::<4>() {
        *head = checksum(key, payload).to_be_bytes();
    }
    row
}

/// A row's payload, once its checksum is known to be right.
pub(super) fn unseal<'a>(table: &'static str, key: &[u8], row: &'a [u8]) -> Result<Reader<'a>, Error> {
    match row.split_first_chunk::<4>() {
        Some((head, payload)) if u32::from_be_bytes(*head) == checksum(key, payload) || planted!(RowUnchecked) => {
            Ok(Reader::new(table, payload))
        }
        Some(_) => Err(Error::corrupt(table, format!("row {} does not match its checksum", Hex(key)))),
        None => Err(Error::corrupt(table, format!("row {} has {} bytes", Hex(key), row.len()))),
    }
}

/// A row that another row speaks of is not there.
pub(super) fn missing(table: &'static str, key: &[u8]) -> Error {
    Error::corrupt(table, format!("row {} is missing", Hex(key)))
}

/// A row that is there is not found by its key.
pub(super) fn not_found(table: &'static str, key: &[u8]) -> Error {
    Error::corrupt(table, format!("row {} is there, but looking it up does not find it", Hex(key)))
}

/// A row of `history` that continues no value, or goes on behind the end of one.
pub(super) fn belongs_nowhere(key: &[u8]) -> Error {
    Error::corrupt("history", format!("row {} continues no value", Hex(key)))
}

/// A row comes where it does not belong.
pub(super) fn out_of_order(table: &'static str, key: &[u8]) -> Error {
    Error::corrupt(table, format!("row {} is not in order", Hex(key)))
}

/// The checksum that a row carries, unchecked: what a table's sum adds up.
pub(super) fn carried_checksum(row: &[u8]) -> u64 {
    row.first_chunk::<4>().map_or(0, |head| u64::from(u32::from_be_bytes(*head)))
}

fn checksum(key: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(payload);
    hasher.finalize()
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7F) as u8);
}

/// The first bytes of a key, for a message.
pub(super) struct Hex<'a>(pub(super) &'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 64;
        self.0.iter().take(SHOWN).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        if self.0.len() > SHOWN { write!(f, "… ({} bytes)", self.0.len()) } else { Ok(()) }
    }
}
