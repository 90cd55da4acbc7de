//! What a Kubernetes cluster asks for, and reads while the disk is slow.

use tokio::task::JoinSet;

use crate::Failure;
use crate::bench::cell::{Cell, Size};
use crate::bench::figures::{Figures, note};
use crate::bench::phases::Drive;
use crate::bench::place::output;
use crate::beside::Beside;
use crate::drive::{connect, workers};
use crate::keys::{PREFIX, end};
use crate::watch::WatchStream;
use crate::worker::{Order, Work};

/// Of 313 clients with 16 keys each two share eight of the hot keys, so that some updates find that they are late.
const CLUSTER: Size = Size { clients: 313, connections: 16, keys: 5000, value_bytes: 512 };
const WATCHES: usize = 10;
const COMPACT_EVERY_S: u64 = 30;
/// Times as long as other rows: compaction is a part of it.
const TIMES: u32 = 6;

const DELAY: &str = "inject=fdatasync,fsync:delay_enter=120000";
const SLOW_READERS: Size = Size { clients: 16, connections: 16, keys: 10_000, value_bytes: 256 };
const SLOW_WRITERS: Size = Size { clients: 40, ..SLOW_READERS };

/// Updates of leases, gets, lists, large objects, watches and compaction.
pub(crate) async fn kubernetes(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    cell.fill(CLUSTER.keys, CLUSTER.value_bytes).await?;
    cell.rest().await?;
    let mut common = cell.common(CLUSTER);
    common.compact_every = cell.scaled(COMPACT_EVERY_S);
    let mut watches = JoinSet::new();
    for _ in 0..WATCHES {
        let mut stream = WatchStream::open(connect(&common).await?, PREFIX.into(), end()).await?;
        watches.spawn(async move { while let Ok(Some(_)) = stream.next().await {} });
    }
    let beside = Beside::begin(&common).await?;
    let before = cell.place.written(cell.server.pid())?;
    let measured = cell.measured;
    cell.measured = measured * TIMES;
    let result = cell.steady(CLUSTER, Work::Kubernetes, 0).await;
    cell.measured = measured;
    let (mut figures, requests) = result?;
    if !watches.is_empty() && watches.try_join_next().is_some() {
        return Err("a watch ended".into());
    }
    beside.end()?;
    drop(watches);
    let after = cell.written_at_rest().await?;
    note(&mut figures, "written_bytes", (after - before) as f64 / requests as f64);
    Ok(figures)
}

/// Linearizable gets while each fdatasync and fsync takes 120 ms more, which a tracer sees to, and writers wait for them.
pub(crate) async fn slow_disk(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    output("strace", &["--version"]).map_err(|failure| format!("strace delays the syncs: {failure}"))?;
    cell.fill(SLOW_READERS.keys, SLOW_READERS.value_bytes).await?;
    #[rustfmt::skip]
    cell.server.trace_by(&[
        "strace", "-f", "-D", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync", "-e", DELAY,
    ]);
    cell.rest().await?;
    let work = Work::Put { batch: 1, order: Order::Drawn };
    let writers = Drive::begin(workers(&cell.common(SLOW_WRITERS), work).await?, 0, cell.first_turn(), 1);
    let result = cell.steady(SLOW_READERS, Work::Get { serializable: false }, 0).await;
    let (written, error) = writers.end().await?;
    if let Some(error) = error {
        return Err(error.into());
    }
    let (mut figures, _) = result?;
    let written = written.first().ok_or("no phase was asked for")?;
    // A delay that is not there would make this row easy.
    let put_ms = written.latencies.value_at_quantile(0.5) as f64 / 1000.0;
    if put_ms < 100.0 {
        return Err(format!("half of the puts took less than {put_ms} ms: nothing delays the syncs").into());
    }
    note(&mut figures, "put_p50_ms", put_ms);
    Ok(figures)
}
