//! What flushes, sweeps and rewrites write to base, put by put: counted in memory, so that it repeats to the byte.

use super::*;

/// Changes of a part, as the standard limits make them with values of 256 bytes.
const PART: u64 = 58_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Keys drawn at random, compacted after every so many puts to the revision so many puts ago, as an apiserver does.
#[test]
#[ignore = "a measurement"]
fn bytes_of_flushes_and_sweeps() {
    let (keys, puts) = (number("BYTES_KEYS", 100_000), number("BYTES_PUTS", 1_500_000));
    let (between, step) = (number("BYTES_COMPACT", 150_000), number("BYTES_STEP", 4000) as usize);
    let part_of = number("BYTES_PART", PART);
    let cache_bytes = number("BYTES_CACHE_MIB", 64) as usize * (1 << 20);
    let base = Base::create(&on(&MemoryDisk::new()), &path(), cache_bytes).unwrap();
    let mut rng = Rng(7);
    let (mut position, mut revision) = (0, 1);
    let mut flush = |numbers: &mut dyn Iterator<Item = u64>, compacted: i64| {
        let changes: Vec<Change> = numbers
            .map(|number| {
                revision += 1;
                put(&format!("/registry/load/{number:010}"), revision, vec![b'v'; 256])
            })
            .collect();
        position += 1;
        let before = base.bytes_written();
        let part = part(position, compacted, changes);
        base.reserve(&part, Garbage::Drop).unwrap();
        let report = base.flush(&part, Garbage::Drop).unwrap();
        (revision, base.bytes_written() - before, report.versions_dropped)
    };
    for first in (0..keys).step_by(PART as usize) {
        flush(&mut (first..keys.min(first + PART)), -1);
    }
    let (mut done, mut newest, mut compacted, mut seen) = (0, 0, -1, -1);
    let (mut flushed, mut swept, mut dropped_by_flush, mut dropped_by_sweep, mut steps) = (0, 0, 0, 0, 0);
    let mut next = between;
    while done < puts {
        let (at, bytes, dropped) = flush(&mut (0..part_of).map(|_| rng.below(keys)), compacted);
        (newest, done) = (at, done + part_of);
        flushed += bytes;
        dropped_by_flush += dropped;
        if done >= next {
            next += between;
            (compacted, seen) = (seen, newest);
        }
        loop {
            let before = base.bytes_written();
            base.reserve_sweep(step).unwrap();
            let report = base.sweep(Revision(compacted), step).unwrap();
            swept += base.bytes_written() - before;
            dropped_by_sweep += report.versions_dropped;
            steps += 1;
            if report.done {
                break;
            }
        }
    }
    println!(
        "{keys} keys, {done} puts, compacted every {between}, steps of {step}: a put {} bytes by flushes, {} by {steps} steps; \
         dropped {dropped_by_flush} and {dropped_by_sweep}; {} MiB on disk, newest {newest}",
        flushed / done,
        swept / done,
        base.size_bytes() >> 20,
    );
}
