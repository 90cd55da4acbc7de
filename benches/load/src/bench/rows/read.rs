//! Lists, pages, streams and counts.

use std::time::Duration;

use crate::Failure;
use crate::bench::cell::{Cell, Size};
use crate::bench::figures::{Figures, Meter, note, note_latencies};
use crate::drive::{drive, workers};
use crate::worker::Work;

const FEW: usize = 4;
const LIST_KEYS: u64 = 10_000;
const LIST_BYTES: usize = 1024;
const BIG_KEYS: u64 = 150_000;
const BIG_BYTES: usize = 10 * 1024;
const BIG_PAGE: u64 = 10_000;
/// Scans of everything that are measured where one takes seconds.
const SCANS: u64 = 3;
/// Keys of a page that hardly takes memory.
const SMALL_PAGE: i64 = 50;
/// How long a server may take to come to rest.
const REST: Duration = Duration::from_secs(3);

/// Everything in one reply.
pub(crate) async fn list(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    read(cell, LIST_KEYS, LIST_BYTES, Work::Pages { limit: 0 }).await
}

/// Everything in pages of 500 at the revision of the first.
pub(crate) async fn pages(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    read(cell, LIST_KEYS, LIST_BYTES, Work::Pages { limit: 500 }).await
}

/// How many there are.
pub(crate) async fn count(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    read(cell, BIG_KEYS, BIG_BYTES, Work::Counts).await
}

/// All keys without their values.
pub(crate) async fn keys_only(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    read(cell, BIG_KEYS, BIG_BYTES, Work::KeysOnly).await
}

/// 1.5 GB in pages.
pub(crate) async fn big_pages(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    let limit = i64::try_from(cell.scaled(BIG_PAGE))?;
    scan(cell, Work::Pages { limit }).await
}

/// 1.5 GB as a stream.
pub(crate) async fn big_stream(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    scan(cell, Work::Stream).await
}

async fn read(cell: &mut Cell<'_>, keys: u64, value_bytes: usize, work: Work) -> Result<Figures, Failure> {
    let size = Size { clients: FEW, connections: FEW, keys: cell.scaled(keys), value_bytes };
    cell.fill(size.keys, value_bytes).await?;
    Ok(cell.steady(size, work, 0).await?.0)
}

/// A few scans by one client. A request is a page or a piece, what is asked for is a scan.
async fn scan(cell: &mut Cell<'_>, work: Work) -> Result<Figures, Failure> {
    let keys = cell.scaled(BIG_KEYS);
    let size = Size { clients: 1, connections: 1, keys, value_bytes: BIG_BYTES };
    cell.fill(keys, BIG_BYTES).await?;
    // Neither what filling left in memory nor a cache that fills up is growth: it begins with full caches, and a read of
    // everything in small pages.
    cell.rest().await?;
    let mut common = cell.common(size);
    common.count = 1;
    drive(workers(&common, Work::Pages { limit: SMALL_PAGE }).await?, &common).await?;
    tokio::time::sleep(REST).await;
    common.count = SCANS;
    let workers = workers(&common, work).await?;
    let meter = Meter::begin(cell.server.pid());
    let (latencies, items) = drive(workers, &common).await?;
    let used = meter.end();
    if items != SCANS * keys {
        return Err(format!("{SCANS} scans of {keys} keys gave {items}").into());
    }
    let mut figures = used.figures(latencies.len());
    note(&mut figures, "items_rate", items as f64 / used.seconds());
    note(&mut figures, "growth_mib", used.growth_mib());
    note_latencies(&mut figures, "", &latencies);
    Ok(figures)
}
