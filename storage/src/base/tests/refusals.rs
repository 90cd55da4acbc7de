//! Files that base must refuse rather than make a fresh start over them.

use super::*;

fn refusal(disk: &MemoryDisk) -> Error {
    Base::open(&on(disk), &path(), CACHE_BYTES).unwrap_err()
}

fn is_corrupt(error: &Error) -> bool {
    matches!(error, Error::Corrupt { .. })
}

/// A file of base, cleanly closed, after `alter` had its database.
fn altered(alter: impl FnOnce(&redb::WriteTransaction)) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let base = new_base(&disk);
    base.flush(&part(1, -1, (2..500).map(|main| put("k", main, vec![2; 500])).collect()), Garbage::Drop).unwrap();
    commit::durably(&base.database, |txn| {
        alter(txn);
        Ok(())
    })
    .unwrap();
    drop(base);
    disk
}

#[test]
fn missing_empty_and_foreign_files_are_refused_and_not_touched() {
    let disk = MemoryDisk::new();
    assert!(is_corrupt(&refusal(&disk)));
    for bytes in [vec![], vec![0; 10], vec![0; 1 << 20], b"SQLite format 3".repeat(1000)] {
        disk.write(&path(), bytes.clone());
        assert!(is_corrupt(&refusal(&disk)));
        assert_eq!(disk.read(&path()), bytes);
    }
    let error = Base::create(&on(&disk), &path(), CACHE_BYTES).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

#[test]
fn a_truncated_file_is_refused() {
    let whole = altered(|_| ()).read(&path());
    let disk = MemoryDisk::new();
    let mut refused = 0;
    for len in (0..whole.len()).step_by(3001) {
        disk.write(&path(), whole[..len].to_vec());
        let error = refusal(&disk);
        assert!(error.is_final(), "{len}: {error}");
        refused += 1;
    }
    println!("{refused} lengths of {}", whole.len());
    assert!(refused >= 50);
}

#[test]
fn another_programs_redb_file_is_refused() {
    let disk = altered(|txn| drop(txn.open_table(rows::META).unwrap().remove(&b"format"[..]).unwrap()));
    let error = refusal(&disk);
    assert!(is_corrupt(&error) && error.to_string().contains("format is missing"), "{error}");
}

#[test]
fn a_newer_format_is_refused_with_both_numbers_and_not_touched() {
    let newer = layout::seal(b"format", |out| out.extend(77_u32.to_be_bytes()));
    let disk =
        altered(|txn| drop(txn.open_table(rows::META).unwrap().insert(&b"format"[..], newer.as_slice()).unwrap()));
    let before = disk.read(&path());
    let message = refusal(&disk).to_string();
    assert!(message.contains("format 77") && message.contains(&layout::FORMAT.to_string()), "{message}");
    assert!(disk.read(&path()) == before, "the file changed");
}

#[test]
fn the_format_before_is_read_and_becomes_this_one() {
    let older = layout::seal(b"format", |out| out.extend(1_u32.to_be_bytes()));
    let disk =
        altered(|txn| drop(txn.open_table(rows::META).unwrap().insert(&b"format"[..], older.as_slice()).unwrap()));
    let format = |base: &Base| {
        let txn = base.database.begin_read().unwrap();
        let row = txn.open_table(rows::META).unwrap().get(&b"format"[..]).unwrap().unwrap();
        layout::unseal("meta", b"format", row.value()).unwrap().u32().unwrap()
    };
    let base = reopen(&disk);
    assert_eq!(format(&base), 1);
    base.commit(|txn, meta| meta.write(txn).map(|()| (*meta, ()))).unwrap();
    assert_eq!(format(&base), layout::FORMAT);
    base.snapshot().unwrap().verify().unwrap();
}

#[test]
fn a_lost_row_is_found_by_verify() {
    for table in [TableId::Index, TableId::History] {
        let disk = altered(|txn| drop(txn.open_table(table.definition()).unwrap().pop_last().unwrap()));
        let error = reopen(&disk).snapshot().unwrap().verify().unwrap_err();
        assert!(is_corrupt(&error) && error.to_string().contains(table.name()), "{error}");
    }
}

#[test]
fn a_flipped_bit_in_a_value_is_found_by_the_read() {
    let whole = altered(|_| ()).read(&path());
    let needle = [2_u8; 500];
    let places: Vec<_> = (0..whole.len() - 500).filter(|&place| whole[place..place + 500] == needle).collect();
    let disk = MemoryDisk::new();
    let mut found = 0;
    for place in places.iter().step_by(10) {
        let mut bytes = whole.clone();
        bytes[place + 250] ^= 8;
        disk.write(&path(), bytes);
        let base = reopen(&disk);
        let changes = base.snapshot().unwrap().changes(Revision(0), Revision(i64::MAX), usize::MAX);
        base.halt();
        // Some of the places are pages that are not in use any more.
        found += usize::from(changes.is_err_and(|error| is_corrupt(&error)));
    }
    println!("{found} of {} found", places.len().div_ceil(10));
    assert!(found >= 20);
}
