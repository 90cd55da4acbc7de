//! A segment file: its name, its header, how one comes into being.
//!
//! ```text
//! offset  size  segment
//!      0     1  tag, never zero
//!      1     7  magic "SPSEGMT"
//!      8     2  format, little-endian as every number here
//!     10     6  reserved, zero
//!     16     8  log id
//!     24     8  position of the first frame
//!     32    16  digest before that frame
//!     48     8  length of the file
//!     56     4  CRC-32 of bytes 0 to 56
//!     60        zeros
//!   4096        frames, each on sectors of its own, then zeros up to the end
//! ```
//!
//! The header has 4096 bytes to itself, so that no later write touches a disk sector of that size with the header in it.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use crate::fs::{File, FileSystem, OpenMode};
use crate::log::frame_decode::Reader;
use crate::log::local::sectors::{SECTOR, TAG_HEADER, is_zero};
use crate::types::{Digest, LogId, Position};

/// Where the first frame lies.
pub(super) const FRAMES_AT: u64 = 4096;
pub(super) const FORMAT: u16 = 1;
const MAGIC: [u8; 7] = *b"SPSEGMT";
const SUFFIX: &str = ".log";
/// What the name ends in while a segment is made that takes another's place.
const TEMPORARY: &str = "new";
const DIGITS: usize = 16;

/// What a segment says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) log: LogId,
    pub(super) first: Position,
    /// The chain's value before the first frame.
    pub(super) digest: Digest,
    /// The length that the file was given, so that a file cut short is noticed.
    pub(super) len: u64,
}

/// A segment in use.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) header: Header,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
}

/// What the first sector of a segment file turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderSector {
    Valid(Header),
    /// Not written yet.
    Blank,
    /// Written by a newer version.
    Newer(u16),
    Damaged(String),
}

/// Why there is no new segment.
#[derive(Debug)]
pub(super) enum NoSegment {
    /// No room; everything is as before.
    Full,
    Failed(Error),
}

pub(super) fn name(first: Position) -> String {
    format!("{:0DIGITS$}{SUFFIX}", first.0)
}

/// The position in a segment's name; `None` for another file, an error for a name that only looks like one.
pub(super) fn parse_name(name: &str) -> Option<Result<Position, String>> {
    let digits = name.strip_suffix(SUFFIX)?;
    let position = digits.parse::<u64>().map(Position).ok().filter(|position| self::name(*position) == name);
    Some(position.ok_or_else(|| format!("{name} is not the name of a segment")))
}

/// True for the name of a segment that was to take another's place: what a crash left is of no use.
pub(super) fn is_temporary(name: &str) -> bool {
    let position = name.strip_suffix(TEMPORARY).and_then(|stem| stem.strip_suffix('.'));
    position.is_some_and(|digits| matches!(parse_name(&format!("{digits}{SUFFIX}")), Some(Ok(_))))
}

impl Header {
    pub(super) fn encode(&self) -> [u8; SECTOR] {
        let mut bytes = Vec::with_capacity(SECTOR);
        bytes.push(TAG_HEADER);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&[0; 6]);
        bytes.extend_from_slice(&self.log.0.to_le_bytes());
        bytes.extend_from_slice(&self.first.0.to_le_bytes());
        bytes.extend_from_slice(&self.digest.0);
        bytes.extend_from_slice(&self.len.to_le_bytes());
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.resize(SECTOR, 0);
        *bytes.first_chunk().expect("it was given that length")
    }

    /// True for what is left if only some bytes of this header were written, over zeros.
    pub(super) fn may_have_left(&self, sector: &[u8]) -> bool {
        sector.iter().zip(&self.encode()).all(|(found, written)| *found == 0 || found == written)
    }

    pub(super) fn decode(sector: &[u8]) -> HeaderSector {
        if is_zero(sector) {
            return HeaderSector::Blank;
        }
        decode(sector).unwrap_or_else(|| HeaderSector::Damaged("it is cut short".to_owned()))
    }
}

fn decode(sector: &[u8]) -> Option<HeaderSector> {
    let damaged = |reason: &str| Some(HeaderSector::Damaged(reason.to_owned()));
    let (covered, after) = sector.split_at_checked(56)?;
    let (crc, padding) = after.split_first_chunk()?;
    let mut rest = Reader(covered);
    let [tag] = rest.take()?;
    let magic: [u8; 7] = rest.take()?;
    if tag != TAG_HEADER || magic != MAGIC {
        return damaged("no segment begins here");
    }
    if crc32fast::hash(covered) != u32::from_le_bytes(*crc) {
        return damaged("the header's checksum is wrong");
    }
    let format = u16::from_le_bytes(rest.take()?);
    if format > FORMAT {
        return Some(HeaderSector::Newer(format));
    }
    let reserved: [u8; 6] = rest.take()?;
    if format == 0 || !is_zero(&reserved) || !is_zero(padding) {
        return damaged("bytes that are always zero are not, or the reverse");
    }
    let (log, first) = (LogId(rest.take_u64()?), Position(rest.take_u64()?));
    Some(HeaderSector::Valid(Header { log, first, digest: Digest(rest.take()?), len: rest.take_u64()? }))
}

/// Makes a segment: allocated, its header and its name durable. A crash in between leaves a file of zeros, or with a part of its header,
/// which the next start removes, or a whole segment without frames.
pub(super) fn create(fs: &dyn FileSystem, dir: &Path, header: Header) -> Result<Segment, NoSegment> {
    make(fs, dir, header, dir.join(name(header.first)))
}

/// Makes a segment of another length in place of one without frames. It is made under another name: so a header is only ever written
/// where none was, and a crash leaves the one or the other.
pub(super) fn replace(fs: &dyn FileSystem, dir: &Path, header: Header) -> Result<Segment, NoSegment> {
    let path = dir.join(name(header.first));
    let temporary = path.with_extension(TEMPORARY);
    let error = |error| failed("replacing", &path, &error);
    if fs.metadata(&temporary).map_err(error)?.is_some() {
        fs.remove(&temporary).map_err(error)?;
    }
    let segment = make(fs, dir, header, temporary)?;
    fs.rename(&segment.path, &path).and_then(|()| fs.sync_dir(dir)).map_err(error)?;
    Ok(Segment { path, ..segment })
}

fn make(fs: &dyn FileSystem, dir: &Path, header: Header, path: PathBuf) -> Result<Segment, NoSegment> {
    let file = match fs.open(&path, OpenMode::CreateNew) {
        Ok(file) => file,
        Err(error) if is_full(&error) => return Err(NoSegment::Full),
        Err(error) => return Err(failed("creating", &path, &error)),
    };
    match file.allocate(0, header.len) {
        Ok(()) => {}
        Err(error) if is_full(&error) => return give_up(fs, dir, &path),
        Err(error) => return Err(failed("allocating", &path, &error)),
    }
    let segment = Segment { header, path, file };
    segment.finish().map_err(NoSegment::Failed)?;
    failpoint!(SegmentName, |error| Err(NoSegment::Failed(error)));
    if planted!(SkipDirectorySync) {
        return Ok(segment);
    }
    fs.sync_dir(dir).map_err(|error| failed("syncing", dir, &error))?;
    Ok(segment)
}

/// Takes an unfinished file away. The directory is synced, so that at most one such file is ever found, above all others.
fn give_up(fs: &dyn FileSystem, dir: &Path, path: &Path) -> Result<Segment, NoSegment> {
    let gone = fs.remove(path).and_then(|()| fs.sync_dir(dir));
    gone.map_err(|error| failed("removing", path, &error))?;
    Err(NoSegment::Full)
}

impl Segment {
    /// Makes the allocation durable, and only then the header: a file that is shorter than its header says was cut.
    fn finish(&self) -> Result<(), Error> {
        self.file.sync().map_err(|error| error_at("syncing", &self.path, &error))?;
        self.write_header()
    }

    /// Writes the header and makes it durable.
    pub(super) fn write_header(&self) -> Result<(), Error> {
        let written = self.file.write_at(0, &self.header.encode()).and_then(|()| self.file.sync());
        written.map_err(|error| error_at("writing the header of", &self.path, &error))
    }
}

pub(super) fn is_full(error: &io::Error) -> bool {
    error.kind() == ErrorKind::StorageFull
}

pub(super) fn error_at(doing: &str, path: &Path, error: &io::Error) -> Error {
    Error::io(format!("{doing} {}", path.display()), error)
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> NoSegment {
    NoSegment::Failed(error_at(doing, path, error))
}
