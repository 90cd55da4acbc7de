//! Shrinking: when the database file is worth rewriting.

use std::time::Duration;

/// The sizes that matter, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// What the file takes.
    pub file: u64,
    /// What it would take if it were rewritten, about.
    pub rewritten: u64,
    /// What is free beside it.
    pub free: u64,
}

/// Decides from sizes that it is told.
///
/// The file is worth it when what it does not use outweighs what it uses, is more than 32 MiB (a sixteenth of the volume, if that is
/// smaller), and twice the size of the new file is free. What the last rewrite took above its estimate is expected again, so a file
/// that stays large is not rewritten for ever; after a failure nothing is proposed for ten minutes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shrinking {
    /// What the last rewrite was expected to leave.
    estimate: u64,
    /// What it left above that.
    excess: u64,
    /// When the next may be.
    next: Duration,
}

/// Less than this is not worth the reading and writing.
const WORTH_BYTES: u64 = 32 << 20;
/// The share of the volume that is worth it in any case.
const WORTH_SHARE: u64 = 16;
/// How long after a failure.
const PAUSE: Duration = Duration::from_secs(600);

impl Shrinking {
    /// True if the file should be rewritten now, by any clock that does not go back.
    pub fn is_due(&self, now: Duration, sizes: Sizes) -> bool {
        let Sizes { file, free, .. } = sizes;
        let rewritten = self.expected(sizes.rewritten);
        let unused = file.saturating_sub(rewritten);
        let worth = WORTH_BYTES.min(file.saturating_add(free) / WORTH_SHARE);
        now >= self.next && unused > rewritten && unused >= worth && free / 2 >= rewritten
    }

    /// The file was rewritten, and these are the sizes now.
    pub fn done(&mut self, sizes: Sizes) {
        self.estimate = sizes.rewritten;
        self.excess = sizes.file.saturating_sub(sizes.rewritten);
    }

    /// Less data leaves less above the estimate; more data perhaps more, but that is not counted on.
    fn expected(&self, rewritten: u64) -> u64 {
        let share = u128::from(self.excess) * u128::from(rewritten.min(self.estimate));
        let excess = share.checked_div(u128::from(self.estimate)).unwrap_or_default();
        rewritten.saturating_add(u64::try_from(excess).unwrap_or(u64::MAX))
    }

    /// It could not be.
    pub fn failed(&mut self, now: Duration) {
        self.next = now + PAUSE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const START: Duration = Duration::ZERO;

    fn sizes(file: u64, rewritten: u64, free: u64) -> Sizes {
        Sizes { file: file * MIB, rewritten: rewritten * MIB, free: free * MIB }
    }

    #[test]
    fn garbage_must_outweigh_data() {
        let due: Vec<bool> =
            [100, 199, 200, 201, 1000].map(|file| Shrinking::default().is_due(START, sizes(file, 100, 9999))).into();
        assert_eq!(due, [false, false, false, true, true]);
    }

    #[test]
    fn a_small_gain_is_worth_it_only_on_a_small_volume() {
        let shrinking = Shrinking::default();
        assert!(!shrinking.is_due(START, sizes(32, 1, 9999)));
        assert!(shrinking.is_due(START, sizes(33, 1, 9999)));
        assert!(shrinking.is_due(START, sizes(10, 1, 100)));
        assert!(!shrinking.is_due(START, sizes(6, 1, 100)));
    }

    #[test]
    fn the_new_file_must_fit_twice() {
        let shrinking = Shrinking::default();
        assert!(!shrinking.is_due(START, sizes(500, 100, 199)));
        assert!(shrinking.is_due(START, sizes(500, 100, 200)));
    }

    #[test]
    fn a_file_that_stays_large_is_not_rewritten_for_ever() {
        let mut shrinking = Shrinking::default();
        assert!(shrinking.is_due(START, sizes(500, 100, 9999)));
        shrinking.done(sizes(300, 100, 9999));
        let due: Vec<bool> =
            [(300, 100), (600, 100), (601, 100), (800, 200), (801, 200), (300, 50), (301, 50), (300, 10)]
                .map(|(file, rewritten)| shrinking.is_due(START, sizes(file, rewritten, 9999)))
                .into();
        assert_eq!(due, [false, false, true, false, true, false, true, true]);
    }

    #[test]
    fn a_failure_is_not_followed_by_the_next_at_once() {
        let mut shrinking = Shrinking::default();
        let later = |minutes: u64| Duration::from_secs(60 * minutes);
        shrinking.failed(later(5));
        assert!(!shrinking.is_due(later(14), sizes(500, 100, 9999)));
        assert!(shrinking.is_due(later(15), sizes(500, 100, 9999)));
    }
}
