//! Every failpoint, with everything that can happen at one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use storage::failpoints::{Action, Point, Scope};

use super::guarded;
use super::life::Life;
use crate::model::rng::{Rng, seed, setting};

/// Where a failed call is told to the caller and the keyspace goes on: nothing was begun, or it concerns a copy.
const SURVIVED: [Point; 19] = [
    Point::Creating,
    Point::OpenLog,
    Point::CutTail,
    Point::OpenBase,
    Point::Replay,
    Point::ReplayFrame,
    Point::Start,
    Point::Queue,
    Point::Append,
    Point::Reserve,
    Point::RewriteBegin,
    Point::RewriteRows,
    Point::RewriteChanges,
    Point::RewriteFinish,
    Point::Read,
    Point::CatchUp,
    Point::CaughtUp,
    Point::SnapshotPiece,
    Point::Import,
];

/// Also called for a copy, or before there is a keyspace: either may come.
const EITHER: [Point; 11] = [
    Point::ImportFinish,
    Point::Commit,
    Point::Committed,
    Point::Segment,
    Point::SegmentName,
    Point::FlushHistory,
    Point::FlushSmall,
    Point::FlushMeta,
    Point::Flush,
    Point::FlushPublish,
    Point::HubRevision,
];

/// One life with one thing going wrong. True if it happened.
fn case(scope: &Arc<Scope>, seed: u64, point: Point, nth: u64, action: Action) -> Result<bool, String> {
    let (inside, happened) = (scope.clone(), Arc::new(AtomicBool::new(false)));
    let told = happened.clone();
    guarded(scope, move || {
        let mut life = Life::new();
        inside.arm(point, nth, action);
        let (mut judged, mut rng) = (false, Rng::new(seed));
        life.live(&mut |life, killed| {
            if !inside.is_armed() && !std::mem::replace(&mut judged, true) && !killed {
                judge(life, point, action);
            }
            life.cut_power(&mut rng);
        });
        told.store(!inside.is_armed(), Ordering::Relaxed);
        inside.disarm();
        life.assert_nothing_is_lost();
        Ok(())
    })?;
    Ok(happened.load(Ordering::Relaxed))
}

/// What must have become of the keyspace in which it happened.
fn judge(life: &Life, point: Point, action: Action) {
    let (ended, told) = (!life.ended.is_empty(), life.panics > 0);
    match action {
        Action::Sleep(_) => assert!(!ended && !told && life.errors.is_empty(), "{:?}, {:?}", life.ended, life.errors),
        Action::Panic => assert!(ended || told, "a thread panicked, and nobody knows"),
        Action::Error if SURVIVED.contains(&point) => assert!(!ended, "ended by {:?}", life.ended),
        Action::Error if EITHER.contains(&point) => {}
        Action::Error => {
            let refused = life.errors.iter().any(|(call, _)| *call == "open");
            assert!(ended || refused, "an error that nobody knows of: {:?}", life.errors);
        }
    }
}

#[test]
fn every_failpoint_leaves_what_was_acknowledged_and_nobody_waiting() {
    let (first, rounds) = (seed(), setting("STERNPOST_TEST_FAILPOINT_ROUNDS", 1));
    println!("seed={first}");
    let begun = Instant::now();
    let dry = Scope::new(None, true);
    guarded(&dry, || {
        let mut life = Life::new();
        life.live(&mut |_, _| {});
        assert!(life.errors.is_empty() && life.panics == 0, "{:?}", life.errors);
        life.assert_nothing_is_lost();
        Ok(())
    })
    .unwrap_or_else(|error| panic!("with nothing going wrong: {error}"));
    let (mut rng, mut cases) = (Rng::new(first), 0);
    for point in Point::ALL {
        let passed = dry.passed(point);
        assert!(passed > 0, "no test comes by {point:?}");
        let errors = point.can_fail().then_some(Action::Error);
        let actions = [Action::Panic, Action::Sleep(Duration::from_millis(5))].into_iter().chain(errors);
        for action in actions {
            let mut happened = false;
            for round in 0..=rounds {
                // The first pass, and others; threads may come by less often than before.
                let nth = if round == 0 { 1 } else { 1 + rng.below(passed as usize) as u64 };
                let (scope, seed) = (Scope::new(None, true), rng.next());
                let case = case(&scope, seed, point, nth, action);
                happened |=
                    case.unwrap_or_else(|error| panic!("seed={first}: {point:?}, {action:?} at {nth}: {error}"));
                cases += 1;
            }
            assert!(happened, "seed={first}: {point:?}, {action:?} never happened");
        }
    }
    println!("seed={first}: {} failpoints, {cases} cases in {:?}", Point::ALL.len(), begun.elapsed());
    assert!(Point::ALL.len() >= 30, "30 failpoints are the least");
}
