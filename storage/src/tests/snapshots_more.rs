//! What a snapshot carries beside keys and leases, and the format before that.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::snapshots::{machine_with, pieces};
use super::*;

fn opened(machine: &Machine) -> Result<SnapshotFile, Error> {
    SnapshotFile::open(&machine.disk, Path::new("/snapshot"), false)
}

fn restored(machine: &Machine, bump: i64) -> Keyspace {
    opened(machine).unwrap().restore(&dir(), bump, &small(), &machine.environment()).unwrap();
    machine.open().unwrap()
}

#[test]
fn alarms_and_the_times_of_revisions_come_back() {
    let (mut compared, mut forgotten) = (0, 0);
    for seed in 0..10 {
        let machine = Machine::new(seed);
        let keyspace = machine.open().unwrap();
        let mut rng = fs::sim::Prng::new(seed);
        let mut write = |keyspace: &Keyspace, count: u64| {
            for n in 0..count {
                machine.clock.advance(rng.below(3000));
                keyspace.put(put(&format!("key {}", n % 9), vec![1; 100])).wait().unwrap();
            }
        };
        write(&keyspace, 150);
        let compacted = if seed % 2 == 0 { keyspace.revision().0 / 2 } else { -1 };
        if compacted > 0 {
            keyspace.compact(compacted).wait().unwrap();
            keyspace.wait_swept(Revision(compacted)).unwrap();
        }
        let (own, other) = (keyspace.status().member, MemberId(0x77));
        let alarms = [(own, AlarmKind::NoSpace), (other, AlarmKind::NoSpace)];
        let alarms = alarms.map(|(member, kind)| Alarm { member, kind });
        for alarm in alarms {
            keyspace.set_alarm(alarm, true).wait().unwrap();
        }
        let revision = keyspace.revision();
        let now = machine.clock.wall_ms();
        let stream = keyspace.snapshot().in_blocks_of(2000);
        for alarm in alarms {
            keyspace.set_alarm(alarm, false).wait().unwrap();
        }
        let taken = pieces(stream, || write(&keyspace, 3)).unwrap().concat();
        let file = machine_with(&taken, seed + 100);
        file.clock.advance(machine.clock.wall_ms() - EPOCH_MS + 5000);
        let info = *opened(&file).unwrap().info();
        assert_eq!((info.revision, info.alarms), (revision, 2));
        let again = restored(&file, 0);
        assert!(info.marks >= 40 || compacted > 0, "{info:?}");
        let mut expected = vec![Alarm { member: again.status().member, ..alarms[0] }, alarms[1]];
        expected.sort_unstable();
        let mut found = again.status().alarms;
        found.sort_unstable();
        assert_eq!(found, expected);
        for time_ms in (EPOCH_MS..now).step_by(500) {
            let (then, now) = (keyspace.revision_at(time_ms).unwrap(), again.revision_at(time_ms).unwrap());
            // What is compacted may be forgotten.
            match then.filter(|revision| revision.0 >= compacted) {
                Some(revision) => {
                    assert_eq!(now, Some(revision), "seed {seed}, {time_ms}");
                    compared += 1;
                }
                None => assert!(now.is_none_or(|revision| revision.0 <= compacted)),
            }
        }
        assert_eq!(again.revision_at(file.clock.wall_ms()).unwrap(), Some(revision));
        again.verify().unwrap();
        // With a bump all that is compacted, and only the restore has a time.
        let bumped = restored(&machine_with(&taken, seed + 200), 1000);
        assert!(bumped.revision_at(now).unwrap().is_none_or(|then| then == bumped.revision()));
        assert_eq!(bumped.status().alarms.len(), 2);
        forgotten += 1;
    }
    println!("{compared} times compared, {forgotten} forgotten after a bump");
    assert!(compared >= 1000 && forgotten == 10);
}

fn block(kind: u32, number: u32, content: &[u8]) -> Vec<u8> {
    let fields: Vec<u8> = [kind, number, content.len() as u32].iter().flat_map(|field| field.to_le_bytes()).collect();
    let crc = crc32fast::hash(&[fields.as_slice(), content].concat());
    [fields, crc.to_le_bytes().to_vec(), content.to_vec()].concat()
}

fn numbers(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A snapshot as the first format has it, of one lease, a put and a deletion.
fn first_format() -> Vec<u8> {
    let change = |main: i64, kind: u8, key: &[u8], value: &[u8], fields: &[i64]| {
        let lens = [key.len() as u32, value.len() as u32].map(u32::to_le_bytes).concat();
        [numbers(&[main, 0]), vec![kind], lens, numbers(fields), key.to_vec(), value.to_vec()].concat()
    };
    let lease = numbers(&[7, 100, 60_000]);
    let changes = [
        change(2, 1, b"a", b"one", &[2, 1, 7]),
        change(3, 1, b"b", b"two", &[3, 1, 0]),
        change(4, 0, b"b", b"", &[0; 3]),
    ];
    let sum = |parts: &[Vec<u8>]| parts.iter().map(|bytes| i64::from(crc32fast::hash(bytes))).sum::<i64>();
    let end = [-1, 1, 3, 1, 9, sum(std::slice::from_ref(&lease)), sum(&changes)];
    let mut bytes = [b"STERNSNP".to_vec(), 1_u32.to_le_bytes().to_vec()].concat();
    bytes.extend(block(1, 0, &numbers(&[0x55, 4, EPOCH_MS as i64])));
    bytes.extend(block(2, 1, &lease));
    bytes.extend(block(3, 2, &changes.concat()));
    bytes.extend(block(4, 3, &numbers(&end)));
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    let hash = Sha256::digest(&bytes);
    [bytes, hash.to_vec()].concat()
}

#[test]
fn the_first_format_is_read_and_has_neither_alarms_nor_marks() {
    let machine = machine_with(&first_format(), 1);
    let info = *opened(&machine).unwrap().info();
    assert_eq!((info.cluster, info.revision, info.compacted), (0x55, Revision(4), Revision(-1)));
    assert_eq!((info.keys, info.versions, info.leases, info.alarms, info.marks), (1, 3, 1, 0, 0));
    let keyspace = restored(&machine, 0);
    let a = get(&keyspace, "a").unwrap();
    assert_eq!((a.value.as_ref(), a.create_revision, a.mod_revision, a.lease), (&b"one"[..], 2, 2, 7));
    assert_eq!((get(&keyspace, "b"), keyspace.leases()), (None, vec![LeaseId(7)]));
    assert_eq!(history(&keyspace, 2).len(), 3);
    keyspace.verify().unwrap();
    // Nor may it have blocks that only came later.
    let mut later = first_format();
    let at = later.len() - 32;
    let mark = block(6, 3, &numbers(&[EPOCH_MS as i64, 2]));
    later.splice(at - 512..at, mark);
    let text = opened(&machine_with(&later, 2)).unwrap_err().to_string();
    assert!(text.contains("snapshot"), "{text}");
    let newer = [&b"STERNSNP"[..], &3_u32.to_le_bytes(), &[0; 1000]].concat();
    let text = opened(&machine_with(&newer, 3)).unwrap_err().to_string();
    assert!(text.contains("format 3") && text.contains("up to 2"), "{text}");
}
