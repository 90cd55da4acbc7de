//! Counts that are kept: equal to counting by reading, whatever happens in between.

use super::*;
use crate::fs::sim::{CrashStyle, Prng};

const KEYS: u64 = 1500;

fn name(random: &mut Prng) -> String {
    format!("k{:04}", random.next_u64() % KEYS)
}

fn range(from: &str, end: Option<&str>) -> KeyRange {
    let end = end.map_or(RangeEnd::Open, |end| RangeEnd::Before(Bytes::from(end.to_owned())));
    KeyRange { start: key(from), end }
}

fn ranges() -> Vec<KeyRange> {
    let mut ranges = vec![range("a", None), range("k", Some("l")), range("k0500", None), range("k1", Some("k1000"))];
    ranges.extend((0..8).map(|n| range(&format!("k{:04}", n * 100), Some(&format!("k{:04}", n * 150 + 400)))));
    ranges
}

fn check(keyspace: &Keyspace, random: &mut Prng) {
    for range in ranges() {
        let all = keyspace.range(&RangeRequest::new(range.clone())).unwrap();
        assert_eq!(all.count, all.kvs.len() as i64);
        let limited = RangeRequest { limit: (random.next_u64() % 600 + 1) as i64, ..RangeRequest::new(range.clone()) };
        let page = keyspace.range(&limited).unwrap();
        assert_eq!(
            (page.count, page.more),
            (all.count, all.count > limited.limit),
            "{range:?} limit {}",
            limited.limit
        );
        let count_only = RangeRequest { content: Content::CountOnly, ..RangeRequest::new(range.clone()) };
        assert_eq!(keyspace.range(&count_only).unwrap().count, all.count, "{range:?}");
        let pinned = RangeRequest { at: At::Revision(all.revision.0), ..count_only.clone() };
        assert_eq!(keyspace.range(&pinned).unwrap().count, all.count, "{range:?}");
        // An older revision has its own count.
        if let Some(before) = Some(all.revision.0 - 1).filter(|before| *before > keyspace.status().compacted.0.max(0)) {
            let at = At::Revision(before);
            let kvs = keyspace.range(&RangeRequest { at, ..RangeRequest::new(range.clone()) }).unwrap().kvs;
            assert_eq!(keyspace.range(&RangeRequest { at, ..count_only }).unwrap().count, kvs.len() as i64);
        }
    }
}

fn step(keyspace: &Keyspace, random: &mut Prng) {
    match random.next_u64() % 12 {
        0..5 => drop(keyspace.put(put(&name(random), "v")).wait().unwrap()),
        5..8 => drop(keyspace.delete_range(delete(&name(random))).wait().unwrap()),
        8 => {
            let range = range(&name(random), Some(&name(random)));
            let few = RangeRequest { limit: 5, ..RangeRequest::new(range) };
            for kv in keyspace.range(&few).unwrap().kvs {
                let gone =
                    Op::DeleteRange(DeleteRange { range: KeyRange::single(Key::new(kv.key).unwrap()), prev_kv: false });
                let came = Op::Txn(Txn { success: vec![Op::Put(put(&name(random), "t"))], ..Txn::default() });
                // Refused if both name one key, which is as good a step as any.
                drop(keyspace.txn(Txn { success: vec![gone, came], ..Txn::default() }).wait());
            }
        }
        9 => {
            let revision = keyspace.revision().0;
            let from = keyspace.status().compacted.0.max(1);
            if revision > from {
                let upto = from + 1 + (random.next_u64() % (revision - from) as u64) as i64;
                keyspace.compact(upto).wait().unwrap();
            }
        }
        10 => keyspace.flush().unwrap(),
        _ => {
            let pending: Vec<_> = (0..20).map(|_| keyspace.put(put(&name(random), "many"))).collect();
            pending.into_iter().for_each(|pending| drop(pending.wait().unwrap()));
        }
    }
}

#[test]
fn kept_counts_equal_counting() {
    for seed in 0..4 {
        let mut machine = Machine::new(seed);
        let mut random = Prng::new(seed);
        let mut keyspace = machine.open().unwrap();
        let pending: Vec<_> = (0..900).map(|_| keyspace.put(put(&name(&mut random), "v"))).collect();
        pending.into_iter().for_each(|pending| drop(pending.wait().unwrap()));
        for _ in 0..3 {
            for _ in 0..25 {
                step(&keyspace, &mut random);
                check(&keyspace, &mut random);
            }
            drop(keyspace);
            machine = machine.after_power_cut(CrashStyle::KeepNone);
            keyspace = machine.open().unwrap();
        }
    }
}

#[test]
fn counts_stay_exact_while_others_write() {
    let machine = Machine::new(7);
    let keyspace = machine.open().unwrap();
    let writer = {
        let keyspace = keyspace.clone();
        std::thread::spawn(move || {
            let mut random = Prng::new(7);
            for _ in 0..1500 {
                keyspace.put(put(&name(&mut random), "v")).wait().unwrap();
                if random.next_u64().is_multiple_of(3) {
                    keyspace.delete_range(delete(&name(&mut random))).wait().unwrap();
                }
            }
        })
    };
    let request = RangeRequest { content: Content::CountOnly, ..RangeRequest::new(range("a", None)) };
    while !writer.is_finished() {
        let counted = keyspace.range(&request).unwrap();
        let at = At::Revision(counted.revision.0);
        let all = keyspace.range(&RangeRequest { at, ..RangeRequest::new(range("a", None)) }).unwrap();
        assert_eq!(counted.count, all.kvs.len() as i64, "at {}", counted.revision);
    }
    writer.join().unwrap();
}
