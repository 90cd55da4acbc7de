//! Where the services meet the edge.

use std::sync::Arc;

use axum::Router;
use storage::{AlarmKind, Keyspace};
use tokio::sync::watch;

use crate::config::ServiceConfig;
use crate::edge::{Health, Methods};
use crate::flags::{API_VERSION, STORAGE_VERSION, Settings};
use crate::service_set;
use crate::services::HealthHandle;

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
pub(crate) fn api(keyspace: &Keyspace, settings: &Settings, stop: watch::Receiver<bool>) -> Api {
    let config = ServiceConfig {
        name: settings.name.clone(),
        advertise_client_urls: settings.advertise_client_urls.clone(),
        advertise_peer_urls: settings.advertise_peer_urls.clone(),
        max_request_bytes: settings.max_request_bytes,
        max_txn_ops: settings.max_txn_ops,
        min_lease_ttl_seconds: settings.min_lease_ttl_seconds,
        progress_interval: settings.progress_interval,
        quota_bytes: settings.storage.quota_bytes.map_or(-1, |quota| i64::try_from(quota).unwrap_or(i64::MAX)),
        version: API_VERSION,
        storage_version: STORAGE_VERSION,
        shutdown: stop,
    };
    let (routes, health) = service_set::routes(keyspace.clone(), config);
    Api { grpc: routes.prepare().into_axum_router(), methods: service_set::METHODS, health }
}

/// What `/health` asks a keyspace.
pub(crate) fn health(keyspace: &Keyspace) -> Health {
    let keyspace = keyspace.clone();
    Arc::new(move || {
        let raised = keyspace.status().alarms.first().map(|alarm| match alarm.kind {
            AlarmKind::NoSpace => "ALARM NOSPACE".to_owned(),
            AlarmKind::Corrupt => "ALARM CORRUPT".to_owned(),
        });
        raised.or_else(|| keyspace.barrier().err().map(|error| format!("RANGE ERROR:{error}")))
    })
}
