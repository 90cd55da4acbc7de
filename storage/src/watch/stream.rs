//! A stream of watches: its watches, and its bounded queue of messages.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::engine::shared::Shared;
use crate::error::Error;
use crate::metrics::Watches;
use crate::types::{Revision, WatchId};
use crate::watch::delivery::{Share, Shares};
use crate::watch::hub::{Hub, Watcher};
use crate::watch::{StartAt, WatchMessage, WatchSpec};

/// One watch of a stream.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) spec: WatchSpec,
    /// No event below this revision is delivered any more, or ever.
    pub(super) next: Revision,
    /// It reads what is stored; the hub passes it over.
    pub(super) behind: bool,
    /// What it still had to read is gone: it gets nothing any more, but its id is taken until it is cancelled.
    pub(super) dead: bool,
    /// An event was queued since the last tick.
    active: bool,
    /// Tells this watch from an earlier one with the same id.
    pub(super) serial: u64,
}

/// What the hub sees of a stream.
#[derive(Debug)]
pub(crate) struct Inlet {
    pub(super) number: u64,
    inner: Mutex<StreamInner>,
    notify: Notify,
    wake: Condvar,
    limit_bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct StreamInner {
    pub(super) watches: BTreeMap<WatchId, Watch>,
    queue: VecDeque<WatchMessage>,
    queued_bytes: usize,
    /// Callers of `recv` that sleep.
    sleeping: usize,
    next_id: i64,
    /// A progress request that the hub answers when it gets there.
    pending_progress: Option<Revision>,
    pub(super) behind: usize,
    created: u64,
    /// Steps of catching up begun, and the watch that the last step of every second one was made for.
    pub(super) steps: u64,
    pub(super) served: u64,
    pub(super) ended: bool,
}

/// Watches that share one ordered stream of messages.
#[derive(Debug)]
pub struct WatchStream {
    pub(crate) inlet: Arc<Inlet>,
    pub(super) hub: Arc<Hub>,
    pub(super) shared: Arc<Shared>,
}

impl Inlet {
    pub(super) fn lock(&self) -> MutexGuard<'_, StreamInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, inner: &StreamInner) {
        self.notify();
        self.wake_sleeping(inner);
    }

    /// Wakes the task that waits in `changed`.
    pub(super) fn notify(&self) {
        self.notify.notify_one();
    }

    /// Wakes threads in `recv`; a system call only if there are any.
    fn wake_sleeping(&self, inner: &StreamInner) {
        if inner.sleeping > 0 {
            self.wake.notify_all();
        }
    }

    /// Queues a message; its reader is woken. Nothing follows the end.
    pub(super) fn push(&self, inner: &mut StreamInner, message: WatchMessage) {
        if inner.ended {
            return;
        }
        inner.queued_bytes += message.weight();
        inner.queue.push_back(message);
        self.wake(inner);
    }

    /// Callers of `recv` that sleep.
    #[cfg(test)]
    pub(crate) fn sleeping(&self) -> usize {
        self.lock().sleeping
    }

    /// As what the hub knows a watch of this stream.
    fn watcher(&self, id: WatchId, spec: &WatchSpec) -> Watcher {
        Watcher { stream: self.number, id, prev_kv: spec.prev_kv }
    }

    /// What it adds to the watches of a keyspace.
    pub(super) fn watches(&self) -> Watches {
        let inner = self.lock();
        Watches {
            streams: 1,
            watches: inner.watches.len() as u64,
            behind: inner.behind as u64,
            events_queued: inner.queue.iter().map(WatchMessage::events).sum(),
        }
    }

    /// True if the watch may be delivered to.
    pub(super) fn is_live(&self, id: WatchId) -> bool {
        self.lock().watches.get(&id).is_some_and(|watch| !watch.behind && !watch.dead)
    }

    /// Queues one revision's events for watches of the stream; from where the queue is full they fall behind instead.
    /// The caller wakes the stream (`notify`).
    pub(super) fn deliver(
        &self,
        revision: Revision,
        hits: &[(Watcher, usize)],
        shares: &mut Shares<'_>,
    ) -> Result<(), Error> {
        let inner = &mut *self.lock();
        for (Watcher { id, .. }, group) in hits {
            let takes = |watch: &&mut Watch| !watch.behind && !watch.dead && revision >= watch.next;
            let Some(watch) = inner.watches.get_mut(id).filter(takes) else { continue };
            let Some(Share { events, weight }) = shares.of(*group, &watch.spec)? else { continue };
            let full = !inner.queue.is_empty() && inner.queued_bytes + weight > self.limit_bytes;
            if full && planted!(FullQueueDrops) {
                continue;
            }
            if full {
                inner.behind += usize::from(watch.fall_behind(revision));
                continue;
            }
            watch.mark_active();
            inner.queued_bytes += weight;
            inner.queue.push_back(WatchMessage::Events { id: *id, revision, events: events.clone() });
        }
        self.wake_sleeping(inner);
        Ok(())
    }

    /// Nothing below `next` was missed so far, but from there on everything has to be read.
    pub(super) fn all_behind(&self, next: Revision) {
        let mut inner = self.lock();
        inner.behind += inner.watches.values_mut().filter_map(|watch| watch.fall_behind(next).then_some(())).count();
        self.wake(&inner);
    }

    pub(super) fn settle_progress(&self, reached: Revision) {
        let mut inner = self.lock();
        if inner.pending_progress.is_some_and(|wanted| wanted <= reached) {
            inner.pending_progress = None;
            self.answer_progress(&mut inner, reached);
        }
    }

    fn answer_progress(&self, inner: &mut StreamInner, reached: Revision) {
        let behind = |watch: &Watch| watch.behind && !planted!(ProgressTooSoon);
        let waiting = |watch: &Watch| behind(watch) || !watch.started(reached);
        if !inner.watches.is_empty() && !inner.watches.values().any(|watch| !watch.dead && waiting(watch)) {
            self.push_progress(inner, None, reached);
        }
    }

    /// Progress that would wait behind a full queue is worth nothing when it comes: it is left out, and asked for again.
    fn push_progress(&self, inner: &mut StreamInner, id: Option<WatchId>, revision: Revision) {
        if inner.queue.is_empty() || inner.queued_bytes < self.limit_bytes {
            self.push(inner, WatchMessage::Progress { id, revision });
        }
    }

    pub(super) fn end(&self) {
        let mut inner = self.lock();
        self.push(&mut inner, WatchMessage::Ended);
        inner.ended = true;
        inner.behind = 0;
        inner.watches.values_mut().for_each(|watch| (watch.behind, watch.dead) = (false, true));
    }
}

impl Watch {
    /// True once the store has reached the revision that the watch asked to start at, and everything before `next` is queued.
    fn started(&self, reached: Revision) -> bool {
        let asked = match self.spec.start {
            StartAt::Now => 0,
            StartAt::Revision(start) => start,
        };
        asked <= reached.0 && self.next <= reached.next()
    }

    /// From `next` on it reads what is stored; true if it did not before.
    fn fall_behind(&mut self, next: Revision) -> bool {
        if self.behind || self.dead {
            return false;
        }
        self.behind = true;
        self.next = self.next.max(next);
        true
    }

    /// An event was queued: periodic progress pauses for one period.
    pub(super) fn mark_active(&mut self) {
        self.active = true;
    }
}

impl StreamInner {
    fn free_id(&mut self) -> WatchId {
        while self.watches.contains_key(&WatchId(self.next_id)) {
            self.next_id += 1;
        }
        let id = WatchId(self.next_id);
        self.next_id += 1;
        id
    }
}

impl WatchStream {
    pub(crate) fn open(hub: &Arc<Hub>, shared: &Arc<Shared>) -> WatchStream {
        let mut all = hub.lock();
        let number = all.next_stream;
        all.next_stream += 1;
        let inlet = Arc::new(Inlet {
            number,
            inner: Mutex::default(),
            notify: Notify::new(),
            wake: Condvar::new(),
            limit_bytes: hub.queue_bytes,
        });
        all.streams.insert(number, inlet.clone());
        if all.ended {
            inlet.end();
        }
        drop(all);
        WatchStream { inlet, hub: hub.clone(), shared: shared.clone() }
    }

    /// Opens a watch; answered by `Created` or `Refused` on the stream, in the order of the calls.
    pub fn create(&self, spec: WatchSpec) {
        let mut all = self.hub.lock();
        // Read under the hub's lock: nothing above `reached` is delivered between this and the registration.
        let current = self.shared.head().revision;
        let mut inner = self.inlet.lock();
        if inner.ended {
            return;
        }
        if let Some(error) = refusal(&spec, &inner) {
            return self.inlet.push(&mut inner, WatchMessage::Refused { error, revision: current });
        }
        let id = spec.id.unwrap_or_else(|| inner.free_id());
        let next = match spec.start {
            StartAt::Now | StartAt::Revision(0) => current.next(),
            StartAt::Revision(start) => Revision(start),
        };
        failpoint!(WatchCreate);
        let next = if planted!(WatchFromStore) && next > all.reached { next.max(current.next()) } else { next };
        let behind = next <= all.reached;
        all.register(&spec.range, self.inlet.watcher(id, &spec));
        inner.behind += usize::from(behind);
        inner.created += 1;
        let serial = inner.created;
        inner.watches.insert(id, Watch { spec, next, behind, dead: false, active: false, serial });
        self.inlet.push(&mut inner, WatchMessage::Created { id, revision: current });
    }

    /// Ends a watch; answered by `Canceled` on the stream; an unknown id is ignored.
    pub fn cancel(&self, id: WatchId) {
        let mut all = self.hub.lock();
        let revision = self.shared.head().revision;
        let mut inner = self.inlet.lock();
        if let Some(watch) = inner.watches.remove(&id) {
            all.unregister(&watch.spec.range, self.inlet.watcher(id, &watch.spec));
            inner.behind -= usize::from(watch.behind);
            self.inlet.push(&mut inner, WatchMessage::Canceled { id, revision });
        }
    }

    /// Asks for `Progress { id: None }`; not answered if a watch of the stream is behind or waits for a future revision.
    pub fn request_progress(&self) {
        let all = self.hub.lock();
        let current = self.shared.head().revision;
        let mut inner = self.inlet.lock();
        if planted!(ProgressOfStore) {
            self.inlet.answer_progress(&mut inner, current);
        } else if all.reached >= current {
            self.inlet.answer_progress(&mut inner, all.reached);
        } else {
            inner.pending_progress = Some(current);
        }
    }

    /// One period of `progress_notify` is over: each such watch that had no event since the last call and is not behind gets a `Progress`.
    pub fn tick(&self) {
        let all = self.hub.lock();
        let mut inner = self.inlet.lock();
        let mut due = Vec::new();
        for (id, watch) in &mut inner.watches {
            let idle = !std::mem::take(&mut watch.active);
            if watch.spec.progress_notify && idle && !watch.behind && !watch.dead && watch.started(all.reached) {
                due.push(*id);
            }
        }
        for id in due {
            self.inlet.push_progress(&mut inner, Some(id), all.reached);
        }
    }

    /// Takes what is ready, without waiting and without touching the disk. Empty: call `is_behind`.
    pub fn take(&self) -> Vec<WatchMessage> {
        let mut inner = self.inlet.lock();
        inner.queued_bytes = 0;
        let taken: Vec<WatchMessage> = inner.queue.drain(..).collect();
        drop(inner);
        self.shared.meters.events_taken.add(taken.iter().map(WatchMessage::events).sum());
        taken
    }

    /// True if a watch has to catch up from what is stored: call `catch_up`.
    pub fn is_behind(&self) -> bool {
        self.inlet.lock().behind > 0
    }

    /// Waits until `take` has something or `is_behind` is true; after `Ended` for ever.
    pub async fn changed(&self) {
        loop {
            let notified = self.inlet.notify.notified();
            if self.is_ready() {
                return;
            }
            notified.await;
        }
    }

    /// Waits for messages, catching up when needed; blocks the thread. For callers without a runtime.
    ///
    /// Errors: after `Ended` what ended the keyspace, `Stopped` if it was closed; what damaged or ended base.
    pub fn recv(&self) -> Result<Vec<WatchMessage>, Error> {
        loop {
            let messages = self.take();
            if !messages.is_empty() {
                return Ok(messages);
            }
            if self.is_behind() {
                self.catch_up()?;
                continue;
            }
            let mut inner = self.inlet.lock();
            while inner.queue.is_empty() && inner.behind == 0 {
                if inner.ended {
                    return Err(self.shared.failure().unwrap_or(Error::Stopped));
                }
                inner.sleeping += 1;
                inner = self.inlet.wake.wait(inner).unwrap_or_else(PoisonError::into_inner);
                inner.sleeping -= 1;
            }
        }
    }

    fn is_ready(&self) -> bool {
        let inner = self.inlet.lock();
        !inner.queue.is_empty() || inner.behind > 0
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        let mut all = self.hub.lock();
        all.streams.remove(&self.inlet.number);
        let watches = std::mem::take(&mut self.inlet.lock().watches);
        for (id, watch) in watches {
            all.unregister(&watch.spec.range, self.inlet.watcher(id, &watch.spec));
        }
    }
}

/// What speaks against a watch, in the order in which etcd looks.
fn refusal(spec: &WatchSpec, inner: &StreamInner) -> Option<Error> {
    match spec.start {
        StartAt::Revision(start) if start < 0 => return Some(Error::WatchStartNegative(start)),
        _ => {}
    }
    if spec.range.is_empty() {
        return Some(Error::WatchRangeEmpty);
    }
    spec.id.filter(|id| inner.watches.contains_key(id)).map(Error::WatchIdTaken)
}
