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
    /// How many system calls a start took, the last time that one was let through.
    start: usize,
}

impl Scene {
    /// The number of the system call, and the moment.
    fn choose(&mut self, phase: Phase) -> (u64, Moment) {
        let length = match phase {
            Phase::Start | Phase::Recovery => self.start,
            _ => phase.length(),
        };
        let moment = *self.rng.pick(&[Moment::Entry, Moment::Exit]);
        (1 + self.rng.below(length) as u64, moment)
    }

    /// Waits until the trap has closed, or for what is not to come any more.
    async fn sprung(&mut self, patience: Duration) {
        let begun = Instant::now();
        while self.server.exited().is_none() && begun.elapsed() < patience {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// One kill in a phase, or none if the server was through before; then as it is after any other.
    async fn round(&mut self, phase: Phase) {
        let (number, moment) = self.choose(phase);
        let trap = phase.trap(number, moment);
        match phase {
            Phase::FirstStart => return self.first_start(number, moment).await,
            Phase::Puts | Phase::Flush | Phase::Trim => {
                self.server.traced().arm(trap);
                self.sprung(PATIENCE).await;
            }
            Phase::Sweep => {
                self.crew.load.pause().await;
                let (channel, revision) = (self.server.channel(), self.crew.load.recorded_by_all() - 20);
                self.server.traced().arm(trap);
                let compacting = tokio::spawn(compact(channel, revision));
                while !compacting.is_finished() && self.server.exited().is_none() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            Phase::Rewrite => {
                self.crew.load.pause().await;
                self.server.traced().arm(trap);
                let rewriting = tokio::spawn(defragment(self.server.channel()));
                while !rewriting.is_finished() && self.server.exited().is_none() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            Phase::Stop => {
                self.server.traced().arm(trap);
                self.server.terminate();
                self.sprung(PATIENCE).await;
            }
            Phase::Start | Phase::Recovery => {
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
            let (number, moment) = self.choose(Phase::Recovery);
            self.server.spawn_traced(Some(Phase::Recovery.trap(number, moment)));
            self.server.answers_or_ends().await;
            self.judge(Phase::Recovery);
        }
        self.server.spawn_traced(None);
        self.answers().await;
        self.start = usize::try_from(self.server.traced().sites()).expect("small").max(1);
        self.crew.load.paused.store(false, Ordering::SeqCst);
        self.crew.load.acknowledged_more(5).await;
    }

    /// The server has ended, or is ended now; the directory is sound.
    fn judge(&mut self, phase: Phase) {
        let Scene { seed, server, tally, .. } = self;
        let status = server.exited();
        let death = server.traced().death();
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
    async fn first_start(&mut self, number: u64, moment: Moment) {
        let mut server = Server::prepare(SMALL);
        let mut trap = Some(Phase::FirstStart.trap(number, moment));
        loop {
            server.spawn_traced(trap);
            let Some(status) = server.answers_or_ends().await else { break };
            let Some(death) = server.traced().death() else {
                panic!("seed {}, {trap:?}: it ended with {status}:\n{}", self.seed, server.log())
            };
            self.tally.count(Phase::FirstStart, &death);
            let (number, moment) = self.choose(Phase::FirstStart);
            trap = self.rng.chance(40).then(|| Phase::FirstStart.trap(number, moment));
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
    let start = Phase::Start.length();
    let mut scene = Scene { seed, rng: Rng::new(seed), server, crew, tally: Tally::default(), start };
    scene.crew.load.acknowledged_more(400).await;
    let mut rounds = 0;
    while scene.tally.kills() < kills {
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
    assert!(tally.kills() >= kills, "seed {seed}: {tally}");
    assert!(tally.at(Moment::Entry) >= kills / 4 && tally.at(Moment::Exit) >= kills / 4, "seed {seed}: {tally}");
    if kills >= 100 {
        for phase in Phase::ALL {
            assert!(tally.of(phase) >= kills / 50, "seed {seed}, {phase:?}: {tally}");
        }
        for call in ["fdatasync", "fsync", "mkdir", "openat", "pwrite64", "rename", "unlink"] {
            assert!(tally.calls().contains(&call), "seed {seed}, {call}: {tally}");
        }
    }
}
