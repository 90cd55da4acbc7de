//! Watches: commands from the wire, messages to it.

use bytes::Bytes;
use prost::Message;
use prost::encoding::{encoded_len_varint, key_len};
use storage::{Key, KeyRange, StartAt, WatchId, WatchSpec};

use super::reply;
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::watch_create_request::FilterType;
use crate::pb::etcdserverpb::watch_request::RequestUnion;
use crate::status;

/// The tag of `WatchResponse.events`.
const EVENTS: u32 = 11;

/// The id that answers no watch in particular.
const NO_WATCH: i64 = -1;

/// One command on a watch stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Open a watch.
    Create {
        /// What to watch.
        spec: WatchSpec,
        /// Split long answers.
        fragment: bool,
    },
    /// End a watch.
    Cancel(WatchId),
    /// Say how far all watches are.
    Progress,
}

/// A command; `None` for one that this version does not know, which is ignored.
pub(crate) fn watch_command(request: pb::WatchRequest) -> Option<Command> {
    match request.request_union? {
        RequestUnion::CreateRequest(create) => {
            Some(Command::Create { fragment: create.fragment, spec: watch_spec(create) })
        }
        RequestUnion::CancelRequest(cancel) => Some(Command::Cancel(WatchId(cancel.watch_id))),
        RequestUnion::ProgressRequest(_) => Some(Command::Progress),
    }
}

fn watch_spec(create: pb::WatchCreateRequest) -> WatchSpec {
    let has = |filter: FilterType| create.filters.contains(&(filter as i32));
    WatchSpec {
        start: if create.start_revision == 0 { StartAt::Now } else { StartAt::Revision(create.start_revision) },
        no_put: has(FilterType::Noput),
        no_delete: has(FilterType::Nodelete),
        prev_kv: create.prev_kv,
        progress_notify: create.progress_notify,
        id: (create.watch_id != 0).then_some(WatchId(create.watch_id)),
        range: watch_range(create.key, create.range_end),
    }
}

/// The range of a watch, where an empty key stands for the lowest one.
fn watch_range(key: Bytes, end: Bytes) -> KeyRange {
    let start = Key::new(key).unwrap_or_else(|_| KeyRange::all().start);
    KeyRange::from_wire(start, end)
}

/// Builds the answers of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// The header, but for the revision.
    pub(crate) header: pb::ResponseHeader,
    /// Where answers of watches that asked for it are split, in bytes.
    pub(crate) fragment_bytes: usize,
}

impl Answer {
    fn at(&self, revision: storage::Revision, watch_id: i64) -> pb::WatchResponse {
        let header = pb::ResponseHeader { revision: revision.0, ..self.header };
        pb::WatchResponse { header: Some(header), watch_id, ..pb::WatchResponse::default() }
    }

    /// A watch exists.
    pub(crate) fn created(&self, id: WatchId, revision: storage::Revision) -> pb::WatchResponse {
        pb::WatchResponse { created: true, ..self.at(revision, id.0) }
    }

    /// A watch was refused.
    pub(crate) fn refused(&self, error: &storage::Error, revision: storage::Revision) -> pb::WatchResponse {
        let cancel_reason = status::cancel_reason(error).to_owned();
        pb::WatchResponse { created: true, canceled: true, cancel_reason, ..self.at(revision, NO_WATCH) }
    }

    /// One watch, or all of the stream, is complete up to a revision.
    pub(crate) fn progress(&self, id: Option<WatchId>, revision: storage::Revision) -> pb::WatchResponse {
        self.at(revision, id.map_or(NO_WATCH, |id| id.0))
    }

    /// A watch ended as asked.
    pub(crate) fn canceled(&self, id: WatchId, revision: storage::Revision) -> pb::WatchResponse {
        pb::WatchResponse { canceled: true, ..self.at(revision, id.0) }
    }

    /// A watch ended because of compaction; a header without a revision is part of how clients tell.
    pub(crate) fn compacted(&self, id: WatchId, floor: storage::Revision) -> pb::WatchResponse {
        let response = self.at(storage::Revision(0), id.0);
        pb::WatchResponse { canceled: true, compact_revision: floor.0, ..response }
    }

    /// Events, as one answer.
    pub(crate) fn events(
        &self,
        id: WatchId,
        revision: storage::Revision,
        events: &[std::sync::Arc<storage::Event>],
    ) -> pb::WatchResponse {
        let events = events.iter().map(|event| reply::event(event)).collect();
        pb::WatchResponse { events, ..self.at(revision, id.0) }
    }

    /// An answer, in pieces if it is long.
    pub(crate) fn split(&self, whole: pb::WatchResponse) -> Vec<pb::WatchResponse> {
        split(whole, self.fragment_bytes)
    }
}

/// Cuts an answer of `limit` bytes or more between its events; all pieces but the last say that more follows.
pub(super) fn split(mut whole: pb::WatchResponse, limit: usize) -> Vec<pb::WatchResponse> {
    if whole.events.len() < 2 || whole.encoded_len() < limit {
        return vec![whole];
    }
    let events = std::mem::take(&mut whole.events);
    let head = pb::WatchResponse { fragment: true, ..whole };
    let head_bytes = head.encoded_len();
    let mut pieces = Vec::new();
    let mut piece = head.clone();
    let mut piece_bytes = head_bytes;
    for event in events {
        let bytes = key_len(EVENTS) + encoded_len_varint(event.len() as u64) + event.len();
        if !piece.events.is_empty() && piece_bytes + bytes >= limit {
            pieces.push(std::mem::replace(&mut piece, head.clone()));
            piece_bytes = head_bytes;
        }
        piece.events.push(event);
        piece_bytes += bytes;
    }
    pieces.push(pb::WatchResponse { fragment: false, ..piece });
    pieces
}
