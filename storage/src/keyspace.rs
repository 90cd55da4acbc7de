//! The keyspace: open it, write, read at a revision, watch, compact, close.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::apply::{Outcome, Reply};
use crate::base::command_bytes;
use crate::change::Change;
use crate::command::Command;
use crate::engine::queue::{End, Queued};
use crate::engine::room;
use crate::engine::shared::Shared;
use crate::env::Entropy;
use crate::error::Error;
use crate::files::{Directory, Identity};
use crate::log::Log;
use crate::open::{self, Opened, Threads};
use crate::options::{Environment, Options};
use crate::pending::Pending;
use crate::reply::{Alarm, DeleteRangeReply, OpenReport, PutReply, Shrunk, Status, TxnReply};
use crate::request::{AlarmKind, DeleteRange, Put, Txn};
use crate::types::{Revision, RevisionPair};
use crate::watch::WatchStream;
use crate::watch::hub::Hub;

/// An open keyspace; clones share it. When the last one is dropped without `close`, it stops at once and loses nothing.
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) entropy: Arc<dyn Entropy>,
    identity: Identity,
    opened: OpenReport,
    /// The outcome of the NOSPACE alarm that was proposed last.
    alarm_on_its_way: Mutex<Option<oneshot::Receiver<Outcome>>>,
    held: Mutex<Held>,
}

/// What `close` gives up.
struct Held {
    threads: Threads,
    directory: Directory,
}

impl Keyspace {
    /// Opens the keyspace in `dir`, creating it if `dir` is missing or empty.
    ///
    /// Errors, with nothing touched: `Io` if the directory is held by another process, foreign, unreadable or of a newer format; `Corrupt`,
    /// `LogMismatch` if it is damaged.
    pub fn open(dir: &Path, options: Options, environment: Environment) -> Result<Keyspace, Error> {
        let opened = open::open(dir, &options, &environment)?;
        Ok(Keyspace::new(opened, &environment))
    }

    /// Opens the keyspace in `dir` on a log that is not in the directory: shared with others, or simulated. Errors: as `open`.
    pub fn open_with_log(
        dir: &Path,
        options: Options,
        environment: Environment,
        log: Box<dyn Log>,
    ) -> Result<Keyspace, Error> {
        let opened = open::open_with_log(dir, &options, &environment, log)?;
        Ok(Keyspace::new(opened, &environment))
    }

    fn new(opened: Opened, environment: &Environment) -> Keyspace {
        let Opened { shared, hub, directory, threads, report } = opened;
        let inner = Inner {
            shared,
            hub,
            entropy: environment.entropy.clone(),
            identity: directory.identity,
            opened: report,
            alarm_on_its_way: Mutex::default(),
            held: Mutex::new(Held { threads, directory }),
        };
        Keyspace { inner: Arc::new(inner) }
    }

    /// Writes a key. Errors: `KeyNotFound`, `LeaseNotFound`, `NoSpace`.
    pub fn put(&self, put: Put) -> Pending<PutReply> {
        self.send(Command::Put(put), |reply| if let Reply::Put(put) = reply { Some(put) } else { None })
    }

    /// Deletes a range.
    pub fn delete_range(&self, delete: DeleteRange) -> Pending<DeleteRangeReply> {
        let pick = |reply| if let Reply::DeleteRange(deleted) = reply { Some(deleted) } else { None };
        self.send(Command::DeleteRange(delete), pick)
    }

    /// Runs a transaction that may write. Errors: those of its operations, `DuplicateKey`, `TooManyOps` if it is nested too deep; nothing is
    /// applied then.
    pub fn txn(&self, txn: Txn) -> Pending<TxnReply> {
        if let Err(error) = txn.check_nesting().and_then(|()| crate::overlap::check(&txn)) {
            return Pending::new(std::future::ready(Err(error)));
        }
        self.send(Command::Txn(txn), |reply| if let Reply::Txn(txn) = reply { Some(txn) } else { None })
    }

    /// Makes revisions below `revision` unreadable. Replies with the store's revision. Errors: `Compacted`, `Future`.
    ///
    /// Watches that are up to date are delivered everything up to `revision` first, so that compaction never takes an event or what a key was before
    /// from them.
    pub fn compact(&self, revision: i64) -> Pending<Revision> {
        let done = |reply| if let Reply::Done(revision, _) = reply { Some(revision) } else { None };
        let published = self.inner.shared.head().revision;
        let needed = Revision(revision).min(published);
        if self.inner.hub.reached() >= needed {
            return self.send(Command::Compact(revision), done);
        }
        let keyspace = self.clone();
        Pending::new(async move {
            keyspace.inner.hub.wait_for(needed).await;
            keyspace.send(Command::Compact(revision), done).await
        })
    }

    /// Waits until nothing below `revision`, which must have been compacted to, is stored any more. Blocks. Errors: `NoSpace`; what ended
    /// the keyspace.
    pub fn wait_swept(&self, revision: Revision) -> Result<(), Error> {
        // The sweep stays behind what is in base.
        self.flush()?;
        let shared = &self.inner.shared;
        shared.wait_for_base(|head| {
            let swept = head.swept >= revision.min(head.compacted);
            if swept {
                Some(Ok(()))
            } else {
                shared.over().or_else(|| head.out_of_room.then_some(Error::NoSpace)).map(Err)
            }
        })
    }

    /// Raises (`true`) or clears an alarm. Replies with the store's revision and whether the alarm was or is raised.
    pub fn set_alarm(&self, alarm: Alarm, raised: bool) -> Pending<(Revision, bool)> {
        let done =
            |reply| if let Reply::Done(revision, concerned) = reply { Some((revision, concerned)) } else { None };
        self.send(Command::SetAlarm(alarm.member, alarm.kind, raised), done)
    }

    /// Makes sure that everything acknowledged before the call is visible to reads after it. Free on a local log: published covers
    /// acknowledged. Errors: what ended the keyspace.
    pub fn barrier(&self) -> Result<(), Error> {
        self.inner.shared.failure().map_or(Ok(()), Err)
    }

    /// The current revision.
    pub fn revision(&self) -> Revision {
        self.inner.shared.head().revision
    }

    /// A new stream of watches.
    pub fn watch_stream(&self) -> WatchStream {
        WatchStream::open(&self.inner.hub, &self.inner.shared)
    }

    /// Reads stored changes in order, from revision `from` on up to `upto`, whole revisions, about `max_bytes` a call (one revision at least); empty
    /// when there are no more. Versions that compaction made unreachable come along as long as they are stored. For hashing and export. Blocks on the disk.
    pub fn stored_changes(&self, from: Revision, upto: Revision, max_bytes: usize) -> Result<Vec<Arc<Change>>, Error> {
        self.inner.shared.view().sources.changes(from, upto, max_bytes)
    }

    /// Where the newest change of `key` at or below `revision` is, tombstones included, whatever is compacted. Blocks on the disk.
    pub fn stored_version(&self, key: &[u8], revision: Revision) -> Result<Option<RevisionPair>, Error> {
        let found = self.inner.shared.view().sources.get(key, RevisionPair::last_of(revision))?;
        Ok(found.map(|found| found.place()))
    }

    /// The revision that the store had reached at a wall-clock time, in milliseconds since 1970; `None` before the first change. Exact to
    /// a second: one mark a second at most is kept. Blocks on the disk.
    pub fn revision_at(&self, time_ms: u64) -> Result<Option<Revision>, Error> {
        self.inner.shared.view().sources.revision_at(time_ms)
    }

    /// What operators ask first.
    pub fn status(&self) -> Status {
        let head = self.inner.shared.head();
        Status {
            revision: head.revision,
            compacted: head.compacted,
            swept: head.swept,
            applied: head.position,
            digest: head.digest,
            size_bytes: head.base_bytes + head.log_bytes,
            used_bytes: head.used_bytes(),
            base_bytes: head.base_bytes,
            base_bytes_if_rewritten: head.base_bytes_if_rewritten,
            member: self.inner.identity.member,
            cluster: self.inner.identity.cluster,
            alarms: head.alarms.clone(),
            opened: self.inner.opened.clone(),
        }
    }

    /// Writes everything in memory to base now; returns when it is there. Errors: `NoSpace`, what ended the keyspace.
    pub fn flush(&self) -> Result<(), Error> {
        let shared = &self.inner.shared;
        let target = shared.head().position;
        shared.queue.request_flush();
        shared.wait_for_base(|head| {
            if head.sources.base.applied().position >= target {
                return Some(Ok(()));
            }
            shared.over().or_else(|| head.out_of_room.then_some(Error::NoSpace)).map(Err)
        })
    }

    /// Rewrites base without what it no longer uses, and gives the room back; resolves when it is done. Reads and writes go on
    /// meanwhile. It begins once what was acknowledged is in base and what is compacted is swept; if base is being rewritten already, that
    /// rewrite's result is the answer.
    ///
    /// Errors, with base as it was: `NoRoomToShrink`, `ShrinkFailed`, `Stopped`; what ended the keyspace.
    pub fn defragment(&self) -> Pending<Shrunk> {
        let shared = &self.inner.shared;
        let asked = shared.shrinks.add(shared.head().position);
        shared.queue.request_flush();
        shared.nudge();
        if let Some(error) = shared.over() {
            return Pending::new(std::future::ready(Err(error)));
        }
        Pending::new(async move { asked.await.unwrap_or(Err(Error::Stopped)) })
    }

    /// The bytes that are free on the disk that holds base, with those that the ballast holds. Errors: `Io`.
    pub fn free_bytes(&self) -> Result<u64, Error> {
        self.inner.shared.base().free_bytes()
    }

    /// The wall clock, in milliseconds since 1970.
    pub(crate) fn wall_ms(&self) -> u64 {
        self.inner.shared.clock.wall_ms()
    }

    /// Makes the committer look at the clock: for clocks that only move when told to.
    pub fn poke(&self) {
        self.inner.shared.queue.poke();
    }

    /// Resolves with the error that ended the keyspace; never if it is closed in order.
    pub async fn failed(&self) -> Error {
        self.inner.shared.failed().await
    }

    /// Refuses new commands with `Stopped`, finishes those begun, ends watch streams, flushes, and releases the directory. Blocks. Errors: what
    /// ended the keyspace before.
    pub fn close(&self) -> Result<(), Error> {
        self.inner.end(End::Orderly);
        self.inner.shared.failure().map_or(Ok(()), Err)
    }

    /// Puts a command into the queue; the future is its outcome.
    pub(crate) fn send<T: Send + 'static>(&self, command: Command, pick: fn(Reply) -> Option<T>) -> Pending<T> {
        match self.submit(command) {
            Ok(receiver) => Pending::new(async move {
                // A sender that is gone without a word belongs to a committer that ended while it wrote.
                let outcome = receiver.await.unwrap_or(Err(Error::OutcomeUnknown));
                outcome.map(|reply| pick(reply).expect("a command gets the reply of its kind"))
            }),
            Err(error) => Pending::new(std::future::ready(Err(error))),
        }
    }

    fn submit(&self, command: Command) -> Result<oneshot::Receiver<Outcome>, Error> {
        let shared = &self.inner.shared;
        if let Some(error) = shared.over() {
            return Err(if error.is_final() { Error::Stopped } else { error });
        }
        let encoded = command.encode()?;
        if command.needs_room() {
            self.check_room(encoded.payload.len())?;
        }
        let (reply, receiver) = oneshot::channel();
        shared.queue.push(Queued { command, encoded, reply: Some(reply) })?;
        Ok(receiver)
    }

    /// What adds data is refused where the budget ends, and an alarm says so; apply refuses it as long as the alarm is raised. One command
    /// that is too large for what is left is refused alone: others may fit.
    fn check_room(&self, bytes: usize) -> Result<(), Error> {
        let shared = &self.inner.shared;
        let queued = shared.queue.bytes() as u64;
        let ask = || {
            let head = shared.head();
            let remaining = head.remaining(queued);
            let fits = !head.out_of_room && command_bytes(bytes as u64) <= remaining;
            (fits, head.out_of_room || remaining < head.budget.useful)
        };
        if ask().0 {
            return Ok(());
        }
        // Others may have made room since the last look; if the file system does not say, that one counts.
        drop(room::measure(shared));
        let (fits, full) = ask();
        if fits {
            return Ok(());
        }
        if full {
            self.propose_alarm()?;
        }
        Err(Error::NoSpace)
    }

    /// Proposes the NOSPACE alarm unless it is raised or on its way. A queue that is full takes it another time.
    fn propose_alarm(&self) -> Result<(), Error> {
        let shared = &self.inner.shared;
        let mut on_its_way = self.inner.alarm_on_its_way.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = |outcome: &mut oneshot::Receiver<Outcome>| matches!(outcome.try_recv(), Err(TryRecvError::Empty));
        if on_its_way.as_mut().is_some_and(waiting) {
            return Ok(());
        }
        // Looked at after its outcome: what is answered was published before.
        if shared.head().alarms.iter().any(|alarm| alarm.kind == AlarmKind::NoSpace) {
            return Ok(());
        }
        let command = Command::OutOfRoom(self.inner.identity.member, true);
        let encoded = command.encode()?;
        let (reply, outcome) = oneshot::channel();
        let pushed = shared.queue.push(Queued { command, encoded, reply: Some(reply) });
        *on_its_way = pushed.is_ok().then_some(outcome);
        Ok(())
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (identity, revision) = (self.inner.identity, self.revision());
        f.debug_struct("Keyspace").field("identity", &identity).field("revision", &revision).finish_non_exhaustive()
    }
}

impl Inner {
    fn end(&self, end: End) {
        self.shared.queue.end(end);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.threads.join(&self.shared);
        self.hub.end();
        // Nothing may be written once the lock is gone, not even what redb writes when it is dropped: every commit is complete in itself.
        self.shared.base().halt();
        held.directory.release();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end(End::Abrupt);
    }
}
