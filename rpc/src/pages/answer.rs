//! Answers of pages, with the headers that etcd sends.

use axum::body::Body;
use axum::response::Response;
use http::header::{ALLOW, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};

const PLAIN: &str = "text/plain; charset=utf-8";

/// Text that no browser is to take for anything else.
pub(super) fn plain(status: StatusCode, body: String) -> Response {
    let mut response = text(status, PLAIN, body);
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A body of this kind.
pub(super) fn text(status: StatusCode, kind: &'static str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A body of JSON.
pub(super) fn json(body: String) -> Response {
    text(StatusCode::OK, "application/json", body)
}

/// The page is only to be looked at.
pub(super) fn method_not_allowed() -> Response {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n".to_owned());
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
    response
}

/// There is no such page.
pub(super) fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404 page not found\n".to_owned())
}
