//! Compaction: what is unreadable goes, what is readable stays, whatever flushes and sweeps do in between.

use super::*;

/// What a reader sees of a range at a revision.
fn picture(keyspace: &Keyspace, revision: i64) -> Vec<KeyValue> {
    let request = RangeRequest { at: At::Revision(revision), ..RangeRequest::new(KeyRange::all()) };
    keyspace.range(&request).unwrap().kvs
}

#[test]
fn what_can_be_read_survives_every_mix_of_compaction_sweep_flush_and_reopening() {
    let (mut pictures, mut sweeps, mut reopenings) = (0, 0, 0);
    for seed in 1..=12 {
        let mut random = fs::sim::Prng::new(seed);
        let mut machine = Machine::new(seed);
        let mut keyspace = machine.open().unwrap();
        let mut seen: Vec<Vec<KeyValue>> = vec![Vec::new(); 2];
        let mut floor = 1;
        for step in 0..400 {
            let name = format!("k{}", random.below(12));
            let changed = if random.chance(30) {
                keyspace.delete_range(delete(&name)).wait().unwrap().revision
            } else {
                keyspace.put(put(&name, vec![step as u8; random.below(120) as usize])).wait().unwrap().revision
            };
            if changed.0 as usize == seen.len() {
                seen.push(picture(&keyspace, changed.0));
            }
            match random.below(30) {
                0 => keyspace.flush().unwrap(),
                1 => {
                    floor = floor.max(1) + random.below((changed.0 - floor) as u64 + 1) as i64;
                    match keyspace.compact(floor).wait() {
                        Ok(_) | Err(Error::Compacted { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                2 => {
                    keyspace.wait_swept(Revision(floor)).unwrap();
                    keyspace.verify().unwrap();
                    sweeps += 1;
                }
                3 => {
                    drop(keyspace);
                    machine = machine.after_power_cut(fs::sim::CrashStyle::Sectors);
                    keyspace = machine.open().unwrap();
                    reopenings += 1;
                }
                _ => {}
            }
            let revision = floor + random.below((changed.0 - floor) as u64 + 1) as i64;
            assert_eq!(picture(&keyspace, revision), seen[revision as usize], "seed {seed} step {step} at {revision}");
            pictures += 1;
        }
    }
    println!("{pictures} pictures, {sweeps} sweeps, {reopenings} reopenings");
    assert!(pictures >= 4000 && sweeps >= 50 && reopenings >= 50);
}

#[test]
fn a_sweep_leaves_one_version_of_each_key_and_no_deletion_below_the_floor() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    for n in 0..200 {
        keyspace.put(put(&format!("k{}", n % 10), format!("{n}"))).wait().unwrap();
    }
    for n in 0..5 {
        keyspace.delete_range(delete(&format!("k{n}"))).wait().unwrap();
    }
    let floor = keyspace.put(put("last", "1")).wait().unwrap().revision;
    keyspace.compact(floor.0).wait().unwrap();
    keyspace.wait_swept(floor).unwrap();
    let stored = keyspace.stored_changes(Revision(1), floor, usize::MAX).unwrap();
    let names: Vec<_> = stored.iter().map(|change| change.key.clone()).collect();
    assert_eq!(names, ["k5", "k6", "k7", "k8", "k9", "last"]);
    assert!(stored.iter().all(|change| !change.is_tombstone()));
    keyspace.verify().unwrap();
}

#[test]
fn the_wall_clock_leads_to_a_revision() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    let mut made = Vec::new();
    for n in 0..6 {
        made.push(keyspace.put(put("a", format!("{n}"))).wait().unwrap().revision);
        machine.clock.advance(2_000);
        if n == 3 {
            keyspace.flush().unwrap();
        }
    }
    assert_eq!(keyspace.revision_at(EPOCH_MS - 1).unwrap(), None);
    for (n, revision) in made.into_iter().enumerate() {
        assert_eq!(keyspace.revision_at(EPOCH_MS + 2_000 * n as u64 + 1_999).unwrap(), Some(revision));
    }
}
