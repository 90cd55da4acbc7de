//! What a look from outside says of a data directory, and that it leaves everything as it is.

use super::*;
use crate::fs::FileSystem;
use crate::fs::sim::{CrashStyle, Prng};

fn look(machine: &Machine) -> Result<VerifyReport, Error> {
    let disk: Arc<dyn FileSystem> = Arc::new(machine.disk.clone());
    verify(&dir(), &disk, 1 << 20)
}

/// A directory whose process lost power, with data in base and in the log; of each key the last value.
fn after_a_crash(seed: u64) -> Machine {
    let machine = Machine::new(seed);
    let keyspace = machine.open().unwrap();
    keyspace.lease_grant(Some(LeaseId(5)), 1000).wait().unwrap();
    for n in 0..330 {
        let lease = if n % 3 == 0 { PutLease::Attach(LeaseId(5)) } else { PutLease::Detach };
        keyspace.put(Put { lease, ..put(&format!("key {}", n % 70), vec![b'v'; n % 150]) }).wait().unwrap();
    }
    keyspace.flush().unwrap();
    keyspace.put(put("last", "in the log alone")).wait().unwrap();
    machine.after_power_cut(CrashStyle::KeepNone)
}

fn files(machine: &Machine) -> Vec<(PathBuf, Vec<u8>)> {
    let names = machine.disk.files().into_iter().filter(|name| !name.ends_with("lock"));
    names.map(|name| (name.clone(), machine.disk.contents(&name).unwrap())).collect()
}

#[test]
fn a_sound_directory_is_counted_and_left_as_it_is() {
    let machine = after_a_crash(1);
    let before = files(&machine);
    let report = look(&machine).unwrap();
    assert_eq!(report.damage, []);
    assert_eq!((report.versions, report.ahead, report.torn_bytes), (330, 1, 0));
    assert!(report.rows > 330 + 70 && report.frames > 0 && report.revision == Revision(331));
    assert_eq!(files(&machine), before);
    let keyspace = machine.open().unwrap();
    assert!(look(&machine).unwrap_err().to_string().contains("another process holds it"));
    keyspace.close().unwrap();
    drop(keyspace);
    let report = look(&machine).unwrap();
    assert_eq!((report.damage, report.ahead, report.versions), (vec![], 0, 331));
}

#[test]
fn what_is_no_data_directory_is_not_looked_at() {
    let machine = Machine::new(1);
    assert!(look(&machine).unwrap_err().to_string().contains("not a data directory"));
    assert!(machine.disk.files().is_empty());
    let import = Import::begin(&dir(), Revision(-1), &small(), &machine.environment()).unwrap();
    assert!(look(&machine).unwrap_err().to_string().contains("never completed"));
    drop(import);
}

#[test]
fn a_flipped_bit_in_a_value_and_a_cut_log_are_named() {
    let mut rng = Prng::new(3);
    let (mut base, mut log) = (0, 0);
    for seed in 0..40 {
        let machine = after_a_crash(seed);
        let name = if seed % 2 == 0 { "base.redb" } else { "log" };
        let target = machine.disk.files().into_iter().find(|file| file.starts_with(dir().join(name))).unwrap();
        let bytes = machine.disk.contents(&target).unwrap();
        // A value of the data, or a sector of a frame.
        let places: Vec<usize> = bytes
            .windows(24)
            .enumerate()
            .filter(|(_, window)| window.iter().all(|byte| *byte == b'v'))
            .map(|(at, _)| at)
            .collect();
        let at = places[rng.below(places.len() as u64) as usize] + 12;
        machine.disk.damage(&target, at as u64, b"w").unwrap();
        let before = files(&machine);
        let report = look(&machine).unwrap();
        assert_eq!(files(&machine), before);
        match report.damage.first() {
            Some(Error::Corrupt { place, .. }) if place.contains("offset") => log += 1,
            Some(Error::Corrupt { place, .. }) if ["index", "history"].iter().any(|table| place.contains(table)) => {
                base += 1
            }
            // A page that is no longer in use.
            None if name == "base.redb" => {}
            other => panic!("{target:?} at {at}: {other:?}"),
        }
    }
    println!("{base} found in base, {log} in the log");
    assert!(base >= 8 && log >= 15, "{base}, {log}");
}

#[test]
fn a_base_of_another_history_is_named() {
    let (one, other) = (after_a_crash(1), after_a_crash(2));
    let base = dir().join("base.redb");
    let bytes = other.disk.contents(&base).unwrap();
    one.disk.damage(&base, 0, &bytes).unwrap();
    let report = look(&one).unwrap();
    assert!(matches!(report.damage.as_slice(), [Error::LogMismatch { .. }]), "{report:?}");
}
