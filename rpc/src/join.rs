//! Where the services meet the edge.

use std::sync::Arc;

use axum::Router;
use bytes::Bytes;
use compaction::Progress;
use storage::{AlarmKind, Content, Key, KeyRange, Keyspace, RangeRequest};
use tokio::sync::watch;

use crate::config::ServiceConfig;
use crate::edge::Methods;
use crate::flags::{API_VERSION, STORAGE_VERSION, Settings};
use crate::metrics::{Checks, Metrics};
use crate::pages::Subject;
use crate::service_set;
use crate::services::HealthHandle;
use crate::status;

/// The services, as the edge sees them.
#[derive(Debug)]
pub(crate) struct Api {
    /// Answers every call of a known method.
    pub(crate) grpc: Router,
    /// Names the known methods.
    pub(crate) methods: &'static Methods,
    /// What health checks are told.
    pub(crate) health: HealthHandle,
}

/// The services over a keyspace; their streams end when `stop` turns true.
pub(crate) fn api(
    keyspace: &Keyspace,
    settings: &Settings,
    metrics: &Arc<Metrics>,
    stop: watch::Receiver<bool>,
) -> Api {
    let config = ServiceConfig {
        name: settings.name.clone(),
        advertise_client_urls: settings.advertise_client_urls.clone(),
        advertise_peer_urls: settings.advertise_peer_urls.clone(),
        max_request_bytes: settings.max_request_bytes,
        max_txn_ops: settings.max_txn_ops,
        min_lease_ttl_seconds: settings.min_lease_ttl_seconds,
        progress_interval: settings.progress_interval,
        quota_bytes: quota_bytes(settings),
        version: API_VERSION,
        storage_version: STORAGE_VERSION,
        metrics: Arc::clone(metrics),
        shutdown: stop,
    };
    let (routes, health) = service_set::routes(keyspace.clone(), config);
    Api { grpc: routes.prepare().into_axum_router(), methods: service_set::METHODS, health }
}

/// The quota as `Status` and metrics show it; negative means none.
fn quota_bytes(settings: &Settings) -> i64 {
    settings.storage.quota_bytes.map_or(-1, |quota| i64::try_from(quota).unwrap_or(i64::MAX))
}

/// The server that the pages tell of.
pub(crate) fn subject(
    keyspace: &Keyspace,
    settings: &Settings,
    metrics: &Arc<Metrics>,
    retention: watch::Receiver<Progress>,
) -> Arc<dyn Subject> {
    let (keyspace, metrics) = (keyspace.clone(), Arc::clone(metrics));
    Arc::new(Server { keyspace, metrics, quota_bytes: quota_bytes(settings), retention })
}

#[derive(Debug)]
struct Server {
    keyspace: Keyspace,
    metrics: Arc<Metrics>,
    quota_bytes: i64,
    retention: watch::Receiver<Progress>,
}

impl Subject for Server {
    fn alarms(&self) -> Vec<AlarmKind> {
        self.keyspace.status().alarms.iter().map(|alarm| alarm.kind).collect()
    }

    fn read(&self, serializable: bool) -> Result<(), String> {
        let read = || {
            if !serializable {
                self.keyspace.barrier()?;
            }
            // One key, there or not: the cheapest read that touches all that reads need.
            let key = Key::new(Bytes::from_static(&[0]))?;
            let content = Content::KeysOnly;
            self.keyspace.range(&RangeRequest { content, ..RangeRequest::new(KeyRange::single(key)) })
        };
        read().map(drop).map_err(|error| status::of(&error).message().to_owned())
    }

    fn metrics(&self) -> String {
        let retention = self.retention.borrow().clone();
        self.metrics.page(&self.keyspace, self.quota_bytes, &retention)
    }

    fn checks(&self) -> &Checks {
        &self.metrics.checks
    }
}
