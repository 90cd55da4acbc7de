//! One life of a keyspace: opened on a disk that records, led through random steps by turns, so that all of it follows from a seed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use storage::fs::sim::SimFs;
use storage::{Alarm, AlarmKind, Environment, Error, Keyspace, LeaseId, Options, Pending, Shrunk, Tuning};

use super::super::driver::{Failure, run, send};
use super::super::environment::{HandClock, Seeded, never_flushing};
use super::over::{Mark, Over};
use super::world::{World, Wrong};
use crate::model::expected::Expected;
use crate::model::generate::Generator;
use crate::model::op::{Refusal, Reply, Request};
use crate::model::rng::Rng;
use crate::model::state::Model;
use crate::model::wire::PutRequest;
use crate::model::wire_more::LeaseGrantRequest;

/// Where it lives.
pub const DIR: &str = "/keyspace";

/// The lease that runs out within a life.
const SHORT: i64 = 99;
const SHORT_TTL: i64 = 5;

/// Bounds so small that everything happens often; parts are made when they are asked for.
pub fn options() -> Options {
    Options {
        cache_bytes: 32 << 10,
        segment_bytes: 12 << 10,
        tuning: Tuning { sweep_rows: 3..=3, by_turns: true },
        ..never_flushing()
    }
}

/// Opens the keyspace on a disk.
pub fn open(disk: &SimFs, clock: &Arc<HandClock>, seed: u64, options: Options) -> Result<Keyspace, Error> {
    let environment =
        Environment { fs: Arc::new(disk.clone()), clock: clock.clone(), entropy: Arc::new(Seeded::new(seed)) };
    Keyspace::open(Path::new(DIR), options, environment)
}

/// A keyspace in the middle of its history.
pub struct Life {
    pub disk: SimFs,
    pub clock: Arc<HandClock>,
    pub keyspace: Keyspace,
    /// Before the first step, and after each.
    pub worlds: Vec<Arc<World>>,
    pub marks: Vec<Mark>,
    rng: Rng,
    serial: u64,
    rewrites: Vec<Pending<Shrunk>>,
    /// What the step that is begun leads to.
    begun: Option<World>,
}

impl Life {
    /// Opens a keyspace that must hold one of these.
    pub fn begin(disk: &SimFs, clock: &Arc<HandClock>, allowed: &[Arc<World>], seed: u64) -> Result<Life, Wrong> {
        let keyspace = open(disk, clock, seed, options())?;
        keyspace.rest();
        let world = World::find(allowed, &keyspace)?;
        let mut life = Life {
            disk: disk.clone(),
            clock: clock.clone(),
            keyspace,
            worlds: vec![world],
            marks: Vec::new(),
            rng: Rng::new(seed),
            serial: seed % 1000,
            rewrites: Vec::new(),
            begun: None,
        };
        life.mark(Mark::Opened);
        Ok(life)
    }

    pub fn world(&self) -> &World {
        self.worlds.last().expect("there is one before the first step")
    }

    fn mark(&mut self, mark: Mark) {
        self.disk.mark(self.marks.len() as u64);
        self.marks.push(mark);
    }

    /// So many random steps. Errors: an answer that the model does not give; what ended the keyspace.
    pub fn steps(&mut self, count: usize) -> Result<(), Wrong> {
        (0..count).try_for_each(|_| self.step())
    }

    /// One random step.
    pub fn step(&mut self) -> Result<(), Wrong> {
        match self.rng.below(100) {
            0..46 => self.request(),
            46..52 => self.batch(),
            52..58 => self.large_put(),
            58..60 => self.alarm(),
            60..63 => self.expiry(),
            63..71 => {
                self.keyspace.freeze();
                Ok(())
            }
            71..97 => self.turn().map(drop),
            _ => self.rewrite(),
        }
    }

    /// Turns until nothing is left to do.
    pub fn settle(&mut self) -> Result<(), Wrong> {
        // Twice: what came after a part that waits becomes one only then.
        for _ in 0..2 {
            self.keyspace.freeze();
            while self.turn()?.is_some() {}
        }
        Ok(())
    }

    /// A turn of the maintenance thread; what it did.
    pub fn turn(&mut self) -> Result<Option<&'static str>, Wrong> {
        self.mark(Mark::Turn);
        let piece = self.keyspace.give_turn();
        self.mark(Mark::Turned(piece.unwrap_or("nothing")));
        Ok(piece)
    }

    /// Has base rewritten, with requests and flushes on the way; not always to the end.
    pub fn rewrite(&mut self) -> Result<(), Wrong> {
        self.settle()?;
        self.rewrites.push(self.keyspace.defragment());
        self.keyspace.rest();
        for _ in 0..self.rng.below(25) {
            match self.rng.below(10) {
                0 | 1 => self.request()?,
                2 => self.keyspace.freeze(),
                _ => drop(self.turn()?),
            }
        }
        Ok(())
    }

    fn generate(&mut self, wanted: impl Fn(&Request) -> bool) -> Request {
        let model = &self.worlds.last().expect("there is one").model;
        loop {
            let request = Generator { rng: &mut self.rng, model, serial: &mut self.serial }.request();
            if wanted(&request) {
                return request;
            }
        }
    }

    fn request(&mut self) -> Result<(), Wrong> {
        let writes = |request: &Request| match request {
            Request::Grant(grant) => grant.id != 0,
            Request::Put(_) | Request::DeleteRange(_) | Request::Txn(_) => true,
            Request::Compact(_) | Request::Revoke(_) | Request::KeepAlive(_) => true,
            _ => false,
        };
        let request = self.generate(writes);
        self.ask(&[request])
    }

    /// Several requests in one frame: all of it or nothing survives.
    fn batch(&mut self) -> Result<(), Wrong> {
        let number = 2 + self.rng.below(3);
        let mut requests = Vec::new();
        for _ in 0..number {
            requests.push(self.generate(|request| matches!(request, Request::Put(_) | Request::DeleteRange(_))));
        }
        self.ask(&requests)
    }

    /// Makes files grow.
    fn large_put(&mut self) -> Result<(), Wrong> {
        let key = format!("large/{}", self.rng.below(6)).into_bytes();
        self.serial += 1;
        let most = *self.rng.pick(&[1000, 3000, 10_000, 40_000]);
        let value = vec![self.serial as u8; most / 2 + self.rng.below(most / 2)];
        self.ask(&[Request::Put(PutRequest { key, value, ..PutRequest::default() })])
    }

    /// Puts requests and compares the answers with the model's.
    pub fn ask(&mut self, requests: &[Request]) -> Result<(), Wrong> {
        let mut world = self.world().clone();
        let mut expected = Vec::new();
        for request in requests {
            // What the model leaves open is not asked.
            let Some((after, outcome)) = world.after(request) else { return Ok(()) };
            world = after;
            expected.push(outcome);
        }
        self.begin_step(world);
        let mut answers = Vec::new();
        if let [request] = requests {
            answers.push(run(&self.keyspace, request));
        } else {
            self.keyspace.hold(true);
            let waiting: Vec<_> = requests.iter().map(|request| send(&self.keyspace, request)).collect();
            self.keyspace.hold(false);
            answers.extend(waiting.into_iter().map(|waiting| waiting()));
        }
        let failed = answers.iter().filter(|answer| matches!(answer, Err(Failure::By(error)) if error.is_final()));
        let failed = failed.count();
        let in_frame = answers.iter().filter(|answer| !matches!(answer, Err(Failure::Before(_)))).count();
        if failed != 0 && failed != in_frame {
            return Err(Wrong::Answer(format!("{failed} of {in_frame} requests in one frame failed")));
        }
        for (index, answer) in answers.into_iter().enumerate() {
            check(&requests[index], &expected[index], answer)?;
        }
        self.end_step()
    }

    fn begin_step(&mut self, world: World) {
        self.begun = Some(world);
        self.mark(Mark::Begun(self.worlds.len() - 1));
    }

    fn end_step(&mut self) -> Result<(), Wrong> {
        self.mark(Mark::Answered(self.worlds.len() - 1));
        self.keyspace.rest();
        let mut world = self.begun.take().expect("a step is ended that was begun");
        let learned = world.learn(&self.keyspace);
        // It was acknowledged, whatever else cannot be read.
        self.worlds.push(Arc::new(world));
        learned
    }

    fn alarm(&mut self) -> Result<(), Wrong> {
        self.set_alarm(true)?;
        self.set_alarm(false)
    }

    fn set_alarm(&mut self, raised: bool) -> Result<(), Wrong> {
        let alarm = Alarm { member: self.keyspace.status().member, kind: AlarmKind::NoSpace };
        let alarms = if raised { vec![alarm] } else { Vec::new() };
        self.begin_step(World { alarms, ..self.world().clone() });
        self.keyspace.set_alarm(alarm, raised).wait()?;
        self.end_step()
    }

    /// A lease with a key runs out.
    fn expiry(&mut self) -> Result<(), Wrong> {
        if !self.world().model.leases.contains_key(&SHORT) {
            self.ask(&[Request::Grant(LeaseGrantRequest { ttl: SHORT_TTL, id: SHORT })])?;
            let put = PutRequest { key: b"short".to_vec(), lease: SHORT, ..PutRequest::default() };
            return self.ask(&[Request::Put(put)]);
        }
        self.clock.advance(Duration::from_secs(SHORT_TTL as u64 + 1));
        let Some((world, _)) = self.world().after(&Request::Revoke(SHORT)) else { return Ok(()) };
        self.begin_step(world);
        self.keyspace.poke();
        self.keyspace.rest();
        if self.keyspace.leases().contains(&LeaseId(SHORT)) {
            self.keyspace.barrier().map_err(|_| Error::OutcomeUnknown)?;
            return Err(Wrong::Answer("the lease has run out and is still there".into()));
        }
        self.end_step()
    }

    /// The states that may be found once it has ended with this error: a command that was not begun leaves no trace.
    pub fn allowed_after(&self, error: &Error) -> Vec<Arc<World>> {
        let last = self.worlds.last().expect("there is one before the first step").clone();
        let refused = matches!(error, Error::Stopped | Error::NoSpace);
        let begun = self.begun.clone().filter(|_| !refused).map(|world| {
            // Nobody was told its position and digest.
            Arc::new(World { applied: last.applied + 1, digest: None, marked: None, ..world })
        });
        std::iter::once(last).chain(begun).collect()
    }

    /// Leaves the alarm behind that an earlier life raised.
    pub fn clear_alarm(&mut self) -> Result<(), Wrong> {
        if self.world().alarms.is_empty() { Ok(()) } else { self.set_alarm(false) }
    }

    /// Ends it where it is, as a kill would. Errors: a rewrite failed although the disk did not.
    pub fn end(self) -> Result<Over, Wrong> {
        let tape = self.disk.take_tape().expect("it was recorded");
        drop(self.keyspace);
        for rewrite in self.rewrites {
            rewrite.wait().map(drop).or_else(|error| if error == Error::Stopped { Ok(()) } else { Err(error) })?;
        }
        Ok(Over { tape, worlds: self.worlds, marks: self.marks, clock: self.clock })
    }
}

fn check(request: &Request, expected: &Result<Expected, Refusal>, answer: Result<Reply, Failure>) -> Result<(), Wrong> {
    let answer = match answer {
        Err(Failure::By(error)) if error.is_final() || matches!(error, Error::NoSpace | Error::Stopped) => {
            return Err(Wrong::Error(error));
        }
        Err(failure) => Err(failure.refusal()),
        Ok(reply) => Ok(reply),
    };
    Expected::check(expected, &answer).map_err(|wrong| Wrong::Answer(format!("{request:?}: {wrong}")))
}

/// The shortest TTL that the model grants is longer than what a life takes.
const _: () = assert!(Model::MIN_TTL <= SHORT_TTL);
