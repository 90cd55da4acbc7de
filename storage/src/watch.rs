//! Watching: streams of events, in order, complete, resumable.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::change::Change;
use crate::error::Error;
use crate::request::KeyRange;
use crate::types::{Revision, WatchId};

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
        /// The changes.
        events: Vec<Arc<Event>>,
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

/// Watches that share one ordered stream of messages.
#[derive(Debug)]
pub struct WatchStream {}

impl WatchStream {
    /// Opens a watch; answered by `Created` or `Refused` on the stream, in the order of the calls.
    pub fn create(&self, _spec: WatchSpec) {
        unimplemented!("written next")
    }
    /// Ends a watch; answered by `Canceled` on the stream; an unknown id is ignored.
    pub fn cancel(&self, _id: WatchId) {
        unimplemented!("written next")
    }
    /// Asks for `Progress { id: None }`; not answered if a watch of the stream is behind or waits for a future revision.
    pub fn request_progress(&self) {
        unimplemented!("written next")
    }
    /// One period of `progress_notify` is over: each such watch that had no event since the last call and is not behind gets a `Progress`.
    pub fn tick(&self) {
        unimplemented!("written next")
    }
    /// Takes what is ready, without waiting and without touching the disk. Empty: call `is_behind`.
    pub fn take(&self) -> Vec<WatchMessage> {
        unimplemented!("written next")
    }
    /// True if a watch has to catch up from what is stored: call `catch_up`.
    pub fn is_behind(&self) -> bool {
        unimplemented!("written next")
    }
    /// Reads one bounded chunk of stored changes for the watches that are behind and queues it. May block on the disk.
    pub fn catch_up(&self) -> Result<(), Error> {
        unimplemented!("written next")
    }
    /// Waits until `take` has something or `is_behind` is true.
    pub async fn changed(&self) {
        unimplemented!("written next")
    }
    /// Waits for messages, catching up when needed; blocks the thread. For callers without a runtime.
    pub fn recv(&self) -> Result<Vec<WatchMessage>, Error> {
        unimplemented!("written next")
    }
}
