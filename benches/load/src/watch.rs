//! Fan-out: one writer's events to many watchers.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::drive::{KvClient, connect, connect_kv};
use crate::keys::{PREFIX, end, key};
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::watch_client::WatchClient;
use crate::pb::etcdserverpb::watch_request::RequestUnion;
use crate::report::{Latencies, Measurement, latencies, record};
use crate::{Common, Failure};

/// A stream of watches.
pub(crate) struct WatchStream {
    requests: mpsc::Sender<pb::WatchRequest>,
    answers: Streaming<pb::WatchResponse>,
}

impl WatchStream {
    /// A stream with one watch. The request goes first: some servers answer nothing, not even headers, before it.
    pub(crate) async fn open(channel: Channel, key: Vec<u8>, range_end: Vec<u8>) -> Result<WatchStream, Failure> {
        let (requests, outgoing) = mpsc::channel(16);
        requests.send(create(key, range_end)).await?;
        let mut client = WatchClient::new(channel).max_decoding_message_size(usize::MAX);
        let answers = client.watch(ReceiverStream::new(outgoing)).await?.into_inner();
        let mut stream = WatchStream { requests, answers };
        stream.created().await?;
        Ok(stream)
    }

    /// Adds a watch and waits until it is there.
    pub(crate) async fn create(&mut self, key: Vec<u8>, range_end: Vec<u8>) -> Result<(), Failure> {
        self.requests.send(create(key, range_end)).await?;
        self.created().await
    }

    /// The next answer; nothing if the server ended the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<pb::WatchResponse>, Failure> {
        Ok(self.answers.message().await?)
    }

    async fn created(&mut self) -> Result<(), Failure> {
        let created = self.answers.message().await?.ok_or("the stream ended")?.created;
        if created { Ok(()) } else { Err("the first answer does not say that the watch was created".into()) }
    }
}

fn create(key: Vec<u8>, range_end: Vec<u8>) -> pb::WatchRequest {
    let create = pb::WatchCreateRequest { key, range_end, ..Default::default() };
    pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }
}

/// Writes `common.count` keys while `watchers` watches get them, and reports how long after each put was begun its events came.
pub(crate) async fn fan_out(common: &Common, watchers: usize) -> Result<(), Failure> {
    let mut streams = Vec::new();
    let mut connections = Vec::new();
    for _ in 0..common.connections.clamp(1, watchers.max(1)) {
        connections.push(connect(common).await?);
    }
    for connection in connections.iter().cycle().take(watchers) {
        streams.push(WatchStream::open(connection.clone(), PREFIX.into(), end()).await?);
    }
    let kv = connect_kv(common).await?;
    let measurement = Measurement::begin(common);
    let epoch = Instant::now();
    let mut tasks: JoinSet<Result<Latencies, Failure>> = JoinSet::new();
    for stream in streams {
        tasks.spawn(follow(stream, epoch, common.count));
    }
    let mut writers: JoinSet<Result<(), Failure>> = JoinSet::new();
    let clients = u64::try_from(common.clients)?.max(1);
    for first in 0..clients {
        let own = (first..common.count).step_by(common.clients.max(1));
        let pause = Duration::from_secs(clients).checked_div(u32::try_from(common.rate)?).unwrap_or_default();
        writers.spawn(write(kv.clone(), own, (common.keys, common.value_bytes), epoch, pause));
    }
    while let Some(ended) = writers.join_next().await {
        ended??;
    }
    let mut all = latencies()?;
    while let Some(ended) = tasks.join_next().await {
        all.add(ended??)?;
    }
    measurement.end(&all, common.count);
    Ok(())
}

/// Puts whose values begin with the time since `epoch`.
async fn write(
    mut kv: KvClient,
    turns: impl Iterator<Item = u64>,
    (keys, bytes): (u64, usize),
    epoch: Instant,
    pause: Duration,
) -> Result<(), Failure> {
    let mut due = epoch;
    for turn in turns {
        due += pause;
        tokio::time::sleep_until(due.into()).await;
        let mut value = u64::try_from(epoch.elapsed().as_micros())?.to_le_bytes().to_vec();
        value.resize(bytes.max(8), b'v');
        kv.put(pb::PutRequest { key: key(turn % keys), value, ..Default::default() }).await?;
    }
    Ok(())
}

async fn follow(mut stream: WatchStream, epoch: Instant, count: u64) -> Result<Latencies, Failure> {
    let mut own = latencies()?;
    while own.len() < count {
        let reply = stream.answers.message().await?.ok_or("the watch ended")?;
        let now = epoch.elapsed();
        for event in reply.events {
            let stamp = event.kv.and_then(|kv| kv.value.first_chunk::<8>().copied()).unwrap_or_default();
            record(&mut own, now.saturating_sub(Duration::from_micros(u64::from_le_bytes(stamp))));
        }
    }
    Ok(own)
}
