//! Leases: never early, all keys at once, gone for good.

use std::collections::HashMap;

use crate::state::State;
use crate::time::Seen;
use crate::types::*;
use crate::violation::{Violation, broken};

/// What is known of one lease.
#[derive(Debug, Default)]
struct Lease {
    /// Its TTL in seconds, as granted or else as asked for.
    ttl: i64,
    granted: Option<Moment>,
    /// Answered grants and renewals: call and answer.
    renewals: Vec<(Moment, Moment)>,
    /// Revocations that may have taken effect: when the first was called.
    revoked: Option<Moment>,
    /// The revision that ended it, or at which it was ended without a key; and the first moment at which that was known.
    ended: Option<(i64, Option<Moment>)>,
}

/// All leases.
#[derive(Debug, Default)]
pub(crate) struct Leases(HashMap<i64, Lease>);

impl Leases {
    pub(crate) fn new(history: &History) -> Result<Leases, Violation> {
        let mut leases: HashMap<i64, Lease> = HashMap::new();
        for operation in &history.operations {
            if matches!(operation.outcome, Outcome::Refused(_)) {
                continue;
            }
            match (&operation.request, &operation.outcome) {
                (Request::Grant(id, asked), outcome) => {
                    let lease = leases.entry(*id).or_default();
                    if lease.granted.is_some() {
                        broken!(LeaseLife, "lease {id} is granted twice: {operation:?}");
                    }
                    lease.granted = Some(operation.call);
                    lease.ttl = *asked;
                    if let Outcome::Ok(_, Body::Lease(ttl)) = outcome {
                        if ttl < asked {
                            broken!(LeaseLife, "lease {id} is shorter than asked for: {operation:?}");
                        }
                        lease.ttl = *ttl;
                        lease.renewals.push((operation.call, operation.back));
                    }
                }
                (Request::KeepAlive(id), Outcome::Ok(_, Body::Lease(1..))) => {
                    leases.entry(*id).or_default().renewals.push((operation.call, operation.back));
                }
                (Request::Revoke(id), _) => {
                    let lease = leases.entry(*id).or_default();
                    if lease.revoked.is_none_or(|first| operation.call.order < first.order) {
                        lease.revoked = Some(operation.call);
                    }
                }
                _ => {}
            }
        }
        Ok(Leases(leases))
    }

    /// The lease whose end explains a revision that no request made.
    pub(crate) fn expired(
        &self,
        revision: i64,
        recorded: &[Event],
        state: &State,
        seen: &Seen,
    ) -> Result<Option<i64>, Violation> {
        let id = recorded.first().and_then(|event| state.get(&event.key)).map_or(0, |kv| kv.lease);
        let Some(lease) = self.0.get(&id).filter(|_| recorded.iter().all(|event| event.kv.is_none())) else {
            return Ok(None);
        };
        let keys = state.of_lease(id);
        if !recorded.iter().map(|event| &event.key).eq(keys.iter()) {
            broken!(LeaseTogether, "revision {revision}: lease {id} has {} keys: {recorded:?}", keys.len());
        }
        let begun = lease.renewals.iter().map(|(call, _)| call.ms).chain(lease.granted.map(|call| call.ms)).max();
        let (due, first) = (begun.unwrap_or(0) + lease.ttl as u64 * 1000, seen.first(revision));
        if let Some((first, _)) = first
            && first.ms < due
        {
            broken!(
                LeaseEarly,
                "revision {revision}: lease {id} lives until {due} ms, and ended by {first:?}: {lease:?}"
            );
        }
        Ok(Some(id))
    }

    /// A lease ended at a revision, which was known at a moment.
    pub(crate) fn end(&mut self, id: i64, revision: i64, known: Option<Moment>) {
        self.0.entry(id).or_default().ended.get_or_insert((revision, known));
    }

    /// A key was attached to a lease.
    pub(crate) fn attach(&self, id: i64, revision: i64) -> Result<(), Violation> {
        let lease = self.0.get(&id).filter(|lease| lease.granted.is_some());
        match lease {
            None => broken!(LeaseLife, "revision {revision} uses lease {id}, which was never granted"),
            Some(Lease { ended: Some((ended, _)), .. }) => {
                broken!(LeaseLife, "revision {revision} uses lease {id}, which ended at {ended}")
            }
            Some(_) => Ok(()),
        }
    }

    /// Checks answers that say that a lease is there, and answers that say that it is not.
    pub(crate) fn check(&self, history: &History) -> Result<(), Violation> {
        for operation in &history.operations {
            match (&operation.request, &operation.outcome) {
                (Request::Grant(..), Outcome::Refused(Refusal::LeaseExists)) => {
                    broken!(LeaseLife, "each lease is granted once: {operation:?}")
                }
                (Request::KeepAlive(id), Outcome::Ok(_, Body::Lease(ttl))) => match self.0.get(id) {
                    Some(lease) if *ttl > 0 => lease.lives(operation, *ttl)?,
                    None if *ttl > 0 => broken!(LeaseLife, "it was never granted: {operation:?}"),
                    lease => Lease::gone(lease, operation)?,
                },
                (request, Outcome::Refused(Refusal::NoLease)) => {
                    let ids = leases_of(request);
                    let excuse = ids.iter().any(|id| Lease::gone(self.0.get(id), operation).is_ok());
                    if !excuse {
                        broken!(LeaseEarly, "its leases must be there: {operation:?}");
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Lease {
    /// An answer says that the lease is there.
    fn lives(&self, operation: &Operation, ttl: i64) -> Result<(), Violation> {
        if ttl != self.ttl {
            broken!(LeaseLife, "its TTL is {}: {operation:?}", self.ttl);
        }
        if let Some((revision, Some(known))) = self.ended
            && known.order < operation.call.order
        {
            broken!(LeaseLife, "it ended at revision {revision}, by {known:?}: {operation:?}");
        }
        Ok(())
    }

    /// An answer says that the lease is not there.
    fn gone(lease: Option<&Lease>, operation: &Operation) -> Result<(), Violation> {
        let Some(lease) = lease else { return Ok(()) };
        let before = lease.renewals.iter().filter(|(_, back)| back.order < operation.call.order);
        let Some(begun) = before.map(|(call, _)| call.ms).max() else { return Ok(()) };
        let revoked = lease.revoked.is_some_and(|call| call.order < operation.back.order);
        if !revoked && operation.back.ms < begun + lease.ttl as u64 * 1000 {
            broken!(LeaseEarly, "it lives until {} ms: {operation:?}", begun + lease.ttl as u64 * 1000);
        }
        Ok(())
    }
}

/// The leases that a request names.
fn leases_of(request: &Request) -> Vec<i64> {
    match request {
        Request::Put(put) => vec![put.lease],
        Request::Txn(txn) => {
            let put = |op: &Op| if let Op::Put(put) = op { Some(put.lease) } else { None };
            txn.success.iter().chain(&txn.failure).filter_map(put).filter(|id| *id != 0).collect()
        }
        Request::Revoke(id) | Request::KeepAlive(id) => vec![*id],
        _ => Vec::new(),
    }
}
