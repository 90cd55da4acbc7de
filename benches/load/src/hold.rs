//! Clients that hold something and do nothing: what does the server keep for them?

use std::time::Duration;

use crate::drive::{connect, connect_kv, drive, workers};
use crate::keys::{PREFIX, end, key};
use crate::pb::etcdserverpb as pb;
use crate::report::{Measurement, latencies};
use crate::watch::WatchStream;
use crate::worker::{Order, Work};
use crate::{Common, Failure};

/// How long the server may take to come to rest.
const REST: Duration = Duration::from_secs(2);

/// A watch on everything that is never read, while puts run.
pub(crate) async fn slow_watch(common: &Common) -> Result<(), Failure> {
    let held = WatchStream::open(connect(common).await?, PREFIX.into(), end()).await?;
    let workers = workers(common, Work::Put { batch: 1, order: Order::Scattered }).await?;
    let measurement = Measurement::begin(common);
    let (latencies, items) = drive(workers, common).await?;
    measurement.end(&latencies, items);
    drop(held);
    Ok(())
}

/// Connections and watches without any use of them.
pub(crate) async fn idle(common: &Common, connected: usize, watches: u64) -> Result<(), Failure> {
    let mut connections = Vec::new();
    let mut stream = WatchStream::open(connect(common).await?, key(0), Vec::new()).await?;
    let measurement = Measurement::begin(common);
    for _ in 0..connected {
        let mut kv = connect_kv(common).await?;
        kv.range(pb::RangeRequest { key: key(0), ..Default::default() }).await?;
        connections.push(kv);
    }
    for number in 1..watches {
        stream.create(key(number), Vec::new()).await?;
    }
    tokio::time::sleep(REST).await;
    println!("{connected} connections, {watches} watches on one stream");
    measurement.end(&latencies()?, watches);
    drop((stream, connections));
    Ok(())
}
