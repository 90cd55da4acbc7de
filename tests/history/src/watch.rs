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
    /// Its start.
    start: i64,
    /// The last revision delivered, and the highest progress.
    delivered: i64,
    progress: i64,
}

pub(crate) fn check(context: &Context<'_>, index: usize, watch: &Watch) -> Result<(), Violation> {
    let (span, start) = (&watch.span, watch.start);
    let name = format!("watch {index} of {span:?} from {start}");
    let mut reader = Reader { context, watch, name, next: 0, floor: 0, start: 0, delivered: 0, progress: 0 };
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

impl Reader<'_> {
    fn created(&mut self, revision: i64) -> Result<(), Violation> {
        self.start = if self.watch.start > 0 { self.watch.start } else { revision + 1 };
        self.floor = self.start;
        self.next = self.context.journal.place(self.start).start;
        // Somebody knew of a later revision before the watch was asked for.
        if let Some((first, witness)) = self.context.seen.first(revision + 1)
            && first.order < self.watch.call.order
        {
            broken!(Stale, "{}: created at {revision}, {witness:?} was told more at {first:?}", self.name);
        }
        Ok(())
    }

    fn matches(&self, event: &Event) -> bool {
        let filtered = if event.kv.is_some() { self.watch.no_put } else { self.watch.no_delete };
        !filtered && self.watch.span.contains(&event.key)
    }

    /// The next change that must be delivered.
    fn expected(&mut self) -> Option<usize> {
        let events = self.context.journal.events;
        while self.next < events.len() && !self.matches(&events[self.next]) {
            self.next += 1;
        }
        (self.next < events.len()).then_some(self.next)
    }

    fn events(&mut self, moment: Moment, header: i64, events: &[Event]) -> Result<(), Violation> {
        let before = self.delivered;
        for event in events {
            self.order(before, event)?;
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

    /// What can be said of an event without looking at the change itself.
    fn order(&self, before: i64, event: &Event) -> Result<(), Violation> {
        let (name, revision) = (&self.name, event.revision);
        if !self.matches(event) {
            broken!(WatchFilter, "{name}: {event:?}");
        }
        if revision < self.start {
            broken!(WatchFirst, "{name}: starts at {}: {event:?}", self.start);
        }
        if self.progress > 0 && revision <= self.progress {
            broken!(WatchBookmark, "{name}: progress was {}: {event:?}", self.progress);
        }
        let known = self.context.journal.place(revision);
        let known = known.start + self.context.journal.at(revision).iter().take_while(|one| one.key != event.key).count()
            ..known.end;
        if known.is_empty() {
            broken!(WatchContent, "{name}: the journal has no {event:?}");
        }
        if known.start < self.next {
            let fresh = revision >= self.delivered;
            match () {
                () if fresh && revision == before && before == self.delivered => {
                    broken!(WatchUnique, "{name}: again {event:?}")
                }
                () if fresh => broken!(WatchUnique, "{name}: twice or out of order within {revision}: {event:?}"),
                () => broken!(WatchOrder, "{name}: {} came before {event:?}", self.delivered),
            }
        }
        Ok(())
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
        if revision < self.progress || revision < self.delivered {
            broken!(WatchBookmark, "{}: progress {revision} after {}", self.name, self.progress.max(self.delivered));
        }
        if let Some(index) = self.expected() {
            let due = &self.context.journal.events[index];
            if due.revision <= revision {
                broken!(WatchProgress, "{}: progress {revision} before {due:?}", self.name);
            }
        }
        self.progress = revision;
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
