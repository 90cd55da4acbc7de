//! Random parts, flushed and compared with a model that keeps every version of every key.

use std::collections::BTreeSet;

use super::*;

const KEYS: [&[u8]; 14] = [
    b"a",
    b"a\0",
    b"a\0\0",
    b"a\0\x01",
    b"a\0\xFF",
    b"a\x01",
    b"aa",
    b"ab",
    b"b",
    b"\0",
    b"\0\x01",
    b"\xFF",
    b"\xFF\xFF",
    b"\x01",
];

/// What was ever written, and what must still be stored.
pub(super) struct Model {
    pub(super) rng: Rng,
    applied: Applied,
    /// Per key every version, oldest first.
    all: BTreeMap<Bytes, Vec<Arc<Change>>>,
    /// Per key the versions that base must hold after the flushes so far, by the rule of compaction.
    stored: BTreeMap<Bytes, Vec<Arc<Change>>>,
    dropped: u64,
}

impl Model {
    pub(super) fn new(seed: u64) -> Model {
        let applied = Applied { revision: Revision::FIRST, compacted: Revision(-1), ..Applied::default() };
        Model { rng: Rng(seed), applied, all: BTreeMap::new(), stored: BTreeMap::new(), dropped: 0 }
    }

    fn newest(&self, key: &[u8], at: RevisionPair) -> Option<&Arc<Change>> {
        self.all.get(key)?.iter().rev().find(|change| change.at <= at)
    }

    /// One change; deletions only of living keys.
    fn change(&mut self, at: RevisionPair) -> Option<Change> {
        let key = Bytes::from_static(KEYS[self.rng.below(KEYS.len() as u64) as usize]);
        let old = self.newest(&key, RevisionPair::MAX).map(|change| change.kind.clone());
        let kind = match (old, self.rng.below(3)) {
            (Some(ChangeKind::Put { .. }), 0) => ChangeKind::Tombstone,
            (None | Some(ChangeKind::Tombstone), 0) => return None,
            (old, _) => {
                let (create, version) = match old {
                    Some(ChangeKind::Put { create, version, .. }) => (create, version + 1),
                    _ => (at.main, 1),
                };
                let sizes = [0, 1, 63, 64, 65, 65, 200, 200, 700, 1300, 5000];
                let size = sizes[self.rng.below(sizes.len() as u64) as usize];
                let value = Bytes::from(vec![self.rng.next() as u8; size]);
                let lease = if self.rng.below(4) == 0 { self.rng.next().cast_signed() } else { 0 };
                ChangeKind::Put { create, version, lease, value }
            }
        };
        Some(Change { key, at, kind })
    }

    pub(super) fn part(&mut self) -> PartData {
        let part = self.random_part();
        self.store(&part);
        part
    }

    /// A part for a flush that drops nothing.
    pub(super) fn part_kept(&mut self) -> PartData {
        let part = self.random_part();
        for (key, changes) in &part.keys {
            self.stored.entry(key.clone()).or_default().extend(changes.iter().cloned());
        }
        part
    }

    fn random_part(&mut self) -> PartData {
        let mut changes = Vec::new();
        for _ in 0..self.rng.below(30) {
            let main = self.applied.revision.next();
            let mut sub = 0;
            for _ in 0..=self.rng.below(4) {
                let Some(change) = self.change(RevisionPair { main, sub }) else { continue };
                self.all.entry(change.key.clone()).or_default().push(Arc::new(change.clone()));
                changes.push(change);
                sub += 1;
                self.applied.revision = main;
            }
        }
        let (old, new) = (self.applied.compacted.0.max(0), self.applied.revision.0);
        if self.rng.below(2) == 0 {
            self.applied.compacted = Revision(old + self.rng.below((new - old + 1).cast_unsigned()).cast_signed());
        }
        self.applied.position = self.applied.position.next();
        self.applied.time_ms += self.rng.below(1000);
        let mut part = part(0, 0, changes);
        part.applied = self.applied;
        part
    }

    /// What a flush must leave of each key of the part.
    fn store(&mut self, part: &PartData) {
        let compacted = self.applied.compacted;
        for (key, changes) in &part.keys {
            let versions = self.stored.entry(key.clone()).or_default();
            versions.extend(changes.iter().cloned());
            let before = versions.len();
            compact(versions, compacted);
            self.dropped += (before - versions.len()) as u64;
        }
    }

    /// Sweeps up to the compacted revision, in steps of random size, and does the same to what must be stored.
    pub(super) fn sweep(&mut self, base: &Base) -> u64 {
        let compacted = self.applied.compacted;
        let mut dropped = 0;
        loop {
            let rows_max = 1 + self.rng.below(20) as usize;
            assert_eq!(base.reserve_sweep(rows_max).unwrap(), rows_max);
            let report = base.sweep(compacted, rows_max).unwrap();
            base.snapshot().unwrap().verify().unwrap();
            dropped += report.versions_dropped;
            if report.done {
                break;
            }
            assert!(report.rows_visited >= rows_max as u64);
        }
        let mut expected = 0;
        for versions in self.stored.values_mut() {
            expected += versions.len();
            compact(versions, compacted);
            expected -= versions.len();
            let below: Vec<_> = versions.iter().filter(|v| v.at.main < compacted).collect();
            assert!(below.len() <= 1 && below.iter().all(|v| !v.is_tombstone()));
        }
        assert_eq!(dropped, expected as u64);
        dropped
    }

    pub(super) fn check(&mut self, base: &Base) -> u64 {
        let snapshot = base.snapshot().unwrap();
        snapshot.verify().unwrap();
        assert_eq!(snapshot.applied(), self.applied);
        assert_eq!(snapshot.meta, *base.meta.lock().unwrap());
        let stored: BTreeSet<_> =
            self.stored.values().flatten().map(|change| (change.key.clone(), change.at)).collect();
        assert!(stored.into_iter().eq(versions(&snapshot)), "stored versions");
        let mut answers = 0;
        for main in self.applied.compacted.0.max(1)..=self.applied.revision.0 {
            answers += self.check_revision(&snapshot, Revision(main));
        }
        self.check_changes(&snapshot);
        answers
    }

    fn check_revision(&mut self, snapshot: &Snapshot, main: Revision) -> u64 {
        let sub = if self.rng.below(2) == 0 { i64::MAX } else { self.rng.below(4).cast_signed() };
        // Within the compacted revision only the whole of it is promised.
        let sub = if main <= self.applied.compacted { i64::MAX } else { sub };
        let at = RevisionPair { main, sub };
        let (start, end) = (KEYS[self.rng.below(14) as usize], KEYS[self.rng.below(14) as usize]);
        let end = (self.rng.below(4) != 0).then_some(end);
        let limit = 1 + self.rng.below(10);
        let mut found = Vec::new();
        let mut visit = |key: Bytes, at, version| {
            found.push((key, at, version));
            (found.len() as u64) < limit
        };
        snapshot.scan(start, end, at, &mut visit).unwrap();
        let mut expected = Vec::new();
        for key in self.all.keys() {
            let wanted = self.newest(key, at);
            let got = snapshot.get(key, at).unwrap();
            same(snapshot, wanted, got.as_ref().map(|(at, version)| (*at, version)), self.applied.compacted);
            if **key >= *start && end.is_none_or(|end| **key < *end) {
                expected.extend(got.map(|(at, version)| (key.clone(), at, version)));
            }
        }
        expected.truncate(limit as usize);
        assert_eq!(found, expected, "scan of {start:?}..{end:?} at {at:?}");
        self.all.len() as u64
    }

    fn check_changes(&mut self, snapshot: &Snapshot) {
        let lowest = self.applied.compacted.0.max(2);
        let span = (self.applied.revision.0 - lowest + 2).max(1).cast_unsigned();
        let from = Revision(lowest + self.rng.below(span).cast_signed());
        let upto = Revision(from.0 + self.rng.below(span).cast_signed());
        let mut expected: Vec<_> =
            self.all.values().flatten().filter(|c| c.at.main >= from && c.at.main <= upto).cloned().collect();
        expected.sort_by_key(|change| change.at);
        let max_bytes = self.rng.below(3000) as usize;
        let (mut got, mut next) = (Vec::new(), from);
        loop {
            let chunk = snapshot.changes(next, upto, max_bytes).unwrap();
            let Some(last) = chunk.last() else { break };
            next = last.at.main.next();
            got.extend(chunk);
        }
        assert_eq!(got, expected, "changes from {from} to {upto}");
        let puts: Vec<_> = expected.iter().rev().filter(|change| !change.is_tombstone()).collect();
        let places: Vec<_> = puts.iter().map(|change| change.at).collect();
        let values = snapshot.values(&places).unwrap();
        assert!(values.into_iter().eq(puts.iter().map(|change| change.key_value().unwrap().value)));
    }
}

/// The rule, word for word, for all versions of a key.
fn compact(versions: &mut Vec<Arc<Change>>, compacted: Revision) {
    let Some(n) = versions.iter().rev().find(|v| v.at.main <= compacted).cloned() else { return };
    versions.retain(|v| {
        v.at > n.at
            || (v.at == n.at && !(n.is_tombstone() && n.at.main < compacted))
            || (v.at < n.at && n.at.main == compacted && v.at.main == compacted)
    });
}

fn same(snapshot: &Snapshot, wanted: Option<&Arc<Change>>, got: Option<(RevisionPair, &Version)>, compacted: Revision) {
    let (wanted, (at, version)) = match (wanted, got) {
        // A deletion below the compacted revision may be gone.
        (Some(wanted), None) => {
            assert!(wanted.is_tombstone() && wanted.at.main < compacted, "lost {wanted:?}");
            return;
        }
        (None, None) => return,
        (None, Some(found)) => panic!("found {found:?} where nothing was"),
        (Some(wanted), Some(got)) => (wanted, got),
    };
    assert_eq!(wanted.at, at);
    match (&wanted.kind, version) {
        (ChangeKind::Tombstone, Version::Tombstone) => {}
        (
            ChangeKind::Put { create, version, lease, value },
            Version::Put { create: c, version: v, lease: l, value: kept },
        ) => {
            assert_eq!((create, version, lease), (c, v, l));
            let found = match kept {
                Kept::Inline(value) => value.clone(),
                Kept::History(len) => {
                    let found = snapshot.value(at).unwrap();
                    assert_eq!(snapshot.on_pages(&[at]).unwrap()[0].value(), found);
                    assert_eq!(*len, found.len() as u64);
                    found
                }
            };
            assert_eq!(found, value);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn random_flushes_read_as_a_model_that_keeps_everything() {
    let (mut flushes, mut answers, mut dropped, mut swept, mut crashes) = (0, 0, 0, 0, 0);
    for seed in 0..30 {
        println!("seed {seed}");
        let disk = MemoryDisk::new();
        let mut base = new_base(&disk);
        let mut model = Model::new(seed);
        for _ in 0..20 {
            let part = model.part();
            base.reserve(&part, Garbage::Drop).unwrap();
            let written_before = base.bytes_written();
            base.flush(&part, Garbage::Drop).unwrap();
            assert!(base.bytes_written() > written_before);
            flushes += 1;
            if model.rng.below(4) == 0 {
                if model.rng.below(2) == 0 {
                    base.halt();
                    crashes += 1;
                }
                drop(base);
                base = reopen(&disk);
            }
            answers += model.check(&base);
            if model.rng.below(3) == 0 {
                swept += model.sweep(&base);
                answers += model.check(&base);
            }
        }
        dropped += model.dropped;
    }
    println!("{flushes} flushes, {answers} answers, {dropped} versions dropped, {swept} swept, {crashes} crashes");
    assert!(flushes >= 600 && answers >= 100_000 && dropped >= 5000 && swept >= 1000 && crashes >= 30);
}
