//! A base that is built row by row equals the one that the rows come from.

use super::*;

fn copy_path() -> PathBuf {
    PathBuf::from("/data/base.new")
}

/// A row with its table and its key.
pub(super) type Row = (TableId, Vec<u8>, Vec<u8>);

/// Everything in a base, and what it says about itself.
pub(super) fn everything(snapshot: &Snapshot) -> (Meta, Vec<Row>) {
    try_everything(snapshot).unwrap()
}

/// The same of a base that may be damaged.
pub(super) fn try_everything(snapshot: &Snapshot) -> Result<(Meta, Vec<Row>), Error> {
    let mut rows = Vec::new();
    for table in TableId::ALL {
        snapshot.each_row(table, |key, row| {
            rows.push((table, key.to_vec(), row.to_vec()));
            Ok(())
        })?;
    }
    Ok((snapshot.meta, rows))
}

/// A base with 3,000 keys of one to three versions, some deleted, some on a lease.
fn original(disk: &MemoryDisk) -> Base {
    let base = new_base(disk);
    let mut main = 1;
    for round in 0..3 {
        let mut changes = Vec::new();
        for n in (0..3000).step_by(round + 1) {
            main += 1;
            let name = format!("key {n:05}");
            let large = vec![n as u8; if n % 7 == 0 { 9000 } else { n % 300 }];
            changes.push(if (n + round) % 5 == 4 { tombstone(&name, main) } else { put(&name, main, large) });
        }
        let mut part = part(round as u64 + 1, -1, changes);
        part.lease_keys.insert((LeaseId(7), Bytes::from(format!("key {round}"))), true);
        part.writers.insert(MemberId(3), WriterRow { generation: 1, writer: crate::types::WriterId(9), number: 4 });
        part.marks.insert(1000 * round as u64, Revision(main));
        base.flush(&part, Garbage::Drop).unwrap();
    }
    base
}

#[test]
fn a_copy_row_by_row_is_the_same_base() {
    let disk = MemoryDisk::new();
    let (meta, rows) = everything(&original(&disk).snapshot().unwrap());
    let mut builder = Builder::create(&on(&disk), &copy_path(), CACHE_BYTES).unwrap();
    for (table, key, row) in &rows {
        builder.append(*table, key, row).unwrap();
    }
    let copy = builder.finish(meta.applied, meta.cursor).unwrap();
    let snapshot = copy.snapshot().unwrap();
    snapshot.verify().unwrap();
    assert_eq!(everything(&snapshot), (meta, rows.clone()));
    drop((snapshot, copy));
    let copy = Base::open(&on(&disk), &copy_path(), CACHE_BYTES).unwrap();
    assert_eq!(everything(&copy.snapshot().unwrap()), (meta, rows.clone()));
    println!("{} rows", rows.len());
    assert!(rows.len() > 10_000);
}

#[test]
fn a_file_that_is_not_finished_is_no_base() {
    let disk = MemoryDisk::new();
    let (_, rows) = everything(&original(&disk).snapshot().unwrap());
    let mut builder = Builder::create(&on(&disk), &copy_path(), CACHE_BYTES).unwrap();
    for (table, key, row) in &rows {
        builder.append(*table, key, row).unwrap();
    }
    builder.halt();
    drop(builder);
    assert!(matches!(Base::open(&on(&disk), &copy_path(), CACHE_BYTES), Err(Error::Corrupt { .. })));
    assert!(matches!(Builder::create(&on(&disk), &copy_path(), CACHE_BYTES), Err(Error::Io { .. })));
}

#[test]
fn rows_that_are_damaged_or_out_of_order_are_refused() {
    let disk = MemoryDisk::new();
    let (_, rows) = everything(&original(&disk).snapshot().unwrap());
    let mut builder = Builder::create(&on(&disk), &copy_path(), CACHE_BYTES).unwrap();
    let (table, key, row) = &rows[10];
    let mut flipped = row.clone();
    flipped[5] ^= 1;
    assert!(matches!(builder.append(*table, key, &flipped), Err(Error::Corrupt { .. })));
    builder.append(*table, key, row).unwrap();
    let (table, key, row) = &rows[9];
    let refused =
        builder.append(*table, key, row).and_then(|()| builder.finish(Applied::default(), at(0, 0)).map(drop));
    assert!(refused.unwrap_err().to_string().contains("is not in order"));
}

#[test]
fn changes_on_top_of_a_copy_give_what_flushing_them_gives() {
    let disk = MemoryDisk::new();
    let base = original(&disk);
    let (meta, rows) = everything(&base.snapshot().unwrap());
    let mut builder = Builder::create(&on(&disk), &copy_path(), CACHE_BYTES).unwrap();
    for (table, key, row) in &rows {
        builder.append(*table, key, row).unwrap();
    }
    let next = meta.applied.revision.0 + 1;
    let value = |n: usize| vec![n as u8; 50 * n % 7000];
    let more: Vec<Change> = (next..next + 500)
        .map(|main| put(&format!("key {:05}", main % 700), main, value(main.unsigned_abs() as usize)))
        .collect();
    let more = PartData { applied: Applied { position: Position(4), ..meta.applied }, ..part(4, -1, more) };
    let more = PartData { applied: Applied { revision: Revision(next + 499), ..more.applied }, ..more };
    base.flush(&more, Garbage::Drop).unwrap();
    let rows_of = everything(&base.snapshot().unwrap())
        .1
        .into_iter()
        .filter(|(table, key, _)| *table == TableId::History && layout::read_place(key).unwrap().0.main.0 >= next);
    builder.flush(&more, &rows_of.map(|(_, key, row)| (key, row)).collect::<Vec<_>>()).unwrap();
    let copy = builder.finish(more.applied, meta.cursor).unwrap();
    copy.snapshot().unwrap().verify().unwrap();
    assert_eq!(everything(&copy.snapshot().unwrap()), everything(&base.snapshot().unwrap()));
}

#[test]
fn rows_in_order_fill_their_pages() {
    let disk = MemoryDisk::new();
    let base = new_base(&disk);
    let mut order: Vec<usize> = (0..20_000).collect();
    let mut rng = Rng(1);
    (1..order.len()).for_each(|n| order.swap(n, rng.below(n as u64 + 1) as usize));
    for (step, keys) in order.chunks(2000).enumerate() {
        let first = 2 + 2000 * step as i64;
        let changes = keys.iter().zip(first..).map(|(n, main)| put(&format!("key {n:05}"), main, vec![7; 200]));
        base.flush(&part(step as u64 + 1, -1, changes.collect()), Garbage::Drop).unwrap();
    }
    let (meta, rows) = everything(&base.snapshot().unwrap());
    let mut builder = Builder::create(&on(&disk), &copy_path(), CACHE_BYTES).unwrap();
    for (table, key, row) in &rows {
        builder.append(*table, key, row).unwrap();
    }
    let copy = builder.finish(meta.applied, meta.cursor).unwrap();
    let net: usize = rows.iter().map(|(_, key, row)| key.len() + row.len()).sum();
    // What the file takes says little of so few rows: redb keeps a page at the end of what it grew the file to.
    let pages = |base: &Base| base.database.begin_write().unwrap().stats().unwrap().leaf_pages();
    let (before, after) = (pages(&base), pages(&copy));
    println!("{net} bytes in rows: {before} leaves in base, {after} in the copy");
    assert!(after < before && after * 4096 < net as u64 * 11 / 10, "pages are not packed");
}
