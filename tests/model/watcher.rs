//! One watch as the model sees it: what it must still get, and whether a message is the right one.

use super::coverage::Coverage;
use super::expected::same;
use super::state::Model;
use super::wire::{Blob, Event};
use super::wire_more::{WatchCreate, WatchResponse};

/// What differs between implementations that are all right.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The revision on a message of events promises that nothing up to it follows.
    pub revisions_are_promises: bool,
    /// Of several changes of a key in the compacted revision only the last may be left.
    pub floor_keeps_last_alone: bool,
    /// A key that is changed twice in one revision may end the server once that revision is compacted.
    pub breaks_on_two_changes_of_a_key: bool,
}

/// A watch and how far it got.
#[derive(Clone, Debug)]
pub struct Watcher {
    pub spec: WatchCreate,
    key: Blob,
    /// The revision from which on everything is still to come.
    pub next: i64,
    /// The watch had everything at some point, or started with it: compaction cannot pass what it already had.
    synced: bool,
    /// The watch was opened for a revision that did not exist yet.
    pub future: bool,
    /// The watch was ended by compaction; its id stays taken until it is canceled.
    pub compacted: bool,
}

impl Watcher {
    /// A watch that was created at a revision.
    pub fn new(spec: WatchCreate, current: i64) -> Watcher {
        let key = if spec.key.is_empty() { vec![0] } else { spec.key.clone() };
        let next = if spec.start_revision == 0 { current + 1 } else { spec.start_revision };
        let future = spec.start_revision > current;
        Watcher { key, next, synced: spec.start_revision == 0 || future, future, compacted: false, spec }
    }

    /// The events still to come, a list per revision, as far as the model has them.
    pub fn outstanding(&self, model: &Model) -> Vec<(i64, Vec<Event>)> {
        if self.compacted {
            return Vec::new();
        }
        let mut all = model.events(&self.key, &self.spec.range_end, self.next);
        for (_, events) in &mut all {
            events.retain(|event| !self.spec.filters.contains(&event.r#type));
            if !self.spec.prev_kv {
                events.iter_mut().for_each(|event| event.prev_kv = None);
            }
        }
        all.retain(|(_, events)| !events.is_empty());
        all
    }

    /// True if the watch waits for a revision that does not exist yet.
    pub fn waits(&self, model: &Model) -> bool {
        !self.compacted && self.next > model.revision + 1
    }

    /// Takes the events of a message.
    pub fn take(
        &mut self,
        model: &Model,
        got: &WatchResponse,
        rules: Rules,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        same("compacted", &false, &self.compacted)?;
        let header = got.header.as_ref().map_or(0, |header| header.revision);
        let mut expected = self.outstanding(model).into_iter();
        let mut events = got.events.as_slice();
        while let Some(first) = events.first() {
            let (revision, mut group) = expected.next().ok_or_else(|| format!("nothing is to come, got {first:?}"))?;
            if revision <= model.compacted && rules.floor_keeps_last_alone && !starts_with(events, &group) {
                keep_last_of_each_key(&mut group);
            }
            if events.len() < group.len() {
                return Err(format!("revision {revision} is split: expected {group:?}\n     got {events:?}"));
            }
            let (these, rest) = events.split_at(group.len());
            for (expected, event) in group.iter().zip(these) {
                check_event(expected, event, model.compacted)?;
            }
            coverage.note_if(same_key_twice(these), "watch: several versions of a key");
            let deletion = these.iter().any(|event| event.r#type == 1);
            coverage
                .note_if(deletion && revision == model.compacted, "compaction: watch from the floor sees the deletion");
            self.next = revision + 1;
            events = rest;
        }
        if header < self.next - 1 || header > model.revision {
            return Err(format!(
                "revision {header} on events up to {}, the store is at {}",
                self.next - 1,
                model.revision
            ));
        }
        if rules.revisions_are_promises {
            self.promised(model, header)?;
        }
        coverage.note("watch: events");
        Ok(())
    }

    /// Takes a promise that nothing up to `revision` follows.
    pub fn promised(&mut self, model: &Model, revision: i64) -> Result<(), String> {
        match self.outstanding(model).first() {
            Some((due, events)) if *due <= revision => {
                Err(format!("{revision} is promised, {due} is still due: {events:?}"))
            }
            _ => {
                self.next = self.next.max(revision + 1);
                Ok(())
            }
        }
    }

    /// Takes the end by compaction.
    pub fn overtaken(&mut self, model: &Model, got: &WatchResponse) -> Result<(), String> {
        let revision = got.header.as_ref().map(|header| header.revision);
        same("revision", &Some(0), &revision)?;
        same("reason", &"", &got.cancel_reason.as_str())?;
        let floor = got.compact_revision;
        let behind = self.outstanding(model).first().is_some_and(|(due, _)| *due < floor);
        let possible = self.next < floor && floor <= model.compacted && (behind || !self.synced);
        self.compacted = true;
        if possible {
            Ok(())
        } else {
            Err(format!("ended by compaction at {floor}, but was at {}, compacted {}", self.next, model.compacted))
        }
    }

    /// The watch was seen to have everything.
    pub fn caught_up(&mut self) {
        self.synced = true;
    }
}

/// What a key was before may be missing where it cannot be read any more.
fn check_event(expected: &Event, got: &Event, floor: i64) -> Result<(), String> {
    let at = expected.kv.as_ref().map_or(0, |kv| kv.mod_revision);
    if got.prev_kv.is_none() && at - 1 < floor {
        let without = Event { prev_kv: None, ..expected.clone() };
        return same("event", &without, got);
    }
    same("event", expected, got)
}

fn starts_with(events: &[Event], group: &[Event]) -> bool {
    let same = |(event, expected): (&Event, &Event)| event.kv == expected.kv;
    events.len() >= group.len() && events.iter().zip(group).all(same)
}

fn keep_last_of_each_key(group: &mut Vec<Event>) {
    let all = group.clone();
    let mut index = 0;
    group.retain(|event| {
        index += 1;
        !all[index..].iter().any(|later| key(later) == key(event))
    });
}

fn key(event: &Event) -> Option<&Blob> {
    event.kv.as_ref().map(|kv| &kv.key)
}

fn same_key_twice(events: &[Event]) -> bool {
    events.iter().enumerate().any(|(index, event)| events[..index].iter().any(|other| key(other) == key(event)))
}
