//! The page as a whole: well formed, and with the numbers of what was done.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use storage::{
    Environment, Key, KeyRange, Keyspace, Op, Options, Put, PutLease, PutValue, RangeRequest, Revision, SystemClock,
    SystemEntropy, Txn,
};

use super::*;

fn keyspace(dir: &tempfile::TempDir) -> Keyspace {
    let environment = Environment {
        fs: Arc::new(storage::fs::RealFs),
        clock: Arc::new(SystemClock::new()),
        entropy: Arc::new(SystemEntropy),
    };
    let options = Options { segment_bytes: 1 << 16, ..Options::standard() };
    Keyspace::open(&dir.path().join("data"), options, environment).expect("a new keyspace")
}

fn key(key: &'static [u8]) -> Key {
    Key::new(Bytes::from_static(key)).expect("a key")
}

fn put(name: &'static [u8], value: &'static str) -> Put {
    Put { key: key(name), value: PutValue::Set(value.into()), lease: PutLease::Detach, prev_kv: false }
}

#[track_caller]
fn check(page: &str, samples: &[&str]) {
    for sample in samples {
        let name = sample.split(['{', ' ']).next().unwrap_or_default();
        let like: Vec<&str> = page.lines().filter(|line| line.starts_with(name)).collect();
        assert!(like.contains(sample), "{sample} is not among {like:#?}");
    }
}

#[test]
fn the_page_has_the_numbers_of_what_was_done() {
    let dir = tempfile::tempdir().expect("a directory");
    let keyspace = keyspace(&dir);
    let metrics = Metrics::new();
    let before = metrics.page(&keyspace, 1000, &Progress::default());
    check(
        &before,
        &[
            "etcd_mvcc_put_total 0",
            "etcd_disk_wal_fsync_duration_seconds_count 0",
            "sternpost_writes_total{prefix=\"other\"} 0",
        ],
    );
    keyspace.put(put(b"/a/b/1", "123")).wait().expect("room");
    keyspace.put(put(b"/a/\"\\\n/1", "")).wait().expect("room");
    keyspace.put(put(b"c", "4567")).wait().expect("room");
    let ops = vec![Op::Put(put(b"/a/b/2", "")), Op::Range(RangeRequest::new(KeyRange::all()))];
    keyspace.txn(Txn { compares: Vec::new(), success: ops, failure: Vec::new() }).wait().expect("room");
    keyspace.range(&RangeRequest::new(KeyRange::all())).expect("a range");
    keyspace.lease_grant(None, 60).wait().expect("room");
    keyspace.compact(3).wait().expect("a revision");
    keyspace.flush().expect("room");
    metrics.chores.rewrite_begins();
    let mut progress = Progress::default();
    progress.propose(Revision(3), Duration::ZERO);
    progress.accept(Duration::from_millis(250));
    let page = metrics.page(&keyspace, -1, &progress);
    check(
        &page,
        &[
            "etcd_mvcc_put_total 4",
            "etcd_mvcc_range_total 2",
            "etcd_mvcc_txn_total 1",
            "etcd_mvcc_delete_total 0",
            "etcd_debugging_mvcc_total_put_size_in_bytes 28",
            "etcd_debugging_mvcc_current_revision 5",
            "etcd_debugging_mvcc_compact_revision 3",
            "etcd_debugging_lease_granted_total 1",
            "etcd_debugging_lease_ttl_total_bucket{le=\"32\"} 0",
            "etcd_debugging_lease_ttl_total_bucket{le=\"64\"} 1",
            "etcd_debugging_lease_ttl_total_sum 60",
            "etcd_server_quota_backend_bytes -1",
            "etcd_server_proposals_applied_total 6",
            "etcd_disk_wal_fsync_duration_seconds_count 6",
            "sternpost_flush_duration_seconds_bucket{le=\"+Inf\"} 1",
            "etcd_disk_defrag_inflight 1",
            "sternpost_frame_apply_duration_seconds_count 6",
            "sternpost_flush_changes_total 4",
            "sternpost_recent_changes{part=\"active\"} 0",
            "sternpost_recent_bytes{part=\"flushing\"} 0",
            "sternpost_writes_total{prefix=\"/a/b/\"} 2",
            "sternpost_writes_total{prefix=\"/a/\\\"\\\\\\n/\"} 1",
            "sternpost_written_bytes_total{prefix=\"/a/b/\"} 15",
            "sternpost_written_bytes_total{prefix=\"other\"} 5",
            "sternpost_retention_runs_total 1",
            "sternpost_retention_revision 3",
            "sternpost_retention_swept_revision 0",
            "sternpost_retention_last_run_duration_seconds 0.25",
            "sternpost_build_info{version=\"0.1.0\"} 1",
        ],
    );
    keyspace.close().expect("an orderly end");
}

#[test]
fn the_page_is_well_formed() {
    let dir = tempfile::tempdir().expect("a directory");
    let keyspace = keyspace(&dir);
    let metrics = Metrics::new();
    metrics.checks.health(true);
    metrics.checks.check("livez", "serializable_read", false);
    let page = metrics.page(&keyspace, 1000, &Progress::default());
    let (mut families, mut samples) = (Vec::new(), BTreeSet::new());
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("a text");
            assert!(text.ends_with('.') || text.contains("; "), "{line}");
            families.push(name.to_owned());
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a kind");
            assert_eq!(Some(name), families.last().map(String::as_str), "the kind follows the help");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            // Etcd's names break the first rule here and there, ours do not.
            let own = name.starts_with("sternpost_");
            assert!(!own || name.ends_with("_total") == (kind == "counter"), "{line}");
            assert!(!own || kind != "histogram" || name.ends_with("_seconds"), "{line}");
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(sample.starts_with(families.last().expect("a family")), "{line}");
            assert!(samples.insert(sample.to_owned()), "twice: {line}");
        }
    }
    assert!(families.is_sorted() && families.len() > 80, "{families:?}");
    assert_eq!(families.len(), families.iter().collect::<BTreeSet<_>>().len());
    keyspace.close().expect("an orderly end");
}
