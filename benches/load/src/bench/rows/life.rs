//! Starting after a kill, and doing nothing.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::Failure;
use crate::bench::cell::{Cell, Size};
use crate::bench::figures::{Figures, Meter, note};
use crate::bench::server::Kind;
use crate::process::{Usage, context_switches};

const VALUE_BYTES: usize = 256;
/// Puts between two looks at what is in memory.
const STEP: u64 = 1000;
/// Puts within which a flush must come.
const FLUSH_WITHIN: u64 = 1_000_000;
/// As full as memory is when the server is killed, of what it was when it was last flushed.
const NEARLY: f64 = 0.95;
/// Puts that etcd gets instead: about as many as Sternpost holds in memory.
const ETCD_TAIL: u64 = 57_000;
/// The metric that tells how many changes the part in memory has that will be flushed next.
const ACTIVE_CHANGES: &str = "sternpost_recent_changes{part=\"active\"}";
/// The same of the part that is being flushed.
const FLUSHING_CHANGES: &str = "sternpost_recent_changes{part=\"flushing\"}";
/// How often that is asked for.
const ASK: Duration = Duration::from_millis(50);
/// Times as long as other rows: ten minutes, after a minute and a half of coming to rest.
const TIMES: u32 = 60;
const TIMES_BEFORE: u32 = 9;

/// Killed just before a flush; how long until it answers again.
pub(crate) async fn start(cell: &mut Cell<'_>, keys: u64) -> Result<Figures, Failure> {
    let keys = cell.scaled(keys);
    cell.fill(keys, VALUE_BYTES).await?;
    let tail = match cell.server.kind {
        Kind::Sternpost => fill_memory(cell, keys).await?,
        _ => {
            cell.put_all(0, ETCD_TAIL, keys, VALUE_BYTES).await?;
            ETCD_TAIL
        }
    };
    cell.server.kill().await?;
    let ready = cell.server.run().await?;
    let usage = cell.server.pid().map(Usage::of).unwrap_or_default();
    let mut figures = Figures::new();
    note(&mut figures, "keys", keys as f64);
    note(&mut figures, "tail_puts", tail as f64);
    note(&mut figures, "ready_s", ready.as_secs_f64());
    note(&mut figures, "start_cpu_s", usage.cpu_micros as f64 / 1e6);
    note(&mut figures, "disk_read_bytes", usage.read as f64);
    note(&mut figures, "read_call_bytes", usage.read_calls as f64);
    note(&mut figures, "idle_mib", usage.resident_kib as f64 / 1024.0);
    note(&mut figures, "peak_mib", usage.peak_kib as f64 / 1024.0);
    Ok(figures)
}

/// Puts until memory is nearly as full as when it was flushed before, and waits until that flush is over. Answers how many puts are in memory.
async fn fill_memory(cell: &Cell<'_>, keys: u64) -> Result<u64, Failure> {
    let (mut most, mut last) = (0.0_f64, recent_changes(cell, ACTIVE_CHANGES)?);
    for first in (0..FLUSH_WITHIN).step_by(usize::try_from(STEP)?) {
        cell.put_all(first, STEP, keys, VALUE_BYTES).await?;
        let now = recent_changes(cell, ACTIVE_CHANGES)?;
        if now < last && most == 0.0 {
            most = last;
        }
        if most > 0.0 && now >= most * NEARLY && now < most {
            while recent_changes(cell, FLUSHING_CHANGES)? > 0.0 {
                tokio::time::sleep(ASK).await;
            }
            return Ok(format!("{now:.0}").parse()?);
        }
        last = now;
    }
    Err(format!("no flush within {FLUSH_WITHIN} puts").into())
}

fn recent_changes(cell: &Cell<'_>, name: &str) -> Result<f64, Failure> {
    let mut stream = TcpStream::connect(cell.server.endpoint.trim_start_matches("http://"))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.ok_or_else(|| format!("the metrics do not tell {name}"))?.trim().parse()?)
}

/// No client at all.
pub(crate) async fn idle(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    let pid = cell.server.pid().ok_or("no server")?;
    let size = Size { clients: 1, connections: 1, keys: cell.scaled(10_000), value_bytes: VALUE_BYTES };
    cell.fill(size.keys, size.value_bytes).await?;
    // What the filling leaves to be done is not idleness, nor what is done a minute after a start.
    cell.rest().await?;
    tokio::time::sleep(cell.measured * TIMES_BEFORE).await;
    let pid = cell.server.pid().unwrap_or(pid);
    let (written, switches) = (cell.place.written(Some(pid))?, context_switches(pid));
    let (meter, usage) = (Meter::begin(Some(pid)), Usage::of(pid));
    tokio::time::sleep(cell.measured * TIMES).await;
    let used = meter.end();
    let seconds = used.seconds();
    let mut figures = used.figures(1);
    for name in ["rate", "requests", "client_cpu_us", "cpu_us"] {
        figures.remove(name);
    }
    let micros = Usage::of(pid).cpu_micros.saturating_sub(usage.cpu_micros);
    note(&mut figures, "idle_s", seconds);
    note(&mut figures, "cpu_ms_per_minute", micros as f64 / 1000.0 / seconds * 60.0);
    note(&mut figures, "switches_per_second", context_switches(pid).saturating_sub(switches) as f64 / seconds);
    let bytes = cell.place.written(Some(pid))?.saturating_sub(written);
    note(&mut figures, "idle_written_bytes", bytes as f64);
    Ok(figures)
}
