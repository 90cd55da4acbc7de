//! The model's state: every version of every key, never forgotten, and what is attached to what.

use std::collections::BTreeMap;

use super::op::in_range;
use super::wire::{Blob, Event, KeyValue};

/// A key's numbers and value after a put.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub create: i64,
    pub version: i64,
    pub lease: i64,
    pub value: Blob,
}

/// What a key was from a revision on; `None` is a deletion.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    pub at: i64,
    pub record: Option<Record>,
}

/// A change of one key, in the order in which it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub key: Blob,
    pub version: Version,
}

/// etcd's semantics, slow and plain.
#[derive(Clone, Debug)]
pub struct Model {
    pub keys: BTreeMap<Blob, Vec<Version>>,
    pub history: BTreeMap<i64, Vec<Change>>,
    pub revision: i64,
    pub compacted: i64,
    /// Each lease with the TTL that it was granted.
    pub leases: BTreeMap<i64, i64>,
    /// True once a request was run whose outcome etcd leaves open.
    pub undefined: bool,
    pending: Vec<Change>,
}

impl Model {
    /// The largest list of a transaction.
    pub const MAX_TXN_OPS: usize = 128;
    /// The shortest lease, in seconds.
    pub const MIN_TTL: i64 = 2;
    /// The longest lease, in seconds.
    pub const MAX_TTL: i64 = 9_000_000_000;

    /// An empty store.
    pub fn new() -> Model {
        Model {
            keys: BTreeMap::new(),
            history: BTreeMap::new(),
            revision: 1,
            compacted: -1,
            leases: BTreeMap::new(),
            undefined: false,
            pending: Vec::new(),
        }
    }

    /// The revision as the request that is running sees it.
    pub fn visible_revision(&self) -> i64 {
        self.revision + i64::from(!self.pending.is_empty())
    }

    /// The key at a revision.
    pub fn get(&self, key: &[u8], at: i64) -> Option<KeyValue> {
        let version = self.keys.get(key)?.iter().rev().find(|version| version.at <= at)?;
        key_value(key, version)
    }

    /// The keys of a range at a revision, in key order.
    pub fn scan(&self, start: &[u8], end: &[u8], at: i64) -> Vec<KeyValue> {
        let inside = self.keys.keys().filter(|key| in_range(key, start, end));
        inside.filter_map(|key| self.get(key, at)).collect()
    }

    /// The keys attached to a lease, in key order.
    pub fn attached(&self, lease: i64) -> Vec<Blob> {
        let all = self.scan(&[0], &[0], i64::MAX);
        all.into_iter().filter(|kv| kv.lease == lease).map(|kv| kv.key).collect()
    }

    /// Puts a key within the request that is running.
    pub fn put_record(&mut self, key: &[u8], value: Blob, lease: i64) {
        let at = self.revision + 1;
        let (create, version) = match self.get(key, i64::MAX) {
            Some(kv) => (kv.create_revision, kv.version + 1),
            None => (at, 1),
        };
        self.change(key, Version { at, record: Some(Record { create, version, lease, value }) });
    }

    /// Deletes a key within the request that is running.
    pub fn delete_record(&mut self, key: &[u8]) {
        self.change(key, Version { at: self.revision + 1, record: None });
    }

    fn change(&mut self, key: &[u8], version: Version) {
        self.keys.entry(key.to_vec()).or_default().push(version.clone());
        self.pending.push(Change { key: key.to_vec(), version });
    }

    /// Ends a request: what it changed becomes one revision.
    pub fn commit(&mut self) -> i64 {
        if !self.pending.is_empty() {
            self.revision += 1;
            self.history.insert(self.revision, std::mem::take(&mut self.pending));
        }
        self.revision
    }

    /// The events of a range from a revision on, a list per revision, with what each key was before.
    pub fn events(&self, start: &[u8], end: &[u8], from: i64) -> Vec<(i64, Vec<Event>)> {
        let revisions = self.history.range(from..).map(|(revision, changes)| {
            let inside = changes.iter().filter(|change| in_range(&change.key, start, end));
            (*revision, inside.map(|change| self.event(change)).collect::<Vec<_>>())
        });
        revisions.filter(|(_, events)| !events.is_empty()).collect()
    }

    fn event(&self, change: &Change) -> Event {
        let at = change.version.at;
        match key_value(&change.key, &change.version) {
            Some(kv) if kv.create_revision == at => Event { r#type: 0, kv: Some(kv), prev_kv: None },
            Some(kv) => Event { r#type: 0, kv: Some(kv), prev_kv: self.get(&change.key, at - 1) },
            None => {
                let kv = KeyValue { key: change.key.clone(), mod_revision: at, ..KeyValue::default() };
                Event { r#type: 1, kv: Some(kv), prev_kv: self.get(&change.key, at - 1) }
            }
        }
    }
}

fn key_value(key: &[u8], version: &Version) -> Option<KeyValue> {
    let record = version.record.as_ref()?;
    Some(KeyValue {
        key: key.to_vec(),
        create_revision: record.create,
        mod_revision: version.at,
        version: record.version,
        value: record.value.clone(),
        lease: record.lease,
    })
}
