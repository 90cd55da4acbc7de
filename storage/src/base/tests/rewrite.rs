//! A rewritten base holds the same rows at the same position, whatever is flushed while it is written.

use super::build::everything;
use super::model::Model;
use super::*;
use crate::fs::SimFs;

/// Small, and so are the steps.
const SMALL_CACHE_BYTES: usize = 32 << 10;

fn new_base_on(fs: &Arc<dyn FileSystem>, cache_bytes: usize) -> Base {
    fs.create_dir(&PathBuf::from("/data")).unwrap();
    Base::create(fs, &path(), cache_bytes).unwrap()
}

/// Steps until it has caught up; answers the rows visited.
fn catch_up(rewrite: &mut Rewrite) -> u64 {
    let mut visited = 0;
    while let Step::Went(rows) = rewrite.step().unwrap() {
        visited += rows;
    }
    visited
}

#[test]
fn a_rewrite_between_random_flushes_copies_every_row() {
    let (mut rewrites, mut flushes_meanwhile, mut visited, mut answers) = (0, 0, 0, 0);
    for seed in 0..40 {
        let fs: Arc<dyn FileSystem> = Arc::new(SimFs::new());
        let mut base = Arc::new(new_base_on(&fs, SMALL_CACHE_BYTES));
        let mut model = Model::new(1000 + seed);
        for _ in 0..6 {
            for _ in 0..3 {
                let part = model.part();
                base.flush(&part, Garbage::Drop).unwrap();
            }
            if model.rng.below(2) == 0 {
                model.sweep(&base);
            }
            let mut rewrite = Rewrite::begin(&base).unwrap();
            let mut flushes = model.rng.below(6);
            loop {
                let step = rewrite.step().unwrap();
                if flushes > 0 && model.rng.below(2) == 0 {
                    let part = model.part_kept();
                    base.flush(&part, Garbage::Keep).unwrap();
                    flushes -= 1;
                    flushes_meanwhile += 1;
                    continue;
                }
                match step {
                    Step::Went(rows) => visited += rows,
                    Step::CaughtUp => break,
                }
            }
            let mut copy = rewrite.finish().unwrap();
            let before = base.snapshot().unwrap();
            copy.take_name_of(&base).unwrap();
            assert_eq!(everything(&copy.snapshot().unwrap()), everything(&before));
            // Who reads from the old one goes on reading.
            before.verify().unwrap();
            assert!(!base.is_unused());
            drop(before);
            assert!(base.is_unused());
            base.refuse_changes();
            base = Arc::new(copy);
            rewrites += 1;
            if model.rng.below(3) == 0 {
                base.halt();
                base = Arc::new(Base::open(&fs, &path(), SMALL_CACHE_BYTES).unwrap());
            }
            answers += model.check(&base);
        }
    }
    println!("{rewrites} rewrites, {flushes_meanwhile} flushes meanwhile, {visited} rows visited, {answers} answers");
    assert!(rewrites == 240 && flushes_meanwhile >= 200 && visited >= 10_000 && answers >= 3000);
}

#[test]
fn a_large_base_is_copied_in_steps_and_takes_less() {
    let fs: Arc<dyn FileSystem> = Arc::new(SimFs::new());
    let base = Arc::new(new_base_on(&fs, CACHE_BYTES));
    let value = |main: i64| vec![main.to_be_bytes()[7]; 3000];
    for step in 0..12 {
        let first = 2 + 1000 * step;
        // The second half overwrites the first.
        let key = |main: i64| format!("key {:05}", (main * 7) % 6000);
        let changes = (first..first + 1000).map(|main| put(&key(main), main, value(main))).collect();
        base.flush(&part(step.cast_unsigned() + 1, -1, changes), Garbage::Drop).unwrap();
    }
    base.flush(
        &PartData {
            applied: Applied { revision: Revision(12_001), ..part(13, 12_001, Vec::new()).applied },
            ..PartData::default()
        },
        Garbage::Drop,
    )
    .unwrap();
    while !base.sweep(Revision(12_001), 1000).unwrap().done {}
    let (before, expected, room) = (base.size_bytes(), base.bytes_if_rewritten(), base.room_to_rewrite());
    let mut rewrite = Rewrite::begin(&base).unwrap();
    let visited = catch_up(&mut rewrite);
    let copy = rewrite.finish().unwrap();
    let after = copy.size_bytes();
    println!("{visited} rows, {before} bytes before, {after} after, {expected} expected, {room} reserved");
    assert_eq!(visited, 12_000);
    assert!(after * 3 / 2 < before && after < room && expected < before);
    copy.snapshot().unwrap().verify().unwrap();
}
