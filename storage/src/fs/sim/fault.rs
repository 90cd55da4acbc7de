//! What can be made to fail, and what is counted.

use std::io::{self, ErrorKind};

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// Making a directory.
    CreateDir,
    /// Listing a directory.
    List,
    /// Asking what a path names, or how large a file is.
    Metadata,
    /// Opening an existing file.
    Open,
    /// Making a file.
    Create,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Cutting or extending.
    SetLen,
    /// Allocating blocks.
    Allocate,
    /// Syncing a file.
    Sync,
    /// Syncing a directory.
    SyncDir,
    /// Renaming.
    Rename,
    /// Removing a file.
    Remove,
    /// Taking a lock.
    Lock,
    /// Asking for free bytes.
    FreeBytes,
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An input/output error; nothing was done.
    Io,
    /// No room; nothing was done.
    NoSpace,
    /// An input/output error after a part was done: the first sectors of a write were taken; of a sync some reached the disk, and
    /// the rest counts as clean although it did not, as kernels do it. Else like `Io`.
    Partial,
    /// The process dies before the operation: this one and all later ones fail.
    Freeze,
}

/// A failure to come.
#[derive(Clone, Debug)]
pub struct Fault {
    kind: FaultKind,
    left: u64,
    lasting: bool,
    op: Option<Op>,
    file: Option<String>,
}

impl Fault {
    /// The `nth` matching operation from now on fails, 1 being the next.
    pub fn new(kind: FaultKind, nth: u64) -> Fault {
        Fault { kind, left: nth, lasting: false, op: None, file: None }
    }

    /// All that match after it fail as well.
    pub fn lasting(self) -> Fault {
        Fault { lasting: true, ..self }
    }

    /// True once it struck.
    pub(super) fn has_struck(&self) -> bool {
        self.left == 0
    }

    /// Only operations of this kind count.
    pub fn on(self, op: Op) -> Fault {
        Fault { op: Some(op), ..self }
    }

    /// Only operations on paths that end with `name` count.
    pub fn in_file(self, name: &str) -> Fault {
        Fault { file: Some(name.to_owned()), ..self }
    }

    /// Takes note of an operation; the kind if this is the one.
    pub(super) fn meets(&mut self, op: Op, path: &str) -> Option<FaultKind> {
        let matches = self.op.is_none_or(|wanted| wanted == op)
            && self.file.as_ref().is_none_or(|name| path.ends_with(name.as_str()));
        if !matches || self.left == 0 {
            return (matches && self.lasting).then_some(self.kind);
        }
        self.left -= 1;
        (self.left == 0).then_some(self.kind)
    }
}

/// What was done to one file, or to all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations of every kind.
    pub operations: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs of a file or a directory.
    pub syncs: u64,
    /// Operations that change something: all but reads, opens, locks and questions.
    pub changes: u64,
}

impl Counts {
    pub(super) fn add(&mut self, op: Op, bytes: u64) {
        self.operations += 1;
        match op {
            Op::Read => {
                self.reads += 1;
                self.bytes_read += bytes;
            }
            Op::Write => {
                self.writes += 1;
                self.bytes_written += bytes;
            }
            Op::Sync | Op::SyncDir => self.syncs += 1,
            _ => {}
        }
        let question = matches!(op, Op::List | Op::Metadata | Op::Open | Op::Read | Op::Lock | Op::FreeBytes);
        self.changes += u64::from(!question && !matches!(op, Op::Sync | Op::SyncDir));
    }
}

/// The error of a fault.
pub(super) fn error_of(kind: FaultKind) -> io::Error {
    match kind {
        FaultKind::Io | FaultKind::Partial => io::Error::other("simulated input/output error"),
        FaultKind::NoSpace => no_space(),
        FaultKind::Freeze => frozen(),
    }
}

pub(super) fn no_space() -> io::Error {
    io::Error::new(ErrorKind::StorageFull, "simulated disk is full")
}

pub(super) fn frozen() -> io::Error {
    io::Error::other("the simulated process is dead")
}
