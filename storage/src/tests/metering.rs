//! What a keyspace tells of its work.

use super::*;

#[test]
fn work_is_counted_when_it_is_done_and_not_when_it_is_replayed() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    for _ in 0..3 {
        keyspace.put(put("/a/b/1", "123")).wait().unwrap();
    }
    let missing = Put { value: PutValue::Keep, ..put("/a/c/2", "") };
    keyspace.put(missing).wait().expect_err("there is no value to keep");
    let all = KeyRange::all();
    keyspace.delete_range(DeleteRange { range: all.clone(), prev_kv: false }).wait().unwrap();
    let read = Txn { success: vec![Op::Range(RangeRequest::new(all)); 2], ..Txn::default() };
    keyspace.read_txn(&read).unwrap();
    let told = keyspace.metrics();
    assert_eq!((told.puts, told.put_bytes, told.deletes, told.ranges, told.txns), (3, 27, 1, 2, 1));
    assert_eq!(told.written, [("/a/b/".to_owned(), Written { changes: 4, bytes: 33 })]);
    assert_eq!((told.apply.total(), told.log_sync.total(), told.failed), (5, 5, 0));
    assert!(told.log_bytes_written >= 5 * 512 && told.recent_active.changes == 4, "{told:?}");
    drop(keyspace);

    let again = machine.open().unwrap();
    let told = again.metrics();
    assert_eq!(again.status().opened.frames_replayed, 5);
    assert_eq!((told.puts, told.deletes, told.apply.total(), told.log_sync.total()), (0, 0, 0, 0));
    assert_eq!((told.written.len(), told.recent_active.changes), (0, 4));
}

#[test]
fn a_transaction_of_reads_reads_each_range_at_its_own_revision() {
    let keyspace = Machine::new(1).open().unwrap();
    for value in ["old", "new"] {
        keyspace.put(put("a", value)).wait().unwrap();
    }
    let at = |at| Op::Range(RangeRequest { at, ..RangeRequest::new(KeyRange::all()) });
    let success = vec![at(At::Revision(2)), at(At::Latest), at(At::Revision(3))];
    let reply = keyspace.read_txn(&Txn { success, ..Txn::default() }).unwrap();
    let values: Vec<_> = reply.responses.iter().map(|reply| format!("{:?}", reply_values(reply))).collect();
    assert_eq!(values, [r#"[b"old"]"#, r#"[b"new"]"#, r#"[b"new"]"#]);
    let future = Txn { success: vec![at(At::Revision(4))], ..Txn::default() };
    assert_eq!(keyspace.read_txn(&future).unwrap_err(), Error::Future { asked: 4, current: 3 });
}

fn reply_values(reply: &OpReply) -> Vec<Bytes> {
    let OpReply::Range(range) = reply else { panic!("a range was asked for: {reply:?}") };
    range.kvs.iter().map(|kv| kv.value.clone()).collect()
}

#[test]
fn leases_are_counted_by_how_they_end() {
    let machine = Machine::new(2);
    let keyspace = machine.open().unwrap();
    let [one, two] = [10, 20].map(|ttl| keyspace.lease_grant(None, ttl).wait().unwrap().id);
    for _ in 0..3 {
        assert!(keyspace.lease_keep_alive(two).wait().unwrap().is_some());
    }
    assert!(keyspace.lease_keep_alive(LeaseId(7)).wait().unwrap().is_none());
    machine.clock.advance(11_000);
    keyspace.poke();
    while !keyspace.leases().is_empty() && keyspace.leases() != [two] {
        std::thread::yield_now();
    }
    assert!(!keyspace.leases().contains(&one));
    keyspace.lease_revoke(two).wait().unwrap();
    let told = keyspace.metrics();
    assert_eq!((told.leases_granted, told.leases_renewed, told.leases_expired, told.leases_revoked), (2, 3, 1, 2));
    assert_eq!((told.lease_ttl.total(), told.lease_ttl.sum), (2, 30.0));
}

#[test]
fn flushes_and_sweeps_tell_what_they_did() {
    let machine = Machine::new(3);
    let keyspace = machine.open().unwrap();
    for _ in 0..50 {
        keyspace.put(put("a", "1")).wait().unwrap();
    }
    keyspace.flush().unwrap();
    let told = keyspace.metrics();
    assert!(told.flush.total() >= 1 && told.changes_flushed == 50 && told.last_sweep.is_none(), "{told:?}");
    machine.clock.advance(5_000);
    keyspace.compact(40).wait().unwrap();
    keyspace.wait_swept(Revision(40)).unwrap();
    let told = keyspace.metrics();
    let sweep = told.last_sweep.expect("it has ended");
    // Of the revisions 2 to 40 the last one stays.
    assert_eq!((told.dropped_by_sweep, told.dropped_by_flush, sweep.versions_dropped), (38, 0, 38));
    assert_eq!((sweep.upto, sweep.ended_ms, keyspace.status().swept), (Revision(40), EPOCH_MS + 5_000, Revision(40)));
    assert!(told.rows_swept >= 38 && told.sweep_run.total() == 1);
    assert_eq!(told.commit.total(), told.flush.total() + told.sweep_step.total());
    assert_eq!(told.compacted_at_ms, EPOCH_MS + 5_000);
    // What a later flush finds unreadable it drops itself.
    for _ in 0..10 {
        keyspace.put(put("b", "1")).wait().unwrap();
    }
    let last = keyspace.revision().0;
    keyspace.compact(last).wait().unwrap();
    keyspace.wait_swept(Revision(last)).unwrap();
    let told = keyspace.metrics();
    assert_eq!(told.dropped_by_sweep + told.dropped_by_flush, 38 + 11 + 9, "{told:?}");
}

#[test]
fn commands_that_find_no_room_in_the_log_have_failed() {
    let machine = Machine::new(4);
    // Nothing is flushed before the log's first segment is full.
    let options = Options { recent_bytes: 16 << 20, recent_changes: 100_000, ..small() };
    let keyspace = Keyspace::open(&dir(), options, machine.environment()).unwrap();
    machine.disk.set_capacity(0);
    // A put would be refused before it is queued; what makes room is not.
    let nothing = || keyspace.delete_range(delete("a")).wait();
    let refused = (0..3000).find_map(|_| nothing().err());
    assert_eq!((refused, keyspace.metrics().failed), (Some(Error::NoSpace), 1));
}
