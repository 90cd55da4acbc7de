//! One keyspace on a simulated disk, used in every way there is, through restarts; what it acknowledged is written down.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use storage::fs::sim::SimFs;
use storage::fs::{FileSystem, OpenMode};
use storage::{
    Alarm, AlarmKind, Environment, Error, Key, KeyRange, Keyspace, LeaseId, Op, Put, PutLease, PutValue, RangeRequest,
    SnapshotFile, StartAt, Txn, WatchMessage, WatchSpec, WatchStream,
};

use super::after::list_at;
use super::{DIR, environment, text, tiny};
use crate::embedded::environment::HandClock;

const LEASE: LeaseId = LeaseId(7);

/// What was written under a key: its last acknowledged value with its revision, and what may have been written since.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    pub(super) acknowledged: Option<(i64, Vec<u8>)>,
    pub(super) open: Vec<Option<Vec<u8>>>,
}

/// The disk, what is open on it, and what was acknowledged.
pub struct Life {
    pub disk: SimFs,
    clock: Arc<HandClock>,
    keyspace: Option<Keyspace>,
    stream: Option<WatchStream>,
    /// The revision of its last event.
    seen: i64,
    pub(super) keys: BTreeMap<String, Written>,
    /// Every acknowledged put: revision, key, value.
    pub(super) puts: Vec<(i64, String, Vec<u8>)>,
    pub(super) compacted: i64,
    serial: u64,
    /// Failpoints that panicked in a call.
    pub panics: u64,
    /// Calls that failed, and why.
    pub errors: Vec<(&'static str, Error)>,
    /// The error that ended a keyspace.
    pub ended: Vec<Error>,
}

impl Life {
    pub fn new() -> Life {
        Life {
            disk: SimFs::new(),
            clock: Arc::new(HandClock::default()),
            keyspace: None,
            stream: None,
            seen: 0,
            keys: BTreeMap::new(),
            puts: Vec::new(),
            compacted: -1,
            serial: 0,
            panics: 0,
            errors: Vec::new(),
            ended: Vec::new(),
        }
    }

    pub(super) fn environment(&self) -> Environment {
        environment(&self.disk, &self.clock)
    }

    /// A call that may fail or panic, but must return.
    fn call<T>(&mut self, name: &'static str, work: impl FnOnce(&mut Life) -> Result<T, Error>) -> Option<T> {
        match std::panic::catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(Ok(done)) => Some(done),
            Ok(Err(error)) => {
                self.errors.push((name, error));
                None
            }
            Err(panic) if text(panic.as_ref()).starts_with("failpoint") => {
                self.panics += 1;
                None
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Opens what is there; a start that fails is tried once more, as an operator would.
    fn open(&mut self) {
        let open = |life: &mut Life| {
            life.clock.advance(Duration::from_millis(1500));
            Keyspace::open(Path::new(DIR), tiny(), life.environment())
        };
        let opened = self.call("open", open).or_else(|| self.call("open", open));
        self.keyspace = Some(opened.expect("the second start succeeds"));
    }

    fn keyspace(&self) -> &Keyspace {
        self.keyspace.as_ref().expect("it is open")
    }

    fn put(&mut self, key: &str, lease: PutLease) {
        self.serial += 1;
        // Every other value is large enough to be stored apart from its key.
        let mut value = format!("{key}-{}", self.serial).into_bytes();
        value.resize(if self.serial.is_multiple_of(2) { 100 } else { 30 }, b'.');
        self.keys.entry(key.to_owned()).or_default().open.push(Some(value.clone()));
        let put = Put {
            key: Key::new(key.to_owned()).expect("not empty"),
            value: PutValue::Set(Bytes::from(value.clone())),
            lease,
            prev_kv: true,
        };
        if let Some(reply) = self.call("put", |life| life.keyspace().put(put).wait()) {
            self.acknowledge(key, reply.revision.0, value);
        }
    }

    fn acknowledge(&mut self, key: &str, revision: i64, value: Vec<u8>) {
        let acknowledged = Some((revision, value.clone()));
        self.keys.insert(key.to_owned(), Written { acknowledged, open: Vec::new() });
        self.puts.push((revision, key.to_owned(), value));
    }

    fn puts(&mut self, count: u64) {
        for index in 0..count {
            self.put(&format!("k{}", index % 5), PutLease::Detach);
        }
    }

    /// Two changes of one revision.
    fn pair(&mut self) {
        self.serial += 1;
        let value = format!("pair-{}", self.serial).into_bytes();
        let put = |key: &str| {
            let key = Key::new(key.to_owned()).expect("not empty");
            let value = PutValue::Set(Bytes::from(value.clone()));
            Op::Put(Put { key, value, lease: PutLease::Detach, prev_kv: false })
        };
        for key in ["p0", "p1"] {
            self.keys.entry(key.to_owned()).or_default().open.push(Some(value.clone()));
        }
        let txn = Txn { compares: Vec::new(), success: vec![put("p0"), put("p1")], failure: Vec::new() };
        if let Some(reply) = self.call("txn", |life| life.keyspace().txn(txn).wait()) {
            self.acknowledge("p0", reply.revision.0, value.clone());
            self.acknowledge("p1", reply.revision.0, value);
        }
    }

    fn watch(&mut self) {
        let start = StartAt::Revision(self.compacted.max(2));
        let created = self.call("watch", |life| {
            let stream = life.keyspace().watch_stream();
            stream.create(WatchSpec { start, prev_kv: true, ..WatchSpec::new(KeyRange::all()) });
            stream.create(WatchSpec::new(KeyRange::all()));
            Ok(stream)
        });
        (self.stream, self.seen) = (created, 0);
    }

    /// Waits until the watch from the past has everything.
    fn see(&mut self) {
        self.call("see", |life| {
            let current = life.keyspace().revision().0;
            let mut seen = life.seen;
            while let Some(stream) = &life.stream
                && seen < current
            {
                if stream.is_behind() {
                    stream.catch_up()?;
                }
                // Answered once everything up to now is there.
                stream.request_progress();
                let messages = stream.take();
                if messages.iter().any(|message| matches!(message, WatchMessage::Ended)) {
                    life.stream = None;
                    return Err(Error::Stopped);
                }
                for message in messages {
                    match message {
                        WatchMessage::Events { events, .. } => {
                            seen = events.iter().map(|event| event.change.at.main.0).fold(seen, i64::max);
                            life.seen = seen;
                        }
                        WatchMessage::Progress { revision, .. } => {
                            assert!(revision.0 < current || seen >= current, "events up to {current} never came");
                        }
                        // What it starts at is compacted while it is behind.
                        WatchMessage::Compacted { .. } => return Ok(()),
                        _ => {}
                    }
                }
                std::thread::yield_now();
            }
            Ok(())
        });
    }

    fn snapshot(&mut self) {
        self.call("snapshot", |life| {
            let mut stream = life.keyspace().snapshot();
            let (mut bytes, path) = (Vec::new(), Path::new("/snapshot"));
            while let Some(piece) = stream.next_piece()? {
                bytes.extend_from_slice(&piece);
                // What comes after it was begun is not in it.
                life.puts(1);
            }
            let restored = Path::new("/restored");
            if life.disk.metadata(path).is_ok_and(|found| found.is_some()) {
                return Ok(());
            }
            let written = life.disk.open(path, OpenMode::CreateNew).and_then(|file| file.write_at(0, &bytes));
            written.map_err(|error| Error::io("writing a snapshot", &error))?;
            let file = SnapshotFile::open(&life.disk, path, false)?;
            let restore = |life: &mut Life| file.restore(restored, 0, &tiny(), &life.environment());
            // A restore that did not end is begun anew.
            if life.call("restore", restore).is_none() {
                restore(life)?;
            }
            let copy = Keyspace::open(restored, tiny(), life.environment())?;
            assert_eq!(copy.revision(), stream.revision(), "a restored snapshot");
            let original = list_at(life.keyspace(), stream.revision().0)?;
            assert_eq!(list_at(&copy, stream.revision().0)?, original, "a restored snapshot");
            assert_eq!(copy.leases(), life.keyspace().leases(), "leases of a restored snapshot");
            life.ended.extend(copy.close().err());
            Ok(())
        });
    }

    /// Waits until a part that found no room has been tried again, and clears the alarm that it left, as an operator would.
    fn clear_alarm(&mut self) {
        self.call("alarm", |life| {
            while matches!(life.keyspace().flush(), Err(Error::NoSpace)) {
                std::thread::yield_now();
            }
            let alarm = Alarm { member: life.keyspace().status().member, kind: AlarmKind::NoSpace };
            loop {
                // The alarm itself may be on its way still, and fill the queue.
                match life.keyspace().set_alarm(alarm, false).wait() {
                    Err(Error::TooManyRequests { .. }) => std::thread::yield_now(),
                    done => return done,
                }
            }
        });
    }

    /// Everything that a keyspace does, through a stop and a kill. `check` is called after each end, with `true` after the kill.
    pub fn live(&mut self, check: &mut dyn FnMut(&mut Life, bool)) {
        self.open();
        self.watch();
        self.puts(6);
        self.see();
        // Into a queue that is empty.
        self.pair();
        self.see();
        let last = self.keyspace().revision().0;
        if let Some(floor) = self.call("compact", |life| life.keyspace().compact(last - 2).wait().map(|_| last - 2)) {
            self.compacted = floor;
        }
        self.puts(5);
        let floor = storage::Revision(self.compacted);
        self.call("sweep", |life| life.keyspace().wait_swept(floor));
        self.clear_alarm();
        self.grant();
        self.snapshot();
        self.expire();
        self.rewrite();
        self.watch();
        self.see();
        self.end(false, check);

        self.open();
        self.clear_alarm();
        self.puts(7);
        self.end(true, check);

        self.open();
        self.clear_alarm();
        self.watch();
        self.puts(3);
        self.see();
        self.end(false, check);
    }

    fn grant(&mut self) {
        self.call("grant", |life| life.keyspace().lease_grant(Some(LEASE), 30).wait());
        self.put("leased", PutLease::Attach(LEASE));
        self.call("keep alive", |life| life.keyspace().lease_keep_alive(LEASE).wait());
    }

    fn expire(&mut self) {
        self.clock.advance(Duration::from_secs(40));
        // A command goes through the committer, and the expiry before or with it.
        self.keys.entry("leased".to_owned()).or_default().open.push(None);
        self.puts(2);
    }

    fn rewrite(&mut self) {
        self.call("flush", |life| life.keyspace().flush());
        let shrunk = self.keyspace().defragment();
        self.puts(9);
        self.call("rewrite", |_| shrunk.wait());
    }

    /// Ends the keyspace and holds it to its word: it is dead for good, or as alive as ever.
    fn end(&mut self, killed: bool, check: &mut dyn FnMut(&mut Life, bool)) {
        self.clear_alarm();
        let before = self.puts.len();
        // What a full queue or a full disk refuses once is taken the second time.
        self.put("last", PutLease::Detach);
        self.put("last", PutLease::Detach);
        let alive = self.puts.len() > before;
        let keyspace = self.keyspace().clone();
        if alive && !killed {
            self.call("flush", |_| keyspace.flush());
            self.call("read", |_| keyspace.range(&RangeRequest::new(KeyRange::all())));
        }
        // What a kill does to a keyspace that is alive is nobody's fault.
        let failure = if killed {
            let failure = keyspace.barrier().err();
            self.disk.freeze();
            let _ = keyspace.close();
            failure
        } else {
            self.call("close", |_| keyspace.close());
            keyspace.barrier().err()
        };
        if killed || failure.is_some() {
            self.disk.freeze();
            self.disk = self.disk.restart();
        }
        if let Some(error) = failure {
            assert!(error.is_final(), "it ended with {error}");
            assert!(
                !alive || killed || self.errors.iter().any(|(name, _)| *name == "close"),
                "it took a command: {error}"
            );
            self.ended.push(error);
        } else {
            assert!(alive || killed, "neither dead nor alive: {:?}", self.errors);
        }
        let refused = keyspace.put(Put {
            key: Key::new("after").expect("not empty"),
            value: PutValue::Set(Bytes::new()),
            lease: PutLease::Detach,
            prev_kv: false,
        });
        assert_eq!(refused.wait().err(), Some(Error::Stopped), "a keyspace that has ended takes a command");
        // Nobody is left waiting: a watch of a keyspace that has ended ends.
        if let Some(stream) = self.stream.take() {
            while stream.recv().is_ok() {}
        }
        self.keyspace = None;
        drop(keyspace);
        check(self, killed);
    }
}
