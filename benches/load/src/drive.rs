//! Many clients at once, over a few connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::beside::Beside;
use crate::pb::etcdserverpb::kv_client;
use crate::report::{Latencies, Measurement, latencies, record};
use crate::worker::{Work, Worker};
use crate::{Common, Failure};

/// A client for single requests.
pub(crate) type KvClient = kv_client::KvClient<Channel>;

/// Makes `common.count` requests and reports.
pub(crate) async fn run(common: &Common, work: Work) -> Result<(), Failure> {
    let workers = workers(common, work).await?;
    let beside = Beside::begin(common).await?;
    let measurement = Measurement::begin(common);
    let (latencies, items) = drive(workers, common).await?;
    measurement.end(&latencies, items);
    beside.end()
}

/// A connection.
pub(crate) async fn connect(common: &Common) -> Result<Channel, Failure> {
    Ok(Channel::from_shared(common.endpoint.clone())?.connect().await?)
}

/// A client for single requests over a connection of its own; its replies may be of any size.
pub(crate) async fn connect_kv(common: &Common) -> Result<KvClient, Failure> {
    Ok(KvClient::new(connect(common).await?).max_decoding_message_size(usize::MAX))
}

/// All clients, connected.
pub(crate) async fn workers(common: &Common, work: Work) -> Result<Vec<Worker>, Failure> {
    let mut connections = Vec::new();
    for _ in 0..common.connections.clamp(1, common.clients.max(1)) {
        connections.push(connect_kv(common).await?);
    }
    let shared = connections.iter().cycle();
    Ok((0..)
        .zip(shared.take(common.clients))
        .map(|(number, kv)| Worker::new(kv.clone(), work, common, number))
        .collect())
}

/// Has the clients make `common.count` requests together. Answers the latencies, from the time when a request was due, and
/// the items carried.
pub(crate) async fn drive(workers: Vec<Worker>, common: &Common) -> Result<(Latencies, u64), Failure> {
    let (count, first, rate, epoch) = (common.count, common.first, common.rate, Instant::now());
    let turns = Arc::new(AtomicU64::new(0));
    let mut tasks: JoinSet<Result<(Latencies, u64), Failure>> = JoinSet::new();
    for mut worker in workers {
        let (turns, mut own, mut items) = (Arc::clone(&turns), latencies()?, 0);
        tasks.spawn(async move {
            loop {
                let turn = turns.fetch_add(1, Ordering::Relaxed);
                if turn >= count {
                    return Ok((own, items));
                }
                let mut due = None;
                if rate > 0 {
                    let on_time = epoch + Duration::from_secs_f64(turn as f64 / rate as f64);
                    tokio::time::sleep_until(on_time.into()).await;
                    due = Some(on_time);
                }
                loop {
                    let began = due.take().unwrap_or_else(Instant::now);
                    let done = worker.once(first + turn).await?;
                    record(&mut own, began.elapsed());
                    items += done.items;
                    if done.complete {
                        break;
                    }
                }
            }
        });
    }
    let (mut all, mut items) = (latencies()?, 0);
    while let Some(ended) = tasks.join_next().await {
        let (own, carried) = ended??;
        all.add(own)?;
        items += carried;
    }
    Ok((all, items))
}
