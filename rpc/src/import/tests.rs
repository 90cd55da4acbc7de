//! Files with etcd's buckets, made here byte by byte, and what becomes of them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;

use prost::Message;
use sha2::{Digest, Sha256};
use storage::fs::{FileSystem, OpenMode, SimFs};
use storage::{At, Key, KeyRange, KeyValue, Keyspace, LeaseId, Put, PutLease, PutValue, RangeRequest};

use super::bolt::write::{Item, Tree, file};
use super::*;
use crate::pb::{etcdserverpb, mvccpb};

const PAGE: usize = 4096;

fn place(main: i64, sub: i64) -> Vec<u8> {
    [&main.to_be_bytes()[..], b"_", &sub.to_be_bytes()].concat()
}

fn put(main: i64, sub: i64, key: &str, create: i64, version: i64, lease: i64) -> (Vec<u8>, Item) {
    let value = format!("{key} at {main}");
    let (key, value) = (key.to_owned().into(), value.into());
    let record = mvccpb::KeyValue { key, create_revision: create, mod_revision: main, version, value, lease };
    (place(main, sub), Item::Value(record.encode_to_vec()))
}

fn deletion(main: i64, sub: i64, key: &str) -> (Vec<u8>, Item) {
    let record = mvccpb::KeyValue { key: key.to_owned().into(), ..Default::default() };
    ([place(main, sub), b"t".to_vec()].concat(), Item::Value(record.encode_to_vec()))
}

fn lease(id: i64, ttl: i64, remaining: i64) -> (Vec<u8>, Item) {
    (id.to_be_bytes().to_vec(), Item::Value(buckets::Lease { id, ttl, remaining }.encode_to_vec()))
}

fn bucket<const N: usize>(name: &str, entries: [(Vec<u8>, Item); N]) -> (Vec<u8>, Item) {
    (name.into(), Item::Bucket(entries.into()))
}

fn value(name: &str, value: impl AsRef<[u8]>) -> (Vec<u8>, Item) {
    (name.into(), Item::Value(value.as_ref().to_vec()))
}

/// Keys `a` and `b`, a deletion, a transaction, two leases.
fn history() -> Tree {
    Tree::from([
        bucket(
            "key",
            [
                put(2, 0, "a", 2, 1, 0),
                put(3, 0, "a", 2, 2, 5),
                put(4, 0, "b", 4, 1, 0),
                put(4, 1, "c", 4, 1, 6),
                deletion(5, 0, "b"),
                put(6, 0, "b", 6, 1, 0),
            ],
        ),
        bucket("meta", [value("consistent_index", [0; 8])]),
        bucket("lease", [lease(5, 100, 0), lease(6, 200, 30)]),
        bucket("auth", [value("authEnabled", [0])]),
    ])
}

fn with(mut tree: Tree, (name, item): (Vec<u8>, Item)) -> Tree {
    tree.insert(name, item);
    tree
}

fn snapshot(tree: &Tree) -> Vec<u8> {
    let mut bytes = file(PAGE, tree);
    bytes.extend_from_slice(&Sha256::digest(&bytes));
    bytes
}

/// A simulated disk with the file to import on it.
struct Machine {
    fs: SimFs,
    environment: Environment,
}

impl Machine {
    fn new(bytes: &[u8]) -> Machine {
        let fs = SimFs::new();
        fs.create_dir(Path::new("/in")).unwrap();
        fs.open(Path::new("/in/file"), OpenMode::CreateNew).unwrap().write_at(0, bytes).unwrap();
        let (clock, entropy) = (Arc::new(SystemClock::new()), Arc::new(SystemEntropy));
        let environment = Environment { fs: Arc::new(fs.clone()), clock, entropy };
        Machine { fs, environment }
    }

    fn import(&self, flags: &str) -> Result<Report, String> {
        let request = Request {
            file: "/in/file".into(),
            data_dir: "/data".into(),
            skip_hash_check: flags.contains("skip-hash-check"),
            without_auth: flags.contains("without-auth"),
        };
        etcd_into(&request, &Options::standard(), &self.environment)
    }

    fn open(&self) -> Keyspace {
        Keyspace::open(Path::new("/data"), Options::standard(), self.environment.clone()).unwrap()
    }

    /// The error of an import, after which there is no data directory.
    fn refused(&self, flags: &str) -> String {
        let refused = self.import(flags).unwrap_err();
        assert_eq!(self.fs.metadata(Path::new("/data")).unwrap(), None, "{refused}");
        refused
    }
}

/// "key@modified/create/version" of each key at a revision.
fn keys_at(keyspace: &Keyspace, revision: i64) -> Result<String, storage::Error> {
    let request = RangeRequest { at: At::Revision(revision), ..RangeRequest::new(KeyRange::all()) };
    let show = |kv: &KeyValue| {
        let (key, value) = (String::from_utf8_lossy(&kv.key), &kv.value);
        assert_eq!(value, format!("{key} at {}", kv.mod_revision).as_bytes());
        format!("{key}@{}/{}/{} ", kv.mod_revision, kv.create_revision, kv.version)
    };
    Ok(keyspace.range(&request)?.kvs.iter().map(show).collect())
}

#[test]
fn a_snapshot_comes_with_history_deletions_and_leases() {
    let machine = Machine::new(&snapshot(&history()));
    let report = machine.import("").unwrap();
    assert_eq!(report.warnings, [""; 0]);
    let line = report.to_string();
    assert!(
        line.starts_with("imported revision=6 compacted=-1 revisions=5 keys=3 versions=6 leases=2 bytes="),
        "{line}"
    );
    let keyspace = machine.open();
    for (revision, expected) in [
        (1, ""),
        (2, "a@2/2/1 "),
        (3, "a@3/2/2 "),
        (4, "a@3/2/2 b@4/4/1 c@4/4/1 "),
        (5, "a@3/2/2 c@4/4/1 "),
        (6, "a@3/2/2 b@6/6/1 c@4/4/1 "),
    ] {
        assert_eq!(keys_at(&keyspace, revision).unwrap(), expected, "revision {revision}");
    }
    for (id, ttl, left, key) in [(5, 100, 100, "a"), (6, 200, 30, "c")] {
        let lease = keyspace.lease_time_to_live(LeaseId(id), true).unwrap().unwrap();
        assert_eq!((lease.granted_ttl, lease.keys.as_slice()), (ttl, [key.into()].as_slice()));
        assert!(lease.ttl == left || lease.ttl == left - 1, "{lease:?}");
    }
    let next =
        Put { key: Key::new("d").unwrap(), value: PutValue::Set("d".into()), lease: PutLease::Detach, prev_kv: false };
    assert_eq!(keyspace.put(next).wait().unwrap().revision, Revision(7));
    keyspace.verify().unwrap();
}

#[test]
fn a_compaction_that_was_begun_counts_as_done() {
    let meta = bucket("meta", [value("finishedCompactRev", place(3, 0)), value("scheduledCompactRev", place(5, 0))]);
    let machine = Machine::new(&snapshot(&with(history(), meta)));
    assert!(machine.import("").unwrap().to_string().contains("revision=6 compacted=5 "));
    let keyspace = machine.open();
    assert_eq!(keys_at(&keyspace, 4), Err(storage::Error::Compacted { asked: 4, floor: 5 }));
    assert_eq!(keys_at(&keyspace, 5).unwrap(), "a@3/2/2 c@4/4/1 ");
    // Compaction may have removed the last change there was: revisions do not go back.
    let meta = bucket("meta", [value("finishedCompactRev", place(9, 0))]);
    let machine = Machine::new(&snapshot(&with(history(), meta)));
    assert!(machine.import("").unwrap().to_string().contains("revision=9 compacted=9 "));
    assert_eq!(machine.open().revision(), Revision(9));
}

#[test]
fn a_hash_that_does_not_match_is_refused_unless_told_otherwise() {
    let mut bytes = snapshot(&history());
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let machine = Machine::new(&bytes);
    let refused = machine.refused("");
    assert!(refused.contains("/in/file: it does not match the SHA-256 at its end"), "{refused}");
    assert_eq!(machine.import("skip-hash-check").unwrap().warnings, [""; 0]);
    // Without a hash it is a database file.
    let machine = Machine::new(&file(PAGE, &history()));
    let warnings = machine.import("").unwrap().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("without a SHA-256"), "{warnings:?}");
    for len in [0, 31, 32, 544, 600, PAGE, bytes.len() - 1, bytes.len() - 32 - PAGE] {
        let refused = Machine::new(&bytes[..len]).refused("skip-hash-check");
        assert!(refused.starts_with("/in/file: "), "{len} bytes: {refused}");
    }
}

#[test]
fn what_cannot_come_along_is_refused_or_said() {
    let alarm = |alarm: etcdserverpb::AlarmType| {
        let member = etcdserverpb::AlarmMember { member_id: 1, alarm: alarm.into() };
        bucket("alarm", [(member.encode_to_vec(), Item::Value(Vec::new()))])
    };
    let corrupt = Machine::new(&snapshot(&with(history(), alarm(etcdserverpb::AlarmType::Corrupt))));
    assert!(corrupt.refused("without-auth").contains("CORRUPT"));
    let full = Machine::new(&snapshot(&with(history(), alarm(etcdserverpb::AlarmType::Nospace))));
    assert_eq!(full.import("").unwrap().warnings, ["the NOSPACE alarm is left behind"]);
    assert!(full.open().status().alarms.is_empty());

    let users = with(history(), bucket("authUsers", [value("root", "1"), value("me", "2")]));
    let users = with(users, bucket("authRoles", [value("root", "3")]));
    let disabled = Machine::new(&snapshot(&users)).import("").unwrap().warnings;
    assert_eq!(disabled, ["2 users and 1 roles are left behind"]);
    let enabled = Machine::new(&snapshot(&with(users, bucket("auth", [value("authEnabled", [1])]))));
    let refused = enabled.refused("");
    assert!(refused.contains("2 users and 1 roles") && refused.contains("--without-auth"), "{refused}");
    assert_eq!(enabled.import("without-auth").unwrap().warnings, disabled);

    let newer = with(history(), bucket("meta", [value("storageVersion", "3.8.0")]));
    let refused = Machine::new(&snapshot(&newer)).refused("");
    assert!(refused.contains("3.8.0") && refused.contains("3.7"), "{refused}");
    let orphan = Machine::new(&snapshot(&with(history(), bucket("lease", [lease(5, 100, 0)])))).import("").unwrap();
    assert!(orphan.warnings[0].starts_with("1 keys name a lease that does not exist"), "{:?}", orphan.warnings);
}

#[test]
fn records_that_cannot_be_are_refused_and_the_directory_never_starts() {
    let record = |key: Vec<u8>, item: Item| with(history(), ("key".into(), Item::Bucket(Tree::from([(key, item)]))));
    let (sound, Item::Value(bytes)) = put(3, 0, "a", 3, 1, 0) else { panic!("a put is a value") };
    for (tree, expected) in [
        (record(sound[..16].to_vec(), Item::Value(bytes.clone())), "16 bytes that are no revision"),
        (record([sound.clone(), b"u".to_vec()].concat(), Item::Value(bytes.clone())), "18 bytes that are no revision"),
        (record(sound.clone(), Item::Value(vec![0xFF; 3])), "revision 3, change 0"),
        (record(place(4, 0), Item::Value(bytes.clone())), "it says that it is of revision 3"),
        (record(sound, Item::Bucket(Tree::new())), "a bucket where a value was expected"),
        (with(history(), bucket("key", [put(1, 0, "a", 1, 1, 0)])), "revision 1"),
        (with(history(), bucket("key", [put(3, 0, "", 3, 1, 0)])), "its key is empty"),
        (with(history(), bucket("key", [put(3, 0, "a", 4, 1, 0)])), "create revision 4"),
        (with(history(), bucket("lease", [lease(5, i64::MAX, 0)])), "lease 0000000000000005"),
    ] {
        let machine = Machine::new(&snapshot(&tree));
        let refused = machine.import("").unwrap_err();
        assert!(refused.contains(expected), "{refused}, expected {expected}");
        let start = Keyspace::open(Path::new("/data"), Options::standard(), machine.environment.clone());
        assert!(start.unwrap_err().to_string().contains("an import into it did not end"));
    }
    let no_etcd = Machine::new(&snapshot(&Tree::from([bucket("key", [])]))).refused("");
    assert!(no_etcd.contains("its buckets key and meta are missing"), "{no_etcd}");
}

#[test]
fn no_byte_that_is_changed_makes_an_import_panic() {
    let sound = file(512, &history());
    let (mut refused, mut imported) = (0, 0);
    for at in (1024..sound.len()).step_by(3) {
        let mut damaged = sound.clone();
        damaged[at] ^= 1 << (at % 8);
        match Machine::new(&damaged).import("without-auth") {
            Ok(_) => imported += 1,
            Err(_) => refused += 1,
        }
    }
    println!("{refused} damaged files refused, {imported} imported");
    assert!(refused >= 50 && imported >= 50);
}
