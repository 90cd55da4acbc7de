//! Watches: from when, of what, with what, until when.

use std::time::Duration;

use etcd_client::{
    Client, EventType, PutOptions, Txn, TxnOp, WatchFilterType, WatchOptions, WatchResponse, WatchStream,
};

use super::connected;
use crate::support::server::Server;

async fn next(watch: &mut WatchStream) -> WatchResponse {
    let message = tokio::time::timeout(Duration::from_secs(20), watch.message());
    message.await.expect("a message comes").unwrap().expect("the stream goes on")
}

#[tokio::test]
async fn a_watch_delivers_what_the_key_was_before() {
    let (_server, mut client) = connected().await;
    client.put("a", "1", None).await.unwrap();
    let mut watch = client.watch("a", Some(WatchOptions::new().with_prev_key())).await.unwrap();
    assert!(next(&mut watch).await.created());
    client.put("a", "2", None).await.unwrap();
    client.delete("a", None).await.unwrap();
    let put = next(&mut watch).await;
    let event = &put.events()[0];
    assert_eq!(
        (event.event_type(), event.kv().unwrap().value(), event.prev_kv().unwrap().value()),
        (EventType::Put, &b"2"[..], &b"1"[..])
    );
    assert_eq!(put.header().unwrap().revision(), 3);
    let delete = next(&mut watch).await;
    let event = &delete.events()[0];
    assert_eq!(
        (event.event_type(), event.kv().unwrap().mod_revision(), event.prev_kv().unwrap().value()),
        (EventType::Delete, 4, &b"2"[..])
    );
}

#[tokio::test]
async fn a_watch_from_the_past_leaves_out_what_it_filters() {
    let (_server, mut client) = connected().await;
    client.put("k/a", "1", None).await.unwrap();
    client.put("k/b", "1", None).await.unwrap();
    client.delete("k/a", None).await.unwrap();
    let from = |filter| WatchOptions::new().with_prefix().with_start_revision(2).with_filters([filter]);
    let mut deletions = client.watch("k/", Some(from(WatchFilterType::NoPut))).await.unwrap();
    assert!(next(&mut deletions).await.created());
    let message = next(&mut deletions).await;
    assert!(matches!(message.events(), [event] if event.event_type() == EventType::Delete));
    let mut puts = client.watch("k/", Some(from(WatchFilterType::NoDelete))).await.unwrap();
    assert!(next(&mut puts).await.created());
    assert_eq!(next(&mut puts).await.events().len(), 2);
}

#[tokio::test]
async fn a_watch_from_the_floor_sees_the_deletion_at_the_floor_and_one_below_is_told_where_it_is() {
    let (_server, mut client) = connected().await;
    client.put("a", "1", None).await.unwrap();
    client.delete("a", None).await.unwrap();
    client.put("b", "1", None).await.unwrap();
    client.compact(3, None).await.unwrap();
    let from = |revision| Some(WatchOptions::new().with_all_keys().with_start_revision(revision));
    let mut watch = client.watch("", from(3)).await.unwrap();
    assert!(next(&mut watch).await.created());
    let message = next(&mut watch).await;
    let deletion = message.events().first().expect("the deletion");
    assert_eq!((deletion.event_type(), deletion.kv().unwrap().mod_revision()), (EventType::Delete, 3));
    let mut below = client.watch("", from(2)).await.unwrap();
    assert!(next(&mut below).await.created());
    let end = next(&mut below).await;
    assert!(end.canceled() && end.compact_revision() == 3 && end.cancel_reason().is_empty());
}

#[tokio::test]
async fn progress_is_told_on_request_after_everything_before_it() {
    let (_server, mut client) = connected().await;
    let mut watch = client.watch("a", None).await.unwrap();
    assert!(next(&mut watch).await.created());
    for _ in 0..20 {
        client.put("a", "1", None).await.unwrap();
    }
    client.put("b", "1", None).await.unwrap();
    let (mut last, mut told) = (0, 0);
    while told < 22 {
        watch.request_progress().await.unwrap();
        let message = next(&mut watch).await;
        match message.events() {
            [] => told = message.header().unwrap().revision(),
            events => {
                assert!(events[0].kv().unwrap().mod_revision() > told, "an event came after its progress");
                last = events.last().unwrap().kv().unwrap().mod_revision();
            }
        }
    }
    assert_eq!((last, told), (21, 22));
}

#[tokio::test]
async fn watches_share_a_stream_and_end_alone() {
    let (_server, mut client) = connected().await;
    let mut watch = client.watch("a", None).await.unwrap();
    assert_eq!(next(&mut watch).await.watch_id(), 0);
    watch.watch("b", Some(WatchOptions::new().with_watch_id(9))).await.unwrap();
    assert_eq!(next(&mut watch).await.watch_id(), 9);
    watch.watch("c", Some(WatchOptions::new().with_watch_id(9))).await.unwrap();
    let refused = next(&mut watch).await;
    assert!(refused.created() && refused.canceled() && refused.watch_id() == -1);
    assert_eq!(refused.cancel_reason(), "mvcc: duplicate watch ID provided on the WatchStream");
    watch.cancel(0).await.unwrap();
    let canceled = next(&mut watch).await;
    assert!(canceled.canceled() && canceled.watch_id() == 0 && canceled.cancel_reason().is_empty());
    client.put("a", "1", None).await.unwrap();
    client.put("b", "1", None).await.unwrap();
    let message = next(&mut watch).await;
    assert_eq!((message.watch_id(), message.events()[0].kv().unwrap().key()), (9, &b"b"[..]));
}

#[tokio::test]
async fn progress_is_told_now_and_then_to_those_who_asked_for_it() {
    let server = Server::start(&["--watch-progress-notify-interval", "200ms"]).await;
    let mut client = Client::connect([server.url()], None).await.expect("a connection");
    let mut watch = client.watch("a", Some(WatchOptions::new().with_progress_notify())).await.unwrap();
    assert!(next(&mut watch).await.created());
    watch.watch("b", None).await.unwrap();
    assert!(next(&mut watch).await.created());
    client.put("c", "1", None).await.unwrap();
    let mut told = 0;
    while told < 2 {
        let progress = next(&mut watch).await;
        assert!(progress.events().is_empty() && progress.watch_id() == 0 && !progress.canceled(), "{progress:?}");
        let revision = progress.header().unwrap().revision();
        assert!(revision >= told);
        told = revision;
    }
}

#[tokio::test]
async fn a_large_revision_comes_in_fragments_to_those_who_asked_for_it() {
    let (_server, mut client) = connected().await;
    let large = |byte: u8| vec![byte; 700_000];
    let both = |byte| {
        Txn::new().and_then([TxnOp::put("a", large(byte), None), TxnOp::put("b", large(byte), Some(PutOptions::new()))])
    };
    client.txn(both(b'1')).await.unwrap();
    let watch = |options: WatchOptions| options.with_prev_key().with_prefix();
    let mut whole = client.watch("", Some(watch(WatchOptions::new()).with_all_keys())).await.unwrap();
    let mut pieces = client.watch("", Some(watch(WatchOptions::new()).with_all_keys().with_fragment())).await.unwrap();
    assert!(next(&mut whole).await.created() && next(&mut pieces).await.created());
    client.txn(both(b'2')).await.unwrap();
    let message = next(&mut whole).await;
    assert_eq!(message.events().len(), 2, "without fragments a revision is one message");
    let (first, second) = (next(&mut pieces).await, next(&mut pieces).await);
    for (piece, key) in [(&first, b"a"), (&second, b"b")] {
        let event = piece.events().first().expect("an event");
        assert_eq!(
            (piece.events().len(), event.kv().unwrap().key(), event.kv().unwrap().mod_revision()),
            (1, &key[..], 3)
        );
        assert_eq!(event.prev_kv().unwrap().value(), large(b'1'));
    }
}
