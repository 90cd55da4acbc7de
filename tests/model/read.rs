//! How the model reads a range: filters, order, limit, count.

use super::expected::{ExpectedRange, sort_key};
use super::op::Refusal;
use super::state::Model;
use super::wire::{KeyValue, RangeRequest};

impl Model {
    /// Reads at the newest revision, or at the one asked for if it is positive.
    pub fn read(&self, request: &RangeRequest) -> ExpectedRange {
        let at = if request.revision > 0 { request.revision } else { i64::MAX };
        let all = self.scan(&request.key, &request.range_end, at);
        let count = all.len() as i64;
        let (sorted, cut, more) = if request.count_only { (Vec::new(), 0, false) } else { select(all, request) };
        ExpectedRange {
            revision: self.visible_revision(),
            count,
            more,
            sorted,
            cut,
            target: request.sort_target,
            keys_only: request.keys_only,
        }
    }

    /// What a plain read is refused for by the store.
    pub fn check_revision(&self, revision: i64) -> Result<(), Refusal> {
        if revision > self.revision {
            Err(Refusal::Future)
        } else if revision > 0 && revision < self.compacted {
            Err(Refusal::Compacted)
        } else {
            Ok(())
        }
    }
}

fn select(mut all: Vec<KeyValue>, request: &RangeRequest) -> (Vec<KeyValue>, usize, bool) {
    let limit = usize::try_from(request.limit).unwrap_or(0);
    let filtered = filters(request).iter().any(|bound| *bound != 0);
    if limit > 0 && request.sort_order == 0 && !filtered {
        // Without an order asked for, the limit comes before the sort, whatever the sort is by.
        all.truncate(limit + 1);
    }
    all.retain(|kv| passes(kv, request));
    let descend = request.sort_order == 2;
    // Reversed before the sort as well, so that equal ones stay in the order of keys.
    if descend {
        all.reverse();
    }
    all.sort_by_key(|kv| sort_key(kv, request.sort_target));
    if descend {
        all.reverse();
    }
    let more = limit > 0 && all.len() > limit;
    let cut = if more { limit } else { all.len() };
    (all, cut, more)
}

fn filters(request: &RangeRequest) -> [i64; 4] {
    [request.min_mod_revision, request.max_mod_revision, request.min_create_revision, request.max_create_revision]
}

fn passes(kv: &KeyValue, request: &RangeRequest) -> bool {
    let [min_mod, max_mod, min_create, max_create] = filters(request);
    let within = |number: i64, low: i64, high: i64| (low == 0 || number >= low) && (high == 0 || number <= high);
    within(kv.mod_revision, min_mod, max_mod) && within(kv.create_revision, min_create, max_create)
}
