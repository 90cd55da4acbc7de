//! Decides when and how much a keyspace is compacted.
//!
//! It acts only by proposing: [`Retention`] names a revision, the caller hands it to `Keyspace::compact`, and the keyspace checks it
//! like any other. No clock here: the caller says what time it is.

mod retention;

pub use retention::{Policy, Retention};
