//! How large a change is in the envelope that etcd would replicate it in.

use prost::Message;
use prost::encoding::{encoded_len_varint, key_len};
use storage::Error;

/// The envelope's own header with its tag, in bytes: a request id of nine.
const HEADER_BYTES: usize = 14;

/// The field of the envelope that a kind of change travels in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Envelope {
    /// A put.
    Put = 4,
    /// A deletion.
    DeleteRange = 5,
    /// A transaction.
    Txn = 6,
    /// A compaction.
    Compaction = 7,
    /// A lease, granted.
    LeaseGrant = 8,
    /// A lease, revoked.
    LeaseRevoke = 9,
    /// An alarm.
    Alarm = 10,
}

impl Envelope {
    /// The encoded size of a change in its envelope, in bytes.
    pub(crate) fn size(self, message: &impl Message) -> usize {
        let length = message.encoded_len();
        HEADER_BYTES + key_len(self as u32) + encoded_len_varint(length as u64) + length
    }

    /// Refuses a size above the limit.
    pub(crate) fn check(size: usize, limit: usize) -> Result<(), Error> {
        if size > limit { Err(Error::RequestTooLarge { size, limit }) } else { Ok(()) }
    }
}
