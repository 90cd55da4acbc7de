//! Damage in what was acknowledged is told from a torn tail, and nothing is changed then.

use super::{Bench, ID, SEGMENT, check_image, contents, dir, file, frame, open};
use crate::error::Error;
use crate::fs::sim::{Prng, SimFs};
use crate::fs::{FileSystem, OpenMode};
use crate::log::Log;
use crate::types::Position;

/// Opening is refused as corrupt, and no byte and no name is changed by it.
fn refuse(disk: &SimFs) -> String {
    disk.reset_counts();
    let error = open(disk).expect_err("damage is noticed");
    assert!(matches!(error, Error::Corrupt { .. } | Error::LogMismatch { .. }), "{error}");
    assert_eq!((disk.total().changes, disk.total().syncs), (0, 0), "{error}");
    error.to_string()
}

#[test]
fn a_flipped_bit_anywhere_in_the_log_is_corrupt() {
    let bench = Bench::with(&[700, 3000, 0, 1500, 6000, 300, 2000]);
    let files = bench.disk.files();
    assert_eq!(files.len(), 2);
    let mut random = Prng::new(1);
    let mut tried = 0;
    for path in &files {
        for byte in 0..SEGMENT {
            let bit = byte * 8 + random.below(8);
            bench.disk.flip_bit(path, bit).unwrap();
            refuse(&bench.disk);
            bench.disk.flip_bit(path, bit).unwrap();
            tried += 1;
        }
    }
    println!("{tried} flipped bits refused");
    assert!(tried >= 32_000);
    check_image(&bench.disk, &bench.acknowledged);
}

#[test]
fn every_bit_of_the_last_frame_is_guarded_even_if_its_values_are_zeros() {
    let bench = Bench::with(&[700, 1100]);
    let last = bench.acknowledged[1].len().div_ceil(511) * 512;
    let start = 4096 + 2 * 512;
    for bit in start * 8..(start + last) * 8 {
        bench.disk.flip_bit(file(1), bit as u64).unwrap();
        let message = refuse(&bench.disk);
        assert!(message.contains("0000000000000001.log at offset 5120"), "{message}");
        bench.disk.flip_bit(file(1), bit as u64).unwrap();
    }
    check_image(&bench.disk, &bench.acknowledged);
}

#[test]
fn a_sector_lost_before_the_last_frame_is_corrupt() {
    let bench = Bench::with(&[700, 3000, 0, 1500, 6000, 300, 2000]);
    let files = bench.disk.files();
    let newest = files.last().unwrap();
    let bytes = bench.disk.contents(newest).unwrap();
    let end = (bytes.iter().rposition(|byte| *byte != 0).unwrap() / 512 + 1) * 512;
    let start = end - bench.acknowledged.last().unwrap().len().div_ceil(511) * 512;
    let mut tried = 0;
    for path in bench.disk.files() {
        let before = bench.disk.contents(&path).unwrap();
        for sector in (0..before.len()).step_by(512).filter(|at| before[*at] != 0) {
            bench.disk.zero(&path, sector as u64, 512).unwrap();
            let damaged = contents(&bench.disk);
            match open(&bench.disk) {
                // Only what is missing from the very last frame looks like a power cut.
                Ok(log) => assert!(log.recovery().cut.is_some() && path == *newest && sector >= start),
                Err(_) => assert_eq!(contents(&bench.disk), damaged),
            }
            bench.disk.damage(&path, 0, &before).unwrap();
            tried += 1;
        }
    }
    assert!(tried >= 28, "{tried}");
    check_image(&bench.disk, &bench.acknowledged);
}

#[test]
fn a_missing_a_misnamed_and_a_shortened_segment_are_corrupt() {
    let make = || Bench::with(&[3000; 12]);
    let missing = make();
    missing.disk.remove(&file(4)).unwrap();
    assert!(refuse(&missing.disk).contains("it ends before position 4, the next begins at 7"));

    let misnamed = make();
    misnamed.disk.rename(&file(1), &file(2)).unwrap();
    assert!(refuse(&misnamed.disk).contains("the header says position 1"));

    let swapped = make();
    let (a, b) = (swapped.disk.contents(file(4)).unwrap(), swapped.disk.contents(file(7)).unwrap());
    swapped.disk.damage(file(4), 4096, &b[4096..]).unwrap();
    swapped.disk.damage(file(7), 4096, &a[4096..]).unwrap();
    assert!(refuse(&swapped.disk).contains("expected 4"));

    for (first, len) in [(1, 4096), (4, 512), (7, 8192), (10, 8192), (10, 4096), (10, SEGMENT - 512)] {
        let short = make();
        short.disk.open(&file(first), OpenMode::ReadWrite).unwrap().set_len(len).unwrap();
        let message = refuse(&short.disk);
        assert!(
            message.contains(&format!("{first:016}.log")) && message.contains(&format!("offset {len}")),
            "{message}"
        );
    }

    let ahead = make();
    ahead.disk.open(&file(99), OpenMode::CreateNew).unwrap().allocate(0, SEGMENT).unwrap();
    assert!(refuse(&ahead.disk).contains("no header, and the ones before it end at 13"));

    let strange = make();
    strange.disk.open(&dir().join("7.log"), OpenMode::CreateNew).unwrap();
    assert!(refuse(&strange.disk).contains("7.log is not the name of a segment"));
}

#[test]
fn another_history_in_an_older_segment_breaks_the_chain() {
    let bench = Bench::with(&[3000; 8]);
    let mut other = Bench::new();
    for number in 1..=8 {
        let mut frame = frame(number, 1, 3000);
        let position = other.log.append(&mut frame, other.digest).unwrap();
        other.digest = other.digest.chain(frame.stamp(ID, position));
    }
    let foreign = other.disk.contents(file(4)).unwrap();
    bench.disk.damage(file(4), 4096, &foreign[4096..]).unwrap();
    let message = refuse(&bench.disk);
    assert!(message.contains("0000000000000007.log at offset 0") && message.contains("digest"), "{message}");
}

/// The sectors of a frame, as they lie on the disk.
fn sectors(position: u64, len: usize) -> Vec<[u8; 512]> {
    let bytes = frame(position, 0, len).stamp(ID, Position(position)).to_vec();
    let lay = |(number, piece): (usize, &[u8])| {
        let mut sector = [0; 512];
        sector[0] = if number == 0 { 0xa5 } else { 0x5a };
        sector[1..=piece.len()].copy_from_slice(piece);
        sector
    };
    bytes.chunks(511).enumerate().map(lay).collect()
}

#[test]
fn what_one_torn_write_cannot_have_left_is_corrupt() {
    // What lies from the first free sector on; `None` is zeros.
    let check = |sectors: &[Option<[u8; 512]>], wanted: Option<&str>| {
        let bench = Bench::with(&[100]);
        for (at, sector) in sectors.iter().enumerate().filter_map(|(at, sector)| Some((at as u64, (*sector)?))) {
            bench.disk.damage(file(1), 4608 + at * 512, &sector).unwrap();
        }
        match wanted {
            Some(wanted) => assert!(refuse(&bench.disk).contains(wanted), "{wanted}"),
            None => _ = check_image(&bench.disk, &bench.acknowledged),
        }
    };
    let (second, third, ninth) = (sectors(2, 1200), sectors(3, 10), sectors(9, 1200));
    let mut newer = second[0];
    newer[0] = 0x5b;
    check(&[Some(second[0]), None, Some(second[2])], None);
    check(&[None, Some(second[1])], None);
    check(&[Some(second[0]), None, Some(second[2]), Some(second[2])], Some("follows at offset 6144 is not"));
    check(&[Some(second[0]), None, None, Some(third[0])], Some("the frame at position 3 follows at offset 6144"));
    check(&[None, None, None, Some(third[0])], Some("the frame at position 3 follows"));
    check(&[Some(second[0]), None, Some(third[0])], Some("the frame at position 3 follows"));
    check(&[Some(ninth[0]), None, Some(ninth[2])], Some("at position 9, expected"));
    check(&[Some(second[1]), None, None], Some("no frame begins here"));
    check(&[Some(newer), None, None], Some("no frame begins here"));
    check(&[Some(ninth[0]), Some(ninth[1]), Some(ninth[2])], Some("frame 9 of log"));
}

#[test]
fn an_empty_directory_and_a_lone_blank_segment_are_no_log() {
    let disk = SimFs::new();
    disk.create_dir(dir()).unwrap();
    assert!(refuse(&disk).contains("no segment of a log"));
    disk.open(&file(1), OpenMode::CreateNew).unwrap().allocate(0, SEGMENT).unwrap();
    assert!(refuse(&disk).contains("no segment of a log"));
}

#[test]
fn a_first_segment_without_a_header_is_damage_if_another_follows() {
    let bench = Bench::with(&[700, 3000, 0, 1500, 6000, 300, 2000]);
    bench.disk.damage(file(1), 0, &[0; 512]).unwrap();
    assert!(refuse(&bench.disk).contains("no header, but a newer segment follows"));
}

#[test]
fn a_frame_in_another_ones_place_is_not_read() {
    let mut bench = Bench::with(&[700, 700]);
    let bytes = bench.disk.contents(file(1)).unwrap();
    let (first, second) = (4096_u64, 4096 + 2 * 512);
    bench.disk.damage(file(1), first, &bytes[second..second + 2 * 512]).unwrap();
    let error = bench.log.read(Position(1), usize::MAX).expect_err("frame 2 is no frame 1").to_string();
    assert!(error.contains("frame 2, expected 1"), "{error}");
}

#[test]
fn other_files_in_the_directory_are_left_alone() {
    let bench = Bench::with(&[10]);
    let other = dir().join("README");
    bench.disk.open(&other, OpenMode::CreateNew).unwrap().write_at(0, b"hello").unwrap();
    check_image(&bench.disk, &bench.acknowledged);
    assert_eq!(bench.disk.contents(&other).unwrap(), b"hello");
}
