//! A file's bytes: sparse pages, shared until they are written.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// The bytes of a page, the unit of allocation.
pub(super) const PAGE: u64 = 4096;
const PAGE_LEN: usize = 4096;

type Page = Arc<[u8; PAGE_LEN]>;

/// Every allocated page that was never written is this one.
static ZERO: LazyLock<Page> = LazyLock::new(|| Arc::new([0; PAGE_LEN]));

/// A length and the pages that take room; a page that is absent is a hole.
#[derive(Clone, Default)]
pub(super) struct Image {
    pub(super) len: u64,
    pages: BTreeMap<u64, Page>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes in {} pages", self.len, self.pages.len())
    }
}

impl Image {
    /// Copies what lies at `offset`, zeros from holes and from beyond the end.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) {
        let mut at = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let (page, from, take) = piece(at, rest.len());
            let (now, later) = rest.split_at_mut(take);
            match self.pages.get(&page).and_then(|bytes| bytes.get(from..from + take)) {
                Some(bytes) => now.copy_from_slice(bytes),
                None => now.fill(0),
            }
            rest = later;
            at += take as u64;
        }
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let (page, from, take) = piece(at, rest.len());
            let (now, later) = rest.split_at(take);
            let bytes = Arc::make_mut(self.pages.entry(page).or_insert_with(|| ZERO.clone()));
            if let Some(target) = bytes.get_mut(from..from + take) {
                target.copy_from_slice(now);
            }
            rest = later;
            at += take as u64;
        }
        self.len = self.len.max(at);
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            drop(self.pages.split_off(&len.div_ceil(PAGE)));
            let (page, from, _) = piece(len, 1);
            if let Some(bytes) = self.pages.get_mut(&page) {
                Arc::make_mut(bytes).iter_mut().skip(from).for_each(|byte| *byte = 0);
            }
        }
        self.len = len;
    }

    pub(super) fn allocate(&mut self, offset: u64, len: u64) {
        for page in pages_of(offset, len) {
            self.pages.entry(page).or_insert_with(|| ZERO.clone());
        }
        self.len = self.len.max(offset.saturating_add(len));
    }

    /// Takes over a stretch as `from` has it, holes as holes; the length stays.
    pub(super) fn copy_pages(&mut self, from: &Image, offset: u64, len: u64) {
        for page in pages_of(offset, len) {
            match from.pages.get(&page) {
                Some(bytes) => _ = self.pages.insert(page, bytes.clone()),
                None => _ = self.pages.remove(&page),
            }
        }
    }

    /// How many bytes of room writing a stretch would take.
    pub(super) fn bytes_missing(&self, offset: u64, len: u64) -> u64 {
        pages_of(offset, len).filter(|page| !self.pages.contains_key(page)).count() as u64 * PAGE
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }
}

fn pages_of(offset: u64, len: u64) -> std::ops::Range<u64> {
    if len == 0 { 0..0 } else { offset / PAGE..offset.saturating_add(len).div_ceil(PAGE) }
}

/// The page of `at`, the place in it, and how much of `want` fits there.
fn piece(at: u64, want: usize) -> (u64, usize, usize) {
    let from = usize::try_from(at % PAGE).unwrap_or(0);
    (at / PAGE, from, want.min(PAGE_LEN - from))
}
