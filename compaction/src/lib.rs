//! Decides when and how much a keyspace is compacted, and when its file is rewritten.
//!
//! It acts only by proposing: [`Retention`] names a revision, the caller hands it to `Keyspace::compact`, and the keyspace checks it
//! like any other. [`Shrinking`] says when to call `Keyspace::defragment` or `flush`. No clock here: the caller says what time it is.

mod retention;
mod shrink;

pub use retention::{Policy, Retention};
pub use shrink::{Proposal, Shrinking, Sizes};
