//! What is done now and then, rewriting the database file and scrubbing: how often, and how it went the last time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::core::Collector;
use prometheus::{Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry, exponential_buckets};
use storage::{Error, ScrubStep, Shrunk};

/// The numbers.
#[derive(Debug)]
pub(crate) struct Chores {
    rewriting: AtomicUsize,
    rewrites: IntCounterVec,
    rewrite_seconds: Histogram,
    rewritten_at: Gauge,
    rewrite_took: Gauge,
    bytes_before: Gauge,
    bytes_after: Gauge,
    scrubs: IntCounter,
    scrubbed_bytes: IntCounter,
    scrub_damage: IntCounter,
    scrubbed_at: Gauge,
    scrub_took: Gauge,
}

impl Chores {
    /// Registers the numbers; a result appears at once, the last of anything when there is one.
    pub(super) fn new(registry: &Registry) -> Chores {
        fn register<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> C {
            registry.register(Box::new(collector.clone())).expect("a new name");
            collector
        }
        let gauge = |name: &str, help: &str| register(registry, Gauge::new(name, help).expect("a valid name"));
        let counter = |name: &str, help: &str| register(registry, IntCounter::new(name, help).expect("a valid name"));
        let results = |name: &str, help: &str, results: &[&str]| {
            let vec = IntCounterVec::new(Opts::new(name, help), &["result"]).expect("a valid name");
            results.iter().for_each(|result| drop(vec.with_label_values(&[*result])));
            register(registry, vec)
        };
        let defrag = HistogramOpts::new("etcd_disk_backend_defrag_duration_seconds", "Rewriting the database file.")
            .buckets(exponential_buckets(0.1, 2.0, 13).expect("valid bounds"));
        Chores {
            rewriting: AtomicUsize::new(0),
            rewrites: results(
                "sternpost_shrink_runs_total",
                "Requests to rewrite the database file, the server's own included, by result.",
                &["done", "failed", "no_room"],
            ),
            rewrite_seconds: register(registry, Histogram::with_opts(defrag).expect("a valid name")),
            rewritten_at: gauge(
                "sternpost_shrink_last_run_timestamp_seconds",
                "When the file was last rewritten; 0: never.",
            ),
            rewrite_took: gauge("sternpost_shrink_last_run_duration_seconds", "How long that took."),
            bytes_before: gauge("sternpost_shrink_last_run_before_bytes", "How large the file was before."),
            bytes_after: gauge("sternpost_shrink_last_run_after_bytes", "How large it was afterwards."),
            scrubs: counter("sternpost_scrub_runs_total", "Scrubs that reached their end."),
            scrubbed_bytes: counter("sternpost_scrub_read_bytes_total", "Bytes that scrubs read."),
            scrub_damage: counter("sternpost_scrub_damage_total", "Places that scrubs found damaged and nobody needs."),
            scrubbed_at: gauge("sternpost_scrub_last_run_timestamp_seconds", "When a scrub last ended; 0: never."),
            scrub_took: gauge("sternpost_scrub_last_run_duration_seconds", "How long it took, rests included."),
        }
    }

    /// True while the database file is being rewritten, or waits to be.
    pub(super) fn is_rewriting(&self) -> bool {
        self.rewriting.load(Ordering::Relaxed) > 0
    }

    /// Somebody has the file rewritten.
    pub(crate) fn rewrite_begins(&self) {
        self.rewriting.fetch_add(1, Ordering::Relaxed);
    }

    /// That ended, after so much time.
    pub(crate) fn rewrite_ended(&self, result: &Result<Shrunk, Error>, took: Duration) {
        self.rewriting.fetch_sub(1, Ordering::Relaxed);
        let word = match result {
            Ok(_) => "done",
            Err(Error::NoRoomToShrink { .. }) => "no_room",
            Err(_) => "failed",
        };
        self.rewrites.with_label_values(&[word]).inc();
        if let Ok(Shrunk { bytes_before, bytes_after }) = result {
            self.rewrite_seconds.observe(took.as_secs_f64());
            self.rewritten_at.set(now());
            self.rewrite_took.set(took.as_secs_f64());
            self.bytes_before.set(*bytes_before as f64);
            self.bytes_after.set(*bytes_after as f64);
        }
    }

    /// A step of a scrub was made.
    pub(crate) fn scrub_step(&self, step: &ScrubStep) {
        self.scrubbed_bytes.inc_by(step.bytes_read);
        self.scrub_damage.inc_by(step.damage.len() as u64);
    }

    /// A scrub reached its end, after so much time.
    pub(crate) fn scrubbed(&self, took: Duration) {
        self.scrubs.inc();
        self.scrubbed_at.set(now());
        self.scrub_took.set(took.as_secs_f64());
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rewrite_is_the_last_that_was_carried_out() {
        let chores = Chores::new(&Registry::new());
        chores.rewrite_begins();
        assert!(chores.is_rewriting());
        let shrunk = Shrunk { bytes_before: 30, bytes_after: 10 };
        chores.rewrite_ended(&Ok(shrunk), Duration::from_secs(2));
        assert!(!chores.is_rewriting());
        for error in [Error::NoRoomToShrink { needed: 2, free: 1 }, Error::Stopped, Error::Stopped] {
            chores.rewrite_begins();
            chores.rewrite_ended(&Err(error), Duration::from_secs(9));
        }
        let runs = ["done", "no_room", "failed"].map(|word| chores.rewrites.with_label_values(&[word]).get());
        assert_eq!(runs, [1, 1, 2]);
        assert_eq!((chores.bytes_before.get(), chores.bytes_after.get(), chores.rewrite_took.get()), (30.0, 10.0, 2.0));
        assert_eq!(chores.rewrite_seconds.get_sample_count(), 1);
        assert!(chores.rewritten_at.get() > 1e9);
    }

    #[test]
    fn scrubs_are_counted_with_what_they_read_and_found() {
        let chores = Chores::new(&Registry::new());
        let damage = vec![Error::corrupt("log", "torn")];
        let step = ScrubStep { bytes_read: 100, damage, ..ScrubStep::default() };
        chores.scrub_step(&step);
        chores.scrub_step(&step);
        assert_eq!((chores.scrubbed_bytes.get(), chores.scrub_damage.get(), chores.scrubs.get()), (200, 2, 0));
        chores.scrubbed(Duration::from_secs(3));
        assert_eq!((chores.scrubs.get(), chores.scrub_took.get()), (1, 3.0));
        assert!(chores.scrubbed_at.get() > 1e9);
    }
}
