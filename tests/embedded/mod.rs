//! A keyspace in this process, on a file system in memory and a clock that is set by hand.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "a part of the test that is written like a library")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test that panics has failed"
)]

pub mod asking;
pub mod convert;
pub mod crash;
pub mod driver;
pub mod environment;
pub mod histories;
pub mod memory;
pub mod mutations;
pub mod planting;
pub mod planting_in_watches;
pub mod viewing;
