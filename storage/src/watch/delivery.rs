//! Delivering one revision: each watch gets its share of the changes in one message, watches that take the same share one list, and
//! each stream is locked once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::change::Change;
use crate::engine::shared::View;
use crate::error::Error;
use crate::watch::hub::{HubInner, Makers, Previous, Watcher};
use crate::watch::items::Items;
use crate::watch::stream::Inlet;
use crate::watch::{Event, WatchSpec, weight};

/// Messages queued before streams are woken although more is to be delivered: with few it is cheaper to wake them once.
const WAKE_AFTER: usize = 4096;

/// The streams that something was queued for, still to be woken.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    streams: BTreeMap<u64, Arc<Inlet>>,
    messages: usize,
}

impl Wakes {
    fn add(&mut self, stream: &Arc<Inlet>, messages: usize) {
        self.streams.entry(stream.number).or_insert_with(|| stream.clone());
        self.messages += messages;
    }

    /// Wakes the streams if much was queued for them.
    pub(super) fn wake_if_many(&mut self) {
        if self.messages >= WAKE_AFTER {
            std::mem::take(self).wake();
        }
    }

    pub(super) fn wake(self) {
        self.streams.values().for_each(|stream| stream.notify());
    }
}

/// The changes of the revision that one watched key or range holds.
struct Group<'a> {
    watchers: &'a Items<Watcher>,
    /// By their place in the revision.
    changes: Vec<usize>,
    /// Made when first asked for; by what watches may leave out or want added.
    shares: [Option<Share>; 8],
}

/// The events that watches take which want the same of a group.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) events: Arc<[Arc<Event>]>,
    pub(super) weight: usize,
}

/// All shares of a revision.
pub(super) struct Shares<'a> {
    changes: &'a [Arc<Change>],
    makers: Vec<Makers>,
    view: &'a View,
    groups: Vec<Group<'a>>,
}

impl Shares<'_> {
    /// What a watch of the group takes; perhaps nothing.
    pub(super) fn of(&mut self, group: usize, spec: &WatchSpec) -> Result<Option<&Share>, Error> {
        let kind = usize::from(spec.no_put) | usize::from(spec.no_delete) << 1 | usize::from(spec.prev_kv) << 2;
        let Some(group) = self.groups.get_mut(group) else { return Ok(None) };
        let Some(share) = group.shares.get_mut(kind) else { return Ok(None) };
        if share.is_none() {
            let mut events = Vec::with_capacity(group.changes.len());
            for number in &group.changes {
                if let (Some(change), Some(makers)) = (self.changes.get(*number), self.makers.get_mut(*number))
                    && spec.passes(change)
                {
                    events.push(makers.make(change, spec.prev_kv, self.view)?);
                }
            }
            *share = Some(Share { weight: weight(&events), events: events.into() });
        }
        Ok(share.as_ref().filter(|share| !share.events.is_empty()))
    }
}

impl HubInner {
    /// All changes of one revision: each watch gets its share in one message. Streams are woken by `wakes`.
    pub(super) fn deliver_revision(
        &self,
        changes: &[Arc<Change>],
        previous: &mut Previous,
        view: &View,
        wakes: &mut Wakes,
    ) -> Result<(), Error> {
        let Some(revision) = changes.first().map(|change| change.at.main) else { return Ok(()) };
        let groups = self.groups(changes);
        let each = |(number, group): (usize, &Group<'_>)| {
            group.watchers.iter().map(|watcher| (*watcher, number)).collect::<Vec<(Watcher, usize)>>()
        };
        let mut hits: Vec<(Watcher, usize)> = groups.iter().enumerate().flat_map(each).collect();
        hits.sort_unstable();
        let makers = changes.iter().map(|change| previous.0.remove(&change.at).unwrap_or_default()).collect();
        let mut shares = Shares { changes, makers, view, groups };
        for hits in hits.chunk_by(|(a, _), (b, _)| a.stream == b.stream) {
            let stream = hits.first().and_then(|(watcher, _)| self.streams.get(&watcher.stream));
            if let Some(stream) = stream {
                stream.deliver(revision, hits, &mut shares)?;
                wakes.add(stream, hits.len());
            }
        }
        wakes.wake_if_many();
        Ok(())
    }

    /// The watched keys and ranges that hold a change, each with its changes in order.
    fn groups(&self, changes: &[Arc<Change>]) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        let mut known: HashMap<*const Items<Watcher>, usize> = HashMap::new();
        for (number, change) in changes.iter().enumerate() {
            self.matching(&change.key, &mut |watchers| {
                let at = *known.entry(std::ptr::from_ref(watchers)).or_insert_with(|| {
                    groups.push(Group { watchers, changes: Vec::new(), shares: Default::default() });
                    groups.len() - 1
                });
                if let Some(group) = groups.get_mut(at) {
                    group.changes.push(number);
                }
            });
        }
        groups
    }
}
