//! A range in one message that is encoded while it is sent: of a long answer no more than a piece is in memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use storage::{Error, Keyspace, Listing};
use tokio::task::AbortHandle;
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

/// How long an answer reads base as it was when it was asked: that keeps pages from being used again, so a client that does not read on must
/// not hold it. Later pieces are read from base as it is then, which cannot be done once the revision is compacted.
const AS_IT_WAS: Duration = Duration::from_secs(5);
/// How soon that is tried again while a piece is being read.
const AGAIN: Duration = Duration::from_millis(20);

/// The largest message that is sent, as in etcd.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

/// Bytes to send, and what follows them, if anything does.
pub(super) type Step = (Bytes, Option<Answer>);

/// An answer that is being sent.
pub(super) struct Answer {
    listing: Arc<Mutex<Listing>>,
    /// The encoded length of what is left of it.
    left: usize,
    tail: Vec<u8>,
}

impl Answer {
    /// Begins with what was found: the first piece, and the answer to go on with unless that was all. Blocks on the disk.
    pub(super) fn begin(
        keyspace: &Keyspace,
        listing: Listing,
        header: Option<pb::ResponseHeader>,
    ) -> Result<Step, Status> {
        let head = convert::range_head(header);
        let tail = convert::range_tail(listing.more, listing.count);
        let left = convert::entries_len(&listing);
        let len = head.len() + left + tail.len();
        let announced = u32::try_from(len).ok().filter(|_| len <= MESSAGE_BYTES_MAX);
        let prefix = encoded::prefix(announced.ok_or_else(|| status::too_long(len, MESSAGE_BYTES_MAX))?);
        let mut first = buffers::take(len.min(FIRST_BYTES + ROOM_BYTES));
        first.extend(prefix);
        first.extend(head);
        let answer = Answer { listing: Arc::new(Mutex::new(listing)), left, tail };
        answer.piece(keyspace, FIRST_BYTES, first).map_err(|error| status::of(&error))
    }

    /// Encodes the next piece behind `out`; answers also what follows, unless it was the last.
    fn piece(mut self, keyspace: &Keyspace, bytes: usize, mut out: Vec<u8>) -> Result<Step, Error> {
        let before = out.len();
        convert::take_entries(keyspace, &mut lock(&self.listing), bytes, &mut out)?;
        self.left -= out.len() - before;
        let more = self.left > 0;
        if !more {
            out.append(&mut self.tail);
        }
        Ok((buffers::share(out), more.then_some(self)))
    }

    /// Reads and encodes the next piece. Blocks on the disk.
    fn next(self, keyspace: &Keyspace) -> Result<Step, Error> {
        let out = buffers::take(self.left.min(PIECE_BYTES) + ROOM_BYTES);
        self.piece(keyspace, PIECE_BYTES, out)
    }
}

fn lock(listing: &Mutex<Listing>) -> MutexGuard<'_, Listing> {
    listing.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Releases a listing when its time is up, whether or not somebody reads on; not once this is dropped.
struct Releasing(AbortHandle);

impl Releasing {
    fn after(time: Duration, listing: Arc<Mutex<Listing>>) -> Releasing {
        let release = async move {
            tokio::time::sleep(time).await;
            while !released(&listing) {
                tokio::time::sleep(AGAIN).await;
            }
        };
        Releasing(tokio::spawn(release).abort_handle())
    }
}

/// False while a piece is being read.
fn released(listing: &Mutex<Listing>) -> bool {
    match listing.try_lock() {
        Ok(mut listing) => listing.release(),
        Err(TryLockError::Poisoned(listing)) => listing.into_inner().release(),
        Err(TryLockError::WouldBlock) => return false,
    }
    true
}

impl Drop for Releasing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The pieces of an answer that has begun.
pub(super) fn pieces(context: Arc<Context>, (first, answer): Step) -> impl Stream<Item = Result<Bytes, Status>> + Send {
    let releasing = answer.as_ref().map(|answer| Releasing::after(AS_IT_WAS, Arc::clone(&answer.listing)));
    let rest = stream::unfold(answer.zip(releasing), move |state| {
        let context = Arc::clone(&context);
        async move {
            let (answer, releasing) = state?;
            Some(match context.blocking(move |context| answer.next(&context.keyspace)).await {
                Ok((piece, answer)) => (Ok(piece), answer.zip(Some(releasing))),
                Err(status) => (Err(status), None),
            })
        }
    });
    stream::iter([Ok(first)]).chain(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::fs::RealFs;
    use storage::{Environment, KeyRange, Options, Put, PutLease, PutValue, RangeRequest, SystemClock, SystemEntropy};

    /// A keyspace with more in base than the first piece holds, and a listing of it.
    fn listed(directory: &std::path::Path) -> (Keyspace, Listing) {
        let (clock, entropy) = (Arc::new(SystemClock::new()), Arc::new(SystemEntropy));
        let environment = Environment { fs: Arc::new(RealFs), clock, entropy };
        let keyspace = Keyspace::open(directory, Options::standard(), environment).expect("a new directory");
        for number in 0..8_u8 {
            let key = storage::Key::new(vec![b'k', number]).expect("a key");
            let value = PutValue::Set(vec![number; FIRST_BYTES / 2].into());
            keyspace.put(Put { key, value, lease: PutLease::Detach, prev_kv: false }).wait().expect("it is put");
        }
        keyspace.flush().expect("it is flushed");
        let listing = keyspace.list(&RangeRequest::new(KeyRange::all())).expect("it can be read");
        (keyspace, listing)
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_on_holds_nothing_for_long() {
        let directory = tempfile::tempdir().expect("a directory");
        let (keyspace, listing) = listed(directory.path());
        let (first, answer) = Answer::begin(&keyspace, listing, None).expect("it begins");
        let answer = answer.expect("more than a piece");
        assert!(first.len() >= FIRST_BYTES / 2 && answer.left > FIRST_BYTES);
        let releasing = Releasing::after(Duration::ZERO, Arc::clone(&answer.listing));
        while !releasing.0.is_finished() {
            tokio::task::yield_now().await;
        }
        let newest = keyspace.delete_range(delete_all()).wait().expect("it is deleted").revision;
        keyspace.compact(newest.0).wait().expect("it is compacted");
        let error = answer.next(&keyspace).map(|(piece, _)| piece.len()).expect_err("its revision is gone");
        assert!(matches!(error, Error::Compacted { .. }), "{error}");
    }

    #[tokio::test]
    async fn until_then_compaction_takes_nothing_from_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let (keyspace, listing) = listed(directory.path());
        let (first, answer) = Answer::begin(&keyspace, listing, None).expect("it begins");
        let answer = answer.expect("more than a piece");
        let _releasing = Releasing::after(AS_IT_WAS, Arc::clone(&answer.listing));
        let newest = keyspace.delete_range(delete_all()).wait().expect("it is deleted").revision;
        keyspace.compact(newest.0).wait().expect("it is compacted");
        keyspace.wait_swept(newest).expect("it is swept");
        let (rest, end) = answer.next(&keyspace).expect("it is held");
        assert!(end.is_none());
        // The prefix announces all of it.
        let announced = first.get(1..5).map(|len| len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)));
        assert_eq!(announced, Some(first.len() + rest.len() - 5));
    }

    fn delete_all() -> storage::DeleteRange {
        storage::DeleteRange { range: KeyRange::all(), prev_kv: false }
    }
}
