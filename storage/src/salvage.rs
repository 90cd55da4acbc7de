//! A new data directory with everything that is intact in a damaged one.
//!
//! What a crash leaves: until it is complete the identity says that the directory is being filled. A start refuses it, another try begins anew.

use std::path::Path;
use std::sync::Arc;

use crate::apply::State;
use crate::base::{self, Base, Damaged, Garbage, Lost, Salvaged, Target};
use crate::engine::committer::{self, Bounds};
use crate::engine::pace::Pace;
use crate::engine::queue::Queue;
use crate::engine::room::Room;
use crate::engine::shared::{Head, Shared};
use crate::error::Error;
use crate::files::Directory;
use crate::log::{Held, LocalLog, Log};
use crate::meters::Meters;
use crate::open::on_a_large_stack;
use crate::options::{Environment, Options};
use crate::read::Sources;
use crate::recent::{Part, PartData};
use crate::replay;
use crate::tables::Applied;
use crate::types::{Digest, MemberId, Position, Revision, RevisionPair};

/// Frames read at once, in bytes.
const STEP_BYTES: usize = 4 << 20;

/// What a salvage brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// The revision of the new keyspace.
    pub revision: Revision,
    /// Its compacted revision.
    pub compacted: Revision,
    /// Living keys.
    pub keys: u64,
    /// Versions, deletions included.
    pub versions: u64,
    /// Frames of the log that were applied on top of base.
    pub frames: u64,
    /// What did not come along, and what that means.
    pub lost: Vec<Lost>,
}

/// Makes a data directory in `to`, which must be missing, empty, or left by a salvage that did not end, of everything that is intact in `from`,
/// which no process may have open. Keys keep their numbers, and the revision stays; the new directory has ids of its own.
///
/// Everything that is taken over matches its checksums. If a version is missing, everything below the revision counts as compacted, and
/// keys whose newest version is missing are left out: no older one passes for it. Frames of the log are applied up to the first damaged
/// one, and only if nothing is missing that they could build on.
///
/// Memory: `cache_bytes`, and half of `recent_bytes` for sorting. Room: the new directory, and once more the rows of `index`.
/// Errors: `Io`, also if `to` holds anything else, with nothing touched; `Corrupt` if nothing can be read; `NoSpace`.
pub fn salvage(from: &Path, to: &Path, options: &Options, environment: &Environment) -> Result<SalvageReport, Error> {
    if to.starts_with(from) {
        let reason = format!("{} lies within {}", to.display(), from.display());
        return Err(Error::Io { doing: "salvage".to_owned(), reason });
    }
    let source = Directory::look(&environment.fs, from)?;
    let mut directory = Directory::fill(&environment.fs, to, environment.entropy.as_ref())?;
    let work = Work { source: &source, options, environment };
    let report = work.fill(&mut directory);
    if report.is_err() {
        // Room for another try. What cannot be removed now is removed by that one.
        let _ = directory.clear();
    }
    directory.release();
    report
}

struct Work<'a> {
    source: &'a Directory,
    options: &'a Options,
    environment: &'a Environment,
}

impl Work<'_> {
    fn fill(&self, directory: &mut Directory) -> Result<SalvageReport, Error> {
        let Salvaged { base, mut lost, whole, .. } = self.base(directory)?;
        let members = (self.source.identity.member, directory.identity.member);
        let held = base.snapshot()?.applied();
        let log = self.log(held, whole, &mut lost)?;
        let base = Arc::new(base);
        let (base, frames) = match log {
            Some(log) if whole => self.replay(directory, base, log)?,
            _ => (base, 0),
        };
        rename_alarms(&base, members)?;
        let snapshot = base.snapshot()?;
        let Applied { position, digest, revision, compacted, .. } = snapshot.applied();
        let (fs, id) = (&self.environment.fs, directory.identity.log);
        LocalLog::create_at(fs.clone(), &directory.log(), id, self.options.segment_bytes, position.next(), digest)?;
        let mut keys = 0;
        snapshot.scan(b"", None, RevisionPair::MAX, &mut |_, _, version| {
            keys += u64::from(version != base::Version::Tombstone);
            true
        })?;
        // Every commit is complete in itself: nothing more is written, not even what redb writes when it is dropped.
        base.halt();
        directory.complete()?;
        Ok(SalvageReport { revision, compacted, keys, versions: snapshot.changes_stored(), frames, lost })
    }

    /// What is intact of base; an empty one if nothing is, and the log has everything from the beginning on.
    fn base(&self, directory: &Directory) -> Result<Salvaged, Error> {
        let (fs, cache_bytes) = (&self.environment.fs, self.options.cache_bytes);
        let target = Target {
            fs,
            dir: directory.path(),
            file: &directory.base(),
            cache_bytes,
            sort_bytes: self.options.recent_bytes / 2,
            now_ms: self.environment.clock.wall_ms(),
        };
        let error = match base::salvage(&Damaged::new(fs, self.source.base(), cache_bytes), &target) {
            Err(error @ Error::Corrupt { .. }) => error,
            done => return done,
        };
        let beginning = Held { position: Position(0), digest: Digest::default() };
        if self.look(beginning).is_ok_and(|(log, _)| log.first() == Position(1) && log.end() > Position(1)) {
            let base = Base::create(fs, &directory.base(), cache_bytes)?;
            let what = format!("no table can be read, the log has everything from the beginning on: {error}");
            let lost = vec![Lost { table: "base", keys: None, revisions: None, what }];
            return Ok(Salvaged { base, lost, whole: true });
        }
        Err(error)
    }

    /// The log behind a position, as far as it is sound, and what is wrong behind that.
    fn look(&self, held: Held) -> Result<(LocalLog, Option<Error>), Error> {
        let (fs, dir, id) = (&self.environment.fs, self.source.log(), self.source.identity.log);
        match LocalLog::look(fs.clone(), &dir, id) {
            Ok(log) => Ok((log, None)),
            Err(damage @ Error::Corrupt { .. }) => LocalLog::look_behind(fs.clone(), &dir, id, (held, damage)),
            Err(error) => Err(error),
        }
    }

    /// The frames that can be applied, and what is lost of the others.
    fn log(&self, applied: Applied, whole: bool, lost: &mut Vec<Lost>) -> Result<Option<LocalLog>, Error> {
        let Applied { position, digest, revision, .. } = applied;
        let behind = Some((revision.next(), Revision(i64::MAX)));
        let mut lose = |what: String| lost.push(Lost { table: "log", keys: None, revisions: behind, what });
        let (mut log, stop) = match self.look(Held { position, digest }) {
            Ok(found) => found,
            Err(error @ (Error::Corrupt { .. } | Error::LogMismatch { .. })) => {
                lose(format!("all frames behind position {position}: {error}"));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if log.first() > position.next() || (log.end() <= position && position > Position(0)) {
            lose(format!("it goes from position {} to {}, base ends at {position}", log.first(), log.end()));
            return Ok(None);
        }
        let undecodable = on_a_large_stack(|| first_undecodable(&mut log, position.next()))??;
        if let Some((position, error)) = undecodable {
            lose(format!("frames from position {position} on: {error}"));
            log.end_before(position);
        } else if let Some(error) = stop {
            lose(format!("frames from position {} on: {error}", log.end()));
        }
        if !whole && log.end() > position.next() {
            let (first, last) = (position.next(), log.end().0 - 1);
            lose(format!("frames {first} to {last} are sound, and not applied: what they build on is missing"));
        }
        Ok(Some(log))
    }

    /// Applies the frames, and brings what they did to base. Answers how many there were.
    fn replay(&self, directory: &Directory, base: Arc<Base>, mut log: LocalLog) -> Result<(Arc<Base>, u64), Error> {
        let base = Arc::into_inner(base)
            .ok_or_else(|| Error::Io { doing: "salvage".to_owned(), reason: "base is in use".to_owned() })?;
        let mut state = State::new(base.small_tables()?);
        let snapshot = base.snapshot()?;
        let sources = Sources { active: Arc::new(Part::default()), frozen: None, base: snapshot, known: None };
        let room = Room::without_ballast(&self.environment.fs, directory, self.options)?;
        let head = Head::new(&state, room.member, sources, log.size_bytes(), &base);
        let queue = Queue::new(self.options.queue_commands, self.options.queue_bytes);
        let clock = self.environment.clock.clone();
        let shared = Shared::new(head, queue, clock, Meters::default(), room, base, Pace::default());
        let bounds = Bounds {
            bytes: self.options.recent_bytes,
            changes: self.options.recent_changes,
            batch_bytes: self.options.batch_bytes,
        };
        let frames = on_a_large_stack(|| replay::all(&shared, &mut state, &mut log, bounds))??;
        replay::settle(&shared, &state)?;
        Ok((shared.base(), frames))
    }
}

/// The first frame from a position on whose commands cannot be read.
fn first_undecodable(log: &mut LocalLog, from: Position) -> Result<Option<(Position, Error)>, Error> {
    let mut next = from;
    loop {
        let frames = log.read(next, STEP_BYTES)?;
        let Some(last) = frames.last().map(|frame| frame.position) else { return Ok(None) };
        for frame in &frames {
            if let Err(error) = committer::decode(frame) {
                return Ok(Some((frame.position, error)));
            }
        }
        next = last.next();
    }
}

/// The alarms of the member that the directory was of are now those of the new one.
fn rename_alarms(base: &Base, (old, new): (MemberId, MemberId)) -> Result<(), Error> {
    let mut part = PartData { applied: base.snapshot()?.applied(), ..PartData::default() };
    for (member, kind) in base.small_tables()?.alarms {
        if member == old {
            part.alarms.insert((old, kind), false);
            part.alarms.insert((new, kind), true);
        }
    }
    if part.alarms.is_empty() {
        return Ok(());
    }
    base.reserve(&part, Garbage::Keep)?;
    base.flush(&part, Garbage::Keep).map(drop)
}
