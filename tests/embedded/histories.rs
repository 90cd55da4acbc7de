//! Many clients of a keyspace on a simulated disk, through power cuts and restarts, written down for the history checker.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use history::{Client, History, Moment, Operation, Range, Request, Scene, Span, Told, Watch};
use storage::fs::sim::{CrashStyle, Fault, FaultKind, Op, SimFs};
use storage::{Environment, Keyspace, Options};

use super::asking::{Waiting, ask, outcome};
use super::environment::{HandClock, Seeded, never_flushing};
use super::viewing::Viewer;
use crate::model::rng::Rng;

/// How often each kind of end came.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ends {
    pub power_cuts: u64,
    pub kills: u64,
    pub failures: u64,
    pub stops: u64,
    /// Cuts while the keyspace was being opened.
    pub while_opening: u64,
}

impl Ends {
    pub fn add(&mut self, other: &Ends) {
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.failures += other.failures;
        self.stops += other.stops;
        self.while_opening += other.while_opening;
    }

    pub fn total(&self) -> u64 {
        self.power_cuts + self.kills + self.failures + self.stops + self.while_opening
    }
}

struct Slot {
    client: Client,
    begun: Option<(Moment, Request, Waiting)>,
}

/// One run: everything but the timing of the keyspace's own threads follows from the seed.
pub struct Run {
    rng: Rng,
    disk: SimFs,
    clock: Arc<HandClock>,
    keyspace: Keyspace,
    opened: u64,
    order: u64,
    slots: Vec<Slot>,
    /// The first is the journal's.
    viewers: Vec<Viewer>,
    journal: usize,
    history: History,
    scene: Scene,
    dead: bool,
    pub ends: Ends,
}

/// Bounds so small that everything happens often.
fn options() -> Options {
    Options {
        recent_bytes: 256 << 10,
        recent_changes: 400,
        segment_bytes: 64 << 10,
        batch_bytes: 4 << 10,
        watch_queue_bytes: 8 << 10,
        ..never_flushing()
    }
}

impl Run {
    /// A fresh keyspace and so many clients.
    pub fn new(seed: u64, clients: u32) -> Run {
        let (disk, clock) = (SimFs::new(), Arc::new(HandClock::default()));
        let keyspace = open(&disk, &clock, seed).expect("it opens");
        let shared = if seed.is_multiple_of(3) { 4 } else { 24 };
        let slots =
            (0..clients).map(|number| Slot { client: Client::new(number, seed, shared), begun: None }).collect();
        let scene = Scene { revision: 1, ttl: (2, 40), ..Scene::default() };
        let (rng, ends) = (Rng::new(seed), Ends::default());
        let mut run = Run {
            rng,
            disk,
            clock,
            keyspace,
            opened: seed,
            order: 0,
            slots,
            viewers: Vec::new(),
            journal: 0,
            history: History::default(),
            scene,
            dead: false,
            ends,
        };
        run.view();
        run
    }

    fn now(&mut self) -> Moment {
        self.order += 1;
        moment(self.order, &self.clock)
    }

    /// Opens the journal's watch where it broke off, and a few streams.
    fn view(&mut self) {
        self.viewers = (0..5).map(|_| Viewer::new(&self.keyspace)).collect();
        let start = self.history.journal.last().map_or(2, |event| event.revision + 1);
        let call = self.now();
        let prev_kv = self.rng.chance(50);
        let (span, told) = (Span::all(), Vec::new());
        let watch = Watch { span, start, no_put: false, no_delete: false, prev_kv, call, cancel_asked: false, told };
        self.journal = self.history.watches.len();
        self.history.watches.push(watch);
        self.viewers[0].create(self.journal, &self.history.watches[self.journal]);
    }

    /// So many steps, ended several times on the way; then everything is waited for. Returns the record.
    pub fn record(mut self, steps: usize, ends: usize) -> (History, Ends) {
        for part in 0..=ends {
            for _ in 0..steps / (ends + 1) {
                self.step();
            }
            if part < ends {
                self.end();
                // Some ends follow one another soon.
                while self.rng.chance(30) {
                    self.end();
                }
            }
        }
        self.finish();
        (self.history, self.ends)
    }

    fn step(&mut self) {
        match self.rng.below(1000) {
            0..560 => self.begin(),
            560..860 => {
                let slot = self.rng.below(self.slots.len());
                self.complete(slot);
            }
            860..978 => {
                let viewer = if self.rng.chance(30) { 0 } else { self.rng.below(self.viewers.len()) };
                self.take(viewer);
            }
            978..986 => self.change_watches(),
            986..989 => {
                let (viewer, of_all) = (self.rng.below(self.viewers.len()), self.rng.chance(50));
                self.viewers[viewer].ask_progress(of_all);
            }
            989..999 => {
                self.clock.advance(Duration::from_millis(self.rng.below(700) as u64));
                self.keyspace.poke();
            }
            _ => {
                // Refused by a keyspace that lost its disk.
                let _ = self.keyspace.flush();
                if self.rng.chance(50) {
                    // Nobody waits for it; a copy that power cuts and stops overtake is given up.
                    drop(self.keyspace.defragment());
                }
            }
        }
    }

    fn begin(&mut self) {
        let slot = self.rng.below(self.slots.len());
        if self.slots[slot].begun.is_some() {
            return self.complete(slot);
        }
        let request = self.slots[slot].client.request(&self.scene);
        let call = self.now();
        let waiting = ask(&self.keyspace, &request);
        let at_once = matches!(request, Request::Range(_));
        self.slots[slot].begun = Some((call, request, waiting));
        if at_once {
            self.complete(slot);
        }
    }

    fn complete(&mut self, slot: usize) {
        let Some((call, request, waiting)) = self.slots[slot].begun.take() else { return };
        let result = waiting();
        self.dead |= result.as_ref().is_err_and(|error| error.is_final());
        let (outcome, back) = (outcome(result), self.now());
        if let history::Outcome::Ok(revision, _) = outcome {
            self.scene.revision = self.scene.revision.max(revision);
            if let Request::Compact(revision) = request {
                self.scene.compacted = self.scene.compacted.max(revision);
            }
        }
        self.slots[slot].client.learn(&request, &outcome);
        self.history.operations.push(Operation { client: slot as u32, call, back, request, outcome });
    }

    fn take(&mut self, viewer: usize) -> bool {
        let (order, clock) = (&mut self.order, &self.clock);
        let before = self.history.watches[self.journal].told.len();
        let did = self.viewers[viewer].take(&mut self.history.watches, || {
            *order += 1;
            moment(*order, clock)
        });
        for (_, told) in &self.history.watches[self.journal].told[before..] {
            if let Told::Events(_, events) = told {
                self.history.journal.extend(events.iter().cloned());
            }
        }
        self.scene.may_compact = self.history.journal.last().map_or(0, |event| event.revision);
        did
    }

    fn change_watches(&mut self) {
        let viewer = 1 + self.rng.below(self.viewers.len() - 1);
        match self.rng.below(8) {
            0 => {
                if let Some(number) = self.viewers[viewer].cancel() {
                    self.history.watches[number].cancel_asked = true;
                }
            }
            1 => self.viewers[viewer] = Viewer::new(&self.keyspace),
            _ if self.viewers[viewer].watches() < 4 => {
                let slot = self.rng.below(self.slots.len());
                let watch = self.slots[slot].client.watch(&self.scene);
                let call = self.now();
                self.history.watches.push(Watch { call, ..watch });
                let number = self.history.watches.len() - 1;
                self.viewers[viewer].create(number, &self.history.watches[number]);
            }
            _ => {}
        }
    }

    /// The process ends in one way or another, and the next one opens what is left.
    fn end(&mut self) {
        let nth = 1 + self.rng.below(80) as u64;
        let kind = self.rng.below(8);
        let fault = match kind {
            0..3 => Some(Fault::new(FaultKind::Freeze, nth)),
            3 => Some(Fault::new(FaultKind::Freeze, 1 + nth / 4).on(Op::Sync)),
            4 => Some(Fault::new(FaultKind::Partial, 1 + nth / 8).on(Op::Sync)),
            5 => Some(Fault::new(FaultKind::Io, 1 + nth / 4).on(Op::Write)),
            _ => None,
        };
        let mut steps = 0;
        while let Some(fault) = &fault
            && !self.dead
        {
            // Again and again: a copy of base in the making survives one.
            if steps % 200 == 0 {
                self.disk.inject(fault.clone());
            }
            steps += 1;
            self.step();
        }
        if kind == 6 {
            self.disk.freeze();
        }
        for slot in 0..self.slots.len() {
            self.complete(slot);
        }
        let killed = self.rng.chance(30);
        self.disk = match kind {
            7 => {
                self.keyspace.close().expect("it closes");
                self.ends.stops += 1;
                self.disk.clone()
            }
            4 | 5 => {
                self.ends.failures += 1;
                self.disk.freeze();
                self.disk.restart()
            }
            _ if killed => {
                self.ends.kills += 1;
                self.disk.restart()
            }
            _ => {
                self.ends.power_cuts += 1;
                self.crashed()
            }
        };
        self.reopen();
        self.view();
    }

    fn crashed(&mut self) -> SimFs {
        let style =
            *self.rng.pick(&[CrashStyle::KeepNone, CrashStyle::KeepAll, CrashStyle::Sectors, CrashStyle::Pages]);
        self.disk.crash(style, self.rng.next())
    }

    /// Opens what is left; now and then the power goes while it does.
    fn reopen(&mut self) {
        self.viewers.clear();
        self.clock.advance(Duration::from_millis(self.rng.below(3000) as u64));
        loop {
            let cut = self.rng.chance(25);
            if cut {
                self.disk.inject(Fault::new(FaultKind::Freeze, 1 + self.rng.below(60) as u64));
            }
            self.opened += 1;
            match open(&self.disk, &self.clock, self.opened << 20) {
                Ok(keyspace) if !self.disk.is_frozen() => {
                    self.disk.clear_faults();
                    self.keyspace = keyspace;
                    break;
                }
                Err(error) if !cut => panic!("it does not open: {error}"),
                _ => {
                    self.ends.while_opening += 1;
                    self.disk = self.crashed();
                }
            }
        }
        self.dead = false;
    }

    /// Waits for everything, lets all watches have all, and reads the store once more.
    fn finish(&mut self) {
        for slot in 0..self.slots.len() {
            self.complete(slot);
        }
        for revision in [0, self.scene.compacted.max(1), self.scene.revision] {
            let request = Request::Range(Range { revision, ..Range::new(Span::all()) });
            let call = self.now();
            let waiting = ask(&self.keyspace, &request);
            self.slots[0].begun = Some((call, request, waiting));
            self.complete(0);
        }
        // Leases may still end: what comes after this is left out.
        let current = self.keyspace.revision().0;
        // A watch over everything that is left, which no other one has seen as a whole.
        let call = self.now();
        let (start, span, told) = (self.scene.compacted.max(2), Span::all(), Vec::new());
        let watch =
            Watch { span, start, no_put: false, no_delete: false, prev_kv: true, call, cancel_asked: false, told };
        self.history.watches.push(watch);
        let number = self.history.watches.len() - 1;
        self.viewers[1].create(number, &self.history.watches[number]);
        // Until everything is there, or is said to have been: then the checker finds what is missing.
        while self.history.journal.last().map_or(1, |event| event.revision) < current && !self.told_of(current) {
            if !self.take(0) {
                self.viewers[0].ask_progress(true);
                std::thread::yield_now();
            }
        }
        for viewer in 0..self.viewers.len() {
            while self.take(viewer) {}
            self.viewers[viewer].ask_progress(true);
            while self.take(viewer) {}
        }
        self.history.end_at(current);
        self.viewers.clear();
        self.keyspace.close().expect("it closes");
    }
}

impl Run {
    /// True if the journal's watch was told that nothing up to a revision is still to come.
    fn told_of(&self, revision: i64) -> bool {
        let told = self.history.watches[self.journal].told.last();
        told.is_some_and(|(_, told)| matches!(told, Told::Progress(reached) if *reached >= revision))
    }
}

fn moment(order: u64, clock: &HandClock) -> Moment {
    Moment { order, ms: storage::Clock::monotonic(clock).as_millis() as u64 }
}

fn open(disk: &SimFs, clock: &Arc<HandClock>, seed: u64) -> Result<Keyspace, storage::Error> {
    let entropy = Arc::new(Seeded::new(seed));
    let environment = Environment { fs: Arc::new(disk.clone()), clock: clock.clone(), entropy };
    Keyspace::open(Path::new("/keyspace"), options(), environment)
}
