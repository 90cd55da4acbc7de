//! What decides who answers a request: a gRPC service, a plain page, or a refusal.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{Request, Version};
use tower::ServiceExt;
use tracing::debug;

use super::limit::{self, Checked};
use super::meter;
use super::unknown::{self, Methods};
use crate::encoded;
use crate::metrics::Calls;

/// What answers every request of every connection; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Front {
    grpc: Option<Grpc>,
    plain: Router,
}

/// The gRPC services.
#[derive(Clone, Debug)]
pub(crate) struct Grpc {
    /// Answers calls.
    pub(crate) routes: Router,
    /// Names what the services offer.
    pub(crate) methods: &'static Methods,
    /// The largest message; a request with a larger one is refused.
    pub(crate) message_bytes_max: usize,
    /// Counts calls.
    pub(crate) calls: Arc<Calls>,
}

impl Front {
    /// `plain` answers everything that is not gRPC; without `grpc` everything.
    pub(super) fn new(grpc: Option<Grpc>, plain: Router) -> Front {
        Front { grpc, plain }
    }

    /// Answers one request.
    pub(super) async fn answer(&self, request: Request<Body>) -> Response {
        debug!(method = %request.method(), path = request.uri().path(), "request");
        match &self.grpc {
            Some(grpc) if is_grpc(&request) => grpc.answer(request).await,
            _ => oneshot(&self.plain, request).await,
        }
    }
}

impl Grpc {
    async fn answer(&self, request: Request<Body>) -> Response {
        let refused = unknown::check(request.uri().path(), self.methods)
            .and_then(|()| limit::check_encoding(request.headers()))
            .and_then(|()| limit::check_client_version(request.headers()));
        if let Err(status) = refused {
            return status.into_http();
        }
        let version = request.headers().get("client-api-version").and_then(|version| version.to_str().ok());
        let Some(call) = self.calls.begin(request.uri().path(), version) else {
            return encoded::unwrap(oneshot(&self.routes, request).await);
        };
        let (method, bytes_max) = (Arc::clone(call.method()), self.message_bytes_max);
        let request = request.map(|body| Body::new(Checked::new(body, bytes_max, method)));
        meter::count(call, encoded::unwrap(oneshot(&self.routes, request).await))
    }
}

async fn oneshot(router: &Router, request: Request<Body>) -> Response {
    router.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
}

/// gRPC needs trailers, which HTTP/1 clients do not ask for: there it is a page that does not exist.
fn is_grpc(request: &Request<Body>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let suffix = kind.and_then(|kind| kind.strip_prefix("application/grpc"));
    request.version() == Version::HTTP_2
        && suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with(['+', ';']))
}
