//! The rows of `index` of one key, changed together: versions go from the rows they are in, new ones go behind the newest.

use super::layout::{self, Placed};
use super::rows::{Rows, TableId};
use crate::error::Error;
use crate::types::RevisionPair;

/// A row as it is in the table, or will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyRow {
    /// The place that its key names; none if it is not in the table.
    place: Option<RevisionPair>,
    /// Oldest first.
    pub(super) versions: Vec<Placed>,
    changed: bool,
}

impl KeyRow {
    /// A row of the table. Errors: `Corrupt`.
    pub(super) fn read(key: &[u8], row: &[u8]) -> Result<KeyRow, Error> {
        let (_, place) = layout::split_index_key(key)?;
        Ok(KeyRow { place: Some(place), versions: layout::versions_of(key, row)?, changed: false })
    }

    fn new(version: Placed) -> KeyRow {
        KeyRow { place: None, versions: vec![version], changed: true }
    }

    fn remove(&mut self, gone: &[RevisionPair]) {
        let before = self.versions.len();
        self.versions.retain(|(at, _)| gone.binary_search(at).is_err());
        self.changed |= self.versions.len() < before;
    }

    fn write(self, index: &mut Rows<'_>, prefix: &[u8]) -> Result<(), Error> {
        if !self.changed {
            return Ok(());
        }
        let place = self.versions.first().map(|(at, _)| *at);
        if let Some(old) = self.place.filter(|_| self.place != place) {
            index.remove_known(&layout::index_key(prefix, old))?;
        }
        let Some(place) = place else { return Ok(()) };
        let key = layout::index_key(prefix, place);
        index.put(&key, &layout::index_row(&key, &self.versions))
    }
}

/// Takes the versions at the places `gone`, ascending, from the rows of the key with this prefix, and adds others behind the newest, oldest
/// first. `rows` are those that are concerned, newest first; where versions are added, the key's newest is among them. Errors: `Corrupt` if a
/// version is not in its row; `Io`.
pub(super) fn change(
    index: &mut Rows<'_>,
    prefix: &[u8],
    mut rows: Vec<KeyRow>,
    gone: &[RevisionPair],
    added: impl Iterator<Item = Placed>,
) -> Result<(), Error> {
    if !gone.is_empty() {
        let versions = |rows: &[KeyRow]| rows.iter().map(|row| row.versions.len()).sum::<usize>();
        let before = versions(&rows);
        rows.iter_mut().for_each(|row| row.remove(gone));
        if before - versions(&rows) < gone.len() {
            let place = gone.first().copied().unwrap_or(RevisionPair::MAX);
            return Err(layout::missing(TableId::Index.name(), &layout::index_key(prefix, place)));
        }
    }
    let mut fresh: Vec<KeyRow> = Vec::new();
    for version in added {
        let newest = fresh.last_mut().or_else(|| rows.first_mut());
        match newest.filter(|row| !row.versions.is_empty() && !layout::begins_row(&version.1)) {
            Some(row) => {
                row.versions.push(version);
                row.changed = true;
            }
            None => fresh.push(KeyRow::new(version)),
        }
    }
    // Newest first is the order of the table.
    fresh.into_iter().rev().chain(rows).try_for_each(|row| row.write(index, prefix))
}
