//! Files as bbolt writes them, and files that nothing sound has written: an error or a right answer, never a panic, always an end.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "tests")]

use std::io;

use super::write::{Item, Tree, file};
use super::*;

/// A file in memory.
#[derive(Debug)]
struct Memory(Vec<u8>);

impl File for Memory {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap().min(self.0.len());
        let part = self.0[from..].get(..buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(part);
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.len()
    }
}

fn open(bytes: &[u8]) -> Result<Bolt, String> {
    Bolt::open(Arc::new(Memory(bytes.to_vec())), bytes.len() as u64)
}

/// Everything in a bucket, as the writer took it.
fn read(bolt: &Bolt, bucket: &Bucket, depth: usize) -> Result<Tree, String> {
    let mut tree = Tree::new();
    let mut entries = bolt.entries(bucket);
    while let Some(entry) = entries.next()? {
        let item = match entry.value() {
            Ok(value) => Item::Value(value.to_vec()),
            // A damaged file may have a bucket in itself; etcd has no bucket in a bucket at all.
            Err(_) if depth == 4 => Item::Value(Vec::new()),
            Err(_) => Item::Bucket(read(bolt, &entry.bucket()?, depth + 1)?),
        };
        tree.insert(entry.key.to_vec(), item);
    }
    Ok(tree)
}

fn read_all(bytes: &[u8]) -> Result<Tree, String> {
    let bolt = open(bytes)?;
    read(&bolt, &bolt.root(), 0)
}

fn value(len: usize) -> Item {
    Item::Value((0..len).map(|at| (at % 251) as u8).collect())
}

/// Inline and nested buckets, an empty one, values over several pages, three levels of branches.
fn content() -> Tree {
    let many = (0..300_u32).map(|n| (n.to_be_bytes().to_vec(), value(n as usize % 50))).collect();
    let large = Tree::from([(b"a".to_vec(), value(5000)), (b"b".to_vec(), value(1)), (b"c".to_vec(), value(700))]);
    let inner = Tree::from([(b"large".to_vec(), Item::Bucket(large)), (b"x".to_vec(), value(3))]);
    Tree::from([
        (b"empty".to_vec(), Item::Bucket(Tree::new())),
        (b"inline".to_vec(), Item::Bucket(Tree::from([(b"k".to_vec(), value(9))]))),
        (b"many".to_vec(), Item::Bucket(many)),
        (b"nested".to_vec(), Item::Bucket(inner)),
    ])
}

fn text(tree: &Tree) -> String {
    format!("{tree:?}")
}

#[test]
fn buckets_branches_and_values_of_any_size_are_read() {
    for page_size in [512, 1024, 4096, 65_536] {
        let bytes = file(page_size, &content());
        assert_eq!(text(&read_all(&bytes).unwrap()), text(&content()), "pages of {page_size}");
    }
    let bolt = open(&file(512, &content())).unwrap();
    let nested = bolt.find(&bolt.root(), b"nested").unwrap().unwrap();
    assert!(bolt.find(&nested, b"large").unwrap().is_some() && bolt.find(&nested, b"gone").unwrap().is_none());
    assert!(bolt.find(&nested, b"x").unwrap_err().contains("a value where a bucket was expected"));
}

#[test]
fn of_two_metas_the_newer_sound_one_counts() {
    let sound = file(1024, &content());
    let flipped = |page: usize| {
        let mut bytes = sound.clone();
        bytes[page * 1024 + HEADER_LEN + 50] ^= 1;
        bytes
    };
    // Page 0 is older and has no content, page 1 is newer.
    assert_eq!(text(&read_all(&flipped(0)).unwrap()), text(&content()));
    assert_eq!(read_all(&flipped(1)).unwrap().len(), 0);
    let mut neither = flipped(0);
    neither[1024 + HEADER_LEN + 50] ^= 1;
    let refused = read_all(&neither).unwrap_err();
    assert!(refused.contains("page 0: it does not match its checksum; page 1: "), "{refused}");
    for page in 0..2 {
        let other = neither[page * 1024 + HEADER_LEN..][..4].to_vec();
        let swapped: Vec<u8> = other.into_iter().rev().collect();
        neither[page * 1024 + HEADER_LEN..][..4].copy_from_slice(&swapped);
    }
    assert!(read_all(&neither).unwrap_err().contains("big-endian"));
}

/// What is set at an offset within a page, and the error that it must lead to.
#[test]
fn damage_is_named_with_its_page() {
    let tree: Tree = (0..100_u32).map(|n| (n.to_be_bytes().to_vec(), value(20))).collect();
    let bytes = file(512, &tree);
    let root = open(&bytes).unwrap().root;
    let first_leaf = 4;
    let cases: [(u64, usize, &[u8], &str); 10] = [
        (root, 16 + 8, &1_u64.to_le_bytes(), "page 1: it cannot be one of"),
        (root, 16 + 8, &999_u64.to_le_bytes(), "page 999: it cannot be one of"),
        (root, 16 + 8, &root.to_le_bytes(), "it lies below itself"),
        (root, 8, &4_u16.to_le_bytes(), "kind 4 where a branch or a leaf was expected"),
        (root, 10, &0_u16.to_le_bytes(), "a branch without children"),
        (first_leaf, 0, &77_u64.to_le_bytes(), "page 4: it says that it is page 77"),
        (first_leaf, 10, &0_u16.to_le_bytes(), "page 4: no elements"),
        (first_leaf, 10, &u16::MAX.to_le_bytes(), "page 4: 65535 elements in 512 bytes"),
        (first_leaf, 12, &u32::MAX.to_le_bytes(), "page 4: 4294967296 pages belong to it"),
        (first_leaf, 16 + 12, &u32::MAX.to_le_bytes(), "page 4, element 0: 4294967295 bytes at"),
    ];
    for (page, at, with, expected) in cases {
        let mut damaged = bytes.clone();
        let at = page as usize * 512 + at;
        damaged[at..at + with.len()].copy_from_slice(with);
        let refused = read_all(&damaged).unwrap_err();
        assert!(refused.contains(expected), "{refused}, expected {expected}");
    }
    // The same leaf twice.
    let mut twice = bytes.clone();
    let second = root as usize * 512 + 16 + 16 + 8;
    let first = twice[second - 16..][..8].to_vec();
    twice[second..second + 8].copy_from_slice(&first);
    assert!(read_all(&twice).unwrap_err().contains("its keys are not in order"));
}

#[test]
fn no_shorter_file_and_no_flipped_bits_make_it_panic_or_go_on_for_ever() {
    let sound = file(512, &content());
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    for len in 0..sound.len() {
        assert!(read_all(&sound[..len]).is_err(), "{len} bytes");
    }
    let (mut errors, mut right) = (0, 0);
    for _ in 0..20_000 {
        let mut damaged = sound.clone();
        for _ in 0..=random(4) {
            let at = random(damaged.len());
            damaged[at] = if random(2) == 0 { damaged[at] ^ (1 << random(8)) } else { random(256) as u8 };
        }
        match read_all(&damaged) {
            Ok(_) => right += 1,
            Err(_) => errors += 1,
        }
    }
    println!("{errors} damaged files refused, {right} read");
    assert!(errors >= 2_000 && right >= 2_000);
}
