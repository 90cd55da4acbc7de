//! The edge over real sockets, spoken to frame by frame.

mod client;
mod refusals;
mod sockets;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tonic_health::server::health_reporter;

use super::*;
use crate::metrics::{Calls, Metrics};

const METHODS: &Methods = &[("grpc.health.v1.Health", &["Check", "Watch"])];

/// Limits under which no test runs into time by accident.
fn limits() -> Limits {
    Limits {
        connections_max: 16,
        handshake_timeout: Duration::from_secs(60),
        head_timeout: Duration::from_secs(60),
        header_bytes_max: 64 << 10,
        streams_max: 100,
        pending_resets_max: 100,
        local_resets_max: 100,
        stream_window_bytes: 1 << 20,
        connection_window_bytes: 1 << 20,
        send_buffer_bytes: 1 << 20,
        keepalive_interval: Duration::from_secs(60),
        keepalive_timeout: Duration::from_secs(60),
        message_bytes_max: 1_000,
    }
}

/// A server under test, which serves gRPC's health service.
struct Server {
    address: Address,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

/// Serves everything at an address, in the clear.
async fn start(address: Address, limits: Limits) -> Server {
    start_at(plain(address), routes(), None, limits).await
}

/// What a server without a keyspace answers: its health.
fn routes() -> Router {
    let (_, service) = health_reporter();
    Routes::new(service).into_axum_router()
}

async fn start_at(endpoint: Endpoint, routes: Router, tls: Option<Arc<Tls>>, limits: Limits) -> Server {
    start_all(&[endpoint], routes, tls, limits).await
}

/// A server on several endpoints, of which the last is the one that it names.
async fn start_all(endpoints: &[Endpoint], routes: Router, tls: Option<Arc<Tls>>, limits: Limits) -> Server {
    let listeners = bind(endpoints).await.expect("free addresses");
    let address = listeners.last().expect("a listener").endpoint().address.clone();
    let grpc = Grpc { routes, methods: METHODS, message_bytes_max: limits.message_bytes_max, calls: calls() };
    let (stop, stopped) = watch::channel(false);
    let doors = Doors::new(grpc, pages().route("/version", get(async || "1")), pages());
    Server { address, stop, serving: tokio::spawn(serve(listeners, doors, tls, limits, stopped)) }
}

fn plain(address: Address) -> Endpoint {
    Endpoint { address, tls: false, serves: Serves::Everything }
}

/// Nobody looks at what is counted.
fn calls() -> Arc<Calls> {
    Arc::clone(&Metrics::new().calls)
}

/// A page to ask for.
fn pages() -> Router {
    Router::new().route("/health", get(async || r#"{"health":"true","reason":""}"#))
}

fn loopback() -> Address {
    Address::Tcp("127.0.0.1:0".parse().expect("an address"))
}
