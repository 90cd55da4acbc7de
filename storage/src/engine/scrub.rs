//! The scrub: what base and the log hold on the disk is read again, a step whenever somebody asks for one.
//!
//! The maintenance thread does it between flushes, so no commit runs meanwhile. Who asks decides how fast it goes.
//!
//! Damage that a reader of base would not notice ends the keyspace, like any error of base. A row that is altered but in its place is refused to
//! whoever reads it, and a frame of the log that is in base already is never read again: both are only reported. A frame
//! that is not in base yet is still in memory, so base is asked to take it, and then it is the same.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::engine::shared::Shared;
use crate::error::Error;
use crate::log::{LogDamage, LogScrub};
use crate::reply::ScrubStep;
use crate::types::Position;

/// Who waits for a step.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<VecDeque<Request>>);

#[derive(Debug)]
struct Request {
    bytes_max: usize,
    reply: oneshot::Sender<Result<ScrubStep, Error>>,
}

impl Requests {
    /// Asks for a step of about so many bytes.
    pub(crate) fn add(&self, bytes_max: usize) -> oneshot::Receiver<Result<ScrubStep, Error>> {
        let (reply, receiver) = oneshot::channel();
        self.waiting().push_back(Request { bytes_max, reply });
        receiver
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }

    /// Answers all: no step is made any more.
    pub(crate) fn refuse(&self, error: &Error) {
        let waiting = std::mem::take(&mut *self.waiting());
        // Nobody may be waiting any more.
        waiting.into_iter().for_each(|request| drop(request.reply.send(Err(error.clone()))));
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<Request>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The maintenance thread's part of it.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    /// None if the log is not on this disk.
    log: Option<LogScrub>,
    /// Base is done with, the log's turn has come.
    at_log: bool,
}

impl Scrub {
    pub(crate) fn new(log: Option<LogScrub>) -> Scrub {
        Scrub { log, at_log: false }
    }

    /// Does the step that was asked for first. Errors, final: `Corrupt` and `Io` of base.
    pub(crate) fn step(&mut self, shared: &Shared) -> Result<(), Error> {
        let Some(Request { bytes_max, reply }) = shared.scrubs.waiting().pop_front() else { return Ok(()) };
        let done = if self.at_log { Ok(self.log_step(shared, bytes_max)) } else { self.base_step(shared, bytes_max) };
        let fatal = done.as_ref().err().cloned();
        drop(reply.send(done));
        fatal.map_or(Ok(()), Err)
    }

    fn base_step(&mut self, shared: &Shared, bytes_max: usize) -> Result<ScrubStep, Error> {
        let did = shared.base().scrub_step(bytes_max)?;
        self.at_log = did.done && self.log.is_some();
        Ok(ScrubStep {
            rows: did.rows,
            frames: 0,
            bytes_read: did.bytes_read,
            damage: did.damage,
            done: did.done && !self.at_log,
        })
    }

    /// What is wrong with the log on the disk is no error of this process: it has what it needs of it.
    fn log_step(&mut self, shared: &Shared, bytes_max: usize) -> ScrubStep {
        let (published, flushed) = {
            let head = shared.head();
            (head.position, head.sources.base.applied().position)
        };
        let Some(log) = &mut self.log else { return ScrubStep { done: true, ..ScrubStep::default() } };
        let did = log.step(published, bytes_max);
        self.at_log = !did.done;
        if did.damage.iter().any(|damage| damage.upto > flushed) {
            shared.queue.request_flush();
        }
        let damage = did.damage.into_iter().map(|damage| explained(damage, flushed)).collect();
        ScrubStep { rows: 0, frames: did.frames, bytes_read: did.bytes_read, damage, done: did.done }
    }
}

/// Says what it means.
fn explained(damage: LogDamage, flushed: Position) -> Error {
    let LogDamage { from, upto, error } = damage;
    let means = if upto <= flushed { "base has all of that" } else { "it is brought to base from memory" };
    match error {
        Error::Corrupt { place, reason } => {
            Error::Corrupt { place, reason: format!("{reason} (positions {from} to {upto}: {means})") }
        }
        other => other,
    }
}
