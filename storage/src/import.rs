//! Import: a new data directory from versions that another store has numbered.
//!
//! What a crash leaves: until `finish` has returned, the identity says that the directory is being filled. A start refuses it, another import
//! begins anew.

use std::path::Path;

use bytes::Bytes;

use crate::base::{Base, Garbage, Version};
use crate::change::{Change, ChangeKind};
use crate::error::Error;
use crate::files::Directory;
use crate::leases::LEASE_TTL_MAX_SECONDS;
use crate::log::LocalLog;
use crate::options::{Environment, Options};
use crate::recent::PartData;
use crate::request::AlarmKind;
use crate::tables::{AlarmRow, Applied, LeaseRow};
use crate::types::{Digest, LeaseId, MemberId, Position, Revision, RevisionPair};

/// The import counts as the first frame, so that base goes with this log alone: the log begins behind it, with the digest of what was
/// imported.
const POSITION: Position = Position(1);

/// Marks that wait to be written.
const MARKS_MAX: usize = 100_000;

/// A lease to import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportedLease {
    /// Its id.
    pub id: LeaseId,
    /// Its TTL, in seconds; 1 at least.
    pub ttl: i64,
    /// What is left of it when the keyspace starts, in seconds.
    pub remaining: i64,
}

/// What an import brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Versions taken in, deletions included.
    pub versions: u64,
    /// Living keys.
    pub keys: u64,
    /// Keys attached to a lease.
    pub lease_keys: u64,
    /// Living keys that name a lease that does not exist: they stay, attached to none.
    pub orphans: u64,
    /// The bytes of base's pages that are in use, about: what a quota counts.
    pub used_bytes: u64,
    /// Bytes of disk that the directory takes.
    pub size_bytes: u64,
}

/// A data directory that is being filled. Dropped before `finish`, it stays one that a start refuses.
///
/// Memory: changes up to half of `recent_bytes` and `recent_changes`, and the cache.
#[derive(Debug)]
pub struct Import {
    directory: Directory,
    base: Base,
    environment: Environment,
    segment_bytes: u64,
    part: PartData,
    part_bytes: usize,
    part_changes: usize,
    compacted: Revision,
    last: RevisionPair,
    last_mark: Option<(u64, Revision)>,
    digest: Digest,
    report: ImportReport,
    expected_keys: Option<u64>,
    finished: bool,
}

impl Import {
    /// Begins to fill `dir`, which must be missing, empty, or left by an import that did not end. `compacted` is the lowest revision that can be
    /// read, -1 if nothing was ever compacted.
    ///
    /// Errors: `Io`, also if the directory holds anything else, with nothing touched; `NoSpace`.
    pub fn begin(
        dir: &Path,
        compacted: Revision,
        options: &Options,
        environment: &Environment,
    ) -> Result<Import, Error> {
        if compacted.0 < -1 {
            return Err(wrong(format!("compacted revision {compacted}")));
        }
        let directory = Directory::fill(&environment.fs, dir, environment.entropy.as_ref())?;
        let base = Base::create(&environment.fs, &directory.base(), options.cache_bytes)?;
        Ok(Import {
            directory,
            base,
            environment: environment.clone(),
            segment_bytes: options.segment_bytes,
            part: PartData::default(),
            part_bytes: options.recent_bytes / 2,
            part_changes: options.recent_changes / 2,
            compacted,
            last: RevisionPair { main: Revision::FIRST, sub: i64::MAX },
            last_mark: None,
            digest: Digest::default(),
            report: ImportReport::default(),
            expected_keys: None,
            finished: false,
        })
    }

    /// Takes in the next version; they come in the order of their revisions, the first at 2 or later. Versions that `compacted` makes unreadable
    /// may come along, and are dropped.
    ///
    /// Errors: `Corrupt` for a version that cannot be; `NoSpace`, `Io`. After an error the import is to be dropped.
    pub fn add(&mut self, change: Change) -> Result<(), Error> {
        self.check(&change)?;
        failpoint!(Import, Err);
        self.digest = self.digest.chain(&content(&change));
        self.last = change.at;
        self.report.versions += 1;
        self.part.push(change);
        if self.part.weight >= self.part_bytes || self.part.changes.len() >= self.part_changes {
            self.flush(Applied { compacted: self.compacted, ..UNFINISHED })?;
        }
        Ok(())
    }

    /// Says when a revision was reached, in milliseconds since 1970; marks come in order. Those below the compacted revision are dropped. Errors:
    /// `Corrupt` for a mark that is not in order; `NoSpace`, `Io`.
    pub fn add_mark(&mut self, time_ms: u64, revision: Revision) -> Result<(), Error> {
        if let Some((last_ms, last)) = self.last_mark
            && (time_ms <= last_ms || revision < last)
        {
            return Err(wrong(format!("a mark of revision {revision} at {time_ms} ms follows {last} at {last_ms} ms")));
        }
        self.last_mark = Some((time_ms, revision));
        if revision >= self.compacted {
            self.digest = self.digest.chain(&numbers(&[time_ms.cast_signed(), revision.0]));
            self.part.marks.insert(time_ms, revision);
        }
        if self.part.marks.len() < MARKS_MAX {
            return Ok(());
        }
        self.flush(Applied { compacted: self.compacted, ..UNFINISHED })
    }

    /// Raises an alarm; without a member it is that of the new directory.
    pub fn add_alarm(&mut self, member: Option<MemberId>, kind: AlarmKind) {
        let member = member.unwrap_or(self.directory.identity.member);
        self.digest = self.digest.chain(&numbers(&[kind as i64]));
        self.part.alarms.insert((member, AlarmRow::Asked(kind)), true);
    }

    /// Makes `finish` fail, with `Corrupt`, unless so many keys live at the end.
    pub fn expect_keys(&mut self, keys: u64) {
        self.expected_keys = Some(keys);
    }

    fn check(&self, change: &Change) -> Result<(), Error> {
        let at = change.at;
        let fail = |what: String| Err(wrong(format!("revision {}, change {}: {what}", at.main, at.sub)));
        if at <= self.last || at.sub < 0 {
            return fail(format!("it follows revision {}, change {}", self.last.main, self.last.sub));
        }
        if change.key.is_empty() {
            return fail("its key is empty".to_owned());
        }
        if let ChangeKind::Put { create, version, .. } = change.kind
            && (create > at.main || create.0 < 1 || version < 1)
        {
            return fail(format!("create revision {create}, version {version}"));
        }
        Ok(())
    }

    /// Writes what was taken in so far. A part may end within a revision: nobody reads before the end.
    fn flush(&mut self, applied: Applied) -> Result<(), Error> {
        let part = PartData { applied, ..std::mem::take(&mut self.part) };
        let garbage = self.base.reserve(&part, Garbage::Drop)?;
        self.base.flush(&part, garbage).map(drop)
    }

    /// Completes the directory: from now on a keyspace opens in it, and its next change gets the revision after `revision`.
    ///
    /// Errors: `Corrupt` if a revision or a lease cannot be; `NoSpace`, `Io`.
    pub fn finish(mut self, revision: Revision, leases: &[ImportedLease]) -> Result<ImportReport, Error> {
        if revision < self.last.main || revision < self.compacted {
            let (last, compacted) = (self.last.main, self.compacted);
            return Err(wrong(format!("revision {revision} after {last}, compacted revision {compacted}")));
        }
        let unfinished = Applied { compacted: self.compacted, ..UNFINISHED };
        self.flush(unfinished)?;
        let (mark_ms, marked) = self.last_mark.unwrap_or_default();
        if marked > revision {
            return Err(wrong(format!("revision {revision}, a mark of revision {marked}")));
        }
        // Time never runs backwards, whatever a clock elsewhere said.
        let now_ms = self.environment.clock.wall_ms().max(mark_ms);
        self.add_leases(leases, now_ms)?;
        self.attach_keys(leases, unfinished)?;
        if let Some(expected) = self.expected_keys.filter(|expected| *expected != self.report.keys) {
            return Err(wrong(format!("{} keys live at the end, {expected} are expected", self.report.keys)));
        }
        if revision > Revision::FIRST {
            self.part.marks.insert(now_ms, revision);
        }
        self.digest = self.digest.chain(&numbers(&[revision.0, self.compacted.0]));
        let (compacted, digest) = (self.compacted, self.digest);
        self.flush(Applied { position: POSITION, digest, revision, compacted, time_ms: now_ms })?;
        let (fs, log) = (&self.environment.fs, self.directory.identity.log);
        let log =
            LocalLog::create_at(fs.clone(), &self.directory.log(), log, self.segment_bytes, POSITION.next(), digest)?;
        failpoint!(ImportFinish, Err);
        self.directory.complete()?;
        self.finished = true;
        self.base.guess_usage();
        self.report.used_bytes = self.base.in_use_bytes();
        self.report.size_bytes = self.base.size_bytes() + crate::log::Log::size_bytes(&log);
        Ok(self.report)
    }

    fn add_leases(&mut self, leases: &[ImportedLease], now_ms: u64) -> Result<(), Error> {
        for ImportedLease { id, ttl, remaining } in leases.iter().copied() {
            if id.0 == 0 || !(1..=LEASE_TTL_MAX_SECONDS).contains(&ttl) || !(0..=ttl).contains(&remaining) {
                return Err(wrong(format!("lease {id} with a TTL of {ttl} s, {remaining} s left")));
            }
            let row =
                LeaseRow { ttl, remaining_ms: remaining * 1000, since_ms: now_ms, mark: POSITION, renewed: false };
            self.digest = self.digest.chain(&numbers(&[id.0, ttl, remaining]));
            if self.part.leases.contains_key(&id) {
                return Err(wrong(format!("lease {id} comes twice")));
            }
            self.part.set_lease(id, Some(row));
        }
        Ok(())
    }

    /// The newest version of a key says what lease it is attached to: base is read once, in the order of the keys.
    fn attach_keys(&mut self, leases: &[ImportedLease], applied: Applied) -> Result<(), Error> {
        let known: std::collections::HashSet<i64> = leases.iter().map(|lease| lease.id.0).collect();
        let snapshot = self.base.snapshot()?;
        let mut failure = None;
        snapshot.scan(b"", None, RevisionPair::MAX, &mut |key, _, version| {
            failure = self.attach(&key, &version, &known, applied).err();
            failure.is_none()
        })?;
        failure.map_or(Ok(()), Err)
    }

    fn attach(
        &mut self,
        key: &Bytes,
        version: &Version,
        known: &std::collections::HashSet<i64>,
        applied: Applied,
    ) -> Result<(), Error> {
        let Version::Put { lease, .. } = *version else { return Ok(()) };
        self.report.keys += 1;
        if lease == 0 {
            return Ok(());
        }
        if !known.contains(&lease) {
            self.report.orphans += 1;
            return Ok(());
        }
        self.report.lease_keys += 1;
        self.part.set_lease_key(LeaseId(lease), key, true);
        if self.part.weight >= self.part_bytes { self.flush(applied) } else { Ok(()) }
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        // Every commit is complete in itself: nothing more is written, not even what redb writes when it is dropped.
        self.base.halt();
        if !self.finished {
            // Room for another try. What cannot be removed now is removed by that one.
            let _ = self.directory.clear();
        }
        self.directory.release();
    }
}

/// What base says while it is being filled.
const UNFINISHED: Applied = Applied {
    position: Position(0),
    digest: Digest([0; 16]),
    revision: Revision::FIRST,
    compacted: Revision(-1),
    time_ms: 0,
};

/// A change as the digest sees it: different changes have different bytes.
fn content(change: &Change) -> Vec<u8> {
    let (fields, value) = match &change.kind {
        ChangeKind::Put { create, version, lease, value } => ([1, create.0, *version, *lease], value.as_ref()),
        ChangeKind::Tombstone => ([0; 4], &[][..]),
    };
    let key_len = i64::try_from(change.key.len()).unwrap_or(i64::MAX);
    let mut bytes = numbers(&[change.at.main.0, change.at.sub, key_len]);
    bytes.extend(numbers(&fields));
    bytes.extend_from_slice(&change.key);
    bytes.extend_from_slice(value);
    bytes
}

fn numbers(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn wrong(reason: String) -> Error {
    Error::corrupt("what is imported", reason)
}
