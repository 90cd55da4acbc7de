//! What follows the last good frame: nothing, a torn frame, or damage.

use std::ops::Range;

use crate::error::Error;
use crate::log::frame::MAX_FRAME_LEN;
use crate::log::local::sectors::{Kind, SECTOR, SECTOR_BYTES, kind, stretch};
use crate::log::local::window::Window;
use crate::types::{LogId, Position};

/// How the newest segment ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Only zeros follow.
    Clean,
    /// A frame whose write was cut short; the stretch that it touched.
    Torn(Range<u64>),
    /// A power cut cannot have left this.
    Damaged {
        /// Where.
        offset: u64,
        /// Why not.
        reason: String,
    },
}

/// Judges what lies at `offset`, where the frame at `position` should be but no good one is.
///
/// One frame is in flight at a time, and the next one is begun only after the sync of the one before returned. So a power cut
/// leaves sectors of one frame, each as written or all zero, and beyond that frame nothing. A frame that was acknowledged
/// has every sector written, and none of those is all zero. Hence: torn if a sector of the frame is missing, what is there could
/// be the frame's, and nothing lies beyond it.
pub(super) fn judge(window: &mut Window, offset: u64, log: LogId, position: Position) -> Result<Tail, Error> {
    let Some(sector) = window.get(offset, SECTOR)? else { return Ok(Tail::Clean) };
    let reach = match kind(sector) {
        Kind::Zero => offset + stretch(MAX_FRAME_LEN) as u64,
        Kind::First => match reach(window, offset, log, position)? {
            Ok(reach) => reach,
            Err(reason) => return Ok(Tail::Damaged { offset, reason }),
        },
        Kind::Next | Kind::Damaged => return Ok(damaged(offset, "no frame begins here")),
    };
    scan(window, offset, reach)
}

/// Where the frame would end. Its header lies in the one sector that was written, so it must be good.
fn reach(window: &mut Window, offset: u64, log: LogId, position: Position) -> Result<Result<u64, String>, Error> {
    let head = match window.head(offset)? {
        Ok(head) => head,
        Err(reason) => return Ok(Err(reason)),
    };
    let reach = offset + stretch(head.len) as u64;
    Ok(if head.log != log || head.position != position {
        Err(format!("a frame of log {} at position {}, expected {log} and {position}", head.log, head.position))
    } else if reach > window.len {
        Err(format!("a frame of {} bytes does not fit into the segment", head.len))
    } else {
        Ok(reach)
    })
}

fn scan(window: &mut Window, offset: u64, reach: u64) -> Result<Tail, Error> {
    let mut missing = false;
    let mut touched = offset;
    let mut at = offset;
    while let Some(sector) = window.get(at, SECTOR)? {
        let kind = kind(sector);
        let allowed = match kind {
            Kind::Zero => true,
            Kind::First => at == offset,
            Kind::Next => at < reach,
            Kind::Damaged => false,
        };
        if !allowed {
            return intruder(window, offset, at);
        }
        missing |= kind == Kind::Zero && at < reach;
        at += SECTOR_BYTES;
        if kind != Kind::Zero {
            touched = at;
        }
    }
    Ok(match (touched == offset, missing) {
        (true, _) => Tail::Clean,
        (false, true) => Tail::Torn(offset..touched),
        (false, false) => {
            damaged(offset, "every sector of the frame was written, but it does not hold what was written")
        }
    })
}

/// Says what lies where a torn frame cannot have left it.
fn intruder(window: &mut Window, offset: u64, at: u64) -> Result<Tail, Error> {
    let found = match window.head(at)? {
        Ok(head) => format!("the frame at position {} follows at offset {at}", head.position),
        Err(_) => format!("what follows at offset {at} is not of the frame's"),
    };
    Ok(damaged(offset, &format!("no good frame, but {found}")))
}

fn damaged(offset: u64, reason: &str) -> Tail {
    Tail::Damaged { offset, reason: reason.to_owned() }
}
