//! A disk in memory that counts, fills up and fails on command.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::fs::{File, FileSystem, HeldLock, Metadata, OpenMode, Volume};

#[derive(Debug)]
struct Inner {
    files: BTreeMap<PathBuf, Content>,
    /// Blocks that the disk has in all.
    capacity: u64,
    /// Writes and syncs until they begin to fail; the first write that fails is torn.
    calls_left: u64,
}

#[derive(Clone, Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    allocated: u64,
    /// Numbers of the pages that were read or written.
    touched: BTreeSet<u64>,
}

impl Content {
    fn touch(&mut self, offset: u64, len: usize) {
        self.touched.extend(offset / 4096..(offset + len as u64).div_ceil(4096));
    }
}

#[derive(Clone, Debug)]
pub(super) struct MemoryDisk(Arc<Mutex<Inner>>);

impl MemoryDisk {
    pub(super) fn new() -> MemoryDisk {
        let inner = Inner { files: BTreeMap::new(), capacity: u64::MAX, calls_left: u64::MAX };
        MemoryDisk(Arc::new(Mutex::new(inner)))
    }

    pub(super) fn fail_after(&self, calls: u64) {
        self.0.lock().unwrap().calls_left = calls;
    }

    pub(super) fn set_capacity(&self, bytes: u64) {
        self.0.lock().unwrap().capacity = bytes;
    }

    pub(super) fn read(&self, path: &Path) -> Vec<u8> {
        self.0.lock().unwrap().files[path].bytes.clone()
    }

    /// The pages of 4 KiB that were read or written since the file was made.
    pub(super) fn touched(&self, path: &Path) -> BTreeSet<u64> {
        self.0.lock().unwrap().files[path].touched.clone()
    }

    /// Another disk with the same files.
    pub(super) fn copy(&self) -> MemoryDisk {
        let copy = MemoryDisk::new();
        let files = self.0.lock().unwrap().files.clone();
        files.into_iter().for_each(|(path, content)| copy.write(&path, content.bytes));
        copy
    }

    pub(super) fn flip_bit(&self, path: &Path, bit: u64) {
        let mut inner = self.0.lock().unwrap();
        inner.files.get_mut(path).unwrap().bytes[bit as usize / 8] ^= 1 << (bit % 8);
    }

    pub(super) fn write(&self, path: &Path, bytes: Vec<u8>) {
        let allocated = bytes.len() as u64;
        self.0.lock().unwrap().files.insert(path.to_owned(), Content { bytes, allocated, touched: BTreeSet::new() });
    }
}

impl FileSystem for MemoryDisk {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Err(ErrorKind::Unsupported.into())
    }
    fn metadata(&self, _: &Path) -> io::Result<Option<Metadata>> {
        Err(ErrorKind::Unsupported.into())
    }
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut inner = self.0.lock().unwrap();
        match (inner.files.contains_key(path), mode) {
            (true, OpenMode::CreateNew) => return Err(ErrorKind::AlreadyExists.into()),
            (false, OpenMode::CreateNew) => drop(inner.files.insert(path.to_owned(), Content::default())),
            (false, _) => return Err(ErrorKind::NotFound.into()),
            (true, _) => {}
        }
        Ok(Arc::new(MemoryFile { disk: Arc::clone(&self.0), path: path.to_owned() }))
    }
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn remove(&self, _: &Path) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn lock(&self, _: &Path, _: &str) -> io::Result<Box<dyn HeldLock>> {
        Err(ErrorKind::Unsupported.into())
    }
    fn volume(&self, _: &Path) -> io::Result<Volume> {
        let inner = self.0.lock().unwrap();
        let used: u64 = inner.files.values().map(|file| file.allocated).sum();
        Ok(Volume { total: inner.capacity, free: inner.capacity.saturating_sub(used) })
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: Arc<Mutex<Inner>>,
    path: PathBuf,
}

impl MemoryFile {
    fn with<T>(&self, work: impl FnOnce(&mut Content) -> io::Result<T>) -> io::Result<T> {
        work(self.disk.lock().unwrap().files.get_mut(&self.path).unwrap())
    }

    /// True if this call is torn, an error if it comes after one that was.
    fn count(&self) -> io::Result<bool> {
        let mut inner = self.disk.lock().unwrap();
        match inner.calls_left {
            0 => Err(io::Error::other("the disk is gone")),
            1 => {
                inner.calls_left = 0;
                Ok(true)
            }
            _ => {
                inner.calls_left = inner.calls_left.saturating_sub(1);
                Ok(false)
            }
        }
    }
}

impl File for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        self.with(|file| Ok(file.bytes.len() as u64))
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.with(|file| {
            file.touch(offset, buffer.len());
            let tail = file.bytes.get(offset as usize..).and_then(|tail| tail.get(..buffer.len()));
            buffer.copy_from_slice(tail.ok_or(ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let torn = self.count()?;
        let data = if torn { &data[..data.len() / 2] } else { data };
        self.with(|file| {
            file.touch(offset, data.len());
            let end = offset as usize + data.len();
            file.bytes.resize(file.bytes.len().max(end), 0);
            file.bytes[offset as usize..end].copy_from_slice(data);
            file.allocated = file.allocated.max(end as u64);
            Ok(())
        })?;
        if torn { Err(io::Error::other("the disk went away in the middle of a write")) } else { Ok(()) }
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|file| {
            file.bytes.resize(len as usize, 0);
            file.allocated = file.allocated.min(len);
            Ok(())
        })
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut inner = self.disk.lock().unwrap();
        let used: u64 = inner.files.values().map(|file| file.allocated).sum();
        let capacity = inner.capacity;
        let file = inner.files.get_mut(&self.path).unwrap();
        let more = (offset + len).saturating_sub(file.allocated);
        if used + more > capacity {
            return Err(ErrorKind::StorageFull.into());
        }
        file.allocated += more;
        let end = file.bytes.len().max((offset + len) as usize);
        file.bytes.resize(end, 0);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        if self.count()? { Err(io::Error::other("the disk went away in the middle of a sync")) } else { Ok(()) }
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.with(|file| Ok(file.allocated))
    }
}
