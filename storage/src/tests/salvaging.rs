//! Salvage: whatever is damaged, what comes along is right, what does not is named, and no panic gets out.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::fs::sim::{CrashStyle, Prng};

fn out() -> PathBuf {
    PathBuf::from("/salvaged")
}

fn salvaged(machine: &Machine) -> Result<SalvageReport, Error> {
    salvage(&dir(), &out(), &small(), &machine.environment())
}

fn opened(machine: &Machine) -> Keyspace {
    Keyspace::open(&out(), small(), machine.environment()).unwrap()
}

/// A directory that lost power, and what was ever in it.
struct Original {
    machine: Machine,
    changes: Vec<Arc<Change>>,
    revision: Revision,
    compacted: Revision,
    /// Revision that base has reached.
    flushed: Revision,
    leases: BTreeSet<LeaseId>,
}

impl Original {
    fn new(seed: u64) -> Original {
        let machine = Machine::new(seed);
        let keyspace = Keyspace::open(&dir(), roomy(), machine.environment()).unwrap();
        let mut rng = Prng::new(seed);
        for id in 1..4 {
            keyspace.lease_grant(Some(LeaseId(id)), 5000).wait().unwrap();
        }
        let alarm = Alarm { member: keyspace.status().member, kind: AlarmKind::NoSpace };
        let mut flushed = Revision(0);
        for n in 0..700 {
            machine.clock.advance(rng.below(400));
            if n == 620 {
                keyspace.compact(200).wait().unwrap();
                keyspace.wait_swept(Revision(200)).unwrap();
                keyspace.flush().unwrap();
                flushed = keyspace.revision();
            }
            let name = format!("key {:03}", rng.below(250));
            if rng.below(6) == 0 {
                keyspace.delete_range(delete(&name)).wait().unwrap();
                continue;
            }
            let value = format!("{n:05}.").repeat([0, 1, 8, 40, 300][rng.below(5) as usize]);
            let lease = LeaseId(1 + rng.below(3).cast_signed());
            let lease = if rng.below(5) == 0 { PutLease::Attach(lease) } else { PutLease::Detach };
            keyspace.put(Put { lease, ..put(&name, value) }).wait().unwrap();
        }
        keyspace.set_alarm(alarm, true).wait().unwrap();
        let changes = history(&keyspace, 201);
        let base = keyspace.stored_changes(Revision(1), Revision(200), usize::MAX).unwrap();
        let changes = base.into_iter().chain(changes).collect();
        let (revision, leases) = (keyspace.revision(), keyspace.leases().into_iter().collect());
        machine.disk.freeze();
        drop(keyspace);
        let machine = machine.after_power_cut(CrashStyle::KeepNone);
        Original { machine, changes, revision, compacted: Revision(200), flushed, leases }
    }

    /// What was there at a revision.
    fn at(&self, revision: Revision) -> BTreeMap<Bytes, KeyValue> {
        let mut all = BTreeMap::new();
        for change in self.changes.iter().filter(|change| change.at.main <= revision) {
            match change.key_value() {
                Some(kv) => drop(all.insert(change.key.clone(), kv)),
                None => drop(all.remove(&change.key)),
            }
        }
        all
    }

    /// The same on a disk that can be damaged.
    fn copy(&self) -> Machine {
        Machine { disk: self.machine.disk.restart(), clock: self.machine.clock.clone(), seed: self.machine.seed }
    }
}

/// Parts so large that the log has something that base lacks.
fn roomy() -> Options {
    Options {
        recent_bytes: 32 << 20,
        recent_changes: 100_000,
        segment_bytes: 256 << 10,
        cache_bytes: 64 << 10,
        ..small()
    }
}

fn everything(keyspace: &Keyspace) -> BTreeMap<Bytes, KeyValue> {
    let kvs = keyspace.range(&RangeRequest::new(KeyRange::all())).unwrap().kvs;
    kvs.into_iter().map(|kv| (kv.key.clone(), kv)).collect()
}

/// A salvage is right, or says what it is not.
fn check(original: &Original, machine: &Machine, report: &SalvageReport) {
    let disk: Arc<dyn fs::FileSystem> = Arc::new(machine.disk.clone());
    assert_eq!(verify(&out(), &disk, 1 << 20).unwrap().damage, []);
    let keyspace = opened(machine);
    keyspace.verify().unwrap();
    let status = keyspace.status();
    assert_eq!((status.revision, status.compacted), (report.revision, report.compacted));
    let (found, expected) = (everything(&keyspace), original.at(report.revision));
    assert_eq!(found.len() as u64, report.keys);
    for (key, kv) in &found {
        assert_eq!(Some(kv), expected.get(key), "{key:?}, {report:?}");
    }
    let named = |key: &Bytes| {
        let within = |(first, last): &(Bytes, Bytes)| first <= key && key <= last;
        report.lost.iter().any(|lost| lost.table == "index" && lost.keys.as_ref().is_some_and(within))
    };
    let vanished = report.lost.iter().any(|lost| lost.what.contains("in neither table") || lost.table == "meta");
    for key in expected.keys().filter(|key| !found.contains_key(*key)) {
        assert!(vanished || named(key), "{key:?} is gone without a word: {report:?}");
    }
    if report.revision < original.revision {
        assert!(report.lost.iter().any(|lost| lost.table == "log" || lost.table == "meta"), "{report:?}");
    }
    if report.lost.is_empty() {
        assert_eq!((report.revision, report.compacted), (original.revision, original.compacted));
        assert_eq!(keyspace.leases().into_iter().collect::<BTreeSet<_>>(), original.leases);
        assert_eq!(status.alarms, [Alarm { member: status.member, kind: AlarmKind::NoSpace }]);
        let from = original.compacted.0 + 1;
        let wanted: Vec<_> = original.changes.iter().filter(|change| change.at.main.0 >= from).cloned().collect();
        assert_eq!(history(&keyspace, from), wanted);
    }
    // It goes on.
    let alarm = Alarm { member: status.member, kind: AlarmKind::NoSpace };
    keyspace.set_alarm(alarm, false).wait().unwrap();
    assert_eq!(keyspace.put(put("after", "1")).wait().unwrap().revision, report.revision.next());
    keyspace.close().unwrap();
}

fn targets(machine: &Machine) -> Vec<(PathBuf, Vec<u64>)> {
    let files = machine.disk.files().into_iter();
    let in_use = |file: PathBuf| {
        let image = machine.disk.contents(&file).unwrap();
        let sectors = image.chunks(512).enumerate().filter(|(_, sector)| sector.iter().any(|byte| *byte != 0));
        (file, sectors.map(|(number, _)| number as u64 * 512).collect())
    };
    files.filter(|file| !file.ends_with("lock") && !file.ends_with("identity")).map(in_use).collect()
}

#[test]
fn a_sound_directory_comes_along_whole_under_a_new_identity() {
    for seed in 0..4 {
        let original = Original::new(seed);
        let machine = original.copy();
        let before = machine.disk.contents(dir().join("base.redb"));
        let report = salvaged(&machine).unwrap();
        assert_eq!(report.lost, []);
        assert!(report.frames >= 80, "{report:?}");
        check(&original, &machine, &report);
        assert!(machine.disk.contents(dir().join("base.redb")) == before, "the source has changed");
        let left: Vec<_> = machine.disk.files().into_iter().filter(|file| file.starts_with(out())).collect();
        assert!(left.iter().all(|file| !file.to_string_lossy().contains("sort-")), "{left:?}");
        let (old, new) = (machine.disk.contents(dir().join("identity")), machine.disk.contents(out().join("identity")));
        assert_ne!(old, new);
        // Nothing is overwritten.
        assert!(salvaged(&machine).unwrap_err().to_string().contains("holds a keyspace already"));
        assert!(salvage(&dir(), &dir().join("in"), &small(), &machine.environment()).is_err());
    }
}

#[test]
fn whatever_is_damaged_no_wrong_byte_comes_along_and_what_is_missing_is_named() {
    let runs = std::env::var("STERNPOST_TEST_SALVAGES").ok().and_then(|n| n.parse().ok()).unwrap_or(120);
    let originals: Vec<Original> = (0..3).map(Original::new).collect();
    let (mut whole, mut partly, mut refused, mut lost, mut kept) = (0, 0, 0, 0, 0);
    for run in 0..runs {
        let mut rng = Prng::new(run);
        let original = &originals[run as usize % originals.len()];
        let machine = original.copy();
        let targets = targets(&machine);
        for _ in 0..=rng.below(4) {
            let (file, sectors) = &targets[rng.below(targets.len() as u64) as usize];
            let at = sectors[rng.below(sectors.len() as u64) as usize];
            match rng.below(4) {
                0 | 1 => machine.disk.flip_bit(file, (at + rng.below(512)) * 8 + rng.below(8)).unwrap(),
                2 => machine.disk.zero(file, at, 512 << rng.below(4)).unwrap(),
                _ => {
                    let other = sectors[rng.below(sectors.len() as u64) as usize] as usize;
                    let (image, at) = (machine.disk.contents(file).unwrap(), at as usize);
                    machine.disk.damage(file, at as u64, &image[other..other + 512]).unwrap();
                    machine.disk.damage(file, other as u64, &image[at..at + 512]).unwrap();
                }
            }
        }
        match salvaged(&machine) {
            Ok(report) => {
                lost += report.lost.len();
                kept += report.keys;
                *if report.lost.is_empty() { &mut whole } else { &mut partly } += 1;
                check(original, &machine, &report);
            }
            Err(error) => {
                assert!(matches!(error, Error::Corrupt { .. } | Error::LogMismatch { .. }), "run {run}: {error}");
                refused += 1;
                assert!(machine.disk.contents(out().join("base.redb")).is_none());
            }
        }
    }
    println!("{runs} runs: {whole} whole, {partly} in part, {refused} refused; {lost} losses named, {kept} keys kept");
    assert!(whole >= runs / 10 && partly >= runs / 4 && refused <= runs / 4 && kept >= 50 * (whole + partly));
}

#[test]
fn a_value_that_is_damaged_costs_its_key_and_nothing_else() {
    let original = Original::new(7);
    let last = original.changes.iter().rev().find(|change| {
        let large = change.key_value().is_some_and(|kv| kv.value.len() > 1000);
        large && change.at.main <= original.flushed
    });
    let (key, at) = (last.unwrap().key.clone(), last.unwrap().at);
    let newest = original.at(original.flushed).get(&key).is_some_and(|kv| kv.mod_revision == at.main.0);
    assert!(newest, "the newest large value that is in base");
    let needle = last.unwrap().key_value().unwrap().value.slice(..600);
    let machine = original.copy();
    let file = dir().join("base.redb");
    let image = machine.disk.contents(&file).unwrap();
    let places = (0..image.len() - 600).filter(|at| image[*at..].starts_with(&needle)).collect::<Vec<_>>();
    assert!(!places.is_empty());
    places.iter().for_each(|at| machine.disk.flip_bit(&file, *at as u64 * 8).unwrap());
    let report = salvaged(&machine).unwrap();
    let of_key: Vec<_> = report.lost.iter().filter(|lost| lost.keys == Some((key.clone(), key.clone()))).collect();
    assert!(of_key.iter().any(|lost| lost.revisions == Some((at.main, at.main)) && lost.what.contains("its value")));
    // Base is no longer whole, so the log is not applied to it, and both are said.
    assert_eq!((report.revision, report.compacted, report.frames), (original.flushed, original.flushed, 0));
    assert!(report.lost.iter().any(|lost| lost.table == "log" && lost.what.contains("not applied")));
    let keyspace = opened(&machine);
    let mut expected = original.at(original.flushed);
    expected.remove(&key);
    assert_eq!(everything(&keyspace), expected);
}

#[test]
fn without_base_the_log_is_enough_if_it_has_everything() {
    let machine = Machine::new(9);
    let keyspace = Keyspace::open(&dir(), roomy(), machine.environment()).unwrap();
    for n in 0..50 {
        keyspace.put(put(&format!("key {}", n % 7), format!("{n}"))).wait().unwrap();
    }
    let expected = everything(&keyspace);
    machine.disk.freeze();
    drop(keyspace);
    let machine = machine.after_power_cut(CrashStyle::KeepNone);
    machine.disk.zero(dir().join("base.redb"), 0, 1 << 20).unwrap();
    let report = salvaged(&machine).unwrap();
    assert_eq!((report.revision, report.keys, report.frames), (Revision(51), 7, 50));
    assert!(report.lost.iter().any(|lost| lost.table == "base"));
    assert_eq!(everything(&opened(&machine)), expected);
}
