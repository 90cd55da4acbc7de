//! The pages that are not gRPC: `/health` and `/version`.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;

use crate::flags::API_VERSION;

/// What is wrong with the server, in a few words; `None` if nothing is. May block.
pub(crate) type Health = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// The pages; every other path is not found.
pub(super) fn routes(health: Health) -> Router {
    let version = format!(r#"{{"etcdserver":"{API_VERSION}","etcdcluster":"3.7.0","storage":"3.7.0"}}"#);
    probes(health).route("/version", get(move || std::future::ready(json(StatusCode::OK, version))))
}

/// The pages that say how the server is.
pub(super) fn probes(health: Health) -> Router {
    Router::new().route("/health", get(move || answer_health(health)))
}

async fn answer_health(health: Health) -> Response {
    // The question may read the disk, which must not hold up a thread that serves others.
    let wrong = tokio::task::spawn_blocking(move || health()).await.unwrap_or_else(|error| Some(error.to_string()));
    match wrong {
        None => json(StatusCode::OK, r#"{"health":"true","reason":""}"#.to_owned()),
        Some(reason) => {
            let reason = reason.replace(['"', '\\', '\n'], "'");
            json(StatusCode::SERVICE_UNAVAILABLE, format!("{{\"health\":\"false\",\"reason\":\"{reason}\"}}\n"))
        }
    }
}

fn json(status: StatusCode, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
