//! The limits of connections, all of them, and what happens at each.

use std::time::Duration;

/// The limits of connections.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Connections open on all addresses together; further ones wait.
    pub(crate) connections_max: usize,
    /// A connection that has not shaken hands by then, or not greeted as long after it, is closed.
    pub(crate) handshake_timeout: Duration,
    /// An HTTP/1 connection that takes longer between or within request heads is closed.
    pub(crate) head_timeout: Duration,
    /// Decoded headers of one request; a request with more is answered with status 431.
    pub(crate) header_bytes_max: u32,
    /// Streams open on one connection; a further one is refused.
    pub(crate) streams_max: u32,
    /// Streams that the client reset before they were looked at; one more ends the connection.
    pub(crate) pending_resets_max: usize,
    /// Streams reset here for the client's mistakes; one more ends the connection.
    pub(crate) local_resets_max: usize,
    /// What a client may send on one stream before it must wait.
    pub(crate) stream_window_bytes: u32,
    /// What a client may send on one connection before it must wait.
    pub(crate) connection_window_bytes: u32,
    /// What one stream may hold here for a client that reads slowly; then the sender waits.
    pub(crate) send_buffer_bytes: usize,
    /// Silence after which a client is pinged.
    pub(crate) keepalive_interval: Duration,
    /// How long a ping may stay unanswered; then the connection is closed.
    pub(crate) keepalive_timeout: Duration,
    /// The largest message; a request with a larger one ends with ResourceExhausted.
    pub(crate) message_bytes_max: usize,
}
