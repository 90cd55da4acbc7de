//! Decodes a transaction with an explicit stack: its nesting is the client's choice, our stack is not.

use bytes::{Buf, Bytes};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint};
use tonic::Status;

use crate::pb::etcdserverpb::request_op::Request;
use crate::pb::etcdserverpb::{RequestOp, TxnRequest};
use crate::status;

/// How many transactions may be nested in each other, the outermost included. Everything that walks a decoded transaction by recursion
/// (conversion, encoding, dropping) is tested at this depth on a small stack.
pub(crate) const DEPTH_MAX: usize = 512;

/// The tag of `RequestOp.request_txn`.
const REQUEST_TXN: u32 = 4;

/// Which list of a transaction an operation belongs to.
#[derive(Clone, Copy)]
enum Branch {
    Success,
    Failure,
}

impl Branch {
    /// The branch that a field of `TxnRequest` holds.
    fn of_tag(tag: u32) -> Option<Branch> {
        match tag {
            2 => Some(Branch::Success),
            3 => Some(Branch::Failure),
            _ => None,
        }
    }
}

/// An operation that is being read.
struct OpenOp {
    op: RequestOp,
    rest: Bytes,
    branch: Branch,
}

/// A transaction that is being read, with the operation of it that is.
#[derive(Default)]
struct Level {
    txn: TxnRequest,
    rest: Bytes,
    op: Option<OpenOp>,
}

/// What one step of a level came to.
enum Step {
    /// A field was read.
    Read,
    /// A transaction begins within the open operation.
    Enter { txn: TxnRequest, rest: Bytes },
    /// The level is complete.
    Done,
}

/// A transaction from its bytes, in linear time and with constant stack, however deep it claims to be.
pub(super) fn decode(bytes: Bytes) -> Result<TxnRequest, Status> {
    let mut level = Level { rest: bytes, ..Level::default() };
    let mut outer: Vec<Level> = Vec::new();
    loop {
        match level.step()? {
            Step::Read => {}
            Step::Enter { txn, rest } => {
                let inner = Level { txn, rest, op: None };
                if outer.len() + 1 >= DEPTH_MAX {
                    return Err(status::nested_too_deep(DEPTH_MAX));
                }
                outer.push(std::mem::replace(&mut level, inner));
            }
            Step::Done => match outer.pop() {
                None => return Ok(level.txn),
                Some(parent) => {
                    let done = std::mem::replace(&mut level, parent);
                    level.close_inner(done.txn);
                }
            },
        }
    }
}

impl Level {
    /// Reads one field of the open operation, or else of the transaction.
    fn step(&mut self) -> Result<Step, Status> {
        match self.op.take() {
            Some(open) if open.rest.is_empty() => {
                self.keep(open);
                Ok(Step::Read)
            }
            Some(open) => self.step_op(open),
            None if self.rest.is_empty() => Ok(Step::Done),
            None => self.step_txn(),
        }
    }

    fn step_txn(&mut self) -> Result<Step, Status> {
        let (tag, wire) = decode_key(&mut self.rest).map_err(status::unreadable)?;
        match Branch::of_tag(tag) {
            Some(branch) if wire == WireType::LengthDelimited => {
                let rest = take_message(&mut self.rest)?;
                self.op = Some(OpenOp { op: RequestOp::default(), rest, branch });
            }
            _ => {
                let rest = &mut self.rest;
                self.txn.merge_field(tag, wire, rest, DecodeContext::default()).map_err(status::unreadable)?;
            }
        }
        Ok(Step::Read)
    }

    fn step_op(&mut self, mut open: OpenOp) -> Result<Step, Status> {
        let (tag, wire) = decode_key(&mut open.rest).map_err(status::unreadable)?;
        let step = if tag == REQUEST_TXN && wire == WireType::LengthDelimited {
            let rest = take_message(&mut open.rest)?;
            // A field that comes twice is merged, as protobuf demands.
            let txn = match open.op.request.take() {
                Some(Request::RequestTxn(txn)) => txn,
                _ => TxnRequest::default(),
            };
            Step::Enter { txn, rest }
        } else {
            let rest = &mut open.rest;
            open.op.merge_field(tag, wire, rest, DecodeContext::default()).map_err(status::unreadable)?;
            Step::Read
        };
        self.op = Some(open);
        Ok(step)
    }

    /// Adds a finished operation to its list.
    fn keep(&mut self, open: OpenOp) {
        match open.branch {
            Branch::Success => self.txn.success.push(open.op),
            Branch::Failure => self.txn.failure.push(open.op),
        }
    }

    /// Gives the open operation the transaction that was read for it.
    fn close_inner(&mut self, txn: TxnRequest) {
        let open = self.op.as_mut().expect("a level is entered only from an open operation");
        open.op.request = Some(Request::RequestTxn(txn));
    }
}

/// Cuts a length and the bytes it announces off the front.
fn take_message(rest: &mut Bytes) -> Result<Bytes, Status> {
    match usize::try_from(decode_varint(rest).map_err(status::unreadable)?) {
        Ok(length) if length <= rest.remaining() => Ok(rest.split_to(length)),
        _ => Err(status::unreadable("a field is longer than the message that holds it")),
    }
}

#[cfg(test)]
#[path = "nested_tests.rs"]
mod tests;
