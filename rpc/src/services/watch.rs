//! Watch: one task per stream, and what it remembers of the stream's watches.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use storage::{WatchId, WatchMessage};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::context::Context;
use super::watch_loop::WatchLoop;
use crate::convert::Answer;
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::watch_server::Watch;

/// The answers that wait for the connection to take them. The task takes no more from the keyspace while they do.
const ANSWERS_WAITING_MAX: usize = 64;

/// The service `etcdserverpb.Watch`.
#[derive(Debug)]
pub(crate) struct WatchService {
    context: Arc<Context>,
}

impl WatchService {
    /// The service over a keyspace.
    pub(crate) fn new(context: Arc<Context>) -> WatchService {
        WatchService { context }
    }
}

#[tonic::async_trait]
impl Watch for WatchService {
    type WatchStream = ReceiverStream<Result<pb::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (replies, answers) = mpsc::channel(ANSWERS_WAITING_MAX);
        let session = Session::new(Answer {
            header: self.context.header_at(storage::Revision(0)),
            fragment_bytes: self.context.config.max_message_bytes(),
        });
        let stream = Arc::new(self.context.keyspace.watch_stream());
        let task = WatchLoop::new(stream, request.into_inner(), replies, session);
        tokio::spawn(task.run(self.context.config.progress_interval, self.context.stopping()));
        Ok(Response::new(ReceiverStream::new(answers)))
    }
}

/// What a stream remembers: which of its watches want long answers split.
#[derive(Debug)]
pub(super) struct Session {
    answer: Answer,
    /// For each watch that is being opened, in order, whether it wants that: the keyspace answers in the same order.
    opening: VecDeque<bool>,
    /// The open watches that do.
    fragmenting: HashSet<WatchId>,
}

impl Session {
    /// A stream without watches.
    pub(super) fn new(answer: Answer) -> Session {
        Session { answer, opening: VecDeque::new(), fragmenting: HashSet::new() }
    }

    /// A watch is being opened.
    pub(super) fn opening(&mut self, fragment: bool) {
        self.opening.push_back(fragment);
    }

    /// The answers that a message makes, in order; none for the end of the keyspace.
    pub(super) fn answers(&mut self, message: WatchMessage) -> Vec<pb::WatchResponse> {
        match message {
            WatchMessage::Created { id, revision } => {
                if self.opening.pop_front() == Some(true) {
                    self.fragmenting.insert(id);
                }
                vec![self.answer.created(id, revision)]
            }
            WatchMessage::Refused { error, revision } => {
                self.opening.pop_front();
                vec![self.answer.refused(&error, revision)]
            }
            WatchMessage::Events { id, revision, events } => {
                self.answer.events(id, revision, &events, self.fragmenting.contains(&id))
            }
            WatchMessage::Progress { id, revision } => vec![self.answer.progress(id, revision)],
            WatchMessage::Canceled { id, revision } => {
                self.fragmenting.remove(&id);
                vec![self.answer.canceled(id, revision)]
            }
            // The id stays taken until the client cancels it too, and so does its place here.
            WatchMessage::Compacted { id, floor } => vec![self.answer.compacted(id, floor)],
            WatchMessage::Ended => Vec::new(),
        }
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
