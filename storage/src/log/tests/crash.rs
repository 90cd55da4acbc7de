//! Power cuts: nothing acknowledged is lost, and every image opens.

use std::sync::Arc;

use super::{Bench, ID, SEGMENT, check_image, dir, file, frame, open};
use crate::fs::SimFs;
use crate::fs::sim::{CrashStyle, Fault, FaultKind, Op};
use crate::log::{LocalLog, Log};
use crate::types::Position;

const STYLES: [CrashStyle; 5] =
    [CrashStyle::KeepNone, CrashStyle::KeepAll, CrashStyle::Sectors, CrashStyle::Pages, CrashStyle::HeaderBytes];

/// The images that a power cut may leave: one of each exact style, `seeds` of each random one.
fn images(disk: &SimFs, seeds: u64) -> impl Iterator<Item = SimFs> {
    let random = |style| !matches!(style, CrashStyle::KeepNone | CrashStyle::KeepAll);
    STYLES.into_iter().flat_map(move |style| {
        let seeds = if random(style) { seeds } else { 1 };
        (0..seeds).map(move |seed| disk.crash(style, seed))
    })
}

#[test]
fn every_subset_of_the_last_frames_sectors_opens_and_loses_nothing() {
    let mut tried = 0;
    for len in [0, 300, 500, 1500, 3000, 4500] {
        for lengths in [vec![], vec![700], vec![100, 3000]] {
            let mut bench = Bench::with(&lengths);
            let before = bench.disk.crash(CrashStyle::KeepNone, 0);
            let acknowledged = bench.acknowledged.clone();
            bench.append(len).unwrap();
            let whole = bench.disk.contents(file(1)).unwrap();
            let was = before.contents(file(1)).unwrap();
            let start = was.iter().rposition(|byte| *byte != 0).map_or(0, |last| (last / 512 + 1) * 512).max(4096);
            let sectors = bench.acknowledged.last().unwrap().len().div_ceil(511);
            for subset in 0..1_u32 << sectors {
                let image = before.crash(CrashStyle::KeepNone, 0);
                for sector in (0..sectors).filter(|sector| subset & (1 << sector) != 0) {
                    let at = start + sector * 512;
                    image.damage(file(1), at as u64, &whole[at..at + 512]).unwrap();
                }
                let log = check_image(&image, &acknowledged);
                let complete = subset + 1 == 1 << sectors;
                assert_eq!(log.recovery().frames, acknowledged.len() as u64 + u64::from(complete));
                assert_eq!(log.recovery().cut.is_some(), subset != 0 && !complete);
                tried += 1;
            }
        }
    }
    println!("{tried} subsets of sectors tried");
    assert!(tried > 3500);
}

/// Appends and trims until the simulated process dies; what it had acknowledged, and what it had trimmed.
fn run(disk: &SimFs, log: LocalLog, appends: usize) -> (Vec<Vec<u8>>, Position) {
    let mut bench = Bench { disk: disk.clone(), log, digest: Default::default(), acknowledged: Vec::new() };
    for number in 0..appends {
        let len = [10, 2000, 5000, 511, 9000][number % 5];
        if bench.append(len).is_err() {
            break;
        }
        if number % 6 == 5 && bench.log.trim(Position(number as u64 - 2)).is_err() {
            break;
        }
    }
    (bench.acknowledged, bench.log.first())
}

#[test]
fn a_power_cut_before_any_operation_loses_nothing_acknowledged() {
    let mut tried = 0;
    for nth in 1.. {
        let disk = SimFs::new();
        let log = LocalLog::create(Arc::new(disk.clone()), dir(), ID, SEGMENT).unwrap();
        disk.inject(Fault::new(FaultKind::Freeze, nth));
        let (acknowledged, first) = run(&disk, log, 24);
        for image in images(&disk, 12) {
            let log = check_image(&image, &acknowledged);
            assert!(log.first() >= first, "a trimmed segment came back");
            tried += 1;
        }
        if !disk.is_frozen() {
            break;
        }
    }
    println!("{tried} images of appending, creating and trimming opened");
    assert!(tried > 2000);
}

#[test]
fn a_power_cut_while_a_torn_frame_is_cut_is_cut_again() {
    let mut tried = 0;
    let mut bench = Bench::with(&[700, 2000]);
    bench.disk.inject(Fault::new(FaultKind::Freeze, 1).on(Op::Sync));
    let acknowledged = bench.acknowledged.clone();
    bench.append(6000).unwrap_err();
    for torn in images(&bench.disk, 60) {
        for nth in 1.. {
            let process = torn.restart();
            process.inject(Fault::new(FaultKind::Freeze, nth));
            let opened = open(&process).is_ok();
            for image in images(&process, 8) {
                check_image(&image, &acknowledged);
                tried += 1;
            }
            if opened {
                break;
            }
        }
    }
    println!("{tried} images of cutting opened");
    assert!(tried > 5000);
}

#[test]
fn a_small_frame_after_a_large_torn_one_leaves_nothing_of_it() {
    let disk = SimFs::new();
    let fs = Arc::new(disk.clone());
    let mut log = LocalLog::create(fs.clone(), dir(), ID, 1 << 20).unwrap();
    disk.inject(Fault::new(FaultKind::Freeze, 1).on(Op::Sync));
    log.append(&mut frame(1, 1, 300_000), Default::default()).unwrap_err();
    let mut cut = 0;
    for seed in 0..50 {
        let torn = disk.crash(CrashStyle::Sectors, seed);
        let mut log = open(&torn).unwrap();
        cut += u64::from(log.recovery().cut.is_some());
        if log.end() == Position(1) {
            assert!(torn.contents(file(1)).unwrap()[4096..].iter().all(|byte| *byte == 0));
            log.append(&mut frame(1, 1, 10), Default::default()).unwrap();
        }
        assert_eq!(open(&torn.crash(CrashStyle::KeepNone, 0)).unwrap().end(), Position(2));
    }
    assert!(cut > 20);
}

#[test]
fn a_power_cut_while_a_segment_is_made_leaves_a_log_that_opens() {
    let mut tried = 0;
    for nth in 1..=7 {
        let mut bench = Bench::with(&[3000, 3000, 3000]);
        bench.disk.inject(Fault::new(FaultKind::Freeze, nth));
        bench.append(3000).unwrap_err();
        for half_made in images(&bench.disk, 50) {
            for again in 1.. {
                let process = half_made.restart();
                process.inject(Fault::new(FaultKind::Freeze, again));
                let opened = open(&process).is_ok();
                for image in images(&process, 4) {
                    check_image(&image, &bench.acknowledged);
                    tried += 1;
                }
                if opened {
                    break;
                }
            }
        }
    }
    println!("{tried} images of making a segment opened");
    assert!(tried > 5000);
}

#[test]
fn a_power_cut_while_a_segment_makes_way_for_a_longer_one_leaves_one_of_them() {
    let (mut tried, mut left) = (0, 0);
    for nth in 1..=10 {
        let mut bench = Bench::with(&[]);
        bench.disk.inject(Fault::new(FaultKind::Freeze, nth));
        bench.append(2 * SEGMENT as usize).unwrap_err();
        for image in images(&bench.disk, 50) {
            let others =
                || image.files().iter().filter(|path| path.extension().is_some_and(|end| end == "new")).count();
            left += others();
            check_image(&image, &bench.acknowledged);
            assert_eq!(others(), 0, "what has no use takes no room");
            tried += 1;
        }
    }
    println!("{tried} images of replacing opened, {left} with a leftover");
    assert!(tried > 1000 && left > 100);
}

#[test]
fn a_power_cut_while_a_log_is_created_leaves_one_that_opens_or_can_be_created_again() {
    let mut tried = 0;
    for nth in 1..=10 {
        let disk = SimFs::new();
        disk.inject(Fault::new(FaultKind::Freeze, nth));
        let created = LocalLog::create(Arc::new(disk.clone()), dir(), ID, SEGMENT).is_ok();
        for image in images(&disk, 50) {
            if created {
                open(&image).unwrap();
            }
            let mut log = LocalLog::create(Arc::new(image.clone()), dir(), ID, SEGMENT).unwrap();
            log.append(&mut frame(1, 0, 10), Default::default()).unwrap();
            assert_eq!(open(&image).unwrap().end(), Position(2));
            tried += 1;
        }
    }
    println!("{tried} images of creating opened");
    assert!(tried > 900);
}
