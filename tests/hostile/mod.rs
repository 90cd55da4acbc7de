//! Input that is wrong or too much: refused by name, bounded in memory, without effect on others.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod memory;
mod requests;
mod streams;

use tonic::transport::Channel;

use crate::model::wire::*;
use crate::support::client::unary;

async fn put(channel: &Channel, key: &str, value: Vec<u8>) -> Result<PutResponse, tonic::Status> {
    unary(channel, "/etcdserverpb.KV/Put", PutRequest { key: key.into(), value, ..Default::default() }).await
}

/// Another client is served as if nothing had been.
async fn others_are_served(channel: &Channel) {
    put(channel, "other", b"1".to_vec()).await.expect("others are served");
}
