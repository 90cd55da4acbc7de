//! The services of the API: each method converts, asks the keyspace, converts back.

mod auth;
mod cluster;
mod context;
mod health;
mod kv;
mod lease;
mod listing;
mod maintenance;
mod patience;
mod range_stream;
mod recipes;
mod snapshot;
mod unsupported;
mod watch;
mod watch_loop;
mod watch_source;

#[cfg(test)]
mod wire_tests;

pub(crate) use auth::AuthService;
pub(crate) use cluster::ClusterService;
pub(crate) use context::Context;
pub(crate) use health::HealthHandle;
pub(crate) use kv::KvService;
pub(crate) use lease::LeaseService;
pub(crate) use maintenance::MaintenanceService;
pub(crate) use recipes::{ElectionService, LockService};
pub(crate) use watch::WatchService;
