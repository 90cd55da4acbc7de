//! How many bytes of its pages base has in use: what a quota counts, and what a rewrite would have to copy.
//!
//! A bound is kept: what was counted last, and all that flushes wrote since. Counting walks every page, so it is done for a small file
//! alone, and only when the bound comes near a limit. A large file's use follows from its bytes of data, and from how well what was
//! written lately fills pages.

use redb::ReadableTableMetadata;

use super::cut::{self, CUT_MIN_BYTES};
use super::fault::At;
use super::layout;
use super::rows::{META, TableId};
use super::{Base, Snapshot};
use crate::change::{Change, ChangeKind};
use crate::error::Error;
use crate::recent::PartData;

/// The pages of a larger file are not counted.
const COUNTED_BYTES_MAX: u64 = 256 << 20;

/// A page of redb, and what of it rows can take.
pub(super) const PAGE_BYTES: u64 = cut::PAGE_BYTES as u64;
const PAGE_ROOM: u64 = PAGE_BYTES - 64;
/// What redb keeps per row besides key and value.
const ROW_BYTES: u64 = 8;
/// What we keep besides the user's key and value in a row of `history`, and in one of `index`: places, numbers, checksums.
const HISTORY_ROW_BYTES: u64 = 24;
const INDEX_ROW_BYTES: u64 = 40;
/// Values that are cut take such a part more: a row for each page, and the ends of pages that are not worth a piece.
const PIECE_SHARE: u64 = 64;
/// redb's own tables, and ours while they are empty.
pub(super) const EMPTY_BYTES: u64 = 256 << 10;
/// What deleting a key takes until it is swept, for keys of a usual length.
const DELETION_BYTES: u64 = 384;
/// What a version takes besides key and value: numbers and checksum in `history`, a few bytes in a row of `index`.
const VERSION_BYTES: u64 = 40;
/// What a row of `index` takes besides its versions: the key again, a revision, a checksum.
const RUN_BYTES: u64 = 88;
/// What any other row takes.
const SMALL_ROW_BYTES: u64 = 64;
/// Tables without revisions.
pub(super) const SMALL: [TableId; 5] =
    [TableId::Leases, TableId::LeaseKeys, TableId::Alarms, TableId::Writers, TableId::Marks];
/// Less than this, written since the start, says little about how pages are filled.
const TELLING_BYTES: u64 = 4 << 20;

/// What is known of the pages in use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// No more than so many bytes.
    bound: u64,
    /// True if that comes from a count.
    counted: bool,
    /// What was written since base was opened: in pages, and in keys and values.
    written_pages: u64,
    written_data: u64,
}

/// The bytes of pages that a change will take, about: what fills pages of `history` among values of its size, and a row of `index`.
pub(crate) fn change_bytes(change: &Change) -> u64 {
    let value = match &change.kind {
        ChangeKind::Put { value, .. } => value.len() as u64,
        ChangeKind::Tombstone => 0,
    };
    put_bytes(change.key.len() as u64, value)
}

/// The same for a command of so many bytes: one change of which nearly all is the value.
pub(crate) fn command_bytes(len: u64) -> u64 {
    put_bytes(0, len)
}

/// The same for a row of a small table with a name of this length.
pub(crate) fn small_row_bytes(name: usize) -> u64 {
    scattered_bytes(SMALL_ROW_BYTES + name as u64)
}

fn put_bytes(key: u64, value: u64) -> u64 {
    let inline = if value <= layout::INLINE_MAX_BYTES as u64 { value } else { 0 };
    packed_bytes(key + value - inline + HISTORY_ROW_BYTES) + scattered_bytes(key + inline + INDEX_ROW_BYTES)
}

/// What a row takes that comes between others: pages that split are half full, and fill up again.
fn scattered_bytes(row: u64) -> u64 {
    (row + ROW_BYTES) * 3 / 2
}

/// What a row takes among rows of its size: one that can be cut fills up what is left of a page.
fn packed_bytes(row: u64) -> u64 {
    let row = row + ROW_BYTES;
    match PAGE_ROOM / row {
        rows if row < CUT_MIN_BYTES as u64 => PAGE_BYTES.div_ceil(rows.max(1)),
        _ => row + row / PIECE_SHARE,
    }
}

impl Base {
    /// The bytes of pages in use at most. The file's own size is a bound too.
    pub(crate) fn in_use_bytes(&self) -> u64 {
        self.usage().bound.min(self.size_bytes())
    }

    /// What deleting every key would add until that is swept.
    pub(crate) fn deletion_bytes(&self) -> u64 {
        self.meta().sums.of(TableId::Index).rows.saturating_mul(DELETION_BYTES)
    }

    /// Notes that a part was written.
    pub(super) fn wrote(&self, part: &PartData) {
        let data: u64 = part.changes.iter().map(|change| change.data_bytes() as u64 + VERSION_BYTES).sum();
        let data = data + part.keys.len() as u64 * RUN_BYTES;
        let mut usage = self.usage();
        usage.bound = usage.bound.saturating_add(part.page_bytes);
        usage.written_pages = usage.written_pages.saturating_add(part.page_bytes);
        usage.written_data = usage.written_data.saturating_add(data);
    }

    /// Makes the bound a closer one: counts the pages of a small file, works out those of a large one. Errors: `Io`, `Corrupt`.
    pub(crate) fn learn_usage(&self, snapshot: &Snapshot) -> Result<(), Error> {
        if self.size_bytes() > COUNTED_BYTES_MAX {
            self.guess_usage();
            return Ok(());
        }
        let bound = snapshot.table_bytes()? + EMPTY_BYTES;
        let mut usage = self.usage();
        (usage.bound, usage.counted) = (bound, true);
        Ok(())
    }

    /// Works the use out without reading anything.
    pub(crate) fn guess_usage(&self) {
        let data = self.row_bytes();
        let mut usage = self.usage();
        let (pages, written) = (u128::from(usage.written_pages), u128::from(usage.written_data));
        let guess = if written > u128::from(TELLING_BYTES) {
            u64::try_from(u128::from(data) * pages / written).unwrap_or(u64::MAX)
        } else {
            data / 3 * 4
        };
        (usage.bound, usage.counted) = (guess.clamp(data, 2 * data) + EMPTY_BYTES, false);
    }

    /// After a commit of a large file: nothing else will lower the bound.
    pub(super) fn follow_usage(&self) {
        if self.size_bytes() > COUNTED_BYTES_MAX {
            self.guess_usage();
        }
    }

    /// The bytes of pages that one commit can rewrite at most: those in use, if they were counted.
    pub(super) fn rewritten_bytes_max(&self) -> u64 {
        let usage = *self.usage();
        let size = self.size_bytes();
        if usage.counted { usage.bound.min(size) } else { size }
    }

    /// About the bytes that keys, values and what we keep beside them take.
    pub(super) fn row_bytes(&self) -> u64 {
        let meta = *self.meta();
        let small: u64 = SMALL.iter().map(|table| meta.sums.of(*table).rows).sum();
        let data = meta.totals.live_bytes + meta.totals.dead_bytes;
        let rows = |table| meta.sums.of(table).rows;
        data + rows(TableId::History) * VERSION_BYTES + rows(TableId::Index) * RUN_BYTES + small * SMALL_ROW_BYTES
    }
}

impl Snapshot {
    /// The bytes of the pages of all tables. Walks all of them.
    fn table_bytes(&self) -> Result<u64, Error> {
        let stats = |table: redb::TableStats| table.stored_bytes() + table.metadata_bytes() + table.fragmented_bytes();
        let mut bytes = stats(self.txn.open_table(META).at("meta")?.stats().at("meta")?);
        for id in TableId::ALL {
            bytes += stats(self.open_table(id)?.stats().at(id.name())?);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_cut_takes_little_more_than_itself() {
        let packed: Vec<u64> = [10, 400, 490, 1000, 1400, 4040, 8200, 1 << 20].map(packed_bytes).into();
        assert_eq!(packed, [19, 456, 512, 1023, 1430, 4111, 8336, 1_064_968]);
    }
}
