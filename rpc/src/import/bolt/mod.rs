//! A reader of bbolt files: meta pages, branch and leaf pages, buckets in buckets. It trusts nothing that it reads.
//!
//! ```text
//! offset  size  page, numbers in the byte order of the machine: little-endian
//!      0     8  its number
//!      8     2  1 branch, 2 leaf, 4 meta, 16 free list
//!     10     2  elements
//!     12     4  pages that follow it and belong to it
//!     16        branch: per element u32 offset from the element, u32 key length, u64 child
//!               leaf:   per element u32 1 for a bucket, u32 offset from the element, u32 key length, u32 value length
//!
//! offset  size  meta, behind the header of page 0 or 1
//!      0     4  0xED0CDAED
//!      4     4  2
//!      8     4  page size
//!     12     4  flags
//!     16    16  root bucket: u64 page, u64 sequence
//!     32     8  page of the free list
//!     40     8  number of pages
//!     48     8  number of the transaction: the higher one counts
//!     56     8  FNV-1a of all before it
//!
//! A bucket's value is u64 root page, u64 sequence; root page 0 means that a page follows.
//! ```

use std::sync::Arc;

use bytes::Bytes;
use storage::fs::File;

mod cursor;
mod page;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) mod write;

pub(super) use cursor::{Cursor, Entry};
use page::{HEADER_LEN, Page, number};

/// A page with all that belongs to it may take this much memory, in bytes. etcd's largest value is one and a half MiB unless it was told otherwise.
const PAGE_BYTES_MAX: u64 = 512 << 20;
const PAGE_SIZES: std::ops::RangeInclusive<u32> = 512..=1 << 16;
const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const META_LEN: usize = 64;

/// A file that can be read.
#[derive(Debug)]
pub(super) struct Bolt {
    file: Arc<dyn File>,
    page_size: u32,
    pages: u64,
    root: u64,
}

/// Where the entries of a bucket lie.
#[derive(Clone, Debug)]
pub(super) enum Bucket {
    /// Below this page.
    Page(u64),
    /// In this leaf, which lies in page `at`.
    Inline { leaf: Bytes, at: u64 },
}

/// What a meta page says.
#[derive(Clone, Copy, Debug)]
struct Meta {
    page_size: u32,
    root: u64,
    pages: u64,
    txid: u64,
}

impl Bolt {
    /// Takes a file whose first `len` bytes are the database. Errors: one line that says what is wrong with it.
    pub(super) fn open(file: Arc<dyn File>, len: u64) -> Result<Bolt, String> {
        let meta = newest_meta(file.as_ref(), len)?;
        let bolt = Bolt { file, page_size: meta.page_size, pages: meta.pages, root: meta.root };
        let needed = u128::from(meta.pages) * u128::from(meta.page_size);
        if u128::from(len) < needed {
            return Err(format!("the file is cut short: {len} bytes of {needed}"));
        }
        Ok(bolt)
    }

    /// The bucket that holds all others.
    pub(super) fn root(&self) -> Bucket {
        Bucket::Page(self.root)
    }

    /// The entries of a bucket, in key order.
    pub(super) fn entries(&self, bucket: &Bucket) -> Cursor<'_> {
        Cursor::new(self, bucket.clone())
    }

    /// The bucket of this name within a bucket.
    pub(super) fn find(&self, within: &Bucket, name: &[u8]) -> Result<Option<Bucket>, String> {
        let mut entries = self.entries(within);
        while let Some(entry) = entries.next()? {
            if entry.key == name {
                return entry.bucket().map(Some);
            }
        }
        Ok(None)
    }

    /// Reads a branch or a leaf, with the pages that belong to it.
    fn page(&self, id: u64) -> Result<Page, String> {
        let wrong = |what: String| Err(format!("page {id}: {what}"));
        if id < 2 || id >= self.pages {
            return wrong(format!("it cannot be one of {} pages", self.pages));
        }
        let size = u64::from(self.page_size);
        let mut head = [0; HEADER_LEN];
        self.read(id, id * size, &mut head)?;
        let (own, overflow) = (number::<8>(&head, 0)?, number::<4>(&head, 12)?);
        if own != id {
            return wrong(format!("it says that it is page {own}"));
        }
        let run = overflow + 1;
        if run > self.pages - id {
            return wrong(format!("{run} pages belong to it, the file has {}", self.pages));
        }
        match usize::try_from(run * size) {
            Ok(len) if run * size <= PAGE_BYTES_MAX => {
                let mut bytes = vec![0; len];
                self.read(id, id * size, &mut bytes)?;
                Page::new(id, bytes.into())
            }
            _ => wrong(format!("it has {} bytes, {PAGE_BYTES_MAX} are allowed", run * size)),
        }
    }

    fn read(&self, id: u64, offset: u64, buffer: &mut [u8]) -> Result<(), String> {
        self.file.read_at(offset, buffer).map_err(|error| format!("page {id}: {error}"))
    }
}

/// The valid meta with the higher transaction. Where the second one lies depends on the page size, which is known only if the first one is
/// whole.
fn newest_meta(file: &dyn File, len: u64) -> Result<Meta, String> {
    let first = read_meta(file, len, 0);
    let second = match &first {
        Ok(meta) => read_meta(file, len, u64::from(meta.page_size)),
        Err(_) => {
            let sizes = (0..).map(|shift| 512u64 << shift).take_while(|size| *size <= u64::from(*PAGE_SIZES.end()));
            let fits = |size: &u64| read_meta(file, len, *size).is_ok_and(|meta| u64::from(meta.page_size) == *size);
            let found = sizes.clone().find(fits).unwrap_or(4096);
            read_meta(file, len, found)
        }
    };
    match (first, second) {
        (Ok(first), Ok(second)) => Ok(if second.txid > first.txid { second } else { first }),
        (Ok(meta), Err(_)) | (Err(_), Ok(meta)) => Ok(meta),
        (Err(first), Err(second)) => Err(format!("page 0: {first}; page 1: {second}")),
    }
}

fn read_meta(file: &dyn File, len: u64, at: u64) -> Result<Meta, String> {
    let mut bytes = [0; META_LEN];
    let at = at + HEADER_LEN as u64;
    if at + META_LEN as u64 > len {
        return Err("the file is cut short".to_owned());
    }
    file.read_at(at, &mut bytes).map_err(|error| error.to_string())?;
    let field = |at: usize| number::<4>(&bytes, at).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let magic = field(0)?;
    if magic != MAGIC {
        let swapped = if magic.swap_bytes() == MAGIC { ", of a big-endian machine" } else { "" };
        return Err(format!("not a meta page of bbolt{swapped}"));
    }
    let version = field(4)?;
    if version != VERSION {
        return Err(format!("bbolt version {version}; this release reads version {VERSION}"));
    }
    if number::<8>(&bytes, 56)? != fnv1a(bytes.get(..56).unwrap_or_default()) {
        return Err("it does not match its checksum".to_owned());
    }
    let page_size = field(8)?;
    if !page_size.is_power_of_two() || !PAGE_SIZES.contains(&page_size) {
        return Err(format!("a page size of {page_size} bytes"));
    }
    Ok(Meta {
        page_size,
        root: number::<8>(&bytes, 16)?,
        pages: number::<8>(&bytes, 40)?,
        txid: number::<8>(&bytes, 48)?,
    })
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}
