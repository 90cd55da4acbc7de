//! Requests by the version that clients say they are of: a few are told apart, without a lock.

use std::sync::OnceLock;

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// Versions that are told apart; what comes later counts as other.
const VERSIONS_MAX: usize = 16;
/// A longer one counts as other.
const VERSION_BYTES_MAX: usize = 16;

/// Requests by version and kind.
#[derive(Debug)]
pub(super) struct ClientVersions {
    all: IntCounterVec,
    known: [OnceLock<(String, Requests)>; VERSIONS_MAX],
    other: OnceLock<Requests>,
}

/// Unary ones, and streams.
#[derive(Debug)]
struct Requests {
    unary: IntCounter,
    stream: IntCounter,
}

impl ClientVersions {
    pub(super) fn new(registry: &Registry) -> ClientVersions {
        let opts = Opts::new("etcd_server_client_requests_total", "Requests, by the version that clients give.");
        let all = IntCounterVec::new(opts, &["client_api_version", "type"]).expect("a valid name");
        registry.register(Box::new(all.clone())).expect("a new name");
        ClientVersions { all, known: [const { OnceLock::new() }; VERSIONS_MAX], other: OnceLock::new() }
    }

    /// Counts a request of a client that says it is of this version.
    pub(super) fn count(&self, version: Option<&str>, unary: bool) {
        let requests = self.requests(version.unwrap_or("unknown"));
        if unary { requests.unary.inc() } else { requests.stream.inc() }
    }

    fn requests(&self, version: &str) -> &Requests {
        if version.len() <= VERSION_BYTES_MAX {
            for slot in &self.known {
                let (known, requests) = slot.get_or_init(|| (version.to_owned(), self.named(version)));
                if known == version {
                    return requests;
                }
            }
        }
        self.other.get_or_init(|| self.named("other"))
    }

    fn named(&self, version: &str) -> Requests {
        let with = |kind: &str| self.all.with_label_values(&[version, kind]);
        Requests { unary: with("unary"), stream: with("stream") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_fill_the_page_with_versions() {
        let registry = Registry::new();
        let versions = ClientVersions::new(&registry);
        for number in 0..100 {
            versions.count(Some(&format!("{number}")), true);
            versions.count(Some("0"), false);
        }
        versions.count(Some(&"9".repeat(1000)), true);
        let count = |version: &str, kind: &str| versions.all.with_label_values(&[version, kind]).get();
        assert_eq!((count("0", "stream"), count("0", "unary")), (100, 1));
        assert_eq!(count("other", "unary"), 100 - VERSIONS_MAX as u64 + 1);
        let families = registry.gather();
        let samples: usize = families.iter().map(|family| family.get_metric().len()).sum();
        assert_eq!(samples, 2 * (VERSIONS_MAX + 1));
    }
}
