//! Leases: granted, kept alive, expired, revoked.

use std::time::{Duration, Instant};

use etcd_client::{AlarmAction, AlarmType, LeaseGrantOptions, LeaseTimeToLiveOptions, PutOptions, WatchOptions};
use tonic::Code;

use super::{as_refused, connected, refused};

#[tokio::test]
async fn a_lease_that_is_not_kept_alive_takes_its_keys_with_it() {
    let (_server, mut client) = connected().await;
    let lease = client.lease_grant(1, None).await.unwrap();
    assert_eq!(lease.ttl(), 2, "a TTL below the smallest is raised");
    for key in ["b", "a"] {
        client.put(key, "1", Some(PutOptions::new().with_lease(lease.id()))).await.unwrap();
    }
    let granted = Instant::now();
    let mut watch = client.watch("", Some(WatchOptions::new().with_all_keys())).await.unwrap();
    assert!(watch.message().await.unwrap().unwrap().created());
    let expired =
        tokio::time::timeout(Duration::from_secs(20), watch.message()).await.expect("it expires").unwrap().unwrap();
    let keys: Vec<_> = expired.events().iter().map(|event| event.kv().unwrap().key().to_vec()).collect();
    assert_eq!(keys, [b"a", b"b"], "in key order, at one revision");
    assert!(granted.elapsed() >= Duration::from_millis(1800), "after {:?}", granted.elapsed());
    assert_eq!(client.lease_time_to_live(lease.id(), None).await.unwrap().ttl(), -1);
}

#[tokio::test]
async fn a_lease_that_is_kept_alive_lives() {
    let (_server, mut client) = connected().await;
    let lease = client.lease_grant(2, Some(LeaseGrantOptions::new().with_id(7))).await.unwrap();
    client.put("a", "1", Some(PutOptions::new().with_lease(7))).await.unwrap();
    let (mut keeper, mut answers) = client.lease_keep_alive(7).await.unwrap();
    let begun = Instant::now();
    let mut pace = tokio::time::interval(Duration::from_millis(500));
    while begun.elapsed() < Duration::from_secs(4) {
        pace.tick().await;
        keeper.keep_alive().await.unwrap();
        let answer = answers.message().await.unwrap().unwrap();
        assert_eq!((answer.id(), answer.ttl()), (7, lease.ttl()));
    }
    let time = client.lease_time_to_live(7, Some(LeaseTimeToLiveOptions::new().with_keys())).await.unwrap();
    assert_eq!((time.granted_ttl(), time.keys()), (2, &[b"a".to_vec()][..]));
    client.lease_revoke(7).await.unwrap();
    assert_eq!(client.get("a", None).await.unwrap().count(), 0);
}

#[tokio::test]
async fn leases_are_refused_with_the_texts_that_clients_match() {
    let (_server, mut client) = connected().await;
    let seven = || Some(LeaseGrantOptions::new().with_id(7));
    client.lease_grant(100, seven()).await.unwrap();
    assert_eq!(
        refused(client.lease_grant(100, seven()).await),
        as_refused(Code::FailedPrecondition, "lease already exists")
    );
    assert_eq!(
        refused(client.lease_grant(9_000_000_001, None).await),
        as_refused(Code::OutOfRange, "too large lease TTL")
    );
    assert_eq!(refused(client.lease_revoke(8).await), as_refused(Code::NotFound, "requested lease not found"));
    // An alarm that refuses every grant is named first, whatever else is wrong with one.
    for (alarm, code, text) in [
        (AlarmType::Nospace, Code::ResourceExhausted, "mvcc: database space exceeded"),
        (AlarmType::Corrupt, Code::DataLoss, "corrupt cluster"),
    ] {
        client.alarm(AlarmAction::Activate, alarm, None).await.unwrap();
        assert_eq!(refused(client.lease_grant(9_000_000_001, None).await), as_refused(code, text));
        client.alarm(AlarmAction::Deactivate, alarm, None).await.unwrap();
    }
    let ids: Vec<i64> = client.leases().await.unwrap().leases().iter().map(|lease| lease.id()).collect();
    assert_eq!(ids, [7]);
}
