//! Nested transactions of every depth, well formed and not.

use super::*;
use crate::pb::etcdserverpb::PutRequest;
use prost::encoding::encode_varint;
use tonic::Code;

/// The encoding of `depth` transactions within each other, built from the inside out without recursion.
fn nested(depth: usize) -> Bytes {
    // Written backwards: each level goes in front of what it holds.
    let mut reversed: Vec<u8> = Vec::new();
    for _ in 1..depth {
        wrap(&mut reversed, 0x22);
        wrap(&mut reversed, 0x12);
    }
    reversed.reverse();
    reversed.into()
}

/// Puts a tag and a length in front of bytes that are kept in reverse.
fn wrap(reversed: &mut Vec<u8>, tag: u8) {
    let mut length = Vec::new();
    encode_varint(reversed.len() as u64, &mut length);
    reversed.extend(length.iter().rev());
    reversed.push(tag);
}

fn depth_of(txn: &TxnRequest) -> usize {
    let mut depth = 1;
    let mut level = txn;
    while let Some(RequestOp { request: Some(Request::RequestTxn(inner)) }) = level.success.first() {
        depth += 1;
        level = inner;
    }
    depth
}

/// Runs on the stack that a runtime's worker thread has.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(test).expect("a thread starts");
    thread.join().expect("the test passes");
}

#[test]
fn nesting_up_to_the_limit_is_decoded_encoded_again_and_dropped() {
    for depth in [1, 2, 127, 128, DEPTH_MAX] {
        on_a_small_stack(move || {
            let bytes = nested(depth);
            let txn = decode(bytes.clone()).expect("within the limit");
            assert_eq!(depth_of(&txn), depth);
            assert_eq!(txn.encode_to_vec(), bytes, "depth {depth}");
            assert_eq!(txn.clone(), txn);
        });
    }
}

#[test]
fn deeper_nesting_is_refused_without_following_it() {
    for depth in [DEPTH_MAX + 1, 100_000] {
        on_a_small_stack(move || {
            let refusal = decode(nested(depth)).expect_err("too deep");
            assert_eq!(refusal.code(), Code::InvalidArgument);
            assert_eq!(refusal.message(), "etcdserver: too many operations in txn request");
        });
    }
}

#[test]
fn what_prost_decodes_is_decoded_the_same() {
    let put = |key: &'static [u8]| RequestOp {
        request: Some(Request::RequestPut(PutRequest { key: Bytes::from_static(key), ..PutRequest::default() })),
    };
    let inner = TxnRequest { success: vec![put(b"a"), put(b"b")], failure: vec![put(b"c")], ..TxnRequest::default() };
    let nested = RequestOp { request: Some(Request::RequestTxn(inner)) };
    let txn = TxnRequest {
        success: vec![put(b"d"), nested.clone(), RequestOp::default()],
        failure: vec![nested],
        ..TxnRequest::default()
    };
    let bytes = Bytes::from(txn.encode_to_vec());
    assert_eq!(decode(bytes).expect("well formed"), txn);
}

#[test]
fn a_nested_transaction_that_comes_twice_is_merged() {
    let half = |key: &'static [u8]| {
        let put = PutRequest { key: Bytes::from_static(key), ..PutRequest::default() };
        let op = RequestOp { request: Some(Request::RequestPut(put)) };
        let txn = TxnRequest { success: vec![op], ..TxnRequest::default() };
        RequestOp { request: Some(Request::RequestTxn(txn)) }.encode_to_vec()
    };
    let op = [half(b"a"), half(b"b")].concat();
    let mut bytes = vec![0x12, u8::try_from(op.len()).expect("short")];
    bytes.extend(&op);
    let ours = decode(bytes.clone().into()).expect("well formed");
    assert_eq!(ours, TxnRequest::decode(bytes.as_slice()).expect("well formed"));
    let Some(RequestOp { request: Some(Request::RequestTxn(inner)) }) = ours.success.first() else {
        panic!("no nested transaction in {ours:?}");
    };
    assert_eq!(inner.success.len(), 2);
}

#[test]
fn malformed_bytes_are_an_internal_error() {
    let cases: [&[u8]; 8] = [
        &[0x12],                                                             // a length is missing
        &[0x12, 5, 0x22],                                                    // a length beyond the end
        &[0x12, 0x03, 0x22, 0x7f, 0x00],                                     // the same one level down
        &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], // a length beyond memory
        &[0x00],                                                             // tag 0
        &[0x10, 0x01],                                                       // a list as a number
        &[0x0c],                                                             // a group ends that never began
        &[0x0f],                                                             // no such wire type
    ];
    for bytes in cases {
        let refusal = decode(Bytes::from_static(bytes)).expect_err("malformed");
        assert_eq!(refusal.code(), Code::Internal, "{bytes:?}");
        assert!(refusal.message().starts_with("grpc: error unmarshalling request: "), "{}", refusal.message());
    }
}

#[test]
fn unknown_fields_and_groups_are_skipped_up_to_a_depth() {
    // Field 9 as a number, as bytes and as a group that holds a number.
    let skipped = [0x48, 0x01, 0x4a, 0x01, 0xff, 0x4b, 0x08, 0x01, 0x4c];
    assert_eq!(decode(Bytes::copy_from_slice(&skipped)).expect("skipped"), TxnRequest::default());
    on_a_small_stack(|| {
        let deep = [vec![0x4b; 100_000], vec![0x4c; 100_000]].concat();
        assert_eq!(decode(deep.into()).expect_err("too many groups").code(), Code::Internal);
    });
}
