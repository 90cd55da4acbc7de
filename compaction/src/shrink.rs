//! Shrinking: when the database file is worth rewriting, and the log worth releasing.

use std::time::Duration;

/// The numbers that matter; sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// What the file takes.
    pub file: u64,
    /// What it would take if it were rewritten, about.
    pub rewritten: u64,
    /// What is free beside it.
    pub free: u64,
    /// What of the log a flush would release.
    pub log: u64,
    /// The current revision.
    pub revision: i64,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// Bring what is in memory to the file, so that the log can go.
    Flush,
    /// Rewrite the file: what it does not use outweighs what it uses.
    RewriteAtWork,
    /// Rewrite the file: it could be smaller, and there is little else to do.
    RewriteAtRest,
}

/// Decides from numbers that it is told.
///
/// A file is worth rewriting when what it does not use outweighs what it uses and is more than 32 MiB. At rest, after a minute with few
/// changes, an eighth of what it uses and 4 MiB are enough, if the last rewrite is a hundred times as long ago as it took: so that is what
/// settles, and costs a hundredth of the disk's time. (On a small volume a sixteenth of it is enough instead of 32 and 4 MiB.)
/// Twice the size of the new file must be free. What the last rewrite left above or below its estimate is expected again, so a file that
/// stays large is not rewritten for ever; after a failure nothing is proposed for ten minutes.
///
/// After a minute without any change what is in memory is flushed, if that releases log: once, then there is nothing left to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shrinking {
    /// What the last rewrite was expected to leave.
    estimate: u64,
    /// What it left.
    left: u64,
    /// When the next may be.
    next: Duration,
    /// When the next may be that is made at rest.
    next_at_rest: Duration,
    /// Since when there were few changes, and the revision then.
    calm: (Duration, i64),
    /// Since when there was none, and the revision.
    still: (Duration, i64),
}

/// Less than this is not worth the reading and writing.
const WORTH_BYTES: u64 = 32 << 20;
/// The same at rest.
const WORTH_BYTES_AT_REST: u64 = 4 << 20;
/// The share of the volume that is worth it in any case.
const WORTH_SHARE: u64 = 16;
/// The share of what is used that is worth it at rest.
const WORTH_SHARE_AT_REST: u64 = 8;
/// How long after a failure.
const PAUSE: Duration = Duration::from_secs(600);
/// What there is of time for one rewrite at rest, as a multiple of what the last took.
const TIMES_AS_LONG: u32 = 100;
/// Rest is so long a time
const REST: Duration = Duration::from_secs(60);
/// with so few revisions: at this rate it takes an hour or more to fill a part.
const REST_REVISIONS: i64 = 1000;

impl Shrinking {
    /// What should be done now, by any clock that does not go back. To be asked every few seconds.
    pub fn propose(&mut self, now: Duration, sizes: Sizes) -> Option<Proposal> {
        let Sizes { file, free, log, revision, .. } = sizes;
        if revision.saturating_sub(self.calm.1) > REST_REVISIONS {
            self.calm = (now, revision);
        }
        if revision != self.still.1 {
            self.still = (now, revision);
        }
        let at_rest = now >= self.calm.0 + REST;
        let rewritten = self.expected(sizes.rewritten);
        let unused = file.saturating_sub(rewritten);
        let worth = |bytes: u64| unused >= bytes.min(file.saturating_add(free) / WORTH_SHARE);
        let possible = now >= self.next && free / 2 >= rewritten;
        if possible && unused > rewritten && worth(WORTH_BYTES) {
            return Some(Proposal::RewriteAtWork);
        }
        let wanted = unused > rewritten / WORTH_SHARE_AT_REST && worth(WORTH_BYTES_AT_REST);
        if possible && at_rest && now >= self.next_at_rest && wanted {
            return Some(Proposal::RewriteAtRest);
        }
        (log > 0 && now >= self.still.0 + REST).then_some(Proposal::Flush)
    }

    /// The file was rewritten in the time since `begun`, and these are the sizes now.
    pub fn done(&mut self, begun: Duration, now: Duration, sizes: Sizes) {
        self.estimate = sizes.rewritten;
        self.left = sizes.file;
        self.next_at_rest = now + now.saturating_sub(begun).saturating_mul(TIMES_AS_LONG);
    }

    /// It could not be.
    pub fn failed(&mut self, now: Duration) {
        self.next = now + PAUSE;
    }

    /// Less data leaves less beside the estimate; more data perhaps more, but that is not counted on.
    fn expected(&self, rewritten: u64) -> u64 {
        let share = |difference: u64| {
            let share = u128::from(difference) * u128::from(rewritten.min(self.estimate));
            u64::try_from(share.checked_div(u128::from(self.estimate)).unwrap_or_default()).unwrap_or(u64::MAX)
        };
        let (above, below) = (self.left.saturating_sub(self.estimate), self.estimate.saturating_sub(self.left));
        rewritten.saturating_add(share(above)).saturating_sub(share(below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const START: Duration = Duration::ZERO;

    fn sizes(file: u64, rewritten: u64, free: u64) -> Sizes {
        Sizes { file: file * MIB, rewritten: rewritten * MIB, free: free * MIB, log: 0, revision: 0 }
    }

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    fn at_work(mut shrinking: Shrinking, sizes: Sizes) -> bool {
        shrinking.propose(START, sizes) == Some(Proposal::RewriteAtWork)
    }

    #[test]
    fn garbage_must_outweigh_data() {
        let due: Vec<bool> =
            [100, 199, 200, 201, 1000].map(|file| at_work(Shrinking::default(), sizes(file, 100, 9999))).into();
        assert_eq!(due, [false, false, false, true, true]);
    }

    #[test]
    fn a_small_gain_is_worth_it_only_on_a_small_volume() {
        let shrinking = Shrinking::default();
        assert!(!at_work(shrinking, sizes(32, 1, 9999)));
        assert!(at_work(shrinking, sizes(33, 1, 9999)));
        assert!(at_work(shrinking, sizes(10, 1, 100)));
        assert!(!at_work(shrinking, sizes(6, 1, 100)));
    }

    #[test]
    fn the_new_file_must_fit_twice() {
        let shrinking = Shrinking::default();
        assert!(!at_work(shrinking, sizes(500, 100, 199)));
        assert!(at_work(shrinking, sizes(500, 100, 200)));
    }

    #[test]
    fn what_a_rewrite_left_is_expected_again() {
        let mut shrinking = Shrinking::default();
        assert!(at_work(shrinking, sizes(500, 100, 9999)));
        shrinking.done(START, START, sizes(300, 100, 9999));
        let due: Vec<bool> =
            [(300, 100), (600, 100), (601, 100), (800, 200), (801, 200), (300, 50), (301, 50), (300, 10)]
                .map(|(file, rewritten)| at_work(shrinking, sizes(file, rewritten, 9999)))
                .into();
        assert_eq!(due, [false, false, true, false, true, false, true, true]);
        shrinking.done(START, START, sizes(80, 100, 9999));
        let due: Vec<bool> = [(160, 100), (161, 100), (360, 200), (361, 200), (80, 50), (81, 50)]
            .map(|(file, rewritten)| at_work(shrinking, sizes(file, rewritten, 9999)))
            .into();
        assert_eq!(due, [false, true, false, true, false, true]);
    }

    #[test]
    fn a_failure_is_not_followed_by_the_next_at_once() {
        let mut shrinking = Shrinking::default();
        shrinking.failed(seconds(300));
        assert_eq!(shrinking.propose(seconds(899), sizes(500, 100, 9999)), None);
        assert_eq!(shrinking.propose(seconds(900), sizes(500, 100, 9999)), Some(Proposal::RewriteAtWork));
    }

    /// Every ten seconds, from `from` on, with so many revisions a second: when something is proposed first, and what.
    fn first(shrinking: &mut Shrinking, from: u64, rate: i64, sizes: Sizes) -> Option<(u64, Proposal)> {
        (from..from + 3600).step_by(10).find_map(|second| {
            let revision = sizes.revision + (second - from).cast_signed() * rate;
            shrinking.propose(seconds(second), Sizes { revision, ..sizes }).map(|proposal| (second, proposal))
        })
    }

    #[test]
    fn at_rest_an_eighth_is_worth_it() {
        let due: Vec<_> = [(112, 100), (113, 100), (24, 20), (23, 20)]
            .map(|(file, rewritten)| first(&mut Shrinking::default(), 0, 0, sizes(file, rewritten, 9999)))
            .into();
        assert_eq!(due, [None, Some((60, Proposal::RewriteAtRest)), Some((60, Proposal::RewriteAtRest)), None]);
    }

    #[test]
    fn a_minute_with_few_changes_is_rest() {
        let due: Vec<_> =
            [0, 5, 16, 17, 1000].map(|rate| first(&mut Shrinking::default(), 0, rate, sizes(150, 100, 9999))).into();
        let rest = Some((60, Proposal::RewriteAtRest));
        assert_eq!(due, [rest, rest, rest, None, None]);
    }

    #[test]
    fn rest_begins_anew_after_a_burst() {
        let mut shrinking = Shrinking::default();
        let busy = Sizes { revision: 5000, ..sizes(100, 100, 9999) };
        assert_eq!(shrinking.propose(seconds(500), busy), None);
        let then = Sizes { revision: 5000, ..sizes(150, 100, 9999) };
        assert_eq!(first(&mut shrinking, 510, 1, then), Some((560, Proposal::RewriteAtRest)));
    }

    #[test]
    fn rewrites_at_rest_take_a_hundredth_of_the_time() {
        let mut shrinking = Shrinking::default();
        shrinking.done(seconds(100), seconds(107), sizes(100, 100, 9999));
        assert_eq!(first(&mut shrinking, 110, 0, sizes(150, 100, 9999)), Some((810, Proposal::RewriteAtRest)));
        // What outweighs the data does not wait for that.
        assert_eq!(shrinking.propose(seconds(110), sizes(250, 100, 9999)), Some(Proposal::RewriteAtWork));
    }

    #[test]
    fn the_log_is_released_when_nothing_changes_any_more() {
        let large = Sizes { log: 1, ..sizes(100, 100, 9999) };
        assert_eq!(first(&mut Shrinking::default(), 0, 0, large), Some((60, Proposal::Flush)));
        assert_eq!(first(&mut Shrinking::default(), 0, 1, large), None);
        assert_eq!(first(&mut Shrinking::default(), 0, 0, sizes(100, 100, 9999)), None);
    }
}
