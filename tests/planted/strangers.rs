//! Logs that lose answers, repeat frames, or are not ours any more: history that was rewritten does not pass for ours.

use std::path::Path;
use std::sync::Arc;

use storage::failpoints::Scope;
use storage::fs::sim::SimFs;
use storage::log::MemoryLog;
use storage::{Environment, Error, Key, Keyspace, LogId, Position, PutLease, PutReply, PutValue, Revision};

use super::life::tiny;
use crate::embedded::environment::{Counting, HandClock, never_flushing};
use crate::model::rng::Rng;

fn environment(disk: &SimFs) -> Environment {
    let entropy = Arc::new(Counting::default());
    Environment { fs: Arc::new(disk.clone()), clock: Arc::new(HandClock::default()), entropy }
}

fn put(keyspace: &Keyspace, key: u64, value: &str) -> Result<PutReply, Error> {
    let (key, value) = (Key::new(format!("k{key}"))?, PutValue::Set(value.to_owned().into()));
    keyspace.put(storage::Put { key, value, lease: PutLease::Detach, prev_kv: false }).wait()
}

pub fn suite(_: &Arc<Scope>, seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    chaos(&mut rng).map_err(|error| error.to_string())??;
    rewritten(&mut rng).map_err(|error| error.to_string())??;
    for more in [0, 1] {
        another_future(&mut rng, more).map_err(|error| error.to_string())??;
    }
    Ok(())
}

/// Answers are lost, frames delayed and repeated: each write is there once.
fn chaos(rng: &mut Rng) -> Result<Result<(), String>, Error> {
    let (disk, log) = (SimFs::new(), MemoryLog::new(LogId(7)));
    log.chaos(rng.next(), 40);
    let open = || Keyspace::open_with_log(Path::new("/keyspace"), tiny(), environment(&disk), Box::new(log.clone()));
    let mut keyspace = open()?;
    let mut acknowledged = Vec::new();
    for number in 0..60 {
        let reply = loop {
            match put(&keyspace, number % 7, &format!("{number}")) {
                // The log was full for once; nothing was begun.
                Err(Error::NoSpace) => {}
                done => break done?,
            }
        };
        acknowledged.push((reply.revision, format!("{number}")));
        if rng.chance(5) {
            drop(keyspace);
            keyspace = open()?;
        }
    }
    let mut stored = Vec::new();
    while stored.len() < acknowledged.len() {
        let from = stored.last().map_or(Revision(1), |(revision, _): &(Revision, String)| revision.next());
        let changes = keyspace.stored_changes(from, Revision(i64::MAX), 1 << 20)?;
        if changes.is_empty() {
            break;
        }
        let value = |change: &storage::Change| change.key_value().map(|kv| kv.value.to_vec()).unwrap_or_default();
        let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
        stored.extend(changes.iter().map(|change| (change.at.main, text(value(change)))));
    }
    keyspace.close()?;
    let fits = stored == acknowledged;
    Ok(if fits { Ok(()) } else { Err(format!("acknowledged {acknowledged:?}, stored {stored:?}")) })
}

/// A frame beyond base becomes another one.
fn rewritten(rng: &mut Rng) -> Result<Result<(), String>, Error> {
    let (disk, log) = (SimFs::new(), MemoryLog::new(LogId(7)));
    let open =
        || Keyspace::open_with_log(Path::new("/keyspace"), never_flushing(), environment(&disk), Box::new(log.clone()));
    let keyspace = open()?;
    for number in 0..10 {
        put(&keyspace, number, "value")?;
    }
    drop(keyspace);
    assert!(log.rewrite(Position(1 + rng.below(9) as u64)), "it is there");
    Ok(match open() {
        Err(Error::LogMismatch { .. }) => Ok(()),
        other => Err(format!("a frame was rewritten, and it opens: {:?}", other.err())),
    })
}

/// The log of the same directory, from a time that took another course, with so many frames more than base has.
fn another_future(rng: &mut Rng, more: u64) -> Result<Result<(), String>, Error> {
    let disk = SimFs::new();
    let open = |disk: &SimFs| Keyspace::open(Path::new("/keyspace"), never_flushing(), environment(disk));
    let keyspace = open(&disk)?;
    put(&keyspace, 0, "common")?;
    keyspace.close()?;
    let other = disk.restart();
    let frames = 1 + rng.below(5) as u64;
    for (disk, value, flushed) in [(&disk, "ours", true), (&other, "theirs", false)] {
        let keyspace = open(disk)?;
        for number in 0..if flushed { frames } else { frames + more } {
            put(&keyspace, number, value)?;
        }
        if flushed {
            keyspace.flush()?;
        }
        disk.freeze();
        drop(keyspace);
    }
    let disk = disk.restart();
    for file in other.files().iter().filter(|file| file.extension().is_some_and(|end| end == "log")) {
        disk.damage(file, 0, &other.contents(file).unwrap_or_default())
            .map_err(|error| Error::io("copying a log", &error))?;
    }
    Ok(match open(&disk) {
        Err(Error::LogMismatch { .. }) => Ok(()),
        other => Err(format!("the log is from another time, and it opens: {:?}", other.err())),
    })
}
