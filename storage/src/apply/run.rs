//! One request's changes: each takes the next sub-revision of one new revision.

use bytes::Bytes;

use crate::apply::{Outcome, Reply, State};
use crate::change::{Change, ChangeKind};
use crate::error::Error;
use crate::read::range::RangeReader;
use crate::read::{Found, Sources};
use crate::reply::{DeleteRangeReply, KeyValue, PutReply};
use crate::request::{DeleteRange, KeyRange, Put, PutLease, PutValue};
use crate::types::{LeaseId, Revision, RevisionPair};

/// A request that is being carried out, after all its checks have passed.
pub(super) struct Run<'a> {
    pub(super) sources: &'a Sources,
    /// The revision before the request.
    pub(super) base: Revision,
    /// The changes made so far.
    subs: i64,
}

impl<'a> Run<'a> {
    pub(super) fn new(sources: &'a Sources, base: Revision) -> Run<'a> {
        Run { sources, base, subs: 0 }
    }

    /// The revision that a read within the request sees.
    pub(super) fn revision(&self) -> Revision {
        if self.subs > 0 { self.base.next() } else { self.base }
    }

    fn place(&mut self) -> RevisionPair {
        failpoint!(Change);
        let place = RevisionPair { main: self.base.next(), sub: self.subs };
        self.subs += 1;
        place
    }

    pub(super) fn current(&self, key: &[u8]) -> Result<Option<Found>, Error> {
        self.sources.get_live(key, RevisionPair::MAX)
    }

    /// Writes a key. The checks have established what the put needs, except within a transaction that deletes the key first.
    pub(super) fn put(&mut self, put: &Put) -> Result<PutReply, Error> {
        let before = self.current(put.key.bytes())?;
        let old = before.as_ref().map(Found::without_value).unwrap_or_default();
        let keeps = put.value == PutValue::Keep;
        let prev_kv = match &before {
            Some(found) if put.prev_kv || keeps => Some(self.sources.key_value(found)?),
            _ => None,
        };
        let value = match &put.value {
            // Copied, so that a small key or value never holds a large request in memory.
            PutValue::Set(value) => Bytes::copy_from_slice(value),
            PutValue::Keep => prev_kv.as_ref().map(|kv| kv.value.clone()).unwrap_or_default(),
        };
        let lease = match put.lease {
            PutLease::Detach => 0,
            PutLease::Attach(id) => id.0,
            PutLease::Keep => old.lease,
        };
        let key = before.as_ref().map_or_else(|| Bytes::copy_from_slice(put.key.bytes()), |found| found.key().clone());
        let at = self.place();
        let create = if before.is_some() { Revision(old.create_revision) } else { at.main };
        let kind = ChangeKind::Put { create, version: old.version + 1, lease, value };
        self.reattach(&key, old.lease, lease);
        self.sources.active.write().push(Change { key, at, kind });
        Ok(PutReply { revision: at.main, prev_kv: prev_kv.filter(|_| put.prev_kv) })
    }

    /// Deletes every key of a range, in key order.
    pub(super) fn delete_range(&mut self, delete: &DeleteRange) -> Result<DeleteRangeReply, Error> {
        let doomed = self.living(&delete.range)?;
        let prev_kvs = if delete.prev_kv { self.sources.key_values(&doomed)? } else { Vec::new() };
        let deleted = i64::try_from(doomed.len()).unwrap_or(i64::MAX);
        for found in &doomed {
            self.delete(found);
        }
        Ok(DeleteRangeReply { revision: self.revision(), deleted, prev_kvs })
    }

    /// Deletes one key, known to exist.
    pub(super) fn delete(&mut self, found: &Found) {
        let KeyValue { key, lease, .. } = found.without_value();
        let at = self.place();
        self.reattach(&key, lease, 0);
        self.sources.active.write().push(Change { key, at, kind: ChangeKind::Tombstone });
    }

    fn living(&self, range: &KeyRange) -> Result<Vec<Found>, Error> {
        let mut living = Vec::new();
        self.reader(RevisionPair::MAX).visit(range, &mut |found| {
            living.push(found);
            Ok(true)
        })?;
        Ok(living)
    }

    /// A reader of the state as the request has made it so far.
    pub(super) fn reader(&self, at: RevisionPair) -> RangeReader<'a> {
        RangeReader { sources: self.sources, at, current: self.revision(), counts: None, known: None }
    }

    fn reattach(&self, key: &Bytes, old: i64, new: i64) {
        if old == new {
            return;
        }
        let mut active = self.sources.active.write();
        if old != 0 && !planted!(LeaseKeepsKey) {
            active.set_lease_key(LeaseId(old), key, false);
        }
        if new != 0 {
            active.set_lease_key(LeaseId(new), key, true);
        }
    }
}

impl State {
    pub(super) fn put(&mut self, sources: &Sources, put: &Put) -> Outcome {
        let mut run = Run::new(sources, self.applied.revision);
        self.check_put(&run, put)?;
        let reply = run.put(put)?;
        self.applied.revision = run.revision();
        Ok(Reply::Put(reply))
    }

    /// What a put needs of the state before the request: its lease, then its key.
    pub(super) fn check_put(&self, run: &Run<'_>, put: &Put) -> Result<(), Error> {
        if let PutLease::Attach(id) = put.lease
            && !self.leases.contains_key(&id)
        {
            return Err(Error::LeaseNotFound(id));
        }
        let keeps = put.value == PutValue::Keep || put.lease == PutLease::Keep;
        if keeps && run.current(put.key.bytes())?.is_none() {
            return Err(Error::KeyNotFound);
        }
        Ok(())
    }

    pub(super) fn delete_range(&mut self, sources: &Sources, delete: &DeleteRange) -> Outcome {
        let mut run = Run::new(sources, self.applied.revision);
        let reply = run.delete_range(delete)?;
        self.applied.revision = run.revision();
        Ok(Reply::DeleteRange(reply))
    }
}
