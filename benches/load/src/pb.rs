//! The messages, clients and servers of the API, as the build script generates them.

#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    unused_qualifications,
    clippy::all,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "generated code follows the style of its generator, and includes calls that are not measured"
)]

/// Keys and events.
pub(crate) mod mvccpb {
    tonic::include_proto!("mvccpb");
}

/// Permissions.
pub(crate) mod authpb {
    tonic::include_proto!("authpb");
}

/// The calls.
pub(crate) mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}
