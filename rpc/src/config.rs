//! What the services need to know about the server they run in.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::metrics::Metrics;

/// Settings of the services; the flags and the edge fill them in.
#[derive(Clone, Debug)]
pub(crate) struct ServiceConfig {
    /// The member's name, as `MemberList` shows it.
    pub(crate) name: String,
    /// The addresses that clients are told to use.
    pub(crate) advertise_client_urls: Vec<String>,
    /// The addresses that members would use.
    pub(crate) advertise_peer_urls: Vec<String>,
    /// The largest change, in bytes of its envelope.
    pub(crate) max_request_bytes: usize,
    /// The longest list of a transaction, and the budget that nested ones share.
    pub(crate) max_txn_ops: usize,
    /// A shorter lease is raised to this.
    pub(crate) min_lease_ttl_seconds: i64,
    /// How often an idle watch that asked for it hears of the revision.
    pub(crate) progress_interval: Duration,
    /// The quota as `Status` shows it; negative means none.
    pub(crate) quota_bytes: i64,
    /// The version that clients parse to learn what the server can do.
    pub(crate) version: &'static str,
    /// The version of the storage format, as `Status` shows it.
    pub(crate) storage_version: &'static str,
    /// Where requests are counted and timed.
    pub(crate) metrics: Arc<Metrics>,
    /// Turns true when the server stops; streams end then.
    pub(crate) shutdown: watch::Receiver<bool>,
}

impl ServiceConfig {
    /// What gRPC messages may exceed a change by, in bytes.
    pub(crate) const MESSAGE_OVERHEAD_BYTES: usize = 512 << 10;

    /// The largest gRPC message that is received, and the size from which watch responses are fragmented, in bytes.
    pub(crate) fn max_message_bytes(&self) -> usize {
        self.max_request_bytes.saturating_add(Self::MESSAGE_OVERHEAD_BYTES)
    }
}
