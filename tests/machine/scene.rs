//! A server and its clients, the ends that it is brought to, and what must be true behind each.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tonic::transport::Channel;

use super::phases::{Phase, Tally};
use super::verify;
use super::volume::{Cut, Volume};
use crate::model::rng::Rng;
use crate::model::wire::*;
use crate::model::wire_more::Empty;
use crate::support::client::unary;
use crate::support::crew::{Account, Crew};
use crate::support::server::Server;

/// Bounds so small that parts are flushed and segments removed all the time; nothing is rewritten that was not asked for.
const SMALL: &[&str] =
    &["--recent-changes", "200", "--recent-bytes", "262144", "--segment-bytes", "65536", "--shrink-interval", "0"];
/// How long the system call may take to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// One server, its clients, and what befell it.
pub struct Scene {
    seed: u64,
    rng: Rng,
    server: Server,
    crew: Crew,
    pub tally: Tally,
    /// With one, the power goes whenever the server is killed.
    volume: Option<Volume>,
    pub cuts: u64,
}

impl Scene {
    /// A fresh server at work, on a volume of its own if the power is to be cut.
    pub async fn new(seed: u64, volume: Option<Volume>) -> Scene {
        let mut server = prepare(volume.as_ref());
        server.spawn_traced(None);
        let ended = server.answers_or_ends().await;
        assert!(ended.is_none(), "{ended:?}: {}", server.log());
        let crew = Crew::start(&server, 4, 2, seed);
        crew.load.acknowledged_more(400).await;
        Scene { seed, rng: Rng::new(seed), server, crew, tally: Tally::default(), volume, cuts: 0 }
    }

    /// Ends the work, and judges all of it.
    pub async fn finish(self) -> Account {
        self.crew.finish(&self.server).await
    }

    /// One kill in a phase, or none if the server was through before; then as it is after any other.
    pub async fn round(&mut self, phase: Phase) {
        if phase == Phase::FirstStart {
            return self.first_start().await;
        }
        let trap = self.tally.trap(phase, &mut self.rng);
        match phase {
            Phase::Puts | Phase::Flush | Phase::Trim => {
                self.server.traced().arm(Some(trap));
                self.sprung(None).await;
            }
            Phase::Sweep => {
                self.crew.load.pause().await;
                let (channel, revision) = (self.server.channel(), self.crew.load.recorded_by_all() - 20);
                self.server.traced().arm(Some(trap));
                self.sprung(Some(tokio::spawn(compact(channel, revision)))).await;
            }
            Phase::Rewrite => {
                self.crew.load.pause().await;
                self.server.traced().arm(Some(trap));
                self.sprung(Some(tokio::spawn(defragment(self.server.channel())))).await;
            }
            Phase::Stop => {
                self.server.traced().arm(Some(trap));
                self.server.terminate();
                self.sprung(None).await;
            }
            Phase::FirstStart | Phase::Start | Phase::Recovery => {
                if phase == Phase::Start {
                    self.server.terminate();
                    let status = self.server.wait().await;
                    assert!(status.success(), "seed {}: {status}: {}", self.seed, self.server.log());
                } else {
                    self.server.kill();
                }
                self.crew.load.pause().await;
                self.server.spawn_traced(Some(trap));
                self.server.answers_or_ends().await;
            }
        }
        self.judge(phase);
        self.crew.load.pause().await;
        // Killed again while it recovers, and again.
        while self.rng.chance(40) {
            let trap = self.tally.trap(Phase::Recovery, &mut self.rng);
            self.server.spawn_traced(Some(trap));
            self.server.answers_or_ends().await;
            self.judge(Phase::Recovery);
        }
        self.go_on().await;
    }

    /// Waits until the trap has closed, or for what is not to come any more.
    async fn sprung(&mut self, asked: Option<JoinHandle<()>>) {
        let begun = Instant::now();
        let through = || asked.as_ref().map_or(begun.elapsed() > PATIENCE, JoinHandle::is_finished);
        while self.server.exited().is_none() && !through() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The server has ended, or is ended now; what it leaves is sound.
    fn judge(&mut self, phase: Phase) {
        let Scene { seed, server, tally, .. } = self;
        let status = server.exited();
        let death = server.traced().death();
        tally.saw(phase, &server.traced().counted());
        tally.count(phase, death.as_ref());
        if let (None, Some(status)) = (&death, status) {
            let in_order = phase == Phase::Stop && status.success();
            assert!(in_order, "seed {seed}, {phase:?}: it ended with {status}: {}", server.log());
        }
        server.kill();
        self.cut();
        verify(&self.server, &format_args!("seed {}, {phase:?}, {death:?}", self.seed));
    }

    /// The power goes and comes back, if there is a volume for that; no server runs.
    fn cut(&mut self) {
        if let Some(volume) = &self.volume {
            volume.cut(*self.rng.pick(&Cut::ALL));
            volume.mount_again();
            self.cuts += 1;
        }
    }

    /// Starts the server again, and the clients.
    async fn go_on(&mut self) {
        self.server.spawn_traced(None);
        if let Some(status) = self.server.answers_or_ends().await {
            panic!("seed {}: the server ended with {status}:\n{}", self.seed, self.server.log());
        }
        self.tally.saw(Phase::Recovery, &self.server.traced().counted());
        self.crew.load.paused.store(false, Ordering::SeqCst);
        self.crew.load.acknowledged_more(5).await;
    }

    /// The power goes while the server runs and clients write. It is killed at once, or ends by itself.
    pub async fn cut_under_way(&mut self) {
        self.crew.load.acknowledged_more(5 + self.rng.below(200) as u64).await;
        if self.rng.chance(25) {
            tokio::spawn(defragment(self.server.channel()));
        }
        let volume = self.volume.as_ref().expect("a volume whose power can be cut");
        volume.cut(*self.rng.pick(&Cut::ALL));
        self.cuts += 1;
        if self.rng.chance(50) {
            self.server.kill();
        } else {
            let status = self.server.wait().await;
            assert_eq!(status.code(), Some(1), "seed {}: {}", self.seed, self.server.log());
        }
        volume.mount_again();
        verify(&self.server, &format_args!("seed {}, cut {}", self.seed, self.cuts));
        self.crew.load.pause().await;
        self.go_on().await;
    }

    /// A server of its own is killed while it makes its directory, twice perhaps, and then starts by itself.
    async fn first_start(&mut self) {
        let volume = self.volume.as_ref().map(|_| Volume::create().expect("a second volume"));
        let mut server = prepare(volume.as_ref());
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
            if let Some(volume) = &volume {
                volume.cut(*self.rng.pick(&Cut::ALL));
                volume.mount_again();
                self.cuts += 1;
            }
            self.tally.count(Phase::FirstStart, Some(&death));
            let next = self.tally.trap(Phase::FirstStart, &mut self.rng);
            trap = self.rng.chance(40).then_some(next);
        }
        if trap.is_some() {
            self.tally.count(Phase::FirstStart, None);
        }
        let put = PutRequest { key: b"a".to_vec(), ..Default::default() };
        let reply: PutResponse =
            unary(&server.channel(), "/etcdserverpb.KV/Put", put).await.expect("the server answers");
        assert_eq!(reply.header.expect("a header").revision, 2);
        server.kill();
        verify(&server, &format_args!("seed {}, {trap:?}", self.seed));
    }
}

fn prepare(volume: Option<&Volume>) -> Server {
    let server = Server::prepare(SMALL);
    match volume {
        Some(volume) => server.on(volume.path().join("data")),
        None => server,
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
