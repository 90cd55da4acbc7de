//! Reading and judging a log before it is opened; nothing is changed here.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::fs::{FileSystem, OpenMode};
use crate::log::local::plan::{Plan, Recovery, place};
use crate::log::local::segment::{self, FORMAT, FRAMES_AT, Header, HeaderSector, Segment, error_at};
use crate::log::local::tail::{Tail, judge};
use crate::log::local::window::Window;
use crate::types::{Digest, LogId, Position};

/// The state of the walk over all frames.
pub(super) struct Walk {
    pub(super) log: LogId,
    position: Position,
    pub(super) offset: u64,
    digest: Digest,
    frames: u64,
    bytes_read: u64,
    last: Option<(u64, Vec<u8>)>,
}

/// Reads and judges the whole log; changes nothing.
pub(super) fn inspect(fs: &dyn FileSystem, dir: &Path, log: LogId) -> Result<Plan, Error> {
    let (segments, unfinished) = find(fs, dir, log)?;
    let first = segments.first().ok_or_else(|| Error::corrupt(dir.display().to_string(), "no segment of a log"))?;
    let mut walk = Walk::new(log, first.header.first, first.header.digest);
    let nexts = segments.iter().skip(1).map(Some).chain([None]);
    let mut tail = Tail::Clean;
    for (segment, next) in segments.iter().zip(nexts) {
        tail = walk.segment(segment, next)?;
    }
    let cut = match tail {
        Tail::Torn(range) => Some(range),
        _ => None,
    };
    if let Some(path) = &unfinished {
        walk.unfinished(fs, path, cut.is_some())?;
    }
    Ok(walk.plan(segments, cut, unfinished))
}

/// The segments with a header, and the newest file if its header was not written, or not whole.
fn find(fs: &dyn FileSystem, dir: &Path, log: LogId) -> Result<(Vec<Segment>, Option<PathBuf>), Error> {
    let firsts = list(fs, dir)?;
    let mut segments = Vec::new();
    for first in &firsts {
        let path = dir.join(segment::name(*first));
        let newest = firsts.last() == Some(first);
        match open_segment(fs, &path, *first, log)? {
            Found::Segment(segment) => segments.push(segment),
            // With nothing before it, nothing tells what its header was to be.
            Found::Damaged(_) | Found::Blank if newest && !segments.is_empty() => return Ok((segments, Some(path))),
            Found::Blank if newest => return Ok((segments, Some(path))),
            Found::Blank => return Err(Error::corrupt(place(&path, 0), "no header, but a newer segment follows")),
            Found::Damaged(reason) => return Err(Error::corrupt(place(&path, 0), reason)),
        }
    }
    Ok((segments, None))
}

/// The positions that the directory's segment files are named after, in order. Other files are left alone.
pub(super) fn list(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<Position>, Error> {
    let names = fs.list(dir).map_err(|error| error_at("listing", dir, &error))?;
    let parsed = names.iter().filter_map(|name| segment::parse_name(name)).collect::<Result<Vec<_>, _>>();
    let mut firsts = parsed.map_err(|reason| Error::corrupt(dir.display().to_string(), reason))?;
    firsts.sort_unstable();
    Ok(firsts)
}

/// True for a segment file that holds nothing after its header, if it has one, or a part of the one it was to have.
pub(super) fn is_without_frames(fs: &dyn FileSystem, path: &Path, intended: Header) -> Result<bool, Error> {
    let file = fs.open(path, OpenMode::Read).map_err(|error| error_at("opening", path, &error))?;
    let mut window = Window::new(file, path)?;
    let intended = Header { len: window.len, ..intended };
    let harmless = window.get(0, super::sectors::SECTOR)?.is_none_or(|sector| {
        matches!(Header::decode(sector), HeaderSector::Blank | HeaderSector::Valid(_)) || intended.may_have_left(sector)
    });
    Ok(harmless && window.first_written(super::sectors::SECTOR_BYTES)?.is_none())
}

/// What a segment file is, by its header.
pub(super) enum Found {
    Segment(Segment),
    Blank,
    Damaged(String),
}

/// The segment at `path`.
pub(super) fn open_segment(fs: &dyn FileSystem, path: &Path, first: Position, log: LogId) -> Result<Found, Error> {
    let file = fs.open(path, OpenMode::ReadWrite).map_err(|error| error_at("opening", path, &error))?;
    let mut window = Window::new(file.clone(), path)?;
    let header = match window.get(0, super::sectors::SECTOR)?.map(Header::decode) {
        None | Some(HeaderSector::Blank) => return Ok(Found::Blank),
        Some(HeaderSector::Valid(header)) => header,
        Some(HeaderSector::Newer(format)) => {
            let reason = format!("{} has format {format}, this version reads up to {FORMAT}", path.display());
            return Err(Error::LogMismatch { position: first, reason });
        }
        Some(HeaderSector::Damaged(reason)) => return Ok(Found::Damaged(reason)),
    };
    if header.log != log {
        let reason = format!("{} belongs to log {}, expected {log}", path.display(), header.log);
        return Err(Error::LogMismatch { position: first, reason });
    }
    if header.first != first {
        return Err(Error::corrupt(place(path, 0), format!("the header says position {}", header.first)));
    }
    Ok(Found::Segment(Segment { header, path: path.to_owned(), file }))
}

impl Walk {
    /// At the frame at `position`, up to which the chain has reached `digest`.
    pub(super) fn new(log: LogId, position: Position, digest: Digest) -> Walk {
        Walk { log, position, offset: FRAMES_AT, digest, frames: 0, bytes_read: 0, last: None }
    }

    /// A segment from its first frame on.
    pub(super) fn segment(&mut self, segment: &Segment, next: Option<&Segment>) -> Result<Tail, Error> {
        self.offset = FRAMES_AT;
        let mut window = Walk::whole(segment)?;
        let gap = window.get(0, usize::try_from(FRAMES_AT).unwrap_or(0))?.and_then(|space| space.get(512..));
        if gap.is_some_and(|gap| !super::sectors::is_zero(gap)) {
            return Err(Error::corrupt(place(&segment.path, 0), "what follows the header is not zero"));
        }
        self.rest(segment, next, window)
    }

    /// A segment that has its whole length.
    pub(super) fn whole(segment: &Segment) -> Result<Window, Error> {
        let window = Window::new(segment.file.clone(), &segment.path)?;
        if window.len < segment.header.len {
            let reason = format!("{} bytes are left of {}", window.len, segment.header.len);
            return Err(Error::corrupt(place(&segment.path, window.len), reason));
        }
        Ok(window)
    }

    /// A segment from the offset on.
    pub(super) fn rest(
        &mut self,
        segment: &Segment,
        next: Option<&Segment>,
        mut window: Window,
    ) -> Result<Tail, Error> {
        self.last = None;
        let bad = self.frames_of(segment, &mut window)?;
        let tail = match next {
            Some(next) => self.handed_over(segment, next, &mut window, bad).map(|()| Tail::Clean),
            None => self.ended(segment, &mut window),
        };
        self.bytes_read += window.bytes_read;
        tail
    }

    /// Walks over the good frames and says why there is no further one.
    fn frames_of(&mut self, segment: &Segment, window: &mut Window) -> Result<String, Error> {
        loop {
            let found = match window.frame(self.offset)? {
                Ok(found) => found,
                Err(reason) => return Ok(reason),
            };
            if found.head.log != self.log || found.head.position != self.position {
                let (log, position) = (found.head.log, found.head.position);
                let reason = format!("frame {position} of log {log}, expected {} of {}", self.position, self.log);
                return Err(Error::corrupt(place(&segment.path, self.offset), reason));
            }
            self.digest = self.digest.chain(&found.bytes);
            self.frames += 1;
            self.position = self.position.next();
            self.last = Some((self.offset, found.bytes));
            self.offset = found.next;
        }
    }

    /// A segment that is not the newest: the next one goes on exactly where it stops.
    fn handed_over(&self, from: &Segment, to: &Segment, window: &mut Window, bad: String) -> Result<(), Error> {
        let damaged = |reason| Err(Error::corrupt(place(&from.path, self.offset), reason));
        if window.first_written(self.offset)?.is_some() {
            return damaged(bad);
        }
        if self.position != to.header.first {
            return damaged(format!(
                "it ends before position {}, the next begins at {}",
                self.position, to.header.first
            ));
        }
        if self.digest != to.header.digest {
            let reason = format!("digest {:?}, the segments before it give {:?}", to.header.digest, self.digest);
            return Err(Error::corrupt(place(&to.path, 0), reason));
        }
        Ok(())
    }

    fn ended(&self, segment: &Segment, window: &mut Window) -> Result<Tail, Error> {
        match judge(window, self.offset, self.log, self.position)? {
            Tail::Damaged { offset, reason } => Err(Error::corrupt(place(&segment.path, offset), reason)),
            tail => Ok(tail),
        }
    }

    /// An unfinished segment is all zero but for a part of its header, and named after the next position: nothing was begun after it.
    pub(super) fn unfinished(&mut self, fs: &dyn FileSystem, path: &Path, torn: bool) -> Result<(), Error> {
        let damaged = |offset, reason: &str| Err(Error::corrupt(place(path, offset), reason));
        let file = fs.open(path, OpenMode::Read).map_err(|error| error_at("opening", path, &error))?;
        let len = file.len().map_err(|error| error_at("measuring", path, &error))?;
        if len % super::sectors::SECTOR_BYTES != 0 {
            return damaged(len, "the file ends within a sector, which no segment ever does");
        }
        let mut window = Window::new(file, path)?;
        let header = Header { log: self.log, first: self.position, digest: self.digest, len };
        let torn_header = window.get(0, super::sectors::SECTOR)?.is_none_or(|sector| header.may_have_left(sector));
        let written = window.first_written(if torn_header { super::sectors::SECTOR_BYTES } else { 0 })?;
        self.bytes_read += window.bytes_read;
        if let Some(offset) = written {
            return damaged(offset, "the segment has no header, but something was written to it");
        }
        if torn || path.file_name() != Some(segment::name(self.position).as_ref()) {
            return damaged(0, &format!("the segment has no header, and the ones before it end at {}", self.position));
        }
        Ok(())
    }

    pub(super) fn plan(self, segments: Vec<Segment>, cut: Option<Range<u64>>, remove: Option<PathBuf>) -> Plan {
        let name = remove.as_ref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned());
        let recovery = Recovery {
            frames: self.frames,
            bytes_read: self.bytes_read,
            digest: self.digest,
            cut: cut.as_ref().map(|range| (self.position, range.end - range.start)),
            removed: name,
            damage: Vec::new(),
        };
        Plan { segments, end: self.position, offset: self.offset, recovery, cut, remove, last: self.last }
    }
}
