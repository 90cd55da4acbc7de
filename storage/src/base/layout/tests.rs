//! Pins the bytes, and tries every shorter prefix and every flipped bit.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::types::RevisionPair;

fn at(main: i64, sub: i64) -> RevisionPair {
    RevisionPair { main: Revision(main), sub }
}

fn change(value: Option<&[u8]>) -> Change {
    let kind = value.map_or(ChangeKind::Tombstone, |value| ChangeKind::Put {
        create: Revision(2),
        version: 300,
        lease: -1,
        value: Bytes::copy_from_slice(value),
    });
    Change { key: Bytes::from_static(b"k\0"), at: at(258, 3), kind }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn keys_are_these_bytes() {
    let prefix = key_prefix(b"k\0");
    assert_eq!(hex(&prefix), "6b00ff0001");
    assert_eq!(hex(&after_key(&prefix)), "6b00ff0002");
    let key = index_key(&prefix, at(258, 3));
    assert_eq!(hex(&key), "6b00ff0001fffffffffffffefdfffffffffffffffc");
    assert_eq!(split_index_key(&key).unwrap(), (prefix.as_slice(), at(258, 3)));
    assert_eq!(unescape(&prefix).unwrap(), &b"k\0"[..]);
    assert_eq!(hex(&history_key(at(258, 3))), "00000000000001020000000000000003");
    assert_eq!(read_history_key(&history_key(at(258, 3))).unwrap(), at(258, 3));
}

#[test]
fn rows_are_these_bytes() {
    let index = index_key(&key_prefix(b"k\0"), at(258, 3));
    let history = history_key(at(258, 3));
    let (tombstone, inline, large) = (change(None), change(Some(b"v")), change(Some(&[7; 65])));
    assert_eq!(hex(&index_row(&index, &tombstone)), TOMBSTONE_INDEX);
    assert_eq!(hex(&index_row(&index, &inline)), INLINE_INDEX);
    assert_eq!(hex(&index_row(&index, &large)), LARGE_INDEX);
    assert_eq!(hex(&history_row(&history, &tombstone)), TOMBSTONE_HISTORY);
    assert_eq!(hex(&history_row(&history, &inline)), INLINE_HISTORY);
    assert_eq!(hex(&history_row(&history, &large)), format!("{LARGE_HISTORY}{}", "07".repeat(65)));
    assert_eq!(hex(&seal(b"format", |out| out.extend(FORMAT.to_be_bytes()))), FORMAT_ROW);
}

#[test]
fn rows_of_a_cut_value_are_these_bytes() {
    let (history, second) = (history_key(at(258, 3)), piece_key(at(258, 3), 7));
    assert_eq!(hex(&second), "0000000000000102000000000000000300000007");
    assert_eq!((read_place(&second).unwrap(), read_place(&history).unwrap()), ((at(258, 3), 7), (at(258, 3), 0)));
    assert!(is_piece(&second) && !is_piece(&history));
    assert!((0..30).filter(|len| ![16, 20].contains(len)).all(|len| read_place(&vec![0; len]).is_err()));
    let row = cut_row(&history, b"k\0", 300, &[7; 2]);
    assert_eq!(hex(&row), CUT_HISTORY);
    assert_eq!(row.len(), head_len(b"k\0", Some(300)) + 2);
    let whole = history_row(&history, &change(Some(&[7; 300])));
    assert_eq!(whole.len(), head_len(b"k\0", None) + 300);
    let read = read_history_row(&history, &row).unwrap();
    assert_eq!(read, HistoryRow { key: b"k\0", value: HistoryValue::Cut { len: 300, piece: &[7; 2] } });
    assert_eq!(checked_history_row(&row).unwrap(), read);
    let piece = piece_row(&second, &[7; 3]);
    assert_eq!(hex(&piece), PIECE);
    assert_eq!(read_piece(&second, &piece).unwrap(), [7; 3]);
    let tried = damaged(&row, |row| read_history_row(&history, row).is_err())
        + damaged(&history, |key| read_history_row(key, &row).is_err())
        + damaged(&piece, |row| read_piece(&second, row).is_err())
        + damaged(&second, |key| read_piece(key, &piece).is_err());
    assert_eq!(tried, 9 * (12 + 16 + 7 + 20));
}

const CUT_HISTORY: &str = "0f1d482703026b00ac020707";
const PIECE: &str = "b594e0df070707";
const TOMBSTONE_INDEX: &str = "55db5ec200";
const INLINE_INDEX: &str = "f0ba97c80102ac02ffffffffffffffffff0176";
const LARGE_INDEX: &str = "597a58be0202ac02ffffffffffffffffff0141";
const TOMBSTONE_HISTORY: &str = "30abd36200026b00";
const INLINE_HISTORY: &str = "8817b40701026b00";
const LARGE_HISTORY: &str = "1903c50902026b00";
const FORMAT_ROW: &str = "ee4e22b600000003";

#[test]
fn order_of_bytes_is_order_of_keys_then_newest_first() {
    let keys: [&[u8]; 9] = [b"\0", b"\0\0", b"\0\x01", b"\0\xFF", b"\x01", b"a", b"a\0", b"a\x01", b"\xFF"];
    let places = [at(i64::MAX, i64::MAX), at(3, 1), at(3, 0), at(2, i64::MAX), at(0, 0)];
    let mut encoded = Vec::new();
    for key in keys {
        let prefix = key_prefix(key);
        encoded.push(prefix.clone());
        encoded.extend(places.map(|at| index_key(&prefix, at)));
        encoded.push(after_key(&prefix));
        assert_eq!(unescape(&prefix).unwrap(), key);
    }
    assert!(encoded.is_sorted_by(|a, b| a < b));
}

#[test]
fn shorter_rows_and_flipped_bits_are_damage() {
    let index = index_key(&key_prefix(b"k\0"), at(258, 3));
    let history = history_key(at(258, 3));
    let mut tried = 0;
    for value in [None, Some(&b""[..]), Some(b"v"), Some(&[7; 64]), Some(&[7; 65])] {
        let change = change(value);
        let row = index_row(&index, &change);
        tried += damaged(&row, |row| read_index_row(&index, row).is_err());
        tried += damaged(&index, |key| read_index_row(key, &row).is_err());
        let row = history_row(&history, &change);
        tried += damaged(&row, |row| read_history_row(&history, row).is_err());
        tried += damaged(&history, |key| read_history_row(key, &row).is_err());
    }
    println!("{tried} damaged rows");
    assert!(tried >= 3500);
}

/// All shorter prefixes and all single flipped bits must be refused.
fn damaged(bytes: &[u8], refused: impl Fn(&[u8]) -> bool) -> usize {
    assert!(!refused(bytes));
    for len in 0..bytes.len() {
        assert!(refused(&bytes[..len]), "{len} bytes of {}", hex(bytes));
    }
    for bit in 0..8 * bytes.len() {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(refused(&flipped), "bit {bit} of {}", hex(bytes));
    }
    9 * bytes.len()
}

#[test]
fn payloads_that_carry_a_right_checksum_but_make_no_sense_are_damage() {
    let index = index_key(&key_prefix(b"k"), at(2, 0));
    let refused = |payload: &[u8]| {
        let fill = |out: &mut Vec<u8>| out.extend_from_slice(payload);
        let in_index = read_index_row(&index, &seal(&index, fill)).is_err();
        in_index && read_history_row(&index, &seal(&index, fill)).is_err()
    };
    assert!(refused(&[]) && refused(&[4, 1, 1, 1]) && refused(&[TOMBSTONE, 9]));
    assert!(refused(&[IN_HISTORY, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 1, 1, 1]));
    assert!(split_index_key(&[0; 15]).is_err() && split_index_key(&[0; 18]).is_err());
    assert!(unescape(b"a\0b\0\x01").is_err() && unescape(b"a\0\0\x01").is_err() && unescape(b"a").is_err());
    assert!(read_history_key(&[0; 15]).is_err() && read_history_key(&[0; 17]).is_err());
}

#[test]
fn numbers_of_every_length_come_back() {
    for shift in 0..64 {
        for number in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
            let mut out = Vec::new();
            push_varint(&mut out, number);
            let mut reader = Reader::new("index", &out);
            assert_eq!(reader.varint().unwrap(), number);
            reader.end().unwrap();
            (0..out.len()).for_each(|len| assert!(Reader::new("index", &out[..len]).varint().is_err()));
        }
    }
}
