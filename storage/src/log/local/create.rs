//! Making a log.

use std::path::Path;
use std::sync::Arc;

use crate::error::Error;
use crate::fs::FileSystem;
use crate::log::local::segment::{self, FRAMES_AT, Header, NoSegment, error_at};
use crate::log::local::{LocalLog, Recovery, recover, rounded};
use crate::types::{Digest, LogId, Position};

impl LocalLog {
    /// Makes a log that begins at position 1. Errors: `NoSpace`; `Io`, also if there is a log with frames already.
    pub fn create(fs: Arc<dyn FileSystem>, dir: &Path, id: LogId, segment_bytes: u64) -> Result<LocalLog, Error> {
        LocalLog::create_at(fs, dir, id, segment_bytes, Position(1), Digest::default())
    }

    /// Makes a log that goes on at `first`, where the chain has reached `digest`, as after a restore. Errors: as `create`.
    pub fn create_at(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        id: LogId,
        segment_bytes: u64,
        first: Position,
        digest: Digest,
    ) -> Result<LocalLog, Error> {
        fs.create_dir(dir).map_err(|error| error_at("creating", dir, &error))?;
        let header = Header { log: id, first, digest, len: rounded(segment_bytes) };
        remove_leftover(&*fs, dir, header)?;
        let segment = segment::create(&*fs, dir, header).map_err(|none| match none {
            NoSegment::Full => Error::NoSpace,
            NoSegment::Failed(error) => error,
        })?;
        let recovery = Recovery { digest, ..Recovery::default() };
        Ok(LocalLog::assemble(fs, dir, id, segment_bytes, (vec![segment], FRAMES_AT, first, recovery)))
    }
}

/// Removes what a creation that was cut short left: one segment of that name without frames. Anything else is refused.
fn remove_leftover(fs: &dyn FileSystem, dir: &Path, header: Header) -> Result<(), Error> {
    let first = header.first;
    let found = recover::list(fs, dir)?;
    if found.is_empty() {
        return Ok(());
    }
    let path = dir.join(segment::name(first));
    if found != [first] || !recover::is_without_frames(fs, &path, header)? {
        let reason = format!("it holds a log already, with segments from position {}", found.first().unwrap_or(&first));
        return Err(Error::Io { doing: format!("creating a log in {}", dir.display()), reason });
    }
    let gone = fs.remove(&path).and_then(|()| fs.sync_dir(dir));
    gone.map_err(|error| error_at("removing", &path, &error))
}
