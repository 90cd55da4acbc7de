//! Faults planted in recorded histories: what a broken store would have shown.

use history::{Body, History, Operation, Outcome, Refusal, Request, Rule};

use super::planting::*;
use super::planting_in_watches as watches;
use crate::model::rng::Rng;

/// Plants a fault at a random place; false if the history has no place for it.
pub type Plant = fn(&mut History, &mut Rng) -> bool;

/// What is planted, the rule that it breaks, and how.
pub const TABLE: &[(&str, Rule, Plant)] = &[
    ("the last write is lost", Rule::LostWrite, lose_the_last),
    ("another value was stored", Rule::LostWrite, |history, rng| {
        journal_put(history, rng, |kv| kv.value = b"another".to_vec())
    }),
    ("a revision is skipped", Rule::Dense, |history, rng| {
        let revision = a_revision(history, rng);
        history.journal.retain(|event| event.revision != revision);
        true
    }),
    ("a change is there twice", Rule::Dense, |history, rng| {
        let index = rng.below(history.journal.len());
        history.journal.insert(index, history.journal[index].clone());
        true
    }),
    ("revisions go back", Rule::Dense, |history, rng| {
        let index = rng.below(history.journal.len() - 40);
        history.journal.swap(index, index + 39);
        true
    }),
    ("two writes have one revision", Rule::RevisionReuse, |history, rng| {
        let (one, other) = (an_answered_put(history, rng), an_answered_put(history, rng));
        let outcome = history.operations[one].outcome.clone();
        history.operations[other].outcome = outcome;
        one != other
    }),
    ("a write comes from nowhere", Rule::Phantom, |history, rng| {
        let index = an_answered_put(history, rng);
        history.operations.remove(index);
        true
    }),
    ("a write happens again", Rule::TwiceWritten, write_again),
    ("a refused write happens", Rule::RefusedWrite, |history, rng| {
        let index = an_answered_put(history, rng);
        history.operations[index].outcome = Outcome::Refused(Refusal::Busy);
        true
    }),
    ("half of a transaction happens", Rule::Atomic, |history, rng| {
        let places = (1..history.journal.len()).filter(|index| {
            let pair = &history.journal[index - 1..=*index];
            pair[0].revision == pair[1].revision && pair.iter().any(|event| event.kv.is_some())
        });
        choose(places.collect(), rng).is_some_and(|index| {
            history.journal.remove(index);
            true
        })
    }),
    ("a version is wrong", Rule::Numbers, |history, rng| journal_put(history, rng, |kv| kv.version += 1)),
    ("a create revision is wrong", Rule::Numbers, |history, rng| {
        journal_put(history, rng, |kv| kv.create_revision -= 1)
    }),
    ("a key is attached to another lease", Rule::Numbers, |history, rng| journal_put(history, rng, |kv| kv.lease += 1)),
    ("a put answers an older value", Rule::PrevKv, |history, rng| {
        bodies(history, rng, |_, body| match body {
            Body::Put(Some(prev)) => {
                prev.value = b"older".to_vec();
                true
            }
            _ => false,
        })
    }),
    ("a put does not answer what the key was", Rule::PrevKv, |history, rng| {
        bodies(history, rng, |_, body| match body {
            Body::Put(prev) => prev.take().is_some(),
            _ => false,
        })
    }),
    ("a deletion counts one too many", Rule::DeleteCount, |history, rng| {
        bodies(history, rng, |_, body| match body {
            Body::Delete(count @ 1.., _) => {
                *count += 1;
                true
            }
            _ => false,
        })
    }),
    ("a deletion answers one key less", Rule::PrevKv, |history, rng| {
        bodies(history, rng, |_, body| match body {
            Body::Delete(_, kvs) => kvs.pop().is_some(),
            _ => false,
        })
    }),
    ("a compare says the opposite", Rule::Branch, |history, rng| {
        bodies(history, rng, |_, body| match body {
            Body::Txn(succeeded, _) => {
                *succeeded = !*succeeded;
                true
            }
            _ => false,
        })
    }),
    ("a transaction does not read its own writes", Rule::Reply, |history, rng| {
        bodies(history, rng, |_, body| match body {
            Body::Txn(_, answers) if answers.iter().any(|answer| matches!(answer, Body::Put(_))) => {
                let mut ranges = answers.iter_mut().filter_map(|answer| match answer {
                    Body::Range { kvs, .. } => kvs.first_mut(),
                    _ => None,
                });
                ranges.next().is_some_and(|kv| {
                    kv.version += 1;
                    true
                })
            }
            _ => false,
        })
    }),
    ("a read has another value", Rule::Read, |history, rng| {
        read(history, rng, |kvs, _| {
            kvs.last_mut().is_some_and(|kv| std::mem::replace(&mut kv.value, vec![1]) != vec![1])
        })
    }),
    ("a read misses a key", Rule::Read, |history, rng| read(history, rng, |kvs, _| kvs.pop().is_some())),
    ("a count is wrong", Rule::Read, |history, rng| {
        read(history, rng, |_, count| {
            *count += 1;
            true
        })
    }),
    ("a read is stale", Rule::Stale, |history, rng| old_read(history, rng, false)),
    ("a session goes back", Rule::Session, |history, rng| old_read(history, rng, true)),
    ("a revision is seen before its write begins", Rule::Early, |history, _| seen_early(history)),
    ("a revision that is there is refused as compacted", Rule::Compaction, |history, rng| {
        pinned(history, rng, 10, Refusal::Compacted)
    }),
    ("a compacted revision is served", Rule::Compaction, serve_compacted),
    ("a past revision is refused as future", Rule::Future, |history, rng| pinned(history, rng, -10, Refusal::Future)),
    ("a client asks twice at once", Rule::Recording, |history, rng| {
        let index = rng.below(history.operations.len());
        let operation = history.operations[index].clone();
        history.operations.push(operation);
        true
    }),
    ("a lease is granted for less", Rule::LeaseLife, |history, rng| {
        operations(history, rng, |operation| match (&operation.request, &mut operation.outcome) {
            (Request::Grant(..), Outcome::Ok(_, Body::Lease(ttl))) => {
                *ttl -= 1;
                true
            }
            _ => false,
        })
    }),
    ("keys are attached to no lease", Rule::LeaseLife, |history, _| {
        let used = history.journal.iter().filter_map(|event| event.kv.as_ref()).map(|kv| kv.lease).find(|id| *id != 0);
        let before = history.operations.len();
        history.operations.retain(|operation| !matches!(operation.request, Request::Grant(id, _) if Some(id) == used));
        history.operations.len() < before
    }),
    ("a lease ends early", Rule::LeaseEarly, |history, _| expired(history).is_some_and(|(id, _)| longer(history, id))),
    ("a lease leaves a key", Rule::LeaseTogether, |history, _| {
        let found = expired(history).filter(|(_, places)| places.len() > 1);
        found.is_some_and(|(_, places)| {
            history.journal.remove(places.start);
            true
        })
    }),
    ("a lease that lives is gone", Rule::LeaseEarly, |history, rng| {
        let revoked: Vec<i64> = history.operations.iter().filter_map(revokes).collect();
        let granted = |id: i64, history: &History| {
            let grant = |one: &&Operation| matches!(&one.request, Request::Grant(other, _) if *other == id);
            history.operations.iter().find(grant).map(|one| one.call.ms)
        };
        let places = (0..history.operations.len()).filter(|index| {
            let one = &history.operations[*index];
            match (&one.request, &one.outcome) {
                (Request::KeepAlive(id), Outcome::Ok(_, Body::Lease(ttl @ 1..))) if !revoked.contains(id) => {
                    granted(*id, history).is_some_and(|ms| one.back.ms < ms + *ttl as u64 * 1000)
                }
                _ => false,
            }
        });
        choose(places.collect(), rng).is_some_and(|index| {
            if let Outcome::Ok(_, body) = &mut history.operations[index].outcome {
                *body = Body::Lease(0);
            }
            true
        })
    }),
    ("a watch gets what it filters", Rule::WatchFilter, watches::filtered),
    ("a watch gets messages in another order", Rule::WatchOrder, watches::swapped),
    ("a watch gets a message twice", Rule::WatchUnique, watches::doubled),
    ("a watch does not get the last change of a revision", Rule::WatchAtomic, watches::cut),
    ("a watch gets a revision in two messages", Rule::WatchAtomic, watches::split),
    ("a watch does not get its first change", Rule::WatchFirst, watches::late),
    ("a watch gets what was before its start", Rule::WatchFirst, watches::before_its_start),
    ("a watch misses a revision", Rule::WatchReliable, watches::missing),
    ("a watch gets another value", Rule::WatchContent, watches::altered),
    ("a watch gets a wrong previous value", Rule::WatchPrevKv, watches::wrong_prev),
    ("a watch gets a previous value nobody asked for", Rule::WatchPrevKv, watches::unasked_prev),
    ("progress stands for a change that never comes", Rule::WatchProgress, watches::progress_instead),
    ("a change comes after its progress", Rule::WatchBookmark, watches::progress_before),
    ("progress goes back", Rule::WatchBookmark, watches::progress_back),
    ("a watch that has everything ends as compacted", Rule::WatchCompacted, watches::ended_for_nothing),
    ("a watch ends at a revision nobody compacted", Rule::WatchCompacted, watches::ended_elsewhere),
    ("a watch ends and nobody asked", Rule::WatchCanceled, watches::canceled),
    ("a watch goes on after its end", Rule::WatchCanceled, watches::after_its_end),
    ("a watch is created in the past", Rule::Stale, watches::created_late),
];
