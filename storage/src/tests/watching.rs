//! Watches: bounded queues, falling behind and rejoining, progress, compaction.

use super::*;

fn spec(name: &str) -> WatchSpec {
    WatchSpec::new(KeyRange::single(key(name)))
}

/// Reads until `done` says so, and answers everything that came.
fn read_until(stream: &WatchStream, mut done: impl FnMut(&WatchMessage) -> bool) -> Vec<WatchMessage> {
    let mut all: Vec<WatchMessage> = Vec::new();
    loop {
        for message in stream.recv().unwrap() {
            let last = done(&message);
            all.push(message);
            if last {
                return all;
            }
        }
    }
}

fn revisions(messages: &[WatchMessage]) -> Vec<i64> {
    let events = messages.iter().filter_map(|message| match message {
        WatchMessage::Events { events, .. } => Some(events.iter().map(|event| event.change.at.main.0)),
        _ => None,
    });
    events.flatten().collect()
}

#[test]
fn a_watch_that_nobody_reads_falls_behind_and_still_gets_everything_once() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    let stream = keyspace.watch_stream();
    stream.create(WatchSpec { prev_kv: true, ..spec("a") });
    let other = keyspace.watch_stream();
    other.create(spec("b"));
    for n in 0..500 {
        keyspace.put(put("a", vec![n as u8; 300])).wait().unwrap();
    }
    let last = keyspace.put(put("b", "1")).wait().unwrap().revision;
    // The other stream is not held up by the one that nobody reads.
    let quick = read_until(&other, |message| matches!(message, WatchMessage::Events { .. }));
    assert_eq!(revisions(&quick), [last.0]);
    assert!(stream.is_behind(), "500 events of 300 bytes fit a queue of 16 KiB");
    let mut count = 0;
    let messages = read_until(&stream, |message| {
        if let WatchMessage::Events { events, .. } = message {
            count += events.len();
        }
        count == 500
    });
    assert_eq!(revisions(&messages), (2..502).collect::<Vec<_>>());
    let with_previous = messages.iter().filter_map(|message| match message {
        WatchMessage::Events { events, .. } => Some(events.iter().filter(|event| event.prev.is_some()).count()),
        _ => None,
    });
    assert_eq!(with_previous.sum::<usize>(), 499);
    // It has rejoined: the next event comes without catching up.
    while stream.is_behind() {
        stream.catch_up().unwrap();
    }
    let next = keyspace.put(put("a", "next")).wait().unwrap().revision;
    assert_eq!(revisions(&read_until(&stream, |message| matches!(message, WatchMessage::Events { .. }))), [next.0]);
}

#[test]
fn a_watch_overtaken_by_compaction_is_ended_with_the_floor() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    for n in 0..10 {
        keyspace.put(put("a", format!("{n}"))).wait().unwrap();
    }
    // A watch that waits for what the hub has yet to deliver is not overtaken.
    while keyspace.inner.hub.reached() < keyspace.revision() {
        std::thread::yield_now();
    }
    let stream = keyspace.watch_stream();
    stream.create(WatchSpec { start: StartAt::Revision(3), ..spec("a") });
    keyspace.compact(8).wait().unwrap();
    let messages = read_until(&stream, |message| matches!(message, WatchMessage::Compacted { .. }));
    assert!(matches!(messages.last(), Some(WatchMessage::Compacted { floor: Revision(8), .. })), "{messages:?}");
    // The id is taken until the watch is cancelled.
    stream.create(WatchSpec { id: Some(WatchId(0)), ..spec("a") });
    stream.cancel(WatchId(0));
    let messages = read_until(&stream, |message| matches!(message, WatchMessage::Canceled { .. }));
    assert!(matches!(
        &messages[..],
        [WatchMessage::Refused { error: Error::WatchIdTaken(_), .. }, WatchMessage::Canceled { .. }]
    ));
    // From the floor on everything is there.
    stream.create(WatchSpec { start: StartAt::Revision(8), ..spec("a") });
    let mut count = 0;
    let messages = read_until(&stream, |message| {
        count += revisions(std::slice::from_ref(message)).len();
        count == 4
    });
    assert_eq!(revisions(&messages), [8, 9, 10, 11]);
}

#[test]
fn a_watch_in_the_future_is_silent_until_then_and_holds_back_progress() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    let stream = keyspace.watch_stream();
    stream.create(WatchSpec { start: StartAt::Revision(5), ..spec("a") });
    stream.request_progress();
    for n in 2..=6 {
        assert_eq!(keyspace.put(put("a", format!("{n}"))).wait().unwrap().revision, Revision(n));
    }
    let mut seen = 0;
    let messages = read_until(&stream, |message| {
        seen += usize::from(matches!(message, WatchMessage::Events { .. }));
        seen == 2
    });
    assert_eq!(revisions(&messages), [5, 6]);
    assert!(!messages.iter().any(|message| matches!(message, WatchMessage::Progress { .. })), "{messages:?}");
    stream.request_progress();
    let messages = read_until(&stream, |message| matches!(message, WatchMessage::Progress { .. }));
    assert!(matches!(messages.last(), Some(WatchMessage::Progress { id: None, revision: Revision(6) })));
}

#[test]
fn periodic_progress_pauses_after_an_event() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    let stream = keyspace.watch_stream();
    stream.create(WatchSpec { progress_notify: true, ..spec("a") });
    keyspace.put(put("a", "1")).wait().unwrap();
    read_until(&stream, |message| matches!(message, WatchMessage::Events { .. }));
    stream.tick();
    assert!(stream.take().is_empty());
    stream.tick();
    assert!(matches!(stream.take()[..], [WatchMessage::Progress { id: Some(WatchId(0)), revision: Revision(2) }]));
}

#[test]
fn all_changes_of_a_transaction_come_in_one_message_in_order() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    let stream = keyspace.watch_stream();
    stream.create(WatchSpec::new(KeyRange::all()));
    let from = DeleteRange { range: KeyRange { start: key("a"), end: RangeEnd::Open }, prev_kv: false };
    let success = vec![Op::Put(put("z", "1")), Op::Put(put("a", "1")), Op::DeleteRange(from)];
    keyspace.txn(Txn { success, ..Txn::default() }).wait().unwrap();
    let messages = read_until(&stream, |message| matches!(message, WatchMessage::Events { .. }));
    let Some(WatchMessage::Events { events, .. }) = messages.last() else { panic!("no events") };
    let places: Vec<_> = events
        .iter()
        .map(|event| (event.change.key.clone(), event.change.is_tombstone(), event.change.at.sub))
        .collect();
    assert_eq!(
        places,
        [
            (Bytes::from("z"), false, 0),
            (Bytes::from("a"), false, 1),
            (Bytes::from("a"), true, 2),
            (Bytes::from("z"), true, 3)
        ]
    );
}

#[test]
fn closing_ends_every_stream() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    let stream = keyspace.watch_stream();
    stream.create(spec("a"));
    keyspace.close().unwrap();
    let messages = read_until(&stream, |message| matches!(message, WatchMessage::Ended));
    assert!(matches!(messages[..], [WatchMessage::Created { .. }, WatchMessage::Ended]));
    assert_eq!(keyspace.put(put("a", "1")).wait(), Err(Error::Stopped));
}

/// The events of the messages, each list with its watch.
fn lists(messages: &[WatchMessage]) -> Vec<(i64, Arc<[Arc<crate::watch::Event>]>)> {
    let lists = messages.iter().filter_map(|message| match message {
        WatchMessage::Events { id, events, .. } => Some((id.0, events.clone())),
        _ => None,
    });
    lists.collect()
}

#[test]
fn watches_that_take_the_same_share_one_list_and_filters_their_own() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    keyspace.put(put("b", "old")).wait().unwrap();
    let streams = [keyspace.watch_stream(), keyspace.watch_stream()];
    for stream in &streams {
        stream.create(WatchSpec::new(KeyRange::all()));
        stream.create(WatchSpec { prev_kv: true, ..WatchSpec::new(KeyRange::all()) });
        stream.create(WatchSpec { no_put: true, ..WatchSpec::new(KeyRange::all()) });
        stream.create(WatchSpec { no_delete: true, no_put: true, ..WatchSpec::new(KeyRange::all()) });
        stream.create(spec("a"));
        stream.create(WatchSpec::new(KeyRange::prefix(key("b"))));
        stream.create(WatchSpec::new(KeyRange::all()));
    }
    let txn = Txn {
        compares: vec![],
        failure: vec![],
        success: vec![
            Op::Put(put("a", "1")),
            Op::DeleteRange(DeleteRange { range: KeyRange::single(key("b")), prev_kv: false }),
            Op::Put(put("c", "1")),
        ],
    };
    let revision = keyspace.txn(txn).wait().unwrap().revision;
    let of =
        |stream| lists(&read_until(stream, |message| matches!(message, WatchMessage::Events { id, .. } if id.0 == 6)));
    let (first, second) = (of(&streams[0]), of(&streams[1]));
    // Of watch 3 there is nothing; the others come in the order of their ids.
    let shapes: Vec<(i64, Vec<i64>, usize)> = first
        .iter()
        .map(|(id, list)| {
            assert!(list.iter().all(|event| event.change.at.main == revision));
            let subs = list.iter().map(|event| event.change.at.sub).collect();
            (*id, subs, list.iter().filter(|event| event.prev.is_some()).count())
        })
        .collect();
    let expected = [
        (0, vec![0, 1, 2], 0),
        (1, vec![0, 1, 2], 1),
        (2, vec![1], 0),
        (4, vec![0], 0),
        (5, vec![1], 0),
        (6, vec![0, 1, 2], 0),
    ];
    assert_eq!(shapes, expected);
    for ((id, one), (_, other)) in first.iter().zip(&second) {
        assert!(Arc::ptr_eq(one, other), "watch {id}");
    }
    assert!(Arc::ptr_eq(&first[0].1, &first[5].1));
    assert!(Arc::ptr_eq(&first[0].1[0], &first[3].1[0]), "an event is made once, whatever the lists");
}

#[test]
fn a_thread_that_sleeps_in_recv_is_woken_by_events_and_by_the_end() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    let stream = keyspace.watch_stream();
    stream.create(WatchSpec::new(KeyRange::all()));
    assert!(matches!(stream.recv().unwrap()[..], [WatchMessage::Created { .. }]));
    let asleep = || {
        while stream.inlet.sleeping() == 0 {
            std::thread::yield_now();
        }
    };
    let (told, heard) = std::sync::mpsc::channel();
    let stream = &stream;
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            told.send(read_until(stream, |message| matches!(message, WatchMessage::Events { .. }))).unwrap();
            stream.recv()
        });
        asleep();
        let revision = keyspace.put(put("a", "1")).wait().unwrap().revision;
        assert_eq!(revisions(&heard.recv().unwrap()), [revision.0]);
        asleep();
        keyspace.close().unwrap();
        assert!(matches!(reader.join().unwrap().unwrap()[..], [WatchMessage::Ended]));
    });
}
