//! The engine: a queue of commands, one thread that commits them, one that keeps base up to date.

mod batch;
pub(crate) mod budget;
pub(crate) mod committer;
pub(crate) mod lessor;
pub(crate) mod maintenance;
pub(crate) mod pace;
pub(crate) mod queue;
pub(crate) mod room;
pub(crate) mod scrub;
pub(crate) mod shared;
pub(crate) mod shrink;
