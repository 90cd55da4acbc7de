//! Decides which versions of one key a flush drops: those that the compacted revision made unreadable.

use redb::ReadableTable;

use super::fault::At;
use super::key_rows::KeyRow;
use super::layout::{self, Placed};
use super::scan::SEEK_AFTER_ROWS;
use super::{Kept, Version};
use crate::change::{Change, ChangeKind};
use crate::error::Error;
use crate::types::{Revision, RevisionPair};

/// A version of a key, as far as compaction and totals are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Brief {
    pub(super) at: RevisionPair,
    pub(super) tombstone: bool,
    pub(super) value_bytes: u64,
}

impl Brief {
    pub(super) fn of(change: &Change) -> Brief {
        let value_bytes = match &change.kind {
            ChangeKind::Put { value, .. } => value.len() as u64,
            ChangeKind::Tombstone => 0,
        };
        Brief { at: change.at, tombstone: change.is_tombstone(), value_bytes }
    }

    pub(super) fn of_version((at, version): &Placed) -> Brief {
        let value_bytes = match version {
            Version::Tombstone => 0,
            Version::Put { value: Kept::Inline(value), .. } => value.len() as u64,
            Version::Put { value: Kept::History(len), .. } => *len,
        };
        Brief { at: *at, tombstone: *version == Version::Tombstone, value_bytes }
    }
}

/// What base holds of a key, as far as a flush needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InBase {
    /// The newest version.
    pub(super) newest: Option<Brief>,
    /// The newest at or below the compacted revision.
    pub(super) floor: Option<Brief>,
    /// Those before `floor`, newest first, up to a limit.
    pub(super) older: Vec<Brief>,
    /// True if `older` names all of them.
    pub(super) complete: bool,
    /// The rows that these are in, newest first.
    pub(super) rows: Vec<KeyRow>,
}

impl InBase {
    /// Looks a key up. Versions above `compacted` are stepped over, or sought past if they are many, so the work follows
    /// what can be dropped. At most `older_max` old versions are named.
    pub(super) fn find(
        table: &impl ReadableTable<&'static [u8], &'static [u8]>,
        prefix: &[u8],
        compacted: Revision,
        older_max: usize,
    ) -> Result<InBase, Error> {
        let end = layout::after_key(prefix);
        let mut rows = table.range::<&[u8]>(prefix..end.as_slice()).at("index")?;
        let mut found = InBase { complete: true, ..InBase::default() };
        let mut above = 0;
        while let Some(row) = rows.next() {
            let (key, value) = row.at("index")?;
            let (_, oldest) = layout::split_index_key(key.value())?;
            if found.newest.is_some() && oldest.main > compacted {
                if compacted < Revision(0) {
                    // Nothing can be dropped, and there is no place to seek.
                    break;
                }
                above += 1;
                if above == SEEK_AFTER_ROWS {
                    let floor = layout::index_key(prefix, RevisionPair::last_of(compacted));
                    rows = table.range::<&[u8]>(floor.as_slice()..end.as_slice()).at("index")?;
                }
                continue;
            }
            let row = KeyRow::read(key.value(), value.value())?;
            row.versions.iter().rev().for_each(|version| found.meet(Brief::of_version(version), compacted, older_max));
            found.rows.push(row);
            if !found.complete {
                break;
            }
        }
        Ok(found)
    }

    /// The next version, from the newest on.
    fn meet(&mut self, version: Brief, compacted: Revision, older_max: usize) {
        self.newest.get_or_insert(version);
        if version.at.main > compacted {
            return;
        }
        if self.floor.is_none() {
            self.floor = Some(version);
        } else if self.older.len() < older_max {
            self.older.push(version);
        } else {
            self.complete = false;
        }
    }
}

/// The fate of a key's versions in one flush.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Versions of the part to write, oldest first.
    pub(super) write: Vec<Brief>,
    /// Versions of the part that never get to base.
    pub(super) skip: Vec<Brief>,
    /// Versions to remove from base.
    pub(super) remove: Vec<Brief>,
}

impl Plan {
    /// Let n be the newest version at or below `compacted`, in the part or in base. Nobody can read a version before n any
    /// more, unless it was written at `compacted` too: a watch that starts there must see the whole revision. If n is a
    /// tombstone below `compacted`, nobody needs it either, once everything before it is gone: without it an older put
    /// would come back to life.
    pub(super) fn new(part: &[Brief], base: &InBase, compacted: Revision) -> Plan {
        let in_part = part.iter().rev().find(|version| version.at.main <= compacted);
        let Some(floor) = in_part.or(base.floor.as_ref()).copied() else {
            return Plan { write: part.to_vec(), ..Plan::default() };
        };
        let complete = base.complete || planted!(TombstoneTooSoon);
        let floor_goes = floor.tombstone && floor.at.main < compacted && complete;
        let goes = |version: &Brief| {
            let together = floor.at.main == compacted && version.at.main == compacted;
            let before = version.at < floor.at || (planted!(FlushDropsFloor) && version.at == floor.at);
            (before && !together) || (version.at == floor.at && floor_goes)
        };
        let mut plan = Plan::default();
        for version in part {
            let list = if goes(version) { &mut plan.skip } else { &mut plan.write };
            list.push(*version);
        }
        plan.remove.extend(base.floor.iter().chain(&base.older).filter(|version| goes(version)));
        plan
    }
}
