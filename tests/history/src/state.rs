//! A store as a plain map: carries out requests, and can take the last one back.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use crate::types::*;

/// The keys at one revision, and which belong to which lease.
#[derive(Debug, Default)]
pub(crate) struct State {
    keys: BTreeMap<Blob, KeyValue>,
    leases: HashMap<i64, BTreeSet<Blob>>,
}

impl State {
    pub(crate) fn get(&self, key: &[u8]) -> Option<&KeyValue> {
        self.keys.get(key)
    }

    pub(crate) fn span<'a>(&'a self, span: &'a Span) -> impl Iterator<Item = &'a KeyValue> {
        let end = match span.end.as_slice() {
            [] => Bound::Included(span.key.as_slice()),
            [0] => Bound::Unbounded,
            end if end <= span.key.as_slice() => Bound::Excluded(span.key.as_slice()),
            end => Bound::Excluded(end),
        };
        // An empty range begins behind its end, which a map does not take.
        let begin = match end {
            Bound::Excluded(end) if end == span.key.as_slice() => Bound::Included(end),
            _ => Bound::Included(span.key.as_slice()),
        };
        self.keys.range::<[u8], _>((begin, end)).map(|(_, kv)| kv)
    }

    /// The keys of a lease, in order.
    pub(crate) fn of_lease(&self, lease: i64) -> Vec<Blob> {
        self.leases.get(&lease).map(|keys| keys.iter().cloned().collect()).unwrap_or_default()
    }

    /// Leaves a key as given; returns what it was.
    pub(crate) fn set(&mut self, key: &[u8], kv: Option<KeyValue>) -> Option<KeyValue> {
        let lease = kv.as_ref().map_or(0, |kv| kv.lease);
        let before = match kv {
            Some(kv) => self.keys.insert(key.to_vec(), kv),
            None => self.keys.remove(key),
        };
        if let Some(keys) = before.as_ref().and_then(|before| self.leases.get_mut(&before.lease)) {
            keys.remove(key);
        }
        if lease != 0 {
            self.leases.entry(lease).or_default().insert(key.to_vec());
        }
        before
    }

    pub(crate) fn range(&self, range: &Range) -> Body {
        let all: Vec<&KeyValue> = self.span(&range.span).collect();
        let count = all.len() as i64;
        let shown = if range.count_only {
            0
        } else if range.limit > 0 {
            all.len().min(range.limit as usize)
        } else {
            all.len()
        };
        let plain = |kv: &&KeyValue| KeyValue { value: Blob::new(), lease: 0, ..(*kv).clone() };
        let kvs = all[..shown].iter().map(|kv| if range.keys_only { plain(kv) } else { (*kv).clone() }).collect();
        Body::Range { kvs, count, more: !range.count_only && shown < all.len() }
    }

    fn holds(&self, compare: &Compare) -> bool {
        let kv = self.get(&compare.key);
        match &compare.target {
            Target::Mod(revision) => kv.map_or(0, |kv| kv.mod_revision) == *revision,
            Target::Create(revision) => kv.map_or(0, |kv| kv.create_revision) == *revision,
            Target::Version(version) => kv.map_or(0, |kv| kv.version) == *version,
            Target::Value(value) => kv.is_some_and(|kv| kv.value == *value),
            Target::Lease(lease) => kv.map_or(0, |kv| kv.lease) == *lease,
        }
    }

    fn put(&mut self, put: &Put, revision: i64, events: &mut Vec<Event>) -> Body {
        let before = self.get(&put.key);
        let (create_revision, version) = before.map_or((revision, 1), |kv| (kv.create_revision, kv.version + 1));
        let (key, value) = (put.key.clone(), put.value.clone());
        let kv = KeyValue { key, value, create_revision, mod_revision: revision, version, lease: put.lease };
        let prev = self.set(&put.key, Some(kv.clone()));
        let reply = prev.clone().filter(|_| put.prev_kv);
        events.push(Event { revision, key: put.key.clone(), kv: Some(kv), prev });
        Body::Put(reply)
    }

    fn delete_keys(&mut self, keys: Vec<Blob>, revision: i64, events: &mut Vec<Event>) -> Vec<KeyValue> {
        let gone = keys.into_iter().filter_map(|key| {
            let prev = self.set(&key, None);
            events.push(Event { revision, key, kv: None, prev: prev.clone() });
            prev
        });
        gone.collect()
    }

    fn delete(&mut self, delete: &Delete, revision: i64, events: &mut Vec<Event>) -> Body {
        let keys = self.span(&delete.span).map(|kv| kv.key.clone()).collect();
        let gone = self.delete_keys(keys, revision, events);
        Body::Delete(gone.len() as i64, if delete.prev_kv { gone } else { Vec::new() })
    }

    /// Carries out a request at `revision`: what it answers, and what it changes.
    pub(crate) fn execute(&mut self, request: &Request, revision: i64) -> (Body, Vec<Event>) {
        let mut events = Vec::new();
        let body = match request {
            Request::Range(range) => self.range(range),
            Request::Put(put) => self.put(put, revision, &mut events),
            Request::Delete(delete) => self.delete(delete, revision, &mut events),
            Request::Txn(txn) => {
                let succeeded = txn.compares.iter().all(|compare| self.holds(compare));
                let ops = if succeeded { &txn.success } else { &txn.failure };
                let answers = ops.iter().map(|op| match op {
                    Op::Range(range) => self.range(range),
                    Op::Put(put) => self.put(put, revision, &mut events),
                    Op::Delete(delete) => self.delete(delete, revision, &mut events),
                });
                Body::Txn(succeeded, answers.collect())
            }
            Request::Revoke(lease) => {
                let keys = self.of_lease(*lease);
                self.delete_keys(keys, revision, &mut events);
                Body::Done
            }
            Request::Compact(_) => Body::Done,
            Request::Grant(_, ttl) => Body::Lease(*ttl),
            Request::KeepAlive(_) => Body::Lease(0),
        };
        (body, events)
    }

    /// Takes back what `execute` changed.
    pub(crate) fn undo(&mut self, events: Vec<Event>) {
        for event in events.into_iter().rev() {
            self.set(&event.key, event.prev);
        }
    }
}
