//! The flags of etcd that have no effect here, and those that are refused because ignoring them would be dangerous.

use std::collections::BTreeSet;

/// Flags with a value that are accepted and mean nothing here.
pub(super) const INERT: &[&str] = &[
    "auth-token-ttl",
    "backend-batch-interval",
    "backend-batch-limit",
    "backend-bbolt-freelist-type",
    "bcrypt-cost",
    "bootstrap-defrag-threshold-megabytes",
    "client-cert-file",
    "client-key-file",
    "cluster-active-size",
    "cluster-remove-delay",
    "cluster-sync-interval",
    "compact-hash-check-time",
    "compaction-batch-limit",
    "compaction-sleep-interval",
    "config",
    "corrupt-check-time",
    "cors",
    "discovery-cacert",
    "discovery-cert",
    "discovery-dial-timeout",
    "discovery-fallback",
    "discovery-keepalive-time",
    "discovery-keepalive-timeout",
    "discovery-key",
    "discovery-password",
    "discovery-request-timeout",
    "discovery-srv-name",
    "discovery-user",
    "distributed-tracing-address",
    "distributed-tracing-instance-id",
    "distributed-tracing-sampling-rate",
    "distributed-tracing-service-name",
    "downgrade-check-time",
    "feature-gates",
    "grpc-keepalive-min-time",
    "host-whitelist",
    "initial-cluster-state",
    "initial-cluster-token",
    "listen-peer-urls",
    "log-rotation-config-json",
    "logger",
    "max-learners",
    "max-result-buffer",
    "max-retry-attempts",
    "max-snapshots",
    "max-wals",
    "member-name-prefix",
    "metrics",
    "next-cluster-version-compatible",
    "peer-cert-allowed-cn",
    "peer-cert-allowed-hostname",
    "peer-cert-file",
    "peer-client-cert-file",
    "peer-client-key-file",
    "peer-crl-file",
    "peer-election-timeout",
    "peer-heartbeat-interval",
    "peer-key-file",
    "peer-trusted-ca-file",
    "raft-read-timeout",
    "raft-write-timeout",
    "retry-interval",
    "snapshot",
    "snapshot-catchup-entries",
    "snapshot-count",
    "v2-deprecation",
    "wal-dir",
    "warning-apply-duration",
    "warning-unary-request-duration",
];

/// Switches that are accepted and mean nothing here.
pub(super) const INERT_SWITCHES: &[&str] = &[
    "discovery-insecure-skip-tls-verify",
    "discovery-insecure-transport",
    "enable-distributed-tracing",
    "enable-grpc-gateway",
    "enable-log-rotation",
    "enable-pprof",
    "experimental-compact-hash-check-enabled",
    "experimental-initial-corrupt-check",
    "force",
    "initial-election-tick-advance",
    "memory-mlock",
    "peer-auto-tls",
    "peer-client-cert-auth",
    "peer-skip-client-san-verification",
    "pre-vote",
    "socket-reuse-address",
    "socket-reuse-port",
    "strict-reconfig-check",
    "unsafe-no-fsync",
    "v",
    "vv",
];

/// A flag that is accepted only where it asks for nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    /// The flag's name, without dashes.
    pub(super) name: &'static str,
    /// Whether a value asks for nothing; `None` for a switch, which asks for nothing when it is off.
    pub(super) harmless: Option<fn(&str) -> bool>,
    /// What is missing.
    pub(super) why: &'static str,
}

const ALONE: &str = "this server is a cluster of one member and joins no others";

const fn refuse(name: &'static str, harmless: fn(&str) -> bool, why: &'static str) -> Refusal {
    Refusal { name, harmless: Some(harmless), why }
}

const fn refuse_switch(name: &'static str, why: &'static str) -> Refusal {
    Refusal { name, harmless: None, why }
}

/// Every flag that may be refused.
pub(super) const REFUSED: &[Refusal] = &[
    refuse("auth-token", |value| value.is_empty() || value == "simple", "only simple tokens are supported yet"),
    refuse_switch("force-new-cluster", "there is no cluster to be cut down to one member"),
    refuse("initial-cluster", |value| member_names(value) <= 1, ALONE),
    refuse("discovery-token", str::is_empty, ALONE),
    refuse("discovery-endpoints", str::is_empty, ALONE),
    refuse("discovery-srv", str::is_empty, ALONE),
];

/// How many members `name=url,name=url` names; one member may have several URLs.
fn member_names(value: &str) -> usize {
    let names: BTreeSet<&str> =
        value.split(',').filter_map(|pair| pair.split_once('=')).map(|(name, _)| name.trim()).collect();
    names.len()
}
