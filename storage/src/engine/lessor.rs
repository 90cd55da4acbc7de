//! The lessor: when leases run out. It proposes expiries; apply decides.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::apply::LeaseNews;
use crate::error::Error;
use crate::snapshot::Lease;
use crate::tables::LeaseRow;
use crate::types::{LeaseId, Position};

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
    /// It has run out; the outcome of the expiry comes here. If the keyspace ends before, the sender is dropped.
    Expiring(oneshot::Receiver<Outcome>),
    /// The keyspace has ended: nothing expires any more, and nothing is renewed.
    Ended,
}

/// What became of an expiry: `true` if the lease lives on, an error if it could not be proposed.
pub(crate) type Outcome = Result<bool, Error>;

/// A lease that ran out, and the grant or renewal it is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) id: LeaseId,
    pub(crate) mark: Position,
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
    ended: bool,
}

#[derive(Debug)]
struct Timer {
    ttl: i64,
    deadline: Duration,
    mark: Position,
    /// A renewal since the grant or the start is in the log, so that a start gives the full TTL.
    logged: bool,
    /// Set while an expiry is on its way; whoever wants to renew waits here.
    expiring: Option<Vec<oneshot::Sender<Outcome>>>,
}

impl Lessor {
    /// Starts the clocks of the leases that base and log hold, `last_ms` being the time of the last frame.
    pub(crate) fn start(&self, leases: &BTreeMap<LeaseId, LeaseRow>, last_ms: u64, now: Duration) {
        let mut inner = self.lock();
        for (id, row) in leases {
            let left = Duration::from_millis(u64::try_from(row.left_ms(last_ms)).unwrap_or(0));
            // The first frame of this process starts the leases anew in the state: no renewal is logged then.
            inner.insert(*id, Timer::new(row.ttl, now + left, row.mark));
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
                LeaseNews::Granted(id, ttl, mark) => inner.insert(id, Timer::new(ttl, now + seconds(ttl), mark)),
                LeaseNews::Renewed(id, mark) => inner.renewed(id, mark, now),
                LeaseNews::Gone(id) => inner.gone(id),
                LeaseNews::ExpiryIgnored(id) => inner.settle(id, now),
            }
        }
    }

    /// Renews a lease, as far as memory can.
    pub(crate) fn keep_alive(&self, id: LeaseId, now: Duration) -> KeepAlive {
        let mut inner = self.lock();
        if inner.ended {
            return KeepAlive::Ended;
        }
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
        let now = if planted!(LeaseEarly) { now + Duration::from_secs(1) } else { now };
        let ids: Vec<_> = inner.by_deadline.iter().take_while(|(at, _)| *at <= now).take(limit).copied().collect();
        let mut due = Vec::with_capacity(ids.len());
        for (deadline, id) in ids {
            inner.by_deadline.remove(&(deadline, id));
            if let Some(timer) = inner.leases.get_mut(&id) {
                timer.expiring.get_or_insert_default();
                due.push(Due { id, mark: timer.mark });
            }
        }
        due
    }

    /// Expiries could not be proposed: the leases are due again. Who waits for one is told why, and may ask again.
    pub(crate) fn put_back(&self, due: &[Due], error: &Error) {
        let mut inner = self.lock();
        for due in due {
            inner.overdue(due.id);
            if let Some(waiting) = inner.leases.get_mut(&due.id).and_then(|timer| timer.expiring.as_mut()) {
                tell(waiting, &Err(error.clone()));
            }
        }
    }

    /// Nothing will expire any more: nobody is left waiting for it.
    pub(crate) fn end(&self) {
        let mut inner = self.lock();
        inner.ended = true;
        inner.leases.values_mut().for_each(|timer| drop(timer.expiring.take()));
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

    /// Every lease as a snapshot holds it, in the order of ids.
    pub(crate) fn all(&self, now: Duration) -> Vec<Lease> {
        let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let inner = self.lock();
        let lease = |(id, timer): (&LeaseId, &Timer)| {
            let left_ms = ms(timer.deadline.saturating_sub(now));
            Lease { id: *id, ttl: timer.ttl, left_ms }
        };
        let mut leases: Vec<Lease> = inner.leases.iter().map(lease).collect();
        leases.sort_unstable_by_key(|lease| lease.id);
        leases
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

    /// A renewal reached the log first. Who found the lease run out meanwhile may renew it again: an expiry that is on its way will be ignored, and
    /// one that was not proposed yet never will be.
    fn renewed(&mut self, id: LeaseId, mark: Position, now: Duration) {
        if let Some(timer) = self.leases.get_mut(&id) {
            timer.logged = true;
            timer.mark = mark;
            let ttl = timer.ttl;
            self.set_deadline(id, now + seconds(ttl));
            self.settle(id, now);
        }
    }

    fn gone(&mut self, id: LeaseId) {
        if let Some(timer) = self.leases.remove(&id) {
            self.by_deadline.remove(&(timer.deadline, id));
            tell(&mut timer.expiring.unwrap_or_default(), &Ok(false));
        }
    }

    /// The renewal that an expiry met has set the deadline; those who wait may renew again.
    fn settle(&mut self, id: LeaseId, now: Duration) {
        let Some(timer) = self.leases.get_mut(&id) else { return };
        tell(&mut timer.expiring.take().unwrap_or_default(), &Ok(true));
        let deadline = timer.deadline.max(now);
        self.set_deadline(id, deadline);
    }
}

impl Timer {
    fn new(ttl: i64, deadline: Duration, mark: Position) -> Timer {
        Timer { ttl, deadline, mark, logged: false, expiring: None }
    }
}

fn tell(waiting: &mut Vec<oneshot::Sender<Outcome>>, outcome: &Outcome) {
    for sender in waiting.drain(..) {
        // Nobody may be waiting any more.
        drop(sender.send(outcome.clone()));
    }
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}
