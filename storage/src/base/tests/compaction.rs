//! What a flush drops, case by case, and what it must keep.

use super::*;
use crate::request::AlarmKind;

/// Flushes the changes of the first part without compaction and those of the second with it; answers what is left of "k".
fn left(first: Vec<Change>, second: Vec<Change>, compacted: i64) -> Vec<i64> {
    let base = new_base(&MemoryDisk::new());
    base.flush(&part(1, -1, first), Garbage::Drop).unwrap();
    base.flush(&part(2, compacted, second), Garbage::Drop).unwrap();
    let snapshot = base.snapshot().unwrap();
    snapshot.verify().unwrap();
    versions(&snapshot).into_iter().filter(|(key, _)| key == "k").map(|(_, at)| at.main.0).collect()
}

#[test]
fn versions_older_than_the_newest_below_the_floor_go_from_part_and_base() {
    let first = vec![put("k", 2, "a"), put("k", 3, "b"), put("k", 4, "c")];
    let second = vec![put("k", 5, "d"), put("k", 6, "e"), put("k", 7, "f")];
    assert_eq!(left(first, second, 6), [6, 7]);
}

#[test]
fn a_version_in_base_protects_itself_if_the_part_is_above_the_floor() {
    assert_eq!(left(vec![put("k", 2, "a"), put("k", 3, "b")], vec![put("k", 9, "c")], 5), [3, 9]);
}

#[test]
fn a_deletion_below_the_floor_goes_and_one_at_the_floor_stays() {
    let first = || vec![put("k", 2, "a")];
    let second = || vec![tombstone("k", 3), put("other", 5, "x")];
    assert_eq!(left(first(), second(), 4), [0_i64; 0]);
    assert_eq!(left(first(), second(), 3), [3]);
    assert_eq!(left(first(), second(), 2), [2, 3]);
}

#[test]
fn a_key_that_the_part_does_not_touch_keeps_its_versions() {
    assert_eq!(left(vec![put("k", 2, "a"), put("k", 3, "b")], vec![put("other", 4, "x")], 4), [2, 3]);
}

#[test]
fn every_change_of_the_compacted_revision_stays() {
    let base = new_base(&MemoryDisk::new());
    let mut first = part(1, -1, vec![put("k", 2, "a")]);
    first.applied.revision = Revision(2);
    base.flush(&first, Garbage::Drop).unwrap();
    let again = |sub, kind| Change { key: Bytes::from_static(b"k"), at: at(3, sub), kind };
    let kind = put("k", 3, "b").kind;
    let changes = vec![again(0, kind.clone()), again(1, ChangeKind::Tombstone), again(2, kind), put("k", 4, "c")];
    base.flush(&part(2, 3, changes), Garbage::Drop).unwrap();
    let found: Vec<_> = versions(&base.snapshot().unwrap()).into_iter().map(|(_, at)| at).collect();
    assert_eq!(found, [at(3, 0), at(3, 1), at(3, 2), at(4, 0)]);
}

#[test]
fn a_deletion_stays_while_older_versions_are_too_many_for_one_flush() {
    let base = new_base(&MemoryDisk::new());
    let many = 5000;
    base.flush(&part(1, -1, (2..2 + many).map(|main| put("k", main, "v")).collect()), Garbage::Drop).unwrap();
    let mut next = 2 + many;
    base.flush(&part(2, next + 1, vec![tombstone("k", next), put("x", next + 1, "v")]), Garbage::Drop).unwrap();
    next += 2;
    let mut flushes = 0;
    while versions(&base.snapshot().unwrap()).iter().any(|(key, _)| key == "k") {
        let snapshot = base.snapshot().unwrap();
        snapshot.verify().unwrap();
        let last = RevisionPair::MAX;
        assert!(matches!(snapshot.get(b"k", last).unwrap(), None | Some((_, Version::Tombstone))), "it came back");
        base.flush(
            &part(3 + next.cast_unsigned(), next + 1, vec![tombstone("k", next), put("x", next + 1, "v")]),
            Garbage::Drop,
        )
        .unwrap();
        next += 2;
        flushes += 1;
        assert!(flushes < 20);
    }
    println!("{flushes} flushes");
    assert!(flushes >= 3);
}

#[test]
fn a_key_with_many_readable_versions_costs_a_flush_a_seek() {
    let disk = MemoryDisk::new();
    let base = new_base(&disk);
    let many = 100_000;
    base.flush(&part(1, -1, (2..2 + many).map(|main| put("k", main, vec![1; 60])).collect()), Garbage::Drop).unwrap();
    drop(base);
    let base = reopen(&disk);
    let mut next = 1 + many;
    // Whether nothing was ever compacted, everything is to be kept, or a little may go.
    for (compacted, garbage) in [(-1, Garbage::Drop), (3, Garbage::Keep), (3, Garbage::Drop)] {
        next += 1;
        let before = base.bytes_read();
        base.flush(&part(next.unsigned_abs(), compacted, vec![put("k", next, "v")]), garbage).unwrap();
        let read = base.bytes_read() - before;
        println!("{read} bytes read, file of {}", base.size_bytes());
        assert!(read < 1 << 18, "compacted to {compacted}, {garbage:?}: {read} bytes read");
    }

    let (snapshot, before) = (base.snapshot().unwrap(), base.bytes_read());
    for (main, newest) in [(i64::MAX, Some(next)), (many / 2, Some(many / 2)), (2, None)] {
        let mut found = Vec::new();
        let mut visit = |_, at: RevisionPair, _| {
            found.push(at.main.0);
            true
        };
        snapshot.scan(b"", None, at(main, 0), &mut visit).unwrap();
        assert_eq!(found, Vec::from_iter(newest), "at {main}");
    }
    let read = base.bytes_read() - before;
    println!("{read} bytes read by scans");
    assert!(read < 1 << 18);
    assert_eq!(versions(&base.snapshot().unwrap()).len() as i64, many + 2);
}

#[test]
fn small_tables_follow_the_parts() {
    let disk = MemoryDisk::new();
    let base = new_base(&disk);
    assert_eq!(base.small_tables().unwrap().applied, Meta::NEW.applied);
    let lease = LeaseRow { ttl: 10, remaining_ms: -3, since_ms: 7, mark: Position(9), renewed: true };
    let writer = WriterRow { generation: 1, writer: crate::types::WriterId(2), number: 3 };
    let mut first = part(1, -1, vec![put("k", 2, "v")]);
    first.leases.extend([(LeaseId(-5), Some(lease)), (LeaseId(6), Some(lease)), (LeaseId(8), None)]);
    first.lease_keys.extend([((LeaseId(6), Bytes::from("b")), true), ((LeaseId(6), Bytes::from("a")), true)]);
    first.lease_keys.extend([((LeaseId(5), Bytes::from("c")), true), ((LeaseId(7), Bytes::from("d")), false)]);
    first.alarms.extend([
        ((MemberId(1), AlarmRow::Asked(AlarmKind::NoSpace)), true),
        ((MemberId(1), AlarmRow::Asked(AlarmKind::Corrupt)), true),
    ]);
    first.writers.insert(MemberId(1), writer);
    first.marks.extend([(1000, Revision(2)), (2000, Revision(2))]);
    base.flush(&first, Garbage::Drop).unwrap();
    assert_eq!(base.snapshot().unwrap().lease_keys(LeaseId(6)).unwrap(), ["a", "b"]);

    let mut second = part(2, 9, vec![put("k", 10, "v")]);
    second.leases.insert(LeaseId(6), None);
    second.lease_keys.insert((LeaseId(6), Bytes::from("a")), false);
    second.alarms.insert((MemberId(1), AlarmRow::Asked(AlarmKind::Corrupt)), false);
    second.marks.insert(3000, Revision(9));
    base.flush(&second, Garbage::Drop).unwrap();
    drop(base);
    let base = reopen(&disk);
    let (snapshot, small) = (base.snapshot().unwrap(), base.small_tables().unwrap());
    snapshot.verify().unwrap();
    assert_eq!(snapshot.lease_keys(LeaseId(6)).unwrap(), ["b"]);
    assert_eq!(small.leases, BTreeMap::from([(LeaseId(-5), lease)]));
    assert_eq!(small.alarms, [(MemberId(1), AlarmRow::Asked(AlarmKind::NoSpace))]);
    assert_eq!(small.writers, BTreeMap::from([(MemberId(1), writer)]));
    assert_eq!((small.last_mark_ms, small.applied), (3000, second.applied));
    assert_eq!(snapshot.mark_at(2999).unwrap(), None);
    assert_eq!(snapshot.mark_at(9999).unwrap(), Some((3000, Revision(9))));
}

#[test]
fn the_newest_mark_stays_even_below_the_floor() {
    let base = new_base(&MemoryDisk::new());
    let mut only = part(1, 5, vec![put("k", 5, "v")]);
    only.marks.extend([(1000, Revision(2)), (2000, Revision(3))]);
    base.flush(&only, Garbage::Drop).unwrap();
    let snapshot = base.snapshot().unwrap();
    assert_eq!(snapshot.mark_at(1999).unwrap(), None);
    assert_eq!(base.small_tables().unwrap().last_mark_ms, 2000);
}
