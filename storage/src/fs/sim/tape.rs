//! A recording of everything that changed a disk, from which the images of a power cut at any moment are built.
//!
//! What is recorded: writes, lengths, allocations, syncs, creations, renames, removals and syncs of directories, each when it had
//! taken effect, with the name of the thread that did it; and the marks that a test sets between them, to know later what was begun
//! and what was acknowledged. Reads, locks and errors are not.
//!
//! How images are built: a [`Player`] repeats the recording on a copy of the disk as it was at the start. Before and after each step
//! it is a disk like any other, with a part that is durable and a part that is not, so [`Player::crash`] gives any number of images
//! of a cut there, by [`CrashStyle`] and seed. Pages are shared until they are written: an image costs a few microseconds.
//!
//! A tape may be played in another order ([`Tape::reorder`]): what two threads did to different files could as well have come the other
//! way round. Whether it could is for the caller to know.
//!
//! Limits: a tape holds the bytes of every write, so it is for histories that fit into memory. A fault of kind
//! `Partial` changes the disk without a record: record without faults. Directories are durable at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fs::sim::SimFs;
use crate::fs::sim::node::{CrashStyle, Node};
use crate::fs::sim::state::{NodeRef, State, locked};

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Bytes were written at an offset.
    Write(u64, Arc<[u8]>),
    /// The length was set.
    SetLen(u64),
    /// Blocks were allocated from an offset on.
    Allocate(u64, u64),
    /// The file was synced.
    Sync,
    /// The file was made.
    Create,
    /// The file was given the name of the step, which was this before.
    Rename(PathBuf),
    /// The file was removed.
    Remove,
    /// The directory was synced.
    SyncDir,
    /// A directory was made.
    CreateDir,
    /// A test's mark.
    Mark(u64),
}

/// One step of a recording.
#[derive(Clone, Debug)]
pub struct Step {
    /// What was done.
    pub deed: Deed,
    /// The file or directory; the name that an open file was opened by.
    pub path: PathBuf,
    /// The thread that did it; empty if it has no name.
    pub thread: Arc<str>,
    /// Tells files apart, whatever their names.
    node: u64,
}

/// A recording.
#[derive(Debug)]
pub struct Tape {
    start: State,
    steps: Vec<Step>,
}

impl Tape {
    pub(super) fn new(start: State) -> Tape {
        Tape { start, steps: Vec::new() }
    }

    pub(super) fn push(&mut self, deed: Deed, path: &Path, node: u64) {
        let thread = std::thread::current().name().unwrap_or_default().into();
        self.steps.push(Step { deed, path: path.to_owned(), thread, node });
    }

    /// What was done, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The same steps in another order: the places of the steps, each once.
    ///
    /// # Panics
    ///
    /// If a place is missing or comes twice.
    pub fn reorder(&mut self, order: &[usize]) {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..self.steps.len()), "each step comes once");
        self.steps = order.iter().filter_map(|place| self.steps.get(*place)).cloned().collect();
    }

    /// Plays the tape from its start.
    pub fn play(&self) -> Player<'_> {
        let state = self.start.restarted();
        let nodes = state.nodes().into_iter().map(|node| (locked(&node).id, node.clone())).collect();
        Player { tape: self, next: 0, nodes, state }
    }
}

/// A disk on which a tape is repeated.
#[derive(Debug)]
pub struct Player<'a> {
    tape: &'a Tape,
    next: usize,
    nodes: BTreeMap<u64, NodeRef>,
    state: State,
}

impl Player<'_> {
    /// How many steps were repeated.
    pub fn position(&self) -> usize {
        self.next
    }

    /// Repeats the steps up to the one at `position`, not included.
    pub fn advance_to(&mut self, position: usize) {
        while self.next < position {
            let Some(step) = self.tape.steps.get(self.next) else { return };
            self.repeat(step);
            self.next += 1;
        }
    }

    /// The disk after a power cut at this moment.
    pub fn crash(&self, style: CrashStyle, seed: u64) -> SimFs {
        SimFs::from_state(self.state.crashed(style, seed))
    }

    fn repeat(&mut self, step: &Step) {
        let node = self.nodes.get(&step.node).cloned();
        let on_node = |change: &dyn Fn(&mut Node)| {
            change(&mut locked(&node.clone().expect("a file is made before it is used")));
        };
        match &step.deed {
            Deed::Write(offset, data) => on_node(&|node| node.write(*offset, data)),
            Deed::SetLen(len) => on_node(&|node| node.set_len(*len)),
            Deed::Allocate(offset, len) => on_node(&|node| node.allocate(*offset, *len)),
            Deed::Sync => on_node(&Node::sync),
            Deed::Create => {
                let node = self.state.insert(&step.path, step.node);
                self.nodes.insert(step.node, node);
            }
            Deed::Rename(from) => self.state.rename(from, &step.path).expect("it was there"),
            Deed::Remove => self.state.unlink(&step.path).expect("it was there"),
            Deed::SyncDir => self.state.sync_dir(&step.path).expect("it was there"),
            Deed::CreateDir => self.state.add_dirs(&step.path),
            Deed::Mark(_) => {}
        }
    }
}
