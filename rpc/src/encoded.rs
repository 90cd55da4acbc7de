//! Replies that a service encodes itself, piece by piece, in place of the message that tonic would encode at once.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response as HttpResponse;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::{HeaderMap, HeaderValue};
use http_body::{Body as HttpBody, Frame};
use tonic::{Response, Status};

/// The bytes of a reply's messages, prefixes included, cut anywhere.
type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// What a reply carries to the edge: the bytes to send instead of its message.
#[derive(Clone)]
struct Instead(Arc<Mutex<Option<Pieces>>>);

/// A reply of these bytes: one message or several, each behind its prefix. A status in their place ends it, within a message too:
/// a client takes that for a broken call.
pub(crate) fn reply<T>(message: T, pieces: impl Stream<Item = Result<Bytes, Status>> + Send + 'static) -> Response<T> {
    let mut response = Response::new(message);
    response.extensions_mut().insert(Instead(Arc::new(Mutex::new(Some(Box::pin(pieces))))));
    response
}

/// What precedes a message of `len` bytes that is not compressed.
pub(crate) fn prefix(len: u32) -> [u8; 5] {
    let [a, b, c, d] = len.to_be_bytes();
    [0, a, b, c, d]
}

/// Puts the bytes that a reply carries in the place of its body.
pub(crate) fn unwrap(mut response: HttpResponse) -> HttpResponse {
    let instead = response.extensions_mut().remove::<Instead>();
    let pieces = instead.and_then(|instead| instead.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    match pieces {
        Some(pieces) => response.map(|_| Body::new(Encoded { pieces: Some(pieces) })),
        None => response,
    }
}

/// The pieces, and the code behind them.
struct Encoded {
    pieces: Option<Pieces>,
}

impl HttpBody for Encoded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(pieces) = &mut self.pieces else { return Poll::Ready(None) };
        let trailers = match ready!(pieces.poll_next_unpin(context)) {
            Some(Ok(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Err(status)) => failed(&status),
            None => HeaderMap::from_iter([(Status::GRPC_STATUS, HeaderValue::from_static("0"))]),
        };
        self.pieces = None;
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_none()
    }
}

fn failed(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // It fails for a text that no header can hold; the code is there then.
    drop(status.add_header(&mut trailers));
    trailers
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoded").field("ended", &self.pieces.is_none()).finish()
    }
}
