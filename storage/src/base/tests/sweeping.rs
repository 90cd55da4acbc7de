//! What a sweep costs: it follows what changed, not how much there is.

use super::*;

/// Changes of one part.
const PART: i64 = 1000;

/// Writes `live` keys and sweeps; then overwrites keys `superseded` times, all over the key space, and sweeps again.
/// Answers what that second sweep did.
fn sweep_after(disk: &MemoryDisk, live: i64, superseded: i64) -> SweepReport {
    let base = new_base(disk);
    let key = |number: i64| format!("key/{number:09}");
    let (mut position, mut revision) = (0, 1);
    let mut write = |compacted: i64, numbers: &mut dyn Iterator<Item = i64>| {
        let changes: Vec<Change> = numbers
            .map(|number| {
                revision += 1;
                put(&key(number), revision, "value")
            })
            .collect();
        position += 1;
        base.flush(&part(position, compacted, changes), Garbage::Drop).unwrap();
        revision
    };
    let mut newest = 1;
    for first in (0..live).step_by(PART as usize) {
        newest = write(1, &mut (first..live.min(first + PART)));
    }
    let all = |compacted: i64| {
        let mut sum = SweepReport::default();
        while !sum.done {
            let step = base.sweep(Revision(compacted), 700).unwrap();
            sum.rows_visited += step.rows_visited;
            sum.versions_dropped += step.versions_dropped;
            sum.done = step.done;
        }
        sum
    };
    assert_eq!(all(newest), SweepReport { rows_visited: live.unsigned_abs(), versions_dropped: 0, done: true });
    let untouched = newest;
    for first in (0..superseded).step_by(PART as usize) {
        newest = write(untouched, &mut (first..superseded.min(first + PART)).map(|turn| turn * 7919 % live));
    }
    all(newest)
}

#[test]
fn a_sweep_visits_what_changed_however_many_keys_there_are() {
    let superseded = 3000;
    for live in [300, 3000, 30_000] {
        let did = sweep_after(&MemoryDisk::new(), live, superseded);
        // The last row of the first sweep is visited again: it was written at the compacted revision.
        let expected = SweepReport {
            rows_visited: superseded.unsigned_abs() + 1,
            versions_dropped: superseded.unsigned_abs(),
            done: true,
        };
        assert_eq!(did, expected, "over {live} live keys");
    }
}

#[test]
fn a_sweep_that_has_got_there_left_nothing_behind() {
    for rows_max in 1..8 {
        let base = new_base(&MemoryDisk::new());
        base.flush(&part(1, -1, (2..8).map(|main| put("k", main, "v")).collect()), Garbage::Drop).unwrap();
        while base.swept() < Revision(7) {
            base.sweep(Revision(7), rows_max).unwrap();
        }
        let left: Vec<i64> = versions(&base.snapshot().unwrap()).into_iter().map(|(_, at)| at.main.0).collect();
        assert_eq!(left, [7], "{rows_max} rows a step");
    }
}

#[test]
fn a_step_visits_as_many_rows_as_it_may_and_the_rest_of_a_revision() {
    let base = new_base(&MemoryDisk::new());
    let change = |main, sub| Change {
        at: RevisionPair { main: Revision(main), sub },
        ..put(&format!("{main}/{sub}"), main, "v")
    };
    let changes = (2..8).flat_map(|main| (0..3).map(move |sub| change(main, sub))).collect();
    base.flush(&part(1, -1, changes), Garbage::Drop).unwrap();
    let visited: Vec<u64> = (0..4).map(|_| base.sweep(Revision(7), 4).unwrap().rows_visited).collect();
    // Two revisions, two, and the last two: that of the compacted revision is not left alone, and visited again each time.
    assert_eq!(visited, [6, 6, 6, 3]);
}

#[test]
#[ignore = "a measurement: takes minutes and gigabytes of memory"]
fn a_sweep_of_a_million_revisions() {
    for live in [100_000, 10_000_000] {
        let began = std::time::Instant::now();
        let did = sweep_after(&MemoryDisk::new(), live, 1_000_000);
        println!("{live} live keys: {did:?}, {:?} with the filling", began.elapsed());
        assert_eq!(did.versions_dropped, 1_000_000);
    }
}
