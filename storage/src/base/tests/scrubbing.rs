//! A scrub in steps: no false alarm whatever goes on between them, and no damage that changes an answer is passed over.

use super::build::{Row, everything, try_everything};
use super::fault::At;
use super::model::Model;
use super::*;
use crate::contain::contained;
use crate::fs::SimFs;
use crate::fs::sim::Prng;

const SMALL_CACHE_BYTES: usize = 32 << 10;

fn new_base_on(disk: &SimFs) -> Base {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    fs.create_dir(&PathBuf::from("/data")).unwrap();
    Base::create(&fs, &path(), SMALL_CACHE_BYTES).unwrap()
}

#[test]
fn no_false_alarm_among_random_flushes_sweeps_and_rewrites() {
    let (mut scrubs, mut rows, mut between, mut across, mut swept, mut rewrites) = (0, 0, 0, 0, 0, 0);
    for seed in 0..6 {
        let disk = SimFs::new();
        let mut base = Arc::new(new_base_on(&disk));
        let mut model = Model::new(2000 + seed);
        let mut changed = false;
        for _ in 0..400 {
            match model.rng.below(12) {
                0 => {
                    base.flush(&model.part(), Garbage::Drop).unwrap();
                    (between, changed) = (between + 1, true);
                }
                1 => {
                    let compacted = base.meta().applied.compacted;
                    swept += base.sweep(compacted, 1 + model.rng.below(50) as usize).unwrap().versions_dropped;
                    changed = true;
                }
                2 if model.rng.below(4) == 0 => {
                    let mut rewrite = Rewrite::begin(&base).unwrap();
                    loop {
                        let step = rewrite.step().unwrap();
                        if model.rng.below(3) == 0 {
                            base.scrub_step(300).unwrap();
                        }
                        if model.rng.below(8) == 0 {
                            base.flush(&model.part_kept(), Garbage::Keep).unwrap();
                        } else if step == Step::CaughtUp {
                            break;
                        }
                    }
                    let mut copy = rewrite.finish().unwrap();
                    copy.take_name_of(&base).unwrap();
                    base.refuse_changes();
                    base = Arc::new(copy);
                    rewrites += 1;
                }
                _ => {
                    let did = base.scrub_step([1, 300, 20_000][model.rng.below(3) as usize]).unwrap();
                    assert_eq!(did.damage, []);
                    rows += did.rows;
                    if did.done {
                        scrubs += 1;
                        across += u64::from(changed);
                        changed = false;
                    }
                }
            }
        }
        base.snapshot().unwrap().verify().unwrap();
    }
    println!("{scrubs} scrubs, {across} of them across changes, {rows} rows");
    println!("{between} flushes, {swept} versions swept, {rewrites} rewrites");
    assert!(swept >= 500 && scrubs >= 30 && across >= 20 && rows >= 3000 && between >= 150 && rewrites >= 25);
}

/// What a scrub says of a file.
#[derive(Debug)]
enum Verdict {
    Sound,
    /// Rows that are altered and nothing else.
    Harmless(Vec<Error>),
    Final(Error),
}

/// Scrubs; `between` is done between two steps.
fn scrubbed(base: &Base, mut between: impl FnMut()) -> Verdict {
    let mut damage = Vec::new();
    loop {
        match base.scrub_step(5000) {
            Ok(did) => {
                damage.extend(did.damage);
                if did.done {
                    break;
                }
            }
            Err(error) => return Verdict::Final(error),
        }
        between();
    }
    if damage.is_empty() { Verdict::Sound } else { Verdict::Harmless(damage) }
}

/// Writes that go on meanwhile: they lie at the end of both tables.
struct Writes(i64);

impl Writes {
    const FIRST: i64 = 752;

    fn write(&mut self, base: &Base) {
        let step = self.0;
        self.0 += 1;
        let change = put(&format!("z {step:03}"), Writes::FIRST + step, vec![1; 100]);
        base.flush(&part(step.cast_unsigned() + 4, -1, vec![change]), Garbage::Drop).unwrap();
    }
}

/// Every row as it is iterated, and as it is looked up. `None` if a read fails or panics.
fn readable(disk: &MemoryDisk, rows: &Arc<Vec<Row>>) -> Option<Vec<Option<Vec<u8>>>> {
    let (fs, rows): (Arc<dyn FileSystem>, _) = (on(&disk.copy()), Arc::clone(rows));
    let read = move || {
        let snapshot = Snapshot::of_file(&fs, &path(), SMALL_CACHE_BYTES)?;
        let mut found: Vec<_> = try_everything(&snapshot)?.1.into_iter().map(|(_, _, row)| Some(row)).collect();
        for (table, key, _) in rows.iter() {
            let row = snapshot.open_table(*table)?.get(key.as_slice()).at(table.name())?;
            found.push(row.map(|row| row.value().to_vec()));
        }
        Ok::<_, Error>(found)
    };
    contained(read).ok()?.ok()
}

fn large_base(disk: &MemoryDisk) -> Base {
    let base = Base::create(&on(disk), &path(), SMALL_CACHE_BYTES).unwrap();
    for round in 0..3 {
        let first = 2 + 250 * round;
        let value = |n: i64| vec![n.to_be_bytes()[7]; if n % 3 == 0 { 300 } else { 20 }];
        let changes = (first..first + 250).map(|n| put(&format!("key {:04}", (n * 7) % 400), n, value(n)));
        base.flush(&part(round.cast_unsigned() + 1, -1, changes.collect()), Garbage::Drop).unwrap();
    }
    base
}

fn opened(disk: &MemoryDisk) -> Base {
    Base::open(&on(disk), &path(), SMALL_CACHE_BYTES).unwrap()
}

#[test]
fn no_flipped_bit_that_changes_what_is_read_is_passed_over_while_writes_go_on() {
    let flips = std::env::var("STERNPOST_TEST_FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let (mut rng, mut kinds) = (Prng::new(11), BTreeMap::<&str, u64>::new());
    let sound = MemoryDisk::new();
    let base = large_base(&sound);
    let rows = Arc::new(everything(&base.snapshot().unwrap()).1);
    base.halt();
    drop(base);
    let answers = readable(&sound, &rows).unwrap();
    let image = sound.read(&path());
    let in_use: Vec<usize> =
        (0..image.len()).step_by(512).filter(|at| image[*at..*at + 512].iter().any(|b| *b != 0)).collect();
    // A commit that meets damage before the scrub does ends in its own way: where writes go, there are none.
    let trial = sound.copy();
    let base = opened(&trial);
    let mut writes = Writes(0);
    (0..100).for_each(|_| writes.write(&base));
    let written = trial.touched(&path());
    let (mut changed, mut writes_made) = (0, 0);
    for flip in 0..flips {
        let disk = sound.copy();
        let bit = in_use[rng.below(in_use.len() as u64) as usize] as u64 * 8 + rng.below(512 * 8);
        let base = Arc::new(opened(&disk));
        disk.flip_bit(&path(), bit);
        let changes = readable(&disk, &rows).is_none_or(|found| found != answers);
        let writes_go_on = !written.contains(&(bit / 8 / 4096));
        let of_scrub = Arc::clone(&base);
        let verdict = contained(move || {
            let mut writes = Writes(0);
            (
                scrubbed(&of_scrub, || {
                    if writes_go_on {
                        writes.write(&of_scrub)
                    }
                }),
                writes.0,
            )
        });
        writes_made += verdict.as_ref().map_or(0, |(_, writes)| *writes);
        let kind = match verdict.map(|(verdict, _)| verdict) {
            Err(_) => "a panic",
            Ok(Verdict::Sound) => "nothing",
            Ok(Verdict::Harmless(damage)) => {
                let named =
                    |error: &Error| matches!(error, Error::Corrupt { reason, .. } if reason.starts_with("row "));
                assert!(damage.iter().all(named), "{damage:?}");
                "an altered row"
            }
            Ok(Verdict::Final(error)) => match error.to_string() {
                text if text.contains("looking it up") => "a lookup",
                text if text.contains("checksum") => "a row with another key",
                text if text.contains("not in order") => "the order",
                text if text.contains(", meta") => "the header",
                text if text.contains("expected") => "the sums",
                text if text.contains("reading /data") => "opening it",
                _ => "redb",
            },
        };
        *kinds.entry(kind).or_default() += 1;
        changed += u64::from(changes);
        base.keep_for_good();
        assert!(!changes || kind != "nothing", "flip {flip}, bit {bit} is passed over");
    }
    println!("{flips} flips, {changed} change what is read, {writes_made} writes meanwhile, found by {kinds:?}");
    let found = |kind: &str| kinds.get(kind).copied().unwrap_or_default();
    assert!(changed >= flips / 2 && writes_made.cast_unsigned() >= flips);
    assert!(found("an altered row") >= flips / 10 && found("a row with another key") >= flips / 100);
    assert!(found("redb") + found("the sums") + found("a lookup") + found("the order") >= 3, "{kinds:?}");
}
