//! How long a sync takes, and what it writes, for several ways of laying a segment down; run by hand.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{ID, frame};
use crate::fs::{File, FileSystem, OpenMode, RealFs};
use crate::log::{LocalLog, Log};
use crate::types::Digest;

const APPENDS: usize = 2000;
const BYTES: usize = 48 << 20;

/// The bytes that this process made the system write to disks.
fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
    line.parse().unwrap()
}

/// The sectors that the disk of a directory was told to write, after everything has got there.
fn disk_sectors(dir: &Path) -> u64 {
    rustix::fs::sync();
    let device = std::fs::metadata(dir).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).unwrap();
    stat.split_whitespace().nth(6).unwrap().parse().unwrap()
}

/// Where to measure: STERNPOST_TEST_DISK, best on a disk that nothing else uses.
fn disk() -> tempfile::TempDir {
    tempfile::tempdir_in(std::env::var("STERNPOST_TEST_DISK").unwrap_or(".".into())).unwrap()
}

/// Past the page cache or through it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Cached,
    Direct,
}

/// How far each write may go on with zeros: to the next multiple of this; 1 is not at all.
fn measure(name: &str, way: Way, dir: &Path, len: usize, ahead: usize, prepare: impl FnOnce(&dyn File, u64)) {
    let appends = APPENDS.min(BYTES / len);
    let file = RealFs.open(&dir.join(format!("{name} {way:?}")), OpenMode::CreateNew).unwrap();
    let (bytes, sectors, start) = (written(), disk_sectors(dir), Instant::now());
    prepare(&*file, (appends * len).next_multiple_of(1 << 20) as u64);
    file.sync().unwrap();
    RealFs.sync_dir(dir).unwrap();
    let prepared = start.elapsed();
    let mut data = vec![0xa5; len];
    let mut zeroed = 0;
    let mut times = Vec::new();
    for offset in (0..appends * len).step_by(len) {
        let start = Instant::now();
        data.truncate(len);
        if offset + len > zeroed {
            zeroed = (offset + len).next_multiple_of(ahead);
            data.resize(zeroed - offset, 0);
        }
        match way {
            Way::Cached => file.write_at(offset as u64, &data).unwrap(),
            Way::Direct => file.write_direct(offset as u64, &data).unwrap(),
        }
        file.sync().unwrap();
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let (middle, late) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    let mean = times.iter().sum::<Duration>() / times.len() as u32;
    let per = |total: u64| total / times.len() as u64;
    println!(
        "{len:>7} B {name:>10} {way:?}: prepare {prepared:>9.1?}, mean {mean:>7.1?}, median {middle:>7.1?}, p99 {late:>8.1?}, \
         {:>7} B by the process, {:>7} B by the disk per append",
        per(written() - bytes),
        per((disk_sectors(dir) - sectors) * 512)
    );
}

#[test]
#[ignore = "a measurement of this machine's disk"]
fn ways_to_lay_a_segment_down() {
    for (len, way) in
        [512, 2048, 8192, 32_768, 262_144].into_iter().flat_map(|len| [(len, Way::Cached), (len, Way::Direct)])
    {
        let dir = disk();
        measure("append", way, dir.path(), len, 1, |_, _| ());
        measure("fallocate", way, dir.path(), len, 1, |file, size| file.allocate(0, size).unwrap());
        measure("64K steps", way, dir.path(), len, 64 << 10, |file, size| file.allocate(0, size).unwrap());
        measure("zeros", way, dir.path(), len, 1, |file, size| {
            file.allocate(0, size).unwrap();
            let zeros = vec![0; 1 << 20];
            (0..size >> 20).for_each(|at| file.write_at(at << 20, &zeros).unwrap());
        });
    }
}

#[test]
#[ignore = "a measurement of this machine's disk"]
fn appending_and_opening_a_log() {
    for (len, appends) in [(300, 4000), (4000, 4000), (256_000, 400)] {
        let root = disk();
        let mut log = LocalLog::create(Arc::new(RealFs), root.path(), ID, 16 << 20).unwrap();
        let mut digest = Digest::default();
        let start = Instant::now();
        for number in 1..=appends {
            let mut frame = frame(number, 1, len);
            let position = log.append(&mut frame, digest).unwrap();
            digest = digest.chain(frame.stamp(ID, position));
        }
        let appended = start.elapsed() / u32::try_from(appends).unwrap();
        let start = Instant::now();
        let log = LocalLog::open(Arc::new(RealFs), root.path(), ID, 16 << 20).unwrap();
        let (opened, read) = (start.elapsed(), log.bytes_read());
        println!("{len:>7} B: {appended:.1?} an append; opened {appends} frames, {read} bytes read, in {opened:.1?}");
    }
}
