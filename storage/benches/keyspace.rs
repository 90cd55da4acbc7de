//! Micro benchmarks of the keyspace without a socket, over memory where the system offers it: what a change, a read and an event cost
//! when no disk is waited for.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use storage::fs::RealFs;
use storage::{
    Content, Environment, Error, Key, KeyRange, Keyspace, Op, Options, Put, PutLease, PutValue, RangeRequest,
    SystemClock, SystemEntropy, Txn, WatchMessage, WatchSpec, WatchStream,
};
use tempfile::TempDir;

const KEYS: u64 = 100_000;
const VALUE: Bytes = Bytes::from_static(&[b'v'; 256]);
const PREFIX: &str = "/registry/bench/";
/// Puts that are queued before the first reply is waited for.
const QUEUED: u64 = 1000;
const STREAMS: usize = 10;

/// A keyspace, and the directory that goes with it.
struct Store {
    keyspace: Keyspace,
    _dir: TempDir,
    /// Counts puts, so that each goes to another key.
    puts: u64,
}

impl Store {
    fn new() -> Result<Store, Error> {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let dir = dir.map_err(|error| Error::Io { doing: "making a directory".into(), reason: error.to_string() })?;
        let environment =
            Environment { fs: Arc::new(RealFs), clock: Arc::new(SystemClock::new()), entropy: Arc::new(SystemEntropy) };
        let keyspace = Keyspace::open(&dir.path().join("data"), Options::standard(), environment)?;
        Ok(Store { keyspace, _dir: dir, puts: 0 })
    }

    /// With each key once, in the database file if `flushed`, else as much of it in memory as fits there.
    fn filled(flushed: bool) -> Result<Store, Error> {
        let mut store = Store::new()?;
        while store.puts < KEYS {
            store.put_queued()?;
        }
        if flushed {
            store.keyspace.flush()?;
        }
        Ok(store)
    }

    fn next_put(&mut self) -> Result<Put, Error> {
        self.puts += 1;
        // A prime that does not divide the number of keys: neighbours in time are none in key order.
        put(self.puts * 7919 % KEYS)
    }

    fn put_queued(&mut self) -> Result<(), Error> {
        let mut pending = Vec::new();
        for _ in 0..QUEUED {
            let put = self.next_put()?;
            pending.push(self.keyspace.put(put));
        }
        for reply in pending {
            reply.wait()?;
        }
        Ok(())
    }
}

fn key(number: u64) -> Result<Key, Error> {
    Key::new(format!("{PREFIX}{number:010}"))
}

fn put(number: u64) -> Result<Put, Error> {
    Ok(Put { key: key(number)?, value: PutValue::Set(VALUE), lease: PutLease::Detach, prev_kv: false })
}

/// Measures calls that can fail.
fn timed(bencher: &mut criterion::Bencher<'_>, mut call: impl FnMut() -> Result<(), Error>) {
    bencher.iter(|| call().expect("nothing fails without a disk"));
}

fn puts(criterion: &mut Criterion) {
    let mut store = Store::filled(true).expect("a keyspace opens in memory");
    let mut group = criterion.benchmark_group("put");
    group.throughput(Throughput::Elements(1));
    group.bench_function("alone", |bencher| {
        timed(bencher, || {
            let put = store.next_put()?;
            store.keyspace.put(put).wait().map(drop)
        });
    });
    group.throughput(Throughput::Elements(QUEUED));
    group.bench_function("queued", |bencher| timed(bencher, || store.put_queued()));
    group.throughput(Throughput::Elements(100));
    group.bench_function("in a transaction", |bencher| {
        timed(bencher, || {
            let mut success = Vec::new();
            for _ in 0..100 {
                success.push(Op::Put(store.next_put()?));
            }
            store.keyspace.txn(Txn { compares: Vec::new(), success, failure: Vec::new() }).wait().map(drop)
        });
    });
    group.finish();
}

fn reads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("range");
    for (place, flushed) in [("base", true), ("recent", false)] {
        let store = Store::filled(flushed).expect("a keyspace opens in memory");
        let mut number = 0;
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("one", place), |bencher| {
            timed(bencher, || {
                number = (number + 7919) % KEYS;
                store.keyspace.range(&RangeRequest::new(KeyRange::single(key(number)?))).map(drop)
            });
        });
        let all = KeyRange::prefix(Key::new(PREFIX).expect("the prefix is a key"));
        group.throughput(Throughput::Elements(500));
        let page = RangeRequest { limit: 500, ..RangeRequest::new(all.clone()) };
        group.bench_function(BenchmarkId::new("500", place), |bencher| {
            timed(bencher, || store.keyspace.range(&page).map(drop));
        });
        group.throughput(Throughput::Elements(KEYS));
        let keys = RangeRequest { content: Content::KeysOnly, ..RangeRequest::new(all) };
        group.sample_size(20).bench_function(BenchmarkId::new("keys", place), |bencher| {
            timed(bencher, || store.keyspace.range(&keys).map(drop));
        });
    }
    group.finish();
}

fn watches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("watch");
    for watches in [10_usize, 1000] {
        group.throughput(Throughput::Elements(watches as u64));
        group.bench_function(BenchmarkId::new("put and deliver", watches), |bencher| {
            let mut store = Store::new().expect("a keyspace opens in memory");
            let streams = watch_all(&store.keyspace, watches).expect("watches are taken");
            // Only the time until the last event is there, not the receiving task of a stream.
            bencher.iter_custom(|rounds| {
                let mut total = Duration::ZERO;
                for _ in 0..rounds {
                    let put = store.next_put().expect("the key is a key");
                    let began = Instant::now();
                    store.keyspace.put(put).wait().expect("nothing fails without a disk");
                    for stream in &streams {
                        receive(stream, watches / STREAMS).expect("the keyspace goes on");
                    }
                    total += began.elapsed();
                }
                total
            });
        });
    }
    group.finish();
}

/// Streams with so many watches of everything in all.
fn watch_all(keyspace: &Keyspace, watches: usize) -> Result<Vec<WatchStream>, Error> {
    let streams: Vec<_> = (0..STREAMS).map(|_| keyspace.watch_stream()).collect();
    for stream in &streams {
        for _ in 0..watches / STREAMS {
            stream.create(WatchSpec::new(KeyRange::all()));
        }
        let mut created = 0;
        while created < watches / STREAMS {
            created += stream.recv()?.len();
        }
    }
    Ok(streams)
}

/// Takes one event for each of `watches` watches.
fn receive(stream: &WatchStream, watches: usize) -> Result<(), Error> {
    let mut events = 0;
    while events < watches {
        let arrived = stream.recv()?;
        events += arrived.iter().filter(|message| matches!(message, WatchMessage::Events { .. })).count();
    }
    Ok(())
}

criterion_group!(benches, puts, reads, watches);
criterion_main!(benches);
