//! A checker of histories: pure data in, a verdict out, for any store with etcd's revisions, watches and leases.
//!
//! A [`History`] holds what clients asked and were told, what watches delivered, and the journal: every change of the
//! store in revision order, as a watch over everything recorded it. [`check`] says whether one store with etcd's promises
//! could have given all of it, and names the first [`Rule`] that it broke.
//!
//! Revisions give the order, so nothing is searched: the cost is that of sorting, plus what reads returned.
//!
//! 1. Every revision of the journal gets one owner: the write that was answered with it; else a write without an answer,
//!    found by its value, which no other request writes; else a deletion without an answer that has exactly this effect; else
//!    the end of a lease. A write that was answered and owns nothing is lost.
//! 2. The owners are carried out one after the other on a plain map. Changes and replies must be those recorded; reads must
//!    equal the map at their revision.
//! 3. Real time: revision r becomes visible at one moment, after the call of its owner and of every read answered below
//!    r, and before anybody was told of r or more. With a fixed order such moments exist if and only if the running maximum of
//!    the former never exceeds the running minimum of the latter.
//! 4. Watches are compared with the journal in one pass each; compaction and leases with what was asked for and when.
//!
//! What clients have to do: at most one call at a time each; every value written once; the store is empty at the start.
//! Deletions carry no value: of those without an answer that fit a revision equally the narrowest is taken, so clients should
//! delete ranges only where nobody else deletes.

#![allow(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "numbers index what they were counted from; a panic fails the test"
)]

mod check;
mod compaction;
mod journal;
mod lease;
mod owner;
mod reply;
mod state;
mod time;
mod types;
mod violation;
mod watch;
mod workload;

pub use check::{Options, Report, check};
pub use types::*;
pub use violation::{Rule, Violation};
pub use workload::{Client, Scene};
