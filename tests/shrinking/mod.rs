//! The database file of a real server is rewritten while clients go on, and the server is killed in the middle of it.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tonic::Status;
use tonic::transport::Channel;

use crate::model::rng::{Rng, seed, setting};
use crate::model::wire::*;
use crate::model::wire_more::Empty;
use crate::support::bulk::{MIB, load_keys, scan};
use crate::support::client::unary;
use crate::support::server::Server;

/// About what a key of the bulk load takes in the database file, with a value of 256 bytes.
const KEY_BYTES: u64 = 420;

/// The tests that ask for a rewrite want the server not to be quicker.
const BY_REQUEST: &[&str] = &["--shrink-interval", "0"];

#[derive(Clone, PartialEq, prost::Message)]
pub struct HashKvRequest {
    #[prost(int64, tag = "1")]
    revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HashKvResponse {
    #[prost(uint32, tag = "2")]
    hash: u32,
    #[prost(int64, tag = "3")]
    compact_revision: i64,
}

/// The bytes of disk that a file of the data directory takes; 0 if it is not there.
pub fn disk_bytes(server: &Server, name: &str) -> u64 {
    std::fs::metadata(server.data().join(name)).map_or(0, |metadata| metadata.blocks() * 512)
}

async fn defragment(channel: Channel) -> Result<Empty, Status> {
    unary(&channel, "/etcdserverpb.Maintenance/Defragment", Empty {}).await
}

pub async fn compact(channel: &Channel, revision: i64) {
    let request = CompactionRequest { revision, physical: true };
    let _: HeaderResponse = unary(channel, "/etcdserverpb.KV/Compact", request).await.expect("it is compacted");
}

pub async fn revision(channel: &Channel) -> i64 {
    let request = RangeRequest { key: vec![0], ..Default::default() };
    let reply: RangeResponse = unary(channel, "/etcdserverpb.KV/Range", request).await.expect("the server answers");
    reply.header.expect("a header").revision
}

pub async fn hash(channel: &Channel, revision: i64) -> HashKvResponse {
    let request = HashKvRequest { revision };
    unary(channel, "/etcdserverpb.Maintenance/HashKV", request).await.expect("the server answers")
}

/// A server with so many keys, and one old version of each that compaction has made garbage. Answers the revision of that.
async fn with_garbage(keys: u64, extra: &[&str]) -> (Server, i64) {
    let server = Server::start(extra).await;
    let begun = Instant::now();
    load_keys(&server, 0, keys).await;
    load_keys(&server, 0, keys).await;
    let loaded = begun.elapsed();
    let channel = server.channel();
    let compacted = revision(&channel).await;
    compact(&channel, compacted).await;
    println!("{keys} keys loaded twice in {loaded:?}, compacted in {:?}", begun.elapsed() - loaded);
    (server, compacted)
}

/// What clients did while something went on.
#[derive(Default)]
struct Tally {
    stop: AtomicBool,
    writes: AtomicU64,
    reads: AtomicU64,
    /// In microseconds.
    slowest_write: AtomicU64,
    slowest_read: AtomicU64,
}

impl Tally {
    /// Counts upwards in a key, until it is told to stop or the server is gone.
    async fn write(self: Arc<Tally>, channel: Channel) {
        while !self.stop.load(Ordering::SeqCst) {
            let begun = Instant::now();
            let value = (self.writes.load(Ordering::SeqCst) + 1).to_string().into_bytes();
            let put = PutRequest { key: b"counter".to_vec(), value, ..Default::default() };
            if unary::<_, PutResponse>(&channel, "/etcdserverpb.KV/Put", put).await.is_err() {
                return;
            }
            self.slowest_write.fetch_max(microseconds(begun), Ordering::SeqCst);
            self.writes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Reads the counter, linearizably: it is never behind what was acknowledged.
    async fn read(self: Arc<Tally>, channel: Channel) {
        while !self.stop.load(Ordering::SeqCst) {
            let (begun, acknowledged) = (Instant::now(), self.writes.load(Ordering::SeqCst));
            match counter(&channel).await {
                Ok(read) => assert!(read >= acknowledged, "{read} was read after {acknowledged} was acknowledged"),
                Err(_) => return,
            }
            self.slowest_read.fetch_max(microseconds(begun), Ordering::SeqCst);
            self.reads.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn microseconds(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX)
}

async fn counter(channel: &Channel) -> Result<u64, Status> {
    let request = RangeRequest { key: b"counter".to_vec(), ..Default::default() };
    let reply: RangeResponse = unary(channel, "/etcdserverpb.KV/Range", request).await?;
    let Some(kv) = reply.kvs.first() else { return Ok(0) };
    Ok(std::str::from_utf8(&kv.value).expect("digits").parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_is_rewritten_while_writers_and_readers_go_on() {
    let mib = setting("STERNPOST_TEST_SHRINK_MIB", 16);
    let keys = mib * MIB / KEY_BYTES;
    let (mut server, compacted) = with_garbage(keys, BY_REQUEST).await;
    let (channel, hashed) = (server.channel(), hash(&server.channel(), compacted).await);
    let tally = Arc::new(Tally::default());
    let clients =
        [tokio::spawn(tally.clone().write(server.channel())), tokio::spawn(tally.clone().read(server.channel()))];
    let before = (disk_bytes(&server, "base.redb"), server.resident_bytes());
    let begun = Instant::now();
    let mut rewritten = tokio::spawn(defragment(channel.clone()));
    let mut peak = before.1;
    let done = loop {
        peak = peak.max(server.resident_bytes());
        if let Ok(done) = tokio::time::timeout(Duration::from_millis(5), &mut rewritten).await {
            break done;
        }
    };
    let (took, writes, reads) =
        (begun.elapsed(), tally.writes.load(Ordering::SeqCst), tally.reads.load(Ordering::SeqCst));
    done.expect("it ends in order").unwrap_or_else(|status| panic!("{status:?}:\n{}", server.log()));
    let after = disk_bytes(&server, "base.redb");
    println!(
        "{} MiB before, {} after, {took:?}; meanwhile {writes} writes, the slowest {} ms, and {reads} reads, the slowest {} ms",
        before.0 / MIB,
        after / MIB,
        tally.slowest_write.load(Ordering::SeqCst) / 1000,
        tally.slowest_read.load(Ordering::SeqCst) / 1000,
    );
    println!("{} MiB of memory before, {} at most", before.1 / MIB, peak / MIB);
    let floor = if mib >= 100 { 100 } else { 5 };
    assert!(writes >= floor && reads >= floor, "clients stood still");
    assert!(before.0 >= mib * MIB && after < before.0 / 4 * 3, "{} bytes before, {after} after", before.0);
    assert!(peak < before.1 + 192 * MIB, "memory grew from {} to {peak} bytes", before.1);
    assert_eq!(disk_bytes(&server, "base.new"), 0);
    assert_eq!(hash(&channel, compacted).await, hashed);
    tally.stop.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.expect("a client ends in order");
    }
    let counted = tally.writes.load(Ordering::SeqCst);
    server.kill();
    server.start_again().await;
    assert_eq!(scan(&server).await, keys + 1);
    assert_eq!(counter(&server.channel()).await.expect("an answer"), counted);
    assert_eq!(hash(&server.channel(), compacted).await, hashed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_while_it_rewrites_loses_nothing() {
    let seed = seed();
    println!("seed={seed}");
    let mut rng = Rng::new(seed);
    let keys = 20_000;
    let (mut server, _) = with_garbage(keys, &[BY_REQUEST, &["--recent-changes", "2000"]].concat()).await;
    let (mut in_the_middle, mut too_late) = (0, 0);
    let tally = Arc::new(Tally::default());
    let mut size = 4 * MIB;
    for _ in 0..setting("STERNPOST_TEST_KILLS", 20) {
        let clients =
            [tokio::spawn(tally.clone().write(server.channel())), tokio::spawn(tally.clone().read(server.channel()))];
        let begun = disk_bytes(&server, "base.redb");
        let rewritten = tokio::spawn(defragment(server.endpoint().connect().await.expect("a connection")));
        // Killed when so much of the new file is there, or when it has taken its place.
        let far = rng.below(size as usize) as u64;
        while disk_bytes(&server, "base.new") <= far && !rewritten.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let unfinished = disk_bytes(&server, "base.new") > 0;
        server.kill();
        if unfinished {
            in_the_middle += 1
        } else {
            too_late += 1
        }
        drop(rewritten.await);
        for client in clients {
            client.await.expect("a client ends in order");
        }
        let acknowledged = tally.writes.load(Ordering::SeqCst);
        server.start_again().await;
        assert!(!server.data().join("base.new").exists(), "what is left over is removed");
        let counted = counter(&server.channel()).await.expect("an answer");
        assert!((acknowledged..=acknowledged + 1).contains(&counted), "{counted}, {acknowledged} acknowledged");
        tally.writes.store(counted, Ordering::SeqCst);
        assert_eq!(scan(&server).await, keys + u64::from(counted > 0));
        size = size.max(disk_bytes(&server, "base.redb").min(begun) / 2);
    }
    println!("{in_the_middle} killed while the new file was being written, {too_late} later");
    assert!(in_the_middle >= 3);
}

/// What a key of the bulk load and its value of 256 bytes take as rows: in `index` 64 bytes, in `history` 311.
const ROW_BYTES: u64 = 64 + 311;

/// The bytes of disk that the log takes.
fn log_bytes(server: &Server) -> u64 {
    let files = std::fs::read_dir(server.data().join("log")).expect("the log is there");
    files.map(|file| file.and_then(|file| file.metadata()).map_or(0, |metadata| metadata.blocks() * 512)).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_settles_takes_half_as_much_again_as_its_data_and_gives_back_what_is_deleted() {
    let keys = 150_000;
    let (server, _) = with_garbage(keys, &["--shrink-interval", "500ms"]).await;
    let bytes = |server: &Server| (disk_bytes(server, "base.redb"), log_bytes(server), disk_bytes(server, "base.new"));
    let begun = Instant::now();
    let (mut least, limit) = (bytes(&server), keys * ROW_BYTES / 2 * 3);
    while least.0 + least.1 + least.2 > limit {
        assert!(begun.elapsed() < Duration::from_secs(180), "{least:?} bytes do not settle:\n{}", server.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
        least = bytes(&server);
    }
    println!("file, log and new file have {least:?} bytes after {:?}, {limit} are allowed", begun.elapsed());
    let channel = server.channel();
    let everything = DeleteRangeRequest { key: vec![0], range_end: vec![0], prev_kv: false };
    let deleted: DeleteRangeResponse =
        unary(&channel, "/etcdserverpb.KV/DeleteRange", everything).await.expect("it is deleted");
    assert_eq!(deleted.deleted, keys.cast_signed());
    let put = PutRequest { key: b"a".to_vec(), ..Default::default() };
    let _: PutResponse = unary(&channel, "/etcdserverpb.KV/Put", put).await.expect("the server answers");
    compact(&channel, revision(&channel).await).await;
    let begun = Instant::now();
    while disk_bytes(&server, "base.redb") > least.0 / 4 {
        assert!(begun.elapsed() < Duration::from_secs(180), "it does not shrink:\n{}", server.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("{} MiB, then {} after {:?}", least.0 / MIB, disk_bytes(&server, "base.redb") / MIB, begun.elapsed());
    assert!(server.log().contains("garbage outweighs data"), "{}", server.log());
    assert_eq!(scan(&server).await, 1);
}
