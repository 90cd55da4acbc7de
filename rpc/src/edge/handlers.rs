//! The requests of one connection, carried out by the task of the connection.
//!
//! HTTP/2 would give each request a task of its own. Requests that wait for the same sync are answered at the same moment, and each answer
//! would then be written to the socket by itself: the task that wakes last runs first. In one task whatever is ready becomes one
//! write (`gathered.rs`), and many wake-ups become one. A call that may block for long goes elsewhere (`Context::blocking`).

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hyper::rt::Executor;
use tokio::io::AsyncWrite;

use super::gathered::Gathered;
use super::turn::Turn;

/// How often a turn goes on because something was woken during it, before others have theirs.
const ROUNDS_MAX: usize = 16;

type Handler = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes the requests that a connection begins; clones share them.
#[derive(Clone, Default)]
pub(super) struct Begun(Arc<Mutex<Vec<Handler>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Begun {
    fn execute(&self, handler: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(handler));
    }
}

/// The requests of a connection that are not answered yet. Dropping it ends them.
pub(super) struct Handlers {
    begun: Begun,
    running: FuturesUnordered<Handler>,
    turn: Arc<Turn>,
    waker: Waker,
}

impl Handlers {
    /// Those that `begun` takes.
    pub(super) fn new(begun: Begun) -> Handlers {
        let turn = Arc::new(Turn::default());
        Handlers { begun, running: FuturesUnordered::new(), waker: Waker::from(Arc::clone(&turn)), turn }
    }

    /// Polls the connection, and before and after it the requests, so that their answers leave with it; then sends what it wrote.
    pub(super) fn poll_with<C: Future, S: AsyncWrite + Unpin>(
        &mut self,
        task: &mut Context<'_>,
        mut connection: Pin<&mut C>,
        written: &Gathered<S>,
    ) -> Poll<C::Output> {
        self.turn.begin(task.waker());
        let context = &mut Context::from_waker(&self.waker);
        for _ in 0..ROUNDS_MAX {
            self.turn.go_on();
            while let Poll::Ready(Some(())) = self.running.poll_next_unpin(context) {}
            if let Poll::Ready(ended) = connection.as_mut().poll(context) {
                // The last words, if there is room: whoever fails to read them learns of the end all the same.
                let _ = written.send(context);
                return Poll::Ready(ended);
            }
            let begun = std::mem::take(&mut *self.begun.0.lock().unwrap_or_else(PoisonError::into_inner));
            if !begun.is_empty() {
                self.running.extend(begun);
                continue;
            }
            // A connection learns of a failure by being asked once more.
            if self.turn.rest() && written.send(context) {
                return Poll::Pending;
            }
        }
        // What is written leaves, and others have their turn.
        let _ = written.send(context);
        self.turn.pause();
        Poll::Pending
    }
}
