//! Base is rewritten again and again while parts are flushed, the disk fills up, or the power goes.

use std::sync::atomic::AtomicBool;

use super::gate::{Gate, GatedFs, within};
use super::*;
use crate::fs::FileSystem;
use crate::fs::sim::{CrashStyle, Fault, FaultKind};

/// What was acknowledged: revision and value.
type Acknowledged = Vec<(Revision, String)>;

/// Puts until something fails or enough were done, while base is rewritten all the time. Answers also how many rewrites were done.
fn work(keyspace: &Keyspace, dead: &(dyn Fn() -> bool + Sync), puts: usize) -> (Acknowledged, u64) {
    let (done, mut acknowledged) = (AtomicBool::new(false), Vec::new());
    let rewrites = std::thread::scope(|scope| {
        let rewriter = scope.spawn(|| {
            let mut rewrites = 0;
            while !done.load(Ordering::Acquire) {
                match keyspace.defragment().wait() {
                    Ok(_) => rewrites += 1,
                    Err(error) => {
                        assert!(dead(), "{error}");
                        break;
                    }
                }
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
        let (acknowledged, done) = work(&keyspace, &|| machine.disk.is_frozen(), 400);
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
        let asked = keyspace.defragment();
        let mut last = Revision(0);
        let mut full = false;
        for n in 0..400 {
            if n == 40 + step {
                // Somebody else takes nearly all that is free.
                machine.disk.set_capacity(keyspace.status().size_bytes + step * (100 << 10));
            }
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
    let refused = within("an answer", {
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

#[test]
fn compaction_goes_on_while_base_is_rewritten_in_many_steps() {
    let (mut rewrites, mut compactions, mut writes) = (0, 0, 0);
    for seed in 0..6 {
        let machine = Machine::new(seed);
        let options = Options { cache_bytes: 32 << 10, ..small() };
        let open = || Keyspace::open(&dir(), options.clone(), machine.environment()).unwrap();
        let keyspace = open();
        let done = AtomicBool::new(false);
        let expected = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let (mut random, mut expected) = (fs::sim::Prng::new(seed), std::collections::BTreeMap::new());
                while !done.load(Ordering::Acquire) {
                    let name = format!("key {}", random.below(120));
                    let last = if random.chance(25) {
                        expected.remove(&name);
                        keyspace.delete_range(delete(&name)).wait().unwrap().revision
                    } else {
                        let value = vec![b'v'; random.below(800) as usize];
                        expected.insert(name.clone(), value.clone());
                        keyspace.put(put(&name, value)).wait().unwrap().revision
                    };
                    writes += 1;
                    if random.chance(5) && last.0 - 10 > keyspace.status().compacted.0 {
                        keyspace.compact(last.0 - 10).wait().unwrap();
                        compactions += 1;
                    }
                }
                expected
            });
            while keyspace.revision().0 < 300 {
                std::thread::yield_now();
            }
            let results: Vec<_> = (0..12).map(|_| keyspace.defragment().wait()).collect();
            done.store(true, Ordering::Release);
            // Looked at only now: the writer must be stopped first.
            rewrites += results.into_iter().map(Result::unwrap).count();
            writer.join().unwrap()
        });
        let found = |keyspace: &Keyspace| {
            let kvs = keyspace.range(&RangeRequest::new(KeyRange::all())).unwrap().kvs;
            let pair = |kv: KeyValue| (String::from_utf8(kv.key.to_vec()).unwrap(), kv.value.to_vec());
            kvs.into_iter().map(pair).collect::<std::collections::BTreeMap<_, _>>()
        };
        assert_eq!(found(&keyspace), expected, "seed {seed}");
        keyspace.wait_swept(keyspace.status().compacted).unwrap();
        keyspace.verify().unwrap();
        drop(keyspace);
        assert_eq!(found(&open()), expected, "opened again, seed {seed}");
    }
    println!("{rewrites} rewrites, {compactions} compactions, {writes} writes");
    assert!(rewrites == 72 && compactions >= 50 && writes >= 2000);
}

/// A keyspace whose maintenance thread is held where it first syncs the new file.
fn held(machine: &Machine) -> (Gate, Keyspace, Pending<Shrunk>) {
    let gate = Gate::default();
    let keyspace = Keyspace::open(&dir(), small(), GatedFs::environment(machine, &gate)).unwrap();
    for n in 0..50 {
        keyspace.put(put(&format!("key {n}"), vec![1; 300])).wait().unwrap();
    }
    keyspace.flush().unwrap();
    gate.hold_at_sync("maintenance");
    let asked = keyspace.defragment();
    gate.somebody_waits();
    assert!(machine.disk.metadata(&dir().join("base.new")).unwrap().is_some());
    (gate, keyspace, asked)
}

#[test]
fn nobody_waits_for_a_rewrite_that_waits_for_the_disk() {
    let machine = Machine::new(1);
    let (gate, keyspace, asked) = held(&machine);
    let stream = keyspace.watch_stream();
    stream.create(WatchSpec { start: StartAt::Revision(2), ..WatchSpec::new(KeyRange::all()) });
    for n in 0..30 {
        let other = keyspace.clone();
        within("a put", move || other.put(put(&format!("key {n}"), "new")).wait().unwrap());
        assert_eq!(get(&keyspace, &format!("key {n}")).unwrap().value, "new");
    }
    let other = keyspace.clone();
    assert_eq!(within("a watch", move || history(&other, 2)).len(), 80);
    gate.open();
    within("the rewrite", move || asked.wait()).unwrap();
    assert_eq!(history(&keyspace, 2).len(), 80);
    keyspace.verify().unwrap();
    // What was written meanwhile is in memory or in the new base.
    drop(keyspace);
    assert_eq!(history(&machine.open().unwrap(), 2).len(), 80);
}

#[test]
fn closing_gives_a_rewrite_up_and_answers_whoever_waits() {
    let machine = Machine::new(1);
    let (gate, keyspace, asked) = held(&machine);
    let other = keyspace.clone();
    let closing = std::thread::spawn(move || other.close());
    while !keyspace.inner.shared.queue.is_ending() {
        std::thread::yield_now();
    }
    gate.open();
    assert_eq!(within("the answer", move || asked.wait()), Err(Error::Stopped));
    closing.join().unwrap().unwrap();
    assert_eq!(keyspace.defragment().wait(), Err(Error::Stopped));
    assert!(machine.disk.metadata(&dir().join("base.new")).unwrap().is_none());
    drop(keyspace);
    assert_eq!(history(&machine.open().unwrap(), 2).len(), 50);
}
