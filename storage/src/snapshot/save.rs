//! Takes a snapshot piece by piece while writes go on.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::format::{self, CHANGE_OVERHEAD, End, Head, Lease, Mark, RaisedAlarm};
use crate::change::Change;
use crate::error::Error;
use crate::keyspace::Keyspace;
use crate::reply::Alarm;
use crate::request::{At, Content, KeyRange, RangeRequest};
use crate::types::{Revision, RevisionPair};

/// What a block of changes aims at, in bytes of keys and values; one change may be larger.
const BLOCK_BYTES: usize = 512 << 10;
/// Leases in a block, and marks.
const BLOCK_LEASES: usize = 10_000;

/// A snapshot being taken: the bytes of a file, in bounded pieces, of the keyspace at one revision.
///
/// Each piece is read from a view of its own, so a slow reader holds up nothing and pins nothing. Memory: one piece, and 24 bytes a lease.
pub struct SnapshotStream {
    keyspace: Keyspace,
    revision: Revision,
    leases: Vec<Lease>,
    alarms: Vec<RaisedAlarm>,
    stage: Stage,
    /// The number of the next block.
    number: u32,
    end: End,
    hash: Sha256,
    sent: u64,
    expected: u64,
    block_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Head,
    /// So many leases were sent.
    Leases(usize),
    /// Marks behind this time are to come.
    Marks(Option<u64>),
    /// Changes below this place are to come.
    Changes(RevisionPair),
    Hash,
    Over,
}

impl SnapshotStream {
    pub(super) fn new(keyspace: &Keyspace) -> SnapshotStream {
        let shared = &keyspace.inner.shared;
        // Under one lock: leases change only together with what is published.
        let head = shared.head();
        let leases = shared.lessor.all(shared.clock.monotonic());
        let (used, sources) = (head.data_bytes(), head.sources.clone());
        let (revision, raised) = (head.revision, head.alarms_asked_for.clone());
        drop(head);
        let member = keyspace.status().member;
        let alarm =
            |alarm: &Alarm| RaisedAlarm { member: Some(alarm.member).filter(|of| *of != member), kind: alarm.kind };
        let mut alarms: Vec<RaisedAlarm> = raised.iter().map(alarm).collect();
        alarms.sort_unstable();
        let expected =
            used + sources.changes_stored() * CHANGE_OVERHEAD as u64 + (leases.len() * format::LEASE_LEN) as u64;
        SnapshotStream {
            keyspace: keyspace.clone(),
            revision,
            leases,
            alarms,
            stage: Stage::Head,
            number: 0,
            end: End::default(),
            hash: Sha256::new(),
            sent: 0,
            expected,
            block_bytes: small!(BLOCK_BYTES, 1),
        }
    }

    /// With blocks of another size.
    #[cfg(test)]
    pub(crate) fn in_blocks_of(self, block_bytes: usize) -> SnapshotStream {
        SnapshotStream { block_bytes, ..self }
    }

    /// The revision that the snapshot is of.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The next piece of the file; `None` at its end. The last piece is the SHA-256 of all others, 32 bytes, and they are a multiple of 512
    /// bytes together. Blocks on the disk. Errors: `Compacted` if the compacted revision passed the snapshot's; `Io`, `Corrupt`.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, Error> {
        failpoint!(SnapshotPiece, Err);
        let bytes = match self.stage {
            Stage::Head => {
                let (cluster, created_ms) = (self.keyspace.status().cluster, self.keyspace.wall_ms());
                self.stage = Stage::Leases(0);
                let head = Head { cluster, revision: self.revision, created_ms };
                let mut bytes = format::prefix();
                bytes.extend(format::head_block(self.take_number(), &head));
                bytes
            }
            Stage::Leases(sent) if sent < self.leases.len() => {
                let upto = self.leases.len().min(sent + BLOCK_LEASES);
                self.stage = Stage::Leases(upto);
                let number = self.take_number();
                format::leases_block(number, self.leases.get(sent..upto).unwrap_or_default(), &mut self.end)
            }
            Stage::Leases(_) if !self.alarms.is_empty() => {
                let number = self.take_number();
                self.stage = Stage::Marks(None);
                format::alarms_block(number, &std::mem::take(&mut self.alarms), &mut self.end)
            }
            Stage::Leases(_) => self.marks_behind(None)?,
            Stage::Marks(behind) => self.marks_behind(behind)?,
            Stage::Changes(below) => self.changes_below(below)?,
            Stage::Hash => {
                self.stage = Stage::Over;
                return Ok(Some(Bytes::copy_from_slice(&self.hash.finalize_reset())));
            }
            Stage::Over => return Ok(None),
        };
        self.hash.update(&bytes);
        self.sent += bytes.len() as u64;
        Ok(Some(bytes.into()))
    }

    /// About the bytes that are still to come, the hash excluded: an estimate, for versions that go meanwhile do not come, and 0 once all have.
    pub fn remaining_bytes(&self) -> u64 {
        match self.stage {
            Stage::Hash | Stage::Over => 0,
            _ => self.expected.saturating_sub(self.sent).max(1),
        }
    }

    /// The block of marks behind a time, or of changes if there are none.
    fn marks_behind(&mut self, behind: Option<u64>) -> Result<Vec<u8>, Error> {
        let sources = self.keyspace.inner.shared.view().sources;
        let mut marks: Vec<Mark> = sources.marks(behind, BLOCK_LEASES)?;
        marks.retain(|(_, revision)| *revision <= self.revision);
        let Some((last, _)) = marks.last() else {
            let end = RevisionPair { main: self.revision.next(), sub: 0 };
            return self.changes_below(if planted!(SnapshotTooNew) { RevisionPair::MAX } else { end });
        };
        self.stage = Stage::Marks(Some(*last));
        let number = self.take_number();
        Ok(format::marks_block(number, &marks, &mut self.end))
    }

    /// The block of changes before a place, or the end if there are none.
    fn changes_below(&mut self, below: RevisionPair) -> Result<Vec<u8>, Error> {
        let view = self.keyspace.inner.shared.view();
        let (asked, floor) = (self.revision.0, view.compacted.0);
        if floor > asked {
            return Err(Error::Compacted { asked, floor });
        }
        let changes: Vec<Arc<Change>> = view.sources.changes_below(below, self.block_bytes)?;
        drop(view);
        let Some(first) = changes.first() else { return self.end() };
        self.stage = Stage::Changes(first.at);
        let number = self.take_number();
        Ok(format::changes_block(number, changes.iter().map(|change| change.as_ref()), &mut self.end))
    }

    fn end(&mut self) -> Result<Vec<u8>, Error> {
        let keys = RangeRequest {
            at: At::Revision(self.revision.0),
            content: Content::CountOnly,
            ..RangeRequest::new(KeyRange::all())
        };
        self.end.keys = u64::try_from(self.keyspace.range(&keys)?.count).unwrap_or(0);
        let compacted = self.keyspace.inner.shared.head().compacted;
        if compacted > self.revision {
            return Err(Error::Compacted { asked: self.revision.0, floor: compacted.0 });
        }
        self.end.compacted = compacted;
        self.stage = Stage::Hash;
        let number = self.take_number();
        let mut bytes = format::end_block(number, &self.end);
        let total = self.sent + bytes.len() as u64;
        let padding = total.next_multiple_of(format::ALIGNMENT) - total;
        bytes.resize(bytes.len() + usize::try_from(padding).unwrap_or(0), 0);
        Ok(bytes)
    }

    fn take_number(&mut self) -> u32 {
        let number = self.number;
        self.number = number.wrapping_add(1);
        number
    }
}

impl fmt::Debug for SnapshotStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotStream")
            .field("revision", &self.revision)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}
