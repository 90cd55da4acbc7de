//! A server, its clients and its ends: recorded, then checked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::histories::{Tape, VIEWERS};
use super::server::Server;

/// Clients that write and read.
const CLIENTS: u32 = 12;

/// Records so many answered operations while the server ends and starts again so many times, every fourth time in order; panics
/// if they are not one history.
pub async fn run(seed: u64, operations: u64, ends: u64, arguments: &[&str]) -> history::Report {
    println!("seed={seed}");
    let begun = Instant::now();
    let mut server = Server::start(arguments).await;
    let tape = Arc::new(Tape::new(server.url()));
    let journal = tokio::spawn({
        let tape = tape.clone();
        async move { tape.journal().await }
    });
    let mut others = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        let tape = tape.clone();
        others.spawn(async move { tape.client(number, seed).await });
    }
    for number in 0..VIEWERS {
        let tape = tape.clone();
        others.spawn(async move { tape.viewer(number, seed).await });
    }
    for end in 1..=ends + 1 {
        let deadline = Instant::now() + Duration::from_secs(60);
        while tape.answered.load(Ordering::SeqCst) < operations * end / (ends + 1) {
            assert!(Instant::now() < deadline || operations > 50_000, "the clients do not get on");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if end > ends {
            break;
        }
        if end % 4 == 0 {
            server.terminate();
            server.wait().await;
        } else {
            server.kill();
        }
        server.start_again().await;
    }
    tape.stop.store(true, Ordering::SeqCst);
    while let Some(done) = others.join_next().await {
        done.expect("it ends in order");
    }
    // Leases may still end: the journal is read to where the last read saw it, and what comes later is left out.
    let current = tape.last(5000).await;
    tape.upto.store(current, Ordering::SeqCst);
    journal.await.expect("it ends in order");
    let mut record = tape.take();
    record.end_at(current);
    let options = history::Options { session_monotone: true, prev_kv_always: false };
    let recorded = begun.elapsed();
    let report = history::check(&record, &options).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    println!(
        "seed={seed}: {ends} kills and stops, recorded in {recorded:?}, checked by {:?}: {report:?}",
        begun.elapsed()
    );
    report
}
