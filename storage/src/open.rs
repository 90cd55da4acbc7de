//! Opening: the directory, the log, base, and what the log holds beyond base.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::apply::State;
use crate::base::Base;
use crate::engine::committer::{Bounds, Committer, Writer, replay};
use crate::engine::maintenance;
use crate::engine::queue::Queue;
use crate::engine::shared::{Head, Shared};
use crate::error::Error;
use crate::files::{Directory, Identity};
use crate::log::frame::MAX_FRAME_LEN;
use crate::log::{LocalLog, Log};
use crate::options::{Environment, Options};
use crate::read::Sources;
use crate::recent::Part;
use crate::reply::OpenReport;
use crate::types::{Digest, Position, WriterId};
use crate::watch::hub::Hub;

/// Everything that an open keyspace consists of.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) shared: Arc<Shared>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) directory: Directory,
    pub(crate) threads: Threads,
    pub(crate) report: OpenReport,
}

/// The threads of a keyspace.
#[derive(Debug)]
pub(crate) struct Threads {
    committer: Option<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
    ended: Arc<AtomicBool>,
}

/// Frames read at once while replaying, in bytes.
const REPLAY_BYTES: usize = 4 << 20;

/// The committer's stack: transactions may be nested a few hundred deep.
const COMMITTER_STACK: usize = 16 << 20;

/// A frame of a batch must not exceed what a log takes, whatever the options say.
const BATCH_BYTES_MAX: usize = MAX_FRAME_LEN / 4;

/// Opens a data directory with its own log.
pub(crate) fn open(path: &Path, options: &Options, environment: &Environment) -> Result<Opened, Error> {
    let mut directory = Directory::open(&environment.fs, path, environment.entropy.as_ref())?;
    let (fs, id, created) = (&environment.fs, directory.identity.log, directory.fresh);
    let (log, base) = if created {
        let log = LocalLog::create(fs.clone(), &directory.log(), id, options.segment_bytes)?;
        let base = Base::create(fs, &directory.base(), options.cache_bytes)?;
        directory.complete()?;
        (log, base)
    } else {
        // The log is read first: if it is damaged, base has not been touched.
        let log = LocalLog::open(fs.clone(), &directory.log(), id, options.segment_bytes)?;
        (log, Base::open(fs, &directory.base(), options.cache_bytes)?)
    };
    let log_bytes_read = log.bytes_read();
    let mut opened = start(directory, base, Box::new(log), options, environment)?;
    opened.report.bytes_read += log_bytes_read + opened.shared.base.bytes_read();
    opened.report.created = created;
    Ok(opened)
}

/// Opens a data directory whose log is elsewhere, shared or simulated.
pub(crate) fn open_with_log(
    path: &Path,
    options: &Options,
    environment: &Environment,
    log: Box<dyn Log>,
) -> Result<Opened, Error> {
    let mut directory = Directory::open(&environment.fs, path, environment.entropy.as_ref())?;
    let base = if directory.fresh {
        let base = Base::create(&environment.fs, &directory.base(), options.cache_bytes)?;
        directory.complete()?;
        base
    } else {
        Base::open(&environment.fs, &directory.base(), options.cache_bytes)?
    };
    start(directory, base, log, options, environment)
}

fn start(
    directory: Directory,
    base: Base,
    mut log: Box<dyn Log>,
    options: &Options,
    environment: &Environment,
) -> Result<Opened, Error> {
    let mut state = State::new(base.small_tables()?);
    let flushed = state.applied.position;
    check_log(log.as_mut(), flushed, state.applied.digest)?;
    let sources = Sources { active: Arc::new(Part::default()), frozen: None, base: base.snapshot()? };
    let head = Head::new(&state, sources, log.size_bytes());
    let queue = Queue::new(options.queue_commands, options.queue_bytes);
    let shared = Arc::new(Shared::new(head, queue, environment.clock.clone(), base));
    let bounds = Bounds {
        bytes: options.recent_bytes,
        changes: options.recent_changes,
        batch_bytes: options.batch_bytes.min(BATCH_BYTES_MAX),
    };
    let frames_replayed = on_a_large_stack(|| replay_all(&shared, &mut state, log.as_mut(), bounds))??;
    shared.lessor.start(&state.leases, state.applied.time_ms, environment.clock.monotonic());
    let hub = Arc::new(Hub::new(state.applied.revision, options.watch_queue_bytes));
    let writer = new_writer(&state, directory.identity, environment);
    let committer = Committer { shared: shared.clone(), log, state, bounds, writer, trimmed: flushed.next() };
    let threads = Threads::spawn(committer, &shared, &hub)?;
    let report = OpenReport { frames_replayed, ..OpenReport::default() };
    Ok(Opened { shared, hub, directory, threads, report })
}

/// The log must reach from what base holds, without a gap and with the same history.
fn check_log(log: &mut dyn Log, flushed: Position, digest: Digest) -> Result<(), Error> {
    let mismatch = |position, reason: String| Err(Error::LogMismatch { position, reason });
    if log.first() > flushed.next() {
        return mismatch(flushed.next(), format!("the log begins at {}, base ends at {flushed}", log.first()));
    }
    if log.end() <= flushed {
        return mismatch(flushed, format!("the log ends before {}, base holds {flushed}", log.end()));
    }
    let Some(mut chain) = log.digest_before_first() else { return Ok(()) };
    let mut next = log.first();
    while next <= flushed {
        for frame in log.read(next, REPLAY_BYTES)?.into_iter().take_while(|frame| frame.position <= flushed) {
            chain = chain.chain(&frame.bytes);
            next = frame.position.next();
        }
    }
    if chain != digest {
        return mismatch(flushed, format!("the log's digest is {chain:?}, base's is {digest:?}"));
    }
    Ok(())
}

/// Does work with the committer's stack: what it committed is nested too deep for an ordinary one.
fn on_a_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("replay".to_owned()).stack_size(COMMITTER_STACK);
        let thread = thread.spawn_scoped(scope, work).map_err(|error| Error::io("start the replay thread", &error))?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Applies what the log holds beyond base. What does not fit into `recent` goes to base on the way.
fn replay_all(shared: &Shared, state: &mut State, log: &mut dyn Log, bounds: Bounds) -> Result<u64, Error> {
    let mut replayed = 0;
    loop {
        let frames = log.read(state.applied.position.next(), REPLAY_BYTES)?;
        if frames.is_empty() {
            break;
        }
        for stored in frames {
            let sources = shared.head().sources.clone();
            replay(state, &sources, &stored)?;
            replayed += 1;
            if bounds.reached(&sources.active) {
                state.seal(&sources.active);
                shared.publish(Head::freeze);
                maintenance::bring(shared, &sources.active)?;
            }
        }
    }
    shared.publish(|head| head.take_over(state));
    Ok(replayed)
}

fn new_writer(state: &State, identity: Identity, environment: &Environment) -> Writer {
    let last = state.writers.get(&identity.member);
    Writer {
        member: identity.member,
        generation: last.map_or(0, |last| last.generation) + 1,
        id: WriterId(environment.entropy.next_u64()),
        number: 0,
    }
}

impl Threads {
    fn spawn(committer: Committer, shared: &Arc<Shared>, hub: &Arc<Hub>) -> Result<Threads, Error> {
        let ended = Arc::new(AtomicBool::new(false));
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let fail = |error| Error::io("start a thread", &error);
        let has_ended = |ended: &Arc<AtomicBool>| {
            let ended = ended.clone();
            move || ended.load(Ordering::Acquire)
        };
        let (for_hub, hub_ended) = ((shared.clone(), hub.clone()), has_ended(&ended));
        let hub = thread("hub").spawn(move || for_hub.1.run(&for_hub.0, &hub_ended)).map_err(fail)?;
        let (for_base, base_ended) = (shared.clone(), has_ended(&ended));
        let base = thread("maintenance").spawn(move || maintenance::run(&for_base, &base_ended)).map_err(fail)?;
        let committer = thread("committer").stack_size(COMMITTER_STACK).spawn(move || committer.run()).map_err(fail)?;
        Ok(Threads { committer: Some(committer), others: vec![hub, base], ended })
    }

    /// Waits for the committer, which must have been told to end, then ends the others.
    pub(crate) fn join(&mut self, shared: &Shared) {
        if let Some(committer) = self.committer.take() {
            join(committer, shared);
        }
        self.ended.store(true, Ordering::Release);
        shared.nudge();
        self.others.drain(..).for_each(|thread| join(thread, shared));
    }
}

/// A thread that panicked has broken a promise: the keyspace has failed.
fn join(thread: JoinHandle<()>, shared: &Shared) {
    let name = thread.thread().name().unwrap_or("unnamed").to_owned();
    if thread.join().is_err() {
        shared.fail(Error::Io { doing: "run".into(), reason: format!("the {name} thread panicked") });
    }
}
