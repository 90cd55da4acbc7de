//! Clients that write and read while the server is killed under them.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::client::{Duplex, unary};
use super::ledger::{Ledger, Name, value};
use crate::model::op::{Reply, Request, header};
use crate::model::rng::Rng;
use crate::model::wire::*;
use crate::model::wire_more::*;

/// What clients and the one who kills share.
pub struct Load {
    pub url: String,
    pub ledger: Mutex<Ledger>,
    pub stop: AtomicBool,
    /// True while compaction may be asked for.
    pub compacting: AtomicBool,
    /// True while nothing more is to be asked, and how many clients are at work nevertheless.
    pub paused: AtomicBool,
    pub at_work: AtomicU64,
    /// How many writes were acknowledged.
    pub acknowledged: AtomicU64,
    /// The highest revision that any client was told.
    pub told: AtomicI64,
    /// The lowest revision that all watches have recorded.
    pub recorded: Mutex<Vec<i64>>,
}

impl Load {
    /// Shared state for so many watches.
    pub fn new(url: String, watches: usize) -> Arc<Load> {
        Arc::new(Load {
            url,
            ledger: Mutex::default(),
            stop: AtomicBool::new(false),
            compacting: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            at_work: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            told: AtomicI64::new(1),
            recorded: Mutex::new(vec![1; watches]),
        })
    }

    /// Waits until so many more writes are acknowledged.
    pub async fn acknowledged_more(&self, more: u64) {
        let target = self.acknowledged.load(Ordering::SeqCst) + more;
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.acknowledged.load(Ordering::SeqCst) < target {
            assert!(Instant::now() < deadline, "the clients do not get on");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until no client is at work; none begins until `paused` is taken back.
    pub async fn pause(&self) {
        self.paused.store(true, Ordering::SeqCst);
        while self.at_work.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    pub fn channel(&self) -> Channel {
        Endpoint::from_shared(self.url.clone()).expect("a URL").connect_lazy()
    }

    /// The lowest revision that every watch has recorded.
    pub fn recorded_by_all(&self) -> i64 {
        self.recorded.lock().unwrap().iter().copied().min().unwrap_or(1)
    }
}

/// One client: one request at a time.
pub struct Writer {
    load: Arc<Load>,
    channel: Channel,
    rng: Rng,
    client: usize,
    number: u64,
}

/// True for what a broken connection looks like; anything else is a refusal that must not be.
fn broken(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded | Code::Internal
    )
}

impl Writer {
    /// A client by number, with its choices from a seed.
    pub fn new(load: &Arc<Load>, client: usize, seed: u64) -> Writer {
        Writer {
            load: load.clone(),
            channel: load.channel(),
            rng: Rng::new(seed ^ (client as u64) << 32),
            client,
            number: 0,
        }
    }

    /// Works until it is told to stop.
    pub async fn run(mut self) {
        while !self.load.stopped() {
            self.load.at_work.fetch_add(1, Ordering::SeqCst);
            let worked = if self.load.paused.load(Ordering::SeqCst) { None } else { self.work().await };
            self.load.at_work.fetch_sub(1, Ordering::SeqCst);
            if worked.is_none() {
                // The connection broke; it is made again by the next request.
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
    }

    async fn work(&mut self) -> Option<()> {
        match self.rng.below(100) {
            0..40 => self.put().await,
            40..55 => self.swap().await,
            55..65 => self.update().await,
            65..75 => self.create_and_delete().await,
            75..85 => self.lease().await,
            85..88 => self.compact().await,
            _ => self.read().await,
        }
    }

    fn name(&mut self) -> Name {
        self.number += 1;
        (self.client, self.number)
    }

    fn shared_key(&mut self) -> Blob {
        format!("shared/{}", self.rng.below(24)).into_bytes()
    }

    /// Calls, and looks at what the answer says about time: it is above all that anybody was told before the request.
    async fn call<Q, R>(
        &self,
        path: &'static str,
        request: Q,
        revision: impl Fn(&R) -> Option<&Header>,
        above: i64,
    ) -> Option<R>
    where
        Q: prost::Message + std::fmt::Debug + Clone + 'static,
        R: prost::Message + Default + 'static,
    {
        let told = self.load.told.load(Ordering::SeqCst);
        let call = unary::<Q, R>(&self.channel, path, request.clone());
        let outcome = tokio::time::timeout(Duration::from_secs(20), call).await;
        match outcome.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer"))) {
            Ok(reply) => {
                let revision = revision(&reply).map_or(0, |header| header.revision);
                assert!(revision >= told + above, "{told} was told before {request:?}, answered at {revision}");
                self.load.told.fetch_max(revision, Ordering::SeqCst);
                Some(reply)
            }
            Err(status) if broken(&status) => None,
            Err(status) => panic!("{request:?} is refused: {status:?}"),
        }
    }

    fn answered(&self, name: Name, reply: Reply) {
        self.load.ledger.lock().unwrap().answer(name, reply);
        self.load.acknowledged.fetch_add(1, Ordering::SeqCst);
    }

    fn ask(&self, name: Name, request: Request, deletes: Option<Blob>) {
        self.load.ledger.lock().unwrap().ask(name, request, deletes);
    }

    async fn put_key(&mut self, name: Name, key: Blob, lease: i64) -> Option<()> {
        let request = PutRequest { key, value: value(name), lease, prev_kv: true, ..Default::default() };
        self.ask(name, Request::Put(request.clone()), None);
        let mut reply: PutResponse =
            self.call("/etcdserverpb.KV/Put", request, |reply: &PutResponse| reply.header.as_ref(), 1).await?;
        reply.header = plain(&reply.header);
        self.answered(name, Reply::Put(reply));
        Some(())
    }

    async fn put(&mut self) -> Option<()> {
        let (name, key) = (self.name(), self.shared_key());
        self.put_key(name, key, 0).await
    }

    async fn txn(&mut self, name: Name, request: TxnRequest, above: i64) -> Option<()> {
        self.ask(name, Request::Txn(request.clone()), None);
        let mut reply: TxnResponse =
            self.call("/etcdserverpb.KV/Txn", request, |reply: &TxnResponse| reply.header.as_ref(), above).await?;
        reply.header = plain(&reply.header);
        self.answered(name, Reply::Txn(reply));
        Some(())
    }

    /// Puts two keys and deletes a third, all at once.
    async fn swap(&mut self) -> Option<()> {
        let name = self.name();
        let mut keys = [self.shared_key(), format!("mark/{}", self.client).into_bytes(), self.shared_key()];
        if keys[0] == keys[2] {
            keys[2] = b"absent".to_vec();
        }
        let [first, second, gone] = keys;
        let put = |key| TxnOp::Put(PutRequest { key, value: value(name), ..Default::default() });
        let delete = TxnOp::DeleteRange(DeleteRangeRequest { key: gone, prev_kv: true, ..Default::default() });
        let success = [put(first), put(second), delete].into_iter().map(|op| RequestOp { request: Some(op) }).collect();
        self.txn(name, TxnRequest { success, ..Default::default() }, 1).await
    }

    /// Updates a key if it is as it was read, as an apiserver does.
    async fn update(&mut self) -> Option<()> {
        let key = self.shared_key();
        let known = self.read_key(key.clone()).await?.map_or(0, |kv| kv.mod_revision);
        let name = self.name();
        let compare =
            vec![Compare { target: 2, key: key.clone(), union: Some(Union::Mod(known)), ..Default::default() }];
        let put = TxnOp::Put(PutRequest { key: key.clone(), value: value(name), ..Default::default() });
        let success = vec![RequestOp { request: Some(put) }];
        self.txn(name, TxnRequest { compare, success, failure: Vec::new() }, 0).await
    }

    async fn create_and_delete(&mut self) -> Option<()> {
        let name = self.name();
        let key = format!("own/{}/{}", name.0, name.1).into_bytes();
        self.put_key(name, key.clone(), 0).await?;
        let name = self.name();
        let request = DeleteRangeRequest { key: key.clone(), prev_kv: true, ..Default::default() };
        self.ask(name, Request::DeleteRange(request.clone()), Some(key));
        let path = "/etcdserverpb.KV/DeleteRange";
        let mut reply = self.call(path, request, |reply: &DeleteRangeResponse| reply.header.as_ref(), 1).await?;
        reply.header = plain(&reply.header);
        self.answered(name, Reply::DeleteRange(reply));
        Some(())
    }

    async fn lease(&mut self) -> Option<()> {
        let name = self.name();
        let id = (self.client as i64 + 1) << 32 | name.1 as i64;
        let grant = LeaseGrantRequest { ttl: 10_000, id };
        self.call("/etcdserverpb.Lease/LeaseGrant", grant, |reply: &LeaseGrantResponse| reply.header.as_ref(), 0)
            .await?;
        self.load.ledger.lock().unwrap().leases.insert(id, false);
        let key = format!("leased/{}/{}", name.0, name.1).into_bytes();
        self.put_key(name, key.clone(), id).await?;
        if self.rng.chance(50) {
            return self.keep_alive(id).await;
        }
        let name = self.name();
        self.ask(name, Request::Revoke(id), Some(key));
        self.load.ledger.lock().unwrap().leases.insert(id, true);
        let path = "/etcdserverpb.Lease/LeaseRevoke";
        let reply = self.call(path, LeaseIdRequest { id }, |reply: &HeaderResponse| reply.header.as_ref(), 1).await?;
        self.answered(name, Reply::Done(reply.header.map_or(0, |header| header.revision)));
        Some(())
    }

    async fn keep_alive(&mut self, id: i64) -> Option<()> {
        let mut stream =
            Duplex::<LeaseIdRequest, LeaseKeepAliveResponse>::open(&self.channel, "/etcdserverpb.Lease/LeaseKeepAlive");
        stream.send(LeaseIdRequest { id });
        let reply = tokio::time::timeout(Duration::from_secs(20), stream.next()).await.ok()??.ok()?;
        assert_eq!((reply.id, reply.ttl), (id, 10_000), "a lease that was granted is there");
        Some(())
    }

    async fn read(&mut self) -> Option<()> {
        let key = self.shared_key();
        self.read_key(key).await.map(|_| ())
    }

    async fn read_key(&mut self, key: Blob) -> Option<Option<KeyValue>> {
        let request = RangeRequest { key: key.clone(), ..Default::default() };
        let reply: RangeResponse =
            self.call("/etcdserverpb.KV/Range", request, |reply: &RangeResponse| reply.header.as_ref(), 0).await?;
        let found = reply.kvs.into_iter().next();
        let revision = reply.header.map_or(0, |header| header.revision);
        self.load.ledger.lock().unwrap().read(revision, key, found.clone());
        Some(found)
    }

    /// Compacts, below what every watch has recorded.
    async fn compact(&mut self) -> Option<()> {
        if !self.load.compacting.load(Ordering::SeqCst) {
            return Some(());
        }
        let request = CompactionRequest { revision: self.load.recorded_by_all() - 20, physical: false };
        match unary::<_, HeaderResponse>(&self.channel, "/etcdserverpb.KV/Compact", request).await {
            Err(status) if broken(&status) => None,
            Err(status) if status.code() == Code::OutOfRange => Some(()),
            Err(status) => panic!("compaction is refused: {status:?}"),
            Ok(_) => Some(()),
        }
    }
}

fn plain(full: &Option<Header>) -> Option<Header> {
    header(full.as_ref().map_or(0, |full| full.revision))
}
