//! Replay: what the log holds beyond base, applied when a keyspace opens.
//!
//! Each put asks for what its key was. Asked one by one in the order of the log, that reads pages of base all over the place; so the
//! keys of many frames are looked up first, in key order, where each page is read once.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use crate::apply::{Incoming, State};
use crate::base::Garbage;
use crate::command::Command;
use crate::engine::committer::{Bounds, decode};
use crate::engine::maintenance;
use crate::engine::shared::{Head, Shared};
use crate::error::Error;
use crate::log::frame::Frame;
use crate::log::{Log, StoredFrame};
use crate::read::{Known, Sources};
use crate::request::{Op, Txn};
use crate::types::RevisionPair;

/// Frames taken from the log at once, in bytes: the more, the fewer pages are read twice.
const STEP_BYTES: usize = 16 << 20;

/// Applies what the log holds beyond base. What does not fit into `recent` goes to base on the way. Answers the number of frames.
pub(crate) fn all(shared: &Shared, state: &mut State, log: &mut dyn Log, bounds: Bounds) -> Result<u64, Error> {
    let mut replayed = 0;
    loop {
        let frames = log.read(state.applied.position.next(), small!(STEP_BYTES, 1))?;
        if frames.is_empty() {
            break;
        }
        failpoint!(Replay, Err);
        let frames = frames.into_iter().map(decoded).collect::<Result<Vec<_>, _>>()?;
        let mut known = Some(Arc::new(look_up(&shared.head().sources.clone(), &frames)?));
        for frame in &frames {
            let sources = Sources { known: known.clone(), ..shared.head().sources.clone() };
            failpoint!(ReplayFrame, Err);
            apply(state, &sources, frame)?;
            replayed += 1;
            if bounds.reached(&sources.active) && make_way(shared, state)? {
                // Base has changed: what was looked up in it no longer counts.
                known = known.filter(|_| planted!(LookedUpTooEarly));
            }
        }
    }
    shared.publish_frame(|head| head.take_over(state, shared.room.member));
    Ok(replayed)
}

/// Another part begins behind a full one: memory holds two, as while requests are served, so what a crash leaves is as a rule not written before
/// the keyspace is open. A third one makes the first go to base; on a full disk it stays in memory, which has room for what the log
/// holds: a start must not need more. True if base has changed.
fn make_way(shared: &Shared, state: &State) -> Result<bool, Error> {
    let sources = shared.head().sources.clone();
    let full = sources.frozen.as_ref().map(|part| maintenance::bring(shared, part, Garbage::Drop));
    match full {
        Some(Err(Error::NoSpace)) => {
            shared.publish_base(|head| head.out_of_room = true);
            return Ok(false);
        }
        Some(Err(error)) => return Err(error),
        Some(Ok(())) | None => {}
    }
    state.seal(&sources.active);
    shared.publish_base(Head::freeze);
    Ok(full.is_some())
}

/// Brings everything that was replayed to base. Errors: `NoSpace`; `Io`, `Corrupt`.
pub(crate) fn settle(shared: &Shared, state: &State) -> Result<(), Error> {
    loop {
        let sources = shared.head().sources.clone();
        let part = match sources.frozen {
            Some(part) => part,
            None if state.applied.position > sources.base.applied().position => {
                state.seal(&sources.active);
                shared.publish_base(Head::freeze);
                sources.active
            }
            None => return Ok(()),
        };
        maintenance::bring(shared, &part, Garbage::Keep)?;
    }
}

/// A frame with its commands.
struct Decoded {
    stored: StoredFrame,
    frame: Frame,
    commands: Vec<Command>,
}

fn decoded(stored: StoredFrame) -> Result<Decoded, Error> {
    let (frame, commands) = decode(&stored)?;
    Ok(Decoded { stored, frame, commands })
}

fn apply(state: &mut State, sources: &Sources, decoded: &Decoded) -> Result<(), Error> {
    let Decoded { stored, frame, commands } = decoded;
    let digest = state.applied.digest.chain(&stored.bytes);
    let (header, position, len) = (&frame.header, stored.position, stored.bytes.len());
    state.apply(sources, &Incoming { header, position, digest, commands, len })?;
    Ok(())
}

fn look_up(sources: &Sources, frames: &[Decoded]) -> Result<Known, Error> {
    let mut keys = BTreeSet::new();
    for command in frames.iter().flat_map(|frame| &frame.commands) {
        match command {
            Command::Put(put) => drop(keys.insert(put.key.bytes())),
            Command::Txn(txn) => put_keys(txn, &mut keys),
            _ => {}
        }
    }
    let mut known = Known::with_capacity(keys.len());
    for key in keys {
        known.insert(key.clone(), sources.base.get(key, RevisionPair::MAX)?);
    }
    Ok(known)
}

fn put_keys<'a>(txn: &'a Txn, keys: &mut BTreeSet<&'a Bytes>) {
    for op in txn.success.iter().chain(&txn.failure) {
        match op {
            Op::Put(put) => drop(keys.insert(put.key.bytes())),
            Op::Txn(txn) => put_keys(txn, keys),
            Op::Range(_) | Op::DeleteRange(_) => {}
        }
    }
}
