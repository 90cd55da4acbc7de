//! A range whose keys are known while its values are still where they are stored.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::Snapshot;
use crate::change::{Change, ChangeKind};
use crate::error::Error;
use crate::keyspace::Keyspace;
use crate::read::{Found, fetched};
use crate::reply::{KeyValue, RangeReply};
use crate::request::At;
use crate::types::Revision;

/// A range, read but for its values: they are fetched as they are taken, so that the whole of them is never in memory.
///
/// Until `release` it pins what base was when it was read, and with that pages that could be used again: whoever takes their time must let go.
pub struct Listing {
    /// The store's revision when it was read.
    pub revision: Revision,
    /// True if the limit cut keys off.
    pub more: bool,
    /// The keys in the range, whatever limit and filters say.
    pub count: i64,
    pub(super) found: std::vec::IntoIter<Found>,
    pub(super) values: bool,
    pub(super) leases: bool,
    /// The revision that it was read at.
    pub(super) at: Revision,
    /// Base then, until that is let go.
    pub(super) base: Option<Arc<Snapshot>>,
}

/// A key of a listing, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a Bytes,
    /// The revision of the put that created it.
    pub create_revision: i64,
    /// The revision of its last put.
    pub mod_revision: i64,
    /// 1 when created, one more per put.
    pub version: i64,
    /// The length of the value that comes with it, in bytes; 0 where only keys were asked for.
    pub value_len: usize,
    /// The lease it is attached to; 0 if none, and where only keys were asked for.
    pub lease: i64,
}

impl Listing {
    /// The entries that are not taken yet.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry<'_>> + DoubleEndedIterator {
        self.found.as_slice().iter().map(|found| self.entry(found))
    }

    /// Takes the next entries that have about `max_bytes` of keys and values, one at least if there is one: `each` gets them in order, with their
    /// values, in as many pieces as these are stored in. Blocks on the disk. Errors, with nothing taken: `Io`, `Corrupt`; after `release` `Compacted`.
    pub fn take(
        &mut self,
        keyspace: &Keyspace,
        max_bytes: usize,
        each: &mut dyn FnMut(Entry<'_>, &[&[u8]]),
    ) -> Result<(), Error> {
        let base = match &self.base {
            Some(base) => Arc::clone(base),
            None => keyspace.inner.shared.view_at(At::Revision(self.at.0))?.sources.base,
        };
        let next = self.next(max_bytes);
        let taken = next.len();
        let places: Vec<_> = next.iter().filter(|_| self.values).filter_map(Found::value_in_history).collect();
        let mut pages = base.on_pages(&places)?.into_iter();
        let mut with_values = Vec::with_capacity(next.len());
        for found in next {
            let entry = self.entry(found);
            let page = if self.values && found.value_in_history().is_some() { pages.next() } else { None };
            if page.as_ref().is_some_and(|page| page.value_len() != entry.value_len) {
                let reason = format!("index and history disagree about a length at revision {}", entry.mod_revision);
                return Err(Error::corrupt("history", reason));
            }
            with_values.push((entry, found, page));
        }
        let mut pieces = Vec::new();
        for (entry, found, page) in &with_values {
            pieces.clear();
            match page {
                Some(page) => pieces.extend(page.pieces()),
                None => pieces.extend(found.value_at_hand().filter(|_| self.values).map(AsRef::as_ref)),
            }
            each(*entry, &pieces);
        }
        drop(with_values);
        self.found.by_ref().take(taken).for_each(drop);
        Ok(())
    }

    fn next(&self, max_bytes: usize) -> &[Found] {
        let mut bytes = 0_usize;
        let fits = |entry: &Entry<'_>| {
            bytes = bytes.saturating_add(entry.key.len()).saturating_add(entry.value_len);
            bytes <= max_bytes
        };
        let fitting = self.entries().take_while(fits).count().max(1);
        let all = self.found.as_slice();
        all.get(..fitting).unwrap_or(all)
    }

    /// Lets go of what base was: from here on values come from base as it is then, at the same revision.
    pub fn release(&mut self) {
        self.base = None;
    }

    /// All of it at once.
    pub(crate) fn into_reply(self) -> Result<RangeReply, Error> {
        let Listing { revision, more, count, values, leases, base, found, .. } = self;
        let kvs = match base {
            Some(base) if values => fetched(&base, found.as_slice())?,
            _ => found.as_slice().iter().map(Found::without_value).collect(),
        };
        let kvs = kvs.into_iter().map(|kv| if leases { kv } else { KeyValue { lease: 0, ..kv } }).collect();
        Ok(RangeReply { revision, more, count, kvs })
    }

    fn entry<'a>(&self, found: &'a Found) -> Entry<'a> {
        let numbers = found.numbers();
        Entry {
            key: found.key(),
            create_revision: numbers.create.0,
            mod_revision: found.place().main.0,
            version: numbers.version,
            value_len: if self.values { numbers.value_len } else { 0 },
            lease: if self.leases { numbers.lease } else { 0 },
        }
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.found.len();
        f.debug_struct("Listing").field("revision", &self.revision).field("left", &left).finish_non_exhaustive()
    }
}

/// What was found, with its value: for what is in base as if it had been changed just now.
pub(super) fn loaded(found: &Found, kv: KeyValue) -> Found {
    let KeyValue { key, create_revision, version, value, lease, .. } = kv;
    let kind = ChangeKind::Put { create: Revision(create_revision), version, lease, value };
    Found::Recent(Arc::new(Change { key, at: found.place(), kind }))
}
