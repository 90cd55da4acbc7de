//! Rows of `history` that fill redb's pages: a value that does not fit into what is left of one goes on in the next.
//!
//! redb gives each row that does not fit into a page of 4 KiB one of its own, of a power of two of that, and begins a new page where a
//! row does not fit into the one that it fills. So a value of 10 KiB took 16, one of 4 KiB took 8, and of values of 1 KiB three lay in a page.

use std::ops::Bound;
use std::ptr;

use redb::{ReadableTable, Table};

use super::fault::At;
use super::layout;
use crate::change::{Change, ChangeKind};
use crate::error::Error;

/// A page of redb.
pub(super) const PAGE_BYTES: usize = 4096;
/// Values below this length are never cut.
pub(super) const CUT_MIN_BYTES: usize = 512;
/// Less of a value than this is not worth a piece at the end of a page.
const PIECE_MIN_BYTES: usize = 256;

/// The largest page for pieces is 4 KiB times two to the power of this.
const LARGEST_PAGE_ORDER: u32 = 4;

/// What redb keeps at the beginning of a page, and per row: where its key and its value end.
const HEADER_BYTES: usize = 4;
const ROW_BYTES: usize = 8;

/// A key and a row.
pub(super) type Row = (Vec<u8>, Vec<u8>);

/// The page that redb fills while rows are appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    used: usize,
}

impl Page {
    const EMPTY: Page = Page { used: HEADER_BYTES };

    /// A page with so many bytes in use.
    #[cfg(test)]
    pub(super) fn with(used: usize) -> Page {
        Page { used }
    }

    /// The last page of a table. The rows of a page lie one behind the other in memory, as on the disk, and no other page follows there.
    pub(super) fn last_of(table: &Table<'_, &'static [u8], &'static [u8]>) -> Result<Page, Error> {
        let mut end = table.upper_bound(Bound::<&[u8]>::Unbounded).at("history")?;
        let (mut page, mut behind) = (Page::EMPTY, None);
        while let Some((key, row)) = end.prev().at("history")? {
            let (place, bytes) = (row.value().as_ptr_range(), row.value().len());
            if behind.is_some_and(|behind| !ptr::eq(place.end, behind)) {
                break;
            }
            page.used += ROW_BYTES + key.value().len() + bytes;
            behind = Some(place.start);
        }
        Ok(page)
    }

    /// True if redb leaves the page before this one as it is when it is told that no row follows: it divides the rows of both anew
    /// if this one is filled by less than a third.
    pub(super) fn is_settled(self) -> bool {
        self.used >= PAGE_BYTES / 3
    }

    /// The bytes that a row with a key of this length can have.
    pub(super) fn room(self, key_len: usize) -> usize {
        let page = small!(PAGE_BYTES, 256);
        page.saturating_sub(self.used + ROW_BYTES + key_len)
    }

    fn fits(self, key_len: usize, row_len: usize) -> bool {
        row_len <= self.room(key_len)
    }

    fn push(&mut self, (key, row): Row, rows: &mut Vec<Row>) -> usize {
        if !self.fits(key.len(), row.len()) {
            *self = Page::EMPTY;
        }
        let bytes = key.len() + row.len();
        self.used += ROW_BYTES + bytes;
        rows.push((key, row));
        bytes
    }
}

/// Adds the rows of a change, which follow those that `page` has. Answers how many bytes they have.
pub(super) fn push_rows(change: &Change, page: &mut Page, rows: &mut Vec<Row>) -> usize {
    let place = layout::history_key(change.at);
    let first = first_piece(change, page, place.len());
    let (ChangeKind::Put { value, .. }, Some(first)) = (&change.kind, first) else {
        return page.push((place.to_vec(), layout::history_row(&place, change)), rows);
    };
    let (piece, mut rest) = value.split_at(first);
    let row = layout::cut_row(&place, &change.key, value.len(), piece);
    let mut bytes = page.push((place.to_vec(), row), rows);
    let mut number = 0;
    while !rest.is_empty() {
        number += 1;
        let key = layout::piece_key(change.at, number);
        let (piece, behind) = rest.split_at(piece_len(rest.len(), key.len()));
        bytes += page.push((key.to_vec(), layout::piece_row(&key, piece)), rows);
        rest = behind;
    }
    bytes
}

/// How much of the rest of a value goes into its next row: what fills the largest page that it fills, or all of it. A page is read in one
/// go, so large ones are read with less work.
fn piece_len(rest: usize, key_len: usize) -> usize {
    let page = small!(PAGE_BYTES, 256);
    let room = |order: u32| (page << order) - HEADER_BYTES - ROW_BYTES - key_len - layout::CHECKSUM_BYTES;
    (0..=LARGEST_PAGE_ORDER).rev().map(room).find(|room| *room <= rest).unwrap_or(rest)
}

/// How much of the change's value goes into its first row; none if all of it does, or it has none in `history`.
fn first_piece(change: &Change, page: &Page, key_len: usize) -> Option<usize> {
    let ChangeKind::Put { value, .. } = &change.kind else { return None };
    if value.len() < small!(CUT_MIN_BYTES, layout::INLINE_MAX_BYTES + 1) {
        return None;
    }
    let least = small!(PIECE_MIN_BYTES, 16);
    let whole = layout::head_len(&change.key, None) + value.len();
    let head = layout::head_len(&change.key, Some(value.len()));
    for page in [*page, Page::EMPTY] {
        let piece = page.room(key_len).saturating_sub(head);
        if page.fits(key_len, whole) {
            return None;
        }
        if piece >= least {
            return Some(piece);
        }
    }
    // A key that leaves no room in a page of its own.
    Some(least)
}
