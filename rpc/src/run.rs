//! The life of the server: settings, runtime, bind, open, serve, wait, drain with a deadline.

use std::mem::ManuallyDrop;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use compaction::Progress;
use storage::{Environment, Keyspace, SystemClock, SystemEntropy};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{error, info, warn};

use crate::auto_compaction;
use crate::commands;
use crate::edge::{self, Doors, Grpc, Listener, Tls, TlsSettings};
use crate::flags::{self, Settings};
use crate::join::{self, Api};
use crate::logging;
use crate::metrics::Metrics;
use crate::pages;
use crate::scrub;
use crate::shrink;
use crate::signals::{Signal, Signals};

/// How long requests may take to finish once the end was asked for.
const DRAIN: Duration = Duration::from_secs(3);
/// When a stop in order ends, whatever is left: what was not flushed by then is in the log.
const STOP: Duration = Duration::from_millis(4_500);
/// How long clients may take to hear that the keyspace failed.
const DRAIN_AFTER_FAILURE: Duration = Duration::from_millis(500);

/// Reads that are carried out at the same time; further ones wait. Each may hold a page of a list, and each thread keeps some of the memory that
/// it has used: with as many as tokio allows, 64 clients that list 500 keys now and then made 310 MiB resident.
const READERS_MAX: usize = 16;

/// Runs a command or the server and gives the exit code of the process.
pub(crate) fn run() -> ExitCode {
    end_at_a_panic();
    let settings = match flags::arguments() {
        Ok(arguments) => match commands::run(&arguments) {
            Some(code) => return code,
            None => flags::from_process(&arguments),
        },
        Err(stop) => Err(stop),
    };
    match settings {
        Ok(settings) => serve_until_the_end(settings),
        Err(stop) => stop.report(),
    }
}

fn serve_until_the_end(settings: Settings) -> ExitCode {
    logging::start(&settings.logging);
    let threads = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("rpc")
        .max_blocking_threads(READERS_MAX)
        .build();
    let runtime = match threads {
        Ok(runtime) => runtime,
        Err(error) => return refuse(format_args!("cannot start threads: {error}")),
    };
    let code = runtime.block_on(start(settings));
    // Not dropped: that would wait for calls that a broken disk never answers.
    runtime.shutdown_background();
    code
}

/// A panic is a mistake of ours or damage within the database file, and leaves a thread less: one line, and the process ends. What was
/// acknowledged is in the log.
fn end_at_a_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let what = panic.to_string().replace('\n', " ");
        eprintln!("sternpost: ended by a fault, or by damage to the database file: {what}");
        std::process::exit(1);
    }));
}

/// Says in one line on stderr why the server does not start.
fn refuse(why: impl std::fmt::Display) -> ExitCode {
    eprintln!("sternpost: {}", why.to_string().replace('\n', " "));
    ExitCode::FAILURE
}

/// Everything before the first request. Addresses come first, so that a second server started by mistake touches no
/// data; the log stays silent until the start has succeeded, so that a failure is one line.
async fn start(settings: Settings) -> ExitCode {
    let mut signals = match Signals::install() {
        Ok(signals) => signals,
        Err(error) => return refuse(format_args!("cannot handle signals: {error}")),
    };
    if let Some(Err(why)) = settings.tls.as_ref().map(TlsSettings::check) {
        return refuse(why);
    }
    let listeners = match edge::bind(&settings.listen).await {
        Ok(listeners) => listeners,
        Err(why) => return refuse(why),
    };
    let opened = tokio::select! {
        opened = open(&settings) => opened,
        // Opening is no different from a crash to the files, so it need not be waited for.
        signal = signals.next() => return signal.exit_code(),
    };
    let keyspace = match opened {
        Ok(keyspace) => keyspace,
        Err(why) => return refuse(format_args!("cannot open {}: {why}", settings.data_dir.display())),
    };
    // A certificate of our own making is kept in the data directory, which is ours from here on.
    let tls = match settings.tls.clone().map(Tls::load).transpose() {
        Ok(tls) => tls.map(Arc::new),
        Err(why) => return refuse(why),
    };
    announce(&settings, &listeners, &keyspace);
    serve(settings, listeners, tls, keyspace, signals).await
}

async fn open(settings: &Settings) -> Result<Keyspace, String> {
    let (dir, options) = (settings.data_dir.clone(), settings.storage.clone());
    let environment = Environment {
        fs: Arc::new(storage::fs::RealFs),
        clock: Arc::new(SystemClock::new()),
        entropy: Arc::new(SystemEntropy),
    };
    let opening = tokio::task::spawn_blocking(move || Keyspace::open(&dir, options, environment));
    match opening.await {
        Ok(opened) => opened.map_err(|error| error.to_string()),
        Err(panic) => Err(panic.to_string()),
    }
}

fn announce(settings: &Settings, listeners: &[Listener], keyspace: &Keyspace) {
    info!(version = env!("CARGO_PKG_VERSION"), api = flags::API_VERSION, name = settings.name, "sternpost starts");
    info!("settings: {}", settings.summary());
    if let Some(line) = settings.without_effect_line() {
        info!("{line}");
    }
    settings.warnings.iter().for_each(|warning| warn!("{warning}"));
    let status = keyspace.status();
    let created = status.opened.created;
    info!(path = %settings.data_dir.display(), created, size_bytes = status.size_bytes, "data directory");
    let (frames_replayed, bytes_read) = (status.opened.frames_replayed, status.opened.bytes_read);
    info!(revision = %status.revision, compacted = %status.compacted, frames_replayed, bytes_read, "recovered");
    for error in &status.opened.damage {
        warn!(%error, "the log is damaged where it is not needed any more: the database file has what was there");
    }
    for endpoint in listeners.iter().map(Listener::endpoint) {
        info!(address = %endpoint, serves = %endpoint.serves, "listening");
    }
}

/// Serves until a signal or a final error, then ends.
async fn serve(
    settings: Settings,
    listeners: Vec<Listener>,
    tls: Option<Arc<Tls>>,
    keyspace: Keyspace,
    mut signals: Signals,
) -> ExitCode {
    let (stop, stopped) = watch::channel(false);
    let metrics = Arc::new(Metrics::new());
    let api = join::api(&keyspace, &settings, &metrics, stopped.clone());
    let (progress, retained) = watch::channel(Progress::default());
    let subject = join::subject(&keyspace, &settings, &metrics, retained);
    let grpc = Grpc {
        routes: api.grpc.clone(),
        methods: api.methods,
        message_bytes_max: settings.limits.message_bytes_max,
        calls: Arc::clone(&metrics.calls),
    };
    let doors = Doors::new(grpc, pages::routes(Arc::clone(&subject)), pages::probes(subject));
    tokio::spawn(auto_compaction::run(keyspace.clone(), settings.retention, progress, stopped.clone()));
    if let Some(interval) = settings.shrink_interval {
        let segment_bytes = settings.storage.segment_bytes;
        let metrics = Arc::clone(&metrics);
        tokio::spawn(shrink::run(keyspace.clone(), interval, segment_bytes, metrics, stopped.clone()));
    }
    if let Some(interval) = settings.scrub_interval {
        tokio::spawn(scrub::run(keyspace.clone(), interval, metrics, stopped.clone()));
    }
    let server = tokio::spawn(edge::serve(listeners, doors, tls, settings.limits, stopped));
    let watched = keyspace.clone();
    let mut ending = Ending { keyspace: ManuallyDrop::new(keyspace), api, stop, server };
    tokio::select! {
        signal = signals.next() => ending.in_order(signal, &mut signals).await,
        error = watched.failed() => ending.after_failure(&error).await,
    }
}

/// What has to end, in this order: requests, the keyspace, the process.
struct Ending {
    /// When this is gone the process ends: a destructor that waits for a disk must not delay that.
    keyspace: ManuallyDrop<Keyspace>,
    api: Api,
    stop: watch::Sender<bool>,
    server: tokio::task::JoinHandle<()>,
}

impl Ending {
    /// Finishes what was begun, flushes, and ends with 0; a second signal ends it at once.
    async fn in_order(&mut self, signal: Signal, signals: &mut Signals) -> ExitCode {
        info!(%signal, "stopping");
        let keyspace = Keyspace::clone(&self.keyspace);
        tokio::select! {
            code = self.drain_and_close() => code,
            signal = signals.next() => {
                warn!(%signal, "stopping at once");
                signal.exit_code()
            }
            error = keyspace.failed() => self.after_failure(&error).await,
        }
    }

    async fn drain_and_close(&mut self) -> ExitCode {
        let end = Instant::now() + STOP;
        self.refuse_new_work().await;
        if timeout(DRAIN, &mut self.server).await.is_err() {
            warn!(after = ?DRAIN, "requests cut off");
            self.server.abort();
        }
        let keyspace = Keyspace::clone(&self.keyspace);
        match timeout_at(end, tokio::task::spawn_blocking(move || keyspace.close())).await {
            Ok(Ok(Ok(()))) => info!("stopped"),
            Ok(Ok(Err(error))) => {
                error!(%error, "the keyspace could not be closed in order");
                return ExitCode::FAILURE;
            }
            Ok(Err(panic)) => {
                error!(%panic, "the keyspace could not be closed in order");
                return ExitCode::FAILURE;
            }
            Err(_) => warn!("stopped without a complete flush; the next start replays the log"),
        }
        ExitCode::SUCCESS
    }

    /// Tells clients and ends with 1. The keyspace is left as it is: nothing more must be written to a disk that failed.
    async fn after_failure(&mut self, error: &storage::Error) -> ExitCode {
        error!(%error, "the keyspace failed; the server ends");
        self.refuse_new_work().await;
        if !self.server.is_finished() && timeout(DRAIN_AFTER_FAILURE, &mut self.server).await.is_err() {
            self.server.abort();
        }
        ExitCode::FAILURE
    }

    /// Health says no first, so that no client is sent here while connections end.
    async fn refuse_new_work(&mut self) {
        self.api.health.set_serving(false);
        self.stop.send_replace(true);
    }
}
