//! Watches: delivery to many, memory, and watches that have nothing to do with what is written.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use crate::Failure;
use crate::bench::cell::{Cell, Size};
use crate::bench::figures::{Figures, Meter, note, note_latencies};
use crate::drive::{connect, connect_kv};
use crate::keys::{PREFIX, end, key};
use crate::pb::etcdserverpb as pb;
use crate::report::{Latencies, latencies, record};
use crate::watch::WatchStream;
use crate::worker::{Order, Work};

const STREAMS: u64 = 100;
const CONNECTIONS: usize = 10;
const VALUE_BYTES: usize = 256;
/// How long events may take that were caused before the end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a server may take to come to rest.
const REST: Duration = Duration::from_secs(3);
const MEMORY_WATCHES: u64 = 100_000;
const DISTINCT_WATCHES: u64 = 10_000;

/// What all streams of a run share.
struct Delivery {
    epoch: Instant,
    /// The revision before the first put.
    before: i64,
    /// The last put's revision; 0 while puts go on.
    last: AtomicU64,
    events: AtomicU64,
    measured: AtomicBool,
}

/// `watches` watches of everything, `rate` puts a second. A request is an event.
pub(crate) async fn fan_out(cell: &mut Cell<'_>, watches: u64, rate: u64) -> Result<Figures, Failure> {
    let watches = cell.scaled(watches);
    let streams = open(cell, watches, |_| (PREFIX.into(), end())).await?;
    let mut kv = connect_kv(&cell.common(size(1))).await?;
    let header = kv.range(pb::RangeRequest { key: key(0), ..Default::default() }).await?.into_inner().header;
    let delivery = Arc::new(Delivery {
        epoch: Instant::now(),
        before: header.ok_or("an answer without header")?.revision,
        last: AtomicU64::new(0),
        events: AtomicU64::new(0),
        measured: AtomicBool::new(false),
    });
    let mut followers = JoinSet::new();
    for (stream, watches) in streams {
        followers.spawn(follow(stream, watches, Arc::clone(&delivery)));
    }
    let seconds = |time: Duration| time.as_secs_f64() * rate as f64;
    let (warm_up, all) = (seconds(cell.warm_up()).ceil(), seconds(cell.warm_up() + cell.measured).ceil());
    let mut puts = JoinSet::new();
    let mut meter = None;
    let mut turn = 0_u64;
    while (turn as f64) < all {
        sleep_until((delivery.epoch + Duration::from_secs_f64(turn as f64 / rate as f64)).into()).await;
        if turn as f64 >= warm_up && meter.is_none() {
            meter = Some((Meter::begin(cell.server.pid()), delivery.events.load(Ordering::SeqCst)));
            delivery.measured.store(true, Ordering::SeqCst);
        }
        puts.spawn(put(kv.clone(), turn, delivery.epoch));
        turn += 1;
    }
    let (meter, before) = meter.ok_or("nothing was measured")?;
    let (used, events) = (meter.end(), delivery.events.load(Ordering::SeqCst) - before);
    delivery.measured.store(false, Ordering::SeqCst);
    while let Some(ended) = puts.join_next().await {
        ended??;
    }
    delivery.last.store(u64::try_from(delivery.before)? + turn, Ordering::SeqCst);
    // Followers see that the end is known with the next event.
    put(kv, turn, delivery.epoch).await?;
    let mut all = latencies()?;
    while let Some(ended) = timeout(PATIENCE, followers.join_next()).await? {
        all.add(ended??)?;
    }
    let mut figures = used.figures(events);
    note_latencies(&mut figures, "", &all);
    Ok(figures)
}

/// What watches that see nothing take.
pub(crate) async fn memory(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    let watches = cell.scaled(MEMORY_WATCHES);
    sleep(REST).await;
    let meter = Meter::begin(cell.server.pid());
    let streams = open(cell, watches, |number| (key(number), Vec::new())).await?;
    sleep(REST).await;
    let used = meter.end();
    let mut figures = used.figures(watches);
    figures.retain(|name, _| name != "rate");
    note(&mut figures, "growth_mib", used.growth_mib());
    drop(streams);
    Ok(figures)
}

/// Puts of one key beside one watch of it, then beside many more of other keys.
pub(crate) async fn distinct(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    let work = Work::Put { batch: 1, order: Order::Ascending };
    let size = Size { clients: 16, keys: 1, ..size(4) };
    let mut drains = JoinSet::new();
    for (mut stream, _) in open(cell, 1, |_| (key(0), Vec::new())).await? {
        drains.spawn(async move { while let Ok(Some(_)) = stream.next().await {} });
    }
    let (alone, _) = cell.steady(size, work, 0).await?;
    let streams = open(cell, cell.scaled(DISTINCT_WATCHES) - 1, |number| (key(number + 1), Vec::new())).await?;
    let (mut figures, _) = cell.steady(size, work, 0).await?;
    for name in ["rate", "cpu_us", "p99_ms"] {
        note(&mut figures, &format!("alone_{name}"), alone.get(name).copied().unwrap_or(f64::NAN));
    }
    drop((streams, drains));
    Ok(figures)
}

fn size(connections: usize) -> Size {
    Size { clients: 1, connections, keys: 100_000, value_bytes: VALUE_BYTES }
}

/// Streams with `watches` watches in all, and how many each has. `range` gives key and end of each.
async fn open(
    cell: &Cell<'_>,
    watches: u64,
    range: impl Fn(u64) -> (Vec<u8>, Vec<u8>),
) -> Result<Vec<(WatchStream, u64)>, Failure> {
    let common = cell.common(size(CONNECTIONS));
    let count = STREAMS.min(watches);
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        channels.push(connect(&common).await?);
    }
    let mut opening = JoinSet::new();
    for (first, channel) in (0..count).zip(channels.iter().cycle()) {
        let step = usize::try_from(count)?;
        let ranges: Vec<_> = (first..watches).step_by(step).map(&range).collect();
        opening.spawn(open_one(channel.clone(), ranges));
    }
    let mut streams = Vec::new();
    while let Some(opened) = opening.join_next().await {
        streams.push(opened??);
    }
    Ok(streams)
}

async fn open_one(
    channel: tonic::transport::Channel,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
) -> Result<(WatchStream, u64), Failure> {
    let watches = u64::try_from(ranges.len())?;
    let mut ranges = ranges.into_iter();
    let (key, end) = ranges.next().ok_or("a stream without a watch")?;
    let mut stream = WatchStream::open(channel, key, end).await?;
    for (key, end) in ranges {
        stream.create(key, end).await?;
    }
    Ok((stream, watches))
}

/// A put whose value begins with the time since `epoch`.
async fn put(mut kv: crate::drive::KvClient, turn: u64, epoch: Instant) -> Result<(), Failure> {
    let mut value = u64::try_from(epoch.elapsed().as_micros())?.to_le_bytes().to_vec();
    value.resize(VALUE_BYTES, b'v');
    kv.put(pb::PutRequest { key: key(turn % 1000), value, ..Default::default() }).await?;
    Ok(())
}

/// Takes the events of `watches` watches up to the last one. Errors: an event is missing, comes twice, or out of order.
async fn follow(mut stream: WatchStream, watches: u64, delivery: Arc<Delivery>) -> Result<Latencies, Failure> {
    let mut own = latencies()?;
    let mut seen: HashMap<i64, i64> = HashMap::new();
    let mut complete = 0;
    while complete < watches {
        let reply = stream.next().await?.ok_or("the watch ended")?;
        if reply.canceled {
            return Err(format!("watch {} was canceled: {}", reply.watch_id, reply.cancel_reason).into());
        }
        let (now, measured) = (delivery.epoch.elapsed(), delivery.measured.load(Ordering::Relaxed));
        delivery.events.fetch_add(u64::try_from(reply.events.len())?, Ordering::Relaxed);
        let last = seen.entry(reply.watch_id).or_insert(delivery.before);
        let done = i64::try_from(delivery.last.load(Ordering::SeqCst))?;
        for event in reply.events {
            let kv = event.kv.ok_or("an event without a key")?;
            if kv.mod_revision != *last + 1 {
                let (watch, got) = (reply.watch_id, kv.mod_revision);
                return Err(format!("watch {watch} got revision {got} after {last}").into());
            }
            *last = kv.mod_revision;
            if measured {
                let stamp = kv.value.first_chunk::<8>().copied().unwrap_or_default();
                record(&mut own, now.saturating_sub(Duration::from_micros(u64::from_le_bytes(stamp))));
            }
        }
        // The put that follows the last one says so.
        if done > 0 && *last == done + 1 {
            complete += 1;
        }
    }
    Ok(own)
}
