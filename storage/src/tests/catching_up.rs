//! Catching up: fair, once only, and never below the floor.

use super::gate::{Gate, GatedFs, Meets};
use super::*;

fn everything(from: i64) -> WatchSpec {
    WatchSpec { start: StartAt::Revision(from), ..WatchSpec::new(KeyRange::all()) }
}

#[test]
fn a_watch_with_a_long_way_to_go_holds_up_no_other() {
    let keyspace = Machine::new(1).open().unwrap();
    for n in 0..400 {
        keyspace.put(put("a", vec![n as u8; 20_000])).wait().unwrap();
    }
    // Once the hub is there, all four watches are behind.
    while keyspace.inner.hub.reached() < keyspace.revision() {
        std::thread::yield_now();
    }
    let stream = keyspace.watch_stream();
    stream.create(everything(2));
    (0..3).for_each(|_| stream.create(everything(401)));
    let mut steps = 0;
    let mut near = 0;
    while near < 3 {
        stream.catch_up().unwrap();
        steps += 1;
        let messages = stream.take();
        near += messages
            .iter()
            .filter(|message| matches!(message, WatchMessage::Events { id, .. } if *id != WatchId(0)))
            .count();
        assert!(steps <= 8, "{near} of three were served after {steps} steps");
    }
    assert!(stream.is_behind());
}

#[test]
fn threads_that_catch_up_at_once_deliver_nothing_twice() {
    let (machine, gate) = (Machine::new(1), Gate::default());
    let options = Options { cache_bytes: 0, ..small() };
    let keyspace = Keyspace::open(&dir(), options, GatedFs::environment(&machine, &gate)).unwrap();
    for n in 0..60 {
        keyspace.put(put("a", vec![n; 20_000])).wait().unwrap();
    }
    keyspace.flush().unwrap();
    let stream = keyspace.watch_stream();
    stream.create(everything(2));
    gate.set("slow", Meets::Wait);
    std::thread::scope(|scope| {
        let slow = std::thread::Builder::new().name("slow".to_owned());
        slow.spawn_scoped(scope, || stream.catch_up().unwrap()).unwrap();
        gate.somebody_waits();
        // One step of several: the watch is still behind when the slow thread comes with the same one.
        stream.catch_up().unwrap();
        gate.open();
    });
    while stream.is_behind() {
        stream.catch_up().unwrap();
    }
    let revisions: Vec<i64> = stream
        .take()
        .iter()
        .filter_map(
            |message| if let WatchMessage::Events { events, .. } = message { Some(events.iter()) } else { None },
        )
        .flatten()
        .map(|event| event.change.at.main.0)
        .collect();
    assert_eq!(revisions, (2..=61).collect::<Vec<_>>());
}

#[test]
fn a_watch_created_below_the_floor_while_another_catches_up_gets_no_event() {
    let keyspace = Machine::new(1).open().unwrap();
    for n in 0..200 {
        keyspace.put(put("a", format!("{n}"))).wait().unwrap();
    }
    keyspace.compact(150).wait().unwrap();
    let stream = keyspace.watch_stream();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                stream.catch_up().unwrap();
            }
        });
        for _ in 0..20_000 {
            stream.create(everything(2));
        }
        while stream.is_behind() {
            std::thread::yield_now();
        }
        done.store(true, Ordering::SeqCst);
    });
    let events = stream.take().iter().filter(|message| matches!(message, WatchMessage::Events { .. })).count();
    assert_eq!(events, 0, "watches were given what is left below the floor");
}

#[test]
fn progress_does_not_pile_up_for_a_reader_that_does_not_read() {
    let keyspace = Machine::new(1).open().unwrap();
    let stream = keyspace.watch_stream();
    stream.create(WatchSpec { progress_notify: true, ..WatchSpec::new(KeyRange::all()) });
    for _ in 0..10_000 {
        stream.tick();
        stream.request_progress();
    }
    let waiting = stream.take().len();
    assert!(waiting < 500, "{waiting} messages wait");
    stream.request_progress();
    assert!(matches!(stream.take()[..], [WatchMessage::Progress { id: None, .. }]));
}
