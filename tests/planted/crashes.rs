//! One crash after another, most of them while a frame is on its way: what was acknowledged is there, and every start succeeds.

use std::sync::Arc;

use storage::failpoints::Scope;
use storage::fs::sim::{CrashStyle, Fault, FaultKind, Op, SimFs};
use storage::{KeyRange, Options, RangeRequest};

use super::{Checked, open, put, tiny};
use crate::embedded::environment::never_flushing;
use crate::model::rng::Rng;

pub fn suite(_: &Arc<Scope>, seed: u64) -> Checked {
    let mut rng = Rng::new(seed);
    many(&mut rng, 100, &never_flushing(), |rng| {
        // At the first frame that is written, or at one soon after.
        let nth = if rng.chance(60) { 1 } else { 1 + rng.below(3) as u64 };
        let faults = [(FaultKind::Freeze, Op::Sync), (FaultKind::Partial, Op::Sync), (FaultKind::Partial, Op::Write)];
        let (kind, op) = *rng.pick(&faults);
        Fault::new(kind, nth).on(op).in_file(".log")
    })?;
    renamed()?;
    // Anywhere, while parts are flushed all the time.
    many(&mut rng, 40, &tiny(), |rng| Fault::new(FaultKind::Freeze, 1 + rng.below(60) as u64))
}

/// Base was rewritten and has gone on since, further than the old one would reach with what the log still has.
fn renamed() -> Checked {
    let disk = SimFs::new();
    let keyspace = open(&disk, tiny())?;
    put(&keyspace, "key", "value")?;
    keyspace.defragment().wait()?;
    for _ in 0..40 {
        put(&keyspace, "key", "value")?;
    }
    keyspace.flush()?;
    let revision = put(&keyspace, "key", "value")?.revision;
    disk.freeze();
    drop(keyspace);
    let keyspace = open(&disk.crash(CrashStyle::KeepNone, 0), tiny())?;
    let found = keyspace.revision();
    if found == revision { Ok(()) } else { Err(format!("revision {found}, {revision} was acknowledged").into()) }
}

fn many(rng: &mut Rng, crashes: u64, options: &Options, fault: impl Fn(&mut Rng) -> Fault) -> Checked {
    let (mut disk, mut acknowledged, mut number) = (SimFs::new(), Vec::new(), 0);
    for crash in 0..crashes {
        let keyspace = open(&disk, options.clone()).map_err(|error| format!("after {crash} crashes: {error}"))?;
        let stored = keyspace.range(&RangeRequest::new(KeyRange::all()))?;
        let stored: Vec<&[u8]> = stored.kvs.iter().map(|kv| kv.key.as_ref()).collect();
        for key in &acknowledged {
            if !stored.contains(&name(*key).as_bytes()) {
                return Err(format!("after {crash} crashes: write {key} is lost").into());
            }
        }
        disk.inject(fault(rng));
        for _ in 0..30 {
            number += 1;
            // Frames of a few sectors, so that they can be torn.
            if put(&keyspace, &name(number), vec![b'.'; 1 + rng.below(2500)]).is_err() {
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

fn name(number: u64) -> String {
    format!("k{number:04}")
}
