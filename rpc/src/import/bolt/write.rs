//! A small writer of bbolt files, for tests.

#![allow(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "tests")]

use std::collections::BTreeMap;

use super::page::HEADER_LEN;
use super::{MAGIC, VERSION, fnv1a};

/// What a bucket holds.
#[derive(Clone, Debug)]
pub(in crate::import) enum Item {
    Value(Vec<u8>),
    Bucket(Tree),
}

pub(in crate::import) type Tree = BTreeMap<Vec<u8>, Item>;

/// Writes a file with this content, its newer meta in page 1, an older one without content in page 0.
pub(in crate::import) fn file(page_size: usize, content: &Tree) -> Vec<u8> {
    let mut writer = Writer { page_size, bytes: vec![0; 3 * page_size] };
    let empty = writer.run(&leaf(&[]));
    let root = writer.tree(content);
    let pages = (writer.bytes.len() / page_size) as u64;
    writer.meta(0, empty, pages, 6);
    writer.meta(1, root, pages, 7);
    writer.bytes
}

/// A page's elements: flags, key, value.
type Element = (u32, Vec<u8>, Vec<u8>);

struct Writer {
    page_size: usize,
    bytes: Vec<u8>,
}

impl Writer {
    /// Writes a bucket's pages; the number of its root.
    fn tree(&mut self, content: &Tree) -> u64 {
        let elements: Vec<Element> = content.iter().map(|(key, item)| self.element(key, item)).collect();
        let mut level: Vec<(Vec<u8>, u64)> = Vec::new();
        for run in self.split(&elements) {
            let page = self.run(&leaf(run));
            level.push((run.first().map(|element| element.1.clone()).unwrap_or_default(), page));
        }
        while level.len() > 1 {
            level = level.chunks(4).map(|children| (children[0].0.clone(), self.run(&branch(children)))).collect();
        }
        level.first().map_or_else(|| self.run(&leaf(&[])), |(_, page)| *page)
    }

    fn element(&mut self, key: &[u8], item: &Item) -> Element {
        match item {
            Item::Value(value) => (0, key.to_vec(), value.clone()),
            Item::Bucket(tree) => {
                let values = |(key, item): (&Vec<u8>, &Item)| match item {
                    Item::Value(value) => Some((0, key.clone(), value.clone())),
                    Item::Bucket(_) => None,
                };
                let inline = tree.iter().map(values).collect::<Option<Vec<Element>>>().map(|elements| leaf(&elements));
                let value = match inline.filter(|page| page.len() <= self.page_size / 4) {
                    Some(page) => [vec![0; 16], page].concat(),
                    None => [self.tree(tree).to_le_bytes(), [0; 8]].concat(),
                };
                (1, key.to_vec(), value)
            }
        }
    }

    /// As many elements a page as fit, one at least.
    fn split<'a>(&self, elements: &'a [Element]) -> Vec<&'a [Element]> {
        let size = |element: &Element| 16 + element.1.len() + element.2.len();
        let (mut runs, mut from, mut used) = (Vec::new(), 0, HEADER_LEN);
        for (index, element) in elements.iter().enumerate() {
            if index > from && used + size(element) > self.page_size {
                runs.push(&elements[from..index]);
                (from, used) = (index, HEADER_LEN);
            }
            used += size(element);
        }
        if from < elements.len() {
            runs.push(&elements[from..]);
        }
        runs
    }

    /// Puts a page at the end, over as many pages as it needs.
    fn run(&mut self, page: &[u8]) -> u64 {
        let id = (self.bytes.len() / self.page_size) as u64;
        let at = self.bytes.len();
        self.bytes.extend_from_slice(page);
        let end = self.bytes.len().next_multiple_of(self.page_size);
        self.bytes.resize(end, 0);
        let overflow = ((end - at) / self.page_size - 1) as u32;
        self.bytes[at..at + 8].copy_from_slice(&id.to_le_bytes());
        self.bytes[at + 12..at + 16].copy_from_slice(&overflow.to_le_bytes());
        id
    }

    fn meta(&mut self, page: usize, root: u64, pages: u64, txid: u64) {
        let mut meta = Vec::new();
        [MAGIC, VERSION, self.page_size as u32, 0].iter().for_each(|field| meta.extend(field.to_le_bytes()));
        [root, 0, 2, pages, txid].iter().for_each(|field| meta.extend(field.to_le_bytes()));
        meta.extend(fnv1a(&meta).to_le_bytes());
        let at = page * self.page_size + HEADER_LEN;
        self.bytes[at..at + meta.len()].copy_from_slice(&meta);
    }
}

fn leaf(elements: &[Element]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut page = head(2, elements.len());
    for (index, (flags, key, value)) in elements.iter().enumerate() {
        let offset = (elements.len() - index) * 16 + data.len();
        let fields = [*flags, offset as u32, key.len() as u32, value.len() as u32];
        fields.iter().for_each(|field| page.extend(field.to_le_bytes()));
        data.extend_from_slice(key);
        data.extend_from_slice(value);
    }
    [page, data].concat()
}

fn branch(children: &[(Vec<u8>, u64)]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut page = head(1, children.len());
    for (index, (key, child)) in children.iter().enumerate() {
        let offset = (children.len() - index) * 16 + data.len();
        [offset as u32, key.len() as u32].iter().for_each(|field| page.extend(field.to_le_bytes()));
        page.extend(child.to_le_bytes());
        data.extend_from_slice(key);
    }
    [page, data].concat()
}

fn head(kind: u16, count: usize) -> Vec<u8> {
    [&[0; 8][..], &kind.to_le_bytes(), &(count as u16).to_le_bytes(), &[0; 4]].concat()
}
