//! Damage in front of what base holds is passed over, damage in what it lacks never is.

use std::sync::Arc;

use super::{Bench, ID, SEGMENT, contents, dir, frame, open};
use crate::error::Error;
use crate::fs::FileSystem;
use crate::fs::sim::{Prng, SimFs};
use crate::log::{Held, LocalLog, Log};
use crate::types::{Digest, Position};

const LENGTHS: [usize; 12] = [700, 3000, 0, 1500, 6000, 300, 2000, 100, 4000, 10, 2500, 900];

/// What base would hold with everything up to a position.
fn held(bench: &Bench, position: u64) -> Held {
    let frames = bench.acknowledged.iter().take(position as usize);
    Held { position: Position(position), digest: frames.fold(Digest::default(), |chain, bytes| chain.chain(bytes)) }
}

fn open_behind(disk: &SimFs, held: Held) -> Result<LocalLog, Error> {
    match open(disk) {
        Err(damage) => {
            let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
            LocalLog::open_behind(fs, dir(), ID, SEGMENT, (held, damage))
        }
        sound => sound,
    }
}

/// Where each frame lies: its file and its first byte.
fn places(bench: &Bench) -> Vec<(usize, u64)> {
    let (mut file, mut at) = (0, 4096);
    let place = |bytes: &Vec<u8>| {
        let need = bytes.len().div_ceil(511) as u64 * 512;
        if at + need > SEGMENT {
            (file, at) = (file + 1, 4096);
        }
        at += need;
        (file, at - need)
    };
    bench.acknowledged.iter().map(place).collect()
}

/// Everything that base lacks is there, what it holds is not offered, and the log goes on, also at the next start.
fn check(disk: &SimFs, bench: &Bench, held: Held) {
    let mut log = open_behind(disk, held).unwrap();
    let next = held.position.next();
    let lacking = &bench.acknowledged[held.position.0 as usize..];
    let frames = log.read(next, usize::MAX).unwrap();
    assert!(frames.iter().map(|frame| &frame.bytes).eq(lacking), "{held:?}");
    assert_eq!(log.end().0, bench.acknowledged.len() as u64 + 1);
    if !log.recovery().damage.is_empty() {
        assert_eq!((log.first(), log.digest_before_first()), (next, Some(held.digest)));
        assert!(matches!(log.read(Position(1), 1), Err(Error::LogMismatch { .. })));
    }
    let mut digest = log.recovery().digest;
    for number in 0..9 {
        let mut frame = frame(log.end().0, 1, 3000);
        let position = log.append(&mut frame, digest).unwrap();
        digest = digest.chain(frame.stamp(ID, position));
        assert_eq!(log.read(position, usize::MAX).unwrap().len(), 1, "frame {number} behind the damage");
    }
    let end = log.end();
    drop(log);
    let mut again = open_behind(disk, held).unwrap();
    assert_eq!((again.end(), again.recovery().digest), (end, digest));
    assert_eq!(again.read(next, usize::MAX).unwrap().len() as u64, end.0 - next.0);
    // Base has it all: the damaged segments go.
    again.trim(end).unwrap();
    assert_eq!(disk.files().len(), 1);
    assert!(again.first() > next);
    drop(again);
    assert_eq!(open(disk).unwrap().end(), end);
}

#[test]
fn a_flipped_bit_matters_only_above_what_base_holds() {
    let bench = Bench::with(&LENGTHS);
    let (files, places) = (bench.disk.files(), places(&bench));
    assert_eq!(files.len(), 3);
    let mut rng = Prng::new(5);
    let (mut passed, mut refused, mut footings) = (0, 0, 0);
    for (number, (file, at)) in places.iter().enumerate() {
        let sectors = bench.acknowledged[number].len().div_ceil(511) as u64;
        for _ in 0..30 {
            let bit = (at + rng.below(sectors * 512)) * 8 + rng.below(8);
            let position = 1 + rng.below(bench.acknowledged.len() as u64);
            let disk = bench.disk.restart();
            disk.flip_bit(&files[*file], bit).unwrap();
            let before = contents(&disk);
            let held = held(&bench, position);
            let damaged = number as u64 + 1;
            let in_header = bit / 8 < at + 512;
            match open_behind(&disk, held) {
                Ok(log) => {
                    assert!(damaged <= position, "frame {damaged} is damaged, base holds {position}");
                    assert_eq!(log.recovery().damage.len(), 1);
                    passed += 1;
                    drop(log);
                    check(&disk, &bench, held);
                }
                Err(error) if damaged > position => {
                    let text = error.to_string();
                    assert!(text.contains(&format!("{} at offset {at}", files[*file].display())), "{damaged}: {text}");
                    assert_eq!(contents(&disk), before);
                    refused += 1;
                }
                // Nothing says where the last frame ends, if not its header.
                Err(error) => {
                    let last = bench.acknowledged.len() as u64;
                    assert!(damaged == position && position == last && in_header, "{damaged} {position}: {error}");
                    assert!(error.to_string().contains("no intact frame says"), "{error}");
                    footings += 1;
                }
            }
        }
    }
    println!("{passed} passed over, {refused} refused, {footings} ends not found");
    assert!(passed >= 100 && refused >= 100);
}

#[test]
fn stretches_of_garbage_never_hide_a_frame_that_base_lacks() {
    let (mut passed, mut refused) = (0, 0);
    for seed in 0..400 {
        let mut rng = Prng::new(seed);
        let bench = Bench::with(&LENGTHS);
        let files = bench.disk.files();
        let position = 1 + rng.below(bench.acknowledged.len() as u64);
        let disk = bench.disk.restart();
        for _ in 0..=rng.below(2) {
            let file = &files[rng.below(3) as usize];
            let len = 1 + rng.below(9000) as usize;
            let at = rng.below(SEGMENT - len as u64);
            let garbage: Vec<u8> = match rng.below(3) {
                0 => vec![0; len],
                1 => (0..len).map(|_| rng.below(256) as u8).collect(),
                // What lies elsewhere in the log.
                _ => disk.contents(&files[rng.below(3) as usize]).unwrap()[at as usize..at as usize + len].to_vec(),
            };
            let at = if rng.chance(50) { at / 512 * 512 } else { at };
            disk.damage(file, at, &garbage).unwrap();
        }
        let held = held(&bench, position);
        match open_behind(&disk, held) {
            Ok(log) => {
                let (torn, end) = (log.recovery().cut.is_some(), log.end().0 as usize);
                drop(log);
                // Frames at the end of which nothing is left look as if they were never written.
                let gone = &places(&bench)[end - 1..];
                let blank = |(file, at): &(usize, u64)| {
                    let image = disk.contents(&files[*file]).unwrap();
                    image[*at as usize..*at as usize + 512].iter().all(|byte| *byte == 0)
                };
                assert!(torn || gone.iter().all(blank), "seed {seed}: frames from {end} on are there");
                if !torn && gone.is_empty() {
                    check(&disk, &bench, held);
                    passed += 1;
                }
            }
            Err(error) => {
                assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                refused += 1;
            }
        }
    }
    println!("{passed} passed over, {refused} refused");
    assert!(passed >= 80 && refused >= 80);
}

#[test]
fn frames_that_have_changed_places_are_refused() {
    // The last two, of equal length: what base lacks lies in front of what it holds.
    let bench = Bench::with(&[700, 1500, 1500]);
    let (file, places) = (&bench.disk.files()[0], places(&bench));
    let (one, two) = (places[1].1, places[2].1);
    let bytes = bench.disk.contents(file).unwrap();
    let frame = |at: u64| bytes[at as usize..at as usize + (two - one) as usize].to_vec();
    bench.disk.damage(file, one, &frame(two)).unwrap();
    bench.disk.damage(file, two, &frame(one)).unwrap();
    let refused = open_behind(&bench.disk, held(&bench, 2)).unwrap_err();
    assert!(refused.to_string().contains("no intact frame says where position 3 begins"), "{refused}");
}

#[test]
fn a_log_that_begins_above_what_base_holds_or_ends_below_is_refused() {
    let bench = Bench::with(&LENGTHS);
    let files = bench.disk.files();
    bench.disk.flip_bit(&files[0], 5000 * 8).unwrap();
    bench.disk.remove(&files[0]).unwrap();
    bench.disk.flip_bit(&files[1], 5000 * 8).unwrap();
    assert!(matches!(open_behind(&bench.disk, held(&bench, 1)), Err(Error::Corrupt { .. })));
    let beyond = Held { position: Position(99), digest: Digest::default() };
    assert!(open_behind(&bench.disk, beyond).unwrap_err().to_string().contains("position 100"));
    // Another history behind the damage.
    let other = Held { digest: Digest([7; 16]), ..held(&bench, 6) };
    assert!(open_behind(&bench.disk, other).unwrap_err().to_string().contains("digest"));
}
