//! The server is stopped for longer than leases live and watches wait, and goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::probe::Probes;
use crate::model::wire::*;
use crate::model::wire_more::*;
use crate::support::client::{Duplex, unary};
use crate::support::server::Server;

/// How long the server stands still.
const STILL: Duration = Duration::from_millis(3_500);
/// How often an idle watch is told its progress.
const PROGRESS: &[&str] = &["--watch-progress-notify-interval", "500ms"];

type Watch = Duplex<WatchRequest, WatchResponse>;

/// A lease with a key, a watch over that, and when it was last asked to live.
struct Lease {
    id: i64,
    ttl: i64,
    asked: Instant,
    watch: Watch,
}

impl Lease {
    async fn grant(server: &Server, id: i64, ttl: i64) -> Lease {
        let (channel, asked) = (server.channel(), Instant::now());
        let grant = LeaseGrantRequest { ttl, id };
        let reply: LeaseGrantResponse =
            unary(&channel, "/etcdserverpb.Lease/LeaseGrant", grant).await.expect("it is granted");
        assert_eq!(reply.ttl, ttl);
        let key = format!("leased/{id}").into_bytes();
        let watch = watch(server, WatchCreate { key: key.clone(), ..Default::default() }).await;
        let put = PutRequest { key, lease: id, ..Default::default() };
        let _: PutResponse = unary(&channel, "/etcdserverpb.KV/Put", put).await.expect("the server answers");
        Lease { id, ttl, asked, watch }
    }

    /// Waits for its key to go: never before the lease has ended.
    async fn ends(&mut self) {
        while !next(&mut self.watch).await.events.iter().any(|event| event.r#type == 1) {}
        let lived = self.asked.elapsed();
        println!("a lease of {} s ended {lived:?} after it was last asked for", self.ttl);
        assert!(lived >= Duration::from_secs(self.ttl as u64), "a lease of {} s lived {lived:?}", self.ttl);
    }
}

async fn watch(server: &Server, create: WatchCreate) -> Watch {
    let mut watch = Watch::open(&server.channel(), "/etcdserverpb.Watch/Watch");
    watch.send(WatchRequest { union: Some(WatchUnion::Create(create)) });
    assert!(next(&mut watch).await.created);
    watch
}

async fn next(watch: &mut Watch) -> WatchResponse {
    let message = tokio::time::timeout(Duration::from_secs(60), watch.next()).await.expect("in time");
    message.expect("the stream lives").expect("no error")
}

/// Waits until the whole process stands still.
async fn stop(server: &Server) {
    server.signal(Signal::STOP);
    let stat = format!("/proc/{}/stat", server.pid().as_raw_nonzero());
    while !std::fs::read_to_string(&stat).expect("the process is there").contains(") T ") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Takes down the keys of all changes, each in a later revision than the one before, until the stream ends.
async fn record(mut watch: Watch, told: Arc<AtomicU64>) -> Vec<Blob> {
    let (mut keys, mut last) = (Vec::new(), 0);
    while let Some(Ok(message)) = watch.next().await {
        for kv in message.events.into_iter().filter_map(|event| event.kv) {
            assert!(kv.mod_revision > last, "{} behind {last}", kv.mod_revision);
            last = kv.mod_revision;
            keys.push(kv.key);
        }
        told.store(keys.len() as u64, Ordering::SeqCst);
    }
    keys
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_loses_nothing_and_ends_no_lease_early() {
    let mut server = Server::start(PROGRESS).await;
    let mut idle =
        watch(&server, WatchCreate { key: b"idle".to_vec(), progress_notify: true, ..Default::default() }).await;
    let every_probe = WatchCreate { key: b"probe/".to_vec(), range_end: b"probe0".to_vec(), ..Default::default() };
    let told = Arc::new(AtomicU64::new(0));
    let record = tokio::spawn(record(watch(&server, every_probe).await, told.clone()));
    let probes = Probes::start(&server, 4).await;
    probes.acknowledged(100).await;
    // Two end while nothing moves, of which one is to be kept alive, and one later.
    let short = Lease::grant(&server, 1, 2).await;
    let mut kept = Lease::grant(&server, 2, 2).await;
    let long = Lease::grant(&server, 3, 6).await;
    stop(&server).await;
    let begun = Instant::now();
    let channel = server.channel();
    let mut keep_alive =
        Duplex::<LeaseIdRequest, LeaseKeepAliveResponse>::open(&channel, "/etcdserverpb.Lease/LeaseKeepAlive");
    keep_alive.send(LeaseIdRequest { id: kept.id });
    let put = PutRequest { key: b"meanwhile".to_vec(), ..Default::default() };
    let put = tokio::spawn(async move { unary::<_, PutResponse>(&channel, "/etcdserverpb.KV/Put", put).await });
    tokio::time::sleep(STILL).await;
    assert!(!put.is_finished(), "it stands still");
    server.signal(Signal::CONT);
    let meanwhile = put.await.expect("it ends in order").expect("it is answered in the end");
    println!("stood still for {:?}", begun.elapsed());
    // It may have been too late; if it was not, the lease lives on from there.
    let reply = keep_alive.next().await.expect("an answer").expect("no error");
    println!("the lease of {} s that was kept alive meanwhile has {} s", kept.ttl, reply.ttl);
    if reply.ttl > 0 {
        assert_eq!(reply.ttl, kept.ttl);
        kept.asked = begun;
    }
    for mut lease in [short, kept, long] {
        lease.ends().await;
    }
    // What it was told before is read first; then progress comes again.
    let revision = meanwhile.header.expect("a header").revision;
    while next(&mut idle).await.header.expect("a header").revision < revision {}
    let acknowledged = probes.count();
    while told.load(Ordering::SeqCst) < acknowledged {
        assert!(!record.is_finished(), "the watch ended");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.terminate();
    assert_eq!(server.wait().await.code(), Some(0), "{}", server.log());
    let outcome = probes.finish().await;
    server.start_again().await;
    let there = outcome.is_there(&server).await;
    let keys = record.await.expect("it ends in order");
    outcome.were_told(&keys);
    println!("{acknowledged} puts acknowledged before the end, {} told, {there} there", keys.len());
}
