//! Watch streams of a keyspace in this process, written down for the history checker.

use std::collections::{BTreeMap, VecDeque};

use history::{Event, Moment, Told, Watch};
use storage::{Keyspace, StartAt, WatchId, WatchMessage, WatchSpec, WatchStream};

use super::asking::{key_value, span};

/// A stream and its watches, by their numbers in the record.
pub struct Viewer {
    stream: WatchStream,
    asked: VecDeque<usize>,
    live: BTreeMap<i64, usize>,
}

impl Viewer {
    /// A stream without watches.
    pub fn new(keyspace: &Keyspace) -> Viewer {
        Viewer { stream: keyspace.watch_stream(), asked: VecDeque::new(), live: BTreeMap::new() }
    }

    /// Opens a watch, which is already in the record.
    pub fn create(&mut self, number: usize, watch: &Watch) {
        self.asked.push_back(number);
        self.stream.create(WatchSpec {
            start: if watch.start > 0 { StartAt::Revision(watch.start) } else { StartAt::Now },
            no_put: watch.no_put,
            no_delete: watch.no_delete,
            prev_kv: watch.prev_kv,
            progress_notify: number.is_multiple_of(2),
            ..WatchSpec::new(span(&watch.span))
        });
    }

    /// Asks for the end of the watch with the lowest id; returns its number.
    pub fn cancel(&mut self) -> Option<usize> {
        let (id, number) = self.live.first_key_value()?;
        self.stream.cancel(WatchId(*id));
        Some(*number)
    }

    /// Asks for progress, of all or of those whose period is over.
    pub fn ask_progress(&mut self, of_all: bool) {
        if of_all { self.stream.request_progress() } else { self.stream.tick() }
    }

    /// The watches that there are, or will be.
    pub fn watches(&self) -> usize {
        self.live.len() + self.asked.len()
    }

    /// Writes down what is ready; reads what is stored for a watch that is behind. True if there was anything to do.
    pub fn take(&mut self, record: &mut [Watch], mut now: impl FnMut() -> Moment) -> bool {
        let messages = self.stream.take();
        if messages.is_empty() {
            // A keyspace that lost its disk cannot be read: the watch ends there.
            return self.stream.is_behind() && self.stream.catch_up().is_ok();
        }
        for message in messages {
            let (ids, told) = match message {
                WatchMessage::Created { id, revision } => {
                    self.live.insert(id.0, self.asked.pop_front().expect("it was asked for"));
                    (vec![id.0], Told::Created(revision.0))
                }
                WatchMessage::Refused { error, .. } => panic!("a watch is refused: {error}"),
                WatchMessage::Events { id, revision, events } => {
                    (vec![id.0], Told::Events(revision.0, events.iter().map(|event| self::event(event)).collect()))
                }
                WatchMessage::Progress { id: Some(id), revision } => (vec![id.0], Told::Progress(revision.0)),
                WatchMessage::Progress { id: None, revision } => {
                    (self.live.keys().copied().collect(), Told::Progress(revision.0))
                }
                WatchMessage::Canceled { id, .. } => (vec![id.0], Told::Canceled),
                WatchMessage::Compacted { id, floor } => (vec![id.0], Told::Compacted(floor.0)),
                WatchMessage::Ended => return false,
            };
            for id in ids {
                if let Some(number) = self.live.get(&id) {
                    record[*number].told.push((now(), told.clone()));
                }
                if matches!(told, Told::Compacted(_) | Told::Canceled) {
                    self.live.remove(&id);
                }
            }
        }
        true
    }
}

fn event(event: &storage::Event) -> Event {
    Event {
        revision: event.change.at.main.0,
        key: event.change.key.to_vec(),
        kv: event.change.key_value().map(|kv| key_value(&kv)),
        prev: event.prev.as_ref().and_then(|prev| prev.key_value()).map(|kv| key_value(&kv)),
    }
}
