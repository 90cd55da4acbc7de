//! A reply that is counted on its way to the client: its messages, its bytes, and the code that it ends with.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::limit::Messages;
use crate::metrics::Call;

/// The body of a reply, with the call that it answers.
#[derive(Debug)]
struct Metered {
    body: Body,
    messages: Messages,
    call: Call,
}

/// Counts what a call is answered with. A call that failed at once has its code in the head and no body.
pub(super) fn count(mut call: Call, response: Response) -> Response {
    if let Some(code) = code(response.headers()) {
        call.end(code);
        return response;
    }
    response.map(|body| Body::new(Metered { body, messages: Messages::new(usize::MAX), call }))
}

/// The code in these headers, if they carry one; `None` within for one that is no number.
fn code(headers: &HeaderMap) -> Option<Option<usize>> {
    headers.get("grpc-status").map(|code| code.to_str().ok().and_then(|code| code.parse().ok()))
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &polled {
            if let Some(data) = frame.data_ref() {
                // Nothing that we encoded is too large or compressed.
                let _ = self.messages.scan(data);
                let (messages, bytes) = self.messages.take_counted();
                self.call.method().sent(messages, bytes);
            }
            if let Some(code) = frame.trailers_ref().and_then(code) {
                self.call.end(code);
            }
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
