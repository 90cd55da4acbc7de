//! The lessor: when leases run out. It proposes expiries; apply decides.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::apply::LeaseNews;
use crate::tables::LeaseRow;
use crate::types::LeaseId;

/// Expiries in one frame at most, so that a mass expiry does not hold up clients.
pub(crate) const EXPIRIES_PER_FRAME: usize = 500;

/// What a keep-alive meets.
#[derive(Debug)]
pub(crate) enum KeepAlive {
    /// No such lease.
    Unknown,
    /// Renewed in memory; the TTL in seconds.
    Renewed(i64),
    /// Renewed, but the log must learn of it first.
    MustLog(i64),
    /// It has run out; the outcome of the expiry comes here: `true` if the lease lives on.
    Expiring(oneshot::Receiver<bool>),
}

/// A lease that ran out, and the renewal it is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) id: LeaseId,
    pub(crate) renewed_at_ms: u64,
}

/// Deadlines of all leases, on the monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct Lessor {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    leases: HashMap<LeaseId, Timer>,
    by_deadline: BTreeSet<(Duration, LeaseId)>,
}

#[derive(Debug)]
struct Timer {
    ttl: i64,
    deadline: Duration,
    renewed_at_ms: u64,
    /// A renewal since the grant or the start is in the log, so that a start gives the full TTL.
    logged: bool,
    /// Set while an expiry is on its way; whoever wants to renew waits here.
    expiring: Option<Vec<oneshot::Sender<bool>>>,
}

impl Lessor {
    /// Starts the clocks of the leases that base and log hold, `last_ms` being the time of the last frame.
    pub(crate) fn start(&self, leases: &BTreeMap<LeaseId, LeaseRow>, last_ms: u64, now: Duration) {
        let mut inner = self.lock();
        for (id, row) in leases {
            let left = Duration::from_millis(u64::try_from(row.left_ms(last_ms)).unwrap_or(0));
            // The first frame of this process starts the leases anew in the state: no renewal is logged then.
            inner.insert(*id, Timer::new(row.ttl, now + left));
        }
    }

    /// Takes in what a frame did.
    pub(crate) fn learn(&self, news: &[LeaseNews], now: Duration) {
        if news.is_empty() {
            return;
        }
        let mut inner = self.lock();
        for news in news {
            match *news {
                LeaseNews::Granted(id, ttl) => inner.insert(id, Timer::new(ttl, now + seconds(ttl))),
                LeaseNews::Renewed(id, renewed_at_ms) => inner.renewed(id, renewed_at_ms, now),
                LeaseNews::Gone(id) => inner.gone(id),
                LeaseNews::ExpiryIgnored(id) => inner.settle(id, now),
            }
        }
    }

    /// Renews a lease, as far as memory can.
    pub(crate) fn keep_alive(&self, id: LeaseId, now: Duration) -> KeepAlive {
        let mut inner = self.lock();
        let Some(timer) = inner.leases.get_mut(&id) else { return KeepAlive::Unknown };
        if timer.expiring.is_none() && timer.deadline <= now {
            // It has run out: what has not been proposed yet is proposed by the next frame, and decides.
            timer.expiring = Some(Vec::new());
            inner.overdue(id);
        }
        let Some(timer) = inner.leases.get_mut(&id) else { return KeepAlive::Unknown };
        if let Some(waiting) = &mut timer.expiring {
            let (sender, receiver) = oneshot::channel();
            waiting.push(sender);
            return KeepAlive::Expiring(receiver);
        }
        let (ttl, logged) = (timer.ttl, timer.logged);
        if logged {
            inner.set_deadline(id, now + seconds(ttl));
            KeepAlive::Renewed(ttl)
        } else {
            KeepAlive::MustLog(ttl)
        }
    }

    /// The leases that have run out, at most `limit`; they are expiring from now on.
    pub(crate) fn due(&self, now: Duration, limit: usize) -> Vec<Due> {
        let mut inner = self.lock();
        let ids: Vec<_> = inner.by_deadline.iter().take_while(|(at, _)| *at <= now).take(limit).copied().collect();
        let mut due = Vec::with_capacity(ids.len());
        for (deadline, id) in ids {
            inner.by_deadline.remove(&(deadline, id));
            if let Some(timer) = inner.leases.get_mut(&id) {
                timer.expiring.get_or_insert_default();
                due.push(Due { id, renewed_at_ms: timer.renewed_at_ms });
            }
        }
        due
    }

    /// An expiry could not be proposed: the lease is due again.
    pub(crate) fn put_back(&self, due: &[Due]) {
        let mut inner = self.lock();
        for due in due {
            inner.overdue(due.id);
        }
    }

    /// When the next lease runs out.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.lock().by_deadline.first().map(|(at, _)| *at)
    }

    /// TTL granted and milliseconds left; negative for a lease that is being expired.
    pub(crate) fn time_to_live(&self, id: LeaseId, now: Duration) -> Option<(i64, i64)> {
        let inner = self.lock();
        let timer = inner.leases.get(&id)?;
        let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Some((timer.ttl, ms(timer.deadline) - ms(now)))
    }

    /// Every lease, the one that runs out first before the others.
    pub(crate) fn ids(&self) -> Vec<LeaseId> {
        let inner = self.lock();
        let mut ids: Vec<_> = inner.leases.iter().map(|(id, timer)| (timer.deadline, *id)).collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn insert(&mut self, id: LeaseId, timer: Timer) {
        self.by_deadline.insert((timer.deadline, id));
        self.leases.insert(id, timer);
    }

    fn set_deadline(&mut self, id: LeaseId, deadline: Duration) {
        if let Some(timer) = self.leases.get_mut(&id) {
            self.by_deadline.remove(&(timer.deadline, id));
            timer.deadline = deadline;
            self.by_deadline.insert((deadline, id));
        }
    }

    /// Makes sure that the lease is among those that `due` finds.
    fn overdue(&mut self, id: LeaseId) {
        if let Some(timer) = self.leases.get(&id) {
            self.by_deadline.insert((timer.deadline, id));
        }
    }

    fn renewed(&mut self, id: LeaseId, renewed_at_ms: u64, now: Duration) {
        if let Some(timer) = self.leases.get_mut(&id) {
            timer.logged = true;
            timer.renewed_at_ms = renewed_at_ms;
            let ttl = timer.ttl;
            self.set_deadline(id, now + seconds(ttl));
        }
    }

    fn gone(&mut self, id: LeaseId) {
        if let Some(timer) = self.leases.remove(&id) {
            self.by_deadline.remove(&(timer.deadline, id));
            timer.answer(false);
        }
    }

    /// The renewal that an expiry met has set the deadline; those who wait may renew again.
    fn settle(&mut self, id: LeaseId, now: Duration) {
        let Some(timer) = self.leases.get_mut(&id) else { return };
        let waiting = timer.expiring.take().unwrap_or_default();
        let deadline = timer.deadline.max(now);
        for sender in waiting {
            // Nobody may be waiting any more.
            let _ = sender.send(true);
        }
        self.set_deadline(id, deadline);
    }
}

impl Timer {
    fn new(ttl: i64, deadline: Duration) -> Timer {
        Timer { ttl, deadline, renewed_at_ms: 0, logged: false, expiring: None }
    }

    fn answer(self, lives: bool) {
        for sender in self.expiring.into_iter().flatten() {
            // Nobody may be waiting any more.
            let _ = sender.send(lives);
        }
    }
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}
