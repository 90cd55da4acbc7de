//! Commands: what the log records, and the one place that turns them into bytes and back.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::log::frame::MAX_FRAME_LEN;
use crate::request::{AlarmKind, DeleteRange, Put, Txn};
use crate::types::{LeaseId, MemberId, Position};

/// A change of the state, settled: nothing in it depends on a clock, on chance or on the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Put(Put),
    DeleteRange(DeleteRange),
    Txn(Txn),
    /// The revision to compact to.
    Compact(i64),
    /// A lease and its TTL in seconds.
    LeaseGrant(LeaseId, i64),
    LeaseRevoke(LeaseId),
    /// The first renewal after a grant or a start.
    LeaseRenew(LeaseId),
    /// A lease that ran out, with the frame of the grant or renewal that it is judged by.
    LeaseExpire(LeaseId, Position),
    /// An alarm, raised or cleared by an operator.
    SetAlarm(MemberId, AlarmKind, bool),
    /// NOSPACE, raised or cleared by the store itself: what an operator raised it leaves alone.
    OutOfRoom(MemberId, bool),
}

/// The numbers that name the kinds in the log. A number is never used again.
mod kind {
    pub(super) const PUT: u8 = 1;
    pub(super) const DELETE_RANGE: u8 = 2;
    pub(super) const TXN: u8 = 3;
    pub(super) const COMPACT: u8 = 4;
    pub(super) const LEASE_GRANT: u8 = 5;
    pub(super) const LEASE_REVOKE: u8 = 6;
    pub(super) const LEASE_RENEW: u8 = 7;
    pub(super) const LEASE_EXPIRE: u8 = 8;
    pub(super) const SET_ALARM: u8 = 9;
    pub(super) const OUT_OF_ROOM: u8 = 10;
}

/// A command with its bytes, made on the caller's thread so that the committer only copies them.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) kind: u8,
    pub(crate) payload: Vec<u8>,
}

impl Command {
    /// The command's kind and bytes. Errors: `RequestTooLarge` if no frame can hold it.
    pub(crate) fn encode(&self) -> Result<Encoded, Error> {
        let (kind, payload) = match self {
            Command::Put(put) => (kind::PUT, to_bytes(put)),
            Command::DeleteRange(delete) => (kind::DELETE_RANGE, to_bytes(delete)),
            Command::Txn(txn) => (kind::TXN, to_bytes(txn)),
            Command::Compact(revision) => (kind::COMPACT, to_bytes(revision)),
            Command::LeaseGrant(id, ttl) => (kind::LEASE_GRANT, to_bytes(&(id, ttl))),
            Command::LeaseRevoke(id) => (kind::LEASE_REVOKE, to_bytes(id)),
            Command::LeaseRenew(id) => (kind::LEASE_RENEW, to_bytes(id)),
            Command::LeaseExpire(id, mark) => (kind::LEASE_EXPIRE, to_bytes(&(id, mark))),
            Command::SetAlarm(member, alarm, raised) => (kind::SET_ALARM, to_bytes(&(member, alarm, raised))),
            Command::OutOfRoom(member, raised) => (kind::OUT_OF_ROOM, to_bytes(&(member, raised))),
        };
        if payload.len() > COMMAND_BYTES_MAX {
            return Err(Error::RequestTooLarge { size: payload.len(), limit: COMMAND_BYTES_MAX });
        }
        Ok(Encoded { kind, payload })
    }

    /// A command from the log. Errors: `Corrupt` for an unknown kind or bytes that do not fit.
    pub(crate) fn decode(kind: u8, payload: &Bytes) -> Result<Command, Error> {
        Ok(match kind {
            kind::PUT => Command::Put(from_bytes(kind, payload)?),
            kind::DELETE_RANGE => Command::DeleteRange(from_bytes(kind, payload)?),
            kind::TXN => Command::Txn(from_bytes(kind, payload)?),
            kind::COMPACT => Command::Compact(from_bytes(kind, payload)?),
            kind::LEASE_GRANT => from_bytes(kind, payload).map(|(id, ttl)| Command::LeaseGrant(id, ttl))?,
            kind::LEASE_REVOKE => Command::LeaseRevoke(from_bytes(kind, payload)?),
            kind::LEASE_RENEW => Command::LeaseRenew(from_bytes(kind, payload)?),
            kind::LEASE_EXPIRE => from_bytes(kind, payload).map(|(id, mark)| Command::LeaseExpire(id, mark))?,
            kind::SET_ALARM => {
                from_bytes(kind, payload).map(|(member, alarm, raised)| Command::SetAlarm(member, alarm, raised))?
            }
            kind::OUT_OF_ROOM => {
                from_bytes(kind, payload).map(|(member, raised)| Command::OutOfRoom(member, raised))?
            }
            _ => return Err(Error::corrupt("log", format!("record kind {kind} is unknown to this version"))),
        })
    }

    /// True if the command takes no memory for changes worth speaking of, and may be what makes room: it is never refused for want of it.
    pub(crate) fn needs_no_memory(&self) -> bool {
        matches!(self, Command::Compact(_) | Command::SetAlarm(..) | Command::OutOfRoom(..))
    }

    /// True if the command adds data, which a full store refuses.
    pub(crate) fn needs_room(&self) -> bool {
        match self {
            Command::Put(_) | Command::LeaseGrant(..) => true,
            Command::Txn(txn) => txn.puts_anything(),
            _ => false,
        }
    }
}

/// The largest command, in bytes: it fits a frame of its own. A request takes about its own size in the log.
pub const COMMAND_BYTES_MAX: usize = MAX_FRAME_LEN - 1024;

/// What decoding may ask for, in bytes. bincode counts a number as wide as its type is, eight bytes at most, although one byte may hold it:
/// with a limit nearer to the payload's, a transaction of many small operations would be logged and never be read again.
const DECODE_LIMIT: usize = 16 * MAX_FRAME_LEN;

/// Fixed-size lengths would cost bytes per record; the limit keeps a damaged length from asking for memory.
fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<DECODE_LIMIT>()
}

fn to_bytes<T: Serialize>(value: &T) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, config()).expect("writing to memory cannot fail")
}

fn from_bytes<T: DeserializeOwned>(kind: u8, payload: &Bytes) -> Result<T, Error> {
    match bincode::serde::decode_from_slice(payload, config()) {
        Ok((value, used)) if used == payload.len() => Ok(value),
        Ok((_, used)) => {
            Err(Error::corrupt("log", format!("record of kind {kind}: {used} of {} bytes", payload.len())))
        }
        Err(error) => Err(Error::corrupt("log", format!("record of kind {kind}: {error}"))),
    }
}
