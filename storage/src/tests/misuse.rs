//! Callers that do what they should not: they are told, and harm nobody.

use super::*;
use crate::log::MemoryLog;
use crate::read::counts::Counts;

#[test]
fn a_log_that_is_not_the_directorys_own_is_refused() {
    let machine = Machine::new(1);
    let open = |log: &MemoryLog| Keyspace::open_with_log(&dir(), small(), machine.environment(), Box::new(log.clone()));
    let own = MemoryLog::new(LogId(7));
    let keyspace = open(&own).unwrap();
    keyspace.put(put("a", "1")).wait().unwrap();
    drop(keyspace);
    // Base is still empty, so that nothing but the name tells that this log continues something else.
    match open(&MemoryLog::new(LogId(8))) {
        Err(Error::LogMismatch { .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(get(&open(&own).unwrap(), "a").unwrap().value, "1");
}

#[test]
fn many_refused_puts_raise_the_alarm_once_and_all_hear_of_the_lack_of_room() {
    let machine = Machine::new(1);
    let options = Options { quota_bytes: Some(1), queue_commands: 4, ..small() };
    let keyspace = Keyspace::open(&dir(), options, machine.environment()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|_| assert_eq!(keyspace.put(put("a", "1")).wait(), Err(Error::NoSpace))));
        }
    });
    while keyspace.status().alarms.is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(keyspace.status().applied, Position(1), "more than the one alarm was logged");
}

#[test]
fn no_lease_has_the_id_that_means_none() {
    let keyspace = Machine::new(1).open().unwrap();
    let granted = keyspace.lease_grant(Some(LeaseId(0)), 10).wait().unwrap();
    assert_ne!(granted.id, LeaseId(0));
    let attach = Put { lease: PutLease::Attach(LeaseId(0)), ..put("a", "1") };
    assert_eq!(keyspace.put(attach).wait(), Err(Error::LeaseNotFound(LeaseId(0))));
}

#[test]
#[should_panic(expected = "only reads")]
fn a_transaction_that_writes_is_not_run_as_a_read() {
    let keyspace = Machine::new(1).open().unwrap();
    drop(keyspace.read_txn(&Txn { success: vec![Op::Put(put("a", "1"))], ..Txn::default() }));
}

#[test]
fn counts_of_ranges_with_huge_ends_are_not_kept() {
    let counts = Counts::default();
    let (short, huge) = (Bytes::from_static(b"a"), Bytes::from(vec![7; 1 << 20]));
    counts.remember(short.clone(), Some(&huge), Revision(5), 3);
    counts.remember(short.clone(), None, Revision(5), 4);
    assert_eq!(counts.recall(&short, Some(&huge), Revision(5)), None);
    assert_eq!(counts.recall(&short, None, Revision(5)), Some(4));
}
