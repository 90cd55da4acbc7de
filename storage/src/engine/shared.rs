//! What the threads of a keyspace share: the published state, the queue, the lessor, the end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::apply::State;
use crate::apply::txn::{check_at, place};
use crate::base::{Base, Snapshot, Totals};
use crate::engine::budget::Budget;
use crate::engine::lessor::Lessor;
use crate::engine::pace::Pace;
use crate::engine::queue::{End, Queue};
use crate::engine::room::Room;
use crate::engine::scrub;
use crate::engine::shrink::Requests;
use crate::env::Clock;
use crate::error::Error;
use crate::meters::Meters;
use crate::read::Sources;
use crate::read::counts::Counts;
use crate::read::range::bounds;
use crate::read::tally::{Answer, Question, Tallies};
use crate::recent::Part;
use crate::reply::Alarm;
use crate::request::{At, RangeRequest};
use crate::types::{Digest, MemberId, Position, Revision, RevisionPair};

/// What is published: everything a view needs, changed in one step under one lock.
#[derive(Debug)]
pub(crate) struct Head {
    /// The current revision.
    pub(crate) revision: Revision,
    /// The compacted revision.
    pub(crate) compacted: Revision,
    /// The last frame applied.
    pub(crate) position: Position,
    /// The chain of digests up to there.
    pub(crate) digest: Digest,
    /// Where keys are.
    pub(crate) sources: Sources,
    /// Counts at the current revision.
    pub(crate) tallies: Tallies,
    /// The alarms raised.
    pub(crate) alarms: Vec<Alarm>,
    /// Those that somebody asked for.
    pub(crate) alarms_asked_for: Vec<Alarm>,
    /// The store itself raised NOSPACE.
    pub(crate) out_of_room_alarm: bool,
    /// No room for the part that waits to be flushed.
    pub(crate) out_of_room: bool,
    /// What puts are judged by.
    pub(crate) budget: Budget,
    /// The bytes of disk that files take which will be gone soon: a copy of base, the base before.
    pub(crate) beside_bytes: u64,
    /// The bytes of pages that base has in use, at most.
    pub(crate) in_use: u64,
    /// Base has changed since its pages were counted.
    pub(crate) uncounted: bool,
    /// The bytes of disk that the log takes.
    pub(crate) log_bytes: u64,
    /// The bytes of disk that base takes.
    pub(crate) base_bytes: u64,
    /// About the bytes that it would take if it were rewritten.
    pub(crate) base_bytes_if_rewritten: u64,
    /// The bytes of data in base.
    pub(crate) totals: Totals,
    /// What was written up to here was visited by the sweep.
    pub(crate) swept: Revision,
}

/// One consistent picture of the keyspace at a revision.
#[derive(Debug)]
pub(crate) struct View {
    /// The store's revision when the view was taken.
    pub(crate) current: Revision,
    /// The compacted revision then.
    pub(crate) compacted: Revision,
    /// Where keys are.
    pub(crate) sources: Sources,
}

/// Shared by the callers and the threads of one keyspace.
#[derive(Debug)]
pub(crate) struct Shared {
    head: Mutex<Head>,
    /// Signalled with every frame: the hub waits here.
    published: Condvar,
    /// Signalled when there is work for base, when base has changed, and when the end has come.
    base_changed: Condvar,
    pub(crate) queue: Queue,
    pub(crate) lessor: Lessor,
    pub(crate) counts: Counts,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) meters: Meters,
    /// Who asked for base to be rewritten.
    pub(crate) shrinks: Requests,
    pub(crate) room: Room,
    /// When the maintenance thread works.
    pub(crate) pace: Pace,
    /// Who asked for a step of a scrub.
    pub(crate) scrubs: scrub::Requests,
    base: Mutex<Arc<Base>>,
    failure: OnceLock<Error>,
    failed: Notify,
    stopped: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        head: Head,
        queue: Queue,
        clock: Arc<dyn Clock>,
        meters: Meters,
        room: Room,
        base: Base,
        pace: Pace,
    ) -> Shared {
        Shared {
            head: Mutex::new(head),
            published: Condvar::new(),
            base_changed: Condvar::new(),
            queue,
            lessor: Lessor::default(),
            counts: Counts::default(),
            clock,
            meters,
            shrinks: Requests::default(),
            room,
            pace,
            scrubs: scrub::Requests::default(),
            base: Mutex::new(Arc::new(base)),
            failure: OnceLock::new(),
            failed: Notify::new(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Base as it is named now.
    pub(crate) fn base(&self) -> Arc<Base> {
        self.base.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts a copy of base, at the same position, in its place: views taken from now on read from it. What reads from the old one can go on.
    pub(crate) fn replace_base(&self, copy: Base, snapshot: Arc<Snapshot>) {
        let copy = Arc::new(copy);
        let old = {
            let mut head = self.head();
            head.take_base(snapshot, &copy);
            std::mem::replace(&mut *self.base.lock().unwrap_or_else(PoisonError::into_inner), copy)
        };
        old.refuse_changes();
        if self.failure().is_some() {
            self.base().refuse_changes();
        }
        self.base_changed.notify_all();
    }

    /// The published state, for a moment.
    pub(crate) fn head(&self) -> MutexGuard<'_, Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes what a frame did.
    pub(crate) fn publish_frame(&self, change: impl FnOnce(&mut Head)) {
        let mut head = self.head();
        let compacted = head.compacted;
        change(&mut head);
        let compacts = head.compacted > compacted;
        drop(head);
        self.published.notify_all();
        if compacts {
            self.base_changed.notify_all();
        }
    }

    /// Publishes what happened to parts and base.
    pub(crate) fn publish_base(&self, change: impl FnOnce(&mut Head)) {
        change(&mut self.head());
        self.base_changed.notify_all();
    }

    /// Waits with every frame until `done` answers something.
    pub(crate) fn wait_for_frame<T>(&self, done: impl FnMut(&Head) -> Option<T>) -> T {
        self.wait(&self.published, done)
    }

    /// Waits with every change of parts and base until `done` answers something.
    pub(crate) fn wait_for_base<T>(&self, done: impl FnMut(&Head) -> Option<T>) -> T {
        self.wait(&self.base_changed, done)
    }

    /// The same, but at most for so long.
    pub(crate) fn wait_for_base_at_most<T>(
        &self,
        patience: Duration,
        mut done: impl FnMut(&Head) -> Option<T>,
    ) -> Option<T> {
        let head = self.head();
        if let Some(result) = done(&head) {
            return Some(result);
        }
        let (head, _) = self.base_changed.wait_timeout(head, patience).unwrap_or_else(PoisonError::into_inner);
        done(&head)
    }

    fn wait<T>(&self, signal: &Condvar, mut done: impl FnMut(&Head) -> Option<T>) -> T {
        let mut head = self.head();
        loop {
            if let Some(result) = done(&head) {
                return result;
            }
            head = signal.wait(head).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until `patience` is over or a part has to be flushed or the end has come.
    pub(crate) fn rest(&self, patience: Duration) {
        let head = self.head();
        let busy = |head: &mut Head| head.sources.frozen.is_none() && self.over().is_none();
        drop(self.base_changed.wait_timeout_while(head, patience, busy));
    }

    /// Makes those who wait look again.
    pub(crate) fn nudge(&self) {
        // Taking the lock orders this after a waiter's look at its condition.
        drop(self.head());
        self.published.notify_all();
        self.base_changed.notify_all();
    }

    /// The newest view. Errors: what ended the keyspace does not hinder reading what was published.
    pub(crate) fn view(&self) -> View {
        let head = self.head();
        View { current: head.revision, compacted: head.compacted, sources: head.sources.clone() }
    }

    /// A view for reading at a revision. Errors: `Compacted`, `Future`.
    pub(crate) fn view_at(&self, at: At) -> Result<View, Error> {
        let view = self.view();
        check_at(at, view.compacted, view.current)?;
        Ok(view)
    }

    /// A view for a request, and what is known of the count that it needs, if it needs one at the current revision. Errors: `Compacted`, `Future`.
    pub(crate) fn view_for(&self, request: &RangeRequest) -> Result<(View, Option<Question>), Error> {
        let span = request.counts_unread_keys().then(|| bounds(&request.range)).flatten();
        let mut head = self.head();
        let (current, compacted) = (head.revision, head.compacted);
        check_at(request.at, compacted, current)?;
        let newest = place(request.at, RevisionPair::MAX).main >= current;
        let question = span.filter(|_| newest).map(|(start, end)| {
            let answer = head.tallies.ask(&start, end.as_ref());
            Question { start, end, answer }
        });
        Ok((View { current, compacted, sources: head.sources.clone() }, question))
    }

    /// Keeps what a view was found to hold.
    pub(crate) fn settle(&self, question: &Question, counted: Option<i64>) {
        if let Answer::Count(ticket) = question.answer {
            self.head().tallies.settle(&question.start, question.end.as_ref(), ticket, counted);
        }
    }

    /// Ends the keyspace: the first error counts. Writes are refused from now on, what was published stays readable.
    pub(crate) fn fail(&self, error: Error) {
        if self.failure.set(error).is_ok() {
            self.base().refuse_changes();
        }
        self.queue.end(End::Abrupt);
        self.lessor.end();
        self.nudge();
        self.failed.notify_waiters();
    }

    /// A thread panicked: it has broken a promise, and whatever it was doing is left as it is.
    pub(crate) fn panicked(&self, thread: &str) {
        self.base().keep_for_good();
        self.fail(Error::Io { doing: "run".into(), reason: format!("the {thread} thread panicked") });
    }

    /// The committer is gone: nothing changes any more but what the maintenance thread still brings to base.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.lessor.end();
        self.nudge();
    }

    /// Why nothing more will happen, if so.
    pub(crate) fn over(&self) -> Option<Error> {
        self.failure().or_else(|| self.stopped.load(Ordering::Acquire).then_some(Error::Stopped))
    }

    /// What ended the keyspace, if something did.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.get().cloned()
    }

    /// Waits until something ends the keyspace.
    pub(crate) async fn failed(&self) -> Error {
        loop {
            let notified = self.failed.notified();
            if let Some(error) = self.failure() {
                return error;
            }
            notified.await;
        }
    }
}

impl Head {
    /// What is published when a keyspace opens, before anything is replayed.
    pub(crate) fn new(state: &State, member: MemberId, sources: Sources, log_bytes: u64, base: &Base) -> Head {
        let mut head = Head {
            revision: Revision::FIRST,
            compacted: Revision(-1),
            position: Position(0),
            digest: Digest::default(),
            sources,
            tallies: Tallies::default(),
            alarms: Vec::new(),
            alarms_asked_for: Vec::new(),
            out_of_room_alarm: false,
            out_of_room: false,
            budget: Budget::default(),
            beside_bytes: 0,
            in_use: base.in_use_bytes(),
            uncounted: true,
            log_bytes,
            base_bytes: base.size_bytes(),
            base_bytes_if_rewritten: base.bytes_if_rewritten(),
            totals: base.totals(),
            swept: base.swept(),
        };
        head.take_over(state, member);
        head
    }

    /// Publishes the numbers of a state.
    pub(crate) fn take_over(&mut self, state: &State, member: MemberId) {
        self.revision = state.applied.revision;
        self.compacted = state.applied.compacted;
        self.position = state.applied.position;
        self.digest = state.applied.digest;
        self.alarms = state.alarms();
        self.alarms_asked_for = state.alarms_asked_for();
        self.out_of_room_alarm = state.is_out_of_room(member);
    }

    /// Publishes a commit of base.
    pub(crate) fn take_base(&mut self, snapshot: Arc<Snapshot>, base: &Base) {
        self.sources.base = snapshot;
        self.base_bytes = base.size_bytes();
        self.base_bytes_if_rewritten = base.bytes_if_rewritten();
        self.totals = base.totals();
        self.swept = base.swept();
        self.in_use = base.in_use_bytes();
        self.uncounted = true;
    }

    /// Publishes what was learnt of the pages in use.
    pub(crate) fn learn(&mut self, base: &Base) {
        self.in_use = base.in_use_bytes();
        self.uncounted = false;
    }

    /// True if the sweep has something to visit: it never passes what is in base.
    pub(crate) fn sweep_is_due(&self) -> bool {
        self.swept < self.compacted.min(self.sources.base.applied().revision)
    }

    /// The bytes of keys and values, in base and on the way there.
    pub(crate) fn data_bytes(&self) -> u64 {
        let parts = std::iter::once(&self.sources.active).chain(&self.sources.frozen);
        let recent: u64 = parts.map(|part| part.read().weight as u64).sum();
        self.totals.live_bytes + self.totals.dead_bytes + recent
    }

    /// Starts a new part; the one so far is on its way to base. The part must have been sealed.
    pub(crate) fn freeze(&mut self) {
        let next = Arc::new(Part::default());
        self.sources.frozen = Some(std::mem::replace(&mut self.sources.active, next));
    }
}
