//! Clients that go on until they are told to stop, while the time is divided into phases.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Failure;
use crate::report::{Latencies, latencies, record};
use crate::worker::{Done, Worker};

/// How long a client waits after an error, so that a dead server is not asked a million times a second.
const AFTER_ERROR: Duration = Duration::from_millis(10);

/// What was answered in one phase. A request counts where its answer came, so a stall counts where it ended.
pub(crate) struct Phase {
    /// From when a request was begun, or from when it was due, if requests are made at a rate.
    pub(crate) latencies: Latencies,
    /// What the requests carried.
    pub(crate) items: u64,
    /// Requests that were answered with an error; they are in nothing else.
    pub(crate) failed: u64,
}

/// Makes one request after the other.
pub(crate) trait Client: Send + 'static {
    /// Makes the `turn`th request of all clients together.
    fn once(&mut self, turn: u64) -> impl Future<Output = Result<Done, Failure>> + Send;
}

impl Client for Worker {
    async fn once(&mut self, turn: u64) -> Result<Done, Failure> {
        Worker::once(self, turn).await
    }
}

/// Clients at work.
pub(crate) struct Drive {
    shared: Arc<Shared>,
    tasks: JoinSet<Result<Vec<Phase>, Failure>>,
    phases: usize,
}

struct Shared {
    phase: AtomicUsize,
    stop: AtomicBool,
    turns: AtomicU64,
    answered: AtomicU64,
    first: u64,
    rate: u64,
    epoch: Instant,
    error: std::sync::Mutex<Option<String>>,
}

impl Phase {
    fn new() -> Result<Phase, Failure> {
        Ok(Phase { latencies: latencies()?, items: 0, failed: 0 })
    }

    /// Requests that were answered well.
    pub(crate) fn requests(&self) -> u64 {
        self.latencies.len()
    }
}

impl Drive {
    /// Sets the clients to work in phase 0 of `phases`: `rate` requests a second, or as many as they can for 0. The first request is the
    /// `first`th, which decides what it asks for.
    pub(crate) fn begin<C: Client>(clients: Vec<C>, rate: u64, first: u64, phases: usize) -> Drive {
        let shared = Arc::new(Shared {
            phase: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            first,
            rate,
            epoch: Instant::now(),
            error: std::sync::Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for client in clients {
            tasks.spawn(work(client, Arc::clone(&shared), phases));
        }
        Drive { shared, tasks, phases }
    }

    /// From now on answers count for this phase.
    pub(crate) fn enter(&self, phase: usize) {
        self.shared.phase.store(phase, Ordering::SeqCst);
    }

    /// Requests that were answered so far, well or not.
    pub(crate) fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::SeqCst)
    }

    /// Ends when all that was begun is answered. Gives each phase, and what the first error said.
    pub(crate) async fn end(mut self) -> Result<(Vec<Phase>, Option<String>), Failure> {
        self.shared.stop.store(true, Ordering::SeqCst);
        let mut all = (0..self.phases).map(|_| Phase::new()).collect::<Result<Vec<_>, _>>()?;
        while let Some(ended) = self.tasks.join_next().await {
            for (sum, own) in all.iter_mut().zip(ended??) {
                sum.latencies.add(own.latencies)?;
                sum.items += own.items;
                sum.failed += own.failed;
            }
        }
        let error = self.shared.error.lock().map_err(|_| "a client panicked")?.take();
        Ok((all, error))
    }
}

async fn work<C: Client>(mut client: C, shared: Arc<Shared>, phases: usize) -> Result<Vec<Phase>, Failure> {
    let mut own = (0..phases).map(|_| Phase::new()).collect::<Result<Vec<_>, _>>()?;
    while !shared.stop.load(Ordering::Relaxed) {
        let turn = shared.turns.fetch_add(1, Ordering::Relaxed);
        let mut began = Instant::now();
        if shared.rate > 0 {
            began = shared.epoch + Duration::from_secs_f64(turn as f64 / shared.rate as f64);
            tokio::time::sleep_until(began.into()).await;
        }
        let done = client.once(shared.first + turn).await;
        let phase = own.get_mut(shared.phase.load(Ordering::SeqCst)).ok_or("there is no such phase")?;
        match done {
            Ok(done) => {
                record(&mut phase.latencies, began.elapsed());
                phase.items += done.items;
            }
            Err(failure) => {
                phase.failed += 1;
                shared.error.lock().map_err(|_| "a client panicked")?.get_or_insert_with(|| failure.to_string());
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
        shared.answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(own)
}
