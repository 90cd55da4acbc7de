//! A range in pieces: each read anew at one pinned revision, so that a slow client holds nothing but its place.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
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

/// The pieces; the last one carries header, count and whether the limit cut keys off.
pub(super) fn pieces(
    context: Arc<Context>,
    request: RangeRequest,
) -> impl Stream<Item = Result<pb::RangeStreamResponse, Status>> + Send {
    let place = Place::new(request, context.config.max_request_bytes);
    stream::unfold(Some((context, place)), |state| async move {
        let (context, mut place) = state?;
        let stopping = context.stopping();
        let piece = tokio::select! {
            () = stopping => Err(status::stopped()),
            piece = next(&context, &mut place) => piece,
        };
        let more_follows = matches!(&piece, Ok(piece) if piece.header.is_none());
        let piece = piece.map(|piece| pb::RangeStreamResponse { range_response: Some(piece) });
        Some((piece, more_follows.then_some((context, place))))
    })
}

/// Reads the next piece.
async fn next(context: &Arc<Context>, place: &mut Place) -> Result<pb::RangeResponse, Status> {
    let request = place.request.clone();
    let reply = context.blocking(move |context| context.keyspace.range(&request)).await?;
    Ok(place.pass(reply, |revision| context.header_at(revision)))
}

/// Where a stream is.
struct Place {
    /// What the next piece is read with; its limit is the piece's.
    request: RangeRequest,
    /// The keys that the stream may still carry; `None` means all.
    limit_left: Option<i64>,
    /// The count and the store's revision, known since the first piece.
    first: Option<(i64, Revision)>,
    /// The keys sent.
    sent: i64,
    /// What a piece aims at, in bytes.
    piece_bytes: usize,
}

impl Place {
    fn new(request: RangeRequest, piece_bytes: usize) -> Place {
        let limit_left = (request.limit > 0).then_some(request.limit);
        let mut place = Place { request, limit_left, first: None, sent: 0, piece_bytes };
        place.ask_for(FIRST_KEYS);
        place
    }

    /// Turns what was read into a piece, and moves on behind it.
    fn pass(&mut self, reply: RangeReply, header: impl FnOnce(Revision) -> pb::ResponseHeader) -> pb::RangeResponse {
        let (count, revision) = *self.first.get_or_insert((reply.count, reply.revision));
        if self.request.at == At::Latest {
            self.request.at = At::Revision(revision.0);
        }
        let keys = i64::try_from(reply.kvs.len()).unwrap_or(i64::MAX);
        self.sent = self.sent.saturating_add(keys);
        self.limit_left = self.limit_left.map(|left| left - keys);
        // The first piece counted everything at this revision, and what a revision holds does not change.
        let last = keys == 0 || self.sent >= count || self.limit_left == Some(0);
        let more = last && self.request.content != Content::CountOnly && self.sent < count;
        let after = reply.kvs.last().map(|kv| successor(&kv.key));
        let reply = RangeReply { more, count: if last { count } else { 0 }, ..reply };
        let piece = convert::range_reply(last.then(|| header(revision)), reply);
        if let Some(start) = after {
            self.request.range.start = start;
            self.ask_for(self.resized(piece.encoded_len()));
        }
        piece
    }

    /// Asks for so many keys, if the stream may still carry them.
    fn ask_for(&mut self, keys: i64) {
        self.request.limit = self.limit_left.map_or(keys, |left| keys.min(left));
    }

    /// The keys of the next piece, after one of `bytes`.
    fn resized(&self, bytes: usize) -> i64 {
        let keys = self.request.limit;
        if bytes > self.piece_bytes {
            (keys / 2).max(1)
        } else if bytes < self.piece_bytes / 2 {
            keys.saturating_mul(2).min(KEYS_MAX)
        } else {
            keys
        }
    }
}

/// The lowest key above a key.
fn successor(key: &Bytes) -> Key {
    Key::new([key.as_ref(), &[0]].concat()).expect("it ends with a zero byte")
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::{KeyRange, KeyValue};

    /// Reads from so many keys of so many bytes, as a keyspace at revision 9 would.
    fn read(keys: u32, bytes: usize, request: &RangeRequest) -> RangeReply {
        let all = (0..keys).map(|number| Bytes::from(format!("k{number:06}")));
        let mut kvs: Vec<KeyValue> = all
            .filter(|key| request.range.contains(key))
            .map(|key| KeyValue { key, value: vec![7; bytes].into(), ..KeyValue::default() })
            .collect();
        let count = i64::try_from(kvs.len()).expect("few");
        if request.content == Content::CountOnly {
            kvs.clear();
        }
        assert!(request.limit > 0, "every piece is bounded");
        kvs.truncate(usize::try_from(request.limit).expect("positive"));
        RangeReply { revision: Revision(9), more: false, count, kvs }
    }

    /// All pieces of a range of `keys` keys, with what each was read with.
    fn stream(keys: u32, bytes: usize, request: RangeRequest) -> Vec<(RangeRequest, pb::RangeResponse)> {
        let mut place = Place::new(request, 10_000);
        let mut pieces = Vec::new();
        loop {
            let asked = place.request.clone();
            let header = |revision: Revision| pb::ResponseHeader { revision: revision.0, ..Default::default() };
            let piece = place.pass(read(keys, bytes, &asked), header);
            let last = piece.header.is_some();
            pieces.push((asked, piece));
            if last {
                return pieces;
            }
        }
    }

    /// Checks the last piece, and that the pieces together hold the right keys, once each.
    fn check(keys: u32, limit: i64, expected_keys: usize, expected_more: bool) {
        let pieces = stream(keys, 10, RangeRequest { limit, ..RangeRequest::new(KeyRange::all()) });
        let found: Vec<&Bytes> = pieces.iter().flat_map(|(_, piece)| &piece.kvs).map(|kv| &kv.key).collect();
        assert!(found.is_sorted_by(|one, next| one < next));
        assert_eq!(found.len(), expected_keys, "{keys} keys, limit {limit}");
        let (last, others) = pieces.split_last().expect("a piece");
        assert_eq!((last.1.count, last.1.more), (i64::from(keys), expected_more), "{keys} keys, limit {limit}");
        assert_eq!(last.1.header.map(|header| header.revision), Some(9));
        assert!(others.iter().all(|(_, piece)| piece.header.is_none() && piece.count == 0 && !piece.more));
        assert!(others.iter().all(|(_, piece)| !piece.kvs.is_empty()));
    }

    #[test]
    fn the_pieces_together_are_the_range() {
        check(0, 0, 0, false);
        check(1, 0, 1, false);
        check(10, 0, 10, false);
        check(11, 0, 11, false);
        check(1000, 0, 1000, false);
    }

    #[test]
    fn the_limit_holds_for_all_pieces_together() {
        check(5, 3, 3, true);
        check(1000, 10, 10, true);
        check(1000, 500, 500, true);
        check(1000, 1000, 1000, false);
        check(1000, 2000, 1000, false);
    }

    #[test]
    fn a_count_is_one_piece() {
        let request = RangeRequest { content: Content::CountOnly, ..RangeRequest::new(KeyRange::all()) };
        let pieces = stream(1000, 10, request);
        assert_eq!(pieces.len(), 1);
        let piece = pieces.first().map(|(_, piece)| (piece.count, piece.more, piece.kvs.len()));
        assert_eq!(piece, Some((1000, false, 0)));
    }

    #[test]
    fn later_pieces_are_read_at_the_revision_of_the_first() {
        let pieces = stream(100, 10, RangeRequest::new(KeyRange::all()));
        let at: Vec<At> = pieces.iter().map(|(asked, _)| asked.at).collect();
        assert_eq!(at.first(), Some(&At::Latest));
        assert!(at.len() > 2 && at.iter().skip(1).all(|at| *at == At::Revision(9)), "{at:?}");
        let old = RangeRequest { at: At::Revision(4), ..RangeRequest::new(KeyRange::all()) };
        assert!(stream(100, 10, old).iter().all(|(asked, _)| asked.at == At::Revision(4)));
    }

    #[test]
    fn pieces_grow_and_shrink_towards_their_size() {
        let limits = |bytes| -> Vec<i64> {
            stream(400, bytes, RangeRequest::new(KeyRange::all())).iter().map(|(asked, _)| asked.limit).collect()
        };
        assert_eq!(limits(10), [10, 20, 40, 80, 160, 320]);
        assert_eq!(limits(3000).get(..4), Some([10, 5, 2, 2].as_slice()));
    }
}
