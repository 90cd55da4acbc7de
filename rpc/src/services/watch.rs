//! Watch: streams of answers, and what each remembers of its watches.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use storage::{WatchId, WatchMessage};
use tonic::{Request, Response, Status, Streaming};

use super::context::Context;
use super::watch_loop::{Reply, WatchLoop};
use crate::convert::Answer;
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::watch_server::Watch;

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
    type WatchStream = BoxStream<'static, Reply>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let session = Session::new(Answer {
            header: self.context.header_at(storage::Revision(0)),
            fragment_bytes: self.context.config.max_message_bytes(),
        });
        let stream = Arc::new(self.context.keyspace.watch_stream());
        let progress = self.context.config.progress_interval;
        let running = WatchLoop::new(stream, request.into_inner(), session, progress, self.context.stopping());
        Ok(Response::new(running.answers().boxed()))
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

    /// Adds the answers that a message makes, in order; none for the end of the keyspace.
    pub(super) fn answer(&mut self, message: WatchMessage, answers: &mut VecDeque<pb::WatchResponse>) {
        let answer = match message {
            WatchMessage::Created { id, revision } => {
                if self.opening.pop_front() == Some(true) {
                    self.fragmenting.insert(id);
                }
                self.answer.created(id, revision)
            }
            WatchMessage::Refused { error, revision } => {
                self.opening.pop_front();
                self.answer.refused(&error, revision)
            }
            WatchMessage::Events { id, revision, events } => {
                let whole = self.answer.events(id, revision, &events);
                if self.fragmenting.contains(&id) {
                    return answers.extend(self.answer.split(whole));
                }
                whole
            }
            WatchMessage::Progress { id, revision } => self.answer.progress(id, revision),
            WatchMessage::Canceled { id, revision } => {
                self.fragmenting.remove(&id);
                self.answer.canceled(id, revision)
            }
            // The id stays taken until the client cancels it too, and so does its place here.
            WatchMessage::Compacted { id, floor } => self.answer.compacted(id, floor),
            WatchMessage::Ended => return,
        };
        answers.push_back(answer);
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
