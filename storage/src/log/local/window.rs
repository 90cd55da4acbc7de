//! Reading a segment front to back, a stretch at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use crate::fs::File;
use crate::log::frame_decode::{self, Head};
use crate::log::local::sectors::{SECTOR, SECTOR_BYTES, gather, stretch};
use crate::log::local::segment::error_at;

/// How much is read at once.
const CHUNK: usize = 256 * 1024;

/// A view of a file that moves forward.
#[derive(Debug)]
pub(super) struct Window {
    file: Arc<dyn File>,
    path: PathBuf,
    /// The whole sectors that the file has, in bytes.
    pub(super) len: u64,
    start: u64,
    buffer: Vec<u8>,
    pub(super) bytes_read: u64,
}

/// A frame found, verified.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) head: Head,
    pub(super) bytes: Vec<u8>,
    /// Where the next frame begins.
    pub(super) next: u64,
}

impl Window {
    pub(super) fn new(file: Arc<dyn File>, path: &Path) -> Result<Window, Error> {
        let len = file.len().map_err(|error| error_at("measuring", path, &error))?;
        let len = len - len % SECTOR_BYTES;
        Ok(Window { file, path: path.to_owned(), len, start: 0, buffer: Vec::new(), bytes_read: 0 })
    }

    /// The bytes at `offset`; `None` where the file does not reach.
    pub(super) fn get(&mut self, offset: u64, len: usize) -> Result<Option<&[u8]>, Error> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Ok(None);
        }
        let held = |start: u64, buffer: &[u8]| start <= offset && offset + len as u64 <= start + buffer.len() as u64;
        if !held(self.start, &self.buffer) {
            self.fill(offset, len)?;
        }
        let from = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        Ok(self.buffer.get(from..).and_then(|rest| rest.get(..len)))
    }

    fn fill(&mut self, offset: u64, len: usize) -> Result<(), Error> {
        let left = usize::try_from(self.len - offset).unwrap_or(usize::MAX);
        self.buffer.resize(left.min(len.max(CHUNK)), 0);
        self.start = offset;
        let read = self.file.read_at(offset, &mut self.buffer);
        self.bytes_read += self.buffer.len() as u64;
        if let Err(error) = read {
            self.buffer.clear();
            return Err(error_at("reading", &self.path, &error));
        }
        Ok(())
    }

    /// The header of the frame at `offset`, or what is wrong with it.
    pub(super) fn head(&mut self, offset: u64) -> Result<Result<Head, String>, Error> {
        let Some(sector) = self.get(offset, SECTOR)? else { return Ok(Err("the segment ends here".to_owned())) };
        let data = sector.get(1..).unwrap_or_default();
        Ok(frame_decode::head(data))
    }

    /// The frame at `offset`, or what is wrong with it.
    pub(super) fn frame(&mut self, offset: u64) -> Result<Result<Found, String>, Error> {
        let head = match self.head(offset)? {
            Ok(head) => head,
            Err(reason) => return Ok(Err(reason)),
        };
        let length = stretch(head.len);
        let Some(sectors) = self.get(offset, length)? else {
            return Ok(Err(format!("a frame of {} bytes does not fit into the segment", head.len)));
        };
        let checked = gather(sectors, head.len).and_then(|bytes| Ok((frame_decode::verify(&bytes)?, bytes)));
        Ok(checked.map(|(head, bytes)| Found { head, bytes, next: offset + length as u64 }))
    }

    /// Where the first byte that is not zero lies, from `offset` on, by sectors.
    pub(super) fn first_written(&mut self, offset: u64) -> Result<Option<u64>, Error> {
        let mut at = offset;
        while let Some(sector) = self.get(at, SECTOR)? {
            if !super::sectors::is_zero(sector) {
                return Ok(Some(at));
            }
            at += SECTOR_BYTES;
        }
        Ok(None)
    }
}
