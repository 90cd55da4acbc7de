//! What the log in memory does on a bad day.

use super::{ID, frame};
use crate::error::Error;
use crate::log::frame::{Frame, MAX_FRAME_LEN};
use crate::log::{AppendError, Log, MemoryLog, Trick};
use crate::types::{Digest, Position};

/// The numbers that the writer gave to the frames, in the log's order; positions and stamps are checked.
fn numbers(log: &MemoryLog) -> Vec<u64> {
    let mut log = log.clone();
    let frames = log.read(log.first(), usize::MAX).unwrap();
    let checked = frames.iter().zip(log.first().0..).map(|(stored, position)| {
        let frame = Frame::decode(&stored.bytes).unwrap();
        assert_eq!((frame.log, frame.position, stored.position), (ID, Position(position), Position(position)));
        frame.header.number
    });
    checked.collect()
}

fn append(log: &MemoryLog, number: u64) -> Result<Position, AppendError> {
    log.clone().append(&mut frame(number, 1, 10), Digest::default())
}

/// Appends frames 1, 2, 3 ... with these tricks; the answers and the log afterwards.
fn play(tricks: &[Trick]) -> (Vec<Result<u64, AppendError>>, Vec<u64>) {
    let log = MemoryLog::new(ID);
    tricks.iter().for_each(|trick| log.play(*trick));
    let answers = (1..=tricks.len() as u64).map(|number| append(&log, number).map(|position| position.0)).collect();
    (answers, numbers(&log))
}

#[test]
fn a_process_that_starts_again_finds_the_same_log() {
    let log = MemoryLog::new(ID);
    assert_eq!((log.first(), log.end()), (Position(1), Position(1)));
    assert_eq!((append(&log, 1), append(&log, 2)), (Ok(Position(1)), Ok(Position(2))));
    let mut again = log.clone();
    drop(log);
    assert_eq!((again.end(), numbers(&again)), (Position(3), vec![1, 2]));
    assert_eq!(again.read(Position(1), 1).unwrap().len(), 1);
    assert!(again.read(Position(3), 1).unwrap().is_empty() && again.size_bytes() > 200);
    let size = MAX_FRAME_LEN + 1;
    let mut large = frame(1, 0, size - frame(1, 0, 0).len());
    let limit = MAX_FRAME_LEN;
    assert_eq!(again.append(&mut large, Digest::default()), Err(AppendError::TooLarge { size, limit }));
}

#[test]
fn tricks_do_what_they_say() {
    use AppendError::{Full, Unknown};
    use Trick::{Delay, LoseAnswer, None as Plain, Repeat};
    let lost = LoseAnswer { appended: true };
    let gone = LoseAnswer { appended: false };
    assert_eq!(play(&[lost, Plain]), (vec![Err(Unknown), Ok(2)], vec![1, 2]));
    assert_eq!(play(&[gone, Plain]), (vec![Err(Unknown), Ok(1)], vec![2]));
    assert_eq!(play(&[Repeat { calls: 0 }, Plain]), (vec![Ok(1), Ok(3)], vec![1, 1, 2]));
    assert_eq!(play(&[Repeat { calls: 1 }, Plain, Plain]), (vec![Ok(1), Ok(2), Ok(4)], vec![1, 2, 1, 3]));
    assert_eq!(play(&[Delay { calls: 1 }, Plain, Plain]), (vec![Err(Unknown), Ok(1), Ok(3)], vec![2, 1, 3]));
    // Here the call that fetches it is the read at the end.
    assert_eq!(play(&[Delay { calls: 2 }, Plain]), (vec![Err(Unknown), Ok(1)], vec![2, 1]));
    assert_eq!(play(&[Delay { calls: 3 }, Plain]), (vec![Err(Unknown), Ok(1)], vec![2]));
    assert_eq!(play(&[Trick::Full, Plain]), (vec![Err(Full), Ok(1)], vec![2]));
}

#[test]
fn a_full_log_takes_frames_again_and_a_failed_one_never() {
    let log = MemoryLog::new(ID);
    log.set_full(true);
    assert_eq!((append(&log, 1), append(&log, 1)), (Err(AppendError::Full), Err(AppendError::Full)));
    log.set_full(false);
    assert_eq!(append(&log, 1), Ok(Position(1)));
    log.fail();
    assert!(matches!(append(&log, 2), Err(AppendError::Final(Error::Io { .. }))));
    assert!(log.clone().read(Position(1), 1).is_err() && log.clone().trim(Position(1)).is_err());
}

#[test]
fn rewritten_history_is_valid_and_has_another_digest() {
    let log = MemoryLog::new(ID);
    (1..=3).for_each(|number| assert!(append(&log, number).is_ok()));
    let digest = |log: &MemoryLog| {
        let frames = log.clone().read(Position(1), usize::MAX).unwrap();
        frames.iter().fold(Digest::default(), |digest, frame| digest.chain(&frame.bytes))
    };
    let before = digest(&log);
    assert!(log.rewrite(Position(2)) && !log.rewrite(Position(4)) && !log.rewrite(Position(0)));
    assert_ne!(digest(&log), before);
    assert_eq!(numbers(&log), [1, 2, 3]);
    assert!(log.rewrite_with(Position(2), &mut frame(9, 1, 1)));
    assert_eq!(numbers(&log), [1, 9, 3]);
    log.forget_from(Position(3));
    assert_eq!((numbers(&log), log.end()), (vec![1, 9], Position(3)));
}

#[test]
fn trimming_keeps_the_digest_before_the_first_frame() {
    let mut log = MemoryLog::new(ID);
    (1..=5).for_each(|number| assert!(append(&log, number).is_ok()));
    let frames = log.read(Position(1), usize::MAX).unwrap();
    let before = frames[..3].iter().fold(Digest::default(), |digest, frame| digest.chain(&frame.bytes));
    log.trim(Position(4)).unwrap();
    assert_eq!((log.first(), log.end(), log.digest_before_first()), (Position(4), Position(6), Some(before)));
    assert!(matches!(log.read(Position(3), 1), Err(Error::LogMismatch { position: Position(3), .. })));
    log.trim(Position(100)).unwrap();
    assert_eq!((log.first(), log.end()), (Position(6), Position(6)));
    assert_eq!(append(&log, 6), Ok(Position(6)));
}

#[test]
fn chaos_follows_from_its_seed_and_never_breaks_the_log_itself() {
    let run = |seed| {
        let log = MemoryLog::new(ID);
        log.chaos(seed, 40);
        let answers: Vec<_> = (1..=200).map(|number| append(&log, number)).collect();
        (answers, numbers(&log))
    };
    let mut unknown = 0;
    for seed in 0..20 {
        let (answers, numbers) = run(seed);
        assert_eq!(run(seed), (answers.clone(), numbers.clone()));
        for (answer, number) in answers.iter().zip(1..) {
            match answer {
                Ok(position) => assert_eq!(numbers[position.0 as usize - 1], number),
                Err(AppendError::Full) => assert!(!numbers.contains(&number)),
                Err(AppendError::Unknown) => unknown += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
    }
    assert!(unknown > 400);
}
