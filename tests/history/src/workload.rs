//! Random requests of one client: what it asks follows from a seed and from what it was told.

use std::collections::BTreeMap;

use crate::types::*;

/// What a client may know of the rest: where reads of the past and compactions aim.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scene {
    /// A revision that somebody was told.
    pub revision: i64,
    /// A revision that somebody compacted to.
    pub compacted: i64,
    /// The highest revision to which compaction is harmless for the recorder; 0: none.
    pub may_compact: i64,
    /// TTLs of leases, in seconds: the shortest and the longest.
    pub ttl: (i64, i64),
}

/// One client.
#[derive(Clone, Debug)]
pub struct Client {
    number: u32,
    random: u64,
    serial: u64,
    /// The mod revision of shared keys, as last told; 0 if the key was not there.
    known: BTreeMap<Blob, i64>,
    leases: Vec<i64>,
    /// Keys that all clients share.
    shared: u64,
}

impl Client {
    /// A client with its seed; `shared` keys are fought over.
    pub fn new(number: u32, seed: u64, shared: u64) -> Client {
        let random = seed ^ u64::from(number).wrapping_mul(0xd6e8_feb8_6659_fd93);
        Client { number, random, serial: 0, known: BTreeMap::new(), leases: Vec::new(), shared }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn shared_key(&mut self) -> Blob {
        let number = self.below(self.shared);
        format!("shared/{number:02}").into_bytes()
    }

    fn own_key(&mut self) -> Blob {
        let number = self.below(6);
        format!("own/{:02}/{number}", self.number).into_bytes()
    }

    fn leased_key(&self) -> Blob {
        format!("leased/{:02}/{}", self.number, self.serial).into_bytes()
    }

    /// Half of the values are large enough to be stored apart from their keys.
    fn value(&mut self) -> Blob {
        self.serial += 1;
        let mut value = format!("{}-{}", self.number, self.serial).into_bytes();
        if self.chance(50) {
            value.resize(100, b'.');
        }
        value
    }

    fn any_key(&mut self) -> Blob {
        if self.chance(70) { self.shared_key() } else { self.own_key() }
    }

    fn put(&mut self) -> Put {
        let (key, value) = (self.any_key(), self.value());
        let lease = if self.chance(25) { self.a_lease() } else { 0 };
        // Nobody writes this one again: it waits for its lease to end.
        let key = if lease != 0 && self.chance(30) { self.leased_key() } else { key };
        Put { key, value, lease, prev_kv: self.chance(50) }
    }

    /// Mostly the newest.
    fn a_lease(&mut self) -> i64 {
        let count = self.leases.len() as u64;
        let back = self.below(3).min(count);
        self.leases.get((count - back) as usize).or(self.leases.last()).copied().unwrap_or(0)
    }

    fn span(&mut self) -> Span {
        match self.below(10) {
            0..5 => Span::one(self.any_key()),
            5..7 => Span::prefix("shared/"),
            7 => Span::prefix(format!("own/{:02}/", self.number)),
            8 => Span { key: self.shared_key(), end: vec![0] },
            _ => Span::all(),
        }
    }

    fn range(&mut self, scene: &Scene) -> Range {
        let mut range = Range::new(self.span());
        match self.below(10) {
            0..3 => {
                // From before the compacted revision to a few that are not there yet.
                let low = (scene.compacted - 5).max(1);
                range.revision = low + self.below((scene.revision + 4 - low).max(1) as u64) as i64;
            }
            3..5 => range.serializable = true,
            _ => {}
        }
        match self.below(10) {
            0 => range.count_only = true,
            1 => range.keys_only = true,
            2..4 => range.limit = 1 + self.below(5) as i64,
            _ => {}
        }
        range
    }

    /// Writes a key if it is as it was told, else reads it, as an apiserver does.
    fn update(&mut self, delete: bool) -> Txn {
        let key = self.shared_key();
        let known = self.known.get(&key).copied().unwrap_or(0);
        let compare = Compare { key: key.clone(), target: Target::Mod(known) };
        let write = if delete {
            Op::Delete(Delete { span: Span::one(key.clone()), prev_kv: self.chance(50) })
        } else {
            Op::Put(Put { key: key.clone(), value: self.value(), lease: 0, prev_kv: self.chance(30) })
        };
        Txn { compares: vec![compare], success: vec![write], failure: vec![Op::Range(Range::new(Span::one(key)))] }
    }

    /// Several writes at once, read back in the same transaction.
    fn several(&mut self) -> Txn {
        let (first, second, third) = (self.shared_key(), self.own_key(), self.shared_key());
        let target = match self.below(4) {
            0 => Target::Version(0),
            1 => Target::Create(self.known.get(&first).copied().unwrap_or(0)),
            2 => Target::Lease(0),
            _ => Target::Value(b"absent".to_vec()),
        };
        let compares = vec![Compare { key: first.clone(), target }];
        let mut put = |key: &Blob, lease| Op::Put(Put { key: key.clone(), value: self.value(), lease, prev_kv: true });
        let (one, other, else_put) = (put(&first, 0), put(&second, 0), put(&second, 0));
        let read = Op::Range(Range::new(Span::prefix("shared/")));
        let mut success = vec![one, other, read.clone()];
        if third != first {
            success.push(Op::Delete(Delete { span: Span::one(third), prev_kv: true }));
        }
        Txn { compares, success, failure: vec![read, else_put] }
    }

    fn delete(&mut self) -> Delete {
        let span = match self.below(4) {
            0 => Span::prefix(format!("own/{:02}/", self.number)),
            1 => Span::one(self.shared_key()),
            _ => Span::one(self.own_key()),
        };
        Delete { span, prev_kv: self.chance(50) }
    }

    fn grant(&mut self, scene: &Scene) -> Request {
        self.serial += 1;
        let id = (i64::from(self.number) + 1) << 32 | self.serial as i64;
        Request::Grant(id, scene.ttl.0 + self.below((scene.ttl.1 - scene.ttl.0 + 1) as u64) as i64)
    }

    /// The next request.
    pub fn request(&mut self, scene: &Scene) -> Request {
        match self.below(100) {
            0..27 => Request::Put(self.put()),
            27..42 => Request::Txn(self.update(false)),
            42..46 => Request::Txn(self.update(true)),
            46..53 => Request::Txn(self.several()),
            53..60 => Request::Delete(self.delete()),
            60..64 => self.grant(scene),
            64..66 => match self.a_lease() {
                0 => self.grant(scene),
                id => Request::Revoke(id),
            },
            66..70 => match self.a_lease() {
                0 => self.grant(scene),
                id => Request::KeepAlive(id),
            },
            70 if scene.may_compact > 0 => {
                Request::Compact((scene.may_compact - self.below(8) as i64 * 4).max(scene.compacted).max(1))
            }
            _ => Request::Range(self.range(scene)),
        }
    }

    /// Takes note of an outcome.
    pub fn learn(&mut self, request: &Request, outcome: &Outcome) {
        let Outcome::Ok(revision, body) = outcome else {
            if let (Request::KeepAlive(id) | Request::Revoke(id), Outcome::Refused(_)) = (request, outcome) {
                self.forget(*id);
            }
            return;
        };
        match (request, body) {
            (Request::Put(put), _) => self.note(&put.key, *revision),
            (Request::Range(range), Body::Range { kvs, .. }) if range.revision == 0 && !range.count_only => {
                self.note_all(kvs);
            }
            (Request::Txn(txn), Body::Txn(succeeded, answers)) => {
                let ops = if *succeeded { &txn.success } else { &txn.failure };
                for (op, answer) in ops.iter().zip(answers) {
                    match (op, answer) {
                        (Op::Put(put), _) => self.note(&put.key, *revision),
                        (Op::Delete(delete), _) => self.note(&delete.span.key, 0),
                        (Op::Range(range), Body::Range { kvs, .. }) if kvs.is_empty() => self.note(&range.span.key, 0),
                        (Op::Range(_), Body::Range { kvs, .. }) => self.note_all(kvs),
                        _ => {}
                    }
                }
            }
            (Request::Grant(id, _), _) => {
                self.leases.push(*id);
                if self.leases.len() > 8 {
                    self.leases.remove(0);
                }
            }
            (Request::Revoke(id), _) | (Request::KeepAlive(id), Body::Lease(0)) => self.forget(*id),
            _ => {}
        }
    }

    /// Now and then a lease that is gone is used again.
    fn forget(&mut self, id: i64) {
        if self.chance(80) {
            self.leases.retain(|lease| *lease != id);
        }
    }

    fn note(&mut self, key: &[u8], revision: i64) {
        self.known.insert(key.to_vec(), revision);
    }

    fn note_all(&mut self, kvs: &[KeyValue]) {
        for kv in kvs {
            self.note(&kv.key, kv.mod_revision);
        }
    }

    /// A watch with options at random, from somewhere around the current revision; the moment is to be filled in.
    pub fn watch(&mut self, scene: &Scene) -> Watch {
        let start = match self.below(4) {
            0 => 0,
            1 => scene.revision + 1,
            2 => scene.compacted.max(1) + self.below(20) as i64,
            _ => (scene.revision - 40).max(1) + self.below(50) as i64,
        };
        let wide = self.chance(75);
        let filter = self.below(8);
        Watch {
            span: if wide { Span::all() } else { self.span() },
            start,
            no_put: filter == 0,
            no_delete: filter == 1,
            prev_kv: self.chance(50),
            call: Moment::default(),
            cancel_asked: false,
            told: Vec::new(),
        }
    }
}
