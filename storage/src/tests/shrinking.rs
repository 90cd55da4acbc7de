//! Base is rewritten: nothing that can be seen changes, no write or reader waits for it, and whatever happens on the way nothing is lost.

use super::gate::within;
use super::*;
use crate::fs::sim::{CrashStyle, Fault, FaultKind, Op as DiskOp, Prng};
use crate::fs::{FileSystem, OpenMode};

/// Everything that can be seen of a keyspace.
#[derive(Debug, PartialEq)]
struct Seen {
    numbers: (Revision, i64),
    ranges: Vec<RangeReply>,
    changes: Vec<Arc<Change>>,
    leases: Vec<(LeaseId, LeaseTimeToLive)>,
    alarms: Vec<Alarm>,
    /// At some times, unless it is below the compacted revision: then it may be forgotten.
    revisions_then: Vec<Option<Revision>>,
}

fn see(keyspace: &Keyspace) -> Seen {
    let status = keyspace.status();
    let lowest = status.compacted.0.max(1);
    let range = |revision| RangeRequest { at: At::Revision(revision), ..RangeRequest::new(KeyRange::all()) };
    let lease = |id| (id, keyspace.lease_time_to_live(id, true).unwrap().unwrap());
    let then = |time_ms| keyspace.revision_at(time_ms).unwrap().filter(|revision| revision.0 > lowest);
    Seen {
        numbers: (status.revision, lowest),
        ranges: (lowest..=status.revision.0).map(|revision| keyspace.range(&range(revision)).unwrap()).collect(),
        changes: history(keyspace, lowest),
        leases: keyspace.leases().into_iter().map(lease).collect(),
        alarms: status.alarms,
        revisions_then: (0..40).map(|second| then(EPOCH_MS + 1000 * second)).collect(),
    }
}

/// Random changes of every table: puts of small and large values, deletions, leases, alarms, compaction.
pub(super) struct Busy {
    random: Prng,
    leases: Vec<LeaseId>,
}

impl Busy {
    pub(super) fn new(seed: u64) -> Busy {
        Busy { random: Prng::new(seed), leases: Vec::new() }
    }

    pub(super) fn work(&mut self, machine: &Machine, keyspace: &Keyspace, steps: u64) {
        for _ in 0..steps {
            let name = format!("key {}", self.random.below(40));
            machine.clock.advance(self.random.below(300));
            match self.random.below(20) {
                0 => {
                    let granted = keyspace.lease_grant(None, 100_000 + self.random.below(1000).cast_signed());
                    self.leases.push(granted.wait().unwrap().id);
                }
                1 if !self.leases.is_empty() && self.random.chance(30) => {
                    let place = self.random.below(self.leases.len() as u64) as usize;
                    keyspace.lease_revoke(self.leases.swap_remove(place)).wait().unwrap();
                }
                2 => {
                    let alarm = Alarm { member: keyspace.status().member, kind: AlarmKind::NoSpace };
                    keyspace.set_alarm(alarm, self.random.chance(10)).wait().unwrap();
                    keyspace.set_alarm(alarm, false).wait().unwrap();
                }
                3 => {
                    let status = keyspace.status();
                    let lowest = status.compacted.0.max(1);
                    let span = (status.revision.0 - lowest).cast_unsigned();
                    let target = lowest + 1 + self.random.below(span.max(1)).cast_signed();
                    if target <= status.revision.0 {
                        keyspace.compact(target).wait().unwrap();
                    }
                }
                4..7 => drop(keyspace.delete_range(delete(&name)).wait().unwrap()),
                _ => {
                    let size = [0, 10, 64, 65, 700, 5000][self.random.below(6) as usize];
                    let lease = self.leases.last().filter(|_| self.random.chance(30));
                    let lease = lease.map_or(PutLease::Detach, |id| PutLease::Attach(*id));
                    let value = vec![self.random.next_u64() as u8; size];
                    keyspace.put(Put { lease, ..put(&name, value) }).wait().unwrap();
                }
            }
        }
    }
}

/// Many versions of few keys, compacted away: what is left is small.
fn with_garbage(machine: &Machine) -> Keyspace {
    let keyspace = machine.open().unwrap();
    Busy::new(machine.seed).work(machine, &keyspace, 150);
    for n in 0..100 {
        keyspace.put(put(&format!("key {}", n % 5), vec![n as u8; 9000])).wait().unwrap();
    }
    keyspace.compact(keyspace.revision().0 - 3).wait().unwrap();
    keyspace
}

fn leftover() -> PathBuf {
    dir().join("base.new")
}

#[test]
fn a_rewrite_at_random_moments_changes_nothing_that_can_be_seen() {
    let (mut rewrites, mut versions) = (0, 0);
    for seed in 0..25 {
        let machine = Machine::new(seed);
        let mut keyspace = machine.open().unwrap();
        let mut busy = Busy::new(seed);
        for round in 0..4 {
            busy.work(&machine, &keyspace, 60);
            let mut before = see(&keyspace);
            let shrunk = keyspace.defragment().wait().unwrap();
            assert!(shrunk.bytes_before > 0 && shrunk.bytes_after > 0);
            assert_eq!(see(&keyspace), before, "seed {seed}, round {round}");
            keyspace.verify().unwrap();
            assert_eq!(machine.disk.contents(leftover()), None);
            rewrites += 1;
            versions += before.changes.len();
            if busy.random.chance(50) {
                drop(keyspace);
                keyspace = machine.open().unwrap();
                let mut after = see(&keyspace);
                // A start does not know to the millisecond how long a lease has lived.
                let leases = before.leases.iter_mut().chain(&mut after.leases);
                leases.for_each(|(_, lease)| lease.ttl = lease.ttl.clamp(0, 1));
                assert_eq!(after, before, "opened again, seed {seed}, round {round}");
            }
        }
    }
    println!("{rewrites} rewrites, {versions} changes compared");
    assert!(rewrites == 100 && versions >= 2000);
}

#[test]
fn what_compaction_left_behind_is_gone_and_its_room_is_given_back() {
    let machine = Machine::new(3);
    let keyspace = with_garbage(&machine);
    for n in 0..400 {
        keyspace.put(put(&format!("large {n}"), vec![n as u8; 20_000])).wait().unwrap();
    }
    keyspace.delete_range(DeleteRange { range: KeyRange::prefix(key("large")), prev_kv: false }).wait().unwrap();
    keyspace.compact(keyspace.revision().0).wait().unwrap();
    keyspace.wait_swept(keyspace.revision()).unwrap();
    let shrunk = keyspace.defragment().wait().unwrap();
    println!("{} bytes before, {} after", shrunk.bytes_before, shrunk.bytes_after);
    assert!(shrunk.bytes_after * 3 < shrunk.bytes_before);
    let status = keyspace.status();
    assert_eq!(status.base_bytes, shrunk.bytes_after);
    assert!(status.base_bytes_if_rewritten <= status.base_bytes);
    // The sweep came first, so nothing below the compacted revision was copied but the newest version of each key.
    let stored = keyspace.stored_changes(Revision(1), status.compacted, usize::MAX).unwrap();
    let keys = keyspace.range(&RangeRequest::new(KeyRange::all())).unwrap().count;
    assert!(stored.len() as i64 <= keys + 400, "{} rows for {keys} keys", stored.len());
    assert!(stored.iter().all(|change| change.at.main == status.compacted || !change.is_tombstone()));
}

#[test]
fn writes_reads_and_watches_go_on_while_base_is_rewritten() {
    let (mut puts, mut reads, mut rewrites, mut events) = (0, 0, 0, 0);
    for seed in 0..6 {
        let machine = Machine::new(seed);
        let keyspace = with_garbage(&machine);
        let first = keyspace.revision().0 + 1;
        keyspace.put(put("counter", "0")).wait().unwrap();
        let stream = keyspace.watch_stream();
        stream.create(WatchSpec { start: StartAt::Revision(first), ..WatchSpec::new(KeyRange::all()) });
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut written = 0_u64;
                while !done.load(Ordering::Acquire) {
                    written += 1;
                    keyspace.put(put("counter", format!("{written}"))).wait().unwrap();
                    keyspace.put(put(&format!("other {}", written % 300), vec![1; 300])).wait().unwrap();
                }
                written
            });
            let reader = scope.spawn(|| {
                let mut asked = 0_u64;
                let old =
                    RangeRequest { at: At::Revision(first), ..RangeRequest::new(KeyRange::single(key("counter"))) };
                while !done.load(Ordering::Acquire) {
                    keyspace.barrier().unwrap();
                    assert_eq!(keyspace.range(&old).unwrap().kvs[0].value, "0");
                    asked += 1;
                }
                asked
            });
            let results: Vec<_> = (0..5).map(|_| keyspace.defragment().wait()).collect();
            done.store(true, Ordering::Release);
            // Looked at only now: the clients must be stopped first.
            rewrites += results.into_iter().map(Result::unwrap).count();
            let written = writer.join().unwrap();
            assert_eq!(get(&keyspace, "counter").unwrap().value, format!("{written}"));
            puts += 2 * written;
            reads += reader.join().unwrap();
        });
        let last = keyspace.revision();
        let mut next = first;
        while next <= last.0 {
            for message in stream.recv().unwrap() {
                if let WatchMessage::Events { events: batch, .. } = message {
                    for event in batch.iter() {
                        assert_eq!(event.change.at.main.0, next, "seed {seed}");
                        next += 1;
                        events += 1;
                    }
                }
            }
        }
        assert_eq!(history(&keyspace, first).len() as i64, last.0 - first + 1);
        keyspace.verify().unwrap();
        let before = see(&keyspace);
        drop(keyspace);
        assert_eq!(see(&machine.open().unwrap()), before);
    }
    println!("{rewrites} rewrites, {puts} puts, {reads} reads, {events} events meanwhile");
    assert!(rewrites == 30 && puts >= 100 && reads >= 100 && events >= 100);
}

#[test]
fn two_that_ask_at_the_same_time_get_the_same_answer_or_one_after_the_other() {
    let keyspace = with_garbage(&Machine::new(1));
    let asked: Vec<_> = (0..4).map(|_| keyspace.defragment()).collect();
    let answers: Vec<Shrunk> =
        asked.into_iter().map(|asked| within("a rewrite", move || asked.wait().unwrap())).collect();
    assert_eq!(answers.len(), 4);
    assert!(answers.iter().all(|shrunk| shrunk.bytes_after <= answers[0].bytes_before));
}

#[test]
fn a_power_cut_at_each_operation_of_a_rewrite_loses_nothing() {
    let (mut operations, mut old, mut new) = (0, 0, 0);
    for nth in 1.. {
        let machine = Machine::new(5);
        let keyspace = with_garbage(&machine);
        let before = see(&keyspace);
        keyspace.wait_swept(keyspace.revision()).unwrap();
        let size = keyspace.status().base_bytes;
        machine.disk.inject(Fault::new(FaultKind::Freeze, nth));
        let shrunk = keyspace.defragment().wait();
        let done = shrunk.is_ok() && !machine.disk.is_frozen();
        drop(keyspace);
        for style in [CrashStyle::KeepNone, CrashStyle::Sectors, CrashStyle::Pages, CrashStyle::KeepAll] {
            let after = machine.after_power_cut(style);
            let again = after.open().unwrap_or_else(|error| panic!("operation {nth}, {style:?}: {error}"));
            assert_eq!(see(&again), before, "operation {nth}, {style:?}");
            assert_eq!(after.disk.contents(leftover()), None, "operation {nth}, {style:?}");
            *if again.status().base_bytes < size { &mut new } else { &mut old } += 1;
        }
        if done {
            break;
        }
        operations = nth;
    }
    println!("{operations} operations, {old} images with the old base, {new} with the new one");
    assert!(operations >= 100 && old >= 400 && new >= 4);
}

#[test]
fn an_error_of_the_copy_is_harmless_and_one_of_the_names_is_final() {
    let (mut harmless, mut fatal, mut operations) = (0, 0, 0);
    for kind in [FaultKind::Io, FaultKind::NoSpace] {
        for nth in 1.. {
            let machine = Machine::new(7);
            let keyspace = with_garbage(&machine);
            keyspace.flush().unwrap();
            keyspace.wait_swept(keyspace.revision()).unwrap();
            let before = see(&keyspace);
            machine.disk.inject(Fault::new(kind, nth).in_file("base.new"));
            let shrunk = keyspace.defragment().wait();
            machine.disk.clear_faults();
            match &shrunk {
                Err(Error::ShrinkFailed { .. } | Error::NoRoomToShrink { .. }) => {
                    harmless += 1;
                    assert_eq!(see(&keyspace), before, "{kind:?} {nth}");
                    keyspace.put(put("after", "1")).wait().unwrap();
                    keyspace.flush().unwrap();
                    keyspace.defragment().wait().unwrap();
                    assert_eq!(machine.disk.contents(leftover()), None, "{kind:?} {nth}");
                }
                Err(error) => panic!("{kind:?} {nth}: {error}"),
                Ok(_) => {}
            }
            operations += 1;
            drop(keyspace);
            machine.open().unwrap().verify().unwrap();
            // Faults that struck nothing: the rewrite has fewer operations.
            if shrunk.is_ok() && nth > 100 {
                break;
            }
        }
    }
    for op in [DiskOp::Rename, DiskOp::SyncDir] {
        let machine = Machine::new(7);
        let keyspace = with_garbage(&machine);
        keyspace.wait_swept(keyspace.revision()).unwrap();
        let before = see(&keyspace);
        // The directory is synced once for the copy's name, and once for its new one.
        let nth = if op == DiskOp::SyncDir { 2 } else { 1 };
        machine.disk.inject(Fault::new(FaultKind::Io, nth).on(op));
        let error = keyspace.defragment().wait().unwrap_err();
        assert!(error.is_final(), "{op:?}: {error}");
        assert_eq!(keyspace.put(put("late", "1")).wait(), Err(Error::Stopped));
        fatal += 1;
        drop(keyspace);
        for style in [CrashStyle::KeepNone, CrashStyle::Sectors, CrashStyle::KeepAll] {
            assert_eq!(see(&machine.after_power_cut(style).open().unwrap()), before, "{op:?}");
        }
    }
    println!("{operations} runs, {harmless} harmless faults, {fatal} final ones");
    assert!(harmless >= 60 && fatal == 2);
}

#[test]
fn without_room_a_rewrite_is_refused_with_numbers_and_nothing_else() {
    let machine = Machine::new(2);
    let keyspace = with_garbage(&machine);
    keyspace.wait_swept(keyspace.revision()).unwrap();
    let before = see(&keyspace);
    machine.disk.set_capacity(keyspace.status().size_bytes + (200 << 10));
    match keyspace.defragment().wait() {
        Err(Error::NoRoomToShrink { needed, free }) => assert!(free < needed && free < 1 << 20, "{needed} {free}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(machine.disk.contents(leftover()), None);
    assert_eq!(see(&keyspace), before);
    assert_eq!(keyspace.status().alarms, []);
    machine.disk.set_capacity(u64::MAX);
    keyspace.put(put("after", "1")).wait().unwrap();
    keyspace.defragment().wait().unwrap();
}

#[test]
fn what_a_rewrite_left_behind_is_removed_by_a_start() {
    let machine = Machine::new(2);
    let keyspace = with_garbage(&machine);
    keyspace.close().unwrap();
    machine.disk.open(&leftover(), OpenMode::CreateNew).unwrap().write_at(0, b"half a base").unwrap();
    machine.disk.sync_dir(&dir()).unwrap();
    let again = machine.open().unwrap();
    assert_eq!(machine.disk.contents(leftover()), None);
    assert_eq!(machine.disk.crash(CrashStyle::KeepNone, 1).contents(leftover()), None);
    again.defragment().wait().unwrap();
}

#[test]
fn a_process_killed_between_the_rename_and_its_sync_leaves_a_name_that_the_next_start_makes_durable() {
    let machine = Machine::new(3);
    let keyspace = with_garbage(&machine);
    keyspace.flush().unwrap();
    // The first sync is the copy's, the second comes after the rename.
    machine.disk.inject(Fault::new(FaultKind::Freeze, 2).on(DiskOp::SyncDir).in_file("/data"));
    assert!(keyspace.defragment().wait().is_err());
    assert!(machine.disk.is_frozen());
    drop(keyspace);
    let machine = Machine { disk: machine.disk.restart(), seed: 4, ..machine };
    let keyspace = machine.open().unwrap();
    // So many that the log forgets what the old base would need.
    for n in 0..400 {
        keyspace.put(put("key", vec![n as u8; 700])).wait().unwrap();
    }
    keyspace.flush().unwrap();
    let revision = keyspace.put(put("key", "last")).wait().unwrap().revision;
    machine.disk.freeze();
    drop(keyspace);
    let keyspace = machine.after_power_cut(CrashStyle::KeepNone).open().unwrap();
    assert_eq!(keyspace.revision(), revision);
}
