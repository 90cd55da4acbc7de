//! Requests of the history checker, put to a keyspace in this process.

use bytes::Bytes;
use history::{Body, Outcome, Refusal, Request};
use storage::{At, Content, Error, Key, KeyRange, Keyspace, LeaseId, OpReply, PutLease, PutValue, SortOrder};

/// What is still to be waited for.
pub type Waiting = Box<dyn FnOnce() -> Result<(i64, Body), Error>>;

fn key(key: &[u8]) -> Key {
    Key::new(Bytes::copy_from_slice(key)).expect("not empty")
}

pub fn span(span: &history::Span) -> KeyRange {
    KeyRange::from_wire(key(&span.key), Bytes::copy_from_slice(&span.end))
}

fn put(put: &history::Put) -> storage::Put {
    storage::Put {
        key: key(&put.key),
        value: PutValue::Set(Bytes::copy_from_slice(&put.value)),
        lease: if put.lease == 0 { PutLease::Detach } else { PutLease::Attach(LeaseId(put.lease)) },
        prev_kv: put.prev_kv,
    }
}

fn delete(delete: &history::Delete) -> storage::DeleteRange {
    storage::DeleteRange { range: span(&delete.span), prev_kv: delete.prev_kv }
}

fn range(range: &history::Range) -> storage::RangeRequest {
    let content = match range {
        _ if range.count_only => Content::CountOnly,
        _ if range.keys_only => Content::KeysOnly,
        _ => Content::Full,
    };
    let at = if range.revision > 0 { At::Revision(range.revision) } else { At::Latest };
    let order = SortOrder::None;
    storage::RangeRequest { at, limit: range.limit, content, order, ..storage::RangeRequest::new(span(&range.span)) }
}

fn compare(compare: &history::Compare) -> storage::Compare {
    let target = match &compare.target {
        history::Target::Mod(revision) => storage::CompareTarget::Mod(*revision),
        history::Target::Create(revision) => storage::CompareTarget::Create(*revision),
        history::Target::Version(version) => storage::CompareTarget::Version(*version),
        history::Target::Value(value) => storage::CompareTarget::Value(Bytes::copy_from_slice(value)),
        history::Target::Lease(lease) => storage::CompareTarget::Lease(*lease),
    };
    storage::Compare { range: KeyRange::single(key(&compare.key)), result: storage::CompareResult::Equal, target }
}

fn txn(txn: &history::Txn) -> storage::Txn {
    let ops = |ops: &[history::Op]| {
        let op = |op: &history::Op| match op {
            history::Op::Range(one) => storage::Op::Range(range(one)),
            history::Op::Put(one) => storage::Op::Put(put(one)),
            history::Op::Delete(one) => storage::Op::DeleteRange(delete(one)),
        };
        ops.iter().map(op).collect()
    };
    storage::Txn {
        compares: txn.compares.iter().map(compare).collect(),
        success: ops(&txn.success),
        failure: ops(&txn.failure),
    }
}

/// A key as the checker has it.
pub fn key_value(kv: &storage::KeyValue) -> history::KeyValue {
    history::KeyValue {
        key: kv.key.to_vec(),
        value: kv.value.to_vec(),
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        lease: kv.lease,
    }
}

fn key_values(kvs: &[storage::KeyValue]) -> Vec<history::KeyValue> {
    kvs.iter().map(key_value).collect()
}

fn range_body(reply: &storage::RangeReply) -> Body {
    Body::Range { kvs: key_values(&reply.kvs), count: reply.count, more: reply.more }
}

fn op_body(reply: &OpReply) -> Body {
    match reply {
        OpReply::Range(reply) => range_body(reply),
        OpReply::Put(reply) => Body::Put(reply.prev_kv.as_ref().map(key_value)),
        OpReply::DeleteRange(reply) => Body::Delete(reply.deleted, key_values(&reply.prev_kvs)),
        OpReply::Txn(_) => panic!("no transaction was nested"),
    }
}

/// Begins a request. Reads are done at once, writes are on their way.
pub fn ask(keyspace: &Keyspace, request: &Request) -> Waiting {
    match request {
        Request::Range(request) => {
            let reply = keyspace.range(&range(request)).map(|reply| (reply.revision.0, range_body(&reply)));
            Box::new(move || reply)
        }
        Request::Put(request) => {
            let pending = keyspace.put(put(request));
            Box::new(move || {
                let reply = pending.wait()?;
                Ok((reply.revision.0, Body::Put(reply.prev_kv.as_ref().map(key_value))))
            })
        }
        Request::Delete(request) => {
            let pending = keyspace.delete_range(delete(request));
            Box::new(move || {
                let reply = pending.wait()?;
                Ok((reply.revision.0, Body::Delete(reply.deleted, key_values(&reply.prev_kvs))))
            })
        }
        Request::Txn(request) => {
            let pending = keyspace.txn(txn(request));
            Box::new(move || {
                let reply = pending.wait()?;
                Ok((reply.revision.0, Body::Txn(reply.succeeded, reply.responses.iter().map(op_body).collect())))
            })
        }
        Request::Compact(revision) => {
            let pending = keyspace.compact(*revision);
            Box::new(move || Ok((pending.wait()?.0, Body::Done)))
        }
        Request::Grant(id, ttl) => {
            let pending = keyspace.lease_grant(Some(LeaseId(*id)), *ttl);
            Box::new(move || {
                let reply = pending.wait()?;
                Ok((reply.revision.0, Body::Lease(reply.ttl)))
            })
        }
        Request::Revoke(id) => {
            let pending = keyspace.lease_revoke(LeaseId(*id));
            Box::new(move || Ok((pending.wait()?.0, Body::Done)))
        }
        Request::KeepAlive(id) => {
            let (revision, pending) = (keyspace.revision(), keyspace.lease_keep_alive(LeaseId(*id)));
            Box::new(move || Ok((revision.0, Body::Lease(pending.wait()?.unwrap_or(0)))))
        }
    }
}

/// An outcome as the checker has it.
pub fn outcome(result: Result<(i64, Body), Error>) -> Outcome {
    match result {
        Ok((revision, body)) => Outcome::Ok(revision, body),
        Err(Error::Compacted { .. }) => Outcome::Refused(Refusal::Compacted),
        Err(Error::Future { .. }) => Outcome::Refused(Refusal::Future),
        Err(Error::LeaseNotFound(_)) => Outcome::Refused(Refusal::NoLease),
        Err(Error::LeaseExists(_)) => Outcome::Refused(Refusal::LeaseExists),
        Err(Error::Stopped | Error::TooManyRequests { .. }) => Outcome::Refused(Refusal::Busy),
        Err(error) if error.is_final() => Outcome::Unknown,
        Err(error) => panic!("refused: {error}"),
    }
}
