//! Leases: never early, and not for ever.

use super::*;
use crate::fs::sim::CrashStyle;

fn grant(keyspace: &Keyspace, id: i64, ttl: i64) {
    keyspace.lease_grant(Some(LeaseId(id)), ttl).wait().unwrap();
}

fn attach(keyspace: &Keyspace, name: &str, id: i64) {
    keyspace.put(Put { lease: PutLease::Attach(LeaseId(id)), ..put(name, "1") }).wait().unwrap();
}

/// Moves the clock, and lets the committer see it: the reply of a write comes after what was due.
fn pass(machine: &Machine, keyspace: &Keyspace, ms: u64) {
    machine.clock.advance(ms);
    for _ in 0..2 {
        keyspace.put(put("clock", "1")).wait().unwrap();
    }
}

fn left(keyspace: &Keyspace, id: i64) -> Option<i64> {
    keyspace.lease_time_to_live(LeaseId(id), false).unwrap().map(|lease| lease.ttl)
}

#[test]
fn a_lease_that_runs_out_takes_its_keys_with_it_in_one_revision() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    grant(&keyspace, 5, 10);
    attach(&keyspace, "b", 5);
    attach(&keyspace, "a", 5);
    attach(&keyspace, "gone", 5);
    keyspace.put(put("gone", "detached")).wait().unwrap();
    pass(&machine, &keyspace, 9_900);
    assert!(get(&keyspace, "a").is_some());
    let before = keyspace.revision();
    pass(&machine, &keyspace, 200);
    assert_eq!((get(&keyspace, "a"), get(&keyspace, "b"), left(&keyspace, 5)), (None, None, None));
    assert!(get(&keyspace, "gone").is_some());
    let deleted: Vec<_> = history(&keyspace, before.0 + 1).into_iter().filter(|change| change.is_tombstone()).collect();
    let places: Vec<_> = deleted.iter().map(|change| (change.key.clone(), change.at.sub)).collect();
    assert_eq!(places, [(Bytes::from("a"), 0), (Bytes::from("b"), 1)]);
    assert_eq!(deleted[0].at.main, deleted[1].at.main);
}

#[test]
fn a_renewed_lease_lives_on_and_only_the_first_renewal_is_logged() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    grant(&keyspace, 5, 10);
    attach(&keyspace, "a", 5);
    let mut positions = Vec::new();
    for _ in 0..5 {
        machine.clock.advance(6_000);
        assert_eq!(keyspace.lease_keep_alive(LeaseId(5)).wait(), Ok(Some(10)));
        positions.push(keyspace.status().applied);
    }
    assert_eq!(positions[1], positions[4], "a renewal after the first one wrote a frame");
    pass(&machine, &keyspace, 9_900);
    assert!(get(&keyspace, "a").is_some());
    pass(&machine, &keyspace, 200);
    assert_eq!(get(&keyspace, "a"), None);
    assert_eq!(keyspace.lease_keep_alive(LeaseId(5)).wait(), Ok(None));
}

#[test]
fn a_keep_alive_of_a_lease_that_has_run_out_never_revives_it() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    grant(&keyspace, 5, 10);
    attach(&keyspace, "a", 5);
    machine.clock.advance(10_001);
    assert_eq!(keyspace.lease_keep_alive(LeaseId(5)).wait(), Ok(None));
    assert_eq!(get(&keyspace, "a"), None);
}

#[test]
fn a_start_gives_a_renewed_lease_its_full_time_and_another_what_it_had_left() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    grant(&keyspace, 5, 100);
    grant(&keyspace, 6, 100);
    attach(&keyspace, "renewed", 5);
    attach(&keyspace, "not renewed", 6);
    machine.clock.advance(40_000);
    keyspace.lease_keep_alive(LeaseId(5)).wait().unwrap();
    machine.clock.advance(30_000);
    keyspace.put(put("seen", "1")).wait().unwrap();
    drop(keyspace);
    // Downtime does not count.
    machine.clock.advance(3_600_000);
    let next = machine.after_power_cut(CrashStyle::KeepNone);
    let keyspace = next.open().unwrap();
    assert_eq!((left(&keyspace, 5), left(&keyspace, 6)), (Some(100), Some(30)));
    pass(&next, &keyspace, 29_000);
    assert!(get(&keyspace, "not renewed").is_some());
    pass(&next, &keyspace, 1_100);
    assert_eq!(get(&keyspace, "not renewed"), None);
    assert!(get(&keyspace, "renewed").is_some());
}

#[test]
fn a_crash_loop_does_not_keep_keys_for_ever() {
    let mut machine = Machine::new(1);
    let mut keyspace = machine.open().unwrap();
    grant(&keyspace, 5, 60);
    attach(&keyspace, "a", 5);
    let mut crashes = 0;
    while get(&keyspace, "a").is_some() {
        // Each process lives ten seconds and writes at its end.
        keyspace.put(put("alive", "1")).wait().unwrap();
        pass(&machine, &keyspace, 10_000);
        drop(keyspace);
        machine.clock.advance(5_000);
        machine = machine.after_power_cut(CrashStyle::KeepNone);
        keyspace = machine.open().unwrap();
        crashes += 1;
        assert!(crashes < 20, "still there after {crashes} crashes");
    }
    assert!(crashes >= 5, "early: gone after {crashes} crashes of ten seconds each");
}

#[test]
fn a_mass_expiry_takes_every_lease_and_lets_writes_pass() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    let grants: Vec<_> = (1..=900).map(|id| keyspace.lease_grant(Some(LeaseId(id)), 10)).collect();
    for grant in grants {
        grant.wait().unwrap();
    }
    assert_eq!(keyspace.leases().len(), 900);
    machine.clock.advance(10_001);
    keyspace.put(put("through", "1")).wait().unwrap();
    while !keyspace.leases().is_empty() {
        keyspace.put(put("through", "2")).wait().unwrap();
    }
    assert_eq!(keyspace.lease_revoke(LeaseId(1)).wait(), Err(Error::LeaseNotFound(LeaseId(1))));
}
