//! Reads what is readable of a base whose file is damaged.
//!
//! A walk over a table goes on until something in its way cannot be read, looks for a place behind from which it goes on, and
//! goes back from there to the near end of what cannot be read. So a damaged page costs its own rows, not those behind. Every piece is
//! read in a thread of its own, from the file opened anew: redb may panic over what it meets.

use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::fault::At;
use super::meta::Meta;
use super::rows::TableId;
use super::{Snapshot, layout, open};
use crate::contain::contained;
use crate::error::Error;
use crate::fs::FileSystem;

/// What one piece reads.
const PIECE_BYTES: usize = 4 << 20;
/// Rows that are kept to be given in order, when a walk goes back.
const BACK_ROWS: usize = 500_000;
/// Damaged places in one table after which the rest of it is given up.
const GAPS_MAX: usize = 1000;

/// A key and a row.
type Row = (Vec<u8>, Vec<u8>);

/// What a walk meets, in ascending order of keys.
#[derive(Debug)]
pub(super) enum Met {
    /// A row that matches its checksum.
    Row(Vec<u8>, Vec<u8>),
    /// A row that does not, by its key, which may be what is damaged.
    Altered(Vec<u8>, Error),
    /// Rows between these two keys, if there are any, cannot be read; no key means the end of the table.
    Gap(Option<Vec<u8>>, Option<Vec<u8>>, Error),
}

/// A file of base that nobody has open.
#[derive(Clone, Debug)]
pub(crate) struct Damaged {
    fs: Arc<dyn FileSystem>,
    file: PathBuf,
    cache_bytes: usize,
}

/// How a piece ended.
enum End {
    More,
    Over,
    Broken(Error),
}

impl Damaged {
    pub(crate) fn new(fs: &Arc<dyn FileSystem>, file: PathBuf, cache_bytes: usize) -> Damaged {
        Damaged { fs: Arc::clone(fs), file, cache_bytes }
    }

    /// What base says about itself; a table's count and sum are those of the rows it should have. Errors: `Corrupt`, `Io`.
    pub(super) fn meta(&self) -> Result<Meta, Error> {
        let Damaged { fs, file, cache_bytes } = self.clone();
        contained(move || Ok(open::read_only(&fs, &file, cache_bytes)?.meta))?
    }

    /// True if tables can be opened at all.
    pub(super) fn is_readable(&self) -> bool {
        self.read(|_| Ok(())).is_ok()
    }

    fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Snapshot) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let Damaged { fs, file, cache_bytes } = self.clone();
        contained(move || work(&open::read_tables(&fs, &file, cache_bytes)?))?
    }

    /// Everything of a table. Errors: those of `visit`.
    pub(super) fn walk(&self, table: TableId, mut visit: impl FnMut(Met) -> Result<(), Error>) -> Result<(), Error> {
        let judged = |key: Vec<u8>, row: Vec<u8>| match layout::unseal(table.name(), &key, &row).map(drop) {
            Ok(()) => Met::Row(key, row),
            Err(error) => Met::Altered(key, error),
        };
        let mut last: Option<Vec<u8>> = None;
        let mut from = Bound::Unbounded;
        for gaps in 0.. {
            let broken = loop {
                let (rows, end) = self.forward(table, from.clone(), last.clone());
                for (key, row) in rows {
                    last = Some(key.clone());
                    visit(judged(key, row))?;
                }
                from = last.clone().map_or(Bound::Unbounded, Bound::Excluded);
                match end {
                    End::More => {}
                    End::Over => return Ok(()),
                    End::Broken(error) => break error,
                }
            };
            let on = if gaps < GAPS_MAX { self.readable_behind(table, last.as_deref()) } else { None };
            let near = self.back(table, last.clone(), on.clone());
            let before = near.first().map(|(key, _)| key.clone()).or_else(|| on.clone());
            visit(Met::Gap(last.clone(), before, broken))?;
            for (key, row) in near {
                last = Some(key.clone());
                visit(judged(key, row))?;
            }
            let Some(on) = on else { return Ok(()) };
            from = Bound::Included(on);
        }
        Ok(())
    }

    /// Rows from a key on, a piece of them, as far as they come in order.
    fn forward(&self, table: TableId, from: Bound<Vec<u8>>, last: Option<Vec<u8>>) -> (Vec<Row>, End) {
        let rows = Arc::new(Mutex::new(Vec::new()));
        let found = Arc::clone(&rows);
        let read = self.read(move |snapshot| {
            let (mut last, mut bytes) = (last, 0);
            let from = from.as_ref().map(Vec::as_slice);
            for row in snapshot.open_table(table)?.range::<&[u8]>((from, Bound::Unbounded)).at(table.name())? {
                let (key, row) = row.at(table.name())?;
                let (key, row) = (key.value().to_vec(), row.value().to_vec());
                if last.as_ref().is_some_and(|last| key <= *last) {
                    return Err(layout::out_of_order(table.name(), &key));
                }
                bytes += key.len() + row.len();
                last = Some(key.clone());
                locked(&found).push((key, row));
                if bytes >= PIECE_BYTES {
                    return Ok(true);
                }
            }
            Ok(false)
        });
        let rows = std::mem::take(&mut *locked(&rows));
        match read {
            Ok(true) => (rows, End::More),
            Ok(false) => (rows, End::Over),
            Err(error) => (rows, End::Broken(error)),
        }
    }

    /// Rows between two keys, from the upper one down to where it goes no further; in ascending order.
    fn back(&self, table: TableId, above: Option<Vec<u8>>, below: Option<Vec<u8>>) -> Vec<Row> {
        let rows = Arc::new(Mutex::new(Vec::new()));
        let found = Arc::clone(&rows);
        // How it ends is not asked: what is not reached is missing.
        let _ = self.read(move |snapshot| {
            let above = above.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let upto = below.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut last: Option<Vec<u8>> = None;
            for row in snapshot.open_table(table)?.range::<&[u8]>((above, upto)).at(table.name())?.rev() {
                let (key, row) = row.at(table.name())?;
                let (key, row) = (key.value().to_vec(), row.value().to_vec());
                let within = above_bound(above, &key) && below_bound(upto, &key);
                if !within || last.as_ref().is_some_and(|last| key >= *last) || locked(&found).len() >= BACK_ROWS {
                    return Ok(());
                }
                last = Some(key.clone());
                locked(&found).push((key, row));
            }
            Ok(())
        });
        let mut rows = std::mem::take(&mut *locked(&rows));
        rows.reverse();
        rows
    }

    /// A key behind this one from which rows can be read: the first found by jumps that become longer.
    fn readable_behind(&self, table: TableId, last: Option<&[u8]>) -> Option<Vec<u8>> {
        let last = last.unwrap_or_default();
        let within = (0..last.len()).rev().flat_map(|at| {
            let (head, byte) = (last.get(..at).unwrap_or_default(), last.get(at).copied().unwrap_or(u8::MAX));
            // A few steps in each byte, the last of which is the far end of it.
            [1, 2, 4, 8, 16, 32, 64, 128]
                .iter()
                .filter_map(move |step: &u8| Some([head, &[byte.checked_add(*step)?]].concat()))
        });
        let anywhere = last.is_empty().then(|| (0..=u8::MAX).map(|byte| vec![byte])).into_iter().flatten();
        within.chain(anywhere).find_map(|candidate| {
            let found = self.read({
                let candidate = candidate.clone();
                move |snapshot| {
                    let rows = snapshot.open_table(table)?;
                    let mut range = rows.range::<&[u8]>(candidate.as_slice()..).at(table.name())?;
                    let first = range.next().transpose().at(table.name())?;
                    Ok(first.map(|(key, _)| key.value().to_vec()))
                }
            });
            found.ok().flatten().filter(|key| *key >= candidate && key.as_slice() > last)
        })
    }
}

fn above_bound(bound: Bound<&[u8]>, key: &[u8]) -> bool {
    !matches!(bound, Bound::Excluded(above) if key <= above)
}

fn below_bound(bound: Bound<&[u8]>, key: &[u8]) -> bool {
    !matches!(bound, Bound::Excluded(below) if key >= below)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
