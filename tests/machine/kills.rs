//! The server is killed at exactly one of its system calls on files: before it happens, or after.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tonic::transport::Channel;

use super::phases::{Phase, Tally};
use super::verify;
use crate::model::rng::{Rng, seed, setting};
use crate::model::wire::*;
use crate::model::wire_more::Empty;
use crate::support::client::unary;
use crate::support::crew::Crew;
use crate::support::server::Server;
use crate::support::tracer::Moment;

/// Bounds so small that parts are flushed and segments removed all the time; nothing is rewritten that was not asked for.
const SMALL: &[&str] =
    &["--recent-changes", "200", "--recent-bytes", "262144", "--segment-bytes", "65536", "--shrink-interval", "0"];
/// How long the system call may take to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// One server, its clients, and the kills.
struct Scene {
    seed: u64,
    rng: Rng,
    server: Server,
    crew: Crew,
    tally: Tally,
}

impl Scene {
    /// Waits until the trap has closed, or for what is not to come any more.
    async fn sprung(&mut self, patience: Duration) {
        let begun = Instant::now();
        while self.server.exited().is_none() && begun.elapsed() < patience {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// One kill in a phase, or none if the server was through before; then as it is after any other.
    async fn round(&mut self, phase: Phase) {
        if phase == Phase::FirstStart {
            return self.first_start().await;
        }
        let trap = self.tally.trap(phase, &mut self.rng);
        match phase {
            Phase::Puts | Phase::Flush | Phase::Trim => {
                self.server.traced().arm(Some(trap));
                self.sprung(PATIENCE).await;
            }
            Phase::Sweep => {
                self.crew.load.pause().await;
                let (channel, revision) = (self.server.channel(), self.crew.load.recorded_by_all() - 20);
                self.server.traced().arm(Some(trap));
                let compacting = tokio::spawn(compact(channel, revision));
                while !compacting.is_finished() && self.server.exited().is_none() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            Phase::Rewrite => {
                self.crew.load.pause().await;
                self.server.traced().arm(Some(trap));
                let rewriting = tokio::spawn(defragment(self.server.channel()));
                while !rewriting.is_finished() && self.server.exited().is_none() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            Phase::Stop => {
                self.server.traced().arm(Some(trap));
                self.server.terminate();
                self.sprung(PATIENCE).await;
            }
            Phase::FirstStart | Phase::Start | Phase::Recovery => {
                match phase {
                    Phase::Start => {
                        self.server.terminate();
                        let status = self.server.wait().await;
                        assert!(status.success(), "seed {}: {status}: {}", self.seed, self.server.log());
                    }
                    _ => self.server.kill(),
                }
                self.server.spawn_traced(Some(trap));
                self.server.answers_or_ends().await;
            }
        }
        self.judge(phase);
        // Killed again while it recovers, and again.
        while self.rng.chance(40) {
            let trap = self.tally.trap(Phase::Recovery, &mut self.rng);
            self.server.spawn_traced(Some(trap));
            self.server.answers_or_ends().await;
            self.judge(Phase::Recovery);
        }
        self.server.spawn_traced(None);
        self.answers().await;
        self.tally.saw(Phase::Recovery, &self.server.traced().counted());
        self.crew.load.paused.store(false, Ordering::SeqCst);
        self.crew.load.acknowledged_more(5).await;
    }

    /// The server has ended, or is ended now; the directory is sound.
    fn judge(&mut self, phase: Phase) {
        let Scene { seed, server, tally, .. } = self;
        let status = server.exited();
        let death = server.traced().death();
        tally.saw(phase, &server.traced().counted());
        match &death {
            Some(death) => tally.count(phase, death),
            None => tally.missed += 1,
        }
        if let (None, Some(status)) = (&death, status) {
            let in_order = phase == Phase::Stop && status.success();
            assert!(in_order, "seed {seed}, {phase:?}: it ended with {status}: {}", server.log());
        }
        server.kill();
        verify(server, &format_args!("seed {seed}, {phase:?}, {death:?}"));
    }

    async fn answers(&mut self) {
        if let Some(status) = self.server.answers_or_ends().await {
            panic!("seed {}: the server ended with {status}:\n{}", self.seed, self.server.log());
        }
    }

    /// A server of its own is killed while it makes its directory, twice perhaps, and then starts by itself.
    async fn first_start(&mut self) {
        let mut server = Server::prepare(SMALL);
        let mut trap = Some(self.tally.trap(Phase::FirstStart, &mut self.rng));
        loop {
            server.spawn_traced(trap);
            let status = server.answers_or_ends().await;
            self.tally.saw(Phase::FirstStart, &server.traced().counted());
            server.traced().arm(None);
            let Some(death) = server.traced().death() else {
                assert!(status.is_none(), "seed {}, {trap:?}: {status:?}:\n{}", self.seed, server.log());
                break;
            };
            server.kill();
            self.tally.count(Phase::FirstStart, &death);
            let next = self.tally.trap(Phase::FirstStart, &mut self.rng);
            trap = self.rng.chance(40).then_some(next);
        }
        self.tally.missed += u64::from(trap.is_some());
        let put = PutRequest { key: b"a".to_vec(), ..Default::default() };
        let reply: PutResponse =
            unary(&server.channel(), "/etcdserverpb.KV/Put", put).await.expect("the server answers");
        assert_eq!(reply.header.expect("a header").revision, 2);
        server.kill();
        verify(&server, &format_args!("seed {}, {trap:?}", self.seed));
    }
}

async fn compact(channel: Channel, revision: i64) {
    let request = CompactionRequest { revision, physical: true };
    // Refused if the revision is compacted already.
    drop(unary::<_, HeaderResponse>(&channel, "/etcdserverpb.KV/Compact", request).await);
}

async fn defragment(channel: Channel) {
    drop(unary::<_, Empty>(&channel, "/etcdserverpb.Maintenance/Defragment", Empty {}).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_at_any_system_call_loses_nothing_and_starts_by_itself() {
    let seed = seed();
    let kills = setting("STERNPOST_TEST_SYSCALL_KILLS", 12);
    println!("seed={seed}");
    let begun = Instant::now();
    let mut server = Server::prepare(SMALL);
    server.spawn_traced(None);
    let ended = server.answers_or_ends().await;
    assert!(ended.is_none(), "{}", server.log());
    let crew = Crew::start(&server, 4, 2, seed);
    crew.load.compacting.store(true, Ordering::SeqCst);
    let mut scene = Scene { seed, rng: Rng::new(seed), server, crew, tally: Tally::default() };
    scene.crew.load.acknowledged_more(400).await;
    let mut rounds = 0;
    while scene.tally.kills(|_, _, _| true) < kills {
        for phase in Phase::ALL {
            scene.round(phase).await;
        }
        rounds += 1;
        assert!(rounds < 4 + kills, "seed {seed}: {}", scene.tally);
    }
    let Scene { server, crew, tally, .. } = scene;
    let account = crew.finish(&server).await;
    println!(
        "seed={seed}: {tally}; {} requests answered, {} not, {} revisions, {:?} in all",
        account.answered,
        account.unknown,
        account.revisions,
        begun.elapsed()
    );
    for moment in [Moment::Entry, Moment::Exit] {
        let killed = tally.kills(|_, _, at| at == moment);
        assert!(killed >= kills / 4, "seed {seed}: {killed} at the {moment:?}: {tally}");
    }
    if kills >= 100 {
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
