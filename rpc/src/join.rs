//! Where the services meet the edge.

use std::sync::Arc;

use axum::Router;
use storage::fs::FileSystem;
use storage::{AlarmKind, Keyspace};
use tokio::sync::watch;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};

use crate::edge::{Health, Methods};
use crate::flags::Settings;

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

/// Changes what health checks are told.
#[derive(Clone, Debug)]
pub(crate) struct HealthHandle(HealthReporter);

impl HealthHandle {
    /// From now on health checks are told to go elsewhere.
    pub(crate) async fn not_serving(&self) {
        self.0.set_service_status("", ServingStatus::NotServing).await;
    }
}

/// The services over a keyspace; their streams end when `stop` turns true.
pub(crate) fn api(_keyspace: &Keyspace, _settings: &Settings, _stop: watch::Receiver<bool>) -> Api {
    let (reporter, service) = health_reporter();
    Api { grpc: Routes::new(service).prepare().into_axum_router(), methods: METHODS, health: HealthHandle(reporter) }
}

/// The methods that `api` answers.
const METHODS: &Methods = &[("grpc.health.v1.Health", &["Check", "Watch"])];

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

/// The machine's file system.
pub(crate) fn file_system() -> Arc<dyn FileSystem> {
    unimplemented!("Arc::new(storage::fs::RealFs)")
}
