//! Whether a short read may be done where it is, on a thread that serves connections.
//!
//! To hand a read of one key to a thread that may wait for the disk, and its answer back, takes longer than the read, if the
//! page is in memory. Whether it is shows only afterwards: a read that took long sends those after it the long way for a while.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A read that takes longer has probably waited for the disk.
const LONG: Duration = Duration::from_micros(500);
/// So many reads go the long way after that.
const LONG_WAYS: u32 = 1000;

/// What short reads have taken lately.
#[derive(Debug, Default)]
pub(super) struct Patience {
    long_ways: AtomicU32,
}

impl Patience {
    /// True if the next read may be done in place.
    pub(super) fn is_there(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        self.long_ways.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err()
    }

    /// Does a read in place.
    pub(super) fn spend<T>(&self, read: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = read();
        self.took(begun.elapsed());
        done
    }

    fn took(&self, time: Duration) {
        if time > LONG {
            self.long_ways.store(LONG_WAYS, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_long_read_a_thousand_go_the_long_way() {
        let patience = Patience::default();
        assert!(patience.is_there());
        patience.took(LONG);
        assert!(patience.is_there());
        patience.took(LONG * 2);
        assert_eq!((0..3000).filter(|_| !patience.is_there()).count(), 1000);
        assert_eq!(patience.spend(|| 7), 7);
    }
}
