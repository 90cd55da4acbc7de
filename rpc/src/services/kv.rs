//! Keys: read, write, delete, transact, compact.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use storage::{Error, RangeEnd, RangeReply, RangeRequest, Revision, Txn};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};
use tracing::warn;

use super::context::Context;
use super::listing::{self, Answer};
use super::range_stream;
use crate::convert::{self, Envelope};
use crate::encoded;
use crate::metrics::Timed;
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::kv_server::Kv;
use crate::status;

/// The service `etcdserverpb.KV`.
#[derive(Debug)]
pub(crate) struct KvService {
    context: Arc<Context>,
    /// Who may wait for the sweep: it takes long, and occupies a thread that reads could use.
    sweep: Semaphore,
}

/// Physical compactions that wait at the same time; further ones wait for these.
const SWEEP_WAITS_MAX: usize = 2;

impl KvService {
    /// The service over a keyspace.
    pub(crate) fn new(context: Arc<Context>) -> KvService {
        KvService { context, sweep: Semaphore::new(SWEEP_WAITS_MAX) }
    }

    /// Reads one key; after everything that was acknowledged before, unless the client does without.
    async fn read(&self, request: RangeRequest, serializable: bool) -> Result<RangeReply, Status> {
        let read = move |context: &Context| {
            if !serializable {
                context.keyspace.barrier()?;
            }
            context.config.metrics.durations.range(|| context.keyspace.range(&request))
        };
        self.context.short(read).await
    }

    /// Reads a range likewise; answers what its reply begins with.
    async fn list(&self, request: RangeRequest, serializable: bool) -> Result<listing::Step, Status> {
        let read = move |context: &Context| {
            if !serializable {
                context.keyspace.barrier()?;
            }
            context.config.metrics.durations.range(|| {
                let listing = context.keyspace.list(&request)?;
                let header = context.header(listing.revision);
                Ok(Answer::begin(&context.keyspace, listing, header))
            })
        };
        self.context.blocking(read).await?
    }

    /// Waits until nothing below a compacted revision is stored. On a full disk that is put off: the compaction itself holds all the same.
    async fn wait_swept(&self, revision: Revision) -> Result<(), Status> {
        let swept = move |context: &Context| match context.keyspace.wait_swept(revision) {
            Err(Error::NoSpace) => {
                warn!(%revision, "no room to remove what was compacted yet");
                Ok(())
            }
            done => done,
        };
        let _turn = self.sweep.acquire().await.map_err(|_| status::stopped())?;
        self.context.blocking(swept).await
    }

    async fn read_txn(&self, txn: Txn) -> Result<storage::TxnReply, Status> {
        self.context
            .blocking(move |context| {
                context.keyspace.barrier()?;
                context.keyspace.read_txn(&txn)
            })
            .await
    }
}

#[tonic::async_trait]
impl Kv for KvService {
    type RangeStreamStream = Pin<Box<dyn Stream<Item = Result<pb::RangeStreamResponse, Status>> + Send>>;

    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        let request = request.into_inner();
        let serializable = request.serializable;
        let request = convert::range(request).map_err(|error| status::of(&error))?;
        if request.range.end != RangeEnd::SingleKey {
            let first = self.context.timed(Timed::Range, self.list(request, serializable)).await?;
            let pieces = listing::pieces(Arc::clone(&self.context), first);
            return Ok(encoded::reply(pb::RangeResponse::default(), pieces));
        }
        let reply = self.context.timed(Timed::Range, self.read(request, serializable)).await?;
        Ok(Response::new(convert::range_reply(self.context.header(reply.revision), reply)))
    }

    async fn range_stream(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        let request = request.into_inner();
        let serializable = request.serializable;
        let request = convert::range_stream(request)?;
        if !serializable {
            self.context.blocking(|context| context.keyspace.barrier()).await?;
        }
        // The pieces are messages already; no stream of messages follows.
        let pieces = range_stream::pieces(Arc::clone(&self.context), request);
        Ok(encoded::reply(Box::pin(futures_util::stream::empty()), pieces))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        let request = request.into_inner();
        let size = Envelope::Put.size(&request);
        let put = convert::put(request).map_err(|error| status::of(&error))?;
        self.context.check_sized(size)?;
        let put = self.context.keyspace.put(put);
        let reply = self.context.timed(Timed::Put, put).await.map_err(|error| status::of(&error))?;
        Ok(Response::new(convert::put_reply(self.context.header(reply.revision), reply)))
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let request = request.into_inner();
        let size = Envelope::DeleteRange.size(&request);
        let delete = convert::delete_range(request).map_err(|error| status::of(&error))?;
        self.context.check_sized(size)?;
        let delete = self.context.keyspace.delete_range(delete);
        let reply = self.context.timed(Timed::DeleteRange, delete).await.map_err(|error| status::of(&error))?;
        Ok(Response::new(convert::delete_reply(self.context.header(reply.revision), reply)))
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        let request = request.into_inner();
        let size = Envelope::Txn.size(&request);
        let txn = convert::txn(request, self.context.config.max_txn_ops).map_err(|error| status::of(&error))?;
        let reply = if txn.is_read_only() {
            self.context.timed(Timed::ReadonlyTxn, self.read_txn(txn)).await?
        } else {
            self.context.check_sized(size)?;
            let txn = self.context.keyspace.txn(txn);
            self.context.timed(Timed::Txn, txn).await.map_err(|error| status::of(&error))?
        };
        Ok(Response::new(convert::txn_reply(self.context.header(reply.revision), reply)))
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        let request = request.into_inner();
        self.context.check_size(Envelope::Compaction, &request)?;
        let compact = self.context.keyspace.compact(request.revision);
        let compacted = self.context.timed(Timed::Compaction, compact).await;
        if request.physical && matches!(compacted, Ok(_) | Err(Error::Compacted { .. })) {
            // Also for a revision that was compacted before: its sweep may still be under way.
            self.wait_swept(Revision(request.revision)).await?;
        }
        let revision = compacted.map_err(|error| status::of(&error))?;
        Ok(Response::new(pb::CompactionResponse { header: self.context.header(revision) }))
    }
}
