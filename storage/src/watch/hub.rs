//! The hub: it knows all watches, and delivers each published change to those that wait for it.
//!
//! Everything up to the hub's own revision is in the queues. A watch never gets an event below its `next`; one that falls behind reads
//! what is stored instead, at its consumer's pace, and rejoins under the hub's lock.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
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
use crate::watch::delivery::Wakes;
use crate::watch::items::Items;
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
    by_key: HashMap<Bytes, Items<Watcher>>,
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
        let mut wakes = Wakes::default();
        let mut inner = self.lock();
        let mut start = 0;
        while let Some(first) = changes.get(start) {
            let len = changes.iter().skip(start).take_while(|change| change.at.main == first.at.main).count();
            let revision = changes.get(start..start + len).unwrap_or_default();
            failpoint!(HubRevision, Err);
            if planted!(DropLastEvent) && start + len == changes.len() {
                let cut = revision.split_last().map_or(&[][..], |(_, rest)| rest);
                inner.deliver_revision(cut, &mut previous, &view, &mut wakes)?;
            } else if planted!(SplitRevision) {
                let mut one = |one| inner.deliver_revision(one, &mut previous, &view, &mut wakes);
                revision.chunks(1).try_for_each(&mut one)?;
            } else {
                inner.deliver_revision(revision, &mut previous, &view, &mut wakes)?;
            }
            start += len;
        }
        self.advance(&mut inner, last);
        inner.settle_progress();
        drop(inner);
        wakes.wake();
        Ok(())
    }

    /// What the keys were before, for the changes that a watch with `prev_kv` waits for; read without the lock.
    fn previous(&self, view: &View, changes: &[Arc<Change>]) -> Result<Previous, Error> {
        let mut wanted = HashSet::new();
        {
            let inner = self.lock();
            for change in changes {
                let mut wants = false;
                inner.matching(&change.key, &mut |watchers| {
                    wants = wants || watchers.iter().any(|watcher| watcher.prev_kv && inner.is_live(watcher));
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
pub(super) struct Previous(pub(super) HashMap<RevisionPair, Makers>);

impl HubInner {
    pub(super) fn register(&mut self, range: &KeyRange, watcher: Watcher) {
        match &range.end {
            RangeEnd::SingleKey => {
                let watchers = self.by_key.entry(range.start.bytes().clone());
                watchers.and_modify(|watchers| watchers.insert(watcher)).or_insert(Items::One(watcher));
            }
            _ => self.by_range.insert(range, watcher),
        }
    }

    pub(super) fn unregister(&mut self, range: &KeyRange, watcher: Watcher) {
        if range.end != RangeEnd::SingleKey {
            return self.by_range.remove(range, &watcher);
        }
        if let Entry::Occupied(mut watchers) = self.by_key.entry(range.start.bytes().clone())
            && watchers.get_mut().remove(&watcher)
        {
            watchers.remove();
        }
    }

    /// Calls `visit` with the watches of the key, and of each range that holds it.
    pub(super) fn matching<'a>(&'a self, key: &Bytes, visit: &mut dyn FnMut(&'a Items<Watcher>)) {
        self.by_key.get(key).into_iter().for_each(&mut *visit);
        self.by_range.stab(key, visit);
    }

    fn is_live(&self, watcher: &Watcher) -> bool {
        self.streams.get(&watcher.stream).is_some_and(|stream| stream.is_live(watcher.id))
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
    pub(super) fn make(&mut self, change: &Arc<Change>, prev_kv: bool, view: &View) -> Result<Arc<Event>, Error> {
        if prev_kv { self.with_previous(change, view) } else { Ok(self.plain(change)) }
    }

    fn plain(&mut self, change: &Arc<Change>) -> Arc<Event> {
        self.plain.get_or_insert_with(|| event(change, None)).clone()
    }

    fn with_previous(&mut self, change: &Arc<Change>, view: &View) -> Result<Arc<Event>, Error> {
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
