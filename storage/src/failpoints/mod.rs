//! For tests of the feature `failpoints`: places where a keyspace can be made to fail, faults that can be planted in it, limits made small.
//!
//! All of it belongs to a [`Scope`]. A thread enters one; the threads of a keyspace are in the scope of the thread that opened it. So many
//! keyspaces can be tested at once, each with a fault of its own, and code outside of a scope behaves as without the feature.

mod planted;
mod points;
mod scope;

pub use planted::Planted;
pub use points::Point;
pub use scope::{Action, Entered, Scope};
pub(crate) use scope::{inherit, is_planted, is_small, pass};
