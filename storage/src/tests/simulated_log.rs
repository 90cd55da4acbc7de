//! A log far away on a bad day: lost answers, copies, delays, a full disk, another history.

use super::*;
use crate::log::{MemoryLog, Trick};

fn open(machine: &Machine, log: &MemoryLog) -> Result<Keyspace, Error> {
    Keyspace::open_with_log(&dir(), small(), machine.environment(), Box::new(log.clone()))
}

#[test]
fn lost_answers_copies_and_delays_neither_lose_nor_repeat_a_write() {
    let (mut writes, mut restarts) = (0, 0);
    for seed in 1..=30 {
        let machine = Machine::new(seed);
        let log = MemoryLog::new(LogId(7));
        log.chaos(seed, 40);
        let mut keyspace = open(&machine, &log).unwrap();
        let mut acknowledged = Vec::new();
        for n in 0..120 {
            let reply = loop {
                match keyspace.put(put(&format!("k{}", n % 7), format!("{seed}-{n}"))).wait() {
                    Ok(reply) => break reply,
                    // The log was full for once; nothing was begun.
                    Err(error) => assert_eq!(error, Error::NoSpace),
                }
            };
            acknowledged.push((reply.revision, format!("{seed}-{n}")));
            writes += 1;
            if n % 29 == 0 {
                drop(keyspace);
                keyspace = open(&machine, &log).unwrap();
                restarts += 1;
            }
            if n % 17 == 0 {
                keyspace.flush().unwrap();
            }
        }
        let stored: Vec<(Revision, String)> = history(&keyspace, 2)
            .iter()
            .map(|change| (change.at.main, String::from_utf8(change.key_value().unwrap().value.to_vec()).unwrap()))
            .collect();
        assert_eq!(stored, acknowledged, "seed {seed}");
    }
    println!("{writes} writes, {restarts} restarts");
    assert!(writes >= 3000 && restarts >= 100);
}

#[test]
fn a_full_log_refuses_and_takes_writes_again_when_there_is_room() {
    let (machine, log) = (Machine::new(1), MemoryLog::new(LogId(7)));
    let keyspace = open(&machine, &log).unwrap();
    keyspace.put(put("a", "1")).wait().unwrap();
    log.set_full(true);
    assert_eq!(keyspace.put(put("a", "2")).wait(), Err(Error::NoSpace));
    log.set_full(false);
    assert_eq!(keyspace.put(put("a", "3")).wait().unwrap().revision, Revision(3));
    assert_eq!(get(&keyspace, "a").unwrap().value, "3");
}

#[test]
fn a_frame_of_a_process_that_was_replaced_has_no_effect() {
    let (machine, log) = (Machine::new(1), MemoryLog::new(LogId(7)));
    let first = open(&machine, &log).unwrap();
    first.put(put("a", "1")).wait().unwrap();
    log.play(Trick::Delay { calls: 60 });
    let lost = first.put(put("a", "late"));
    drop(first);
    drop(lost);
    let second = open(&Machine { seed: 2, ..machine }, &log).unwrap();
    for n in 0..100 {
        second.put(put("a", format!("new {n}"))).wait().unwrap();
    }
    assert_eq!(get(&second, "a").unwrap().value, "new 99");
    let values = history(&second, 2).iter().map(|change| change.key_value().unwrap().value).collect::<Vec<_>>();
    assert!(values.windows(2).all(|pair| pair[0] != "new 0" || pair[1] == "new 1"), "{values:?}");
}

#[test]
fn rewritten_history_is_noticed() {
    let (machine, log) = (Machine::new(1), MemoryLog::new(LogId(7)));
    let keyspace = open(&machine, &log).unwrap();
    for n in 0..10 {
        keyspace.put(put("a", format!("{n}"))).wait().unwrap();
    }
    drop(keyspace);
    assert!(log.rewrite(Position(4)));
    match open(&machine, &log) {
        Err(Error::LogMismatch { position: Position(5), .. }) => {}
        other => panic!("the frame after the rewritten one must not fit: {:?}", other.err()),
    }
}

#[test]
fn a_log_that_lost_what_base_holds_is_refused() {
    let (machine, log) = (Machine::new(1), MemoryLog::new(LogId(7)));
    let keyspace = open(&machine, &log).unwrap();
    for n in 0..10 {
        keyspace.put(put("a", format!("{n}"))).wait().unwrap();
    }
    keyspace.flush().unwrap();
    drop(keyspace);
    let emptied = MemoryLog::new(LogId(7));
    assert!(matches!(open(&machine, &emptied), Err(Error::LogMismatch { position: Position(10), .. })));
}

#[test]
fn a_log_that_fails_ends_the_keyspace_and_leaves_it_readable() {
    let (machine, log) = (Machine::new(1), MemoryLog::new(LogId(7)));
    let keyspace = open(&machine, &log).unwrap();
    keyspace.put(put("a", "1")).wait().unwrap();
    log.fail();
    assert_eq!(keyspace.put(put("a", "2")).wait(), Err(Error::OutcomeUnknown));
    assert_eq!(keyspace.put(put("a", "3")).wait(), Err(Error::Stopped));
    assert_eq!(get(&keyspace, "a").unwrap().value, "1");
    assert!(keyspace.close().is_err());
}
