//! Compaction: what is refused because of it, and what must be.

use crate::types::*;
use crate::violation::{Violation, broken};

/// The highest compaction that may have, and that must have, taken effect by a moment.
#[derive(Debug)]
pub(crate) struct Marks {
    /// (order of the call, highest revision so far), of all that may have taken effect.
    begun: Vec<(u64, i64)>,
    /// (order of the answer, highest revision so far), of all that have.
    done: Vec<(u64, i64)>,
}

fn highest(mut marks: Vec<(u64, i64)>) -> Vec<(u64, i64)> {
    marks.sort_unstable();
    let mut most = -1;
    for mark in &mut marks {
        most = most.max(mark.1);
        mark.1 = most;
    }
    marks
}

fn before(marks: &[(u64, i64)], order: u64) -> i64 {
    let count = marks.partition_point(|(moment, _)| *moment < order);
    count.checked_sub(1).map_or(-1, |index| marks[index].1)
}

impl Marks {
    pub(crate) fn new(history: &History) -> Marks {
        let all = history.operations.iter().filter_map(|operation| match operation.request {
            Request::Compact(revision) => Some((operation, revision)),
            _ => None,
        });
        let begun = all.clone().filter(|(operation, _)| !matches!(operation.outcome, Outcome::Refused(_)));
        let done = all.filter(|(operation, _)| matches!(operation.outcome, Outcome::Ok(..)));
        Marks {
            begun: highest(begun.map(|(operation, revision)| (operation.call.order, revision)).collect()),
            done: highest(done.map(|(operation, revision)| (operation.back.order, revision)).collect()),
        }
    }

    /// The highest that may have taken effect before a moment.
    pub(crate) fn possible(&self, order: u64) -> i64 {
        before(&self.begun, order)
    }

    /// The highest that took effect before a moment.
    pub(crate) fn certain(&self, order: u64) -> i64 {
        before(&self.done, order)
    }

    /// True if somebody asked for this compaction before the moment.
    pub(crate) fn asked(&self, history: &History, revision: i64, order: u64) -> bool {
        let one =
            |operation: &Operation| operation.request == Request::Compact(revision) && operation.call.order < order;
        self.possible(order) >= revision && history.operations.iter().any(one)
    }
}

/// Checks what was refused, and what was not.
pub(crate) fn check(history: &History, marks: &Marks) -> Result<(), Violation> {
    for (index, operation) in history.operations.iter().enumerate() {
        let (asked, floor) = match &operation.request {
            // A revision can be read if it is at or above the mark; a compaction must raise the mark.
            Request::Range(range) if range.revision > 0 => (range.revision, 0),
            Request::Compact(revision) => (*revision, 1),
            _ if operation.outcome == Outcome::Refused(Refusal::Compacted) => {
                broken!(Compaction, "operation {index} names no revision: {operation:?}")
            }
            _ => continue,
        };
        let (certain, possible) = (marks.certain(operation.call.order), marks.possible(operation.back.order));
        match operation.outcome {
            Outcome::Ok(..) if asked < certain + floor => {
                broken!(Compaction, "{certain} was compacted before operation {index} was answered: {operation:?}")
            }
            Outcome::Refused(Refusal::Compacted) if asked >= possible + floor => {
                broken!(
                    Compaction,
                    "{possible} was compacted at most when operation {index} was refused: {operation:?}"
                )
            }
            _ => {}
        }
    }
    Ok(())
}
