//! The floor: a bare tonic server that answers with the bytes of a store, without a store.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::Failure;
use crate::keys::value;
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::kv_server::{Kv, KvServer};
use crate::pb::etcdserverpb::{request_op, response_op};
use crate::pb::mvccpb::KeyValue;

/// What every answer says that a store would have counted: as many bytes as after a minute of load.
const COUNTED: i64 = 1_000_000;

/// Bytes of the value before the first put.
const VALUE_BYTES: usize = 256;

/// Serves at `listen` until the process ends.
pub(crate) async fn serve(listen: SocketAddr) -> Result<(), Failure> {
    let incoming = TcpListenerStream::new(TcpListener::bind(listen).await?);
    let floor = Floor { value: Arc::new(RwLock::new(value(1, VALUE_BYTES))) };
    let service = KvServer::new(floor).max_decoding_message_size(usize::MAX);
    // As a store's listener does it.
    let incoming = tokio_stream::StreamExt::map(incoming, |accepted| accepted.and_then(nodelay));
    Ok(Server::builder().add_service(service).serve_with_incoming(incoming).await?)
}

fn nodelay(stream: tokio::net::TcpStream) -> std::io::Result<tokio::net::TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Knows one value, as long as that of the last put.
#[derive(Clone)]
struct Floor {
    value: Arc<RwLock<Vec<u8>>>,
}

fn header() -> Option<pb::ResponseHeader> {
    // Ids of a real member are as long as these.
    Some(pb::ResponseHeader { cluster_id: 1 << 62, member_id: 1 << 63, revision: COUNTED, raft_term: 2 })
}

impl Floor {
    fn put(&self, request: pb::PutRequest) -> pb::PutResponse {
        // A clone under a read lock is what a get pays; most puts carry as many bytes and change nothing.
        let stored = self.value.read().unwrap_or_else(PoisonError::into_inner).len();
        if stored != request.value.len() {
            *self.value.write().unwrap_or_else(PoisonError::into_inner) = request.value;
        }
        pb::PutResponse { header: header(), prev_kv: None }
    }

    fn range(&self, request: pb::RangeRequest) -> pb::RangeResponse {
        let found = KeyValue {
            key: request.key,
            create_revision: COUNTED,
            mod_revision: COUNTED,
            version: 1,
            value: self.value.read().unwrap_or_else(PoisonError::into_inner).clone(),
            lease: 0,
        };
        pb::RangeResponse { header: header(), kvs: vec![found], more: false, count: 1 }
    }
}

#[tonic::async_trait]
impl Kv for Floor {
    type RangeStreamStream = tokio_stream::Empty<Result<pb::RangeStreamResponse, Status>>;

    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        Ok(Response::new(Floor::range(self, request.into_inner())))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        Ok(Response::new(Floor::put(self, request.into_inner())))
    }

    /// Every compare holds.
    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        let mut responses = Vec::new();
        for op in request.into_inner().success {
            let response = match op.request {
                Some(request_op::Request::RequestPut(put)) => {
                    let header = pb::ResponseHeader { revision: COUNTED, ..Default::default() };
                    let answer = pb::PutResponse { header: Some(header), ..Floor::put(self, put) };
                    response_op::Response::ResponsePut(answer)
                }
                Some(request_op::Request::RequestRange(get)) => {
                    response_op::Response::ResponseRange(Floor::range(self, get))
                }
                _ => return Err(Status::unimplemented("the floor knows puts and gets")),
            };
            responses.push(pb::ResponseOp { response: Some(response) });
        }
        Ok(Response::new(pb::TxnResponse { header: header(), succeeded: true, responses }))
    }

    async fn range_stream(&self, _: Request<pb::RangeRequest>) -> Result<Response<Self::RangeStreamStream>, Status> {
        Err(Status::unimplemented("the floor has no ranges"))
    }

    async fn delete_range(
        &self,
        _: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        Err(Status::unimplemented("the floor deletes nothing"))
    }

    async fn compact(&self, _: Request<pb::CompactionRequest>) -> Result<Response<pb::CompactionResponse>, Status> {
        Err(Status::unimplemented("the floor has no history"))
    }
}
