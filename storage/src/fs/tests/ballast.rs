//! The ballast gives its blocks to whoever meets a full disk, and takes them back when there are some.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fs::sim::{CrashStyle, Fault, FaultKind, Op};
use crate::fs::{Ballast, Ballasted, FileSystem, OpenMode, SimFs};

const KIB: u64 = 1 << 10;

fn path(name: &str) -> PathBuf {
    Path::new("/data").join(name)
}

/// A disk of so many KiB with a ballast that should hold `target`.
fn disk(capacity: u64, target: u64) -> (SimFs, Arc<Ballast>, Ballasted) {
    let disk = SimFs::new();
    disk.set_capacity(capacity * KIB);
    disk.create_dir(Path::new("/data")).unwrap();
    let (ballast, fs) = on(&disk, target);
    restore(&disk, &ballast);
    (disk, ballast, fs)
}

fn on(disk: &SimFs, target: u64) -> (Arc<Ballast>, Ballasted) {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let ballast = Arc::new(Ballast::open(&fs, &path("ballast"), target * KIB).unwrap());
    (ballast.clone(), Ballasted::new(fs, ballast))
}

fn restore(disk: &SimFs, ballast: &Ballast) {
    ballast.restore(disk.volume(Path::new("/data")).unwrap().free);
}

#[test]
fn what_meets_a_full_disk_gets_the_blocks_of_the_ballast() {
    let (disk, ballast, fs) = disk(4096, 1024);
    let others = disk.open(&path("others"), OpenMode::CreateNew).unwrap();
    others.allocate(0, 3072 * KIB).unwrap();
    assert_eq!((disk.volume(&path("")).unwrap().free, fs.volume(&path("")).unwrap().free), (0, 1024 * KIB));
    let file = fs.open(&path("ours"), OpenMode::CreateNew).unwrap();
    file.write_at(0, &[7; 4096]).unwrap();
    assert_eq!(ballast.bytes(), (1024 - 128) * KIB);
    file.allocate(4096, 600 * KIB).unwrap();
    assert_eq!(others.write_at(3072 * KIB, &[1; 300 << 10]).unwrap_err().kind(), ErrorKind::StorageFull);
    // To the last block, and not beyond.
    let all = fs.volume(&path("")).unwrap().free;
    file.allocate(604 * KIB, all).unwrap();
    assert_eq!((ballast.bytes(), fs.volume(&path("")).unwrap().free), (0, 0));
    assert_eq!(file.write_at(604 * KIB + all, &[1]).unwrap_err().kind(), ErrorKind::StorageFull);
    let mut first = [0; 4096];
    file.read_at(0, &mut first).unwrap();
    assert_eq!(first, [7; 4096]);
}

#[test]
fn the_ballast_is_filled_up_again_as_far_as_the_volume_goes() {
    let (disk, ballast, fs) = disk(2048, 1024);
    let file = fs.open(&path("ours"), OpenMode::CreateNew).unwrap();
    file.allocate(0, 1600 * KIB).unwrap();
    assert!(ballast.bytes() <= 448 * KIB);
    file.set_len(1400 * KIB).unwrap();
    restore(&disk, &ballast);
    assert_eq!((ballast.bytes(), disk.volume(&path("")).unwrap().free), (648 * KIB, 0));
    file.set_len(0).unwrap();
    restore(&disk, &ballast);
    assert_eq!(ballast.bytes(), 1024 * KIB);
    // One that should hold less gives back what is too much.
    let (smaller, _) = on(&disk, 256);
    restore(&disk, &smaller);
    assert_eq!((smaller.bytes(), disk.volume(&path("")).unwrap().free), (256 * KIB, 1792 * KIB));
}

#[test]
fn after_a_power_cut_what_the_ballast_holds_is_what_its_file_takes() {
    for style in [CrashStyle::KeepNone, CrashStyle::Sectors, CrashStyle::Pages, CrashStyle::KeepAll] {
        for seed in 0..20 {
            let (disk, _, fs) = disk(4096, 1024);
            disk.sync_dir(Path::new("/data")).unwrap();
            let file = fs.open(&path("ours"), OpenMode::CreateNew).unwrap();
            file.allocate(0, 3500 * KIB).unwrap();
            let after = disk.crash(style, seed);
            let (ballast, _) = on(&after, 1024);
            let taken =
                || after.open(&path("ballast"), OpenMode::Read).map_or(0, |file| file.allocated_bytes().unwrap());
            assert_eq!(ballast.bytes(), taken(), "{style:?} {seed}");
            restore(&after, &ballast);
            assert_eq!(ballast.bytes(), taken(), "{style:?} {seed}");
            assert!(ballast.bytes() == 1024 * KIB || after.volume(&path("")).unwrap().free == 0, "{style:?} {seed}");
        }
    }
}

#[test]
fn a_ballast_that_cannot_be_cut_or_filled_is_no_error_and_counts_what_it_holds() {
    let (disk, ballast, fs) = disk(1024, 512);
    let file = fs.open(&path("ours"), OpenMode::CreateNew).unwrap();
    file.allocate(0, 512 * KIB).unwrap();
    disk.inject(Fault::new(FaultKind::Io, 1).on(Op::SetLen).in_file("ballast"));
    assert_eq!(file.write_at(512 * KIB, &[1]).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(ballast.bytes(), 512 * KIB);
    file.write_at(512 * KIB, &[1]).unwrap();
    let held = ballast.bytes();
    assert!(held < 512 * KIB);
    file.set_len(0).unwrap();
    disk.inject(Fault::new(FaultKind::Io, 1).on(Op::Allocate).in_file("ballast"));
    restore(&disk, &ballast);
    assert_eq!(ballast.bytes(), held);
    restore(&disk, &ballast);
    assert_eq!(ballast.bytes(), 512 * KIB);
}
