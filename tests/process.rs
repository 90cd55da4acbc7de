//! The real binary: killed again and again, stopped in order, refused a start, filled with keys.

mod model;
mod support;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::rng::{Rng, seed, setting};
use model::wire::*;
use model::wire_more::*;
use support::client::{Duplex, unary};
use support::load::{Load, Recorder, Writer};
use support::server::Server;

/// Small bounds, so that flushes run all the time.
const SMALL: &[&str] = &["--recent-changes", "200", "--recent-bytes", "262144"];
const CLIENTS: usize = 8;
const WATCHES: usize = 3;

/// Waits until so many more writes are acknowledged.
async fn acknowledged(load: &Load, more: u64) {
    let target = load.acknowledged.load(Ordering::SeqCst) + more;
    let deadline = Instant::now() + Duration::from_secs(30);
    while load.acknowledged.load(Ordering::SeqCst) < target {
        assert!(Instant::now() < deadline, "the clients do not get on");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_loses_nothing_and_repeats_nothing() {
    let seed = seed();
    let kills = setting("STERNPOST_TEST_KILLS", 50);
    println!("seed={seed}");
    let begun = Instant::now();
    let mut rng = Rng::new(seed);
    let mut server = Server::start(SMALL).await;
    let load = Load::new(server.url(), WATCHES);
    let upto = Arc::new(AtomicI64::new(i64::MAX));
    let watches: Vec<_> = (0..WATCHES).map(|index| {
        let (recorder, upto) = (Recorder::new(&load, index, 2), upto.clone());
        tokio::spawn(async move { recorder.run(&upto).await })
    }).collect();
    let clients: Vec<_> = (0..CLIENTS).map(|client| tokio::spawn(Writer::new(&load, client, seed).run())).collect();
    let mut slowest = Duration::ZERO;
    for kill in 0..kills {
        acknowledged(&load, 20 + rng.below(300) as u64).await;
        server.kill();
        slowest = slowest.max(server.start_again().await);
        if kill == kills / 2 {
            // The whole history is still there: read it again from the first revision on.
            let told = AtomicI64::new(load.told.load(Ordering::SeqCst));
            let again = Recorder::new(&load, usize::MAX, 2).run(&told).await;
            assert!(again.len() as i64 >= told.load(Ordering::SeqCst) - 1);
            load.compacting.store(true, Ordering::SeqCst);
        }
    }
    acknowledged(&load, 50).await;
    load.stop.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.expect("a client ends in order");
    }
    let channel = server.channel();
    let everything = RangeRequest { key: vec![0], range_end: vec![0], ..Default::default() };
    let now: RangeResponse = unary(&channel, "/etcdserverpb.KV/Range", everything).await.expect("the server answers");
    let current = now.header.as_ref().expect("a header").revision;
    upto.store(current, Ordering::SeqCst);
    let mut records = Vec::new();
    for watch in watches {
        records.push(watch.await.expect("a watch ends in order"));
    }
    let ledger = load.ledger.lock().unwrap();
    let model = ledger.verify(&records[0]).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    assert!(records.iter().all(|record| *record == records[0]), "the watches differ");
    assert_eq!(model.revision, current);
    assert_eq!(model.scan(&[0], &[0], current), now.kvs, "what is there now");
    drop(ledger);
    leases_are_there(&load, &server).await;
    let (answered, unknown) = load.ledger.lock().unwrap().counts();
    println!(
        "seed={seed}: {kills} kills, {answered} requests answered, {unknown} not, {current} revisions, slowest start {slowest:?}, {:?} in all",
        begun.elapsed()
    );
    assert!(answered as u64 > kills * 20 && unknown > 0);
}

/// Leases that were granted and not asked to end are there.
async fn leases_are_there(load: &Load, server: &Server) {
    let reply: LeaseLeasesResponse = unary(&server.channel(), "/etcdserverpb.Lease/LeaseLeases", Empty {}).await.expect("the server answers");
    let there: Vec<i64> = reply.leases.iter().map(|lease| lease.id).collect();
    let ledger = load.ledger.lock().unwrap();
    let lost: Vec<i64> = ledger.leases.iter().filter(|(id, ends)| !**ends && !there.contains(id)).map(|(id, _)| *id).collect();
    assert!(lost.is_empty(), "leases {lost:?} are gone");
    assert!(!there.is_empty());
}
