//! What a keyspace tells of its work: the numbers behind an operator's graphs, all at one moment.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::keyspace::Keyspace;
use crate::types::Revision;

/// Observations in buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// The upper bound of each bucket, inclusive; one more bucket has none.
    pub upper_bounds: Vec<f64>,
    /// How many observations fell into each bucket, and not into one before.
    pub counts: Vec<u64>,
    /// The sum of all of them.
    pub sum: f64,
}

impl Distribution {
    /// How many observations there were.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// What was written below a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Puts and deletions of keys.
    pub changes: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// A sweep that reached its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// When, in milliseconds since 1970.
    pub ended_ms: u64,
    /// How long it took, rests included.
    pub took: Duration,
    /// Versions that it dropped.
    pub versions_dropped: u64,
    /// The compacted revision that it carried out.
    pub upto: Revision,
}

/// A part of the changes that are not yet in base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentPart {
    /// Changes.
    pub changes: u64,
    /// Bytes of memory.
    pub bytes: u64,
}

/// The watches of a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watches {
    /// Streams that are open.
    pub streams: u64,
    /// Watches on them.
    pub watches: u64,
    /// Watches that read what is stored, because they began in the past or their consumer is slow.
    pub behind: u64,
    /// Events that wait to be taken.
    pub events_queued: u64,
}

/// The work of a keyspace since it was opened, and what lies before it now. What replays at a start is not counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// Ranges read, those in transactions included.
    pub ranges: u64,
    /// Keys put.
    pub puts: u64,
    /// Bytes of keys and values put.
    pub put_bytes: u64,
    /// Deletions asked for, whatever number of keys each met.
    pub deletes: u64,
    /// Transactions of more than one operation.
    pub txns: u64,
    /// Commands that could not be brought into the log.
    pub failed: u64,
    /// Leases granted.
    pub leases_granted: u64,
    /// Leases that ended, revoked or expired.
    pub leases_revoked: u64,
    /// Keep-alives that found their lease.
    pub leases_renewed: u64,
    /// Leases that expired.
    pub leases_expired: u64,
    /// TTLs granted, in seconds.
    pub lease_ttl: Distribution,
    /// Watches now.
    pub watches: Watches,
    /// Events that streams of watches delivered.
    pub events_delivered: u64,
    /// Commands that wait.
    pub queued_commands: u64,
    /// Bytes of commands that wait.
    pub queued_bytes: u64,
    /// Writing a frame to the log, in seconds. Empty for a log that is not in the data directory, like the two after it.
    pub log_write: Distribution,
    /// Syncing the log after a frame, in seconds.
    pub log_sync: Distribution,
    /// Bytes written to the log.
    pub log_bytes_written: u64,
    /// Applying a frame, in seconds.
    pub apply: Distribution,
    /// Frames that took more than 100 ms to apply.
    pub slow_applies: u64,
    /// The changes that the next flush will take.
    pub recent_active: RecentPart,
    /// The changes that are being flushed.
    pub recent_frozen: RecentPart,
    /// Durable commits of base, in seconds.
    pub commit: Distribution,
    /// Flushes, in seconds.
    pub flush: Distribution,
    /// Changes brought to base.
    pub changes_flushed: u64,
    /// Versions that flushes dropped because compaction had made them unreadable.
    pub dropped_by_flush: u64,
    /// Steps of the sweep, in seconds.
    pub sweep_step: Distribution,
    /// Sweeps that reached their end, rests included, in milliseconds.
    pub sweep_run: Distribution,
    /// Rows of history that the sweep visited.
    pub rows_swept: u64,
    /// Versions that the sweep dropped.
    pub dropped_by_sweep: u64,
    /// The last sweep that reached its end.
    pub last_sweep: Option<Sweep>,
    /// When a compaction took effect the last time, in milliseconds since 1970; 0 if none did.
    pub compacted_at_ms: u64,
    /// What was written by the two leading segments of the keys, each prefix with the slash that ends it.
    pub written: Vec<(String, Written)>,
    /// What was written to keys without such segments, and to those beyond the number of prefixes that are told apart.
    pub written_elsewhere: Written,
}

impl Keyspace {
    /// What an operator's graphs are made of. Takes locks for a moment each; costs a look at every stream of watches.
    pub fn metrics(&self) -> Metrics {
        let (shared, meters) = (&self.inner.shared, &self.inner.shared.meters);
        let (queued_commands, queued_bytes) = shared.queue.waiting();
        let (written, written_elsewhere) = meters.traffic.read();
        let (active, frozen) = {
            let head = shared.head();
            (head.sources.active.clone(), head.sources.frozen.clone())
        };
        Metrics {
            ranges: meters.ranges.get(),
            puts: meters.puts.get(),
            put_bytes: meters.put_bytes.get(),
            deletes: meters.deletes.get(),
            txns: meters.txns.get(),
            failed: meters.failed.get(),
            leases_granted: meters.leases_granted.get(),
            leases_revoked: meters.leases_revoked.get(),
            leases_renewed: meters.leases_renewed.get(),
            leases_expired: meters.leases_expired.get(),
            lease_ttl: meters.lease_ttl.read(),
            watches: self.inner.hub.watches(),
            events_delivered: meters.events_taken.get(),
            queued_commands,
            queued_bytes,
            log_write: meters.log.write.read(),
            log_sync: meters.log.sync.read(),
            log_bytes_written: meters.log.bytes.get(),
            apply: meters.apply.read(),
            slow_applies: meters.slow_applies.get(),
            recent_active: part(&active),
            recent_frozen: frozen.as_deref().map(part).unwrap_or_default(),
            commit: meters.commit.read(),
            flush: meters.flush.read(),
            changes_flushed: meters.changes_flushed.get(),
            dropped_by_flush: meters.dropped_by_flush.get(),
            sweep_step: meters.sweep_step.read(),
            sweep_run: meters.sweep_run.read(),
            rows_swept: meters.rows_swept.get(),
            dropped_by_sweep: meters.dropped_by_sweep.get(),
            last_sweep: meters.last_sweep(),
            compacted_at_ms: meters.compacted_at_ms.load(Ordering::Relaxed),
            written,
            written_elsewhere,
        }
    }
}

fn part(part: &crate::recent::Part) -> RecentPart {
    let data = part.read();
    RecentPart { changes: data.changes.len() as u64, bytes: data.weight as u64 }
}
