//! One crash after another, most of them while a frame is on its way: what was acknowledged is there, and every start succeeds.

use std::path::Path;
use std::sync::Arc;

use storage::failpoints::Scope;
use storage::fs::sim::{CrashStyle, Fault, FaultKind, Op, SimFs};
use storage::{Environment, Error, Key, KeyRange, Keyspace, Options, Put, PutLease, PutValue, RangeRequest};

use super::life::tiny;
use crate::embedded::environment::{Counting, HandClock, never_flushing};
use crate::model::rng::Rng;

fn open(disk: &SimFs, options: &Options) -> Result<Keyspace, Error> {
    let entropy = Arc::new(Counting::default());
    let environment = Environment { fs: Arc::new(disk.clone()), clock: Arc::new(HandClock::default()), entropy };
    Keyspace::open(Path::new("/keyspace"), options.clone(), environment)
}

/// Frames of a few sectors, so that they can be torn.
fn put(keyspace: &Keyspace, number: u64, rng: &mut Rng) -> Result<(), Error> {
    let (key, value) = (Key::new(format!("k{number:04}"))?, PutValue::Set(vec![b'.'; 1 + rng.below(2500)].into()));
    keyspace.put(Put { key, value, lease: PutLease::Detach, prev_kv: false }).wait().map(drop)
}

pub fn suite(_: &Arc<Scope>, seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    many(&mut rng, 100, never_flushing(), |rng| {
        // At the first frame that is written, or at one soon after.
        let nth = if rng.chance(60) { 1 } else { 1 + rng.below(3) as u64 };
        let faults = [(FaultKind::Freeze, Op::Sync), (FaultKind::Partial, Op::Sync), (FaultKind::Partial, Op::Write)];
        let (kind, op) = *rng.pick(&faults);
        Fault::new(kind, nth).on(op).in_file(".log")
    })?;
    // Anywhere, while parts are flushed all the time.
    many(&mut rng, 40, tiny(), |rng| Fault::new(FaultKind::Freeze, 1 + rng.below(60) as u64))
}

fn many(rng: &mut Rng, crashes: u64, options: Options, mut fault: impl FnMut(&mut Rng) -> Fault) -> Result<(), String> {
    let mut disk = SimFs::new();
    let (mut acknowledged, mut number) = (Vec::new(), 0);
    for crash in 0..crashes {
        let keyspace = open(&disk, &options).map_err(|error| format!("after {crash} crashes: {error}"))?;
        let stored = keyspace.range(&RangeRequest::new(KeyRange::all())).map_err(|error| error.to_string())?;
        let stored: Vec<&[u8]> = stored.kvs.iter().map(|kv| kv.key.as_ref()).collect();
        for key in &acknowledged {
            if !stored.contains(&format!("k{key:04}").as_bytes()) {
                return Err(format!("after {crash} crashes: write {key} is lost"));
            }
        }
        disk.inject(fault(rng));
        for _ in 0..30 {
            number += 1;
            if put(&keyspace, number, rng).is_err() {
                break;
            }
            acknowledged.push(number);
        }
        disk.freeze();
        drop(keyspace);
        disk = match rng.below(10) {
            // The process goes, the system stays, with what it takes for written.
            0..3 => disk.restart(),
            3 => disk.crash(CrashStyle::KeepNone, rng.next()),
            _ => disk.crash(CrashStyle::Sectors, rng.next()),
        };
    }
    Ok(())
}
