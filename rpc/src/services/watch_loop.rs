//! The task behind one watch stream: commands in, messages out, neither waiting for the other.
//!
//! Memory stays bounded when the client does not read: nothing is taken from the keyspace while answers wait, few commands are
//! accepted then, and the keyspace bounds its own queue and lets watches fall back to catching up.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use storage::{Entropy, Error, SystemEntropy, WatchMessage};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, timeout};
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

/// How long the last word of a stream may wait for a client that does not read.
const LAST_WORD: Duration = Duration::from_secs(1);

pub(super) type Reply = Result<pb::WatchResponse, Status>;

/// A chunk of stored changes that is being read.
type CatchUp = JoinHandle<Result<(), Error>>;

/// One stream: watches from `S`, commands from `R`.
pub(super) struct WatchLoop<S, R> {
    stream: Arc<S>,
    requests: R,
    replies: mpsc::Sender<Reply>,
    session: Session,
    /// Answers that the connection has not taken yet.
    outbox: VecDeque<pb::WatchResponse>,
    /// Commands since the last take.
    commands: usize,
    /// False once the client closed its side; the stream goes on.
    open: bool,
    /// True once the keyspace ended.
    ended: bool,
    catching_up: Option<CatchUp>,
}

impl<S, R> WatchLoop<S, R>
where
    S: Source,
    R: Stream<Item = Result<pb::WatchRequest, Status>> + Unpin + Send,
{
    /// A stream without watches.
    pub(super) fn new(stream: Arc<S>, requests: R, replies: mpsc::Sender<Reply>, session: Session) -> WatchLoop<S, R> {
        WatchLoop {
            stream,
            requests,
            replies,
            session,
            outbox: VecDeque::new(),
            commands: 0,
            open: true,
            ended: false,
            catching_up: None,
        }
    }

    /// Runs until the client leaves or the server stops.
    pub(super) async fn run(mut self, progress: Duration, stopping: impl Future<Output = ()> + Send) {
        if let Err(last_word) = self.serve(progress, stopping).await {
            // A client that does not read gets no last word; its connection ends with the server's.
            let _ = timeout(LAST_WORD, self.replies.send(Err(last_word))).await;
        }
    }

    /// Ok if the client left, else what it is to be told.
    async fn serve(&mut self, progress: Duration, stopping: impl Future<Output = ()>) -> Result<(), Status> {
        let mut progress = progress_ticks(progress);
        let mut stopping = pin!(stopping);
        let replies = self.replies.clone();
        loop {
            self.refill();
            if self.ended && self.outbox.is_empty() {
                return Err(status::stopped());
            }
            let idle = self.outbox.is_empty();
            let catching_up = self.catching_up.is_some();
            tokio::select! {
                () = &mut stopping => return Err(status::stopped()),
                () = replies.closed() => return Ok(()),
                request = self.requests.next(), if self.open && self.commands < COMMANDS_WAITING_MAX => {
                    self.receive(request.transpose()?);
                }
                permit = replies.reserve(), if !idle => {
                    let Ok(permit) = permit else { return Ok(()) };
                    send(&mut self.outbox, permit);
                    while !self.outbox.is_empty() && let Ok(permit) = replies.try_reserve() {
                        send(&mut self.outbox, permit);
                    }
                }
                outcome = finished(&mut self.catching_up), if catching_up => {
                    self.catching_up = None;
                    Self::caught_up(outcome)?;
                }
                () = sleep(LOOK), if idle && catching_up => {}
                () = self.stream.changed(), if idle && !catching_up && !self.ended => {}
                _ = progress.tick(), if idle => self.stream.tick(),
            }
        }
    }

    /// If all answers are on their way: takes what is ready, and if nothing is, starts to read for the watches that are behind.
    fn refill(&mut self) {
        if !self.outbox.is_empty() || self.ended {
            return;
        }
        self.commands = 0;
        for message in self.stream.take() {
            self.ended |= matches!(message, WatchMessage::Ended);
            self.outbox.extend(self.session.answers(message));
        }
        if self.outbox.is_empty() && self.catching_up.is_none() && self.stream.is_behind() {
            let stream = Arc::clone(&self.stream);
            self.catching_up = Some(tokio::task::spawn_blocking(move || stream.catch_up()));
        }
    }

    /// Handles one request, or the end of them.
    fn receive(&mut self, request: Option<pb::WatchRequest>) {
        let Some(request) = request else {
            self.open = false;
            return;
        };
        self.commands += 1;
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

    fn caught_up(outcome: Result<Result<(), Error>, JoinError>) -> Result<(), Status> {
        outcome.map_err(|_| status::stopped())?.map_err(|error| status::of(&error))
    }
}

/// Sends the first answer.
fn send(outbox: &mut VecDeque<pb::WatchResponse>, permit: mpsc::Permit<'_, Reply>) {
    if let Some(answer) = outbox.pop_front() {
        permit.send(Ok(answer));
    }
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
