//! The bytes of a frame.

use bytes::Bytes;

use super::{ID, frame, header};
use crate::error::Error;
use crate::log::frame::{Frame, FrameBuffer, HEADER_LEN, MAX_FRAME_LEN};
use crate::types::{LogId, Position};

fn sample() -> FrameBuffer {
    let mut frame = FrameBuffer::new(&header(5));
    frame.push(1, |payload| payload.extend_from_slice(b"put"));
    frame.push(2, |_| ());
    frame
}

#[test]
fn the_bytes_are_pinned() {
    let bytes = sample().stamp(ID, Position(6)).to_vec();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let header = "5350463101000000750000000200000088776655443322110600000000000000010000000000000002000000000000000300000000000000\
                  05000000000000000400000000000000090909090909090909090909090909090568e5cf8b010000";
    let records = "01030000007075740200000000";
    assert_eq!(&hex[..192], &header.replace(' ', ""));
    assert_eq!(&hex[200..226], records);
    assert_eq!((&hex[192..200], &hex[226..]), ("4e67e19f", "6388949b"));
}

#[test]
fn what_was_encoded_is_decoded_without_a_copy() {
    let bytes = Bytes::copy_from_slice(sample().stamp(ID, Position(6)));
    let frame = Frame::decode(&bytes).unwrap();
    assert_eq!((frame.header, frame.log, frame.position), (header(5), ID, Position(6)));
    assert_eq!(frame.records.len(), 2);
    assert_eq!((frame.records[0].kind, &frame.records[0].payload[..]), (1, &b"put"[..]));
    assert_eq!((frame.records[1].kind, &frame.records[1].payload[..]), (2, &b""[..]));
    let payload = frame.records[0].payload.as_ptr() as usize;
    assert_eq!(payload - bytes.as_ptr() as usize, HEADER_LEN + 5);
}

#[test]
fn a_second_stamp_replaces_the_first() {
    let mut twice = sample();
    twice.stamp(LogId(1), Position(1));
    assert_eq!(twice.stamp(ID, Position(6)), sample().stamp(ID, Position(6)));
    let len = twice.len();
    twice.push(3, |payload| payload.push(1));
    let mut once = sample();
    once.push(3, |payload| payload.push(1));
    assert_eq!(twice.stamp(ID, Position(7)), once.stamp(ID, Position(7)));
    assert_eq!(twice.len(), len + 6);
}

#[test]
fn a_record_can_be_taken_back() {
    let mut frame = sample();
    let mark = frame.mark();
    frame.push(3, |payload| payload.resize(payload.len() + MAX_FRAME_LEN, 1));
    assert!(frame.len() > MAX_FRAME_LEN && frame.records() == 3);
    frame.stamp(ID, Position(1));
    frame.truncate(mark);
    assert_eq!((frame.records(), frame.is_empty()), (2, false));
    assert_eq!(frame.stamp(ID, Position(6)), sample().stamp(ID, Position(6)));
}

#[test]
fn an_empty_frame_is_a_frame() {
    let mut frame = FrameBuffer::new(&header(1));
    assert!(frame.is_empty());
    let bytes = Bytes::copy_from_slice(frame.stamp(ID, Position(1)));
    assert_eq!(bytes.len(), frame.len());
    assert!(Frame::decode(&bytes).unwrap().records.is_empty());
}

#[test]
fn every_shorter_prefix_and_every_flipped_bit_is_corrupt() {
    let mut refused = 0;
    for mut frame in [sample(), frame(1, 0, 600), FrameBuffer::new(&header(1))] {
        let bytes = frame.stamp(ID, Position(6)).to_vec();
        let mut refuse = |bytes: Vec<u8>| {
            assert!(matches!(Frame::decode(&Bytes::from(bytes)), Err(Error::Corrupt { .. })));
            refused += 1;
        };
        (0..bytes.len()).for_each(|len| refuse(bytes[..len].to_vec()));
        refuse([&bytes[..], &[0]].concat());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            refuse(flipped);
        }
    }
    println!("{refused} damaged frames refused");
    assert!(refused > 8000);
}

/// Replaces bytes of the sample's header or records and makes both checksums good again.
fn forged(at: usize, value: &[u8]) -> Result<Frame, Error> {
    let mut bytes = sample().stamp(ID, Position(6)).to_vec();
    bytes[at..at + value.len()].copy_from_slice(value);
    let crc = crc32fast::hash(&bytes[..96]);
    bytes[96..100].copy_from_slice(&crc.to_le_bytes());
    let end = bytes.len() - 4;
    let crc = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    Frame::decode(&Bytes::from(bytes))
}

#[test]
fn good_checksums_do_not_make_a_length_true() {
    assert!(forged(0, b"SPF1").is_ok());
    let cases: [(usize, &[u8], &str); 9] = [
        (4, &[2, 0], "format 2, this version reads 1"),
        (6, &[1], "reserved"),
        (8, &[0xff; 4], "at most"),
        (8, &[0; 4], "at most"),
        (8, &[0x74], "the header says 116"),
        (12, &[3], "2 records, the header says 3"),
        (12, &[0xff; 4], "2 records"),
        (101, &[0xff; 4], "record 1 is cut short"),
        (101, &[0], "cut short"),
    ];
    for (at, value, wanted) in cases {
        let error = forged(at, value).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}
