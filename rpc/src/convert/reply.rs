//! Answers: from the keyspace to the wire.

use bytes::Bytes;
use prost::Message;
use storage::{
    Change, ChangeKind, DeleteRangeReply, Event, KeyValue, OpReply, PutReply, RangeReply, Revision, TxnReply,
};

use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::response_op::Response;
use crate::pb::mvccpb;

type Header = Option<pb::ResponseHeader>;

/// The answer to a read.
pub(crate) fn range_reply(header: Header, reply: RangeReply) -> pb::RangeResponse {
    let kvs = reply.kvs.into_iter().map(key_value).collect();
    pb::RangeResponse { header, kvs, more: reply.more, count: reply.count }
}

/// The answer to a put.
pub(crate) fn put_reply(header: Header, reply: PutReply) -> pb::PutResponse {
    pb::PutResponse { header, prev_kv: reply.prev_kv.map(key_value) }
}

/// The answer to a deletion.
pub(crate) fn delete_reply(header: Header, reply: DeleteRangeReply) -> pb::DeleteRangeResponse {
    let prev_kvs = reply.prev_kvs.into_iter().map(key_value).collect();
    pb::DeleteRangeResponse { header, deleted: reply.deleted, prev_kvs }
}

/// The answer to a transaction. Headers within it carry the revision alone, and that of a nested transaction nothing.
pub(crate) fn txn_reply(header: Header, reply: TxnReply) -> pb::TxnResponse {
    let responses = reply.responses.into_iter().map(|op| pb::ResponseOp { response: Some(op_reply(op)) }).collect();
    pb::TxnResponse { header, succeeded: reply.succeeded, responses }
}

fn op_reply(reply: OpReply) -> Response {
    match reply {
        OpReply::Range(reply) => Response::ResponseRange(range_reply(inner_header(reply.revision), reply)),
        OpReply::Put(reply) => Response::ResponsePut(put_reply(inner_header(reply.revision), reply)),
        OpReply::DeleteRange(reply) => Response::ResponseDeleteRange(delete_reply(inner_header(reply.revision), reply)),
        OpReply::Txn(reply) => Response::ResponseTxn(txn_reply(inner_header(Revision(0)), reply)),
    }
}

fn inner_header(revision: Revision) -> Header {
    Some(pb::ResponseHeader { revision: revision.0, ..pb::ResponseHeader::default() })
}

/// A key with its value.
pub(crate) fn key_value(kv: KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: kv.key,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        value: kv.value,
        lease: kv.lease,
    }
}

/// A change as etcd stores it: a deletion is its key alone.
pub(crate) fn record(change: &Change) -> mvccpb::KeyValue {
    match change.key_value() {
        Some(kv) => key_value(kv),
        None => mvccpb::KeyValue { key: change.key.clone(), ..mvccpb::KeyValue::default() },
    }
}

/// An encoded event; encoded by whoever asks first, for all watches that share it.
pub(crate) fn event(event: &Event) -> Bytes {
    event.wire.get_or_init(|| encode(event)).clone()
}

fn encode(event: &Event) -> Bytes {
    let change = &event.change;
    let kind = match change.kind {
        ChangeKind::Put { .. } => mvccpb::event::EventType::Put,
        ChangeKind::Tombstone => mvccpb::event::EventType::Delete,
    };
    let message = mvccpb::Event {
        r#type: kind as i32,
        kv: Some(mvccpb::KeyValue { mod_revision: change.at.main.0, ..record(change) }),
        prev_kv: event.prev.as_ref().and_then(|prev| prev.key_value()).map(key_value),
    };
    message.encode_to_vec().into()
}
