//! Requests through the generated servers and the codec, down to the status that a client reads.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;
use prost::Message;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};
use tower::ServiceExt;

use super::unsupported::service;
use super::{ElectionService, LockService};
use crate::codec::DEPTH_MAX;
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::kv_server::{Kv, KvServer};
use crate::pb::etcdserverpb::request_op::Request as Op;
use crate::pb::v3electionpb::election_server::ElectionServer;
use crate::pb::v3lockpb::lock_server::LockServer;

/// Keys that are not there; a transaction succeeds if it was decoded at all, a put says whether its value came through.
struct Echo;

service! {
    impl Kv for Echo {
        type RangeStreamStream = Pin<Box<dyn Stream<Item = Result<pb::RangeStreamResponse, Status>> + Send>>;

        async fn txn(&self, _: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
            Ok(Response::new(pb::TxnResponse { succeeded: true, ..Default::default() }))
        }

        async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
            let request = request.into_inner();
            assert!(request.value.iter().all(|byte| *byte == 7), "a value of {} bytes was mangled", request.value.len());
            let revision = i64::try_from(request.value.len()).unwrap_or(i64::MAX);
            let header = Some(pb::ResponseHeader { revision, ..Default::default() });
            Ok(Response::new(pb::PutResponse { header, prev_kv: None }))
        }
    }
    unsupported {
        "Range" range(RangeRequest) -> pb::RangeResponse;
        "RangeStream" range_stream(RangeRequest) -> Self::RangeStreamStream;
        "DeleteRange" delete_range(DeleteRangeRequest) -> pb::DeleteRangeResponse;
        "Compact" compact(CompactionRequest) -> pb::CompactionResponse;
    }
}

/// The message in its gRPC frame.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("short");
    [&[0], length.to_be_bytes().as_slice(), message].concat()
}

/// Calls a method; answers with the reply's message, or with code and text.
async fn call(method: &str, message: &[u8]) -> Result<Vec<u8>, (Code, String)> {
    let server = KvServer::new(Echo).max_decoding_message_size(usize::MAX);
    let routes =
        Routes::new(server).add_service(LockServer::new(LockService)).add_service(ElectionServer::new(ElectionService));
    let request = http::Request::post(method).header("content-type", "application/grpc");
    let request = request.body(Body::new(axum::body::Body::from(framed(message)))).expect("a request");
    let response = routes.oneshot(request).await.expect("routes do not fail");
    if let Some(status) = Status::from_header_map(response.headers()) {
        return Err((status.code(), status.message().to_owned()));
    }
    let body = axum::body::Body::new(response.into_body());
    let bytes = axum::body::to_bytes(body, usize::MAX).await.expect("a whole body");
    Ok(bytes.get(5..).expect("a frame").to_vec())
}

fn nested(depth: usize) -> Vec<u8> {
    let txn = (1..depth).fold(pb::TxnRequest::default(), |inner, _| {
        let op = pb::RequestOp { request: Some(Op::RequestTxn(inner)) };
        pb::TxnRequest { success: vec![op], ..Default::default() }
    });
    txn.encode_to_vec()
}

#[tokio::test]
async fn a_transaction_is_decoded_beyond_the_nesting_that_prost_allows() {
    let reply = call("/etcdserverpb.KV/Txn", &nested(DEPTH_MAX)).await.expect("decoded");
    assert!(pb::TxnResponse::decode(reply.as_slice()).expect("a reply").succeeded);
    let refusal = call("/etcdserverpb.KV/Txn", &nested(DEPTH_MAX + 1)).await.expect_err("too deep");
    assert_eq!(refusal, (Code::InvalidArgument, "etcdserver: too many operations in txn request".to_owned()));
}

#[tokio::test]
async fn requests_that_cannot_be_read_are_internal_errors() {
    for method in ["/etcdserverpb.KV/Txn", "/etcdserverpb.KV/Put"] {
        let (code, text) = call(method, &[0x0a, 9]).await.expect_err("malformed");
        assert_eq!(code, Code::Internal);
        assert!(text.starts_with("grpc: error unmarshalling request: "), "{text}");
    }
}

#[tokio::test]
async fn values_of_every_size_come_through() {
    for size in [0, 1, 1000, 16_000, 17_000, 2_000_000, 10_000_000] {
        let value = Bytes::from(vec![7; size]);
        let put = pb::PutRequest { key: Bytes::from_static(b"k"), value, ..Default::default() };
        let reply = call("/etcdserverpb.KV/Put", &put.encode_to_vec()).await.expect("a reply");
        let header = pb::PutResponse::decode(reply.as_slice()).expect("a reply").header;
        assert_eq!(header.map(|header| header.revision), i64::try_from(size).ok());
    }
}

#[tokio::test]
async fn what_is_not_supported_says_so() {
    for (method, name) in [
        ("/v3lockpb.Lock/Lock", "Lock"),
        ("/v3lockpb.Lock/Unlock", "Unlock"),
        ("/v3electionpb.Election/Campaign", "Campaign"),
        ("/v3electionpb.Election/Observe", "Observe"),
    ] {
        let text = format!("etcdserver: this server does not support {name} yet");
        assert_eq!(call(method, &[]).await, Err((Code::Unimplemented, text)));
    }
}
