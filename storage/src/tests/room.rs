//! A full disk is survived: what makes room always has some, the alarm goes by itself, and what an operator said stays.

use std::path::Path;
use std::time::Instant;

use super::*;
use crate::fs::sim::{CrashStyle, Fault, FaultKind};
use crate::fs::{FileSystem, OpenMode};

const MIB: u64 = 1 << 20;
/// A small volume, of which data may take a third.
const VOLUME: u64 = 24 * MIB;

fn volume(seed: u64) -> (Machine, Options) {
    let machine = Machine::new(seed);
    machine.disk.set_capacity(VOLUME);
    (machine, Options { quota_bytes: None, ..Options::for_volume(VOLUME) })
}

fn open(machine: &Machine, options: &Options) -> Keyspace {
    Keyspace::open(&dir(), options.clone(), machine.environment()).unwrap()
}

/// Somebody else takes all that is free.
fn fill_the_rest(machine: &Machine) -> u64 {
    let free = machine.disk.volume(&dir()).unwrap().free;
    let others = machine.disk.open(Path::new("/others"), OpenMode::CreateNew).unwrap();
    others.allocate(0, free / 4096 * 4096).unwrap();
    assert!(machine.disk.volume(&dir()).unwrap().free < 4096);
    free
}

/// Waits for what the keyspace does by itself.
fn await_that(what: &str, keyspace: &Keyspace, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}: {:?}", keyspace.status());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn alarms(keyspace: &Keyspace) -> Vec<AlarmKind> {
    keyspace.status().alarms.iter().map(|alarm| alarm.kind).collect()
}

fn everything() -> DeleteRange {
    DeleteRange { range: KeyRange::all(), prev_kv: false }
}

/// Puts values of this size until they are refused; answers how many were taken.
fn fill(keyspace: &Keyspace, value_bytes: usize) -> u64 {
    let mut puts = 0;
    loop {
        match keyspace.put(put(&format!("key {puts:08}"), vec![7; value_bytes])).wait() {
            Ok(_) => puts += 1,
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                return puts;
            }
        }
    }
}

fn compact_to_the_end(keyspace: &Keyspace) {
    keyspace.compact(keyspace.revision().0).wait().unwrap();
}

fn await_no_alarm(keyspace: &Keyspace) {
    await_that("the alarm goes", keyspace, || alarms(keyspace).is_empty());
}

/// Fills, deletes, compacts, again and again. Answers the least that a cycle took.
fn cycles(keyspace: &Keyspace, cycles: usize) -> u64 {
    let mut taken = Vec::new();
    for _ in 0..cycles {
        taken.push(fill(keyspace, 1000));
        await_that("the alarm is raised", keyspace, || alarms(keyspace) == [AlarmKind::NoSpace]);
        keyspace.delete_range(everything()).wait().unwrap();
        compact_to_the_end(keyspace);
        await_no_alarm(keyspace);
    }
    keyspace.verify().unwrap();
    println!("{taken:?} puts");
    taken.into_iter().min().unwrap()
}

#[test]
fn a_volume_that_fills_up_takes_as_much_again_once_that_is_deleted_and_compacted() {
    let (machine, options) = volume(1);
    let keyspace = open(&machine, &options);
    assert!(cycles(&keyspace, 8) >= 3000);
}

#[test]
fn the_same_if_somebody_else_fills_the_rest_of_the_volume() {
    let (machine, options) = volume(2);
    let keyspace = open(&machine, &options);
    await_that("the ballast is there", &keyspace, || {
        machine.disk.contents(dir().join("ballast")).is_some_and(|held| held.len() as u64 == options.ballast_bytes)
    });
    assert!(fill_the_rest(&machine) > 4 * MIB);
    assert!(cycles(&keyspace, 8) >= 700);
    // Once that is gone there is more.
    machine.disk.remove(Path::new("/others")).unwrap();
    assert!(cycles(&keyspace, 2) >= 3000);
}

#[test]
fn a_start_on_a_full_volume_goes_on_where_the_last_process_ended() {
    let (mut machine, options) = volume(3);
    for round in 0..4 {
        let keyspace = open(&machine, &options);
        if round == 0 {
            fill(&keyspace, 1000);
            fill_the_rest(&machine);
        }
        keyspace.delete_range(everything()).wait().unwrap();
        compact_to_the_end(&keyspace);
        await_no_alarm(&keyspace);
        assert!(fill(&keyspace, 1000) >= 1000, "round {round}");
        await_that("the alarm is raised", &keyspace, || !alarms(&keyspace).is_empty());
        drop(keyspace);
        machine = machine.after_power_cut(CrashStyle::KeepAll);
        machine.disk.set_capacity(VOLUME);
        assert_eq!(alarms(&open(&machine, &options)), [AlarmKind::NoSpace], "round {round}");
    }
}

#[test]
fn deletions_one_by_one_expiries_and_compaction_find_room_while_nothing_may_be_put() {
    for value_bytes in [1, 100, 3000, 20_000] {
        let (machine, options) = volume(4);
        let keyspace = open(&machine, &options);
        let lease = keyspace.lease_grant(None, 10).wait().unwrap().id;
        let other = keyspace.lease_grant(None, 1000).wait().unwrap().id;
        for n in 0..50 {
            let lease = PutLease::Attach(if n % 2 == 0 { lease } else { other });
            keyspace.put(Put { lease, ..put(&format!("leased {n}"), "value") }).wait().unwrap();
        }
        let puts = fill(&keyspace, value_bytes);
        await_that("the alarm is raised", &keyspace, || !alarms(&keyspace).is_empty());
        assert_eq!(keyspace.lease_grant(None, 10).wait(), Err(Error::NoSpace));
        fill_the_rest(&machine);
        machine.clock.advance(11_000);
        keyspace.poke();
        keyspace.lease_revoke(other).wait().unwrap();
        await_that("the lease runs out", &keyspace, || keyspace.leases().is_empty());
        for n in 0..puts {
            let deleted = keyspace.delete_range(delete(&format!("key {n:08}"))).wait();
            assert_eq!(deleted.map(|reply| reply.deleted), Ok(1), "{value_bytes} bytes, key {n} of {puts}");
        }
        compact_to_the_end(&keyspace);
        await_no_alarm(&keyspace);
        assert_eq!(keyspace.range(&RangeRequest::new(KeyRange::all())).unwrap().count, 0);
        assert!(fill(&keyspace, value_bytes) >= puts / 3, "{value_bytes} bytes: {puts} puts before");
    }
}

#[test]
fn what_is_overwritten_and_compacted_never_fills_the_volume() {
    let (machine, options) = volume(5);
    let keyspace = open(&machine, &options);
    let mut random = fs::sim::Prng::new(5);
    // Ten times what the volume takes.
    for n in 0..60_000 {
        let name = format!("key {:04}", random.below(400));
        keyspace.put(put(&name, vec![1; 1000])).wait().unwrap_or_else(|error| panic!("put {n}: {error}"));
        if n % 200 == 0 {
            compact_to_the_end(&keyspace);
        }
        if n % 2000 == 0 {
            // A machine with much to do may leave the other thread without a turn for as long as it takes to fill the volume.
            keyspace.wait_swept(keyspace.revision()).unwrap();
        }
        if n == 20_000 {
            fill_the_rest(&machine);
        }
    }
    assert_eq!(alarms(&keyspace), []);
    keyspace.verify().unwrap();
}

#[test]
fn leases_that_come_and_go_never_fill_the_volume() {
    let (machine, options) = volume(6);
    let keyspace = open(&machine, &options);
    await_that("the ballast is there", &keyspace, || machine.disk.contents(dir().join("ballast")).is_some());
    fill_the_rest(&machine);
    for n in 0..20_000 {
        let lease = keyspace.lease_grant(None, 30).wait().unwrap_or_else(|error| panic!("grant {n}: {error}")).id;
        let attached = Put { lease: PutLease::Attach(lease), ..put(&format!("holder {n}"), vec![1; 200]) };
        keyspace.put(attached).wait().unwrap_or_else(|error| panic!("put {n}: {error}"));
        if n % 2 == 0 {
            keyspace.lease_revoke(lease).wait().unwrap();
        }
        machine.clock.advance(100);
        if n % 1000 == 999 {
            compact_to_the_end(&keyspace);
        }
    }
    assert_eq!(alarms(&keyspace), []);
    machine.clock.advance(31_000);
    keyspace.poke();
    await_that("all leases run out", &keyspace, || keyspace.leases().is_empty());
}

#[test]
fn above_the_quota_puts_are_refused_until_a_useful_amount_fits() {
    let (machine, options) = (Machine::new(7), Options { quota_bytes: Some(8 * MIB), ..Options::for_volume(1 << 40) });
    let keyspace = open(&machine, &Options { ballast_bytes: 0, ..options });
    let puts = fill(&keyspace, 1000);
    assert!((7000..7500).contains(&puts), "{puts} puts of 1,000 bytes");
    await_that("the alarm is raised", &keyspace, || alarms(&keyspace) == [AlarmKind::NoSpace]);
    assert_eq!(keyspace.lease_grant(None, 10).wait(), Err(Error::NoSpace));
    let txn = Txn { success: vec![Op::Put(put("x", "y"))], ..Txn::default() };
    assert_eq!(keyspace.txn(txn).wait(), Err(Error::NoSpace));
    let used = keyspace.status().used_bytes;
    assert!((7 * MIB..9 * MIB).contains(&used), "{used} bytes in use");
    // A few keys are not enough: the alarm would be back at once.
    for n in 0..50 {
        keyspace.delete_range(delete(&format!("key {n:08}"))).wait().unwrap();
    }
    compact_to_the_end(&keyspace);
    keyspace.wait_swept(keyspace.revision()).unwrap();
    keyspace.flush().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(alarms(&keyspace), [AlarmKind::NoSpace]);
    for n in 50..1500 {
        keyspace.delete_range(delete(&format!("key {n:08}"))).wait().unwrap();
    }
    compact_to_the_end(&keyspace);
    await_no_alarm(&keyspace);
    assert!(keyspace.status().used_bytes < used - MIB / 2);
    // As much as was said to be useful fits: a sixteenth of the quota.
    for n in 0..250 {
        keyspace.put(put(&format!("new {n}"), vec![1; 1000])).wait().unwrap();
    }
}

#[test]
fn one_command_that_is_too_large_for_what_is_left_is_refused_alone() {
    let machine = Machine::new(8);
    let options = Options { quota_bytes: Some(8 * MIB), ballast_bytes: 0, ..Options::for_volume(1 << 40) };
    let keyspace = open(&machine, &options);
    for n in 0..5 {
        keyspace.put(put(&format!("large {n}"), vec![1; 1_000_000])).wait().unwrap();
    }
    assert_eq!(keyspace.put(put("larger", vec![1; 3_500_000])).wait(), Err(Error::NoSpace));
    keyspace.put(put("small", "1")).wait().unwrap();
    assert_eq!(alarms(&keyspace), []);
}

#[test]
fn an_alarm_that_an_operator_raised_stays_and_one_who_clears_it_clears_both() {
    let (machine, options) = volume(9);
    let keyspace = open(&machine, &options);
    let alarm = Alarm { member: keyspace.status().member, kind: AlarmKind::NoSpace };
    let puts = fill(&keyspace, 20_000);
    assert!((330..400).contains(&puts), "{puts} puts of 20,000 bytes");
    await_that("the alarm is raised", &keyspace, || !alarms(&keyspace).is_empty());
    keyspace.set_alarm(alarm, true).wait().unwrap();
    keyspace.delete_range(everything()).wait().unwrap();
    compact_to_the_end(&keyspace);
    let shared = &keyspace.inner.shared;
    await_that("the store's own goes", &keyspace, || !shared.head().out_of_room_alarm);
    assert_eq!(keyspace.status().alarms, [alarm]);
    assert_eq!(keyspace.put(put("a", "1")).wait(), Err(Error::NoSpace));
    keyspace.flush().unwrap();
    drop(keyspace);
    let keyspace = open(&machine.after_power_cut(CrashStyle::KeepNone), &options);
    assert_eq!(keyspace.status().alarms, [alarm]);
    assert_eq!(keyspace.set_alarm(alarm, false).wait().map(|(_, was_raised)| was_raised), Ok(true));
    keyspace.put(put("a", "1")).wait().unwrap();
    // And where the store raised it as well, an operator's word is enough for both.
    fill(&keyspace, 20_000);
    await_that("the alarm is raised", &keyspace, || !alarms(&keyspace).is_empty());
    keyspace.set_alarm(alarm, true).wait().unwrap();
    assert_eq!(keyspace.set_alarm(alarm, false).wait().map(|(_, was_raised)| was_raised), Ok(true));
    assert_eq!(alarms(&keyspace), []);
}

#[test]
fn a_sticky_alarm_is_raised_but_only_an_operator_clears_it() {
    let (machine, options) = volume(10);
    let options = Options { sticky_no_space: true, ..options };
    let keyspace = open(&machine, &options);
    fill(&keyspace, 20_000);
    await_that("the alarm is raised", &keyspace, || !alarms(&keyspace).is_empty());
    keyspace.delete_range(everything()).wait().unwrap();
    compact_to_the_end(&keyspace);
    keyspace.wait_swept(keyspace.revision()).unwrap();
    keyspace.flush().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let alarm = Alarm { member: keyspace.status().member, kind: AlarmKind::NoSpace };
    assert_eq!(keyspace.status().alarms, [alarm]);
    keyspace.set_alarm(alarm, false).wait().unwrap();
    keyspace.put(put("a", "1")).wait().unwrap();
}

#[test]
fn the_same_log_gives_the_same_alarms_whenever_parts_are_flushed() {
    let mut seen = Vec::new();
    for flushes in [false, true] {
        let (machine, options) = volume(11);
        let keyspace = open(&machine, &options);
        let mut states = Vec::new();
        let mut machine = machine;
        let mut keyspace = keyspace;
        for round in 0..3 {
            fill(&keyspace, 20_000);
            await_that("the alarm is raised", &keyspace, || !alarms(&keyspace).is_empty());
            if flushes {
                keyspace.flush().unwrap();
            }
            drop(keyspace);
            machine = machine.after_power_cut(CrashStyle::KeepNone);
            keyspace = open(&machine, &options);
            states.push((round, alarms(&keyspace)));
            keyspace.delete_range(everything()).wait().unwrap();
            compact_to_the_end(&keyspace);
            await_no_alarm(&keyspace);
            if flushes {
                keyspace.flush().unwrap();
            }
            drop(keyspace);
            machine = machine.after_power_cut(CrashStyle::KeepNone);
            keyspace = open(&machine, &options);
            states.push((round, alarms(&keyspace)));
        }
        seen.push(states);
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0][..2], [(0, vec![AlarmKind::NoSpace]), (0, vec![])]);
}

#[test]
fn a_power_cut_while_the_ballast_is_given_up_or_filled_again_loses_nothing() {
    let (mut images, mut short) = (0, 0);
    for nth in (50..4000).step_by(79) {
        let (machine, options) = volume(nth);
        let keyspace = open(&machine, &options);
        await_that("the ballast is there", &keyspace, || {
            machine.disk.contents(dir().join("ballast")).is_some_and(|held| held.len() as u64 == options.ballast_bytes)
        });
        fill_the_rest(&machine);
        machine.disk.inject(Fault::new(FaultKind::Freeze, nth));
        let mut acknowledged = 0;
        for n in 0..1500 {
            match keyspace.put(put(&format!("key {n}"), vec![1; 1400])).wait() {
                Ok(reply) => acknowledged = reply.revision.0,
                Err(_) => break,
            }
        }
        drop(keyspace);
        for style in [CrashStyle::KeepNone, CrashStyle::Sectors, CrashStyle::KeepAll] {
            let after = machine.after_power_cut(style);
            let keyspace = open(&after, &options);
            let found = keyspace.revision().0;
            assert!((acknowledged..=acknowledged + 1).contains(&found), "operation {nth}, {style:?}: {found}");
            short += u64::from(keyspace.status().size_bytes > 2 * MIB);
            keyspace.delete_range(everything()).wait().unwrap();
            compact_to_the_end(&keyspace);
            // If no alarm was raised before, this put raises one where the deletion has yet to be swept.
            await_that("a put", &keyspace, || keyspace.put(put("after", "1")).wait().is_ok());
            await_no_alarm(&keyspace);
            keyspace.verify().unwrap();
            images += 1;
        }
    }
    println!("{images} images, {short} of them with data to speak of");
    assert!(images >= 150 && short >= 30);
}
