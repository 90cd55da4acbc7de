//! A simulated disk for tests: it forgets what was not synced, tears, fills up and fails on command.
//!
//! ```
//! use std::path::Path;
//! use storage::fs::sim::{CrashStyle, SimFs};
//! use storage::fs::{FileSystem, OpenMode};
//!
//! let disk = SimFs::new();
//! let path = Path::new("/data/file");
//! disk.create_dir(Path::new("/data"))?;
//! let file = disk.open(path, OpenMode::CreateNew)?;
//! file.write_at(0, b"kept")?;
//! file.sync()?;
//! disk.sync_dir(Path::new("/data"))?;
//! file.write_at(0, b"lost")?;
//! let after = disk.crash(CrashStyle::KeepNone, 1);
//! assert_eq!(after.contents(path).as_deref(), Some(&b"kept"[..]));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A file's bytes and length are durable after `sync`; a file's name after `sync_dir`. Until then each 512-byte sector, each
//! length and each name may or may not reach the disk, in any combination, as far as [`CrashStyle`] allows. Everything
//! random follows from the seed. Paths are compared as they are spelled.

mod fault;
mod file;
mod image;
mod node;
mod prng;
mod state;
mod tape;

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub use fault::{Counts, Fault, FaultKind, Op};
pub use node::CrashStyle;
pub use prng::Prng;
pub use tape::{Deed, Player, Step, Tape};

use crate::fs::sim::file::{SimFile, SimLock};
use crate::fs::sim::state::{State, locked, parent};
use crate::fs::{File, FileSystem, HeldLock, Metadata, OpenMode, Volume};

/// A simulated file system; clones are handles to the same one.
#[derive(Clone)]
pub struct SimFs {
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for SimFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFs({} files)", self.files().len())
    }
}

impl Default for SimFs {
    fn default() -> SimFs {
        SimFs::new()
    }
}

impl SimFs {
    /// An empty one with unlimited room.
    pub fn new() -> SimFs {
        SimFs::from_state(State::new(BTreeSet::new(), u64::MAX, 0))
    }

    fn from_state(state: State) -> SimFs {
        SimFs { state: Arc::new(Mutex::new(state)) }
    }

    /// The disk after a power cut: no process, no lock, no fault to come. This one stays as it is.
    pub fn crash(&self, style: CrashStyle, seed: u64) -> SimFs {
        SimFs::from_state(locked(&self.state).crashed(style, seed))
    }

    /// The same machine for the next process: what was not synced is still seen, and still not durable.
    pub fn restart(&self) -> SimFs {
        SimFs::from_state(locked(&self.state).restarted())
    }

    /// From now on every operation fails, as for a process that died.
    pub fn freeze(&self) {
        locked(&self.state).frozen = true;
    }

    /// True once `freeze` or a fault of that kind struck.
    pub fn is_frozen(&self) -> bool {
        locked(&self.state).frozen
    }

    /// Makes an operation to come fail.
    pub fn inject(&self, fault: Fault) {
        locked(&self.state).faults.push(fault);
    }

    /// True if one of the faults struck.
    pub fn has_failed(&self) -> bool {
        locked(&self.state).faults.iter().any(Fault::has_struck)
    }

    /// Takes back every fault.
    pub fn clear_faults(&self) {
        locked(&self.state).faults.clear();
    }

    /// Sets the room in bytes; files take it in pages of 4 KiB.
    pub fn set_capacity(&self, bytes: u64) {
        locked(&self.state).capacity = bytes;
    }

    /// What was done to a path since the start or the last reset.
    pub fn counts(&self, path: impl AsRef<Path>) -> Counts {
        locked(&self.state).counts.get(path.as_ref()).copied().unwrap_or_default()
    }

    /// What was done to all paths.
    pub fn total(&self) -> Counts {
        locked(&self.state).total
    }

    /// Starts counting anew.
    pub fn reset_counts(&self) {
        let mut state = locked(&self.state);
        state.counts.clear();
        state.total = Counts::default();
    }

    /// Records from now on what is done.
    pub fn record(&self) {
        let mut state = locked(&self.state);
        let start = state.restarted();
        state.tape = Some(Box::new(Tape::new(start)));
    }

    /// Puts a mark on the tape.
    pub fn mark(&self, number: u64) {
        locked(&self.state).record(Path::new(""), 0, || Deed::Mark(number));
    }

    /// How many steps were recorded.
    pub fn tape_len(&self) -> usize {
        locked(&self.state).tape.as_ref().map_or(0, |tape| tape.steps().len())
    }

    /// Ends the recording and takes it; `None` if there is none.
    pub fn take_tape(&self) -> Option<Tape> {
        locked(&self.state).tape.take().map(|tape| *tape)
    }

    /// The paths of all files, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        locked(&self.state).names.keys().cloned().collect()
    }

    /// A file's bytes as processes see them, uncounted; `None` without such a file.
    pub fn contents(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let node = locked(&self.state).node(path.as_ref()).ok()?;
        let node = locked(&node);
        let mut bytes = vec![0; usize::try_from(node.live().len).ok()?];
        node.live().read(0, &mut bytes);
        Some(bytes)
    }

    /// Replaces bytes on the disk itself, uncounted. Errors: `NotFound`.
    pub fn damage(&self, path: impl AsRef<Path>, offset: u64, data: &[u8]) -> io::Result<()> {
        let node = locked(&self.state).node(path.as_ref())?;
        locked(&node).damage(offset, data);
        Ok(())
    }

    /// Zeroes a stretch on the disk itself. Errors: `NotFound`.
    pub fn zero(&self, path: impl AsRef<Path>, offset: u64, len: usize) -> io::Result<()> {
        self.damage(path, offset, &vec![0; len])
    }

    /// Flips one bit on the disk itself, the lowest of the first byte being bit 0. Errors: `NotFound`.
    pub fn flip_bit(&self, path: impl AsRef<Path>, bit: u64) -> io::Result<()> {
        let node = locked(&self.state).node(path.as_ref())?;
        let mut node = locked(&node);
        let mut byte = [0];
        node.live().read(bit / 8, &mut byte);
        node.damage(bit / 8, &byte.map(|byte| byte ^ (1 << (bit % 8))));
        Ok(())
    }
}

impl FileSystem for SimFs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = locked(&self.state);
        state.begin(Op::CreateDir, path, 0)?;
        if state.names.contains_key(path) {
            return Err(io::Error::new(ErrorKind::AlreadyExists, format!("{} is a file", path.display())));
        }
        state.add_dirs(path);
        state.record(path, 0, || Deed::CreateDir);
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut state = locked(&self.state);
        state.begin(Op::List, path, 0)?;
        state.require_dir(path)?;
        let inside = state.names.keys().chain(&state.dirs).filter(|entry| parent(entry) == path && *entry != path);
        let mut names: Vec<String> =
            inside.filter_map(|entry| Some(entry.file_name()?.to_string_lossy().into_owned())).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let mut state = locked(&self.state);
        state.begin(Op::Metadata, path, 0)?;
        if let Some(node) = state.names.get(path) {
            return Ok(Some(Metadata { is_dir: false, len: locked(node).live().len, mode: 0o600 }));
        }
        let is_dir = state.require_dir(path).is_ok();
        Ok(is_dir.then_some(Metadata { is_dir, len: 0, mode: 0o700 }))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut state = locked(&self.state);
        let node = if mode == OpenMode::CreateNew {
            state.begin(Op::Create, path, 0)?;
            state.link(path)?
        } else {
            state.begin(Op::Open, path, 0)?;
            state.node(path)?
        };
        let writable = mode != OpenMode::Read;
        Ok(Arc::new(SimFile { state: self.state.clone(), node, path: path.to_owned(), writable }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = locked(&self.state);
        state.begin(Op::Rename, to, 0)?;
        state.rename(from, to)?;
        state.record(to, 0, || Deed::Rename(from.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = locked(&self.state);
        state.begin(Op::Remove, path, 0)?;
        state.unlink(path)?;
        state.record(path, 0, || Deed::Remove);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = locked(&self.state);
        state.begin(Op::SyncDir, path, 0)?;
        state.sync_dir(path)?;
        state.record(path, 0, || Deed::SyncDir);
        Ok(())
    }

    fn lock(&self, path: &Path, note: &str) -> io::Result<Box<dyn HeldLock>> {
        let mut state = locked(&self.state);
        state.begin(Op::Lock, path, 0)?;
        if let Some(holder) = state.locks.get(path) {
            return Err(io::Error::new(ErrorKind::WouldBlock, holder.clone()));
        }
        let node = if state.names.contains_key(path) { state.node(path)? } else { state.link(path)? };
        let mut node = locked(&node);
        node.set_len(0);
        node.write(0, &note.as_bytes().into());
        state.locks.insert(path.to_owned(), note.to_owned());
        Ok(Box::new(SimLock { state: self.state.clone(), path: path.to_owned() }))
    }

    fn volume(&self, path: &Path) -> io::Result<Volume> {
        let mut state = locked(&self.state);
        state.begin(Op::FreeBytes, path, 0)?;
        Ok(Volume { total: state.capacity, free: state.free_bytes() })
    }
}
