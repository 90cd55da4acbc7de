//! A log in memory for simulations: it can do what a log service far away does on a bad day.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::error::Error;
use crate::fs::sim::Prng;
use crate::log::frame::{Frame, FrameBuffer, MAX_FRAME_LEN};
use crate::log::{AppendError, Log, StoredFrame};
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

/// A log in memory. Clones are handles to the same one, as processes that are started again hold them.
#[derive(Clone, Debug)]
pub struct MemoryLog {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    id: LogId,
    first: Position,
    before_first: Digest,
    frames: VecDeque<Bytes>,
    full: bool,
    failure: Option<Error>,
    tricks: VecDeque<Trick>,
    /// Frames under way, with the calls that are still to come before they arrive.
    under_way: Vec<(u64, Bytes)>,
    /// A generator and the percentage of appends that get a trick.
    chaos: Option<(Prng, u64)>,
}

impl MemoryLog {
    /// An empty log that begins at position 1.
    pub fn new(id: LogId) -> MemoryLog {
        let shared = Shared {
            id,
            first: Position(1),
            before_first: Digest::default(),
            frames: VecDeque::new(),
            full: false,
            failure: None,
            tricks: VecDeque::new(),
            under_way: Vec::new(),
            chaos: None,
        };
        MemoryLog { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Plays a trick on the next append that has none yet.
    pub fn play(&self, trick: Trick) {
        self.lock().tricks.push_back(trick);
    }

    /// Plays random tricks on `percent` of the appends from now on; 0 ends it.
    pub fn chaos(&self, seed: u64, percent: u64) {
        self.lock().chaos = (percent > 0).then(|| (Prng::new(seed), percent));
    }

    /// While `full`, every append is answered with `Full`.
    pub fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    /// Fails for good.
    pub fn fail(&self) {
        let reason = "the simulated log failed".to_owned();
        self.lock().failure = Some(Error::Io { doing: "using the log".to_owned(), reason });
    }

    /// Rewrites history: the frame at `position` becomes another valid one, of another time. False if there is none.
    pub fn rewrite(&self, position: Position) -> bool {
        let mut shared = self.lock();
        let id = shared.id;
        let Some(bytes) = shared.frame_mut(position) else { return false };
        let mut frame = decoded(bytes);
        frame.header.time_ms ^= 1;
        *bytes = stamped(&frame, id, position);
        true
    }

    /// Replaces the frame at `position` by this one, stamped for that place. False if there is none.
    pub fn rewrite_with(&self, position: Position, frame: &mut FrameBuffer) -> bool {
        let mut shared = self.lock();
        let id = shared.id;
        let Some(bytes) = shared.frame_mut(position) else { return false };
        *bytes = Bytes::copy_from_slice(frame.stamp(id, position));
        true
    }

    /// Loses the frames from `position` on, as a service that is restored from an old copy.
    pub fn forget_from(&self, position: Position) {
        let mut shared = self.lock();
        let keep = position.0.saturating_sub(shared.first.0);
        shared.frames.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A test that panicked elsewhere leaves the log as usable as it was.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn end(&self) -> Position {
        Position(self.first.0 + self.frames.len() as u64)
    }

    fn frame_mut(&mut self, position: Position) -> Option<&mut Bytes> {
        let number = position.0.checked_sub(self.first.0)?;
        self.frames.get_mut(usize::try_from(number).ok()?)
    }

    fn usable(&self) -> Result<(), Error> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn place(&mut self, frame: &mut FrameBuffer) -> Position {
        let position = self.end();
        let bytes = Bytes::copy_from_slice(frame.stamp(self.id, position));
        self.frames.push_back(bytes);
        position
    }

    /// One call went by: what is due arrives, in the order in which it was sent.
    fn tick(&mut self) {
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

    fn next_trick(&mut self) -> Trick {
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

    fn append(&mut self, frame: &mut FrameBuffer, trick: Trick) -> Result<Position, AppendError> {
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
    fn send(&mut self, frame: &[u8], calls: u64) {
        self.under_way.push((calls.saturating_add(1), Bytes::copy_from_slice(frame)));
    }
}

impl Log for MemoryLog {
    fn id(&self) -> LogId {
        self.lock().id
    }

    fn first(&self) -> Position {
        self.lock().first
    }

    fn digest_before_first(&self) -> Option<Digest> {
        Some(self.lock().before_first)
    }

    fn end(&self) -> Position {
        self.lock().end()
    }

    fn append(&mut self, frame: &mut FrameBuffer, _digest: Digest) -> Result<Position, AppendError> {
        let mut shared = self.lock();
        shared.usable().map_err(AppendError::Final)?;
        if frame.len() > MAX_FRAME_LEN {
            return Err(AppendError::TooLarge { size: frame.len(), limit: MAX_FRAME_LEN });
        }
        if shared.full {
            return Err(AppendError::Full);
        }
        let trick = shared.next_trick();
        let answer = shared.append(frame, trick);
        shared.tick();
        answer
    }

    fn read(&mut self, from: Position, max_bytes: usize) -> Result<Vec<StoredFrame>, Error> {
        let mut shared = self.lock();
        shared.usable()?;
        shared.tick();
        let Some(skip) = from.0.checked_sub(shared.first.0) else {
            let reason = format!("it was trimmed, the log begins at {}", shared.first);
            return Err(Error::LogMismatch { position: from, reason });
        };
        let mut frames = Vec::new();
        let mut position = from;
        let mut taken = 0;
        for bytes in shared.frames.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)) {
            if taken >= max_bytes && !frames.is_empty() {
                break;
            }
            taken += bytes.len();
            frames.push(StoredFrame { position, bytes: bytes.clone() });
            position = position.next();
        }
        Ok(frames)
    }

    fn trim(&mut self, below: Position) -> Result<(), Error> {
        let mut shared = self.lock();
        shared.usable()?;
        while shared.first < below
            && let Some(bytes) = shared.frames.pop_front()
        {
            shared.before_first = shared.before_first.chain(&bytes);
            shared.first = shared.first.next();
        }
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.lock().frames.iter().map(|bytes| bytes.len() as u64).sum()
    }
}

fn decoded(bytes: &Bytes) -> Frame {
    Frame::decode(bytes).expect("the log holds what it stamped itself")
}

/// The same header and records, at another place.
fn stamped(frame: &Frame, id: LogId, position: Position) -> Bytes {
    let mut buffer = FrameBuffer::new(&frame.header);
    for record in &frame.records {
        buffer.push(record.kind, |payload| payload.extend_from_slice(&record.payload));
    }
    Bytes::copy_from_slice(buffer.stamp(id, position))
}
