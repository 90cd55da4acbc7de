//! Leases: grant, revoke, renew, look at.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, stream};
use storage::LeaseId;
use tonic::{Request, Response, Status, Streaming};

use super::context::Context;
use crate::convert::{self, Envelope};
use crate::metrics::Timed;
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::lease_server::Lease;
use crate::status;

/// The service `etcdserverpb.Lease`.
#[derive(Debug)]
pub(crate) struct LeaseService {
    context: Arc<Context>,
}

impl LeaseService {
    /// The service over a keyspace.
    pub(crate) fn new(context: Arc<Context>) -> LeaseService {
        LeaseService { context }
    }
}

/// The TTL of a lease that does not exist.
const NO_LEASE_TTL: i64 = -1;

#[tonic::async_trait]
impl Lease for LeaseService {
    type LeaseKeepAliveStream = Pin<Box<dyn Stream<Item = Result<pb::LeaseKeepAliveResponse, Status>> + Send>>;

    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let request = request.into_inner();
        self.context.check_size(Envelope::LeaseGrant, &request)?;
        let ttl_min = self.context.config.min_lease_ttl_seconds;
        let (id, ttl) = convert::lease_grant(&request, ttl_min);
        let grant = self.context.keyspace.lease_grant(id, ttl);
        let reply = self.context.timed(Timed::LeaseGrant, grant).await.map_err(|error| status::of(&error))?;
        let header = self.context.header(reply.revision);
        Ok(Response::new(pb::LeaseGrantResponse { header, id: reply.id.0, ttl: reply.ttl, error: String::new() }))
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        let request = request.into_inner();
        self.context.check_size(Envelope::LeaseRevoke, &request)?;
        let revoke = self.context.keyspace.lease_revoke(LeaseId(request.id));
        let revision = self.context.timed(Timed::LeaseRevoke, revoke).await.map_err(|error| status::of(&error))?;
        Ok(Response::new(pb::LeaseRevokeResponse { header: self.context.header(revision) }))
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let state = Some((Arc::clone(&self.context), request.into_inner()));
        // The next request is read after the answer to this one was taken: a client that does not read cannot pile anything up.
        let answers = stream::unfold(state, |state| async move {
            let (context, mut requests) = state?;
            let stopping = context.stopping();
            let answer = tokio::select! {
                () = stopping => Some(Err(status::stopped())),
                answer = renew_next(&context, &mut requests) => answer,
            }?;
            let rest = answer.is_ok().then_some((context, requests));
            Some((answer, rest))
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        let pb::LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        let lease = self
            .context
            .blocking(move |context| {
                context.keyspace.barrier()?;
                context.keyspace.lease_time_to_live(LeaseId(id), keys)
            })
            .await?;
        let answer = match lease {
            Some(lease) => pb::LeaseTimeToLiveResponse {
                header: self.context.header(lease.revision),
                id,
                ttl: lease.ttl,
                granted_ttl: lease.granted_ttl,
                keys: lease.keys,
            },
            None => {
                let header = self.context.header_now();
                pb::LeaseTimeToLiveResponse { header, id, ttl: NO_LEASE_TTL, ..Default::default() }
            }
        };
        Ok(Response::new(answer))
    }

    async fn lease_leases(
        &self,
        _: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        let header = self.context.header_now();
        let leases = self.context.keyspace.leases().into_iter().map(|id| pb::LeaseStatus { id: id.0 }).collect();
        Ok(Response::new(pb::LeaseLeasesResponse { header, leases }))
    }
}

/// Answers the next request; `None` once the client has closed its side.
async fn renew_next(
    context: &Context,
    requests: &mut Streaming<pb::LeaseKeepAliveRequest>,
) -> Option<Result<pb::LeaseKeepAliveResponse, Status>> {
    match requests.message().await {
        Ok(Some(request)) => Some(renew(context, request.id).await),
        Ok(None) => None,
        Err(refusal) => Some(Err(refusal)),
    }
}

/// Renews a lease; one that does not exist has a TTL of 0.
async fn renew(context: &Context, id: i64) -> Result<pb::LeaseKeepAliveResponse, Status> {
    // Sampled first: the answer may be older than what happens meanwhile, never newer than what the client can know.
    let header = context.header_now();
    let ttl = context.keyspace.lease_keep_alive(LeaseId(id)).await.map_err(|error| status::of(&error))?;
    Ok(pb::LeaseKeepAliveResponse { header, id, ttl: ttl.unwrap_or(0) })
}
