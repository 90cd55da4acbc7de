//! Sorts records by their keys in bounded memory: what does not fit goes to files in sorted runs, which are merged.

use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use crate::fs::{File, FileSystem, OpenMode};

/// What the names of run files begin with; they mean nothing once the process is gone.
pub(crate) const RUN_PREFIX: &str = "sort-";

/// What is read or written at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Bookkeeping of a record in memory, in bytes.
const OVERHEAD: usize = 64;
/// Checksum and two lengths.
const RECORD_HEAD: usize = 12;

/// A key and what belongs to it.
pub(crate) type Record = (Vec<u8>, Vec<u8>);

/// Takes records in any order.
#[derive(Debug)]
pub(crate) struct Sorter {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    name: &'static str,
    max_bytes: usize,
    waiting: Vec<Record>,
    bytes: usize,
    runs: Vec<RunFile>,
}

/// A file that goes when nobody needs it any more.
#[derive(Debug)]
struct RunFile {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    file: Arc<dyn File>,
    len: u64,
}

impl Drop for RunFile {
    fn drop(&mut self) {
        // What cannot be removed now is removed with the directory's leftovers.
        let _ = self.fs.remove(&self.path);
    }
}

impl Sorter {
    /// Sorts with about `max_bytes` of memory; runs go to files in `dir`, whose names have `name` in them.
    pub(crate) fn new(fs: &Arc<dyn FileSystem>, dir: &Path, name: &'static str, max_bytes: usize) -> Sorter {
        let (fs, dir) = (Arc::clone(fs), dir.to_owned());
        Sorter { fs, dir, name, max_bytes, waiting: Vec::new(), bytes: 0, runs: Vec::new() }
    }

    /// Takes a record. Errors: `NoSpace`, `Io`.
    pub(crate) fn push(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), Error> {
        self.bytes += key.len() + value.len() + OVERHEAD;
        self.waiting.push((key, value));
        if self.bytes >= self.max_bytes { self.write_run() } else { Ok(()) }
    }

    fn write_run(&mut self) -> Result<(), Error> {
        let mut records = std::mem::take(&mut self.waiting);
        self.bytes = 0;
        records.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let path = self.dir.join(format!("{RUN_PREFIX}{}-{}", self.name, self.runs.len()));
        let failed = |error| no_room(&path, &error);
        let file = self.fs.open(&path, OpenMode::CreateNew).map_err(failed)?;
        let mut run = RunFile { fs: Arc::clone(&self.fs), path: path.clone(), file, len: 0 };
        let mut buffer = Vec::with_capacity(CHUNK_BYTES);
        for (key, value) in &records {
            push_record(&mut buffer, key, value)?;
            if buffer.len() >= CHUNK_BYTES {
                run.append(&mut buffer).map_err(failed)?;
            }
        }
        run.append(&mut buffer).map_err(failed)?;
        self.runs.push(run);
        Ok(())
    }

    /// The records in ascending order of their keys. Errors: as `push`.
    pub(crate) fn finish(mut self) -> Result<Sorted, Error> {
        if !self.runs.is_empty() && !self.waiting.is_empty() {
            self.write_run()?;
        }
        self.waiting.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let chunk = (self.max_bytes / (self.runs.len() + 1)).clamp(4 << 10, CHUNK_BYTES);
        let memory = std::mem::take(&mut self.waiting).into_iter();
        let runs: Vec<Reader> = self.runs.drain(..).map(|run| Reader::new(run, chunk)).collect();
        let mut sorted = Sorted { memory, runs, heads: BinaryHeap::new() };
        for number in 0..sorted.runs.len() {
            sorted.refill(number)?;
        }
        Ok(sorted)
    }
}

impl RunFile {
    fn append(&mut self, buffer: &mut Vec<u8>) -> std::io::Result<()> {
        self.file.write_at(self.len, buffer)?;
        self.len += buffer.len() as u64;
        buffer.clear();
        Ok(())
    }
}

/// Records in ascending order.
#[derive(Debug)]
pub(crate) struct Sorted {
    /// All of them, if no run was written.
    memory: std::vec::IntoIter<Record>,
    runs: Vec<Reader>,
    /// The first record of each run, the lowest on top.
    heads: BinaryHeap<std::cmp::Reverse<(Vec<u8>, usize, Vec<u8>)>>,
}

impl Sorted {
    fn refill(&mut self, number: usize) -> Result<(), Error> {
        if let Some((key, value)) = self.runs.get_mut(number).map(Reader::next).transpose()?.flatten() {
            self.heads.push(std::cmp::Reverse((key, number, value)));
        }
        Ok(())
    }
}

impl Iterator for Sorted {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Result<Record, Error>> {
        if let Some(record) = self.memory.next() {
            return Some(Ok(record));
        }
        let std::cmp::Reverse((key, number, value)) = self.heads.pop()?;
        Some(self.refill(number).map(|()| (key, value)))
    }
}

/// A run, read from its beginning.
#[derive(Debug)]
struct Reader {
    run: RunFile,
    /// How far the file was read.
    offset: u64,
    chunk: usize,
    buffer: Vec<u8>,
    at: usize,
}

impl Reader {
    fn new(run: RunFile, chunk: usize) -> Reader {
        Reader { run, offset: 0, chunk, buffer: Vec::new(), at: 0 }
    }

    fn next(&mut self) -> Result<Option<Record>, Error> {
        if self.at == self.buffer.len() && self.offset == self.run.len {
            return Ok(None);
        }
        let head = self.take(RECORD_HEAD)?;
        let field = |at: usize| head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        let (Some(crc), Some(key), Some(value)) = (field(0), field(4), field(8)) else { return Err(self.damaged()) };
        let mut key_and_value = self.take(key as usize + value as usize)?;
        if crc32fast::hash(&key_and_value) != crc {
            return Err(self.damaged());
        }
        let value = key_and_value.split_off(key as usize);
        Ok(Some((key_and_value, value)))
    }

    /// The next bytes.
    fn take(&mut self, len: usize) -> Result<Vec<u8>, Error> {
        while self.buffer.len() - self.at < len {
            let left = usize::try_from(self.run.len - self.offset).unwrap_or(usize::MAX);
            let more = left.min(self.chunk.max(len));
            if more == 0 {
                return Err(self.damaged());
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            let kept = self.buffer.len();
            self.buffer.resize(kept + more, 0);
            let room = self.buffer.get_mut(kept..).unwrap_or_default();
            let read = self.run.file.read_at(self.offset, room);
            read.map_err(|error| Error::io(format!("reading {}", self.run.path.display()), &error))?;
            self.offset += more as u64;
        }
        let taken = self.buffer.get(self.at..self.at + len).unwrap_or_default().to_vec();
        self.at += len;
        Ok(taken)
    }

    fn damaged(&self) -> Error {
        Error::corrupt(self.run.path.display().to_string(), "a record is not what was written")
    }
}

fn push_record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) -> Result<(), Error> {
    let too_large = |_| Error::corrupt("a record to be sorted", "4 GiB or more");
    let (key_len, value_len) =
        (u32::try_from(key.len()).map_err(too_large)?, u32::try_from(value.len()).map_err(too_large)?);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(value);
    [hasher.finalize(), key_len, value_len].iter().for_each(|field| out.extend(field.to_le_bytes()));
    out.extend_from_slice(key);
    out.extend_from_slice(value);
    Ok(())
}

fn no_room(path: &Path, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Error::NoSpace,
        _ => Error::io(format!("writing {}", path.display()), error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]
mod tests {
    use super::*;
    use crate::fs::SimFs;
    use crate::fs::sim::Prng;

    fn sorter(disk: &SimFs, max_bytes: usize) -> Sorter {
        let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
        fs.create_dir(Path::new("/data")).unwrap();
        Sorter::new(&fs, Path::new("/data"), "test", max_bytes)
    }

    #[test]
    fn whatever_fits_into_memory_the_order_is_right_and_no_file_is_left() {
        let (mut files, mut sorted_records) = (0, 0);
        for seed in 0..40 {
            let mut rng = Prng::new(seed);
            let disk = SimFs::new();
            let mut sorter = sorter(&disk, [1000, 20_000, 1 << 20][seed as usize % 3]);
            let mut expected = Vec::new();
            for n in 0..rng.below(2000) {
                let key: Vec<u8> = (0..rng.below(20)).map(|_| rng.below(256) as u8).chain(n.to_be_bytes()).collect();
                let value = vec![n as u8; [0, 10, 500][rng.below(3) as usize]];
                expected.push((key.clone(), value.clone()));
                sorter.push(key, value).unwrap();
            }
            files += disk.files().len();
            expected.sort();
            let found: Vec<Record> = sorter.finish().unwrap().map(Result::unwrap).collect();
            sorted_records += found.len();
            assert!(found == expected, "seed {seed}");
            assert_eq!(disk.files(), Vec::<PathBuf>::new());
        }
        println!("{sorted_records} records, {files} files");
        assert!(sorted_records >= 20_000 && files >= 100);
    }

    #[test]
    fn a_full_disk_and_a_damaged_run_are_named() {
        let disk = SimFs::new();
        disk.set_capacity(64 << 10);
        let mut full = sorter(&disk, 10_000);
        let error = (0..1000_u32).find_map(|n| full.push(n.to_be_bytes().to_vec(), vec![1; 500]).err());
        assert_eq!(error, Some(Error::NoSpace));
        drop(full);
        let mut sorter = sorter(&SimFs::new(), 10_000);
        (0..100_u32).for_each(|n| sorter.push(n.to_be_bytes().to_vec(), vec![1; 500]).unwrap());
        let run = sorter.runs.first().unwrap();
        run.file.write_at(3000, &[9; 3]).unwrap();
        let error = match sorter.finish() {
            Ok(sorted) => sorted.filter_map(Result::err).next().unwrap(),
            Err(error) => error,
        };
        assert!(error.to_string().contains("sort-test-0"), "{error}");
    }
}
