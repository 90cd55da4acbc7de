//! One connection: HTTP/1.1 or HTTP/2 by its first bytes, with limits, a deadline for the greeting and an orderly end.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tracing::debug;

use super::front::Front;
use super::gathered::Gathered;
use super::handlers::{Begun, Handlers};
use super::limits::Limits;
use super::tls::ClientName;

/// HTTP/2's preface and the head of the SETTINGS frame that must follow it: a client that sent as much has greeted.
/// Clients connect ahead of their first request, so to demand a request as well would close good connections.
const GREETING_BYTES: usize = 24 + 9;

/// What every connection of an address shares.
#[derive(Clone)]
pub(super) struct Protocol {
    front: Front,
    pub(super) limits: Arc<Limits>,
    pub(super) stop: watch::Receiver<bool>,
}

impl Protocol {
    /// Connections that are answered by `front` until `stop` turns true.
    pub(super) fn new(front: Front, limits: Arc<Limits>, stop: watch::Receiver<bool>) -> Protocol {
        Protocol { front, limits, stop }
    }
}

fn builder(limits: &Limits, begun: Begun) -> Builder<Begun> {
    let mut builder = Builder::new(begun);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.head_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(limits.header_bytes_max)
        .max_pending_accept_reset_streams(limits.pending_resets_max)
        .max_local_error_reset_streams(limits.local_resets_max)
        .initial_stream_window_size(limits.stream_window_bytes)
        .initial_connection_window_size(limits.connection_window_bytes)
        .max_send_buf_size(limits.send_buffer_bytes)
        .keep_alive_interval(limits.keepalive_interval)
        .keep_alive_timeout(limits.keepalive_timeout);
    builder
}

/// Serves one connection to its end; its requests carry the name of the client, if that was proved.
pub(super) async fn serve<S>(stream: S, client: Option<ClientName>, protocol: Protocol)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Protocol { front, limits, mut stop } = protocol;
    let begun = Begun::default();
    let (builder, mut handlers) = (builder(&limits, begun.clone()), Handlers::new(begun));
    let greeting = Greeting::default();
    let stream = Gathered::new(Greeted { stream, greeting: greeting.clone() });
    let service = service_fn(|request: Request<Incoming>| {
        greeting.complete();
        let front = front.clone();
        let mut request = request.map(Body::new);
        if let Some(client) = &client {
            request.extensions_mut().insert(client.clone());
        }
        async move { Ok::<_, Infallible>(front.answer(request).await) }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream.clone()), service));
    let mut late = pin!(greeting.overdue(&limits));
    let mut stopping = false;
    loop {
        tokio::select! {
            ended = poll_fn(|context| handlers.poll_with(context, connection.as_mut(), &stream)) => {
                if let Err(error) = ended {
                    debug!(%error, "connection ended");
                }
                return;
            }
            () = &mut late => {
                debug!("connection closed: no greeting in time");
                return;
            }
            _ = stop.wait_for(|stop| *stop), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// How much a client has sent of its greeting.
#[derive(Clone, Debug, Default)]
struct Greeting(Arc<AtomicUsize>);

impl Greeting {
    fn received(&self, bytes: usize) {
        if self.0.load(Ordering::Relaxed) < GREETING_BYTES {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn complete(&self) {
        self.0.store(GREETING_BYTES, Ordering::Relaxed);
    }

    /// Resolves when the time is up without a greeting; never if there was one.
    async fn overdue(&self, limits: &Limits) {
        tokio::time::sleep(limits.handshake_timeout).await;
        if self.0.load(Ordering::Relaxed) >= GREETING_BYTES {
            std::future::pending::<()>().await;
        }
    }
}

/// A stream that counts its first bytes.
struct Greeted<S> {
    stream: S,
    greeting: Greeting,
}

impl<S: AsyncRead + Unpin> AsyncRead for Greeted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.greeting.received(buffer.filled().len() - before);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Greeted<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
