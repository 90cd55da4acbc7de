//! Leases at their edges: a renewal that is as late as can be, and the time between two processes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use storage::failpoints::{Action, Point, Scope};
use storage::fs::sim::SimFs;
use storage::{Error, Keyspace, LeaseId};

use super::{Checked, DIR, environment, put};
use crate::embedded::environment::{HandClock, never_flushing};

const LEASE: LeaseId = LeaseId(7);

pub fn suite(scope: &Arc<Scope>, _: u64) -> Checked {
    late_renewal(scope)?;
    downtime()
}

fn open(disk: &SimFs, clock: &Arc<HandClock>) -> Result<Keyspace, Error> {
    Keyspace::open(Path::new(DIR), never_flushing(), environment(disk, clock))
}

fn left(keyspace: &Keyspace) -> Result<Option<i64>, Error> {
    Ok(keyspace.lease_time_to_live(LEASE, false)?.map(|time| time.ttl))
}

/// A renewal is in the queue when the lease runs out: both are in one frame, and the renewal is the first of them.
fn late_renewal(scope: &Arc<Scope>) -> Checked {
    let clock = Arc::new(HandClock::default());
    let keyspace = open(&SimFs::new(), &clock)?;
    keyspace.lease_grant(Some(LEASE), 10).wait()?;
    clock.advance(Duration::from_millis(9_900));
    let passed = scope.passed(Point::Due);
    scope.arm(Point::Due, 1, Action::Sleep(Duration::from_millis(50)));
    let renewal = {
        let keyspace = keyspace.clone();
        std::thread::spawn(move || keyspace.lease_keep_alive(LEASE).wait())
    };
    // The renewal was taken from the queue; what has run out is looked for after that.
    while scope.passed(Point::Due) == passed {
        std::thread::yield_now();
    }
    clock.advance(Duration::from_millis(200));
    let renewed = renewal.join().expect("it does not panic")?;
    let left = left(&keyspace)?;
    keyspace.close()?;
    let fits = renewed == Some(10) && left.is_some_and(|left| left >= 9);
    if fits { Ok(()) } else { Err(format!("renewed: {renewed:?}, and {left:?} s are left").into()) }
}

/// Two starts, each after a long time in which no process ran, with a frame in between.
fn downtime() -> Checked {
    let (disk, clock) = (SimFs::new(), Arc::new(HandClock::default()));
    let keyspace = open(&disk, &clock)?;
    keyspace.lease_grant(Some(LEASE), 100).wait()?;
    keyspace.close()?;
    for _ in 0..2 {
        clock.advance(Duration::from_secs(60));
        let keyspace = open(&disk, &clock)?;
        put(&keyspace, "key", "value")?;
        keyspace.close()?;
    }
    let keyspace = open(&disk, &clock)?;
    let left = left(&keyspace)?;
    keyspace.close()?;
    let fits = left.is_some_and(|left| left >= 99);
    if fits { Ok(()) } else { Err(format!("{left:?} s of 100 are left, and no process ran meanwhile").into()) }
}
