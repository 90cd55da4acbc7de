//! Errors of the disk: what was begun and failed is final, lack of room is not.

use std::sync::Arc;

use super::{Bench, ID, SEGMENT, check_image, dir, frame, open};
use crate::error::Error;
use crate::fs::SimFs;
use crate::fs::sim::{CrashStyle, Fault, FaultKind, Op};
use crate::log::{AppendError, LocalLog, Log};
use crate::types::Position;

#[test]
fn an_error_of_any_operation_is_final_and_loses_nothing_acknowledged() {
    let mut tried = 0;
    for kind in [FaultKind::Io, FaultKind::Partial] {
        for nth in 1.. {
            let mut bench = Bench::new();
            bench.disk.inject(Fault::new(kind, nth));
            let failed = (0..16).find_map(|number| bench.append([10, 3000, 6000, 700][number % 4]).err());
            let Some(AppendError::Final(error)) = failed else {
                assert_eq!(failed, None);
                break;
            };
            check_latched(&mut bench, &error);
            // The next process, on the same running machine, and power cuts before and after it has opened the log.
            for seed in 0..20 {
                let style =
                    [CrashStyle::Sectors, CrashStyle::Pages, CrashStyle::KeepNone, CrashStyle::KeepAll][seed % 4];
                check_image(&bench.disk.crash(style, seed as u64), &bench.acknowledged);
                let next = bench.disk.restart();
                let mut log = open(&next).unwrap();
                let seen: Vec<Vec<u8>> =
                    log.read(Position(1), usize::MAX).unwrap().iter().map(|frame| frame.bytes.to_vec()).collect();
                assert_eq!(seen[..bench.acknowledged.len()], bench.acknowledged);
                // What the next process has read it will build on, so it must be durable now.
                check_image(&next.crash(style, seed as u64), &seen);
                let mut more = frame(log.end().0, 2, 900);
                let (end, digest) = (log.end(), log.recovery().digest);
                assert_eq!(log.append(&mut more, digest), Ok(end));
                let seen = [seen, vec![more.stamp(ID, end).to_vec()]].concat();
                check_image(&next.crash(style, seed as u64), &seen);
                tried += 3;
            }
        }
    }
    println!("{tried} images after an error opened");
    assert!(tried > 5000);
}

fn check_latched(bench: &mut Bench, error: &Error) {
    assert!(matches!(error, Error::Io { .. }) && error.is_final());
    let before = bench.disk.total();
    assert_eq!(bench.append(10), Err(AppendError::Final(error.clone())));
    assert_eq!(bench.log.read(Position(1), 1), Err(error.clone()));
    assert_eq!(bench.log.trim(Position(1)), Err(error.clone()));
    assert_eq!(bench.disk.total(), before, "a log that failed leaves the disk alone");
}

#[test]
fn a_frame_that_a_failed_sync_lost_is_written_again_by_the_next_start() {
    let mut lost = 0;
    for len in 1..200 {
        let mut bench = Bench::with(&[700]);
        bench.disk.inject(Fault::new(FaultKind::Partial, 1).on(Op::Sync));
        bench.append(len * 20).unwrap_err();
        let next = bench.disk.restart();
        assert_eq!(open(&next).unwrap().end(), Position(3), "the cache still has all of it");
        lost += usize::from(open(&bench.disk.crash(CrashStyle::KeepNone, 0)).unwrap().end() == Position(2));
        assert_eq!(open(&next.crash(CrashStyle::KeepNone, 0)).unwrap().end(), Position(3));
    }
    assert!(lost > 100);
}

#[test]
fn a_full_disk_refuses_the_frame_and_takes_it_when_there_is_room() {
    let mut bench = Bench::with(&[3000, 3000, 3000]);
    let before = (bench.disk.files(), bench.log.size_bytes(), bench.log.end());
    bench.disk.set_capacity(SEGMENT + 8192);
    for _ in 0..3 {
        assert_eq!(bench.append(3000), Err(AppendError::Full));
        assert_eq!((bench.disk.files(), bench.log.size_bytes(), bench.log.end()), before);
        check_image(&unlimited(bench.disk.crash(CrashStyle::KeepAll, 0)), &bench.acknowledged);
    }
    // A smaller frame still fits into the segment.
    assert_eq!(bench.append(10), Ok(Position(4)));
    bench.disk.set_capacity(2 * SEGMENT);
    assert_eq!(bench.append(3000), Ok(Position(5)));
    let log = check_image(&unlimited(bench.disk.crash(CrashStyle::KeepNone, 0)), &bench.acknowledged);
    assert_eq!(log.recovery().frames, 5);
}

#[test]
fn a_segment_whose_file_finds_no_room_is_made_later() {
    for op in [Op::Create, Op::Allocate] {
        let mut bench = Bench::with(&[3000, 3000, 3000]);
        bench.disk.inject(Fault::new(FaultKind::NoSpace, 1).on(op));
        assert_eq!(bench.append(3000), Err(AppendError::Full), "{op:?}");
        bench.disk.clear_faults();
        assert_eq!(bench.append(3000), Ok(Position(4)), "{op:?}");
        check_image(&bench.disk.crash(CrashStyle::KeepNone, 0), &bench.acknowledged);
    }
}

fn unlimited(disk: SimFs) -> SimFs {
    disk.set_capacity(u64::MAX);
    disk
}

#[test]
fn a_frame_too_large_for_an_empty_segment_waits_for_room_as_well() {
    let mut bench = Bench::new();
    bench.disk.set_capacity(2 * SEGMENT);
    assert_eq!(bench.append(100_000), Err(AppendError::Full));
    bench.disk.set_capacity(u64::MAX);
    assert_eq!(bench.append(100_000), Ok(Position(1)));
    assert_eq!(bench.append(100), Ok(Position(2)));
    check_image(&bench.disk.crash(CrashStyle::KeepNone, 0), &bench.acknowledged);
}

#[test]
fn power_cuts_around_a_full_disk_leave_logs_that_open() {
    let mut tried = 0;
    for nth in 1..=12 {
        let mut bench = Bench::with(&[3000, 3000, 3000]);
        bench.disk.set_capacity(SEGMENT + 8192);
        bench.disk.inject(Fault::new(FaultKind::Freeze, nth));
        for len in [3000, 3000, 10] {
            let answer = bench.append(len);
            assert!(matches!(answer, Ok(_) | Err(AppendError::Full | AppendError::Final(_))));
        }
        for seed in 0..60 {
            let style = [CrashStyle::Sectors, CrashStyle::Pages, CrashStyle::KeepNone, CrashStyle::KeepAll][seed % 4];
            check_image(&unlimited(bench.disk.crash(style, seed as u64)), &bench.acknowledged);
            tried += 1;
        }
    }
    assert_eq!(tried, 720);
}

#[test]
fn lack_of_room_in_what_was_begun_is_final() {
    for op in [Op::Write, Op::Sync, Op::SyncDir] {
        let mut bench = Bench::with(&[3000, 3000, 3000]);
        bench.disk.inject(Fault::new(FaultKind::NoSpace, 1).on(op));
        let Err(AppendError::Final(error)) = bench.append(3000) else { panic!("{op:?} is begun") };
        check_latched(&mut bench, &error);
        check_image(&bench.disk.crash(CrashStyle::Sectors, 1), &bench.acknowledged);
    }
}

#[test]
fn a_segment_that_cannot_be_removed_ends_the_log() {
    for op in [Op::Remove, Op::SyncDir] {
        let mut bench = Bench::with(&[3000; 9]);
        bench.disk.inject(Fault::new(FaultKind::Io, 1).on(op));
        let error = bench.log.trim(Position(9)).unwrap_err();
        check_latched(&mut bench, &error);
        check_image(&bench.disk.crash(CrashStyle::Sectors, 1), &bench.acknowledged);
    }
}

#[test]
fn a_read_error_at_open_is_reported_and_changes_nothing() {
    let bench = Bench::with(&[3000; 9]);
    let mut nth = 0;
    loop {
        nth += 1;
        let next = bench.disk.restart();
        next.inject(Fault::new(FaultKind::Io, nth).on(Op::Read));
        match open(&next) {
            Ok(_) => break assert!(nth > 3),
            Err(error) => assert!(matches!(error, Error::Io { .. })),
        }
        assert_eq!((next.total().changes, next.total().syncs), (0, 0));
    }
}

#[test]
fn creating_on_a_full_disk_says_so_and_leaves_nothing() {
    let disk = SimFs::new();
    disk.set_capacity(SEGMENT - 1);
    let create = || LocalLog::create(Arc::new(disk.clone()), dir(), ID, SEGMENT);
    assert_eq!(create().unwrap_err(), Error::NoSpace);
    assert!(disk.files().is_empty());
    disk.set_capacity(SEGMENT);
    assert_eq!(create().unwrap().append(&mut frame(1, 0, 10), Default::default()), Ok(Position(1)));
}

#[test]
fn an_append_costs_one_write_and_one_sync_and_zeros_once_in_64_kib() {
    let disk = SimFs::new();
    let mut log = LocalLog::create(Arc::new(disk.clone()), dir(), ID, 1 << 20).unwrap();
    let mut large = 0;
    for number in 1..=200 {
        disk.reset_counts();
        log.append(&mut frame(number, 0, 1000), Default::default()).unwrap();
        let total = disk.total();
        assert_eq!((total.operations, total.writes, total.syncs), (2, 1, 1));
        large += u64::from(total.bytes_written != 3 * 512);
    }
    assert_eq!(large, (4096 + 200 * 3 * 512_u64).div_ceil(65_536));
}
