//! Room: what the maintenance thread measures of the disk, and when NOSPACE clears itself.
//!
//! Puts are refused by the budget long before the disk is full, so everything that makes room has some: deletions, expiries and
//! compaction reach the log and base, and rewriting base, which gives back what it no longer uses, has the blocks for a copy. The ballast
//! holds them against whatever else fills the volume. The alarm is cleared by the numbers that it was raised by, once a useful amount can
//! be put and nothing that was compacted is left to be swept; it is raised and cleared through the log, as all that counts.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::worst_part_bytes;
use crate::command::Command;
use crate::engine::budget::{Budget, Limits, Measured};
use crate::engine::queue::Queued;
use crate::engine::shared::{Head, Shared};
use crate::error::Error;
use crate::files::Directory;
use crate::fs::{Ballast, FileSystem, Volume};
use crate::options::Options;
use crate::types::MemberId;

/// What is measured, and by what.
#[derive(Debug)]
pub(crate) struct Room {
    /// With the ballast.
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) ballast: Arc<Ballast>,
    /// Something on the volume.
    pub(crate) path: PathBuf,
    pub(crate) limits: Limits,
    /// Only an operator clears the alarm.
    pub(crate) sticky: bool,
    pub(crate) member: MemberId,
}

impl Room {
    pub(crate) fn new(
        fs: &Arc<dyn FileSystem>,
        directory: &Directory,
        ballast: Arc<Ballast>,
        options: &Options,
    ) -> Room {
        let (path, member) = (directory.base(), directory.identity.member);
        let (limits, sticky) = (Limits::new(options), options.sticky_no_space);
        Room { fs: fs.clone(), ballast, path, limits, sticky, member }
    }

    /// For those who fill a directory and serve nobody. Errors: `Io`.
    pub(crate) fn without_ballast(
        fs: &Arc<dyn FileSystem>,
        directory: &Directory,
        options: &Options,
    ) -> Result<Room, Error> {
        let path = directory.ballast();
        let none = Ballast::open(fs, &path, 0);
        let none = none.map_err(|error| Error::io(format!("opening {}", path.display()), &error))?;
        Ok(Room::new(fs, directory, Arc::new(none), options))
    }
}

/// Segments of the log that are there besides what frames take: the one written to, the oldest, one being made.
const SEGMENTS_BESIDE: u64 = 3;

impl Limits {
    pub(crate) fn new(options: &Options) -> Limits {
        Limits {
            quota: options.quota_bytes,
            flush: worst_part_bytes(options.recent_changes / 2, options.recent_bytes / 2),
            log: (2 * options.recent_bytes as u64).saturating_add(SEGMENTS_BESIDE * options.segment_bytes),
        }
    }
}

/// Measures, and publishes what puts are judged by. Errors: those of the file system, to which nothing was done.
pub(crate) fn measure(shared: &Shared) -> io::Result<()> {
    let room = &shared.room;
    let volume = room.fs.volume(&room.path)?;
    publish(shared, volume);
    Ok(())
}

fn publish(shared: &Shared, volume: Volume) {
    let deletions = shared.base().deletion_bytes();
    let mut head = shared.head();
    let (base, log, in_use) = (head.base_bytes.saturating_add(head.beside_bytes), head.log_bytes, head.in_use);
    let measured = Measured { total: volume.total, free: volume.free, base, log, in_use, deletions };
    head.budget = Budget::new(&shared.room.limits, &measured);
}

/// What there is to do for want of room, now that something has changed, or has had time to: fills up the ballast, measures, asks for what is in
/// memory to be written while the alarm is on, and clears it. `beside` is what files that will be gone soon take: a copy of base, or the one
/// before. Errors: `Io`, `Corrupt`.
pub(crate) fn attend(shared: &Shared, beside: u64) -> Result<(), Error> {
    let room = &shared.room;
    shared.head().beside_bytes = beside;
    // If the file system does not say, what it said before counts.
    let Ok(volume) = room.fs.volume(&room.path) else { return Ok(()) };
    let free = volume.free.saturating_sub(room.ballast.bytes());
    room.ballast.restore(free);
    publish(shared, volume);
    if shared.head().wants_count() {
        // The bound on what is in use has come near a limit: a closer look.
        let (base, snapshot) = (shared.base(), shared.head().sources.base.clone());
        base.learn_usage(&snapshot)?;
        shared.head().learn(&base);
        publish(shared, volume);
    }
    clear_if_there_is_room(shared)
}

fn clear_if_there_is_room(shared: &Shared) -> Result<(), Error> {
    let room = &shared.room;
    let (flush, clear) = {
        let head = shared.head();
        if !head.out_of_room_alarm {
            return Ok(());
        }
        let unwritten = head.position > head.sources.base.applied().position;
        (unwritten, !room.sticky && head.has_useful_room())
    };
    if flush {
        // What was deleted is swept only once it is in base.
        shared.queue.request_flush();
    }
    if clear {
        let command = Command::OutOfRoom(room.member, false);
        let encoded = command.encode()?;
        // A full queue takes it another time.
        drop(shared.queue.push(Queued { command, encoded, reply: None }));
    }
    Ok(())
}

impl Head {
    /// The bytes of pages in use, or to be once what is in memory is written.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.in_use + self.recent_bytes()
    }

    /// What may still be put, with so many bytes waiting in the queue.
    pub(crate) fn remaining(&self, queued: u64) -> u64 {
        self.budget.remaining(self.recent_bytes().saturating_add(queued))
    }

    fn recent_bytes(&self) -> u64 {
        let parts = std::iter::once(&self.sources.active).chain(&self.sources.frozen);
        parts.map(|part| part.read().page_bytes).sum()
    }

    /// True if the alarm may go: a useful amount can be put, and all that can be told of the room is told.
    fn has_useful_room(&self) -> bool {
        let settled = self.sources.frozen.is_none() && !self.out_of_room && !self.sweep_is_due();
        settled && self.remaining(0) >= self.budget.useful
    }

    /// True if it matters how much is really in use, and more may be thought to be than is.
    fn wants_count(&self) -> bool {
        self.uncounted
            && (self.out_of_room_alarm
                || self.remaining(0) < 2 * self.budget.useful
                || self.budget.free < self.budget.rewrite)
    }

    /// True if base is to be rewritten so that it can be.
    pub(crate) fn wants_rewrite(&self) -> bool {
        !self.uncounted && self.budget.wants_rewrite(self.base_bytes, self.in_use)
    }
}
