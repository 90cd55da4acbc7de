//! Listening, greeting, and the end of connections.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use super::client::{Client, connect, exchange};
use super::{Address, bind, limits, loopback, plain, routes, start, start_all};

const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[tokio::test]
async fn http1_and_http2_are_answered_on_one_port() {
    let server = start(loopback(), limits()).await;
    let outcome = Client::new(&server.address).await.check_health().await;
    assert_eq!((outcome.code.as_str(), outcome.reply), ("0", vec![0, 0, 0, 0, 2, 8, 1]));
    for (path, status, body) in [("/health", "200 OK", r#"{"health":"true","reason":""}"#), ("/", "404 Not Found", "")]
    {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let answer = exchange(&server.address, request.as_bytes()).await;
        assert!(text(&answer).starts_with(&format!("HTTP/1.1 {status}\r\n")), "{path}: {}", text(&answer));
        assert!(text(&answer).ends_with(&format!("\r\n\r\n{body}")), "{path}: {}", text(&answer));
    }
}

#[tokio::test]
async fn a_connection_that_does_not_greet_in_time_is_closed() {
    let server = start(loopback(), super::Limits { handshake_timeout: Duration::from_millis(20), ..limits() }).await;
    let mut idle = Client::new(&server.address).await;
    assert_eq!(exchange(&server.address, b"").await, b"");
    let (_, almost) = GREETING.split_last().expect("bytes");
    exchange(&server.address, almost).await;
    // The client that greeted before them and asked nothing is still served.
    assert_eq!(idle.check_health().await.code, "0");
}

#[tokio::test]
async fn a_socket_file_is_served_and_removed_at_the_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.sock");
    let server = start(Address::Unix(path.clone()), limits()).await;
    assert_eq!(Client::new(&server.address).await.check_health().await.code, "0");
    server.stop.send_replace(true);
    server.serving.await.expect("an end in order");
    assert!(!path.exists());
}

#[tokio::test]
async fn only_a_stale_socket_file_is_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.sock");
    let held = UnixListener::bind(&path).expect("a free path");
    let address = [plain(Address::Unix(path.clone()))];
    let refusal = bind(&address).await.expect_err("somebody listens");
    assert!(refusal.contains("in use"), "{refusal}");
    drop(held);
    assert!(path.exists(), "std leaves the file behind");
    drop(bind(&address).await.expect("nobody listens"));
    std::fs::write(&path, "data").expect("a file");
    let refusal = bind(&address).await.expect_err("a file");
    assert!(refusal.contains("not a socket"), "{refusal}");
    assert_eq!(std::fs::read(&path).expect("the file"), b"data");
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let listeners = bind(&[plain(loopback())]).await.expect("a free address");
    let taken = listeners.first().expect("one listener").endpoint();
    let refusal = bind(std::slice::from_ref(taken)).await.expect_err("the address is taken");
    assert!(refusal.starts_with(&format!("cannot listen on {taken}: ")), "{refusal}");
}

#[tokio::test]
async fn a_stop_ends_idle_connections_and_lets_a_begun_request_finish() {
    let server = start(loopback(), limits()).await;
    let idle = Client::new(&server.address).await;
    let mut busy = Client::new(&server.address).await;
    let mut watch = busy.open("/grpc.health.v1.Health/Watch").await;
    assert_eq!(watch.next().await, Some(vec![0, 0, 0, 0, 2, 8, 1]));
    server.stop.send_replace(true);
    assert!(idle.connection.await.expect("no panic").is_ok(), "told to go away, not cut off");
    assert!(!server.serving.is_finished(), "the watch is still open");
    drop(watch);
    server.serving.await.expect("an end in order");
}

#[tokio::test]
async fn a_connection_above_the_limit_waits_for_one_to_end() {
    let server = start(loopback(), super::Limits { connections_max: 1, ..limits() }).await;
    let mut first = Client::new(&server.address).await;
    assert_eq!(first.check_health().await.code, "0");
    let address = server.address.clone();
    let second = tokio::spawn(async move { exchange(&address, b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await });
    assert_eq!(first.check_health().await.code, "0");
    assert!(!second.is_finished());
    drop(first);
    assert!(text(&second.await.expect("no panic")).starts_with("HTTP/1.1 404"));
    drop(connect(&server.address).await);
}

#[tokio::test]
async fn connections_on_all_addresses_share_the_limit_and_none_waits_for_an_idle_address() {
    let scratch = tempfile::TempDir::new().expect("a directory");
    let other = Address::Unix(scratch.path().join("socket"));
    let one = super::Limits { connections_max: 1, ..limits() };
    let server = start_all(&[plain(other.clone()), plain(loopback())], routes(), None, one).await;
    let mut first = Client::new(&server.address).await;
    assert_eq!(first.check_health().await.code, "0");
    let second = tokio::spawn(async move { exchange(&other, b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await });
    assert_eq!(first.check_health().await.code, "0");
    assert!(!second.is_finished());
    drop(first);
    assert!(text(&second.await.expect("no panic")).starts_with("HTTP/1.1 404"));
}
