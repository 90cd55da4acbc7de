//! Transactions: from the wire, checked in the order that clients can observe.

use storage::{Compare, CompareResult, CompareTarget, Error, Key, KeyRange, Op, Txn};

use super::{operation, range};
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::compare::{self as wire, TargetUnion};
use crate::pb::etcdserverpb::request_op::Request;

/// A transaction: the lengths, keys and fields of all of it. That its writes share no key is for the keyspace to see.
pub(crate) fn txn(request: pb::TxnRequest, ops_max: usize) -> Result<Txn, Error> {
    checked(request, ops_max)
}

/// Checks and converts one level; what its longest list takes is not left for the levels below.
fn checked(request: pb::TxnRequest, budget: usize) -> Result<Txn, Error> {
    let longest = request.compare.len().max(request.success.len()).max(request.failure.len());
    let Some(left) = budget.checked_sub(longest) else {
        return Err(Error::TooManyOps { found: longest, limit: budget });
    };
    Ok(Txn {
        compares: request.compare.into_iter().map(condition).collect::<Result<_, _>>()?,
        success: ops(request.success, left)?,
        failure: ops(request.failure, left)?,
    })
}

fn ops(list: Vec<pb::RequestOp>, budget: usize) -> Result<Vec<Op>, Error> {
    list.into_iter().map(|op| operation(op, budget)).collect()
}

fn operation(op: pb::RequestOp, budget: usize) -> Result<Op, Error> {
    match op.request {
        Some(Request::RequestRange(request)) => Ok(Op::Range(range::range_in_txn(request)?)),
        Some(Request::RequestPut(request)) => Ok(Op::Put(operation::put(request)?)),
        Some(Request::RequestDeleteRange(request)) => Ok(Op::DeleteRange(operation::delete_range(request)?)),
        Some(Request::RequestTxn(request)) => Ok(Op::Txn(checked(request, budget)?)),
        // etcd's answer to an operation that says nothing.
        None => Err(Error::KeyNotFound),
    }
}

fn condition(compare: pb::Compare) -> Result<Compare, Error> {
    let target = target(compare.target, compare.target_union);
    let start = Key::new(compare.key)?;
    Ok(Compare { range: KeyRange::from_wire(start, compare.range_end), result: result(compare.result), target })
}

fn result(number: i32) -> CompareResult {
    match wire::CompareResult::try_from(number) {
        Ok(wire::CompareResult::Equal) => CompareResult::Equal,
        Ok(wire::CompareResult::Greater) => CompareResult::Greater,
        Ok(wire::CompareResult::Less) => CompareResult::Less,
        Ok(wire::CompareResult::NotEqual) => CompareResult::NotEqual,
        Err(_) => CompareResult::Unknown,
    }
}

/// What is compared; a given side of another kind than the target counts as zero or empty.
fn target(number: i32, given: Option<TargetUnion>) -> CompareTarget {
    use wire::CompareTarget as Wire;
    match (Wire::try_from(number), given) {
        (Ok(Wire::Version), Some(TargetUnion::Version(version))) => CompareTarget::Version(version),
        (Ok(Wire::Version), _) => CompareTarget::Version(0),
        (Ok(Wire::Create), Some(TargetUnion::CreateRevision(revision))) => CompareTarget::Create(revision),
        (Ok(Wire::Create), _) => CompareTarget::Create(0),
        (Ok(Wire::Mod), Some(TargetUnion::ModRevision(revision))) => CompareTarget::Mod(revision),
        (Ok(Wire::Mod), _) => CompareTarget::Mod(0),
        (Ok(Wire::Value), Some(TargetUnion::Value(value))) => CompareTarget::Value(value),
        (Ok(Wire::Value), _) => CompareTarget::Value(bytes::Bytes::new()),
        (Ok(Wire::Lease), Some(TargetUnion::Lease(id))) => CompareTarget::Lease(id),
        (Ok(Wire::Lease), _) => CompareTarget::Lease(0),
        (Err(_), _) => CompareTarget::Unknown,
    }
}
