//! What all handles of a log in memory share: the frames, and what is to go wrong.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::error::Error;
use crate::fs::sim::Prng;
use crate::log::AppendError;
use crate::log::frame::{Frame, FrameBuffer};
use crate::types::{Digest, LogId, Position};

/// What happens to an append to come. One trick is used up by each append, in the order in which they were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trick {
    /// Nothing special.
    None,
    /// The answer is `Unknown`; the frame is in the log or is not.
    LoseAnswer {
        /// Whether it is.
        appended: bool,
    },
    /// The answer is good, and a copy of the frame arrives later, at a position of its own.
    Repeat {
        /// After so many further calls of `append` or `read`; 0 is at once.
        calls: u64,
    },
    /// The answer is `Unknown`, and the frame arrives later, after frames that were appended after it.
    Delay {
        /// After so many further calls of `append` or `read`.
        calls: u64,
    },
    /// The answer is `Full`, once.
    Full,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) id: LogId,
    pub(super) first: Position,
    pub(super) before_first: Digest,
    pub(super) frames: VecDeque<Bytes>,
    pub(super) full: bool,
    pub(super) failure: Option<Error>,
    pub(super) tricks: VecDeque<Trick>,
    /// Frames under way, with the calls that are still to come before they arrive.
    pub(super) under_way: Vec<(u64, Bytes)>,
    /// A generator and the percentage of appends that get a trick.
    pub(super) chaos: Option<(Prng, u64)>,
}

impl Shared {
    pub(super) fn new(id: LogId) -> Shared {
        Shared {
            id,
            first: Position(1),
            before_first: Digest::default(),
            frames: VecDeque::new(),
            full: false,
            failure: None,
            tricks: VecDeque::new(),
            under_way: Vec::new(),
            chaos: None,
        }
    }

    pub(super) fn end(&self) -> Position {
        Position(self.first.0 + self.frames.len() as u64)
    }

    pub(super) fn frame_mut(&mut self, position: Position) -> Option<&mut Bytes> {
        let number = position.0.checked_sub(self.first.0)?;
        self.frames.get_mut(usize::try_from(number).ok()?)
    }

    pub(super) fn usable(&self) -> Result<(), Error> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    pub(super) fn place(&mut self, frame: &mut FrameBuffer) -> Position {
        let position = self.end();
        let bytes = Bytes::copy_from_slice(frame.stamp(self.id, position));
        self.frames.push_back(bytes);
        position
    }

    /// One call went by: what is due arrives, in the order in which it was sent.
    pub(super) fn tick(&mut self) {
        let waiting = std::mem::take(&mut self.under_way);
        for (calls, bytes) in waiting {
            if calls > 1 {
                self.under_way.push((calls - 1, bytes));
            } else {
                let position = self.end();
                self.frames.push_back(stamped(&decoded(&bytes), self.id, position));
            }
        }
    }

    pub(super) fn next_trick(&mut self) -> Trick {
        if let Some(trick) = self.tricks.pop_front() {
            return trick;
        }
        let Some((random, percent)) = &mut self.chaos else { return Trick::None };
        if !random.chance(*percent) {
            return Trick::None;
        }
        match random.below(5) {
            0 => Trick::LoseAnswer { appended: true },
            1 => Trick::LoseAnswer { appended: false },
            2 => Trick::Repeat { calls: random.below(4) },
            3 => Trick::Delay { calls: 1 + random.below(4) },
            _ => Trick::Full,
        }
    }

    pub(super) fn append(&mut self, frame: &mut FrameBuffer, trick: Trick) -> Result<Position, AppendError> {
        match trick {
            Trick::None => Ok(self.place(frame)),
            Trick::LoseAnswer { appended } => {
                if appended {
                    self.place(frame);
                }
                Err(AppendError::Unknown)
            }
            Trick::Repeat { calls } => {
                let position = self.place(frame);
                self.send(frame.bytes(), calls);
                Ok(position)
            }
            Trick::Delay { calls } => {
                self.send(frame.stamp(self.id, Position(0)), calls);
                Err(AppendError::Unknown)
            }
            Trick::Full => Err(AppendError::Full),
        }
    }

    /// Puts a frame under way; the call that sends it ticks as well.
    pub(super) fn send(&mut self, frame: &[u8], calls: u64) {
        self.under_way.push((calls.saturating_add(1), Bytes::copy_from_slice(frame)));
    }
}

pub(super) fn decoded(bytes: &Bytes) -> Frame {
    Frame::decode(bytes).expect("the log holds what it stamped itself")
}

/// The same header and records, at another place.
pub(super) fn stamped(frame: &Frame, id: LogId, position: Position) -> Bytes {
    let mut buffer = FrameBuffer::new(&frame.header);
    for record in &frame.records {
        buffer.push(record.kind, |payload| payload.extend_from_slice(&record.payload));
    }
    Bytes::copy_from_slice(buffer.stamp(id, position))
}
