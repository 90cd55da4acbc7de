//! Which watched ranges a key lies in: a treap of ranges, each node knowing the largest end below it.

use bytes::Bytes;

use crate::request::{KeyRange, RangeEnd};
use crate::watch::items::Items;

/// Ranges with what is attached to them.
#[derive(Debug)]
pub(crate) struct RangeTree<T> {
    nodes: Vec<Node<T>>,
    free: Vec<usize>,
    root: Option<usize>,
    seed: u64,
}

#[derive(Debug)]
struct Node<T> {
    start: Bytes,
    /// `None` is the open end, above every other.
    end: Option<Bytes>,
    max_end: Option<Bytes>,
    priority: u64,
    left: Option<usize>,
    right: Option<usize>,
    items: Items<T>,
}

impl<T> Default for RangeTree<T> {
    fn default() -> RangeTree<T> {
        RangeTree { nodes: Vec::new(), free: Vec::new(), root: None, seed: 0x9e37_79b9_7f4a_7c15 }
    }
}

/// The bounds of a range that is not a single key.
fn bounds(range: &KeyRange) -> (Bytes, Option<Bytes>) {
    let end = match &range.end {
        RangeEnd::Before(end) => Some(end.clone()),
        RangeEnd::Open | RangeEnd::SingleKey => None,
    };
    (range.start.bytes().clone(), end)
}

/// True if `a` ends after `b`, or both at the same place.
fn at_least(a: &Option<Bytes>, b: &Option<Bytes>) -> bool {
    match (a, b) {
        (None, _) => true,
        (_, None) => false,
        (Some(a), Some(b)) => a >= b,
    }
}

fn order(a: (&Bytes, &Option<Bytes>), b: (&Bytes, &Option<Bytes>)) -> std::cmp::Ordering {
    a.0.cmp(b.0).then_with(|| match (a.1, b.1) {
        (None, None) => std::cmp::Ordering::Equal,
        (None, _) => std::cmp::Ordering::Greater,
        (_, None) => std::cmp::Ordering::Less,
        (Some(a), Some(b)) => a.cmp(b),
    })
}

#[expect(clippy::indexing_slicing, reason = "node numbers come from this tree alone")]
impl<T: Copy + Ord> RangeTree<T> {
    /// Attaches an item to a range.
    pub(crate) fn insert(&mut self, range: &KeyRange, item: T) {
        let (start, end) = bounds(range);
        if let Some(node) = self.find(&start, &end) {
            self.nodes[node].items.insert(item);
            return;
        }
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let fresh = Node {
            start: start.clone(),
            end: end.clone(),
            max_end: end.clone(),
            priority: self.seed,
            left: None,
            right: None,
            items: Items::One(item),
        };
        let fresh = match self.free.pop() {
            Some(slot) => {
                self.nodes[slot] = fresh;
                slot
            }
            None => {
                self.nodes.push(fresh);
                self.nodes.len() - 1
            }
        };
        let root = self.root.take();
        let (below, above) = self.split(root, &start, &end);
        let left = self.merge(below, Some(fresh));
        self.root = self.merge(left, above);
    }

    /// Detaches an item from a range.
    pub(crate) fn remove(&mut self, range: &KeyRange, item: &T) {
        let (start, end) = bounds(range);
        let Some(node) = self.find(&start, &end) else { return };
        if self.nodes[node].items.remove(item) {
            let root = self.root.take();
            self.root = self.without(root, &start, &end);
            self.free.push(node);
        }
    }

    /// Calls `visit` with the items of every range that holds `key`.
    pub(super) fn stab<'a>(&'a self, key: &[u8], visit: &mut dyn FnMut(&'a Items<T>)) {
        let mut stack: Vec<usize> = self.root.into_iter().collect();
        while let Some(index) = stack.pop() {
            let node = &self.nodes[index];
            let below_end = |end: &Option<Bytes>| end.as_ref().is_none_or(|end| key < end.as_ref());
            if !below_end(&node.max_end) {
                continue;
            }
            stack.extend(node.left);
            if node.start.as_ref() <= key {
                stack.extend(node.right);
                if below_end(&node.end) {
                    visit(&node.items);
                }
            }
        }
    }

    fn find(&self, start: &Bytes, end: &Option<Bytes>) -> Option<usize> {
        let mut at = self.root;
        while let Some(index) = at {
            let node = &self.nodes[index];
            at = match order((start, end), (&node.start, &node.end)) {
                std::cmp::Ordering::Equal => return Some(index),
                std::cmp::Ordering::Less => node.left,
                std::cmp::Ordering::Greater => node.right,
            };
        }
        None
    }

    fn update(&mut self, index: usize) {
        let mut max_end = self.nodes[index].end.clone();
        for child in [self.nodes[index].left, self.nodes[index].right].into_iter().flatten() {
            if at_least(&self.nodes[child].max_end, &max_end) {
                max_end = self.nodes[child].max_end.clone();
            }
        }
        self.nodes[index].max_end = max_end;
    }

    /// Splits a subtree into what is below a range and what is above it.
    fn split(&mut self, root: Option<usize>, start: &Bytes, end: &Option<Bytes>) -> (Option<usize>, Option<usize>) {
        let Some(index) = root else { return (None, None) };
        let node = &self.nodes[index];
        if order((&node.start, &node.end), (start, end)).is_lt() {
            let (below, above) = self.split(self.nodes[index].right, start, end);
            self.nodes[index].right = below;
            self.update(index);
            (Some(index), above)
        } else {
            let (below, above) = self.split(self.nodes[index].left, start, end);
            self.nodes[index].left = above;
            self.update(index);
            (below, Some(index))
        }
    }

    fn merge(&mut self, left: Option<usize>, right: Option<usize>) -> Option<usize> {
        let (Some(a), Some(b)) = (left, right) else { return left.or(right) };
        if self.nodes[a].priority >= self.nodes[b].priority {
            let merged = self.merge(self.nodes[a].right, Some(b));
            self.nodes[a].right = merged;
            self.update(a);
            Some(a)
        } else {
            let merged = self.merge(Some(a), self.nodes[b].left);
            self.nodes[b].left = merged;
            self.update(b);
            Some(b)
        }
    }

    fn without(&mut self, root: Option<usize>, start: &Bytes, end: &Option<Bytes>) -> Option<usize> {
        let index = root?;
        let node = &self.nodes[index];
        match order((start, end), (&node.start, &node.end)) {
            std::cmp::Ordering::Equal => {
                let (left, right) = (node.left, node.right);
                return self.merge(left, right);
            }
            std::cmp::Ordering::Less => {
                let left = self.without(self.nodes[index].left, start, end);
                self.nodes[index].left = left;
            }
            std::cmp::Ordering::Greater => {
                let right = self.without(self.nodes[index].right, start, end);
                self.nodes[index].right = right;
            }
        }
        self.update(index);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Key;

    #[test]
    fn a_key_is_found_in_exactly_the_ranges_that_hold_it() {
        let mut seed = 7_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut tree = RangeTree::default();
        let mut kept: Vec<(KeyRange, u64)> = Vec::new();
        let mut hits = 0;
        for item in 0..2000 {
            let byte = |n: u64| Bytes::from(vec![u8::try_from(n).unwrap_or(0)]);
            let start = Key::new(byte(1 + random(60))).expect("one byte");
            let end = if random(5) == 0 { RangeEnd::Open } else { RangeEnd::Before(byte(1 + random(60))) };
            let range = KeyRange { start, end };
            tree.insert(&range, item);
            kept.push((range, item));
            if random(2) == 0 {
                let index = usize::try_from(random(kept.len() as u64)).expect("small");
                let (range, item) = kept.swap_remove(index);
                tree.remove(&range, &item);
            }
            let key = byte(random(64));
            let mut found = Vec::new();
            tree.stab(&key, &mut |items| found.extend(items.iter().copied()));
            let mut expected: Vec<u64> =
                kept.iter().filter(|(range, _)| range.contains(&key)).map(|(_, item)| *item).collect();
            found.sort_unstable();
            expected.sort_unstable();
            hits += found.len();
            assert_eq!(found, expected, "key {key:?}");
        }
        assert!(hits > 1000, "{hits} hits");
    }
}
