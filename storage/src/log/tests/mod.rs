//! The log, held against a disk that forgets, tears, fills up and fails.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "tests may panic")]

mod behind;
mod crash;
mod damage;
mod faults;
mod frame;
mod local;
mod measure;
mod memory;
mod scrub;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use crate::fs::{FileSystem, SimFs};
use crate::log::frame::{FrameBuffer, FrameHeader};
use crate::log::{AppendError, LocalLog, Log, StoredFrame};
use crate::types::{Digest, LogId, MemberId, Position, WriterId};

const ID: LogId = LogId(0x1122_3344_5566_7788);
const SEGMENT: u64 = 16 * 1024;

fn dir() -> &'static Path {
    Path::new("/data/log")
}

fn file(first: u64) -> PathBuf {
    dir().join(format!("{first:016}.log"))
}

fn header(number: u64) -> FrameHeader {
    FrameHeader {
        member: MemberId(1),
        generation: 2,
        writer: WriterId(3),
        number,
        applied: Position(number - 1),
        applied_digest: Digest([9; 16]),
        time_ms: 1_700_000_000_000 + number,
    }
}

/// A frame with one record of `len` equal bytes.
fn frame(number: u64, byte: u8, len: usize) -> FrameBuffer {
    let mut frame = FrameBuffer::new(&header(number));
    frame.push(7, |payload| payload.resize(payload.len() + len, byte));
    frame
}

/// A log on a simulated disk, with the bytes of every frame that was acknowledged.
struct Bench {
    disk: SimFs,
    log: LocalLog,
    digest: Digest,
    acknowledged: Vec<Vec<u8>>,
}

impl Bench {
    fn new() -> Bench {
        let disk = SimFs::new();
        let log = LocalLog::create(Arc::new(disk.clone()), dir(), ID, SEGMENT).unwrap();
        Bench { disk, log, digest: Digest::default(), acknowledged: Vec::new() }
    }

    /// With frames of these lengths, of zeros.
    fn with(lengths: &[usize]) -> Bench {
        let mut bench = Bench::new();
        lengths.iter().for_each(|len| assert!(bench.append(*len).is_ok()));
        bench
    }

    fn append(&mut self, len: usize) -> Result<Position, AppendError> {
        let number = self.acknowledged.len() as u64 + 1;
        let mut frame = frame(number, 0, len);
        let position = self.log.append(&mut frame, self.digest)?;
        assert_eq!(position, Position(number));
        let bytes = frame.stamp(ID, position).to_vec();
        self.digest = self.digest.chain(&bytes);
        self.acknowledged.push(bytes);
        Ok(position)
    }
}

fn open(disk: &SimFs) -> Result<LocalLog, Error> {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    LocalLog::open(fs, dir(), ID, SEGMENT)
}

fn read_all(log: &mut LocalLog) -> Vec<StoredFrame> {
    log.read(log.first(), usize::MAX).unwrap()
}

/// Opens an image: every acknowledged frame is there, at most one more, and the log goes on.
fn check_image(image: &SimFs, acknowledged: &[Vec<u8>]) -> LocalLog {
    let mut log = open(image).unwrap_or_else(|error| panic!("an image does not open: {error}"));
    let skip = log.first().0 as usize - 1;
    let frames = read_all(&mut log);
    let got: Vec<&[u8]> = frames.iter().map(|frame| &frame.bytes[..]).collect();
    let wanted = &acknowledged[skip.min(acknowledged.len())..];
    assert!(got.len() >= wanted.len() && got.len() <= wanted.len() + 1, "{} frames of {}", got.len(), wanted.len());
    assert!(got.iter().zip(wanted).all(|(got, wanted)| got == wanted), "a frame changed");
    let digest = log.recovery().digest;
    let end = log.end();
    assert_eq!(log.append(&mut frame(end.0, 1, 700), digest), Ok(end));
    log
}

/// Every file with its bytes, to see that nothing changed.
fn contents(disk: &SimFs) -> Vec<(PathBuf, Vec<u8>)> {
    disk.files().into_iter().map(|path| (path.clone(), disk.contents(&path).unwrap())).collect()
}
