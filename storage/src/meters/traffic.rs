//! Who writes: changes and bytes by the leading segments of their keys, for a bounded number of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::change::Change;
use crate::metrics::Written;

/// Segments that tell one writer from another: `/registry/pods/default/a` belongs to `/registry/pods/`.
const SEGMENTS: usize = 2;
/// Prefixes that are told apart; what comes later counts as other.
const PREFIXES_MAX: usize = 128;
/// A longer prefix counts as other: keys may be as large as a request.
const PREFIX_BYTES_MAX: usize = 128;

/// What was written, by prefix. Locked by the committer for a frame at a time, and by who reads it.
#[derive(Debug, Default)]
pub(crate) struct Traffic(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    prefixes: HashMap<Box<str>, Written>,
    other: Written,
}

impl Traffic {
    pub(crate) fn add(&self, changes: &[Arc<Change>]) {
        if changes.is_empty() {
            return;
        }
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            let written = table.slot(&change.key);
            written.changes += 1;
            written.bytes += change.data_bytes() as u64;
        }
    }

    /// Each prefix with what was written, in order, and what counts as other.
    pub(crate) fn read(&self) -> (Vec<(String, Written)>, Written) {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut prefixes: Vec<_> =
            table.prefixes.iter().map(|(prefix, written)| (prefix.to_string(), *written)).collect();
        prefixes.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        (prefixes, table.other)
    }
}

impl Table {
    fn slot(&mut self, key: &[u8]) -> &mut Written {
        let Some(prefix) = prefix(key) else { return &mut self.other };
        let known = self.prefixes.contains_key(prefix);
        if !known && self.prefixes.len() >= PREFIXES_MAX {
            return &mut self.other;
        }
        if !known {
            self.prefixes.insert(prefix.into(), Written::default());
        }
        self.prefixes.get_mut(prefix).unwrap_or(&mut self.other)
    }
}

/// The leading segments of a key, each with the slash that ends it; the last segment of a key names one thing and is none of them.
fn prefix(key: &[u8]) -> Option<&str> {
    let from = usize::from(key.first() == Some(&b'/'));
    let slashes = key.iter().enumerate().skip(from).filter(|(_, byte)| **byte == b'/').take(SEGMENTS);
    let (last, _) = slashes.last()?;
    let prefix = key.get(..=last).filter(|prefix| prefix.len() <= PREFIX_BYTES_MAX)?;
    std::str::from_utf8(prefix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::ChangeKind;
    use crate::types::{Revision, RevisionPair};
    use bytes::Bytes;

    fn put(key: impl Into<Bytes>, value: &'static str) -> Arc<Change> {
        let kind = ChangeKind::Put { create: Revision(2), version: 1, lease: 0, value: value.into() };
        Arc::new(Change { key: key.into(), at: RevisionPair::last_of(Revision(2)), kind })
    }

    #[test]
    fn a_key_belongs_to_its_first_two_segments_but_not_to_its_last() {
        let check = |key: &str, expected: Option<&str>| assert_eq!(prefix(key.as_bytes()), expected, "{key}");
        check("/registry/pods/default/a", Some("/registry/pods/"));
        check("/registry/pods/a", Some("/registry/pods/"));
        check("/registry/pods", Some("/registry/"));
        check("registry/pods/a", Some("registry/pods/"));
        check("a/b", Some("a/"));
        check("//b/c", Some("//b/"));
        for key in ["", "/", "a", "/a"] {
            check(key, None);
        }
        assert_eq!(prefix(b"/a\xff/b"), None, "a label is text");
        assert_eq!(prefix(format!("/{}/a", "x".repeat(PREFIX_BYTES_MAX)).as_bytes()), None, "a label is short");
    }

    #[test]
    fn changes_and_bytes_are_counted_by_prefix() {
        let traffic = Traffic::default();
        let gone = Change { kind: ChangeKind::Tombstone, ..(*put("/a/b/1", "")).clone() };
        traffic.add(&[put("/a/b/1", "123"), put("/a/b/2", ""), put("c", "4"), Arc::new(gone)]);
        let (prefixes, other) = traffic.read();
        assert_eq!(prefixes, [("/a/b/".to_owned(), Written { changes: 3, bytes: 21 })]);
        assert_eq!(other, Written { changes: 1, bytes: 2 });
    }

    #[test]
    fn the_table_is_bounded_and_what_it_knows_stays() {
        let traffic = Traffic::default();
        for number in 0..2 * PREFIXES_MAX {
            traffic.add(&[put(format!("/a/{number}/x"), ""), put("/a/0/x", "")]);
        }
        let (prefixes, other) = traffic.read();
        assert_eq!(prefixes.len(), PREFIXES_MAX);
        assert_eq!(other.changes, PREFIXES_MAX as u64);
        let first = prefixes.iter().find(|(prefix, _)| prefix == "/a/0/").expect("it came first");
        assert_eq!(first.1.changes, 1 + 2 * PREFIXES_MAX as u64);
    }
}
