//! What drives one watch stream: commands in, messages out, neither waiting for the other.
//!
//! It runs inside the stream of answers, whenever the connection asks for one: no task of its own is woken, and what many streams of a connection
//! have to say leaves together. Memory stays bounded when the client does not read: then nothing is asked for, so no command
//! is accepted and nothing taken from the keyspace, which bounds its own queue and lets watches fall back to catching up.

use std::collections::VecDeque;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use storage::{Entropy, Error, SystemEntropy, WatchMessage};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};
use tonic::Status;

use super::watch::Session;
use super::watch_source::Source;
use crate::convert::{self, Command};
use crate::pb::etcdserverpb as pb;
use crate::status;

/// The commands accepted between two takes: each may queue an answer in the keyspace.
const COMMANDS_WAITING_MAX: usize = 128;

/// How often a stream looks for ready messages while a chunk of stored changes is being read for it.
const LOOK: Duration = Duration::from_millis(2);

/// The shortest period of progress answers.
const PROGRESS_MIN: Duration = Duration::from_millis(100);

pub(super) type Reply = Result<pb::WatchResponse, Status>;

/// A chunk of stored changes that is being read.
type CatchUp = JoinHandle<Result<(), Error>>;

/// One stream: watches from `S`, commands from `R`, until `F`.
pub(super) struct WatchLoop<S, R, F> {
    stream: Arc<S>,
    requests: R,
    session: Session,
    /// Messages taken from the keyspace.
    taken: std::vec::IntoIter<WatchMessage>,
    /// Answers that the last of them made.
    outbox: VecDeque<pb::WatchResponse>,
    /// False once the client closed its side; the stream goes on.
    open: bool,
    /// True once the keyspace ended.
    ended: bool,
    catching_up: Option<CatchUp>,
    progress: Interval,
    stopping: Pin<Box<F>>,
}

impl<S, R, F> WatchLoop<S, R, F>
where
    S: Source,
    R: Stream<Item = Result<pb::WatchRequest, Status>> + Unpin + Send,
    F: Future<Output = ()> + Send,
{
    /// A stream without watches, with progress answers every `progress`, that ends when `stopping` does.
    pub(super) fn new(stream: Arc<S>, requests: R, session: Session, progress: Duration, stopping: F) -> Self {
        WatchLoop {
            stream,
            requests,
            session,
            taken: Vec::new().into_iter(),
            outbox: VecDeque::new(),
            open: true,
            ended: false,
            catching_up: None,
            progress: progress_ticks(progress),
            stopping: Box::pin(stopping),
        }
    }

    /// The answers, until the server stops; the last word is an error.
    pub(super) fn answers(self) -> impl Stream<Item = Reply> + Send {
        stream::unfold(Some(Box::new(self)), async |running| {
            let mut running = running?;
            let reply = running.next().await;
            let running = reply.is_ok().then_some(running);
            Some((reply, running))
        })
    }

    /// The next answer.
    async fn next(&mut self) -> Reply {
        loop {
            if let Some(answer) = self.answer() {
                return Ok(answer);
            }
            if self.ended {
                return Err(status::stopped());
            }
            self.refill();
            self.wait().await?;
        }
    }

    /// The next answer to what was taken.
    fn answer(&mut self) -> Option<pb::WatchResponse> {
        while self.outbox.is_empty() {
            let message = self.taken.next()?;
            self.ended |= matches!(message, WatchMessage::Ended);
            self.session.answer(message, &mut self.outbox);
        }
        self.outbox.pop_front()
    }

    /// Takes what is ready, and if nothing is, starts to read for the watches that are behind.
    fn refill(&mut self) {
        self.taken = self.stream.take().into_iter();
        if self.taken.len() == 0 && self.catching_up.is_none() && self.stream.is_behind() {
            let stream = Arc::clone(&self.stream);
            self.catching_up = Some(tokio::task::spawn_blocking(move || stream.catch_up()));
        }
    }

    /// Accepts commands, and waits until there may be something to answer.
    async fn wait(&mut self) -> Result<(), Status> {
        let taken = self.taken.len() > 0;
        let catching_up = self.catching_up.is_some();
        let mut commands = 0;
        loop {
            tokio::select! {
                // What may end the stream and what the client says go first: a stream that always has something to say hears them too.
                biased;
                () = &mut self.stopping => return Err(status::stopped()),
                request = self.requests.next(), if self.open && commands < COMMANDS_WAITING_MAX => {
                    self.receive(request.transpose()?);
                    commands += 1;
                    continue;
                }
                outcome = finished(&mut self.catching_up), if catching_up => {
                    self.catching_up = None;
                    caught_up(outcome)?;
                }
                () = ready(()), if taken => {}
                _ = self.progress.tick() => self.stream.tick(),
                () = sleep(LOOK), if catching_up => {}
                () = self.stream.changed(), if !catching_up => {}
            }
            return Ok(());
        }
    }

    /// Handles one request, or the end of them.
    fn receive(&mut self, request: Option<pb::WatchRequest>) {
        let Some(request) = request else {
            self.open = false;
            return;
        };
        match convert::watch_command(request) {
            Some(Command::Create { spec, fragment }) => {
                self.session.opening(fragment);
                self.stream.create(spec);
            }
            Some(Command::Cancel(id)) => self.stream.cancel(id),
            Some(Command::Progress) => self.stream.request_progress(),
            None => {}
        }
    }
}

fn caught_up(outcome: Result<Result<(), Error>, JoinError>) -> Result<(), Status> {
    outcome.map_err(|_| status::stopped())?.map_err(|error| status::of(&error))
}

/// Waits for a chunk to be read; for ever if none is.
async fn finished(catching_up: &mut Option<CatchUp>) -> Result<Result<(), Error>, JoinError> {
    match catching_up {
        Some(handle) => handle.await,
        None => std::future::pending().await,
    }
}

/// The ticks of one stream: up to a tenth slower than asked for, so that streams that began together do not tick together.
fn progress_ticks(period: Duration) -> Interval {
    let thousandths = u32::try_from(SystemEntropy.next_u64() % 100).unwrap_or(0);
    let period = period.max(PROGRESS_MIN);
    let period = period.saturating_add(period / 1000 * thousandths);
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

#[cfg(test)]
#[path = "watch_loop_tests.rs"]
mod tests;
