//! What only the simulated disk does: forget, tear, fail, fill up.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::fs::sim::{CrashStyle, Fault, FaultKind, Op, SimFs};
use crate::fs::{File, FileSystem, OpenMode};

const ROOT: &str = "/root";
const FILE: &str = "/root/file";

/// A disk with a durable file of `len` ones.
fn disk(len: usize) -> (SimFs, Arc<dyn File>) {
    let disk = SimFs::new();
    disk.create_dir(Path::new(ROOT)).unwrap();
    let file = disk.open(Path::new(FILE), OpenMode::CreateNew).unwrap();
    file.write_at(0, &vec![1; len]).unwrap();
    file.sync().unwrap();
    disk.sync_dir(Path::new(ROOT)).unwrap();
    (disk, file)
}

#[test]
fn a_crash_keeps_what_was_synced_and_any_part_of_the_rest() {
    let (disk, file) = disk(8192);
    file.write_at(0, &[2; 8192]).unwrap();
    assert_eq!(disk.crash(CrashStyle::KeepNone, 0).contents(FILE).unwrap(), [1; 8192]);
    assert_eq!(disk.crash(CrashStyle::KeepAll, 0).contents(FILE).unwrap(), [2; 8192]);
    for (style, sector, floor) in [(CrashStyle::Sectors, 512, 400), (CrashStyle::Pages, 4096, 4)] {
        let mut images = BTreeSet::new();
        for seed in 0..1000 {
            let image = disk.crash(style, seed).contents(FILE).unwrap();
            assert_eq!(disk.crash(style, seed).contents(FILE).unwrap(), image, "the seed decides");
            assert!(image.chunks(sector).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
            images.insert(image);
        }
        assert!(images.len() >= floor, "{} different images", images.len());
    }
    assert_eq!(disk.contents(FILE).unwrap(), [2; 8192], "the live disk stays as it is");
}

#[test]
fn an_older_write_may_survive_without_the_newer_one() {
    let (disk, file) = disk(512);
    file.write_at(0, &[2; 512]).unwrap();
    file.write_at(0, &[3; 512]).unwrap();
    let seen: BTreeSet<u8> =
        (0..200).map(|seed| disk.crash(CrashStyle::Sectors, seed).contents(FILE).unwrap()[0]).collect();
    assert_eq!(seen, BTreeSet::from([1, 2, 3]));
}

#[test]
fn lengths_and_names_are_durable_only_after_their_sync() {
    let (disk, file) = disk(100);
    let other = Path::new("/root/other");
    file.set_len(50).unwrap();
    disk.rename(Path::new(FILE), other).unwrap();
    let after = disk.crash(CrashStyle::KeepNone, 0);
    assert_eq!(after.contents(FILE).unwrap().len(), 100);
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let after = disk.crash(CrashStyle::Sectors, seed);
        assert_eq!(after.files().len(), 1, "a rename happens or does not");
        let len = after.contents(&after.files()[0]).unwrap().len();
        seen.insert((after.files()[0] == other, len));
    }
    assert_eq!(seen.len(), 4);
    disk.sync_dir(Path::new(ROOT)).unwrap();
    file.sync().unwrap();
    let after = disk.crash(CrashStyle::KeepNone, 0);
    assert_eq!(after.contents(other).unwrap().len(), 50);
    disk.remove(other).unwrap();
    assert_eq!(disk.crash(CrashStyle::KeepNone, 0).files(), [other]);
    assert!(disk.crash(CrashStyle::KeepAll, 0).files().is_empty());
    disk.sync_dir(Path::new(ROOT)).unwrap();
    assert!(disk.crash(CrashStyle::KeepNone, 0).files().is_empty());
}

#[test]
fn a_restart_loses_nothing_but_the_locks_and_makes_nothing_durable() {
    let (disk, file) = disk(10);
    let _held = disk.lock(Path::new("/root/lock"), "me").unwrap();
    file.write_at(0, &[2; 10]).unwrap();
    let next = disk.restart();
    assert_eq!(next.contents(FILE).unwrap(), [2; 10]);
    assert!(next.lock(Path::new("/root/lock"), "you").is_ok());
    assert_eq!(next.crash(CrashStyle::KeepNone, 0).contents(FILE).unwrap(), [1; 10]);
    next.open(Path::new(FILE), OpenMode::Read).unwrap().sync().unwrap();
    assert_eq!(next.crash(CrashStyle::KeepNone, 0).contents(FILE).unwrap(), [2; 10]);
}

#[test]
fn the_nth_matching_operation_fails_and_no_other() {
    let (disk, file) = disk(10);
    disk.inject(Fault::new(FaultKind::Io, 2).on(Op::Write).in_file("file"));
    disk.inject(Fault::new(FaultKind::NoSpace, 1).on(Op::Rename));
    let other = disk.open(Path::new("/root/other"), OpenMode::CreateNew).unwrap();
    other.write_at(0, b"1").unwrap();
    file.write_at(0, b"1").unwrap();
    other.write_at(0, b"2").unwrap();
    assert!(file.write_at(0, b"2").is_err());
    assert!(file.write_at(0, b"3").is_ok());
    let error = disk.rename(Path::new(FILE), Path::new("/root/x")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    disk.inject(Fault::new(FaultKind::Io, 1));
    disk.clear_faults();
    assert!(disk.list(Path::new(ROOT)).is_ok());
}

#[test]
fn a_failed_sync_leaves_pages_clean_that_never_reached_the_disk() {
    let mut lost = 0;
    for attempt in 1..50 {
        let (disk, file) = disk(4096 * 4);
        (0..attempt).for_each(|_| _ = file.write_at(0, &[2; 4096 * 4]));
        disk.inject(Fault::new(FaultKind::Partial, 1).on(Op::Sync));
        assert!(file.sync().is_err());
        file.sync().unwrap();
        let after = disk.crash(CrashStyle::KeepAll, 0).contents(FILE).unwrap();
        assert_eq!(after, [2; 4096 * 4], "the cache has it all");
        lost += u32::from(disk.crash(CrashStyle::KeepNone, 0).contents(FILE).unwrap() != after);
        file.write_at(0, &[2; 4096 * 4]).unwrap();
        file.sync().unwrap();
        assert_eq!(disk.crash(CrashStyle::KeepNone, 0).contents(FILE).unwrap(), after);
    }
    assert!(lost > 0);
}

#[test]
fn a_partial_write_takes_whole_sectors_from_the_front() {
    let (disk, file) = disk(8192);
    disk.inject(Fault::new(FaultKind::Partial, 1).on(Op::Write));
    assert!(file.write_at(0, &[2; 8192]).is_err());
    let bytes = disk.contents(FILE).unwrap();
    let taken = bytes.iter().position(|byte| *byte == 1).unwrap_or(8192);
    assert!(taken % 512 == 0 && bytes[taken..].iter().all(|byte| *byte == 1));
}

#[test]
fn a_full_disk_refuses_new_pages_and_takes_what_is_allocated() {
    let (disk, file) = disk(4096);
    disk.set_capacity(3 * 4096);
    file.allocate(4096, 8192).unwrap();
    assert_eq!(disk.volume(Path::new(ROOT)).unwrap().free, 0);
    assert_eq!(file.allocate(12_288, 1).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.write_at(12_288, b"x").unwrap_err().kind(), ErrorKind::StorageFull);
    file.set_len(1 << 30).unwrap();
    file.write_at(4096, &[1; 8192]).unwrap();
    assert_eq!(file.allocated_bytes().unwrap(), 3 * 4096);
    file.set_len(100).unwrap();
    assert_eq!(disk.volume(Path::new(ROOT)).unwrap().free, 8192);
    disk.remove(Path::new(FILE)).unwrap();
    assert_eq!(disk.volume(Path::new(ROOT)).unwrap().free, 3 * 4096);
}

#[test]
fn a_frozen_process_does_nothing_more_and_its_disk_can_be_looked_at() {
    let (disk, file) = disk(10);
    disk.inject(Fault::new(FaultKind::Freeze, 2));
    file.write_at(0, &[2; 10]).unwrap();
    assert!(file.sync().is_err() && disk.is_frozen());
    assert!(file.write_at(0, b"x").is_err() && disk.list(Path::new(ROOT)).is_err());
    assert_eq!(disk.crash(CrashStyle::KeepNone, 0).contents(FILE).unwrap(), [1; 10]);
    assert!(disk.restart().list(Path::new(ROOT)).is_ok());
    let (disk, file) = self::disk(10);
    disk.freeze();
    assert!(file.len().is_err());
}

#[test]
fn operations_and_bytes_are_counted_per_file() {
    let (disk, file) = disk(10);
    disk.reset_counts();
    file.read_at(0, &mut [0; 7]).unwrap();
    file.write_at(0, &[0; 9]).unwrap();
    file.sync().unwrap();
    disk.list(Path::new(ROOT)).unwrap();
    let counts = disk.counts(FILE);
    assert_eq!((counts.operations, counts.reads, counts.bytes_read), (3, 1, 7));
    assert_eq!((counts.writes, counts.bytes_written, counts.syncs, counts.changes), (1, 9, 1, 1));
    assert_eq!(disk.total().operations, 4);
}

#[test]
fn bits_can_be_flipped_and_stretches_zeroed() {
    let (disk, _file) = disk(600);
    disk.flip_bit(FILE, 8 * 5 + 1).unwrap();
    disk.zero(FILE, 10, 3).unwrap();
    let bytes = disk.crash(CrashStyle::KeepNone, 0).contents(FILE).unwrap();
    assert_eq!(bytes[4..14], [1, 3, 1, 1, 1, 1, 0, 0, 0, 1]);
    assert!(disk.flip_bit("/root/none", 0).is_err());
}
