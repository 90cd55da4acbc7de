//! How long requests take, by kind and outcome.

use std::future::Future;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use prometheus::{Histogram, HistogramOpts, HistogramVec, Registry, exponential_buckets};

/// The kinds of requests that are timed, with etcd's names for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    Range,
    ReadonlyTxn,
    Put,
    DeleteRange,
    Txn,
    Compaction,
    LeaseGrant,
    LeaseRevoke,
    Alarm,
}

const NAMES: [&str; 9] =
    ["Range", "ReadonlyTxn", "Put", "DeleteRange", "Txn", "Compaction", "LeaseGrant", "LeaseRevoke", "Alarm"];

/// The durations of requests; a histogram appears with its first observation, as in etcd.
#[derive(Debug)]
pub(crate) struct Durations {
    requests: HistogramVec,
    by_kind: [[OnceLock<Histogram>; 2]; NAMES.len()],
    ranges: HistogramVec,
    by_success: [OnceLock<Histogram>; 2],
    hash: Histogram,
    snapshot: Histogram,
}

impl Durations {
    /// Registers the histograms.
    pub(super) fn new(registry: &Registry) -> Durations {
        let opts = |name: &str, help: &str, first: f64, count: usize| {
            HistogramOpts::new(name, help).buckets(exponential_buckets(first, 2.0, count).expect("valid bounds"))
        };
        let vec = |opts: HistogramOpts, labels: &[&str]| {
            let vec = HistogramVec::new(opts, labels).expect("a valid name");
            registry.register(Box::new(vec.clone())).expect("a new name");
            vec
        };
        let single = |opts: HistogramOpts| {
            let histogram = Histogram::with_opts(opts).expect("a valid name");
            registry.register(Box::new(histogram.clone())).expect("a new name");
            histogram
        };
        let (requests, ranges) = ("etcd_server_request_duration_seconds", "etcd_server_range_duration_seconds");
        let (hash, snapshot) = ("etcd_mvcc_hash_rev_duration_seconds", "etcd_disk_backend_snapshot_duration_seconds");
        Durations {
            requests: vec(opts(requests, "From a request to its answer, by kind.", 0.001, 14), &["success", "type"]),
            by_kind: [const { [const { OnceLock::new() }; 2] }; NAMES.len()],
            ranges: vec(opts(ranges, "Reading a range, once it may be read.", 0.0001, 20), &["success"]),
            by_success: [const { OnceLock::new() }; 2],
            hash: single(opts(hash, "Hashing the keyspace at a revision.", 0.01, 15)),
            snapshot: single(opts(snapshot, "Taking a snapshot, until the client has all of it.", 0.01, 17)),
        }
    }

    /// Carries out a request and keeps how long it took.
    pub(crate) async fn request<T, E>(&self, kind: Timed, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let begun = Instant::now();
        let outcome = work.await;
        self.observe(kind, outcome.is_ok(), begun.elapsed());
        outcome
    }

    fn observe(&self, kind: Timed, success: bool, took: Duration) {
        let name = NAMES.get(kind as usize).copied().unwrap_or_default();
        let slot = self.by_kind.get(kind as usize).and_then(|by_success| by_success.get(usize::from(success)));
        let histogram = || self.requests.with_label_values(&[word(success), name]);
        slot.map(|slot| slot.get_or_init(histogram).observe(took.as_secs_f64())).unwrap_or_default();
    }

    /// Reads a range and keeps how long it took.
    pub(crate) fn range<T, E>(&self, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let begun = Instant::now();
        let outcome = read();
        let histogram = || self.ranges.with_label_values(&[word(outcome.is_ok())]);
        if let Some(slot) = self.by_success.get(usize::from(outcome.is_ok())) {
            slot.get_or_init(histogram).observe(begun.elapsed().as_secs_f64());
        }
        outcome
    }

    /// Hashing at a revision took so long.
    pub(crate) fn hashed(&self, took: Duration) {
        self.hash.observe(took.as_secs_f64());
    }

    /// A client got a whole snapshot in so much time.
    pub(crate) fn snapshot_sent(&self, took: Duration) {
        self.snapshot.observe(took.as_secs_f64());
    }
}

fn word(success: bool) -> &'static str {
    if success { "true" } else { "false" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_is_kept_under_its_name_and_its_outcome() {
        let durations = Durations::new(&Registry::new());
        let kinds = [
            Timed::Range,
            Timed::ReadonlyTxn,
            Timed::Put,
            Timed::DeleteRange,
            Timed::Txn,
            Timed::Compaction,
            Timed::LeaseGrant,
            Timed::LeaseRevoke,
            Timed::Alarm,
        ];
        for (kind, name) in kinds.into_iter().zip(NAMES) {
            assert_eq!(format!("{kind:?}"), name);
            assert_eq!(durations.request(kind, async { Ok::<_, ()>(7) }).await, Ok(7));
            assert_eq!(durations.request(kind, async { Err::<(), _>(7) }).await, Err(7));
            for success in ["true", "false"] {
                let histogram = durations.requests.with_label_values(&[success, name]);
                assert_eq!(histogram.get_sample_count(), 1, "{name} {success}");
            }
        }
    }
}
