//! A server process and ways to talk to it.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "shared by test binaries that each use a part")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test that panics has failed"
)]

pub mod bulk;
pub mod client;
pub mod crew;
pub mod histories;
pub mod history_run;
pub mod history_wire;
pub mod ledger;
pub mod load;
pub mod page;
pub mod recorder;
pub mod remote;
pub mod server;
pub mod tracer;
