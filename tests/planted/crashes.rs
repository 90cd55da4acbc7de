//! One crash after another, most of them while a frame is on its way: what was acknowledged is there, and every start succeeds.

use std::path::Path;
use std::sync::Arc;

use storage::failpoints::Scope;
use storage::fs::sim::{CrashStyle, Fault, FaultKind, Op, SimFs};
use storage::{Environment, Error, Key, KeyRange, Keyspace, Put, PutLease, PutValue, RangeRequest};

use crate::embedded::environment::{Counting, HandClock, never_flushing};
use crate::model::rng::Rng;

fn open(disk: &SimFs) -> Result<Keyspace, Error> {
    let entropy = Arc::new(Counting::default());
    let environment = Environment { fs: Arc::new(disk.clone()), clock: Arc::new(HandClock::default()), entropy };
    Keyspace::open(Path::new("/keyspace"), never_flushing(), environment)
}

/// Frames of a few sectors, so that they can be torn.
fn put(keyspace: &Keyspace, number: u64, rng: &mut Rng) -> Result<(), Error> {
    let (key, value) = (Key::new(format!("k{number:04}"))?, PutValue::Set(vec![b'.'; 1 + rng.below(2500)].into()));
    keyspace.put(Put { key, value, lease: PutLease::Detach, prev_kv: false }).wait().map(drop)
}

pub fn suite(_: &Arc<Scope>, seed: u64) -> Result<(), String> {
    let (mut rng, mut disk) = (Rng::new(seed), SimFs::new());
    let (mut acknowledged, mut number) = (Vec::new(), 0);
    for crash in 0..60 {
        let keyspace = open(&disk).map_err(|error| format!("after {crash} crashes: {error}"))?;
        let stored = keyspace.range(&RangeRequest::new(KeyRange::all())).map_err(|error| error.to_string())?;
        let stored: Vec<&[u8]> = stored.kvs.iter().map(|kv| kv.key.as_ref()).collect();
        for key in &acknowledged {
            if !stored.contains(&format!("k{key:04}").as_bytes()) {
                return Err(format!("after {crash} crashes: write {key} is lost"));
            }
        }
        // At the first sync, or at one soon after.
        let nth = if rng.chance(60) { 1 } else { 1 + rng.below(3) as u64 };
        let (kind, op) = *rng.pick(&[
            (FaultKind::Freeze, Op::Sync),
            (FaultKind::Partial, Op::Sync),
            (FaultKind::Partial, Op::Write),
        ]);
        disk.inject(Fault::new(kind, nth).on(op).in_file(".log"));
        loop {
            number += 1;
            if put(&keyspace, number, &mut rng).is_err() {
                break;
            }
            acknowledged.push(number);
        }
        disk.freeze();
        drop(keyspace);
        disk = match rng.below(5) {
            // The process goes, the system stays, with what it takes for written.
            0..2 => disk.restart(),
            2 => disk.crash(CrashStyle::KeepNone, rng.next()),
            _ => disk.crash(CrashStyle::Sectors, rng.next()),
        };
    }
    Ok(())
}
