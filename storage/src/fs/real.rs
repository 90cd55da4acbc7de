//! The real file system, by way of std and rustix.

use std::fs::{DirBuilder, File as StdFile, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FallocateFlags;

use crate::fs::direct::Direct;
use crate::fs::{File, FileSystem, HeldLock, Metadata, OpenMode, Volume};

const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The unit in which the system counts a file's blocks, whatever the file system's own block size.
const STAT_BLOCK: u64 = 512;
/// How many zeros are written at once where the file system cannot allocate.
const ZEROS: usize = 64 * 1024;

/// The machine's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFs;

#[derive(Debug)]
struct RealFile {
    file: StdFile,
    direct: Direct,
}

/// The lock lives as long as the open file.
#[derive(Debug)]
struct RealLock {
    _file: StdFile,
}

impl HeldLock for RealLock {}

impl FileSystem for RealFs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        self.create_dir(parent)?;
        match DirBuilder::new().mode(DIR_MODE).create(path) {
            // Another process was faster.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
            other => other.map_err(no_room)?,
        }
        self.sync_dir(parent)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let name = entry?.file_name().into_string();
            names.push(name.map_err(|name| io::Error::new(ErrorKind::InvalidData, format!("file name {name:?}")))?);
        }
        names.sort_unstable();
        Ok(names)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        match std::fs::metadata(path) {
            Ok(found) => {
                let mode = found.permissions().mode() & 0o7777;
                Ok(Some(Metadata { is_dir: found.is_dir(), len: found.len(), mode }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true).mode(FILE_MODE);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => _ = options.write(true),
            OpenMode::CreateNew => _ = options.write(true).create_new(true),
        }
        let file = options.open(path).map_err(no_room)?;
        Ok(Arc::new(RealFile { file, direct: Direct::new(path.to_owned()) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to).map_err(no_room)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        StdFile::open(or_here(path))?.sync_all()
    }

    fn lock(&self, path: &Path, note: &str) -> io::Result<Box<dyn HeldLock>> {
        let mut options = OpenOptions::new();
        // Not truncated: until the lock is held, the note in it is another process's.
        let file = options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = std::fs::read_to_string(path).unwrap_or_default();
                return Err(io::Error::new(ErrorKind::WouldBlock, holder));
            }
            // A file system without locks: going on could mean two writers.
            Err(TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        file.write_all_at(note.as_bytes(), 0)?;
        Ok(Box::new(RealLock { _file: file }))
    }

    fn volume(&self, path: &Path) -> io::Result<Volume> {
        let volume = rustix::fs::statvfs(or_here(path))?;
        let bytes = |blocks: u64| blocks.saturating_mul(volume.f_frsize);
        Ok(Volume { total: bytes(volume.f_blocks), free: bytes(volume.f_bavail) })
    }
}

impl File for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset).map_err(no_room)
    }

    fn write_direct(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.direct.write(&self.file, offset, data).map_err(no_room)? { Ok(()) } else { self.write_at(offset, data) }
    }

    fn close_direct(&self) {
        self.direct.close();
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len).map_err(no_room)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, len) {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::OPNOTSUPP) => return self.write_zeros_to(offset.saturating_add(len)),
                Err(error) => return Err(no_room(error.into())),
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks().saturating_mul(STAT_BLOCK))
    }
}

impl RealFile {
    /// Grows the file with written zeros, where nothing better is to be had; holes within the file stay holes.
    fn write_zeros_to(&self, end: u64) -> io::Result<()> {
        let zeros = vec![0; ZEROS];
        let mut at = self.len()?;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(ZEROS);
            let piece = zeros.get(..want).unwrap_or(&zeros);
            self.write_at(at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }
}

/// An exhausted quota is lack of room as well.
fn no_room(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::QuotaExceeded { io::Error::new(ErrorKind::StorageFull, error) } else { error }
}

/// The parent of a bare name is the current directory.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}
