//! Names, locks, room, faults and counts: everything of a simulated disk but the files' bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fs::sim::fault::{self, Counts, Fault, FaultKind, Op};
use crate::fs::sim::node::{CrashStyle, Node};
use crate::fs::sim::prng::Prng;
use crate::fs::sim::tape::{Deed, Tape};

pub(super) type NodeRef = Arc<Mutex<Node>>;
type Names = BTreeMap<PathBuf, NodeRef>;

/// A change of names that its directory's sync makes durable.
#[derive(Clone, Debug)]
enum NameChange {
    Link(PathBuf, NodeRef),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf, NodeRef),
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) names: Names,
    durable_names: Names,
    unsynced: Vec<NameChange>,
    pub(super) dirs: BTreeSet<PathBuf>,
    pub(super) locks: BTreeMap<PathBuf, String>,
    pub(super) capacity: u64,
    pub(super) faults: Vec<Fault>,
    pub(super) frozen: bool,
    pub(super) counts: BTreeMap<PathBuf, Counts>,
    pub(super) total: Counts,
    /// Decides what a partial fault leaves.
    pub(super) random: Prng,
    /// The number of the file made last.
    last_node: u64,
    /// What is done is recorded here, if it is.
    pub(super) tape: Option<Box<Tape>>,
}

impl State {
    pub(super) fn new(dirs: BTreeSet<PathBuf>, capacity: u64, seed: u64) -> State {
        State {
            names: Names::new(),
            durable_names: Names::new(),
            unsynced: Vec::new(),
            dirs,
            locks: BTreeMap::new(),
            capacity,
            faults: Vec::new(),
            frozen: false,
            counts: BTreeMap::new(),
            total: Counts::default(),
            random: Prng::new(seed),
            last_node: 0,
            tape: None,
        }
    }

    /// Puts what was done on the tape, if there is one.
    pub(super) fn record(&mut self, path: &Path, node: u64, deed: impl FnOnce() -> Deed) {
        if let Some(tape) = &mut self.tape {
            tape.push(deed(), path, node);
        }
    }

    /// Counts an operation and decides its fate: an error, a partial failure that the caller carries out, or nothing.
    pub(super) fn begin(&mut self, op: Op, path: &Path, bytes: u64) -> io::Result<Option<FaultKind>> {
        if self.frozen {
            return Err(fault::frozen());
        }
        let name = path.to_string_lossy();
        let met = self.faults.iter_mut().filter_map(|fault| fault.meets(op, &name)).last();
        if met == Some(FaultKind::Freeze) {
            self.frozen = true;
            return Err(fault::frozen());
        }
        self.total.add(op, bytes);
        match self.counts.get_mut(path) {
            Some(counts) => counts.add(op, bytes),
            None => self.counts.entry(path.to_owned()).or_default().add(op, bytes),
        }
        match met {
            Some(FaultKind::Partial) if matches!(op, Op::Write | Op::Sync) => Ok(met),
            Some(kind) => Err(fault::error_of(kind)),
            None => Ok(None),
        }
    }

    pub(super) fn node(&self, path: &Path) -> io::Result<NodeRef> {
        let missing = || io::Error::new(ErrorKind::NotFound, format!("no file {}", path.display()));
        self.names.get(path).cloned().ok_or_else(missing)
    }

    pub(super) fn link(&mut self, path: &Path) -> io::Result<NodeRef> {
        if self.names.contains_key(path) || self.dirs.contains(path) {
            return Err(io::Error::new(ErrorKind::AlreadyExists, format!("{} exists", path.display())));
        }
        self.require_dir(parent(path))?;
        let id = self.last_node + 1;
        let node = self.insert(path, id);
        self.record(path, id, || Deed::Create);
        Ok(node)
    }

    /// Makes a file of that number.
    pub(super) fn insert(&mut self, path: &Path, id: u64) -> NodeRef {
        self.last_node = self.last_node.max(id);
        let node = Arc::new(Mutex::new(Node::new(id)));
        self.names.insert(path.to_owned(), node.clone());
        self.unsynced.push(NameChange::Link(path.to_owned(), node.clone()));
        node
    }

    /// Makes a directory and those above it.
    pub(super) fn add_dirs(&mut self, path: &Path) {
        let missing = path.ancestors().filter(|dir| parent(dir) != *dir && !dir.as_os_str().is_empty());
        self.dirs.extend(missing.map(Path::to_owned));
    }

    /// Every file that has a name, had one, or would have one again after a cut.
    pub(super) fn nodes(&self) -> Vec<NodeRef> {
        let unsynced = self.unsynced.iter().filter_map(|change| match change {
            NameChange::Link(_, node) | NameChange::Rename(_, _, node) => Some(node),
            NameChange::Unlink(_) => None,
        });
        self.names.values().chain(self.durable_names.values()).chain(unsynced).cloned().collect()
    }

    pub(super) fn unlink(&mut self, path: &Path) -> io::Result<()> {
        self.node(path)?;
        self.names.remove(path);
        self.unsynced.push(NameChange::Unlink(path.to_owned()));
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.require_dir(parent(to))?;
        let node = self.node(from)?;
        self.unsynced.push(NameChange::Rename(from.to_owned(), to.to_owned(), node));
        if let Some(change) = self.unsynced.last() {
            change.apply(&mut self.names);
        }
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.require_dir(dir)?;
        let (now, later) = self.unsynced.drain(..).partition(|change| change.touches(dir));
        self.unsynced = later;
        let now: Vec<NameChange> = now;
        now.iter().for_each(|change| change.apply(&mut self.durable_names));
        Ok(())
    }

    pub(super) fn require_dir(&self, dir: &Path) -> io::Result<()> {
        let known = dir.as_os_str().is_empty() || dir == Path::new("/") || self.dirs.contains(dir);
        if known { Ok(()) } else { Err(io::Error::new(ErrorKind::NotFound, format!("no directory {}", dir.display()))) }
    }

    pub(super) fn free_bytes(&self) -> u64 {
        let used: u64 = self.names.values().map(|node| locked(node).live().allocated_bytes()).sum();
        self.capacity.saturating_sub(used)
    }

    /// The names and files as a power cut may leave them.
    pub(super) fn crashed(&self, style: CrashStyle, seed: u64) -> State {
        let mut random = Prng::new(seed);
        let names = match style {
            CrashStyle::KeepNone => self.durable_names.clone(),
            CrashStyle::KeepAll => self.names.clone(),
            CrashStyle::Sectors | CrashStyle::Pages | CrashStyle::HeaderBytes => {
                let mut names = self.durable_names.clone();
                let kept = self.unsynced.iter().filter(|_| random.chance(50));
                kept.for_each(|change| change.apply(&mut names));
                names
            }
        };
        let mut after = State::new(self.dirs.clone(), self.capacity, random.next_u64());
        for (path, node) in names {
            let node = locked(&node).crashed(style, &mut random);
            after.names.insert(path, Arc::new(Mutex::new(node)));
        }
        after.durable_names = after.names.clone();
        after.last_node = self.last_node;
        after
    }

    /// The same disk and page cache for the next process.
    pub(super) fn restarted(&self) -> State {
        let mut copies: BTreeMap<*const Mutex<Node>, NodeRef> = BTreeMap::new();
        let mut copy = |node: &NodeRef| {
            copies.entry(Arc::as_ptr(node)).or_insert_with(|| Arc::new(Mutex::new(locked(node).clone()))).clone()
        };
        let mut after = State::new(self.dirs.clone(), self.capacity, self.random.clone().next_u64());
        after.names = self.names.iter().map(|(path, node)| (path.clone(), copy(node))).collect();
        after.durable_names = self.durable_names.iter().map(|(path, node)| (path.clone(), copy(node))).collect();
        after.unsynced = self.unsynced.iter().map(|change| change.with_node(&mut copy)).collect();
        after.last_node = self.last_node;
        after
    }
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            NameChange::Link(path, node) => _ = names.insert(path.clone(), node.clone()),
            NameChange::Unlink(path) => _ = names.remove(path),
            NameChange::Rename(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), node.clone());
            }
        }
    }

    fn touches(&self, dir: &Path) -> bool {
        match self {
            NameChange::Link(path, _) | NameChange::Unlink(path) => parent(path) == dir,
            NameChange::Rename(from, to, _) => parent(from) == dir || parent(to) == dir,
        }
    }

    fn with_node(&self, copy: &mut impl FnMut(&NodeRef) -> NodeRef) -> NameChange {
        match self {
            NameChange::Link(path, node) => NameChange::Link(path.clone(), copy(node)),
            NameChange::Unlink(path) => NameChange::Unlink(path.clone()),
            NameChange::Rename(from, to, node) => NameChange::Rename(from.clone(), to.clone(), copy(node)),
        }
    }
}

pub(super) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// A test that panicked elsewhere leaves the state as usable as it was.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
