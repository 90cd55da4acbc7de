//! All services of the API as one set of routes.

use std::sync::Arc;

use storage::Keyspace;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;

use crate::config::ServiceConfig;
use crate::pb::etcdserverpb::auth_server::AuthServer;
use crate::pb::etcdserverpb::cluster_server::ClusterServer;
use crate::pb::etcdserverpb::kv_server::KvServer;
use crate::pb::etcdserverpb::lease_server::LeaseServer;
use crate::pb::etcdserverpb::maintenance_server::MaintenanceServer;
use crate::pb::etcdserverpb::watch_server::WatchServer;
use crate::pb::v3electionpb::election_server::ElectionServer;
use crate::pb::v3lockpb::lock_server::LockServer;
use crate::services::{
    AuthService, ClusterService, Context, ElectionService, HealthHandle, KvService, LeaseService, LockService,
    MaintenanceService, WatchService,
};

/// The services and the methods of each, for whoever refuses calls that nobody answers.
pub(crate) const METHODS: &[(&str, &[&str])] = include!(concat!(env!("OUT_DIR"), "/methods.rs"));

/// The routes of every service over a keyspace, and the handle that says whether the server serves.
///
/// Message sizes are not limited here: the edge measures a request before it is read.
pub(crate) fn routes(keyspace: Keyspace, config: ServiceConfig) -> (Routes, HealthHandle) {
    /// Both directions without a limit of tonic's own.
    macro_rules! unlimited {
        ($server:expr) => {
            $server.max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX)
        };
    }
    let context = Context::new(keyspace, config);
    let share = || Arc::clone(&context);
    let health = HealthHandle::new();
    let mut routes = Routes::builder();
    routes
        .add_service(unlimited!(KvServer::new(KvService::new(share()))))
        .add_service(unlimited!(WatchServer::new(WatchService::new(share()))))
        .add_service(unlimited!(LeaseServer::new(LeaseService::new(share()))))
        .add_service(unlimited!(MaintenanceServer::new(MaintenanceService::new(share()))))
        .add_service(unlimited!(ClusterServer::new(ClusterService::new(share()))))
        .add_service(unlimited!(AuthServer::new(AuthService::new(share()))))
        .add_service(unlimited!(LockServer::new(LockService)))
        .add_service(unlimited!(ElectionServer::new(ElectionService)))
        .add_service(unlimited!(HealthServer::new(health.service())));
    (routes.routes(), health)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::server::NamedService;

    #[test]
    fn every_routed_service_is_listed_with_its_methods() {
        let methods = |name: &str| METHODS.iter().find(|(known, _)| *known == name).map(|(_, methods)| methods.len());
        for (name, count) in [
            (KvServer::<KvService>::NAME, 6),
            (WatchServer::<WatchService>::NAME, 1),
            (LeaseServer::<LeaseService>::NAME, 5),
            (MaintenanceServer::<MaintenanceService>::NAME, 8),
            (ClusterServer::<ClusterService>::NAME, 5),
            (AuthServer::<AuthService>::NAME, 17),
            (LockServer::<LockService>::NAME, 2),
            (ElectionServer::<ElectionService>::NAME, 5),
            ("grpc.health.v1.Health", 2),
        ] {
            assert_eq!(methods(name), Some(count), "{name}");
        }
        assert_eq!(METHODS.len(), 9);
    }
}
