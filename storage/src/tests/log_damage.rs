//! A log that is damaged where base has been: the start says so and goes on. Above, it stops.

use super::*;
use crate::fs::sim::{CrashStyle, Prng};

/// Small segments that base holds in part: `flushed` puts in base, `more` in the log alone.
fn after_a_crash(seed: u64, flushed: i64, more: i64) -> (Machine, Vec<KeyValue>) {
    let machine = Machine::new(seed);
    let options = Options { segment_bytes: 1 << 20, recent_changes: 10_000, recent_bytes: 8 << 20, ..small() };
    let keyspace = Keyspace::open(&dir(), options, machine.environment()).unwrap();
    for n in 0..flushed + more {
        if n == flushed {
            keyspace.flush().unwrap();
        }
        keyspace.put(put(&format!("key {}", n % 20), format!("{n:06}").repeat(50))).wait().unwrap();
    }
    let all = keyspace.range(&RangeRequest::new(KeyRange::all())).unwrap().kvs;
    machine.disk.freeze();
    drop(keyspace);
    (machine.after_power_cut(CrashStyle::KeepNone), all)
}

/// Flips a bit within the value of the `n`th put, in the log.
fn damage(machine: &Machine, n: i64, rng: &mut Prng) {
    let needle = format!("{n:06}").repeat(3);
    let file = machine.disk.files().into_iter().find(|file| file.starts_with(dir().join("log"))).unwrap();
    let image = machine.disk.contents(&file).unwrap();
    let at = (0..image.len() - needle.len()).find(|at| image[*at..].starts_with(needle.as_bytes())).unwrap();
    machine.disk.flip_bit(&file, at as u64 * 8 + rng.below(100)).unwrap();
}

#[test]
fn damage_below_what_base_holds_is_reported_and_damage_above_stops_the_start() {
    let mut rng = Prng::new(1);
    let (mut reported, mut stopped) = (0, 0);
    for seed in 0..12 {
        let (machine, all) = after_a_crash(seed, 40, 20);
        let n = rng.below(60).cast_signed();
        damage(&machine, n, &mut rng);
        let looked_at = verify(&dir(), &(Arc::new(machine.disk.clone()) as _), 1 << 20).unwrap();
        let opened = machine.open();
        assert!(matches!(looked_at.damage.as_slice(), [Error::Corrupt { place, .. }] if place.contains(".log at")));
        if n >= 40 {
            let text = opened.unwrap_err().to_string();
            assert!(text.contains(".log at offset"), "{text}");
            stopped += 1;
            continue;
        }
        let keyspace = opened.unwrap();
        let report = keyspace.status().opened;
        assert_eq!(report.damage, looked_at.damage);
        assert_eq!((looked_at.ahead, report.frames_replayed), (20, 20));
        assert_eq!(keyspace.range(&RangeRequest::new(KeyRange::all())).unwrap().kvs, all);
        keyspace.put(put("after", "1")).wait().unwrap();
        keyspace.close().unwrap();
        drop(keyspace);
        // Not yet trimmed, and still no obstacle.
        let keyspace = machine.open().unwrap();
        assert_eq!(get(&keyspace, "after").unwrap().value, "1");
        keyspace.verify().unwrap();
        reported += 1;
    }
    println!("{reported} reported, {stopped} stopped");
    assert!(reported >= 4 && stopped >= 2);
}

#[test]
fn a_damaged_log_goes_with_no_other_base_all_the_same() {
    let (machine, _) = after_a_crash(1, 40, 20);
    let (other, _) = after_a_crash(2, 40, 20);
    damage(&machine, 10, &mut Prng::new(1));
    let base = dir().join("base.redb");
    machine.disk.damage(&base, 0, &other.disk.contents(&base).unwrap()).unwrap();
    let error = machine.open().unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. } | Error::LogMismatch { .. }), "{error}");
}
