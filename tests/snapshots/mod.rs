//! Snapshots of a real server: saved by the program under writes, restored, served; and one that nobody hurries to read.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::Ordering;

use tonic::transport::Channel;

use crate::model::rng::seed;
use crate::model::wire::*;
use crate::model::wire_more::*;
use crate::shrinking::{compact, disk_bytes, hash, revision};
use crate::support::client::{server_streaming, unary};
use crate::support::load::{Load, Writer};
use crate::support::server::Server;

/// Small bounds, so that flushes run all the time.
const SMALL: &[&str] = &["--recent-changes", "200", "--recent-bytes", "262144"];

#[derive(Clone, PartialEq, prost::Message)]
struct SnapshotResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(uint64, tag = "2")]
    remaining_bytes: u64,
    #[prost(bytes = "vec", tag = "3")]
    blob: Vec<u8>,
    #[prost(string, tag = "4")]
    version: String,
}

fn sternpost(arguments: &[&str], paths: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sternpost"));
    command.args(arguments).args(paths).output().expect("the program runs")
}

/// What the program prints, which must succeed.
fn printed(arguments: &[&str], paths: &[&Path]) -> String {
    let output = sternpost(arguments, paths);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A number that was printed as `name=12`.
fn number(line: &str, name: &str) -> i64 {
    let field = line.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    field.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {line}"))
}

async fn everything(channel: &Channel, revision: i64) -> Result<RangeResponse, tonic::Status> {
    let request = RangeRequest { key: vec![0], range_end: vec![0], revision, ..Default::default() };
    unary(channel, "/etcdserverpb.KV/Range", request).await
}

async fn leases(channel: &Channel) -> Vec<i64> {
    let reply: LeaseLeasesResponse =
        unary(channel, "/etcdserverpb.Lease/LeaseLeases", Empty {}).await.expect("the server answers");
    let mut ids: Vec<i64> = reply.leases.iter().map(|lease| lease.id).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_program_saves_under_writes_is_served_after_a_restore() {
    let server = Server::start(SMALL).await;
    let load = Load::new(server.url(), 0);
    let clients: Vec<_> = (0..4).map(|client| tokio::spawn(Writer::new(&load, client, seed()).run())).collect();
    load.acknowledged_more(2000).await;
    let file = server.scratch().join("snapshot");
    let (url, target) = (server.url(), file.clone());
    let saving = tokio::task::spawn_blocking(move || printed(&["snapshot", "save", "--endpoints", &url], &[&target]));
    let saved = saving.await.expect("it is saved");
    load.acknowledged_more(100).await;
    load.stop.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.expect("a client ends in order");
    }
    println!("{saved}");
    let (channel, at) = (server.channel(), number(&saved, "revision"));
    let now = revision(&channel).await;
    assert!(at > 1000 && at < now, "saved at {at}, now at {now}");
    assert_eq!(std::fs::metadata(&file).expect("the file").len() % 512, 32);
    assert!(!server.scratch().join("snapshot.part").exists());
    let json = printed(&["snapshot", "status", "-w", "json"], &[&file]);
    assert!(json.contains(&format!("\"revision\":{at},")), "{json}");

    // As it was, at every revision: the hash covers keys and history.
    let kept = server.scratch().join("kept");
    printed(&["snapshot", "restore", "--no-bump", "--data-dir"], &[&kept, &file]);
    let copy = Server::start_on(kept).await;
    let original = everything(&channel, at).await.expect("it is not compacted");
    assert_eq!(number(&saved, "keys"), original.kvs.len() as i64);
    let (there, copied) = (copy.channel(), everything(&copy.channel(), at).await.expect("it is restored"));
    assert_eq!(copied.kvs, original.kvs);
    let (was, is) = (original.header.expect("a header"), copied.header.expect("a header"));
    assert_eq!(is.revision, at);
    assert!(is.cluster_id != was.cluster_id && is.member_id != was.member_id);
    let mut hashes = 0;
    for revision in (2..=at).step_by(1 + at as usize / 20) {
        assert_eq!(hash(&there, revision).await, hash(&channel, revision).await, "revision {revision}");
        hashes += 1;
    }
    assert!(hashes >= 10);
    assert_eq!(number(&saved, "leases"), leases(&there).await.len() as i64);
    drop(copy);

    // Raised: no revision from before means anything, what keys say stays.
    let raised = server.scratch().join("raised");
    printed(&["snapshot", "restore", "--data-dir"], &[&raised, &file]);
    let mut copy = Server::start_on(raised.clone()).await;
    let there = copy.channel();
    let copied = everything(&there, 0).await.expect("it is restored");
    assert_eq!(copied.kvs, original.kvs);
    assert_eq!(copied.header.expect("a header").revision, at + 1_000_000_000);
    for old in [2, at, now, at + 999_999_999] {
        let refused = everything(&there, old).await.expect_err("it is compacted");
        assert!(refused.message().contains("has been compacted"), "{refused}");
    }
    let put = PutRequest { key: b"new".to_vec(), value: b"1".to_vec(), ..Default::default() };
    let reply: PutResponse = unary(&there, "/etcdserverpb.KV/Put", put).await.expect("the server answers");
    assert_eq!(reply.header.expect("a header").revision, at + 1_000_000_001);
    copy.terminate();
    assert_eq!(copy.wait().await.code(), Some(0));

    // What is there is not touched, and what is no snapshot is refused.
    let again = sternpost(&["snapshot", "restore", "--data-dir"], &[&raised, &file]);
    assert_eq!(again.status.code(), Some(1));
    let bytes = std::fs::read(&file).expect("the file");
    std::fs::write(&file, bytes.get(..bytes.len() / 2).expect("half")).expect("it is cut");
    let other = server.scratch().join("other");
    for (arguments, paths) in [
        (vec!["snapshot", "restore", "--data-dir"], vec![other.as_path(), file.as_path()]),
        (vec!["snapshot", "restore", "--skip-hash-check", "--data-dir"], vec![other.as_path(), file.as_path()]),
        (vec!["snapshot", "status"], vec![file.as_path()]),
    ] {
        let refused = sternpost(&arguments, &paths);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("is damaged"), "{refused:?}");
    }
    assert!(!other.exists());
}

/// Overwrites all keys each round, and compacts to the newest revision if asked to. Answers the newest.
async fn overwrite(channel: &Channel, rounds: u64, compacting: bool) -> i64 {
    let mut newest = 0;
    for round in 0..rounds {
        let mut running = tokio::task::JoinSet::new();
        for first in (0..2000_u64).step_by(50) {
            let put = move |key: u64| {
                let value = format!("{round} {key} ").repeat(400).into_bytes();
                let put = PutRequest { key: format!("key {key}").into_bytes(), value, ..Default::default() };
                RequestOp { request: Some(TxnOp::Put(put)) }
            };
            let (success, channel) = ((first..first + 50).map(put).collect(), channel.clone());
            running.spawn(async move {
                let txn = TxnRequest { success, ..Default::default() };
                unary::<_, TxnResponse>(&channel, "/etcdserverpb.KV/Txn", txn).await.expect("the server answers")
            });
        }
        while let Some(done) = running.join_next().await {
            newest = newest.max(done.expect("it ends in order").header.expect("a header").revision);
        }
        if compacting {
            compact(channel, newest).await;
        }
    }
    newest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_is_read_slowly_pins_nothing_and_holds_up_nobody() {
    let server = Server::start(&["--recent-changes", "2000", "--recent-bytes", "4194304"]).await;
    let channel = server.channel();
    overwrite(&channel, 6, true).await;
    let before = disk_bytes(&server, "base.redb");
    let mut slow: tonic::Streaming<SnapshotResponse> =
        server_streaming(&channel, "/etcdserverpb.Maintenance/Snapshot", Empty {}).await.expect("it begins");
    let first = slow.message().await.expect("no error").expect("a message");
    assert!(first.header.is_none() && first.remaining_bytes > 1 << 20 && first.version.starts_with("sternpost-"));
    let at = revision(&channel).await;
    // Nobody reads on while all data is overwritten many times.
    let newest = overwrite(&channel, 20, true).await;
    let after = disk_bytes(&server, "base.redb");
    println!("{before} bytes at revision {at}, {after} at {newest}");
    let refused = loop {
        match slow.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a snapshot of what is gone"),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.message(), "etcdserver: mvcc: required revision has been compacted");
    // A pinned page is not used again: each round would have taken its own.
    assert!(before > 0 && after < before * 4, "{after} bytes, {before} before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_small_and_what_remains_goes_down_to_nothing() {
    let server = Server::start(SMALL).await;
    let channel = server.channel();
    overwrite(&channel, 2, false).await;
    let mut stream: tonic::Streaming<SnapshotResponse> =
        server_streaming(&channel, "/etcdserverpb.Maintenance/Snapshot", Empty {}).await.expect("it begins");
    let mut messages = Vec::new();
    while let Some(message) = stream.message().await.expect("no error") {
        messages.push(message);
    }
    let total: usize = messages.iter().map(|message| message.blob.len()).sum();
    assert!(messages.len() > 100 && total % 512 == 32, "{} messages, {total} bytes", messages.len());
    assert!(messages.iter().all(|message| message.header.is_none() && message.blob.len() <= 32 << 10));
    assert!(messages.iter().all(|message| message.version.starts_with("sternpost-")));
    assert!(messages.is_sorted_by(|one, next| one.remaining_bytes >= next.remaining_bytes));
    let first = messages.first().expect("a message").remaining_bytes as usize;
    assert!(first > total / 2 && first < total * 2, "{first} announced, {total} sent");
    let [.., data, hash] = messages.as_slice() else { panic!("two messages") };
    assert_eq!((data.remaining_bytes, hash.remaining_bytes, hash.blob.len()), (0, 0, 32));
}

impl Server {
    /// A server on a directory that is there.
    async fn start_on(data: std::path::PathBuf) -> Server {
        let mut server = Server::prepare(SMALL).on(data);
        server.start_again().await;
        server
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_tells_a_sound_directory_from_a_damaged_one() {
    let mut server = Server::start(&[]).await;
    overwrite(&server.channel(), 1, false).await;
    // A stop in order brings it to the database file; what follows is in the log alone.
    server.terminate();
    server.wait().await;
    server.start_again().await;
    overwrite(&server.channel(), 1, false).await;
    let data = server.data();
    let held = sternpost(&["verify"], &[&data]);
    assert_eq!(held.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&held.stderr).contains("another process holds it"), "{held:?}");
    server.kill();
    let line = printed(&["verify"], &[&data]);
    println!("{line}");
    assert!(line.starts_with("sound ") && number(&line, "frames") > 0 && number(&line, "versions") > 0);
    let mut segments: Vec<_> =
        std::fs::read_dir(data.join("log")).expect("the log").map(|entry| entry.expect("a segment").path()).collect();
    segments.sort();
    let newest = segments.last().expect("a segment");
    let mut bytes = std::fs::read(newest).expect("a segment");
    // Within the frames.
    let at = bytes.windows(64).rposition(|window| window.starts_with(b"0 1")).expect("a value");
    *bytes.get_mut(at).expect("it is there") ^= 1;
    std::fs::write(newest, &bytes).expect("it is damaged");
    let damaged = sternpost(&["verify"], &[&data]);
    assert_eq!(damaged.status.code(), Some(1));
    let said = String::from_utf8_lossy(&damaged.stderr).into_owned();
    assert!(said.contains("is damaged") && said.contains("at offset"), "{said}");
    assert_eq!(std::fs::read(newest).expect("a segment"), bytes);

    // What is intact comes out of it, and what is not is named.
    let (out, again) = (server.scratch().join("salvaged"), server.scratch().join("again"));
    let salvage = |out: &Path, data: &Path| sternpost(&["verify", "--salvage"], &[out, data]);
    let salvaged = salvage(&out, &data);
    let said = String::from_utf8_lossy(&salvaged.stderr).into_owned();
    assert!(salvaged.status.success() && said.contains("lost: log") && said.contains("at offset"), "{salvaged:?}");
    let line = String::from_utf8(salvaged.stdout).expect("text");
    println!("{line}");
    assert!(line.starts_with("salvaged revision=") && number(&line, "keys") > 0, "{line}");
    assert!(printed(&["verify"], &[&out]).starts_with("sound "));
    let refused = salvage(&out, &data);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("holds a keyspace already"), "{refused:?}");

    // Whole pages gone: redb may panic over that, the program says what it found.
    let base = out.join("base.redb");
    let mut bytes = std::fs::read(&base).expect("the database file");
    let used: Vec<usize> =
        (8192..bytes.len()).step_by(4096).filter(|at| bytes.get(*at).is_some_and(|b| *b != 0)).collect();
    assert!(used.len() >= 3, "pages in use");
    for at in used.iter().step_by(2) {
        bytes.iter_mut().skip(*at).take(4096).for_each(|byte| *byte = 0);
    }
    std::fs::write(&base, &bytes).expect("it is damaged");
    let damaged = sternpost(&["verify"], &[&out]);
    assert_eq!(damaged.status.code(), Some(1), "{damaged:?}");
    let salvaged = salvage(&again, &out);
    assert!(matches!(salvaged.status.code(), Some(0 | 1)), "{salvaged:?}");
    let said = String::from_utf8_lossy(&salvaged.stderr).into_owned();
    assert!(said.contains("lost: ") || said.contains("damaged"), "{said}");
}
