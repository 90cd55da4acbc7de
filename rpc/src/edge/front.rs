//! What decides who answers a request: a gRPC service, a plain page, or a refusal.

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{Request, Version};
use tower::ServiceExt;
use tracing::debug;

use super::limit::{self, Checked};
use super::unknown::{self, Methods};

/// What answers every request of every connection; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    grpc: Router,
    plain: Router,
    methods: &'static Methods,
    message_bytes_max: usize,
}

impl Front {
    /// `grpc` holds the services and `methods` names what they offer; `plain` answers everything that is not gRPC.
    pub(crate) fn new(grpc: Router, plain: Router, methods: &'static Methods, message_bytes_max: usize) -> Front {
        Front { grpc, plain, methods, message_bytes_max }
    }

    /// Answers one request.
    pub(super) async fn answer(&self, request: Request<Body>) -> Response {
        debug!(method = %request.method(), path = request.uri().path(), "request");
        if !is_grpc(&request) {
            return oneshot(&self.plain, request).await;
        }
        let refused = unknown::check(request.uri().path(), self.methods)
            .and_then(|()| limit::check_encoding(request.headers()))
            .and_then(|()| limit::check_client_version(request.headers()));
        if let Err(status) = refused {
            return status.into_http();
        }
        let message_bytes_max = self.message_bytes_max;
        oneshot(&self.grpc, request.map(|body| Body::new(Checked::new(body, message_bytes_max)))).await
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
