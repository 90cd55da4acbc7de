//! Runs histories on two threads until enough was examined, and says how a failure is seen again.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::world::Wrong;

/// Threads that work on histories.
const THREADS: usize = 2;

/// What is wrong, and where.
#[derive(Debug)]
pub struct Stop {
    pub seed: u64,
    pub number: u64,
    pub place: String,
    pub wrong: Wrong,
}

impl Stop {
    pub fn new(seed: u64, number: u64, place: String, wrong: Wrong) -> Stop {
        Stop { seed, number, place, wrong }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, number {}, {}: {}", self.seed, self.number, self.place, self.wrong)
    }
}

/// Runs `history` for seeds from `first` on, in two threads, until `enough` says so. Panics at the first failure, with the command
/// that shows it again. `None` if that command was given, and nothing is wrong any more.
pub fn until_enough<T: Default + Send>(
    name: &str,
    first: u64,
    history: impl Fn(u64, Option<u64>, &mut T) -> Result<(), Stop> + Sync,
    add: impl Fn(&mut T, &T) + Sync,
    enough: impl Fn(&T) -> bool + Sync,
) -> Option<T> {
    let only = std::env::var("STERNPOST_TEST_NUMBER").ok().map(|text| text.parse().expect("a number"));
    let (total, next, failure) = (Mutex::new(T::default()), AtomicU64::new(0), Mutex::new(None));
    let work = || loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let alone = only.is_some() && number > 0;
        if alone || enough(&total.lock().unwrap()) || failure.lock().unwrap().is_some() {
            return;
        }
        let mut tally = T::default();
        let done = history(first.wrapping_add(number), only, &mut tally);
        add(&mut total.lock().unwrap(), &tally);
        if let Err(stop) = done {
            failure.lock().unwrap().get_or_insert(stop);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    if let Some(stop) = failure.into_inner().unwrap() {
        let Stop { seed, number, .. } = stop;
        panic!(
            "{stop}\nto see it again: STERNPOST_TEST_SEED={seed} STERNPOST_TEST_NUMBER={number} cargo test --test keyspace {name}"
        );
    }
    if let Some(only) = only {
        println!("number {only} of seed {first}: nothing is wrong");
        return None;
    }
    Some(total.into_inner().unwrap())
}
