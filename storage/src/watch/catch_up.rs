//! Catching up: watches that are behind read what is stored, one bounded step at a time.

use std::collections::HashMap;
use std::sync::Arc;

use crate::change::Change;
use crate::engine::shared::View;
use crate::error::Error;
use crate::types::{Revision, WatchId};
use crate::watch::hub::{Makers, STEP_BYTES};
use crate::watch::stream::{StreamInner, Watch, WatchStream};
use crate::watch::{Event, WatchMessage, WatchSpec};

/// A step: the changes, and the revision up to which they are complete.
struct Step {
    changes: Vec<Arc<Change>>,
    upto: Revision,
    /// Everything that the hub had delivered was read.
    complete: bool,
}

impl WatchStream {
    /// Reads one bounded chunk of stored changes for the watches that are behind and queues it, however full the queue is: call it when `take` has
    /// given nothing. May block on the disk.
    ///
    /// Errors: what damaged or ended base.
    pub fn catch_up(&self) -> Result<(), Error> {
        failpoint!(CatchUp, Err);
        let reached = self.hub.reached();
        let view = self.shared.view();
        let Some((from, readers)) = self.begin(view.compacted) else { return Ok(()) };
        let step = read(&view, from, reached)?;
        let mut shares = shares(&view, &step, &readers)?;
        failpoint!(CaughtUp, Err);
        let all = self.hub.lock();
        let mut inner = self.inlet.lock();
        let mut rejoined = 0;
        let mut messages = Vec::new();
        for (id, watch) in inner.watches.iter_mut().filter(|(_, watch)| watch.behind) {
            // A watch that came under the same id meanwhile has not been read for; one that another thread read for has moved on.
            if readers.get(id).is_none_or(|reader| (reader.serial, reader.next) != (watch.serial, watch.next)) {
                continue;
            }
            if let Some(events) = shares.remove(id).filter(|events| !events.is_empty()) {
                watch.mark_active();
                // A later chunk may hold events below the store's revision, so only the last one may carry it.
                messages.push(WatchMessage::Events { id: *id, revision: step.upto, events: events.into() });
            }
            watch.next = watch.next.max(step.upto.next());
            if step.complete && (watch.next > all.reached || planted!(RejoinTooSoon)) {
                watch.behind = false;
                rejoined += 1;
            }
        }
        inner.behind -= rejoined;
        for message in messages {
            self.inlet.push(&mut inner, message);
        }
        Ok(())
    }

    /// Where a step reads, and for whom. Under one lock, so that no watch comes in between whose next revision is gone.
    fn begin(&self, floor: Revision) -> Option<(Revision, HashMap<WatchId, Reader>)> {
        let mut inner = self.inlet.lock();
        self.cut_off(&mut inner, floor);
        let mut readers = inner.readers();
        let from = inner.turn(&readers)?;
        readers.retain(|_, reader| reader.next >= from);
        Some((from, readers))
    }

    /// Ends the watches whose next revision is gone.
    fn cut_off(&self, inner: &mut StreamInner, floor: Revision) {
        let mut dead = Vec::new();
        for (id, watch) in &mut inner.watches {
            if watch.behind && watch.next < floor && !planted!(CompactionUntold) {
                (watch.behind, watch.dead) = (false, true);
                dead.push(*id);
            }
        }
        inner.behind -= dead.len();
        for id in dead {
            self.inlet.push(inner, WatchMessage::Compacted { id, floor });
        }
    }
}

/// A watch that takes part in a step.
struct Reader {
    serial: u64,
    next: Revision,
    spec: WatchSpec,
}

/// Each watch's events of a step.
fn shares(
    view: &View,
    step: &Step,
    readers: &HashMap<WatchId, Reader>,
) -> Result<HashMap<WatchId, Vec<Arc<Event>>>, Error> {
    let mut shares: HashMap<WatchId, Vec<Arc<Event>>> = HashMap::new();
    for change in &step.changes {
        let mut makers = Makers::default();
        let takes = |reader: &Reader| {
            change.at.main >= reader.next && reader.spec.range.contains(&change.key) && reader.spec.passes(change)
        };
        for (id, reader) in readers.iter().filter(|(_, reader)| takes(reader)) {
            shares.entry(*id).or_default().push(makers.make(change, reader.spec.prev_kv, view)?);
        }
    }
    Ok(shares)
}

impl StreamInner {
    /// By turns the place of the watch that is furthest behind, where a step helps all that it meets on its way, and that of each watch: one that has a
    /// long way to go holds up nobody.
    fn turn(&mut self, readers: &HashMap<WatchId, Reader>) -> Option<Revision> {
        self.steps += 1;
        if self.steps % 2 == 1 {
            return readers.values().map(|reader| reader.next).min();
        }
        let after = readers.values().filter(|reader| reader.serial > self.served).min_by_key(|reader| reader.serial);
        let reader = after.or_else(|| readers.values().min_by_key(|reader| reader.serial))?;
        self.served = reader.serial;
        Some(reader.next)
    }

    fn readers(&self) -> HashMap<WatchId, Reader> {
        let behind = self.watches.iter().filter(|(_, watch)| watch.behind);
        let reader = |watch: &Watch| Reader { serial: watch.serial, next: watch.next, spec: watch.spec.clone() };
        behind.map(|(id, watch)| (*id, reader(watch))).collect()
    }
}

fn read(view: &View, from: Revision, reached: Revision) -> Result<Step, Error> {
    let changes = view.sources.changes(from, reached, small!(STEP_BYTES, 1))?;
    let last = changes.last().map(|change| change.at.main);
    Ok(match last {
        Some(last) if last < reached => Step { changes, upto: last, complete: false },
        _ => Step { changes, upto: reached, complete: true },
    })
}
