//! The requests of one connection, carried out by the task of the connection.
//!
//! HTTP/2 would give each request a task of its own. Requests that wait for the same sync are answered at the same moment, and each answer
//! would then be written to the socket by itself: the task that wakes last runs first. In one task whatever is ready becomes one
//! write, and many wake-ups become one. A call that may block for long goes elsewhere (`Context::blocking`).

use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use futures_util::task::AtomicWaker;
use hyper::rt::Executor;

/// How often the task goes round before it lets others have its thread.
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
    /// Woken for the requests, and for the connection.
    gates: [Arc<Gate>; 2],
    wakers: [Waker; 2],
}

impl Handlers {
    /// Those that `begun` takes.
    pub(super) fn new(begun: Begun) -> Handlers {
        let gates = [(); 2].map(|()| Arc::new(Gate::default()));
        let wakers = gates.clone().map(Waker::from);
        Handlers { begun, running: FuturesUnordered::new(), gates, wakers }
    }

    /// Polls the requests, then the connection, so that their answers leave with it; again as long as one of them has woken the other.
    pub(super) fn poll_with<C: Future>(
        &mut self,
        context: &mut Context<'_>,
        mut connection: Pin<&mut C>,
    ) -> Poll<C::Output> {
        let [for_requests, for_connection] = &self.gates;
        let [of_requests, of_connection] = &self.wakers;
        for gate in [for_requests, for_connection] {
            gate.task.register(context.waker());
        }
        for _ in 0..ROUNDS_MAX {
            for_requests.enter();
            while let Poll::Ready(Some(())) = self.running.poll_next_unpin(&mut Context::from_waker(of_requests)) {}
            // Answers wake the connection, which comes next anyhow.
            for_connection.enter();
            if let Poll::Ready(ended) = connection.as_mut().poll(&mut Context::from_waker(of_connection)) {
                return Poll::Ready(ended);
            }
            let begun = std::mem::take(&mut *self.begun.0.lock().unwrap_or_else(PoisonError::into_inner));
            let idle = begun.is_empty();
            self.running.extend(begun);
            if idle && for_requests.leave() && for_connection.leave() {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Wakes the task of a connection, unless that is at work: then it is only told to go round once more. A task that wakes itself is queued
/// again, and another thread is woken to take it.
#[derive(Default)]
struct Gate {
    state: AtomicU8,
    task: AtomicWaker,
}

const AT_WORK: u8 = 1;
const WOKEN: u8 = 2;

impl Gate {
    /// The task looks after this from now on: whoever woke it before is heard.
    fn enter(&self) {
        self.state.store(AT_WORK, Ordering::SeqCst);
    }

    /// The task rests, unless it was woken since it entered.
    fn leave(&self) -> bool {
        self.state.compare_exchange(AT_WORK, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.fetch_or(WOKEN, Ordering::SeqCst) & AT_WORK == 0 {
            self.task.wake();
        }
    }
}
