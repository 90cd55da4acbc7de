//! What etcd has no name for: flushes, the sweep, the changes in memory, and who writes.

use compaction::Progress;
use prometheus::proto::MetricFamily;
use storage::{Metrics, Revision, Status};

use super::family::{Labels, counter, counters, gauge, gauges, histogram};

/// The families under our own name.
pub(super) fn families(status: &Status, told: &Metrics) -> Vec<MetricFamily> {
    let mut families = memory(told);
    families.extend(base(status, told));
    families.extend(sweep(status, told));
    families.extend(written(told));
    families
}

fn memory(told: &Metrics) -> Vec<MetricFamily> {
    let parts = [("active", told.recent_active), ("flushing", told.recent_frozen)];
    let labels = parts.map(|(part, _)| [("part", part)]);
    let of = |number: fn(storage::RecentPart) -> u64| {
        labels.iter().zip(parts).map(move |(labels, (_, part))| (labels.as_slice(), number(part)))
    };
    vec![
        gauges(
            "sternpost_recent_bytes",
            "Memory that changes not yet in the database file take.",
            of(|part| part.bytes),
        ),
        gauges("sternpost_recent_changes", "Changes that are not yet in the database file.", of(|part| part.changes)),
        gauge("sternpost_queue_commands", "Commands that wait for the log.", told.queued_commands),
        gauge("sternpost_queue_bytes", "Bytes of commands that wait for the log.", told.queued_bytes),
        histogram("sternpost_frame_apply_duration_seconds", "Applying a frame of the log.", &told.apply),
    ]
}

fn base(status: &Status, told: &Metrics) -> Vec<MetricFamily> {
    let log_bytes = status.size_bytes.saturating_sub(status.base_bytes);
    vec![
        gauge("sternpost_base_bytes", "Disk that the database file takes.", status.base_bytes),
        gauge(
            "sternpost_base_rewritten_bytes",
            "About the disk that it would take if it were rewritten.",
            status.base_bytes_if_rewritten,
        ),
        gauge("sternpost_log_bytes", "Disk that the log takes.", log_bytes),
        histogram("sternpost_flush_duration_seconds", "Bringing changes to the database file.", &told.flush),
        counter("sternpost_flush_changes_total", "Changes brought to the database file.", told.changes_flushed),
        counter(
            "sternpost_flush_versions_dropped_total",
            "Unreadable versions that flushes dropped on the way.",
            told.dropped_by_flush,
        ),
    ]
}

fn sweep(status: &Status, told: &Metrics) -> Vec<MetricFamily> {
    let last = told.last_sweep;
    let ended = last.map_or(0.0, |last| last.ended_ms as f64 / 1000.0);
    let took = last.map_or(0.0, |last| last.took.as_secs_f64());
    vec![
        histogram("sternpost_sweep_step_duration_seconds", "Steps of the sweep.", &told.sweep_step),
        counter("sternpost_sweep_rows_total", "Rows of history that the sweep visited.", told.rows_swept),
        counter(
            "sternpost_sweep_versions_dropped_total",
            "Unreadable versions that the sweep dropped.",
            told.dropped_by_sweep,
        ),
        gauge("sternpost_sweep_revision", "What was written up to here was visited by the sweep.", status.swept.0),
        gauge("sternpost_sweep_last_run_timestamp_seconds", "When a sweep last ended; 0: not since the start.", ended),
        gauge("sternpost_sweep_last_run_duration_seconds", "How long it took, rests included.", took),
        gauge(
            "sternpost_sweep_last_run_versions_dropped",
            "Versions that it dropped.",
            last.map_or(0, |last| last.versions_dropped),
        ),
    ]
}

/// How automatic compaction goes.
pub(super) fn retention(progress: &Progress) -> Vec<MetricFamily> {
    let of = |revision: Option<Revision>| revision.map_or(0, |revision| revision.0);
    vec![
        counter("sternpost_retention_runs_total", "Compactions that the retention asked for.", progress.proposals),
        counter("sternpost_retention_failures_total", "Those that were not carried out.", progress.failures),
        gauge("sternpost_retention_revision", "The last one that was carried out; 0: none.", of(progress.accepted)),
        gauge(
            "sternpost_retention_swept_revision",
            "The last one that was swept as well; 0: none.",
            of(progress.swept),
        ),
        gauge(
            "sternpost_retention_last_run_duration_seconds",
            "How long the last one took to be carried out.",
            progress.accepted_after.as_secs_f64(),
        ),
        gauge(
            "sternpost_retention_last_sweep_duration_seconds",
            "How long after that it was found swept.",
            progress.swept_after.as_secs_f64(),
        ),
    ]
}

/// Prefixes end with a slash, so `other` is none.
const OTHER: &str = "other";

fn written(told: &Metrics) -> Vec<MetricFamily> {
    let named = told.written.iter().map(|(prefix, written)| ([("prefix", prefix.as_str())], *written));
    let all: Vec<_> = named.chain([([("prefix", OTHER)], told.written_elsewhere)]).collect();
    let of = |number: fn(storage::Written) -> u64| {
        all.iter().map(move |(labels, written)| (labels.as_slice() as Labels<'_>, number(*written)))
    };
    vec![
        counters(
            "sternpost_writes_total",
            "Puts and deletions of keys, by the two leading segments of the key.",
            of(|written| written.changes),
        ),
        counters("sternpost_written_bytes_total", "Bytes of keys and values in them.", of(|written| written.bytes)),
    ]
}
