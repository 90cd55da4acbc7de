//! Base against a model, and against a disk that fails.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "tests")]

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::change::{Change, ChangeKind};
use crate::types::{Position, RevisionPair};

mod build;
mod compaction;
mod cutting;
mod disk;
mod faults;
mod measure;
mod model;
mod packing;
mod refusals;
mod rewrite;
mod scrubbing;
mod sweeping;
mod written;

use disk::MemoryDisk;

const CACHE_BYTES: usize = 4 << 20;

fn path() -> PathBuf {
    PathBuf::from("/data/base.redb")
}

fn on(disk: &MemoryDisk) -> Arc<dyn FileSystem> {
    Arc::new(disk.clone())
}

fn new_base(disk: &MemoryDisk) -> Base {
    Base::create(&on(disk), &path(), CACHE_BYTES).unwrap()
}

fn reopen(disk: &MemoryDisk) -> Base {
    Base::open(&on(disk), &path(), CACHE_BYTES).unwrap()
}

fn at(main: i64, sub: i64) -> RevisionPair {
    RevisionPair { main: Revision(main), sub }
}

fn put(key: &str, main: i64, value: impl Into<Bytes>) -> Change {
    let kind = ChangeKind::Put { create: Revision(main), version: 1, lease: 0, value: value.into() };
    Change { key: Bytes::from(key.to_owned()), at: at(main, 0), kind }
}

fn tombstone(key: &str, main: i64) -> Change {
    Change { key: Bytes::from(key.to_owned()), at: at(main, 0), kind: ChangeKind::Tombstone }
}

/// A part of these changes, in order, that ends at the last one.
fn part(position: u64, compacted: i64, changes: Vec<Change>) -> PartData {
    let mut part = PartData::default();
    part.applied.position = Position(position);
    part.applied.compacted = Revision(compacted);
    part.applied.revision = changes.last().map_or(Revision::FIRST, |change| change.at.main);
    for change in changes {
        let change = Arc::new(change);
        part.keys.entry(change.key.clone()).or_default().push(Arc::clone(&change));
        part.changes.push(change);
    }
    part
}

/// Every (key, revision) in the index, in order of key, oldest first.
fn versions(snapshot: &Snapshot) -> Vec<(Bytes, RevisionPair)> {
    let mut found = Vec::new();
    snapshot
        .each_row(TableId::Index, |key, row| {
            let key_bytes = layout::unescape(layout::split_index_key(key)?.0)?;
            found.extend(layout::versions_of(key, row)?.into_iter().map(|(at, _)| (key_bytes.clone(), at)));
            Ok(())
        })
        .unwrap();
    found.sort();
    found
}

#[test]
fn what_every_put_asks_for_is_answered_while_a_commit_is_made() {
    let base = new_base(&MemoryDisk::new());
    base.flush(&part(1, 1, vec![put("a", 2, "value")]), Garbage::Drop).unwrap();
    let before = base.totals();
    let within = base.commit(|_, meta| Ok((*meta, (base.totals(), base.swept())))).unwrap();
    assert_eq!(within, (before, base.swept()));
}

/// A generator that yields the same numbers for the same seed.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
