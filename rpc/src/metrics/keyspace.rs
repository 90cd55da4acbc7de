//! What the keyspace tells of itself, under etcd's names where etcd has the thing.

use prometheus::proto::MetricFamily;
use storage::{AlarmKind, Metrics, Status};

use super::family::{counter, gauge, gauges, histogram};

/// The families under etcd's names.
pub(super) fn families(status: &Status, told: &Metrics) -> Vec<MetricFamily> {
    let alarms: Vec<(&str, String)> =
        status.alarms.iter().map(|alarm| (word(alarm.kind), hex(alarm.member.0))).collect();
    let alarms: Vec<_> = alarms.iter().map(|(kind, member)| [("alarm_type", *kind), ("server_id", member)]).collect();
    let mut families = requests(told);
    families.extend(leases_and_watches(told));
    families.extend(disk(status, told));
    families.push(gauges(
        "etcd_debugging_server_alarms",
        "Alarms that are raised.",
        alarms.iter().map(|labels| (labels.as_slice(), 1_u64)),
    ));
    families
}

fn word(kind: AlarmKind) -> &'static str {
    match kind {
        AlarmKind::NoSpace => "NOSPACE",
        AlarmKind::Corrupt => "CORRUPT",
    }
}

/// An id as etcd shows it in labels.
pub(super) fn hex(id: u64) -> String {
    format!("{id:x}")
}

fn requests(told: &Metrics) -> Vec<MetricFamily> {
    vec![
        counter("etcd_mvcc_range_total", "Ranges read, those of transactions included.", told.ranges),
        counter("etcd_mvcc_put_total", "Keys put.", told.puts),
        counter("etcd_mvcc_delete_total", "Deletions asked for, whatever number of keys each met.", told.deletes),
        counter("etcd_mvcc_txn_total", "Transactions of more than one operation.", told.txns),
        gauge("etcd_debugging_mvcc_total_put_size_in_bytes", "Bytes of keys and values put.", told.put_bytes),
        gauge("etcd_server_proposals_pending", "Commands that wait for the log.", told.queued_commands),
        counter("etcd_server_proposals_failed_total", "Commands that could not be brought into the log.", told.failed),
        counter("etcd_server_slow_apply_total", "Frames that took more than 100 ms to apply.", told.slow_applies),
    ]
}

fn leases_and_watches(told: &Metrics) -> Vec<MetricFamily> {
    let watches = &told.watches;
    vec![
        counter("etcd_debugging_lease_granted_total", "Leases granted.", told.leases_granted),
        counter("etcd_debugging_lease_revoked_total", "Leases that ended, revoked or expired.", told.leases_revoked),
        counter("etcd_debugging_lease_renewed_total", "Keep-alives that found their lease.", told.leases_renewed),
        counter("etcd_debugging_server_lease_expired_total", "Leases that expired.", told.leases_expired),
        histogram("etcd_debugging_lease_ttl_total", "TTLs of leases granted, in seconds.", &told.lease_ttl),
        gauge("etcd_debugging_mvcc_watch_stream_total", "Streams of watches.", watches.streams),
        gauge("etcd_debugging_mvcc_watcher_total", "Watches.", watches.watches),
        gauge("etcd_debugging_mvcc_slow_watcher_total", "Watches that read what is stored.", watches.behind),
        gauge("etcd_debugging_mvcc_pending_events_total", "Events that wait to be sent.", watches.events_queued),
        counter("etcd_debugging_mvcc_events_total", "Events sent.", told.events_delivered),
    ]
}

fn disk(status: &Status, told: &Metrics) -> Vec<MetricFamily> {
    let compacted = status.compacted.0.max(0);
    let applied = status.applied.0;
    let dropped = told.dropped_by_flush + told.dropped_by_sweep;
    vec![
        gauge("etcd_server_proposals_committed_total", "Frames in the log, since the first start.", applied),
        gauge("etcd_server_proposals_applied_total", "Frames applied, since the first start.", applied),
        gauge("etcd_debugging_mvcc_current_revision", "The current revision.", status.revision.0),
        gauge("etcd_debugging_mvcc_compact_revision", "The compacted revision; 0: none.", compacted),
        gauge("etcd_mvcc_db_total_size_in_bytes", "Disk that database file and log take.", status.size_bytes),
        gauge(
            "etcd_mvcc_db_total_size_in_use_in_bytes",
            "Pages in use, and about what changes on their way there will take.",
            status.used_bytes,
        ),
        histogram("etcd_disk_wal_fsync_duration_seconds", "Syncing the log.", &told.log_sync),
        histogram("etcd_disk_wal_write_duration_seconds", "Writing to the log.", &told.log_write),
        gauge("etcd_disk_wal_write_bytes_total", "Bytes written to the log.", told.log_bytes_written),
        histogram("etcd_disk_backend_commit_duration_seconds", "Commits of the database file.", &told.commit),
        counter("etcd_debugging_mvcc_db_compaction_keys_total", "Versions that compaction dropped.", dropped),
        gauge(
            "etcd_debugging_mvcc_db_compaction_last",
            "When a compaction took effect, in seconds since 1970; 0: not since the start.",
            (told.compacted_at_ms / 1000) as f64,
        ),
        histogram(
            "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds",
            "Sweeping away what a compaction made unreadable, rests included.",
            &told.sweep_run,
        ),
    ]
}
