//! The keys of `index` and `history`: escaping that keeps the order, and revisions as bytes.

use bytes::Bytes;

use super::{Hex, Reader};
use crate::error::Error;
use crate::types::{Revision, RevisionPair};

const END: [u8; 2] = [0x00, 0x01];
const AFTER_END: u8 = 0x02;
const PAIR_BYTES: usize = 16;
const PIECE_KEY_BYTES: usize = PAIR_BYTES + 4;

/// The escaped key with its end: what all index rows of the key begin with, and nothing else does.
pub(in crate::base) fn key_prefix(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + END.len() + PAIR_BYTES);
    for &byte in key {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
    out.extend_from_slice(&END);
    out
}

/// Above every row of the key with this prefix, below every row of the next key.
pub(in crate::base) fn after_key(prefix: &[u8]) -> Vec<u8> {
    let mut out = prefix.to_vec();
    out.pop();
    out.push(AFTER_END);
    out
}

/// The index row of the key with this prefix at `at`.
pub(in crate::base) fn index_key(prefix: &[u8], at: RevisionPair) -> Vec<u8> {
    let mut out = Vec::with_capacity(prefix.len() + PAIR_BYTES);
    out.extend_from_slice(prefix);
    out.extend_from_slice(&(!at.main.0).to_be_bytes());
    out.extend_from_slice(&(!at.sub).to_be_bytes());
    out
}

/// An index key's prefix and revision.
pub(in crate::base) fn split_index_key(key: &[u8]) -> Result<(&[u8], RevisionPair), Error> {
    let damaged = || Error::corrupt("index", format!("key {} has no revision", Hex(key)));
    let (prefix, pair) = key.split_last_chunk::<PAIR_BYTES>().ok_or_else(damaged)?;
    let mut reader = Reader::new("index", pair);
    let at = RevisionPair { main: Revision(!reader.i64()?), sub: !reader.i64()? };
    if prefix.ends_with(&END) && at.main.0 >= 0 && at.sub >= 0 { Ok((prefix, at)) } else { Err(damaged()) }
}

/// The user key behind a prefix.
pub(in crate::base) fn unescape(prefix: &[u8]) -> Result<Bytes, Error> {
    let damaged = || Error::corrupt("index", format!("key {} is not escaped", Hex(prefix)));
    let mut rest = prefix.strip_suffix(&END).ok_or_else(damaged)?;
    if !rest.contains(&0) {
        return Ok(Bytes::copy_from_slice(rest));
    }
    let mut key = Vec::with_capacity(rest.len());
    while let Some((&byte, tail)) = rest.split_first() {
        key.push(byte);
        rest = if byte == 0 { tail.strip_prefix(&[0xFF]).ok_or_else(damaged)? } else { tail };
    }
    Ok(Bytes::from(key))
}

/// The history key of a change.
pub(in crate::base) fn history_key(at: RevisionPair) -> [u8; PAIR_BYTES] {
    let mut out = [0; PAIR_BYTES];
    let (main, sub) = out.split_at_mut(PAIR_BYTES / 2);
    main.copy_from_slice(&at.main.0.to_be_bytes());
    sub.copy_from_slice(&at.sub.to_be_bytes());
    out
}

/// The change a history key names.
pub(in crate::base) fn read_history_key(key: &[u8]) -> Result<RevisionPair, Error> {
    let mut reader = Reader::new("history", key);
    let at = RevisionPair { main: Revision(reader.i64()?), sub: reader.i64()? };
    reader.end()?;
    Ok(at)
}

/// The history key of a further piece of a value, from 1 on.
pub(in crate::base) fn piece_key(at: RevisionPair, number: u32) -> [u8; PIECE_KEY_BYTES] {
    let mut out = [0; PIECE_KEY_BYTES];
    let (pair, last) = out.split_at_mut(PAIR_BYTES);
    pair.copy_from_slice(&history_key(at));
    last.copy_from_slice(&number.to_be_bytes());
    out
}

/// True for the key of a further piece, false for that of a version.
pub(in crate::base) fn is_piece(key: &[u8]) -> bool {
    key.len() == PIECE_KEY_BYTES
}

/// The change a key of `history` names, and the number of the piece; 0 for its first row.
pub(in crate::base) fn read_place(key: &[u8]) -> Result<(RevisionPair, u32), Error> {
    match key.split_first_chunk::<PAIR_BYTES>() {
        Some((pair, number)) if is_piece(key) => {
            let mut reader = Reader::new("history", number);
            Ok((read_history_key(pair)?, reader.u32()?))
        }
        _ => Ok((read_history_key(key)?, 0)),
    }
}
