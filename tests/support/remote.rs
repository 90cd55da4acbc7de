//! The driver that reaches a keyspace over gRPC.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::runtime::Runtime;
use tonic::Status;
use tonic::transport::Channel;

use super::client::{Duplex, server_streaming, unary};
use super::server::{Server, reference};
use crate::model::driver::Driver;
use crate::model::op::{Outcome, Refusal, Reply, Request};
use crate::model::watcher::Rules;
use crate::model::wire::*;
use crate::model::wire_more::*;

/// A server of its own, and a connection to it.
pub struct Remote {
    runtime: Runtime,
    server: Server,
    channel: Channel,
    streams: BTreeMap<usize, Duplex<WatchRequest, WatchResponse>>,
    opened: usize,
    identity: Option<(u64, u64)>,
    term: u64,
}

impl Remote {
    /// A driver with a server started with further arguments.
    pub fn start(extra: &[&str]) -> Remote {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let (server, channel) = runtime.block_on(async {
            let server = Server::start(extra).await;
            let channel = server.channel();
            (server, channel)
        });
        Remote { runtime, server, channel, streams: BTreeMap::new(), opened: 0, identity: None, term: 0 }
    }

    fn call<Q, R>(&self, path: &'static str, request: &Q) -> Result<R, Refusal>
    where
        Q: prost::Message + Clone + 'static,
        R: prost::Message + Default + 'static,
    {
        let outcome = self.runtime.block_on(unary(&self.channel, path, request.clone()));
        outcome.map_err(|status| self.refusal(&status))
    }

    fn refusal(&self, status: &Status) -> Refusal {
        Refusal::from_status(status).unwrap_or_else(|| panic!("unexpected status {status:?}:\n{}", self.server.log()))
    }

    /// Looks at the parts of a header that are the same for every reply, and leaves the revision.
    fn identified(&mut self, header: Option<Header>) -> Option<Header> {
        let header = header?;
        let identity = (header.cluster_id, header.member_id);
        assert!(identity.0 != 0 && identity.1 != 0, "no identity in {header:?}");
        assert_eq!(*self.identity.get_or_insert(identity), identity, "the identity changed");
        assert!(header.raft_term >= self.term.max(1), "the term went back: {header:?}");
        self.term = header.raft_term;
        Some(Header { revision: header.revision, ..Header::default() })
    }

    fn revision(&mut self, reply: HeaderResponse) -> Reply {
        Reply::Done(self.identified(reply.header).map_or(-1, |header| header.revision))
    }

    fn range_stream(&mut self, request: &RangeRequest) -> Result<RangeResponse, Refusal> {
        let merged = self.runtime.block_on(async {
            let path = "/etcdserverpb.KV/RangeStream";
            let mut stream = server_streaming::<_, RangeStreamResponse>(&self.channel, path, request.clone()).await?;
            let mut merged = RangeResponse::default();
            while let Some(chunk) = stream.message().await? {
                let chunk = chunk.range_response.ok_or_else(|| Status::internal("a chunk without a range"))?;
                assert!(merged.header.is_none(), "a chunk follows the one with the header");
                merged.kvs.extend(chunk.kvs);
                (merged.header, merged.more, merged.count) = (chunk.header, chunk.more, chunk.count);
            }
            Ok::<_, Status>(merged)
        });
        merged.map_err(|status| self.refusal(&status))
    }

    fn keep_alive(&self, id: i64) -> LeaseKeepAliveResponse {
        self.runtime.block_on(async {
            let mut stream = Duplex::open(&self.channel, "/etcdserverpb.Lease/LeaseKeepAlive");
            stream.send(LeaseIdRequest { id });
            stream.half_close();
            let reply = stream.next().await.expect("an answer").expect("no error");
            assert!(stream.next().await.is_none(), "a half-closed stream ends in order");
            reply
        })
    }
}

impl Driver for Remote {
    fn apply(&mut self, request: &Request) -> Outcome {
        Ok(match request {
            Request::Range(request) => {
                let mut reply: RangeResponse = self.call("/etcdserverpb.KV/Range", request)?;
                reply.header = self.identified(reply.header);
                Reply::Range(reply)
            }
            Request::RangeStream(request) => {
                let mut reply = self.range_stream(request)?;
                reply.header = self.identified(reply.header);
                Reply::Range(reply)
            }
            Request::Put(request) => {
                let mut reply: PutResponse = self.call("/etcdserverpb.KV/Put", request)?;
                reply.header = self.identified(reply.header);
                Reply::Put(reply)
            }
            Request::DeleteRange(request) => {
                let mut reply: DeleteRangeResponse = self.call("/etcdserverpb.KV/DeleteRange", request)?;
                reply.header = self.identified(reply.header);
                Reply::DeleteRange(reply)
            }
            Request::Txn(request) => {
                let mut reply: TxnResponse = self.call("/etcdserverpb.KV/Txn", request)?;
                reply.header = self.identified(reply.header);
                Reply::Txn(reply)
            }
            Request::Compact(request) => {
                let reply = self.call("/etcdserverpb.KV/Compact", request)?;
                self.revision(reply)
            }
            Request::Grant(request) => {
                let mut reply: LeaseGrantResponse = self.call("/etcdserverpb.Lease/LeaseGrant", request)?;
                reply.header = self.identified(reply.header);
                Reply::Grant(reply)
            }
            Request::Revoke(id) => {
                let reply = self.call("/etcdserverpb.Lease/LeaseRevoke", &LeaseIdRequest { id: *id })?;
                self.revision(reply)
            }
            Request::KeepAlive(id) => {
                let mut reply = self.keep_alive(*id);
                reply.header = self.identified(reply.header);
                Reply::KeepAlive(reply)
            }
            Request::TimeToLive(request) => {
                let mut reply: LeaseTimeToLiveResponse = self.call("/etcdserverpb.Lease/LeaseTimeToLive", request)?;
                reply.header = self.identified(reply.header);
                Reply::TimeToLive(reply)
            }
            Request::Leases => {
                let mut reply: LeaseLeasesResponse = self.call("/etcdserverpb.Lease/LeaseLeases", &Empty {})?;
                reply.header = self.identified(reply.header);
                Reply::Leases(reply)
            }
        })
    }

    fn watch_open(&mut self) -> usize {
        self.opened += 1;
        let stream = self.runtime.block_on(async { Duplex::open(&self.channel, "/etcdserverpb.Watch/Watch") });
        self.streams.insert(self.opened, stream);
        self.opened
    }

    fn watch_send(&mut self, stream: usize, request: WatchRequest) {
        self.streams[&stream].send(request);
    }

    fn watch_next(&mut self, stream: usize, patience: Duration) -> Option<WatchResponse> {
        let stream = self.streams.get_mut(&stream)?;
        let next = self.runtime.block_on(async { tokio::time::timeout(patience, stream.next()).await });
        let mut message = match next.ok()? {
            Some(Ok(message)) => message,
            end => panic!("the stream ended with {end:?}:\n{}", self.server.log()),
        };
        message.header = self.identified(message.header);
        Some(message)
    }

    fn watch_close(&mut self, stream: usize) {
        self.streams.remove(&stream);
    }

    fn flush(&mut self) -> bool {
        false
    }

    fn rewrite(&mut self, wait: bool) -> bool {
        let channel = self.channel.clone();
        let rewritten =
            async move { unary::<Empty, Empty>(&channel, "/etcdserverpb.Maintenance/Defragment", Empty {}).await };
        if wait {
            self.runtime.block_on(rewritten).expect("there is room");
        } else {
            drop(self.runtime.spawn(rewritten));
        }
        true
    }

    fn reopen(&mut self, killed: bool) -> bool {
        self.streams.clear();
        if killed {
            self.server.kill();
        } else {
            self.server.terminate();
            self.runtime.block_on(self.server.wait());
        }
        self.runtime.block_on(self.server.start_again());
        self.channel = self.runtime.block_on(async { self.server.channel() });
        true
    }

    fn streams_lists(&self) -> bool {
        true
    }

    fn rules(&self) -> Rules {
        let real_etcd = reference().is_some();
        Rules {
            revisions_are_promises: false,
            floor_keeps_last_alone: real_etcd,
            breaks_on_two_changes_of_a_key: real_etcd,
        }
    }
}
