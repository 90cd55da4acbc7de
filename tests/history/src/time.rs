//! Real time: who was told of a revision first, and what had begun only after that.

use crate::types::*;
use crate::violation::{Violation, broken};

/// Who was told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Witness {
    Operation(usize),
    Watch(usize),
}

/// For each revision the first moment at which somebody was told of it or of a later one.
#[derive(Debug)]
pub(crate) struct Seen(Vec<Option<(Moment, Witness)>>);

impl Seen {
    pub(crate) fn new(history: &History, last: i64) -> Result<Seen, Violation> {
        let mut seen: Vec<Option<(Moment, Witness)>> = vec![None; last as usize + 1];
        let answers = history.operations.iter().enumerate().filter_map(|(index, operation)| match operation.outcome {
            Outcome::Ok(revision, _) => Some((revision, operation.back, Witness::Operation(index))),
            _ => None,
        });
        let messages = history.watches.iter().enumerate().flat_map(|(index, watch)| {
            watch.told.iter().filter_map(move |(moment, told)| match told {
                Told::Created(revision) | Told::Progress(revision) | Told::Events(revision, _) => {
                    Some((*revision, *moment, Witness::Watch(index)))
                }
                Told::Compacted(_) | Told::Canceled => None,
            })
        });
        for (revision, moment, witness) in answers.chain(messages) {
            let Some(first) = usize::try_from(revision).ok().and_then(|index| seen.get_mut(index)) else {
                broken!(
                    LostWrite,
                    "revision {revision} was told, the journal ends at {last}: {witness:?} at {moment:?}"
                );
            };
            if first.is_none_or(|(first, _)| moment.order < first.order) {
                *first = Some((moment, witness));
            }
        }
        for index in (0..seen.len().saturating_sub(1)).rev() {
            let later = seen[index + 1];
            if later.is_some_and(|(later, _)| seen[index].is_none_or(|(own, _)| later.order < own.order)) {
                seen[index] = later;
            }
        }
        Ok(Seen(seen))
    }

    /// The first moment at which somebody knew of this revision.
    pub(crate) fn first(&self, revision: i64) -> Option<(Moment, Witness)> {
        usize::try_from(revision).ok().and_then(|index| self.0.get(index).copied().flatten())
    }

    /// True if something that was called then can own the revision.
    pub(crate) fn allows(&self, revision: i64, call: Moment) -> bool {
        self.first(revision).is_none_or(|(first, _)| call.order < first.order)
    }
}

/// Checks that every revision can have a moment: `owners` are the calls of the owner of each revision.
pub(crate) fn check(history: &History, seen: &Seen, owners: &[(i64, usize)], last: i64) -> Result<(), Violation> {
    // What must have begun before a revision became visible: its owner, and reads that did not see it yet.
    let mut begun: Vec<(u64, Option<usize>)> = vec![(0, None); last as usize + 2];
    let mut raise = |revision: i64, index: usize| {
        let order = history.operations[index].call.order;
        if let Some(slot) = usize::try_from(revision).ok().and_then(|revision| begun.get_mut(revision)) {
            *slot = (*slot).max((order, Some(index)));
        }
    };
    for (revision, index) in owners {
        raise(*revision, *index);
    }
    for (index, operation) in history.operations.iter().enumerate() {
        let stale_allowed = matches!(&operation.request, Request::Range(range) if range.serializable);
        match &operation.outcome {
            Outcome::Ok(revision, _) if !stale_allowed => raise(revision + 1, index),
            Outcome::Refused(Refusal::Future) => match &operation.request {
                Request::Range(Range { revision, .. }) | Request::Compact(revision) => raise(*revision, index),
                other => broken!(Future, "operation {index} names no revision: {other:?}"),
            },
            _ => {}
        }
    }
    let mut latest = (0, None);
    for (revision, own) in begun.iter().enumerate().take(last as usize + 1) {
        latest = latest.max(*own);
        let (Some((first, witness)), (order, Some(index))) = (seen.first(revision as i64), latest) else { continue };
        if order <= first.order {
            continue;
        }
        let (operation, owns) = (&history.operations[index], owners.iter().any(|(_, owner)| *owner == index));
        let told = match witness {
            Witness::Operation(index) => format!("operation {index}, {:?}", history.operations[index]),
            Witness::Watch(index) => format!("watch {index}"),
        };
        let text = format!(
            "operation {index}, {operation:?}, began at {order}; revision {revision} or more had been told at {} to {told}",
            first.order
        );
        match operation.outcome {
            Outcome::Refused(Refusal::Future) => broken!(Future, "{text}"),
            _ if owns => broken!(Early, "{text}"),
            _ => broken!(Stale, "{text}"),
        }
    }
    Ok(())
}

/// Revisions never go back for one client, serializable reads included.
pub(crate) fn sessions(history: &History) -> Result<(), Violation> {
    let mut order: Vec<usize> = (0..history.operations.len()).collect();
    order.sort_unstable_by_key(|index| (history.operations[*index].client, history.operations[*index].call.order));
    let mut before: Option<(u32, i64, usize)> = None;
    for index in order {
        let operation = &history.operations[index];
        let Outcome::Ok(revision, _) = operation.outcome else { continue };
        if let Some((client, highest, earlier)) = before
            && client == operation.client
            && revision < highest
        {
            broken!(
                Session,
                "client {client} was told {highest} by operation {earlier}, then {revision}: {operation:?}"
            );
        }
        before = Some((operation.client, revision, index));
    }
    Ok(())
}
