//! The standard health service, for the server as a whole: its name is empty.

use std::pin::Pin;

use futures_util::{Stream, StreamExt};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::status;

/// Says whether the server serves; clones speak for the same server.
#[derive(Clone, Debug)]
pub(crate) struct HealthHandle {
    serving: watch::Sender<bool>,
}

impl HealthHandle {
    /// A server that serves.
    pub(crate) fn new() -> HealthHandle {
        HealthHandle { serving: watch::Sender::new(true) }
    }

    /// Tells every health check from now on, and everyone who watches.
    pub(crate) fn set_serving(&self, serving: bool) {
        self.serving.send_replace(serving);
    }

    /// The service that answers for this handle.
    pub(crate) fn service(&self) -> HealthService {
        HealthService { serving: self.serving.subscribe() }
    }
}

/// The service `grpc.health.v1.Health`.
#[derive(Debug)]
pub(crate) struct HealthService {
    serving: watch::Receiver<bool>,
}

fn answer(serving: bool) -> HealthCheckResponse {
    let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    HealthCheckResponse { status: status as i32 }
}

#[tonic::async_trait]
impl Health for HealthService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        if !request.into_inner().service.is_empty() {
            return Err(status::unknown_service());
        }
        Ok(Response::new(answer(*self.serving.borrow())))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let known = request.into_inner().service.is_empty();
        let changes = WatchStream::new(self.serving.clone());
        if known {
            return Ok(Response::new(Box::pin(changes.map(|serving| Ok(answer(serving))))));
        }
        // An unknown service may be registered one day, so the stream says so once and stays open.
        let unknown = HealthCheckResponse { status: ServingStatus::ServiceUnknown as i32 };
        let once = futures_util::stream::iter([Ok(unknown)]);
        Ok(Response::new(Box::pin(once.chain(futures_util::stream::pending()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(service: &str) -> Request<HealthCheckRequest> {
        Request::new(HealthCheckRequest { service: service.to_owned() })
    }

    #[tokio::test]
    async fn checks_and_watchers_hear_that_the_server_stopped_serving() {
        let handle = HealthHandle::new();
        let service = handle.service();
        let mut watched = service.watch(asking("")).await.expect("known").into_inner();
        assert_eq!(watched.next().await.expect("open").expect("fine"), answer(true));
        handle.set_serving(false);
        assert_eq!(watched.next().await.expect("open").expect("fine"), answer(false));
        assert_eq!(service.check(asking("")).await.expect("known").into_inner(), answer(false));
    }

    #[tokio::test]
    async fn only_the_server_as_a_whole_is_known() {
        let service = HealthHandle::new().service();
        assert_eq!(service.check(asking("etcdserverpb.KV")).await.expect_err("unknown").code(), tonic::Code::NotFound);
        let mut watched = service.watch(asking("etcdserverpb.KV")).await.expect("a stream").into_inner();
        let first = watched.next().await.expect("open").expect("fine");
        assert_eq!(first.status, ServingStatus::ServiceUnknown as i32);
    }
}
