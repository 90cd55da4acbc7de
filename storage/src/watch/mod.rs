//! Watching: streams of events, in order, complete, resumable.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::change::Change;
use crate::error::Error;
use crate::request::KeyRange;
use crate::types::{Revision, WatchId};

mod catch_up;
mod delivery;
pub(crate) mod hub;
mod items;
mod stream;
mod tree;

pub use stream::WatchStream;

/// A change as it is delivered, shared by all watches that get it.
#[derive(Debug)]
pub struct Event {
    /// The change.
    pub change: Arc<Change>,
    /// The key before the revision of the change; only for watches that ask for it, absent for a create.
    pub prev: Option<Arc<Change>>,
    /// Room for the edge to keep the event's encoding, made once.
    pub wire: OnceLock<Bytes>,
}

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// With the next change.
    Now,
    /// With the changes of this revision; past, present or future.
    Revision(i64),
}

/// What to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSpec {
    /// The keys.
    pub range: KeyRange,
    /// From where.
    pub start: StartAt,
    /// Leave out puts.
    pub no_put: bool,
    /// Leave out deletions.
    pub no_delete: bool,
    /// Deliver what the key was before.
    pub prev_kv: bool,
    /// Take part in periodic progress (`WatchStream::tick`).
    pub progress_notify: bool,
    /// The id; `None` lets the stream choose the lowest from 0 that is free.
    pub id: Option<WatchId>,
}

impl WatchSpec {
    /// Every change of a range from now on.
    pub fn new(range: KeyRange) -> WatchSpec {
        WatchSpec {
            range,
            start: StartAt::Now,
            no_put: false,
            no_delete: false,
            prev_kv: false,
            progress_notify: false,
            id: None,
        }
    }

    /// True if the filters let the change through.
    pub(crate) fn passes(&self, change: &Change) -> bool {
        if change.is_tombstone() { !self.no_delete } else { !self.no_put }
    }
}

/// What a stream of watches delivers, in order.
#[derive(Clone, Debug)]
pub enum WatchMessage {
    /// A watch exists; nothing of it came before.
    Created {
        /// Its id.
        id: WatchId,
        /// The store's revision.
        revision: Revision,
    },
    /// A watch was refused; the stream goes on.
    Refused {
        /// Why: `WatchRangeEmpty`, `WatchIdTaken` or `WatchStartNegative`.
        error: Error,
        /// The store's revision.
        revision: Revision,
    },
    /// Changes, whole revisions, in order.
    Events {
        /// The watch.
        id: WatchId,
        /// No change up to this revision follows for this watch.
        revision: Revision,
        /// The changes; one list for all watches that get the same.
        events: Arc<[Arc<Event>]>,
    },
    /// No change up to this revision follows, for one watch or (`None`) for all of the stream.
    Progress {
        /// The watch.
        id: Option<WatchId>,
        /// The revision.
        revision: Revision,
    },
    /// A watch ended because it was asked to.
    Canceled {
        /// The watch.
        id: WatchId,
        /// The store's revision.
        revision: Revision,
    },
    /// A watch ended because what it still had to deliver was compacted away.
    Compacted {
        /// The watch.
        id: WatchId,
        /// The lowest revision that can be watched from.
        floor: Revision,
    },
    /// The keyspace ended; nothing follows.
    Ended,
}

impl WatchMessage {
    /// The events in it.
    pub(crate) fn events(&self) -> u64 {
        if let WatchMessage::Events { events, .. } = self { events.len() as u64 } else { 0 }
    }

    /// The memory a message takes while it waits, in bytes.
    pub(crate) fn weight(&self) -> usize {
        if let WatchMessage::Events { events, .. } = self { weight(events) } else { SMALL }
    }
}

/// What every message takes, in bytes.
const SMALL: usize = 64;

/// The memory that a message with these events takes while it waits, in bytes.
fn weight(events: &[Arc<Event>]) -> usize {
    let one = |event: &Arc<Event>| event.change.weight() + event.prev.as_ref().map_or(0, |prev| prev.weight());
    SMALL + events.iter().map(one).sum::<usize>()
}
