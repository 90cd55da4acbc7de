//! The page for Prometheus: the names, types and labels of etcd, and the numbers that etcd would have.

use std::time::Duration;

use etcd_client::{AlarmAction, AlarmType, Client, CompactionOptions, GetOptions, Txn, TxnOp, WatchOptions};

use super::connected;
use crate::support::page::{Metrics, ask};
use crate::support::server::reference;

/// Every family that we share with etcd: name, type, labels, the first and the last bound of its buckets.
#[rustfmt::skip]
const SHARED: &[(&str, &str, &str, &str)] = &[
    ("etcd_cluster_version", "gauge", "cluster_version", ""),
    ("etcd_debugging_lease_granted_total", "counter", "", ""),
    ("etcd_debugging_lease_renewed_total", "counter", "", ""),
    ("etcd_debugging_lease_revoked_total", "counter", "", ""),
    ("etcd_debugging_lease_ttl_total", "histogram", "", "1 to 8.388608e+06"),
    ("etcd_debugging_mvcc_compact_revision", "gauge", "", ""),
    ("etcd_debugging_mvcc_current_revision", "gauge", "", ""),
    ("etcd_debugging_mvcc_db_compaction_keys_total", "counter", "", ""),
    ("etcd_debugging_mvcc_db_compaction_last", "gauge", "", ""),
    ("etcd_debugging_mvcc_db_compaction_total_duration_milliseconds", "histogram", "", "100 to 819200"),
    ("etcd_debugging_mvcc_events_total", "counter", "", ""),
    ("etcd_debugging_mvcc_pending_events_total", "gauge", "", ""),
    ("etcd_debugging_mvcc_slow_watcher_total", "gauge", "", ""),
    ("etcd_debugging_mvcc_total_put_size_in_bytes", "gauge", "", ""),
    ("etcd_debugging_mvcc_watch_stream_total", "gauge", "", ""),
    ("etcd_debugging_mvcc_watcher_total", "gauge", "", ""),
    ("etcd_debugging_server_alarms", "gauge", "alarm_type,server_id", ""),
    ("etcd_debugging_server_lease_expired_total", "counter", "", ""),
    ("etcd_disk_backend_commit_duration_seconds", "histogram", "", "0.001 to 8.192"),
    ("etcd_disk_backend_defrag_duration_seconds", "histogram", "", "0.1 to 409.6"),
    ("etcd_disk_backend_snapshot_duration_seconds", "histogram", "", "0.01 to 655.36"),
    ("etcd_disk_defrag_inflight", "gauge", "", ""),
    ("etcd_disk_wal_fsync_duration_seconds", "histogram", "", "0.001 to 8.192"),
    ("etcd_disk_wal_write_bytes_total", "gauge", "", ""),
    ("etcd_disk_wal_write_duration_seconds", "histogram", "", "0.001 to 8.192"),
    ("etcd_mvcc_db_total_size_in_bytes", "gauge", "", ""),
    ("etcd_mvcc_db_total_size_in_use_in_bytes", "gauge", "", ""),
    ("etcd_mvcc_delete_total", "counter", "", ""),
    ("etcd_mvcc_hash_rev_duration_seconds", "histogram", "", "0.01 to 163.84"),
    ("etcd_mvcc_put_total", "counter", "", ""),
    ("etcd_mvcc_range_total", "counter", "", ""),
    ("etcd_mvcc_txn_total", "counter", "", ""),
    ("etcd_network_client_grpc_received_bytes_total", "counter", "", ""),
    ("etcd_network_client_grpc_sent_bytes_total", "counter", "", ""),
    ("etcd_server_client_requests_total", "counter", "client_api_version,type", ""),
    ("etcd_server_has_leader", "gauge", "", ""),
    ("etcd_server_health_failures", "counter", "", ""),
    ("etcd_server_health_success", "counter", "", ""),
    ("etcd_server_healthcheck", "gauge", "name,type", ""),
    ("etcd_server_healthchecks_total", "counter", "name,status,type", ""),
    ("etcd_server_id", "gauge", "server_id", ""),
    ("etcd_server_is_leader", "gauge", "", ""),
    ("etcd_server_is_learner", "gauge", "", ""),
    ("etcd_server_leader_changes_seen_total", "counter", "", ""),
    ("etcd_server_proposals_applied_total", "gauge", "", ""),
    ("etcd_server_proposals_committed_total", "gauge", "", ""),
    ("etcd_server_proposals_failed_total", "counter", "", ""),
    ("etcd_server_proposals_pending", "gauge", "", ""),
    ("etcd_server_quota_backend_bytes", "gauge", "", ""),
    ("etcd_server_range_duration_seconds", "histogram", "success", "0.0001 to 52.4288"),
    ("etcd_server_request_duration_seconds", "histogram", "success,type", "0.001 to 8.192"),
    ("etcd_server_slow_apply_total", "counter", "", ""),
    ("etcd_server_version", "gauge", "server_version", ""),
    ("grpc_server_handled_total", "counter", "grpc_code,grpc_method,grpc_service,grpc_type", ""),
    ("grpc_server_msg_received_total", "counter", "grpc_method,grpc_service,grpc_type", ""),
    ("grpc_server_msg_sent_total", "counter", "grpc_method,grpc_service,grpc_type", ""),
    ("grpc_server_started_total", "counter", "grpc_method,grpc_service,grpc_type", ""),
    ("os_fd_limit", "gauge", "", ""),
    ("os_fd_used", "gauge", "", ""),
    ("process_cpu_seconds_total", "counter", "", ""),
    ("process_max_fds", "gauge", "", ""),
    ("process_open_fds", "gauge", "", ""),
    ("process_resident_memory_bytes", "gauge", "", ""),
    ("process_start_time_seconds", "gauge", "", ""),
    ("process_virtual_memory_bytes", "gauge", "", ""),
];

/// Asks for one of everything, so that whatever appears with its first use is there.
async fn use_everything(url: &str, client: &mut Client) {
    client.put("/a/b/1", "1", None).await.unwrap();
    client.put("/a/b/1", "2", None).await.unwrap();
    client.get("/a/b/1", None).await.unwrap();
    client.get("/a/b/1", Some(GetOptions::new().with_revision(99))).await.expect_err("a future revision");
    client.txn(Txn::new().and_then([TxnOp::get("a", None)])).await.unwrap();
    client.txn(Txn::new().and_then([TxnOp::put("a", "1", None)])).await.unwrap();
    client.delete("a", None).await.unwrap();
    let lease = client.lease_grant(100, None).await.unwrap().id();
    client.lease_revoke(lease).await.unwrap();
    client.compact(2, Some(CompactionOptions::new().with_physical())).await.unwrap();
    client.hash_kv(0).await.unwrap();
    client.defragment().await.unwrap();
    let mut snapshot = client.snapshot().await.unwrap();
    while snapshot.message().await.unwrap().is_some() {}
    client.alarm(AlarmAction::Activate, AlarmType::Nospace, None).await.unwrap();
    for path in ["/health", "/livez", "/readyz"] {
        ask(url, "GET", path).await;
    }
}

#[tokio::test]
async fn names_types_and_labels_are_those_of_etcd() {
    let (server, mut client) = connected().await;
    use_everything(&server.url(), &mut client).await;
    let page = Metrics::of(&server.url()).await;
    for (name, kind, labels, bounds) in SHARED {
        let family = page.families.get(*name).unwrap_or_else(|| panic!("{name} is missing"));
        assert!(family.helped, "{name}");
        let found: Vec<&str> = family.labels.iter().map(String::as_str).collect();
        assert_eq!((family.kind.as_str(), found.join(",").as_str()), (*kind, *labels), "{name}");
        let mut found: Vec<f64> = family.bounds.iter().map(|bound| bound.parse().unwrap()).collect();
        found.retain(|bound| bound.is_finite());
        found.sort_by(f64::total_cmp);
        let doubled = found.windows(2).all(|pair| pair[1] == pair[0] * 2.0);
        let ends = found.first().zip(found.last()).map(|(first, last)| format!("{first} to {last}"));
        let bounds = bounds.split(" to ").filter(|bound| !bound.is_empty()).map(|bound| bound.parse::<f64>().unwrap());
        let expected: Vec<String> = bounds.map(|bound| bound.to_string()).collect();
        assert_eq!(ends.unwrap_or_default(), expected.join(" to "), "{name}");
        assert!(doubled, "{name}: {found:?}");
    }
    if reference().is_none() {
        for name in page.families.keys().filter(|name| !name.starts_with("sternpost_")) {
            assert!(SHARED.iter().any(|(known, ..)| known == name), "{name} is not compared with etcd");
        }
    }
}

/// A call as labels name it.
fn call(name: &str, service: &str, method: &str, kind: &str) -> String {
    format!("{name}{{grpc_method=\"{method}\",grpc_service=\"etcdserverpb.{service}\",grpc_type=\"{kind}\"}}")
}

fn handled(code: &str, service: &str, method: &str, kind: &str) -> String {
    call(&format!("grpc_server_handled_total{{grpc_code=\"{code}\","), service, method, kind).replacen(",{", ",", 1)
}

#[tokio::test]
async fn requests_are_counted_as_etcd_counts_them() {
    let (server, mut client) = connected().await;
    let before = Metrics::of(&server.url()).await;
    for number in 0..3 {
        client.put(format!("/a/b/{number}"), "12345", None).await.unwrap();
    }
    client.delete("/a/b/0", None).await.unwrap();
    client.delete("/a/b/0", None).await.unwrap();
    let both = [TxnOp::put("x", "1", None), TxnOp::put("y", "2", None), TxnOp::get("x", None)];
    client.txn(Txn::new().and_then(both)).await.unwrap();
    client.txn(Txn::new().and_then([TxnOp::put("z", "3", None)])).await.unwrap();
    client.get("x", Some(GetOptions::new().with_revision(99))).await.expect_err("a future revision");
    let (one, two) = (client.lease_grant(100, None).await.unwrap(), client.lease_grant(200, None).await.unwrap());
    client.lease_revoke(one.id()).await.unwrap();
    let (mut keeper, mut answers) = client.lease_keep_alive(two.id()).await.unwrap();
    for _ in 0..3 {
        keeper.keep_alive().await.unwrap();
        answers.message().await.unwrap();
    }
    let after = Metrics::of(&server.url()).await;
    let more = |sample: &str| after.value(sample) - before.value(sample);
    // A client of its own sends one keep-alive when the stream is opened.
    let kept = more("etcd_debugging_lease_renewed_total");
    for (sample, expected) in [
        ("etcd_mvcc_put_total", 6.0),
        ("etcd_mvcc_delete_total", 2.0),
        ("etcd_mvcc_txn_total", 1.0),
        ("etcd_debugging_mvcc_total_put_size_in_bytes", 39.0),
        ("etcd_debugging_mvcc_current_revision", 6.0),
        ("etcd_debugging_lease_granted_total", 2.0),
        ("etcd_debugging_lease_revoked_total", 1.0),
        ("etcd_debugging_lease_ttl_total_sum", 300.0),
        ("etcd_debugging_lease_ttl_total_bucket{le=\"128\"}", 1.0),
        ("etcd_server_request_duration_seconds_count{success=\"true\",type=\"Put\"}", 3.0),
        ("etcd_server_request_duration_seconds_count{success=\"true\",type=\"Txn\"}", 2.0),
        ("etcd_server_request_duration_seconds_count{success=\"false\",type=\"Range\"}", 1.0),
    ] {
        assert_eq!(more(sample), expected, "{sample}");
    }
    assert!((3.0..=4.0).contains(&kept), "{kept}");
    for (sample, expected) in [
        (call("grpc_server_started_total", "KV", "Put", "unary"), 3.0),
        (call("grpc_server_msg_received_total", "KV", "Put", "unary"), 3.0),
        (call("grpc_server_msg_sent_total", "KV", "Put", "unary"), 3.0),
        (handled("OK", "KV", "Put", "unary"), 3.0),
        (handled("OutOfRange", "KV", "Range", "unary"), 1.0),
        (handled("OK", "KV", "DeleteRange", "unary"), 2.0),
        (call("grpc_server_msg_received_total", "Lease", "LeaseKeepAlive", "bidi_stream"), kept),
        (call("grpc_server_msg_sent_total", "Lease", "LeaseKeepAlive", "bidi_stream"), kept),
    ] {
        assert_eq!(more(&sample), expected, "{sample}");
    }
    assert!(more("etcd_network_client_grpc_received_bytes_total") > 39.0);
    assert!(more("etcd_network_client_grpc_sent_bytes_total") > 39.0);
}

/// Waits until the server tells what is expected of a sample.
async fn until(url: &str, sample: &str, expected: f64) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let found = Metrics::of(url).await.value(sample);
        if found == expected {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{sample} is {found}, {expected} expected");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn watches_are_counted_while_they_live() {
    let (server, mut client) = connected().await;
    client.put("a", "1", None).await.unwrap();
    let options = WatchOptions::new().with_prefix().with_start_revision(2);
    let mut stream = client.watch("a", Some(options)).await.unwrap();
    client.put("ab", "2", None).await.unwrap();
    let mut events = 0;
    while events < 2 {
        events += stream.message().await.unwrap().expect("it is open").events().len();
    }
    let url = server.url();
    until(&url, "etcd_debugging_mvcc_watch_stream_total", 1.0).await;
    until(&url, "etcd_debugging_mvcc_watcher_total", 1.0).await;
    until(&url, "etcd_debugging_mvcc_slow_watcher_total", 0.0).await;
    until(&url, "etcd_debugging_mvcc_pending_events_total", 0.0).await;
    let counted = Metrics::of(&url).await.value("etcd_debugging_mvcc_events_total");
    // Etcd counts at most what it sends, and misses what a watch reads from the past.
    assert!(counted <= 2.0 && (counted == 2.0 || reference().is_some()), "{counted}");
    drop(stream);
    drop(client);
    until(&url, "etcd_debugging_mvcc_watcher_total", 0.0).await;
    until(&url, "etcd_debugging_mvcc_watch_stream_total", 0.0).await;
    until(&url, &handled("Canceled", "Watch", "Watch", "bidi_stream"), 1.0).await;
}
