//! What the one test body needs of the thing under test.

use std::time::Duration;

use super::op::{Outcome, Request};
use super::watcher::Rules;
use super::wire_more::{WatchRequest, WatchResponse};

/// A keyspace under test, however it is reached.
pub trait Driver {
    /// Sends one request and waits for its outcome.
    fn apply(&mut self, request: &Request) -> Outcome;
    /// Opens a stream of watches and names it.
    fn watch_open(&mut self) -> usize;
    /// Sends a message on a stream.
    fn watch_send(&mut self, stream: usize, request: WatchRequest);
    /// The next message of a stream; `None` if there is none in time.
    fn watch_next(&mut self, stream: usize, patience: Duration) -> Option<WatchResponse>;
    /// Ends a stream.
    fn watch_close(&mut self, stream: usize);
    /// Moves what is in memory to base. False if this cannot be asked for.
    fn flush(&mut self) -> bool;
    /// Has base rewritten, and waits until it is if told to. False if this cannot be asked for.
    fn rewrite(&mut self, wait: bool) -> bool;
    /// Ends the keyspace and opens it again: in order, or as after a kill. Streams are gone then. False if this cannot be done.
    fn reopen(&mut self, killed: bool) -> bool;
    /// True if lists can be streamed.
    fn streams_lists(&self) -> bool;
    /// What this implementation does where several answers are right.
    fn rules(&self) -> Rules;
}
