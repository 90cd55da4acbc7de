//! Writes of one connection, gathered until it has nothing more to say.
//!
//! HTTP/2 hands each answer that is not short to the socket by itself. With many streams on a connection the system calls cost more than
//! what they carry, so the writes of one turn of the connection's task wait and leave together at its end.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Writes from this size on go to the socket at once, in bytes: to copy them would cost more than it saves.
const DIRECT_MIN: usize = 8 << 10;

/// What may wait, in bytes; before more is accepted the socket has to take it.
const WAITING_MAX: usize = 64 << 10;

/// The room that a connection keeps while nothing waits, in bytes.
const KEPT_MAX: usize = 16 << 10;

/// A stream that gathers what is written until `send`; clones share it.
pub(super) struct Gathered<S>(Arc<Mutex<Gathering<S>>>);

struct Gathering<S> {
    stream: S,
    /// From `sent` on still to be written.
    waiting: Vec<u8>,
    sent: usize,
    /// True if the stream itself is to be flushed.
    unflushed: bool,
    /// An error of `send`, for whoever writes next.
    failure: Option<io::Error>,
}

impl<S> Clone for Gathered<S> {
    fn clone(&self) -> Gathered<S> {
        Gathered(Arc::clone(&self.0))
    }
}

impl<S: AsyncWrite + Unpin> Gathered<S> {
    /// Gathers for `stream`.
    pub(super) fn new(stream: S) -> Gathered<S> {
        let gathering = Gathering { stream, waiting: Vec::new(), sent: 0, unflushed: false, failure: None };
        Gathered(Arc::new(Mutex::new(gathering)))
    }

    fn lock(&self) -> MutexGuard<'_, Gathering<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what waits, as far as the socket takes it; the task is woken when it takes more. False if that failed now: the next write
    /// says why.
    #[must_use]
    pub(super) fn send(&self, context: &mut Context<'_>) -> bool {
        let mut gathering = self.lock();
        if gathering.failure.is_some() {
            return true;
        }
        match gathering.poll_send(context) {
            Poll::Ready(Err(failure)) => {
                gathering.failure = Some(failure);
                false
            }
            Poll::Ready(Ok(())) | Poll::Pending => true,
        }
    }
}

impl<S: AsyncWrite + Unpin> Gathering<S> {
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_empty(context))?;
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes until nothing waits.
    fn poll_empty(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.waiting.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += written;
        }
        self.sent = 0;
        self.waiting.clear();
        if self.waiting.capacity() > KEPT_MAX {
            self.waiting = Vec::new();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_gather(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if let Some(failure) = self.failure.take() {
            return Poll::Ready(Err(failure));
        }
        let bytes = slices.iter().map(|slice| slice.len()).sum::<usize>();
        self.unflushed = true;
        if bytes >= DIRECT_MIN {
            ready!(self.poll_empty(context))?;
            return Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        }
        if self.waiting.len() + bytes > WAITING_MAX {
            ready!(self.poll_empty(context))?;
        }
        slices.iter().for_each(|slice| self.waiting.extend_from_slice(slice));
        Poll::Ready(Ok(bytes))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.lock().poll_gather(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.lock().poll_gather(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.lock().stream.is_write_vectored()
    }

    /// Nothing is sent: that comes at the end of the turn.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.lock().failure.take().map_or(Ok(()), Err))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gathering = self.lock();
        if let Some(failure) = gathering.failure.take() {
            return Poll::Ready(Err(failure));
        }
        ready!(gathering.poll_send(context))?;
        Pin::new(&mut gathering.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::task::noop_waker_ref;
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// A socket with room for `room` bytes in all; it keeps each write.
    #[derive(Default)]
    struct Socket {
        room: usize,
        writes: Vec<Vec<u8>>,
        broken: bool,
        down: bool,
    }

    impl AsyncWrite for Socket {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if self.broken {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let taken: Vec<u8> = bytes.iter().copied().take(self.room).collect();
            if taken.is_empty() {
                return Poll::Pending;
            }
            self.room -= taken.len();
            self.writes.push(taken);
            Poll::Ready(Ok(self.writes.last().map_or(0, Vec::len)))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.down = true;
            Poll::Ready(Ok(()))
        }
    }

    fn gathered(room: usize) -> Gathered<Socket> {
        Gathered::new(Socket { room, ..Socket::default() })
    }

    fn context() -> Context<'static> {
        Context::from_waker(noop_waker_ref())
    }

    /// True if the write was accepted whole.
    fn write(gathered: &Gathered<Socket>, bytes: &[u8]) -> bool {
        let (head, rest) = bytes.split_at(bytes.len() / 2);
        let slices = [IoSlice::new(head), IoSlice::new(rest)];
        match Pin::new(&mut gathered.clone()).poll_write_vectored(&mut context(), &slices) {
            Poll::Ready(written) => written.expect("a good socket") == bytes.len(),
            Poll::Pending => false,
        }
    }

    #[test]
    fn what_is_written_in_one_turn_leaves_in_one_write() {
        let gathered = gathered(usize::MAX);
        for byte in 1..=10 {
            assert!(write(&gathered, &[byte; 3000]));
            assert!(Pin::new(&mut gathered.clone()).poll_flush(&mut context()).is_ready());
        }
        assert_eq!(gathered.lock().stream.writes.len(), 0);
        assert!(gathered.send(&mut context()));
        let expected: Vec<u8> = (1..=10).flat_map(|byte| [byte; 3000]).collect();
        assert_eq!(gathered.lock().stream.writes, [expected]);
        assert!(gathered.lock().waiting.capacity() <= KEPT_MAX);
        assert!(gathered.send(&mut context()));
        assert_eq!(gathered.lock().stream.writes.len(), 1, "nothing is sent twice");
    }

    #[tokio::test]
    async fn a_long_write_goes_at_once_and_after_what_waits() {
        let gathered = gathered(usize::MAX);
        assert!(write(&gathered, b"first"));
        gathered.clone().write_all(&vec![7; DIRECT_MIN]).await.expect("a good socket");
        let writes: Vec<usize> = gathered.lock().stream.writes.iter().map(Vec::len).collect();
        assert_eq!(writes, [5, DIRECT_MIN]);
    }

    #[test]
    fn a_socket_that_takes_nothing_bounds_what_waits_and_loses_no_byte() {
        const PIECE: usize = 1000;
        let gathered = gathered(10);
        let mut accepted = 0;
        while write(&gathered, &[u8::try_from(accepted % 251).expect("small"); PIECE]) {
            accepted += 1;
            assert!(accepted <= WAITING_MAX / PIECE, "{accepted} writes wait");
        }
        assert_eq!(accepted, WAITING_MAX / PIECE);
        for _ in 0..accepted * PIECE / 7000 + 1 {
            gathered.lock().stream.room = 7000;
            assert!(gathered.send(&mut context()));
        }
        let sent: Vec<u8> = gathered.lock().stream.writes.concat();
        let expected: Vec<u8> =
            (0..accepted).flat_map(|n| vec![u8::try_from(n % 251).expect("small"); PIECE]).collect();
        assert_eq!(sent, expected);
    }

    #[tokio::test]
    async fn a_failure_is_told_to_whoever_writes_next() {
        let mut gathered = gathered(usize::MAX);
        assert!(write(&gathered, b"lost"));
        gathered.lock().stream.broken = true;
        assert!(!gathered.send(&mut context()));
        assert!(gathered.send(&mut context()), "it failed once");
        assert_eq!(gathered.flush().await.expect_err("told").kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn the_end_comes_after_what_waits() {
        let mut gathered = gathered(usize::MAX);
        assert!(write(&gathered, b"last words"));
        gathered.shutdown().await.expect("a good socket");
        let gathering = gathered.lock();
        assert_eq!((gathering.stream.writes.concat(), gathering.stream.down), (b"last words".to_vec(), true));
    }
}
