//! Ranges to bytes without a message between: for answers that are encoded piece by piece.

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use storage::{Entry, Error, Keyspace, Listing};

use crate::pb::etcdserverpb as pb;

/// The tags of `RangeResponse.kvs`, of a key's fields, and of `RangeStreamResponse.range_response`.
const KVS: u32 = 2;
const KEY: u32 = 1;
const CREATE_REVISION: u32 = 2;
const MOD_REVISION: u32 = 3;
const VERSION: u32 = 4;
const VALUE: u32 = 5;
const LEASE: u32 = 6;
const RANGE_RESPONSE: u32 = 1;

/// The encoded length of the keys and values of a listing that are not taken yet.
pub(crate) fn entries_len(listing: &Listing) -> usize {
    listing.entries().map(|entry| nested_len(KVS, entry_len(&entry))).sum()
}

/// Takes about `max_bytes` of a listing, one entry at least, and encodes it behind what `out` holds.
pub(crate) fn take_entries(
    keyspace: &Keyspace,
    listing: &mut Listing,
    max_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    listing.take(keyspace, max_bytes, &mut |entry, pieces| push_entry(&entry, pieces, out))
}

/// What a range's answer begins with: its header alone.
pub(crate) fn range_head(header: Option<pb::ResponseHeader>) -> Vec<u8> {
    pb::RangeResponse { header, ..pb::RangeResponse::default() }.encode_to_vec()
}

/// What it ends with, behind its keys.
pub(crate) fn range_tail(more: bool, count: i64) -> Vec<u8> {
    pb::RangeResponse { more, count, ..pb::RangeResponse::default() }.encode_to_vec()
}

/// What precedes a range's answer of `len` bytes within a piece of a stream.
pub(crate) fn piece_head(len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    push_nested(RANGE_RESPONSE, len, &mut out);
    out
}

fn push_nested(tag: u32, len: usize, out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(len as u64, out);
}

fn nested_len(tag: u32, len: usize) -> usize {
    key_len(tag) + encoded_len_varint(len as u64) + len
}

/// The numbers of a key, by tag: in the order in which they are encoded, but for the value between the last two.
fn numbers(entry: &Entry<'_>) -> [(u32, i64); 4] {
    let Entry { create_revision, mod_revision, version, lease, .. } = *entry;
    [(CREATE_REVISION, create_revision), (MOD_REVISION, mod_revision), (VERSION, version), (LEASE, lease)]
}

/// The length of a key's message; what has its default value is left out of it.
fn entry_len(entry: &Entry<'_>) -> usize {
    let bytes = [(KEY, entry.key.len()), (VALUE, entry.value_len)];
    let bytes = bytes.into_iter().filter(|(_, len)| *len > 0).map(|(tag, len)| nested_len(tag, len));
    let number = |(tag, number): (u32, i64)| key_len(tag) + encoded_len_varint(number.cast_unsigned());
    let numbers = numbers(entry).into_iter().filter(|(_, number)| *number != 0).map(number);
    bytes.sum::<usize>() + numbers.sum::<usize>()
}

fn push_entry(entry: &Entry<'_>, value: &[&[u8]], out: &mut Vec<u8>) {
    push_nested(KVS, entry_len(entry), out);
    push_bytes(KEY, &[entry.key], out);
    for (tag, number) in numbers(entry) {
        if tag == LEASE {
            push_bytes(VALUE, value, out);
        }
        if number != 0 {
            encode_key(tag, WireType::Varint, out);
            encode_varint(number.cast_unsigned(), out);
        }
    }
}

fn push_bytes(tag: u32, pieces: &[&[u8]], out: &mut Vec<u8>) {
    let len = pieces.iter().map(|piece| piece.len()).sum();
    if len > 0 {
        push_nested(tag, len, out);
        pieces.iter().for_each(|piece| out.extend_from_slice(piece));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    use crate::pb::mvccpb;

    /// Encodes a key both ways; a message of it and the length announced must be equal.
    fn check(key: &'static [u8], numbers: [i64; 4], value: &'static [u8]) {
        let (key, [create_revision, mod_revision, version, lease]) = (Bytes::from_static(key), numbers);
        let entry = Entry { key: &key, create_revision, mod_revision, version, lease, value_len: value.len() };
        let mut out = range_head(None);
        let (first, second) = value.split_at(value.len() / 3);
        push_entry(&entry, &[first, second], &mut out);
        assert_eq!(out.len(), nested_len(KVS, entry_len(&entry)));
        out.extend(range_tail(true, 7));
        let value = Bytes::from_static(value);
        let kv = mvccpb::KeyValue { key: key.clone(), create_revision, mod_revision, version, value, lease };
        let message = pb::RangeResponse { header: None, kvs: vec![kv], more: true, count: 7 };
        assert_eq!(out, message.encode_to_vec(), "{message:?}");
        let piece = pb::RangeStreamResponse { range_response: Some(message) };
        assert_eq!([piece_head(out.len()), out].concat(), piece.encode_to_vec());
    }

    #[test]
    fn a_key_is_encoded_as_its_message_is() {
        check(b"k", [1, 2, 3, 4], b"value");
        check(b"k", [1, 2, 3, 0], b"");
        check(b"k", [127, 128, 16_383, -1], &[7; 127]);
        check(&[0; 128], [i64::MAX, i64::MIN, 1, 1 << 40], &[7; 128]);
        check(b"", [0, 0, 0, 0], &[0; 20_000]);
    }

    #[test]
    fn a_head_is_what_the_message_begins_with() {
        let header = Some(pb::ResponseHeader { cluster_id: 1, member_id: 2, revision: 300, raft_term: 4 });
        let message = pb::RangeResponse { header, kvs: Vec::new(), more: false, count: 0 };
        assert_eq!(range_head(header), message.encode_to_vec());
    }
}
