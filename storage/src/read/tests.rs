//! Reads over three sources against a model that keeps every change in a list.

use std::path::PathBuf;

use super::range::RangeReader;
use super::*;
use crate::base::Base;
use crate::fs::sim::Prng;
use crate::fs::{FileSystem, SimFs};
use crate::read::counts::Counts;
use crate::request::{Content, Key, KeyRange, RangeEnd, RangeRequest};
use crate::types::Position;

/// Every change so far, and the same in base, a frozen part and the active one.
struct World {
    random: Prng,
    changes: Vec<Change>,
    base: Base,
    sources: Sources,
}

const REVISIONS_PER_PART: u64 = 60;

fn key(n: u64) -> Bytes {
    // One key is the beginning of another, and zero bytes occur.
    match n % 3 {
        0 => Bytes::from(format!("k{:02}", n / 3)),
        1 => Bytes::from(format!("k{:02}\0", n / 3)),
        _ => Bytes::from(format!("k{:02}\0\u{1}x", n / 3)),
    }
}

impl World {
    fn new(seed: u64) -> World {
        let fs: Arc<dyn FileSystem> = Arc::new(SimFs::new());
        let dir = PathBuf::from("/data");
        fs.create_dir(&dir).unwrap();
        let base = Base::create(&fs, &dir.join("base"), 1 << 20).unwrap();
        let sources = Sources { active: Arc::default(), frozen: None, base: base.snapshot().unwrap(), known: None };
        let mut world = World { random: Prng::new(seed), changes: Vec::new(), base, sources };
        world.fill(1);
        world.base.flush(&world.sources.active.read(), crate::base::Garbage::Drop).unwrap();
        world.sources.base = world.base.snapshot().unwrap();
        for position in [2, 3] {
            world.sources.frozen = (position == 3).then(|| world.sources.active.clone());
            world.sources.active = Arc::default();
            world.fill(position);
        }
        world
    }

    /// Random changes into the active part; a put's version says how often its key was put since it was created.
    fn fill(&mut self, position: u64) {
        for _ in 0..REVISIONS_PER_PART {
            let main = self.changes.last().map_or(Revision(2), |last| last.at.main.next());
            for sub in 0..=i64::try_from(self.random.below(3)).unwrap() {
                let key = key(self.random.below(45));
                let live = self.live(&key, RevisionPair::MAX).cloned();
                let kind = match live.map(|change| change.kind) {
                    Some(ChangeKind::Put { .. }) if self.random.below(3) == 0 => ChangeKind::Tombstone,
                    Some(ChangeKind::Put { create, version, .. }) => self.put(create, version + 1),
                    _ => self.put(main, 1),
                };
                let change = Change { key, at: RevisionPair { main, sub }, kind };
                self.changes.push(change.clone());
                self.sources.active.write().push(change);
            }
        }
        let mut active = self.sources.active.write();
        active.applied.position = Position(position);
        active.applied.revision = self.changes.last().unwrap().at.main;
        active.applied.compacted = Revision(-1);
    }

    fn put(&mut self, create: Revision, version: i64) -> ChangeKind {
        // Some values are kept with the key, some elsewhere.
        let len = usize::try_from(self.random.below(2) * 200 + 5).unwrap();
        let byte = u8::try_from(self.random.below(256)).unwrap();
        ChangeKind::Put { create, version, lease: 0, value: Bytes::from(vec![byte; len]) }
    }

    fn newest(&self, key: &[u8], at: RevisionPair) -> Option<&Change> {
        self.changes.iter().rev().find(|change| change.key == key && change.at <= at)
    }

    fn live(&self, key: &[u8], at: RevisionPair) -> Option<&Change> {
        self.newest(key, at).filter(|change| !change.is_tombstone())
    }

    fn range(&self, range: &KeyRange, at: RevisionPair) -> Vec<KeyValue> {
        let mut keys: Vec<Bytes> = (0..45).map(key).filter(|key| range.contains(key)).collect();
        keys.sort_unstable();
        keys.iter().filter_map(|key| self.live(key, at)).map(|change| change.key_value().unwrap()).collect()
    }

    fn last(&self) -> Revision {
        self.changes.last().unwrap().at.main
    }

    fn place(&mut self) -> RevisionPair {
        let main = Revision(i64::try_from(self.random.below(u64::try_from(self.last().0).unwrap() + 2)).unwrap());
        if self.random.below(5) == 0 { RevisionPair { main, sub: 0 } } else { RevisionPair::last_of(main) }
    }

    fn some_range(&mut self) -> KeyRange {
        let start = Key::new(key(self.random.below(45))).unwrap();
        let end = match self.random.below(4) {
            0 => RangeEnd::SingleKey,
            1 => RangeEnd::Open,
            _ => RangeEnd::Before(key(self.random.below(45))),
        };
        KeyRange { start, end }
    }

    fn check_get(&mut self) {
        let (at, key) = (self.place(), key(self.random.below(46)));
        let found = self.sources.get(&key, at).unwrap();
        assert_eq!(
            found.map(|found| found.place()),
            self.newest(&key, at).map(|change| change.at),
            "{key:?} at {at:?}"
        );
    }

    /// Steps of any size find every key once, tombstones included, in order.
    fn check_scan(&mut self) {
        let (at, range) = (self.place(), self.some_range());
        let RangeEnd::Before(end) = &range.end else { return };
        let step = usize::try_from(1 + self.random.below(7)).unwrap();
        let mut found = Vec::new();
        let mut start = Some(range.start.bytes().clone());
        while let Some(from) = start {
            let chunk = self.sources.scan(&from, Some(end), at, step).unwrap();
            found.extend(chunk.found.iter().map(|found| (found.key().clone(), found.place())));
            assert!(chunk.next.as_ref().is_none_or(|next| *next > from), "no headway from {from:?}");
            start = chunk.next;
        }
        let mut keys: Vec<Bytes> = (0..45).map(key).filter(|key| range.contains(key)).collect();
        keys.sort_unstable();
        let expected: Vec<_> =
            keys.iter().filter_map(|key| self.newest(key, at)).map(|change| (change.key.clone(), change.at)).collect();
        assert_eq!(found, expected, "{range:?} at {at:?} in steps of {step}");
    }

    /// Pages of a list, with counts that are remembered from page to page.
    fn check_pages(&mut self, counts: &Counts) {
        let (at, range) = (RevisionPair::last_of(self.place().main), self.some_range());
        let all = self.range(&range, at);
        let limit = 1 + self.random.below(6);
        let content = if self.random.below(2) == 0 { Content::Full } else { Content::KeysOnly };
        let reader =
            RangeReader { sources: &self.sources, at, current: self.last(), counts: Some(counts), known: None };
        let mut left = all.as_slice();
        let mut start = range.start.clone();
        loop {
            let page = KeyRange { start: start.clone(), end: range.end.clone() };
            let limit = i64::try_from(limit).unwrap();
            let reply = reader.range(&RangeRequest { limit, content, ..RangeRequest::new(page.clone()) }).unwrap();
            let count = reader.range(&RangeRequest { content: Content::CountOnly, ..RangeRequest::new(page) }).unwrap();
            let (now, rest) = left.split_at(left.len().min(usize::try_from(limit).unwrap()));
            let bare = |kv: &KeyValue| KeyValue { value: Bytes::new(), ..kv.clone() };
            let expected: Vec<_> = if content == Content::Full { now.to_vec() } else { now.iter().map(bare).collect() };
            assert_eq!(reply.kvs, expected, "{range:?} at {at:?}");
            let left_over = i64::try_from(left.len()).unwrap();
            assert_eq!((reply.count, reply.more, count.count), (left_over, !rest.is_empty(), left_over), "{range:?}");
            left = rest;
            match reply.kvs.last() {
                Some(last) if reply.more => start = Key::new([last.key.as_ref(), &[0]].concat()).unwrap(),
                _ => return,
            }
        }
    }

    fn check_changes(&mut self) {
        let (from, upto) = (self.place().main, self.place().main);
        let bytes = usize::try_from(self.random.below(2000)).unwrap();
        let mut got: Vec<Change> = Vec::new();
        let mut next = from;
        loop {
            let step = self.sources.changes(next, upto, bytes).unwrap();
            let Some(last) = step.last() else { break };
            next = last.at.main.next();
            got.extend(step.iter().map(|change| Change::clone(change)));
        }
        let expected: Vec<_> =
            self.changes.iter().filter(|change| (from..=upto).contains(&change.at.main)).cloned().collect();
        assert_eq!(got, expected, "{from:?} to {upto:?} in steps of {bytes} bytes");
    }
}

#[test]
fn three_sources_read_like_one_list() {
    for seed in 1..=12 {
        let mut world = World::new(seed);
        for _ in 0..300 {
            world.check_get();
            world.check_scan();
            world.check_changes();
        }
        let counts = Counts::default();
        (0..300).for_each(|_| world.check_pages(&counts));
    }
}
