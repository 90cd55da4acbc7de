//! Open files and held locks of a simulated disk.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::fs::sim::fault::{self, FaultKind, Op};
use crate::fs::sim::node::Node;
use crate::fs::sim::state::{NodeRef, State, locked};
use crate::fs::sim::tape::Deed;
use crate::fs::{File, HeldLock};

pub(super) struct SimFile {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) node: NodeRef,
    /// The name it was opened by, for counts and faults.
    pub(super) path: PathBuf,
    pub(super) writable: bool,
}

pub(super) struct SimLock {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) path: PathBuf,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.path.display())
    }
}

impl fmt::Debug for SimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimLock({})", self.path.display())
    }
}

impl HeldLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        locked(&self.state).locks.remove(&self.path);
    }
}

impl SimFile {
    /// Runs a change under both locks, after its fault and its room were looked at.
    fn change(&self, op: Op, (offset, len): (u64, u64), deed: Deed, apply: impl FnOnce(&mut Node)) -> io::Result<()> {
        let mut state = locked(&self.state);
        state.begin(op, &self.path, 0)?;
        self.writable()?;
        self.require_room(&state, offset, len)?;
        let mut node = locked(&self.node);
        apply(&mut node);
        state.record(&self.path, node.id, || deed);
        Ok(())
    }

    fn require_room(&self, state: &State, offset: u64, len: u64) -> io::Result<()> {
        let missing = locked(&self.node).live().bytes_missing(offset, len);
        // Most writes need none, and adding up every file is not free.
        if missing == 0 || state.capacity == u64::MAX || missing <= state.free_bytes() {
            return Ok(());
        }
        Err(fault::no_space())
    }

    fn writable(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(ErrorKind::PermissionDenied.into()) }
    }
}

impl File for SimFile {
    fn len(&self) -> io::Result<u64> {
        locked(&self.state).begin(Op::Metadata, &self.path, 0)?;
        Ok(locked(&self.node).live().len)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        locked(&self.state).begin(Op::Read, &self.path, buffer.len() as u64)?;
        let node = locked(&self.node);
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > node.live().len) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        node.live().read(offset, buffer);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let len = data.len() as u64;
        let mut state = locked(&self.state);
        let met = state.begin(Op::Write, &self.path, len)?;
        self.writable()?;
        self.require_room(&state, offset, len)?;
        if met == Some(FaultKind::Partial) {
            // A kernel stops between blocks, never within one.
            let end = (offset + state.random.below(len + 1)) / 512 * 512;
            let taken = usize::try_from(end.saturating_sub(offset)).unwrap_or(0);
            locked(&self.node).write(offset, &data.get(..taken).unwrap_or(data).into());
            return Err(fault::error_of(FaultKind::Partial));
        }
        let (data, mut node) = (data.into(), locked(&self.node));
        node.write(offset, &data);
        state.record(&self.path, node.id, || Deed::Write(offset, data));
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Op::SetLen, (0, 0), Deed::SetLen(len), |node| node.set_len(len))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let deed = Deed::Allocate(offset, len);
        self.change(Op::Allocate, (offset, len), deed, |node| node.allocate(offset, len))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = locked(&self.state);
        let met = state.begin(Op::Sync, &self.path, 0)?;
        if met == Some(FaultKind::Partial) {
            locked(&self.node).lose_part(&mut state.random);
            return Err(fault::error_of(FaultKind::Partial));
        }
        let mut node = locked(&self.node);
        node.sync();
        state.record(&self.path, node.id, || Deed::Sync);
        Ok(())
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        locked(&self.state).begin(Op::Metadata, &self.path, 0)?;
        Ok(locked(&self.node).live().allocated_bytes())
    }
}
