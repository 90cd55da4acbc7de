//! What is attached to one key or range: most have one watch, some a hundred thousand.

use std::collections::BTreeSet;

/// Items in order, at least one. A single one takes no memory of its own.
#[derive(Debug)]
pub(super) enum Items<T> {
    One(T),
    Many(BTreeSet<T>),
}

impl<T: Copy + Ord> Items<T> {
    pub(super) fn insert(&mut self, item: T) {
        match self {
            Items::One(first) => *self = Items::Many(BTreeSet::from([*first, item])),
            Items::Many(items) => {
                items.insert(item);
            }
        }
    }

    /// True if nothing else is left, and all of it can go.
    pub(super) fn remove(&mut self, item: &T) -> bool {
        match self {
            Items::One(last) => last == item,
            Items::Many(items) => {
                items.remove(item);
                items.is_empty()
            }
        }
    }

    /// In ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let (one, many) = match self {
            Items::One(item) => (Some(item), None),
            Items::Many(items) => (None, Some(items)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_in_order_and_the_last_says_so() {
        let mut items = Items::One(5);
        assert!(!items.remove(&4));
        for item in [9, 1, 5, 7] {
            items.insert(item);
        }
        assert_eq!(items.iter().copied().collect::<Vec<i32>>(), [1, 5, 7, 9]);
        assert!(!items.remove(&2));
        let emptied = [5, 1, 9, 7].map(|item| items.remove(&item));
        assert_eq!(emptied, [false, false, false, true]);
        assert!(Items::One(5).remove(&5));
    }
}
