//! Takes numbers and bytes off the front of a block.

use super::format::wrong;
use crate::error::Error;

/// What is left of some bytes.
pub(super) struct Fields<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (field, rest) = self.rest.split_first_chunk().ok_or_else(ends_early)?;
        self.rest = rest;
        Ok(*field)
    }

    pub(super) fn slice(&mut self, len: u32) -> Result<&'a [u8], Error> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (field, rest) = self.rest.split_at_checked(len).ok_or_else(ends_early)?;
        self.rest = rest;
        Ok(field)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number that files have from some format on; 0 in older ones.
    pub(super) fn u64_since(&mut self, since: u32, format: u32) -> Result<u64, Error> {
        if format >= since { self.u64() } else { Ok(0) }
    }

    pub(super) fn i64(&mut self) -> Result<i64, Error> {
        self.array().map(i64::from_le_bytes)
    }
}

fn ends_early() -> Error {
    wrong("a block ends within a field")
}
