//! A damaged log whose damage may lie where base has been already: then it does not matter, and the log begins behind it.
//!
//! Frames up to the position that base holds are not needed any more. Those above are, all of them, so it must be certain where the first of them
//! begins: where an intact header says that the frame before ends, or where its own intact header lies. Otherwise something that was
//! acknowledged might be taken for the end of the log. Only a frame's first sector can pass for one, whatever clients write.

use std::path::Path;

use crate::error::Error;
use crate::fs::{FileSystem, OpenMode};
use crate::log::local::plan::{Plan, place};
use crate::log::local::recover::{Walk, list, open_segment};
use crate::log::local::sectors::{Kind, SECTOR, SECTOR_BYTES, kind, stretch};
use crate::log::local::segment::{self, FRAMES_AT, Header, HeaderSector, Segment, error_at};
use crate::log::local::tail::Tail;
use crate::log::local::window::Window;
use crate::types::{Digest, LogId, Position};

/// What base holds of a log: everything up to a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The last frame that is in base.
    pub position: Position,
    /// The chain there.
    pub digest: Digest,
}

/// Where a log begins whose older frames are damaged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    pub(super) first: Position,
    pub(super) digest: Digest,
    /// The segment that it was to go into, and where: a later one may begin with it.
    pub(super) segment: Position,
    pub(super) offset: u64,
}

/// Judges what lies behind the position that base holds; changes nothing. `damage` is what was found when all of it was judged. Errors: `Corrupt`
/// for damage at or above the position, or where that cannot be told; `Io`.
pub(super) fn inspect(
    fs: &dyn FileSystem,
    dir: &Path,
    log: LogId,
    held: Held,
    damage: Error,
) -> Result<(Plan, Begin), Error> {
    let names = list(fs, dir)?;
    let next = held.position.next();
    let older = names.partition_point(|first| *first <= next).saturating_sub(1);
    if names.first().is_none_or(|first| *first > next) {
        return Err(damage);
    }
    let (mut segments, mut needed, mut unfinished) = (Vec::new(), Vec::new(), None);
    for (number, first) in names.iter().enumerate() {
        let path = dir.join(segment::name(*first));
        if number < older {
            segments.push(old_segment(fs, &path, *first, log)?);
            continue;
        }
        match open_segment(fs, &path, *first, log)? {
            Some(segment) => needed.push(segment),
            None if number + 1 == names.len() && number > older => unfinished = Some(path),
            None => return Err(Error::corrupt(place(&path, 0), "no header")),
        }
    }
    let mut walk = Walk::new(log, next, held.digest);
    let mut tail = Tail::Clean;
    let mut begin = Begin { first: next, digest: held.digest, segment: next, offset: FRAMES_AT };
    let nexts = needed.iter().skip(1).map(Some).chain([None]);
    for (number, (segment, after)) in needed.iter().zip(nexts).enumerate() {
        if number == 0 {
            let mut window = Walk::whole(segment)?;
            begin.segment = segment.header.first;
            begin.offset = footing(&mut window, segment, log, next)?;
            walk.offset = begin.offset;
            tail = walk.rest(segment, after, window)?;
        } else {
            tail = walk.segment(segment, after)?;
        }
    }
    let cut = if let Tail::Torn(range) = tail { Some(range) } else { None };
    if let Some(path) = &unfinished {
        walk.unfinished(fs, path, cut.is_some())?;
    }
    segments.extend(needed);
    let mut plan = walk.plan(segments, cut, unfinished);
    plan.recovery.damage.push(damage);
    Ok((plan, begin))
}

/// A segment that holds nothing that is needed: to be removed when its time comes.
fn old_segment(fs: &dyn FileSystem, path: &Path, first: Position, log: LogId) -> Result<Segment, Error> {
    let file = fs.open(path, OpenMode::ReadWrite).map_err(|error| error_at("opening", path, &error))?;
    let len = file.len().map_err(|error| error_at("measuring", path, &error))?;
    let mut window = Window::new(file.clone(), path)?;
    let header = match window.get(0, SECTOR)?.map(Header::decode) {
        Some(HeaderSector::Valid(header)) if header.log == log && header.first == first => header,
        _ => Header { log, first, digest: Digest::default(), len },
    };
    Ok(Segment { header, path: path.to_owned(), file })
}

/// Where the frame at `wanted` begins, or is to begin.
fn footing(window: &mut Window, segment: &Segment, log: LogId, wanted: Position) -> Result<u64, Error> {
    let mut at = FRAMES_AT;
    let mut expected = Some(segment.header.first);
    let mut lost_at = at;
    while let Some(sector) = window.get(at, SECTOR)? {
        if expected == Some(wanted) {
            return Ok(at);
        }
        let begins = kind(sector) == Kind::First;
        let head = window.head(at)?.ok().filter(|head| begins && head.log == log);
        match head {
            Some(head) if expected.is_none_or(|expected| head.position == expected) && head.position <= wanted => {
                if head.position == wanted {
                    return Ok(at);
                }
                // Its length is known, whatever became of its content.
                expected = Some(head.position.next());
                at += stretch(head.len) as u64;
            }
            _ => {
                if expected.take().is_some() {
                    lost_at = at;
                }
                at += SECTOR_BYTES;
            }
        }
    }
    let reason = format!("no intact frame says where position {wanted} begins, which is not in base");
    Err(Error::corrupt(place(&segment.path, lost_at), reason))
}
