//! Leases, as callers see them: grant, keep alive, revoke, look at.

use crate::apply::Reply;
use crate::command::Command;
use crate::engine::lessor::KeepAlive;
use crate::error::Error;
use crate::keyspace::Keyspace;
use crate::pending::Pending;
use crate::reply::{LeaseGrantReply, LeaseTimeToLive};
use crate::types::{LeaseId, Revision};

/// The longest TTL, in seconds: about 285 years.
pub const LEASE_TTL_MAX_SECONDS: i64 = 9_000_000_000;

impl Keyspace {
    /// Grants a lease of one second at least; `None` lets the keyspace choose the id, and so does 0, which means no lease everywhere. Errors: `LeaseExists`, `LeaseTtlTooLarge`, `NoSpace`.
    pub fn lease_grant(&self, id: Option<LeaseId>, ttl_seconds: i64) -> Pending<LeaseGrantReply> {
        let id = id.filter(|id| id.0 != 0);
        let ttl = ttl_seconds.max(1);
        let first = self.send(Command::LeaseGrant(id.unwrap_or_else(|| self.invent()), ttl), granted);
        if id.is_some() {
            return first;
        }
        let keyspace = self.clone();
        Pending::new(async move {
            let mut outcome = first.await;
            while matches!(outcome, Err(Error::LeaseExists(_))) {
                outcome = keyspace.send(Command::LeaseGrant(keyspace.invent(), ttl), granted).await;
            }
            outcome
        })
    }

    /// Revokes a lease and deletes its keys. Replies with the store's revision. Errors: `LeaseNotFound`.
    pub fn lease_revoke(&self, id: LeaseId) -> Pending<Revision> {
        self.send(Command::LeaseRevoke(id), |reply| done(reply).map(|(revision, _)| revision))
    }

    /// Renews a lease, once it is polled. Replies with its TTL in seconds; `None` if there is no such lease. Waits for the outcome if the lease is being
    /// expired. Errors: `NoSpace` if the log had no room for the expiry or for the first renewal, `TooManyRequests`.
    pub fn lease_keep_alive(&self, id: LeaseId) -> Pending<Option<i64>> {
        let keyspace = self.clone();
        Pending::new(async move {
            loop {
                if let Some(error) = keyspace.inner.shared.over() {
                    return Err(error);
                }
                match keyspace.inner.shared.lessor.keep_alive(id, keyspace.inner.shared.clock.monotonic()) {
                    KeepAlive::Unknown => return Ok(None),
                    KeepAlive::Ended => return Err(Error::Stopped),
                    KeepAlive::Renewed(ttl) => {
                        keyspace.inner.shared.meters.leases_renewed.add(1);
                        return Ok(Some(ttl));
                    }
                    KeepAlive::MustLog(ttl) => {
                        let (_, found) = keyspace.send(Command::LeaseRenew(id), done).await?;
                        keyspace.inner.shared.meters.leases_renewed.add(u64::from(found));
                        return Ok(found.then_some(ttl));
                    }
                    KeepAlive::Expiring(outcome) => {
                        keyspace.poke();
                        // If it lives on, a renewal came first, and this one may try again.
                        if !outcome.await.map_err(|_| Error::Stopped)?? {
                            return Ok(None);
                        }
                    }
                }
            }
        })
    }

    /// A lease's time and, if asked for, its keys; `None` if there is no such lease. Blocks on the disk.
    pub fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Result<Option<LeaseTimeToLive>, Error> {
        let shared = &self.inner.shared;
        let view = shared.view();
        let Some((granted_ttl, left_ms)) = shared.lessor.time_to_live(id, shared.clock.monotonic()) else {
            return Ok(None);
        };
        let keys = if keys { view.sources.lease_keys(id)? } else { Vec::new() };
        Ok(Some(LeaseTimeToLive { revision: view.current, ttl: left_ms / 1000, granted_ttl, keys }))
    }

    /// Every lease, the one that runs out first before the others.
    pub fn leases(&self) -> Vec<LeaseId> {
        self.inner.shared.lessor.ids()
    }

    /// A positive id that nobody can guess.
    fn invent(&self) -> LeaseId {
        loop {
            let id = i64::try_from(self.inner.entropy.next_u64() >> 1).unwrap_or(0);
            if id != 0 {
                return LeaseId(id);
            }
        }
    }
}

fn granted(reply: Reply) -> Option<LeaseGrantReply> {
    if let Reply::LeaseGrant(granted) = reply { Some(granted) } else { None }
}

fn done(reply: Reply) -> Option<(Revision, bool)> {
    if let Reply::Done(revision, found) = reply { Some((revision, found)) } else { None }
}
