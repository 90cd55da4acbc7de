//! Every failpoint walked, every planted fault caught: only with the feature `failpoints`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test that panics has failed"
)]

mod after;
mod caught;
mod crashes;
mod damage;
mod garbage;
mod leases;
mod life;
mod strangers;
mod suites;
mod walk;

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::{Arc, Once, mpsc};
use std::time::Duration;

use storage::failpoints::Scope;
use storage::fs::FileSystem;
use storage::fs::sim::SimFs;
use storage::{Environment, Error, Key, Keyspace, Options, Put, PutLease, PutReply, PutValue};

use crate::embedded::environment::{Counting, HandClock, never_flushing};

/// All right, or what is wrong.
type Checked = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// How long a case may take before it counts as hanging; it takes a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a case with a thread of its own in a scope. What it panics with is an error, and so is that it does not end.
fn guarded(scope: &Arc<Scope>, case: impl FnOnce() -> Checked + Send + 'static) -> Result<(), String> {
    silence();
    let (scope, (done, ended)) = (scope.clone(), mpsc::channel());
    std::thread::spawn(move || {
        let _entered = scope.enter();
        let result = std::panic::catch_unwind(AssertUnwindSafe(case));
        let result =
            result.map_err(|panic| text(panic.as_ref())).and_then(|done| done.map_err(|wrong| wrong.to_string()));
        // Nobody waits any more for a case that hung.
        drop(done.send(result));
    });
    ended.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(format!("no end within {PATIENCE:?}")))
}

/// What a panic says.
fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// Panics in a scope are expected by the hundred: what they say is told by who catches them.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !Scope::is_entered() {
                loud(info);
            }
        }));
    });
}

const DIR: &str = "/keyspace";

/// Everything as small as it can be: one command a frame, one in the queue, four changes a part, eight frames a segment.
fn tiny() -> Options {
    Options {
        recent_changes: 8,
        cache_bytes: 64 << 10,
        segment_bytes: 8 << 10,
        queue_commands: 1,
        batch_bytes: 1,
        watch_queue_bytes: 1,
        ..never_flushing()
    }
}

fn environment(disk: &SimFs, clock: &Arc<HandClock>) -> Environment {
    let entropy = Arc::new(Counting::default());
    Environment { fs: Arc::new(disk.clone()), clock: clock.clone(), entropy }
}

fn open(disk: &SimFs, options: Options) -> Result<Keyspace, Error> {
    Keyspace::open(Path::new(DIR), options, environment(disk, &Arc::default()))
}

fn put(keyspace: &Keyspace, key: &str, value: impl Into<bytes::Bytes>) -> Result<PutReply, Error> {
    let (key, value) = (Key::new(key.to_owned())?, PutValue::Set(value.into()));
    keyspace.put(Put { key, value, lease: PutLease::Detach, prev_kv: false }).wait()
}

/// What is wrong with the directory, the first of it.
fn look(disk: &SimFs) -> Result<(), Error> {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    storage::verify(Path::new(DIR), &fs, 1 << 20)?.damage.into_iter().next().map_or(Ok(()), Err)
}
