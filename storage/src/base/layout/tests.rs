//! Pins the bytes, and tries every shorter prefix and every flipped bit.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use bytes::Bytes;

use super::*;
use crate::base::{Kept, Version};
use crate::types::{Revision, RevisionPair};

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

fn single(key: &[u8], change: &Change) -> Vec<u8> {
    index_row(key, &[placed(change)])
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
    assert_eq!(hex(&single(&index, &tombstone)), TOMBSTONE_INDEX);
    assert_eq!(hex(&single(&index, &inline)), INLINE_INDEX);
    assert_eq!(hex(&single(&index, &large)), LARGE_INDEX);
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

fn version(at: RevisionPair, create: i64, version: i64, lease: i64, value: Kept) -> Placed {
    (at, Version::Put { create: Revision(create), version, lease, value })
}

/// Versions that make use of everything that a run can say.
fn run() -> Vec<Placed> {
    let small = |bytes: &'static [u8]| Kept::Inline(Bytes::from_static(bytes));
    vec![
        version(at(2, 1), 2, 1, 0, Kept::History(300)),
        version(at(5, 0), 2, 2, 0, Kept::History(300)),
        version(at(5, 3), 2, 3, 7, Kept::History(301)),
        version(at(300, 0), 2, 4, 7, small(b"v")),
        version(at(301, 0), 2, 6, 7, small(b"")),
        (at(302, 0), Version::Tombstone),
        version(at(303, 0), 303, 1, -1, Kept::History(65)),
    ]
}

#[test]
fn a_run_is_these_bytes() {
    let versions = run();
    let key = index_key(&key_prefix(b"k"), versions[0].0);
    assert_eq!(hex(&index_row(&key, &versions)), RUN_INDEX);
    assert_eq!(versions_of(&key, &index_row(&key, &versions)).unwrap(), versions);
    for (at, expected) in &versions {
        let row = index_row(&key, &versions);
        let (found, version) = read_index_row(&key, &row).unwrap().newest(*at).unwrap();
        assert_eq!((found, version.to_version()), (*at, expected.clone()));
    }
    let row = index_row(&key, &versions);
    assert_eq!(read_index_row(&key, &row).unwrap().newest(at(4, 9)).unwrap().0, at(2, 1));
    assert!(read_index_row(&key, &row).unwrap().newest(at(2, 0)).is_err());
}

/// Crc and kind; 303 with everything; the deletion; 301 with its numbers; 300 with the same lease; 5·3, 5·0 and 2·1, each preceding.
const RUN_INDEX: &str = concat!(
    "ff1c698703",
    "12ad02af0201ffffffffffffffffff0141",
    "1001",
    "110102060700",
    "190102040176",
    "0ea70203ad02",
    "160000ac02",
    "2e0301",
);

#[test]
fn hot_keys_take_a_few_bytes_a_version() {
    let versions: Vec<_> =
        (0..64).map(|n| version(at(1000 + 5000 * n, 0), 1000, n + 64, 0x1234_5678, Kept::History(1100))).collect();
    let row = index_row(&index_key(&key_prefix(b"k"), versions[0].0), &versions);
    assert!(row.len() <= 64 * 4 + 20, "{} bytes", row.len());
}

#[test]
fn rows_do_not_depend_on_where_parts_end() {
    let begins = |number, value: &Kept| begins_row(&version(at(2, 0), 2, number, 0, value.clone()).1);
    let inline = Kept::Inline(Bytes::new());
    let at_border = |value: &Kept| (1..=200).filter(|number| begins(*number, value)).collect::<Vec<_>>();
    assert_eq!(at_border(&Kept::History(100)), [1, 64, 128, 192]);
    assert_eq!(at_border(&inline), [1, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192]);
    assert!(!begins_row(&Version::Tombstone));
}

#[test]
fn runs_that_make_no_sense_are_damage() {
    let key = index_key(&key_prefix(b"k"), at(5, 0));
    let read = |payload: &[u8]| versions_of(&key, &seal(&key, |out| out.extend_from_slice(payload)));
    // A deletion at 7, one at 5.
    assert_eq!(read(&[3, 0x10, 2, 0x10, 2]).unwrap().len(), 2);
    let far = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F];
    let (below, above) = ([&[3, 0x10, 2, 0x10][..], &far].concat(), [&[3, 0x10][..], &far].concat());
    let refused: [(&[u8], &str); 12] = [
        (&[3], "1 bytes wanted, 0 left"),
        (&[3, 0x10, 2], "a run ends at 7, change 0, not where its key says"),
        (&[3, 0x10, 2, 0x10, 3], "is not in order"),
        (&[3, 0x10, 2, 0x10, 0], "is not in order"),
        (&[3, 0x10, 2, 0x10, 2, 0], "1 bytes wanted, 0 left"),
        (&[3, 0x40, 2], "has flags 0x40"),
        (&[3, 0x13, 2, 2, 1, 0], "has a version of kind 3"),
        (&[3, 0x15, 2], "refers to a version that is not there"),
        (&[3, 0x19, 2, 2, 1], "refers to a version that is not there"),
        (&[3, 0x32, 2, 2, 1, 0], "refers to a version that is not there"),
        (&below, "is not in order"),
        (&above, "leaves the numbers"),
    ];
    for (payload, reason) in refused {
        let error = read(payload).unwrap_err().to_string();
        assert!(error.contains(reason), "{payload:?}: {error}");
    }
}

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
        let row = single(&index, &change);
        tried += damaged(&row, |row| versions_of(&index, row).is_err());
        tried += damaged(&index, |key| versions_of(key, &row).is_err());
        let row = history_row(&history, &change);
        tried += damaged(&row, |row| read_history_row(&history, row).is_err());
        tried += damaged(&history, |key| read_history_row(key, &row).is_err());
    }
    let versions = run();
    let key = index_key(&key_prefix(b"k"), versions[0].0);
    let row = index_row(&key, &versions);
    tried += damaged(&row, |row| versions_of(&key, row).is_err());
    tried += damaged(&key, |key| versions_of(key, &row).is_err());
    println!("{tried} damaged rows");
    assert!(tried >= 4200);
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
        let in_index = versions_of(&index, &seal(&index, fill)).is_err();
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
