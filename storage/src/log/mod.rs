//! The log: where a frame becomes durable, and from where it comes back.

use bytes::Bytes;

use crate::error::Error;
use crate::log::frame::FrameBuffer;
use crate::types::{Digest, LogId, Position};

pub mod frame;
mod frame_decode;
mod local;
mod memory;
#[cfg(test)]
mod tests;

pub use local::{Held, LocalLog, Recovery};
pub(crate) use local::{LogDamage, LogScrub};
pub use memory::{MemoryLog, Trick};

/// Why a frame was not appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// The answer was lost: the frame may or may not be in the log.
    Unknown,
    /// No room; nothing was begun.
    Full,
    /// The frame is larger than the log takes; nothing was begun.
    TooLarge {
        /// The frame's bytes.
        size: usize,
        /// What the log takes.
        limit: usize,
    },
    /// The log is of no more use.
    Final(Error),
}

/// A frame as the log holds it: all of its bytes, header to checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFrame {
    /// Its place.
    pub position: Position,
    /// Its bytes, the checksums verified.
    pub bytes: Bytes,
}

/// A durable sequence of frames. Decides nothing that only holds on one machine.
pub trait Log: Send {
    /// Which log this is.
    fn id(&self) -> LogId;
    /// The lowest position that can be read; equals `end` for an empty log.
    fn first(&self) -> Position;
    /// The digest before the frame at `first`, if the log knows it.
    fn digest_before_first(&self) -> Option<Digest>;
    /// The position that the next frame gets, as far as known.
    fn end(&self) -> Position;
    /// Stamps the frame with the log's id and its position, appends it and makes it durable; it stays stamped as the log holds it. `digest` is the chain's value before
    /// the frame, kept where a new segment needs it.
    fn append(&mut self, frame: &mut FrameBuffer, digest: Digest) -> Result<Position, AppendError>;
    /// The frames from `from` on, in order, at most about `max_bytes` of them (one at least if there is one). Empty at the end and
    /// beyond it. Errors: `LogMismatch` below `first`.
    fn read(&mut self, from: Position, max_bytes: usize) -> Result<Vec<StoredFrame>, Error>;
    /// Forgets whole segments below `below`, oldest first.
    fn trim(&mut self, below: Position) -> Result<(), Error>;
    /// The bytes of disk that it takes.
    fn size_bytes(&self) -> u64;
}
