//! Base is rewritten again and again while parts are flushed, the disk fills up, or the power goes.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::fs::FileSystem;
use crate::fs::sim::{CrashStyle, Fault, FaultKind};

/// What was acknowledged: revision and value.
type Acknowledged = Vec<(Revision, String)>;

/// Puts until something fails or enough were done, while base is rewritten all the time. Answers also how many rewrites were done.
fn work(keyspace: &Keyspace, puts: usize) -> (Acknowledged, u64) {
    let (done, mut acknowledged) = (AtomicBool::new(false), Vec::new());
    let rewrites = std::thread::scope(|scope| {
        let rewriter = scope.spawn(|| {
            let mut rewrites = 0;
            while !done.load(Ordering::Acquire) && keyspace.defragment().wait().is_ok() {
                rewrites += 1;
            }
            rewrites
        });
        for n in 0..puts {
            let Ok(reply) = keyspace.put(put(&format!("key {}", n % 50), format!("value {n}"))).wait() else { break };
            acknowledged.push((reply.revision, format!("value {n}")));
        }
        done.store(true, Ordering::Release);
        rewriter.join().unwrap()
    });
    (acknowledged, rewrites)
}

fn stored(keyspace: &Keyspace) -> Acknowledged {
    let value = |change: &Arc<Change>| String::from_utf8(change.key_value().unwrap().value.to_vec()).unwrap();
    history(keyspace, 2).iter().map(|change| (change.at.main, value(change))).collect()
}

#[test]
fn a_power_cut_at_any_operation_while_parts_and_rewrites_alternate_loses_nothing() {
    let (mut images, mut rewrites, mut cut_short) = (0, 0, 0);
    for nth in (20..1500).step_by(33) {
        let machine = Machine::new(nth);
        let keyspace = machine.open().unwrap();
        machine.disk.inject(Fault::new(FaultKind::Freeze, nth));
        let (acknowledged, done) = work(&keyspace, 400);
        rewrites += done;
        cut_short += u64::from(machine.disk.is_frozen());
        drop(keyspace);
        for style in [CrashStyle::KeepNone, CrashStyle::Sectors, CrashStyle::Pages, CrashStyle::KeepAll] {
            let after = machine.after_power_cut(style);
            let again = after.open().unwrap_or_else(|error| panic!("operation {nth}, {style:?}: {error}"));
            let found = stored(&again);
            assert_eq!(found.get(..acknowledged.len()), Some(acknowledged.as_slice()), "operation {nth}, {style:?}");
            assert!(found.len() <= acknowledged.len() + 1);
            again.verify().unwrap();
            images += 1;
        }
    }
    println!("{images} images, {rewrites} rewrites, {cut_short} runs cut short");
    assert!(images >= 160 && rewrites >= 40 && cut_short >= 15);
}

#[test]
fn a_disk_that_fills_up_gives_a_rewrite_up_and_loses_nothing() {
    let (mut given_up, mut done, mut puts) = (0, 0, 0);
    for step in 0..30 {
        let machine = Machine::new(step);
        let keyspace = machine.open().unwrap();
        for n in 0..300 {
            keyspace.put(put(&format!("key {n}"), vec![1; 1000])).wait().unwrap();
        }
        keyspace.flush().unwrap();
        // Enough to begin; what is written meanwhile takes the rest.
        machine.disk.set_capacity(keyspace.status().size_bytes + (1 << 20) + step * (100 << 10));
        let asked = keyspace.defragment();
        let mut last = Revision(0);
        let mut full = false;
        for n in 0..400 {
            match keyspace.put(put(&format!("key {}", n % 300), vec![2; 1000])).wait() {
                Ok(reply) => last = reply.revision,
                Err(error) => {
                    assert_eq!(error, Error::NoSpace);
                    full = true;
                    break;
                }
            }
            puts += 1;
        }
        match asked.wait() {
            Ok(_) => done += 1,
            Err(Error::NoRoomToShrink { .. } | Error::ShrinkFailed { .. }) => {
                given_up += 1;
                assert!(machine.disk.metadata(&dir().join("base.new")).unwrap().is_none());
            }
            Err(error) => panic!("step {step}: {error}"),
        }
        machine.disk.set_capacity(u64::MAX);
        while full && keyspace.flush().is_err() {
            std::thread::yield_now();
        }
        keyspace.defragment().wait().unwrap();
        keyspace.verify().unwrap();
        assert!(keyspace.revision() >= last);
        drop(keyspace);
        assert!(machine.after_power_cut(CrashStyle::KeepNone).open().unwrap().revision() >= last);
    }
    println!("{given_up} given up, {done} done, {puts} puts");
    assert!(given_up >= 3 && puts >= 1000);
}

#[test]
fn who_asks_on_a_full_disk_is_told_and_does_not_wait_for_room() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    for n in 0..20 {
        keyspace.put(put(&format!("key {n}"), vec![1; 1000])).wait().unwrap();
    }
    machine.disk.set_capacity(0);
    // What is in memory has to be flushed first, and cannot be.
    let refused = super::gate::within("an answer", {
        let asked = keyspace.defragment();
        move || asked.wait()
    });
    assert!(matches!(refused, Err(Error::NoRoomToShrink { free: 0, .. })), "{refused:?}");
    machine.disk.set_capacity(u64::MAX);
    while keyspace.flush().is_err() {
        std::thread::yield_now();
    }
    keyspace.defragment().wait().unwrap();
}
