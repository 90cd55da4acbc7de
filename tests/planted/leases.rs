//! Leases at their edges: a renewal that is as late as can be, and the time between two processes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use storage::failpoints::{Action, Point, Scope};
use storage::fs::sim::SimFs;
use storage::{Environment, Error, Key, Keyspace, LeaseId, Put, PutLease, PutValue};

use crate::embedded::environment::{Counting, HandClock, never_flushing};

const LEASE: LeaseId = LeaseId(7);

struct Scene {
    disk: SimFs,
    clock: Arc<HandClock>,
}

impl Scene {
    fn open(&self) -> Result<Keyspace, Error> {
        let entropy = Arc::new(Counting::default());
        let environment = Environment { fs: Arc::new(self.disk.clone()), clock: self.clock.clone(), entropy };
        Keyspace::open(Path::new("/keyspace"), never_flushing(), environment)
    }
}

fn put(keyspace: &Keyspace) -> Result<(), Error> {
    let (key, value) = (Key::new("leased")?, PutValue::Set("value".into()));
    keyspace.put(Put { key, value, lease: PutLease::Attach(LEASE), prev_kv: false }).wait().map(drop)
}

fn left(keyspace: &Keyspace) -> Result<Option<i64>, Error> {
    Ok(keyspace.lease_time_to_live(LEASE, false)?.map(|time| time.ttl))
}

pub fn suite(scope: &Arc<Scope>, _: u64) -> Result<(), String> {
    late_renewal(scope).map_err(|error| error.to_string())??;
    downtime().map_err(|error| error.to_string())?
}

/// A renewal is in the queue when the lease runs out: both are in one frame, and the renewal is the first of them.
fn late_renewal(scope: &Arc<Scope>) -> Result<Result<(), String>, Error> {
    let scene = Scene { disk: SimFs::new(), clock: Arc::new(HandClock::default()) };
    let keyspace = scene.open()?;
    keyspace.lease_grant(Some(LEASE), 10).wait()?;
    put(&keyspace)?;
    scene.clock.advance(Duration::from_millis(9_900));
    let passed = scope.passed(Point::Due);
    scope.arm(Point::Due, 1, Action::Sleep(Duration::from_millis(50)));
    let renewal = {
        let keyspace = keyspace.clone();
        std::thread::spawn(move || keyspace.lease_keep_alive(LEASE).wait())
    };
    // The renewal is taken from the queue; what has run out is looked for after that.
    while scope.passed(Point::Due) == passed {
        std::thread::yield_now();
    }
    scene.clock.advance(Duration::from_millis(200));
    let renewed = renewal.join().expect("it does not panic")?;
    keyspace.poke();
    let left = left(&keyspace)?;
    keyspace.close()?;
    let fits = renewed == Some(10) && left.is_some_and(|left| left >= 9);
    Ok(if fits { Ok(()) } else { Err(format!("renewed: {renewed:?}, and {left:?} s are left")) })
}

/// Two starts, each after a long time in which no process ran, with a frame in between.
fn downtime() -> Result<Result<(), String>, Error> {
    let scene = Scene { disk: SimFs::new(), clock: Arc::new(HandClock::default()) };
    let keyspace = scene.open()?;
    keyspace.lease_grant(Some(LEASE), 100).wait()?;
    keyspace.close()?;
    for _ in 0..2 {
        scene.clock.advance(Duration::from_secs(60));
        let keyspace = scene.open()?;
        put(&keyspace)?;
        keyspace.close()?;
    }
    let keyspace = scene.open()?;
    let left = left(&keyspace)?;
    keyspace.close()?;
    let fits = left.is_some_and(|left| left >= 99);
    Ok(if fits { Ok(()) } else { Err(format!("{left:?} s of 100 are left, and no process ran meanwhile")) })
}
