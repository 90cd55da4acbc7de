//! The disk fails under the server: it says so, ends, and after a restart everything that was acknowledged is there.

use std::time::Instant;

use tonic::Code;

use super::probe::{Health, Probes};
use super::verify;
use super::volume::Volume;
use crate::model::rng::setting;
use crate::support::bulk::MIB;
use crate::support::server::Server;

/// Small bounds, so that the disk is at work all the time.
const SMALL: &[&str] = &["--recent-changes", "2000", "--recent-bytes", "1048576", "--segment-bytes", "262144"];

/// Clients write until a disk fails that `fail` breaks and `mend` mends.
async fn the_disk_fails(what: &str, volume: &Volume, fail: impl FnOnce(), mend: impl FnOnce()) {
    let mut server = Server::prepare(SMALL).on(volume.path().join("data"));
    server.start_again().await;
    let health = Health::watch(&server).await;
    let probes = Probes::start(&server, 8).await;
    probes.acknowledged(500).await;
    let broken = Instant::now();
    fail();
    let status = server.wait().await;
    let gone = Instant::now();
    let outcome = probes.finish().await;
    let told = health.finish().await;
    assert_eq!(told.statuses, [Health::SERVING, Health::NOT_SERVING], "{}", server.log());
    let (unhealthy, late) = told.ended.expect("it was told");
    late.expect_err("nothing is taken any more");
    println!(
        "machine: {what}: {} puts acknowledged, refused {:?} after the fault, not serving {:?} and gone {:?} after the first refusal",
        outcome.acknowledged.iter().sum::<u64>(),
        outcome.first_refusal.duration_since(broken),
        unhealthy.duration_since(outcome.first_refusal),
        gone.duration_since(outcome.first_refusal),
    );
    assert_eq!(status.code(), Some(1), "{}", server.log());
    assert_eq!(server.log().matches("the keyspace failed").count(), 1, "one clear line: {}", server.log());
    let mut in_flight = 0;
    for refusal in &outcome.refusals {
        // Or by the client itself, if its request met a connection that was closed already.
        if std::error::Error::source(refusal).is_none() {
            assert_eq!(refusal.code(), Code::Unavailable, "{refusal:?}");
            in_flight += 1;
        }
    }
    assert!(in_flight > 0, "nobody was told: {:?}", outcome.refusals);
    mend();
    verify(&server, &what);
    server.start_again().await;
    outcome.is_there(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_system_that_turns_read_only_ends_the_server_and_loses_nothing_acknowledged() {
    let what = "read-only file system";
    let Some(volume) = super::volume(what, setting("STERNPOST_TEST_DISK_FAULTS", 0), Volume::create) else { return };
    // What the kernel does by itself when it meets an error in the structure of the file system.
    let trigger = format!("/sys/fs/ext4/{}/trigger_fs_error", volume.device());
    let fail = || std::fs::write(trigger, "a test").expect("root may do that");
    the_disk_fails(what, &volume, fail, || volume.mount_again()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_writes_ends_the_server_and_loses_nothing_acknowledged() {
    let what = "failing disk";
    let create = || Volume::create_on_small_disk(48 * MIB);
    let Some(volume) = super::volume(what, setting("STERNPOST_TEST_DISK_FAULTS", 0), create) else { return };
    let filler = volume.disk().join("filler");
    // The file system has room; what it writes back to fresh blocks of its disk fails.
    let fail = || {
        let mut file = std::fs::File::create(&filler).expect("there is room");
        let full = std::io::copy(&mut std::io::repeat(1), &mut file).expect_err("the disk is small");
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    };
    let mend = || {
        std::fs::remove_file(&filler).expect("it is there");
        volume.mount_again();
    };
    the_disk_fails(what, &volume, fail, mend).await;
}
