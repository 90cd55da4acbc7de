//! The ballast: a file whose blocks are given up, a few at a time, when what has to be written meets a full disk.
//!
//! [`Ballasted`] is the file system with that done: whoever asks it for blocks gets those of the ballast once the volume has no
//! others. So what makes room, which takes some first, never fails for want of it, whatever others put on the volume.
//!
//! The file holds nothing and is never synced: after a crash it has any length, and is filled up again as the volume allows.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fs::{File, FileSystem, HeldLock, Metadata, OpenMode, Volume};

/// What is given up at once, at least: file systems take a little more than what is asked of them.
const RELEASED_BYTES_MIN: u64 = 128 << 10;
/// Less than this is not worth taking, unless it is all that is missing.
const TAKEN_BYTES_MIN: u64 = 64 << 10;

#[derive(Debug)]
pub(crate) struct Ballast {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    /// What it should hold, in bytes.
    target: u64,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    /// None as long as there is no file.
    file: Option<Arc<dyn File>>,
    bytes: u64,
}

impl Ballast {
    /// The ballast that is there; none is made yet. Errors: those of the file system.
    pub(crate) fn open(fs: &Arc<dyn FileSystem>, path: &Path, target: u64) -> io::Result<Ballast> {
        let mut held = Held { file: None, bytes: 0 };
        if fs.metadata(path)?.is_some() {
            let file = fs.open(path, OpenMode::ReadWrite)?;
            let (len, blocks) = (file.len()?, file.allocated_bytes()?);
            held.file = Some(file);
            // A length without the blocks is of no use, and nobody knows where they are missing.
            held.bytes = len;
            if blocks < len && !held.cut(0) {
                held.bytes = 0;
            }
        }
        Ok(Ballast { fs: fs.clone(), path: path.to_owned(), target, held: Mutex::new(held) })
    }

    /// What it holds, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.held().bytes
    }

    /// Takes what is missing, as far as the volume has it free, and gives back what is too much. `free` does not count what the ballast
    /// holds. What cannot be had now is tried for another time.
    pub(crate) fn restore(&self, free: u64) {
        let mut held = self.held();
        if held.bytes > self.target {
            held.cut(self.target);
            return;
        }
        let missing = self.target - held.bytes;
        let wanted = missing.min(free);
        if wanted > 0 && (wanted == missing || wanted >= TAKEN_BYTES_MIN) {
            held.grow(&*self.fs, &self.path, wanted);
        }
    }

    /// Gives up so many bytes or a little more; false if there is nothing left to be had.
    fn release(&self, bytes: u64) -> bool {
        let mut held = self.held();
        let left = held.bytes.saturating_sub(bytes.max(RELEASED_BYTES_MIN));
        held.bytes > 0 && held.cut(left)
    }

    /// Does what needs so many bytes, again with blocks of the ballast as long as the disk is full. Only for what may be repeated.
    fn meet<T>(&self, bytes: u64, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        loop {
            match work() {
                Err(error) if error.kind() == ErrorKind::StorageFull && self.release(bytes) => {}
                done => return done,
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // A panic while it is held leaves a number that the file system corrects at the next start.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// No error of these is final: nothing is kept here that could be lost, and the count stays true.
impl Held {
    /// True if it has been cut.
    fn cut(&mut self, bytes: u64) -> bool {
        let done = self.file.as_ref().is_none_or(|file| file.set_len(bytes).is_ok());
        if done {
            self.bytes = bytes;
        }
        done
    }

    fn grow(&mut self, fs: &dyn FileSystem, path: &Path, more: u64) {
        if self.file.is_none() {
            self.file = fs.open(path, OpenMode::CreateNew).ok();
        }
        let Some(file) = &self.file else { return };
        if file.allocate(self.bytes, more).is_ok() {
            self.bytes += more;
        } else {
            // Part of it may have been taken.
            self.cut(self.bytes);
        }
    }
}

/// A file system that has the ballast's blocks too.
#[derive(Clone, Debug)]
pub(crate) struct Ballasted {
    fs: Arc<dyn FileSystem>,
    ballast: Arc<Ballast>,
}

impl Ballasted {
    pub(crate) fn new(fs: Arc<dyn FileSystem>, ballast: Arc<Ballast>) -> Ballasted {
        Ballasted { fs, ballast }
    }
}

impl FileSystem for Ballasted {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.ballast.meet(0, || self.fs.create_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.fs.list(path)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        self.fs.metadata(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.ballast.meet(0, || self.fs.open(path, mode))?;
        Ok(Arc::new(BallastedFile { file, ballast: self.ballast.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.ballast.meet(0, || self.fs.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.fs.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.fs.sync_dir(path)
    }

    fn lock(&self, path: &Path, note: &str) -> io::Result<Box<dyn HeldLock>> {
        self.fs.lock(path, note)
    }

    /// What the ballast holds counts as free.
    fn volume(&self, path: &Path) -> io::Result<Volume> {
        let Volume { total, free } = self.fs.volume(path)?;
        Ok(Volume { total, free: free.saturating_add(self.ballast.bytes()) })
    }
}

#[derive(Debug)]
struct BallastedFile {
    file: Arc<dyn File>,
    ballast: Arc<Ballast>,
}

impl File for BallastedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.ballast.meet(data.len() as u64, || self.file.write_at(offset, data))
    }

    fn write_direct(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.ballast.meet(data.len() as u64, || self.file.write_direct(offset, data))
    }

    fn close_direct(&self) {
        self.file.close_direct();
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.ballast.meet(0, || self.file.set_len(len))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.ballast.meet(len, || self.file.allocate(offset, len))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.file.allocated_bytes()
    }
}
