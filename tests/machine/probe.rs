//! Clients that write until they are refused, and one that watches the server's health.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, JoinSet};
use tonic::Status;

use crate::model::wire::*;
use crate::support::client::{server_streaming, unary};
use crate::support::server::Server;

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// A stream of the health service.
pub struct Health {
    watch: JoinHandle<Told>,
}

/// What it was told.
#[derive(Default)]
pub struct Told {
    pub statuses: Vec<i32>,
    /// When the server said that it does not serve, and the answer to a put behind that.
    pub ended: Option<(Instant, Result<(), Status>)>,
}

impl Health {
    pub const SERVING: i32 = 1;
    pub const NOT_SERVING: i32 = 2;

    /// Watches until the stream ends.
    pub async fn watch(server: &Server) -> Health {
        let channel = server.endpoint().connect().await.expect("a connection");
        let request = HealthCheckRequest::default();
        let mut stream = server_streaming::<_, HealthCheckResponse>(&channel, "/grpc.health.v1.Health/Watch", request)
            .await
            .expect("the server answers");
        let watch = tokio::spawn(async move {
            let mut told = Told::default();
            while let Ok(Some(message)) = stream.message().await {
                told.statuses.push(message.status);
                if message.status == Health::NOT_SERVING {
                    let put = PutRequest { key: b"late".to_vec(), ..Default::default() };
                    let put = unary::<_, PutResponse>(&channel, "/etcdserverpb.KV/Put", put);
                    told.ended = Some((Instant::now(), put.await.map(drop)));
                }
            }
            told
        });
        Health { watch }
    }

    /// What it was told until the stream ended.
    pub async fn finish(self) -> Told {
        self.watch.await.expect("it ends in order")
    }
}

/// Clients with a connection each, that put new keys until they are refused.
pub struct Probes {
    value_bytes: usize,
    acknowledged: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    clients: JoinSet<(usize, u64, Status, Instant)>,
}

/// What became of them.
pub struct Outcome {
    value_bytes: usize,
    /// By client: that many keys were acknowledged, one more may be there.
    pub acknowledged: Vec<u64>,
    pub refusals: Vec<Status>,
    pub first_refusal: Instant,
}

impl Probes {
    pub async fn start(server: &Server, count: usize) -> Probes {
        Probes::start_with(server, count, 200).await
    }

    /// The same with values of so many bytes.
    pub async fn start_with(server: &Server, count: usize, value_bytes: usize) -> Probes {
        let [acknowledged, refused] = [0, 0].map(|count| Arc::new(AtomicU64::new(count)));
        let mut clients = JoinSet::new();
        for client in 0..count {
            let channel = server.endpoint().connect().await.expect("a connection");
            let (acknowledged, refused) = (acknowledged.clone(), refused.clone());
            clients.spawn(async move {
                for number in 0.. {
                    let put =
                        PutRequest { key: key(client, number), value: vec![7; value_bytes], ..Default::default() };
                    if let Err(status) = unary::<_, PutResponse>(&channel, "/etcdserverpb.KV/Put", put).await {
                        refused.fetch_add(1, Ordering::SeqCst);
                        return (client, number, status, Instant::now());
                    }
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
                unreachable!("there are enough numbers")
            });
        }
        Probes { value_bytes, acknowledged, refused, clients }
    }

    /// Waits until so many puts are acknowledged in all; nobody may be refused before.
    pub async fn acknowledged(&self, count: u64) {
        let begun = Instant::now();
        while self.count() < count {
            assert!(begun.elapsed() < Duration::from_secs(60), "the clients do not get on");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// How many puts are acknowledged in all.
    pub fn count(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// The same as `acknowledged`; false if everybody was refused before.
    pub async fn acknowledged_or_refused(&self, count: u64) -> bool {
        let begun = Instant::now();
        loop {
            if self.count() >= count {
                return true;
            }
            if self.refused.load(Ordering::SeqCst) == self.clients.len() as u64 {
                return false;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "the clients do not get on");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until everybody was refused.
    pub async fn finish(self) -> Outcome {
        let mut ended = self.clients.join_all().await;
        ended.sort_by_key(|(client, ..)| *client);
        Outcome {
            value_bytes: self.value_bytes,
            acknowledged: ended.iter().map(|(_, number, ..)| *number).collect(),
            first_refusal: ended.iter().map(|(.., at)| *at).min().expect("there are clients"),
            refusals: ended.into_iter().map(|(_, _, status, _)| status).collect(),
        }
    }
}

impl Outcome {
    /// All that was acknowledged is there, and of each client at most the one put more that was under way.
    /// Answers how many are there.
    pub async fn is_there(&self, server: &Server) -> u64 {
        let (channel, mut there) = (server.channel(), 0);
        for (client, acknowledged) in self.acknowledged.iter().enumerate() {
            let all = RangeRequest { key: key(client, 0), range_end: key(client, u64::MAX), ..Default::default() };
            let reply: RangeResponse =
                unary(&channel, "/etcdserverpb.KV/Range", all).await.expect("the server answers");
            let found = reply.kvs.len() as u64;
            assert!((*acknowledged..=acknowledged + 1).contains(&found), "{found} there, {acknowledged} acknowledged");
            for (number, kv) in reply.kvs.iter().enumerate() {
                assert_eq!((&kv.key, &kv.value), (&key(client, number as u64), &vec![7; self.value_bytes]));
            }
            there += found;
        }
        there
    }

    /// A watch was told of the puts of each client without a gap.
    pub fn were_told(&self, keys: &[Blob]) {
        for client in 0..self.acknowledged.len() {
            let prefix = format!("probe/{client}/").into_bytes();
            for (number, told) in keys.iter().filter(|key| key.starts_with(&prefix)).enumerate() {
                assert_eq!(*told, key(client, number as u64));
            }
        }
    }
}

fn key(client: usize, number: u64) -> Blob {
    format!("probe/{client}/{number:020}").into_bytes()
}
