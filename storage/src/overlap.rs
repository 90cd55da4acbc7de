//! Refuses transactions whose outcome would depend on the order of writes to one key.
//!
//! Within one branch a key may be put once, and a key that is put may not be in a range that is deleted. A nested transaction brings the
//! puts of both its branches, whichever runs; its two branches may put the same key. They are held against the puts beside them, the
//! deletions beside them and those of nested transactions before them; what a nested transaction deletes counts for later ones and for
//! puts of the level above. Deletions may overlap each other. As in etcd, a deletion without an end is not looked at.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Error;
use crate::request::{DeleteRange, Op, RangeEnd, Txn};
use bytes::Bytes;

/// Checks both branches. Errors: `DuplicateKey`.
pub(crate) fn check(txn: &Txn) -> Result<(), Error> {
    written_by(&txn.success)?;
    written_by(&txn.failure)?;
    Ok(())
}

/// What a list of operations writes. The lists are walked three times, because a deletion counts for everything beside it, wherever it stands.
fn written_by(ops: &[Op]) -> Result<Written, Error> {
    let mut written = Written::default();
    for op in ops {
        if let Op::DeleteRange(delete) = op {
            written.deletes.insert_range(delete);
        }
    }
    for op in ops {
        if let Op::Txn(txn) = op {
            let success = written_by(&txn.success)?;
            let failure = written_by(&txn.failure)?;
            written.add_nested(success, failure)?;
        }
    }
    for op in ops {
        if let Op::Put(put) = op {
            written.add_put(put.key.bytes())?;
        }
    }
    Ok(written)
}

/// The keys that are put and the keys that are deleted.
#[derive(Default)]
struct Written {
    puts: BTreeSet<Bytes>,
    deletes: Intervals,
}

impl Written {
    fn add_put(&mut self, key: &Bytes) -> Result<(), Error> {
        let free = !self.deletes.contains(key) && self.puts.insert(key.clone());
        if free { Ok(()) } else { Err(Error::DuplicateKey) }
    }

    fn add_nested(&mut self, success: Written, failure: Written) -> Result<(), Error> {
        let puts = union(success.puts, failure.puts);
        if share_a_key(&self.puts, &puts) || self.deletes.contain_one_of(&puts) {
            return Err(Error::DuplicateKey);
        }
        self.puts = union(std::mem::take(&mut self.puts), puts);
        self.deletes.merge(success.deletes);
        self.deletes.merge(failure.deletes);
        Ok(())
    }
}

/// Moves the smaller set into the larger, so that deep nesting does not move a key once per level.
fn union(mut one: BTreeSet<Bytes>, mut other: BTreeSet<Bytes>) -> BTreeSet<Bytes> {
    if one.len() < other.len() {
        std::mem::swap(&mut one, &mut other);
    }
    one.extend(other);
    one
}

fn share_a_key(one: &BTreeSet<Bytes>, other: &BTreeSet<Bytes>) -> bool {
    let (small, large) = if one.len() < other.len() { (one, other) } else { (other, one) };
    small.iter().any(|key| large.contains(key))
}

/// Disjoint half-open intervals of keys: start to end.
#[derive(Default)]
struct Intervals(BTreeMap<Bytes, Bytes>);

impl Intervals {
    fn insert_range(&mut self, delete: &DeleteRange) {
        let start = delete.range.start.bytes().clone();
        match &delete.range.end {
            RangeEnd::SingleKey => self.insert(start.clone(), successor(&start)),
            RangeEnd::Before(end) => self.insert(start, end.clone()),
            RangeEnd::Open => {}
        }
    }

    /// Adds an interval, joined with those that it touches.
    fn insert(&mut self, mut start: Bytes, mut end: Bytes) {
        if start >= end {
            return;
        }
        while let Some((before, until)) = self.last_from(&end) {
            if until < start {
                break;
            }
            self.0.remove(&before);
            start = start.min(before);
            end = end.max(until);
        }
        self.0.insert(start, end);
    }

    /// The interval that begins last, at or before a key.
    fn last_from(&self, key: &Bytes) -> Option<(Bytes, Bytes)> {
        let (start, end) = self.0.range::<Bytes, _>(..=key).next_back()?;
        Some((start.clone(), end.clone()))
    }

    fn contains(&self, key: &Bytes) -> bool {
        self.last_from(key).is_some_and(|(_, end)| *key < end)
    }

    /// True if one of the keys is in an interval; goes through whatever is fewer.
    fn contain_one_of(&self, keys: &BTreeSet<Bytes>) -> bool {
        if keys.len() <= self.0.len() {
            return keys.iter().any(|key| self.contains(key));
        }
        self.0.iter().any(|(start, end)| keys.range::<Bytes, _>(start..end).next().is_some())
    }

    fn merge(&mut self, mut other: Intervals) {
        if self.0.len() < other.0.len() {
            std::mem::swap(self, &mut other);
        }
        other.0.into_iter().for_each(|(start, end)| self.insert(start, end));
    }
}

/// The key right after a key.
fn successor(key: &Bytes) -> Bytes {
    [key.as_ref(), &[0]].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, KeyRange, Put, PutLease, PutValue, RangeRequest};

    fn key(name: &'static str) -> Key {
        Key::new(name.as_bytes()).expect("not empty")
    }

    fn put(name: &'static str) -> Op {
        let value = PutValue::Set(Bytes::new());
        Op::Put(Put { key: key(name), value, lease: PutLease::Detach, prev_kv: false })
    }

    fn delete(name: &'static str, end: &'static str) -> Op {
        let range = KeyRange::from_wire(key(name), Bytes::from_static(end.as_bytes()));
        Op::DeleteRange(DeleteRange { range, prev_kv: false })
    }

    fn read(name: &'static str) -> Op {
        Op::Range(RangeRequest::new(KeyRange::from_wire(key(name), Bytes::from_static(&[0]))))
    }

    fn nested(success: Vec<Op>, failure: Vec<Op>) -> Op {
        Op::Txn(Txn { compares: Vec::new(), success, failure })
    }

    /// Checks the list in either branch.
    fn check_list(allowed: bool, ops: Vec<Op>) {
        let expected = if allowed { Ok(()) } else { Err(Error::DuplicateKey) };
        let success = Txn { success: ops.clone(), ..Txn::default() };
        assert_eq!(check(&success), expected, "as success: {ops:?}");
        let failure = Txn { failure: ops.clone(), ..Txn::default() };
        assert_eq!(check(&failure), expected, "as failure: {ops:?}");
    }

    #[test]
    fn within_a_list_a_key_is_put_once_and_not_deleted() {
        check_list(true, vec![]);
        check_list(true, vec![put("a"), put("b")]);
        check_list(false, vec![put("a"), put("b"), put("a")]);
        check_list(false, vec![put("a"), delete("a", "")]);
        check_list(false, vec![delete("a", ""), put("a")]);
        check_list(true, vec![delete("a", ""), put("a\0"), put("b")]);
        check_list(false, vec![put("b"), delete("a", "c")]);
        check_list(false, vec![put("a"), delete("a", "c")]);
        check_list(true, vec![put("c"), delete("a", "c")]);
        check_list(true, vec![put("b"), delete("c", "a")]);
    }

    #[test]
    fn deletions_and_reads_overlap_freely() {
        check_list(true, vec![delete("a", "c"), delete("b", "d"), delete("b", "")]);
        check_list(true, vec![read("a"), put("a"), read("a")]);
        check_list(true, vec![read("a"), delete("a", "z"), read("a")]);
    }

    #[test]
    fn joined_deletions_cover_what_each_of_them_covered() {
        for (name, free) in
            [("a", true), ("b", false), ("d", false), ("g", false), ("h", true), ("k", false), ("l", true)]
        {
            let deletes = [delete("e", "h"), delete("b", "d"), delete("k", ""), delete("c", "f")];
            check_list(free, deletes.into_iter().chain([put(name)]).collect());
        }
    }

    #[test]
    fn a_deletion_without_an_end_is_not_looked_at() {
        check_list(true, vec![delete("a", "\0"), put("b")]);
        check_list(true, vec![delete("a", "\0"), put("a")]);
    }

    #[test]
    fn the_two_branches_do_not_see_each_other() {
        let txn = Txn { compares: Vec::new(), success: vec![put("a")], failure: vec![put("a"), delete("b", "")] };
        assert_eq!(check(&txn), Ok(()));
        check_list(true, vec![nested(vec![put("a")], vec![put("a")])]);
        check_list(true, vec![nested(vec![put("a")], vec![delete("a", "")])]);
    }

    #[test]
    fn a_nested_transaction_is_held_against_its_surroundings() {
        for inner in [nested(vec![put("a")], vec![]), nested(vec![], vec![put("a")])] {
            check_list(false, vec![put("a"), inner.clone()]);
            check_list(false, vec![inner.clone(), put("a")]);
            check_list(false, vec![delete("a", "b"), inner.clone()]);
            check_list(false, vec![inner.clone(), delete("a", "b")]);
            check_list(false, vec![inner.clone(), nested(vec![], vec![put("a")])]);
            check_list(false, vec![inner.clone(), nested(vec![nested(vec![put("a")], vec![])], vec![])]);
            check_list(true, vec![put("b"), delete("c", ""), inner, nested(vec![put("d")], vec![])]);
        }
    }

    #[test]
    fn what_a_nested_transaction_deletes_counts_only_afterwards() {
        let deleting = || nested(vec![], vec![delete("a", "c")]);
        let putting = || nested(vec![put("b")], vec![]);
        check_list(false, vec![deleting(), putting()]);
        check_list(true, vec![putting(), deleting()]);
        check_list(false, vec![put("b"), deleting()]);
        check_list(true, vec![deleting(), delete("b", ""), deleting()]);
    }

    #[test]
    fn a_fault_in_a_nested_list_is_found() {
        check_list(false, vec![nested(vec![], vec![nested(vec![put("a"), put("a")], vec![])])]);
    }

    #[test]
    fn many_keys_far_down_are_not_moved_once_per_level() {
        let wide = (0..100_000_u32).map(|number| {
            let value = PutValue::Set(Bytes::new());
            let key = Key::new(number.to_be_bytes().to_vec()).expect("not empty");
            Op::Put(Put { key, value, lease: PutLease::Detach, prev_kv: false })
        });
        let mut ops: Vec<Op> = wide.collect();
        for _ in 0..500 {
            ops = vec![delete("x", "y"), nested(ops, vec![])];
        }
        // Moving every key on every level would be fifty million steps, far more than the bound.
        let begin = std::time::Instant::now();
        assert_eq!(check(&Txn { success: ops, ..Txn::default() }), Ok(()));
        assert!(begin.elapsed().as_secs() < 5, "{:?}", begin.elapsed());
    }
}
