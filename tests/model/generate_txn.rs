//! Random transactions: compares of all kinds, nesting, long lists, overlaps.

use super::generate::Generator;
use super::wire::*;

impl Generator<'_> {
    /// A transaction with at most so many levels within it.
    pub fn txn(&mut self, levels: usize) -> TxnRequest {
        match self.rng.below(60) {
            0 => self.long_txn(levels),
            1 | 2 => self.put_then_delete_all(),
            3 => TxnRequest::default(),
            4 | 5 => self.create_or_get(),
            _ => TxnRequest {
                compare: (0..self.rng.below(3)).map(|_| self.compare()).collect(),
                success: self.list(levels),
                failure: self.list(levels),
            },
        }
    }

    fn list(&mut self, levels: usize) -> Vec<RequestOp> {
        let length = *self.rng.pick(&[0, 1, 1, 1, 2, 2, 3, 4]);
        let only_reads = self.rng.chance(25);
        (0..length).map(|_| RequestOp { request: self.op(levels, only_reads) }).collect()
    }

    fn op(&mut self, levels: usize, only_reads: bool) -> Option<TxnOp> {
        let kind = if only_reads { 40 } else { self.rng.below(100) };
        match kind {
            0 => None,
            1..40 => Some(TxnOp::Put(self.put())),
            40..60 => Some(TxnOp::Range(self.range())),
            60..82 => Some(TxnOp::DeleteRange(self.delete_range())),
            _ if levels > 0 => Some(TxnOp::Txn(self.txn(levels - 1))),
            _ => Some(TxnOp::Put(self.put())),
        }
    }

    /// Lists at the limit and one above it, here or one level down, where less is left.
    fn long_txn(&mut self, levels: usize) -> TxnRequest {
        let read = RequestOp { request: Some(TxnOp::Range(RangeRequest { key: b"a".to_vec(), ..Default::default() })) };
        let length = *self.rng.pick(&[126, 127, 128, 128, 129]);
        let list = vec![read; length];
        let inner = TxnRequest { compare: Vec::new(), success: list.clone(), failure: Vec::new() };
        match self.rng.below(4) {
            0 if levels > 0 => {
                TxnRequest { success: vec![RequestOp { request: Some(TxnOp::Txn(inner)) }], ..Default::default() }
            }
            1 => TxnRequest { compare: (0..length).map(|_| self.compare()).collect(), ..Default::default() },
            2 => TxnRequest { failure: list.clone(), success: list, ..Default::default() },
            _ => inner,
        }
    }

    /// Puts a key and deletes it in the same revision: a deletion without end is not seen as an overlap.
    fn put_then_delete_all(&mut self) -> TxnRequest {
        let mut put = self.put();
        (put.ignore_value, put.ignore_lease, put.lease) = (false, false, 0);
        let start = self.key();
        let delete = DeleteRangeRequest { key: start, range_end: vec![0], prev_kv: self.rng.chance(50) };
        let mut ops = vec![TxnOp::Put(put), TxnOp::DeleteRange(delete)];
        if self.rng.chance(40) {
            ops.reverse();
        }
        if self.rng.chance(50) {
            ops.push(TxnOp::Range(self.range()));
        }
        TxnRequest {
            success: ops.into_iter().map(|op| RequestOp { request: Some(op) }).collect(),
            ..Default::default()
        }
    }

    /// What an apiserver sends to create or to update an object.
    fn create_or_get(&mut self) -> TxnRequest {
        let key = self.key();
        let known = self.model.get(&key, i64::MAX).map_or(0, |kv| kv.mod_revision);
        let expected = if self.rng.chance(80) { known } else { known + 1 };
        let compare = Compare { target: 2, key: key.clone(), union: Some(Union::Mod(expected)), ..Default::default() };
        let put = PutRequest { key: key.clone(), ..self.put() };
        let get = RangeRequest { key, ..Default::default() };
        TxnRequest {
            compare: vec![compare],
            success: vec![RequestOp { request: Some(TxnOp::Put(put)) }],
            failure: vec![RequestOp { request: Some(TxnOp::Range(get)) }],
        }
    }

    fn compare(&mut self) -> Compare {
        let key = self.key();
        let range_end = if self.rng.chance(25) { self.range_end(&key) } else { Blob::new() };
        let target = if self.rng.chance(5) { 9 } else { self.rng.between(0, 4) as i32 };
        let fitting = self.rng.chance(90);
        let kind = if fitting { i64::from(target) } else { self.rng.between(0, 5) };
        let known = self.model.get(&key, i64::MAX).unwrap_or_default();
        let near = |number: i64, off: i64| number.saturating_add(off);
        let off = *self.rng.pick(&[0, 0, 0, 1, -1]);
        let union = match kind {
            0 => Some(Union::Version(near(known.version, off))),
            1 => Some(Union::Create(near(known.create_revision, off))),
            2 => Some(Union::Mod(near(known.mod_revision, off))),
            3 => Some(Union::Value(if off == 0 { known.value } else { b"same".to_vec() })),
            4 => Some(Union::Lease(near(known.lease, off))),
            _ => None,
        };
        let result = if self.rng.chance(4) { 7 } else { *self.rng.pick(&[0, 0, 0, 1, 2, 3]) };
        Compare { result, target, key, union, range_end }
    }
}
