//! The hub: it knows all watches, and delivers each published change to those that wait for it.
//!
//! Everything up to the hub's own revision is in the queues. A watch never gets an event below its `next`; one that falls behind reads
//! what is stored instead, at its consumer's pace, and rejoins under the hub's lock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use crate::change::Change;
use crate::engine::shared::{Shared, View};
use crate::error::Error;
use crate::metrics::Watches;
use crate::read::{Found, Sources};
use crate::request::{KeyRange, RangeEnd};
use crate::types::{Revision, RevisionPair, WatchId};
use crate::watch::Event;
use crate::watch::stream::Inlet;
use crate::watch::tree::RangeTree;

/// Changes taken from what is stored in one step, in bytes; a revision is never split.
pub(super) const STEP_BYTES: usize = 512 << 10;

/// What the hub knows of a watch without asking its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Watcher {
    pub(super) stream: u64,
    pub(super) id: WatchId,
    pub(super) prev_kv: bool,
}

/// All watches of a keyspace.
#[derive(Debug)]
pub(crate) struct Hub {
    inner: Mutex<HubInner>,
    /// `reached` and `ended`, for those who only look or wait.
    reached: watch::Sender<(Revision, bool)>,
    pub(super) queue_bytes: usize,
}

#[derive(Debug)]
pub(super) struct HubInner {
    /// Everything up to here is in the queues.
    pub(super) reached: Revision,
    pub(super) streams: HashMap<u64, Arc<Inlet>>,
    pub(super) next_stream: u64,
    by_key: HashMap<Bytes, Vec<Watcher>>,
    by_range: RangeTree<Watcher>,
    pub(super) ended: bool,
}

impl Hub {
    pub(crate) fn new(reached: Revision, queue_bytes: usize) -> Hub {
        let inner = HubInner {
            reached,
            streams: HashMap::new(),
            next_stream: 0,
            by_key: HashMap::new(),
            by_range: RangeTree::default(),
            ended: false,
        };
        Hub { inner: Mutex::new(inner), reached: watch::Sender::new((reached, false)), queue_bytes }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, HubInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The revision up to which everything is in the queues.
    pub(crate) fn reached(&self) -> Revision {
        self.reached.borrow().0
    }

    /// Waits until everything up to `revision` is in the queues; an ended hub keeps nobody waiting.
    pub(crate) async fn wait_for(&self, revision: Revision) {
        let mut reached = self.reached.subscribe();
        // The sender lives as long as the hub, so this cannot fail.
        drop(reached.wait_for(|(reached, ended)| *ended || *reached >= revision).await);
    }

    /// All streams with their watches, at about one moment.
    pub(crate) fn watches(&self) -> Watches {
        // Cloned, so that nothing is delivered late because somebody counts.
        let streams: Vec<Arc<Inlet>> = self.lock().streams.values().cloned().collect();
        streams.iter().map(|stream| stream.watches()).fold(Watches::default(), |all, one| Watches {
            streams: all.streams + one.streams,
            watches: all.watches + one.watches,
            behind: all.behind + one.behind,
            events_queued: all.events_queued + one.events_queued,
        })
    }

    /// Ends all streams.
    pub(crate) fn end(&self) {
        let mut inner = self.lock();
        inner.ended = true;
        let reached = inner.reached;
        self.advance(&mut inner, reached);
        inner.streams.values().for_each(|stream| stream.end());
    }

    /// Delivers what is published, until `ended`.
    pub(crate) fn run(&self, shared: &Shared, ended: &dyn Fn() -> bool) {
        loop {
            let reached = self.reached();
            let go_on = shared.wait_for_frame(|head| {
                if ended() || shared.failure().is_some() {
                    return Some(false);
                }
                (head.revision > reached).then_some(true)
            });
            if !go_on {
                return self.end();
            }
            if let Err(error) = self.deliver(shared) {
                shared.fail(error);
                return self.end();
            }
            shared.nudge();
        }
    }

    /// Takes one step of published changes to the queues.
    fn deliver(&self, shared: &Shared) -> Result<(), Error> {
        failpoint!(HubStep, Err);
        let view = shared.view();
        let from = self.reached().next();
        if view.compacted > from {
            // What lies between is gone; whoever still needed it learns so when it catches up.
            self.skip_to(view.compacted);
            return Ok(());
        }
        let changes = view.sources.changes(from, view.current, small!(STEP_BYTES, 1))?;
        // Revisions without a change can only come from a restore that jumped ahead.
        let last = changes.last().map_or(view.current, |change| change.at.main);
        let mut previous = self.previous(&view, &changes)?;
        let mut inner = self.lock();
        let mut start = 0;
        while let Some(first) = changes.get(start) {
            let len = changes.iter().skip(start).take_while(|change| change.at.main == first.at.main).count();
            let revision = changes.get(start..start + len).unwrap_or_default();
            failpoint!(HubRevision, Err);
            if planted!(DropLastEvent) && start + len == changes.len() {
                inner.deliver_revision(revision.split_last().map_or(&[], |(_, rest)| rest), &mut previous, &view)?;
            } else if planted!(SplitRevision) {
                revision.chunks(1).try_for_each(|one| inner.deliver_revision(one, &mut previous, &view))?;
            } else {
                inner.deliver_revision(revision, &mut previous, &view)?;
            }
            start += len;
        }
        self.advance(&mut inner, last);
        inner.settle_progress();
        Ok(())
    }

    /// What the keys were before, for the changes that a watch with `prev_kv` waits for; read without the lock.
    fn previous(&self, view: &View, changes: &[Arc<Change>]) -> Result<Previous, Error> {
        let mut wanted = HashSet::new();
        {
            let inner = self.lock();
            for change in changes {
                let mut wants = false;
                inner.matching(&change.key, &mut |watcher| {
                    wants = wants || (watcher.prev_kv && inner.is_live(watcher));
                });
                if wants {
                    wanted.insert(change.at);
                }
            }
        }
        let mut previous = Previous::default();
        for change in changes.iter().filter(|change| wanted.contains(&change.at)) {
            let mut makers = Makers::default();
            makers.with_previous(change, view)?;
            previous.0.insert(change.at, makers);
        }
        Ok(previous)
    }

    fn skip_to(&self, compacted: Revision) {
        let mut inner = self.lock();
        let next = inner.reached.next();
        inner.streams.values().for_each(|stream| stream.all_behind(next));
        self.advance(&mut inner, Revision(compacted.0 - 1));
    }

    fn advance(&self, inner: &mut HubInner, reached: Revision) {
        inner.reached = reached;
        self.reached.send_replace((reached, inner.ended));
    }
}

/// Events made ahead, with what the key was before.
#[derive(Debug, Default)]
struct Previous(HashMap<RevisionPair, Makers>);

impl HubInner {
    pub(super) fn register(&mut self, range: &KeyRange, watcher: Watcher) {
        match &range.end {
            RangeEnd::SingleKey => self.by_key.entry(range.start.bytes().clone()).or_default().push(watcher),
            _ => self.by_range.insert(range, watcher),
        }
    }

    pub(super) fn unregister(&mut self, range: &KeyRange, watcher: Watcher) {
        if range.end != RangeEnd::SingleKey {
            return self.by_range.remove(range, &watcher);
        }
        let key = range.start.bytes();
        if let Some(watchers) = self.by_key.get_mut(key) {
            watchers.retain(|other| *other != watcher);
            if watchers.is_empty() {
                self.by_key.remove(key);
            }
        }
    }

    fn matching(&self, key: &Bytes, visit: &mut dyn FnMut(&Watcher)) {
        self.by_key.get(key).into_iter().flatten().for_each(&mut *visit);
        self.by_range.stab(key, visit);
    }

    fn is_live(&self, watcher: &Watcher) -> bool {
        self.streams.get(&watcher.stream).is_some_and(|stream| stream.is_live(watcher.id))
    }

    /// All changes of one revision: each watch gets its share in one message.
    fn deliver_revision(&self, changes: &[Arc<Change>], previous: &mut Previous, view: &View) -> Result<(), Error> {
        let mut shares: BTreeMap<Watcher, Vec<Arc<Event>>> = BTreeMap::new();
        let mut order: Vec<Watcher> = Vec::new();
        for change in changes {
            let mut makers = previous.0.remove(&change.at).unwrap_or_default();
            let mut watchers: Vec<(Watcher, bool)> = Vec::new();
            self.matching(&change.key, &mut |watcher| {
                let stream = self.streams.get(&watcher.stream);
                if let Some(prev_kv) = stream.and_then(|stream| stream.takes(watcher.id, change)) {
                    watchers.push((*watcher, prev_kv));
                }
            });
            for (watcher, prev_kv) in watchers {
                let event = if prev_kv { makers.with_previous(change, view)? } else { makers.plain(change) };
                shares.entry(watcher).or_insert_with(|| {
                    order.push(watcher);
                    Vec::new()
                });
                shares.entry(watcher).and_modify(|share| share.push(event));
            }
        }
        let Some(revision) = changes.first().map(|change| change.at.main) else { return Ok(()) };
        for watcher in order {
            if let (Some(stream), Some(events)) = (self.streams.get(&watcher.stream), shares.remove(&watcher)) {
                stream.push_events(watcher.id, revision, events);
            }
        }
        Ok(())
    }

    fn settle_progress(&self) {
        self.streams.values().for_each(|stream| stream.settle_progress(self.reached));
    }
}

/// The events of one change, made at most once each.
#[derive(Debug, Default)]
pub(super) struct Makers {
    plain: Option<Arc<Event>>,
    with_previous: Option<Arc<Event>>,
}

impl Makers {
    pub(super) fn plain(&mut self, change: &Arc<Change>) -> Arc<Event> {
        self.plain.get_or_insert_with(|| event(change, None)).clone()
    }

    pub(super) fn with_previous(&mut self, change: &Arc<Change>, view: &View) -> Result<Arc<Event>, Error> {
        if let Some(event) = &self.with_previous {
            return Ok(event.clone());
        }
        let prev = before(&view.sources, view.compacted, change)?;
        Ok(self.with_previous.insert(event(change, prev)).clone())
    }
}

fn event(change: &Arc<Change>, prev: Option<Arc<Change>>) -> Arc<Event> {
    Arc::new(Event { change: change.clone(), prev, wire: OnceLock::new() })
}

/// The key as it was at the revision before the change; `None` for a create, and if that revision was compacted away.
fn before(sources: &Sources, compacted: Revision, change: &Change) -> Result<Option<Arc<Change>>, Error> {
    let main = Revision(change.at.main.0 - 1);
    let main = if planted!(PrevKvAtFloor) { main.max(compacted) } else { main };
    if main < compacted || creates(change) {
        return Ok(None);
    }
    match sources.get_live(&change.key, RevisionPair::last_of(main))? {
        None => Ok(None),
        Some(Found::Recent(change)) => Ok(Some(change)),
        Some(found) => {
            let kv = sources.key_value(&found)?;
            let kind = crate::change::ChangeKind::Put {
                create: Revision(kv.create_revision),
                version: kv.version,
                lease: kv.lease,
                value: kv.value,
            };
            Ok(Some(Arc::new(Change { key: kv.key, at: found.place(), kind })))
        }
    }
}

fn creates(change: &Change) -> bool {
    matches!(change.kind, crate::change::ChangeKind::Put { create, .. } if create == change.at.main)
}
