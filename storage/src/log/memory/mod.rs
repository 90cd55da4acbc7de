//! A log in memory for simulations: it can do what a log service far away does on a bad day.

mod shared;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::error::Error;
use crate::fs::sim::Prng;
use crate::log::frame::{FrameBuffer, MAX_FRAME_LEN};
use crate::log::memory::shared::{Shared, decoded, stamped};
use crate::log::{AppendError, Log, StoredFrame};
use crate::types::{Digest, LogId, Position};

pub use shared::Trick;

/// A log in memory. Clones are handles to the same one, as processes that are started again hold them.
#[derive(Clone, Debug)]
pub struct MemoryLog {
    shared: Arc<Mutex<Shared>>,
}

impl MemoryLog {
    /// An empty log that begins at position 1.
    pub fn new(id: LogId) -> MemoryLog {
        MemoryLog { shared: Arc::new(Mutex::new(Shared::new(id))) }
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
