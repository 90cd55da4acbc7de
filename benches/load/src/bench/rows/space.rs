//! Compaction and rewriting the database file while writers go on.

use std::time::Instant;

use tonic::transport::Channel;

use crate::Failure;
use crate::bench::cell::{Cell, Size};
use crate::bench::figures::{Figures, Meter, note, note_latencies};
use crate::bench::phases::{Drive, Phase};
use crate::beside::compact_now;
use crate::drive::{connect, workers};
use crate::pb::etcdserverpb as pb;
use crate::worker::{Order, Work};

const WRITE: Work = Work::Put { batch: 1, order: Order::Drawn };
const PUTS_PER_SECOND: u64 = 1000;
/// Few, because what they write is garbage too.
const PUTS_PER_SECOND_SHRINKING: u64 = 100;
const COMPACTED: u64 = 1_000_000;
const COMPACTED_SIZE: Size = Size { clients: 16, connections: 4, keys: 100_000, value_bytes: 256 };

/// Times that each key is written before the file is rewritten: nine of ten versions are garbage.
const VERSIONS: u64 = 10;
const SHRUNK_BYTES: u64 = 2 << 30;
const SHRUNK_VALUE: usize = 4096;

/// A million superseded revisions are compacted; puts before and meanwhile.
pub(crate) async fn compaction(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    let size = Size { keys: cell.scaled(COMPACTED_SIZE.keys), ..COMPACTED_SIZE };
    cell.put_all(0, cell.scaled(COMPACTED) + size.keys, size.keys, size.value_bytes).await?;
    cell.rest().await?;
    let common = cell.common(size);
    let (mut figures, failed) =
        beside(cell, size, PUTS_PER_SECOND, async move { compact_now(&common, true).await }).await?;
    if let Some(failed) = failed {
        return Err(failed.into());
    }
    if let Some(seconds) = figures.remove("work_s") {
        note(&mut figures, "swept_after_s", seconds);
    }
    Ok(figures)
}

/// A file of which nine tenths are garbage is rewritten; puts before and meanwhile.
pub(crate) async fn shrink(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    let keys = cell.scaled(SHRUNK_BYTES / VERSIONS / u64::try_from(SHRUNK_VALUE)?);
    let size = Size { keys, value_bytes: SHRUNK_VALUE, ..COMPACTED_SIZE };
    cell.put_all(0, VERSIONS * keys, keys, size.value_bytes).await?;
    compact_now(&cell.common(size), true).await?;
    cell.rest().await?;
    let channel = connect(&cell.common(size)).await?;
    let before = file_bytes(cell)?;
    let (mut figures, failed) = beside(cell, size, PUTS_PER_SECOND_SHRINKING, defragment(channel)).await?;
    let after = file_bytes(cell)?;
    let live = keys * (u64::try_from(size.value_bytes)? + u64::try_from(crate::keys::key(0).len())?);
    if let Some(failed) = failed {
        println!("a request failed: {failed}");
    }
    if let Some(seconds) = figures.remove("work_s") {
        note(&mut figures, "shrunk_after_s", seconds);
    }
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    note(&mut figures, "file_before_mib", mib(before));
    note(&mut figures, "file_after_mib", mib(after));
    note(&mut figures, "file_over_live", after as f64 / live as f64);
    Ok(figures)
}

async fn defragment(channel: Channel) -> Result<(), Failure> {
    let mut client = pb::maintenance_client::MaintenanceClient::new(channel);
    client.defragment(pb::DefragmentRequest {}).await?;
    Ok(())
}

/// Bytes that the database file takes.
fn file_bytes(cell: &Cell<'_>) -> Result<u64, Failure> {
    let found = cell.place.bytes_of(&["base.redb", "db"])?;
    if found == 0 { Err("there is no database file".into()) } else { Ok(found) }
}

/// Puts at `rate` for the measured time, then beside `work`, and half of the measured time longer. Answers the figures of the
/// second part, and what the first failed request said.
async fn beside(
    cell: &Cell<'_>,
    size: Size,
    rate: u64,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<(Figures, Option<String>), Failure> {
    let drive = Drive::begin(workers(&cell.common(size), WRITE).await?, rate, cell.first_turn(), 3);
    tokio::time::sleep(cell.warm_up()).await;
    drive.enter(1);
    tokio::time::sleep(cell.measured).await;
    let (meter, began) = (Meter::begin(cell.server.pid()), Instant::now());
    drive.enter(2);
    let result = work.await;
    let took = began.elapsed();
    tokio::time::sleep(cell.measured / 2).await;
    let used = meter.end();
    let (phases, error) = drive.end().await?;
    result?;
    let [_, before, during] = phases.as_slice() else { return Err("three phases were asked for".into()) };
    let mut figures = used.figures(during.requests());
    note_latencies(&mut figures, "before_", &before.latencies);
    note_latencies(&mut figures, "", &during.latencies);
    note(&mut figures, "work_s", took.as_secs_f64());
    note(&mut figures, "failed", phases.iter().map(|phase: &Phase| phase.failed as f64).sum());
    Ok((figures, error))
}
