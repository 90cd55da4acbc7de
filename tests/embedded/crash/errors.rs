//! The n-th operation of each kind fails, for every n: nobody is told that something is done which is not, and after a restart all is consistent.

use std::collections::BTreeMap;
use std::sync::Arc;

use storage::fs::sim::{CrashStyle, Fault, FaultKind, Op, SimFs};
use storage::{Error, Key, Put, PutLease, PutValue};

use super::super::environment::HandClock;
use super::life::{Life, open, options};
use super::run::Stop;
use super::world::{World, Wrong};
use crate::model::rng::Rng;

const OPS: [Op; 15] = [
    Op::Write,
    Op::Sync,
    Op::Read,
    Op::SetLen,
    Op::Allocate,
    Op::Rename,
    Op::Remove,
    Op::SyncDir,
    Op::Create,
    Op::Open,
    Op::List,
    Op::Metadata,
    Op::FreeBytes,
    Op::CreateDir,
    Op::Lock,
];

/// Steps before the disk fails, and while it may.
const STEPS_BEFORE: usize = 25;
const STEPS: usize = 16;

/// What was tried.
#[derive(Debug, Default)]
pub struct Tally {
    /// Halves of scripts.
    pub scripts: u64,
    /// Errors that struck.
    pub errors: u64,
    /// By kind of operation and of error.
    pub kinds: BTreeMap<String, u64>,
    /// By what the caller learned.
    pub told: BTreeMap<&'static str, u64>,
    /// Disks that were looked at afterwards.
    pub images: u64,
    /// Commands whose outcome was unknown that had happened, and that had not.
    pub happened: u64,
    pub had_not: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.scripts += other.scripts;
        self.errors += other.errors;
        other.kinds.iter().for_each(|(name, count)| *self.kinds.entry(name.clone()).or_default() += count);
        other.told.iter().for_each(|(name, count)| *self.told.entry(name).or_default() += count);
        self.images += other.images;
        self.happened += other.happened;
        self.had_not += other.had_not;
    }
}

/// Half of the errors of one script, at every so many operations of each kind, or the one error that is asked for. An even seed and the odd one
/// after it are of the same script.
pub fn script(seed: u64, every: u64, only: Option<u64>, tally: &mut Tally) -> Result<(), Stop> {
    let (disk, clock) = (SimFs::new(), Arc::new(HandClock::default()));
    let begin = || {
        let mut life = Life::begin(&disk, &clock, &[Arc::new(World::new())], seed / 2)?;
        life.steps(STEPS_BEFORE)?;
        Ok(life.world().clone())
    };
    let world = begin().map_err(|wrong| Stop::new(seed, 0, "before any error".into(), wrong))?;
    let world = Arc::new(world);
    let mut rng = Rng::new(seed);
    for (index, series) in all_series().enumerate() {
        if only.is_none() && index as u64 % 2 != seed % 2 {
            continue;
        }
        let first = index as u64 * NUMBERS;
        let mut number = first + 1 + rng.below(every as usize) as u64;
        if let Some(only) = only {
            if only / NUMBERS != index as u64 {
                continue;
            }
            number = only;
        }
        loop {
            let mut case = Case { seed, rng: Rng::new(seed ^ number), clock: &clock, world: &world, tally };
            let place = |wrong| Stop::new(seed, number, format!("{series:?}, number {}", number - first), wrong);
            if !case.run(&disk.restart(), series.fault(number - first)).map_err(place)? || only.is_some() {
                break;
            }
            *tally.kinds.entry(format!("{:?} {:?}", series.op, series.kind)).or_default() += 1;
            number += every;
        }
    }
    tally.scripts += 1;
    Ok(())
}

/// About the errors that there are in a script.
pub const EVERY_ERROR: u64 = 4500;

/// More than a script has operations of one kind.
const NUMBERS: u64 = 100_000;

/// The errors of one kind, at each operation of one kind.
#[derive(Debug)]
struct Series {
    op: Op,
    kind: FaultKind,
    lasting: bool,
}

impl Series {
    fn fault(&self, nth: u64) -> Fault {
        let fault = Fault::new(self.kind, nth).on(self.op);
        if self.lasting { fault.lasting() } else { fault }
    }
}

fn all_series() -> impl Iterator<Item = Series> {
    let kinds = |op| {
        let partial = matches!(op, Op::Write | Op::Sync).then_some(FaultKind::Partial);
        [FaultKind::Io, FaultKind::NoSpace].into_iter().chain(partial)
    };
    let of_op = move |op| kinds(op).flat_map(move |kind| [false, true].map(|lasting| Series { op, kind, lasting }));
    OPS.into_iter().flat_map(of_op)
}

/// One run into one error.
struct Case<'a> {
    seed: u64,
    rng: Rng,
    clock: &'a Arc<HandClock>,
    world: &'a Arc<World>,
    tally: &'a mut Tally,
}

impl Case<'_> {
    /// True if the error struck; then what it left was looked at.
    fn run(&mut self, disk: &SimFs, fault: Fault) -> Result<bool, Wrong> {
        disk.inject(fault);
        let (allowed, told) = match Life::begin(disk, self.clock, std::slice::from_ref(self.world), self.seed / 2 + 1) {
            Err(Wrong::Error(error)) => (vec![self.world.clone()], Some(error)),
            Err(wrong) => return Err(wrong),
            Ok(mut life) => {
                let told = match live(&mut life) {
                    Ok(()) => None,
                    Err(Wrong::Error(error)) => Some(error),
                    Err(wrong) => return Err(wrong),
                };
                let allowed = self.ended(&life, told.as_ref())?;
                (allowed, told)
            }
        };
        if !disk.has_failed() {
            return told.map_or(Ok(false), |error| Err(Wrong::Error(error)));
        }
        disk.clear_faults();
        self.tally.errors += 1;
        *self.tally.told.entry(told.as_ref().map_or("nothing", name)).or_default() += 1;
        self.look(disk, &allowed)?;
        Ok(true)
    }

    /// What is said and shown after the error. Which states may be found on the disk.
    fn ended(&mut self, life: &Life, told: Option<&Error>) -> Result<Vec<Arc<World>>, Wrong> {
        let Some(error) = told else { return Ok(vec![Arc::new(life.world().clone())]) };
        let mut allowed = life.allowed_after(error);
        if matches!(error, Error::NoSpace) {
            // A refusal: it goes on, maybe with an alarm in the log that nobody waited for.
            life.keyspace.rest();
            let status = life.keyspace.status();
            let (applied, alarms) = (status.applied.0, status.alarms);
            let after = World { applied, alarms, digest: None, marked: None, ..life.world().clone() };
            life.world().check_content(&life.keyspace, &mut self.rng).or_else(error_is_fine)?;
            allowed.push(Arc::new(after));
            return Ok(allowed);
        }
        if life.keyspace.barrier().is_err() {
            let put = Put {
                key: Key::new("late").expect("not empty"),
                value: PutValue::Set("1".into()),
                lease: PutLease::Detach,
                prev_kv: false,
            };
            match life.keyspace.put(put).wait() {
                Err(Error::Stopped) => {}
                other => return Err(Wrong::Answer(format!("after {error} a put got {other:?}"))),
            }
        }
        // What was published stays readable, or the disk says that it cannot be read.
        life.world().check_content(&life.keyspace, &mut self.rng).or_else(error_is_fine)?;
        Ok(allowed)
    }

    /// The next process on the same machine, and what a power cut leaves of before and after it.
    fn look(&mut self, disk: &SimFs, allowed: &[Arc<World>]) -> Result<(), Wrong> {
        let styles = [CrashStyle::KeepNone, CrashStyle::Sectors, CrashStyle::HeaderBytes];
        let cut = disk.crash(*self.rng.pick(&styles), self.rng.next());
        let again = disk.restart();
        self.open(&cut, allowed).map_err(|wrong| wrong.within("after a power cut"))?;
        let found = self.open(&again, allowed).map_err(|wrong| wrong.within("after a restart"))?;
        self.tally.happened += u64::from(allowed.len() > 1 && found.digest.is_none());
        self.tally.had_not += u64::from(allowed.len() > 1 && found.digest.is_some());
        // What the next process has shown is there for good.
        let later = again.crash(CrashStyle::KeepNone, 0);
        self.open(&later, std::slice::from_ref(&found)).map_err(|wrong| wrong.within("after both"))?;
        Ok(())
    }

    fn open(&mut self, disk: &SimFs, allowed: &[Arc<World>]) -> Result<Arc<World>, Wrong> {
        let keyspace = open(disk, self.clock, self.rng.next(), options())?;
        keyspace.rest();
        let world = World::find(allowed, &keyspace)?;
        world.check(&keyspace, &mut self.rng)?;
        self.tally.images += 1;
        Ok(world)
    }
}

/// Every kind of work once at least.
fn live(life: &mut Life) -> Result<(), Wrong> {
    life.clear_alarm()?;
    life.steps(STEPS)?;
    life.rewrite()?;
    life.steps(STEPS)?;
    life.settle()?;
    life.steps(2)
}

fn error_is_fine(wrong: Wrong) -> Result<(), Wrong> {
    if let Wrong::Error(_) = wrong { Ok(()) } else { Err(wrong) }
}

fn name(error: &Error) -> &'static str {
    match error {
        Error::OutcomeUnknown => "outcome unknown",
        Error::Stopped => "stopped",
        Error::NoSpace => "no space",
        Error::Io { .. } => "input/output error",
        Error::Corrupt { .. } => "corrupt",
        Error::LogMismatch { .. } => "log mismatch",
        _ => "another error",
    }
}
