//! A range in one message that is encoded while it is sent: of a long answer no more than a piece is in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use storage::{Error, Keyspace, Listing};
use tonic::Status;

use super::context::Context;
use crate::pb::etcdserverpb as pb;
use crate::{buffers, convert, encoded, status};

/// What the first piece and the others aim at, in bytes of keys and values. Each is a turn of a thread that may wait for the disk: where it is
/// small, handing it over and back takes longer than to encode it.
const FIRST_BYTES: usize = 256 << 10;
const PIECE_BYTES: usize = 1536 << 10;

/// Room for what is around keys and values that are not tiny.
const ROOM_BYTES: usize = 64 << 10;

/// How long an answer reads base as it was when it was asked: that keeps pages from being used again. Later pieces are read from base as it
/// is then, which cannot be done once the revision is compacted.
const AS_IT_WAS: Duration = Duration::from_secs(5);

/// The largest message that is sent, as in etcd.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

/// Bytes to send, and what follows them, if anything does.
pub(super) type Step = (Bytes, Option<Answer>);

/// An answer that is being sent.
pub(super) struct Answer {
    listing: Listing,
    /// The encoded length of what is left of it.
    left: usize,
    tail: Vec<u8>,
    begun: Instant,
}

impl Answer {
    /// Begins with what was found: the first piece, and the answer to go on with unless that was all. Blocks on the disk.
    pub(super) fn begin(listing: Listing, header: Option<pb::ResponseHeader>) -> Result<Step, Status> {
        let head = convert::range_head(header);
        let tail = convert::range_tail(listing.more, listing.count);
        let entries = convert::entries_len(&listing);
        let len = head.len() + entries + tail.len();
        let announced = u32::try_from(len).ok().filter(|_| len <= MESSAGE_BYTES_MAX);
        let prefix = encoded::prefix(announced.ok_or_else(|| status::too_long(len, MESSAGE_BYTES_MAX))?);
        let mut first = buffers::take(len.min(FIRST_BYTES + ROOM_BYTES));
        first.extend(prefix);
        first.extend(head);
        let answer = Answer { listing, left: entries, tail, begun: Instant::now() };
        answer.piece(FIRST_BYTES, first).map_err(|error| status::of(&error))
    }

    /// Encodes the next piece behind `out`; answers also what follows, unless it was the last.
    fn piece(mut self, bytes: usize, mut out: Vec<u8>) -> Result<Step, Error> {
        let before = out.len();
        convert::take_entries(&mut self.listing, bytes, &mut out)?;
        self.left -= out.len() - before;
        let more = self.listing.entries().len() > 0;
        if !more {
            out.append(&mut self.tail);
        }
        Ok((buffers::share(out), more.then_some(self)))
    }

    /// Reads and encodes the next piece. Blocks on the disk.
    fn next(mut self, keyspace: &Keyspace) -> Result<Step, Error> {
        if self.begun.elapsed() > AS_IT_WAS {
            self.listing.renew(keyspace)?;
        }
        let out = buffers::take(self.left.min(PIECE_BYTES) + ROOM_BYTES);
        self.piece(PIECE_BYTES, out)
    }
}

/// The pieces of an answer that has begun.
pub(super) fn pieces(context: Arc<Context>, (first, answer): Step) -> impl Stream<Item = Result<Bytes, Status>> + Send {
    let rest = stream::unfold(answer, move |answer| {
        let context = Arc::clone(&context);
        async move {
            let answer = answer?;
            Some(match context.blocking(move |context| answer.next(&context.keyspace)).await {
                Ok((piece, answer)) => (Ok(piece), answer),
                Err(status) => (Err(status), None),
            })
        }
    });
    stream::iter([Ok(first)]).chain(rest)
}
