//! Appending, opening again, reading, trimming.

use std::sync::Arc;

use super::{Bench, ID, SEGMENT, check_image, contents, dir, file, frame, header, open, read_all};
use crate::error::Error;
use crate::fs::sim::CrashStyle;
use crate::fs::{FileSystem, OpenMode, RealFs, SimFs};
use crate::log::frame::{FrameBuffer, MAX_FRAME_LEN};
use crate::log::{AppendError, LocalLog, Log};
use crate::types::{Digest, LogId, Position};

#[test]
fn a_log_that_is_opened_again_is_the_same() {
    let mut bench = Bench::with(&[0, 400, 411, 412, 5000, 9000, 20_000, 100]);
    let before = read_all(&mut bench.log);
    let mut again = open(&bench.disk.crash(CrashStyle::KeepNone, 1)).unwrap();
    assert_eq!(read_all(&mut again), before);
    assert_eq!((again.first(), again.end(), again.id()), (Position(1), Position(9), ID));
    assert_eq!(again.recovery().digest, bench.digest);
    assert_eq!(again.recovery().frames, 8);
    assert_eq!(again.size_bytes(), bench.log.size_bytes());
    assert_eq!(again.digest_before_first(), Some(Digest::default()));
}

#[test]
fn an_empty_log_opens_and_reads_as_empty() {
    let mut log = open(&Bench::new().disk).unwrap();
    assert_eq!((log.first(), log.end()), (Position(1), Position(1)));
    assert!(log.read(Position(1), 1000).unwrap().is_empty());
    assert!(log.read(Position(5), 1000).unwrap().is_empty());
}

#[test]
fn reading_takes_one_frame_at_least_and_about_as_much_as_asked() {
    let mut bench = Bench::with(&[3000; 20]);
    for from in 1..=20 {
        for max_bytes in [0, 1, 3000, 10_000, 1 << 20] {
            let frames = bench.log.read(Position(from), max_bytes).unwrap();
            let wanted = max_bytes.div_ceil(3109).clamp(1, 21 - from as usize);
            assert_eq!(frames.len(), wanted, "from {from}, {max_bytes} bytes");
            let mut positions = frames.iter().map(|frame| frame.position.0);
            assert!(positions.by_ref().eq(from..from + wanted as u64));
            let bytes = &bench.acknowledged[from as usize - 1..];
            assert!(frames.iter().zip(bytes).all(|(frame, bytes)| frame.bytes == bytes[..]));
        }
    }
}

#[test]
fn reading_on_reads_the_disk_once() {
    let mut bench = Bench::with(&[3000; 40]);
    let before = bench.log.bytes_read();
    let mut from = Position(1);
    while from < bench.log.end() {
        from = Position(from.0 + bench.log.read(from, 30_000).unwrap().len() as u64);
    }
    let read = bench.log.bytes_read() - before;
    assert!(read <= 2 * bench.log.size_bytes(), "{read} bytes");
}

#[test]
fn trimming_removes_whole_segments_and_never_the_active_one() {
    let mut bench = Bench::with(&[3000; 20]);
    let segments = bench.disk.files().len();
    assert_eq!(segments, 7);
    bench.log.trim(Position(3)).unwrap();
    assert_eq!(bench.log.first(), Position(1));
    bench.log.trim(Position(4)).unwrap();
    assert_eq!((bench.log.first(), bench.disk.files().len()), (Position(4), segments - 1));
    let before = bench.acknowledged[..3].iter().fold(Digest::default(), |digest, bytes| digest.chain(bytes));
    assert_eq!(bench.log.digest_before_first(), Some(before));
    assert!(matches!(bench.log.read(Position(3), 1), Err(Error::LogMismatch { position: Position(3), .. })));
    bench.log.trim(Position(1000)).unwrap();
    assert_eq!((bench.log.first(), bench.disk.files().len()), (Position(19), 1));
    assert_eq!(bench.log.size_bytes(), SEGMENT);
    let mut log = check_image(&bench.disk.crash(CrashStyle::KeepNone, 0), &bench.acknowledged);
    assert_eq!(log.read(Position(19), 1).unwrap().len(), 1);
}

#[test]
fn a_frame_above_the_limit_is_refused_and_one_at_the_limit_fits() {
    let mut bench = Bench::new();
    let payload = MAX_FRAME_LEN - frame(1, 0, 0).len();
    let size = MAX_FRAME_LEN + 1;
    assert_eq!(bench.append(payload + 1), Err(AppendError::TooLarge { size, limit: MAX_FRAME_LEN }));
    assert!(bench.append(payload).is_ok() && bench.append(10).is_ok() && bench.append(payload).is_ok());
    check_image(&bench.disk.crash(CrashStyle::KeepNone, 0), &bench.acknowledged);
}

#[test]
fn a_value_cannot_pass_for_a_frame() {
    // The record's payload begins 105 bytes into the frame: at every shift, a good frame of a later position in the value.
    let evil = frame(9, 0, 40).stamp(ID, Position(9)).to_vec();
    for shift in 0..511 {
        let mut bench = Bench::with(&[100]);
        let mut victim = FrameBuffer::new(&header(2));
        victim.push(1, |payload| {
            payload.resize(payload.len() + 511 + shift, 0xa5);
            payload.extend_from_slice(&evil);
            payload.resize(payload.len() + 600, 0);
        });
        bench.log.append(&mut victim, bench.digest).unwrap();
        // The frame starts in the second sector after the header; its last sector did not reach the disk.
        let sectors = victim.len().div_ceil(511) as u64;
        bench.disk.zero(file(1), 4096 + 512 + (sectors - 1) * 512, 512).unwrap();
        let log = check_image(&bench.disk, &bench.acknowledged);
        assert_eq!(log.recovery().cut, Some((Position(2), (sectors - 1) * 512)));
    }
}

#[test]
fn create_does_not_touch_a_log_with_frames() {
    let create = |disk: &SimFs| LocalLog::create(Arc::new(disk.clone()), dir(), LogId(2), SEGMENT);
    let bench = Bench::with(&[10]);
    let before = contents(&bench.disk);
    assert!(matches!(create(&bench.disk), Err(Error::Io { .. })));
    assert_eq!(contents(&bench.disk), before);
    // One that was created and never used is no loss.
    assert_eq!(create(&Bench::new().disk).unwrap().id(), LogId(2));
    // Nor is one whose header was being written; but what no creation can have left is.
    let header = Bench::new().disk.contents(file(1)).unwrap()[..60].to_vec();
    for (head, harmless) in [(&header[..20], true), (&b"something else"[..], false)] {
        let disk = SimFs::new();
        disk.create_dir(dir()).unwrap();
        let leftover = disk.open(&file(1), OpenMode::CreateNew).unwrap();
        leftover.allocate(0, 2 * SEGMENT).unwrap();
        leftover.write_at(0, head).unwrap();
        let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
        assert_eq!(LocalLog::create(fs, dir(), ID, SEGMENT).is_ok(), harmless, "{head:?}");
    }
}

#[test]
fn a_log_can_begin_where_another_history_ends() {
    let disk = SimFs::new();
    let digest = Digest([3; 16]);
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let mut log = LocalLog::create_at(fs, dir(), ID, SEGMENT, Position(70), digest).unwrap();
    assert_eq!(log.recovery().digest, digest);
    assert_eq!(log.append(&mut frame(1, 0, 10), digest), Ok(Position(70)));
    let log = open(&disk).unwrap();
    assert_eq!((log.first(), log.end(), log.digest_before_first()), (Position(70), Position(71), Some(digest)));
}

#[test]
fn foreign_and_newer_logs_are_refused_with_both_numbers() {
    let bench = Bench::with(&[10]);
    let before = contents(&bench.disk);
    let fs: Arc<dyn FileSystem> = Arc::new(bench.disk.clone());
    let error = LocalLog::open(fs, dir(), LogId(0xabc), SEGMENT).unwrap_err().to_string();
    assert!(error.contains("log 1122334455667788, expected 0000000000000abc"), "{error}");
    assert_eq!(contents(&bench.disk), before);

    let mut header = bench.disk.contents(file(1)).unwrap()[..60].to_vec();
    header[8] = 2;
    let crc = crc32fast::hash(&header[..56]);
    header[56..].copy_from_slice(&crc.to_le_bytes());
    bench.disk.damage(file(1), 0, &header).unwrap();
    let before = contents(&bench.disk);
    let error = open(&bench.disk).unwrap_err().to_string();
    assert!(error.contains("has format 2, this version reads up to 1"), "{error}");
    assert_eq!(contents(&bench.disk), before);
}

#[test]
fn the_header_of_a_segment_is_pinned() {
    let bench = Bench::with(&[3000; 4]);
    let bytes = bench.disk.contents(file(4)).unwrap();
    let hex: String = bytes[..56].iter().map(|byte| format!("{byte:02x}")).collect();
    let digest = bench.acknowledged[..3].iter().fold(Digest::default(), |digest, bytes| digest.chain(bytes));
    let wanted = format!("3c53505345474d54010000000000000088776655443322110400000000000000{digest:?}0040000000000000");
    assert_eq!(hex, wanted);
    assert_eq!(bytes[56..60], crc32fast::hash(&bytes[..56]).to_le_bytes());
    assert!(bytes[60..4096].iter().all(|byte| *byte == 0));
    assert_eq!((bytes[4096], bytes[4608], &bytes[4097..4101]), (0xa5, 0x5a, &b"SPF1"[..]));
}

#[test]
fn the_log_works_on_a_real_disk() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("log");
    let mut log = LocalLog::create(Arc::new(RealFs), &dir, ID, 1 << 20).unwrap();
    let mut digest = Digest::default();
    for number in 1..=30 {
        let mut frame = frame(number, 0, 100_000);
        let position = log.append(&mut frame, digest).unwrap();
        digest = digest.chain(frame.stamp(ID, position));
    }
    log.trim(Position(12)).unwrap();
    let before = read_all(&mut log);
    drop(log);
    let mut log = LocalLog::open(Arc::new(RealFs), &dir, ID, 1 << 20).unwrap();
    assert_eq!((log.first(), log.end(), log.recovery().digest), (Position(10 + 1), Position(31), digest));
    assert_eq!(read_all(&mut log), before);
}
