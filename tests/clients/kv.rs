//! Keys, transactions, compaction.

use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
};
use tonic::Code;

use super::{as_refused, connected, refused};
use crate::model::wire;
use crate::model::wire::{PutRequest, RangeRequest, RangeResponse, RangeStreamResponse, RequestOp, TxnRequest};
use crate::support::client::{server_streaming, unary};

#[tokio::test]
async fn a_key_is_put_read_and_deleted() {
    let (_server, mut client) = connected().await;
    let put = client.put("a", "1", None).await.unwrap();
    assert_eq!(put.header().unwrap().revision(), 2);
    let put = client.put("a", "2", Some(PutOptions::new().with_prev_key())).await.unwrap();
    assert_eq!(put.prev_key().unwrap().value(), b"1");
    let get = client.get("a", None).await.unwrap();
    let kv = &get.kvs()[0];
    assert_eq!((kv.value(), kv.version(), kv.create_revision(), kv.mod_revision()), (&b"2"[..], 2, 2, 3));
    let old = client.get("a", Some(GetOptions::new().with_revision(2))).await.unwrap();
    assert_eq!((old.kvs()[0].value(), old.header().unwrap().revision()), (&b"1"[..], 3));
    let deleted = client.delete("a", Some(DeleteOptions::new().with_prev_key())).await.unwrap();
    assert_eq!((deleted.deleted(), deleted.prev_kvs()[0].value()), (1, &b"2"[..]));
    assert_eq!(client.get("a", None).await.unwrap().count(), 0);
    assert_eq!(client.delete("a", None).await.unwrap().header().unwrap().revision(), 4);
}

#[tokio::test]
async fn a_list_is_sorted_limited_and_counted() {
    let (_server, mut client) = connected().await;
    for (key, value) in [("k/a", "3"), ("k/b", "1"), ("k/c", "2"), ("l", "0")] {
        client.put(key, value, None).await.unwrap();
    }
    let options = GetOptions::new().with_prefix().with_sort(SortTarget::Value, SortOrder::Descend).with_limit(2);
    let list = client.get("k/", Some(options)).await.unwrap();
    let keys: Vec<_> = list.kvs().iter().map(|kv| kv.key_str().unwrap().to_string()).collect();
    assert_eq!((keys, list.count(), list.more()), (vec!["k/a".into(), "k/c".into()], 3, true));
    for target in [SortTarget::Version, SortTarget::Value, SortTarget::Create, SortTarget::Mod, SortTarget::Key] {
        client.put("m/a", "same", None).await.unwrap();
        client.put("m/b", "same", None).await.unwrap();
        let options = GetOptions::new().with_prefix().with_sort(target, SortOrder::Descend);
        let list = client.get("m/", Some(options)).await.unwrap();
        let equal = matches!(target, SortTarget::Version | SortTarget::Value);
        let first = if equal { "m/a" } else { "m/b" };
        assert_eq!(list.kvs()[0].key_str().unwrap(), first, "equal ones stay in the order of keys");
    }
    client.delete("m/", Some(DeleteOptions::new().with_prefix())).await.unwrap();
    let keys = client.get("", Some(GetOptions::new().with_all_keys().with_keys_only())).await.unwrap();
    assert!(keys.count() == 4 && keys.kvs().iter().all(|kv| kv.value().is_empty()));
    let count = client.get("k/", Some(GetOptions::new().with_prefix().with_count_only())).await.unwrap();
    assert_eq!((count.count(), count.kvs().len()), (3, 0));
}

#[tokio::test]
async fn a_transaction_takes_one_branch_at_one_revision() {
    let (_server, mut client) = connected().await;
    let create = |value: &str| {
        Txn::new()
            .when([Compare::mod_revision("a", CompareOp::Equal, 0)])
            .and_then([TxnOp::put("a", value, None), TxnOp::put("b", value, None)])
            .or_else([TxnOp::get("a", None)])
    };
    let first = client.txn(create("1")).await.unwrap();
    assert!(first.succeeded() && first.header().unwrap().revision() == 2);
    let second = client.txn(create("2")).await.unwrap();
    assert!(!second.succeeded() && second.header().unwrap().revision() == 2);
    match &second.op_responses()[..] {
        [TxnOpResponse::Get(get)] => assert_eq!(get.kvs()[0].value(), b"1"),
        other => panic!("{other:?}"),
    }
    let twice = Txn::new().and_then([TxnOp::put("a", "1", None), TxnOp::put("a", "2", None)]);
    assert_eq!(
        refused(client.txn(twice).await),
        as_refused(Code::InvalidArgument, "duplicate key given in txn request")
    );
}

#[tokio::test]
async fn what_is_compacted_cannot_be_read_and_what_is_not_there_neither() {
    let (_server, mut client) = connected().await;
    for value in ["1", "2", "3"] {
        client.put("a", value, None).await.unwrap();
    }
    client.compact(3, None).await.unwrap();
    let at = |revision| Some(GetOptions::new().with_revision(revision));
    let compacted = as_refused(Code::OutOfRange, "mvcc: required revision has been compacted");
    let future = as_refused(Code::OutOfRange, "mvcc: required revision is a future revision");
    assert_eq!(refused(client.get("a", at(2)).await), compacted);
    assert_eq!(refused(client.compact(3, None).await), compacted);
    assert_eq!(refused(client.get("a", at(5)).await), future);
    assert_eq!(refused(client.compact(5, None).await), future);
    assert_eq!(client.get("a", at(3)).await.unwrap().kvs()[0].value(), b"2");
}

#[tokio::test]
async fn refusals_have_the_texts_that_clients_match() {
    let (_server, mut client) = connected().await;
    assert_eq!(refused(client.put("", "1", None).await), as_refused(Code::InvalidArgument, "key is not provided"));
    let keep = Some(PutOptions::new().with_ignore_value());
    assert_eq!(refused(client.put("a", "", keep.clone()).await), as_refused(Code::InvalidArgument, "key not found"));
    assert_eq!(refused(client.put("a", "1", keep).await), as_refused(Code::InvalidArgument, "value is provided"));
    let keep = Some(PutOptions::new().with_ignore_lease().with_lease(1));
    assert_eq!(refused(client.put("a", "1", keep).await), as_refused(Code::InvalidArgument, "lease is provided"));
    let unknown = Some(PutOptions::new().with_lease(1));
    assert_eq!(refused(client.put("a", "1", unknown).await), as_refused(Code::NotFound, "requested lease not found"));
    let many = Txn::new().and_then(vec![TxnOp::get("a", None); 129]);
    assert_eq!(
        refused(client.txn(many).await),
        as_refused(Code::InvalidArgument, "too many operations in txn request")
    );
    assert_eq!(client.get("a", None).await.unwrap().header().unwrap().revision(), 1, "nothing was written");
}

#[tokio::test]
async fn a_streamed_list_is_the_list_in_chunks() {
    let (server, _client) = connected().await;
    let channel = server.channel();
    for start in (0..3000).step_by(100) {
        let puts = (start..start + 100).map(|number| PutRequest {
            key: format!("k/{number:05}").into_bytes(),
            value: vec![b'v'; 2000],
            ..Default::default()
        });
        let success = puts.map(|put| RequestOp { request: Some(wire::TxnOp::Put(put)) }).collect();
        let _: wire::TxnResponse =
            unary(&channel, "/etcdserverpb.KV/Txn", TxnRequest { success, ..Default::default() }).await.unwrap();
    }
    for limit in [0, 2500] {
        let request = RangeRequest { key: b"k/".to_vec(), range_end: b"k0".to_vec(), limit, ..Default::default() };
        let list: RangeResponse = unary(&channel, "/etcdserverpb.KV/Range", request.clone()).await.unwrap();
        let path = "/etcdserverpb.KV/RangeStream";
        let mut stream = server_streaming::<_, RangeStreamResponse>(&channel, path, request).await.unwrap();
        let (mut chunks, mut merged) = (0, RangeResponse::default());
        while let Some(chunk) = stream.message().await.unwrap() {
            let chunk = chunk.range_response.expect("a list");
            assert!(merged.header.is_none(), "the header comes last");
            merged.kvs.extend(chunk.kvs);
            (merged.header, merged.more, merged.count) = (chunk.header, chunk.more, chunk.count);
            chunks += 1;
        }
        assert!(chunks > 1, "6 MB in one chunk");
        assert_eq!(merged, list);
    }
}
