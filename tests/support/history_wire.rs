//! Requests of the history checker as messages of the API, and what comes back.

use history::{Body, KeyValue, Outcome, Refusal, Request};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::client::{Duplex, unary};
use crate::model::wire;
use crate::model::wire_more::*;

fn range(range: &history::Range) -> wire::RangeRequest {
    wire::RangeRequest {
        key: range.span.key.clone(),
        range_end: range.span.end.clone(),
        limit: range.limit,
        revision: range.revision,
        serializable: range.serializable,
        keys_only: range.keys_only,
        count_only: range.count_only,
        ..Default::default()
    }
}

fn put(put: &history::Put) -> wire::PutRequest {
    let (key, value) = (put.key.clone(), put.value.clone());
    wire::PutRequest { key, value, lease: put.lease, prev_kv: put.prev_kv, ..Default::default() }
}

fn delete(delete: &history::Delete) -> wire::DeleteRangeRequest {
    let (key, range_end) = (delete.span.key.clone(), delete.span.end.clone());
    wire::DeleteRangeRequest { key, range_end, prev_kv: delete.prev_kv }
}

fn txn(txn: &history::Txn) -> wire::TxnRequest {
    let compare = |compare: &history::Compare| {
        let (target, union) = match &compare.target {
            history::Target::Version(version) => (0, wire::Union::Version(*version)),
            history::Target::Create(revision) => (1, wire::Union::Create(*revision)),
            history::Target::Mod(revision) => (2, wire::Union::Mod(*revision)),
            history::Target::Value(value) => (3, wire::Union::Value(value.clone())),
            history::Target::Lease(lease) => (4, wire::Union::Lease(*lease)),
        };
        wire::Compare { target, key: compare.key.clone(), union: Some(union), ..Default::default() }
    };
    let op = |op: &history::Op| {
        let request = match op {
            history::Op::Range(one) => wire::TxnOp::Range(range(one)),
            history::Op::Put(one) => wire::TxnOp::Put(put(one)),
            history::Op::Delete(one) => wire::TxnOp::DeleteRange(delete(one)),
        };
        wire::RequestOp { request: Some(request) }
    };
    wire::TxnRequest {
        compare: txn.compares.iter().map(compare).collect(),
        success: txn.success.iter().map(op).collect(),
        failure: txn.failure.iter().map(op).collect(),
    }
}

/// A key as the checker has it.
pub fn key_value(kv: wire::KeyValue) -> KeyValue {
    let wire::KeyValue { key, create_revision, mod_revision, version, value, lease } = kv;
    KeyValue { key, value, create_revision, mod_revision, version, lease }
}

fn key_values(kvs: Vec<wire::KeyValue>) -> Vec<KeyValue> {
    kvs.into_iter().map(key_value).collect()
}

fn range_body(reply: wire::RangeResponse) -> Body {
    Body::Range { kvs: key_values(reply.kvs), count: reply.count, more: reply.more }
}

fn op_body(reply: wire::ResponseOp) -> Body {
    match reply.response.expect("a response") {
        wire::TxnReply::Range(reply) => range_body(reply),
        wire::TxnReply::Put(reply) => Body::Put(reply.prev_kv.map(key_value)),
        wire::TxnReply::DeleteRange(reply) => Body::Delete(reply.deleted, key_values(reply.prev_kvs)),
        wire::TxnReply::Txn(_) => panic!("no transaction was nested"),
    }
}

fn revision(header: Option<wire::Header>) -> i64 {
    header.expect("a header").revision
}

async fn answer(channel: &Channel, request: &Request) -> Result<(i64, Body), Status> {
    Ok(match request {
        Request::Range(one) => {
            let reply: wire::RangeResponse = unary(channel, "/etcdserverpb.KV/Range", range(one)).await?;
            (revision(reply.header), range_body(wire::RangeResponse { header: None, ..reply }))
        }
        Request::Put(one) => {
            let reply: wire::PutResponse = unary(channel, "/etcdserverpb.KV/Put", put(one)).await?;
            (revision(reply.header), Body::Put(reply.prev_kv.map(key_value)))
        }
        Request::Delete(one) => {
            let reply: wire::DeleteRangeResponse = unary(channel, "/etcdserverpb.KV/DeleteRange", delete(one)).await?;
            (revision(reply.header), Body::Delete(reply.deleted, key_values(reply.prev_kvs)))
        }
        Request::Txn(one) => {
            let reply: wire::TxnResponse = unary(channel, "/etcdserverpb.KV/Txn", txn(one)).await?;
            (revision(reply.header), Body::Txn(reply.succeeded, reply.responses.into_iter().map(op_body).collect()))
        }
        Request::Compact(to) => {
            let request = wire::CompactionRequest { revision: *to, physical: false };
            let reply: wire::HeaderResponse = unary(channel, "/etcdserverpb.KV/Compact", request).await?;
            (revision(reply.header), Body::Done)
        }
        Request::Grant(id, ttl) => {
            let request = LeaseGrantRequest { ttl: *ttl, id: *id };
            let reply: LeaseGrantResponse = unary(channel, "/etcdserverpb.Lease/LeaseGrant", request).await?;
            (revision(reply.header), Body::Lease(reply.ttl))
        }
        Request::Revoke(id) => {
            let request = LeaseIdRequest { id: *id };
            let reply: wire::HeaderResponse = unary(channel, "/etcdserverpb.Lease/LeaseRevoke", request).await?;
            (revision(reply.header), Body::Done)
        }
        Request::KeepAlive(id) => {
            let path = "/etcdserverpb.Lease/LeaseKeepAlive";
            let mut stream = Duplex::<LeaseIdRequest, LeaseKeepAliveResponse>::open(channel, path);
            stream.send(LeaseIdRequest { id: *id });
            let reply = stream.next().await.unwrap_or_else(|| Err(Status::unavailable("the stream ended")))?;
            (revision(reply.header), Body::Lease(reply.ttl))
        }
    })
}

/// Puts a request to a server.
pub async fn ask(channel: &Channel, request: &Request) -> Outcome {
    let status = match answer(channel, request).await {
        Ok((revision, body)) => return Outcome::Ok(revision, body),
        Err(status) => status,
    };
    let says = |text: &str| status.message().contains(text);
    match status.code() {
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded | Code::Internal => {
            Outcome::Unknown
        }
        Code::OutOfRange if says("has been compacted") => Outcome::Refused(Refusal::Compacted),
        Code::OutOfRange if says("future revision") => Outcome::Refused(Refusal::Future),
        Code::NotFound if says("lease not found") => Outcome::Refused(Refusal::NoLease),
        _ => panic!("{request:?} is refused: {status:?}"),
    }
}
