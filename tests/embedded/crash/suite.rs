//! The suite: sized by environment variables, with small defaults; each test prints what it did, and how a failure is seen again.

use std::time::Instant;

use super::run::until_enough;
use crate::model::rng::{seed, setting};

#[test]
fn after_a_power_cut_at_any_moment_everything_acknowledged_is_there() {
    use super::images::{History, Tally};
    let first = seed();
    let images = setting("STERNPOST_TEST_IMAGES", 600);
    let in_recovery = setting("STERNPOST_TEST_RECOVERY_IMAGES", 120);
    println!("seed={first}");
    let begun = Instant::now();
    let Some(tally) = until_enough(
        "after_a_power_cut",
        first,
        |seed, only, tally| History::new(seed, only, tally).run(),
        Tally::add,
        |tally| tally.images >= images && tally.in_recovery() >= in_recovery,
    ) else {
        return;
    };
    println!("seed={first}: {:?}: {tally:#?}", begun.elapsed());
    for activity in ["append", "creation", "recovery", "segment", "trim", "flush", "sweep", "rewrite", "restore"] {
        assert!(tally.activities.contains_key(activity), "no cut during {activity}");
    }
    assert!(tally.images >= images && tally.in_recovery() >= in_recovery);
    assert!(tally.recoveries.iter().all(|count| *count > 0) && tally.survived > 0);
}

#[test]
fn what_happens_on_the_disk_follows_from_the_seed_and_not_from_the_threads() {
    let first = seed();
    println!("seed={first}");
    for seed in first..first + 8 {
        let record = || {
            let tape = super::images::record(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
            tape.steps().iter().map(|step| (step.path.clone(), step.deed.clone())).collect::<Vec<_>>()
        };
        let (one, other) = (record(), record());
        let same = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
        assert!(same == one.len() && one.len() == other.len() && same > 300, "seed {seed}: {same} of {}", one.len());
    }
}

#[test]
fn an_error_of_any_operation_of_the_disk_tells_nobody_a_lie() {
    use super::errors::{EVERY_ERROR, Tally, script};
    let (first, errors) = (seed(), setting("STERNPOST_TEST_IO_ERRORS", 300));
    // A few take one in so many of a script, many take each.
    let every = (EVERY_ERROR / errors.max(1)).max(1);
    println!("seed={first}");
    let begun = Instant::now();
    let enough = |tally: &Tally| tally.errors >= errors;
    let script = |seed, only, tally: &mut Tally| script(seed, every, only, tally);
    let name = "an_error_of_any_operation";
    let Some(tally) = until_enough(name, first, script, Tally::add, enough) else { return };
    println!("seed={first}: {:?}: {tally:#?}", begun.elapsed());
    assert!(tally.errors >= errors);
    assert!(tally.told["outcome unknown"] > 0 && tally.happened > 0 && tally.had_not > 0);
}

#[test]
fn rot_is_found_and_never_served() {
    use super::rot::{Tally, do_part, history};
    if do_part() {
        return;
    }
    let (first, flips) = (seed(), setting("STERNPOST_TEST_FLIPS", 300));
    println!("seed={first}");
    let begun = Instant::now();
    let enough = |tally: &Tally| tally.damages >= flips;
    let Some(tally) = until_enough("rot_is_found", first, history, Tally::add, enough) else { return };
    println!("seed={first}: {:?}: {tally:#?}", begun.elapsed());
    assert!(tally.damages >= flips);
    assert!(tally.ended("Refused") > 0 && tally.ended("Read") > 0 && tally.ended("Harmless") > 0);
}
