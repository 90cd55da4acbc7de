//! Imports: what was taken in is there, with its numbers, and a directory is all there or refused.

use super::*;
use crate::fs::sim::{CrashStyle, Fault, FaultKind, Prng};

/// A history as a keyspace of ours made it, with its changes as an import takes them.
struct Made {
    changes: Vec<Change>,
    revision: Revision,
    leases: Vec<ImportedLease>,
}

/// Puts, deletions, transactions of many keys, values of all sizes, leases: all made by a keyspace.
fn make(seed: u64, requests: u64) -> (Keyspace, Made) {
    let machine = Machine::new(seed);
    let keyspace = machine.open().unwrap();
    let mut rng = Prng::new(seed);
    let ttls = [100, 2000];
    for (n, ttl) in ttls.iter().enumerate() {
        keyspace.lease_grant(Some(LeaseId(n as i64 + 7)), *ttl).wait().unwrap();
    }
    let random_put = |rng: &mut Prng| {
        let value = vec![b'v'; [0, 5, 64, 65, 3000][rng.below(5) as usize]];
        let lease =
            [PutLease::Detach, PutLease::Attach(LeaseId(7)), PutLease::Attach(LeaseId(8))][rng.below(3) as usize];
        Put { lease, ..put(&format!("key {}", rng.below(40)), value) }
    };
    for _ in 0..requests {
        match rng.below(8) {
            0 => drop(keyspace.delete_range(delete(&format!("key {}", rng.below(40)))).wait().unwrap()),
            1 => {
                let range = KeyRange::prefix(key("key 1"));
                keyspace.delete_range(DeleteRange { range, prev_kv: false }).wait().unwrap();
            }
            _ => drop(keyspace.put(random_put(&mut rng)).wait().unwrap()),
        }
    }
    let changes = history(&keyspace, 2).iter().map(|change| Change::clone(change)).collect();
    let leases = ttls.iter().enumerate();
    let leases = leases.map(|(n, ttl)| ImportedLease { id: LeaseId(n as i64 + 7), ttl: *ttl, remaining: ttl / 2 });
    let made = Made { changes, revision: keyspace.revision(), leases: leases.collect() };
    (keyspace, made)
}

fn import(machine: &Machine, made: &Made, compacted: i64) -> Result<ImportReport, Error> {
    let mut import = Import::begin(&dir(), Revision(compacted), &small(), &machine.environment())?;
    made.changes.iter().try_for_each(|change| import.add(change.clone()))?;
    import.finish(made.revision, &made.leases)
}

fn all_at(keyspace: &Keyspace, revision: i64) -> Result<Vec<KeyValue>, Error> {
    keyspace
        .range(&RangeRequest { at: At::Revision(revision), ..RangeRequest::new(KeyRange::all()) })
        .map(|reply| reply.kvs)
}

#[test]
fn every_revision_reads_as_it_did_and_the_next_change_gets_the_next_one() {
    let (mut revisions, mut attached) = (0, 0);
    for seed in 0..6 {
        let (original, made) = make(seed, 300);
        for compacted in [-1, made.revision.0 / 2, made.revision.0] {
            let machine = Machine::new(seed + 100);
            let report = import(&machine, &made, compacted).unwrap();
            let keyspace = machine.open().unwrap();
            keyspace.verify().unwrap();
            let status = keyspace.status();
            assert_eq!((status.revision, status.compacted), (made.revision, Revision(compacted)));
            assert_eq!(report.versions as usize, made.changes.len());
            assert_eq!(report.keys as usize, all_at(&original, 0).unwrap().len());
            // Of a file so small its length is the bound, and a sweep may have begun.
            assert!(report.used_bytes.abs_diff(status.used_bytes) <= 64 << 10, "{report:?}, {status:?}");
            for revision in 1.max(compacted)..=made.revision.0 {
                assert_eq!(all_at(&keyspace, revision), all_at(&original, revision), "revision {revision}");
                revisions += 1;
            }
            if compacted > 1 {
                let refused = Error::Compacted { asked: compacted - 1, floor: compacted };
                assert_eq!(all_at(&keyspace, compacted - 1), Err(refused));
            }
            let from = 2.max(compacted + 1);
            assert_eq!(history(&keyspace, from), history(&original, from));
            for ImportedLease { id, ttl, remaining } in made.leases.iter().copied() {
                let ours = keyspace.lease_time_to_live(id, true).unwrap().unwrap();
                let theirs = original.lease_time_to_live(id, true).unwrap().unwrap();
                assert_eq!((ours.granted_ttl, ours.ttl), (ttl, remaining));
                assert_eq!(ours.keys, theirs.keys);
                attached += ours.keys.len();
            }
            assert_eq!(report.orphans, 0);
            assert_eq!(keyspace.put(put("key 1", "new")).wait().unwrap().revision, made.revision.next());
            // The numbers survive a start, a sweep and another start.
            keyspace.close().unwrap();
            drop(keyspace);
            let keyspace = machine.open().unwrap();
            keyspace.wait_swept(Revision(compacted)).unwrap();
            keyspace.verify().unwrap();
            assert_eq!(all_at(&keyspace, made.revision.0), all_at(&original, made.revision.0));
        }
    }
    println!("{revisions} revisions compared, {attached} keys on leases");
    assert!(revisions >= 2000 && attached >= 100, "{revisions}, {attached}");
}

#[test]
fn a_crash_at_any_operation_leaves_nothing_or_a_directory_that_is_refused_until_the_import_is_done() {
    let (_, made) = make(1, 60);
    let (mut refused, mut absent, mut complete) = (0, 0, 0);
    for nth in 1.. {
        let machine = Machine::new(nth);
        machine.disk.inject(Fault::new(FaultKind::Freeze, nth));
        let done = import(&machine, &made, 20).is_ok();
        for style in [CrashStyle::KeepNone, CrashStyle::Sectors, CrashStyle::KeepAll] {
            let after = machine.after_power_cut(style);
            let context = format!("operation {nth}, {style:?}");
            match after.open() {
                Ok(keyspace) if keyspace.revision() == made.revision => {
                    assert_eq!(history(&keyspace, 21), tail(&made, 21), "{context}");
                    complete += 1;
                }
                Ok(keyspace) => {
                    assert!(
                        keyspace.status().opened.created && !done,
                        "{context}: neither the import nor a new keyspace"
                    );
                    absent += 1;
                    continue;
                }
                Err(error) => {
                    assert!(error.to_string().contains("an import into it did not end") && !done, "{context}: {error}");
                    refused += 1;
                    import(&after, &made, 20).unwrap_or_else(|error| panic!("{context}, again: {error}"));
                    assert_eq!(history(&after.open().unwrap(), 21), tail(&made, 21), "{context}, again");
                }
            }
        }
        if done {
            break;
        }
    }
    println!("{refused} images refused, {absent} without anything, {complete} complete");
    assert!(refused >= 100 && absent >= 3 && complete >= 3);
}

fn tail(made: &Made, from: i64) -> Vec<Arc<Change>> {
    made.changes.iter().filter(|change| change.at.main.0 >= from).map(|change| Arc::new(change.clone())).collect()
}

#[test]
fn an_error_of_the_disk_ends_the_import_and_another_one_succeeds() {
    let (_, made) = make(2, 60);
    let mut struck = 0;
    for kind in [FaultKind::Io, FaultKind::NoSpace, FaultKind::Partial] {
        for nth in (1..120).step_by(3) {
            let machine = Machine::new(nth);
            machine.disk.inject(Fault::new(kind, nth));
            let imported = import(&machine, &made, -1);
            machine.disk.clear_faults();
            if let Err(error) = imported {
                assert!(matches!(error, Error::Io { .. } | Error::NoSpace), "{kind:?} {nth}: {error}");
                struck += 1;
                import(&machine, &made, -1).unwrap_or_else(|error| panic!("{kind:?} {nth}, again: {error}"));
            }
            assert_eq!(history(&machine.open().unwrap(), 2), tail(&made, 2), "{kind:?} {nth}");
        }
    }
    println!("{struck} imports struck");
    assert!(struck >= 60);
}

#[test]
fn what_cannot_be_is_refused_and_leaves_no_room_taken() {
    let change = |main, sub, kind| Change { key: "k".into(), at: RevisionPair { main: Revision(main), sub }, kind };
    let put = |create, version| ChangeKind::Put { create: Revision(create), version, lease: 0, value: "v".into() };
    let wrong = [
        vec![change(1, 0, put(1, 1))],
        vec![change(2, -1, put(2, 1))],
        vec![change(3, 1, put(3, 1)), change(3, 1, put(3, 2))],
        vec![change(3, 1, put(3, 1)), change(3, 0, put(3, 2))],
        vec![change(3, 0, put(4, 1))],
        vec![change(3, 0, put(0, 1))],
        vec![change(3, 0, put(3, 0))],
        vec![Change { key: Bytes::new(), ..change(3, 0, put(3, 1)) }],
    ];
    for changes in wrong {
        let machine = Machine::new(1);
        let mut import = Import::begin(&dir(), Revision(-1), &small(), &machine.environment()).unwrap();
        let refused = changes.iter().find_map(|change| import.add(change.clone()).err());
        assert!(matches!(&refused, Some(Error::Corrupt { .. })), "{changes:?}: {refused:?}");
        drop(import);
        assert_eq!(machine.disk.files(), [dir().join("identity"), dir().join("lock")]);
    }
    let lease = |id, ttl, remaining| ImportedLease { id: LeaseId(id), ttl, remaining };
    let endings = [
        (2, vec![]),
        (3, vec![lease(0, 5, 5)]),
        (3, vec![lease(1, 0, 0)]),
        (3, vec![lease(1, 5, 6)]),
        (3, vec![lease(1, 5, 5), lease(1, 6, 6)]),
        (3, vec![lease(1, LEASE_TTL_MAX_SECONDS + 1, 0)]),
    ];
    for (revision, leases) in endings {
        let machine = Machine::new(1);
        let mut import = Import::begin(&dir(), Revision(-1), &small(), &machine.environment()).unwrap();
        import.add(change(3, 0, put(3, 1))).unwrap();
        let refused = import.finish(Revision(revision), &leases);
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{revision}, {leases:?}: {refused:?}");
    }
    assert!(Import::begin(&dir(), Revision(-2), &small(), &Machine::new(1).environment()).is_err());
}

#[test]
fn nothing_that_is_there_is_touched() {
    let machine = Machine::new(1);
    let begin = || Import::begin(&dir(), Revision(-1), &small(), &machine.environment());
    let keyspace = machine.open().unwrap();
    keyspace.put(put("a", "1")).wait().unwrap();
    let held = begin().unwrap_err().to_string();
    assert!(held.contains("it holds a keyspace already"), "{held}");
    keyspace.close().unwrap();
    drop(keyspace);
    let files = |machine: &Machine| -> Vec<_> {
        machine.disk.files().into_iter().map(|file| (file.clone(), machine.disk.contents(&file))).collect()
    };
    let before = files(&machine);
    assert!(begin().unwrap_err().to_string().contains("it holds a keyspace already"));
    assert_eq!(files(&machine), before);

    // While one import runs, another one and a start are refused.
    let machine = Machine::new(2);
    let begin = || Import::begin(&dir(), Revision(-1), &small(), &machine.environment());
    let import = begin().unwrap();
    assert!(begin().unwrap_err().to_string().contains("another process holds it"));
    assert!(machine.open().unwrap_err().to_string().contains("an import into it did not end"));
    import.finish(Revision(7), &[]).unwrap();
    let keyspace = machine.open().unwrap();
    assert_eq!(keyspace.put(put("a", "1")).wait().unwrap().revision, Revision(8));
}

#[test]
fn base_and_log_of_an_import_go_together() {
    let (_, made) = make(3, 40);
    let (one, other) = (Machine::new(1), Machine::new(2));
    import(&one, &made, -1).unwrap();
    // The base of a new keyspace in its place: the log tells that it begins behind an import.
    drop(other.open().unwrap());
    let base = dir().join("base.redb");
    let bytes = other.disk.contents(&base).unwrap();
    one.disk.damage(&base, 0, &bytes).unwrap();
    assert!(matches!(one.open(), Err(Error::LogMismatch { .. })), "{:?}", one.open());
}

#[test]
fn a_key_whose_lease_is_gone_stays_and_is_attached_to_none() {
    let machine = Machine::new(1);
    let mut import = Import::begin(&dir(), Revision(-1), &small(), &machine.environment()).unwrap();
    let at = RevisionPair { main: Revision(5), sub: 0 };
    let kind = ChangeKind::Put { create: Revision(5), version: 1, lease: 9, value: "v".into() };
    import.add(Change { key: "k".into(), at, kind }).unwrap();
    let report = import.finish(Revision(5), &[]).unwrap();
    assert_eq!((report.keys, report.orphans, report.lease_keys), (1, 1, 0));
    let keyspace = machine.open().unwrap();
    assert_eq!(get(&keyspace, "k").unwrap().lease, 9);
    keyspace.lease_grant(Some(LeaseId(9)), 100).wait().unwrap();
    keyspace.lease_revoke(LeaseId(9)).wait().unwrap();
    assert!(get(&keyspace, "k").is_some());
    keyspace.put(put("k", "w")).wait().unwrap();
    keyspace.flush().unwrap();
    keyspace.verify().unwrap();
}

/// Bytes that this process has handed to the system so far.
fn bytes_written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
    line.parse().unwrap()
}

#[test]
#[ignore = "a measurement: takes minutes and gigabytes"]
fn bytes_that_an_import_of_many_keys_writes() {
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (keys, value_bytes) = (number("IMPORT_KEYS", 1_000_000), number("IMPORT_VALUE", 256) as usize);
    let dir = tempfile::tempdir_in(std::env::var("IMPORT_DIR").unwrap_or_else(|_| ".".into())).unwrap();
    let environment =
        Environment { fs: Arc::new(fs::RealFs), clock: Arc::new(SystemClock::new()), entropy: Arc::new(SystemEntropy) };
    let (begun, before) = (std::time::Instant::now(), bytes_written());
    let mut import = Import::begin(&dir.path().join("data"), Revision(-1), &Options::standard(), &environment).unwrap();
    let mut data = 0;
    for n in 0..keys {
        // Scattered, each once.
        let key = format!("/registry/pods/namespace-{:02}/pod-{:08x}", n % 50, (n as u32).wrapping_mul(2_654_435_761));
        let at = RevisionPair { main: Revision(n as i64 + 2), sub: 0 };
        let value = Bytes::from(vec![n as u8; value_bytes]);
        data += (key.len() + value.len()) as u64;
        let kind = ChangeKind::Put { create: at.main, version: 1, lease: 0, value };
        import.add(Change { key: Bytes::from(key), at, kind }).unwrap();
    }
    let report = import.finish(Revision(keys as i64 + 1), &[]).unwrap();
    let (written, seconds) = (bytes_written() - before, begun.elapsed().as_secs_f64());
    println!(
        "{keys} keys, {} MiB of keys and values: {} MiB written ({} bytes a key), {} MiB on disk, {seconds:.0} s",
        data >> 20,
        written >> 20,
        written / keys,
        report.size_bytes >> 20
    );
    assert_eq!(report.keys, keys);
}
