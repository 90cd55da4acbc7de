//! Rows of `history` fill redb's pages, whatever the values, as flushes write them and as a copy has them.

use redb::ReadableTableMetadata;

use super::build::everything;
use super::cut::PAGE_BYTES;
use super::cutting::value;
use super::*;

/// What redb keeps per row, and what a row has besides the user's key and value if it is not cut.
const ROW_BYTES: usize = 8 + 16 + 4 + 2;

/// The leaves of `history`, in bytes.
fn leaf_bytes(base: &Base) -> usize {
    let stats = base.snapshot().unwrap().open_table(TableId::History).unwrap().stats().unwrap();
    let leaves = stats.stored_bytes() + stats.metadata_bytes() + stats.fragmented_bytes();
    (leaves - stats.branch_pages() * PAGE_BYTES as u64) as usize
}

/// Writes so many values of each size, in parts of so many; answers base and what rows that are not cut would have in them.
fn filled(disk: &MemoryDisk, sizes: &[usize], count: usize, of_part: usize) -> (Base, usize) {
    let base = new_base(disk);
    let changes: Vec<Change> = (0..count)
        .map(|n| put(&format!("/registry/pods/{n:06}"), n as i64 + 2, value(sizes[n % sizes.len()], n)))
        .collect();
    let net = changes.iter().map(|change| change.data_bytes() + ROW_BYTES).sum();
    for (number, changes) in changes.chunks(of_part).enumerate() {
        base.flush(&part(number as u64 + 1, -1, changes.to_vec()), Garbage::Drop).unwrap();
    }
    (base, net)
}

#[test]
fn pages_are_full_whatever_the_values_and_the_parts() {
    let sizes: [(&[usize], usize, usize); 9] = [
        (&[256], 8000, 5),
        (&[1 << 10], 6000, 3),
        (&[4 << 10], 2000, 3),
        (&[10 << 10], 1000, 3),
        (&[1 << 20], 12, 3),
        (&[2100], 3000, 3),
        (&[4000], 2000, 3),
        (&[8200], 1000, 3),
        (&[300, 10 << 10, 700, 5, 4 << 10, 90, 1 << 10], 4000, 3),
    ];
    for (sizes, count, percent_max) in sizes {
        for of_part in [count, count / 3, (count / 50).max(1)] {
            let disk = MemoryDisk::new();
            let (base, net) = filled(&disk, sizes, count, of_part);
            base.snapshot().unwrap().verify().unwrap();
            let before = leaf_bytes(&base);
            let (meta, rows) = everything(&base.snapshot().unwrap());
            let mut builder = Builder::create(&on(&disk), &PathBuf::from("/data/base.new"), CACHE_BYTES).unwrap();
            rows.iter().for_each(|(table, key, row)| builder.append(*table, key, row).unwrap());
            let after = leaf_bytes(&builder.finish(meta.applied, meta.cursor).unwrap());
            let wasted = [before, after].map(|bytes| 100.0 * (bytes as f64 / net as f64 - 1.0));
            println!(
                "{sizes:?} in parts of {of_part}: {net} bytes, {before} flushed ({:.1} % more), {after} built ({:.1} %)",
                wasted[0], wasted[1]
            );
            let max = net * (100 + percent_max) / 100 + 2 * PAGE_BYTES * count.div_ceil(of_part).min(60);
            assert!(before <= max && after <= net * (100 + percent_max) / 100 + 8 * PAGE_BYTES, "{wasted:?}");
        }
    }
}

#[test]
fn a_copy_of_what_a_sweep_left_is_packed_again() {
    for (len, percent_max) in [(1 << 10, 22), (4 << 10, 6), (10 << 10, 12), (1 << 20, 3)] {
        let disk = MemoryDisk::new();
        let count = 2 * ((12 << 20) / len);
        let (base, _) = filled(&disk, &[len], count, 400);
        let mut rng = Rng(3);
        // Deletes about half of the keys, here and there, and with them what was written.
        let gone = (0..count as i64).filter(|_| rng.below(2) == 0).collect::<Vec<_>>();
        let first = count as i64 + 2;
        let changes = gone.iter().zip(first..).map(|(n, main)| tombstone(&format!("/registry/pods/{n:06}"), main));
        let (last, net) = (first + gone.len() as i64, (count - gone.len()) * (len + 21 + ROW_BYTES));
        base.flush(&part(1000, -1, changes.collect()), Garbage::Keep).unwrap();
        base.flush(&part(1001, last, vec![tombstone("another", last)]), Garbage::Drop).unwrap();
        while !base.sweep(Revision(last), 100).unwrap().done {}
        let (meta, rows) = everything(&base.snapshot().unwrap());
        let mut builder = Builder::create(&on(&disk), &PathBuf::from("/data/base.new"), CACHE_BYTES).unwrap();
        rows.iter().for_each(|(table, key, row)| builder.append(*table, key, row).unwrap());
        let [before, after] = [leaf_bytes(&base), leaf_bytes(&builder.finish(meta.applied, meta.cursor).unwrap())];
        println!("{len}: {net} bytes left, {before} swept, {after} in a copy");
        base.snapshot().unwrap().verify().unwrap();
        assert!(after <= before && after <= net * (100 + percent_max) / 100 + 4 * PAGE_BYTES);
    }
}
