//! Counts of ranges that are asked for again and again, kept exact at the newest revision by whoever publishes.
//!
//! A list that starts over, as every client's does after its watch broke, needs the count of everything beside its first page: counting a
//! million keys took a second where the page itself took ten milliseconds. The table is read and changed under the lock under which views
//! are taken, so that a count and a view always belong together.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::change::{Change, ChangeKind};

/// From a key to an end (`None`: open).
pub(crate) type Span = (Bytes, Option<Bytes>);

/// The counts that are kept.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    spans: BTreeMap<Span, Tally>,
    counting: usize,
    /// Rises with every question; orders uses, and tells the questions apart.
    clock: u64,
}

#[derive(Debug)]
struct Tally {
    /// The keys in the span; before it was counted, what has been added since the question.
    keys: i64,
    /// Who counts, if that is not done.
    counting: Option<Ticket>,
    used: u64,
}

/// Whoever got it counts the span at the revision of the view that it got with it, and says what came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// So many keys.
    Known(i64),
    /// Not known; to be settled by whoever asked.
    Count(Ticket),
    /// Not known, and not to be kept.
    Unknown,
}

/// Counts that are kept; the one used least recently makes room.
const KEPT_MAX: usize = 256;

/// Spans that are being counted for keeping at the same time.
const COUNTING_MAX: usize = 64;

/// Spans with fewer keys are counted as quickly as they are looked up.
const KEPT_KEYS_MIN: i64 = 256;

/// Bounds of more bytes are not kept: keys may be as large as a request.
const SPAN_BYTES_MAX: usize = 4 << 10;

impl Tallies {
    /// The count of a span at the published revision. A ticket must be settled.
    pub(crate) fn ask(&mut self, start: &Bytes, end: Option<&Bytes>) -> Answer {
        self.clock += 1;
        let span = (start.clone(), end.cloned());
        if let Some(tally) = self.spans.get_mut(&span) {
            tally.used = self.clock;
            return if tally.counting.is_none() { Answer::Known(tally.keys) } else { Answer::Unknown };
        }
        if self.counting >= COUNTING_MAX || start.len() + end.map_or(0, Bytes::len) > SPAN_BYTES_MAX {
            return Answer::Unknown;
        }
        // Copied, because the key of a request holds all of the request in memory.
        let span = (Bytes::copy_from_slice(start), end.map(|end| Bytes::copy_from_slice(end)));
        let ticket = Ticket(self.clock);
        self.spans.insert(span, Tally { keys: 0, counting: Some(ticket), used: self.clock });
        self.counting += 1;
        Answer::Count(ticket)
    }

    /// Ends what a ticket began: `counted` is what the span held in the view that came with the ticket, `None` if that was not found out.
    pub(crate) fn settle(&mut self, start: &Bytes, end: Option<&Bytes>, ticket: Ticket, counted: Option<i64>) {
        let span = (start.clone(), end.cloned());
        let Some(tally) = self.spans.get_mut(&span).filter(|tally| tally.counting == Some(ticket)) else { return };
        self.counting -= 1;
        tally.counting = None;
        match counted {
            Some(keys) if keys >= small!(KEPT_KEYS_MIN, 1) => tally.keys += keys,
            _ => drop(self.spans.remove(&span)),
        }
        if self.spans.len() - self.counting > KEPT_MAX {
            let settled = self.spans.iter().filter(|(_, tally)| tally.counting.is_none());
            let oldest = settled.min_by_key(|(_, tally)| tally.used).map(|(span, _)| span.clone());
            oldest.and_then(|oldest| self.spans.remove(&oldest));
        }
    }

    /// Takes over what the frame that is being published did, also for spans that are still being counted: their view is older.
    pub(crate) fn learn(&mut self, turnover: &Turnover) {
        if turnover.is_empty() {
            return;
        }
        for ((start, end), tally) in &mut self.spans {
            tally.keys += turnover.within(start, end.as_ref());
        }
    }
}

/// The keys that came and went in one frame, each list in order.
#[derive(Debug, Default)]
pub(crate) struct Turnover {
    came: Vec<Bytes>,
    went: Vec<Bytes>,
}

impl Turnover {
    /// What these changes did: a key comes with its first version and goes with a tombstone.
    pub(crate) fn of(changes: &[Arc<Change>]) -> Turnover {
        let mut turnover = Turnover::default();
        for change in changes {
            match change.kind {
                ChangeKind::Put { version: 1, .. } => turnover.came.push(change.key.clone()),
                ChangeKind::Put { .. } => {}
                ChangeKind::Tombstone => turnover.went.push(change.key.clone()),
            }
        }
        turnover.came.sort_unstable();
        turnover.went.sort_unstable();
        turnover
    }

    fn is_empty(&self) -> bool {
        self.came.is_empty() && self.went.is_empty()
    }

    fn within(&self, start: &Bytes, end: Option<&Bytes>) -> i64 {
        let within = |keys: &[Bytes]| {
            let below = keys.partition_point(|key| key < start);
            let upto = end.map_or(keys.len(), |end| keys.partition_point(|key| key < end));
            i64::try_from(upto.saturating_sub(below)).unwrap_or(i64::MAX)
        };
        within(&self.came) - if planted!(CountForgets) { 0 } else { within(&self.went) }
    }
}

/// A question that is to be settled once the range has been read.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) start: Bytes,
    pub(crate) end: Option<Bytes>,
    pub(crate) answer: Answer,
}

impl Question {
    /// The count, if it is known.
    pub(crate) fn known(&self) -> Option<i64> {
        if let Answer::Known(keys) = self.answer { Some(keys) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Revision, RevisionPair};

    fn change(name: &str, version: i64) -> Arc<Change> {
        let kind = match version {
            0 => ChangeKind::Tombstone,
            version => ChangeKind::Put { create: Revision(1), version, lease: 0, value: Bytes::new() },
        };
        Arc::new(Change { key: Bytes::from(name.to_owned()), at: RevisionPair::last_of(Revision(2)), kind })
    }

    fn span(name: &str) -> (Bytes, Option<Bytes>) {
        (Bytes::from(name.to_owned()), Some(Bytes::from(format!("{name}~"))))
    }

    fn ask(tallies: &mut Tallies, name: &str) -> Answer {
        let (start, end) = span(name);
        tallies.ask(&start, end.as_ref())
    }

    fn settle(tallies: &mut Tallies, name: &str, answer: Answer, counted: Option<i64>) {
        let (start, end) = span(name);
        let Answer::Count(ticket) = answer else { panic!("no ticket: {answer:?}") };
        tallies.settle(&start, end.as_ref(), ticket, counted);
    }

    #[test]
    fn what_is_published_while_somebody_counts_is_not_lost() {
        let mut tallies = Tallies::default();
        let ticket = ask(&mut tallies, "a");
        assert_eq!(ask(&mut tallies, "a"), Answer::Unknown);
        let frame =
            [change("a1", 1), change("a2", 1), change("a2", 0), change("a3", 2), change("b", 1), change("a4", 0)];
        tallies.learn(&Turnover::of(&frame));
        settle(&mut tallies, "a", ticket, Some(1000));
        assert_eq!(ask(&mut tallies, "a"), Answer::Known(1000));
        tallies.learn(&Turnover::of(&[change("a5", 1)]));
        assert_eq!(ask(&mut tallies, "a"), Answer::Known(1001));
    }

    #[test]
    fn small_and_failed_counts_leave_nothing() {
        let mut tallies = Tallies::default();
        for counted in [None, Some(KEPT_KEYS_MIN - 1)] {
            let ticket = ask(&mut tallies, "a");
            settle(&mut tallies, "a", ticket, counted);
            assert!(tallies.spans.is_empty() && tallies.counting == 0);
        }
    }

    #[test]
    fn the_table_is_bounded() {
        let mut tallies = Tallies::default();
        for number in 0..2 * KEPT_MAX {
            let name = format!("{number:04}");
            let ticket = ask(&mut tallies, &name);
            settle(&mut tallies, &name, ticket, Some(1000));
            assert_eq!(ask(&mut tallies, "0000"), Answer::Known(1000), "what is used stays");
        }
        assert_eq!(tallies.spans.len(), KEPT_MAX);
        for number in 0..2 * COUNTING_MAX {
            let expected = number < COUNTING_MAX;
            assert_eq!(matches!(ask(&mut tallies, &format!("x{number}")), Answer::Count(_)), expected);
        }
        let large = Bytes::from(vec![1; SPAN_BYTES_MAX + 1]);
        assert_eq!(Tallies::default().ask(&large, None), Answer::Unknown);
    }
}
