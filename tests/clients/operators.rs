//! What operators and their tools ask: status, members, alarms, hashes, what is not there yet.

use etcd_client::{AlarmAction, AlarmType, CompactionOptions};
use tonic::Code;

use super::{as_refused, connected, refused};
use crate::model::wire::{Header, HeaderResponse};
use crate::model::wire_more::Empty;
use crate::support::client::unary;
use crate::support::server::reference;

#[tokio::test]
async fn the_status_is_that_of_a_leader_with_data() {
    let (_server, mut client) = connected().await;
    client.put("a", "1", None).await.unwrap();
    let status = client.status().await.unwrap();
    let header = status.header().unwrap();
    assert_eq!((header.revision(), status.leader()), (2, header.member_id()));
    assert!(status.db_size() > 0 && status.raft_used_db_size() > 0 && status.raft_term() >= 1 && !status.is_learner());
    let numbers: Vec<u32> = status.version().split('.').map(|number| number.parse().expect("a number")).collect();
    assert!(numbers.len() == 3 && numbers >= vec![3, 5, 13], "{}", status.version());
    assert!(status.errors().is_empty());
}

#[tokio::test]
async fn the_only_member_is_the_one_that_answers() {
    let (server, mut client) = connected().await;
    let list = client.member_list().await.unwrap();
    let header = list.header().unwrap();
    assert_eq!(header.revision(), 0);
    match list.members() {
        [member] => {
            assert_eq!(member.id(), header.member_id());
            assert_eq!(member.client_urls(), [server.url()]);
            assert!(!member.is_learner());
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_alarm_stops_puts_until_it_is_cleared() {
    let (_server, mut client) = connected().await;
    client.put("a", "1", None).await.unwrap();
    client.alarm(AlarmAction::Activate, AlarmType::Nospace, None).await.unwrap();
    let alarms = client.alarm(AlarmAction::Get, AlarmType::None, None).await.unwrap();
    assert!(matches!(alarms.alarms(), [alarm] if alarm.alarm() == AlarmType::Nospace));
    let no_space = as_refused(Code::ResourceExhausted, "mvcc: database space exceeded");
    assert_eq!(refused(client.put("a", "2", None).await), no_space);
    assert_eq!(refused(client.lease_grant(100, None).await), no_space);
    assert_eq!(refused(client.lease_grant(9_000_000_001, None).await), no_space, "the alarm goes first");
    assert_eq!(client.delete("a", None).await.unwrap().deleted(), 1, "deleting is what helps");
    client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, None).await.unwrap();
    client.put("a", "3", None).await.unwrap();
}

#[tokio::test]
async fn the_hash_follows_the_data_and_not_the_time() {
    let (_server, mut client) = connected().await;
    client.put("a", "1", None).await.unwrap();
    client.put("b", "1", None).await.unwrap();
    let first = client.hash_kv(2).await.unwrap();
    client.put("c", "1", None).await.unwrap();
    assert_eq!(client.hash_kv(2).await.unwrap().hash(), first.hash());
    assert_ne!(client.hash_kv(0).await.unwrap().hash(), first.hash());
    assert_eq!(
        refused(client.hash_kv(9).await),
        as_refused(Code::OutOfRange, "mvcc: required revision is a future revision")
    );
}

#[tokio::test]
async fn the_hash_over_no_keys_is_that_of_etcd_over_the_same_history() {
    let (_server, mut client) = connected().await;
    client.put("a", "1", None).await.unwrap();
    client.put("b", "1", None).await.unwrap();
    client.compact(2, Some(CompactionOptions::new().with_physical())).await.unwrap();
    client.delete("a", None).await.unwrap();
    assert_eq!(client.hash_kv(0).await.unwrap().hash(), 3_397_199_720, "one key is left");
    client.delete("b", None).await.unwrap();
    assert_eq!(client.hash_kv(0).await.unwrap().hash(), 1_785_112_597, "none is left");
}

#[tokio::test]
async fn a_method_that_nobody_knows_is_unimplemented() {
    let (server, mut client) = connected().await;
    let outcome = unary::<_, HeaderResponse>(&server.channel(), "/etcdserverpb.KV/NoSuch", Empty {}).await;
    assert_eq!(outcome.expect_err("it is unknown").code(), Code::Unimplemented);
    client.put("a", "1", None).await.unwrap();
}

/// What is said about users and roles: that they are not in use.
#[derive(Clone, PartialEq, prost::Message)]
struct AuthStatus {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(bool, tag = "2")]
    enabled: bool,
    #[prost(uint64, tag = "3")]
    auth_revision: u64,
}

#[tokio::test]
async fn users_and_roles_are_not_in_use() {
    let (server, mut client) = connected().await;
    let status: AuthStatus =
        unary(&server.channel(), "/etcdserverpb.Auth/AuthStatus", Empty {}).await.expect("an answer");
    assert!(!status.enabled && status.header.is_some_and(|header| header.revision == 1));
    if reference().is_some() {
        return println!("a stock etcd has users and roles");
    }
    assert_eq!(refused(client.auth_enable().await).0, Code::Unimplemented);
    assert_eq!(refused(client.user_list().await).0, Code::Unimplemented);
    assert_eq!(refused(client.role_list().await).0, Code::Unimplemented);
}

#[tokio::test]
async fn defragmenting_changes_nothing_but_the_file_and_is_answered_without_a_header() {
    let (server, mut client) = connected().await;
    for number in 0..20 {
        client.put("a", format!("{number}"), None).await.unwrap();
    }
    client.compact(20, None).await.unwrap();
    let before = client.hash_kv(20).await.unwrap().hash();
    // Also while puts are refused: it is what makes room.
    client.alarm(AlarmAction::Activate, AlarmType::Nospace, None).await.unwrap();
    client.defragment().await.unwrap();
    let path = "/etcdserverpb.Maintenance/Defragment";
    let answer: HeaderResponse = unary(&server.channel(), path, Empty {}).await.expect("an answer");
    assert_eq!(answer.header, None);
    assert_eq!(client.hash_kv(20).await.unwrap().hash(), before);
    assert_eq!(client.get("a", None).await.unwrap().kvs()[0].value(), b"19");
}
