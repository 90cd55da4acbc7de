//! Limits on open files and on memory: the server serves within them or ends with a clear line, and nothing is lost.

use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal, prlimit};
use tonic::transport::Channel;

use super::probe::Probes;
use super::verify;
use crate::model::wire::*;
use crate::support::client::unary;
use crate::support::server::Server;

/// Small bounds, so that files are opened and memory is taken all the time.
const SMALL: &[&str] = &["--recent-changes", "1000", "--recent-bytes", "1048576", "--segment-bytes", "262144"];

/// A death that is clear: a line that says why, and an exit code or the signal of a failed allocation. Where even the program does not fit,
/// the system says so.
fn clear(server: &Server, status: ExitStatus, limit: &dyn std::fmt::Display) {
    let log = server.log();
    if status.code() == Some(127) && log.contains("error while loading shared libraries") {
        return;
    }
    let by_itself = status.code() == Some(1) || status.signal() == Some(Signal::ABORT.as_raw());
    let why = log.lines().any(|line| line.starts_with("sternpost: ") || line.contains("memory allocation of"))
        || log.contains("the keyspace failed");
    assert!(by_itself && why, "{limit}: {status}: {log}");
}

/// A put on a connection of its own.
async fn put(server: &Server) -> Result<PutResponse, tonic::Status> {
    let put = PutRequest { key: b"a".to_vec(), ..Default::default() };
    unary(&server.channel(), "/etcdserverpb.KV/Put", put).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_few_descriptors_refuses_to_start_or_outlives_more_connections_than_it_can_take() {
    let (mut refused, mut served) = (0, 0);
    for limit in [8, 32, 165, 166, 200] {
        let mut server = Server::prepare(SMALL);
        server.limit(Some(format!("ulimit -n {limit}")));
        server.spawn();
        if let Some(status) = server.answers_or_ends().await {
            assert_eq!(status.code(), Some(1), "{limit} descriptors: {}", server.log());
            assert_eq!(server.log().lines().count(), 1, "{limit} descriptors: {}", server.log());
            println!("{limit} descriptors: {}", server.log().trim());
            refused += 1;
            continue;
        }
        let probes = Probes::start(&server, 2).await;
        let address = server.url().trim_start_matches("http://").to_owned();
        let crowd: Vec<_> =
            (0..2 * limit).map(|_| TcpStream::connect(&address).expect("the backlog is long")).collect();
        // Segments and parts come and go meanwhile.
        probes.acknowledged(3000).await;
        assert_eq!(server.exited(), None, "{limit} descriptors: {}", server.log());
        drop(crowd);
        put(&server).await.expect("there is room again");
        server.terminate();
        let status = server.wait().await;
        assert_eq!(status.code(), Some(0), "{limit} descriptors: {}", server.log());
        let outcome = probes.finish().await;
        verify(&server, &format_args!("{limit} descriptors"));
        server.limit(None);
        server.start_again().await;
        outcome.is_there(&server).await;
        served += 1;
    }
    println!("{refused} refused to start, {served} served");
    assert!(refused > 0 && served > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_open_nothing_more_serves_or_ends_clearly() {
    let mut server = Server::start(SMALL).await;
    let probes = Probes::start(&server, 4).await;
    probes.acknowledged(100).await;
    let open =
        std::fs::read_dir(format!("/proc/{}/fd", server.pid().as_raw_nonzero())).expect("it runs").count() as u64;
    let limit = Rlimit { current: Some(open), maximum: Some(open) };
    prlimit(Some(server.pid()), Resource::Nofile, limit).expect("the process is ours");
    let address = server.url().trim_start_matches("http://").to_owned();
    let crowd: Vec<_> = (0..200).map(|_| TcpStream::connect(&address).expect("the backlog is long")).collect();
    let begun = Instant::now();
    let mut status = None;
    while status.is_none() && begun.elapsed() < Duration::from_secs(3) {
        status = server.exited();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(crowd);
    match status {
        Some(status) => clear(&server, status, &"no descriptor is left"),
        None => server.kill(),
    }
    println!("no descriptor left: {status:?}");
    let outcome = probes.finish().await;
    verify(&server, &"no descriptor is left");
    server.start_again().await;
    outcome.is_there(&server).await;
}

/// Reads everything again and again, until it is refused.
async fn read_on(channel: Channel) {
    let all = RangeRequest { key: vec![0], range_end: vec![0], ..Default::default() };
    while unary::<_, RangeResponse>(&channel, "/etcdserverpb.KV/Range", all.clone()).await.is_ok() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_little_memory_serves_or_ends_clearly() {
    let (mut refused, mut died, mut served) = (0, 0, 0);
    // With less the system cannot even load the program.
    for mib in [32, 48, 80, 128, 256, 1024, 4096] {
        let mut server = Server::prepare(SMALL);
        server.limit(Some(format!("ulimit -v {}", mib * 1024)));
        server.spawn();
        if let Some(status) = server.answers_or_ends().await {
            clear(&server, status, &format_args!("{mib} MiB"));
            refused += 1;
            continue;
        }
        let probes = Probes::start_with(&server, 4, 32 << 10).await;
        let readers: Vec<_> = (0..8).map(|_| tokio::spawn(read_on(server.channel()))).collect();
        if probes.acknowledged_or_refused(200).await {
            served += 1;
            server.kill();
        } else {
            died += 1;
            let status = server.wait().await;
            clear(&server, status, &format_args!("{mib} MiB"));
        }
        let outcome = probes.finish().await;
        for reader in readers {
            reader.await.expect("it ends in order");
        }
        verify(&server, &format_args!("{mib} MiB"));
        server.limit(None);
        server.start_again().await;
        let there = outcome.is_there(&server).await;
        println!("{mib} MiB: {there} puts there");
    }
    println!("{refused} refused to start, {died} died, {served} served");
    assert!(refused > 0 && served > 0);
}
