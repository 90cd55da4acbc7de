//! The server is killed at exactly one of its system calls on files: before it happens, or after.

use std::time::Instant;

use super::phases::Phase;
use super::scene::Scene;
use crate::model::rng::{seed, setting};
use crate::support::tracer::Moment;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_at_any_system_call_loses_nothing_and_starts_by_itself() {
    let seed = seed();
    let kills = setting("STERNPOST_TEST_SYSCALL_KILLS", 12);
    super::replay(seed, "SYSCALL_KILLS", kills, "any_system_call");
    let begun = Instant::now();
    let mut scene = Scene::new(seed, None).await;
    let mut rounds = 0;
    while scene.tally.kills(|_, _, _| true) < kills {
        for phase in Phase::ALL {
            scene.round(phase).await;
        }
        rounds += 1;
        assert!(rounds < 4 + kills, "seed {seed}: {}", scene.tally);
    }
    let tally = std::mem::take(&mut scene.tally);
    let account = scene.finish().await;
    println!(
        "machine: {tally}, seed={seed}; {} requests answered, {} not, {} revisions, {:?} in all",
        account.answered,
        account.unknown,
        account.revisions,
        begun.elapsed()
    );
    if kills >= 100 {
        for moment in [Moment::Entry, Moment::Exit] {
            let killed = tally.kills(|_, _, at| at == moment);
            assert!(killed >= kills / 4, "seed {seed}: {killed} at the {moment:?}: {tally}");
        }
        for phase in Phase::ALL {
            let killed = tally.kills(|of, _, _| of == phase);
            assert!(killed >= kills / 50, "seed {seed}: {killed} in {phase:?}: {tally}");
        }
        for call in ["fallocate", "fdatasync", "fsync", "ftruncate", "mkdir", "openat", "pwrite64", "rename", "unlink"]
        {
            assert!(tally.kills(|_, of, _| of == call) > 0, "seed {seed}: none at {call}: {tally}");
        }
    }
}
