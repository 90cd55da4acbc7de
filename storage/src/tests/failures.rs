//! Disks that fail, fill up and lose power: nothing acknowledged is lost, and callers are told the truth.

use super::*;
use crate::fs::sim::{CrashStyle, Fault, FaultKind, Op};

/// What a workload was told: the last acknowledged revision and what went wrong first.
struct Told {
    acknowledged: Vec<(Revision, String)>,
    error: Option<Error>,
}

/// Puts until something fails, or 400 were done, with flushes on the way.
fn work(keyspace: &Keyspace) -> Told {
    let mut told = Told { acknowledged: Vec::new(), error: None };
    for n in 0..400 {
        match keyspace.put(put(&format!("key {}", n % 50), format!("value {n}"))).wait() {
            Ok(reply) => told.acknowledged.push((reply.revision, format!("value {n}"))),
            Err(error) => {
                told.error = Some(error);
                break;
            }
        }
    }
    told
}

/// The disk after a power cut holds what was acknowledged, in order, and at most one write more.
fn check(machine: &Machine, told: &Told, style: CrashStyle, context: &str) {
    let after = machine.after_power_cut(style);
    let keyspace = after.open().unwrap_or_else(|error| panic!("{context}: {error}"));
    let stored: Vec<(Revision, String)> = history(&keyspace, 2)
        .iter()
        .map(|change| (change.at.main, String::from_utf8(change.key_value().unwrap().value.to_vec()).unwrap()))
        .collect();
    let acknowledged = &told.acknowledged;
    assert!(stored.len() <= acknowledged.len() + 1, "{context}: {} stored", stored.len());
    assert_eq!(stored.get(..acknowledged.len()), Some(acknowledged.as_slice()), "{context}");
    let next = keyspace.put(put("next", "1")).wait().unwrap().revision;
    assert_eq!(next, Revision(stored.len() as i64 + 2), "{context}");
}

#[test]
fn an_error_of_any_write_or_sync_is_final_and_loses_nothing() {
    let (mut struck, mut checked) = (0, 0);
    for op in [Op::Write, Op::Sync, Op::SetLen, Op::Rename, Op::Remove, Op::SyncDir] {
        for kind in [FaultKind::Io, FaultKind::Partial] {
            for nth in [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377] {
                let machine = Machine::new(nth);
                let keyspace = machine.open().unwrap();
                machine.disk.inject(Fault::new(kind, nth).on(op));
                let told = work(&keyspace);
                if let Some(error) = &told.error {
                    struck += 1;
                    assert!(matches!(error, Error::OutcomeUnknown | Error::Stopped), "{error}");
                    assert_eq!(keyspace.put(put("late", "1")).wait(), Err(Error::Stopped));
                    let read = keyspace.range(&RangeRequest::new(KeyRange::single(key("key 0"))));
                    assert!(read.is_ok() || told.acknowledged.is_empty() || read.is_err_and(|error| error.is_final()));
                }
                drop(keyspace);
                for style in [CrashStyle::KeepNone, CrashStyle::Sectors, CrashStyle::KeepAll] {
                    check(&machine, &told, style, &format!("{op:?} {kind:?} {nth} {style:?}"));
                    checked += 1;
                }
            }
        }
    }
    println!("{struck} runs met their fault, {checked} images checked");
    assert!(struck >= 60 && checked >= 400);
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_acknowledged() {
    let mut images = 0;
    for nth in (1..600).step_by(7) {
        let machine = Machine::new(nth);
        let keyspace = machine.open().unwrap();
        machine.disk.inject(Fault::new(FaultKind::Freeze, nth));
        let told = work(&keyspace);
        drop(keyspace);
        for style in [CrashStyle::KeepNone, CrashStyle::Sectors, CrashStyle::Pages, CrashStyle::KeepAll] {
            check(&machine, &told, style, &format!("frozen at operation {nth}, {style:?}"));
            images += 1;
        }
    }
    println!("{images} images");
    assert!(images >= 300);
}

#[test]
fn a_power_cut_while_the_directory_is_created_leaves_one_that_opens() {
    let mut opened = 0;
    for nth in 1..200 {
        let machine = Machine::new(nth);
        machine.disk.inject(Fault::new(FaultKind::Freeze, nth));
        let created = machine.open();
        let done = created.is_ok();
        drop(created);
        for style in [CrashStyle::KeepNone, CrashStyle::Sectors, CrashStyle::KeepAll] {
            let after = machine.after_power_cut(style);
            let keyspace = after.open().unwrap_or_else(|error| panic!("operation {nth}, {style:?}: {error}"));
            assert_eq!(keyspace.put(put("a", "1")).wait().unwrap().revision, Revision(2));
            opened += 1;
        }
        if done {
            break;
        }
    }
    println!("{opened} images");
    assert!(opened >= 60);
}

#[test]
fn a_full_disk_refuses_writes_keeps_reads_and_recovers() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    keyspace.put(put("a", "1")).wait().unwrap();
    machine.disk.set_capacity(0);
    let mut refused = 0;
    for n in 0..3000 {
        match keyspace.put(put(&format!("fill {n}"), vec![7; 200])).wait() {
            Ok(_) => assert_eq!(refused, 0),
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                refused += 1;
            }
        }
        if refused > 3 {
            break;
        }
    }
    assert!(refused > 3, "the disk never filled up");
    assert_eq!(get(&keyspace, "a").unwrap().value, "1");
    machine.disk.set_capacity(u64::MAX);
    // Room has come back: what waits is flushed, then the alarm goes.
    while keyspace.flush().is_err() || !keyspace.status().alarms.is_empty() {
        std::thread::yield_now();
    }
    // Before the alarm is raised there is none either: then it is the next put that is taken.
    let revision = loop {
        match keyspace.put(put("a", "2")).wait() {
            Ok(reply) => break reply.revision,
            Err(error) => assert_eq!(error, Error::NoSpace),
        }
    };
    drop(keyspace);
    let again = machine.after_power_cut(CrashStyle::KeepNone).open().unwrap();
    assert_eq!(again.revision(), revision);
    assert_eq!(get(&again, "a").unwrap().value, "2");
}

#[test]
fn a_directory_that_is_held_foreign_or_newer_is_refused_and_not_touched() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    keyspace.put(put("a", "1")).wait().unwrap();
    let held = machine.open().unwrap_err().to_string();
    assert!(held.contains("another process holds it"), "{held}");
    keyspace.close().unwrap();
    let identity = dir().join("identity");
    machine.disk.damage(&identity, 8, &[9]).unwrap();
    let before = machine.disk.contents(dir().join("base.redb"));
    let newer = machine.open().unwrap_err().to_string();
    assert!(newer.contains("format 9") && newer.contains("format 1"), "{newer}");
    assert_eq!(machine.disk.contents(dir().join("base.redb")), before);
    machine.disk.damage(&identity, 0, b"X").unwrap();
    assert!(matches!(machine.open(), Err(Error::Corrupt { .. })));
}
