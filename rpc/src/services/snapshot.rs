//! A snapshot as messages: each piece is read when the client has room for it, so that a slow one holds nothing but its place.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::{Stream, stream};
use storage::SnapshotStream;
use tonic::Status;

use super::context::Context;
use crate::pb::etcdserverpb as pb;
use crate::status;

/// What a message carries at most, in bytes.
const BLOB_BYTES: usize = 32 << 10;

/// What clients are told the format is: theirs cannot read it.
const VERSION: &str = concat!("sternpost-", env!("CARGO_PKG_VERSION"));

/// The messages; the last one carries the SHA-256 of what the others carry.
pub(super) fn messages(context: Arc<Context>) -> impl Stream<Item = Result<pb::SnapshotResponse, Status>> + Send {
    let begun = Instant::now();
    stream::unfold(Some(Sender { context, progress: None }), move |sender| async move {
        let mut sender = sender?;
        let stopping = sender.context.stopping();
        let message = tokio::select! {
            () = stopping => Err(status::stopped()),
            message = sender.next() => message,
        };
        match message {
            Ok(None) => {
                sender.context.config.metrics.durations.snapshot_sent(begun.elapsed());
                None
            }
            Ok(Some(message)) => Some((Ok(message), Some(sender))),
            Err(status) => Some((Err(status), None)),
        }
    })
}

struct Sender {
    context: Arc<Context>,
    /// `None` until the first message is asked for.
    progress: Option<Progress>,
}

struct Progress {
    stream: SnapshotStream,
    /// What was read and is not sent yet.
    piece: Bytes,
    /// What the last message said is still to come.
    remaining: u64,
}

impl Sender {
    async fn next(&mut self) -> Result<Option<pb::SnapshotResponse>, Status> {
        if self.progress.as_ref().is_none_or(|progress| progress.piece.is_empty()) {
            let progress = self.progress.take();
            let read = move |context: &Context| {
                let mut progress = progress.unwrap_or_else(|| Progress::new(context.keyspace.snapshot()));
                let piece = progress.stream.next_piece()?;
                Ok(piece.map(|piece| Progress { piece, ..progress }))
            };
            self.progress = self.context.blocking(read).await?;
        }
        Ok(self.progress.as_mut().map(Progress::message))
    }
}

impl Progress {
    fn new(stream: SnapshotStream) -> Progress {
        Progress { stream, piece: Bytes::new(), remaining: u64::MAX }
    }

    fn message(&mut self) -> pb::SnapshotResponse {
        let blob = self.piece.split_to(self.piece.len().min(BLOB_BYTES));
        // An estimate, which may fall but not rise, and is 0 with the last of the data.
        let remaining = self.stream.remaining_bytes() + self.piece.len() as u64;
        self.remaining = self.remaining.min(remaining);
        pb::SnapshotResponse { header: None, remaining_bytes: self.remaining, blob, version: VERSION.to_owned() }
    }
}
