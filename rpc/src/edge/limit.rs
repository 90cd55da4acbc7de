//! The receive limit: a message is refused by the length that announces it, before any of it is kept.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;

use crate::metrics::Method;

/// One byte says whether the message is compressed, four bytes how long it is.
const PREFIX_BYTES: usize = 5;

/// Refuses a request whose messages are compressed: no encoding is offered.
pub(super) fn check_encoding(headers: &HeaderMap) -> Result<(), Status> {
    let Some(encoding) = headers.get("grpc-encoding").and_then(|encoding| encoding.to_str().ok()) else {
        return Ok(());
    };
    match encoding {
        "" | "identity" => Ok(()),
        _ => Err(Status::unimplemented(format!("grpc: Decompressor is not installed for grpc-encoding {encoding:?}"))),
    }
}

/// Refuses a client whose version is no text: etcd counts requests by it.
pub(super) fn check_client_version(headers: &HeaderMap) -> Result<(), Status> {
    match headers.get("client-api-version").map(|version| std::str::from_utf8(version.as_bytes())) {
        Some(Err(_)) => Err(Status::invalid_argument("etcdserver: invalid client api version")),
        _ => Ok(()),
    }
}

/// A request's body whose messages are all within the limit; at the first that is not, it ends with a status.
#[derive(Debug)]
pub(super) struct Checked {
    body: Body,
    messages: Messages,
    refusal: Option<Status>,
    method: Arc<Method>,
}

impl Checked {
    /// Lets messages of up to `bytes_max` bytes pass, and counts them.
    pub(super) fn new(body: Body, bytes_max: usize, method: Arc<Method>) -> Checked {
        Checked { body, messages: Messages::new(bytes_max), refusal: None, method }
    }
}

impl HttpBody for Checked {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(status) = self.refusal.take() {
            return Poll::Ready(Some(Err(status.into())));
        }
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => return Poll::Ready(None),
        };
        let mut data = match frame.into_data() {
            Ok(data) => data,
            Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
        };
        let scanned = self.messages.scan(&data);
        let (messages, bytes) = self.messages.take_counted();
        self.method.received(messages, bytes);
        match scanned {
            Ok(()) => Poll::Ready(Some(Ok(Frame::data(data)))),
            Err((0, status)) => Poll::Ready(Some(Err(status.into()))),
            Err((good, status)) => {
                // The messages before it were sent first and are answered first.
                data.truncate(good);
                self.refusal = Some(status);
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.refusal.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Where in the sequence of prefixes and messages a body is.
#[derive(Debug)]
pub(super) struct Messages {
    bytes_max: usize,
    prefix: [u8; PREFIX_BYTES],
    prefix_filled: usize,
    message_left: usize,
    /// Messages that began since they were last asked for, and the bytes that they announced.
    counted: (u64, u64),
}

impl Messages {
    pub(super) fn new(bytes_max: usize) -> Messages {
        Messages { bytes_max, prefix: [0; PREFIX_BYTES], prefix_filled: 0, message_left: 0, counted: (0, 0) }
    }

    /// How many messages began since the last call, and how many bytes they have.
    pub(super) fn take_counted(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.counted)
    }

    /// Follows `data`; an error says how many bytes come before the prefix at fault, as far as they are in `data`.
    pub(super) fn scan(&mut self, data: &[u8]) -> Result<(), (usize, Status)> {
        let mut at = 0;
        let mut prefix_at = 0;
        while let Some(&byte) = data.get(at) {
            if self.message_left > 0 {
                let step = self.message_left.min(data.len() - at);
                self.message_left -= step;
                at += step;
                continue;
            }
            if self.prefix_filled == 0 {
                prefix_at = at;
            }
            let slot = self.prefix.get_mut(self.prefix_filled).expect("a full prefix is taken at once");
            *slot = byte;
            self.prefix_filled += 1;
            at += 1;
            if self.prefix_filled == PREFIX_BYTES {
                self.prefix_filled = 0;
                self.message_left = self.announced().map_err(|status| (prefix_at, status))?;
                self.counted.0 += 1;
                self.counted.1 += self.message_left as u64;
            }
        }
        Ok(())
    }

    /// The length in a complete prefix, if such a message may pass.
    fn announced(&self) -> Result<usize, Status> {
        let [compressed, a, b, c, d] = self.prefix;
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if length > self.bytes_max {
            let text = format!("grpc: received message larger than max ({length} vs. {})", self.bytes_max);
            return Err(Status::resource_exhausted(text));
        }
        match compressed {
            // A named encoding was refused before the body, so a compressed message contradicts its own headers.
            0 => Ok(length),
            1 => Err(Status::internal("grpc: compressed flag set with identity or empty encoding")),
            _ => Err(Status::internal(format!("grpc: received unexpected payload format {compressed}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn message(flag: u8, length: u32) -> Vec<u8> {
        let mut bytes = vec![flag];
        bytes.extend(length.to_be_bytes());
        bytes.resize(PREFIX_BYTES + usize::try_from(length.min(64)).expect("small"), 7);
        bytes
    }

    /// Scans `data` in pieces of every size; each must come to the same end.
    #[track_caller]
    fn check(data: &[u8], expected: Option<(Code, &str)>) {
        for piece in 1..=data.len() {
            let mut messages = Messages::new(10);
            let end = data.chunks(piece).try_for_each(|piece| messages.scan(piece));
            let status = end.as_ref().err().map(|(_, status)| (status.code(), status.message()));
            assert_eq!(status, expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn messages_up_to_the_limit_pass_however_they_are_cut() {
        check(&[message(0, 10), message(0, 0), message(0, 3)].concat(), None);
    }

    #[test]
    fn messages_are_counted_when_they_are_announced() {
        let mut messages = Messages::new(10);
        let data = [message(0, 10), message(0, 0), message(0, 3)].concat();
        let (head, tail) = data.split_at(16);
        assert!(messages.scan(head).is_ok());
        assert_eq!(messages.take_counted(), (1, 10));
        assert!(messages.scan(tail).is_ok());
        assert_eq!(messages.take_counted(), (2, 3));
        assert!(messages.scan(&message(0, 11)).is_err());
        assert_eq!(messages.take_counted(), (0, 0));
    }

    #[test]
    fn a_message_above_the_limit_is_refused_by_its_prefix() {
        let text = "grpc: received message larger than max (11 vs. 10)";
        check(&[message(0, 10), message(0, 11)].concat(), Some((Code::ResourceExhausted, text)));
        check(&[0, 0, 0, 0, 11], Some((Code::ResourceExhausted, text)));
    }

    #[test]
    fn a_client_version_is_text_if_there_is_one() {
        let check = |version: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert("client-api-version", http::HeaderValue::from_bytes(version).expect("a header"));
            check_client_version(&headers).map_err(|status| (status.code(), status.message().to_owned()))
        };
        assert_eq!(check(b"3.7"), Ok(()));
        let refused = (Code::InvalidArgument, "etcdserver: invalid client api version".to_owned());
        assert_eq!(check(b"3.\xff"), Err(refused));
        assert!(check_client_version(&HeaderMap::new()).is_ok());
    }

    #[test]
    fn what_precedes_the_refused_message_is_still_delivered() {
        let (good, _) = Messages::new(10).scan(&[message(0, 10), message(0, 11)].concat()).expect_err("too large");
        assert_eq!(good, PREFIX_BYTES + 10);
    }

    #[test]
    fn compression_is_refused() {
        check(&message(1, 3), Some((Code::Internal, "grpc: compressed flag set with identity or empty encoding")));
        check(&message(2, 3), Some((Code::Internal, "grpc: received unexpected payload format 2")));
        let mut headers = HeaderMap::new();
        assert!(check_encoding(&headers).is_ok());
        headers.insert("grpc-encoding", http::HeaderValue::from_static("gzip"));
        let status = check_encoding(&headers).expect_err("gzip");
        assert_eq!(status.code(), Code::Unimplemented);
        assert_eq!(status.message(), "grpc: Decompressor is not installed for grpc-encoding \"gzip\"");
    }
}
