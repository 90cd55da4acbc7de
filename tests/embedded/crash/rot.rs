//! Bits that flip, sectors that vanish or change places behind everyone's back: found by the read that meets them or by verify, and never served.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;

use storage::fs::sim::{CrashStyle, SimFs};
use storage::{At, Change, ChangeKind, Error, KeyRange, Keyspace, RangeRequest, Revision};

use super::super::convert;
use super::super::environment::HandClock;
use super::damage::{Files, kind_of};
use super::life::{Life, open, options};
use super::run::Stop;
use super::world::{World, Wrong, stored_changes};
use crate::model::rng::Rng;
use crate::model::state::{Change as Known, Record};
use crate::model::wire::KeyValue;

/// Steps of the history whose files are damaged.
const STEPS: usize = 80;
/// Damages of one history.
const DAMAGES: u64 = 150;
/// Steps that go on where damage was not noticed.
const STEPS_AFTER: usize = 8;

/// What was damaged, and how it ended.
#[derive(Debug, Default)]
pub struct Tally {
    pub histories: u64,
    pub damages: u64,
    /// By file and kind of damage.
    pub kinds: BTreeMap<String, u64>,
    /// By file and what became of it.
    pub ends: BTreeMap<String, u64>,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.histories += other.histories;
        self.damages += other.damages;
        other.kinds.iter().for_each(|(name, count)| *self.kinds.entry(name.clone()).or_default() += count);
        other.ends.iter().for_each(|(name, count)| *self.ends.entry(name.clone()).or_default() += count);
    }

    /// Takes a report: file, damage, end.
    fn take(&mut self, report: &str) {
        let (what, end) = report.rsplit_once(' ').unwrap_or((report, ""));
        let file = what.split(' ').next().unwrap_or_default();
        *self.kinds.entry(what.to_owned()).or_default() += 1;
        *self.ends.entry(format!("{file} {end}")).or_default() += 1;
        self.damages += 1;
    }

    /// How many ended so.
    pub fn ended(&self, end: &str) -> u64 {
        self.ends.iter().filter(|(name, _)| name.ends_with(end)).map(|(_, count)| count).sum()
    }
}

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It does not open, and says why.
    Refused,
    /// A read says so.
    Read,
    /// A read misses something, or shows what a key was before, and verify says so: rows have vanished from a tree.
    Missing,
    /// The same rows were missing when the log was replayed: a key begins anew, or a deletion changes nothing. Verify says so.
    Replayed,
    /// Reads see nothing of it, verify does.
    Verify,
    /// Nothing that holds data was damaged.
    Harmless,
    /// As before, and then a write met it, which ended the keyspace.
    Later,
    /// The process ends: a panic within the database.
    Stopped,
    /// The last frame lacks a sector, as after a power cut that came before its sync returned. Nothing tells the one from the other.
    Torn,
}

/// Damages of one history, or the one that is asked for. They are tried in processes of their own: a panic within the database may end one.
pub fn history(seed: u64, only: Option<u64>, tally: &mut Tally) -> Result<(), Stop> {
    if let Some(only) = only {
        return damages(seed, only..only + 1, |_, _| {});
    }
    let mut next = 0;
    while next < DAMAGES {
        let (reports, stopped) = in_a_process(seed, next)?;
        next += reports.len() as u64;
        for report in &reports {
            tally.take(report);
        }
        if stopped {
            tally.take("base ? Stopped");
            next += 1;
        }
    }
    tally.histories += 1;
    Ok(())
}

/// Has the damages from a number on tried by another process. What it reported, and whether it ended before it was through.
fn in_a_process(seed: u64, first: u64) -> Result<(Vec<String>, bool), Stop> {
    let program = std::env::current_exe().expect("this program has a name");
    let child = Command::new(program)
        .args(["--exact", TEST, "--nocapture"])
        .env(PART, format!("{seed} {first}"))
        .output()
        .expect("it can be started");
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    let lines = || text.lines();
    if let Some(wrong) = lines().find_map(|line| line.strip_prefix("wrong ")) {
        let (number, what) = wrong.split_once(' ').unwrap_or((wrong, ""));
        let number = number.parse().unwrap_or(first);
        return Err(Stop::new(seed, number, "damage".into(), Wrong::Answer(what.to_owned())));
    }
    let reports: Vec<String> = lines().filter_map(|line| line.strip_prefix("damage ")).map(str::to_owned).collect();
    let through = first + reports.len() as u64 >= DAMAGES;
    // A process that ends before it has begun would go on for ever.
    assert!(through || !child.status.success(), "it tried no more than {}: {text}", reports.len());
    Ok((reports, !through))
}

/// The name of the test, and what tells a process that it is to do a part of it.
const TEST: &str = "embedded::crash::suite::rot_is_found_and_never_served";
const PART: &str = "STERNPOST_TEST_ROT_PART";

/// Does a part of the test if this process was started for that.
pub fn do_part() -> bool {
    let Ok(part) = std::env::var(PART) else { return false };
    let mut numbers = part.split(' ').map(|number| number.parse::<u64>().expect("a number"));
    let (seed, first) = (numbers.next().expect("a seed"), numbers.next().expect("a damage"));
    let report = |what: &str, end: End| println!("damage {what} {end:?}");
    if let Err(Stop { number, wrong, place, .. }) = damages(seed, first..DAMAGES, report) {
        println!("wrong {number} {place}: {wrong}");
    }
    true
}

/// Tries damages of one history.
fn damages(seed: u64, numbers: Range<u64>, mut report: impl FnMut(&str, End)) -> Result<(), Stop> {
    let (disk, clock, mut rng) = (SimFs::new(), Arc::new(HandClock::default()), Rng::new(seed));
    let flushed = rng.chance(50);
    let lead = || {
        let mut life = Life::begin(&disk, &clock, &[Arc::new(World::new())], seed)?;
        life.steps(STEPS)?;
        life.keyspace.freeze();
        while flushed && life.turn()?.is_some() {}
        Ok(life.world().clone())
    };
    let world = Arc::new(lead().map_err(|wrong| Stop::new(seed, 0, "before any damage".into(), wrong))?);
    let image = disk.crash(CrashStyle::KeepAll, 0);
    let files = Files::of(&image);
    for number in 0..numbers.end {
        let (path, damage) = files.damage(&mut rng);
        let seed_of_case = rng.next();
        if number < numbers.start {
            continue;
        }
        let (torn, replays) = (files.in_last_frame(&path, damage), !flushed && kind_of(&path) == "base");
        let case = Case { clock: &clock, world: &world, torn, replays };
        let disk = image.restart();
        files.apply(&disk, &path, damage);
        let end = case.examine(&disk, &mut Rng::new(seed_of_case));
        let end = end.map_err(|wrong| Stop::new(seed, number, format!("{damage:?} in {}", path.display()), wrong))?;
        let name = format!("{damage:?}");
        report(&format!("{} {}", kind_of(&path), name.split('(').next().unwrap_or_default()), end);
    }
    Ok(())
}

fn same_change(known: &Known, change: &Change) -> bool {
    let same = match (&known.version.record, &change.kind) {
        (None, ChangeKind::Tombstone) => true,
        (Some(record), ChangeKind::Put { create, version, lease, value }) => {
            (record.create, record.version, record.lease) == (create.0, *version, *lease) && record.value == *value
        }
        _ => false,
    };
    same && known.key == change.key
}

/// What reads showed.
enum Seen {
    /// Everything as it was.
    All,
    /// Nothing that never was, but not everything.
    Missing,
    /// This never was.
    Wrong(String),
}

impl Seen {
    fn complete(&mut self, complete: bool) {
        if !complete && matches!(self, Seen::All) {
            *self = Seen::Missing;
        }
    }

    fn genuine(&mut self, genuine: bool, what: impl FnOnce() -> String) {
        if !genuine && !matches!(self, Seen::Wrong(_)) {
            *self = Seen::Wrong(what());
        }
    }
}

/// One damage.
struct Case<'a> {
    clock: &'a Arc<HandClock>,
    world: &'a Arc<World>,
    torn: bool,
    /// Base is damaged, and the log holds more than it: what is replayed is worked out anew on what base answers.
    replays: bool,
}

impl Case<'_> {
    fn examine(&self, disk: &SimFs, rng: &mut Rng) -> Result<End, Wrong> {
        let before = disk.restart();
        let opened = catch_unwind(AssertUnwindSafe(|| open(disk, self.clock, rng.next(), options())));
        let keyspace = match opened {
            Err(_) => return Ok(End::Stopped),
            Ok(Err(Error::Corrupt { .. } | Error::LogMismatch { .. } | Error::Io { .. })) => return Ok(End::Refused),
            Ok(Err(error)) => return Err(Wrong::Error(error)),
            Ok(Ok(keyspace)) => keyspace,
        };
        keyspace.rest();
        let applied = keyspace.status().applied.0;
        if self.torn && applied + 1 == self.world.applied {
            return Ok(End::Torn);
        }
        if applied != self.world.applied {
            return Err(Wrong::Answer(format!("it is at position {applied} of {}", self.world.applied)));
        }
        let looked = catch_unwind(AssertUnwindSafe(|| (self.read(&keyspace), keyspace.verify())));
        let end = match looked {
            Err(_) => Ok(End::Stopped),
            Ok((Ok(Seen::Wrong(what)), found)) if !self.replays || found.is_ok() => {
                Err(Wrong::Answer(format!("it shows what never was, {what}; verify says {found:?}")))
            }
            Ok((Ok(Seen::Missing), Ok(()))) => Err(Wrong::Answer("not all is there, and verify sees nothing".into())),
            Ok((Err(_), _)) => Ok(End::Read),
            Ok((Ok(Seen::All), Err(_))) => Ok(End::Verify),
            Ok((Ok(Seen::Missing), Err(_))) => Ok(End::Missing),
            Ok((Ok(Seen::Wrong(_)), _)) => Ok(End::Replayed),
            Ok((Ok(Seen::All), Ok(()))) => Ok(End::Harmless),
        };
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(keyspace)));
        match end {
            Ok(End::Harmless) if dropped.is_ok() => self.go_on(&before, rng),
            end => end,
        }
    }

    /// Reads everything. Errors: what a read says.
    fn read(&self, keyspace: &Keyspace) -> Result<Seen, Error> {
        let model = &self.world.model;
        let current = keyspace.revision().0;
        let mut seen = if current == model.revision { Seen::All } else { Seen::Wrong(format!("revision {current}")) };
        for revision in model.compacted.max(1)..=current.min(model.revision) {
            let range = RangeRequest { at: At::Revision(revision), ..RangeRequest::new(KeyRange::all()) };
            let found = keyspace.range(&range)?.kvs;
            seen.complete(found.len() == model.scan(&[0], &[0], revision).len());
            for kv in found.iter().map(convert::key_value) {
                seen.complete(model.get(&kv.key, revision).as_ref() == Some(&kv));
                seen.genuine(self.existed(&kv), || {
                    let numbers = (kv.create_revision, kv.mod_revision, kv.version, kv.lease);
                    format!("at revision {revision}: {:?}, {numbers:?}, {} bytes", kv.key, kv.value.len())
                });
            }
        }
        let mut found = 0;
        for change in stored_changes(keyspace, Revision(model.revision))? {
            let all = model.history.get(&change.at.main.0);
            let known = usize::try_from(change.at.sub).ok().and_then(|sub| all?.get(sub));
            let same = known.is_some_and(|known| same_change(known, &change));
            seen.genuine(same, || format!("change {:?} of {:?}", change.at, change.key));
            found += usize::from(change.at.main.0 > model.compacted.max(1));
        }
        let above = model.history.range(model.compacted.max(1) + 1..);
        seen.complete(found == above.map(|(_, changes)| changes.len()).sum::<usize>());
        match self.world.check_leases(keyspace) {
            Err(Wrong::Error(error)) => return Err(error),
            answer => seen.complete(answer.is_ok()),
        }
        Ok(seen)
    }

    /// True for what a key once was.
    fn existed(&self, kv: &KeyValue) -> bool {
        let versions = self.world.model.keys.get(&kv.key).into_iter().flatten();
        let same = |record: &Record| {
            (record.create, record.version, record.lease) == (kv.create_revision, kv.version, kv.lease)
                && record.value == kv.value
        };
        versions.filter(|version| version.at == kv.mod_revision).filter_map(|version| version.record.as_ref()).any(same)
    }

    /// What no read sees may still be met by a write: it may end the keyspace, but never make it serve anything wrong.
    fn go_on(&self, disk: &SimFs, rng: &mut Rng) -> Result<End, Wrong> {
        let seed = rng.next();
        let worlds = std::slice::from_ref(self.world);
        let went = catch_unwind(AssertUnwindSafe(|| {
            let mut life = Life::begin(disk, self.clock, worlds, seed)?;
            life.clear_alarm()?;
            life.steps(STEPS_AFTER)?;
            life.settle()?;
            life.keyspace.barrier()?;
            let world = life.world().clone();
            let case = Case { clock: self.clock, world: &Arc::new(world), torn: false, replays: false };
            let seen = case.read(&life.keyspace)?;
            life.keyspace.verify()?;
            match seen {
                Seen::All => Ok(()),
                Seen::Missing => Err(Wrong::Answer("not all is there, and verify sees nothing".into())),
                Seen::Wrong(what) => Err(Wrong::Answer(format!("it shows what never was, {what}"))),
            }
        }));
        match went {
            Err(_) => Ok(End::Stopped),
            Ok(Ok(())) => Ok(End::Harmless),
            Ok(Err(Wrong::Error(_))) => Ok(End::Later),
            Ok(Err(wrong)) => Err(wrong.within("when it went on")),
        }
    }
}
