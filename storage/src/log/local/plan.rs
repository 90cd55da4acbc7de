//! What is left to do with a log that was judged sound, before it is used.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::fs::FileSystem;
use crate::log::local::sectors::spread;
use crate::log::local::segment::{self, Segment, error_at};
use crate::types::{Digest, Position};

/// What an open found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The good frames.
    pub frames: u64,
    /// The bytes read.
    pub bytes_read: u64,
    /// The chain's value after the last good frame.
    pub digest: Digest,
    /// The position of a torn frame that was cut, and the bytes it had touched.
    pub cut: Option<(Position, u64)>,
    /// The name of an unfinished segment that was removed.
    pub removed: Option<String>,
    /// Damage in front of the first frame that is needed.
    pub damage: Vec<Error>,
}

/// A log that was judged sound, and what is left to do before it is used.
#[derive(Debug)]
pub(super) struct Plan {
    /// Oldest first, one at least.
    pub(super) segments: Vec<Segment>,
    pub(super) end: Position,
    /// Where the next frame goes in the last segment.
    pub(super) offset: u64,
    pub(super) recovery: Recovery,
    pub(super) cut: Option<Range<u64>>,
    pub(super) remove: Option<PathBuf>,
    /// The last frame's place and bytes, unless the last segment has none.
    pub(super) last: Option<(u64, Vec<u8>)>,
}

impl Plan {
    /// Cuts, removes, and makes durable what was read. Every step may be repeated after a crash.
    ///
    /// What was read may lie in the system's cache only, marked clean by a sync that failed for the process before. So the last
    /// frame, the only one that can be in that state, is written once more with the same bytes before it is relied on.
    pub(super) fn carry_out(&self, fs: &dyn FileSystem, dir: &Path) -> Result<(), Error> {
        if let Some(path) = &self.remove {
            fs.remove(path).map_err(|error| error_at("removing", path, &error))?;
        }
        for name in fs.list(dir).map_err(|error| error_at("listing", dir, &error))? {
            if segment::is_temporary(&name) {
                let path = dir.join(name);
                fs.remove(&path).map_err(|error| error_at("removing", &path, &error))?;
            }
        }
        fs.sync_dir(dir).map_err(|error| error_at("syncing", dir, &error))?;
        let Some(active) = self.segments.last() else { return Ok(()) };
        failpoint!(CutTail, Err);
        if let Some(range) = &self.cut
            && !planted!(TornFrameLeft)
        {
            let zeros = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
            let cut = active.file.write_at(range.start, &zeros);
            cut.map_err(|error| error_at("cutting a torn frame from", &active.path, &error))?;
        }
        let Some((offset, frame)) = &self.last else { return active.write_header() };
        let mut sectors = Vec::new();
        spread(frame, &mut sectors);
        if planted!(LastFrameTrusted) {
            return Ok(());
        }
        let written = active.file.write_at(*offset, &sectors).and_then(|()| active.file.sync());
        written.map_err(|error| error_at("rewriting the last frame of", &active.path, &error))
    }
}

pub(super) fn place(path: &Path, offset: u64) -> String {
    format!("{} at offset {offset}", path.display())
}
