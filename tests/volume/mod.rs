//! A small volume fills up under a real server, again and again, and writes come back each time without hands.
//!
//! `STERNPOST_TEST_VOLUME_CYCLES` says how often; it takes root, for a tmpfs of `STERNPOST_TEST_VOLUME_MIB`. `STERNPOST_TEST_VOLUME` names a
//! directory on a volume of another kind instead, which is emptied. Without the first the library does the same on a simulated disk.

mod fixture;
mod simulated;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::model::rng::setting;
use crate::model::wire::*;
use crate::model::wire_more::{LeaseGrantRequest, LeaseGrantResponse, LeaseIdRequest};
use crate::shrinking::{compact, disk_bytes, revision};
use crate::support::bulk::MIB;
use crate::support::client::unary;
use crate::support::server::Server;
use fixture::Volume;

/// Puts of 1 KiB that each cycle must take: a fortieth of a volume of 64 MiB, and more than an alarm that flaps would let through.
const PUTS_MIN: u64 = 1000;
const CLIENTS: u64 = 16;
/// Puts in a transaction.
const BATCH: u64 = 8;
/// How long writes may take to come back.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often; `None` if the real thing is not asked for, or cannot be had.
fn cycles() -> Option<u64> {
    let cycles = setting("STERNPOST_TEST_VOLUME_CYCLES", 0);
    let why_not = match cycles {
        0 => "STERNPOST_TEST_VOLUME_CYCLES is not set",
        _ if Volume::can_be_made() => return Some(cycles),
        _ => "only root mounts a tmpfs",
    };
    println!("NOT RUN on a real volume: {why_not}. The simulated form runs instead.");
    None
}

/// The library's calls are waited for here, which a task of the runtime must not do.
async fn in_small(work: impl FnOnce() + Send + 'static) {
    tokio::task::spawn_blocking(work).await.expect("it ends in order");
}

fn put(key: String, bytes: usize) -> PutRequest {
    PutRequest { key: key.into_bytes(), value: vec![b'.'; bytes], ..Default::default() }
}

/// Writes from many clients until each is refused. Answers how many puts were acknowledged.
async fn fill(server: &Server) -> u64 {
    let puts = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (channel, puts) = (server.channel(), puts.clone());
        clients.spawn(async move {
            for batch in 0_u64.. {
                let put = |n| TxnOp::Put(put(format!("/fill/{client:02}/{:08}", batch * BATCH + n), 1024));
                let success = (0..BATCH).map(|n| RequestOp { request: Some(put(n)) }).collect();
                let txn = TxnRequest { success, ..Default::default() };
                match unary::<_, TxnResponse>(&channel, "/etcdserverpb.KV/Txn", txn).await {
                    Ok(_) => puts.fetch_add(BATCH, Ordering::SeqCst),
                    Err(status) => return refused(&status),
                };
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        done.expect("a client ends in order");
    }
    puts.load(Ordering::SeqCst)
}

fn refused(status: &Status) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(status.message(), "etcdserver: mvcc: database space exceeded");
}

/// Deletes everything, at once or key by key.
async fn delete(channel: &Channel, one_by_one: bool) {
    let everything = |limit| RangeRequest { key: vec![0], range_end: vec![0], limit, ..Default::default() };
    if one_by_one {
        loop {
            let mut page = everything(2000);
            page.keys_only = true;
            let found: RangeResponse = unary(channel, "/etcdserverpb.KV/Range", page).await.expect("an answer");
            let mut running = JoinSet::new();
            for kv in found.kvs {
                let (channel, request) = (channel.clone(), DeleteRangeRequest { key: kv.key, ..Default::default() });
                running.spawn(async move {
                    unary::<_, DeleteRangeResponse>(&channel, "/etcdserverpb.KV/DeleteRange", request).await
                });
            }
            if running.is_empty() {
                return;
            }
            while let Some(done) = running.join_next().await {
                assert_eq!(done.expect("it ends in order").expect("a deletion finds room").deleted, 1);
            }
        }
    }
    let request = DeleteRangeRequest { key: vec![0], range_end: vec![0], ..Default::default() };
    let deleted: Result<DeleteRangeResponse, _> = unary(channel, "/etcdserverpb.KV/DeleteRange", request).await;
    deleted.expect("a deletion finds room");
}

/// Waits until a put is taken again.
async fn writes_come_back(server: &mut Server, channel: &Channel) -> Duration {
    let begun = Instant::now();
    loop {
        assert!(server.exited().is_none(), "the server ended:\n{}", server.log());
        match unary::<_, PutResponse>(channel, "/etcdserverpb.KV/Put", put("/back".to_owned(), 10)).await {
            Ok(_) => return begun.elapsed(),
            Err(status) => refused(&status),
        }
        assert!(begun.elapsed() < PATIENCE, "nothing may be written:\n{}", server.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Fills up, deletes, compacts, and waits for writes to come back, so many times. `between` is done before each.
async fn run(volume: &Volume, server: &mut Server, cycles: u64, between: impl AsyncFn(&Volume, &Server)) {
    let channel = server.channel();
    let (mut least, mut most, mut slowest, mut total) = (u64::MAX, 0, Duration::ZERO, 0);
    let begun = Instant::now();
    for cycle in 0..cycles {
        between(volume, server).await;
        let puts = fill(server).await;
        let sizes = ["base.redb", "ballast", "base.new"].map(|name| disk_bytes(server, name) >> 10);
        if cycle < 3 || cycle % 20 == 0 {
            println!(
                "cycle {cycle}: {puts} puts; KiB of base, ballast, copy: {sizes:?}; free: {}",
                volume.free() >> 10
            );
        }
        assert!(puts >= PUTS_MIN, "cycle {cycle}: {puts} puts before the refusal:\n{}", server.log());
        delete(&channel, cycle % 10 == 9).await;
        let upto = revision(&channel).await;
        let request = CompactionRequest { revision: upto, physical: false };
        let _: HeaderResponse = unary(&channel, "/etcdserverpb.KV/Compact", request).await.expect("it is compacted");
        slowest = slowest.max(writes_come_back(server, &channel).await);
        (least, most, total) = (least.min(puts), most.max(puts), total + puts);
    }
    println!(
        "{cycles} cycles in {:?}: {least} to {most} puts in one, {total} in all; writes were back after {slowest:?} at most",
        begun.elapsed()
    );
    assert!(server.exited().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_volume_takes_writes_again_after_each_deletion() {
    let Some(cycles) = cycles() else { return in_small(|| simulated::cycles(false)).await };
    let volume = Volume::new();
    let mut server = volume.server(&[]).await;
    run(&volume, &mut server, cycles, async |_, _| ()).await;
    server.kill();
    server.start_again().await;
    assert!(fill(&server).await >= PUTS_MIN);
}

/// Everything but the ballast, which the server may still be filling up.
async fn others_take_the_rest(volume: &Volume, server: &Server) {
    let (begun, whole) = (Instant::now(), (volume.total() / 2).min(64 * MIB));
    // A few free blocks are too few to be taken for the ballast.
    while disk_bytes(server, "ballast") < whole / 10 * 9 && volume.free() > MIB / 4 {
        assert!(begun.elapsed() < PATIENCE, "the ballast is not filled up");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    volume.fill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_does_so_too_while_others_take_whatever_is_free() {
    let Some(cycles) = cycles() else { return in_small(|| simulated::cycles(true)).await };
    let volume = Volume::new();
    let mut server = volume.server(&[]).await;
    run(&volume, &mut server, cycles, async |volume, server| others_take_the_rest(volume, server).await).await;
    server.kill();
    server.start_again().await;
    assert!(fill(&server).await >= PUTS_MIN);
}

/// One lease with a key; most are revoked, every eighth runs out.
async fn lease(channel: Channel, number: u64) -> Result<(), Status> {
    let request = LeaseGrantRequest { ttl: 2, ..Default::default() };
    let granted: LeaseGrantResponse = unary(&channel, "/etcdserverpb.Lease/LeaseGrant", request).await?;
    let attached = PutRequest { lease: granted.id, ..put(format!("/leases/{number}"), 200) };
    let _: PutResponse = unary(&channel, "/etcdserverpb.KV/Put", attached).await?;
    if !number.is_multiple_of(8) {
        let request = LeaseIdRequest { id: granted.id };
        let _: HeaderResponse = unary(&channel, "/etcdserverpb.Lease/LeaseRevoke", request).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_of_leases_that_come_and_go_never_fills_the_volume() {
    let Some(cycles) = cycles() else { return in_small(simulated::leases).await };
    // A hundred cycles stand for a day of a lease a second.
    let leases = 864 * cycles;
    let volume = Volume::new();
    let server = volume.server(&[]).await;
    let channel = server.channel();
    others_take_the_rest(&volume, &server).await;
    let begun = Instant::now();
    let mut running = JoinSet::new();
    let mut largest = 0;
    for number in 0..leases {
        if running.len() >= 64 {
            let done: Result<Result<(), Status>, _> = running.join_next().await.expect("one runs");
            done.expect("it ends in order").unwrap_or_else(|status| panic!("{status:?}:\n{}", server.log()));
        }
        running.spawn(lease(channel.clone(), number));
        // As an apiserver does it every five minutes.
        if number % 2000 == 1999 {
            compact(&channel, revision(&channel).await).await;
            largest = largest.max(disk_bytes(&server, "base.redb"));
        }
    }
    while let Some(done) = running.join_next().await {
        done.expect("it ends in order").unwrap_or_else(|status| panic!("{status:?}:\n{}", server.log()));
    }
    println!("{leases} leases in {:?}, the database file had {} KiB at most", begun.elapsed(), largest >> 10);
}
