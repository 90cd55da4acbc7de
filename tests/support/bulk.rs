//! Many keys: written in large transactions, read in pages.

use super::client::unary;
use super::server::Server;
use crate::model::wire::*;

/// 1024 × 1024.
pub const MIB: u64 = 1 << 20;

/// Loads keys, 128 in a transaction, many transactions at once.
pub async fn load_keys(server: &Server, from: u64, upto: u64) {
    let channel = server.channel();
    let mut running = tokio::task::JoinSet::new();
    for start in (from..upto).step_by(128) {
        while running.len() >= 64 {
            let done: Result<Result<TxnResponse, tonic::Status>, _> = running.join_next().await.expect("one runs");
            done.expect("it ends in order").expect("the server answers");
        }
        let puts = (start..upto.min(start + 128)).map(|number| {
            let mut value = format!("value {number} ").into_bytes();
            value.resize(256, b'.');
            TxnOp::Put(PutRequest { key: key(number), value, ..Default::default() })
        });
        let success = puts.map(|put| RequestOp { request: Some(put) }).collect();
        let channel = channel.clone();
        running.spawn(async move {
            unary(&channel, "/etcdserverpb.KV/Txn", TxnRequest { success, ..Default::default() }).await
        });
    }
    while let Some(done) = running.join_next().await {
        done.expect("it ends in order").expect("the server answers");
    }
}

/// A key's place is mixed, so that a load touches the whole tree all the time.
fn key(number: u64) -> Vec<u8> {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("/registry/things/{mixed:016x}").into_bytes()
}

/// Reads everything in pages of 1000 at one revision; returns how many keys there were.
pub async fn scan(server: &Server) -> u64 {
    let channel = server.channel();
    let (mut next, mut revision, mut found) = (vec![0], 0, 0);
    loop {
        let page = RangeRequest { key: next, range_end: vec![0], limit: 1000, revision, ..Default::default() };
        let reply: RangeResponse = unary(&channel, "/etcdserverpb.KV/Range", page).await.expect("the server answers");
        revision = if revision == 0 { reply.header.expect("a header").revision } else { revision };
        found += reply.kvs.len() as u64;
        assert!(reply.kvs.windows(2).all(|pair| pair[0].key < pair[1].key), "in key order");
        let last = reply.kvs.into_iter().last();
        match last {
            Some(kv) if reply.more => next = [kv.key.as_slice(), &[0]].concat(),
            _ => return found,
        }
    }
}
