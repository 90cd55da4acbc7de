//! One server in one round: what the work of a row has at hand.

use std::time::{Duration, Instant};

use crate::bench::figures::{Figures, Meter, note, note_latencies};
use crate::bench::phases::{Client, Drive, Phase};
use crate::bench::place::Place;
use crate::bench::server::{Kind, Server};
use crate::drive::{self, workers};
use crate::worker::{Order, Work};
use crate::{Common, Failure};

/// Bytes of values that a transaction may carry when a store is filled: etcd takes 1.5 MiB.
const FILL_BYTES: u64 = 1 << 20;
/// Puts that it may carry: etcd takes 128.
const FILL_PUTS: u64 = 100;
/// Turns of one seed: runs with different seeds ask for different keys.
const TURNS_OF_SEED: u64 = 1_000_000_007;

/// How long the first answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks whether it is there.
const LOOK: Duration = Duration::from_millis(10);

/// A running server over data of its own.
pub(crate) struct Cell<'a> {
    pub(crate) server: Server,
    pub(crate) place: &'a Place,
    /// 1 is the documented size.
    pub(crate) scale: f64,
    pub(crate) seed: u64,
    /// How long is measured.
    pub(crate) measured: Duration,
    /// Keys there are.
    pub(crate) filled: u64,
}

/// How many there are of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) clients: usize,
    pub(crate) connections: usize,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
}

impl Cell<'_> {
    /// `number` times the scale.
    pub(crate) fn scaled(&self, number: u64) -> u64 {
        let scaled = (number as f64 * self.scale).round().clamp(1.0, 1e12);
        // A float of this size is an exact integer.
        format!("{scaled:.0}").parse().unwrap_or(1)
    }

    /// How long is left for warming up.
    pub(crate) fn warm_up(&self) -> Duration {
        self.measured / 5
    }

    /// The first turn of this seed.
    pub(crate) fn first_turn(&self) -> u64 {
        self.seed.wrapping_mul(TURNS_OF_SEED) % (u64::MAX / 4)
    }

    /// What clients need to know.
    pub(crate) fn common(&self, size: Size) -> Common {
        Common {
            endpoint: self.server.endpoint.clone(),
            server_pid: self.server.pid(),
            disk: Vec::new(),
            clients: size.clients,
            connections: size.connections,
            keys: size.keys,
            value_bytes: size.value_bytes,
            count: 0,
            first: 0,
            rate: 0,
            compact_every: 0,
            slow_readers: 0,
            line: None,
        }
    }

    /// Puts each of the keys once, in an order without neighbours, unless they are there.
    pub(crate) async fn fill(&mut self, keys: u64, value_bytes: usize) -> Result<(), Failure> {
        if self.filled >= keys || matches!(self.server.kind, Kind::Disk | Kind::Floor) {
            return Ok(());
        }
        self.put_all(0, keys, keys, value_bytes).await?;
        self.filled = keys;
        Ok(())
    }

    /// Makes about `puts` puts of the first `keys` keys, in large transactions: in an order without neighbours, from the `first`th on.
    pub(crate) async fn put_all(&self, first: u64, puts: u64, keys: u64, value_bytes: usize) -> Result<(), Failure> {
        let batch = (FILL_BYTES / u64::try_from(value_bytes)?.max(1)).clamp(1, FILL_PUTS.min(keys));
        let size = Size { clients: 16, connections: 4, keys, value_bytes };
        let common = Common { first: first / batch, count: puts.div_ceil(batch), ..self.common(size) };
        let work = Work::Put { batch, order: Order::Scattered };
        drive::drive(workers(&common, work).await?, &common).await?;
        Ok(())
    }

    /// Stops the server in order and starts it again, so that nothing from before is still on its way to the disk.
    pub(crate) async fn rest(&mut self) -> Result<(), Failure> {
        self.server.stop().await?;
        self.server.run().await?;
        Ok(())
    }

    /// Has clients work for the warm-up and the measured time, at `rate` a second or without limit. Answers the figures and the requests
    /// made in all.
    pub(crate) async fn steady(&self, size: Size, work: Work, rate: u64) -> Result<(Figures, u64), Failure> {
        self.steady_with(workers(&self.common(size), work).await?, rate).await
    }

    /// The same with any clients.
    pub(crate) async fn steady_with<C: Client>(&self, clients: Vec<C>, rate: u64) -> Result<(Figures, u64), Failure> {
        let drive = Drive::begin(clients, rate, self.first_turn(), 3);
        tokio::time::sleep(self.warm_up()).await;
        let meter = Meter::begin(self.server.pid());
        drive.enter(1);
        let (answered, began) = (drive.answered(), Instant::now());
        // A slow machine may need longer for one answer.
        while began.elapsed() < self.measured || (drive.answered() == answered && began.elapsed() < PATIENCE) {
            tokio::time::sleep(self.measured.saturating_sub(began.elapsed()).max(LOOK)).await;
        }
        let used = meter.end();
        drive.enter(2);
        let (phases, error) = drive.end().await?;
        if let Some(error) = error {
            return Err(error.into());
        }
        let all = phases.iter().map(Phase::requests).sum();
        let phase = phases.get(1).ok_or("no phase was measured")?;
        if phase.requests() == 0 {
            return Err(format!("no request was answered within {PATIENCE:?}").into());
        }
        let mut figures = used.figures(phase.requests());
        if phase.items != phase.requests() {
            note(&mut figures, "items_rate", phase.items as f64 / used.seconds());
        }
        note_latencies(&mut figures, "", &phase.latencies);
        Ok((figures, all))
    }

    /// The same for requests that change something, with the bytes from rest to rest: what a stop in order writes is
    /// part of what they cost.
    pub(crate) async fn steady_writes(&mut self, size: Size, work: Work, rate: u64) -> Result<Figures, Failure> {
        self.rest().await?;
        let before = self.place.written(self.server.pid())?;
        let (mut figures, requests) = self.steady(size, work, rate).await?;
        let after = self.written_at_rest().await?;
        note(&mut figures, "written_bytes", (after - before) as f64 / requests as f64);
        Ok(figures)
    }

    /// Bytes written so far, with what a stop in order writes; the server runs again afterwards.
    pub(crate) async fn written_at_rest(&mut self) -> Result<u64, Failure> {
        // Of a process that has ended, /proc says nothing.
        let running = self.place.written(self.server.pid())?;
        self.server.stop().await?;
        let stopped = self.place.written(None)?;
        self.server.run().await?;
        Ok(stopped.max(running))
    }
}
