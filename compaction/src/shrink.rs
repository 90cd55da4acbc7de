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

/// Decides from numbers that it is told, by looking at them at regular intervals.
///
/// A file is worth rewriting when what it does not use outweighs what it uses, and is more than 32 MiB, at six looks in a row: history that
/// is compacted now and then leaves room that the next will take. At rest, after six looks with few changes, an eighth of what it uses
/// and 4 MiB are enough: that is what a file settles at. What a rewrite costs is bounded by time: the last one must be ten times as long
/// ago as it took, at rest a hundred times. (On a small volume a sixteenth of it is enough instead of 32 and 4 MiB.) Twice the size of the new file must be free.
/// What the last rewrite left above or below its estimate is expected again, so a file that stays large is not rewritten for ever; after
/// a failure nothing is proposed for ten minutes.
///
/// After six looks without any change what is in memory is flushed, if that releases log: once, then there is nothing left to write.
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
    /// Looks since there were many changes, and what there was then.
    calm: Option<Since>,
    /// Looks since there was any, and what there was then.
    still: Option<Since>,
    /// Looks at which garbage outweighed data.
    heavy: u32,
}

/// Looks since a moment, and the numbers then.
#[derive(Clone, Copy, Debug)]
struct Since {
    looks: u32,
    revision: i64,
    rewritten: u64,
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
/// How long after a rewrite the next may be, as a multiple of what it took.
const TIMES_AS_LONG: u32 = 10;
/// The same for one made at rest.
const TIMES_AS_LONG_AT_REST: u32 = 100;
/// So many looks in a row count.
const LOOKS: u32 = 6;
/// No more revisions than this in so many looks are few: with a look every ten seconds it takes an hour to fill a part,
const FEW_REVISIONS: i64 = 1000;
/// unless each is a large transaction, which the size of what they brought to the file tells.
const FEW_BYTES: u64 = 4 << 20;

impl Shrinking {
    /// One look: what should be done now, by any clock that does not go back.
    pub fn propose(&mut self, now: Duration, sizes: Sizes) -> Option<Proposal> {
        let Sizes { file, free, log, .. } = sizes;
        let rewritten = self.expected(sizes.rewritten);
        let unused = file.saturating_sub(rewritten);
        let worth = |bytes: u64| unused >= bytes.min(file.saturating_add(free) / WORTH_SHARE);
        let heavy = unused > rewritten && worth(WORTH_BYTES);
        let wanted = unused > rewritten / WORTH_SHARE_AT_REST && worth(WORTH_BYTES_AT_REST);
        let calm = look(&mut self.calm, &sizes, FEW_REVISIONS, FEW_BYTES);
        let still = look(&mut self.still, &sizes, 0, u64::MAX);
        self.heavy = if heavy { self.heavy.saturating_add(1) } else { 0 };
        let possible = now >= self.next && free / 2 >= rewritten;
        if possible && self.heavy >= LOOKS {
            return Some(Proposal::RewriteAtWork);
        }
        if possible && wanted && calm >= LOOKS && now >= self.next_at_rest {
            return Some(Proposal::RewriteAtRest);
        }
        (log > 0 && still >= LOOKS).then_some(Proposal::Flush)
    }

    /// The file was rewritten in the time since `begun`, and these are the sizes now.
    pub fn done(&mut self, begun: Duration, now: Duration, sizes: Sizes) {
        self.estimate = sizes.rewritten;
        self.left = sizes.file;
        self.heavy = 0;
        let took = now.saturating_sub(begun);
        self.next = now + took.saturating_mul(TIMES_AS_LONG);
        self.next_at_rest = now + took.saturating_mul(TIMES_AS_LONG_AT_REST);
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

/// Counts a look, or begins anew if more than so much has changed. Answers how many looks that makes.
fn look(since: &mut Option<Since>, sizes: &Sizes, revisions: i64, bytes: u64) -> u32 {
    let Sizes { revision, rewritten, .. } = *sizes;
    let begun = since.get_or_insert(Since { looks: 0, revision, rewritten });
    let many = revision.saturating_sub(begun.revision) > revisions || rewritten.abs_diff(begun.rewritten) > bytes;
    let looks = if many { 0 } else { begun.looks.saturating_add(1) };
    *begun = if many { Since { looks, revision, rewritten } } else { Since { looks, ..*begun } };
    looks
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const START: Duration = Duration::ZERO;

    /// So many revisions a look are work.
    const BUSY: i64 = 10_000;

    fn sizes(file: u64, rewritten: u64, free: u64) -> Sizes {
        Sizes { file: file * MIB, rewritten: rewritten * MIB, free: free * MIB, log: 0, revision: 0 }
    }

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    /// A look every ten seconds, `from` the first on, with so many revisions between: when something is proposed first, and what.
    fn first(shrinking: &mut Shrinking, from: u64, revisions: i64, sizes: Sizes) -> Option<(u64, Proposal)> {
        (1..=100).find_map(|look: u64| {
            let (now, revision) = (from + 10 * look, sizes.revision + look.cast_signed() * revisions);
            shrinking.propose(seconds(now), Sizes { revision, ..sizes }).map(|proposal| (now, proposal))
        })
    }

    /// True if a rewrite is proposed while there is much to do.
    fn at_work(mut shrinking: Shrinking, sizes: Sizes) -> bool {
        let first = first(&mut shrinking, 0, BUSY, sizes);
        assert!([None, Some((60, Proposal::RewriteAtWork))].contains(&first), "{first:?}");
        first.is_some()
    }

    #[test]
    fn garbage_must_outweigh_data() {
        let due: Vec<bool> =
            [100, 199, 200, 201, 1000].map(|file| at_work(Shrinking::default(), sizes(file, 100, 9999))).into();
        assert_eq!(due, [false, false, false, true, true]);
    }

    #[test]
    fn garbage_that_is_used_again_is_none() {
        let mut shrinking = Shrinking::default();
        let looks = (0..1000).map(|look: i64| {
            let sizes = Sizes { revision: look * BUSY, ..sizes(500, if look % 6 == 5 { 300 } else { 100 }, 9999) };
            shrinking.propose(seconds(10 * look.unsigned_abs()), sizes)
        });
        assert!(looks.into_iter().all(|proposal| proposal.is_none()));
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
        assert_eq!(first(&mut shrinking, 0, BUSY, sizes(500, 100, 9999)), Some((900, Proposal::RewriteAtWork)));
    }

    #[test]
    fn at_rest_an_eighth_is_worth_it() {
        let due: Vec<_> = [(112, 100), (113, 100), (24, 20), (23, 20)]
            .map(|(file, rewritten)| first(&mut Shrinking::default(), 0, 0, sizes(file, rewritten, 9999)))
            .into();
        assert_eq!(due, [None, Some((60, Proposal::RewriteAtRest)), Some((60, Proposal::RewriteAtRest)), None]);
    }

    #[test]
    fn few_changes_are_rest() {
        let due: Vec<_> =
            [0, 50, 166, 201, BUSY].map(|rate| first(&mut Shrinking::default(), 0, rate, sizes(150, 100, 9999))).into();
        let rest = Some((60, Proposal::RewriteAtRest));
        assert_eq!(due, [rest, rest, rest, None, None]);
    }

    #[test]
    fn few_revisions_that_change_much_are_no_rest() {
        let mut shrinking = Shrinking::default();
        let proposals = (0..100).map(|look: u64| {
            let data = 100 + look % 7 * 5;
            shrinking.propose(seconds(10 * look), sizes(data * 3 / 2, data, 9999))
        });
        assert!(proposals.into_iter().all(|proposal| proposal.is_none()));
    }

    #[test]
    fn rest_begins_anew_after_a_burst() {
        let mut shrinking = Shrinking::default();
        assert_eq!(first(&mut shrinking, 0, 0, sizes(100, 100, 9999)), None);
        let burst = Sizes { revision: 5000, ..sizes(150, 100, 9999) };
        assert_eq!(shrinking.propose(seconds(2000), burst), None);
        assert_eq!(first(&mut shrinking, 2000, 10, burst), Some((2060, Proposal::RewriteAtRest)));
    }

    #[test]
    fn rewrites_take_a_tenth_of_the_time_and_a_hundredth_at_rest() {
        let mut shrinking = Shrinking::default();
        shrinking.done(seconds(100), seconds(107), sizes(100, 100, 9999));
        assert_eq!(first(&mut shrinking, 110, 0, sizes(150, 100, 9999)), Some((810, Proposal::RewriteAtRest)));
        shrinking.done(seconds(810), seconds(820), sizes(100, 100, 9999));
        assert_eq!(first(&mut shrinking, 820, BUSY, sizes(250, 100, 9999)), Some((920, Proposal::RewriteAtWork)));
    }

    #[test]
    fn the_log_is_released_when_nothing_changes_any_more() {
        let large = Sizes { log: 1, ..sizes(100, 100, 9999) };
        assert_eq!(first(&mut Shrinking::default(), 0, 0, large), Some((60, Proposal::Flush)));
        assert_eq!(first(&mut Shrinking::default(), 0, 1, large), None);
        assert_eq!(first(&mut Shrinking::default(), 0, 0, sizes(100, 100, 9999)), None);
    }
}
