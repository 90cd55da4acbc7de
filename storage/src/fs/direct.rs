//! Writes to the real disk that go past the page cache.
//!
//! The page cache writes whole pages: a frame of 512 bytes as 4096. Past it the disk gets what was written and no more, and nothing is
//! copied twice.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;

/// What offset and length must be a multiple of; where a disk wants more, the page cache is used.
const SECTOR: usize = 512;
/// What memory must be aligned to: a page is enough for every disk.
const PAGE: usize = 4096;
/// More is written in pieces.
const PIECE: usize = 256 * 1024;

/// The way past the page cache to one file. It is tried at the first write, and not again if the file system has none.
#[derive(Debug)]
pub(super) struct Direct {
    path: PathBuf,
    way: Mutex<Way>,
}

#[derive(Debug)]
enum Way {
    Untried,
    Open(Writer),
    None,
}

#[derive(Debug)]
struct Writer {
    file: File,
    buffer: Vec<u8>,
}

impl Direct {
    pub(super) fn new(path: PathBuf) -> Direct {
        Direct { path, way: Mutex::new(Way::Untried) }
    }

    /// Writes `data` to the file that `file` is too. False, with nothing written, if there is no way to do it past the page cache.
    pub(super) fn write(&self, file: &File, offset: u64, data: &[u8]) -> io::Result<bool> {
        if !offset.is_multiple_of(SECTOR as u64) || !data.len().is_multiple_of(SECTOR) {
            return Ok(false);
        }
        let mut way = self.way.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *way {
            Way::None => Ok(false),
            Way::Open(writer) => writer.write(offset, data).map(|()| true),
            Way::Untried => {
                *way = Way::None;
                let Some(mut writer) = Writer::open(&self.path, file) else { return Ok(false) };
                match writer.write(offset, data) {
                    Ok(()) => *way = Way::Open(writer),
                    // The disk has larger sectors. That is said before anything is written.
                    Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(false),
                    Err(error) => return Err(error),
                }
                Ok(true)
            }
        }
    }

    /// Closes it until it is needed again.
    pub(super) fn close(&self) {
        let mut way = self.way.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*way, Way::Open(_)) {
            *way = Way::Untried;
        }
    }
}

impl Writer {
    /// `None` if the file system has no such way, or the path has come to name another file.
    fn open(path: &PathBuf, same_as: &File) -> Option<Writer> {
        let flags = i32::try_from(OFlags::DIRECT.bits()).ok()?;
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path).ok()?;
        let identity = |file: &File| file.metadata().ok().map(|file| (file.dev(), file.ino()));
        (identity(&file) == identity(same_as)).then(|| Writer { file, buffer: Vec::new() })
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut at = offset;
        for piece in data.chunks(PIECE) {
            self.file.write_all_at(aligned(&mut self.buffer, piece), at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }
}

/// A copy of `data` that begins at a page of memory.
fn aligned<'a>(buffer: &'a mut Vec<u8>, data: &[u8]) -> &'a [u8] {
    buffer.clear();
    buffer.reserve(data.len() + PAGE);
    let skipped = buffer.as_ptr().align_offset(PAGE).min(PAGE);
    buffer.resize(skipped, 0);
    buffer.extend_from_slice(data);
    buffer.get(skipped..).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_begins_at_a_page() {
        let mut buffer = Vec::new();
        for len in [512, 1024, PIECE] {
            let data: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let copy = aligned(&mut buffer, &data);
            assert_eq!((copy, copy.as_ptr().align_offset(PAGE)), (&*data, 0));
        }
    }

    #[test]
    fn only_whole_sectors_of_the_file_itself_are_written() {
        // In the build directory, which is on a disk; a file system in memory may have no such way.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        let file = File::create_new(&path).unwrap();
        let direct = Direct::new(path.clone());
        assert!(!direct.write(&file, 1, &[1; SECTOR]).unwrap());
        assert!(!direct.write(&file, 0, &[1; SECTOR + 1]).unwrap());
        assert_eq!(file.metadata().unwrap().len(), 0);
        let works = direct.write(&file, SECTOR as u64, &[1; SECTOR]).unwrap();
        assert_eq!(file.metadata().unwrap().len(), if works { 2 * SECTOR as u64 } else { 0 });
        direct.close();
        std::fs::rename(&path, &other).unwrap();
        std::fs::write(&path, "another").unwrap();
        assert!(!direct.write(&file, 0, &[1; SECTOR]).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"another");
    }
}
