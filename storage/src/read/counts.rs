//! How many keys a range holds, remembered where counting again would make a paged list quadratic.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::types::Revision;

/// A range at a revision: from a key to an end (`None`: open).
type Place = (Bytes, Option<Bytes>, Revision);

/// Remembered counts; the oldest goes when the limit is reached.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    known: HashMap<Place, i64>,
    order: VecDeque<Place>,
}

/// Lists that are paged through at the same time; one more counts its rest again.
const LIMIT: usize = 1024;

/// Places of more bytes are not remembered: keys may be as large as a request.
const PLACE_BYTES_MAX: usize = 4 << 10;

impl Counts {
    /// Remembers that [start, end) holds `count` keys at `revision`.
    pub(crate) fn remember(&self, start: Bytes, end: Option<&Bytes>, revision: Revision, count: i64) {
        if start.len() + end.map_or(0, Bytes::len) > PLACE_BYTES_MAX {
            return;
        }
        // Copied, because the key of a request holds all of the request in memory.
        let (start, end) = (Bytes::copy_from_slice(&start), end.map(|end| Bytes::copy_from_slice(end)));
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (start, end, revision);
        if inner.known.insert(place.clone(), count).is_none() {
            inner.order.push_back(place);
        }
        if inner.order.len() > LIMIT
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.known.remove(&oldest);
        }
    }

    /// The count, if it is remembered.
    pub(crate) fn recall(&self, start: &Bytes, end: Option<&Bytes>, revision: Revision) -> Option<i64> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.known.get(&(start.clone(), end.cloned(), revision)).copied()
    }
}
