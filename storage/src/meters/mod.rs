//! What a keyspace counts while it works: numbers that only grow, added to where the work is done and read when somebody asks.

mod histogram;
mod traffic;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::apply::{Effects, LeaseNews, Outcome, Reply};
use crate::base::{FlushReport, SweepReport};
use crate::change::Change;
use crate::command::Command;
use crate::metrics::Sweep;
use crate::reply::{OpReply, TxnReply};
use crate::types::Revision;

pub(crate) use histogram::Histogram;
pub(crate) use traffic::Traffic;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Meters {
    pub(crate) ranges: Counter,
    pub(crate) puts: Counter,
    pub(crate) put_bytes: Counter,
    pub(crate) deletes: Counter,
    /// Transactions of more than one operation.
    pub(crate) txns: Counter,
    /// Commands that were taken from the queue and did not get into the log.
    pub(crate) failed: Counter,
    pub(crate) leases_granted: Counter,
    pub(crate) leases_revoked: Counter,
    pub(crate) leases_renewed: Counter,
    pub(crate) leases_expired: Counter,
    pub(crate) lease_ttl: Histogram,
    pub(crate) events_taken: Counter,
    pub(crate) log: Arc<LogMeters>,
    /// Applying a frame.
    pub(crate) apply: Histogram,
    pub(crate) slow_applies: Counter,
    /// Every durable commit of base.
    pub(crate) commit: Histogram,
    pub(crate) flush: Histogram,
    pub(crate) changes_flushed: Counter,
    pub(crate) dropped_by_flush: Counter,
    pub(crate) sweep_step: Histogram,
    pub(crate) sweep_run: Histogram,
    pub(crate) rows_swept: Counter,
    pub(crate) dropped_by_sweep: Counter,
    /// Wall-clock milliseconds of the last compaction; 0 if there was none.
    pub(crate) compacted_at_ms: AtomicU64,
    pub(crate) traffic: Traffic,
    sweeping: Mutex<Sweeping>,
}

/// What the log counts.
#[derive(Debug)]
pub(crate) struct LogMeters {
    pub(crate) write: Histogram,
    pub(crate) sync: Histogram,
    pub(crate) bytes: Counter,
}

/// The sweep that is under way, if one is, and the last one that ended.
#[derive(Debug, Default)]
struct Sweeping {
    begun: Option<Duration>,
    dropped: u64,
    last: Option<Sweep>,
}

/// A frame that takes longer to apply is counted as slow: etcd's own default.
const SLOW_APPLY: Duration = Duration::from_millis(100);

/// The buckets that etcd gives to what waits for a disk: from a millisecond to 8 seconds.
fn disk() -> Histogram {
    Histogram::of_seconds(1_000_000, 14)
}

impl Default for Meters {
    fn default() -> Meters {
        Meters {
            ranges: Counter::default(),
            puts: Counter::default(),
            put_bytes: Counter::default(),
            deletes: Counter::default(),
            txns: Counter::default(),
            failed: Counter::default(),
            leases_granted: Counter::default(),
            leases_revoked: Counter::default(),
            leases_renewed: Counter::default(),
            leases_expired: Counter::default(),
            lease_ttl: Histogram::new(1, 24, 1.0),
            events_taken: Counter::default(),
            log: Arc::default(),
            apply: Histogram::of_seconds(100_000, 20),
            slow_applies: Counter::default(),
            commit: disk(),
            flush: disk(),
            changes_flushed: Counter::default(),
            dropped_by_flush: Counter::default(),
            sweep_step: disk(),
            // Told in milliseconds.
            sweep_run: Histogram::new(100_000_000, 14, 1e6),
            rows_swept: Counter::default(),
            dropped_by_sweep: Counter::default(),
            compacted_at_ms: AtomicU64::new(0),
            traffic: Traffic::default(),
            sweeping: Mutex::default(),
        }
    }
}

impl Default for LogMeters {
    fn default() -> LogMeters {
        LogMeters { write: disk(), sync: disk(), bytes: Counter::default() }
    }
}

impl Meters {
    /// A frame was applied in so much time: its commands with what came of them, and its changes.
    pub(crate) fn applied(&self, commands: &[Command], effects: &Effects, changes: &[Arc<Change>], took: Duration) {
        self.apply.observe_duration(took);
        self.slow_applies.add(u64::from(took > SLOW_APPLY));
        let puts = changes.iter().filter(|change| !change.is_tombstone());
        let (puts, bytes) = puts.fold((0, 0), |(puts, bytes), put| (puts + 1, bytes + put.data_bytes() as u64));
        self.puts.add(puts);
        self.put_bytes.add(bytes);
        self.traffic.add(changes);
        for (command, outcome) in commands.iter().zip(&effects.outcomes) {
            self.settled(command, outcome);
        }
        for news in &effects.leases {
            match news {
                LeaseNews::Granted(_, ttl, _) => {
                    self.leases_granted.add(1);
                    self.lease_ttl.observe(u64::try_from(*ttl).unwrap_or(0));
                }
                LeaseNews::Gone(_) => self.leases_revoked.add(1),
                LeaseNews::Renewed(..) | LeaseNews::ExpiryIgnored(_) => {}
            }
        }
    }

    fn settled(&self, command: &Command, outcome: &Outcome) {
        match (command, outcome) {
            (_, Ok(Reply::DeleteRange(_))) => self.deletes.add(1),
            (_, Ok(Reply::Txn(txn))) => self.ran(txn),
            (Command::LeaseExpire(..), Ok(Reply::Done(_, true))) => self.leases_expired.add(1),
            _ => {}
        }
    }

    /// A transaction ran. Its puts are counted as changes, if it may write.
    pub(crate) fn ran(&self, txn: &TxnReply) {
        let mut counted = [0, 0, 0];
        count(txn, &mut counted);
        let [ranges, puts, deletes] = counted;
        self.ranges.add(ranges);
        self.deletes.add(deletes);
        self.txns.add(u64::from(ranges + puts + deletes > 1));
    }

    /// A part was brought to base.
    pub(crate) fn flushed(&self, changes: usize, report: FlushReport, took: Duration) {
        self.commit.observe_duration(took);
        self.flush.observe_duration(took);
        self.changes_flushed.add(changes as u64);
        self.dropped_by_flush.add(report.versions_dropped);
    }

    /// A step of the sweep took from `begun` to `now`, which is `wall_ms`; it goes on up to the revision.
    pub(crate) fn swept(&self, upto: Revision, report: SweepReport, begun: Duration, now: Duration, wall_ms: u64) {
        self.commit.observe_duration(now.saturating_sub(begun));
        self.sweep_step.observe_duration(now.saturating_sub(begun));
        self.rows_swept.add(report.rows_visited);
        self.dropped_by_sweep.add(report.versions_dropped);
        let mut sweeping = self.sweeping.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *sweeping.begun.get_or_insert(begun);
        sweeping.dropped += report.versions_dropped;
        if report.done {
            let took = now.saturating_sub(since);
            self.sweep_run.observe_duration(took);
            let versions_dropped = std::mem::take(&mut sweeping.dropped);
            sweeping.begun = None;
            sweeping.last = Some(Sweep { ended_ms: wall_ms, took, versions_dropped, upto });
        }
    }

    /// The last sweep that reached its end.
    pub(crate) fn last_sweep(&self) -> Option<Sweep> {
        self.sweeping.lock().unwrap_or_else(PoisonError::into_inner).last
    }
}

/// The ranges, puts and deletions that a transaction ran, with those of the transactions within.
fn count(txn: &TxnReply, counted: &mut [u64; 3]) {
    let [ranges, puts, deletes] = counted;
    for response in &txn.responses {
        match response {
            OpReply::Range(_) => *ranges += 1,
            OpReply::Put(_) => *puts += 1,
            OpReply::DeleteRange(_) => *deletes += 1,
            OpReply::Txn(_) => {}
        }
    }
    for response in &txn.responses {
        if let OpReply::Txn(within) = response {
            count(within, counted);
        }
    }
}
