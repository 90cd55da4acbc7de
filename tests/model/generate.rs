//! Random requests: few keys that are prefixes of each other, every option, and enough that is wrong.

use super::op::Request;
use super::rng::Rng;
use super::state::Model;
use super::wire::*;
use super::wire_more::*;

/// Keys that sort close together, with the lowest and the highest bytes.
const KEYS: &[&[u8]] = &[
    b"\0",
    b"\0\0",
    b"a",
    b"a\0",
    b"a\0\xff",
    b"a\xff",
    b"ab",
    b"abc",
    b"b",
    b"\xff",
    b"\xff\xff",
    b"/registry/pods/a",
];
const LEASES: &[i64] = &[1, 7, 8, -3, i64::MAX, 0x1234_5678_9abc];

/// Makes requests that fit a state.
pub struct Generator<'a> {
    pub rng: &'a mut Rng,
    pub model: &'a Model,
    pub serial: &'a mut u64,
}

impl Generator<'_> {
    /// Any request.
    pub fn request(&mut self) -> Request {
        match self.rng.below(100) {
            0..34 => Request::Put(self.put()),
            34..42 => Request::DeleteRange(self.delete_range()),
            42..56 => Request::Range(self.range()),
            56..60 => Request::RangeStream(self.range()),
            60..82 => Request::Txn(self.txn(3)),
            82..86 => Request::Compact(self.compaction()),
            86..91 => Request::Grant(self.grant()),
            91..93 => Request::Revoke(self.lease()),
            93..95 => Request::KeepAlive(self.lease()),
            95..99 => Request::TimeToLive(LeaseTimeToLiveRequest { id: self.lease(), keys: self.rng.chance(70) }),
            _ => Request::Leases,
        }
    }

    /// A key, now and then none.
    pub fn key(&mut self) -> Blob {
        if self.rng.chance(1) { Blob::new() } else { self.rng.pick(KEYS).to_vec() }
    }

    /// The end of a range that starts at `key`.
    pub fn range_end(&mut self, key: &[u8]) -> Blob {
        match self.rng.below(100) {
            0..40 => Blob::new(),
            40..55 => vec![0],
            55..80 => self.key(),
            _ => {
                let mut end = key.to_vec();
                while let Some(last) = end.pop() {
                    if last < 0xff {
                        end.push(last + 1);
                        return end;
                    }
                }
                vec![0]
            }
        }
    }

    fn keys(&mut self) -> (Blob, Blob) {
        if self.rng.chance(10) {
            return (vec![0], vec![0]);
        }
        let key = self.key();
        let end = self.range_end(&key);
        (key, end)
    }

    fn value(&mut self) -> Blob {
        *self.serial += 1;
        let length = match self.rng.below(20) {
            0 => return Blob::new(),
            1..4 => return b"same".to_vec(),
            4 => 3000,
            5 | 6 => 70,
            _ => 0,
        };
        let mut value = self.serial.to_string().into_bytes();
        value.resize(value.len().max(length), b'.');
        value
    }

    fn lease(&mut self) -> i64 {
        let held: Vec<i64> = self.model.leases.keys().copied().collect();
        if held.is_empty() || self.rng.chance(10) { *self.rng.pick(LEASES) } else { *self.rng.pick(&held) }
    }

    /// A revision to read at; 0 most of the time.
    pub fn revision(&mut self) -> i64 {
        let current = self.model.revision;
        let floor = self.model.compacted.max(1);
        match self.rng.below(100) {
            0..55 => 0,
            55..85 => self.rng.between(floor, current),
            85..90 => floor,
            90..94 => self.rng.between(1, current),
            94..97 => current + self.rng.between(1, 3),
            _ => -self.rng.between(1, 4),
        }
    }

    fn bound(&mut self, percent: usize) -> i64 {
        if self.rng.chance(percent) {
            self.rng.between((self.model.revision - 30).max(1), self.model.revision + 1)
        } else {
            0
        }
    }

    pub fn range(&mut self) -> RangeRequest {
        let (key, range_end) = self.keys();
        let filters = if self.rng.chance(25) { 40 } else { 0 };
        RangeRequest {
            key,
            range_end,
            limit: if self.rng.chance(40) { self.rng.between(-1, 5) } else { 0 },
            revision: self.revision(),
            sort_order: if self.rng.chance(1) { 3 } else { *self.rng.pick(&[0, 0, 1, 2]) },
            sort_target: if self.rng.chance(1) { -1 } else { *self.rng.pick(&[0, 0, 0, 1, 2, 3, 4]) },
            serializable: self.rng.chance(20),
            keys_only: self.rng.chance(20),
            count_only: self.rng.chance(10),
            min_mod_revision: self.bound(filters),
            max_mod_revision: self.bound(filters),
            min_create_revision: self.bound(filters),
            max_create_revision: self.bound(filters),
        }
    }

    pub fn put(&mut self) -> PutRequest {
        let ignore_value = self.rng.chance(8);
        let ignore_lease = self.rng.chance(if ignore_value { 20 } else { 8 });
        PutRequest {
            key: self.key(),
            value: if ignore_value && !self.rng.chance(10) { Blob::new() } else { self.value() },
            lease: if !self.rng.chance(25) || (ignore_lease && !self.rng.chance(20)) { 0 } else { self.lease() },
            prev_kv: self.rng.chance(40),
            ignore_value,
            ignore_lease,
        }
    }

    pub fn delete_range(&mut self) -> DeleteRangeRequest {
        let (key, mut range_end) = self.keys();
        if self.rng.chance(60) {
            range_end.clear();
        }
        DeleteRangeRequest { key, range_end, prev_kv: self.rng.chance(40) }
    }

    fn compaction(&mut self) -> CompactionRequest {
        let Model { revision: current, compacted, .. } = *self.model;
        let deletions = self.model.history.range(compacted.max(1) + 1..);
        let deletions = deletions.filter(|(_, changes)| changes.iter().any(|change| change.version.record.is_none()));
        let deletions: Vec<i64> = deletions.map(|(revision, _)| *revision).collect();
        let revision = match self.rng.below(100) {
            0..10 => compacted - self.rng.between(0, 1),
            10..17 => current + self.rng.between(1, 2),
            17..25 => current,
            25..60 if !deletions.is_empty() => *self.rng.pick(&deletions),
            _ => self.rng.between(compacted.max(0), current),
        };
        CompactionRequest { revision, physical: self.rng.chance(20) }
    }

    /// A lease that outlives the run; one that would not is tested on its own.
    fn grant(&mut self) -> LeaseGrantRequest {
        let id = if self.rng.chance(15) { 0 } else { *self.rng.pick(LEASES) };
        let ttl = match self.rng.below(20) {
            0 => Model::MAX_TTL + 1,
            1 => Model::MAX_TTL,
            _ => self.rng.between(10_000, 20_000),
        };
        LeaseGrantRequest { ttl, id }
    }
}
