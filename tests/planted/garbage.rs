//! Compaction drops what nobody can read, all of it, through kills; and base still adds up.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use storage::failpoints::{Point, Scope};
use storage::fs::FileSystem;
use storage::fs::sim::SimFs;
use storage::{
    DeleteRange, Environment, Key, KeyRange, Keyspace, Put, PutLease, PutValue, RangeRequest, Revision, RevisionPair,
};

use super::life::tiny;
use crate::embedded::environment::{Counting, HandClock};
use crate::model::rng::Rng;

pub fn suite(scope: &Arc<Scope>, seed: u64) -> Result<(), String> {
    swept_no_further_than_base(scope).map_err(|error| error.to_string())?;
    deleted_for_good().map_err(|error| error.to_string())??;
    for round in 0..6 {
        one(&mut Rng::new(seed.wrapping_mul(6).wrapping_add(round))).map_err(|error| error.to_string())??;
    }
    Ok(())
}

fn open(disk: &SimFs) -> Result<Keyspace, storage::Error> {
    let entropy = Arc::new(Counting::default());
    let environment = Environment { fs: Arc::new(disk.clone()), clock: Arc::new(HandClock::default()), entropy };
    Keyspace::open(Path::new("/keyspace"), tiny(), environment)
}

fn put(keyspace: &Keyspace, key: &str, bytes: usize) -> Result<(), storage::Error> {
    let (key, value) = (Key::new(key.to_owned())?, PutValue::Set(vec![b'.'; bytes].into()));
    keyspace.put(Put { key, value, lease: PutLease::Detach, prev_kv: false }).wait().map(drop)
}

fn delete(keyspace: &Keyspace, key: &str) -> Result<(), storage::Error> {
    let range = KeyRange::single(Key::new(key.to_owned())?);
    keyspace.delete_range(DeleteRange { range, prev_kv: false }).wait().map(drop)
}

/// Everything is compacted, but only a part of it is in base: the sweep goes as far as that.
fn swept_no_further_than_base(scope: &Scope) -> Result<(), storage::Error> {
    let disk = SimFs::new();
    let keyspace = open(&disk)?;
    // Few enough for one step, however small.
    put(&keyspace, "k", 10)?;
    put(&keyspace, "k", 10)?;
    keyspace.flush()?;
    put(&keyspace, "k", 10)?;
    let before = scope.passed(Point::Committed);
    keyspace.compact(keyspace.revision().0).wait()?;
    while scope.passed(Point::Committed) == before {
        std::thread::yield_now();
    }
    looked_at(&disk.restart())
}

fn looked_at(disk: &SimFs) -> Result<(), storage::Error> {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let report = storage::verify(Path::new("/keyspace"), &fs, 1 << 20)?;
    report.damage.first().map_or(Ok(()), |damage| Err(damage.clone()))
}

/// A key with many versions in base is deleted, and what made them unreadable is compacted, before the deletion gets there.
fn deleted_for_good() -> Result<Result<(), String>, storage::Error> {
    let keyspace = open(&SimFs::new())?;
    for _ in 0..6 {
        put(&keyspace, "gone", 10)?;
    }
    keyspace.flush()?;
    delete(&keyspace, "gone")?;
    put(&keyspace, "other", 10)?;
    keyspace.compact(keyspace.revision().0).wait()?;
    keyspace.flush()?;
    let found = keyspace.range(&RangeRequest::new(KeyRange::all()))?;
    keyspace.close()?;
    Ok(if found.count == 1 { Ok(()) } else { Err(format!("what was deleted is back: {:?}", found.kvs)) })
}

fn one(rng: &mut Rng) -> Result<Result<(), String>, storage::Error> {
    let mut disk = SimFs::new();
    let mut keyspace = open(&disk)?;
    let mut floor = -1;
    for _ in 0..60 {
        let key = format!("k{}", rng.below(5));
        match rng.below(20) {
            0..12 => put(&keyspace, &key, 10 + 90 * rng.below(2))?,
            12..15 => delete(&keyspace, &key)?,
            15 => {
                disk.freeze();
                drop(keyspace);
                disk = disk.restart();
                looked_at(&disk)?;
                keyspace = open(&disk)?;
            }
            16 => keyspace.verify()?,
            17 => drop(keyspace.defragment()),
            _ => {
                let current = keyspace.revision().0;
                floor = rng.between(floor.max(1), current).max(floor);
                if keyspace.compact(floor).wait().is_ok() && rng.chance(50) {
                    keyspace.wait_swept(Revision(floor))?;
                }
            }
        }
    }
    let floor = keyspace.status().compacted;
    keyspace.wait_swept(floor)?;
    let (mut kept, mut from) = (BTreeMap::new(), Revision(1));
    loop {
        let changes = keyspace.stored_changes(from, floor, 1 << 20)?;
        let Some(last) = changes.last().map(|change| change.at.main) else { break };
        for change in &changes {
            let before: Option<&RevisionPair> = kept.get(&change.key);
            let below = change.at.main < floor;
            if before.is_some() || (below && change.key_value().is_none()) {
                return Ok(Err(format!("swept to {floor}, but {:?} has {before:?} and {:?}", change.key, change.at)));
            }
            // What was written at the compacted revision itself can be seen by who watches from there.
            if below {
                kept.insert(change.key.clone(), change.at);
            }
        }
        from = last.next();
    }
    keyspace.verify()?;
    keyspace.close()?;
    Ok(Ok(()))
}
