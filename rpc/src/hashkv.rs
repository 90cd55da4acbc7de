//! A checksum over all keys and their history, comparable with the one that etcd computes over the same history.
//!
//! What compaction has made unreadable does not count, whether or not it is still stored: the result depends on the history and the two
//! revisions alone.

use prost::Message;
use storage::{Change, Error, Keyspace, Revision};

use crate::convert;

/// How much history is read at a time, in bytes.
const CHUNK_BYTES: usize = 1 << 20;

/// How often a hash is begun anew because compaction went on meanwhile.
const TRIES: usize = 3;

/// The name of the table that etcd keeps its records in; the checksum begins with it.
const SEED: &[u8] = b"key";

/// A checksum, with what it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hashed {
    /// CRC-32C.
    pub(crate) hash: u32,
    /// The revision it includes.
    pub(crate) revision: Revision,
    /// The compacted revision it was computed with.
    pub(crate) compacted: Revision,
}

/// The checksum at a revision; 0 means the current one. `None` if compaction overtook it again and again. Blocks on the disk.
/// Errors: `Compacted`, `Future`.
pub(crate) fn hash(keyspace: &Keyspace, asked: i64) -> Result<Option<Hashed>, Error> {
    for _ in 0..TRIES {
        let status = keyspace.status();
        let revision = resolve(asked, status.revision, status.compacted)?;
        let hash = hash_history(keyspace, revision, status.compacted)?;
        // Records between the old and the new bound may have been removed while they were being read.
        if keyspace.status().compacted == status.compacted {
            return Ok(Some(Hashed { hash, revision, compacted: status.compacted }));
        }
    }
    Ok(None)
}

fn resolve(asked: i64, current: Revision, compacted: Revision) -> Result<Revision, Error> {
    match asked {
        0 => Ok(current),
        // Nothing was ever written there, so nothing is missing.
        _ if asked < 0 => Ok(Revision(asked)),
        _ if asked < compacted.0 => Err(Error::Compacted { asked, floor: compacted.0 }),
        _ if asked > current.0 => Err(Error::Future { asked, current: current.0 }),
        _ => Ok(Revision(asked)),
    }
}

/// Of history up to the compacted revision, etcd hashes what a reader at `revision` sees; but where no key is left for one, what compaction has
/// kept: the keys that lived at the compacted revision.
fn hash_history(keyspace: &Keyspace, revision: Revision, compacted: Revision) -> Result<u32, Error> {
    let mut crc = crc32c::crc32c(SEED);
    let mut crc_without_keys = crc;
    let mut some_key = false;
    let mut from = Revision::FIRST;
    while from <= revision {
        let changes = keyspace.stored_changes(from, revision, CHUNK_BYTES)?;
        let Some(last) = changes.last() else { break };
        from = last.at.main.next();
        for change in &changes {
            let recent = change.at.main > compacted;
            let seen = (!recent || !some_key) && survives(keyspace, change, revision)?;
            some_key |= seen;
            if recent || seen {
                crc = add(crc, change);
            }
            if !some_key && (recent || survives(keyspace, change, compacted)?) {
                crc_without_keys = add(crc_without_keys, change);
            }
        }
    }
    Ok(if some_key { crc } else { crc_without_keys })
}

/// True for the put that a reader at `revision` sees: compaction never removes it.
fn survives(keyspace: &Keyspace, change: &Change, revision: Revision) -> Result<bool, Error> {
    if change.is_tombstone() {
        return Ok(false);
    }
    Ok(keyspace.stored_version(&change.key, revision)? == Some(change.at))
}

/// Adds a record as etcd stores it: its revision, marked if it is a deletion, and the encoded key.
fn add(crc: u32, change: &Change) -> u32 {
    let mut key = Vec::with_capacity(18);
    key.extend(change.at.main.0.to_be_bytes());
    key.push(b'_');
    key.extend(change.at.sub.to_be_bytes());
    if change.is_tombstone() {
        key.push(b't');
    }
    let crc = crc32c::crc32c_append(crc, &key);
    crc32c::crc32c_append(crc, &convert::record(change).encode_to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::{ChangeKind, RevisionPair};

    #[test]
    fn a_record_is_hashed_in_the_bytes_that_etcd_stores() {
        let at = RevisionPair { main: Revision(0x0102), sub: 3 };
        let kind = ChangeKind::Put { create: Revision(2), version: 300, lease: 5, value: "v".into() };
        let put = Change { key: "k".into(), at, kind };
        let key = b"\0\0\0\0\0\0\x01\x02_\0\0\0\0\0\0\0\x03";
        // key, create 2, mod 258, version 300, value, lease 5
        let value = b"\x0a\x01k\x10\x02\x18\x82\x02\x20\xac\x02\x2a\x01v\x30\x05";
        let seed = crc32c::crc32c(b"key");
        assert_eq!(add(seed, &put), crc32c::crc32c(&[b"key", key.as_slice(), value].concat()));
        let gone = Change { kind: ChangeKind::Tombstone, ..put };
        assert_eq!(add(seed, &gone), crc32c::crc32c(&[b"key", key.as_slice(), b"t", b"\x0a\x01k"].concat()));
    }

    #[test]
    fn the_revision_is_between_the_compacted_and_the_current_one() {
        let (current, compacted) = (Revision(9), Revision(4));
        assert_eq!(resolve(0, current, compacted), Ok(Revision(9)));
        assert_eq!(resolve(4, current, compacted), Ok(Revision(4)));
        assert_eq!(resolve(9, current, compacted), Ok(Revision(9)));
        assert_eq!(resolve(-1, current, compacted), Ok(Revision(-1)));
        assert_eq!(resolve(3, current, compacted), Err(Error::Compacted { asked: 3, floor: 4 }));
        assert_eq!(resolve(10, current, compacted), Err(Error::Future { asked: 10, current: 9 }));
    }
}
