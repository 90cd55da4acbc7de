//! How faults are planted in what operations and the journal recorded.

use history::{Body, History, KeyValue, Moment, Operation, Outcome, Refusal, Request, Told, Watch};

use crate::model::rng::Rng;

pub fn choose<T>(mut places: Vec<T>, rng: &mut Rng) -> Option<T> {
    if places.is_empty() { None } else { Some(places.swap_remove(rng.below(places.len()))) }
}

pub fn last(history: &History) -> i64 {
    history.journal.last().map_or(1, |event| event.revision)
}

/// Neither the first nor the last.
pub fn a_revision(history: &History, rng: &mut Rng) -> i64 {
    rng.between(3, last(history) - 1)
}

pub fn an_answered_put(history: &History, rng: &mut Rng) -> usize {
    let put = |one: &Operation| matches!((&one.request, &one.outcome), (Request::Put(_), Outcome::Ok(..)));
    let places = (0..history.operations.len()).filter(|index| put(&history.operations[*index]));
    choose(places.collect(), rng).expect("a put was answered")
}

pub fn lose_the_last(history: &mut History, _rng: &mut Rng) -> bool {
    let last = last(history);
    history.journal.retain(|event| event.revision != last);
    true
}

/// Alters what the journal has of a put that was answered.
pub fn journal_put(history: &mut History, rng: &mut Rng, alter: impl Fn(&mut KeyValue)) -> bool {
    let index = an_answered_put(history, rng);
    let Outcome::Ok(revision, _) = history.operations[index].outcome else { return false };
    let event = history.journal.iter_mut().find(|event| event.revision == revision);
    event.and_then(|event| event.kv.as_mut()).map(alter).is_some()
}

/// The write behind one revision is gone, and what another one wrote is there in its place.
pub fn write_again(history: &mut History, rng: &mut Rng) -> bool {
    let (one, other) = (an_answered_put(history, rng), an_answered_put(history, rng));
    let (Request::Put(put), Outcome::Ok(revision, _)) =
        (&history.operations[one].request, &history.operations[other].outcome)
    else {
        return false;
    };
    let (value, revision) = (put.value.clone(), *revision);
    let event = history.journal.iter_mut().find(|event| event.revision == revision);
    if let Some(kv) = event.and_then(|event| event.kv.as_mut()) {
        kv.value = value;
    }
    history.operations.remove(other);
    one != other
}

pub fn operations(history: &mut History, rng: &mut Rng, mut alter: impl FnMut(&mut Operation) -> bool) -> bool {
    let from = rng.below(history.operations.len());
    let (before, after) = history.operations.split_at_mut(from);
    after.iter_mut().chain(before).any(&mut alter)
}

pub fn bodies(history: &mut History, rng: &mut Rng, mut alter: impl FnMut(&Request, &mut Body) -> bool) -> bool {
    operations(history, rng, |operation| match &mut operation.outcome {
        Outcome::Ok(_, body) => alter(&operation.request, body),
        _ => false,
    })
}

pub fn read(history: &mut History, rng: &mut Rng, alter: impl Fn(&mut Vec<KeyValue>, &mut i64) -> bool) -> bool {
    bodies(history, rng, |_, body| match body {
        Body::Range { kvs, count, .. } => alter(kvs, count),
        _ => false,
    })
}

/// A read answered from an older revision, at which the key was the same.
pub fn old_read(history: &mut History, rng: &mut Rng, serializable: bool) -> bool {
    // Its client was told more before: a session that goes back, and stale unless that was allowed.
    let told: Vec<(u32, u64, i64)> = history
        .operations
        .iter()
        .filter_map(|one| match one.outcome {
            Outcome::Ok(revision, _) => Some((one.client, one.back.order, revision)),
            _ => None,
        })
        .collect();
    operations(history, rng, |operation| {
        let (client, order) = (operation.client, operation.call.order);
        let (Request::Range(range), Outcome::Ok(header, Body::Range { kvs, .. })) =
            (&operation.request, &mut operation.outcome)
        else {
            return false;
        };
        let single = range.span.end.is_empty() && !range.count_only && range.revision == 0;
        let Some(older) = kvs.first().map(|kv| kv.mod_revision) else { return false };
        let before = told.iter().any(|one| one.0 == client && one.1 < order && one.2 > older);
        if !single || range.serializable != serializable || older >= *header || !before {
            return false;
        }
        *header = older;
        true
    })
}

/// A watch is told of the second revision before anybody asked for anything; nobody read the first one after its write began.
pub fn seen_early(history: &mut History) -> bool {
    let answered = |revision: i64| {
        // Refused as future, the next one was not there either.
        let here = move |one: &&Operation| match (&one.request, &one.outcome) {
            (_, Outcome::Ok(header, _)) => *header == revision,
            (Request::Range(range), Outcome::Refused(Refusal::Future)) => range.revision == revision + 1,
            _ => false,
        };
        history.operations.iter().filter(here).map(|one| one.call.order)
    };
    let put = history
        .operations
        .iter()
        .find(|one| matches!((&one.request, &one.outcome), (Request::Put(_), Outcome::Ok(2, _))));
    let alone = put.is_some_and(|put| answered(1).all(|order| order < put.call.order));
    let mut told = history.watches.iter_mut().flat_map(|watch| &mut watch.told);
    let first = told.find(|(_, told)| matches!(told, Told::Events(2, _)));
    first.is_some_and(|(moment, _)| {
        *moment = Moment::default();
        alone
    })
}

/// A read of a revision, turned into a refusal; `above` says how far above the highest compaction, or below the revision.
pub fn pinned(history: &mut History, rng: &mut Rng, above: i64, refusal: Refusal) -> bool {
    let marks = history.operations.iter().filter_map(|one| match one.request {
        Request::Compact(revision) => Some((one.call.order, revision)),
        _ => None,
    });
    let marks: Vec<(u64, i64)> = marks.collect();
    operations(history, rng, |operation| {
        let Request::Range(range) = &operation.request else { return false };
        let Outcome::Ok(header, _) = operation.outcome else { return false };
        let compacted = marks.iter().filter(|mark| mark.0 < operation.back.order).map(|mark| mark.1).max().unwrap_or(0);
        let fits = if above > 0 { range.revision > compacted + above } else { range.revision < header + above };
        if range.revision == 0 || !fits {
            return false;
        }
        operation.outcome = Outcome::Refused(refusal.clone());
        true
    })
}

/// A read of a revision that was compacted long ago.
pub fn serve_compacted(history: &mut History, _rng: &mut Rng) -> bool {
    let highest = history.operations.iter().filter_map(|one| match (&one.request, &one.outcome) {
        (Request::Compact(revision), Outcome::Ok(..)) => Some(*revision),
        _ => None,
    });
    let Some(highest) = highest.max() else { return false };
    let (last, end) = (last(history), history.operations.iter().map(|one| one.back.order).max().unwrap_or(0));
    let old = history.operations.iter().find(|one| match (&one.request, &one.outcome) {
        (Request::Range(range), Outcome::Ok(..)) => range.revision > 0 && range.revision < highest,
        _ => false,
    });
    let Some(mut again) = old.cloned() else { return false };
    let at = |order| Moment { order, ms: again.back.ms };
    (again.call, again.back, again.client) = (at(end + 1), at(end + 2), 99);
    if let Outcome::Ok(header, _) = &mut again.outcome {
        *header = last;
    }
    history.operations.push(again);
    true
}

pub fn revokes(operation: &Operation) -> Option<i64> {
    if let Request::Revoke(id) = operation.request { Some(id) } else { None }
}

/// A lease that ended by itself, and where the journal has its keys.
pub fn expired(history: &History) -> Option<(i64, std::ops::Range<usize>)> {
    let claimed: Vec<i64> = history
        .operations
        .iter()
        .filter_map(|one| match (&one.request, &one.outcome) {
            (Request::Delete(_) | Request::Txn(_) | Request::Revoke(_), Outcome::Ok(revision, _)) => Some(*revision),
            _ => None,
        })
        .collect();
    let revoked: Vec<i64> = history.operations.iter().filter_map(revokes).collect();
    let mut leases: std::collections::HashMap<&[u8], i64> = std::collections::HashMap::new();
    for (index, event) in history.journal.iter().enumerate() {
        let lease = leases.insert(&event.key, event.kv.as_ref().map_or(0, |kv| kv.lease)).unwrap_or(0);
        let alone = event.kv.is_none() && lease != 0 && !revoked.contains(&lease) && !claimed.contains(&event.revision);
        if alone {
            let keys = history.journal[index..].iter().take_while(|one| one.revision == event.revision).count();
            return Some((lease, index..index + keys));
        }
    }
    None
}

/// The lease was asked for and granted for much longer.
pub fn longer(history: &mut History, id: i64) -> bool {
    let mut grants = history.operations.iter_mut().filter_map(|one| match (&mut one.request, &mut one.outcome) {
        (Request::Grant(other, asked), Outcome::Ok(_, Body::Lease(ttl))) if *other == id => Some((asked, ttl)),
        _ => None,
    });
    grants.next().is_some_and(|(asked, ttl)| {
        (*asked, *ttl) = (1_000_000, 1_000_000);
        true
    })
}

/// The watches, with their numbers, that were told at least so many events.
pub fn busy(history: &History, least: usize) -> Vec<usize> {
    let events = |watch: &Watch| watch.told.iter().filter(|(_, told)| matches!(told, Told::Events(..))).count();
    (0..history.watches.len()).filter(|index| events(&history.watches[*index]) >= least).collect()
}
