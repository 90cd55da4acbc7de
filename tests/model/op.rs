//! What is asked, what is answered and how it is refused, in the shape of the wire.

use super::wire::*;
use super::wire_more::*;

/// A request, valid or not.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    Range(RangeRequest),
    RangeStream(RangeRequest),
    Put(PutRequest),
    DeleteRange(DeleteRangeRequest),
    Txn(TxnRequest),
    Compact(CompactionRequest),
    Grant(LeaseGrantRequest),
    Revoke(i64),
    KeepAlive(i64),
    TimeToLive(LeaseTimeToLiveRequest),
    Leases,
}

/// An answer; headers hold nothing but the revision, the driver has looked at the rest.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Range(RangeResponse),
    Put(PutResponse),
    DeleteRange(DeleteRangeResponse),
    Txn(TxnResponse),
    /// To a compaction or a revocation: the revision alone.
    Done(i64),
    Grant(LeaseGrantResponse),
    KeepAlive(LeaseKeepAliveResponse),
    TimeToLive(LeaseTimeToLiveResponse),
    Leases(LeaseLeasesResponse),
}

/// What became of a request.
pub type Outcome = Result<Reply, Refusal>;

macro_rules! refusals {
    ($($name:ident $code:ident $text:literal,)*) => {
        /// Why a request is refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Refusal { $($name,)* }

        impl Refusal {
            /// Every refusal.
            pub const ALL: &[Refusal] = &[$(Refusal::$name,)*];

            /// The text that clients match.
            pub fn text(self) -> &'static str {
                match self { $(Refusal::$name => concat!("etcdserver: ", $text),)* }
            }

            /// The status code.
            pub fn code(self) -> tonic::Code {
                match self { $(Refusal::$name => tonic::Code::$code,)* }
            }

            /// The name of its coverage counter.
            pub fn counter(self) -> &'static str {
                match self { $(Refusal::$name => concat!("refused: ", $text),)* }
            }
        }
    };
}

refusals! {
    KeyNotProvided InvalidArgument "key is not provided",
    KeyNotFound InvalidArgument "key not found",
    ValueProvided InvalidArgument "value is provided",
    LeaseProvided InvalidArgument "lease is provided",
    TooManyOps InvalidArgument "too many operations in txn request",
    DuplicateKey InvalidArgument "duplicate key given in txn request",
    InvalidSort InvalidArgument "invalid sort option",
    Compacted OutOfRange "mvcc: required revision has been compacted",
    Future OutOfRange "mvcc: required revision is a future revision",
    LeaseNotFound NotFound "requested lease not found",
    LeaseExists FailedPrecondition "lease already exists",
    LeaseTtlTooLarge OutOfRange "too large lease TTL",
    StreamSort Unimplemented "RangeStream does not support custom sort orders",
    StreamFilter Unimplemented "RangeStream does not support revision filters",
}

impl Refusal {
    /// The refusal that a status stands for, if it is one of the known, code and text.
    pub fn from_status(status: &tonic::Status) -> Option<Refusal> {
        let text = status.message();
        let same =
            |refusal: &&Refusal| refusal.text() == text || refusal.text().strip_prefix("etcdserver: ") == Some(text);
        Refusal::ALL.iter().find(same).copied().filter(|refusal| refusal.code() == status.code())
    }
}

/// A header that holds a revision.
pub fn header(revision: i64) -> Option<Header> {
    Some(Header { revision, ..Header::default() })
}

/// A range of keys as the API spells it.
pub fn in_range(key: &[u8], start: &[u8], end: &[u8]) -> bool {
    match end {
        [] => key == start,
        [0] => key >= start,
        _ => key >= start && key < end,
    }
}
