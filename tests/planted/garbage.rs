//! Compaction drops what nobody can read, all of it and nothing else, through kills; and base still adds up.

use std::collections::BTreeMap;
use std::sync::Arc;

use storage::failpoints::{Point, Scope};
use storage::fs::sim::SimFs;
use storage::{DeleteRange, Error, Key, KeyRange, Keyspace, RangeRequest, Revision, RevisionPair};

use super::{Checked, look, open, put, tiny};
use crate::model::rng::Rng;

pub fn suite(scope: &Arc<Scope>, seed: u64) -> Checked {
    swept_no_further_than_base(scope)?;
    deleted_for_good()?;
    deleted_at_the_floor()?;
    (0..6).try_for_each(|round| at_random(&mut Rng::new(seed.wrapping_mul(6).wrapping_add(round))))
}

fn delete(keyspace: &Keyspace, key: &str) -> Result<(), Error> {
    let range = KeyRange::single(Key::new(key.to_owned())?);
    keyspace.delete_range(DeleteRange { range, prev_kv: false }).wait().map(drop)
}

/// Everything is compacted, but only a part of it is in base: the sweep goes as far as that.
fn swept_no_further_than_base(scope: &Scope) -> Checked {
    let disk = SimFs::new();
    let keyspace = open(&disk, tiny())?;
    // Few enough for one step, however small.
    put(&keyspace, "k", "1")?;
    put(&keyspace, "k", "2")?;
    keyspace.flush()?;
    put(&keyspace, "k", "3")?;
    let before = scope.passed(Point::Committed);
    keyspace.compact(keyspace.revision().0).wait()?;
    while scope.passed(Point::Committed) == before {
        std::thread::yield_now();
    }
    Ok(look(&disk.restart())?)
}

/// A key with many versions in base is deleted, and what made them unreadable is compacted, before the deletion gets there.
fn deleted_for_good() -> Checked {
    let keyspace = open(&SimFs::new(), tiny())?;
    for _ in 0..6 {
        put(&keyspace, "gone", "value")?;
    }
    keyspace.flush()?;
    delete(&keyspace, "gone")?;
    put(&keyspace, "other", "value")?;
    keyspace.compact(keyspace.revision().0).wait()?;
    keyspace.flush()?;
    let found = keyspace.range(&RangeRequest::new(KeyRange::all()))?;
    keyspace.close()?;
    if found.count == 1 { Ok(()) } else { Err(format!("what was deleted is back: {:?}", found.kvs).into()) }
}

/// A deletion at exactly the compacted revision stays for those who watch from there.
fn deleted_at_the_floor() -> Checked {
    let keyspace = open(&SimFs::new(), tiny())?;
    put(&keyspace, "gone", "value")?;
    delete(&keyspace, "gone")?;
    keyspace.flush()?;
    let floor = keyspace.revision();
    keyspace.compact(floor.0).wait()?;
    keyspace.wait_swept(floor)?;
    let stored = keyspace.stored_changes(floor, floor, 1 << 20)?;
    keyspace.close()?;
    if stored.len() == 1 { Ok(()) } else { Err(format!("at {floor} a key was deleted, stored is {stored:?}").into()) }
}

fn at_random(rng: &mut Rng) -> Checked {
    let mut disk = SimFs::new();
    let mut keyspace = open(&disk, tiny())?;
    let mut floor = -1;
    for _ in 0..60 {
        let key = format!("k{}", rng.below(5));
        match rng.below(20) {
            0..12 => drop(put(&keyspace, &key, vec![b'.'; 10 + 90 * rng.below(2)])?),
            12..15 => delete(&keyspace, &key)?,
            15 => {
                disk.freeze();
                drop(keyspace);
                disk = disk.restart();
                look(&disk)?;
                keyspace = open(&disk, tiny())?;
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
    nothing_is_left(&keyspace, floor)?;
    keyspace.verify()?;
    Ok(keyspace.close()?)
}

/// Each key has one version up to the compacted revision, and it is no deletion; what was written at that revision itself can be seen by who
/// watches from there.
fn nothing_is_left(keyspace: &Keyspace, floor: Revision) -> Checked {
    let (mut kept, mut from) = (BTreeMap::new(), Revision(1));
    loop {
        let changes = keyspace.stored_changes(from, floor, 1 << 20)?;
        let Some(last) = changes.last().map(|change| change.at.main) else { return Ok(()) };
        for change in &changes {
            let before: Option<&RevisionPair> = kept.get(&change.key);
            let below = change.at.main < floor;
            if before.is_some() || (below && change.key_value().is_none()) {
                return Err(format!("swept to {floor}, but {:?} has {before:?}, {:?}", change.key, change.at).into());
            }
            if below {
                kept.insert(change.key.clone(), change.at);
            }
        }
        from = last.next();
    }
}
