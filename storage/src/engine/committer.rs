//! The committer: one frame, one sync for everything that queued while the last one ran; then apply, publish, wake.

use std::sync::Arc;
use std::time::Duration;

use crate::apply::{Effects, Incoming, Outcome, State};
use crate::command::Command;
use crate::engine::lessor::{Due, EXPIRIES_PER_FRAME};
use crate::engine::queue::{End, Queued, Wake};
use crate::engine::shared::Shared;
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
        share(part.weight, self.bytes).max(share(part.changes.len(), self.changes))
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
}

/// Attempts to append a frame whose fate a log did not tell, before the keyspace gives up.
const ATTEMPTS: usize = 20;

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
        // No caller is left waiting: what was not begun is refused.
        for queued in self.shared.queue.drain() {
            answer(queued, Err(Error::Stopped));
        }
        self.shared.stop();
    }

    fn serve(&mut self) -> Result<(), Error> {
        loop {
            let patience = self.patience();
            match self.shared.queue.take(self.bounds.batch_bytes, patience) {
                Wake::End(End::Abrupt) => return Ok(()),
                Wake::End(End::Orderly) => return self.finish(),
                Wake::Work { commands, flush } => {
                    self.trim()?;
                    // Next to a command that nearly fills a frame of its own there is no room for anything else.
                    let large = commands.iter().any(|queued| queued.encoded.payload.len() > LARGE);
                    let limit = if large { 0 } else { EXPIRIES_PER_FRAME };
                    let due = self.shared.lessor.due(self.shared.clock.monotonic(), limit);
                    if !commands.is_empty() || !due.is_empty() {
                        self.batch(commands, &due)?;
                    }
                    self.freeze_if(flush)?;
                }
            }
        }
    }

    /// Until the next lease runs out; while parts are on their way a poke comes when they have arrived.
    fn patience(&self) -> Option<Duration> {
        let deadline = self.shared.lessor.next_deadline()?;
        // Rounded up: a wait that ends a little early would spin.
        Some(deadline.saturating_sub(self.shared.clock.monotonic()) + Duration::from_millis(1))
    }

    fn batch(&mut self, commands: Vec<Queued>, due: &[Due]) -> Result<(), Error> {
        if !self.make_room()? {
            commands.into_iter().for_each(|queued| answer(queued, Err(Error::NoSpace)));
            self.shared.lessor.put_back(due);
            return Ok(());
        }
        let expiries: Vec<Command> = due.iter().map(|due| Command::LeaseExpire(due.id, due.renewed_at_ms)).collect();
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
            Ok(()) => {}
            Err(Refused::Full) => {
                self.shared.lessor.put_back(due);
                batch.refuse(&Error::NoSpace);
                return Ok(());
            }
            Err(Refused::Final(error)) => {
                batch.refuse(&Error::OutcomeUnknown);
                return Err(error);
            }
        }
        batch.answer();
        Ok(())
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
        for _ in 0..ATTEMPTS {
            match self.log.append(frame, self.state.applied.digest) {
                Ok(position) if position == self.state.applied.position.next() => {
                    let digest = self.state.applied.digest.chain(frame.bytes());
                    let commands: Vec<Command> = batch.take_commands();
                    self.apply(&Incoming { header, position, digest, commands: &commands }, batch)?;
                    return Ok(());
                }
                Ok(_) | Err(AppendError::Unknown) => {
                    self.catch_up(batch)?;
                    if batch.outcomes.is_some() {
                        return Ok(());
                    }
                }
                Err(AppendError::Full) => return Err(Refused::Full),
                Err(AppendError::TooLarge { size, limit }) => {
                    let reason = format!("a frame of {size} bytes, {limit} allowed");
                    return Err(Refused::Final(Error::Io { doing: "append to the log".into(), reason }));
                }
                Err(AppendError::Final(error)) => return Err(Refused::Final(error)),
            }
        }
        Err(Refused::Final(Error::OutcomeUnknown))
    }

    /// Applies what the log holds beyond the state.
    fn catch_up(&mut self, batch: &mut Batch) -> Result<(), Error> {
        loop {
            let frames = self.log.read(self.state.applied.position.next(), READ_AHEAD)?;
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
        let incoming = Incoming { header: &frame.header, position: stored.position, digest, commands: &commands };
        self.apply(&incoming, batch)
    }

    /// Apply, then publish; whoever waits is answered after that.
    fn apply(&mut self, incoming: &Incoming<'_>, batch: &mut Batch) -> Result<(), Error> {
        let sources = self.shared.head().sources.clone();
        let before = sources.active.read().changes.len();
        let effects = self.state.apply(&sources, incoming)?;
        let turnover = Turnover::of(sources.active.read().changes.get(before..).unwrap_or_default());
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
        let log_bytes = self.log.size_bytes();
        self.shared.publish(|head| {
            head.take_over(&self.state);
            head.tallies.learn(turnover);
            head.log_bytes = log_bytes;
        });
        // After publishing: whoever waits for a lease to end sees its keys gone.
        self.shared.lessor.learn(&effects.leases, self.shared.clock.monotonic());
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
    fn freeze_if(&mut self, asked: bool) -> Result<(), Error> {
        let sources = self.shared.head().sources.clone();
        if sources.frozen.is_some() {
            if asked {
                self.shared.queue.request_flush();
                self.shared.queue.pause(Duration::from_millis(100));
            }
            return Ok(());
        }
        let full = self.bounds.reached(&sources.active);
        if full || (asked && self.state.applied.position > sources.base.applied().position) {
            self.state.seal(&sources.active);
            self.shared.publish(|head| head.freeze());
        } else if asked {
            self.shared.nudge();
        }
        Ok(())
    }

    fn trim(&mut self) -> Result<(), Error> {
        let flushed = self.shared.head().sources.base.applied().position.next();
        if flushed > self.trimmed {
            self.trimmed = flushed;
            self.log.trim(flushed)?;
        }
        Ok(())
    }

    /// The end in order: what is in memory goes to base.
    fn finish(&mut self) -> Result<(), Error> {
        for _ in 0..2 {
            let idle = self
                .shared
                .wait_for(|head| (head.sources.frozen.is_none()).then_some(true).or_else(|| self.given_up(head)));
            if !idle {
                return Ok(());
            }
            self.freeze_if(true)?;
        }
        self.shared.wait_for(|head| head.sources.frozen.is_none().then_some(true).or_else(|| self.given_up(head)));
        self.trim()
    }

    fn given_up(&self, head: &crate::engine::shared::Head) -> Option<bool> {
        (head.out_of_room || self.shared.failure().is_some()).then_some(false)
    }
}

/// The share of the bound from which on frames are delayed while a part is being flushed.
const SLOW_FROM: f64 = 0.75;

/// Why a batch was not committed.
enum Refused {
    Full,
    Final(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Final(error)
    }
}

/// The commands of one frame and what became of them.
struct Batch {
    commands: Vec<Queued>,
    expiries: Vec<Command>,
    outcomes: Option<Vec<Outcome>>,
}

impl Batch {
    /// The commands as apply takes them; they are not needed again.
    fn take_commands(&mut self) -> Vec<Command> {
        let mut commands = Vec::with_capacity(self.commands.len() + self.expiries.len());
        for queued in &mut self.commands {
            commands.push(std::mem::replace(&mut queued.command, Command::Compact(0)));
        }
        commands.append(&mut self.expiries);
        commands
    }

    fn answer(self) {
        let outcomes = self.outcomes.unwrap_or_default();
        for (queued, outcome) in self.commands.into_iter().zip(outcomes) {
            answer(queued, outcome);
        }
    }

    fn refuse(self, error: &Error) {
        self.commands.into_iter().for_each(|queued| answer(queued, Err(error.clone())));
    }
}

fn answer(queued: Queued, outcome: Outcome) {
    if let Some(reply) = queued.reply {
        // Nobody may be waiting any more; the command counts all the same.
        drop(reply.send(outcome));
    }
}

/// A frame from the log with its commands.
pub(crate) fn decode(stored: &StoredFrame) -> Result<(Frame, Vec<Command>), Error> {
    let frame = Frame::decode(&stored.bytes)?;
    let commands =
        frame.records.iter().map(|record| Command::decode(record.kind, &record.payload)).collect::<Result<_, _>>()?;
    Ok((frame, commands))
}

/// Applies a stored frame while a keyspace opens, when there is nobody to tell.
pub(crate) fn replay(state: &mut State, sources: &Sources, stored: &StoredFrame) -> Result<(), Error> {
    let (frame, commands) = decode(stored)?;
    let digest = state.applied.digest.chain(&stored.bytes);
    state
        .apply(sources, &Incoming { header: &frame.header, position: stored.position, digest, commands: &commands })?;
    Ok(())
}
