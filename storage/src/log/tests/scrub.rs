//! The walk over the log of an open keyspace, a step at a time.

use std::sync::Arc;

use super::{Bench, ID, dir, file};
use crate::fs::{FileSystem, OpenMode, SimFs};
use crate::log::LogScrub;
use crate::types::{LogId, Position};

const LENGTHS: [usize; 7] = [700, 3000, 0, 1500, 6000, 300, 2000];

fn scrub(disk: &SimFs, id: LogId) -> LogScrub {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    LogScrub::new(fs, dir(), id)
}

/// Damage as first frame, last frame and message, found by one walk up to `durable`.
fn damage(disk: &SimFs, durable: u64) -> Vec<(u64, u64, String)> {
    let did = scrub(disk, ID).step(Position(durable), usize::MAX);
    assert!(did.done);
    did.damage.into_iter().map(|found| (found.from.0, found.upto.0, found.error.to_string())).collect()
}

#[test]
fn a_walk_pauses_after_what_it_may_read_and_goes_on_there() {
    let bench = Bench::with(&LENGTHS);
    let mut walk = scrub(&bench.disk, ID);
    let mut steps = Vec::new();
    while !steps.last().is_some_and(|(_, done)| *done) {
        let did = walk.step(Position(7), 1);
        assert!(did.damage.is_empty() && did.frames <= 1 && steps.len() < 20, "{did:?}");
        steps.push((did.frames, did.done));
    }
    assert_eq!(steps.iter().map(|(frames, _)| frames).sum::<u64>(), 7);
    // The next walk begins anew, and may be done in one step.
    let did = walk.step(Position(7), usize::MAX);
    assert_eq!((did.frames, did.done), (7, true));
    assert!(did.bytes_read >= 13_500, "{did:?}");
    let did = scrub(&bench.disk, ID).step(Position(3), usize::MAX);
    assert_eq!((did.frames, did.done), (3, true), "no further than what is durable");
}

#[test]
fn a_walk_ends_where_it_was_to_end_when_it_began() {
    let mut bench = Bench::with(&LENGTHS[..4]);
    let mut walk = scrub(&bench.disk, ID);
    assert_eq!(walk.step(Position(3), 1).frames, 1);
    bench.append(300).unwrap();
    let did = walk.step(Position(5), usize::MAX);
    assert_eq!((did.frames, did.done), (2, true));
}

#[test]
fn a_frame_that_is_damaged_hides_those_behind_it_in_its_segment() {
    let bench = Bench::with(&LENGTHS);
    let second = bench.disk.files()[1].clone();
    bench.disk.flip_bit(file(1), (4096 + 2 * 512 + 40) * 8).unwrap();
    let first_of_second: u64 = second.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let found = damage(&bench.disk, 7);
    let [(from, upto, error)] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((*from, *upto), (2, first_of_second - 1));
    assert!(error.contains("0000000000000001.log at offset 5120"), "{error}");
}

#[test]
fn what_another_log_wrote_is_damage() {
    let bench = Bench::with(&LENGTHS[..3]);
    let did = scrub(&bench.disk, LogId(7)).step(Position(3), usize::MAX);
    let found: Vec<_> = did.damage.iter().map(|found| (found.from.0, found.error.to_string())).collect();
    assert!(
        matches!(found.as_slice(), [(1, header), (1, frame)]
        if header.contains("its header is not what was written") && frame.contains("expected 1")),
        "{found:?}"
    );
}

#[test]
fn a_segment_that_goes_on_from_another_history_is_damage() {
    // The same frames by number and length, other bytes: only the chain tells them apart.
    let (bench, mut other) = (Bench::with(&LENGTHS), Bench::with(&[]));
    for len in LENGTHS {
        let number = other.acknowledged.len() as u64 + 1;
        let mut frame = super::frame(number, 1, len);
        let position = crate::log::Log::append(&mut other.log, &mut frame, other.digest).unwrap();
        other.digest = other.digest.chain(frame.stamp(ID, position));
        other.acknowledged.push(Vec::new());
    }
    assert_eq!(bench.disk.files(), other.disk.files());
    let second = bench.disk.files()[1].clone();
    let bytes = other.disk.contents(&second).unwrap();
    bench.disk.open(&second, OpenMode::ReadWrite).unwrap().write_at(0, &bytes).unwrap();
    let found = damage(&bench.disk, 7);
    let [(from, upto, error)] = found.as_slice() else { panic!("{found:?}") };
    let first: u64 = second.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    assert_eq!((*from, *upto), (first, first));
    assert!(error.contains("the segments before it give"), "{error}");
}

#[test]
fn segments_that_were_removed_meanwhile_are_passed_over() {
    let bench = Bench::with(&LENGTHS);
    let mut walk = scrub(&bench.disk, ID);
    assert_eq!(walk.step(Position(7), 1).frames, 1);
    bench.disk.remove(&file(1)).unwrap();
    let rest: u64 = bench.disk.files()[0].file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let did = walk.step(Position(7), usize::MAX);
    assert!(did.damage.is_empty() && did.done, "{did:?}");
    assert_eq!(did.frames, 8 - rest);
}
