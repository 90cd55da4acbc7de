//! Apply: a deterministic, total function of (state, position, frame).
//!
//! No clock, no randomness: time is the frame's. A bad request is an outcome, not an error; an error is only what a disk can cause, and it
//! ends the keyspace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::SmallTables;
use crate::command::Command;
use crate::error::Error;
use crate::log::frame::FrameHeader;
use crate::read::Sources;
use crate::reply::{Alarm, DeleteRangeReply, LeaseGrantReply, PutReply, TxnReply};
use crate::request::AlarmKind;
use crate::tables::{AlarmRow, Applied, LeaseRow, WriterRow};
use crate::types::{Digest, LeaseId, MemberId, Position, Revision};

mod lease;
mod run;
pub(crate) mod txn;

/// What a command answered, if it was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Put(PutReply),
    DeleteRange(DeleteRangeReply),
    Txn(TxnReply),
    LeaseGrant(LeaseGrantReply),
    /// The store's revision, and whether an alarm is concerned, a lease was found.
    Done(Revision, bool),
}

/// A command's outcome: both sides are facts that every replica agrees on.
pub(crate) type Outcome = Result<Reply, Error>;

/// What happened to a lease, for the one who keeps the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseNews {
    /// Granted, with its TTL in seconds and its mark.
    Granted(LeaseId, i64, Position),
    /// A renewal was logged, with its mark.
    Renewed(LeaseId, Position),
    /// Revoked or expired.
    Gone(LeaseId),
    /// An expiry came too late: the lease had been renewed.
    ExpiryIgnored(LeaseId),
}

/// The state that apply needs at hand; keys are in the sources.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) applied: Applied,
    pub(crate) leases: BTreeMap<LeaseId, LeaseRow>,
    pub(crate) alarms: BTreeSet<(MemberId, AlarmRow)>,
    pub(crate) writers: BTreeMap<MemberId, WriterRow>,
    last_mark_ms: u64,
}

/// What a frame did.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// One outcome per command; none if the frame had been applied before.
    pub(crate) outcomes: Vec<Outcome>,
    /// What happened to leases, in order.
    pub(crate) leases: Vec<LeaseNews>,
}

/// A frame as apply takes it.
pub(crate) struct Incoming<'a> {
    pub(crate) header: &'a FrameHeader,
    pub(crate) position: Position,
    /// The chain's value with this frame.
    pub(crate) digest: Digest,
    pub(crate) commands: &'a [Command],
    /// The frame's size in bytes.
    pub(crate) len: usize,
}

impl State {
    /// The state that base holds.
    pub(crate) fn new(tables: SmallTables) -> State {
        let applied = match tables.applied {
            Applied { position: Position(0), .. } => {
                Applied { revision: Revision::FIRST, compacted: Revision(-1), ..Applied::default() }
            }
            applied => applied,
        };
        State {
            applied,
            leases: tables.leases,
            alarms: tables.alarms.into_iter().collect(),
            writers: tables.writers,
            last_mark_ms: tables.last_mark_ms,
        }
    }

    /// The alarms raised.
    pub(crate) fn alarms(&self) -> Vec<Alarm> {
        let alarms: BTreeSet<Alarm> =
            self.alarms.iter().map(|(member, alarm)| Alarm { member: *member, kind: alarm.kind() }).collect();
        alarms.into_iter().collect()
    }

    /// Those of them that somebody asked for.
    pub(crate) fn alarms_asked_for(&self) -> Vec<Alarm> {
        let asked = |(member, alarm): &(MemberId, AlarmRow)| match alarm {
            AlarmRow::Asked(kind) => Some(Alarm { member: *member, kind: *kind }),
            AlarmRow::NoSpace => None,
        };
        self.alarms.iter().filter_map(asked).collect()
    }

    /// True if this member raised NOSPACE itself.
    pub(crate) fn is_out_of_room(&self, member: MemberId) -> bool {
        self.alarms.contains(&(member, AlarmRow::NoSpace))
    }

    /// Applies the next frame: changes go into the active part, above every reader's revision.
    pub(crate) fn apply(&mut self, sources: &Sources, frame: &Incoming<'_>) -> Result<Effects, Error> {
        self.check_history(frame)?;
        sources.active.write().log_bytes += frame.len.next_multiple_of(LOG_SECTOR);
        let mut effects = Effects::default();
        if self.admit(sources, frame)? {
            self.applied.time_ms = self.applied.time_ms.max(frame.header.time_ms);
            for command in frame.commands {
                failpoint!(ApplyCommand, Err);
                let before = self.applied.revision;
                let outcome = self.command(sources, command, &mut effects.leases);
                if let Err(error) = &outcome
                    && error.is_final()
                {
                    return Err(error.clone());
                }
                effects.outcomes.push(outcome);
                if self.applied.revision > before {
                    self.mark(sources);
                }
            }
        }
        self.applied.position = frame.position;
        self.applied.digest = frame.digest;
        Ok(effects)
    }

    /// The log must continue the history that its writer and this state have in common.
    fn check_history(&self, frame: &Incoming<'_>) -> Result<(), Error> {
        let mismatch = |reason: String| Err(Error::LogMismatch { position: frame.position, reason });
        if frame.position != self.applied.position.next() {
            return mismatch(format!("the frame after {} was expected", self.applied.position));
        }
        let header = frame.header;
        let differs = header.applied_digest != self.applied.digest && !planted!(WriterUnchecked);
        if header.applied == self.applied.position && differs {
            let (theirs, ours) = (header.applied_digest, self.applied.digest);
            return mismatch(format!("its writer had digest {theirs:?} at {}, here it is {ours:?}", header.applied));
        }
        Ok(())
    }

    /// True if the frame is new. A frame of a closed writer or one applied already is a no-op; a gap is a fault.
    fn admit(&mut self, sources: &Sources, frame: &Incoming<'_>) -> Result<bool, Error> {
        let header = frame.header;
        let last = self.writers.get(&header.member).copied();
        let expected = match last {
            Some(last) if header.generation < last.generation => return Ok(false),
            Some(last) if header.generation == last.generation && header.writer != last.writer => return Ok(false),
            Some(last) if header.generation == last.generation => last.number + 1,
            _ => 1,
        };
        if header.number < expected && !planted!(FrameAppliedTwice) {
            return Ok(false);
        }
        if header.number > expected {
            let reason = format!("frame {} of writer {}, {expected} expected", header.number, header.writer);
            return Err(Error::LogMismatch { position: frame.position, reason });
        }
        if expected == 1 {
            self.restart_leases(sources, header.time_ms);
        }
        let row = WriterRow { generation: header.generation, writer: header.writer, number: header.number };
        self.writers.insert(header.member, row);
        sources.active.write().writers.insert(header.member, row);
        Ok(true)
    }

    fn command(&mut self, sources: &Sources, command: &Command, news: &mut Vec<LeaseNews>) -> Outcome {
        self.check_alarms(command)?;
        match command {
            Command::Put(put) => self.put(sources, put),
            Command::DeleteRange(delete) => self.delete_range(sources, delete),
            Command::Txn(txn) => self.txn(sources, txn),
            Command::Compact(revision) => self.compact(*revision),
            Command::LeaseGrant(id, ttl) => self.lease_grant(sources, *id, *ttl, news),
            Command::LeaseRevoke(id) => self.lease_revoke(sources, *id, news),
            Command::LeaseRenew(id) => Ok(self.lease_renew(sources, *id, news)),
            Command::LeaseExpire(id, mark) => self.lease_expire(sources, *id, *mark, news),
            Command::SetAlarm(member, kind, raised) => Ok(self.set_alarm(sources, *member, *kind, *raised)),
            Command::OutOfRoom(member, raised) => {
                let was_raised = self.set_alarm_row(sources, (*member, AlarmRow::NoSpace), *raised);
                Ok(Reply::Done(self.applied.revision, *raised || was_raised))
            }
        }
    }

    fn check_alarms(&self, command: &Command) -> Result<(), Error> {
        let raised = |kind| self.alarms.iter().any(|alarm| alarm.1.kind() == kind);
        let exempt = matches!(
            command,
            Command::SetAlarm(..) | Command::OutOfRoom(..) | Command::LeaseRenew(_) | Command::LeaseExpire(..)
        );
        if !exempt && raised(AlarmKind::Corrupt) {
            return Err(Error::CorruptAlarm);
        }
        if command.needs_room() && raised(AlarmKind::NoSpace) {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    fn compact(&mut self, revision: i64) -> Outcome {
        let Applied { revision: current, compacted, .. } = self.applied;
        if revision <= compacted.0 {
            return Err(Error::Compacted { asked: revision, floor: compacted.0 });
        }
        if revision > current.0 {
            return Err(Error::Future { asked: revision, current: current.0 });
        }
        self.applied.compacted = Revision(revision);
        Ok(Reply::Done(current, true))
    }

    /// An operator's word: one that clears it clears what the store raised as well.
    fn set_alarm(&mut self, sources: &Sources, member: MemberId, kind: AlarmKind, raised: bool) -> Reply {
        let mut was_raised = self.set_alarm_row(sources, (member, AlarmRow::Asked(kind)), raised);
        if !raised && kind == AlarmKind::NoSpace {
            was_raised |= self.set_alarm_row(sources, (member, AlarmRow::NoSpace), false);
        }
        Reply::Done(self.applied.revision, raised || was_raised)
    }

    /// True if it was raised before.
    fn set_alarm_row(&mut self, sources: &Sources, alarm: (MemberId, AlarmRow), raised: bool) -> bool {
        let was_raised = if raised { !self.alarms.insert(alarm) } else { self.alarms.remove(&alarm) };
        if was_raised != raised {
            sources.active.write().alarms.insert(alarm, raised);
        }
        was_raised
    }

    /// One mark a second at most ties the wall clock to a revision.
    fn mark(&mut self, sources: &Sources) {
        let now = self.applied.time_ms;
        if now >= self.last_mark_ms.saturating_add(MARK_INTERVAL_MS) {
            self.last_mark_ms = now;
            sources.active.write().marks.insert(now, self.applied.revision);
        }
    }

    /// The part that is being filled, once the state moves on to the next one: its last word.
    pub(crate) fn seal(&self, part: &Arc<crate::recent::Part>) {
        part.write().applied = self.applied;
    }
}

/// Frames in a log on a disk begin at multiples of this, in bytes.
const LOG_SECTOR: usize = 512;

/// The least time between two marks, in milliseconds.
const MARK_INTERVAL_MS: u64 = 1000;
