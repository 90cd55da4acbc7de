//! A model of the etcd API, and the one test body that holds a keyspace against it.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "shared by test binaries that each use a part")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test that panics has failed"
)]

pub mod apply;
pub mod check;
pub mod coverage;
pub mod driver;
pub mod expected;
pub mod generate;
pub mod generate_txn;
pub mod notes;
pub mod op;
pub mod progress;
pub mod read;
pub mod rng;
pub mod state;
pub mod static_checks;
pub mod txn;
pub mod watcher;
pub mod watching;
pub mod wire;
pub mod wire_more;
