//! Which counters a request moves, by what it asks and what it got.

use super::coverage::Coverage;
use super::op::{Outcome, Reply, Request};
use super::state::Model;
use super::wire::*;

impl Coverage {
    /// Counts what a request exercised; `before` is the state that it met.
    pub fn note_request(&mut self, request: &Request, outcome: &Outcome, before: (i64, i64)) {
        let reply = match outcome {
            Err(refusal) => return self.note(refusal.counter()),
            Ok(reply) => reply,
        };
        match (request, reply) {
            (Request::Range(request), Reply::Range(reply)) => self.note_range(request, reply, before.1),
            (Request::RangeStream(_), _) => self.note("range: streamed"),
            (Request::Put(request), Reply::Put(reply)) => self.note_put(request, reply),
            (Request::DeleteRange(request), Reply::DeleteRange(reply)) => self.note_delete(request, reply),
            (Request::Txn(request), Reply::Txn(reply)) => self.note_txn(request, reply, before.0),
            (Request::Compact(request), _) => {
                self.note("compaction");
                self.note_if(request.revision == before.0, "compaction: at the current revision");
            }
            (Request::Grant(request), _) => {
                self.note(if request.id == 0 { "lease: granted by the store" } else { "lease: granted by id" });
                self.note_if(request.ttl < Model::MIN_TTL, "lease: short TTL raised");
            }
            (Request::Revoke(_), Reply::Done(revision)) => {
                let deleted = *revision > before.0;
                self.note(if deleted { "lease: revoked with keys" } else { "lease: revoked without keys" });
            }
            (_, Reply::KeepAlive(reply)) => {
                self.note(if reply.ttl > 0 { "lease: kept alive" } else { "lease: keep-alive unknown" })
            }
            (_, Reply::TimeToLive(reply)) => {
                self.note_if(reply.ttl == -1, "lease: time unknown");
                self.note_if(!reply.keys.is_empty(), "lease: time with keys");
            }
            (_, Reply::Leases(_)) => self.note("lease: list"),
            _ => {}
        }
    }

    fn note_range(&mut self, request: &RangeRequest, reply: &RangeResponse, floor: i64) {
        let end = request.range_end.as_slice();
        self.note(match end {
            [] => "range: one key",
            [0] if request.key == [0] => "range: everything",
            [0] => "range: from a key on",
            _ if end <= request.key.as_slice() => "range: empty interval",
            _ => "range: interval",
        });
        self.note_if(request.revision > 0, "range: at a revision");
        self.note_if(request.revision > 0 && request.revision == floor, "range: at the floor");
        self.note_if(request.revision < 0, "range: negative revision");
        self.note_if(request.limit > 0, "range: limit");
        self.note_if(reply.more, "range: limit cuts");
        self.note_if(request.keys_only, "range: keys only");
        self.note_if(
            request.keys_only && request.sort_target == 4 && !reply.kvs.is_empty(),
            "range: keys only by value",
        );
        self.note_if(request.count_only, "range: count only");
        self.note_if(request.serializable, "range: serializable");
        self.note_if(request.min_mod_revision > 0, "range: min mod");
        self.note_if(request.max_mod_revision > 0, "range: max mod");
        self.note_if(request.min_create_revision > 0, "range: min create");
        self.note_if(request.max_create_revision > 0, "range: max create");
        if reply.kvs.len() > 1 {
            self.note(match request.sort_order {
                0 => "order: none",
                1 => "order: ascending",
                _ => "order: descending",
            });
            let targets = ["target: key", "target: version", "target: create", "target: mod", "target: value"];
            self.note(targets[request.sort_target as usize]);
        }
    }

    fn note_put(&mut self, request: &PutRequest, reply: &PutResponse) {
        self.note_if(request.lease != 0, "put: lease");
        self.note_if(request.prev_kv, "put: previous");
        self.note_if(reply.prev_kv.is_some(), "put: previous there");
        match (request.ignore_value, request.ignore_lease) {
            (true, true) => self.note("put: keep both"),
            (true, false) => self.note("put: keep value"),
            (false, true) => self.note("put: keep lease"),
            (false, false) => {}
        }
    }

    fn note_delete(&mut self, request: &DeleteRangeRequest, reply: &DeleteRangeResponse) {
        self.note(match request.range_end.as_slice() {
            [] => "delete: one key",
            [0] => "delete: from a key on",
            _ => "delete: interval",
        });
        self.note_if(!reply.prev_kvs.is_empty(), "delete: previous");
        self.note_if(reply.deleted == 0, "delete: nothing there");
    }

    fn note_txn(&mut self, request: &TxnRequest, reply: &TxnResponse, before: i64) {
        let nested = |op: &RequestOp| matches!(op.request, Some(TxnOp::Txn(_)));
        let reads = |op: &RequestOp| matches!(op.request, Some(TxnOp::Range(_)));
        let all = || request.success.iter().chain(&request.failure);
        self.note(if reply.succeeded { "txn: succeeded" } else { "txn: failed" });
        self.note_if(all().any(nested), "txn: nested");
        self.note_if(all().count() > 0 && all().all(reads), "txn: reads only");
        self.note_if(all().count() == 0, "txn: empty");
        let unchanged = reply.header.as_ref().is_some_and(|header| header.revision == before);
        self.note_if(unchanged && !all().all(reads), "txn: changes nothing");
        let longest = request.compare.len().max(request.success.len()).max(request.failure.len());
        self.note_if(longest == Model::MAX_TXN_OPS, "txn: list at the limit");
        for op in all() {
            if let Some(TxnOp::Range(range)) = &op.request {
                self.note_if(range.revision > 0, "txn: range at a revision");
                self.note_if(range.revision < 0, "txn: negative revision");
            }
        }
        request.compare.iter().for_each(|compare| self.note_compare(compare));
    }

    fn note_compare(&mut self, compare: &Compare) {
        let targets = ["compare: version", "compare: create", "compare: mod", "compare: value", "compare: lease"];
        self.note(targets.get(compare.target as usize).copied().unwrap_or("compare: unknown target"));
        let results = ["compare: equal", "compare: greater", "compare: less", "compare: not equal"];
        self.note(results.get(compare.result as usize).copied().unwrap_or("compare: unknown result"));
        self.note_if(!compare.range_end.is_empty(), "compare: range");
        let kind = match &compare.union {
            None => return self.note("compare: no union"),
            Some(Union::Version(_)) => 0,
            Some(Union::Create(_)) => 1,
            Some(Union::Mod(_)) => 2,
            Some(Union::Value(_)) => 3,
            Some(Union::Lease(_)) => 4,
        };
        self.note_if(kind != compare.target, "compare: other union");
    }
}
