//! One client: it makes one request after the other.

use std::collections::BTreeMap;

use crate::drive::KvClient;
use crate::keys::{PREFIX, end, key, mix, scattered, value};
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::pb::etcdserverpb::request_op::Request;
use crate::pb::etcdserverpb::response_op::Response;
use crate::{Common, Failure};

/// What to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Put { batch: u64, order: Order },
    Cas,
    Get { serializable: bool },
    Pages { limit: i64 },
    Lists { limit: i64 },
    Counts,
    KeysOnly,
    Stream,
    Mixed,
    Kubernetes,
}

/// Which key comes next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// The next one.
    Ascending,
    /// Each once, in an order without neighbours, before one comes twice.
    Scattered,
    /// Any: drawn at random.
    Drawn,
}

/// Bytes of the objects that `Kubernetes` puts now and then, and how many there are.
const OBJECT_BYTES: usize = 10 * 1024;
const OBJECTS: u64 = 2_000;

/// Keys that a client of `Cas` updates in turn.
const OWN_KEYS: u64 = 16;

/// A client and where it is.
pub(crate) struct Worker {
    kv: KvClient,
    work: Work,
    keys: u64,
    value_bytes: usize,
    /// The client's number: it updates keys that no other does.
    number: u64,
    /// The mod revisions of its own keys, as last seen.
    seen: Vec<i64>,
    /// Where the next page begins, and the revision of the first one.
    place: Option<(Vec<u8>, i64)>,
}

/// What a request came to.
pub(crate) struct Done {
    /// The keys it carried.
    pub(crate) items: u64,
    /// What was asked for is complete; false for a page before the last one.
    pub(crate) complete: bool,
}

impl Worker {
    pub(crate) fn new(kv: KvClient, work: Work, common: &Common, number: u64) -> Worker {
        let seen = vec![0; usize::try_from(OWN_KEYS).unwrap_or(0)];
        Worker { kv, work, keys: common.keys, value_bytes: common.value_bytes, number, seen, place: None }
    }

    /// Makes the `turn`th request of all clients together.
    pub(crate) async fn once(&mut self, turn: u64) -> Result<Done, Failure> {
        let items = match self.work {
            Work::Put { batch: 1, order } => self.put(turn, order).await?,
            Work::Put { batch, order } => self.put_many(turn, batch, order).await?,
            Work::Cas => self.cas(turn).await?,
            Work::Get { serializable } => self.get(turn, serializable).await?,
            Work::Lists { limit } => self.list(limit).await?,
            Work::Counts => self.count().await?,
            Work::KeysOnly => self.keys_only().await?,
            Work::Stream => self.stream().await?,
            Work::Pages { limit } => {
                let items = self.page(limit).await?;
                return Ok(Done { items, complete: self.place.is_none() });
            }
            Work::Mixed => match mix(turn) % 10 {
                0..6 => self.cas(turn).await?,
                6..9 => self.get(turn, false).await?,
                _ => self.list(500).await?,
            },
            Work::Kubernetes => match mix(turn) % 100 {
                0..80 => self.cas(turn).await?,
                80..95 => self.get(turn, false).await?,
                95..97 => self.object(turn).await?,
                _ => self.list(500).await?,
            },
        };
        Ok(Done { items, complete: true })
    }

    fn put_of(&self, turn: u64, order: Order) -> pb::PutRequest {
        let number = match order {
            Order::Ascending => turn % self.keys,
            Order::Scattered => scattered(turn, self.keys),
            Order::Drawn => mix(turn) % self.keys,
        };
        pb::PutRequest { key: key(number), value: value(turn, self.value_bytes), ..Default::default() }
    }

    async fn put(&mut self, turn: u64, order: Order) -> Result<u64, Failure> {
        self.kv.put(self.put_of(turn, order)).await?;
        Ok(1)
    }

    async fn put_many(&mut self, turn: u64, batch: u64, order: Order) -> Result<u64, Failure> {
        let turns = turn * batch..(turn + 1) * batch;
        // A transaction writes no key twice: what is drawn again takes the place of what was drawn first.
        let puts = turns.map(|turn| self.put_of(turn, order)).map(|put| (put.key.clone(), put));
        let puts: BTreeMap<Vec<u8>, pb::PutRequest> = puts.collect();
        let items = u64::try_from(puts.len())?;
        let success = puts.into_values().map(|put| op(Request::RequestPut(put))).collect();
        self.kv.txn(pb::TxnRequest { success, ..Default::default() }).await?;
        Ok(items)
    }

    /// One attempt; what it learns when the key has changed is for the next one.
    async fn cas(&mut self, turn: u64) -> Result<u64, Failure> {
        let own = mix(turn) % OWN_KEYS;
        let key = key((self.number * OWN_KEYS + own) % self.keys);
        let slot = self.seen.get_mut(usize::try_from(own)?).ok_or("no such key")?;
        let unchanged = pb::Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Mod.into(),
            key: key.clone(),
            target_union: Some(TargetUnion::ModRevision(*slot)),
            ..Default::default()
        };
        let put = pb::PutRequest { key: key.clone(), value: value(turn, self.value_bytes), ..Default::default() };
        let get = pb::RangeRequest { key, ..Default::default() };
        let txn = pb::TxnRequest {
            compare: vec![unchanged],
            success: vec![op(Request::RequestPut(put))],
            failure: vec![op(Request::RequestRange(get))],
        };
        let reply = self.kv.txn(txn).await?.into_inner();
        let now = reply.header.map_or(0, |header| header.revision);
        *slot = match reply.responses.into_iter().next().and_then(|op| op.response) {
            Some(Response::ResponseRange(found)) => found.kvs.first().map_or(0, |kv| kv.mod_revision),
            _ => now,
        };
        Ok(1)
    }

    async fn get(&mut self, turn: u64, serializable: bool) -> Result<u64, Failure> {
        let key = key(mix(turn) % self.keys);
        let reply = self.kv.range(pb::RangeRequest { key, serializable, ..Default::default() }).await?;
        Ok(u64::try_from(reply.into_inner().kvs.len())?)
    }

    async fn list(&mut self, limit: i64) -> Result<u64, Failure> {
        let reply = self.kv.range(pb::RangeRequest { limit, ..everything() }).await?;
        Ok(u64::try_from(reply.into_inner().kvs.len())?)
    }

    async fn count(&mut self) -> Result<u64, Failure> {
        let reply = self.kv.range(pb::RangeRequest { count_only: true, ..everything() }).await?;
        Ok(u64::try_from(reply.into_inner().count)?)
    }

    async fn keys_only(&mut self) -> Result<u64, Failure> {
        let reply = self.kv.range(pb::RangeRequest { keys_only: true, ..everything() }).await?;
        Ok(u64::try_from(reply.into_inner().kvs.len())?)
    }

    /// A put of a large value, of keys behind those that are updated.
    async fn object(&mut self, turn: u64) -> Result<u64, Failure> {
        let key = key(self.keys + mix(turn) % OBJECTS);
        self.kv.put(pb::PutRequest { key, value: value(turn, OBJECT_BYTES), ..Default::default() }).await?;
        Ok(1)
    }

    async fn stream(&mut self) -> Result<u64, Failure> {
        let mut pieces = self.kv.range_stream(everything()).await?.into_inner();
        let mut items = 0;
        while let Some(piece) = pieces.message().await? {
            items += piece.range_response.map_or(0, |piece| piece.kvs.len());
        }
        Ok(u64::try_from(items)?)
    }

    async fn page(&mut self, limit: i64) -> Result<u64, Failure> {
        let (key, revision) = self.place.take().unwrap_or((PREFIX.into(), 0));
        let reply = self.kv.range(pb::RangeRequest { key, limit, revision, ..everything() }).await?.into_inner();
        if let (true, Some(last), Some(header)) = (reply.more, reply.kvs.last(), reply.header) {
            let pinned = if revision == 0 { header.revision } else { revision };
            self.place = Some(([last.key.as_slice(), &[0]].concat(), pinned));
        }
        Ok(u64::try_from(reply.kvs.len())?)
    }
}

fn op(request: Request) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

fn everything() -> pb::RangeRequest {
    pb::RangeRequest { key: PREFIX.into(), range_end: end(), ..Default::default() }
}
