//! What every service shares: the keyspace, the settings, the identity for headers, and the way to blocking calls.

use std::future::Future;
use std::sync::Arc;

use prost::Message;
use storage::{Error, Keyspace, MemberId, Revision};
use tokio::sync::watch;
use tonic::Status;

use super::patience::Patience;
use crate::config::ServiceConfig;
use crate::convert::Envelope;
use crate::metrics::Timed;
use crate::pb::etcdserverpb::ResponseHeader;
use crate::status;

/// One process is its own only leader, for ever: the term never changes.
pub(super) const TERM: u64 = 2;

/// What the services share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(super) keyspace: Keyspace,
    pub(super) config: ServiceConfig,
    pub(super) member: MemberId,
    cluster: u64,
    patience: Patience,
}

impl Context {
    /// Reads who this is, once.
    pub(crate) fn new(keyspace: Keyspace, config: ServiceConfig) -> Arc<Context> {
        let status = keyspace.status();
        Arc::new(Context {
            keyspace,
            config,
            member: status.member,
            cluster: status.cluster,
            patience: Patience::default(),
        })
    }

    /// A header at a revision.
    pub(super) fn header_at(&self, revision: Revision) -> ResponseHeader {
        ResponseHeader { cluster_id: self.cluster, member_id: self.member.0, revision: revision.0, raft_term: TERM }
    }

    /// A header at a revision, as messages hold it.
    pub(super) fn header(&self, revision: Revision) -> Option<ResponseHeader> {
        Some(self.header_at(revision))
    }

    /// A header at the current revision.
    pub(super) fn header_now(&self) -> Option<ResponseHeader> {
        self.header(self.keyspace.revision())
    }

    /// Refuses a change that is larger than changes may be.
    pub(super) fn check_size(&self, envelope: Envelope, message: &impl Message) -> Result<(), Status> {
        self.check_sized(envelope.size(message))
    }

    /// The same for a size that was taken before the message was converted.
    pub(super) fn check_sized(&self, size: usize) -> Result<(), Status> {
        Envelope::check(size, self.config.max_request_bytes).map_err(|error| status::of(&error))
    }

    /// Carries out a request and keeps how long it took.
    pub(super) async fn timed<T, E>(&self, kind: Timed, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.config.metrics.durations.request(kind, work).await
    }

    /// Runs a call that may block on the disk where blocking is allowed.
    pub(super) async fn blocking<T, F>(self: &Arc<Self>, call: F) -> Result<T, Status>
    where
        T: Send + 'static,
        F: FnOnce(&Context) -> Result<T, Error> + Send + 'static,
    {
        let context = Arc::clone(self);
        // The call is lost only if it panicked or if the runtime is being torn down.
        let outcome = tokio::task::spawn_blocking(move || call(&context)).await.map_err(|_| status::stopped())?;
        outcome.map_err(|error| status::of(&error))
    }

    /// Runs a call that reads one key: here, if such calls have not waited for the disk lately.
    pub(super) async fn short<T, F>(self: &Arc<Self>, call: F) -> Result<T, Status>
    where
        T: Send + 'static,
        F: FnOnce(&Context) -> Result<T, Error> + Send + 'static,
    {
        if !self.patience.is_there() {
            return self.blocking(call).await;
        }
        self.patience.spend(|| call(self)).map_err(|error| status::of(&error))
    }

    /// Resolves when the server stops.
    pub(super) fn stopping(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut shutdown: watch::Receiver<bool> = self.config.shutdown.clone();
        async move {
            if shutdown.wait_for(|stop| *stop).await.is_err() {
                // Whoever could stop the server is gone, so nobody will.
                std::future::pending::<()>().await;
            }
        }
    }
}
