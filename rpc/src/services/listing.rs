//! A range in one message that is encoded while it is sent: of a long answer no more than a piece is in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Stream, stream};
use storage::{Error, Keyspace, Listing};
use tonic::Status;

use super::context::Context;
use crate::pb::etcdserverpb as pb;
use crate::{convert, encoded, status};

/// What a piece aims at, in bytes of keys and values: small enough to stay in a processor's cache on its way to the socket, large enough
/// to be worth a thread's turn.
const PIECE_BYTES: usize = 256 << 10;

/// How long an answer reads base as it was when it was asked: that keeps pages from being used again. Later pieces are read from base as it
/// is then, which cannot be done once the revision is compacted.
const AS_IT_WAS: Duration = Duration::from_secs(5);

/// The largest message that is sent, as in etcd.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

/// An answer that is being sent.
pub(super) struct Answer {
    listing: Listing,
    tail: Vec<u8>,
    begun: Instant,
}

impl Answer {
    /// Begins with what was found: the first piece, and the answer to go on with unless that was all. Blocks on the disk.
    pub(super) fn begin(
        listing: Listing,
        header: Option<pb::ResponseHeader>,
    ) -> Result<(Bytes, Option<Answer>), Status> {
        let head = convert::range_head(header);
        let tail = convert::range_tail(listing.more, listing.count);
        let entries = convert::entries_len(&listing);
        let len = head.len() + entries + tail.len();
        let announced = u32::try_from(len).ok().filter(|_| len <= MESSAGE_BYTES_MAX);
        let prefix = encoded::prefix(announced.ok_or_else(|| status::too_long(len, MESSAGE_BYTES_MAX))?);
        let mut first = Vec::with_capacity(prefix.len() + len.min(2 * PIECE_BYTES));
        first.extend(prefix);
        first.extend(head);
        let mut answer = Answer { listing, tail, begun: Instant::now() };
        let more = answer.piece(&mut first).map_err(|error| status::of(&error))?;
        Ok((first.into(), more.then_some(answer)))
    }

    /// Encodes the next piece; false if it was the last.
    fn piece(&mut self, out: &mut Vec<u8>) -> Result<bool, Error> {
        convert::take_entries(&mut self.listing, PIECE_BYTES, out)?;
        if self.listing.entries().len() > 0 {
            return Ok(true);
        }
        out.append(&mut self.tail);
        Ok(false)
    }

    fn next(&mut self, keyspace: &Keyspace) -> Result<(Bytes, bool), Error> {
        if self.begun.elapsed() > AS_IT_WAS {
            self.listing.renew(keyspace)?;
        }
        let mut out = Vec::with_capacity(2 * PIECE_BYTES);
        let more = self.piece(&mut out)?;
        Ok((out.into(), more))
    }
}

/// The pieces of an answer that has begun.
pub(super) fn pieces(
    context: Arc<Context>,
    first: Bytes,
    answer: Option<Answer>,
) -> impl Stream<Item = Result<Bytes, Status>> + Send {
    let rest = stream::unfold(answer, move |answer| {
        let context = Arc::clone(&context);
        async move {
            let mut answer = answer?;
            let read = move |context: &Context| {
                let (piece, more) = answer.next(&context.keyspace)?;
                Ok((piece, more.then_some(answer)))
            };
            Some(match context.blocking(read).await {
                Ok((piece, answer)) => (Ok(piece), answer),
                Err(status) => (Err(status), None),
            })
        }
    });
    futures_util::StreamExt::chain(stream::iter([Ok(first)]), rest)
}
