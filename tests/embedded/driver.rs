//! The driver that calls the library.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use storage::{
    ChangeKind, Error, Key, KeyRange, Keyspace, LeaseId, Options, Pending, Shrunk, StartAt, WatchId, WatchMessage,
    WatchSpec, WatchStream,
};

use super::convert;
use super::environment::{HandClock, open};
use super::memory::Memory;
use crate::model::driver::Driver;
use crate::model::op::{Outcome, Refusal, Reply, Request, header};
use crate::model::state::Model;
use crate::model::watcher::Rules;
use crate::model::wire::*;
use crate::model::wire_more::*;

/// A keyspace in this process.
pub struct Embedded {
    pub keyspace: Keyspace,
    memory: Arc<Memory>,
    pub clock: Arc<HandClock>,
    options: Options,
    streams: BTreeMap<usize, Opened>,
    opened: usize,
    /// Rewrites of base that were not waited for.
    rewrites: Vec<Pending<Shrunk>>,
}

struct Opened {
    stream: WatchStream,
    ready: VecDeque<WatchResponse>,
}

impl Embedded {
    /// A fresh keyspace.
    pub fn new(options: Options) -> Embedded {
        let (memory, clock) = (Arc::new(Memory::default()), Arc::new(HandClock::default()));
        let keyspace = open(&memory, &clock, options.clone());
        Embedded { keyspace, memory, clock, options, streams: BTreeMap::new(), opened: 0, rewrites: Vec::new() }
    }

    /// The limits from the next start on.
    pub fn limit(&mut self, options: Options) {
        self.options = options;
    }
}

/// Puts a request to a keyspace and waits for its outcome.
pub fn run(keyspace: &Keyspace, request: &Request) -> Result<Reply, Failure> {
    Ok(match request {
        Request::Range(request) => {
            Reply::Range(convert::range_reply(&keyspace.range(&convert::range(request, false)?)?))
        }
        Request::RangeStream(_) => unreachable!("the library has no such call"),
        Request::Put(request) => Reply::Put(convert::put_reply(&keyspace.put(convert::put(request)?).wait()?)),
        Request::DeleteRange(request) => {
            let delete = convert::delete_range(request)?;
            Reply::DeleteRange(convert::delete_reply(&keyspace.delete_range(delete).wait()?))
        }
        Request::Txn(request) => {
            let txn = convert::txn(request)?;
            let reply = if txn.is_read_only() { keyspace.read_txn(&txn)? } else { keyspace.txn(txn).wait()? };
            Reply::Txn(convert::txn_reply(&reply, false))
        }
        Request::Compact(request) => Reply::Done(keyspace.compact(request.revision).wait()?.0),
        Request::Grant(request) => {
            let id = Some(request.id).filter(|id| *id != 0).map(LeaseId);
            // The shortest TTL is the server's to know.
            let reply = keyspace.lease_grant(id, request.ttl.max(Model::MIN_TTL)).wait()?;
            Reply::Grant(LeaseGrantResponse { header: header(reply.revision.0), id: reply.id.0, ttl: reply.ttl })
        }
        Request::Revoke(id) => Reply::Done(keyspace.lease_revoke(LeaseId(*id)).wait()?.0),
        Request::KeepAlive(id) => {
            let header = header(keyspace.revision().0);
            let ttl = keyspace.lease_keep_alive(LeaseId(*id)).wait()?.unwrap_or(0);
            Reply::KeepAlive(LeaseKeepAliveResponse { header, id: *id, ttl })
        }
        Request::TimeToLive(request) => Reply::TimeToLive(time_to_live(keyspace, request)?),
        Request::Leases => {
            let leases = keyspace.leases().into_iter().map(|id| LeaseIdRequest { id: id.0 }).collect();
            Reply::Leases(LeaseLeasesResponse { header: header(keyspace.revision().0), leases })
        }
    })
}

/// What is still to be waited for.
pub type Waiting = Box<dyn FnOnce() -> Result<Reply, Failure>>;

/// Puts a write of one range to a keyspace without waiting for its outcome.
///
/// # Panics
///
/// If it is another request.
pub fn send(keyspace: &Keyspace, request: &Request) -> Waiting {
    let sent = match request {
        Request::Put(request) => convert::put(request).map(|put| {
            let pending = keyspace.put(put);
            Box::new(move || Ok(Reply::Put(convert::put_reply(&pending.wait()?)))) as Waiting
        }),
        Request::DeleteRange(request) => convert::delete_range(request).map(|delete| {
            let pending = keyspace.delete_range(delete);
            Box::new(move || Ok(Reply::DeleteRange(convert::delete_reply(&pending.wait()?)))) as Waiting
        }),
        other => panic!("not one of those that are sent: {other:?}"),
    };
    sent.unwrap_or_else(|refusal| Box::new(move || Err(refusal.into())))
}

fn time_to_live(keyspace: &Keyspace, request: &LeaseTimeToLiveRequest) -> Result<LeaseTimeToLiveResponse, Error> {
    let reply = keyspace.lease_time_to_live(LeaseId(request.id), request.keys)?;
    let unknown = || LeaseTimeToLiveResponse {
        header: header(keyspace.revision().0),
        id: request.id,
        ttl: -1,
        ..Default::default()
    };
    Ok(reply.map_or_else(unknown, |reply| LeaseTimeToLiveResponse {
        header: header(reply.revision.0),
        id: request.id,
        ttl: reply.ttl,
        granted_ttl: reply.granted_ttl,
        keys: reply.keys.iter().map(|key| key.to_vec()).collect(),
    }))
}

/// Why a request was not carried out.
#[derive(Debug)]
pub enum Failure {
    /// It was refused before it reached the keyspace.
    Before(Refusal),
    /// By the keyspace.
    By(Error),
}

impl Failure {
    /// The refusal that it stands for; an error of any other kind is none.
    pub fn refusal(&self) -> Refusal {
        match self {
            Failure::Before(refusal) => *refusal,
            Failure::By(error) => convert::refusal(error),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Before(refusal)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::By(error)
    }
}

impl Driver for Embedded {
    fn apply(&mut self, request: &Request) -> Outcome {
        run(&self.keyspace, request).map_err(|failure| failure.refusal())
    }

    fn watch_open(&mut self) -> usize {
        self.opened += 1;
        self.streams.insert(self.opened, Opened { stream: self.keyspace.watch_stream(), ready: VecDeque::new() });
        self.opened
    }

    fn watch_send(&mut self, stream: usize, request: WatchRequest) {
        let stream = &self.streams[&stream].stream;
        match request.union {
            Some(WatchUnion::Create(create)) => stream.create(spec(&create)),
            Some(WatchUnion::Cancel(cancel)) => stream.cancel(WatchId(cancel.id)),
            Some(WatchUnion::Progress(_)) => stream.request_progress(),
            None => {}
        }
    }

    /// Reads from disk only when nothing is ready, so that a watch can be left behind.
    fn watch_next(&mut self, stream: usize, patience: Duration) -> Option<WatchResponse> {
        let deadline = Instant::now() + patience;
        let opened = self.streams.get_mut(&stream)?;
        loop {
            opened.ready.extend(opened.stream.take().iter().map(response));
            if let Some(response) = opened.ready.pop_front() {
                return Some(response);
            }
            if opened.stream.is_behind() {
                opened.stream.catch_up().expect("the disk is there");
            } else if Instant::now() > deadline {
                return None;
            } else {
                std::thread::yield_now();
            }
        }
    }

    fn watch_close(&mut self, stream: usize) {
        self.streams.remove(&stream);
    }

    fn flush(&mut self) -> bool {
        self.keyspace.flush().expect("there is room");
        true
    }

    fn rewrite(&mut self, wait: bool) -> bool {
        self.rewrites.push(self.keyspace.defragment());
        if wait {
            for rewrite in self.rewrites.drain(..) {
                rewrite.wait().expect("there is room");
            }
        }
        true
    }

    /// A kill leaves the files as they are at one moment, also in the middle of a flush.
    fn reopen(&mut self, killed: bool) -> bool {
        let image = killed.then(|| Arc::new(self.memory.image()));
        self.keyspace.close().expect("it closes");
        let stopped = |rewrite: Pending<Shrunk>| rewrite.wait().err().is_none_or(|error| error == Error::Stopped);
        assert!(self.rewrites.drain(..).all(stopped));
        self.streams.clear();
        self.memory = image.unwrap_or_else(|| self.memory.clone());
        self.keyspace = open(&self.memory, &self.clock, self.options.clone());
        true
    }

    fn streams_lists(&self) -> bool {
        false
    }

    fn rules(&self) -> Rules {
        Rules { revisions_are_promises: true, floor_keeps_last_alone: false, breaks_on_two_changes_of_a_key: false }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let _ = self.keyspace.close();
    }
}

fn spec(create: &WatchCreate) -> WatchSpec {
    let key = if create.key.is_empty() { vec![0] } else { create.key.clone() };
    WatchSpec {
        range: KeyRange::from_wire(Key::new(key).expect("not empty"), Bytes::from(create.range_end.clone())),
        start: if create.start_revision == 0 { StartAt::Now } else { StartAt::Revision(create.start_revision) },
        no_put: create.filters.contains(&0),
        no_delete: create.filters.contains(&1),
        prev_kv: create.prev_kv,
        progress_notify: create.progress_notify,
        id: Some(create.watch_id).filter(|id| *id != 0).map(WatchId),
    }
}

/// A message as a server would send it.
fn response(message: &WatchMessage) -> WatchResponse {
    match message {
        WatchMessage::Created { id, revision } => {
            WatchResponse { header: header(revision.0), watch_id: id.0, created: true, ..Default::default() }
        }
        WatchMessage::Refused { error, revision } => WatchResponse {
            header: header(revision.0),
            watch_id: -1,
            created: true,
            canceled: true,
            cancel_reason: reason(error).into(),
            ..Default::default()
        },
        WatchMessage::Events { id, revision, events } => {
            let events = events.iter().map(|event| self::event(event)).collect();
            WatchResponse { header: header(revision.0), watch_id: id.0, events, ..Default::default() }
        }
        WatchMessage::Progress { id, revision } => {
            WatchResponse { header: header(revision.0), watch_id: id.map_or(-1, |id| id.0), ..Default::default() }
        }
        WatchMessage::Canceled { id, revision } => {
            WatchResponse { header: header(revision.0), watch_id: id.0, canceled: true, ..Default::default() }
        }
        WatchMessage::Compacted { id, floor } => WatchResponse {
            header: header(0),
            watch_id: id.0,
            canceled: true,
            compact_revision: floor.0,
            ..Default::default()
        },
        WatchMessage::Ended => panic!("the keyspace ended"),
    }
}

fn reason(error: &Error) -> &'static str {
    match error {
        Error::WatchRangeEmpty => "mvcc: watcher range is empty",
        Error::WatchIdTaken(_) => "mvcc: duplicate watch ID provided on the WatchStream",
        Error::WatchStartNegative(_) => "etcdserver: mvcc: required revision has been compacted",
        other => panic!("unexpected error: {other}"),
    }
}

fn event(event: &storage::Event) -> Event {
    let change = &event.change;
    let deleted = || KeyValue { key: change.key.to_vec(), mod_revision: change.at.main.0, ..Default::default() };
    let kv = change.key_value().map_or_else(deleted, |kv| convert::key_value(&kv));
    let prev_kv = event.prev.as_ref().and_then(|prev| prev.key_value()).map(|kv| convert::key_value(&kv));
    Event { r#type: i32::from(matches!(change.kind, ChangeKind::Tombstone)), kv: Some(kv), prev_kv }
}
