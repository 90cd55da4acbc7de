//! The same on a simulated disk, with the library and in small.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use storage::fs::{FileSystem, OpenMode, SimFs};
use storage::{
    DeleteRange, Environment, Error, Key, KeyRange, Keyspace, Options, Put, PutLease, PutValue, SystemClock,
    SystemEntropy,
};

use crate::support::bulk::MIB;

const VOLUME: u64 = 32 * MIB;
const PUTS_MIN: u64 = 1000;
const CYCLES: u64 = 3;
const LEASES: u64 = 3000;

fn open() -> (SimFs, Keyspace) {
    let disk = SimFs::new();
    disk.set_capacity(VOLUME);
    let environment = Environment {
        fs: Arc::new(disk.clone()),
        clock: Arc::new(SystemClock::new()),
        entropy: Arc::new(SystemEntropy),
    };
    let keyspace = Keyspace::open(Path::new("/data"), Options::for_volume(VOLUME), environment).expect("it opens");
    (disk, keyspace)
}

fn put(key: String, bytes: usize, lease: PutLease) -> Put {
    Put { key: Key::new(key).expect("a key"), value: PutValue::Set(vec![1; bytes].into()), lease, prev_kv: false }
}

fn fill_the_rest(disk: &SimFs) {
    let ballast = || disk.contents("/data/ballast").map_or(0, |held| held.len() as u64);
    wait_for("the ballast", || ballast() == VOLUME / 2);
    let free = disk.volume(Path::new("/data")).expect("a volume").free;
    let others = disk.open(Path::new("/others"), OpenMode::CreateNew).expect("a file");
    others.allocate(0, free / 4096 * 4096).expect("what is free can be had");
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn cycles(others: bool) {
    let (disk, keyspace) = open();
    if others {
        fill_the_rest(&disk);
    }
    for cycle in 0..CYCLES {
        let mut puts = 0;
        let refused = loop {
            match keyspace.put(put(format!("key {puts}"), 1024, PutLease::Detach)).wait() {
                Ok(_) => puts += 1,
                Err(error) => break error,
            }
        };
        println!("cycle {cycle}: {puts} puts");
        assert_eq!(refused, Error::NoSpace);
        assert!(puts >= PUTS_MIN, "cycle {cycle}: {puts} puts");
        let everything = DeleteRange { range: KeyRange::all(), prev_kv: false };
        keyspace.delete_range(everything).wait().expect("a deletion finds room");
        keyspace.compact(keyspace.revision().0).wait().expect("it is compacted");
        wait_for("a put", || keyspace.put(put("back".to_owned(), 10, PutLease::Detach)).wait().is_ok());
    }
}

pub fn leases() {
    let (disk, keyspace) = open();
    fill_the_rest(&disk);
    for number in 0..LEASES {
        let lease = keyspace.lease_grant(None, 2).wait().expect("a grant finds room").id;
        let attached = put(format!("lease {number}"), 200, PutLease::Attach(lease));
        keyspace.put(attached).wait().expect("a put finds room");
        if number.is_multiple_of(2) {
            keyspace.lease_revoke(lease).wait().expect("a revocation finds room");
        }
        if number % 500 == 499 {
            keyspace.compact(keyspace.revision().0).wait().expect("it is compacted");
        }
    }
}
