//! Retention: which history is kept, by age or by number of revisions.

use std::collections::VecDeque;
use std::time::Duration;

use storage::Revision;

/// What to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Everything.
    KeepAll,
    /// What was written within this time, longer than zero.
    Age(Duration),
    /// So many revisions below the current one, at least one.
    Revisions(i64),
}

/// Applies a policy to what it is told of time and revision.
///
/// By age: the revision is sampled ten times per period, or per hour if the period is longer; the first proposal comes after one period,
/// then one per period or hour, always the revision sampled one period ago. By number: one proposal every five minutes. A revision is
/// proposed once, unless the proposal failed.
#[derive(Debug)]
pub struct Retention {
    policy: Policy,
    /// Samples not older than one period, but for the first.
    samples: VecDeque<(Duration, Revision)>,
    /// When the next proposal is due.
    next: Duration,
    /// What was compacted to last.
    done: Revision,
}

/// How often history is cut by number.
const BY_NUMBER: Duration = Duration::from_secs(300);
/// Longer periods are worked off in pieces of this.
const HOUR: Duration = Duration::from_secs(3600);
/// Samples per period or hour.
const SAMPLES: u32 = 10;

impl Retention {
    /// Starts at `now`, on any clock that does not go back.
    pub fn new(policy: Policy, now: Duration) -> Retention {
        let first = match policy {
            Policy::KeepAll => Duration::ZERO,
            Policy::Age(period) => period,
            Policy::Revisions(_) => BY_NUMBER,
        };
        Retention { policy, samples: VecDeque::new(), next: now + first, done: Revision(0) }
    }

    /// How often `sample` wants to be called; `None` if never.
    pub fn interval(&self) -> Option<Duration> {
        match self.policy {
            Policy::KeepAll => None,
            Policy::Age(period) => Some(period.min(HOUR) / SAMPLES),
            Policy::Revisions(_) => Some(BY_NUMBER),
        }
    }

    /// Takes in the current revision, and names the one to compact to, if it is time.
    pub fn sample(&mut self, now: Duration, current: Revision) -> Option<Revision> {
        let target = match self.policy {
            Policy::KeepAll => return None,
            Policy::Age(period) => self.sampled_before(period, now, current),
            Policy::Revisions(keep) => Revision(current.0.saturating_sub(keep)),
        };
        (now >= self.next && target > self.done && target.0 > 0).then_some(target)
    }

    /// The proposal was carried out, or history was cut there already: the next one is due one round later. After a failure this is not called,
    /// and the next sample proposes again.
    pub fn compacted(&mut self, revision: Revision, now: Duration) {
        self.done = self.done.max(revision);
        self.next = now
            + match self.policy {
                Policy::Age(period) => period.min(HOUR),
                Policy::KeepAll | Policy::Revisions(_) => Duration::ZERO,
            };
    }

    /// The newest sample that is a period old, or the oldest there is.
    fn sampled_before(&mut self, period: Duration, now: Duration, current: Revision) -> Revision {
        self.samples.push_back((now, current));
        let old = |at: Duration| at + period <= now;
        while self.samples.get(1).is_some_and(|(at, _)| old(*at)) {
            self.samples.pop_front();
        }
        self.samples.front().filter(|(at, _)| old(*at)).map_or(Revision(0), |(_, revision)| *revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples at every interval for `minutes`, the revision being ten times the minute; answers the minutes and what was proposed.
    fn proposals(policy: Policy, minutes: u64) -> Vec<(u64, i64)> {
        let mut retention = Retention::new(policy, Duration::ZERO);
        let Some(interval) = retention.interval() else { return Vec::new() };
        let (mut now, mut all) = (Duration::ZERO, Vec::new());
        while now <= Duration::from_secs(minutes * 60) {
            let minute = now.as_secs() / 60;
            let current = Revision(i64::try_from(minute * 10).unwrap_or(i64::MAX));
            if let Some(revision) = retention.sample(now, current) {
                all.push((minute, revision.0));
                retention.compacted(revision, now);
            }
            now += interval;
        }
        all
    }

    #[test]
    fn nothing_is_proposed_if_everything_is_kept() {
        assert_eq!(proposals(Policy::KeepAll, 100), []);
    }

    #[test]
    fn a_short_period_is_kept_and_cut_once_per_period() {
        let ten_minutes = Policy::Age(Duration::from_secs(600));
        assert_eq!(proposals(ten_minutes, 45), [(11, 10), (21, 110), (31, 210), (41, 310)]);
    }

    #[test]
    fn a_long_period_is_cut_once_an_hour() {
        let three_hours = Policy::Age(Duration::from_secs(3 * 3600));
        assert_eq!(proposals(three_hours, 380), [(186, 60), (246, 660), (306, 1260), (366, 1860)]);
    }

    #[test]
    fn a_number_of_revisions_is_kept_every_five_minutes() {
        assert_eq!(proposals(Policy::Revisions(100), 22), [(15, 50), (20, 100)]);
    }

    #[test]
    fn an_idle_store_is_cut_once() {
        let mut retention = Retention::new(Policy::Age(Duration::from_secs(60)), Duration::ZERO);
        let proposed: Vec<Revision> = (0..600)
            .filter_map(|second| {
                let now = Duration::from_secs(second);
                let revision = retention.sample(now, Revision(7))?;
                retention.compacted(revision, now);
                Some(revision)
            })
            .collect();
        assert_eq!(proposed, [Revision(7)]);
    }

    #[test]
    fn a_proposal_that_failed_is_made_again_at_the_next_sample() {
        let mut retention = Retention::new(Policy::Revisions(10), Duration::ZERO);
        let later = |minutes: u64| Duration::from_secs(60 * minutes);
        assert_eq!(retention.sample(later(5), Revision(30)), Some(Revision(20)));
        assert_eq!(retention.sample(later(10), Revision(40)), Some(Revision(30)));
        retention.compacted(Revision(30), later(10));
        assert_eq!(retention.sample(later(15), Revision(40)), None);
    }
}
