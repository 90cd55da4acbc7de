//! From the shape of the wire to the library's types and back, with the checks that a server makes first.

use bytes::Bytes;
use storage as lib;
use storage::{At, Content, Error, Filters, Key, KeyRange, Op, OpReply, PutLease, PutValue, SortOrder, SortTarget};

use crate::model::op::{Refusal, header};
use crate::model::static_checks;
use crate::model::wire::*;

fn key_range(key: &[u8], end: &[u8]) -> Result<KeyRange, Refusal> {
    let key = Key::new(key.to_vec()).map_err(|_| Refusal::KeyNotProvided)?;
    Ok(KeyRange::from_wire(key, Bytes::from(end.to_vec())))
}

/// A read; within a transaction a negative revision is taken as it is.
pub fn range(request: &RangeRequest, within: bool) -> Result<lib::RangeRequest, Refusal> {
    static_checks::range(request)?;
    let latest = if within { request.revision == 0 } else { request.revision <= 0 };
    let target = match request.sort_target {
        0 => SortTarget::Key,
        1 => SortTarget::Version,
        2 => SortTarget::Create,
        3 => SortTarget::Mod,
        _ => SortTarget::Value,
    };
    Ok(lib::RangeRequest {
        range: key_range(&request.key, &request.range_end)?,
        at: if latest { At::Latest } else { At::Revision(request.revision) },
        limit: request.limit,
        order: match request.sort_order {
            0 => SortOrder::None,
            1 => SortOrder::Ascend,
            _ => SortOrder::Descend,
        },
        target,
        filters: Filters {
            min_mod_revision: request.min_mod_revision,
            max_mod_revision: request.max_mod_revision,
            min_create_revision: request.min_create_revision,
            max_create_revision: request.max_create_revision,
        },
        content: match (request.count_only, request.keys_only) {
            (true, _) => Content::CountOnly,
            (_, true) => Content::KeysOnly,
            _ => Content::Full,
        },
    })
}

pub fn put(request: &PutRequest) -> Result<lib::Put, Refusal> {
    static_checks::put(request)?;
    Ok(lib::Put {
        key: Key::new(request.key.clone()).map_err(|_| Refusal::KeyNotProvided)?,
        value: if request.ignore_value { PutValue::Keep } else { PutValue::Set(request.value.clone().into()) },
        lease: match request.lease {
            _ if request.ignore_lease => PutLease::Keep,
            0 => PutLease::Detach,
            id => PutLease::Attach(lib::LeaseId(id)),
        },
        prev_kv: request.prev_kv,
    })
}

pub fn delete_range(request: &DeleteRangeRequest) -> Result<lib::DeleteRange, Refusal> {
    Ok(lib::DeleteRange { range: key_range(&request.key, &request.range_end)?, prev_kv: request.prev_kv })
}

/// A transaction; what is wrong with its keys is left to the keyspace, the rest is the server's to find.
pub fn txn(request: &TxnRequest) -> Result<lib::Txn, Refusal> {
    match static_checks::txn(request) {
        Err(Refusal::DuplicateKey) | Ok(()) => {}
        Err(refusal) => return Err(refusal),
    }
    let compares = request.compare.iter().map(compare).collect::<Result<_, _>>()?;
    Ok(lib::Txn { compares, success: list(&request.success)?, failure: list(&request.failure)? })
}

fn list(ops: &[RequestOp]) -> Result<Vec<Op>, Refusal> {
    let ops = ops.iter().map(|op| match &op.request {
        None => Err(Refusal::KeyNotFound),
        Some(TxnOp::Range(request)) => range(request, true).map(Op::Range),
        Some(TxnOp::Put(request)) => put(request).map(Op::Put),
        Some(TxnOp::DeleteRange(request)) => delete_range(request).map(Op::DeleteRange),
        Some(TxnOp::Txn(request)) => txn(request).map(Op::Txn),
    });
    ops.collect()
}

fn compare(request: &Compare) -> Result<lib::Compare, Refusal> {
    use lib::{CompareResult, CompareTarget};
    let target = match (request.target, &request.union) {
        (0, Some(Union::Version(given))) => CompareTarget::Version(*given),
        (0, _) => CompareTarget::Version(0),
        (1, Some(Union::Create(given))) => CompareTarget::Create(*given),
        (1, _) => CompareTarget::Create(0),
        (2, Some(Union::Mod(given))) => CompareTarget::Mod(*given),
        (2, _) => CompareTarget::Mod(0),
        (3, Some(Union::Value(given))) => CompareTarget::Value(given.clone().into()),
        (3, _) => CompareTarget::Value(Bytes::new()),
        (4, Some(Union::Lease(given))) => CompareTarget::Lease(*given),
        (4, _) => CompareTarget::Lease(0),
        _ => CompareTarget::Unknown,
    };
    let result = match request.result {
        0 => CompareResult::Equal,
        1 => CompareResult::Greater,
        2 => CompareResult::Less,
        3 => CompareResult::NotEqual,
        _ => CompareResult::Unknown,
    };
    Ok(lib::Compare { range: key_range(&request.key, &request.range_end)?, result, target })
}

/// The refusal that an error is told as.
pub fn refusal(error: &Error) -> Refusal {
    match error {
        Error::KeyNotProvided => Refusal::KeyNotProvided,
        Error::KeyNotFound => Refusal::KeyNotFound,
        Error::ValueProvided => Refusal::ValueProvided,
        Error::LeaseProvided => Refusal::LeaseProvided,
        Error::TooManyOps { .. } => Refusal::TooManyOps,
        Error::DuplicateKey => Refusal::DuplicateKey,
        Error::InvalidSortOption => Refusal::InvalidSort,
        Error::Compacted { .. } => Refusal::Compacted,
        Error::Future { .. } => Refusal::Future,
        Error::LeaseNotFound(_) => Refusal::LeaseNotFound,
        Error::LeaseExists(_) => Refusal::LeaseExists,
        Error::LeaseTtlTooLarge { .. } => Refusal::LeaseTtlTooLarge,
        other => panic!("unexpected error: {other}"),
    }
}

pub fn key_value(kv: &lib::KeyValue) -> KeyValue {
    KeyValue {
        key: kv.key.to_vec(),
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        value: kv.value.to_vec(),
        lease: kv.lease,
    }
}

pub fn range_reply(reply: &lib::RangeReply) -> RangeResponse {
    let kvs = reply.kvs.iter().map(key_value).collect();
    RangeResponse { header: header(reply.revision.0), kvs, more: reply.more, count: reply.count }
}

pub fn put_reply(reply: &lib::PutReply) -> PutResponse {
    PutResponse { header: header(reply.revision.0), prev_kv: reply.prev_kv.as_ref().map(key_value) }
}

pub fn delete_reply(reply: &lib::DeleteRangeReply) -> DeleteRangeResponse {
    let prev_kvs = reply.prev_kvs.iter().map(key_value).collect();
    DeleteRangeResponse { header: header(reply.revision.0), deleted: reply.deleted, prev_kvs }
}

/// A transaction's answer; one within another has a header of zeros.
pub fn txn_reply(reply: &lib::TxnReply, within: bool) -> TxnResponse {
    let responses = reply.responses.iter().map(|reply| match reply {
        OpReply::Range(reply) => TxnReply::Range(range_reply(reply)),
        OpReply::Put(reply) => TxnReply::Put(put_reply(reply)),
        OpReply::DeleteRange(reply) => TxnReply::DeleteRange(delete_reply(reply)),
        OpReply::Txn(reply) => TxnReply::Txn(txn_reply(reply, true)),
    });
    let responses = responses.map(|response| ResponseOp { response: Some(response) }).collect();
    TxnResponse { header: header(if within { 0 } else { reply.revision.0 }), succeeded: reply.succeeded, responses }
}
