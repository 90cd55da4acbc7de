//! Watches: each is compared with the journal, message by message.

use crate::check::Options;
use crate::compaction::Marks;
use crate::journal::Journal;
use crate::time::Seen;
use crate::types::*;
use crate::violation::{Violation, broken};

/// What watches are held against.
pub(crate) struct Context<'a> {
    pub(crate) history: &'a History,
    pub(crate) journal: &'a Journal<'a>,
    pub(crate) prevs: &'a [Option<KeyValue>],
    pub(crate) marks: &'a Marks,
    pub(crate) options: &'a Options,
    pub(crate) seen: &'a Seen,
}

/// Where a watch stands.
struct Reader<'a> {
    context: &'a Context<'a>,
    watch: &'a Watch,
    name: String,
    /// The number in the journal of the next change that may be delivered.
    next: usize,
    /// No change below this revision follows.
    floor: i64,
    /// The last revision delivered.
    delivered: i64,
}

pub(crate) fn check(context: &Context<'_>, index: usize, watch: &Watch) -> Result<(), Violation> {
    let (span, start) = (&watch.span, watch.start);
    let name = format!("watch {index} of {span:?} from {start}");
    sequence(watch, &name)?;
    let mut reader = Reader { context, watch, name, next: 0, floor: 0, delivered: 0 };
    let mut over = false;
    for (position, (moment, told)) in watch.told.iter().enumerate() {
        if over {
            broken!(WatchCanceled, "{}: something follows its end: {told:?}", reader.name);
        }
        match told {
            Told::Created(revision) if position == 0 => reader.created(*revision)?,
            Told::Created(_) => broken!(WatchUnique, "{}: created twice", reader.name),
            _ if position == 0 => broken!(WatchFirst, "{}: {told:?} comes before it was created", reader.name),
            Told::Events(header, events) => reader.events(*moment, *header, events)?,
            Told::Progress(revision) => reader.progress(*revision)?,
            Told::Compacted(floor) => {
                over = true;
                reader.compacted(*moment, *floor)?;
            }
            Told::Canceled if watch.cancel_asked => over = true,
            Told::Canceled => broken!(WatchCanceled, "{}: nobody asked for its end", reader.name),
        }
    }
    Ok(())
}

impl Watch {
    /// The first revision that is delivered, for a watch created at a revision.
    fn first(&self, created: i64) -> i64 {
        if self.start > 0 { self.start } else { created + 1 }
    }

    fn matches(&self, event: &Event) -> bool {
        let filtered = if event.kv.is_some() { self.no_put } else { self.no_delete };
        !filtered && self.span.contains(&event.key)
    }
}

/// What can be said of a watch's messages without the journal.
fn sequence(watch: &Watch, name: &str) -> Result<(), Violation> {
    let (mut start, mut delivered, mut progress, mut keys) = (0, 0, 0, Vec::new());
    for (_, told) in &watch.told {
        match told {
            Told::Created(revision) => start = watch.first(*revision),
            Told::Progress(revision) if *revision < progress || *revision < delivered => {
                broken!(WatchBookmark, "{name}: progress {revision} after {}", progress.max(delivered))
            }
            Told::Progress(revision) => progress = *revision,
            Told::Events(_, events) => {
                let before = delivered;
                for event in events {
                    let revision = event.revision;
                    if !watch.matches(event) {
                        broken!(WatchFilter, "{name}: {event:?}");
                    }
                    if revision < start {
                        broken!(WatchFirst, "{name}: it starts at {start}: {event:?}");
                    }
                    if progress > 0 && revision <= progress {
                        broken!(WatchBookmark, "{name}: progress was {progress}: {event:?}");
                    }
                    if revision < delivered {
                        broken!(WatchOrder, "{name}: after {delivered}: {event:?}");
                    }
                    if revision > delivered {
                        keys.clear();
                        delivered = revision;
                    } else if keys.contains(&&event.key) {
                        broken!(WatchUnique, "{name}: again {event:?}");
                    } else if revision == before {
                        broken!(WatchAtomic, "{name}: {revision} began in an earlier message: {event:?}");
                    }
                    keys.push(&event.key);
                }
            }
            Told::Compacted(_) | Told::Canceled => {}
        }
    }
    Ok(())
}

impl Reader<'_> {
    fn created(&mut self, revision: i64) -> Result<(), Violation> {
        self.floor = self.watch.first(revision);
        self.next = self.context.journal.place(self.floor).start;
        // Somebody knew of a later revision before the watch was asked for.
        if let Some((first, witness)) = self.context.seen.first(revision + 1)
            && first.order < self.watch.call.order
        {
            broken!(Stale, "{}: created at {revision}, {witness:?} was told more at {first:?}", self.name);
        }
        Ok(())
    }

    /// The next change that must be delivered.
    fn expected(&mut self) -> Option<usize> {
        let events = self.context.journal.events;
        while self.next < events.len() && !self.watch.matches(&events[self.next]) {
            self.next += 1;
        }
        (self.next < events.len()).then_some(self.next)
    }

    fn events(&mut self, moment: Moment, header: i64, events: &[Event]) -> Result<(), Violation> {
        for event in events {
            self.event(moment, event)?;
            self.delivered = event.revision;
        }
        if header < self.delivered {
            broken!(WatchOrder, "{}: header {header} with revision {}", self.name, self.delivered);
        }
        let (delivered, journal) = (self.delivered, self.context.journal);
        match self.expected() {
            Some(index) if !events.is_empty() && journal.events[index].revision == delivered => {
                broken!(WatchAtomic, "{}: revision {delivered} comes without {:?}", self.name, journal.events[index])
            }
            _ => Ok(()),
        }
    }

    fn event(&mut self, moment: Moment, event: &Event) -> Result<(), Violation> {
        let Some(index) = self.expected() else { broken!(WatchContent, "{}: {event:?}", self.name) };
        let due = &self.context.journal.events[index];
        if (due.revision, &due.key) != (event.revision, &event.key) {
            if self.delivered == 0 {
                broken!(WatchFirst, "{}: the first is {due:?}, not {event:?}", self.name);
            }
            if due.revision == event.revision || due.revision == self.delivered {
                broken!(WatchAtomic, "{}: {due:?} is missing before {event:?}", self.name);
            }
            broken!(WatchReliable, "{}: {due:?} is missing before {event:?}", self.name);
        }
        if due.kv != event.kv {
            broken!(WatchContent, "{}: {event:?} was {due:?}", self.name);
        }
        let prev = &self.context.prevs[index];
        let gone = !self.context.options.prev_kv_always
            && self.context.marks.possible(moment.order) >= event.revision
            && event.prev.is_none();
        let right = if self.watch.prev_kv { event.prev == *prev || gone } else { event.prev.is_none() };
        if !right {
            broken!(WatchPrevKv, "{}: {event:?}; before it was {prev:?}", self.name);
        }
        self.next = index + 1;
        self.floor = event.revision + 1;
        Ok(())
    }

    fn progress(&mut self, revision: i64) -> Result<(), Violation> {
        if let Some(index) = self.expected() {
            let due = &self.context.journal.events[index];
            if due.revision <= revision {
                broken!(WatchProgress, "{}: progress {revision} before {due:?}", self.name);
            }
        }
        self.floor = self.floor.max(revision + 1);
        Ok(())
    }

    fn compacted(&self, moment: Moment, floor: i64) -> Result<(), Violation> {
        if !self.context.marks.asked(self.context.history, floor, moment.order) {
            broken!(WatchCompacted, "{}: nobody compacted to {floor} before {moment:?}", self.name);
        }
        if self.floor >= floor {
            broken!(WatchCompacted, "{}: all below {} was delivered, {floor} was compacted", self.name, self.floor);
        }
        Ok(())
    }
}
