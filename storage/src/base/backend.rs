//! redb's storage over the file-system seam: length in advance, real blocks a modest step ahead, everything counted.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fs::File;

/// Blocks are obtained in steps of this size once the file is large.
const STEP_BYTES_MAX: u64 = 4 << 20;
/// In a small file a step is a sixteenth of what was written, but this at least.
const STEP_BYTES_MIN: u64 = 64 << 10;
/// A write further beyond the allocated part than so many steps brings its own blocks: redb places a few pages at the end of
/// a large region, and what lies between is not needed for that.
const GAP_STEPS_MAX: u64 = 4;

/// How far the file goes, in three senses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    /// As redb set it; sparse beyond `allocated_to`.
    len: u64,
    /// Everything below has real blocks.
    allocated_to: u64,
    /// The end of the highest write that was not a stray one.
    written_to: u64,
}

impl Room {
    fn step(&self) -> u64 {
        (self.written_to / 16).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX)
    }
}

#[derive(Debug)]
struct Shared {
    file: Arc<dyn File>,
    room: Mutex<Room>,
    halted: AtomicBool,
    read_only: AtomicBool,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// The file as redb sees it, and what base wants to know of it. Clones are one file.
#[derive(Clone, Debug)]
pub(super) struct Backend(Arc<Shared>);

impl Backend {
    /// Takes an open file. What has blocks is not known exactly: the count of blocks is taken for a run from the start,
    /// which is what this file's growth makes it, and all of it for written. At worst a little too much is obtained.
    pub(super) fn new(file: Arc<dyn File>) -> io::Result<Backend> {
        let len = file.len()?;
        let allocated_to = file.allocated_bytes()?.min(len);
        Ok(Backend(Arc::new(Shared {
            file,
            room: Mutex::new(Room { len, allocated_to, written_to: allocated_to }),
            halted: AtomicBool::new(false),
            read_only: AtomicBool::new(false),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
        })))
    }

    /// From now on everything fails: a process that must die writes no last commit while it drops the database.
    pub(super) fn halt(&self) {
        self.0.halted.store(true, Relaxed);
    }

    /// From now on everything but reading fails.
    pub(super) fn refuse_changes(&self) {
        self.0.read_only.store(true, Relaxed);
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.0.bytes_read.load(Relaxed)
    }

    #[cfg(test)]
    pub(super) fn bytes_written(&self) -> u64 {
        self.0.bytes_written.load(Relaxed)
    }

    pub(super) fn allocated_bytes(&self) -> io::Result<u64> {
        self.0.file.allocated_bytes()
    }

    /// The end of what was ever written: no commit can have more pages in use.
    pub(super) fn written_to(&self) -> u64 {
        self.room().written_to
    }

    /// Makes `allocated_to` at least `wanted`, rounded up to a step, but not more than the file's length.
    fn allocate_to(&self, room: &mut Room, wanted: u64) -> io::Result<()> {
        let step = room.step();
        let target = wanted.div_ceil(step).saturating_mul(step).min(room.len);
        if target > room.allocated_to {
            self.0.file.allocate(room.allocated_to, target - room.allocated_to)?;
            room.allocated_to = target;
        }
        Ok(())
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        // A panic while it is held leaves numbers that are still true.
        self.0.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> io::Result<()> {
        if self.0.halted.load(Relaxed) { Err(io::Error::other("base was halted")) } else { Ok(()) }
    }

    fn check_change(&self) -> io::Result<()> {
        self.check()?;
        if self.0.read_only.load(Relaxed) { Err(io::Error::other("base takes no more changes")) } else { Ok(()) }
    }

    fn before_write(&self, end: u64) -> io::Result<()> {
        let mut room = self.room();
        room.len = room.len.max(end);
        if end > room.allocated_to.saturating_add(GAP_STEPS_MAX * room.step()) {
            return Ok(());
        }
        self.allocate_to(&mut room, end)?;
        room.written_to = room.written_to.max(end);
        Ok(())
    }
}

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.check()?;
        self.0.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.check()?;
        self.0.bytes_read.fetch_add(out.len() as u64, Relaxed);
        self.0.file.read_at(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_change()?;
        let mut room = self.room();
        self.0.file.set_len(len)?;
        *room = Room { len, allocated_to: room.allocated_to.min(len), written_to: room.written_to.min(len) };
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check_change()?;
        self.0.file.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_change()?;
        self.before_write(offset.saturating_add(data.len() as u64))?;
        self.0.bytes_written.fetch_add(data.len() as u64, Relaxed);
        self.0.file.write_at(offset, data)
    }
}
