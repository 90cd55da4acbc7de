//! What happens while a frame is on its way to the log: renewals and expiries that cross, answers that are lost.

use std::sync::atomic::AtomicUsize;

use super::gate::within;
use super::*;
use crate::engine::lessor::KeepAlive;
use crate::log::frame::FrameBuffer;
use crate::log::{AppendError, Log, MemoryLog, StoredFrame, Trick};

/// A log whose appends can be held up, and are counted.
#[derive(Debug)]
struct SlowLog {
    log: MemoryLog,
    hold: Arc<Mutex<()>>,
    appends: Arc<AtomicUsize>,
}

impl Log for SlowLog {
    fn id(&self) -> LogId {
        self.log.id()
    }
    fn first(&self) -> Position {
        self.log.first()
    }
    fn digest_before_first(&self) -> Option<Digest> {
        self.log.digest_before_first()
    }
    fn end(&self) -> Position {
        self.log.end()
    }
    fn append(&mut self, frame: &mut FrameBuffer, digest: Digest) -> Result<Position, AppendError> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        drop(self.hold.lock().unwrap());
        self.log.append(frame, digest)
    }
    fn read(&mut self, from: Position, max_bytes: usize) -> Result<Vec<StoredFrame>, Error> {
        self.log.read(from, max_bytes)
    }
    fn trim(&mut self, below: Position) -> Result<(), Error> {
        self.log.trim(below)
    }
    fn size_bytes(&self) -> u64 {
        self.log.size_bytes()
    }
}

struct Slow {
    machine: Machine,
    log: MemoryLog,
    hold: Arc<Mutex<()>>,
    appends: Arc<AtomicUsize>,
    keyspace: Keyspace,
}

fn slow() -> Slow {
    let (machine, log) = (Machine::new(1), MemoryLog::new(LogId(7)));
    let (hold, appends) = (Arc::default(), Arc::default());
    let slow = SlowLog { log: log.clone(), hold: Arc::clone(&hold), appends: Arc::clone(&appends) };
    let keyspace = Keyspace::open_with_log(&dir(), small(), machine.environment(), Box::new(slow)).unwrap();
    Slow { machine, log, hold, appends, keyspace }
}

impl Slow {
    /// Runs `meanwhile` while the append of one put is held up.
    fn during_an_append<T>(&self, first: impl FnOnce(&Keyspace), meanwhile: impl FnOnce(&Keyspace) -> T) -> T {
        let hold = self.hold.lock().unwrap();
        let before = self.appends.load(Ordering::SeqCst);
        first(&self.keyspace);
        while self.appends.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
        let result = meanwhile(&self.keyspace);
        drop(hold);
        result
    }
}

#[test]
fn an_expiry_does_not_reach_a_lease_that_was_granted_again_under_its_id() {
    let slow = slow();
    let id = LeaseId(5);
    slow.keyspace.lease_grant(Some(id), 10).wait().unwrap();
    let first = |keyspace: &Keyspace| drop(keyspace.put(put("a", "1")));
    let (revoked, granted) = slow.during_an_append(first, |keyspace| {
        // Both ride on the next frame, and the expiry of the first lease behind them.
        slow.machine.clock.advance(10_001);
        (keyspace.lease_revoke(id), keyspace.lease_grant(Some(id), 10))
    });
    revoked.wait().unwrap();
    granted.wait().unwrap();
    slow.keyspace.put(put("a", "2")).wait().unwrap();
    assert_eq!(slow.keyspace.leases(), [id]);
    slow.machine.clock.advance(10_001);
    assert_eq!(slow.keyspace.lease_keep_alive(id).wait(), Ok(None));
}

#[test]
fn a_keep_alive_that_finds_a_lease_run_out_while_its_renewal_is_logged_is_answered_by_the_renewal() {
    let slow = slow();
    let id = LeaseId(5);
    slow.keyspace.lease_grant(Some(id), 10).wait().unwrap();
    slow.machine.clock.advance(9_999);
    let (sender, first_reply) = std::sync::mpsc::channel();
    let first = |keyspace: &Keyspace| {
        let keyspace = keyspace.clone();
        std::thread::spawn(move || sender.send(keyspace.lease_keep_alive(id).wait()));
    };
    let outcome = slow.during_an_append(first, |keyspace| {
        slow.machine.clock.advance(2);
        match keyspace.inner.shared.lessor.keep_alive(id, keyspace.inner.shared.clock.monotonic()) {
            KeepAlive::Expiring(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(first_reply.recv().unwrap(), Ok(Some(10)));
    assert!(within("the outcome", move || outcome.blocking_recv().unwrap().unwrap()));
    let keyspace = slow.keyspace.clone();
    assert_eq!(within("another renewal", move || keyspace.lease_keep_alive(id).wait()), Ok(Some(10)));
}

#[test]
fn expiries_that_a_full_log_refuses_are_neither_forgotten_nor_tried_without_a_pause() {
    let slow = slow();
    for id in 1..=20 {
        slow.keyspace.lease_grant(Some(LeaseId(id)), 10).wait().unwrap();
    }
    slow.log.set_full(true);
    slow.machine.clock.advance(10_001);
    let keyspace = slow.keyspace.clone();
    let refused = within("a keep-alive", move || keyspace.lease_keep_alive(LeaseId(1)).wait());
    assert_eq!(refused, Err(Error::NoSpace));
    let before = slow.appends.load(Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(500));
    let attempts = slow.appends.load(Ordering::SeqCst) - before;
    assert!(attempts < 20, "{attempts} attempts in half a second");
    slow.log.set_full(false);
    let keyspace = slow.keyspace.clone();
    assert_eq!(within("a keep-alive", move || keyspace.lease_keep_alive(LeaseId(1)).wait()), Ok(None));
    let keyspace = slow.keyspace.clone();
    within("the others", move || while !keyspace.leases().is_empty() {});
}

#[test]
fn a_write_whose_fate_was_unknown_is_not_taken_for_the_next_one() {
    for calls in 0..8 {
        let slow = slow();
        slow.log.play(Trick::Delay { calls });
        slow.log.play(Trick::Full);
        let first = slow.keyspace.put(put("a", "first")).wait();
        let mut second = slow.keyspace.delete_range(delete("a")).wait();
        assert!(first.is_ok(), "{calls} calls: {first:?}");
        if second == Err(Error::NoSpace) {
            // The first frame arrived so early that the log was full only now.
            second = slow.keyspace.delete_range(delete("a")).wait();
        }
        assert_eq!(second.map(|reply| reply.deleted), Ok(1), "{calls} calls");
        let revisions: Vec<_> = history(&slow.keyspace, 2).iter().map(|change| change.is_tombstone()).collect();
        assert_eq!(revisions, [false, true], "{calls} calls");
    }
}

#[test]
fn a_log_that_stays_full_after_it_lost_an_answer_ends_the_keyspace() {
    let slow = slow();
    slow.log.play(Trick::Delay { calls: 1_000_000 });
    (0..50).for_each(|_| slow.log.play(Trick::Full));
    let keyspace = slow.keyspace.clone();
    assert_eq!(within("the reply", move || keyspace.put(put("a", "1")).wait()), Err(Error::OutcomeUnknown));
    assert_eq!(slow.keyspace.put(put("a", "2")).wait(), Err(Error::Stopped));
}

#[test]
fn a_process_that_was_replaced_notices_and_ends() {
    let slow = slow();
    slow.keyspace.put(put("a", "1")).wait().unwrap();
    let heir = slow.machine.after_power_cut(fs::sim::CrashStyle::KeepAll);
    let environment = heir.environment();
    let second = Keyspace::open_with_log(&dir(), small(), environment, Box::new(slow.log.clone())).unwrap();
    second.put(put("a", "2")).wait().unwrap();
    assert_eq!(slow.keyspace.put(put("a", "3")).wait(), Err(Error::OutcomeUnknown));
    let keyspace = slow.keyspace.clone();
    let error = within("the end", move || Pending::new(async move { Ok(keyspace.failed().await) }).wait().unwrap());
    assert!(matches!(error, Error::LogMismatch { .. }), "{error}");
    assert_eq!(get(&second, "a").unwrap().value, "2");
}
