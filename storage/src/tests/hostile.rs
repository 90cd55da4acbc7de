//! Whatever a client sent, the next start replays it, and what it cost is bounded.

use super::*;

fn reopened(machine: &Machine, keyspace: Keyspace) -> Keyspace {
    drop(keyspace);
    machine.after_power_cut(fs::sim::CrashStyle::KeepNone).open().unwrap()
}

fn nested(depth: usize) -> Txn {
    let mut txn = Txn { success: vec![Op::Put(put("deep", "1"))], ..Txn::default() };
    for _ in 1..depth {
        txn = Txn { success: vec![Op::Txn(txn)], ..Txn::default() };
    }
    txn
}

#[test]
fn a_transaction_of_many_small_operations_is_replayed() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    let read = Op::Range(RangeRequest::new(KeyRange::single(key("a"))));
    let mut success = vec![read; 200_000];
    success.push(Op::Put(put("a", "1")));
    keyspace.txn(Txn { success, ..Txn::default() }).wait().unwrap();
    assert_eq!(get(&reopened(&machine, keyspace), "a").unwrap().value, "1");
}

#[test]
fn a_transaction_as_deep_as_is_allowed_is_replayed_on_a_small_stack() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    keyspace.txn(nested(Txn::NESTING_MAX)).wait().unwrap();
    let deeper = keyspace.txn(nested(Txn::NESTING_MAX + 1)).wait();
    assert_eq!(deeper, Err(Error::TooManyOps { found: Txn::NESTING_MAX + 1, limit: Txn::NESTING_MAX }));
    drop(keyspace);
    let next = machine.after_power_cut(fs::sim::CrashStyle::KeepNone);
    let small = std::thread::Builder::new().stack_size(512 << 10);
    let keyspace = small.spawn(move || next.open().unwrap()).unwrap().join().unwrap();
    assert_eq!(get(&keyspace, "deep").unwrap().value, "1");
}

#[test]
fn frames_that_change_nothing_reach_base_and_leave_the_log() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    let compares = vec![Compare {
        range: KeyRange::single(key("a")),
        result: CompareResult::Equal,
        target: CompareTarget::Version(7),
    }];
    let txn = Txn { compares, success: vec![Op::Put(put("a", "1"))], failure: Vec::new() };
    for _ in 0..1000 {
        assert!(!keyspace.txn(txn.clone()).wait().unwrap().succeeded);
    }
    assert!(keyspace.status().size_bytes < 4 << 20, "{} bytes", keyspace.status().size_bytes);
    let keyspace = reopened(&machine, keyspace);
    let replayed = keyspace.status().opened.frames_replayed;
    assert!(replayed < 500, "{replayed} frames were replayed");
}

#[test]
fn limits_that_make_no_sense_do_no_harm() {
    let machine = Machine::new(1);
    let options = Options {
        recent_bytes: 0,
        recent_changes: 0,
        segment_bytes: 0,
        queue_commands: 0,
        queue_bytes: 64 << 20,
        batch_bytes: usize::MAX,
        watch_queue_bytes: 0,
        ..small()
    };
    let keyspace =
        Keyspace::open(&dir(), Options { queue_commands: 100, ..options.clone() }, machine.environment()).unwrap();
    let puts: Vec<_> = (0..20).map(|n| keyspace.put(put(&format!("{n}"), vec![1; 1 << 20]))).collect();
    puts.into_iter().for_each(|put| drop(put.wait().unwrap()));
    drop(keyspace);
    let keyspace = Keyspace::open(&dir(), options, machine.environment()).unwrap();
    assert_eq!(keyspace.put(put("a", "1")).wait().unwrap().revision, Revision(22));
    assert_eq!(history(&keyspace, 2).len(), 21);
}
