//! One branch or leaf page: its elements, each looked at only within the page.

use bytes::Bytes;

/// The bytes before the elements.
pub(super) const HEADER_LEN: usize = 16;
const ELEMENT_LEN: usize = 16;
const BRANCH: u64 = 1;
const LEAF: u64 = 2;
/// An element that is a bucket.
const BUCKET: u64 = 1;

/// A page, with what belongs to it.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) id: u64,
    pub(super) leaf: bool,
    pub(super) count: usize,
    bytes: Bytes,
}

impl Page {
    /// Checks kind and size. An error names the page, as all errors here.
    pub(super) fn new(id: u64, bytes: Bytes) -> Result<Page, String> {
        let (kind, count) = (number::<2>(&bytes, 8)?, number::<2>(&bytes, 10)?);
        if kind != BRANCH && kind != LEAF {
            return Err(format!("page {id}: kind {kind} where a branch or a leaf was expected"));
        }
        let page = Page { id, leaf: kind == LEAF, count: usize::try_from(count).unwrap_or(usize::MAX), bytes };
        if HEADER_LEN + page.count * ELEMENT_LEN > page.bytes.len() {
            return Err(format!("page {id}: {count} elements in {} bytes", page.bytes.len()));
        }
        Ok(page)
    }

    /// The child of a branch's element. Its key only leads the way to others, but it must lie within the page.
    pub(super) fn child(&self, index: usize) -> Result<u64, String> {
        let at = HEADER_LEN + index * ELEMENT_LEN;
        self.slice(index, number::<4>(&self.bytes, at)?, number::<4>(&self.bytes, at + 4)?)?;
        number::<8>(&self.bytes, at + 8)
    }

    /// The key and the value of a leaf's element, and whether it is a bucket.
    pub(super) fn leaf(&self, index: usize) -> Result<(Bytes, Bytes, bool), String> {
        let at = HEADER_LEN + index * ELEMENT_LEN;
        let field = |number_at: usize| number::<4>(&self.bytes, at + number_at);
        let (flags, offset, key_len, value_len) = (field(0)?, field(4)?, field(8)?, field(12)?);
        if flags > BUCKET {
            return Err(format!("page {}, element {index}: flags {flags}", self.id));
        }
        let (key, value) = (self.slice(index, offset, key_len)?, self.slice(index, offset + key_len, value_len)?);
        Ok((key, value, flags == BUCKET))
    }

    /// `len` bytes, `offset` behind the element that names them.
    fn slice(&self, index: usize, offset: u64, len: u64) -> Result<Bytes, String> {
        let from = (HEADER_LEN + index * ELEMENT_LEN) as u64 + offset;
        match (usize::try_from(from), usize::try_from(from + len)) {
            (Ok(from), Ok(to)) if to <= self.bytes.len() => Ok(self.bytes.slice(from..to)),
            _ => Err(format!("page {}, element {index}: {len} bytes at {from}, it has {}", self.id, self.bytes.len())),
        }
    }
}

/// A number of N bytes at most 8, little-endian.
pub(super) fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<u64, String> {
    let part = at.checked_add(N).and_then(|end| bytes.get(at..end)).ok_or("the page is cut short")?;
    let mut wide = [0; 8];
    part.iter().zip(&mut wide).for_each(|(from, to)| *to = *from);
    Ok(u64::from_le_bytes(wide))
}
