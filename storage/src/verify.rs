//! Looks at a data directory that nobody has open, and says what is wrong with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{self, Snapshot};
use crate::contain::contained;
use crate::engine::committer;
use crate::error::Error;
use crate::files::Directory;
use crate::fs::FileSystem;
use crate::log::{Held, LocalLog, Log};
use crate::open::{check_log, on_a_large_stack};
use crate::tables::Applied;
use crate::types::{Position, Revision};

/// Frames read at once, in bytes.
const STEP_BYTES: usize = 4 << 20;

/// What a data directory holds, and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// The revision that base has reached; the log may go on from there.
    pub revision: Revision,
    /// The compacted revision there.
    pub compacted: Revision,
    /// Versions in base.
    pub versions: u64,
    /// Rows of all its tables.
    pub rows: u64,
    /// Good frames in the log.
    pub frames: u64,
    /// Frames in the log that are not in base yet.
    pub ahead: u64,
    /// The bytes of a frame whose write a crash cut short: nobody was answered, and the next start cuts it off.
    pub torn_bytes: u64,
    /// The first thing wrong with the log, and with base; none if all is well.
    pub damage: Vec<Error>,
}

/// Checks base and the log of a data directory: in base every row against its checksum, every table against its counts and sums, `index` against
/// `history`, attached keys against leases; in the log every frame, segment, and the chain of digests up to where base is; and that the
/// commands which a start would apply can be read. Nothing is repaired, cut or written, but for the note in the lock.
///
/// Cost: two reads of the database file, one of the log, and two lookups per version. Errors, if it cannot be looked at: `Io`, also if another
/// process holds the directory; `Corrupt` for its identity. What is wrong with the data is in the report, also if redb panics over it.
pub fn verify(dir: &Path, fs: &Arc<dyn FileSystem>, cache_bytes: usize) -> Result<VerifyReport, Error> {
    let directory = Directory::look(fs, dir)?;
    let mut report = VerifyReport::default();
    let applied = verify_base(&mut report, fs, directory.base(), cache_bytes);
    match look(fs, &directory, applied) {
        Ok(log) => {
            report.damage.extend(log.recovery().damage.iter().cloned());
            report.frames = log.recovery().frames;
            report.torn_bytes = log.recovery().cut.map_or(0, |(_, bytes)| bytes);
            let walked = on_a_large_stack(|| walk(log, applied)).and_then(|walked| walked);
            match walked {
                Ok(ahead) => report.ahead = ahead,
                Err(error) => report.damage.push(error),
            }
        }
        Err(error) => report.damage.push(error),
    }
    Ok(report)
}

/// Answers how far base has come, if it says so.
fn verify_base(
    report: &mut VerifyReport,
    fs: &Arc<dyn FileSystem>,
    file: PathBuf,
    cache_bytes: usize,
) -> Option<Applied> {
    let (of_meta, of_rows, of_pages) = (Arc::clone(fs), Arc::clone(fs), Arc::clone(fs));
    let (path, rows_path, pages_path) = (file.clone(), file.clone(), file);
    let numbers = contained(move || {
        let snapshot = Snapshot::of_file(&of_meta, &path, cache_bytes)?;
        Ok((snapshot.applied(), (snapshot.changes_stored(), snapshot.rows())))
    });
    let (applied, (versions, rows)) = match numbers.and_then(|numbers| numbers) {
        Ok(numbers) => numbers,
        Err(error) => {
            report.damage.push(error);
            return None;
        }
    };
    (report.revision, report.compacted) = (applied.revision, applied.compacted);
    (report.versions, report.rows) = (versions, rows);
    let rows = contained(move || {
        let snapshot = Snapshot::of_file(&of_rows, &rows_path, cache_bytes)?;
        snapshot.verify().and_then(|()| snapshot.verify_lease_keys())
    });
    let pages = || contained(move || base::check_pages(&of_pages, &pages_path, cache_bytes)).and_then(|done| done);
    // What is wrong with rows says where; pages are asked if nothing is.
    report.damage.extend(rows.and_then(|done| done).and_then(|()| pages()).err());
    Some(applied)
}

/// The log, or what of it is behind base, if what lies before is damaged.
fn look(fs: &Arc<dyn FileSystem>, directory: &Directory, applied: Option<Applied>) -> Result<LocalLog, Error> {
    let (dir, id) = (directory.log(), directory.identity.log);
    let log = LocalLog::look(Arc::clone(fs), &dir, id);
    match (log, applied) {
        (Err(damage @ Error::Corrupt { .. }), Some(Applied { position, digest, .. })) => {
            let held = Held { position, digest };
            let (log, stop) = LocalLog::look_behind(Arc::clone(fs), &dir, id, (held, damage))?;
            stop.map_or(Ok(log), Err)
        }
        (log, _) => log,
    }
}

/// Follows the chain up to base, and reads the commands beyond it. Answers how many frames are there.
fn walk(mut log: LocalLog, applied: Option<Applied>) -> Result<u64, Error> {
    let mut next = log.first();
    if let Some(applied) = applied {
        check_log(&mut log, applied.position, applied.digest)?;
        next = applied.position.next();
    }
    let mut ahead = 0;
    loop {
        let frames = log.read(next, STEP_BYTES)?;
        let Some(last) = frames.last().map(|frame| frame.position) else { return Ok(ahead) };
        for frame in &frames {
            committer::decode(frame).map_err(|error| undecodable(frame.position, error))?;
            ahead += 1;
        }
        next = last.next();
    }
}

fn undecodable(position: Position, error: Error) -> Error {
    Error::LogMismatch { position, reason: error.to_string() }
}
