//! The API through a client that was written elsewhere.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod kv;
mod leases;
mod metrics;
mod operators;
mod pages;
mod watches;

use etcd_client::{Client, Error};

use crate::support::server::Server;

/// A server and a client of it.
async fn connected() -> (Server, Client) {
    let server = Server::start(&[]).await;
    let client = Client::connect([server.url()], None).await.expect("a connection");
    (server, client)
}

/// The code and the text of a refusal.
fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>) -> (tonic::Code, String) {
    match outcome {
        Err(Error::GRpcStatus(status)) => (status.code(), status.message().to_string()),
        other => panic!("not refused: {other:?}"),
    }
}

fn as_refused(code: tonic::Code, text: &str) -> (tonic::Code, String) {
    (code, format!("etcdserver: {text}"))
}
