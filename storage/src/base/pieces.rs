//! Versions as `history` has them, in one row or in several: followed on a walk, and put together for a read.

use std::iter;

use bytes::Bytes;
use redb::{AccessGuard, Cursor, StorageError};

use super::fault::At;
use super::layout::{self, HistoryRow};
use crate::error::Error;
use crate::types::RevisionPair;

/// Follows rows of `history` in their order: each piece belongs behind the one before it, and all pieces of a value are there.
#[derive(Debug, Default)]
pub(super) struct Chain {
    open: Option<Open>,
}

/// The version that the last row belongs to.
#[derive(Clone, Copy, Debug)]
struct Open {
    at: RevisionPair,
    /// The number of the next piece.
    next: u32,
    /// Bytes of the value that are missing; none if a row is damaged, so that it cannot be told.
    left: Option<u64>,
}

impl Chain {
    /// The next row. False if it does not match its checksum: then its value has no known end. Errors: `Corrupt` if it does not belong
    /// here, or the version before it is not whole.
    pub(super) fn pass(&mut self, key: &[u8], row: &[u8]) -> Result<bool, Error> {
        let (at, number) = layout::read_place(key)?;
        if number == 0 && !layout::is_piece(key) {
            self.end()?;
            let read = layout::read_history_row(key, row).ok();
            let left = match read.map(|read| (read.value.len().unwrap_or(0), read.value.piece().len() as u64)) {
                Some((len, piece)) => Some(len.checked_sub(piece).ok_or_else(|| layout::belongs_nowhere(key))?),
                None => None,
            };
            self.open = Some(Open { at, next: 1, left });
            return Ok(left.is_some());
        }
        let open = self.open.as_mut().filter(|open| (open.at, open.next) == (at, number));
        let open = open.ok_or_else(|| layout::belongs_nowhere(key))?;
        let piece = layout::read_piece(key, row).ok();
        open.next = number.checked_add(1).ok_or_else(|| layout::belongs_nowhere(key))?;
        open.left = match (open.left, piece) {
            (Some(left), Some(piece)) => {
                let rest = left.checked_sub(piece.len() as u64).filter(|_| !piece.is_empty());
                Some(rest.ok_or_else(|| layout::belongs_nowhere(key))?)
            }
            _ => None,
        };
        Ok(piece.is_some())
    }

    /// The bytes of the last value that are still to come; 0 if that is not known.
    pub(super) fn left(&self) -> u64 {
        self.open.and_then(|open| open.left).unwrap_or(0)
    }

    /// True if no row was passed.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_none()
    }

    /// No piece may come any more. Errors: `Corrupt` if one is missing.
    pub(super) fn end(&mut self) -> Result<(), Error> {
        match self.open.take() {
            Some(Open { at, next, left: Some(1..) }) => Err(layout::missing("history", &layout::piece_key(at, next))),
            _ => Ok(()),
        }
    }
}

type Guard<'a> = AccessGuard<'a, &'static [u8]>;
type Row<'a> = Result<(Guard<'a>, Guard<'a>), StorageError>;
type Rows<'a> = Cursor<'a, &'static [u8], &'static [u8]>;

/// A version on its pages, which stay in memory as long as this lives.
pub(crate) struct OnPages<'a> {
    pub(super) at: RevisionPair,
    row: Guard<'a>,
    /// The value, or the first piece of it, is so much of the row's end.
    first: usize,
    rest: Vec<Guard<'a>>,
}

impl<'a> OnPages<'a> {
    /// The next version of a walk, if `wanted` says so of its place. Errors: `Corrupt`, `Io`.
    pub(super) fn next(
        rows: &mut Rows<'a>,
        wanted: impl FnOnce(RevisionPair) -> bool,
    ) -> Result<Option<OnPages<'a>>, Error> {
        let Some((place, row)) = rows.next().at("history")? else { return Ok(None) };
        if !wanted(layout::read_place(place.value())?.0) {
            return Ok(None);
        }
        OnPages::join(&place, row, &mut iter::from_fn(|| rows.next().transpose())).map(Some)
    }

    /// The version before, on a walk from high to low. Errors: `Corrupt`, `Io`.
    pub(super) fn previous(rows: &mut Rows<'a>) -> Result<Option<OnPages<'a>>, Error> {
        let mut pieces: Vec<Row<'a>> = Vec::new();
        while let Some((place, row)) = rows.prev().at("history")? {
            if layout::is_piece(place.value()) {
                pieces.push(Ok((place, row)));
                continue;
            }
            let mut behind = pieces.into_iter().rev();
            let version = OnPages::join(&place, row, &mut behind)?;
            return match behind.next().transpose().at("history")? {
                Some((key, _)) => Err(layout::belongs_nowhere(key.value())),
                None => Ok(Some(version)),
            };
        }
        match pieces.pop().transpose().at("history")? {
            Some((key, _)) => Err(layout::belongs_nowhere(key.value())),
            None => Ok(None),
        }
    }

    /// A version of which this is the first row, with as many of the next ones as its value needs.
    fn join(
        place: &Guard<'_>,
        row: Guard<'a>,
        behind: &mut impl Iterator<Item = Row<'a>>,
    ) -> Result<OnPages<'a>, Error> {
        let at = layout::read_history_key(place.value()).map_err(|_| layout::belongs_nowhere(place.value()))?;
        let mut chain = Chain::default();
        if !chain.pass(place.value(), row.value())? {
            // Says what is wrong with it.
            layout::read_history_row(place.value(), row.value())?;
        }
        let first = layout::checked_history_row(row.value())?.value.piece().len();
        let mut rest = Vec::new();
        while chain.left() > 0 {
            let Some(next) = behind.next() else { break };
            let (key, piece) = next.at("history")?;
            if !chain.pass(key.value(), piece.value())? {
                layout::read_piece(key.value(), piece.value())?;
            }
            rest.push(piece);
        }
        chain.end()?;
        Ok(OnPages { at, row, first, rest })
    }

    /// The first row, as `history` has it.
    pub(super) fn row(&self) -> Result<HistoryRow<'_>, Error> {
        layout::checked_history_row(self.row.value())
    }

    /// The bytes of its rows.
    pub(super) fn row_bytes(&self) -> usize {
        self.row.value().len() + self.rest.iter().map(|row| row.value().len()).sum::<usize>()
    }

    /// The pieces of the value, in order; an empty one if there is none.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let row = self.row.value();
        let first = row.get(row.len() - self.first..).unwrap_or_default();
        let rest = self.rest.iter().map(|row| row.value().get(layout::CHECKSUM_BYTES..).unwrap_or_default());
        iter::once(first).chain(rest)
    }

    /// The length of the value.
    pub(crate) fn value_len(&self) -> usize {
        self.pieces().map(<[u8]>::len).sum()
    }

    /// A copy of the value.
    pub(super) fn value(&self) -> Bytes {
        if self.rest.is_empty() {
            return Bytes::copy_from_slice(self.pieces().next().unwrap_or_default());
        }
        let mut value = Vec::with_capacity(self.value_len());
        self.pieces().for_each(|piece| value.extend_from_slice(piece));
        Bytes::from(value)
    }
}
