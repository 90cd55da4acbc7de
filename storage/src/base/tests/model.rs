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
    /// So many keys are written.
    keys: u64,
    /// One change of so many is a deletion.
    deletions: u64,
}

impl Model {
    /// With every other seed few keys get many versions.
    pub(super) fn new(seed: u64) -> Model {
        let applied = Applied { revision: Revision::FIRST, compacted: Revision(-1), ..Applied::default() };
        let (keys, deletions) = if seed.is_multiple_of(2) { (KEYS.len() as u64, 3) } else { (3, 50) };
        let (all, stored) = (BTreeMap::new(), BTreeMap::new());
        Model { rng: Rng(seed), applied, all, stored, dropped: 0, keys, deletions }
    }

    fn newest(&self, key: &[u8], at: RevisionPair) -> Option<&Arc<Change>> {
        self.all.get(key)?.iter().rev().find(|change| change.at <= at)
    }

    /// One change; deletions only of living keys.
    fn change(&mut self, at: RevisionPair) -> Option<Change> {
        let key = Bytes::from_static(KEYS[self.rng.below(self.keys) as usize]);
        let old = self.newest(&key, RevisionPair::MAX).map(|change| change.kind.clone());
        let kind = match (old, self.rng.below(self.deletions)) {
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

/// The same base as an older release would have written it: a row for each version.
fn in_format_2(base: Base, disk: &MemoryDisk) -> Base {
    let (meta, rows) = super::build::everything(&base.snapshot().unwrap());
    let older = PathBuf::from("/data/older.redb");
    let mut builder = Builder::create(&on(disk), &older, CACHE_BYTES).unwrap();
    for (table, key, row) in rows {
        if table != TableId::Index {
            builder.append(table, &key, &row).unwrap();
            continue;
        }
        let (prefix, _) = layout::split_index_key(&key).unwrap();
        for version in layout::versions_of(&key, &row).unwrap().iter().rev() {
            let key = layout::index_key(prefix, version.0);
            builder.append(table, &key, &layout::index_row(&key, std::slice::from_ref(version))).unwrap();
        }
    }
    drop((builder.finish(meta.applied, meta.cursor).unwrap(), base));
    disk.write(&path(), disk.read(&older));
    reopen(disk)
}

#[test]
fn a_base_with_a_row_for_each_version_goes_on() {
    let (mut answers, mut swept, mut runs) = (0, 0, 0);
    for seed in [1, 2, 3, 5, 7] {
        let disk = MemoryDisk::new();
        let mut base = new_base(&disk);
        let mut model = Model::new(seed);
        for round in 0..12 {
            base.flush(&model.part(), Garbage::Drop).unwrap();
            if round == 5 {
                base = in_format_2(base, &disk);
                let meta = base.snapshot().unwrap().meta;
                assert_eq!(meta.sums.of(TableId::Index).rows, meta.sums.of(TableId::History).rows);
            }
            if round > 5 {
                answers += model.check(&base);
                swept += model.sweep(&base);
                answers += model.check(&base);
            }
        }
        let meta = base.snapshot().unwrap().meta;
        runs += meta.sums.of(TableId::History).rows - meta.sums.of(TableId::Index).rows;
    }
    println!("{answers} answers, {swept} versions swept, {runs} versions share a row with a newer one");
    assert!(answers >= 2000 && swept >= 100 && runs >= 20);
}

#[test]
fn versions_of_a_hot_key_share_rows_until_they_are_compacted() {
    let (disk, name) = (MemoryDisk::new(), Bytes::from_static(b"hot"));
    let base = new_base(&disk);
    let change = |version: i64| {
        let value = Bytes::from_static(if version < 500 { &[7; 100] } else { &[8; 101] });
        let kind = ChangeKind::Put { create: Revision(2), version, lease: 9, value };
        Change { key: name.clone(), at: at(1 + version, 0), kind }
    };
    for (position, first) in (1..).zip((1..=1000).step_by(25)) {
        let changes = (first..first + 25).map(change).collect();
        base.flush(&part(position, -1, changes), Garbage::Drop).unwrap();
    }
    let rows = |base: &Base| base.snapshot().unwrap().meta.sums.of(TableId::Index).rows;
    // 1 to 63, 64 to 127, and so on.
    assert_eq!(rows(&base), 1000 / 64 + 1);
    let snapshot = base.snapshot().unwrap();
    snapshot.verify().unwrap();
    for version in 1..=1000 {
        let (place, found) = snapshot.get(&name, at(1 + version, 5)).unwrap().unwrap();
        assert_eq!((place, found), layout::placed(&change(version)));
    }
    drop(snapshot);
    // The row in which the compacted revision lies begins with the version that is left, the rows behind it are gone.
    base.flush(&part(41, 1 + 500, vec![change(1001)]), Garbage::Drop).unwrap();
    assert_eq!(rows(&base), (1001 / 64 + 1) - 500 / 64);
    assert_eq!(base.snapshot().unwrap().changes_stored(), 1001 - 499);
    while !base.sweep(Revision(1 + 900), 100).unwrap().done {}
    assert_eq!((rows(&base), base.snapshot().unwrap().changes_stored()), (1001 / 64 + 1 - 900 / 64, 1001 - 899));
    base.snapshot().unwrap().verify().unwrap();
}

#[test]
fn random_flushes_read_as_a_model_that_keeps_everything() {
    let (mut flushes, mut answers, mut dropped, mut swept, mut crashes) = (0, 0, 0, 0, 0);
    for seed in 0..60 {
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
    assert!(flushes >= 1200 && answers >= 200_000 && dropped >= 10_000 && swept >= 1000 && crashes >= 30);
}
