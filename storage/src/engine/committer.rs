//! The committer: one frame, one sync for everything that queued while the last one ran; then apply, publish, wake.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::apply::{Effects, Incoming, State};
use crate::base::worst_part_bytes;
use crate::command::Command;
use crate::engine::batch::{Batch, Refused, answer};
use crate::engine::lessor::{Due, EXPIRIES_PER_FRAME};
use crate::engine::queue::{End, Queued, Wake};
use crate::engine::shared::{Head, Shared};
use crate::error::Error;
use crate::log::frame::{Frame, FrameBuffer, FrameHeader};
use crate::log::{AppendError, Log, StoredFrame};
use crate::read::Sources;
use crate::read::tally::Turnover;
use crate::recent::Part;
use crate::types::{MemberId, Position, WriterId};

/// What bounds `recent`: at half of either a part is flushed, at all of it no frame is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) bytes: usize,
    pub(crate) changes: usize,
    pub(crate) batch_bytes: usize,
}

impl Bounds {
    /// True if the part is large enough to be flushed.
    pub(crate) fn reached(&self, part: &Part) -> bool {
        self.fill(part) >= 1.0
    }

    /// How full a part is: 1 is half of the bound, the other half being for the part before, on its way to base.
    fn fill(&self, part: &Part) -> f64 {
        let part = part.read();
        let share = |value: usize, bound: usize| value as f64 / (bound.max(2) / 2) as f64;
        // Frames that change nothing fill the log all the same; a part of ordinary puts is full before its frames are.
        let log = share(part.log_bytes, self.bytes.saturating_mul(2));
        share(part.weight, self.bytes).max(share(part.changes.len(), self.changes)).max(log)
    }
}

/// Who writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    pub(crate) member: MemberId,
    pub(crate) generation: u64,
    pub(crate) id: WriterId,
    /// The number of the last frame written.
    pub(crate) number: u64,
}

/// The one thread that appends, applies and publishes.
pub(crate) struct Committer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Box<dyn Log>,
    pub(crate) state: State,
    pub(crate) bounds: Bounds,
    pub(crate) writer: Writer,
    /// Everything below is in base: the log may forget it.
    pub(crate) trimmed: Position,
    /// Expiries could not be logged for lack of room: they are tried again after a while.
    pub(crate) held_back: bool,
}

/// Attempts to append a frame whose fate a log did not tell, before the keyspace gives up.
const ATTEMPTS: usize = 20;

/// How long to wait for room in the log for a frame that may be in it already.
const AGAIN: Duration = Duration::from_millis(10);

/// How long expiries wait that could not be logged.
const HELD_BACK: Duration = Duration::from_millis(100);

/// Bytes read from the log at once when it is ahead of the state.
const READ_AHEAD: usize = 4 << 20;

/// A command of more bytes than this shares its frame with no expiry.
const LARGE: usize = 1 << 20;

/// How long a frame waits at most when `recent` is nearly full, so that clients slow down before they stop.
const SLOWEST: Duration = Duration::from_millis(5);

impl Committer {
    /// Runs until the end; an error that ends the keyspace is published.
    pub(crate) fn run(mut self) {
        if let Err(error) = self.serve() {
            self.shared.fail(error);
        }
    }

    fn serve(&mut self) -> Result<(), Error> {
        loop {
            // Before commands are taken: if it fails, they were not begun.
            self.trim()?;
            let patience = self.patience();
            match self.shared.queue.take(self.bounds.batch_bytes, patience) {
                Wake::End(End::Abrupt) => return Ok(()),
                Wake::End(End::Orderly) => return self.finish(),
                Wake::Work { commands, flush } => {
                    // Next to a command that nearly fills a frame of its own there is no room for anything else.
                    let large = commands.iter().any(|queued| queued.encoded.payload.len() > LARGE);
                    let limit = if large { 0 } else { small!(EXPIRIES_PER_FRAME, 1) };
                    failpoint!(Due);
                    let due = self.shared.lessor.due(self.shared.clock.monotonic(), limit);
                    if !commands.is_empty() || !due.is_empty() {
                        self.batch(commands, &due)?;
                    }
                    self.freeze_if(flush);
                }
            }
        }
    }

    /// Until the next lease runs out; while parts are on their way a poke comes when they have arrived.
    fn patience(&self) -> Option<Duration> {
        let deadline = self.shared.lessor.next_deadline()?;
        // Rounded up: a wait that ends a little early would spin.
        let wait = deadline.saturating_sub(self.shared.clock.monotonic()) + Duration::from_millis(1);
        Some(if self.held_back { wait.max(HELD_BACK) } else { wait })
    }

    fn batch(&mut self, mut commands: Vec<Queued>, mut due: &[Due]) -> Result<(), Error> {
        if !self.make_room()? {
            self.hold_back(due);
            due = &[];
            let (taken, refused) = commands.into_iter().partition(|queued| queued.command.needs_no_memory());
            commands = taken;
            let refused: Vec<Queued> = refused;
            self.shared.meters.failed.add(refused.len() as u64);
            refused.into_iter().for_each(|queued| answer(queued, Err(Error::NoSpace)));
            if commands.is_empty() {
                return Ok(());
            }
        }
        let expiries: Vec<Command> = due.iter().map(|due| Command::LeaseExpire(due.id, due.mark)).collect();
        let header = self.header();
        let mut frame = FrameBuffer::new(&header);
        for queued in &commands {
            frame.push(queued.encoded.kind, |buffer| buffer.extend_from_slice(&queued.encoded.payload));
        }
        for expiry in &expiries {
            let encoded = expiry.encode()?;
            frame.push(encoded.kind, |buffer| buffer.extend_from_slice(&encoded.payload));
        }
        let mut batch = Batch { commands, expiries, outcomes: None };
        match self.append(&header, &mut frame, &mut batch) {
            Ok(()) => self.held_back = false,
            Err(Refused::Full) => {
                self.hold_back(due);
                self.shared.meters.failed.add(batch.commands.len() as u64);
                batch.refuse(&Error::NoSpace);
                return Ok(());
            }
            Err(Refused::Final(error)) => {
                self.shared.meters.failed.add(batch.commands.len() as u64);
                batch.refuse(&Error::OutcomeUnknown);
                return Err(error);
            }
        }
        failpoint!(Answer);
        batch.answer();
        Ok(())
    }

    fn hold_back(&mut self, due: &[Due]) {
        self.held_back |= !due.is_empty();
        self.shared.lessor.put_back(due, &Error::NoSpace);
    }

    fn header(&self) -> FrameHeader {
        FrameHeader {
            member: self.writer.member,
            generation: self.writer.generation,
            writer: self.writer.id,
            number: self.writer.number + 1,
            applied: self.state.applied.position,
            applied_digest: self.state.applied.digest,
            time_ms: self.shared.clock.wall_ms(),
        }
    }

    /// Appends the frame and applies it, together with whatever the log holds before it. A crash before the append returns loses
    /// the frame or not, and nobody was told; after it, the frame is applied again at the next start.
    fn append(&mut self, header: &FrameHeader, frame: &mut FrameBuffer, batch: &mut Batch) -> Result<(), Refused> {
        let mut begun = false;
        failpoint!(Append, |_| Err(Refused::Full));
        for _ in 0..ATTEMPTS {
            match self.log.append(frame, self.state.applied.digest) {
                Ok(position) if position == self.state.applied.position.next() => {
                    let digest = self.state.applied.digest.chain(frame.bytes());
                    let commands: Vec<Command> = batch.take_commands();
                    self.apply(&Incoming { header, position, digest, commands: &commands, len: frame.len() }, batch)?;
                    return batch.settled(position);
                }
                Ok(position) => {
                    self.catch_up(batch)?;
                    return batch.settled(position);
                }
                Err(AppendError::Unknown) => {
                    begun = true;
                    self.catch_up(batch)?;
                }
                // What may have reached the log is not refused: it could come back under the number of the frame after it.
                Err(AppendError::Full) if begun => {
                    self.shared.queue.pause(AGAIN);
                    self.catch_up(batch)?;
                }
                Err(AppendError::Full) => return Err(Refused::Full),
                Err(AppendError::TooLarge { size, limit }) => {
                    let reason = format!("a frame of {size} bytes, {limit} allowed");
                    return Err(Refused::Final(Error::Io { doing: "append to the log".into(), reason }));
                }
                Err(AppendError::Final(error)) => return Err(Refused::Final(error)),
            }
            if batch.outcomes.is_some() {
                return Ok(());
            }
        }
        Err(Refused::Final(Error::OutcomeUnknown))
    }

    /// Applies what the log holds beyond the state.
    fn catch_up(&mut self, batch: &mut Batch) -> Result<(), Error> {
        loop {
            let frames = self.log.read(self.state.applied.position.next(), small!(READ_AHEAD, 1))?;
            if frames.is_empty() {
                return Ok(());
            }
            for stored in frames {
                self.apply_stored(&stored, batch)?;
            }
        }
    }

    fn apply_stored(&mut self, stored: &StoredFrame, batch: &mut Batch) -> Result<(), Error> {
        let (frame, commands) = decode(stored)?;
        let digest = self.state.applied.digest.chain(&stored.bytes);
        let (header, position, len) = (&frame.header, stored.position, stored.bytes.len());
        self.apply(&Incoming { header, position, digest, commands: &commands, len }, batch)
    }

    /// Apply, then publish; whoever waits is answered after that.
    fn apply(&mut self, incoming: &Incoming<'_>, batch: &mut Batch) -> Result<(), Error> {
        failpoint!(Apply, Err);
        let sources = self.shared.head().sources.clone();
        let before = sources.active.read().changes.len();
        let begun = self.shared.clock.monotonic();
        let effects = self.state.apply(&sources, incoming)?;
        let took = self.shared.clock.monotonic().saturating_sub(begun);
        let turnover = {
            let part = sources.active.read();
            let changes = part.changes.get(before..).unwrap_or_default();
            self.shared.meters.applied(incoming.commands, &effects, changes, took);
            Turnover::of(changes)
        };
        self.publish(&effects, &turnover);
        let header = incoming.header;
        let ours = (header.member, header.writer, header.number)
            == (self.writer.member, self.writer.id, self.writer.number + 1);
        if ours && !effects.outcomes.is_empty() {
            self.writer.number += 1;
            batch.outcomes = Some(effects.outcomes);
        }
        Ok(())
    }

    fn publish(&mut self, effects: &Effects, turnover: &Turnover) {
        failpoint!(Publish);
        if planted!(AnswerBeforePublish) && self.state.applied.position.0.is_multiple_of(16) {
            return;
        }
        let log_bytes = self.log.size_bytes();
        let now = self.shared.clock.monotonic();
        self.shared.publish_frame(|head| {
            let compacted = head.compacted;
            head.take_over(&self.state, self.writer.member);
            failpoint!(PublishHalf);
            if head.compacted > compacted {
                self.shared.meters.compacted_at_ms.store(self.state.applied.time_ms, Ordering::Relaxed);
            }
            head.tallies.learn(turnover);
            head.log_bytes = log_bytes;
            // In the same step: nobody sees a lease without its keys, or keys of a lease that is gone.
            self.shared.lessor.learn(&effects.leases, now);
        });
    }

    /// Slows down near the bound of `recent`, waits at it. False if there is no room and none is coming.
    fn make_room(&mut self) -> Result<bool, Error> {
        loop {
            let (flushing, out_of_room, fill) = {
                let head = self.shared.head();
                (head.sources.frozen.is_some(), head.out_of_room, self.bounds.fill(&head.sources.active))
            };
            if !flushing || fill < SLOW_FROM {
                return Ok(true);
            }
            if fill < 1.0 {
                self.shared.queue.pause(SLOWEST.mul_f64((fill - SLOW_FROM) / (1.0 - SLOW_FROM)));
                return Ok(true);
            }
            if out_of_room {
                return Ok(false);
            }
            let patience = Duration::from_secs(1);
            if self.shared.queue.pause(patience) {
                return self.shared.failure().map_or(Ok(true), Err);
            }
        }
    }

    /// Hands the active part to the maintenance thread if it is large enough, or asked for, and the one before has arrived.
    fn freeze_if(&mut self, asked: bool) {
        let sources = self.shared.head().sources.clone();
        if sources.frozen.is_some() {
            if asked {
                self.shared.queue.request_flush();
                self.shared.queue.pause(Duration::from_millis(100));
            }
            return;
        }
        let full = self.bounds.reached(&sources.active) || self.is_tight(&sources);
        if full || (asked && self.state.applied.position > sources.base.applied().position) {
            failpoint!(Freeze);
            self.state.seal(&sources.active);
            self.shared.publish_base(Head::freeze);
        } else if asked {
            self.shared.nudge();
        }
    }

    /// True if a flush of the active part may need a good share of what is free: parts get smaller as the disk gets fuller, so that the next
    /// one fits too.
    fn is_tight(&self, sources: &Sources) -> bool {
        let head = self.shared.head();
        let part = sources.active.read();
        let worst = worst_part_bytes(part.keys.len(), part.weight).min(2 * head.base_bytes + part.page_bytes);
        !part.changes.is_empty() && worst > head.budget.free / FREE_SHARE
    }

    fn trim(&mut self) -> Result<(), Error> {
        let flushed = self.shared.head().sources.base.applied().position.next();
        let flushed = if planted!(TrimTooFar) { self.state.applied.position.next() } else { flushed };
        if flushed > self.trimmed {
            failpoint!(Trim, Err);
            self.trimmed = flushed;
            self.log.trim(flushed)?;
        }
        Ok(())
    }

    /// The end in order: what is in memory goes to base.
    fn finish(&mut self) -> Result<(), Error> {
        failpoint!(Finish, Err);
        if self.flushed() {
            self.freeze_if(true);
            self.flushed();
        }
        self.trim()
    }

    /// Waits until no part is on its way; false if none will arrive.
    fn flushed(&self) -> bool {
        self.shared.wait_for_base(|head| {
            let given_up = head.out_of_room || self.shared.failure().is_some();
            if head.sources.frozen.is_none() { Some(true) } else { given_up.then_some(false) }
        })
    }
}

/// A part should need no more than this share of what is free.
const FREE_SHARE: u64 = 2;

/// The share of the bound from which on frames are delayed while a part is being flushed.
const SLOW_FROM: f64 = 0.75;

/// After the committer's last word, or none if it panicked: no caller is left waiting, what was not begun is refused.
pub(crate) fn leave(shared: &Shared) {
    shared.queue.end(End::Orderly);
    shared.queue.drain().into_iter().for_each(|queued| answer(queued, Err(Error::Stopped)));
    shared.stop();
}

/// A frame from the log with its commands.
pub(crate) fn decode(stored: &StoredFrame) -> Result<(Frame, Vec<Command>), Error> {
    let frame = Frame::decode(&stored.bytes)?;
    let commands =
        frame.records.iter().map(|record| Command::decode(record.kind, &record.payload)).collect::<Result<_, _>>()?;
    Ok((frame, commands))
}
