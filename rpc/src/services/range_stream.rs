//! A range in pieces: each read anew at one pinned revision, so that a slow client holds nothing but its place.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream;
use prost::Message;
use storage::{At, Content, Key, RangeReply, RangeRequest, Revision};
use tonic::Status;

use super::context::Context;
use crate::convert;
use crate::pb::etcdserverpb as pb;
use crate::status;

/// The keys of the first piece.
const FIRST_KEYS: i64 = 10;

/// The most keys of any piece, so that tiny values do not make long reads.
const KEYS_MAX: i64 = 16 << 10;

/// Where a stream is.
struct Place {
    context: Arc<Context>,
    /// What the next piece is read with; its limit is the piece's.
    request: RangeRequest,
    /// The keys that the whole stream may still carry; negative means all.
    limit_left: i64,
    /// The count and the store's revision, known since the first piece.
    first: Option<(i64, Revision)>,
    /// The keys sent.
    sent: i64,
}

/// The pieces; the last one carries header, count and whether the limit cut keys off.
pub(super) fn pieces(
    context: Arc<Context>,
    mut request: RangeRequest,
) -> impl Stream<Item = Result<pb::RangeStreamResponse, Status>> + Send {
    let limit_left = if request.limit <= 0 { -1 } else { request.limit };
    request.limit = FIRST_KEYS;
    let place = Place { context, request, limit_left, first: None, sent: 0 };
    stream::unfold(Some(place), |place| async move {
        let mut place = place?;
        let stopping = place.context.stopping();
        let piece = tokio::select! {
            () = stopping => Err(status::stopped()),
            piece = place.next() => piece,
        };
        match piece {
            Ok(response) => {
                let more_follows = response.header.is_none();
                Some((Ok(pb::RangeStreamResponse { range_response: Some(response) }), more_follows.then_some(place)))
            }
            Err(refusal) => Some((Err(refusal), None)),
        }
    })
}

impl Place {
    /// Reads the next piece and moves on behind it.
    async fn next(&mut self) -> Result<pb::RangeResponse, Status> {
        if self.limit_left >= 0 {
            self.request.limit = self.request.limit.min(self.limit_left);
        }
        let request = self.request.clone();
        let reply = self.context.blocking(move |context| context.keyspace.range(&request)).await?;
        let (count, revision) = *self.first.get_or_insert((reply.count, reply.revision));
        self.pin(revision);
        let keys = i64::try_from(reply.kvs.len()).unwrap_or(i64::MAX);
        self.sent = self.sent.saturating_add(keys);
        if self.limit_left >= 0 {
            self.limit_left -= keys;
        }
        // The first piece counted everything at this revision, and a revision does not change.
        let last = keys == 0 || self.sent >= count || self.limit_left == 0;
        let header = last.then(|| self.context.header_at(revision));
        let more = last && self.request.content != Content::CountOnly && self.sent < count;
        let after = reply.kvs.last().map(|kv| successor(&kv.key));
        let response = convert::range_reply(header, RangeReply { more, count: if last { count } else { 0 }, ..reply });
        if !last && let Some(start) = after {
            self.request.range.start = start;
            self.request.limit = self.resized(response.encoded_len());
        }
        Ok(response)
    }

    /// All pieces are read at the revision of the first.
    fn pin(&mut self, revision: Revision) {
        if self.request.at == At::Latest {
            self.request.at = At::Revision(revision.0);
        }
    }

    /// The keys of the next piece, after one of `bytes`: about as many as fill a request of the largest size.
    fn resized(&self, bytes: usize) -> i64 {
        let (limit, target) = (self.request.limit, self.context.config.max_request_bytes);
        if bytes > target {
            (limit / 2).max(1)
        } else if bytes < target / 2 {
            limit.saturating_mul(2).min(KEYS_MAX)
        } else {
            limit
        }
    }
}

/// The lowest key above a key.
fn successor(key: &Bytes) -> Key {
    Key::new([key.as_ref(), &[0]].concat()).expect("it ends with a zero byte")
}
