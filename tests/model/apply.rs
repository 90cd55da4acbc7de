//! How the model answers a request: check, run, say what to expect.

use super::expected::Expected;
use super::op::{Refusal, Request, header};
use super::state::Model;
use super::static_checks;
use super::wire::*;
use super::wire_more::*;

impl Model {
    /// Runs a request and says what its answer is.
    pub fn apply(&mut self, request: &Request) -> Result<Expected, Refusal> {
        match request {
            Request::Range(request) => self.range(request),
            Request::RangeStream(request) => self.range_stream(request),
            Request::Put(request) => self.put(request),
            Request::DeleteRange(request) => self.delete_range(request),
            Request::Txn(request) => {
                static_checks::txn(request)?;
                self.txn(request)
            }
            Request::Compact(request) => self.compact(request.revision),
            Request::Grant(request) => self.grant(request),
            Request::Revoke(id) => self.revoke(*id),
            Request::KeepAlive(id) => Ok(self.keep_alive(*id)),
            Request::TimeToLive(request) => Ok(self.time_to_live(request)),
            Request::Leases => {
                Ok(Expected::Leases { revision: self.revision, ids: self.leases.keys().copied().collect() })
            }
        }
    }

    fn range(&self, request: &RangeRequest) -> Result<Expected, Refusal> {
        static_checks::range(request)?;
        self.check_revision(request.revision)?;
        Ok(Expected::Range(self.read(request)))
    }

    fn range_stream(&mut self, request: &RangeRequest) -> Result<Expected, Refusal> {
        static_checks::range(request)?;
        if !matches!((request.sort_order, request.sort_target), (0, _) | (1, 0)) {
            return Err(Refusal::StreamSort);
        }
        let bounds = [
            request.min_mod_revision,
            request.max_mod_revision,
            request.min_create_revision,
            request.max_create_revision,
        ];
        if bounds.iter().any(|bound| *bound != 0) {
            return Err(Refusal::StreamFilter);
        }
        // Without an order, but with something to sort by, each chunk is sorted by itself, and chunks are as large as they are.
        self.undefined |= request.sort_target != 0;
        self.range(request)
    }

    fn put(&mut self, request: &PutRequest) -> Result<Expected, Refusal> {
        static_checks::put(request)?;
        self.check_put(request)?;
        let reply = self.run_put(request);
        self.commit();
        Ok(Expected::Put(reply))
    }

    fn delete_range(&mut self, request: &DeleteRangeRequest) -> Result<Expected, Refusal> {
        static_checks::provided(&request.key)?;
        let reply = self.run_delete(request);
        self.commit();
        Ok(Expected::DeleteRange(reply))
    }

    fn compact(&mut self, revision: i64) -> Result<Expected, Refusal> {
        if revision <= self.compacted {
            return Err(Refusal::Compacted);
        }
        if revision > self.revision {
            return Err(Refusal::Future);
        }
        self.compacted = revision;
        Ok(Expected::Done(self.revision))
    }

    /// Grants a lease; the id 0 is replaced by the one that the store chose before the model is asked.
    fn grant(&mut self, request: &LeaseGrantRequest) -> Result<Expected, Refusal> {
        if request.ttl > Model::MAX_TTL {
            return Err(Refusal::LeaseTtlTooLarge);
        }
        if self.leases.contains_key(&request.id) {
            return Err(Refusal::LeaseExists);
        }
        let ttl = request.ttl.max(Model::MIN_TTL);
        self.leases.insert(request.id, ttl);
        Ok(Expected::Grant(LeaseGrantResponse { header: header(self.revision), id: request.id, ttl }))
    }

    /// Revokes a lease: its keys are deleted in key order, at one revision.
    fn revoke(&mut self, id: i64) -> Result<Expected, Refusal> {
        if !self.leases.contains_key(&id) {
            return Err(Refusal::LeaseNotFound);
        }
        for key in self.attached(id) {
            self.delete_record(&key);
        }
        self.leases.remove(&id);
        Ok(Expected::Done(self.commit()))
    }

    fn keep_alive(&self, id: i64) -> Expected {
        let ttl = self.leases.get(&id).copied().unwrap_or(0);
        Expected::KeepAlive(LeaseKeepAliveResponse { header: header(self.revision), id, ttl })
    }

    fn time_to_live(&self, request: &LeaseTimeToLiveRequest) -> Expected {
        let mut reply =
            LeaseTimeToLiveResponse { header: header(self.revision), id: request.id, ttl: -1, ..Default::default() };
        if let Some(ttl) = self.leases.get(&request.id) {
            reply.ttl = *ttl;
            reply.granted_ttl = *ttl;
            reply.keys = if request.keys { self.attached(request.id) } else { Vec::new() };
        }
        Expected::TimeToLive(reply)
    }
}
