//! Streams that are half closed, reset, or carry thousands of watches.

use std::time::{Duration, Instant};

use super::{others_are_served, put};
use crate::model::wire_more::*;
use crate::support::client::Duplex;
use crate::support::server::Server;

type Watch = Duplex<WatchRequest, WatchResponse>;

const PATH: &str = "/etcdserverpb.Watch/Watch";

fn create(create: WatchCreate) -> WatchRequest {
    WatchRequest { union: Some(WatchUnion::Create(create)) }
}

async fn next(watch: &mut Watch) -> WatchResponse {
    let message = tokio::time::timeout(Duration::from_secs(30), watch.next());
    message.await.expect("a message comes").expect("the stream goes on").expect("no error")
}

#[tokio::test]
async fn a_watch_goes_on_when_the_client_has_no_more_to_say() {
    let server = Server::start(&[]).await;
    let channel = server.channel();
    let mut watch = Watch::open(&channel, PATH);
    watch.send(create(WatchCreate { key: b"a".to_vec(), ..Default::default() }));
    assert!(next(&mut watch).await.created);
    watch.half_close();
    for _ in 0..3 {
        put(&channel, "a", b"1".to_vec()).await.expect("the server answers");
        assert_eq!(next(&mut watch).await.events.len(), 1);
    }
}

#[tokio::test]
async fn empty_watch_requests_are_ignored() {
    let server = Server::start(&[]).await;
    let mut watch = Watch::open(&server.channel(), PATH);
    watch.send(WatchRequest { union: None });
    watch.send(WatchRequest { union: Some(WatchUnion::Cancel(LeaseIdRequest { id: 5 })) });
    watch.send(WatchRequest { union: Some(WatchUnion::Progress(Empty {})) });
    watch.send(create(WatchCreate { key: b"a".to_vec(), ..Default::default() }));
    let first = next(&mut watch).await;
    assert!(first.created && first.watch_id == 0, "{first:?}");
}

#[tokio::test]
async fn ten_thousand_watches_on_a_stream_each_get_their_event() {
    const WATCHES: i64 = 10_000;
    let server = Server::start(&[]).await;
    let channel = server.channel();
    let begun = Instant::now();
    let mut watch = Watch::open(&channel, PATH);
    for _ in 0..WATCHES {
        watch.send(create(WatchCreate { key: b"a".to_vec(), range_end: b"b".to_vec(), ..Default::default() }));
    }
    for id in 0..WATCHES {
        let created = next(&mut watch).await;
        assert!(created.created && created.watch_id == id, "in the order asked: {created:?}");
    }
    put(&channel, "ab", b"1".to_vec()).await.expect("the server answers");
    let mut told = std::collections::BTreeSet::new();
    while told.len() < WATCHES as usize {
        let message = next(&mut watch).await;
        assert_eq!(message.events.len(), 1);
        assert!(told.insert(message.watch_id), "watch {} was told twice", message.watch_id);
    }
    println!("{WATCHES} watches created and told in {:?}", begun.elapsed());
    others_are_served(&channel).await;
}

#[tokio::test]
async fn streams_that_are_reset_leave_nothing_behind() {
    let server = Server::start(&[]).await;
    let channel = server.channel();
    for _ in 0..200 {
        let mut watch = Watch::open(&channel, PATH);
        watch.send(create(WatchCreate { key: b"a".to_vec(), ..Default::default() }));
        assert!(next(&mut watch).await.created);
    }
    others_are_served(&channel).await;
    let mut watch = Watch::open(&channel, PATH);
    watch.send(create(WatchCreate { key: b"a".to_vec(), ..Default::default() }));
    assert_eq!(next(&mut watch).await.watch_id, 0);
}

#[tokio::test]
async fn a_keep_alive_of_nothing_is_answered_and_a_half_closed_stream_ends_in_order() {
    let server = Server::start(&[]).await;
    let mut stream =
        Duplex::<LeaseIdRequest, LeaseKeepAliveResponse>::open(&server.channel(), "/etcdserverpb.Lease/LeaseKeepAlive");
    for id in [0, 1, -1, i64::MIN] {
        stream.send(LeaseIdRequest { id });
    }
    stream.half_close();
    for id in [0, 1, -1, i64::MIN] {
        let reply = stream.next().await.expect("an answer").expect("no error");
        assert_eq!((reply.id, reply.ttl), (id, 0));
    }
    assert!(stream.next().await.is_none());
}
