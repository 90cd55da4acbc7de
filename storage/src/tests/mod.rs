//! The whole keyspace on a simulated disk, a simulated clock and a simulated log.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests"
)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

use crate::fs::SimFs;
use crate::*;

mod catching_up;
mod compaction;
mod counting;
mod endings;
mod failures;
mod gate;
mod hostile;
mod importing;
mod leases;
mod listing;
mod log_damage;
mod metering;
mod misuse;
mod races;
mod room;
mod salvaging;
mod scrubbing;
mod shrinking;
mod shrinking_under_load;
mod simulated_log;
mod snapshots;
mod snapshots_more;
mod verifying;
mod watching;

/// A clock that moves when told to.
#[derive(Debug, Default)]
pub(super) struct TestClock {
    now_ms: AtomicU64,
}

/// The wall clock when the monotonic one stands at zero.
const EPOCH_MS: u64 = 1_700_000_000_000;

impl TestClock {
    fn advance(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.now_ms.load(Ordering::SeqCst))
    }

    fn wall_ms(&self) -> u64 {
        EPOCH_MS + self.now_ms.load(Ordering::SeqCst)
    }
}

/// Numbers that follow from a seed.
#[derive(Debug)]
struct TestEntropy(Mutex<fs::sim::Prng>);

impl Entropy for TestEntropy {
    fn next_u64(&self) -> u64 {
        self.0.lock().unwrap().next_u64()
    }
}

/// A machine: disk, clock, chance.
#[derive(Clone)]
pub(super) struct Machine {
    pub(super) disk: SimFs,
    pub(super) clock: Arc<TestClock>,
    pub(super) seed: u64,
}

impl Machine {
    fn new(seed: u64) -> Machine {
        Machine { disk: SimFs::new(), clock: Arc::default(), seed }
    }

    fn environment(&self) -> Environment {
        Environment {
            fs: Arc::new(self.disk.clone()),
            clock: self.clock.clone(),
            entropy: Arc::new(TestEntropy(Mutex::new(fs::sim::Prng::new(self.seed)))),
        }
    }

    fn open(&self) -> Result<Keyspace, Error> {
        Keyspace::open(&dir(), small(), self.environment())
    }

    /// The same disk after a power cut that keeps only what was synced, with another seed for the next process.
    fn after_power_cut(&self, style: fs::sim::CrashStyle) -> Machine {
        Machine { disk: self.disk.crash(style, self.seed), clock: self.clock.clone(), seed: self.seed + 1 }
    }
}

fn dir() -> PathBuf {
    PathBuf::from("/data")
}

/// Limits so small that everything happens often.
fn small() -> Options {
    Options {
        recent_bytes: 64 << 10,
        recent_changes: 100,
        cache_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        queue_commands: 1000,
        queue_bytes: 8 << 20,
        batch_bytes: 16 << 10,
        watch_queue_bytes: 16 << 10,
        quota_bytes: None,
        ballast_bytes: 0,
        sticky_no_space: false,
        tuning: Tuning::STANDARD,
    }
}

fn key(name: &str) -> Key {
    Key::new(name.to_owned()).unwrap()
}

fn put(name: &str, value: impl Into<Bytes>) -> Put {
    Put { key: key(name), value: PutValue::Set(value.into()), lease: PutLease::Detach, prev_kv: false }
}

fn get(keyspace: &Keyspace, name: &str) -> Option<KeyValue> {
    keyspace.range(&RangeRequest::new(KeyRange::single(key(name)))).unwrap().kvs.pop()
}

fn delete(name: &str) -> DeleteRange {
    DeleteRange { range: KeyRange::single(key(name)), prev_kv: false }
}

/// Every change from `from` on, through a watch.
fn history(keyspace: &Keyspace, from: i64) -> Vec<Arc<Change>> {
    let until = keyspace.revision();
    let stream = keyspace.watch_stream();
    stream.create(WatchSpec { start: StartAt::Revision(from), ..WatchSpec::new(KeyRange::all()) });
    let mut seen: Vec<Arc<Change>> = Vec::new();
    while from <= until.0 && seen.last().is_none_or(|last| last.at.main < until) {
        for message in stream.recv().unwrap() {
            if let WatchMessage::Events { events, .. } = message {
                seen.extend(events.iter().map(|event| event.change.clone()));
            }
        }
    }
    seen
}
