//! Errors as clients know them: the one place that names gRPC codes and texts.

use std::fmt::Display;

use storage::Error;
use tonic::{Code, Status};

use crate::notice;

/// The status of a refused or failed request. Clients compare the text, letter by letter.
pub(crate) fn of(error: &Error) -> Status {
    notice::tell(error);
    let (code, text) = parts(error);
    Status::new(code, text)
}

/// Why a watch was refused, as `cancel_reason` says it.
pub(crate) fn cancel_reason(error: &Error) -> &'static str {
    parts(error).1
}

fn parts(error: &Error) -> (Code, &'static str) {
    match error {
        Error::KeyNotProvided => (Code::InvalidArgument, "etcdserver: key is not provided"),
        Error::KeyNotFound => (Code::InvalidArgument, "etcdserver: key not found"),
        Error::ValueProvided => (Code::InvalidArgument, "etcdserver: value is provided"),
        Error::LeaseProvided => (Code::InvalidArgument, "etcdserver: lease is provided"),
        Error::TooManyOps { .. } => (Code::InvalidArgument, "etcdserver: too many operations in txn request"),
        Error::DuplicateKey => (Code::InvalidArgument, "etcdserver: duplicate key given in txn request"),
        Error::InvalidSortOption => (Code::InvalidArgument, "etcdserver: invalid sort option"),
        Error::RequestTooLarge { .. } => (Code::InvalidArgument, "etcdserver: request is too large"),
        Error::Compacted { .. } => (Code::OutOfRange, COMPACTED),
        Error::Future { .. } => (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision"),
        Error::LeaseNotFound(_) => (Code::NotFound, "etcdserver: requested lease not found"),
        Error::LeaseExists(_) => (Code::FailedPrecondition, "etcdserver: lease already exists"),
        Error::LeaseTtlTooLarge { .. } => (Code::OutOfRange, "etcdserver: too large lease TTL"),
        Error::WatchRangeEmpty => (Code::InvalidArgument, "mvcc: watcher range is empty"),
        Error::WatchIdTaken(_) => (Code::InvalidArgument, "mvcc: duplicate watch ID provided on the WatchStream"),
        Error::WatchStartNegative(_) => (Code::OutOfRange, COMPACTED),
        Error::NoSpace => (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
        Error::NoRoomToShrink { .. } => (Code::ResourceExhausted, "sternpost: no room to rewrite the database file"),
        Error::ShrinkFailed { .. } => (Code::Internal, "sternpost: the database file was not rewritten"),
        Error::CorruptAlarm => (Code::DataLoss, CORRUPT),
        // etcd sends this one without a code of its own; clients know the text.
        Error::TooManyRequests { .. } => (Code::Unknown, "etcdserver: too many requests"),
        Error::Stopped => (Code::Unavailable, STOPPED),
        // The text that means "it may have happened" to every client: none retries a write after it.
        Error::OutcomeUnknown => (Code::Unavailable, "etcdserver: request timed out"),
        // The process ends within a second; another try, elsewhere or later, is right.
        Error::Io { .. } => (Code::Unavailable, STOPPED),
        Error::Corrupt { .. } | Error::LogMismatch { .. } => (Code::DataLoss, CORRUPT),
    }
}

/// The codes as labels name them, each at its number.
pub(crate) const CODE_NAMES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
const CORRUPT: &str = "etcdserver: corrupt cluster";
const STOPPED: &str = "etcdserver: server stopped";

/// The server is going away; ends every stream.
pub(crate) fn stopped() -> Status {
    of(&Error::Stopped)
}

/// A call that this server knows and cannot carry out.
pub(crate) fn unsupported(call: &str) -> Status {
    Status::unimplemented(format!("etcdserver: this server does not support {call} yet"))
}

/// A streamed range in an order that streaming cannot give.
pub(crate) fn stream_without_sort() -> Status {
    Status::unimplemented("RangeStream does not support custom sort orders")
}

/// A streamed range with bounds on revisions.
pub(crate) fn stream_without_filters() -> Status {
    Status::unimplemented("RangeStream does not support revision filters")
}

/// An action on alarms that nobody defined.
pub(crate) fn unknown_alarm_action() -> Status {
    Status::invalid_argument("etcdserver: unknown alarm action")
}

/// A health check for a service that is not registered.
pub(crate) fn unknown_service() -> Status {
    Status::not_found("unknown service")
}

/// History went on being compacted while it was being hashed.
pub(crate) fn hash_disturbed() -> Status {
    Status::unavailable("etcdserver: compaction overtook the hash, try again")
}

/// Bytes that are not the message they should be, in the words of grpc-go.
pub(crate) fn unreadable(detail: impl Display) -> Status {
    Status::internal(format!("grpc: error unmarshalling request: {detail}"))
}

/// A reply that cannot be encoded, in the words of grpc-go.
pub(crate) fn unencodable(detail: impl Display) -> Status {
    Status::internal(format!("grpc: error while marshaling: {detail}"))
}

/// A reply that is longer than a message may be, in the words of grpc-go.
pub(crate) fn too_long(found: usize, limit: usize) -> Status {
    Status::resource_exhausted(format!("grpc: trying to send message larger than max ({found} vs. {limit})"))
}

/// Transactions within transactions beyond the depth at which they are still decoded.
pub(crate) fn nested_too_deep(limit: usize) -> Status {
    of(&Error::TooManyOps { found: limit.saturating_add(1), limit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::{LeaseId, Position, WatchId};

    fn check(error: Error, code: Code, text: &str) {
        let status = of(&error);
        assert_eq!((status.code(), status.message()), (code, text), "{error:?}");
    }

    #[test]
    fn every_refusal_has_the_text_and_code_that_clients_know() {
        let invalid = Code::InvalidArgument;
        check(Error::KeyNotProvided, invalid, "etcdserver: key is not provided");
        check(Error::KeyNotFound, invalid, "etcdserver: key not found");
        check(Error::ValueProvided, invalid, "etcdserver: value is provided");
        check(Error::LeaseProvided, invalid, "etcdserver: lease is provided");
        check(Error::TooManyOps { found: 129, limit: 128 }, invalid, "etcdserver: too many operations in txn request");
        check(Error::DuplicateKey, invalid, "etcdserver: duplicate key given in txn request");
        check(Error::InvalidSortOption, invalid, "etcdserver: invalid sort option");
        check(Error::RequestTooLarge { size: 2, limit: 1 }, invalid, "etcdserver: request is too large");
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        check(Error::Compacted { asked: 1, floor: 2 }, Code::OutOfRange, compacted);
        let future = "etcdserver: mvcc: required revision is a future revision";
        check(Error::Future { asked: 3, current: 2 }, Code::OutOfRange, future);
        check(Error::LeaseNotFound(LeaseId(1)), Code::NotFound, "etcdserver: requested lease not found");
        check(Error::LeaseExists(LeaseId(1)), Code::FailedPrecondition, "etcdserver: lease already exists");
        check(Error::LeaseTtlTooLarge { ttl: 2, limit: 1 }, Code::OutOfRange, "etcdserver: too large lease TTL");
        check(Error::NoSpace, Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
        check(Error::TooManyRequests { queued: 1 }, Code::Unknown, "etcdserver: too many requests");
    }

    #[test]
    fn a_rewrite_that_is_given_up_says_so() {
        let (needed, free) = (2, 1);
        let no_room = "sternpost: no room to rewrite the database file";
        check(Error::NoRoomToShrink { needed, free }, Code::ResourceExhausted, no_room);
        let failed = Error::ShrinkFailed { reason: "gone".to_owned() };
        check(failed, Code::Internal, "sternpost: the database file was not rewritten");
    }

    #[test]
    fn the_end_of_the_keyspace_is_unavailable_or_data_loss() {
        let io = std::io::Error::other("gone");
        check(Error::Stopped, Code::Unavailable, "etcdserver: server stopped");
        check(Error::OutcomeUnknown, Code::Unavailable, "etcdserver: request timed out");
        check(Error::io("reading", &io), Code::Unavailable, "etcdserver: server stopped");
        check(Error::CorruptAlarm, Code::DataLoss, "etcdserver: corrupt cluster");
        check(Error::corrupt("a", "b"), Code::DataLoss, "etcdserver: corrupt cluster");
        let mismatch = Error::LogMismatch { position: Position(1), reason: String::new() };
        check(mismatch, Code::DataLoss, "etcdserver: corrupt cluster");
    }

    #[test]
    fn a_refused_watch_gives_the_bare_reason() {
        assert_eq!(cancel_reason(&Error::WatchRangeEmpty), "mvcc: watcher range is empty");
        let taken = "mvcc: duplicate watch ID provided on the WatchStream";
        assert_eq!(cancel_reason(&Error::WatchIdTaken(WatchId(7))), taken);
        let negative = "etcdserver: mvcc: required revision has been compacted";
        assert_eq!(cancel_reason(&Error::WatchStartNegative(-1)), negative);
    }
}
