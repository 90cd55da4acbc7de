//! The log on this machine's disk: write-ahead segment files in one directory.

mod behind;
mod create;
mod plan;
mod read;
mod recover;
mod scrub;
mod sectors;
mod segment;
mod tail;
mod window;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::env::Clock;
use crate::error::Error;
use crate::fs::FileSystem;
use crate::log::frame::{FrameBuffer, MAX_FRAME_LEN};
use crate::log::local::segment::{FRAMES_AT, Header, NoSegment, Segment, error_at};
use crate::log::{AppendError, Log, StoredFrame};
use crate::meters::LogMeters;
use crate::types::{Digest, LogId, Position};

pub use behind::Held;
use behind::{Begin, Behind};
pub use plan::Recovery;
pub(crate) use scrub::{LogDamage, LogScrub};

/// A write that reaches blocks which were only allocated so far goes on with zeros up to the next multiple of this.
///
/// The first write to an allocated block makes the file system commit its journal at the next sync, about 12 KiB. With steps, one append
/// of many pays for that, and each byte is written twice. Frames go past the page cache, which would write pages of 4 KiB. Measured
/// by `ways_to_lay_a_segment_down` on an ext4 of its own on a virtual disk, two cores, other work going on: median time of write and
/// sync, and bytes that the disk wrote per append.
///
/// | frame | plain append | allocated | allocated, steps | zeros written first | steps, through the page cache |
/// |---|---|---|---|---|---|
/// | 512 B | 421 µs, 19.7 kB | 105 µs, 2.5 kB | 103 µs, 1.2 kB | 112 µs, 1.1 kB | 111 µs, 4.7 kB |
/// | 2 KiB | 249 µs, 25.1 kB | 217 µs, 9.2 kB | 109 µs, 4.5 kB | 111 µs, 4.2 kB | 106 µs, 6.4 kB |
/// | 8 KiB | 371 µs, 32.8 kB | 247 µs, 20.5 kB | 109 µs, 16.9 kB | 99 µs, 16.6 kB | 152 µs, 16.9 kB |
/// | 32 KiB | 278 µs, 57.4 kB | 244 µs, 45.1 kB | 55.3 kB | 65.6 kB | 339 µs, 55.3 kB |
/// | 256 KiB | 339 µs, 287 kB | 347 µs, 275 kB | 322 µs, 275 kB | 200 µs, 525 kB | 365 µs, 275 kB |
///
/// Zeros written first are faster for large frames, for twice the bytes and a stall when a segment is made.
const AHEAD: u64 = 64 * 1024;
/// A frame of so many bytes is not followed by zeros: they would be more than what the journal writes.
const LARGE: u64 = 12 * 1024;

/// Write-ahead files. One frame is in flight at a time: `append` returns after its sync.
///
/// An error of anything that was begun is final: whether the disk took it cannot be known, and a second sync would prove
/// nothing. From then on every call returns that error; the next start finds out what is there.
#[derive(Debug)]
pub struct LocalLog {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    id: LogId,
    segment_bytes: u64,
    /// Oldest first; the last one is written to. Never empty.
    segments: Vec<Segment>,
    /// Where the next frame goes in the last segment.
    offset: u64,
    /// How far blocks of the last segment were written by this process; beyond, they may be allocated only.
    touched: u64,
    end: Position,
    /// Where it begins, if what lies before is damaged.
    begin: Option<Begin>,
    /// The position after the last one read and its offset, so that reading on needs no walk.
    cursor: Option<(Position, u64)>,
    failure: Option<Error>,
    sectors: Vec<u8>,
    recovery: Recovery,
    bytes_read: u64,
    timed: Option<(Arc<dyn Clock>, Arc<LogMeters>)>,
}

impl LocalLog {
    /// Opens a log: verifies every frame, then cuts a torn tail. `segment_bytes` is the length of segments to come.
    ///
    /// Errors: `Corrupt` and `LogMismatch` (another log's files, or a newer version's), with nothing changed; `Io`.
    pub fn open(fs: Arc<dyn FileSystem>, dir: &Path, id: LogId, segment_bytes: u64) -> Result<LocalLog, Error> {
        let plan = recover::inspect(&*fs, dir, id)?;
        plan.carry_out(&*fs, dir)?;
        let parts = (plan.segments, plan.offset, plan.end, plan.recovery);
        Ok(LocalLog::assemble(fs, dir, id, segment_bytes, parts))
    }

    /// Opens a log that `open` has found to be damaged, if everything that `held` lacks is there: what lies before is given up, and named by
    /// `recovery`. Errors: `Corrupt` for damage that matters, with nothing changed; `Io`.
    pub fn open_behind(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        id: LogId,
        segment_bytes: u64,
        (held, damage): (Held, Error),
    ) -> Result<LocalLog, Error> {
        let Behind { plan, begin, stop } = behind::inspect(&*fs, dir, id, held, damage)?;
        stop.map_or(Ok(()), Err)?;
        plan.carry_out(&*fs, dir)?;
        let parts = (plan.segments, plan.offset, plan.end, plan.recovery);
        Ok(LocalLog { begin: Some(begin), ..LocalLog::assemble(fs, dir, id, segment_bytes, parts) })
    }

    /// Opens a log to look at: verifies every frame and changes nothing, not even a torn tail, which `recovery` names. Errors: as `open`.
    pub(crate) fn look(fs: Arc<dyn FileSystem>, dir: &Path, id: LogId) -> Result<LocalLog, Error> {
        let plan = recover::inspect(&*fs, dir, id)?;
        let parts = (plan.segments, plan.offset, plan.end, plan.recovery);
        Ok(LocalLog::assemble(fs, dir, id, FRAMES_AT, parts))
    }

    /// The same of what lies behind `held`, up to where something is wrong, which is the other answer. Errors: `Corrupt` if the log begins above
    /// that; `Io`.
    pub(crate) fn look_behind(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        id: LogId,
        (held, damage): (Held, Error),
    ) -> Result<(LocalLog, Option<Error>), Error> {
        let Behind { plan, begin, stop } = behind::inspect(&*fs, dir, id, held, damage)?;
        let parts = (plan.segments, plan.offset, plan.end, plan.recovery);
        Ok((LocalLog { begin: Some(begin), ..LocalLog::assemble(fs, dir, id, FRAMES_AT, parts) }, stop))
    }

    /// Makes nothing from this position on readable.
    pub(crate) fn end_before(&mut self, position: Position) {
        self.end = self.end.min(position);
    }

    fn assemble(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        id: LogId,
        segment_bytes: u64,
        (segments, offset, end, recovery): (Vec<Segment>, u64, Position, Recovery),
    ) -> LocalLog {
        LocalLog {
            fs,
            dir: dir.to_owned(),
            id,
            segment_bytes: rounded(segment_bytes),
            segments,
            offset,
            touched: offset,
            end,
            begin: None,
            cursor: None,
            failure: None,
            sectors: Vec::new(),
            bytes_read: recovery.bytes_read,
            recovery,
            timed: None,
        }
    }

    /// Measures every append from now on.
    pub(crate) fn timed(self, clock: Arc<dyn Clock>, meters: Arc<LogMeters>) -> LocalLog {
        LocalLog { timed: Some((clock, meters)), ..self }
    }

    /// What `open` found and did.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The bytes read since before `open`.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    fn usable(&self) -> Result<(), Error> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn fail<T>(&mut self, error: Error) -> Result<T, Error> {
        self.failure = Some(error.clone());
        Err(error)
    }

    fn active(&mut self) -> &mut Segment {
        self.segments.last_mut().expect("a log has one segment at least")
    }

    /// Sees to it that `need` bytes fit into the last segment. Nothing of the frame is begun here.
    fn make_room(&mut self, need: u64, digest: Digest) -> Result<(), AppendError> {
        let (offset, end) = (self.offset, self.end);
        let active = self.active();
        if offset + need <= active.header.len {
            return Ok(());
        }
        let len = self.segment_bytes.max(rounded(FRAMES_AT + need));
        failpoint!(Segment, |error| self.fail(error).map_err(AppendError::Final));
        // One without frames has the name that a new one would get.
        let made = if self.active().header.first == end {
            let header = Header { len, ..self.active().header };
            segment::replace(&*self.fs, &self.dir, header).map(|segment| *self.active() = segment)
        } else {
            let header = Header { log: self.id, first: end, digest, len };
            segment::create(&*self.fs, &self.dir, header).map(|segment| {
                self.active().file.close_direct();
                self.segments.push(segment);
                self.offset = FRAMES_AT;
                self.touched = FRAMES_AT;
            })
        };
        made.map_err(|none| match none {
            NoSegment::Full => AppendError::Full,
            NoSegment::Failed(error) => {
                self.failure = Some(error.clone());
                AppendError::Final(error)
            }
        })
    }

    /// Adds zeros to the frame in `sectors` if it reaches untouched blocks; how far blocks are touched then.
    fn zeros_ahead(&mut self, need: u64) -> u64 {
        let frame_end = self.offset + need;
        if frame_end <= self.touched || need >= LARGE {
            return self.touched.max(frame_end);
        }
        let end = frame_end.next_multiple_of(AHEAD).min(self.active().header.len).max(frame_end);
        let zeros = usize::try_from(end - frame_end).unwrap_or(0);
        self.sectors.resize(self.sectors.len() + zeros, 0);
        end
    }
}

impl Log for LocalLog {
    fn id(&self) -> LogId {
        self.id
    }

    fn first(&self) -> Position {
        let first = self.segments.first().map_or(self.end, |segment| segment.header.first);
        self.begin.map_or(first, |begin| begin.first.max(first))
    }

    fn digest_before_first(&self) -> Option<Digest> {
        let oldest = &self.segments.first()?.header;
        let begin = self.begin.filter(|begin| begin.first > oldest.first);
        Some(begin.map_or(oldest.digest, |begin| begin.digest))
    }

    fn end(&self) -> Position {
        self.end
    }

    fn append(&mut self, frame: &mut FrameBuffer, digest: Digest) -> Result<Position, AppendError> {
        self.usable().map_err(AppendError::Final)?;
        if frame.len() > MAX_FRAME_LEN {
            return Err(AppendError::TooLarge { size: frame.len(), limit: MAX_FRAME_LEN });
        }
        if planted!(AckBeforeSync) {
            drop(self.active().file.sync());
        }
        let need = sectors::stretch(frame.len()) as u64;
        self.make_room(need, digest)?;
        let position = self.end;
        sectors::spread(frame.stamp(self.id, position), &mut self.sectors);
        let touched = self.zeros_ahead(need);
        let offset = self.offset;
        failpoint!(Write, |error| self.fail(error).map_err(AppendError::Final));
        let segment = self.segments.last().expect("a log has one segment at least");
        let sync = || if planted!(AckBeforeSync | SkipSync) { Ok(()) } else { segment.file.sync() };
        let now = || self.timed.as_ref().map(|(clock, _)| clock.monotonic()).unwrap_or_default();
        let begun = now();
        let written = segment.file.write_direct(offset, &self.sectors);
        failpoint!(Sync, |error| self.fail(error).map_err(AppendError::Final));
        let synced_from = now();
        let written = written.and_then(|()| sync());
        if let Err(error) = written {
            let error = error_at("appending to", &segment.path, &error);
            return self.fail(error).map_err(AppendError::Final);
        }
        if let Some((_, meters)) = &self.timed {
            meters.write.observe_duration(synced_from.saturating_sub(begun));
            meters.sync.observe_duration(now().saturating_sub(synced_from));
            meters.bytes.add(self.sectors.len() as u64);
        }
        self.touched = touched;
        self.offset += need;
        self.end = position.next();
        failpoint!(Durable);
        Ok(position)
    }

    fn read(&mut self, from: Position, max_bytes: usize) -> Result<Vec<StoredFrame>, Error> {
        self.usable()?;
        self.read_frames(from, max_bytes)
    }

    fn trim(&mut self, below: Position) -> Result<(), Error> {
        self.usable()?;
        while let [oldest, second, ..] = self.segments.as_slice()
            && second.header.first <= below
        {
            // The directory is synced each time: a newer segment that is gone before an older one would be a gap.
            let gone = self.fs.remove(&oldest.path);
            failpoint!(TrimSync, |error| self.fail(error));
            let gone = gone.and_then(|()| self.fs.sync_dir(&self.dir));
            if let Err(error) = gone {
                let error = error_at("removing", &oldest.path, &error);
                return self.fail(error);
            }
            self.segments.remove(0);
        }
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.header.len).sum()
    }
}

/// A whole number of pages with room for one sector of a frame at least.
fn rounded(bytes: u64) -> u64 {
    bytes.max(2 * FRAMES_AT).next_multiple_of(FRAMES_AT)
}
