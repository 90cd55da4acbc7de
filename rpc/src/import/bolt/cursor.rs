//! A walk over a bucket in key order.
//!
//! It ends whatever the file holds: keys must grow from entry to entry, so no leaf is met twice; a page is never below itself; only the root may be
//! without elements.

use bytes::Bytes;

use super::page::{Page, number};
use super::{Bolt, Bucket};

/// Levels of a tree. Each has two children at least, so no file has as many.
const DEPTH_MAX: usize = 64;

/// The bytes before the page of a bucket that lies within its entry.
const BUCKET_LEN: usize = 16;

/// An entry of a bucket.
#[derive(Clone, Debug)]
pub(in crate::import) struct Entry {
    pub(in crate::import) key: Bytes,
    pub(in crate::import) value: Bytes,
    is_bucket: bool,
    page: u64,
}

impl Entry {
    /// The entry as a bucket.
    pub(in crate::import) fn bucket(&self) -> Result<Bucket, String> {
        let wrong = |what: &str| format!("page {}: {what}", self.page);
        if !self.is_bucket {
            return Err(wrong("a value where a bucket was expected"));
        }
        let root = number::<8>(&self.value, 0).map_err(|_| wrong("a bucket without its header"))?;
        if root != 0 {
            return Ok(Bucket::Page(root));
        }
        if self.value.len() < BUCKET_LEN {
            return Err(wrong("a bucket without its header"));
        }
        Ok(Bucket::Inline { leaf: self.value.slice(BUCKET_LEN..), at: self.page })
    }

    /// The entry as a value.
    pub(in crate::import) fn value(&self) -> Result<&Bytes, String> {
        if self.is_bucket {
            return Err(format!("page {}: a bucket where a value was expected", self.page));
        }
        Ok(&self.value)
    }

    /// The page that it lies in.
    pub(in crate::import) fn page(&self) -> u64 {
        self.page
    }
}

/// A place in a bucket.
#[derive(Debug)]
pub(in crate::import) struct Cursor<'b> {
    bolt: &'b Bolt,
    /// Where to begin, until then.
    root: Option<Bucket>,
    /// From the root down: the page and its next element.
    path: Vec<(Page, usize)>,
    last: Option<Bytes>,
}

impl<'b> Cursor<'b> {
    pub(super) fn new(bolt: &'b Bolt, root: Bucket) -> Cursor<'b> {
        Cursor { bolt, root: Some(root), path: Vec::new(), last: None }
    }

    /// The next entry; `None` at the end. After an error there are no more.
    pub(in crate::import) fn next(&mut self) -> Result<Option<Entry>, String> {
        let next = self.step();
        if next.is_err() {
            self.path.clear();
        }
        next
    }

    fn step(&mut self) -> Result<Option<Entry>, String> {
        if let Some(root) = self.root.take() {
            self.path.push((self.read_root(&root)?, 0));
        }
        while let Some((page, next)) = self.path.last_mut() {
            if *next == page.count {
                self.path.pop();
                continue;
            }
            let index = *next;
            *next += 1;
            if page.leaf {
                let (key, value, is_bucket) = page.leaf(index)?;
                let page = page.id;
                return self.in_order(page, key.clone()).map(|()| Some(Entry { key, value, is_bucket, page }));
            }
            let child = page.child(index)?;
            self.descend(child)?;
        }
        Ok(None)
    }

    fn read_root(&self, root: &Bucket) -> Result<Page, String> {
        let page = match root {
            Bucket::Page(id) => self.bolt.page(*id)?,
            Bucket::Inline { leaf, at } => {
                // A copy keeps this bucket, not the page that it lies in.
                let page = Page::new(*at, Bytes::copy_from_slice(leaf))?;
                if !page.leaf {
                    return Err(format!("page {at}: a bucket within it has a branch"));
                }
                page
            }
        };
        if !page.leaf && page.count == 0 {
            return Err(format!("page {}: a branch without children", page.id));
        }
        Ok(page)
    }

    fn descend(&mut self, child: u64) -> Result<(), String> {
        if self.path.iter().any(|(page, _)| page.id == child) || self.path.len() == DEPTH_MAX {
            return Err(format!("page {child}: it lies below itself, or {DEPTH_MAX} levels deep"));
        }
        let page = self.bolt.page(child)?;
        if page.count == 0 {
            return Err(format!("page {child}: no elements"));
        }
        self.path.push((page, 0));
        Ok(())
    }

    fn in_order(&mut self, page: u64, key: Bytes) -> Result<(), String> {
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            return Err(format!("page {page}: its keys are not in order"));
        }
        self.last = Some(key);
        Ok(())
    }
}
