//! Each planted fault against all suites, and no fault against all of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use storage::failpoints::{Planted, Scope};

use super::{guarded, suites};
use crate::model::rng::{seed, setting};

/// What the suites find with a fault: the suite, what it says, and in which round. Every second round has small limits.
fn found(fault: Option<Planted>, first: u64, rounds: u64) -> Option<(&'static str, String, u64)> {
    for round in 0..rounds {
        for (name, suite) in suites::ALL {
            let (scope, seed) = (Scope::new(fault, round % 2 == 1), first.wrapping_add(round / 2));
            let inside: Arc<Scope> = scope.clone();
            if let Err(wrong) = guarded(&scope, move || suite(&inside, seed)) {
                return Some((name, wrong, round));
            }
        }
    }
    None
}

#[test]
fn every_planted_fault_is_caught() {
    let (first, rounds) = (seed(), setting("STERNPOST_TEST_PLANTED_ROUNDS", 16));
    let only = std::env::var("STERNPOST_TEST_PLANTED").ok();
    println!("seed={first}");
    let wanted = |fault: &Planted| only.as_ref().is_none_or(|only| format!("{fault:?}") == *only);
    let mut faults: VecDeque<Option<Planted>> = Planted::ALL.into_iter().filter(wanted).map(Some).collect();
    faults.push_front(None);
    let (faults, survivors, begun) = (Mutex::new(faults), Mutex::new(Vec::new()), Instant::now());
    let worker = || {
        loop {
            let Some(fault) = faults.lock().unwrap().pop_front() else { return };
            let (name, begun) = (fault.map_or("no fault".to_owned(), |fault| format!("{fault:?}")), Instant::now());
            let found = found(fault, first, rounds);
            let seconds = begun.elapsed().as_secs_f64();
            match (&found, fault) {
                (Some((suite, wrong, round)), _) => {
                    let wrong: String = wrong.lines().last().unwrap_or_default().chars().take(150).collect();
                    println!("{name:24} {suite:12} round {round} {seconds:6.2} s  {wrong}");
                }
                (None, _) => println!("{name:24} nothing found {seconds:6.2} s"),
            }
            // A fault must be found, and nothing where there is none.
            if found.is_some() != fault.is_some() {
                survivors.lock().unwrap().push((name, found));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(worker);
        }
    });
    let survivors = survivors.into_inner().unwrap();
    println!("seed={first}: {} faults, {rounds} rounds at most, in {:?}", Planted::ALL.len(), begun.elapsed());
    assert!(survivors.is_empty(), "seed={first}: {survivors:?}");
    assert!(Planted::ALL.len() >= 25, "25 faults are the least");
}
