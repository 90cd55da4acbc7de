//! However a keyspace ends, nobody is left waiting, and what was published stays readable.

use super::gate::{Gate, GatedFs, Meets, within};
use super::*;
use crate::engine::lessor::KeepAlive;
use crate::log::MemoryLog;

/// Reads come from the disk.
fn uncached() -> Options {
    Options { cache_bytes: 0, ..small() }
}

fn gated(machine: &Machine) -> (Gate, Keyspace) {
    let gate = Gate::default();
    let keyspace = Keyspace::open(&dir(), uncached(), GatedFs::environment(machine, &gate)).unwrap();
    (gate, keyspace)
}

/// A keyspace whose thread panicked tells everybody, and can still be closed.
fn check_ended(keyspace: &Keyspace) {
    let other = keyspace.clone();
    within("a write", move || assert!(other.put(put("late", "1")).wait().is_err()));
    let other = keyspace.clone();
    // It may have been on the disk already; what counts is that nobody waits.
    within("a flush", move || drop(other.flush()));
    let other = keyspace.clone();
    let error = within("the error", move || Pending::new(async move { Ok(other.failed().await) }).wait().unwrap());
    assert!(error.to_string().contains("panicked"), "{error}");
    let other = keyspace.clone();
    within("a stream", move || {
        let stream = other.watch_stream();
        while !stream.recv().unwrap().iter().any(|message| matches!(message, WatchMessage::Ended)) {}
    });
    let other = keyspace.clone();
    assert_eq!(within("closing", move || other.close()), Err(error));
}

#[test]
fn a_panic_of_the_committer_ends_the_keyspace() {
    let (gate, keyspace) = gated(&Machine::new(1));
    keyspace.put(put("a", "1")).wait().unwrap();
    gate.set("committer", Meets::Panic);
    let puts: Vec<_> = (0..20).map(|n| keyspace.put(put("a", format!("{n}")))).collect();
    within("the replies", move || puts.into_iter().for_each(|put| assert!(put.wait().is_err())));
    check_ended(&keyspace);
    assert_eq!(get(&keyspace, "a").unwrap().value, "1");
}

#[test]
fn a_panic_of_the_maintenance_thread_ends_the_keyspace() {
    for options in [uncached(), small()] {
        let (machine, gate) = (Machine::new(1), Gate::default());
        let keyspace = Keyspace::open(&dir(), options, GatedFs::environment(&machine, &gate)).unwrap();
        keyspace.put(put("a", "1")).wait().unwrap();
        gate.set("maintenance", Meets::Panic);
        let other = keyspace.clone();
        // It may have been on the disk already; what counts is that nobody waits.
        within("a flush", move || drop(other.flush()));
        check_ended(&keyspace);
        assert_eq!(get(&keyspace, "a").unwrap().value, "1");
    }
}

#[test]
fn a_panic_of_the_hub_ends_the_keyspace() {
    let (gate, keyspace) = gated(&Machine::new(1));
    keyspace.put(put("a", vec![1; 5000])).wait().unwrap();
    keyspace.flush().unwrap();
    let stream = keyspace.watch_stream();
    stream.create(WatchSpec { prev_kv: true, ..WatchSpec::new(KeyRange::all()) });
    // It reads what the key was before from the disk.
    gate.set("hub", Meets::Panic);
    // Carried out, or refused if the hub was quicker.
    drop(keyspace.put(put("a", "2")).wait());
    let other = keyspace.clone();
    within("a compaction", move || drop(other.compact(other.revision().0).wait()));
    check_ended(&keyspace);
}

#[test]
fn a_flush_on_its_way_stops_neither_writes_nor_the_status() {
    let (gate, keyspace) = gated(&Machine::new(1));
    keyspace.put(put("a", "1")).wait().unwrap();
    gate.hold_at_sync("maintenance");
    let other = keyspace.clone();
    let flush = std::thread::spawn(move || other.flush());
    gate.somebody_waits();
    let other = keyspace.clone();
    within("a write", move || assert!(other.put(put("a", "2")).wait().is_ok()));
    let other = keyspace.clone();
    within("the status", move || assert_eq!(other.status().revision, Revision(3)));
    gate.open();
    flush.join().unwrap().unwrap();
}

#[test]
fn a_log_that_fails_leaves_readable_what_lies_on_the_disk_alone() {
    let (machine, log) = (Machine::new(1), MemoryLog::new(LogId(7)));
    let open = || Keyspace::open_with_log(&dir(), uncached(), machine.environment(), Box::new(log.clone())).unwrap();
    let keyspace = open();
    for n in 0..300 {
        keyspace.put(put(&format!("key {n}"), vec![n as u8; 500])).wait().unwrap();
    }
    keyspace.close().unwrap();
    let keyspace = open();
    log.fail();
    assert_eq!(keyspace.put(put("a", "1")).wait(), Err(Error::OutcomeUnknown));
    let other = keyspace.clone();
    drop(within("the end", move || Pending::new(async move { Ok(other.failed().await) }).wait()));
    for n in 0..300 {
        assert_eq!(get(&keyspace, &format!("key {n}")).unwrap().value, vec![n as u8; 500]);
    }
}

#[test]
fn a_keep_alive_that_waits_for_an_expiry_is_answered_at_the_end() {
    let keyspace = Machine::new(1).open().unwrap();
    keyspace.lease_grant(Some(LeaseId(5)), 10).wait().unwrap();
    // The committer sleeps: it does not know yet that the clock has moved.
    let lessor = &keyspace.inner.shared.lessor;
    let KeepAlive::Expiring(outcome) = lessor.keep_alive(LeaseId(5), Duration::from_secs(11)) else {
        panic!("the lease has run out")
    };
    keyspace.close().unwrap();
    within("the outcome", move || assert!(outcome.blocking_recv().is_err()));
    let other = keyspace.clone();
    assert_eq!(within("later", move || other.lease_keep_alive(LeaseId(5)).wait()), Err(Error::Stopped));
}

#[test]
fn nothing_follows_the_end_of_a_stream_and_nobody_waits_for_it() {
    let keyspace = Machine::new(1).open().unwrap();
    for n in 0..10 {
        keyspace.put(put("a", format!("{n}"))).wait().unwrap();
    }
    let stream = keyspace.watch_stream();
    stream.create(WatchSpec { progress_notify: true, ..WatchSpec::new(KeyRange::all()) });
    stream.create(WatchSpec { start: StartAt::Revision(2), ..WatchSpec::new(KeyRange::all()) });
    stream.create(WatchSpec { start: StartAt::Revision(i64::MAX), ..WatchSpec::new(KeyRange::all()) });
    keyspace.close().unwrap();
    stream.create(WatchSpec { start: StartAt::Revision(3), ..WatchSpec::new(KeyRange::all()) });
    stream.request_progress();
    stream.tick();
    stream.cancel(WatchId(0));
    stream.catch_up().unwrap();
    let rest = within("the end", move || {
        let messages = stream.recv().unwrap();
        assert!(matches!(messages.last(), Some(WatchMessage::Ended)), "{messages:?}");
        (stream.is_behind(), stream.recv().err())
    });
    assert_eq!(rest, (false, Some(Error::Stopped)));
}

#[test]
fn a_full_disk_does_not_stop_a_start() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    let mut written = 30;
    for n in 0..written {
        keyspace.put(put(&format!("key {n}"), vec![7; 200])).wait().unwrap();
    }
    machine.disk.set_capacity(0);
    while keyspace.put(put(&format!("key {written}"), vec![7; 200])).wait().is_ok() {
        written += 1;
    }
    drop(keyspace);
    let next = machine.after_power_cut(fs::sim::CrashStyle::KeepNone);
    next.disk.set_capacity(0);
    let keyspace = next.open().unwrap();
    assert_eq!(keyspace.revision(), Revision(written + 1));
    assert!(get(&keyspace, "key 0").is_some());
    next.disk.set_capacity(u64::MAX);
    while keyspace.flush().is_err() {
        std::thread::yield_now();
    }
}
