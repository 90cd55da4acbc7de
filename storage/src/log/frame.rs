//! The bytes of a frame: a header, records, two checksums.
//!
//! ```text
//! offset  size  header
//!      0     4  magic "SPF1"
//!      4     2  format, little-endian as every number here
//!      6     2  reserved, zero
//!      8     4  length of the whole frame in bytes, with header and last checksum
//!     12     4  number of records
//!     16     8  log id               (stamped by the log)
//!     24     8  position             (stamped by the log)
//!     32     8  member
//!     40     8  generation of the member: one more per process
//!     48     8  writer
//!     56     8  frame number of the writer: 1, 2, 3 ...
//!     64     8  position the writer had applied
//!     72    16  digest the writer had applied
//!     88     8  wall-clock time, milliseconds since 1970
//!     96     4  CRC-32 of bytes 0 to 96
//!    100        records: kind (1), length (4), payload
//!   last     4  CRC-32 of everything before it
//! ```
//!
//! The header has a checksum of its own, so that its length can be trusted before the rest is read. A format that moves
//! the first 6 bytes or the header's checksum needs another magic.

use bytes::Bytes;

use crate::error::Error;
use crate::log::frame_decode;
use crate::types::{Digest, LogId, MemberId, Position, WriterId};

/// The bytes of a frame's header.
pub const HEADER_LEN: usize = 100;
/// The largest frame in bytes, header and checksums included.
pub const MAX_FRAME_LEN: usize = 4 << 20;

pub(super) const MAGIC: [u8; 4] = *b"SPF1";
pub(super) const FORMAT: u16 = 1;
/// The bytes of each checksum.
pub(super) const CRC_LEN: usize = 4;
/// The bytes of a record before its payload.
pub(super) const RECORD_HEAD_LEN: usize = 5;

const LENGTH_AT: usize = 8;
const RECORDS_AT: usize = 12;
const LOG_AT: usize = 16;
const POSITION_AT: usize = 24;
const MEMBER_AT: usize = 32;
pub(super) const HEADER_CRC_AT: usize = HEADER_LEN - CRC_LEN;

/// The facts in a frame's header that its writer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Who writes.
    pub member: MemberId,
    /// Which process of the member: one more per start.
    pub generation: u64,
    /// The process's random name.
    pub writer: WriterId,
    /// The writer's number for this frame, from 1.
    pub number: u64,
    /// What the writer had applied.
    pub applied: Position,
    /// The digest at `applied`.
    pub applied_digest: Digest,
    /// Wall-clock time in milliseconds since 1970.
    pub time_ms: u64,
}

/// A frame being built, and its bytes once it is stamped.
#[derive(Debug)]
pub struct FrameBuffer {
    /// Header and records, and after a stamp the last checksum.
    bytes: Vec<u8>,
    /// Where the records end.
    end: usize,
    records: u32,
}

/// A place in a frame being built, to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    end: usize,
    records: u32,
}

/// A record in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What kind of command it holds.
    pub kind: u8,
    /// The command's bytes.
    pub payload: Bytes,
}

/// A frame, decoded, its checksums verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the writer said.
    pub header: FrameHeader,
    /// Which log it was stamped for.
    pub log: LogId,
    /// The position it was stamped with.
    pub position: Position,
    /// Its records, in order.
    pub records: Vec<Record>,
}

impl FrameBuffer {
    /// An empty frame with this header.
    pub fn new(header: &FrameHeader) -> FrameBuffer {
        let mut bytes = Vec::with_capacity(1024);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.resize(MEMBER_AT, 0);
        bytes.extend_from_slice(&header.member.0.to_le_bytes());
        bytes.extend_from_slice(&header.generation.to_le_bytes());
        bytes.extend_from_slice(&header.writer.0.to_le_bytes());
        bytes.extend_from_slice(&header.number.to_le_bytes());
        bytes.extend_from_slice(&header.applied.0.to_le_bytes());
        bytes.extend_from_slice(&header.applied_digest.0);
        bytes.extend_from_slice(&header.time_ms.to_le_bytes());
        bytes.resize(HEADER_LEN, 0);
        FrameBuffer { bytes, end: HEADER_LEN, records: 0 }
    }

    /// Adds a record; the payload is what `write` appends.
    ///
    /// It may take the frame above [`MAX_FRAME_LEN`]: compare `len`, and go back with `truncate`.
    pub fn push(&mut self, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.truncate(self.end);
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&[0; 4]);
        let payload_at = self.bytes.len();
        write(&mut self.bytes);
        let length = self.bytes.len().checked_sub(payload_at).expect("a payload is appended, nothing is taken away");
        self.fill(payload_at - 4, &to_u32(length).to_le_bytes());
        self.end = self.bytes.len();
        self.records += 1;
    }

    /// The place that the frame has reached.
    pub fn mark(&self) -> Mark {
        Mark { end: self.end, records: self.records }
    }

    /// Takes away every record pushed after `mark` was taken of this frame.
    pub fn truncate(&mut self, mark: Mark) {
        assert!(mark.end <= self.end && mark.records <= self.records, "a mark of this frame lies within it");
        self.bytes.truncate(mark.end);
        self.end = mark.end;
        self.records = mark.records;
    }

    /// The bytes the frame will have.
    pub fn len(&self) -> usize {
        self.end + CRC_LEN
    }

    /// The records in it.
    pub fn records(&self) -> usize {
        usize::try_from(self.records).expect("32 bits fit a usize")
    }

    /// True if it has no record.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Fills in log id, position, length and checksums; may be done again with other numbers.
    pub fn stamp(&mut self, log: LogId, position: Position) -> &[u8] {
        self.bytes.truncate(self.end);
        self.fill(LENGTH_AT, &to_u32(self.len()).to_le_bytes());
        self.fill(RECORDS_AT, &self.records.to_le_bytes());
        self.fill(LOG_AT, &log.0.to_le_bytes());
        self.fill(POSITION_AT, &position.0.to_le_bytes());
        let covered = self.bytes.get(..HEADER_CRC_AT).expect("a frame has its whole header");
        let header_crc = crc32fast::hash(covered);
        self.fill(HEADER_CRC_AT, &header_crc.to_le_bytes());
        let crc = crc32fast::hash(&self.bytes);
        self.bytes.extend_from_slice(&crc.to_le_bytes());
        &self.bytes
    }

    /// The bytes as they were stamped last.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn fill(&mut self, at: usize, value: &[u8]) {
        self.bytes.get_mut(at..at + value.len()).expect("only what was laid down is filled in").copy_from_slice(value);
    }
}

impl Frame {
    /// Decodes and verifies a whole frame; the payloads are slices of `bytes`. Errors: `Corrupt`, saying what is wrong.
    pub fn decode(bytes: &Bytes) -> Result<Frame, Error> {
        frame_decode::frame(bytes).map_err(|reason| Error::corrupt("a frame of the log", reason))
    }
}

fn to_u32(length: usize) -> u32 {
    u32::try_from(length).expect("a frame is far below 4 GiB")
}
