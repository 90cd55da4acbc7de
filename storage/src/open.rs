//! Opening: the directory, the log, base, and what the log holds beyond base.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::apply::State;
use crate::base::{self, Base, Snapshot};
use crate::engine::committer::{self, Bounds, Committer, Writer};
use crate::engine::maintenance;
use crate::engine::pace::Pace;
use crate::engine::queue::Queue;
use crate::engine::room::{self, Room};
use crate::engine::scrub::Scrub;
use crate::engine::shared::{Head, Shared};
use crate::error::Error;
use crate::files::{Directory, Identity};
use crate::fs::{Ballast, Ballasted, FileSystem};
use crate::log::frame::MAX_FRAME_LEN;
use crate::log::{LocalLog, Log, LogScrub};
use crate::meters::Meters;
use crate::options::{Environment, Options};
use crate::read::Sources;
use crate::recent::Part;
use crate::replay;
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

/// Frames read at once while the chain is followed, in bytes.
const CHAIN_BYTES: usize = 4 << 20;

/// The committer's stack: transactions may be nested a few hundred deep.
const COMMITTER_STACK: usize = 16 << 20;

/// A frame of a batch must not exceed what a log takes, whatever the options say.
const BATCH_BYTES_MAX: usize = MAX_FRAME_LEN / 4;

/// Opens a data directory with its own log.
pub(crate) fn open(path: &Path, options: &Options, environment: &Environment) -> Result<Opened, Error> {
    let mut directory = Directory::open(&environment.fs, path, environment.entropy.as_ref())?;
    let (ballast, environment) = ballast(&directory, options, environment)?;
    let environment = &environment;
    let (fs, id, created) = (&environment.fs, directory.identity.log, directory.fresh);
    let (log, base) = if created {
        let log = LocalLog::create(fs.clone(), &directory.log(), id, options.segment_bytes)?;
        let base = Base::create(fs, &directory.base(), options.cache_bytes)?;
        failpoint!(Creating, Err);
        directory.complete()?;
        (log, base)
    } else {
        // The log is read first: if it is damaged, base has not been touched.
        failpoint!(OpenLog, Err);
        let log = open_log(&directory, fs, options.segment_bytes)?;
        failpoint!(OpenBase, Err);
        (log, Base::open(fs, &directory.base(), options.cache_bytes)?)
    };
    let (log_bytes_read, damage) = (log.bytes_read(), log.recovery().damage.clone());
    let meters = Meters::default();
    let log = log.timed(environment.clock.clone(), meters.log.clone());
    let scrub = Scrub::new(Some(LogScrub::new(fs.clone(), &directory.log(), id)));
    let mut opened = start(directory, base, Box::new(log), meters, (scrub, ballast), options, environment)?;
    opened.report.bytes_read += log_bytes_read + opened.shared.base().bytes_read();
    opened.report.created = created;
    opened.report.damage = damage;
    Ok(opened)
}

/// Opens the directory's own log. Damage in frames that base holds already does not matter; what base holds is asked for only then.
fn open_log(directory: &Directory, fs: &Arc<dyn FileSystem>, segment_bytes: u64) -> Result<LocalLog, Error> {
    let (dir, id) = (directory.log(), directory.identity.log);
    let damage = match LocalLog::open(fs.clone(), &dir, id, segment_bytes) {
        Err(damage @ Error::Corrupt { .. }) => damage,
        opened => return opened,
    };
    match base::reached(fs, &directory.base()) {
        Ok(held) => LocalLog::open_behind(fs.clone(), &dir, id, segment_bytes, (held, damage)),
        Err(_) => Err(damage),
    }
}

/// Opens a data directory whose log is elsewhere, shared or simulated.
pub(crate) fn open_with_log(
    path: &Path,
    options: &Options,
    environment: &Environment,
    log: Box<dyn Log>,
) -> Result<Opened, Error> {
    let mut directory = Directory::open(&environment.fs, path, environment.entropy.as_ref())?;
    directory.tie(log.as_ref())?;
    let (ballast, environment) = ballast(&directory, options, environment)?;
    let environment = &environment;
    let base = if directory.fresh {
        let base = Base::create(&environment.fs, &directory.base(), options.cache_bytes)?;
        directory.complete()?;
        base
    } else {
        Base::open(&environment.fs, &directory.base(), options.cache_bytes)?
    };
    start(directory, base, log, Meters::default(), (Scrub::default(), ballast), options, environment)
}

/// The ballast, and the same environment on top of it.
fn ballast(
    directory: &Directory,
    options: &Options,
    environment: &Environment,
) -> Result<(Arc<Ballast>, Environment), Error> {
    let path = directory.ballast();
    let ballast = Ballast::open(&environment.fs, &path, options.ballast_bytes);
    let ballast = Arc::new(ballast.map_err(|error| Error::io(format!("opening {}", path.display()), &error))?);
    let fs = Arc::new(Ballasted::new(environment.fs.clone(), ballast.clone()));
    Ok((ballast, Environment { fs, ..environment.clone() }))
}

fn start(
    directory: Directory,
    base: Base,
    mut log: Box<dyn Log>,
    meters: Meters,
    (scrub, ballast): (Scrub, Arc<Ballast>),
    options: &Options,
    environment: &Environment,
) -> Result<Opened, Error> {
    let (mut state, snapshot) = match check(&base, log.as_mut()) {
        Ok(checked) => checked,
        Err(error) => {
            // What is refused is not touched, not even by the commit that redb makes when it is dropped.
            base.halt();
            return Err(error);
        }
    };
    directory.remove_leftovers()?;
    let flushed = state.applied.position;
    let sources = Sources { active: Arc::new(Part::default()), frozen: None, base: snapshot, known: None };
    let member = directory.identity.member;
    let head = Head::new(&state, member, sources, log.size_bytes(), &base);
    let pace = Pace::new(options.tuning.by_turns);
    let queue = Queue::new(options.queue_commands, options.queue_bytes);
    let room = Room::new(&environment.fs, &directory, ballast, options);
    let shared = Arc::new(Shared::new(head, queue, environment.clock.clone(), meters, room, base, pace));
    let bounds = Bounds {
        bytes: options.recent_bytes,
        changes: options.recent_changes,
        batch_bytes: options.batch_bytes.min(BATCH_BYTES_MAX),
    };
    let frames_replayed = on_a_large_stack(|| replay::all(&shared, &mut state, log.as_mut(), bounds))??;
    room::measure(&shared)
        .map_err(|error| Error::io(format!("looking for room beside {}", shared.room.path.display()), &error))?;
    shared.lessor.start(&state.leases, state.applied.time_ms, environment.clock.monotonic());
    let hub = Arc::new(Hub::new(state.applied.revision, options.watch_queue_bytes));
    let writer = new_writer(&state, directory.identity, environment);
    let committer =
        Committer { shared: shared.clone(), log, state, bounds, writer, trimmed: flushed.next(), held_back: false };
    failpoint!(Start, Err);
    let threads = Threads::spawn(committer, scrub, &shared, &hub, small!(&options.tuning.sweep_rows, &(3..=3)))?;
    let report = OpenReport { frames_replayed, ..OpenReport::default() };
    Ok(Opened { shared, hub, directory, threads, report })
}

/// What base holds, if the log continues it.
fn check(base: &Base, log: &mut dyn Log) -> Result<(State, Arc<Snapshot>), Error> {
    let state = State::new(base.small_tables()?);
    check_log(log, state.applied.position, state.applied.digest)?;
    Ok((state, base.snapshot()?))
}

/// The log must reach from what base holds, without a gap and with the same history.
pub(crate) fn check_log(log: &mut dyn Log, flushed: Position, digest: Digest) -> Result<(), Error> {
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
        let frames = log.read(next, CHAIN_BYTES)?;
        if frames.is_empty() {
            return mismatch(next, format!("the log has no frame here, it says that it ends at {}", log.end()));
        }
        for frame in frames.into_iter().take_while(|frame| frame.position <= flushed) {
            chain = chain.chain(&frame.bytes);
            next = frame.position.next();
        }
    }
    if chain != digest && !planted!(ChainUnchecked) {
        return mismatch(flushed, format!("the log's digest is {chain:?}, base's is {digest:?}"));
    }
    Ok(())
}

/// Does work with the committer's stack: what it committed is nested too deep for an ordinary one.
pub(crate) fn on_a_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("replay".to_owned()).stack_size(COMMITTER_STACK);
        let thread =
            thread.spawn_scoped(scope, inherit!(work)).map_err(|error| Error::io("start the replay thread", &error))?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
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
    fn spawn(
        committer: Committer,
        scrub: Scrub,
        shared: &Arc<Shared>,
        hub: &Arc<Hub>,
        sweep_rows: &RangeInclusive<usize>,
    ) -> Result<Threads, Error> {
        let mut threads = Threads { committer: None, others: Vec::new(), ended: Arc::new(AtomicBool::new(false)) };
        let spawned = threads.spawn_all(committer, scrub, shared, hub, sweep_rows);
        if let Err(error) = &spawned {
            shared.fail(error.clone());
            threads.join(shared);
        }
        spawned.map(|()| threads)
    }

    fn spawn_all(
        &mut self,
        committer: Committer,
        scrub: Scrub,
        shared: &Arc<Shared>,
        hub: &Arc<Hub>,
        sweep_rows: &RangeInclusive<usize>,
    ) -> Result<(), Error> {
        let has_ended = |ended: &Arc<AtomicBool>| {
            let ended = ended.clone();
            move || ended.load(Ordering::Acquire)
        };
        let (for_hub, of_hub, hub_ended) = (hub.clone(), shared.clone(), has_ended(&self.ended));
        self.others.push(spawn("hub", shared, move || for_hub.run(&of_hub, &hub_ended), {
            let hub = hub.clone();
            move |_| hub.end()
        })?);
        let (for_base, base_ended, sweep_rows) = (shared.clone(), has_ended(&self.ended), sweep_rows.clone());
        self.others.push(spawn(
            "maintenance",
            shared,
            move || maintenance::run(&for_base, &base_ended, scrub, &sweep_rows),
            |shared| {
                shared.pace.end();
                let error = shared.over().unwrap_or(Error::Stopped);
                shared.scrubs.refuse(&error);
                shared.shrinks.answer(&Err(error));
            },
        )?);
        self.committer = Some(spawn("committer", shared, move || committer.run(), committer::leave)?);
        Ok(())
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

/// Starts a thread. If it panics it has broken a promise: the keyspace has failed. Whatever happens, `last` is done, so that nobody is left waiting.
fn spawn(
    name: &'static str,
    shared: &Arc<Shared>,
    work: impl FnOnce() + Send + 'static,
    last: impl FnOnce(&Shared) + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let shared = shared.clone();
    let guarded = move || {
        // What a panic leaves half-done is above every reader's revision, and the keyspace takes nothing more.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
            shared.panicked(name);
        }
        last(&shared);
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(COMMITTER_STACK);
    thread.spawn(inherit!(guarded)).map_err(|error| Error::io(format!("start the {name} thread"), &error))
}

fn join(thread: JoinHandle<()>, shared: &Shared) {
    let name = thread.thread().name().unwrap_or("unnamed").to_owned();
    if thread.join().is_err() {
        shared.panicked(&name);
    }
}
