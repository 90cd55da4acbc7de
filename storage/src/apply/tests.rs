//! Frames as no ordinary day brings them, straight into the state.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::base::Base;
use crate::fs::FileSystem;
use crate::fs::sim::SimFs;
use crate::recent::Part;
use crate::request::{Key, Put, PutLease, PutValue};
use crate::types::WriterId;

/// A state, and the frame that would come next.
struct Bench {
    state: State,
    sources: Sources,
    next: FrameHeader,
    _base: Base,
}

impl Bench {
    fn new() -> Bench {
        let fs: Arc<dyn FileSystem> = Arc::new(SimFs::new());
        fs.create_dir(Path::new("/data")).unwrap();
        let base = Base::create(&fs, Path::new("/data/base.redb"), 1 << 20).unwrap();
        let sources =
            Sources { active: Arc::new(Part::default()), frozen: None, base: base.snapshot().unwrap(), known: None };
        let next = FrameHeader {
            member: MemberId(1),
            generation: 1,
            writer: WriterId(11),
            number: 1,
            applied: Position(0),
            applied_digest: Digest::default(),
            time_ms: 5000,
        };
        Bench { state: State::new(base.small_tables().unwrap()), sources, next, _base: base }
    }

    /// Applies a frame, in its writer's name or another's. Its bytes do not matter here, only how many they are.
    fn apply(&mut self, header: FrameHeader, commands: &[Command]) -> Result<Effects, Error> {
        let position = self.state.applied.position.next();
        let digest = self.state.applied.digest.chain(&position.0.to_be_bytes());
        let effects =
            self.state.apply(&self.sources, &Incoming { header: &header, position, digest, commands, len: 700 });
        if effects.is_ok() {
            (self.next.applied, self.next.applied_digest) = (position, digest);
        }
        effects
    }

    /// The next frame of the same writer, so many milliseconds later.
    fn go_on(&mut self, later_ms: u64, commands: &[Command]) -> Vec<Outcome> {
        self.next.time_ms += later_ms;
        let effects = self.apply(self.next, commands).unwrap();
        self.next.number += 1;
        effects.outcomes
    }

    fn marks(&self) -> Vec<(u64, i64)> {
        self.sources.active.read().marks.iter().map(|(ms, revision)| (*ms, revision.0)).collect()
    }
}

fn put(key: &str) -> Command {
    let (key, value) = (Key::new(key.to_owned()).unwrap(), PutValue::Set("value".into()));
    Command::Put(Put { key, value, lease: PutLease::Detach, prev_kv: false })
}

#[test]
fn a_change_leaves_a_mark_once_a_second_and_nothing_else_does() {
    let mut bench = Bench::new();
    bench.go_on(0, &[Command::LeaseGrant(LeaseId(7), 10), Command::Compact(1)]);
    assert_eq!(bench.marks(), []);
    bench.go_on(0, &[put("a"), put("b")]);
    bench.go_on(999, &[put("a")]);
    assert_eq!(bench.marks(), [(5000, 2)]);
    bench.go_on(1, &[put("a")]);
    bench.go_on(5000, &[Command::Compact(2), Command::LeaseRenew(LeaseId(7))]);
    assert_eq!(bench.marks(), [(5000, 2), (6000, 5)]);
}

#[test]
fn time_does_not_run_backwards() {
    let mut bench = Bench::new();
    bench.go_on(0, &[put("a")]);
    bench.next.time_ms = 10;
    bench.go_on(0, &[put("a")]);
    assert_eq!(bench.state.applied.time_ms, 5000);
}

#[test]
fn a_part_counts_the_sectors_of_every_frame() {
    let mut bench = Bench::new();
    bench.go_on(0, &[Command::Compact(9)]);
    bench.go_on(0, &[]);
    assert_eq!(bench.sources.active.read().log_bytes, 2 * 1024);
}

#[test]
fn a_frame_that_was_applied_and_one_of_a_closed_writer_have_no_effect() {
    let mut bench = Bench::new();
    bench.go_on(0, &[put("a")]);
    let second = bench.next;
    bench.go_on(0, &[put("a")]);
    let repeated = FrameHeader { applied: bench.next.applied, applied_digest: bench.next.applied_digest, ..second };
    assert_eq!(bench.apply(repeated, &[put("a")]).unwrap().outcomes, []);
    // Another process that took the same generation, and came second.
    let rival = FrameHeader { writer: WriterId(12), ..bench.next };
    assert_eq!(bench.apply(rival, &[put("a")]).unwrap().outcomes, []);
    // The next process; then the one before it is closed, whatever its number.
    let successor = FrameHeader { generation: 2, writer: WriterId(13), number: 1, ..bench.next };
    assert_eq!(bench.apply(successor, &[put("a")]).unwrap().outcomes.len(), 1);
    let late = bench.next;
    assert_eq!(bench.apply(late, &[put("a")]).unwrap().outcomes, []);
    assert_eq!(bench.state.applied.revision, Revision(4), "three puts counted");
    assert_eq!(bench.state.applied.position, Position(6), "six frames passed");
}

#[test]
fn a_gap_and_another_history_are_faults() {
    let mut bench = Bench::new();
    bench.go_on(0, &[put("a")]);
    let fault = |bench: &mut Bench, header| match bench.apply(header, &[put("a")]) {
        Err(Error::LogMismatch { position, .. }) => position,
        other => panic!("{other:?}"),
    };
    let gap = FrameHeader { number: bench.next.number + 1, ..bench.next };
    assert_eq!(fault(&mut bench, gap), Position(2));
    let first_is_missing = FrameHeader { generation: 2, writer: WriterId(13), number: 2, ..bench.next };
    assert_eq!(fault(&mut bench, first_is_missing), Position(2));
    let elsewhere = FrameHeader { applied_digest: Digest([9; 16]), ..bench.next };
    assert_eq!(fault(&mut bench, elsewhere), Position(2));
    // What a writer had applied before that cannot be compared any more.
    let behind = FrameHeader { applied: Position(0), applied_digest: Digest([9; 16]), ..bench.next };
    assert_eq!(bench.apply(behind, &[put("a")]).unwrap().outcomes.len(), 1);
    let (header, digest) = (bench.next, bench.next.applied_digest);
    let skipped = Incoming { header: &header, position: Position(9), digest, commands: &[], len: 0 };
    assert!(matches!(bench.state.apply(&bench.sources, &skipped), Err(Error::LogMismatch { .. })));
}

#[test]
fn an_expiry_takes_the_lease_that_it_was_judged_by() {
    let mut bench = Bench::new();
    bench.go_on(0, &[Command::LeaseGrant(LeaseId(7), 10)]);
    let granted = bench.state.leases[&LeaseId(7)].mark;
    assert_eq!(granted, Position(1));
    bench.go_on(0, &[Command::LeaseRenew(LeaseId(7))]);
    let renewed = bench.state.leases[&LeaseId(7)];
    assert_eq!((renewed.mark, renewed.renewed, renewed.left_ms(u64::MAX)), (Position(2), true, 10_000));
    let late = bench.go_on(0, &[Command::LeaseExpire(LeaseId(7), granted)]);
    assert_eq!(late, [Ok(Reply::Done(Revision(1), false))]);
    let due = bench.go_on(0, &[Command::LeaseExpire(LeaseId(7), renewed.mark)]);
    assert_eq!(due, [Ok(Reply::Done(Revision(1), true))]);
    assert_eq!(
        bench.go_on(0, &[Command::LeaseExpire(LeaseId(7), renewed.mark)]),
        [Ok(Reply::Done(Revision(1), false))]
    );
}

#[test]
fn a_lease_has_left_what_it_had_less_the_time_that_the_log_saw() {
    let row = LeaseRow { ttl: 10, remaining_ms: 7000, since_ms: 1000, mark: Position(1), renewed: false };
    assert_eq!([0, 1000, 3500, 8000, 9000].map(|now| row.left_ms(now)), [7000, 7000, 4500, 0, 0]);
    let mut bench = Bench::new();
    bench.go_on(0, &[Command::LeaseGrant(LeaseId(7), 10)]);
    bench.go_on(4000, &[Command::LeaseRenew(LeaseId(7))]);
    bench.go_on(1000, &[put("a")]);
    // A start settles it as of the last frame before it: a renewed lease has all of its time.
    let successor = FrameHeader { generation: 2, writer: WriterId(13), number: 1, time_ms: 90_000, ..bench.next };
    bench.apply(successor, &[]).unwrap();
    let row = bench.state.leases[&LeaseId(7)];
    assert_eq!((row.remaining_ms, row.since_ms, row.renewed), (10_000, 90_000, false));
    // One that was not renewed keeps what it has left, until it is.
    bench.next =
        FrameHeader { number: 2, applied: bench.next.applied, applied_digest: bench.next.applied_digest, ..successor };
    bench.go_on(3000, &[put("a")]);
    let next = FrameHeader { generation: 3, writer: WriterId(14), number: 1, ..bench.next };
    bench.apply(next, &[]).unwrap();
    let row = bench.state.leases[&LeaseId(7)];
    assert_eq!((row.remaining_ms, row.since_ms), (7000, 93_000));
    bench.next =
        FrameHeader { number: 2, applied: bench.next.applied, applied_digest: bench.next.applied_digest, ..next };
    bench.go_on(1000, &[Command::LeaseRenew(LeaseId(7))]);
    let row = bench.state.leases[&LeaseId(7)];
    assert_eq!((row.remaining_ms, row.since_ms, row.renewed), (10_000, 94_000, true));
}

const MEMBER: MemberId = MemberId(1);

#[test]
fn under_the_alarm_for_damage_only_time_goes_on_and_the_alarm_can_be_cleared() {
    let mut bench = Bench::new();
    bench.go_on(0, &[Command::LeaseGrant(LeaseId(7), 10), Command::LeaseGrant(LeaseId(8), 10)]);
    let granted = bench.state.leases[&LeaseId(7)].mark;
    bench.go_on(0, &[Command::SetAlarm(MEMBER, AlarmKind::Corrupt, true)]);
    assert_eq!(bench.go_on(0, &[put("a"), Command::Compact(1)]), [Err(Error::CorruptAlarm), Err(Error::CorruptAlarm)]);
    assert_eq!(bench.go_on(0, &[Command::LeaseGrant(LeaseId(9), 10)]), [Err(Error::CorruptAlarm)]);
    let expiry = [Command::LeaseRenew(LeaseId(8)), Command::LeaseExpire(LeaseId(7), granted)];
    assert!(bench.go_on(0, &expiry).iter().all(Result::is_ok));
    assert!(!bench.state.leases.contains_key(&LeaseId(7)) && bench.state.leases[&LeaseId(8)].renewed);
    let rows = [Command::OutOfRoom(MEMBER, true), Command::SetAlarm(MEMBER, AlarmKind::Corrupt, false)];
    assert!(bench.go_on(0, &rows).iter().all(Result::is_ok));
    assert_eq!(bench.go_on(0, &[put("a")]), [Err(Error::NoSpace)], "the other alarm is left");
}

#[test]
fn the_alarm_for_room_has_two_origins_and_an_operator_clears_both() {
    let mut bench = Bench::new();
    let no_space = |raised| Command::SetAlarm(MEMBER, AlarmKind::NoSpace, raised);
    let done = |effect| [Ok(Reply::Done(Revision(1), effect))];
    let rows = |bench: &Bench| bench.state.alarms.iter().copied().collect::<Vec<_>>();
    let (own, asked) = ((MEMBER, AlarmRow::NoSpace), (MEMBER, AlarmRow::Asked(AlarmKind::NoSpace)));
    assert_eq!(bench.go_on(0, &[no_space(false)]), done(false));
    assert_eq!(bench.go_on(0, &[Command::OutOfRoom(MEMBER, true)]), done(true));
    assert_eq!(bench.go_on(0, &[no_space(true)]), done(true));
    assert_eq!(BTreeSet::from_iter(rows(&bench)), BTreeSet::from([own, asked]));
    assert_eq!(bench.go_on(0, &[Command::SetAlarm(MEMBER, AlarmKind::Corrupt, false)]), done(false));
    assert_eq!(rows(&bench).len(), 2, "an alarm of another kind clears nothing");
    assert_eq!(bench.go_on(0, &[Command::OutOfRoom(MEMBER, false)]), done(true));
    assert_eq!(rows(&bench), [asked], "the store clears what it raised");
    assert_eq!(bench.go_on(0, &[Command::OutOfRoom(MEMBER, true)]), done(true));
    assert_eq!(bench.go_on(0, &[no_space(false)]), done(true));
    assert_eq!(rows(&bench), []);
    let changed = &bench.sources.active.read().alarms;
    assert_eq!((changed.get(&own), changed.get(&asked)), (Some(&false), Some(&false)));
}

#[test]
fn what_needs_no_room_is_taken_without() {
    let mut bench = Bench::new();
    bench.go_on(0, &[put("a"), Command::OutOfRoom(MEMBER, true)]);
    assert!(bench.state.is_out_of_room(MEMBER));
    assert_eq!(bench.go_on(0, &[put("a")]), [Err(Error::NoSpace)]);
    assert!(bench.go_on(0, &[Command::Compact(2)])[0].is_ok());
    bench.go_on(0, &[Command::OutOfRoom(MEMBER, false)]);
    assert!(!bench.state.is_out_of_room(MEMBER) && bench.go_on(0, &[put("a")])[0].is_ok());
}
