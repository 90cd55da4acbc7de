//! A watch that writes down every revision, while the server is killed under it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::client::Duplex;
use super::load::Load;
use crate::model::wire::Event;
use crate::model::wire_more::*;

/// A watch over everything, resumed after each break from the last revision + 1.
pub struct Recorder {
    load: Arc<Load>,
    index: usize,
    from: i64,
    pub record: Vec<(i64, Vec<Event>)>,
}

impl Recorder {
    /// A watch by number, from a revision on.
    pub fn new(load: &Arc<Load>, index: usize, from: i64) -> Recorder {
        Recorder { load: load.clone(), index, from, record: Vec::new() }
    }

    fn last(&self) -> i64 {
        self.record.last().map_or(self.from - 1, |(revision, _)| *revision)
    }

    /// Records until `upto` says at which revision to stop and that revision is there.
    pub async fn run(mut self, upto: &AtomicI64) -> Vec<(i64, Vec<Event>)> {
        let channel = self.load.channel();
        let done = |last: i64| last >= upto.load(Ordering::SeqCst);
        while !done(self.last()) {
            let mut stream = Duplex::<WatchRequest, WatchResponse>::open(&channel, "/etcdserverpb.Watch/Watch");
            let start_revision = self.last() + 1;
            let create = WatchCreate { key: vec![0], range_end: vec![0], start_revision, ..Default::default() };
            stream.send(WatchRequest { union: Some(WatchUnion::Create(create)) });
            while !done(self.last()) {
                let next = tokio::time::timeout(Duration::from_millis(200), stream.next()).await;
                match next {
                    Err(_) => {}
                    Ok(Some(Ok(message))) => self.take(message),
                    Ok(_) => {
                        tokio::time::sleep(Duration::from_millis(3)).await;
                        break;
                    }
                }
            }
        }
        self.record
    }

    /// Takes a message: revisions follow each other without a hole, each in one message.
    fn take(&mut self, message: WatchResponse) {
        assert!(!message.canceled, "the watch from {} ended: {message:?}", self.last() + 1);
        let before = self.last();
        for event in message.events {
            let revision = event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
            if revision == self.last() && revision > before {
                self.record.last_mut().expect("it was just added").1.push(event);
            } else {
                assert_eq!(revision, self.last() + 1, "lost or repeated: {event:?}");
                self.record.push((revision, vec![event]));
            }
        }
        if let Some(recorded) = self.load.recorded.lock().unwrap().get_mut(self.index) {
            *recorded = (*recorded).max(self.last());
        }
    }
}
