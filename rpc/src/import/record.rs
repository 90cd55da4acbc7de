//! etcd's records: the place of a change as the key, the encoded key and value as the value.

use bytes::Bytes;
use prost::Message;
use storage::{Change, ChangeKind, Revision, RevisionPair};

use super::bolt::Entry;
use super::buckets::damaged;
use crate::pb::mvccpb::KeyValue;

/// A place: main revision, a mark between, number within the revision.
const PLACE_LEN: usize = 17;
const BETWEEN: u8 = b'_';
/// What follows the place of a deletion.
const TOMBSTONE: u8 = b't';

/// Reads a place. Errors: what is wrong with it.
pub(super) fn read_place(bytes: &[u8]) -> Result<RevisionPair, String> {
    let number = |at: usize| bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map(i64::from_be_bytes);
    match (number(0), bytes.get(8), number(9)) {
        (Some(main), Some(&BETWEEN), Some(sub)) if bytes.len() == PLACE_LEN && main >= 0 && sub >= 0 => {
            Ok(RevisionPair { main: Revision(main), sub })
        }
        _ => Err(format!("{} bytes that are no revision", bytes.len())),
    }
}

/// Reads a record as a change that shares no memory with the page. Errors: what is wrong, with the page.
pub(super) fn read(entry: &Entry) -> Result<Change, String> {
    let (place, deletes) = match entry.key.split_last() {
        Some((&TOMBSTONE, place)) if entry.key.len() == PLACE_LEN + 1 => (place, true),
        _ => (entry.key.as_ref(), false),
    };
    let at = read_place(place).map_err(|what| damaged(entry, &what))?;
    let wrong = |what: String| damaged(entry, &format!("revision {}, change {}: {what}", at.main, at.sub));
    let stored = KeyValue::decode(entry.value()?.clone()).map_err(|error| wrong(error.to_string()))?;
    let key = Bytes::copy_from_slice(&stored.key);
    if deletes {
        return Ok(Change { key, at, kind: ChangeKind::Tombstone });
    }
    if stored.mod_revision != at.main.0 {
        return Err(wrong(format!("it says that it is of revision {}", stored.mod_revision)));
    }
    let kind = ChangeKind::Put {
        create: Revision(stored.create_revision),
        version: stored.version,
        lease: stored.lease,
        value: Bytes::copy_from_slice(&stored.value),
    };
    Ok(Change { key, at, kind })
}
