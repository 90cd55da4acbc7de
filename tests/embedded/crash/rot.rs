//! Bits that flip, sectors that vanish or change places behind everyone's back: found by the read that meets them or by verify, and never served.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use storage::fs::sim::{CrashStyle, SimFs};
use storage::{At, ChangeKind, Error, KeyRange, Keyspace, RangeRequest, Revision};

use super::super::convert;
use super::super::environment::HandClock;
use super::life::{Life, open, options};
use super::quiet::Quiet;
use super::run::Stop;
use super::world::{World, Wrong, stored_changes};
use crate::model::rng::Rng;

/// Steps of the history whose files are damaged.
const STEPS: usize = 80;
/// Damages of one history.
const DAMAGES: u64 = 150;
/// Steps that go on where damage was not noticed.
const STEPS_AFTER: usize = 8;

const SECTOR: usize = 512;

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

    /// How many ended so.
    pub fn ended(&self, end: &str) -> u64 {
        self.ends.iter().filter(|(name, _)| name.ends_with(end)).map(|(_, count)| count).sum()
    }
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    /// This bit of the file is flipped.
    Flip(u64),
    /// This sector is zeros.
    Zero(usize),
    /// These two have changed places.
    Swap(usize, usize),
}

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It does not open, and says why.
    Refused,
    /// A read says so.
    Read,
    /// A read misses something, or has it twice, and verify says so.
    Missing,
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

/// Damages of one history, or the one that is asked for.
pub fn history(seed: u64, only: Option<u64>, tally: &mut Tally) -> Result<(), Stop> {
    let (disk, clock, mut rng) = (SimFs::new(), Arc::new(HandClock::default()), Rng::new(seed));
    let lead = || {
        let mut life = Life::begin(&disk, &clock, &[Arc::new(World::new())], seed)?;
        life.steps(STEPS)?;
        Ok(life.world().clone())
    };
    let world = Arc::new(lead().map_err(|wrong| Stop::new(seed, 0, "before any damage".into(), wrong))?);
    let image = disk.crash(CrashStyle::KeepAll, 0);
    let files = Files::of(&image);
    for number in 0..DAMAGES {
        let (path, damage) = files.damage(&mut rng);
        let seed_of_case = rng.next();
        if only.is_some_and(|only| only != number) {
            continue;
        }
        let case = Case { clock: &clock, world: &world, torn: files.in_last_frame(&path, damage) };
        let disk = image.restart();
        files.apply(&disk, &path, damage);
        let end = Quiet::run(|| case.examine(&disk, &mut Rng::new(seed_of_case)));
        let end = end.map_err(|wrong| Stop::new(seed, number, format!("{damage:?} in {}", path.display()), wrong))?;
        let file = kind_of(&path);
        let name = format!("{damage:?}");
        let name = name.split('(').next().unwrap_or_default();
        *tally.kinds.entry(format!("{file} {name}")).or_default() += 1;
        *tally.ends.entry(format!("{file} {end:?}")).or_default() += 1;
        tally.damages += 1;
    }
    tally.histories += 1;
    Ok(())
}

fn kind_of(path: &Path) -> &'static str {
    match path.extension().and_then(|name| name.to_str()) {
        Some("redb") => "base",
        Some("log") => "log",
        _ => "identity",
    }
}

/// The files of an image, and where something was written.
struct Files {
    contents: BTreeMap<PathBuf, Vec<u8>>,
    written: BTreeMap<PathBuf, Vec<usize>>,
    newest_segment: Option<PathBuf>,
    last_frame: usize,
}

impl Files {
    fn of(image: &SimFs) -> Files {
        let mut files =
            Files { contents: BTreeMap::new(), written: BTreeMap::new(), newest_segment: None, last_frame: 0 };
        for path in image.files().into_iter().filter(|path| !path.ends_with("lock")) {
            let bytes = image.contents(&path).expect("it is there");
            let sectors = bytes.chunks(SECTOR).enumerate().filter(|(_, sector)| sector.iter().any(|byte| *byte != 0));
            let written: Vec<usize> = sectors.map(|(number, _)| number).collect();
            if path.extension().is_some_and(|name| name == "log") {
                // A frame's first sector has a tag of its own.
                let first = written.iter().rev().find(|number| bytes[**number * SECTOR] == 0xa5);
                (files.newest_segment, files.last_frame) = (Some(path.clone()), first.copied().unwrap_or(usize::MAX));
            }
            files.written.insert(path.clone(), written);
            files.contents.insert(path, bytes);
        }
        files
    }

    fn damage(&self, rng: &mut Rng) -> (PathBuf, Damage) {
        let wanted = *rng.pick(&["base", "base", "base", "base", "base", "log", "log", "last", "last", "identity"]);
        let last = wanted == "last";
        let fits = |path: &&PathBuf| match &self.newest_segment {
            Some(newest) if last => *path == newest,
            _ => kind_of(path) == wanted,
        };
        let paths: Vec<&PathBuf> = self.written.keys().filter(fits).collect();
        let path = *rng.pick(&paths);
        let sectors = &self.written[path];
        let of_last: Vec<usize> = sectors.iter().copied().filter(|sector| *sector >= self.last_frame).collect();
        let choice = if last && !of_last.is_empty() { &of_last } else { sectors };
        let sector = *rng.pick(choice);
        let damage = match rng.below(10) {
            0..6 => Damage::Flip((sector * SECTOR * 8 + rng.below(SECTOR * 8)) as u64),
            6 | 7 => Damage::Zero(sector),
            _ => Damage::Swap(sector, *rng.pick(sectors)),
        };
        (path.clone(), damage)
    }

    fn apply(&self, disk: &SimFs, path: &Path, damage: Damage) {
        let bytes = &self.contents[path];
        let sector = |number: usize| &bytes[number * SECTOR..bytes.len().min((number + 1) * SECTOR)];
        let put = |number: usize, data: &[u8]| disk.damage(path, (number * SECTOR) as u64, data).expect("it is there");
        match damage {
            Damage::Flip(bit) if bit / 8 < bytes.len() as u64 => disk.flip_bit(path, bit).expect("it is there"),
            Damage::Flip(_) => {}
            Damage::Zero(number) => put(number, &vec![0; sector(number).len()]),
            Damage::Swap(one, other) => {
                put(one, sector(other));
                put(other, sector(one));
            }
        }
    }

    /// True if the damage takes a sector of the last frame away.
    fn in_last_frame(&self, path: &Path, damage: Damage) -> bool {
        let last = self.newest_segment.as_deref() == Some(path);
        last && matches!(damage, Damage::Zero(sector) if sector >= self.last_frame)
    }
}

/// One damage.
struct Case<'a> {
    clock: &'a Arc<HandClock>,
    world: &'a Arc<World>,
    torn: bool,
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
        let read = catch_unwind(AssertUnwindSafe(|| self.read(&keyspace)));
        let end = match read {
            Err(_) => Ok(End::Stopped),
            Ok(Err(Wrong::Error(_))) => Ok(End::Read),
            Ok(Err(wrong)) => Err(wrong),
            Ok(Ok(complete)) => match (catch_unwind(AssertUnwindSafe(|| keyspace.verify())), complete) {
                (Err(_), _) => Ok(End::Stopped),
                (Ok(Err(_)), true) => Ok(End::Verify),
                (Ok(Err(_)), false) => Ok(End::Missing),
                (Ok(Ok(())), true) => Ok(End::Harmless),
                (Ok(Ok(())), false) => Err(Wrong::Answer("something is missing, and verify sees nothing".into())),
            },
        };
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(keyspace)));
        match end {
            Ok(End::Harmless) if dropped.is_ok() => self.go_on(&before, rng),
            end => end,
        }
    }

    /// Reads everything. True if nothing is missing. Errors: wrong bytes, or what a read says.
    fn read(&self, keyspace: &Keyspace) -> Result<bool, Wrong> {
        let model = &self.world.model;
        let mut complete = true;
        for revision in model.compacted.max(1)..=model.revision {
            let range = RangeRequest { at: At::Revision(revision), ..RangeRequest::new(KeyRange::all()) };
            let found = keyspace.range(&range)?.kvs;
            for kv in &found {
                if model.get(&kv.key, revision).as_ref() != Some(&convert::key_value(kv)) {
                    return Err(Wrong::Answer(format!("at revision {revision} it serves {kv:?}")));
                }
            }
            complete &= found.len() == model.scan(&[0], &[0], revision).len();
        }
        let mut found = 0;
        for change in stored_changes(keyspace, Revision(model.revision))? {
            let all = model.history.get(&change.at.main.0);
            let known = all.and_then(|changes| changes.get(usize::try_from(change.at.sub).ok()?));
            let same = known.is_some_and(|known| match (&known.version.record, &change.kind) {
                (None, ChangeKind::Tombstone) => known.key == change.key,
                (Some(record), ChangeKind::Put { create, version, lease, value }) => {
                    known.key == change.key
                        && (record.create, record.version, record.lease) == (create.0, *version, *lease)
                        && record.value == *value
                }
                _ => false,
            });
            if !same {
                return Err(Wrong::Answer(format!("it serves the change {change:?}")));
            }
            found += usize::from(change.at.main.0 > model.compacted.max(1));
        }
        let above = model.history.range(model.compacted.max(1) + 1..);
        complete &= found == above.map(|(_, changes)| changes.len()).sum::<usize>();
        match self.world.check_leases(keyspace) {
            Err(Wrong::Answer(_)) => Ok(false),
            Err(error) => Err(error),
            Ok(()) => Ok(complete),
        }
    }

    /// What no read sees may still be met by a write: it may end the keyspace, but never make it serve anything wrong.
    fn go_on(&self, disk: &SimFs, rng: &mut Rng) -> Result<End, Wrong> {
        let seed = rng.next();
        let worlds = std::slice::from_ref(self.world);
        let went = catch_unwind(AssertUnwindSafe(|| {
            let mut life = Life::begin(disk, self.clock, worlds, seed)?;
            life.clear_alarm()?;
            life.steps(STEPS_AFTER)?;
            life.keyspace.freeze();
            while life.turn()?.is_some() {}
            life.keyspace.barrier()?;
            let world = life.world().clone();
            let case = Case { clock: self.clock, world: &Arc::new(world), torn: false };
            let complete = case.read(&life.keyspace)?;
            life.keyspace.verify()?;
            if complete {
                Ok(())
            } else {
                Err(Wrong::Answer("something is missing later, and verify sees nothing".into()))
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
