//! A client that never reads costs the server a bounded amount of memory, and nobody else any time.

use super::put;
use crate::model::wire::*;
use crate::model::wire_more::*;
use crate::support::client::{Duplex, unary};
use crate::support::server::Server;

const MIB: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_is_bounded_and_gets_everything_when_it_does() {
    let server = Server::start(&[]).await;
    let channel = server.channel();
    let lazy = server.channel();
    let mut watch = Duplex::<WatchRequest, WatchResponse>::open(&lazy, "/etcdserverpb.Watch/Watch");
    for _ in 0..20 {
        let create = WatchCreate { key: vec![0], range_end: vec![0], prev_kv: true, ..Default::default() };
        watch.send(WatchRequest { union: Some(WatchUnion::Create(create)) });
    }
    for _ in 0..20 {
        assert!(watch.next().await.expect("a message").expect("no error").created);
    }
    // 20 watches of 2000 puts of 16 KiB, each with what was before: 1.2 GiB, if somebody kept them.
    const PUTS: i64 = 2000;
    let before = server.resident_bytes();
    for number in 0..PUTS {
        put(&channel, &format!("k{}", number % 10), vec![b'v'; 16 << 10]).await.expect("others are served");
    }
    let after = server.resident_bytes();
    println!("{} MiB before, {} MiB after", before / MIB, after / MIB);
    assert!(after - before.min(after) < 160 * MIB, "from {} to {} MiB", before / MIB, after / MIB);
    let mut next = std::collections::BTreeMap::<i64, i64>::new();
    while next.len() < 20 || next.values().any(|next| *next < PUTS + 2) {
        let message = tokio::time::timeout(std::time::Duration::from_secs(60), watch.next()).await;
        let message = message.expect("a message comes").expect("the stream goes on").expect("no error");
        for event in message.events {
            let expected = next.entry(message.watch_id).or_insert(2);
            assert_eq!(event.kv.expect("a key").mod_revision, *expected, "watch {}", message.watch_id);
            *expected += 1;
        }
    }
    let everything = RangeRequest { key: vec![0], range_end: vec![0], count_only: true, ..Default::default() };
    let reply: RangeResponse = unary(&channel, "/etcdserverpb.KV/Range", everything).await.expect("the server answers");
    assert_eq!(reply.count, 10);
}
