//! Scrubbing: when what lies on the disk is read again, and how fast.

use std::time::Duration;

/// Decides from what it is told of time and bytes.
///
/// The first scrub comes a minute after the start, or after one interval if that is less: damage that ended a process before is
/// found again soon. Then one begins every interval, or when the one before has ended, if that took longer.
#[derive(Clone, Copy, Debug)]
pub struct Scrubbing {
    interval: Duration,
    next: Duration,
}

/// When the first scrub begins.
const FIRST: Duration = Duration::from_secs(60);
/// What a scrub reads in a second at most, in bytes.
const BYTES_PER_SECOND: u64 = 8 << 20;
/// How many times as long as a step it rests.
const REST: u32 = 3;

impl Scrubbing {
    /// What one step reads, about, in bytes: a part that is to be flushed waits for it.
    pub const STEP_BYTES: usize = 1 << 20;

    /// One scrub every `interval`, from `now` on, by any clock that does not go back.
    pub fn new(interval: Duration, now: Duration) -> Scrubbing {
        Scrubbing { interval, next: now + interval.min(FIRST) }
    }

    /// How long until the next one begins.
    pub fn wait(&self, now: Duration) -> Duration {
        self.next.saturating_sub(now)
    }

    /// One begins.
    pub fn begun(&mut self, now: Duration) {
        self.next = now + self.interval;
    }

    /// How long to rest after a step.
    pub fn rest(took: Duration, bytes_read: u64) -> Duration {
        let at_that_speed = Duration::from_micros(bytes_read.saturating_mul(1_000_000) / BYTES_PER_SECOND);
        at_that_speed.saturating_sub(took).max(took * REST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_comes_soon_and_then_one_every_interval() {
        let mut daily = Scrubbing::new(seconds(86_400), seconds(5));
        assert_eq!((daily.wait(seconds(5)), daily.wait(seconds(65))), (seconds(60), seconds(0)));
        daily.begun(seconds(70));
        assert_eq!((daily.wait(seconds(70)), daily.wait(seconds(86_470))), (seconds(86_400), seconds(0)));
        assert_eq!(Scrubbing::new(seconds(2), seconds(0)).wait(seconds(0)), seconds(2));
    }

    #[test]
    fn one_that_takes_longer_than_the_interval_is_followed_by_the_next() {
        let mut often = Scrubbing::new(seconds(10), seconds(0));
        often.begun(seconds(10));
        assert_eq!(often.wait(seconds(25)), seconds(0));
    }

    #[test]
    fn bytes_per_second_are_bounded_and_a_slow_disk_rests_in_proportion() {
        assert_eq!(Scrubbing::rest(Duration::from_millis(25), 8 << 20), Duration::from_millis(975));
        assert_eq!(Scrubbing::rest(seconds(2), 8 << 20), seconds(6));
        assert_eq!(Scrubbing::rest(Duration::ZERO, 0), Duration::ZERO);
        for bytes in [1, 4096, 1 << 20, 5 << 20] {
            let took = Duration::from_millis(10);
            let whole = took + Scrubbing::rest(took, bytes);
            assert!(whole + Duration::from_micros(1) >= Duration::from_secs_f64(bytes as f64 / (8 << 20) as f64));
        }
    }
}
