//! Leases: keeping many alive, and many that run out at once.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::Failure;
use crate::bench::cell::{Cell, Size};
use crate::bench::figures::{Figures, Meter, note, note_latencies};
use crate::bench::phases::{Client, Drive};
use crate::drive::{KvClient, connect, workers};
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::lease_client::LeaseClient;
use crate::watch::WatchStream;
use crate::worker::{Done, Order, Work};

const KEPT: u64 = 1000;
const KEPT_TTL_S: i64 = 3600;
const CONNECTIONS: usize = 100;
const EXPIRING: u64 = 100_000;
/// Clients that grant.
const GRANTERS: u64 = 256;
const GRANT_CONNECTIONS: usize = 16;
/// When all leases run out, after the first was granted; more than granting takes.
const UNTIL_EXPIRY: Duration = Duration::from_secs(90);
/// How long is waited for the last one to go.
const PATIENCE: Duration = Duration::from_secs(600);
/// What the keys on leases begin with, beside all others.
const LEASED: &str = "/leased/";
const WRITERS: Size = Size { clients: 16, connections: 4, keys: 10_000, value_bytes: 256 };
const PUTS_PER_SECOND: u64 = 1000;

/// One stream that keeps one lease alive.
struct Keeper {
    id: i64,
    requests: mpsc::Sender<pb::LeaseKeepAliveRequest>,
    answers: Streaming<pb::LeaseKeepAliveResponse>,
}

impl Keeper {
    async fn new(channel: Channel) -> Result<Keeper, Failure> {
        let mut client = LeaseClient::new(channel);
        let id = client.lease_grant(pb::LeaseGrantRequest { ttl: KEPT_TTL_S, id: 0 }).await?.into_inner().id;
        let (requests, outgoing) = mpsc::channel(1);
        // Some servers answer nothing, not even headers, before the first request.
        requests.send(pb::LeaseKeepAliveRequest { id }).await?;
        let answers = client.lease_keep_alive(ReceiverStream::new(outgoing)).await?.into_inner();
        let mut keeper = Keeper { id, requests, answers };
        keeper.kept().await?;
        Ok(keeper)
    }

    async fn kept(&mut self) -> Result<(), Failure> {
        let answer = self.answers.message().await?.ok_or("the stream ended")?;
        if answer.ttl != KEPT_TTL_S {
            return Err(format!("lease {} has {} s, not {KEPT_TTL_S}", answer.id, answer.ttl).into());
        }
        Ok(())
    }
}

impl Client for Keeper {
    async fn once(&mut self, _: u64) -> Result<Done, Failure> {
        self.requests.send(pb::LeaseKeepAliveRequest { id: self.id }).await?;
        self.kept().await?;
        Ok(Done { items: 1, complete: true })
    }
}

/// Keep-alives without a pause.
pub(crate) async fn keep_alive(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    let common = cell.common(Size { connections: CONNECTIONS, ..WRITERS });
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        channels.push(connect(&common).await?);
    }
    let mut keepers = Vec::new();
    for (_, channel) in (0..cell.scaled(KEPT)).zip(channels.iter().cycle()) {
        keepers.push(Keeper::new(channel.clone()).await?);
    }
    // The first renewal after a grant may be written; those are not what is measured.
    let before = cell.place.written(cell.server.pid())?;
    let (mut figures, requests) = cell.steady_with(keepers, 0).await?;
    let after = cell.place.written(cell.server.pid())?;
    note(&mut figures, "written_bytes", (after - before) as f64 / requests as f64);
    Ok(figures)
}

/// Leases that run out in the same second.
pub(crate) async fn expiry(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    let count = cell.scaled(EXPIRING);
    let common = cell.common(WRITERS);
    let until = UNTIL_EXPIRY.mul_f64(cell.scale.clamp(0.25, 1.0));
    let due = Instant::now() + until;
    grant(&common, count, due).await?;
    let left = due.saturating_duration_since(Instant::now());
    // The granted seconds are whole ones.
    if left < cell.measured / 2 + Duration::from_secs(2) {
        return Err(format!("granting {count} leases took {:?} of {until:?}", until - left).into());
    }
    let deleted = WatchStream::open(connect(&common).await?, LEASED.into(), prefix_end()).await?;
    let mut gone = tokio::spawn(all_gone(deleted, count));
    let drive = Drive::begin(workers(&common, PUT).await?, PUTS_PER_SECOND, cell.first_turn(), 3);
    sleep_until((due - Duration::from_secs(2) - cell.measured / 2).into()).await;
    drive.enter(1);
    sleep_until((due - Duration::from_secs(2)).into()).await;
    let meter = Meter::begin(cell.server.pid());
    sleep_until((due - Duration::from_secs(1)).into()).await;
    if gone.is_finished() {
        return Err("all leases went before they were due".into());
    }
    drive.enter(2);
    let last = timeout(PATIENCE, &mut gone).await;
    let used = meter.end();
    let (phases, error) = drive.end().await?;
    let last = last.map_err(|_| format!("not all of {count} leases are gone after {PATIENCE:?}"))???;
    if let Some(error) = error {
        return Err(error.into());
    }
    let [_, before, during] = phases.as_slice() else { return Err("three phases were asked for".into()) };
    let mut figures = used.figures(count);
    figures.retain(|name, _| name != "rate");
    note(&mut figures, "gone_after_s", last.saturating_duration_since(due).as_secs_f64());
    note_latencies(&mut figures, "before_", &before.latencies);
    note_latencies(&mut figures, "", &during.latencies);
    Ok(figures)
}

const PUT: Work = Work::Put { batch: 1, order: Order::Drawn };

fn prefix_end() -> Vec<u8> {
    b"/leased0".to_vec()
}

/// Grants leases that run out just before `due`, each with a key.
async fn grant(common: &crate::Common, count: u64, due: Instant) -> Result<(), Failure> {
    let mut tasks: JoinSet<Result<(), Failure>> = JoinSet::new();
    let mut channels = Vec::new();
    for _ in 0..GRANT_CONNECTIONS {
        channels.push(connect(common).await?);
    }
    for (first, channel) in (0..GRANTERS).zip(channels.iter().cycle()) {
        let channel = channel.clone();
        tasks.spawn(async move {
            let (mut leases, mut kv) = (LeaseClient::new(channel.clone()), KvClient::new(channel));
            for number in (first..count).step_by(usize::try_from(GRANTERS)?) {
                let ttl = i64::try_from(due.saturating_duration_since(Instant::now()).as_secs())?;
                let lease = leases.lease_grant(pb::LeaseGrantRequest { ttl, id: 0 }).await?.into_inner().id;
                let key = format!("{LEASED}{number:010}").into_bytes();
                kv.put(pb::PutRequest { key, lease, value: b"held".to_vec(), ..Default::default() }).await?;
            }
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// When the last of `count` keys was deleted.
async fn all_gone(mut stream: WatchStream, count: u64) -> Result<Instant, Failure> {
    let mut gone = 0;
    while gone < count {
        let reply = stream.next().await?.ok_or("the watch ended")?;
        gone += u64::try_from(reply.events.len())?;
    }
    Ok(Instant::now())
}
