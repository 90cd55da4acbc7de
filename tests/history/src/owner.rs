//! Whose each revision is.

use std::collections::{HashMap, HashSet};

use crate::lease::Leases;
use crate::reply::{Changed, changed};
use crate::state::State;
use crate::time::Seen;
use crate::types::*;
use crate::violation::{Violation, broken};

/// Who made a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Operation(usize),
    Lease(i64),
}

/// What can make a revision.
#[derive(Debug)]
pub(crate) struct Owners<'a> {
    history: &'a History,
    /// By the revision in the answer.
    answered: HashMap<i64, usize>,
    /// Answered revocations, which do not tell whether there was a key.
    revoked: HashMap<i64, Vec<usize>>,
    /// By the values that they write.
    values: HashMap<&'a [u8], usize>,
    /// Without an answer, deleting one key.
    narrow: HashMap<&'a [u8], Vec<usize>>,
    /// Without an answer, deleting many.
    wide: Vec<usize>,
    used: HashSet<usize>,
}

fn ops(request: &Request) -> (Vec<&Put>, Vec<&Delete>) {
    match request {
        Request::Put(put) => (vec![put], Vec::new()),
        Request::Delete(delete) => (Vec::new(), vec![delete]),
        Request::Txn(txn) => {
            let all = || txn.success.iter().chain(&txn.failure);
            let puts = all().filter_map(|op| if let Op::Put(put) = op { Some(put) } else { None });
            let deletes = all().filter_map(|op| if let Op::Delete(delete) = op { Some(delete) } else { None });
            (puts.collect(), deletes.collect())
        }
        _ => (Vec::new(), Vec::new()),
    }
}

impl<'a> Owners<'a> {
    pub(crate) fn new(history: &'a History) -> Result<Owners<'a>, Violation> {
        let mut owners = Owners {
            history,
            answered: HashMap::new(),
            revoked: HashMap::new(),
            values: HashMap::new(),
            narrow: HashMap::new(),
            wide: Vec::new(),
            used: HashSet::new(),
        };
        for (index, operation) in history.operations.iter().enumerate() {
            let (puts, deletes) = ops(&operation.request);
            for put in puts {
                if owners.values.insert(&put.value, index).is_some_and(|other| other != index) {
                    broken!(Recording, "a value is written by two requests: {operation:?}");
                }
            }
            match &operation.outcome {
                Outcome::Ok(revision, body) => match changed(&operation.request, body) {
                    Changed::Yes => {
                        if let Some(other) = owners.answered.insert(*revision, index) {
                            let other = &history.operations[other];
                            broken!(RevisionReuse, "{revision} is that of {other:?} and of {operation:?}");
                        }
                    }
                    Changed::Maybe => owners.revoked.entry(*revision).or_default().push(index),
                    Changed::No => {}
                },
                Outcome::Unknown => match (&operation.request, deletes.as_slice()) {
                    (Request::Revoke(_), _) => owners.wide.push(index),
                    (_, []) => {}
                    (_, [delete]) if delete.span.end.is_empty() => {
                        owners.narrow.entry(&delete.span.key).or_default().push(index);
                    }
                    _ => owners.wide.push(index),
                },
                Outcome::Refused(_) => {}
            }
        }
        Ok(owners)
    }

    /// Answered writes whose revision the journal does not have.
    pub(crate) fn beyond(&self, last: i64) -> Option<(i64, usize)> {
        let mut lost = self.answered.iter().filter(|(revision, _)| **revision > last || **revision < 2);
        lost.next().map(|(revision, index)| (*revision, *index))
    }

    /// Who made a revision, with the state before it.
    pub(crate) fn find(
        &mut self,
        revision: i64,
        recorded: &[Event],
        state: &mut State,
        seen: &Seen,
        leases: &Leases,
    ) -> Result<Owner, Violation> {
        let found = match self.answered.get(&revision) {
            Some(index) => Some(*index),
            None => match self.by_value(revision, recorded)? {
                Some(index) => Some(index),
                None => self.by_effect(revision, recorded, state, seen),
            },
        };
        if let Some(index) = found {
            if !self.used.insert(index) {
                broken!(TwiceWritten, "revision {revision} is a second one of {:?}", self.history.operations[index]);
            }
            return Ok(Owner::Operation(index));
        }
        match leases.expired(revision, recorded, state, seen)? {
            Some(lease) => Ok(Owner::Lease(lease)),
            None => broken!(Phantom, "revision {revision} is nobody's: {recorded:?}"),
        }
    }

    fn by_value(&self, revision: i64, recorded: &[Event]) -> Result<Option<usize>, Violation> {
        let Some(put) = recorded.iter().find_map(|event| event.kv.as_ref()) else { return Ok(None) };
        let Some(index) = self.values.get(put.value.as_slice()) else {
            broken!(Phantom, "revision {revision}: nobody wrote {put:?}");
        };
        let operation = &self.history.operations[*index];
        match &operation.outcome {
            Outcome::Unknown => Ok(Some(*index)),
            Outcome::Refused(_) => broken!(RefusedWrite, "revision {revision} is of {operation:?}"),
            Outcome::Ok(..) => broken!(TwiceWritten, "revision {revision} is not the one of {operation:?}"),
        }
    }

    /// A deletion that has exactly the effect: the narrowest, then the one that was called first.
    fn by_effect(&self, revision: i64, recorded: &[Event], state: &mut State, seen: &Seen) -> Option<usize> {
        let key = recorded.first()?.key.as_slice();
        let conditional = |index: &usize| matches!(self.history.operations[*index].request, Request::Txn(_));
        let mut narrow = self.narrow.get(key).cloned().unwrap_or_default();
        narrow.sort_by_key(|index| (!conditional(index), self.history.operations[*index].call.order));
        let revoked = self.revoked.get(&revision).cloned().unwrap_or_default();
        let mut all = revoked.into_iter().chain(narrow).chain(self.wide.iter().copied());
        all.find(|index| {
            let operation = &self.history.operations[*index];
            if self.used.contains(index) || !seen.allows(revision, operation.call) {
                return false;
            }
            let (_, events) = state.execute(&operation.request, revision);
            let same = events.len() == recorded.len()
                && events.iter().zip(recorded).all(|(one, other)| one.key == other.key && one.kv == other.kv);
            state.undo(events);
            same
        })
    }

    /// Operations that found no revision of their own: how many of unknown outcome did not happen.
    pub(crate) fn not_found(&self) -> usize {
        let unknown = |(index, operation): &(usize, &Operation)| {
            operation.outcome == Outcome::Unknown && !self.used.contains(index)
        };
        self.history.operations.iter().enumerate().filter(unknown).count()
    }

    pub(crate) fn is_used(&self, index: usize) -> bool {
        self.used.contains(&index)
    }
}
