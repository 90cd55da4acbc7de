//! What is refused before a service sees it, and how clients are told.

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::client::{Client, Outcome, connect, message};
use super::{limits, loopback, start};

const CHECK: &str = "/grpc.health.v1.Health/Check";

#[track_caller]
fn check(outcome: &Outcome, code: &str, text: &str) {
    assert_eq!((outcome.code.as_str(), outcome.message.as_str()), (code, text));
}

async fn call(path: &str, encoding: &str, body: Bytes, end: bool) -> Outcome {
    let server = start(loopback(), limits()).await;
    Client::new(&server.address).await.call(path, encoding, body, end).await
}

#[tokio::test]
async fn a_message_above_the_limit_is_refused_before_it_arrives() {
    // Only the prefix is sent, and the stream stays open: nothing but the announced length can have told.
    let outcome = call(CHECK, "identity", message(0, 1_001, &[]), false).await;
    check(&outcome, "8", "grpc: received message larger than max (1001 vs. 1000)");
}

#[tokio::test]
async fn a_message_at_the_limit_reaches_the_service() {
    // A service name of 997 bytes: tag, a length of two bytes, the name.
    let mut payload = vec![0x0a, 0xe5, 0x07];
    payload.resize(1_000, b'a');
    let outcome = call(CHECK, "identity", message(0, 1_000, &payload), true).await;
    check(&outcome, "5", "service not registered");
}

#[tokio::test]
async fn compressed_messages_are_refused() {
    let outcome = call(CHECK, "gzip", message(1, 0, &[]), true).await;
    check(&outcome, "12", "grpc: Decompressor is not installed for grpc-encoding \"gzip\"");
    let outcome = call(CHECK, "identity", message(1, 0, &[]), true).await;
    check(&outcome, "13", "grpc: compressed flag set with identity or empty encoding");
}

#[tokio::test]
async fn a_call_that_nobody_answers_is_unimplemented_and_named() {
    let outcome = call("/grpc.health.v1.Health/List", "identity", message(0, 0, &[]), true).await;
    check(&outcome, "12", "unknown method List for service grpc.health.v1.Health");
    let outcome = call("/a.B/C", "identity", message(0, 0, &[]), true).await;
    check(&outcome, "12", "unknown service a.B");
}

#[tokio::test]
async fn the_connection_serves_on_after_a_refusal() {
    let server = start(loopback(), limits()).await;
    let mut client = Client::new(&server.address).await;
    let refused = client.call(CHECK, "identity", message(0, 1_001, &[]), false).await;
    let outcome = client.check_health().await;
    assert_eq!((refused.code.as_str(), outcome.code.as_str(), outcome.reply), ("8", "0", vec![0, 0, 0, 0, 2, 8, 1]));
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// An HTTP/2 connection's first bytes up to a request with the given authority, which no library would send.
fn greeting_with_authority(authority: &str) -> Vec<u8> {
    let mut headers = vec![0x83, 0x86]; // Static table: POST, http.
    for (name, value) in
        [(":authority", authority), (":path", CHECK), ("content-type", "application/grpc"), ("te", "trailers")]
    {
        headers.push(0); // A literal with a literal name.
        for text in [name, value] {
            headers.push(u8::try_from(text.len()).expect("a short text"));
            headers.extend_from_slice(text.as_bytes());
        }
    }
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut bytes, SETTINGS, 0, 0, &[]);
    frame(&mut bytes, HEADERS, END_HEADERS, 1, &headers);
    frame(&mut bytes, DATA, END_STREAM, 1, &message(0, 0, &[]));
    bytes
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
    bytes.extend([0, 0, u8::try_from(payload.len()).expect("a short frame"), kind, flags, 0, 0, 0, stream]);
    bytes.extend_from_slice(payload);
}

/// The kind of the first frame that the server sends on stream 1.
async fn first_frame_kind(authority: &str) -> u8 {
    let server = start(loopback(), limits()).await;
    let mut stream = connect(&server.address).await;
    stream.write_all(&greeting_with_authority(authority)).await.expect("an open connection");
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.expect("a frame");
        let [_, high, low, kind, _, .., stream_id] = head;
        let mut payload = vec![0; usize::from(high) << 8 | usize::from(low)];
        stream.read_exact(&mut payload).await.expect("its payload");
        if stream_id == 1 {
            return kind;
        }
    }
}

#[tokio::test]
async fn an_authority_that_names_no_host_of_ours_is_served() {
    for authority in ["localhost", "etcd.sock", "localhost:m0", "0xc000123456", "_", "other.example:1"] {
        assert_eq!(first_frame_kind(authority).await, HEADERS, "{authority}");
    }
}
