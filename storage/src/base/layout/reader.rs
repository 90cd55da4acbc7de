//! A reader of bytes from the disk that answers `Corrupt` where they end too early or too late.

use crate::error::Error;

/// What is left of a row of a table.
#[derive(Debug)]
pub(in crate::base) struct Reader<'a> {
    table: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(in crate::base) fn new(table: &'static str, bytes: &'a [u8]) -> Reader<'a> {
        Reader { table, rest: bytes }
    }

    pub(in crate::base) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.short(N as u64))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(in crate::base) fn u8(&mut self) -> Result<u8, Error> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(in crate::base) fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(in crate::base) fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(in crate::base) fn i64(&mut self) -> Result<i64, Error> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// Seven bits a byte, lowest first.
    pub(in crate::base) fn varint(&mut self) -> Result<u64, Error> {
        let mut number = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7F);
            if bits.leading_zeros() < shift {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Error::corrupt(self.table, "a number is longer than 64 bits"))
    }

    pub(in crate::base) fn take(&mut self, len: u64) -> Result<&'a [u8], Error> {
        let split = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let (head, rest) = split.ok_or_else(|| self.short(len))?;
        self.rest = rest;
        Ok(head)
    }

    pub(in crate::base) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(in crate::base) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Nothing may be left.
    pub(in crate::base) fn end(&self) -> Result<(), Error> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(Error::corrupt(self.table, format!("{left} bytes too many"))),
        }
    }

    fn short(&self, wanted: u64) -> Error {
        Error::corrupt(self.table, format!("{wanted} bytes wanted, {} left", self.rest.len()))
    }
}
