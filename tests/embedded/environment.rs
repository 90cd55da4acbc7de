//! What a keyspace is given in tests: time that is set by hand, numbers from a seed, small limits.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use storage::{Clock, Entropy, Environment, Keyspace, Options};

use super::memory::Memory;
use crate::model::rng::Rng;

/// A clock that moves when it is told to.
#[derive(Debug, Default)]
pub struct HandClock(AtomicU64);

impl HandClock {
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn wall_ms(&self) -> u64 {
        1_700_000_000_000 + self.0.load(Ordering::SeqCst)
    }
}

/// Numbers that are the same in every run.
#[derive(Debug, Default)]
pub struct Counting(AtomicU64);

impl Entropy for Counting {
    fn next_u64(&self) -> u64 {
        let count = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        count.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (count << 7)
    }
}

/// Chance that follows from a seed.
#[derive(Debug)]
pub struct Seeded(AtomicU64);

impl Seeded {
    pub fn new(seed: u64) -> Seeded {
        Seeded(AtomicU64::new(seed))
    }
}

impl Entropy for Seeded {
    fn next_u64(&self) -> u64 {
        Rng::new(self.0.fetch_add(1, Ordering::SeqCst)).next()
    }
}

/// Limits under which nothing is flushed unless it is asked for.
pub fn never_flushing() -> Options {
    Options {
        recent_bytes: 64 << 20,
        recent_changes: 1_000_000,
        cache_bytes: 4 << 20,
        segment_bytes: 256 << 10,
        quota_bytes: None,
        ballast_bytes: 0,
        sticky_no_space: false,
        ..Options::standard()
    }
}

/// Limits under which flushes run all the time, and a rewrite of base takes many steps.
pub fn always_flushing() -> Options {
    Options { recent_bytes: 64 << 10, recent_changes: 24, cache_bytes: 64 << 10, ..never_flushing() }
}

/// A keyspace on a file system, with a clock.
pub fn open(memory: &Arc<Memory>, clock: &Arc<HandClock>, options: Options) -> Keyspace {
    let environment = Environment { fs: memory.clone(), clock: clock.clone(), entropy: Arc::new(Counting::default()) };
    Keyspace::open(Path::new("/keyspace"), options, environment).expect("the keyspace opens")
}
