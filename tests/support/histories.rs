//! Many clients and watches of a server that is killed and stopped under them, written down for the history checker.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use history::{Client, Event, History, Moment, Operation, Outcome, Request, Scene, Span, Told, Watch};
use tonic::transport::{Channel, Endpoint};

use super::client::Duplex;
use super::history_wire::{ask, key_value};
use crate::model::wire_more::*;

/// Watch streams for each of which a task reads.
pub const VIEWERS: u32 = 5;

/// What all who record share.
pub struct Tape {
    url: String,
    begun: Instant,
    order: AtomicU64,
    pub answered: AtomicU64,
    revision: AtomicI64,
    compacted: AtomicI64,
    journaled: AtomicI64,
    pub stop: AtomicBool,
    /// The journal ends here.
    pub upto: AtomicI64,
    operations: Mutex<Vec<Operation>>,
    watches: Mutex<Vec<Watch>>,
    journal: Mutex<Vec<Event>>,
}

impl Tape {
    pub fn new(url: String) -> Tape {
        Tape {
            url,
            begun: Instant::now(),
            order: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            revision: AtomicI64::new(1),
            compacted: AtomicI64::new(0),
            journaled: AtomicI64::new(1),
            stop: AtomicBool::new(false),
            upto: AtomicI64::new(i64::MAX),
            operations: Mutex::default(),
            watches: Mutex::default(),
            journal: Mutex::default(),
        }
    }

    fn now(&self) -> Moment {
        let ms = || self.begun.elapsed().as_millis() as u64;
        Moment { order: self.order.fetch_add(1, Ordering::SeqCst), ms: ms() }
    }

    fn channel(&self) -> Channel {
        Endpoint::from_shared(self.url.clone()).expect("a URL").connect_lazy()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn scene(&self) -> Scene {
        Scene {
            revision: self.revision.load(Ordering::SeqCst),
            compacted: self.compacted.load(Ordering::SeqCst),
            may_compact: self.journaled.load(Ordering::SeqCst) - 50,
            ttl: (2, 5),
        }
    }

    /// The record, once all who wrote it are done.
    pub fn take(&self) -> History {
        History {
            journal: std::mem::take(&mut self.journal.lock().unwrap()),
            operations: std::mem::take(&mut self.operations.lock().unwrap()),
            watches: std::mem::take(&mut self.watches.lock().unwrap()),
        }
    }

    async fn one(&self, channel: &Channel, number: u32, request: Request) -> (Request, Outcome) {
        let call = self.now();
        let answer = tokio::time::timeout(Duration::from_secs(20), ask(channel, &request)).await;
        let outcome = answer.unwrap_or(Outcome::Unknown);
        let back = self.now();
        if let Outcome::Ok(revision, _) = outcome {
            self.revision.fetch_max(revision, Ordering::SeqCst);
            self.answered.fetch_add(1, Ordering::SeqCst);
            if let Request::Compact(revision) = request {
                self.compacted.fetch_max(revision, Ordering::SeqCst);
            }
        }
        let done = Operation { client: number, call, back, request: request.clone(), outcome: outcome.clone() };
        self.operations.lock().unwrap().push(done);
        (request, outcome)
    }

    /// One client: asks until it is told to stop.
    pub async fn client(&self, number: u32, seed: u64) {
        let (channel, mut client) = (self.channel(), Client::new(number, seed, 24));
        while !self.stopped() {
            let (request, outcome) = self.one(&channel, number, client.request(&self.scene())).await;
            client.learn(&request, &outcome);
            if outcome == Outcome::Unknown {
                // The server is gone for a while.
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
    }

    /// Reads everything once more; returns the revision.
    pub async fn last(&self, number: u32) -> i64 {
        let request = Request::Range(history::Range::new(Span::all()));
        match self.one(&self.channel(), number, request).await.1 {
            Outcome::Ok(revision, _) => revision,
            other => panic!("the server does not answer: {other:?}"),
        }
    }

    /// Watches at random, several on a stream, new ones when the stream breaks or ends.
    pub async fn viewer(&self, number: u32, seed: u64) {
        let (channel, mut client) = (self.channel(), Client::new(1000 + number, seed, 24));
        while !self.stopped() {
            let mut view = View::open(self, &channel);
            for id in 1..=3 {
                view.create(id, client.watch(&self.scene()));
            }
            // A few hundred messages, then another stream.
            let mut left = 400;
            while left > 0 && !self.stopped() {
                match view.next().await {
                    Some(true) => {
                        left -= 1;
                        if left % 40 == 0 {
                            view.ask_progress();
                        }
                    }
                    Some(false) => view.ask_progress(),
                    None => break,
                }
            }
            view.close();
        }
    }

    /// A watch over everything, resumed after each break from the last revision + 1.
    pub async fn journal(&self) {
        let channel = self.channel();
        let last = || self.journal.lock().unwrap().last().map_or(1, |event| event.revision);
        while last() < self.upto.load(Ordering::SeqCst) {
            let mut view = View::open(self, &channel);
            view.journal = true;
            view.create(1, everything(last() + 1));
            while last() < self.upto.load(Ordering::SeqCst) && view.next().await.is_some() {}
            view.close();
        }
    }
}

fn everything(start: i64) -> Watch {
    let (call, told) = (Moment::default(), Vec::new());
    Watch { span: Span::all(), start, no_put: false, no_delete: false, prev_kv: true, call, cancel_asked: false, told }
}

/// One stream with its watches, by id.
struct View<'a> {
    tape: &'a Tape,
    stream: Duplex<WatchRequest, WatchResponse>,
    watches: BTreeMap<i64, Watch>,
    over: Vec<Watch>,
    /// Parts of a message that is not complete yet.
    parts: Vec<Event>,
    journal: bool,
}

impl<'a> View<'a> {
    fn open(tape: &'a Tape, channel: &Channel) -> View<'a> {
        let stream = Duplex::open(channel, "/etcdserverpb.Watch/Watch");
        View { tape, stream, watches: BTreeMap::new(), over: Vec::new(), parts: Vec::new(), journal: false }
    }

    fn create(&mut self, id: i64, watch: Watch) {
        let filters = [watch.no_put, watch.no_delete].into_iter().zip([0, 1]);
        let create = WatchCreate {
            key: watch.span.key.clone(),
            range_end: watch.span.end.clone(),
            start_revision: watch.start,
            filters: filters.filter_map(|(on, filter)| on.then_some(filter)).collect(),
            prev_kv: watch.prev_kv,
            watch_id: id,
            fragment: true,
            progress_notify: true,
        };
        self.watches.insert(id, Watch { call: self.tape.now(), ..watch });
        self.stream.send(WatchRequest { union: Some(WatchUnion::Create(create)) });
    }

    fn ask_progress(&self) {
        self.stream.send(WatchRequest { union: Some(WatchUnion::Progress(Empty {})) });
    }

    /// Takes a message; false if none came for a while, `None` if the stream broke.
    async fn next(&mut self) -> Option<bool> {
        let message = match tokio::time::timeout(Duration::from_millis(100), self.stream.next()).await {
            Err(_) => return Some(false),
            Ok(Some(Ok(message))) => message,
            Ok(_) => {
                tokio::time::sleep(Duration::from_millis(3)).await;
                return None;
            }
        };
        let (id, revision) = (message.watch_id, message.header.map_or(0, |header| header.revision));
        self.parts.extend(message.events.into_iter().map(event));
        if message.fragment {
            return Some(true);
        }
        let events = std::mem::take(&mut self.parts);
        let told = match () {
            () if message.created && message.canceled => panic!("a watch is refused: {}", message.cancel_reason),
            () if message.created => Told::Created(revision),
            () if message.compact_revision > 0 => Told::Compacted(message.compact_revision),
            // A server that stops ends its streams.
            () if message.canceled => return None,
            () if events.is_empty() => Told::Progress(revision),
            () => Told::Events(revision, events),
        };
        if let (true, Told::Events(_, events)) = (self.journal, &told) {
            self.tape.journal.lock().unwrap().extend(events.iter().cloned());
            self.tape.journaled.fetch_max(events.last().map_or(1, |event| event.revision), Ordering::SeqCst);
        }
        let moment = self.tape.now();
        if id == -1 {
            let created = self.watches.values_mut().filter(|watch| !watch.told.is_empty());
            created.for_each(|watch| watch.told.push((moment, told.clone())));
        } else if let Some(watch) = self.watches.get_mut(&id) {
            let over = matches!(told, Told::Compacted(_));
            watch.told.push((moment, told));
            if over {
                self.over.extend(self.watches.remove(&id));
            }
        }
        Some(true)
    }

    fn close(self) {
        self.tape.watches.lock().unwrap().extend(self.watches.into_values().chain(self.over));
    }
}

fn event(event: crate::model::wire::Event) -> Event {
    let kv = event.kv.expect("a key");
    let (revision, key) = (kv.mod_revision, kv.key.clone());
    let put = event.r#type == 0;
    Event { revision, key, kv: put.then(|| key_value(kv)), prev: event.prev_kv.map(key_value) }
}
