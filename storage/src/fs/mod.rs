//! The file-system seam: everything that touches a disk goes through it.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

mod ballast;
mod direct;
mod real;
pub mod sim;
#[cfg(test)]
mod tests;

pub(crate) use ballast::{Ballast, Ballasted};
pub use real::RealFs;
pub use sim::SimFs;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    ReadWrite,
    /// A new file, mode 0600; `AlreadyExists` if there is one.
    CreateNew,
}

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// True for a directory.
    pub is_dir: bool,
    /// A file's length in bytes.
    pub len: u64,
    /// The permission bits.
    pub mode: u32,
}

/// A volume's room, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// All of it, used or not.
    pub total: u64,
    /// What this process may still take.
    pub free: u64,
}

/// A held lock; dropping it releases the lock.
pub trait HeldLock: Send + Sync + Debug {}

/// A file system: real in production, simulated in tests.
pub trait FileSystem: Send + Sync + Debug + 'static {
    /// Creates a directory and the parents that are missing, mode 0700; durable on return.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    /// What `path` names; `None` if nothing.
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>>;
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;
    /// Gives a file another name, replacing what has it. Durable after `sync_dir`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Durable after `sync_dir`.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Takes the exclusive lock on `path` and writes `note` into it; `WouldBlock`, with the holder's note as the
    /// message, if another process holds it.
    fn lock(&self, path: &Path, note: &str) -> io::Result<Box<dyn HeldLock>>;
    /// The size of the volume of `path`, which must exist, and what is free of it for this process.
    fn volume(&self, path: &Path) -> io::Result<Volume>;
}

/// An open file.
pub trait File: Send + Sync + Debug {
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// True if the file holds no byte.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills `buffer` from `offset`; `UnexpectedEof` past the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes all of `data` at `offset`, growing the file if need be.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// The same where it is not read again soon: past the page cache if that is possible, which whole sectors need. May be mixed with
    /// `write_at`.
    fn write_direct(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_at(offset, data)
    }
    /// Gives up what only `write_direct` needs, until it is called again.
    fn close_direct(&self) {}
    /// Cuts the file, or extends it with zeros without allocating blocks.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Allocates real blocks for a stretch, which reads as zero where nothing was written; grows the file if need be.
    /// `StorageFull` if there is no room, with nothing changed that matters.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Makes data and length durable (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
    /// The bytes of disk that the file takes.
    fn allocated_bytes(&self) -> io::Result<u64>;
}
