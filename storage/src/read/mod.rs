//! Reading: recent parts and base merged into one picture of the keys at a revision.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use crate::base::{Kept, Snapshot, Version};
use crate::change::{Change, ChangeKind};
use crate::error::Error;
use crate::recent::{Part, Scanned};
use crate::reply::KeyValue;
use crate::types::{LeaseId, Revision, RevisionPair};

pub(crate) mod counts;
pub(crate) mod listing;
pub(crate) mod range;
pub(crate) mod tally;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;

/// Where keys are read from: the newest part, the one being flushed, and base. A version in an earlier one is newer than any in a later one.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    pub(crate) active: Arc<Part>,
    pub(crate) frozen: Option<Arc<Part>>,
    pub(crate) base: Arc<Snapshot>,
    /// The newest versions of some keys in base, looked up ahead.
    pub(crate) known: Option<Arc<Known>>,
}

/// What base holds of some keys: where the newest version is, and what; `None` for a key that it does not hold.
pub(crate) type Known = HashMap<Bytes, Option<(RevisionPair, Version)>>;

/// The newest version of a key at some revision, its value not yet fetched if it lies in base.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    Recent(Arc<Change>),
    /// In a box: long lists of what was found are moved about.
    Base(Box<InBase>),
}

/// A version of a key in base, and its place.
#[derive(Clone, Debug)]
pub(crate) struct InBase {
    key: Bytes,
    at: RevisionPair,
    version: Version,
}

/// A piece of a range: the versions found, in key order, and the key to go on from.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) found: Vec<Found>,
    pub(crate) next: Option<Bytes>,
}

impl Sources {
    fn parts(&self) -> impl Iterator<Item = &Arc<Part>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    /// The newest version of `key` at or below `at`, tombstones included.
    pub(crate) fn get(&self, key: &[u8], at: RevisionPair) -> Result<Option<Found>, Error> {
        if let Some(change) = self.parts().find_map(|part| part.get(key, at)) {
            return Ok(Some(Found::Recent(change)));
        }
        let known = self.known.as_ref().filter(|_| at == RevisionPair::MAX).and_then(|known| known.get(key));
        let stored = match known {
            Some(known) => known.clone(),
            None => self.base.get(key, at)?,
        };
        Ok(stored.map(|(place, version)| Found::in_base(Bytes::copy_from_slice(key), place, version)))
    }

    /// The key as it is at `at`; `None` if it does not exist there.
    pub(crate) fn get_live(&self, key: &[u8], at: RevisionPair) -> Result<Option<Found>, Error> {
        Ok(self.get(key, at)?.filter(|found| !found.is_tombstone()))
    }

    /// The newest version at or below `at` of each key in [start, end), tombstones included, about `limit` keys of each source.
    pub(crate) fn scan(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        at: RevisionPair,
        limit: usize,
    ) -> Result<Chunk, Error> {
        let mut next: Option<Bytes> = None;
        let mut recent: Vec<Arc<Change>> = Vec::new();
        for part in self.parts() {
            let Scanned { found, horizon } = part.scan(start, end, at, limit);
            recent = if recent.is_empty() { found } else { merged(recent, found) };
            next = earlier(next, horizon.filter(|_| !planted!(HorizonIgnored)));
        }
        // Base is read up to where the parts reach: beyond, a part may hold something newer.
        let end = match (&next, end) {
            (Some(next), _) => Some(next.as_ref()),
            (None, end) => end,
        };
        let (mut visited, mut cut) = (0, None);
        let mut recent = recent.into_iter().peekable();
        let mut found: Vec<Found> = Vec::with_capacity(recent.len());
        let mut visit = |key: Bytes, place, version| {
            if visited == limit {
                cut = Some(key);
                return false;
            }
            visited += 1;
            while let Some(change) = recent.next_if(|change| change.key < key) {
                found.push(Found::Recent(change));
            }
            if recent.peek().is_none_or(|change| change.key != key) {
                found.push(Found::in_base(key, place, version));
            }
            true
        };
        self.base.scan(start, end, at, &mut visit)?;
        found.extend(recent.map(Found::Recent));
        let next = earlier(next, cut);
        if let Some(next) = &next {
            found.truncate(found.partition_point(|found| found.key() < next));
        }
        Ok(Chunk { found, next })
    }

    /// The values of what was found, fetched from `history` in revision order, answered in the order given.
    pub(crate) fn key_values(&self, found: &[Found]) -> Result<Vec<KeyValue>, Error> {
        fetched(&self.base, found)
    }

    /// One key with its value.
    pub(crate) fn key_value(&self, found: &Found) -> Result<KeyValue, Error> {
        let mut kv = found.without_value();
        kv.value = match found.value_in_history() {
            Some(place) => self.base.value(place)?,
            None => found.value_at_hand().cloned().unwrap_or_default(),
        };
        Ok(kv)
    }

    /// The keys attached to a lease after the last change applied, in key order.
    pub(crate) fn lease_keys(&self, lease: LeaseId) -> Result<Vec<Bytes>, Error> {
        let mut attached: BTreeMap<Bytes, bool> = BTreeMap::new();
        for key in self.base.lease_keys(lease)? {
            attached.insert(key, true);
        }
        for part in self.frozen.iter().chain(std::iter::once(&self.active)) {
            attached.extend(part.lease_keys(lease));
        }
        Ok(attached.into_iter().filter(|(_, attached)| *attached).map(|(key, _)| key).collect())
    }

    /// The revision of the newest mark at or before a wall-clock time, in milliseconds.
    pub(crate) fn revision_at(&self, time_ms: u64) -> Result<Option<Revision>, Error> {
        let marked = |part: &Arc<Part>| part.read().marks.range(..=time_ms).next_back().map(|(_, revision)| *revision);
        match self.parts().find_map(marked) {
            Some(revision) => Ok(Some(revision)),
            None => Ok(self.base.mark_at(time_ms)?.map(|(_, revision)| revision)),
        }
    }

    /// Marks behind a time, oldest first, so many at most.
    pub(crate) fn marks(&self, behind: Option<u64>, max: usize) -> Result<Vec<(u64, Revision)>, Error> {
        let mut marks = self.base.marks(behind, max)?;
        for part in self.frozen.iter().chain(std::iter::once(&self.active)) {
            let from = behind.map_or(0, |time_ms| time_ms + 1);
            marks.extend(part.read().marks.range(from..).map(|(time_ms, revision)| (*time_ms, *revision)));
        }
        marks.truncate(max);
        Ok(marks)
    }

    /// Changes in order, whole revisions, `from` to `upto`, about `max_bytes`; from base first, then from the parts.
    pub(crate) fn changes(&self, from: Revision, upto: Revision, max_bytes: usize) -> Result<Vec<Arc<Change>>, Error> {
        let flushed = self.base.applied().revision;
        if from <= flushed {
            let stored = self.base.changes(from, upto.min(flushed), max_bytes)?;
            if !stored.is_empty() {
                return Ok(stored);
            }
        }
        for part in self.frozen.iter().chain(std::iter::once(&self.active)) {
            let changes = part.changes(from, upto, max_bytes);
            if !changes.is_empty() {
                return Ok(changes);
            }
        }
        Ok(Vec::new())
    }
}

impl Sources {
    /// The newest changes before a place, in ascending order, about `max_bytes` of them, one at least if there is one; they may begin within a
    /// revision. From the parts first, then from base.
    pub(crate) fn changes_below(&self, below: RevisionPair, max_bytes: usize) -> Result<Vec<Arc<Change>>, Error> {
        for part in self.parts() {
            let changes = part.changes_below(below, max_bytes);
            if !changes.is_empty() {
                return Ok(changes);
            }
        }
        self.base.changes_below(below, max_bytes)
    }

    /// The versions stored, unreadable ones included.
    pub(crate) fn changes_stored(&self) -> u64 {
        let recent: usize = self.parts().map(|part| part.read().changes.len()).sum();
        self.base.changes_stored() + recent as u64
    }
}

impl Found {
    fn in_base(key: Bytes, at: RevisionPair, version: Version) -> Found {
        Found::Base(Box::new(InBase { key, at, version }))
    }

    pub(crate) fn key(&self) -> &Bytes {
        match self {
            Found::Recent(change) => &change.key,
            Found::Base(found) => &found.key,
        }
    }

    pub(crate) fn place(&self) -> RevisionPair {
        match self {
            Found::Recent(change) => change.at,
            Found::Base(found) => found.at,
        }
    }

    pub(crate) fn is_tombstone(&self) -> bool {
        match self {
            Found::Recent(change) => change.is_tombstone(),
            Found::Base(found) => matches!(found.version, Version::Tombstone),
        }
    }

    /// Everything but the value.
    pub(crate) fn without_value(&self) -> KeyValue {
        let Numbers { create, version, lease, .. } = self.numbers();
        KeyValue {
            key: self.key().clone(),
            create_revision: create.0,
            mod_revision: self.place().main.0,
            version,
            value: Bytes::new(),
            lease,
        }
    }

    /// What a put left behind; nothing of a deletion.
    pub(crate) fn numbers(&self) -> Numbers {
        match self {
            Found::Recent(change) => match &change.kind {
                ChangeKind::Put { create, version, lease, value } => {
                    Numbers { create: *create, version: *version, lease: *lease, value_len: value.len() }
                }
                ChangeKind::Tombstone => Numbers::default(),
            },
            Found::Base(found) => match &found.version {
                Version::Put { create, version, lease, value } => {
                    let value_len = match value {
                        Kept::Inline(value) => value.len(),
                        Kept::History(len) => usize::try_from(*len).unwrap_or(usize::MAX),
                    };
                    Numbers { create: *create, version: *version, lease: *lease, value_len }
                }
                Version::Tombstone => Numbers::default(),
            },
        }
    }

    fn value_in_history(&self) -> Option<RevisionPair> {
        match self {
            Found::Base(found) => match found.version {
                Version::Put { value: Kept::History(_), .. } => Some(found.at),
                _ => None,
            },
            Found::Recent(_) => None,
        }
    }

    /// The value, unless it has to be fetched.
    fn value_at_hand(&self) -> Option<&Bytes> {
        match self {
            Found::Recent(change) => match &change.kind {
                ChangeKind::Put { value, .. } => Some(value),
                ChangeKind::Tombstone => None,
            },
            Found::Base(found) => match &found.version {
                Version::Put { value: Kept::Inline(value), .. } => Some(value),
                _ => None,
            },
        }
    }
}

/// The numbers of a version, and how long its value is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) create: Revision,
    pub(crate) version: i64,
    pub(crate) lease: i64,
    pub(crate) value_len: usize,
}

/// The values of what was found, fetched from `history` in revision order, answered in the order given.
fn fetched(base: &Snapshot, found: &[Found]) -> Result<Vec<KeyValue>, Error> {
    let far: Vec<RevisionPair> = found.iter().filter_map(Found::value_in_history).collect();
    let mut fetched = base.values(&far)?.into_iter();
    let filled = found.iter().map(|found| {
        let value = match found.value_in_history() {
            Some(_) => fetched.next(),
            None => found.value_at_hand().cloned(),
        };
        KeyValue { value: value.unwrap_or_default(), ..found.without_value() }
    });
    Ok(filled.collect())
}

/// The changes of both in key order; of a key that both have that of `newer`.
fn merged(newer: Vec<Arc<Change>>, older: Vec<Arc<Change>>) -> Vec<Arc<Change>> {
    let mut all = Vec::with_capacity(newer.len() + older.len());
    let mut older = older.into_iter().peekable();
    for change in newer {
        while let Some(before) = older.next_if(|before| before.key < change.key) {
            all.push(before);
        }
        older.next_if(|before| before.key == change.key);
        all.push(change);
    }
    all.extend(older);
    all
}

/// The earlier of two keys, where none means the end of the range.
fn earlier(a: Option<Bytes>, b: Option<Bytes>) -> Option<Bytes> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
