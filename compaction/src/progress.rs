//! Progress: what retention has proposed, what came of it, and how long that took.

use std::time::Duration;

use storage::Revision;

/// The last results of retention, for logs and metrics. Times are on the clock of the caller, which does not go back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Proposals made.
    pub proposals: u64,
    /// Those that were not carried out.
    pub failures: u64,
    /// The last proposal.
    pub proposed: Option<Revision>,
    /// The last proposal that was carried out: what lies below cannot be read any more.
    pub accepted: Option<Revision>,
    /// How long that one took to be carried out.
    pub accepted_after: Duration,
    /// The last accepted proposal of which nothing is left on the disk.
    pub swept: Option<Revision>,
    /// How long after its acceptance that was found.
    pub swept_after: Duration,
    /// Why the last failure failed; none once a proposal was carried out after it.
    pub failure: Option<String>,
    proposed_at: Duration,
    accepted_at: Duration,
}

impl Progress {
    /// A proposal is on its way.
    pub fn propose(&mut self, revision: Revision, now: Duration) {
        self.proposals += 1;
        self.proposed = Some(revision);
        self.proposed_at = now;
    }

    /// It was carried out.
    pub fn accept(&mut self, now: Duration) {
        self.accepted = self.proposed;
        self.accepted_after = now.saturating_sub(self.proposed_at);
        self.accepted_at = now;
        self.failure = None;
    }

    /// It was not.
    pub fn fail(&mut self, why: String) {
        self.failures += 1;
        self.failure = Some(why);
    }

    /// The revision that the sweep has yet to reach; none if it has.
    pub fn sweeping(&self) -> Option<Revision> {
        self.accepted.filter(|accepted| self.swept.is_none_or(|swept| swept < *accepted))
    }

    /// The sweep has come this far. True if that completes the last proposal.
    pub fn sweep(&mut self, reached: Revision, now: Duration) -> bool {
        let complete = self.sweeping().filter(|target| reached >= *target);
        if complete.is_some() {
            self.swept = complete;
            self.swept_after = now.saturating_sub(self.accepted_at);
        }
        complete.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_proposal_is_followed_until_it_is_swept() {
        let mut progress = Progress::default();
        assert_eq!((progress.sweeping(), progress.sweep(Revision(9), seconds(1))), (None, false));
        progress.propose(Revision(10), seconds(5));
        assert_eq!(progress.sweeping(), None);
        progress.accept(seconds(7));
        assert_eq!((progress.accepted, progress.accepted_after), (Some(Revision(10)), seconds(2)));
        assert_eq!(progress.sweeping(), Some(Revision(10)));
        assert!(!progress.sweep(Revision(9), seconds(8)));
        assert!(progress.sweep(Revision(12), seconds(20)));
        assert_eq!((progress.swept, progress.swept_after), (Some(Revision(10)), seconds(13)));
        assert_eq!((progress.sweeping(), progress.sweep(Revision(12), seconds(30))), (None, false));
    }

    #[test]
    fn a_failure_is_kept_until_a_proposal_is_carried_out() {
        let mut progress = Progress::default();
        progress.propose(Revision(10), seconds(1));
        progress.fail("no".to_owned());
        assert_eq!((progress.accepted, progress.failure.as_deref()), (None, Some("no")));
        progress.propose(Revision(11), seconds(2));
        progress.accept(seconds(2));
        assert_eq!((progress.accepted, progress.failure.as_deref()), (Some(Revision(11)), None));
        assert_eq!((progress.proposals, progress.failures), (2, 1));
    }
}
