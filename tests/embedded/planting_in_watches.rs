//! How faults are planted in what watches recorded.

use history::{Event, History, Moment, Told, Watch};

use super::planting::{busy, choose};
use crate::model::rng::Rng;

type Message = (Moment, Told);

fn events(message: &Message) -> Option<&Vec<Event>> {
    if let Told::Events(_, events) = &message.1 { Some(events) } else { None }
}

fn events_mut(message: &mut Message) -> Option<&mut Vec<Event>> {
    if let Told::Events(_, events) = &mut message.1 { Some(events) } else { None }
}

/// Places (watch, message) at which a message of events fits.
fn places(history: &History, fits: impl Fn(&Watch, usize, &Vec<Event>) -> bool) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    for number in busy(history, 3) {
        let watch = &history.watches[number];
        let all = watch.told.iter().enumerate().filter_map(|(index, message)| Some((index, events(message)?)));
        places.extend(all.filter(|(index, events)| fits(watch, *index, events)).map(|(index, _)| (number, index)));
    }
    places
}

/// Alters the record at a random place of these.
fn at(
    history: &mut History,
    rng: &mut Rng,
    fits: impl Fn(&Watch, usize, &Vec<Event>) -> bool,
    alter: impl FnOnce(&mut Watch, usize),
) -> bool {
    let place = choose(places(history, fits), rng);
    place.is_some_and(|(number, index)| {
        alter(&mut history.watches[number], index);
        true
    })
}

/// True if the messages before and after hold events too.
fn between(watch: &Watch, index: usize) -> bool {
    index > 0
        && events(&watch.told[index - 1]).is_some()
        && watch.told.get(index + 1).is_some_and(|one| events(one).is_some())
}

pub fn filtered(history: &mut History, rng: &mut Rng) -> bool {
    let put = |_: &Watch, _: usize, events: &Vec<Event>| events.iter().any(|event| event.kv.is_some());
    at(history, rng, put, |watch, _| watch.no_put = true)
}

pub fn swapped(history: &mut History, rng: &mut Rng) -> bool {
    at(
        history,
        rng,
        |watch, index, _| between(watch, index),
        |watch, index| {
            // Both at the later moment: nobody knows of anything sooner than before.
            watch.told[index].0 = watch.told[index + 1].0;
            let told = watch.told[index].1.clone();
            watch.told[index].1 = std::mem::replace(&mut watch.told[index + 1].1, told);
        },
    )
}

pub fn doubled(history: &mut History, rng: &mut Rng) -> bool {
    at(
        history,
        rng,
        |_, _, events| events.len() == 1,
        |watch, index| watch.told.insert(index, watch.told[index].clone()),
    )
}

pub fn cut(history: &mut History, rng: &mut Rng) -> bool {
    let several = |_: &Watch, _: usize, events: &Vec<Event>| {
        events.len() > 1 && events[events.len() - 2].revision == events[events.len() - 1].revision
    };
    at(history, rng, several, |watch, index| {
        events_mut(&mut watch.told[index]).and_then(Vec::pop);
    })
}

pub fn split(history: &mut History, rng: &mut Rng) -> bool {
    let several =
        |_: &Watch, _: usize, events: &Vec<Event>| events.len() > 1 && events[0].revision == events[1].revision;
    at(history, rng, several, |watch, index| {
        let rest = events_mut(&mut watch.told[index]).map(|events| events.split_off(1)).unwrap_or_default();
        let moment = watch.told[index].0;
        let header = rest[rest.len() - 1].revision;
        watch.told.insert(index + 1, (moment, Told::Events(header, rest)));
    })
}

pub fn late(history: &mut History, rng: &mut Rng) -> bool {
    let first = |watch: &Watch, index: usize, _: &Vec<Event>| {
        index == 1 && watch.told.get(2).is_some_and(|one| events(one).is_some())
    };
    at(history, rng, first, |watch, index| drop(watch.told.remove(index)))
}

pub fn before_its_start(history: &mut History, rng: &mut Rng) -> bool {
    let first = |watch: &Watch, index: usize, _: &Vec<Event>| index == 1 && watch.start > 0;
    at(history, rng, first, |watch, index| {
        watch.start = events(&watch.told[index]).map_or(0, |events| events[0].revision + 1)
    })
}

pub fn missing(history: &mut History, rng: &mut Rng) -> bool {
    at(history, rng, |watch, index, _| between(watch, index), |watch, index| drop(watch.told.remove(index)))
}

pub fn altered(history: &mut History, rng: &mut Rng) -> bool {
    let put = |_: &Watch, _: usize, events: &Vec<Event>| events[0].kv.is_some();
    at(history, rng, put, |watch, index| {
        if let Some(kv) = events_mut(&mut watch.told[index]).and_then(|events| events[0].kv.as_mut()) {
            kv.value = b"altered".to_vec();
        }
    })
}

pub fn wrong_prev(history: &mut History, rng: &mut Rng) -> bool {
    at(
        history,
        rng,
        |_, _, events| events[0].prev.is_some(),
        |watch, index| {
            if let Some(kv) = events_mut(&mut watch.told[index]).and_then(|events| events[0].prev.as_mut()) {
                kv.version += 1;
            }
        },
    )
}

pub fn unasked_prev(history: &mut History, rng: &mut Rng) -> bool {
    let put = |watch: &Watch, _: usize, events: &Vec<Event>| !watch.prev_kv && events[0].kv.is_some();
    at(history, rng, put, |watch, index| {
        if let Some(events) = events_mut(&mut watch.told[index]) {
            events[0].prev = events[0].kv.clone();
        }
    })
}

/// Nothing follows the message.
fn is_last(watch: &Watch, index: usize) -> bool {
    index > 1 && index + 1 == watch.told.len()
}

fn revision(watch: &Watch, index: usize) -> i64 {
    events(&watch.told[index]).and_then(|events| events.last()).map_or(0, |event| event.revision)
}

pub fn progress_instead(history: &mut History, rng: &mut Rng) -> bool {
    at(
        history,
        rng,
        |watch, index, _| is_last(watch, index),
        |watch, index| {
            watch.told[index].1 = Told::Progress(revision(watch, index));
        },
    )
}

pub fn progress_before(history: &mut History, rng: &mut Rng) -> bool {
    at(
        history,
        rng,
        |watch, index, _| between(watch, index),
        |watch, index| {
            watch.told.insert(index, (watch.told[index].0, Told::Progress(revision(watch, index))));
        },
    )
}

pub fn progress_back(history: &mut History, rng: &mut Rng) -> bool {
    at(
        history,
        rng,
        |watch, index, _| between(watch, index),
        |watch, index| {
            watch.told.insert(index + 1, (watch.told[index].0, Told::Progress(revision(watch, index) - 1)));
        },
    )
}

pub fn ended_for_nothing(history: &mut History, rng: &mut Rng) -> bool {
    let floors = history.watches.iter().flat_map(|watch| &watch.told).filter_map(|(moment, told)| match told {
        Told::Compacted(floor) => Some((*floor, *moment)),
        _ => None,
    });
    let Some((floor, _)) = floors.min_by_key(|(floor, _)| *floor) else { return false };
    let has_all =
        |watch: &Watch, index: usize, _: &Vec<Event>| is_last(watch, index) && revision(watch, index) >= floor;
    at(history, rng, has_all, |watch, index| watch.told.push((watch.told[index].0, Told::Compacted(floor))))
}

pub fn ended_elsewhere(history: &mut History, _rng: &mut Rng) -> bool {
    let asked: Vec<i64> = history
        .operations
        .iter()
        .filter_map(|one| if let history::Request::Compact(revision) = one.request { Some(revision) } else { None })
        .collect();
    let mut floors = history.watches.iter_mut().flat_map(|watch| &mut watch.told).filter_map(|(_, told)| match told {
        Told::Compacted(floor) if !asked.contains(&(*floor + 1)) => Some(floor),
        _ => None,
    });
    floors.next().is_some_and(|floor| {
        *floor += 1;
        true
    })
}

pub fn canceled(history: &mut History, rng: &mut Rng) -> bool {
    let open = |watch: &Watch, index: usize, _: &Vec<Event>| is_last(watch, index) && !watch.cancel_asked;
    at(history, rng, open, |watch, index| watch.told.push((watch.told[index].0, Told::Canceled)))
}

pub fn after_its_end(history: &mut History, _rng: &mut Rng) -> bool {
    let mut ended = history.watches.iter_mut().filter(|watch| matches!(watch.told.last(), Some((_, Told::Canceled))));
    ended.next().is_some_and(|watch| {
        let moment = watch.told[watch.told.len() - 1].0;
        watch.told.push((moment, Told::Canceled));
        true
    })
}

pub fn created_late(history: &mut History, rng: &mut Rng) -> bool {
    let now = |watch: &Watch, index: usize, _: &Vec<Event>| {
        index == 1 && watch.start == 0 && matches!(watch.told[0].1, Told::Created(revision) if revision > 100)
    };
    at(history, rng, now, |watch, _| watch.told[0].1 = Told::Created(2))
}
