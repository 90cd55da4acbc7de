//! One change of one key: what apply yields, recent and base keep, and watches deliver.

use bytes::Bytes;

use crate::reply::KeyValue;
use crate::types::{Revision, RevisionPair};

/// What a change did to its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// A put, with the key's numbers after it.
    Put {
        /// The revision of the put that created the key.
        create: Revision,
        /// The key's version.
        version: i64,
        /// The lease it is attached to; 0 if none.
        lease: i64,
        /// The value.
        value: Bytes,
    },
    /// A deletion.
    Tombstone,
}

/// A change of a key at its place in the total order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Bytes,
    /// When.
    pub at: RevisionPair,
    /// What.
    pub kind: ChangeKind,
}

impl Change {
    /// True for a deletion.
    pub fn is_tombstone(&self) -> bool {
        matches!(self.kind, ChangeKind::Tombstone)
    }

    /// The key as readers see it after this change; `None` for a deletion.
    pub fn key_value(&self) -> Option<KeyValue> {
        match &self.kind {
            ChangeKind::Tombstone => None,
            ChangeKind::Put { create, version, lease, value } => Some(KeyValue {
                key: self.key.clone(),
                create_revision: create.0,
                mod_revision: self.at.main.0,
                version: *version,
                value: value.clone(),
                lease: *lease,
            }),
        }
    }

    /// The memory it takes in `recent`, in bytes, with what the maps need around it.
    pub fn weight(&self) -> usize {
        self.data_bytes() + Change::OVERHEAD
    }

    /// The bytes of its key and its value.
    pub(crate) fn data_bytes(&self) -> usize {
        let value = match &self.kind {
            ChangeKind::Put { value, .. } => value.len(),
            ChangeKind::Tombstone => 0,
        };
        self.key.len() + value
    }

    /// Bookkeeping per change in `recent`, in bytes, rounded up.
    const OVERHEAD: usize = 288;
}
