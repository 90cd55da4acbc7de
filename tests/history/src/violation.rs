//! The rules, and how a broken one is told.

use std::fmt;

/// What a store promises, and what the recorder has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// The recorder: one call at a time per client, calls before answers, every value written once.
    Recording,
    /// Every revision is in the journal once, in order.
    Dense,
    /// No revision belongs to two writes.
    RevisionReuse,
    /// A write that was answered is in the journal, as it was asked for.
    LostWrite,
    /// No revision is nobody's.
    Phantom,
    /// A write happens once.
    TwiceWritten,
    /// A write that was refused did not happen.
    RefusedWrite,
    /// All changes of a request are at its revision.
    Atomic,
    /// Create revision, mod revision, version and lease follow from the writes.
    Numbers,
    /// A reply's previous keys are those before the request.
    PrevKv,
    /// A deletion counts what it deleted.
    DeleteCount,
    /// A transaction takes the branch that its compares say.
    Branch,
    /// A reply to a write is what the store held.
    Reply,
    /// A read is what the store held at its revision.
    Read,
    /// Nobody is told of a revision before its write is begun.
    Early,
    /// No read is older than what anybody was told before it began.
    Stale,
    /// Revisions never go back for one client.
    Session,
    /// A refusal as compacted is below a compaction; nothing below one is served after it.
    Compaction,
    /// A refusal as a future revision is above the current one.
    Future,
    /// A watch gets only what matches its keys and its filters.
    WatchFilter,
    /// A watch's revisions never go down.
    WatchOrder,
    /// A watch gets a change once.
    WatchUnique,
    /// A revision is in one message of a watch, whole.
    WatchAtomic,
    /// A watch begins at its start, with the first change there.
    WatchFirst,
    /// A watch gets every change.
    WatchReliable,
    /// A watch's events are those of the journal.
    WatchContent,
    /// A watch that asks gets what keys were before; one that does not, does not.
    WatchPrevKv,
    /// Progress never overtakes a change.
    WatchProgress,
    /// Progress never goes back, and nothing at or below it follows.
    WatchBookmark,
    /// A watch ends as compacted only if it needs what was compacted, and at a compaction's revision.
    WatchCompacted,
    /// A watch ends only if asked to, and nothing follows.
    WatchCanceled,
    /// A lease's keys go no sooner than its TTL after it was last renewed.
    LeaseEarly,
    /// All keys of a lease go at one revision.
    LeaseTogether,
    /// A lease is granted once, used after that, and gone for good when it ended.
    LeaseLife,
}

/// A broken rule.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// The revisions, operations and messages concerned.
    pub text: String,
}

impl Violation {
    pub(crate) fn new(rule: Rule, text: String) -> Violation {
        Violation { rule, text }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.text)
    }
}

/// Fails with a rule and a text.
macro_rules! broken {
    ($rule:ident, $($text:tt)*) => {
        return Err($crate::violation::Violation::new($crate::violation::Rule::$rule, format!($($text)*)))
    };
}
pub(crate) use broken;
