//! Listings: values fetched by and by are those of the revision asked for, whatever happens meanwhile.

use super::*;

/// Takes the rest of a listing in steps.
fn take(keyspace: &Keyspace, listing: &mut Listing, step: usize) -> Vec<KeyValue> {
    let mut taken = Vec::new();
    while listing.entries().len() > 0 {
        let (left, before) = (listing.entries().len(), taken.len());
        let each = &mut |entry: Entry<'_>, pieces: &[&[u8]]| {
            let value = pieces.concat();
            assert_eq!(entry.value_len, value.len());
            taken.push(KeyValue {
                key: entry.key.clone(),
                create_revision: entry.create_revision,
                mod_revision: entry.mod_revision,
                version: entry.version,
                value: Bytes::from(value),
                lease: entry.lease,
            });
        };
        listing.take(keyspace, step, each).unwrap();
        assert!(taken.len() > before, "a step takes something");
        assert_eq!(taken.len() - before, left - listing.entries().len());
    }
    taken
}

fn requests() -> Vec<RangeRequest> {
    let all = RangeRequest::new(KeyRange::all());
    let sorted = |target, order| RangeRequest { target, order, ..all.clone() };
    vec![
        all.clone(),
        RangeRequest { limit: 7, ..all.clone() },
        RangeRequest { content: Content::KeysOnly, ..all.clone() },
        RangeRequest { content: Content::CountOnly, ..all.clone() },
        sorted(SortTarget::Value, SortOrder::Descend),
        RangeRequest { content: Content::KeysOnly, ..sorted(SortTarget::Value, SortOrder::Ascend) },
        sorted(SortTarget::Mod, SortOrder::Descend),
        RangeRequest { limit: 5, ..sorted(SortTarget::Version, SortOrder::Ascend) },
        RangeRequest::new(KeyRange::single(key("k3"))),
    ]
}

#[test]
fn a_listing_taken_in_steps_is_the_range() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    let lease = keyspace.lease_grant(None, 100).wait().unwrap().id;
    let mut random = fs::sim::Prng::new(1);
    for n in 0..300 {
        let value = vec![random.below(256) as u8; random.below(150) as usize];
        let lease = if n % 3 == 0 { PutLease::Attach(lease) } else { PutLease::Detach };
        keyspace.put(Put { lease, ..put(&format!("k{}", random.below(40)), value) }).wait().unwrap();
    }
    let mut entries = 0;
    for request in requests() {
        let reply = keyspace.range(&request).unwrap();
        for step in [0, 1, 200, 1000, usize::MAX] {
            let mut listing = keyspace.list(&request).unwrap();
            assert_eq!((listing.revision, listing.more, listing.count), (reply.revision, reply.more, reply.count));
            assert_eq!(listing.entries().len(), reply.kvs.len());
            assert_eq!(take(&keyspace, &mut listing, step), reply.kvs, "{request:?} in steps of {step}");
            entries += reply.kvs.len();
        }
    }
    assert!(entries > 500, "{entries} entries");
}

#[test]
fn a_listing_holds_its_revision_until_that_is_compacted() {
    let machine = Machine::new(2);
    let keyspace = machine.open().unwrap();
    let write = |generation: u8| {
        for n in 0..60 {
            keyspace.put(put(&format!("k{n:02}"), vec![generation; 100])).wait().unwrap();
        }
        keyspace.flush().unwrap();
    };
    write(1);
    let request = RangeRequest::new(KeyRange::all());
    let expected = keyspace.range(&request).unwrap().kvs;
    let [mut kept, mut released, mut late] = [(); 3].map(|()| keyspace.list(&request).unwrap());
    released.release();
    late.release();
    let revision = keyspace.revision();
    for generation in 2..5 {
        write(generation);
    }
    keyspace.compact(revision.0).wait().unwrap();
    keyspace.wait_swept(revision).unwrap();
    assert_eq!(take(&keyspace, &mut released, 1000), expected, "everything at the compacted revision itself is there");

    let floor = revision.next();
    keyspace.compact(floor.0).wait().unwrap();
    keyspace.wait_swept(floor).unwrap();
    let taken = late.take(&keyspace, 1000, &mut |_, _| panic!("nothing is taken"));
    assert_eq!(taken, Err(Error::Compacted { asked: revision.0, floor: floor.0 }));
    assert_eq!(late.entries().len(), expected.len());
    assert_eq!(take(&keyspace, &mut kept, 1000), expected, "one that is not released reads what it pins");
}
