//! A damaged log whose damage may lie where base has been already: then it does not matter, and the log begins behind it.
//!
//! Frames up to the position that base holds are not needed any more. Those above are, all of them, so it must be certain where the first of them
//! begins: where an intact header says that the frame before ends, or where its own intact header lies. Otherwise something that was
//! acknowledged might be taken for the end of the log. Only a frame's first sector can pass for one, whatever clients write.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::fs::{FileSystem, OpenMode};
use crate::log::local::plan::{Plan, place};
use crate::log::local::recover::{Found, Walk, list, open_segment};
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

/// What lies behind the position that base holds.
pub(super) struct Behind {
    /// How to go on with it, as far as it is sound.
    pub(super) plan: Plan,
    pub(super) begin: Begin,
    /// What is wrong with the rest, if something is.
    pub(super) stop: Option<Error>,
}

/// Judges it; changes nothing. `damage` is what was found when all of the log was judged. Errors: `Corrupt` if the log begins above the
/// position; `Io`, `LogMismatch`.
pub(super) fn inspect(fs: &dyn FileSystem, dir: &Path, log: LogId, held: Held, damage: Error) -> Result<Behind, Error> {
    let names = list(fs, dir)?;
    let next = held.position.next();
    let Some(older) = names.partition_point(|first| *first <= next).checked_sub(1) else { return Err(damage) };
    let old = names.iter().take(older);
    let mut segments = old.map(|first| old_segment(fs, dir, *first, log)).collect::<Result<Vec<_>, _>>()?;
    let (needed, unfinished, unreadable) = needed(fs, dir, log, names.get(older..).unwrap_or_default())?;
    let mut walk = Walk::new(log, next, held.digest);
    let mut begin = Begin { first: next, digest: held.digest, segment: next, offset: FRAMES_AT };
    let (mut tail, mut stop) = (Tail::Clean, None);
    let nexts = needed.iter().skip(1).map(Some).chain([None]);
    for (number, (segment, after)) in needed.iter().zip(nexts).enumerate() {
        let walked = match number {
            0 => from_footing(&mut walk, &mut begin, segment, after),
            _ => walk.segment(segment, after),
        };
        match walked {
            Ok(found) => tail = found,
            Err(error @ Error::Corrupt { .. }) => {
                stop = Some(error);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let cut = if let Tail::Torn(range) = tail { Some(range) } else { None };
    stop = stop.or(unreadable);
    if let (Some(path), None) = (&unfinished, &stop) {
        stop = walk.unfinished(fs, path, cut.is_some()).err();
    }
    segments.extend(needed);
    let mut plan = walk.plan(segments, cut, unfinished);
    plan.recovery.damage.push(damage);
    Ok(Behind { plan, begin, stop })
}

/// The segments that hold what base lacks, then the newest file if it has no header yet, and what is wrong if one cannot be opened.
#[expect(clippy::type_complexity, reason = "three things that one walk over names finds")]
fn needed(
    fs: &dyn FileSystem,
    dir: &Path,
    log: LogId,
    names: &[Position],
) -> Result<(Vec<Segment>, Option<PathBuf>, Option<Error>), Error> {
    let mut segments = Vec::new();
    for first in names {
        let path = dir.join(segment::name(*first));
        match open_segment(fs, &path, *first, log) {
            Ok(Found::Segment(segment)) => segments.push(segment),
            Ok(_) if Some(first) == names.last() && !segments.is_empty() => return Ok((segments, Some(path), None)),
            Ok(Found::Blank) => return Ok((segments, None, Some(Error::corrupt(place(&path, 0), "no header")))),
            Ok(Found::Damaged(reason)) => return Ok((segments, None, Some(Error::corrupt(place(&path, 0), reason)))),
            Err(error @ Error::Corrupt { .. }) => return Ok((segments, None, Some(error))),
            Err(error) => return Err(error),
        }
    }
    Ok((segments, None, None))
}

fn from_footing(walk: &mut Walk, begin: &mut Begin, segment: &Segment, after: Option<&Segment>) -> Result<Tail, Error> {
    let mut window = Walk::whole(segment)?;
    begin.segment = segment.header.first;
    begin.offset = footing(&mut window, segment, walk.log, begin.first)?;
    walk.offset = begin.offset;
    walk.rest(segment, after, window)
}

/// A segment that holds nothing that is needed: to be removed when its time comes.
fn old_segment(fs: &dyn FileSystem, dir: &Path, first: Position, log: LogId) -> Result<Segment, Error> {
    let path = &dir.join(segment::name(first));
    let file = fs.open(path, OpenMode::ReadWrite).map_err(|error| error_at("opening", path, &error))?;
    let len = file.len().map_err(|error| error_at("measuring", path, &error))?;
    let mut window = Window::new(file.clone(), path)?;
    let header = match window.get(0, SECTOR)?.map(Header::decode) {
        Some(HeaderSector::Valid(header)) if header.log == log && header.first == first => header,
        _ => Header { log, first, digest: Digest::default(), len },
    };
    Ok(Segment { header, path: path.clone(), file })
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
            other => {
                if expected.take().is_some() {
                    lost_at = at;
                }
                // What is wanted, or comes after it, lies in front of what comes before: the order is not what was written.
                if other.is_some_and(|head| head.position >= wanted) {
                    break;
                }
                at += SECTOR_BYTES;
            }
        }
    }
    let reason = format!("no intact frame says where position {wanted} begins, which is not in base");
    Err(Error::corrupt(place(&segment.path, lost_at), reason))
}
