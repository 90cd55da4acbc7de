//! Measurements on the real disk, for the numbers in the documentation; ignored unless asked for.

#![allow(clippy::cast_precision_loss, reason = "figures for people")]

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Instant;

use super::*;
use crate::fs::{File, HeldLock, Metadata, OpenMode, Volume};

/// The real file system, as little of it as base needs.
#[derive(Debug)]
struct Disk;

#[derive(Debug)]
struct DiskFile(fs::File);

impl FileSystem for Disk {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn metadata(&self, _: &Path) -> io::Result<Option<Metadata>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let new = mode == OpenMode::CreateNew;
        Ok(Arc::new(DiskFile(fs::File::options().read(true).write(true).create_new(new).open(path)?)))
    }
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn remove(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }
    fn lock(&self, _: &Path, _: &str) -> io::Result<Box<dyn HeldLock>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn volume(&self, _: &Path) -> io::Result<Volume> {
        Ok(Volume { total: u64::MAX, free: u64::MAX })
    }
}

impl File for DiskFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), offset, len).map_err(Into::into)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.blocks() * 512)
    }
}

fn key(number: u64) -> String {
    format!("/registry/pods/namespace-{:03}/pod-{number:08}", number % 500)
}

struct Load {
    rng: Rng,
    keys: u64,
    value_bytes: usize,
    revision: i64,
    position: u64,
}

impl Load {
    fn part(&mut self, keys: impl Iterator<Item = u64>, compacted: i64) -> PartData {
        let mut changes = Vec::new();
        for number in keys {
            self.revision += 1;
            let mut value = vec![0; self.value_bytes];
            value.iter_mut().for_each(|byte| *byte = self.rng.next() as u8);
            changes.push(put(&key(number), self.revision, value));
        }
        self.position += 1;
        part(self.position, compacted, changes)
    }

    fn random(&mut self, changes: u64, compacted: i64) -> PartData {
        let numbers: Vec<u64> = (0..changes).map(|_| self.rng.below(self.keys)).collect();
        self.part(numbers.into_iter(), compacted)
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
#[ignore = "a measurement: takes minutes and gigabytes"]
fn flushes_reads_and_opens_on_the_real_disk() {
    let (keys, changes) = (number("BASE_KEYS", 1_000_000), number("BASE_CHANGES", 50_000));
    let value_bytes = number("BASE_VALUE", 256) as usize;
    let cache_bytes = number("BASE_CACHE_MIB", 64) as usize * (1 << 20);
    let directory = tempfile::tempdir_in(std::env::var("BASE_DIR").unwrap_or_else(|_| ".".into())).unwrap();
    let file = directory.path().join("base.redb");
    let disk: Arc<dyn FileSystem> = Arc::new(Disk);
    let base = Base::create(&disk, &file, cache_bytes).unwrap();
    let mut load = Load { rng: Rng(1), keys, value_bytes, revision: 1, position: 0 };
    println!("{keys} keys, values of {value_bytes}, parts of {changes}, inline up to {}", layout::INLINE_MAX_BYTES);

    let start = Instant::now();
    let mut from = 0;
    while from < keys {
        let part = load.part(from..(from + 200_000).min(keys), -1);
        base.reserve(&part, Garbage::Drop).unwrap();
        base.flush(&part, Garbage::Drop).unwrap();
        from += 200_000;
    }
    println!("load: {:.1} s, {} MiB on disk", start.elapsed().as_secs_f64(), base.size_bytes() >> 20);

    for compacting in [false, true] {
        let (mut seconds, mut written, mut dropped, rounds) = (0.0, 0, 0, 6);
        for _ in 0..rounds {
            let compacted = if compacting { load.revision } else { -1 };
            let part = load.random(changes, compacted);
            let before = base.bytes_written();
            let start = Instant::now();
            base.reserve(&part, Garbage::Drop).unwrap();
            dropped += base.flush(&part, Garbage::Drop).unwrap().versions_dropped;
            seconds += start.elapsed().as_secs_f64();
            written += base.bytes_written() - before;
        }
        let puts = (rounds * changes) as f64;
        println!(
            "flush, compacting {compacting}: {:.0} ms a part, {:.1} us and {:.2} KiB a put, {dropped} dropped, {} MiB on disk",
            1e3 * seconds / f64::from(u32::try_from(rounds).unwrap()),
            1e6 * seconds / puts,
            written as f64 / puts / 1024.0,
            base.size_bytes() >> 20,
        );
    }
    let idle = PartData { applied: load.part(0..0, load.revision).applied, ..PartData::default() };
    let idle = PartData { applied: Applied { revision: Revision(load.revision), ..idle.applied }, ..idle };
    let (before, start) = (base.bytes_written(), Instant::now());
    base.flush(&idle, Garbage::Drop).unwrap();
    println!(
        "empty flush: {:.1} ms, {} KiB",
        start.elapsed().as_secs_f64() * 1e3,
        (base.bytes_written() - before) >> 10
    );

    let (written_to, len) = (base.backend.written_to() >> 20, fs::metadata(&file).unwrap().len() >> 20);
    println!("written up to {written_to} MiB, {} MiB on disk, length {len} MiB", base.size_bytes() >> 20);
    base.halt();
    drop(base);
    let start = Instant::now();
    let base = Base::open(&disk, &file, cache_bytes).unwrap();
    println!("open after a crash: {:.1} ms, {} KiB read", start.elapsed().as_secs_f64() * 1e3, base.bytes_read() >> 10);
    let start = Instant::now();
    drop(base);
    println!(
        "close: {:.1} ms, {} MiB of file",
        start.elapsed().as_secs_f64() * 1e3,
        fs::metadata(&file).unwrap().len() >> 20
    );
    let base = Base::open(&disk, &file, cache_bytes).unwrap();
    reads(&base, keys);
    let start = Instant::now();
    base.snapshot().unwrap().verify().unwrap();
    println!("verify: {:.1} s", start.elapsed().as_secs_f64());
}

fn reads(base: &Base, keys: u64) {
    let snapshot = base.snapshot().unwrap();
    let mut places = Vec::new();
    let start = Instant::now();
    let mut visit = |_, at, version: Version| {
        places.push((at, matches!(version, Version::Put { value: Kept::Inline(_), .. })));
        places.len() < 200_000
    };
    snapshot.scan(b"", None, RevisionPair::MAX, &mut visit).unwrap();
    let count = places.len() as f64;
    println!("scan: {:.2} us a key", 1e6 * start.elapsed().as_secs_f64() / count);
    let start = Instant::now();
    let places: Vec<_> = places.into_iter().filter(|(_, inline)| !inline).map(|(at, _)| at).collect();
    places.chunks(10_000).for_each(|chunk| drop(snapshot.values(chunk).unwrap()));
    println!("values: {:.2} us a key", 1e6 * start.elapsed().as_secs_f64() / count);
    let mut rng = Rng(2);
    let start = Instant::now();
    for _ in 0..20_000 {
        let found = snapshot.get(key(rng.below(keys)).as_bytes(), RevisionPair::MAX).unwrap();
        if let Some((at, Version::Put { value: Kept::History(_), .. })) = found {
            snapshot.value(at).unwrap();
        }
    }
    println!("get: {:.2} us", 1e6 * start.elapsed().as_secs_f64() / 20_000.0);
    let start = Instant::now();
    let changes = snapshot.changes(Revision(0), Revision(i64::MAX), 64 << 20).unwrap();
    println!("changes: {:.2} us each of {}", 1e6 * start.elapsed().as_secs_f64() / changes.len() as f64, changes.len());
}

#[test]
#[ignore = "a measurement"]
fn a_seek_against_steps_over_many_versions() {
    let base = new_base(&MemoryDisk::new());
    let mut load = Load { rng: Rng(1), keys: 10_000, value_bytes: 16, revision: 1, position: 0 };
    for _ in 0..100 {
        let part = load.part(0..10_000, -1);
        base.flush(&part, Garbage::Drop).unwrap();
    }
    drop(base.snapshot().unwrap().verify());
    let snapshot = base.snapshot().unwrap();
    let start = Instant::now();
    let mut rows = 0;
    for row in redb::ReadableTable::iter(&snapshot.index).unwrap() {
        layout::split_index_key(row.unwrap().0.value()).unwrap();
        rows += 1;
    }
    let step_us = 1e6 * start.elapsed().as_secs_f64() / f64::from(rows);
    for (place, main) in [("newest", i64::MAX), ("middle", load.revision / 2)] {
        let start = Instant::now();
        let mut keys = 0;
        let mut visit = |_, _, _| {
            keys += 1;
            true
        };
        snapshot.scan(b"", None, at(main, 0), &mut visit).unwrap();
        let ms = 1e3 * start.elapsed().as_secs_f64();
        println!("{place}: {ms:.1} ms for {keys} keys of 100 versions; a step over a row takes {step_us:.2} us");
    }
}
