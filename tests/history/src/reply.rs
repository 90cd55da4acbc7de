//! Which rule a wrong answer breaks.

use crate::types::*;
use crate::violation::Rule;

/// What an answer says of its request: whether it changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    Yes,
    No,
    /// The answer does not tell.
    Maybe,
}

pub(crate) fn changed(request: &Request, body: &Body) -> Changed {
    let one = |body: &Body| matches!(body, Body::Put(_)) || matches!(body, Body::Delete(count, _) if *count > 0);
    match (request, body) {
        (Request::Revoke(_), _) => Changed::Maybe,
        (_, Body::Txn(_, answers)) if answers.iter().any(one) => Changed::Yes,
        (_, body) if one(body) => Changed::Yes,
        _ => Changed::No,
    }
}

/// The rule that an answer breaks if it is not the expected one.
pub(crate) fn differs(expected: &Body, actual: &Body) -> Option<Rule> {
    if expected == actual {
        return None;
    }
    Some(match (expected, actual) {
        (Body::Put(_), Body::Put(_)) => Rule::PrevKv,
        (Body::Delete(expected, _), Body::Delete(actual, _)) if expected != actual => Rule::DeleteCount,
        (Body::Delete(..), Body::Delete(..)) => Rule::PrevKv,
        (Body::Range { .. }, Body::Range { .. }) => Rule::Read,
        (Body::Txn(expected, _), Body::Txn(actual, _)) if expected != actual => Rule::Branch,
        (Body::Txn(_, expected), Body::Txn(_, actual)) if expected.len() == actual.len() => {
            let mut rules = expected.iter().zip(actual).filter_map(|(expected, actual)| differs(expected, actual));
            return rules.next();
        }
        _ => Rule::Reply,
    })
}

/// The rule that recorded changes break if they are not the expected ones.
pub(crate) fn changes_differ(expected: &[Event], recorded: &[Event]) -> Option<Rule> {
    let plain = |event: &Event| (event.key.clone(), event.kv.is_some());
    let (wanted, found): (Vec<_>, Vec<_>) =
        (expected.iter().map(plain).collect(), recorded.iter().map(plain).collect());
    if wanted != found {
        let part = found.len() < wanted.len() && found.iter().all(|change| wanted.contains(change));
        return Some(if part { Rule::Atomic } else { Rule::LostWrite });
    }
    let mut pairs = expected.iter().zip(recorded);
    pairs.find_map(|(expected, recorded)| match (&expected.kv, &recorded.kv) {
        (Some(expected), Some(recorded)) if expected.value != recorded.value => Some(Rule::LostWrite),
        (expected, recorded) if expected != recorded => Some(Rule::Numbers),
        _ => None,
    })
}
