//! A snapshot in a file: checked whole, then read back in the order of the revisions.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};

use super::format::{
    self, ALIGNMENT, BLOCK_HEADER_LEN, Block, BlockHeader, End, HASH_LEN, Head, Lease, Mark, RaisedAlarm, wrong,
};
use crate::change::Change;
use crate::error::Error;
use crate::fs::{File, FileSystem, OpenMode};
use crate::types::{Revision, RevisionPair};

/// What a snapshot says of itself, all of it checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// The cluster that it was taken of.
    pub cluster: u64,
    /// When, in milliseconds since 1970.
    pub created_ms: u64,
    /// The revision that it is of.
    pub revision: Revision,
    /// The lowest revision that can be read; -1 if nothing was ever compacted.
    pub compacted: Revision,
    /// Keys at the revision.
    pub keys: u64,
    /// Versions, deletions included.
    pub versions: u64,
    /// Leases.
    pub leases: u64,
    /// Alarms raised.
    pub alarms: u64,
    /// Marks: when revisions were reached.
    pub marks: u64,
    /// Bytes of keys and values of all versions.
    pub data_bytes: u64,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// The SHA-256 of everything before the hash.
    pub sha256: [u8; HASH_LEN],
}

/// A snapshot that was read and checked from the first byte to the last. Memory: 8 bytes per block of about 512 KiB, the leases and alarms.
#[derive(Debug)]
pub struct SnapshotFile {
    file: Arc<dyn File>,
    path: PathBuf,
    info: SnapshotInfo,
    format: u32,
    pub(super) leases: Vec<Lease>,
    pub(super) alarms: Vec<RaisedAlarm>,
    /// Where blocks of marks are, oldest first.
    mark_blocks: Vec<u64>,
    /// Where blocks of changes are, newest first.
    blocks: Vec<u64>,
}

/// How a file is read.
struct Source<'a> {
    file: &'a dyn File,
    path: &'a Path,
    len: u64,
}

impl SnapshotFile {
    /// Opens a snapshot and checks all of it: each block's checksum, the order and numbers of changes and leases, counts and sums, and, unless told
    /// not to, the SHA-256 at the end.
    ///
    /// Errors: `Corrupt`, saying where; `Io`, also for a newer format.
    pub fn open(fs: &dyn FileSystem, path: &Path, skip_hash_check: bool) -> Result<SnapshotFile, Error> {
        let file = fs.open(path, OpenMode::Read).map_err(|error| failed("opening", path, &error))?;
        let len = file.len().map_err(|error| failed("reading", path, &error))?;
        let mut walk = Walk::default();
        let source = Source { file: &*file, path, len };
        let (info, sha256) = walk.all(&source, skip_hash_check).map_err(|error| placed(error, path))?;
        let Walk { format, leases, alarms, mark_blocks, blocks, .. } = walk;
        let (path, info) = (path.to_owned(), SnapshotInfo { sha256, ..info });
        Ok(SnapshotFile { file, path, info, format, leases, alarms, mark_blocks, blocks })
    }

    /// What it holds.
    pub fn info(&self) -> &SnapshotInfo {
        &self.info
    }

    /// Every change in ascending order, until `take` fails. Errors: those of `take`; `Io`; `Corrupt` if the file is not what it was.
    pub(super) fn each_change(&self, mut take: impl FnMut(Change) -> Result<(), Error>) -> Result<(), Error> {
        let source = Source { file: &*self.file, path: &self.path, len: self.info.size_bytes };
        let mut found = End::default();
        for offset in self.blocks.iter().rev() {
            let Block::Changes(changes) = self.read(&source, *offset, &mut found)? else {
                return Err(placed(wrong(format!("no changes at offset {offset} any more")), &self.path));
            };
            changes.into_iter().try_for_each(&mut take)?;
        }
        if found.changes == self.info.versions { Ok(()) } else { Err(placed(wrong("it changes"), &self.path)) }
    }

    /// Every mark in ascending order. Errors: as `each_change`.
    pub(super) fn each_mark(&self, mut take: impl FnMut(Mark) -> Result<(), Error>) -> Result<(), Error> {
        let source = Source { file: &*self.file, path: &self.path, len: self.info.size_bytes };
        let mut found = End::default();
        for offset in &self.mark_blocks {
            let Block::Marks(marks) = self.read(&source, *offset, &mut found)? else {
                return Err(placed(wrong(format!("no marks at offset {offset} any more")), &self.path));
            };
            marks.into_iter().try_for_each(&mut take)?;
        }
        if found.marks == self.info.marks { Ok(()) } else { Err(placed(wrong("it changes"), &self.path)) }
    }

    fn read(&self, source: &Source<'_>, offset: u64, found: &mut End) -> Result<Block, Error> {
        let read = source.block(offset).and_then(|(header, content, _)| header.read(self.format, &content, found));
        read.map_err(|error| placed(error, &self.path))
    }
}

impl Source<'_> {
    /// Bytes at an offset. Errors: `Corrupt` if the file ends before; `Io`.
    fn bytes(&self, offset: u64, len: usize) -> Result<Bytes, Error> {
        if offset + len as u64 > self.len {
            return Err(wrong(format!("it ends at {}, within what begins at {offset}", self.len)));
        }
        let mut bytes = BytesMut::zeroed(len);
        self.file.read_at(offset, &mut bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => wrong("it was cut while it was read"),
            _ => failed("reading", self.path, &error),
        })?;
        Ok(bytes.freeze())
    }

    fn array<const N: usize>(&self, offset: u64) -> Result<[u8; N], Error> {
        let bytes = self.bytes(offset, N)?;
        bytes.first_chunk().copied().ok_or_else(|| wrong("it ends early"))
    }

    /// The block at an offset, and all of its bytes.
    fn block(&self, offset: u64) -> Result<(BlockHeader, Bytes, Bytes), Error> {
        let header = BlockHeader::decode(self.array(offset)?)?;
        let whole = self.bytes(offset, BLOCK_HEADER_LEN + header.len)?;
        Ok((header, whole.slice(BLOCK_HEADER_LEN..), whole))
    }
}

/// A walk over a whole file.
#[derive(Default)]
struct Walk {
    format: u32,
    hash: Sha256,
    offset: u64,
    number: u32,
    head: Option<Head>,
    found: End,
    leases: Vec<Lease>,
    alarms: Vec<RaisedAlarm>,
    last_mark: Option<Mark>,
    mark_blocks: Vec<u64>,
    blocks: Vec<u64>,
    /// The first change of the block before: everything further on comes before it.
    below: Option<RevisionPair>,
}

impl Walk {
    fn all(&mut self, source: &Source<'_>, skip_hash_check: bool) -> Result<(SnapshotInfo, [u8; HASH_LEN]), Error> {
        let prefix = source.array(0)?;
        self.format = format::read_prefix(prefix)?;
        self.hash.update(prefix);
        self.offset = prefix.len() as u64;
        let end = loop {
            if let Some(end) = self.block(source)? {
                break end;
            }
        };
        let data_end = self.offset.next_multiple_of(ALIGNMENT);
        let padding = source.bytes(self.offset, usize::try_from(data_end - self.offset).unwrap_or(0))?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(wrong("what follows the last block is not zero"));
        }
        self.hash.update(&padding);
        let sha256 = self.hash.finalize_reset().into();
        if !(skip_hash_check && source.len == data_end) {
            let carried: [u8; HASH_LEN] = source.array(data_end)?;
            if source.len != data_end + HASH_LEN as u64 {
                return Err(wrong(format!("it has {} bytes, {} expected", source.len, data_end + HASH_LEN as u64)));
            }
            if carried != sha256 && !skip_hash_check {
                return Err(wrong("it does not match the SHA-256 at its end"));
            }
        }
        let head = self.head.ok_or_else(|| wrong("it has no head"))?;
        let info = SnapshotInfo {
            cluster: head.cluster,
            created_ms: head.created_ms,
            revision: head.revision,
            compacted: end.compacted,
            keys: end.keys,
            versions: end.changes,
            leases: end.leases,
            alarms: end.alarms,
            marks: end.marks,
            data_bytes: end.data_bytes,
            size_bytes: source.len,
            sha256: [0; HASH_LEN],
        };
        Ok((info, sha256))
    }

    /// The next block; the end if it is that.
    fn block(&mut self, source: &Source<'_>) -> Result<Option<End>, Error> {
        let (header, content, whole) = source.block(self.offset)?;
        if header.number != self.number {
            return Err(wrong(format!("block {} where block {} belongs", header.number, self.number)));
        }
        let block = header.read(self.format, &content, &mut self.found)?;
        match (block, self.head) {
            (Block::Head(head), None) => self.head = Some(head),
            (Block::Head(_), Some(_)) | (_, None) => return Err(wrong("its head is not its first block")),
            (Block::Leases(leases), Some(_)) => self.take_leases(leases)?,
            (Block::Alarms(alarms), Some(_)) => self.take_alarms(alarms)?,
            (Block::Marks(marks), Some(head)) => self.take_marks(&marks, head.revision)?,
            (Block::Changes(changes), Some(head)) => self.take_changes(&changes, head.revision)?,
            (Block::End(end), Some(head)) => {
                self.offset += whole.len() as u64;
                self.hash.update(&whole);
                return self.check_end(end, head).map(Some);
            }
        }
        self.offset += whole.len() as u64;
        self.number = self.number.wrapping_add(1);
        self.hash.update(&whole);
        Ok(None)
    }

    fn take_leases(&mut self, leases: Vec<Lease>) -> Result<(), Error> {
        self.leases.extend(leases);
        let ascending = self.leases.is_sorted_by(|one, next| one.id < next.id);
        if ascending { Ok(()) } else { Err(wrong("its leases are not in order")) }
    }

    fn take_alarms(&mut self, alarms: Vec<RaisedAlarm>) -> Result<(), Error> {
        self.alarms.extend(alarms);
        let ascending = self.alarms.is_sorted_by(|one, next| one < next);
        if ascending { Ok(()) } else { Err(wrong("its alarms are not in order")) }
    }

    fn take_marks(&mut self, marks: &[Mark], revision: Revision) -> Result<(), Error> {
        for mark in marks {
            let later = self.last_mark.is_none_or(|last| last.0 < mark.0 && last.1 <= mark.1);
            if !later || mark.1 > revision {
                return Err(wrong(format!("block {}: its marks are not in order", self.number)));
            }
            self.last_mark = Some(*mark);
        }
        self.mark_blocks.push(self.offset);
        Ok(())
    }

    fn take_changes(&mut self, changes: &[Change], revision: Revision) -> Result<(), Error> {
        let ascending = changes.is_sorted_by(|one, next| one.at < next.at);
        let below = self.below.unwrap_or(RevisionPair { main: revision.next(), sub: 0 });
        let (Some(first), Some(last)) = (changes.first(), changes.last()) else { return Err(wrong("an empty block")) };
        if !ascending || last.at >= below {
            return Err(wrong(format!("block {}: its changes are not in order", self.number)));
        }
        self.below = Some(first.at);
        self.blocks.push(self.offset);
        Ok(())
    }

    fn check_end(&self, end: End, head: Head) -> Result<End, Error> {
        let counted = End { compacted: end.compacted, keys: end.keys, ..self.found };
        if counted != end {
            return Err(wrong(format!("it holds {counted:?}, its end says {end:?}")));
        }
        if end.compacted > head.revision {
            return Err(wrong(format!("revision {} compacted at {}", head.revision, end.compacted)));
        }
        Ok(end)
    }
}

fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::io(format!("{doing} {}", path.display()), error)
}

/// Names the file.
fn placed(error: Error, path: &Path) -> Error {
    match error {
        Error::Corrupt { place, reason } => Error::Corrupt { place: format!("{place} {}", path.display()), reason },
        other => other,
    }
}
