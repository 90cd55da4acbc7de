//! The real binary: killed again and again, stopped in order, refused a start, filled with keys.

mod configured;
mod machine;
mod model;
mod refusing;
mod shrinking;
mod snapshots;
mod support;
mod tls;
mod volume;

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use model::op::{Reply, Request, header};
use model::rng::{Rng, seed, setting};
use model::state::Model;
use model::wire::*;
use model::wire_more::*;
use support::bulk::{MIB, load_keys, scan};
use support::client::{Duplex, unary};
use support::crew::{Account, Crew};
use support::ledger::{Ledger, value};
use support::recorder::Recorder;
use support::server::Server;

/// Small bounds, so that flushes run all the time.
const SMALL: &[&str] = &["--recent-changes", "200", "--recent-bytes", "262144"];
const CLIENTS: usize = 8;
const WATCHES: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_loses_nothing_and_repeats_nothing() {
    let seed = seed();
    let kills = setting("STERNPOST_TEST_KILLS", 50);
    println!("seed={seed}");
    let begun = Instant::now();
    let mut rng = Rng::new(seed);
    let mut server = Server::start(SMALL).await;
    let crew = Crew::start(&server, CLIENTS, WATCHES, seed);
    let mut slowest = Duration::ZERO;
    for kill in 0..kills {
        crew.load.acknowledged_more(20 + rng.below(300) as u64).await;
        server.kill();
        slowest = slowest.max(server.start_again().await);
        if kill == kills / 2 {
            // The whole history is still there: read it again from the first revision on.
            let told = AtomicI64::new(crew.load.told.load(Ordering::SeqCst));
            let again = Recorder::new(&crew.load, usize::MAX, 2).run(&told).await;
            assert!(again.len() as i64 >= told.load(Ordering::SeqCst) - 1);
            crew.load.compacting.store(true, Ordering::SeqCst);
        }
    }
    crew.load.acknowledged_more(50).await;
    let Account { answered, unknown, revisions } = crew.finish(&server).await;
    println!(
        "seed={seed}: {kills} kills, {answered} requests answered, {unknown} not, {revisions} revisions, slowest start {slowest:?}, {:?} in all",
        begun.elapsed()
    );
    assert!(answered > kills * 20 && unknown > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_many_clients_see_of_a_server_through_kills_and_stops_is_one_history() {
    let seed = seed();
    let operations = setting("STERNPOST_TEST_SERVER_OPERATIONS", 8_000);
    let report = support::history_run::run(seed, operations, setting("STERNPOST_TEST_ENDS", 8), SMALL).await;
    assert!(report.answered >= operations && report.watch_events >= operations / 2, "seed {seed}: {report:?}");
    let unknown = report.unknown_happened + report.unknown_not_found;
    assert!(unknown > 0 && report.progress > 0 && report.refused_revisions > 0, "seed {seed}: {report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_asked_to_end_ends_in_order_with_streams_open() {
    let mut server = Server::start(&[]).await;
    let channel = server.channel();
    let mut watch = Duplex::<WatchRequest, WatchResponse>::open(&channel, "/etcdserverpb.Watch/Watch");
    let create = WatchCreate { key: vec![0], range_end: vec![0], ..Default::default() };
    watch.send(WatchRequest { union: Some(WatchUnion::Create(create)) });
    assert!(watch.next().await.expect("an answer").expect("no error").created);
    let mut keep_alive =
        Duplex::<LeaseIdRequest, LeaseKeepAliveResponse>::open(&channel, "/etcdserverpb.Lease/LeaseKeepAlive");
    keep_alive.send(LeaseIdRequest { id: 1 });
    assert_eq!(keep_alive.next().await.expect("an answer").expect("no error").ttl, 0);
    let put = PutRequest { key: b"a".to_vec(), value: b"b".to_vec(), ..Default::default() };
    let _: PutResponse = unary(&channel, "/etcdserverpb.KV/Put", put).await.expect("the server answers");
    let begun = Instant::now();
    server.terminate();
    let status = server.wait().await;
    assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
    assert_eq!(status.code(), Some(0), "{}", server.log());
    server.start_again().await;
    let get = RangeRequest { key: b"a".to_vec(), ..Default::default() };
    let reply: RangeResponse =
        unary(&server.channel(), "/etcdserverpb.KV/Range", get).await.expect("the server answers");
    assert_eq!((reply.count, reply.header.map(|header| header.revision)), (1, Some(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_error_ends_the_server_at_once_and_loses_nothing_acknowledged() {
    // The database file outgrows the limit; the segments of the log do not.
    let mut server = Server::prepare(&["--segment-bytes", "1048576", "--recent-changes", "1000"]);
    server.limit_files(Some(8 * 2048));
    server.start_again().await;
    let channel = server.endpoint().connect().await.expect("a connection");
    let key = |n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes().to_vec();
    let mut acknowledged = 0;
    let (refused, begun) = loop {
        let put = PutRequest { key: key(acknowledged), value: vec![7; 1000], ..Default::default() };
        match unary::<_, PutResponse>(&channel, "/etcdserverpb.KV/Put", put).await {
            Ok(_) => acknowledged += 1,
            Err(status) => break (status, Instant::now()),
        }
        assert!(acknowledged < 100_000, "the limit was never met");
    };
    // Or by the client itself, if its request met a connection that was closed already.
    let from_the_server = std::error::Error::source(&refused).is_none();
    assert!(!from_the_server || refused.code() == tonic::Code::Unavailable, "{refused:?}");
    let status = server.wait().await;
    println!("{acknowledged} puts acknowledged, ended {:?} after the first refusal", begun.elapsed());
    assert_eq!(status.code(), Some(1), "{}", server.log());
    server.limit_files(None);
    server.start_again().await;
    let channel = server.endpoint().connect().await.expect("a connection");
    let all = RangeRequest { key: vec![0], range_end: vec![0], count_only: true, ..Default::default() };
    let count = unary::<_, RangeResponse>(&channel, "/etcdserverpb.KV/Range", all).await.expect("a count").count;
    let acknowledged = i64::from(acknowledged);
    assert!((acknowledged..=acknowledged + 1).contains(&count), "{count} keys, {acknowledged} acknowledged");
    let last = RangeRequest { key: key(u32::try_from(acknowledged - 1).expect("small")), ..Default::default() };
    let kvs = unary::<_, RangeResponse>(&channel, "/etcdserverpb.KV/Range", last).await.expect("a read").kvs;
    assert_eq!(kvs.len(), 1, "the last one that was acknowledged");
}

#[tokio::test]
async fn files_that_were_cut_to_nothing_do_not_become_a_fresh_store() {
    let mut server = Server::start(SMALL).await;
    let channel = server.channel();
    for index in 0..300 {
        let put = PutRequest { key: format!("k{index}").into_bytes(), value: vec![b'v'; 100], ..Default::default() };
        let _: PutResponse = unary(&channel, "/etcdserverpb.KV/Put", put).await.expect("the server answers");
    }
    server.terminate();
    server.wait().await;
    // The ballast holds nothing.
    let files: Vec<_> = files_below(&server.data()).into_iter().filter(|file| !file.ends_with("ballast")).collect();
    let largest =
        files.iter().max_by_key(|file| std::fs::metadata(file).map_or(0, |metadata| metadata.len())).expect("a file");
    std::fs::write(largest, b"").expect("it is cut");
    server.spawn();
    let status = server.wait().await;
    assert!(!status.success(), "it started over {}: {}", largest.display(), server.log());
}

/// Every key, as soon as the server answers, or what it says instead; `None` if it ended.
async fn everything_or_the_end(server: &mut Server) -> Option<Result<Vec<KeyValue>, tonic::Status>> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let all = RangeRequest { key: vec![0], range_end: vec![0], ..Default::default() };
    while Instant::now() < deadline {
        if server.exited().is_some() {
            return None;
        }
        if let Ok(channel) = server.endpoint().connect().await {
            match unary::<_, RangeResponse>(&channel, "/etcdserverpb.KV/Range", all.clone()).await {
                // The connection went with the process, or the process will follow.
                Err(status) if status.code() != tonic::Code::DataLoss => {}
                answer => return Some(answer.map(|response| response.kvs)),
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("neither an answer nor an end:\n{}", server.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_in_the_database_file_is_never_served() {
    let mut server = Server::start(SMALL).await;
    let channel = server.channel();
    for index in 0..2000 {
        let put = PutRequest { key: format!("k{index}").into_bytes(), value: vec![b'v'; 100], ..Default::default() };
        let _: PutResponse = unary(&channel, "/etcdserverpb.KV/Put", put).await.expect("the server answers");
    }
    let right = everything_or_the_end(&mut server).await.expect("it lives").expect("an answer");
    server.terminate();
    server.wait().await;
    let file = server.data().join("base.redb");
    let good = std::fs::read(&file).expect("the database file");
    let mut rng = Rng::new(seed());
    let (mut served, mut refused, mut ended) = (0, 0, 0);
    for _ in 0..24 {
        let mut bad = good.clone();
        let page = rng.below(bad.len() / 4096);
        bad[page * 4096..page * 4096 + 512].fill(0);
        std::fs::write(&file, &bad).expect("it is writable");
        server.spawn();
        match everything_or_the_end(&mut server).await {
            Some(Ok(kvs)) => {
                assert!(kvs == right, "page {page}: {} keys, {} are right", kvs.len(), right.len());
                served += 1;
            }
            Some(Err(_)) => refused += 1,
            None => {
                let status = server.wait().await;
                assert_eq!(status.code(), Some(1), "page {page}: {}", server.log());
                let why: Vec<_> =
                    server.log().lines().filter(|line| line.starts_with("sternpost: ")).map(str::to_owned).collect();
                assert_eq!(why.len(), 1, "page {page}: {}", server.log());
                ended += 1;
            }
        }
        server.kill();
    }
    println!("{served} served what is right, {refused} refused the read, {ended} ended");
    assert!(refused + ended > 0, "no damage was met");
}

fn files_below(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_cost_neither_start_nor_memory() {
    // The full size takes minutes: it is asked for by the environment.
    let keys = setting("STERNPOST_TEST_KEYS", 100_000);
    let mut server = Server::start(&[]).await;
    let begun = Instant::now();
    load_keys(&server, 0, keys).await;
    let loaded = begun.elapsed();
    let after_load = server.resident_bytes();
    server.kill();
    let ready = server.start_again().await;
    let (frames, bytes) = (server.logged("frames_replayed"), server.logged("bytes_read"));
    let opened = server.resident_bytes();
    // New keys fill what is kept in memory, then everything is read.
    load_keys(&server, keys, keys + 50_000).await;
    let begun = Instant::now();
    let found = scan(&server).await;
    let (scanned, full) = (begun.elapsed(), server.resident_bytes());
    println!(
        "{keys} keys loaded in {loaded:?} ({} MiB resident), ready after {ready:?} ({frames:?} frames, {bytes:?} bytes, {} MiB resident), \
         {found} keys scanned in {scanned:?} ({} MiB resident)",
        after_load / MIB,
        opened / MIB,
        full / MIB
    );
    assert_eq!(found, keys + 50_000);
    let frames = frames.expect("the server logs the frames that it replays");
    let bytes = bytes.expect("the server logs the bytes that it reads");
    // The tail is bounded by what memory may hold. A frame of 256 KiB has some 900 of these puts, and each may have to look at three pages
    // of base for what the key was: neither bound knows how many keys there are.
    let most = 64 * MIB + frames * 900 * 3 * 4096;
    assert!(frames <= 1_000 && bytes <= most, "{frames} frames, {bytes} bytes, {most} allowed");
    assert!(opened < 256 * MIB, "{} MiB after the start", opened / MIB);
    assert!(full < 256 * MIB, "{} MiB after a scan", full / MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_any_length_takes_little_memory() {
    const KEYS: u64 = 12_000;
    const VALUE_BYTES: usize = 10_000;
    // What is kept in memory has to be full before, or it would be counted.
    let server = Server::start(&["--recent-bytes", "4194304", "--cache-bytes", "4194304"]).await;
    let channel = server.channel();
    for number in 0..KEYS {
        let value = format!("{number:08}").into_bytes().repeat(VALUE_BYTES / 8);
        let put = PutRequest { key: format!("k{number:08}").into_bytes(), value, ..Default::default() };
        let _: PutResponse = unary(&channel, "/etcdserverpb.KV/Put", put).await.expect("the server answers");
    }
    assert_eq!(scan(&server).await, KEYS);
    server.forget_peak();
    let before = server.resident_bytes();
    let all = RangeRequest { key: vec![0], range_end: vec![0], ..Default::default() };
    let reply: RangeResponse = unary(&channel, "/etcdserverpb.KV/Range", all).await.expect("the server answers");
    let growth = server.peak_bytes().saturating_sub(before);
    println!("{KEYS} keys of {VALUE_BYTES} bytes in one reply: {} MiB before, {} MiB more", before / MIB, growth / MIB);
    assert_eq!((reply.count, reply.more, reply.kvs.len() as u64), (KEYS as i64, false, KEYS));
    for (number, kv) in reply.kvs.iter().enumerate() {
        let right = format!("{number:08}").into_bytes();
        assert!(kv.key == [b"k".as_slice(), &right].concat() && kv.value == right.repeat(VALUE_BYTES / 8), "{number}");
    }
    assert!(growth < 64 * MIB, "{} MiB for a list", growth / MIB);
}

/// What one client wrote, and what a watch recorded of it.
fn small_history() -> (Ledger, Vec<(i64, Vec<Event>)>) {
    let (mut ledger, mut model, mut record) = (Ledger::default(), Model::new(), Vec::new());
    for number in 1..=5 {
        let put = PutRequest { key: b"a".to_vec(), value: value((0, number)), ..Default::default() };
        ledger.ask((0, number), Request::Put(put.clone()), None);
        model.apply(&Request::Put(put)).expect("it is valid");
        ledger.answer((0, number), Reply::Put(PutResponse { header: header(model.revision), prev_kv: None }));
        let events = model.events(&[0], &[0], model.revision).pop().expect("it was just made").1;
        record.push((model.revision, events.into_iter().map(|event| Event { prev_kv: None, ..event }).collect()));
    }
    (ledger, record)
}

#[test]
fn the_ledger_notices_what_is_lost_repeated_or_altered() {
    let (ledger, record) = small_history();
    ledger.verify(&record).expect("it is all there");
    ledger.verify(&record[..4]).expect_err("the last is lost");
    let mut hole = record.clone();
    hole.remove(2);
    ledger.verify(&hole).expect_err("one is lost");
    let mut twice = record.clone();
    twice.push((7, record[4].1.clone()));
    ledger.verify(&twice).expect_err("one happened twice");
    let mut altered = record.clone();
    altered[1].1[0].kv.as_mut().expect("a key").version += 1;
    ledger.verify(&altered).expect_err("a version is wrong");
    let (mut stale, record) = small_history();
    stale.read(3, b"a".to_vec(), record[0].1[0].kv.clone());
    stale.verify(&record).expect_err("a read is stale");
}
