//! The page for Prometheus: what the server counts, what the keyspace tells, what the system knows.

mod calls;
mod checks;
mod chores;
mod durations;
mod family;
mod keyspace;
mod own;
mod process;
#[cfg(test)]
mod tests;
mod versions;

use compaction::Progress;
use prometheus::proto::MetricFamily;
use prometheus::{Registry, TextEncoder};
use storage::Keyspace;

pub(crate) use calls::{Call, Calls, Method};
pub(crate) use checks::Checks;
pub(crate) use chores::Chores;
pub(crate) use durations::{Durations, Timed};
use family::gauges;

use crate::flags::API_VERSION;

/// What the page is sent as.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The cluster's version, as labels give it.
const CLUSTER_VERSION: &str = "3.7";

/// Everything that the server itself counts, each number found once and kept at hand where it is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    /// gRPC calls.
    pub(crate) calls: std::sync::Arc<Calls>,
    /// Health checks.
    pub(crate) checks: Checks,
    /// Rewriting and scrubbing.
    pub(crate) chores: Chores,
    /// How long requests take.
    pub(crate) durations: Durations,
}

impl Metrics {
    /// All at zero.
    pub(crate) fn new() -> Metrics {
        let registry = Registry::new();
        Metrics {
            calls: std::sync::Arc::new(Calls::new(&registry)),
            checks: Checks::new(&registry),
            chores: Chores::new(&registry),
            durations: Durations::new(&registry),
            registry,
        }
    }

    /// The page. `quota_bytes` as `Status` shows it, `retention` is how compaction goes. Takes a few milliseconds.
    pub(crate) fn page(&self, keyspace: &Keyspace, quota_bytes: i64, retention: &Progress) -> String {
        let (status, told) = (keyspace.status(), keyspace.metrics());
        let mut families = self.registry.gather();
        families.extend(server(status.member.0, quota_bytes));
        families.push(family::gauge(
            "etcd_disk_defrag_inflight",
            "1 while the database file is being rewritten, or waits to be.",
            self.chores.is_rewriting(),
        ));
        families.extend(keyspace::families(&status, &told));
        families.extend(own::families(&status, &told));
        families.extend(own::retention(retention));
        families.extend(process::families());
        families.retain(|family| !family.get_metric().is_empty());
        families.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        // It fails only for a family without samples.
        TextEncoder::new().encode_to_string(&families).unwrap_or_default()
    }
}

/// What does not change while the server runs: it is its own leader from the first moment on.
fn server(member: u64, quota_bytes: i64) -> Vec<MetricFamily> {
    let one = |name: &str, help: &str, label: &'static str, value: &str| {
        gauges(name, help, [(&[(label, value)] as family::Labels<'_>, 1_u64)])
    };
    vec![
        family::gauge("etcd_server_has_leader", "1 if there is a leader.", true),
        family::gauge("etcd_server_is_leader", "1 if it is this member.", true),
        family::gauge("etcd_server_is_learner", "1 if this member is a learner.", false),
        family::counter(
            "etcd_server_leader_changes_seen_total",
            "Leaders seen, this member at the start included.",
            1_u64,
        ),
        family::gauge("etcd_server_quota_backend_bytes", "The quota; negative: none.", quota_bytes),
        one("etcd_server_version", "The version of the API, as a label.", "server_version", API_VERSION),
        one("etcd_cluster_version", "The cluster's version, as a label.", "cluster_version", CLUSTER_VERSION),
        one("etcd_server_id", "This member's id, as a label.", "server_id", &keyspace::hex(member)),
        one("sternpost_build_info", "The version of the program, as a label.", "version", env!("CARGO_PKG_VERSION")),
    ]
}
