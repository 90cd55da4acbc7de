//! How long a sync takes, and what it writes, for three ways of laying a segment down; run by hand.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::fs::{File, FileSystem, OpenMode, RealFs};

const APPENDS: usize = 2000;
const SEGMENT: u64 = 64 << 20;

/// The bytes that this process made the system write to disks.
fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
    line.parse().unwrap()
}

/// The sectors that all disks were told to write.
fn disk_sectors() -> u64 {
    let stats = std::fs::read_to_string("/proc/diskstats").unwrap();
    let disks = stats.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    disks.filter(|line| line[2].starts_with('v') || line[2].starts_with('n') || line[2].starts_with('s')).map(|line| line[9].parse::<u64>().unwrap()).sum()
}

fn measure(name: &str, dir: &Path, len: usize, prepare: impl FnOnce(&dyn File)) {
    let file = RealFs.open(&dir.join(name), OpenMode::CreateNew).unwrap();
    let (bytes, sectors, start) = (written(), disk_sectors(), Instant::now());
    prepare(&*file);
    file.sync().unwrap();
    RealFs.sync_dir(dir).unwrap();
    let prepared = start.elapsed();
    let data = vec![0xa5; len];
    let mut times: Vec<Duration> = (0..APPENDS.min(SEGMENT as usize / len))
        .map(|number| {
            let start = Instant::now();
            file.write_at((number * len) as u64, &data).unwrap();
            file.sync().unwrap();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let (middle, late) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    let mean = times.iter().sum::<Duration>() / times.len() as u32;
    let per = |total: u64| total / times.len() as u64;
    println!(
        "{name:>10} {len:>7} B: prepare {prepared:>9.1?}, mean {mean:>7.1?}, median {middle:>7.1?}, p99 {late:>8.1?}, \
         {} B by the process, {} B by the disk per append",
        per(written() - bytes),
        per((disk_sectors() - sectors) * 512)
    );
}

#[test]
#[ignore = "a measurement of this machine's disk"]
fn three_ways_to_lay_a_segment_down() {
    for len in [512, 4096, 65_536, 262_144] {
        let dir = tempfile::tempdir_in(".").unwrap();
        measure("append", dir.path(), len, |_| ());
        measure("fallocate", dir.path(), len, |file| file.allocate(0, SEGMENT).unwrap());
        measure("zeros", dir.path(), len, |file| {
            file.allocate(0, SEGMENT).unwrap();
            let zeros = vec![0; 1 << 20];
            (0..SEGMENT >> 20).for_each(|at| file.write_at(at << 20, &zeros).unwrap());
        });
    }
}
