//! A range in pieces: each read anew at one pinned revision, so that a slow client holds nothing but its place.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use storage::{At, Content, Error, Key, Listing, RangeRequest, Revision};
use tonic::Status;

use super::context::Context;
use crate::{buffers, convert, encoded, status};

/// The keys of the first piece.
const FIRST_KEYS: i64 = 10;

/// The most keys of any piece, so that tiny values do not make long reads.
const KEYS_MAX: i64 = 16 << 10;

/// The pieces, encoded, each a message; the last one carries header, count and whether the limit cut keys off.
pub(super) fn pieces(context: Arc<Context>, request: RangeRequest) -> impl Stream<Item = Result<Bytes, Status>> + Send {
    let place = Place::new(request, context.config.max_request_bytes);
    stream::unfold(Some(place), move |place| {
        let context = Arc::clone(&context);
        async move {
            let place = place?;
            let stopping = context.stopping();
            let piece = tokio::select! {
                () = stopping => Err(status::stopped()),
                piece = context.blocking(|context| next(context, place)) => piece,
            };
            Some(match piece {
                Ok((piece, place)) => (Ok(piece), place),
                Err(status) => (Err(status), None),
            })
        }
    })
}

/// Reads and encodes the next piece. Answers also where to go on, unless it was the last.
fn next(context: &Context, mut place: Place) -> Result<(Bytes, Option<Place>), Error> {
    let mut listing = context.keyspace.list(&place.request)?;
    let read = Read::of(&listing);
    let end = place.pass(&read);
    let (head, tail) = match &end {
        Some(End { revision, count, more }) => {
            (convert::range_head(context.header(*revision)), convert::range_tail(*more, *count))
        }
        None => (Vec::new(), Vec::new()),
    };
    let len = head.len() + read.bytes + tail.len();
    let envelope = convert::piece_head(len);
    // A piece has some megabytes at most: what a request may have, and one value more.
    let prefix = encoded::prefix(u32::try_from(envelope.len() + len).unwrap_or(u32::MAX));
    let mut out = buffers::take(prefix.len() + envelope.len() + len);
    out.extend(prefix);
    out.extend(envelope);
    out.extend(head);
    convert::take_entries(&context.keyspace, &mut listing, usize::MAX, &mut out)?;
    out.extend(tail);
    Ok((buffers::share(out), end.is_none().then_some(place)))
}

/// What was read for a piece.
struct Read {
    revision: Revision,
    count: i64,
    keys: i64,
    bytes: usize,
    last: Option<Bytes>,
}

impl Read {
    fn of(listing: &Listing) -> Read {
        Read {
            revision: listing.revision,
            count: listing.count,
            keys: i64::try_from(listing.entries().len()).unwrap_or(i64::MAX),
            bytes: convert::entries_len(listing),
            last: listing.entries().next_back().map(|entry| entry.key.clone()),
        }
    }
}

/// What the last piece says of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    revision: Revision,
    count: i64,
    more: bool,
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

    /// Moves on behind what was read; answers how the stream ends if that was the last.
    fn pass(&mut self, read: &Read) -> Option<End> {
        let (count, revision) = *self.first.get_or_insert((read.count, read.revision));
        if self.request.at == At::Latest {
            self.request.at = At::Revision(revision.0);
        }
        self.sent = self.sent.saturating_add(read.keys);
        self.limit_left = self.limit_left.map(|left| left - read.keys);
        // The first piece counted everything at this revision, and what a revision holds does not change.
        let last = read.keys == 0 || self.sent >= count || self.limit_left == Some(0);
        if let Some(key) = &read.last {
            self.request.range.start = successor(key);
            self.ask_for(self.resized(read.bytes));
        }
        let more = self.request.content != Content::CountOnly && self.sent < count;
        last.then_some(End { revision, count, more })
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
    use storage::KeyRange;

    /// Reads from so many keys of so many bytes, as a keyspace at revision 9 would: the keys, and what is known of them.
    fn read(keys: u32, bytes: usize, request: &RangeRequest) -> (Vec<Bytes>, Read) {
        let all = (0..keys).map(|number| Bytes::from(format!("k{number:06}")));
        let mut found: Vec<Bytes> = all.filter(|key| request.range.contains(key)).collect();
        let count = i64::try_from(found.len()).expect("few");
        if request.content == Content::CountOnly {
            found.clear();
        }
        assert!(request.limit > 0, "every piece is bounded");
        found.truncate(usize::try_from(request.limit).expect("positive"));
        let (keys, last) = (i64::try_from(found.len()).expect("few"), found.last().cloned());
        let read = Read { revision: Revision(9), count, keys, bytes: found.len() * (bytes + 20), last };
        (found, read)
    }

    /// All pieces of a range of `keys` keys: what each was read with, its keys, and what it says of the end.
    fn stream(keys: u32, bytes: usize, request: RangeRequest) -> Vec<(RangeRequest, Vec<Bytes>, Option<End>)> {
        let mut place = Place::new(request, 10_000);
        let mut pieces = Vec::new();
        loop {
            let asked = place.request.clone();
            let (found, read) = read(keys, bytes, &asked);
            let end = place.pass(&read);
            pieces.push((asked, found, end));
            if end.is_some() {
                return pieces;
            }
        }
    }

    /// Checks the last piece, and that the pieces together hold the right keys, once each.
    fn check(keys: u32, limit: i64, expected_keys: usize, expected_more: bool) {
        let pieces = stream(keys, 10, RangeRequest { limit, ..RangeRequest::new(KeyRange::all()) });
        let found: Vec<&Bytes> = pieces.iter().flat_map(|(_, found, _)| found).collect();
        assert!(found.is_sorted_by(|one, next| one < next));
        assert_eq!(found.len(), expected_keys, "{keys} keys, limit {limit}");
        let (last, others) = pieces.split_last().expect("a piece");
        let end = End { revision: Revision(9), count: i64::from(keys), more: expected_more };
        assert_eq!(last.2, Some(end), "{keys} keys, limit {limit}");
        assert!(others.iter().all(|(_, found, end)| !found.is_empty() && end.is_none()));
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
        let end = End { revision: Revision(9), count: 1000, more: false };
        let ends: Vec<_> = pieces.iter().map(|(_, found, end)| (found.len(), *end)).collect();
        assert_eq!(ends, [(0, Some(end))]);
    }

    #[test]
    fn later_pieces_are_read_at_the_revision_of_the_first() {
        let pieces = stream(100, 10, RangeRequest::new(KeyRange::all()));
        let at: Vec<At> = pieces.iter().map(|(asked, ..)| asked.at).collect();
        assert_eq!(at.first(), Some(&At::Latest));
        assert!(at.len() > 2 && at.iter().skip(1).all(|at| *at == At::Revision(9)), "{at:?}");
        let old = RangeRequest { at: At::Revision(4), ..RangeRequest::new(KeyRange::all()) };
        assert!(stream(100, 10, old).iter().all(|(asked, ..)| asked.at == At::Revision(4)));
    }

    #[test]
    fn pieces_grow_and_shrink_towards_their_size() {
        let limits = |bytes| -> Vec<i64> {
            stream(400, bytes, RangeRequest::new(KeyRange::all())).iter().map(|(asked, ..)| asked.limit).collect()
        };
        assert_eq!(limits(10), [10, 20, 40, 80, 160, 320]);
        assert_eq!(limits(3000).get(..4), Some([10, 5, 2, 2].as_slice()));
    }
}
