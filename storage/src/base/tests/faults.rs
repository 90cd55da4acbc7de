//! A disk that fails, tears or fills up: errors are final, no part is half there, no room means nothing begun.

use super::*;

fn changes(from: i64, count: i64) -> Vec<Change> {
    (from..from + count).map(|main| put(&format!("key {}", main % 50), main, vec![1; 300])).collect()
}

#[test]
fn after_a_failed_call_base_refuses_and_the_file_holds_one_part_or_both() {
    let (mut failed, mut old, mut new) = (0, 0, 0);
    for calls in 0..200 {
        let disk = MemoryDisk::new();
        let base = new_base(&disk);
        base.flush(&part(1, -1, changes(2, 100)), Garbage::Drop).unwrap();
        disk.fail_after(calls);
        let result = base.flush(&part(2, 80, changes(102, 100)), Garbage::Drop);
        if let Err(error) = &result {
            assert!(error.is_final(), "{error}");
            disk.fail_after(u64::MAX);
            let again = base.flush(&part(2, 80, changes(102, 100)), Garbage::Drop).unwrap_err();
            assert!(again.is_final(), "{again}");
            failed += 1;
        }
        base.halt();
        drop(base);
        disk.fail_after(u64::MAX);
        let base = reopen(&disk);
        let snapshot = base.snapshot().unwrap();
        snapshot.verify().unwrap();
        match snapshot.applied().position {
            Position(1) => old += 1,
            Position(2) => new += 1,
            other => panic!("{other}"),
        }
        assert!(result.is_err() || snapshot.applied().position == Position(2));
        if result.is_ok() {
            break;
        }
    }
    println!("{failed} failed, {old} at the old position, {new} at the new one");
    assert!(failed >= 10 && old >= 5 && new >= 1);
}

#[test]
fn a_disk_without_room_refuses_before_anything_is_begun() {
    let disk = MemoryDisk::new();
    let base = new_base(&disk);
    base.flush(&part(1, -1, changes(2, 1000)), Garbage::Drop).unwrap();
    let before = (disk.read(&path()), base.bytes_written());
    disk.set_capacity(base.size_bytes());
    let next = part(2, -1, changes(1002, 20_000));
    assert_eq!(base.reserve(&next, Garbage::Drop), Err(Error::NoSpace));
    assert_eq!((disk.read(&path()), base.bytes_written()), before);
    disk.set_capacity(u64::MAX);
    base.reserve(&next, Garbage::Drop).unwrap();
    base.flush(&next, Garbage::Drop).unwrap();
}

#[test]
fn a_flush_that_was_reserved_fits() {
    let disk = MemoryDisk::new();
    let base = new_base(&disk);
    let (mut position, mut next, mut refused) = (0, 2, 0);
    for step in 1..40_u64 {
        let capacity = step * (300 << 10);
        disk.set_capacity(capacity);
        position += 1;
        let part = part(position, (next - 500).max(-1), changes(next, 700));
        match base.reserve(&part, Garbage::Drop) {
            Ok(garbage) => {
                base.flush(&part, garbage).unwrap();
                next += 700;
            }
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                refused += 1;
            }
        }
        assert!(base.size_bytes() <= capacity);
        assert!(base.backend.written_to() <= base.size_bytes(), "written where no blocks were");
    }
    println!("{refused} of 39 refused");
    assert!((1..35).contains(&refused));
}

#[test]
fn a_halted_base_writes_nothing_when_it_is_dropped() {
    let disk = MemoryDisk::new();
    let base = new_base(&disk);
    base.flush(&part(1, -1, changes(2, 100)), Garbage::Drop).unwrap();
    let before = disk.read(&path());
    base.halt();
    assert!(base.flush(&part(2, -1, changes(102, 100)), Garbage::Drop).unwrap_err().is_final());
    drop(base);
    assert!(disk.read(&path()) == before, "the file changed");
    reopen(&disk).snapshot().unwrap().verify().unwrap();
}

#[test]
fn a_snapshot_outlives_base_and_flushes() {
    fn shared<T: Send + Sync>(value: T) -> T {
        value
    }
    let disk = MemoryDisk::new();
    let base = new_base(&disk);
    base.flush(&part(1, -1, changes(2, 100)), Garbage::Drop).unwrap();
    let snapshot = shared(base.snapshot().unwrap());
    base.flush(&part(2, 150, changes(102, 100)), Garbage::Drop).unwrap();
    drop(base);
    snapshot.verify().unwrap();
    assert_eq!(snapshot.applied().position, Position(1));
    assert_eq!(versions(&snapshot).len(), 100);
}
