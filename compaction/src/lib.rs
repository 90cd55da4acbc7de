//! Decides when and how much a keyspace is compacted, when its file is rewritten, and when it is read again to find damage.
//!
//! It acts only by proposing: [`Retention`] names a revision, the caller hands it to `Keyspace::compact`, and the keyspace checks it
//! like any other; [`Progress`] keeps what came of it. [`Shrinking`] says when to call `Keyspace::defragment` or `flush`, [`Scrubbing`] when
//! and how fast `Keyspace::scrub_step`. No clock here: the caller says what time it is.

mod progress;
mod retention;
mod scrub;
mod shrink;

pub use progress::Progress;
pub use retention::{Policy, Retention};
pub use scrub::Scrubbing;
pub use shrink::{Proposal, Shrinking, Sizes};
