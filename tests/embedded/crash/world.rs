//! What a keyspace must hold after a step of a history, and the comparison with one that was opened from an image.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use storage::{
    Alarm, At, Change, ChangeKind, Content, Digest, Error, Keyspace, LeaseId, RangeRequest as Range, Revision, Status,
};

use super::super::convert;
use crate::model::expected::Expected;
use crate::model::op::{Refusal, Request};
use crate::model::rng::Rng;
use crate::model::state::Model;
use crate::model::wire::KeyValue;

/// The state between two steps.
#[derive(Clone, Debug)]
pub struct World {
    pub model: Model,
    pub alarms: Vec<Alarm>,
    /// The last frame's position, and the digest of all frames up to there, if it was told.
    pub applied: u64,
    pub digest: Option<Digest>,
    /// The newest mark of the wall clock, if that is known.
    pub marked: Option<Option<Revision>>,
}

/// Why an image is not what it must be.
#[derive(Debug)]
pub enum Wrong {
    /// It answered with an error.
    Error(Error),
    /// It answered something else than it must.
    Answer(String),
}

impl Wrong {
    /// The same, with where it happened.
    pub fn within(self, place: &str) -> Wrong {
        Wrong::Answer(format!("{place}: {self}"))
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Error(error) => write!(f, "{error}"),
            Wrong::Answer(text) => f.write_str(text),
        }
    }
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Wrong {
        Wrong::Error(error)
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T) -> Result<(), Wrong> {
    if expected == found {
        return Ok(());
    }
    let text = format!("{what}: expected {expected:?}, found {found:?}");
    let text = text.chars().take(3000).collect();
    Err(Wrong::Answer(text))
}

/// Every change that is stored: parts in memory answer after base, one at a time.
pub fn stored_changes(keyspace: &Keyspace, upto: Revision) -> Result<Vec<Arc<Change>>, Error> {
    let mut all: Vec<Arc<Change>> = Vec::new();
    loop {
        let from = all.last().map_or(Revision(1), |last| last.at.main.next());
        let more = keyspace.stored_changes(from, upto, usize::MAX)?;
        if more.is_empty() {
            return Ok(all);
        }
        all.extend(more);
    }
}

impl World {
    /// An empty keyspace.
    pub fn new() -> World {
        World {
            model: Model::new(),
            alarms: Vec::new(),
            applied: 0,
            digest: Some(Digest::default()),
            marked: Some(None),
        }
    }

    /// The one that a keyspace holds, as its position says.
    pub fn find(allowed: &[Arc<World>], keyspace: &Keyspace) -> Result<Arc<World>, Wrong> {
        let applied = keyspace.status().applied.0;
        let found = allowed.iter().rev().find(|world| world.applied == applied);
        found.cloned().ok_or_else(|| {
            let positions: Vec<u64> = allowed.iter().map(|world| world.applied).collect();
            Wrong::Answer(format!("it is at position {applied}, which is none of {positions:?}"))
        })
    }

    /// Takes the numbers that only the keyspace knows; those that the model knows as well are compared.
    pub fn learn(&mut self, keyspace: &Keyspace) -> Result<(), Wrong> {
        let Status { revision, compacted, applied, digest, .. } = keyspace.status();
        same("revision", &self.model.revision, &revision.0)?;
        same("compacted revision", &self.model.compacted, &compacted.0)?;
        (self.applied, self.digest, self.marked) = (applied.0, Some(digest), None);
        self.marked = Some(keyspace.revision_at(u64::MAX)?);
        Ok(())
    }

    /// Everything that can be seen, in memory and in base.
    pub fn check(&self, keyspace: &Keyspace, rng: &mut Rng) -> Result<(), Wrong> {
        self.check_numbers(&keyspace.status())?;
        self.check_content(keyspace, rng)?;
        self.check_leases(keyspace)?;
        if let Some(marked) = self.marked {
            let kept = |mark: Option<Revision>| mark.filter(|mark| mark.0 > self.model.compacted);
            same("the newest mark", &kept(marked), &kept(keyspace.revision_at(u64::MAX)?))?;
        }
        keyspace.verify()?;
        Ok(())
    }

    fn check_numbers(&self, status: &Status) -> Result<(), Wrong> {
        same("applied", &self.applied, &status.applied.0)?;
        same("digest", &self.digest.unwrap_or(status.digest), &status.digest)?;
        same("revision", &self.model.revision, &status.revision.0)?;
        same("compacted revision", &self.model.compacted, &status.compacted.0)?;
        same("alarms", &self.alarms, &status.alarms)
    }

    /// Lists now and at a few revisions, and every change that can still be read.
    pub fn check_content(&self, keyspace: &Keyspace, rng: &mut Rng) -> Result<(), Wrong> {
        let (floor, current) = (self.model.compacted.max(1), self.model.revision);
        let everything = storage::KeyRange::all();
        for revision in [current, floor, rng.between(floor, current), rng.between(floor, current)] {
            let at = if revision == current { At::Latest } else { At::Revision(revision) };
            let reply = keyspace.range(&Range { at, ..Range::new(everything.clone()) })?;
            let found: Vec<KeyValue> = reply.kvs.iter().map(convert::key_value).collect();
            let expected = self.model.scan(&[0], &[0], revision);
            for (expected, found) in expected.iter().zip(&found) {
                same(&format!("a key at revision {revision}"), expected, found)?;
            }
            same(&format!("the number of keys at revision {revision}"), &expected.len(), &found.len())?;
            let count = Range { at, content: Content::CountOnly, ..Range::new(everything.clone()) };
            same("the count", &(expected.len() as i64), &keyspace.range(&count)?.count)?;
        }
        if self.model.compacted > 0 {
            let below = Range { at: At::Revision(self.model.compacted - 1), ..Range::new(everything) };
            let refused = matches!(keyspace.range(&below), Err(Error::Compacted { .. }));
            same("refused below the compacted revision", &true, &refused)?;
        }
        self.check_changes(keyspace, floor)
    }

    /// What is stored above the floor is all that happened; below it, nothing that did not happen.
    fn check_changes(&self, keyspace: &Keyspace, floor: i64) -> Result<(), Wrong> {
        let stored = stored_changes(keyspace, Revision(self.model.revision))?;
        let all = self.model.history.iter().flat_map(|(revision, changes)| {
            changes.iter().enumerate().map(|(sub, change)| ((*revision, sub as i64), change))
        });
        let mut expected = all.peekable();
        for change in &stored {
            let place = (change.at.main.0, change.at.sub);
            while expected.peek().is_some_and(|(at, _)| *at < place && at.0 < floor) {
                expected.next();
            }
            let Some((at, next)) = expected.next() else {
                return Err(Wrong::Answer(format!("a change at {place:?} that never was")));
            };
            same("the next change", &at, &place)?;
            same("the key of a change", &next.key.as_slice(), &change.key.as_ref())?;
            match (&next.version.record, &change.kind) {
                (None, ChangeKind::Tombstone) => {}
                (Some(record), ChangeKind::Put { create, version, lease, value }) => {
                    let numbers = (record.create, record.version, record.lease);
                    same("the numbers of a change", &numbers, &(create.0, *version, *lease))?;
                    same("the value of a change", &record.value.as_slice(), &value.as_ref())?;
                }
                (record, found) => return Err(Wrong::Answer(format!("expected {record:?}, found {found:?}"))),
            }
        }
        match expected.find(|(at, _)| at.0 >= floor) {
            Some((at, _)) => Err(Wrong::Answer(format!("the change at {at:?} is missing"))),
            None => Ok(()),
        }
    }

    /// After everything was flushed and swept: below the compacted revision each key has one version at most, a put, and none if it was changed
    /// at that revision.
    pub fn check_swept(&self, keyspace: &Keyspace) -> Result<(), Wrong> {
        let compacted = Revision(self.model.compacted);
        let stored = stored_changes(keyspace, compacted)?;
        let mut newest = BTreeMap::new();
        for change in stored.iter().rev() {
            let rest = match newest.insert(change.key.clone(), change.at.main) {
                Some(later) if later < compacted || change.at.main < compacted => "an older version",
                None if change.is_tombstone() && change.at.main < compacted => "a deletion",
                _ => continue,
            };
            let place = (change.at.main.0, change.at.sub);
            return Err(Wrong::Answer(format!("{rest} of {:?} is left, of {place:?}", change.key)));
        }
        Ok(())
    }

    pub fn check_leases(&self, keyspace: &Keyspace) -> Result<(), Wrong> {
        let mut found: Vec<i64> = keyspace.leases().iter().map(|id| id.0).collect();
        found.sort_unstable();
        same("leases", &self.model.leases.keys().copied().collect::<Vec<_>>(), &found)?;
        for (id, ttl) in &self.model.leases {
            let Some(lease) = keyspace.lease_time_to_live(LeaseId(*id), true)? else {
                return Err(Wrong::Answer(format!("lease {id} is not there")));
            };
            let mut keys: Vec<Vec<u8>> = lease.keys.iter().map(|key| key.to_vec()).collect();
            keys.sort();
            same("the TTL of a lease", ttl, &lease.granted_ttl)?;
            same("the keys of a lease", &self.model.attached(*id), &keys)?;
            if lease.ttl > *ttl || lease.ttl < 0 {
                return Err(Wrong::Answer(format!("{} s left of a lease of {ttl} s", lease.ttl)));
            }
        }
        Ok(())
    }

    /// Carries a request out, if the model says what must come of it.
    pub fn after(&self, request: &Request) -> Option<(World, Result<Expected, Refusal>)> {
        let mut after = self.clone();
        let expected = after.model.apply(request);
        (!after.model.undefined).then_some((after, expected))
    }
}
