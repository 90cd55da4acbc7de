//! Health checks, counted.

use prometheus::{IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};

/// How checks of the server's health ended.
#[derive(Debug)]
pub(crate) struct Checks {
    success: IntCounter,
    failures: IntCounter,
    last: IntGaugeVec,
    all: IntCounterVec,
}

impl Checks {
    /// Registers the counters.
    pub(super) fn new(registry: &Registry) -> Checks {
        let single = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help).expect("a valid name");
            registry.register(Box::new(counter.clone())).expect("a new name");
            counter
        };
        let last = Opts::new("etcd_server_healthcheck", "How each check of /livez and /readyz ended last: 1 is well.");
        let last = IntGaugeVec::new(last, &["name", "type"]).expect("a valid name");
        let all = Opts::new("etcd_server_healthchecks_total", "Checks of /livez and /readyz, by how they ended.");
        let all = IntCounterVec::new(all, &["name", "status", "type"]).expect("a valid name");
        registry.register(Box::new(last.clone())).expect("a new name");
        registry.register(Box::new(all.clone())).expect("a new name");
        Checks {
            success: single("etcd_server_health_success", "Requests for /health that found all well."),
            failures: single("etcd_server_health_failures", "Requests for /health that did not."),
            last,
            all,
        }
    }

    /// `/health` was asked for.
    pub(crate) fn health(&self, well: bool) {
        if well { self.success.inc() } else { self.failures.inc() }
    }

    /// A check of a page, named without its slash, ended.
    pub(crate) fn check(&self, page: &str, name: &str, well: bool) {
        self.last.with_label_values(&[name, page]).set(i64::from(well));
        self.all.with_label_values(&[name, if well { "success" } else { "error" }, page]).inc();
    }
}
