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

use bytes::Bytes;

use crate::error::Error;
use crate::types::{Digest, LogId, MemberId, Position, WriterId};

/// The largest frame, in bytes.
pub const MAX_FRAME_LEN: usize = 4 << 20;

/// The bytes of a frame's header.
pub const HEADER_LEN: usize = 100;

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
    bytes: Vec<u8>,
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
    pub fn new(_header: &FrameHeader) -> FrameBuffer {
        unimplemented!("written next")
    }
    /// Adds a record; the payload is what `write` appends.
    pub fn push(&mut self, _kind: u8, _write: impl FnOnce(&mut Vec<u8>)) {
        unimplemented!("written next")
    }

    /// The bytes the frame will have.
    pub fn len(&self) -> usize {
        self.bytes.len() + 4
    }
    /// True if it has no record.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER_LEN
    }
    /// Fills in log id, position, length and checksums; may be done again with other numbers.
    pub fn stamp(&mut self, _log: LogId, _position: Position) -> &[u8] {
        unimplemented!("written next")
    }
}

impl Frame {
    /// Decodes and verifies a whole frame. Errors: `Corrupt`, saying what is wrong.
    pub fn decode(_bytes: &Bytes) -> Result<Frame, Error> {
        unimplemented!("written next")
    }
}
