//! The clock and the entropy that a keyspace is given, and the system's own.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time as a keyspace sees it.
pub trait Clock: Send + Sync + Debug + 'static {
    /// Time since some fixed point, never backwards, also while the machine sleeps.
    fn monotonic(&self) -> Duration;
    /// Milliseconds since 1970.
    fn wall_ms(&self) -> u64;
}

/// Randomness as a keyspace sees it.
pub trait Entropy: Send + Sync + Debug + 'static {
    /// A number that nobody can guess.
    fn next_u64(&self) -> u64;
}

/// The system's clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// The clock, starting at zero.
    #[expect(clippy::new_without_default, reason = "a clock that starts now is not a default value")]
    pub fn new() -> SystemClock {
        SystemClock { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// The system's randomness.
#[derive(Debug)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next_u64(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        std::collections::hash_map::RandomState::new().build_hasher().finish()
    }
}
