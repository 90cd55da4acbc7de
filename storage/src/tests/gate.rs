//! A file system that stops a thread of the keyspace, or makes it panic, at its next write, read or sync.

use std::io;
use std::path::Path;
use std::sync::Condvar;
use std::sync::mpsc;

use super::*;
use crate::fs::{File, FileSystem, HeldLock, Metadata, OpenMode, Volume};

/// What a thread meets in a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meets {
    /// It waits until told to go on.
    Wait,
    /// It panics.
    Panic,
}

#[derive(Debug, Default)]
struct Plan {
    thread: &'static str,
    meets: Option<Meets>,
    /// Only at a sync.
    at_sync: bool,
    waiting: bool,
}

/// Decides what threads meet, by their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    shared: Arc<(Mutex<Plan>, Condvar)>,
}

impl Gate {
    /// From now on the thread meets this whenever it uses a file.
    pub(super) fn set(&self, thread: &'static str, meets: Meets) {
        *self.shared.0.lock().unwrap() = Plan { thread, meets: Some(meets), at_sync: false, waiting: false };
    }

    /// From now on the thread waits at its next sync.
    pub(super) fn hold_at_sync(&self, thread: &'static str) {
        *self.shared.0.lock().unwrap() = Plan { thread, meets: Some(Meets::Wait), at_sync: true, waiting: false };
    }

    /// Lets everybody pass.
    pub(super) fn open(&self) {
        *self.shared.0.lock().unwrap() = Plan::default();
        self.shared.1.notify_all();
    }

    /// Returns once a thread waits.
    pub(super) fn somebody_waits(&self) {
        let plan = self.shared.0.lock().unwrap();
        drop(self.shared.1.wait_while(plan, |plan| !plan.waiting).unwrap());
    }

    fn pass(&self, sync: bool) {
        let mut plan = self.shared.0.lock().unwrap();
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        let met = |plan: &Plan| (plan.thread == name && (sync || !plan.at_sync)).then_some(plan.meets).flatten();
        while let Some(meets) = met(&plan) {
            if meets == Meets::Panic {
                drop(plan);
                panic!("the {name} thread was told to panic");
            }
            plan.waiting = true;
            self.shared.1.notify_all();
            plan = self.shared.1.wait(plan).unwrap();
        }
    }
}

/// A machine's disk behind a gate.
#[derive(Debug)]
pub(super) struct GatedFs(pub(super) SimFs, pub(super) Gate);

impl GatedFs {
    /// The machine's environment with its disk behind a gate.
    pub(super) fn environment(machine: &Machine, gate: &Gate) -> Environment {
        Environment { fs: Arc::new(GatedFs(machine.disk.clone(), gate.clone())), ..machine.environment() }
    }
}

impl FileSystem for GatedFs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.0.list(path)
    }
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        self.0.metadata(path)
    }
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(GatedFile(self.0.open(path, mode)?, self.1.clone())))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.sync_dir(path)
    }
    fn lock(&self, path: &Path, note: &str) -> io::Result<Box<dyn HeldLock>> {
        self.0.lock(path, note)
    }
    fn volume(&self, path: &Path) -> io::Result<Volume> {
        self.0.volume(path)
    }
}

#[derive(Debug)]
struct GatedFile(Arc<dyn File>, Gate);

impl File for GatedFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.1.pass(false);
        self.0.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.1.pass(false);
        self.0.write_at(offset, data)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.allocate(offset, len)
    }
    fn sync(&self) -> io::Result<()> {
        self.1.pass(true);
        self.0.sync()
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.0.allocated_bytes()
    }
}

/// Runs `work` on a thread of its own; a test that waits for ever fails instead.
pub(super) fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || drop(sender.send(work())));
    receiver.recv_timeout(Duration::from_secs(10)).unwrap_or_else(|error| panic!("{what}: {error}"))
}
