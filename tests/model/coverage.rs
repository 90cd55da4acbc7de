//! Counters of what the random runs met; one that stays at zero fails the test.

use std::collections::BTreeMap;

use super::op::Refusal;

/// The counters.
#[derive(Debug, Default)]
pub struct Coverage(BTreeMap<&'static str, u64>);

/// What every run has to meet.
const ALWAYS: &[&str] = &[
    "range: one key",
    "range: interval",
    "range: from a key on",
    "range: empty interval",
    "range: everything",
    "range: at a revision",
    "range: at the floor",
    "range: negative revision",
    "range: limit",
    "range: limit cuts",
    "range: keys only",
    "range: keys only by value",
    "range: count only",
    "range: serializable",
    "range: min mod",
    "range: max mod",
    "range: min create",
    "range: max create",
    "order: none",
    "order: ascending",
    "order: descending",
    "target: key",
    "target: version",
    "target: create",
    "target: mod",
    "target: value",
    "put: lease",
    "put: previous",
    "put: keep value",
    "put: keep lease",
    "put: keep both",
    "put: previous there",
    "delete: one key",
    "delete: interval",
    "delete: from a key on",
    "delete: previous",
    "delete: nothing there",
    "txn: succeeded",
    "txn: failed",
    "txn: nested",
    "txn: reads only",
    "txn: empty",
    "txn: changes nothing",
    "txn: several versions of a key",
    "txn: list at the limit",
    "txn: range at a revision",
    "txn: negative revision",
    "compare: version",
    "compare: create",
    "compare: mod",
    "compare: value",
    "compare: lease",
    "compare: unknown target",
    "compare: equal",
    "compare: greater",
    "compare: less",
    "compare: not equal",
    "compare: unknown result",
    "compare: range",
    "compare: other union",
    "compare: no union",
    "lease: granted by id",
    "lease: granted by the store",
    "lease: short TTL raised",
    "lease: revoked with keys",
    "lease: revoked without keys",
    "lease: kept alive",
    "lease: keep-alive unknown",
    "lease: time with keys",
    "lease: time unknown",
    "lease: list",
    "compaction",
    "compaction: at the current revision",
    "compaction: at a tombstone",
    "compaction: watch from the floor sees the deletion",
    "watch: now",
    "watch: from the past",
    "watch: in the future",
    "watch: future came",
    "watch: below the floor",
    "watch: one key",
    "watch: interval",
    "watch: from a key on",
    "watch: empty key",
    "watch: previous",
    "watch: no puts",
    "watch: no deletes",
    "watch: chosen id",
    "watch: events",
    "watch: taken id",
    "watch: empty range",
    "watch: negative start",
    "watch: canceled",
    "watch: cancel unknown",
    "watch: progress",
    "watch: no progress while one waits",
    "watch: several versions of a key",
    "pages: several",
];

/// What a run meets if it can flush and reopen, and what it meets while base is rewritten.
const REOPENING: &[&str] = &["reopen", "reopen: killed", "reopen: open watch", "reopen: between pages"];
const REWRITING: &[&str] = &["rewrite: waited for", "rewrite: in the background", "rewrite: open watch"];
const FLUSHING: &[&str] = &[
    "flush",
    "flush: open watch",
    "flush: between pages",
    "watch: passed by compaction while catching up",
    "watch: overtaken",
];

impl Coverage {
    /// Counts one more.
    pub fn note(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    /// Counts one more if so.
    pub fn note_if(&mut self, condition: bool, name: &'static str) {
        if condition {
            self.note(name);
        }
    }

    /// Prints every counter.
    pub fn print(&self) {
        for (name, count) in &self.0 {
            println!("{count:>9}  {name}");
        }
    }

    /// Fails if a counter that matters is at zero.
    pub fn assert_all(&self, flushes: bool, reopens: bool, streams_lists: bool) {
        let refusals = Refusal::ALL.iter().map(|refusal| refusal.counter());
        let refusals = refusals.filter(|name| streams_lists || !name.contains("RangeStream"));
        let mut names: Vec<&str> = ALWAYS.iter().copied().chain(refusals).collect();
        names.extend(REOPENING.iter().filter(|_| reopens));
        names.extend(REWRITING);
        names.extend(FLUSHING.iter().filter(|_| flushes));
        names.extend(["range: streamed"].iter().filter(|_| streams_lists));
        let missed: Vec<&str> = names.into_iter().filter(|name| !self.0.contains_key(name)).collect();
        assert!(missed.is_empty(), "never met: {missed:?}");
    }
}
