//! The keyspace as a library: held against the model, flushed at every moment, with time that is set by hand.

mod embedded;
mod model;
#[cfg(feature = "failpoints")]
mod planted;

use std::sync::Arc;
use std::time::{Duration, Instant};

use embedded::driver::Embedded;
use embedded::environment::{HandClock, always_flushing, never_flushing, open};
use embedded::histories::Ends;
use embedded::memory::Memory;
use embedded::mutations;
use model::check::Run;
use model::coverage::Coverage;
use model::driver::Driver;
use model::expected::Expected;
use model::generate::Generator;
use model::op::{Reply, Request};
use model::rng::{Rng, seed, setting};
use model::state::Model;
use model::wire::*;
use model::wire_more::*;
use storage::{Keyspace, LeaseId, Options, Status};

#[test]
fn random_requests_are_answered_as_the_model_answers() {
    let first = seed();
    let sequences = setting("STERNPOST_TEST_SEQUENCES", 3000);
    let limit = Duration::from_secs(setting("STERNPOST_TEST_SECONDS", 60));
    println!("seed={first}");
    let mut coverage = Coverage::default();
    let begun = Instant::now();
    let mut done = 0;
    while done < sequences && begun.elapsed() < limit {
        let seed = first.wrapping_add(done);
        let options = if done % 3 == 0 { never_flushing() } else { always_flushing() };
        let mut driver = Embedded::new(options);
        let mut model = Model::new();
        Run::new(&mut driver, &mut model, &mut coverage, seed).sequence(seed, 120);
        done += 1;
    }
    println!("seed={first}: {done} sequences of 120 steps in {:?}", begun.elapsed());
    coverage.print();
    assert!(done >= 200, "only {done} sequences in {limit:?}");
    coverage.assert_all(true, true, false);
}

#[test]
fn what_many_clients_see_through_power_cuts_is_one_history() {
    let first = seed();
    let (operations, events) = (setting("STERNPOST_TEST_OPERATIONS", 20_000), setting("STERNPOST_TEST_EVENTS", 40_000));
    let limit = Duration::from_secs(setting("STERNPOST_TEST_SECONDS", 120));
    let options = history::Options { session_monotone: true, prev_kv_always: false };
    let (mut all, mut ends, mut runs, mut checking) = (history::Report::default(), Ends::default(), 0, Duration::ZERO);
    let begun = Instant::now();
    println!("seed={first}");
    while (all.operations < operations || all.watch_events < events || runs < 2) && begun.elapsed() < limit {
        let seed = first.wrapping_add(runs);
        let (record, ended) = embedded::histories::Run::new(seed, 4 + (seed % 13) as u32).record(12_000, 5);
        let checked = Instant::now();
        let report = history::check(&record, &options).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        checking += checked.elapsed();
        all.add(&report);
        ends.add(&ended);
        runs += 1;
    }
    println!(
        "seed={first}: {runs} runs in {:?}, {checking:?} of it for the checks: {all:?}, {ends:?}",
        begun.elapsed()
    );
    assert!(all.operations >= operations && all.watch_events >= events, "in {limit:?}: {all:?}");
    assert!(ends.total() >= 10 && all.unknown_happened + all.unknown_not_found > 0, "{ends:?}, {all:?}");
    assert!(all.expired > 0 && all.progress > 0 && all.refused_revisions > 0, "{all:?}");
}

#[test]
fn faults_planted_in_a_recorded_history_are_found() {
    let first = setting("STERNPOST_TEST_SEED", 1);
    let options = history::Options { session_monotone: true, prev_kv_always: false };
    let mut caught: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    for seed in first..first + 200 {
        if mutations::TABLE.iter().all(|(name, ..)| caught.get(name).is_some_and(|times| *times >= 3)) {
            break;
        }
        let (good, _) = embedded::histories::Run::new(seed, 8).record(6_000, 3);
        history::check(&good, &options).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        for (name, rule, plant) in mutations::TABLE {
            if caught.get(name).is_some_and(|times| *times >= 3) {
                continue;
            }
            let mut bad = good.clone();
            if plant(&mut bad, &mut Rng::new(seed)) && bad != good {
                match history::check(&bad, &options) {
                    Ok(_) => panic!("seed {seed}: not noticed: {name}"),
                    Err(violation) => assert_eq!(violation.rule, *rule, "seed {seed}: {name}: {violation}"),
                }
                *caught.entry(name).or_default() += 1;
            }
        }
    }
    println!("{} kinds of faults, caught: {caught:?}", mutations::TABLE.len());
    for (name, ..) in mutations::TABLE {
        assert!(caught.contains_key(name), "never planted: {name}");
    }
    assert!(mutations::TABLE.len() >= 50 && caught.values().sum::<u64>() >= 120);
}

/// A lease: its id, what is left of which TTL, its keys.
type ObservedLease = (i64, i64, i64, Vec<Vec<u8>>);

/// Everything that can be seen of a keyspace.
#[derive(Debug, PartialEq)]
struct Observed {
    numbers: Vec<i64>,
    applied: u64,
    lists: Vec<Result<Reply, model::op::Refusal>>,
    leases: Vec<ObservedLease>,
    alarms: Vec<storage::Alarm>,
}

fn observe(keyspace: &Keyspace, driver: &mut Embedded) -> Observed {
    let Status { revision, compacted, applied, alarms, .. } = keyspace.status();
    let everything = |revision| RangeRequest { key: vec![0], range_end: vec![0], revision, ..Default::default() };
    let lists = (1..=revision.0).map(|revision| driver.apply(&Request::Range(everything(revision)))).collect();
    let leases = keyspace.leases().into_iter().map(|id| {
        let time = keyspace.lease_time_to_live(id, true).expect("the disk is there").expect("the lease is there");
        (id.0, time.ttl, time.granted_ttl, time.keys.iter().map(|key| key.to_vec()).collect())
    });
    let mut leases: Vec<_> = leases.collect();
    leases.sort();
    Observed { numbers: vec![revision.0, compacted.0], applied: applied.0, lists, leases, alarms }
}

/// A history of requests that the model takes, without those whose outcome is open.
fn history(seed: u64, length: usize) -> Vec<Request> {
    let (mut rng, mut model, mut serial) = (Rng::new(seed), Model::new(), 0);
    let mut requests = Vec::new();
    while requests.len() < length {
        let request = Generator { rng: &mut rng, model: &model, serial: &mut serial }.request();
        let mut after = model.clone();
        let chosen = matches!(&request, Request::Grant(grant) if grant.id == 0);
        let read =
            matches!(request, Request::Range(_) | Request::RangeStream(_) | Request::Leases | Request::TimeToLive(_));
        let outcome = after.apply(&request);
        if !after.undefined && !chosen && !read && (outcome.is_ok() || rng.chance(10)) {
            model = after;
            requests.push(request);
        }
    }
    requests
}

/// Replays a history of so many requests without a flush, and with one at each position. Returns the number of positions.
fn flush_at_every_position(seed: u64, length: usize) -> usize {
    let requests = history(seed, length);
    let run = |flush_before: Option<usize>| {
        let mut driver = Embedded::new(never_flushing());
        for (index, request) in requests.iter().enumerate() {
            if flush_before == Some(index) {
                assert!(driver.flush());
            }
            let _ = driver.apply(request);
        }
        if flush_before == Some(requests.len()) {
            assert!(driver.flush());
        }
        assert!(driver.reopen(true));
        let keyspace = driver.keyspace.clone();
        observe(&keyspace, &mut driver)
    };
    let never = run(None);
    // Replayed by a process that has less memory, so that parts arrive in base on the way.
    let mut driver = Embedded::new(never_flushing());
    requests.iter().for_each(|request| drop(driver.apply(request)));
    driver.limit(Options { recent_changes: 6, ..never_flushing() });
    assert!(driver.reopen(true));
    let keyspace = driver.keyspace.clone();
    assert_eq!(never, observe(&keyspace, &mut driver), "seed {seed}, flushed while it is replayed");
    for position in 0..=requests.len() {
        assert_eq!(never, run(Some(position)), "seed {seed}, flushed before {position}");
    }
    requests.len() + 1
}

#[test]
fn a_flush_at_any_position_leaves_the_same_state_after_a_crash() {
    let first = seed();
    let limit = Duration::from_secs(setting("STERNPOST_TEST_SECONDS", 40));
    println!("seed={first}");
    let begun = Instant::now();
    let (mut histories, mut positions) = (0, 0);
    while histories < 20 && begun.elapsed() < limit {
        positions += flush_at_every_position(first.wrapping_add(histories), 40);
        histories += 1;
    }
    println!("seed={first}: {histories} histories, {positions} positions in {:?}", begun.elapsed());
    assert!(histories >= 3, "only {histories} histories in {limit:?}");
}

fn put(key: &str, lease: i64) -> Request {
    Request::Put(PutRequest { key: key.into(), value: b"v".to_vec(), lease, ..Default::default() })
}

fn attached(keyspace: &Keyspace, id: i64) -> usize {
    let time = keyspace.lease_time_to_live(LeaseId(id), true).expect("the disk is there");
    time.map_or(0, |time| time.keys.len())
}

/// Waits until a condition holds; expiry is noticed by a thread.
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_lease_takes_its_keys_with_it_when_its_time_is_over_and_not_before() {
    let mut driver = Embedded::new(never_flushing());
    driver.apply(&Request::Grant(LeaseGrantRequest { id: 7, ttl: 10 })).expect("granted");
    driver.apply(&put("a", 7)).expect("put");
    driver.apply(&put("b", 7)).expect("put");
    driver.clock.advance(Duration::from_millis(9_900));
    // A command that goes through the committer: an expiry that is due would have gone before its answer is old.
    driver.apply(&put("c", 0)).expect("put");
    assert_eq!(attached(&driver.keyspace, 7), 2);
    let before = driver.keyspace.revision();
    driver.clock.advance(Duration::from_millis(1_100));
    let keyspace = driver.keyspace.clone();
    eventually("the lease expires", || keyspace.leases().is_empty());
    assert_eq!(driver.keyspace.revision(), before.next(), "both keys go at one revision");
    assert_eq!(attached(&driver.keyspace, 7), 0);
}

#[test]
fn downtime_does_not_shorten_a_lease() {
    let (memory, clock) = (Arc::new(Memory::default()), Arc::new(HandClock::default()));
    let keyspace = open(&memory, &clock, never_flushing());
    keyspace.lease_grant(Some(LeaseId(7)), 100).wait().expect("granted");
    keyspace.close().expect("it closes");
    clock.advance(Duration::from_secs(1000));
    let keyspace = open(&memory, &clock, never_flushing());
    let time = keyspace.lease_time_to_live(LeaseId(7), false).expect("the disk is there").expect("the lease is there");
    assert!(time.ttl >= 99 && time.granted_ttl == 100, "{time:?}");
    keyspace.close().expect("it closes");
}

#[test]
fn a_keyspace_that_was_closed_in_order_replays_nothing() {
    let mut driver = Embedded::new(never_flushing());
    for index in 0..50 {
        driver.apply(&put(&format!("k{index}"), 0)).expect("put");
    }
    assert!(driver.reopen(false));
    assert_eq!(driver.keyspace.status().opened.frames_replayed, 0);
    for index in 0..50 {
        driver.apply(&put(&format!("k{index}"), 0)).expect("put");
    }
    assert!(driver.reopen(true));
    assert!(driver.keyspace.status().opened.frames_replayed >= 50);
}

#[test]
fn the_model_answers_as_the_reference_says() {
    let get = |revision| Request::Range(RangeRequest { key: b"a".to_vec(), revision, ..Default::default() });
    let delete = Request::DeleteRange(DeleteRangeRequest { key: b"a".to_vec(), ..Default::default() });
    let compact = |revision| Request::Compact(CompactionRequest { revision, physical: false });
    // The revision and the count, or the text of the refusal.
    type Answer = Result<(i64, i64), &'static str>;
    let table: &[(Request, Answer)] = &[
        (get(0), Ok((1, 0))),
        (get(2), Err("etcdserver: mvcc: required revision is a future revision")),
        (put("a", 0), Ok((2, 0))),
        (put("a", 9), Err("etcdserver: requested lease not found")),
        (delete.clone(), Ok((3, 1))),
        (delete, Ok((3, 0))),
        (get(2), Ok((3, 1))),
        (compact(0), Ok((3, 0))),
        (compact(0), Err("etcdserver: mvcc: required revision has been compacted")),
        (compact(4), Err("etcdserver: mvcc: required revision is a future revision")),
        (compact(3), Ok((3, 0))),
        (get(3), Ok((3, 0))),
        (get(2), Err("etcdserver: mvcc: required revision has been compacted")),
        (get(-5), Ok((3, 0))),
    ];
    let mut model = Model::new();
    for (request, expected) in table {
        let outcome = model.apply(request).map(|expected| match expected {
            Expected::Range(reply) => (reply.revision, reply.count),
            Expected::Put(reply) => (reply.header.map_or(0, |header| header.revision), 0),
            Expected::DeleteRange(reply) => (reply.header.map_or(0, |header| header.revision), reply.deleted),
            Expected::Done(revision) => (revision, 0),
            other => panic!("not in the table: {other:?}"),
        });
        assert_eq!(outcome.map_err(|refusal| refusal.text()), *expected, "{request:?}");
    }
    let floor = model.events(&[0], &[0], 3);
    assert!(matches!(floor.as_slice(), [(3, events)] if events.len() == 1 && events[0].r#type == 1));
}
