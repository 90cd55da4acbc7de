//! Writing and reading single keys.

use std::fs::OpenOptions;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::time::Instant;

use prost::Message as _;

use crate::Failure;
use crate::bench::cell::{Cell, Size};
use crate::bench::figures::{Figures, note, note_latencies};
use crate::bench::server::Kind;
use crate::keys::{key, value};
use crate::pb::etcdserverpb as pb;
use crate::report::{latencies, record};
use crate::worker::{Order, Work};

const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 256;
const MANY: usize = 1000;
const CONNECTIONS: usize = 100;

/// One client.
pub(crate) async fn alone(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    if cell.server.kind == Kind::Disk {
        return append(cell);
    }
    let size = Size { clients: 1, connections: 1, keys: cell.scaled(KEYS), value_bytes: VALUE_BYTES };
    cell.fill(size.keys, VALUE_BYTES).await?;
    cell.steady_writes(size, Work::Put { batch: 1, order: Order::Drawn }, 0).await
}

/// A thousand clients.
pub(crate) async fn many(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    let size = Size { clients: MANY, connections: CONNECTIONS, keys: cell.scaled(KEYS), value_bytes: VALUE_BYTES };
    cell.fill(size.keys, VALUE_BYTES).await?;
    cell.steady_writes(size, Work::Put { batch: 1, order: Order::Drawn }, 0).await
}

/// Updates as an apiserver makes them, each client of keys of its own.
pub(crate) async fn cas(cell: &mut Cell<'_>, value_bytes: usize) -> Result<Figures, Failure> {
    let size = Size { clients: MANY, connections: CONNECTIONS, keys: KEYS, value_bytes };
    cell.steady_writes(size, Work::Cas, 0).await
}

/// Gets of any key, linearizable.
pub(crate) async fn get(cell: &mut Cell<'_>) -> Result<Figures, Failure> {
    let size = Size { clients: MANY, connections: CONNECTIONS, keys: cell.scaled(KEYS), value_bytes: VALUE_BYTES };
    cell.fill(size.keys, VALUE_BYTES).await?;
    Ok(cell.steady(size, Work::Get { serializable: false }, 0).await?.0)
}

/// Puts over so many keys.
pub(crate) async fn put_of(cell: &mut Cell<'_>, keys: u64) -> Result<Figures, Failure> {
    let size = scale_size(cell, keys);
    cell.fill(size.keys, VALUE_BYTES).await?;
    cell.steady_writes(size, Work::Put { batch: 1, order: Order::Drawn }, 0).await
}

/// Gets of so many keys.
pub(crate) async fn get_of(cell: &mut Cell<'_>, keys: u64) -> Result<Figures, Failure> {
    let size = scale_size(cell, keys);
    cell.fill(size.keys, VALUE_BYTES).await?;
    Ok(cell.steady(size, Work::Get { serializable: false }, 0).await?.0)
}

fn scale_size(cell: &Cell<'_>, keys: u64) -> Size {
    Size { clients: 64, connections: 16, keys: cell.scaled(keys), value_bytes: VALUE_BYTES }
}

/// Appends the bytes of a put and waits until they are on the disk; then the same over bytes that were written before.
fn append(cell: &Cell<'_>) -> Result<Figures, Failure> {
    let directory = cell.place.path();
    let mut figures = sync_each(cell, &directory.join("append"), false)?;
    for (name, value) in sync_each(cell, &directory.join("prewritten"), true)? {
        note(&mut figures, &format!("prewritten_{name}"), value);
    }
    Ok(figures)
}

fn sync_each(cell: &Cell<'_>, path: &Path, prewritten: bool) -> Result<Figures, Failure> {
    let put = pb::PutRequest { key: key(1), value: value(1, VALUE_BYTES), ..Default::default() }.encode_to_vec();
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    if prewritten {
        // More than can be synced in the time.
        file.write_all(&vec![0; 64 << 20])?;
        file.sync_all()?;
        file.rewind()?;
    }
    let (mut all, began) = (latencies()?, Instant::now());
    while began.elapsed() < cell.measured {
        let step = Instant::now();
        file.write_all(&put)?;
        file.sync_data()?;
        record(&mut all, step.elapsed());
    }
    let mut figures = Figures::new();
    note(&mut figures, "rate", all.len() as f64 / began.elapsed().as_secs_f64());
    note_latencies(&mut figures, "", &all);
    Ok(figures)
}
