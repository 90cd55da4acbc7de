//! Leases in apply: grant, renew, revoke, expire; time is what the frames say.

use crate::apply::run::Run;
use crate::apply::{LeaseNews, Outcome, Reply, State};
use crate::error::Error;
use crate::leases::LEASE_TTL_MAX_SECONDS;
use crate::read::Sources;
use crate::reply::LeaseGrantReply;
use crate::tables::LeaseRow;
use crate::types::{LeaseId, Position};

impl State {
    pub(super) fn lease_grant(
        &mut self,
        sources: &Sources,
        id: LeaseId,
        ttl: i64,
        news: &mut Vec<LeaseNews>,
    ) -> Outcome {
        // Here and not before, so that an alarm goes first.
        if ttl > LEASE_TTL_MAX_SECONDS {
            return Err(Error::LeaseTtlTooLarge { ttl, limit: LEASE_TTL_MAX_SECONDS });
        }
        if self.leases.contains_key(&id) {
            return Err(Error::LeaseExists(id));
        }
        let remaining_ms = ttl.saturating_mul(1000);
        let mark = self.mark_of_frame();
        let row = LeaseRow { ttl, remaining_ms, since_ms: self.applied.time_ms, mark, renewed: false };
        self.store(sources, id, row);
        news.push(LeaseNews::Granted(id, ttl, mark));
        Ok(Reply::LeaseGrant(LeaseGrantReply { revision: self.applied.revision, id, ttl }))
    }

    pub(super) fn lease_revoke(&mut self, sources: &Sources, id: LeaseId, news: &mut Vec<LeaseNews>) -> Outcome {
        if self.leases.remove(&id).is_none() {
            return Err(Error::LeaseNotFound(id));
        }
        let mut run = Run::new(sources, self.applied.revision);
        for key in sources.lease_keys(id)? {
            if let Some(found) = run.current(&key)? {
                run.delete(&found);
            }
        }
        sources.active.write().set_lease(id, None);
        self.applied.revision = run.revision();
        news.push(LeaseNews::Gone(id));
        Ok(Reply::Done(self.applied.revision, true))
    }

    /// A lease that is gone is no error: the one who keeps it alive learns it from the reply.
    pub(super) fn lease_renew(&mut self, sources: &Sources, id: LeaseId, news: &mut Vec<LeaseNews>) -> Reply {
        let now = self.applied.time_ms;
        let Some(row) = self.leases.get(&id).copied() else {
            return Reply::Done(self.applied.revision, false);
        };
        let mark = self.mark_of_frame();
        let remaining_ms = row.ttl.saturating_mul(1000);
        self.store(sources, id, LeaseRow { remaining_ms, since_ms: now, mark, renewed: true, ..row });
        news.push(LeaseNews::Renewed(id, mark));
        Reply::Done(self.applied.revision, true)
    }

    pub(super) fn lease_expire(
        &mut self,
        sources: &Sources,
        id: LeaseId,
        mark: Position,
        news: &mut Vec<LeaseNews>,
    ) -> Outcome {
        match self.leases.get(&id) {
            Some(row) if row.mark == mark || planted!(ExpiryUnjudged) => self.lease_revoke(sources, id, news),
            Some(_) => {
                news.push(LeaseNews::ExpiryIgnored(id));
                Ok(Reply::Done(self.applied.revision, false))
            }
            None => Ok(Reply::Done(self.applied.revision, false)),
        }
    }

    /// A new process takes over: what a lease has left is settled as of the last frame of the process before, so that the time in
    /// between does not count.
    pub(super) fn restart_leases(&mut self, sources: &Sources, now_ms: u64) {
        let last_ms = if planted!(DowntimeCounts) { now_ms } else { self.applied.time_ms };
        let now_ms = now_ms.max(last_ms);
        let mut active = sources.active.write();
        for (id, row) in &mut self.leases {
            *row = LeaseRow { remaining_ms: row.left_ms(last_ms), since_ms: now_ms, renewed: false, ..*row };
            active.set_lease(*id, Some(*row));
        }
    }

    /// What tells a grant or renewal in the frame that is being applied from all others. An expiry is proposed only after the frame it is judged by
    /// was applied, so two of them in one frame need not be told apart; times would not do, because two frames may have the same.
    fn mark_of_frame(&self) -> Position {
        self.applied.position.next()
    }

    fn store(&mut self, sources: &Sources, id: LeaseId, row: LeaseRow) {
        self.leases.insert(id, row);
        sources.active.write().set_lease(id, Some(row));
    }
}

impl LeaseRow {
    /// The milliseconds left for a process that starts after frame time `last_ms`: all of the TTL if the lease was renewed, because later renewals
    /// are not logged; else what was left, less the time that the log saw it live.
    pub(crate) fn left_ms(&self, last_ms: u64) -> i64 {
        if self.renewed {
            return self.ttl.saturating_mul(1000);
        }
        let lived = i64::try_from(last_ms.saturating_sub(self.since_ms)).unwrap_or(i64::MAX);
        self.remaining_ms.saturating_sub(lived).max(0)
    }
}
