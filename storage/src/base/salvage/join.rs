//! The first walk: which versions are intact, which are missing, and which keys must be left out for it.

use std::iter::Peekable;

use super::*;
use crate::base::layout::{HistoryValue, Stored};
use crate::base::pieces::Chain;
use crate::change::{Change, ChangeKind};
use crate::sort::{Record, Sorted};

/// What is known of the versions of a damaged base. Memory: what is damaged, and what sorting takes.
#[derive(Debug, Default)]
pub(super) struct Join {
    pub(super) lost: Vec<Lost>,
    /// Versions whose rows are not taken over.
    pub(super) bad: BTreeSet<RevisionPair>,
    /// Places in `history` of rows that belong to no version.
    pub(super) stale: BTreeSet<RevisionPair>,
    /// Rows of `history` made from what `index` says.
    pub(super) made: BTreeMap<RevisionPair, (Vec<u8>, Vec<u8>)>,
    /// Keys that miss a version, with its place, unless a newer one is there.
    missing: BTreeMap<Bytes, RevisionPair>,
    /// Keys of which a newer version may have been where nothing can be read.
    doubtful: BTreeSet<Bytes>,
    /// Every version is there.
    pub(super) whole: bool,
    /// The highest revision met.
    pub(super) newest: Revision,
    good: u64,
    index: Index,
    /// The version whose pieces are being met, if `index` speaks of it and it is sound so far.
    open: Option<(Entry, Chain)>,
    /// A part of `history` that could not be read ends here; none: it goes on to the end.
    gap: Option<Option<Vec<u8>>>,
}

type Gap = (Option<Vec<u8>>, Option<Vec<u8>>);

/// What the walk over `index` met.
#[derive(Debug, Default)]
struct Index {
    sum: Sum,
    /// Between these two keys rows cannot be read; without one, from the beginning or to the end.
    gaps: Vec<Gap>,
    altered: BTreeSet<Vec<u8>>,
    /// All rows are there, and no other.
    exact: bool,
}

/// A version as its row of `index` has it: key and row, sorted by its place in `history`.
#[derive(Debug)]
struct Entry {
    at: RevisionPair,
    key: Vec<u8>,
    row: Vec<u8>,
}

impl Join {
    pub(super) fn new(source: &Damaged, target: &Target<'_>, meta: Option<&Meta>) -> Result<Join, Error> {
        let mut join = Join::default();
        let mut sorter = target.sorter("index");
        join.walk_index(source, &mut sorter)?;
        let expected = meta.map(|meta| meta.sums.of(TableId::Index));
        join.index.exact =
            join.index.gaps.is_empty() && join.index.altered.is_empty() && expected == Some(join.index.sum);
        let mut entries = sorter.finish()?.peekable();
        source.walk(TableId::History, |met| join.history(met, &mut entries))?;
        join.close()?;
        join.up_to(None, &mut entries)?;
        join.settle(meta.map(|meta| meta.sums.of(TableId::History).rows));
        Ok(join)
    }

    /// True if nothing of a key may be taken over: what is left of it would pass for what it was.
    pub(super) fn is_left_out(&self, key: &[u8]) -> bool {
        self.missing.contains_key(key) || self.doubtful.contains(key)
    }

    fn walk_index(&mut self, source: &Damaged, sorter: &mut Sorter) -> Result<(), Error> {
        source.walk(TableId::Index, |met| {
            match met {
                Met::Row(key, row) => {
                    self.index.sum.add(TableId::Index, &key, &row);
                    let (prefix, _) = layout::split_index_key(&key)?;
                    // Each version as if it had a row of its own.
                    for version in layout::versions_of(&key, &row)? {
                        let key = layout::index_key(prefix, version.0);
                        let row = layout::index_row(&key, std::slice::from_ref(&version));
                        let len = u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes();
                        sorter.push(layout::history_key(version.0).to_vec(), [&len, key.as_slice(), &row].concat())?;
                    }
                }
                Met::Altered(key, _) => drop(self.index.altered.insert(key)),
                Met::Gap(after, before, error) => {
                    let keys = || Some((user_key(after.as_deref()?)?, user_key(before.as_deref()?)?));
                    let what = format!("rows cannot be read: {error}");
                    self.lost.push(Lost { table: "index", keys: keys(), revisions: None, what });
                    self.index.gaps.push((after, before));
                }
            }
            Ok(())
        })
    }

    fn history(&mut self, met: Met, entries: &mut Peekable<Sorted>) -> Result<(), Error> {
        if let (Met::Row(place, row), Some((_, chain))) = (&met, &mut self.open)
            && layout::is_piece(place)
            && chain.pass(place, row).is_ok()
        {
            return Ok(());
        }
        self.close()?;
        match met {
            Met::Row(place, row) => {
                self.up_to(Some(&place), entries)?;
                self.gap = None;
                if layout::is_piece(&place) {
                    return Ok(());
                }
                let at = layout::read_history_key(&place)?;
                match take_if(entries, |other| *other == *place)? {
                    Some(entry) => self.both(entry, &place, &row),
                    None => self.history_alone(at, &place, &row),
                }
            }
            Met::Altered(place, _) => {
                self.up_to(Some(&place), entries)?;
                // What `index` says may still be all of it.
                match take_if(entries, |other| *other == *place)? {
                    Some(entry) => self.index_alone(&entry, true),
                    None => Ok(()),
                }
            }
            Met::Gap(after, before, error) => {
                if let Some(after) = after.as_deref() {
                    self.up_to(Some(after), entries)?;
                }
                let revision = |place: Option<&[u8]>| Some(layout::read_place(place?).ok()?.0.main);
                let revisions = revision(after.as_deref()).zip(revision(before.as_deref()));
                let what = format!("rows cannot be read: {error}");
                self.lost.push(Lost { table: "history", keys: None, revisions, what });
                self.gap = Some(before);
                Ok(())
            }
        }
    }

    /// Versions below a place that only `index` has.
    fn up_to(&mut self, place: Option<&[u8]>, entries: &mut Peekable<Sorted>) -> Result<(), Error> {
        while let Some(entry) = take_if(entries, |other| place.is_none_or(|place| other < place))? {
            let unreadable = self.gap.as_ref().is_some_and(|end| {
                end.as_ref().is_none_or(|end| layout::history_key(entry.at).as_slice() < end.as_slice())
            });
            self.index_alone(&entry, unreadable)?;
        }
        Ok(())
    }

    /// Both rows are sound. They belong together if they say the same, and if the rest of the value follows.
    fn both(&mut self, entry: Entry, place: &[u8], row: &[u8]) -> Result<(), Error> {
        let (key, version) = entry.read()?;
        let stored = layout::read_history_row(place, row)?;
        let fits = match (version, stored.value) {
            (Indexed::Tombstone, HistoryValue::Tombstone) => true,
            (Indexed::Put { value: Stored::Inline(_), .. }, HistoryValue::InIndex) => true,
            (Indexed::Put { value: Stored::History(len), .. }, stored) => stored.len() == Some(len),
            _ => false,
        };
        let mut chain = Chain::default();
        if fits && *key == *stored.key && chain.pass(place, row).is_ok() {
            self.open = Some((entry, chain));
        } else {
            self.lose(&key, entry.at, "index and history disagree");
        }
        Ok(())
    }

    /// No more of the version that was met last will come.
    fn close(&mut self) -> Result<(), Error> {
        let Some((entry, mut chain)) = self.open.take() else { return Ok(()) };
        let (key, version) = entry.read()?;
        match chain.end() {
            Ok(()) => self.good(&key, entry.at),
            Err(_) => self.lose(&key, entry.at, &format!("its value of {} bytes is not whole", version.value_len())),
        }
        Ok(())
    }

    /// The row of `history` is missing. Without it the row of `index` may be one from the past, unless it can be seen why it is missing.
    fn index_alone(&mut self, entry: &Entry, unreadable: bool) -> Result<(), Error> {
        let (key, version) = entry.read()?;
        let kind = match version {
            _ if !unreadable && !self.index.exact => {
                self.lose(&key, entry.at, "history does not have it");
                return Ok(());
            }
            Indexed::Tombstone => ChangeKind::Tombstone,
            Indexed::Put { create, version, lease, value: Stored::Inline(value) } => {
                ChangeKind::Put { create, version, lease, value: Bytes::copy_from_slice(value) }
            }
            Indexed::Put { value: Stored::History(len), .. } => {
                self.lose(&key, entry.at, &format!("its value of {len} bytes"));
                return Ok(());
            }
        };
        let place = layout::history_key(entry.at).to_vec();
        let row = layout::history_row(&place, &Change { key: key.clone(), at: entry.at, kind });
        self.made.insert(entry.at, (place, row));
        self.good(&key, entry.at);
        Ok(())
    }

    /// The row of `index` is missing: numbers and lease are not known, nor a small value.
    fn history_alone(&mut self, at: RevisionPair, place: &[u8], row: &[u8]) -> Result<(), Error> {
        let key = Bytes::copy_from_slice(layout::read_history_row(place, row)?.key);
        self.stale.insert(at);
        if !self.index.exact {
            self.lose(&key, at, "its numbers, and its value if that is small");
        }
        Ok(())
    }

    fn good(&mut self, key: &Bytes, at: RevisionPair) {
        self.good += 1;
        self.newest = self.newest.max(at.main);
        self.missing.remove(key);
    }

    fn lose(&mut self, key: &Bytes, at: RevisionPair, what: &str) {
        self.newest = self.newest.max(at.main);
        self.bad.insert(at);
        self.missing.insert(key.clone(), at);
        self.lost.push(Lost::version("index", key, at, what));
    }

    /// Counts what is missing without a trace.
    fn settle(&mut self, expected: Option<u64>) {
        let known = self.good + self.bad.len() as u64;
        let vanished = expected.map_or(u64::from(!self.index.gaps.is_empty()), |rows| rows.saturating_sub(known));
        self.whole = self.bad.is_empty() && vanished == 0 && expected == Some(self.good);
        if vanished > 0 {
            // The newest version of a key comes first: it may be what cannot be read in front of the first row that can be.
            let behind = self.index.gaps.iter().filter_map(|(_, before)| user_key(before.as_deref()?));
            self.doubtful = behind.collect();
            let what = match expected {
                Some(_) => format!("{vanished} versions are in neither table; keys that may be concerned are left out"),
                None => {
                    "how many versions are missing is not known; keys that may be concerned are left out".to_owned()
                }
            };
            self.lost.push(Lost::of("index", what));
        }
        for key in self.missing.keys().chain(&self.doubtful) {
            let keys = Some((key.clone(), key.clone()));
            let what = "left out: its newest version is missing".to_owned();
            self.lost.push(Lost { table: "index", keys, revisions: None, what });
        }
        if !self.whole {
            self.lost.push(Lost::of("history", "everything below the revision counts as compacted".to_owned()));
        }
    }
}

impl Entry {
    fn read(&self) -> Result<(Bytes, Indexed<'_>), Error> {
        let (prefix, _) = layout::split_index_key(&self.key)?;
        let (_, version) = layout::read_index_row(&self.key, &self.row)?.newest(self.at)?;
        Ok((layout::unescape(prefix)?, version))
    }
}

/// The next entry if its place fits.
fn take_if(entries: &mut Peekable<Sorted>, fits: impl Fn(&[u8]) -> bool) -> Result<Option<Entry>, Error> {
    let taken = entries.next_if(|record| record.as_ref().map_or(true, |(place, _)| fits(place)));
    taken.transpose()?.map(entry).transpose()
}

fn entry((place, value): Record) -> Result<Entry, Error> {
    let damaged = || Error::corrupt("a sorted row of index", "it is cut short");
    let (len, rest) = value.split_first_chunk().ok_or_else(damaged)?;
    let len = u32::from_le_bytes(*len) as usize;
    let (key, row) = rest.split_at_checked(len).ok_or_else(damaged)?;
    Ok(Entry { at: layout::read_history_key(&place)?, key: key.to_vec(), row: row.to_vec() })
}

fn user_key(key: &[u8]) -> Option<Bytes> {
    let (prefix, _) = layout::split_index_key(key).ok()?;
    layout::unescape(prefix).ok()
}
