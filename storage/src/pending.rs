//! A command on its way, for callers with a runtime and for callers without.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::error::Error;

/// A command on its way: await it, or `wait` for it. Dropping it does not take back what is in the queue.
///
/// Writes are in the queue when the call returns; what must look or wait before, a keep-alive or a compaction that waits for watches, begins when it is
/// polled.
#[must_use = "without its outcome nobody knows whether the command was carried out"]
pub struct Pending<T> {
    future: Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>,
}

impl<T> Pending<T> {
    pub(crate) fn new(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> Pending<T> {
        Pending { future: Box::pin(future) }
    }

    /// Blocks the thread until the outcome is durable. Errors: those of the command.
    pub fn wait(self) -> Result<T, Error> {
        block_on(self.future)
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
