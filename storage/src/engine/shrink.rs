//! Shrinking: base is rewritten without what it no longer uses, while everything goes on.
//!
//! The maintenance thread does it, a step at a time between flushes, so nothing else ever changes base meanwhile. A part that waits is
//! flushed first, but each part owes the copy twice its changes in rows before the next one: so the copy ends under any load, and a
//! flush never waits for more than that. While the last step runs, parts wait as they do behind a flush.
//!
//! The log is trimmed as ever: the old base goes on being the one that a start would find, until the copy is at the same position and
//! takes over its name. What a crash leaves:
//!
//! - before the rename: the old base, and a file that the next start removes;
//! - after it: either base under the name, both at the same position, with the log above it.
//!
//! An error of the copy gives up the copy. Nobody was told anything that only the copy holds, so base and the keyspace go on, also after an
//! input/output error. From the rename on, errors are final: which of the two a start would find is not known.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::base::{Base, Garbage, Rewrite, Step};
use crate::engine::shared::{Head, Shared};
use crate::error::Error;
use crate::reply::Shrunk;
use crate::types::Position;

/// Rows of the copy that are owed for a change that a flush brought. More than one, so that the copy catches up.
const ROWS_OWED: u64 = 2;

/// How often to look whether the last reader of the old base has gone.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Who waits for base to be rewritten.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<Vec<Request>>);

#[derive(Debug)]
struct Request {
    /// What was published when it was made: that much is in base before the copy begins.
    target: Position,
    reply: oneshot::Sender<Result<Shrunk, Error>>,
}

impl Requests {
    /// Asks for a rewrite. If one is being made, its result is the answer.
    pub(crate) fn add(&self, target: Position) -> oneshot::Receiver<Result<Shrunk, Error>> {
        let (reply, receiver) = oneshot::channel();
        self.waiting().push(Request { target, reply });
        receiver
    }

    /// Answers all.
    pub(crate) fn answer(&self, result: &Result<Shrunk, Error>) {
        let waiting = std::mem::take(&mut *self.waiting());
        // Nobody may be waiting any more.
        waiting.into_iter().for_each(|request| drop(request.reply.send(result.clone())));
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Request>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The maintenance thread's part of it.
#[derive(Debug, Default)]
pub(crate) struct Shrink {
    running: Option<Running>,
    /// The base before the last rewrite, until its readers have gone: so it is let go here, where nobody waits for a large file to be
    /// released.
    old: Option<Arc<Base>>,
    /// The last one that was begun failed. From then on only who asks has base rewritten, until one succeeds.
    gave_up: bool,
}

#[derive(Debug)]
struct Running {
    rewrite: Rewrite,
    bytes_before: u64,
    owed: u64,
}

impl Shrink {
    /// True if a rewrite is asked for and may begin: what was published is in base, and swept.
    pub(crate) fn is_due(&self, shared: &Shared, head: &Head) -> bool {
        let flushed = head.sources.base.applied().position;
        self.running.is_none()
            && head.sources.frozen.is_none()
            && !head.sweep_is_due()
            && shared.shrinks.waiting().iter().any(|request| request.target <= flushed)
    }

    /// True if base is to be rewritten although nobody asked, so that it can be the next time: before a rewrite ever fails for want of room.
    pub(crate) fn saves_room(&self, head: &Head) -> bool {
        self.running.is_none() && !self.gave_up && head.wants_rewrite()
    }

    /// The bytes that the copy takes, and the base before.
    pub(crate) fn bytes(&self) -> u64 {
        let copy = self.running.as_ref().map_or(0, |running| running.rewrite.size_bytes());
        copy + self.old.as_ref().map_or(0, |old| old.size_bytes())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// True if a step comes before the part that waits.
    pub(crate) fn comes_first(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.owed > 0)
    }

    /// What a flush does with versions that nobody can read: while a copy is made they stay.
    pub(crate) fn garbage(&self) -> Garbage {
        if self.is_running() { Garbage::Keep } else { Garbage::Drop }
    }

    /// A flush brought so many changes.
    pub(crate) fn flushed(&mut self, changes: usize) {
        if let Some(running) = &mut self.running {
            running.owed += ROWS_OWED * changes as u64;
        }
    }

    /// Begins a copy, or tells those who asked for it why not.
    pub(crate) fn begin(&mut self, shared: &Shared) {
        let base = shared.base();
        match Rewrite::begin(&base) {
            Ok(rewrite) => self.running = Some(Running { rewrite, bytes_before: base.size_bytes(), owed: 0 }),
            Err(error) => {
                self.gave_up = true;
                shared.shrinks.answer(&Err(error));
            }
        }
    }

    /// Does a step, then rests as long as it took unless a part waits. Errors, final: `Io` while the names are changed.
    pub(crate) fn step(&mut self, shared: &Shared) -> Result<(), Error> {
        let begun = shared.clock.monotonic();
        let Some(running) = &mut self.running else { return Ok(()) };
        match running.rewrite.step() {
            Ok(Step::Went(rows)) => running.owed = running.owed.saturating_sub(rows),
            Ok(Step::CaughtUp) => return self.take_over(shared),
            Err(error) => self.abandon(shared, error),
        }
        if !self.comes_first() {
            shared.rest(shared.clock.monotonic().saturating_sub(begun));
        }
        Ok(())
    }

    /// Gives up a copy if one is being made, and answers those who wait for it.
    pub(crate) fn abandon(&mut self, shared: &Shared, error: Error) {
        if let Some(running) = self.running.take() {
            running.rewrite.abandon();
            self.gave_up = true;
            shared.shrinks.answer(&Err(error));
        }
    }

    /// The copy becomes base: first on the disk, then for readers. Between the two nothing is flushed, so a start finds the same in either.
    fn take_over(&mut self, shared: &Shared) -> Result<(), Error> {
        let Some(Running { rewrite, bytes_before, .. }) = self.running.take() else { return Ok(()) };
        let old = shared.base();
        let taken = rewrite.finish().map(|mut copy| {
            let snapshot = copy.snapshot()?;
            copy.take_name_of(&old)?;
            failpoint!(Replace, Err);
            let bytes_after = copy.size_bytes();
            shared.replace_base(copy, snapshot);
            Ok(Shrunk { bytes_before, bytes_after })
        });
        match taken {
            Ok(Ok(shrunk)) => {
                self.gave_up = false;
                self.old = Some(old);
                shared.shrinks.answer(&Ok(shrunk));
                Ok(())
            }
            Ok(Err(fatal)) => Err(fatal),
            Err(error) => {
                self.gave_up = true;
                shared.shrinks.answer(&Err(error));
                Ok(())
            }
        }
    }

    /// Lets go of the old base if nobody reads from it any more; if somebody does, it waits for a moment, or for a part. True if there is
    /// nothing left to let go.
    pub(crate) fn let_go(&mut self, shared: &Shared) -> bool {
        if self.old.as_ref().is_some_and(|old| !old.is_unused()) {
            shared.rest(LOOK_AGAIN);
            return false;
        }
        self.old = None;
        true
    }

    /// The disk has no room for a part or a step of the sweep, which come first: a copy is given up, and none is begun for those who asked.
    pub(crate) fn abandon_for_room(&mut self, shared: &Shared) {
        let base = shared.base();
        let (needed, free) = (base.room_to_rewrite(), base.free_bytes().unwrap_or_default());
        if let Some(running) = self.running.take() {
            running.rewrite.abandon();
        }
        shared.shrinks.answer(&Err(Error::NoRoomToShrink { needed, free }));
    }
}
