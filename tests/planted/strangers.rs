//! Logs that lose answers, repeat frames, or are not ours any more: history that was rewritten does not pass for ours.

use std::path::Path;
use std::sync::Arc;

use storage::failpoints::Scope;
use storage::fs::sim::SimFs;
use storage::log::MemoryLog;
use storage::{Error, Keyspace, LogId, Options, Position, Revision};

use super::{Checked, DIR, environment, open, put, tiny};
use crate::embedded::environment::never_flushing;
use crate::model::rng::Rng;

pub fn suite(_: &Arc<Scope>, seed: u64) -> Checked {
    let mut rng = Rng::new(seed);
    bad_day(&mut rng)?;
    rewritten(&mut rng)?;
    [0, 1].into_iter().try_for_each(|more| another_future(&mut rng, more))
}

fn open_with(disk: &SimFs, log: &MemoryLog, options: Options) -> Result<Keyspace, Error> {
    Keyspace::open_with_log(Path::new(DIR), options, environment(disk, &Arc::default()), Box::new(log.clone()))
}

/// Answers are lost, frames delayed and repeated: each write is there once.
fn bad_day(rng: &mut Rng) -> Checked {
    let (disk, log) = (SimFs::new(), MemoryLog::new(LogId(7)));
    log.chaos(rng.next(), 40);
    let mut keyspace = open_with(&disk, &log, tiny())?;
    let mut acknowledged = Vec::new();
    for number in 0..60 {
        let value = format!("{number}");
        let reply = loop {
            match put(&keyspace, &format!("k{}", number % 7), value.clone()) {
                // The log was full for once; nothing was begun.
                Err(Error::NoSpace) => {}
                done => break done?,
            }
        };
        acknowledged.push((reply.revision, value));
        if rng.chance(5) {
            drop(keyspace);
            keyspace = open_with(&disk, &log, tiny())?;
        }
    }
    let stored = stored(&keyspace)?;
    keyspace.close()?;
    if stored == acknowledged { Ok(()) } else { Err(format!("told {acknowledged:?}, stored {stored:?}").into()) }
}

fn stored(keyspace: &Keyspace) -> Result<Vec<(Revision, String)>, Error> {
    let (mut stored, mut from) = (Vec::new(), Revision(1));
    loop {
        let changes = keyspace.stored_changes(from, Revision(i64::MAX), 1 << 20)?;
        let Some(last) = changes.last() else { return Ok(stored) };
        from = last.at.main.next();
        for change in &changes {
            let value = change.key_value().map(|kv| kv.value).unwrap_or_default();
            stored.push((change.at.main, String::from_utf8_lossy(&value).into_owned()));
        }
    }
}

/// A frame beyond base becomes another one.
fn rewritten(rng: &mut Rng) -> Checked {
    let (disk, log) = (SimFs::new(), MemoryLog::new(LogId(7)));
    let keyspace = open_with(&disk, &log, never_flushing())?;
    for _ in 0..10 {
        put(&keyspace, "key", "value")?;
    }
    drop(keyspace);
    assert!(log.rewrite(Position(1 + rng.below(9) as u64)), "it is there");
    refused(open_with(&disk, &log, never_flushing()))
}

/// The log of the same directory, from a time that took another course, with so many frames more than base has.
fn another_future(rng: &mut Rng, more: u64) -> Checked {
    let (ours, frames) = (SimFs::new(), 1 + rng.below(5) as u64);
    let keyspace = open(&ours, never_flushing())?;
    put(&keyspace, "key", "common")?;
    keyspace.close()?;
    let theirs = ours.restart();
    for (disk, value, frames) in [(&ours, "ours", frames), (&theirs, "theirs", frames + more)] {
        let keyspace = open(disk, never_flushing())?;
        for _ in 0..frames {
            put(&keyspace, "key", value)?;
        }
        keyspace.flush()?;
        disk.freeze();
        drop(keyspace);
    }
    let ours = ours.restart();
    for file in theirs.files().iter().filter(|file| file.extension().is_some_and(|end| end == "log")) {
        ours.damage(file, 0, &theirs.contents(file).unwrap_or_default())?;
    }
    refused(open(&ours, never_flushing()))
}

fn refused(opened: Result<Keyspace, Error>) -> Checked {
    match opened {
        Err(Error::LogMismatch { .. }) => Ok(()),
        other => Err(format!("history was rewritten, and it opens: {:?}", other.err()).into()),
    }
}
