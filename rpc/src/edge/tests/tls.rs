//! Handshakes over real sockets, and what requests carry after them.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::routing::post;
use http::HeaderMap;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::client::{Client, Stream, connect, exchange, message};
use super::*;
use crate::edge::pki::{Authority, expired};
use crate::edge::tls::ClientName;
use crate::edge::tls::tests::{settings, write};

/// Answers a call with the name of the client.
async fn who(client: Option<Extension<ClientName>>) -> (HeaderMap, String) {
    let headers = HeaderMap::from_iter([("grpc-status".parse().expect("a name"), 0.into())]);
    (headers, client.map_or_else(|| "nobody".to_owned(), |Extension(ClientName(name))| name.to_string()))
}

async fn start_tls(address: Address, dir: &Path, clients: Option<ClientCertificates>, limits: Limits) -> Server {
    let tls = Tls::load(TlsSettings { clients, ..settings(dir) }).expect("right files");
    let endpoint = Endpoint { address, tls: true, serves: Serves::Everything };
    let routes = Router::new().route("/grpc.health.v1.Health/Check", post(who));
    start_at(endpoint, routes, Some(Arc::new(tls)), limits).await
}

async fn shake(address: &Address, config: impl Into<Arc<ClientConfig>>) -> std::io::Result<TlsStream<Box<dyn Stream>>> {
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(config.into()).connect(name, connect(address).await).await
}

/// The name under which the server knows a client, or why it does not serve it.
async fn name_at(address: &Address, config: ClientConfig) -> Result<String, String> {
    let stream = shake(address, config).await.map_err(|error| error.to_string())?;
    // A client with TLS 1.3 learns with its first request that it was refused.
    let mut client = Client::over(Box::new(stream)).await.map_err(|error| error.to_string())?;
    let called = client.try_call("/grpc.health.v1.Health/Check", "identity", message(0, 0, &[]), true).await;
    called.map(|outcome| String::from_utf8(outcome.reply).expect("text")).map_err(|error| error.to_string())
}

fn clients(dir: &Path, authority: &Authority, allowed: Allowed, names_the_user: bool) -> ClientCertificates {
    let (trusted_ca_file, list) = (dir.join("ca"), dir.join("list"));
    fs::write(&trusted_ca_file, &authority.pem).expect("a file");
    fs::write(&list, authority.revoke(&[7])).expect("a file");
    ClientCertificates { trusted_ca_file, crl_file: Some(list), allowed, names_the_user }
}

#[tokio::test]
async fn requests_carry_the_common_name_of_a_client_that_proved_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let authority = Authority::new("authority");
    write(dir.path(), &authority.server());
    for (names_the_user, expected) in [(true, "alice"), (false, "nobody")] {
        let clients = clients(dir.path(), &authority, Allowed::Anyone, names_the_user);
        let server = start_tls(loopback(), dir.path(), Some(clients), limits()).await;
        let name = name_at(&server.address, authority.client_config(Some(&authority.client("alice")))).await;
        assert_eq!(name.as_deref(), Ok(expected));
    }
    let server = start_tls(loopback(), dir.path(), None, limits()).await;
    let name = name_at(&server.address, authority.client_config(Some(&authority.client("alice")))).await;
    assert_eq!(name.as_deref(), Ok("nobody"), "nobody verified it");
}

#[tokio::test]
async fn only_clients_that_pass_every_test_are_let_in() {
    let dir = tempfile::tempdir().expect("a directory");
    let (authority, other) = (Authority::new("authority"), Authority::new("authority"));
    write(dir.path(), &authority.server());
    let allowed = Allowed::Names(vec!["alice".to_owned(), "bob".to_owned()]);
    let clients = clients(dir.path(), &authority, allowed, true);
    let server = start_tls(loopback(), dir.path(), Some(clients), limits()).await;
    for (own, expected) in [
        (Some(authority.client("alice")), Ok("alice")),
        (Some(authority.numbered("bob", 8)), Ok("bob")),
        (Some(authority.numbered("bob", 7)), Err("CertificateRevoked")),
        (Some(authority.client("carol")), Err("CertificateUnknown")),
        (Some(authority.issue("alice", &[], expired)), Err("CertificateExpired")),
        (Some(other.client("alice")), Err("DecryptError")),
        (None, Err("CertificateRequired")),
    ] {
        let thirteen = name_at(&server.address, authority.client_config_of(own.as_ref(), &[&TLS13])).await;
        let twelve = name_at(&server.address, authority.client_config_of(own.as_ref(), &[&TLS12])).await;
        match expected {
            Ok(expected) => assert_eq!((twelve.as_deref(), thirteen.as_deref()), (Ok(expected), Ok(expected))),
            Err(part) => {
                // With TLS 1.3 the alert may be lost on its way, as the client has sent more by then.
                assert!(thirteen.is_err(), "{part}: {thirteen:?}");
                assert!(twelve.as_ref().is_err_and(|why| why.contains(part)), "{part}: {twelve:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_does_not_shake_hands_in_time_is_cut_off() {
    let dir = tempfile::tempdir().expect("a directory");
    let authority = Authority::new("authority");
    write(dir.path(), &authority.server());
    let limits = Limits { handshake_timeout: Duration::from_millis(300), ..limits() };
    let server = start_tls(loopback(), dir.path(), None, limits).await;
    assert_eq!(exchange(&server.address, b"").await, b"", "nothing was sent");
    assert_eq!(exchange(&server.address, &[22, 3, 1, 2, 0]).await, b"", "the head of a record was sent");
    // Hands were shaken, and nothing was asked.
    let mut idle = shake(&server.address, authority.client_config(None)).await.expect("a handshake");
    let mut rest = Vec::new();
    let _ = idle.read_to_end(&mut rest).await;
    assert_eq!(rest, b"");
    assert_eq!(name_at(&server.address, authority.client_config(None)).await.as_deref(), Ok("nobody"));
}

#[tokio::test]
async fn no_session_is_resumed() {
    let dir = tempfile::tempdir().expect("a directory");
    let authority = Authority::new("authority");
    write(dir.path(), &authority.server());
    let server = start_tls(loopback(), dir.path(), None, limits()).await;
    for version in [&TLS12, &TLS13] {
        let config = Arc::new(authority.client_config_of(None, &[version]));
        for _ in 0..3 {
            let stream = shake(&server.address, Arc::clone(&config)).await.expect("a handshake");
            assert_eq!(stream.get_ref().1.handshake_kind(), Some(HandshakeKind::Full), "{version:?}");
            // A call makes the client read what the server has sent after the handshake.
            let mut client = Client::over(Box::new(stream)).await.expect("HTTP/2");
            assert_eq!(client.check_health().await.reply, b"nobody");
        }
    }
}

#[tokio::test]
async fn a_stop_does_not_wait_for_handshakes() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), &Authority::new("authority").server());
    let server = start_tls(loopback(), dir.path(), None, limits()).await;
    let mut silent = connect(&server.address).await;
    silent.write_all(&[22, 3, 1]).await.expect("an open connection");
    server.stop.send_replace(true);
    server.serving.await.expect("an end in order");
}

#[tokio::test]
async fn a_socket_file_speaks_tls_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let authority = Authority::new("authority");
    write(dir.path(), &authority.server());
    let address = Address::Unix(dir.path().join("a.sock"));
    let clients = clients(dir.path(), &authority, Allowed::Anyone, true);
    let server = start_tls(address, dir.path(), Some(clients), limits()).await;
    let name = name_at(&server.address, authority.client_config(Some(&authority.client("alice")))).await;
    assert_eq!(name.as_deref(), Ok("alice"));
}
