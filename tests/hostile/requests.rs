//! Requests that are too large, too deep, or no requests at all.

use bytes::Bytes;
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};
use tonic::Code;

use super::{others_are_served, put};
use crate::model::wire::*;
use crate::support::client::{raw, unary};
use crate::support::server::Server;

#[tokio::test]
async fn a_request_above_the_limit_is_refused_and_one_below_is_not() {
    let server = Server::start(&[]).await;
    let channel = server.channel();
    put(&channel, "a", vec![b'v'; 1_500_000]).await.expect("it is below the limit");
    let status = put(&channel, "a", vec![b'v'; 1_600_000]).await.expect_err("it is above the limit");
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "etcdserver: request is too large"));
    let status = put(&channel, "a", vec![b'v'; 8 << 20]).await.expect_err("it is far above the limit");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let text = status.message();
    assert!(text.starts_with("grpc: received message larger than max (") && text.ends_with(" vs. 2097152)"), "{text}");
    others_are_served(&channel).await;
}

/// A transaction with so many levels within it, each `TxnRequest { success: [RequestOp { request_txn }] }`. Lengths are found from the inside
/// out, bytes are written from the outside in.
fn nested(levels: usize) -> Bytes {
    let (mut length, mut lengths) = (0, Vec::with_capacity(levels));
    for _ in 0..levels {
        let op = 1 + encoded_len_varint(length) + length as usize;
        lengths.push((op as u64, length));
        length = (1 + encoded_len_varint(op as u64) + op) as u64;
    }
    let mut bytes = Vec::with_capacity(length as usize);
    for (op, txn) in lengths.into_iter().rev() {
        bytes.push(2 << 3 | 2);
        encode_varint(op, &mut bytes);
        bytes.push(4 << 3 | 2);
        encode_varint(txn, &mut bytes);
    }
    bytes.into()
}

#[tokio::test]
async fn deep_nesting_is_refused_however_deep() {
    let server = Server::start(&[]).await;
    let channel = server.channel();
    let path = "/etcdserverpb.KV/Txn";
    raw(&channel, path, vec![nested(128)])
        .await
        .expect("as deep as the limit of operations allows")
        .expect("an answer");
    let status = raw(&channel, path, vec![nested(129)]).await.expect_err("deeper than the limit allows");
    assert_eq!(
        (status.code(), status.message()),
        (Code::InvalidArgument, "etcdserver: too many operations in txn request")
    );
    for levels in [9_000, 100_000] {
        raw(&channel, path, vec![nested(levels)]).await.expect_err("far too deep");
    }
    others_are_served(&channel).await;
}

#[tokio::test]
async fn bytes_that_are_no_message_are_refused_and_the_connection_lives() {
    let server = Server::start(&[]).await;
    let channel = server.channel();
    let broken: &[&[u8]] =
        &[b"\x0a\xff\xff\xff\xff\x07", b"\x0a", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\x0b", b"\x0f\x01"];
    for path in [
        "/etcdserverpb.KV/Range",
        "/etcdserverpb.KV/Put",
        "/etcdserverpb.KV/Txn",
        "/etcdserverpb.Lease/LeaseGrant",
        "/etcdserverpb.Watch/Watch",
    ] {
        for bytes in broken {
            let outcome = raw(&channel, path, vec![Bytes::from_static(bytes)]).await;
            let status = outcome.expect_err("it is no message");
            assert!(
                matches!(status.code(), Code::Internal | Code::InvalidArgument | Code::Unknown),
                "{path}: {status:?}"
            );
        }
    }
    others_are_served(&channel).await;
}

#[tokio::test]
async fn fields_that_nobody_knows_are_ignored() {
    let server = Server::start(&[]).await;
    let channel = server.channel();
    let mut bytes = PutRequest { key: b"a".to_vec(), ..Default::default() }.encode_to_vec();
    bytes.extend_from_slice(&[15 << 3 | 2, 3, b'x', b'y', b'z']);
    let reply = raw(&channel, "/etcdserverpb.KV/Put", vec![bytes.into()]).await.expect("no error").expect("an answer");
    let reply = PutResponse::decode(reply).expect("a message");
    assert_eq!(reply.header.map(|header| header.revision), Some(2));
}

#[tokio::test]
async fn random_bytes_end_no_server() {
    let server = Server::start(&[]).await;
    let channel = server.channel();
    let seed = crate::model::rng::seed();
    println!("seed={seed}");
    let mut rng = crate::model::rng::Rng::new(seed);
    let valid = TxnRequest {
        compare: vec![Compare { key: b"a".to_vec(), ..Default::default() }],
        success: vec![RequestOp {
            request: Some(TxnOp::Put(PutRequest { key: b"a".to_vec(), value: vec![b'v'; 40], ..Default::default() })),
        }],
        failure: Vec::new(),
    };
    let valid = valid.encode_to_vec();
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..500 {
        let mut bytes = valid.clone();
        for _ in 0..=rng.below(4) {
            let at = rng.below(bytes.len());
            bytes[at] = rng.next() as u8;
        }
        match raw(&channel, "/etcdserverpb.KV/Txn", vec![bytes.into()]).await {
            Ok(_) => taken += 1,
            Err(status) => {
                assert!(!matches!(status.code(), Code::Unavailable | Code::DataLoss), "{status:?}");
                refused += 1;
            }
        }
    }
    println!("{taken} taken, {refused} refused");
    assert!(taken > 0 && refused > 0);
    let get = RangeRequest { key: b"a".to_vec(), ..Default::default() };
    unary::<_, RangeResponse>(&channel, "/etcdserverpb.KV/Range", get).await.expect("the server answers");
}
