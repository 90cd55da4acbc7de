//! The bounded queue of commands that wait for the committer.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::apply::Outcome;
use crate::command::{Command, Encoded};
use crate::error::Error;

/// A command with its bytes and with whoever waits for it.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) command: Command,
    pub(crate) encoded: Encoded,
    pub(crate) reply: Option<oneshot::Sender<Outcome>>,
}

/// How the keyspace ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Finish what waits, flush, release.
    Orderly,
    /// Stop at once, as if the power went.
    Abrupt,
}

/// Why the committer was woken.
#[derive(Debug)]
pub(crate) enum Wake {
    /// Work, or a reason to look for some: commands that wait (maybe none) and whether a flush is asked for.
    Work {
        /// The commands, in order.
        commands: Vec<Queued>,
        /// Freeze the active part even if it is small.
        flush: bool,
    },
    /// Nothing waits and the end was asked for.
    End(End),
}

/// The queue; full means "too many requests".
#[derive(Debug)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    wake: Condvar,
    /// Signalled when the committer has found nothing to do.
    idle: Condvar,
    limit: usize,
    limit_bytes: usize,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Queued>,
    bytes: usize,
    flush: bool,
    poked: bool,
    held: bool,
    /// The committer waits here.
    idle: bool,
    end: Option<End>,
}

impl Queue {
    /// A queue for `limit` commands of at most `limit_bytes` together.
    pub(crate) fn new(limit: usize, limit_bytes: usize) -> Queue {
        Queue { inner: Mutex::default(), wake: Condvar::new(), idle: Condvar::new(), limit, limit_bytes }
    }

    /// Adds a command. Errors: `TooManyRequests`, `Stopped`.
    pub(crate) fn push(&self, queued: Queued) -> Result<(), Error> {
        let mut inner = self.lock();
        if inner.end.is_some() {
            return Err(Error::Stopped);
        }
        let size = queued.encoded.payload.len();
        // An empty queue takes any command: one request always fits.
        let full = inner.waiting.len() >= self.limit || inner.bytes + size > self.limit_bytes;
        if full && !inner.waiting.is_empty() {
            return Err(Error::TooManyRequests { queued: inner.waiting.len() });
        }
        failpoint!(Queue, |_| Err(Error::TooManyRequests { queued: inner.waiting.len() }));
        inner.bytes += size;
        inner.waiting.push_back(queued);
        self.wake.notify_all();
        Ok(())
    }

    /// The commands that wait, and their bytes.
    pub(crate) fn waiting(&self) -> (u64, u64) {
        let inner = self.lock();
        (inner.waiting.len() as u64, inner.bytes as u64)
    }

    /// The bytes of commands that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Asks the committer to freeze the active part.
    pub(crate) fn request_flush(&self) {
        self.lock().flush = true;
        self.wake.notify_all();
    }

    /// Wakes the committer to look at its deadlines and at what the maintenance thread did.
    pub(crate) fn poke(&self) {
        self.lock().poked = true;
        self.wake.notify_all();
    }

    /// While it is held, commands wait.
    pub(crate) fn hold(&self, held: bool) {
        self.lock().held = held;
        self.wake.notify_all();
    }

    /// Waits until the committer has done everything that it was asked for, or the end was asked for.
    pub(crate) fn wait_until_idle(&self) {
        let busy = |inner: &mut Inner| {
            let asked = !inner.waiting.is_empty() || inner.flush || inner.poked;
            inner.end.is_none() && (asked || !inner.idle)
        };
        drop(self.idle.wait_while(self.lock(), busy).unwrap_or_else(PoisonError::into_inner));
    }

    /// Refuses further commands. A second call may only make the end more abrupt.
    pub(crate) fn end(&self, end: End) {
        let mut inner = self.lock();
        if inner.end != Some(End::Abrupt) {
            inner.end = Some(end);
        }
        // Whoever is told to end has nothing to hold back any more.
        inner.held = false;
        self.idle.notify_all();
        self.wake.notify_all();
    }

    /// True once the end was asked for.
    pub(crate) fn is_ending(&self) -> bool {
        self.lock().end.is_some()
    }

    /// Waits until there is work, or until `patience` is over, and takes at most about `bytes` of commands.
    pub(crate) fn take(&self, bytes: usize, patience: Option<Duration>) -> Wake {
        let mut inner = self.lock();
        if (inner.waiting.is_empty() || inner.held) && !inner.flush && !inner.poked && inner.end.is_none() {
            inner.idle = true;
            self.idle.notify_all();
            inner = match patience {
                Some(patience) => self.wake.wait_timeout(inner, patience).unwrap_or_else(PoisonError::into_inner).0,
                None => self.wake.wait(inner).unwrap_or_else(PoisonError::into_inner),
            };
            inner.idle = false;
        }
        if inner.end == Some(End::Abrupt) || (inner.end.is_some() && inner.waiting.is_empty()) {
            return Wake::End(inner.end.unwrap_or(End::Orderly));
        }
        failpoint!(Take);
        inner.poked = false;
        let mut taken = 0;
        let mut commands = Vec::new();
        while let Some(next) = inner.waiting.front().filter(|_| !inner.held) {
            let size = next.encoded.payload.len();
            if taken > 0 && taken + size > bytes {
                break;
            }
            taken += size + RECORD_HEADER;
            commands.extend(inner.waiting.pop_front());
            inner.bytes -= size;
        }
        Wake::Work { commands, flush: std::mem::take(&mut inner.flush) }
    }

    /// Waits for a poke, a request to end or until `patience` is over; true if the end must be abrupt.
    pub(crate) fn pause(&self, patience: Duration) -> bool {
        let inner = self.lock();
        let mut inner = if inner.poked || inner.end == Some(End::Abrupt) {
            inner
        } else {
            self.wake.wait_timeout(inner, patience).unwrap_or_else(PoisonError::into_inner).0
        };
        inner.poked = false;
        inner.end == Some(End::Abrupt)
    }

    /// Empties the queue.
    pub(crate) fn drain(&self) -> Vec<Queued> {
        let mut inner = self.lock();
        inner.bytes = 0;
        inner.waiting.drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a record takes in a frame besides its payload.
const RECORD_HEADER: usize = 5;
