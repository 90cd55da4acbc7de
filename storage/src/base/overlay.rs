//! A file whose changes stay in memory: redb opens a file that a crash left only for writing, and a look must change nothing.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fs::File;

const PAGE: u64 = 4096;

/// Memory: the pages written, which are few: a header, and the state of redb's allocator.
#[derive(Debug)]
pub(super) struct Overlay {
    file: Arc<dyn File>,
    changes: Mutex<Changes>,
}

#[derive(Debug)]
struct Changes {
    len: u64,
    /// How much of the file counts; beyond, there are zeros.
    from_file: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Overlay {
    pub(super) fn new(file: Arc<dyn File>) -> io::Result<Overlay> {
        let len = file.len()?;
        Ok(Overlay { file, changes: Mutex::new(Changes { len, from_file: len, pages: BTreeMap::new() }) })
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page as the file holds it, zeros beyond.
    fn original(&self, number: u64, from_file: u64) -> io::Result<Vec<u8>> {
        let mut page = vec![0; to_usize(PAGE)];
        let there = to_usize(from_file.saturating_sub(number * PAGE).min(PAGE));
        if let Some(part) = page.get_mut(..there).filter(|part| !part.is_empty()) {
            self.file.read_at(number * PAGE, part)?;
        }
        Ok(page)
    }
}

/// The parts of a stretch that lie in one page each: the page, where in it, and where in the stretch.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let end = offset + len as u64;
    (offset / PAGE..end.div_ceil(PAGE)).map(move |number| {
        let (from, upto) = (offset.max(number * PAGE), end.min((number + 1) * PAGE));
        (number, to_usize(from - number * PAGE), to_usize(from - offset)..to_usize(upto - offset))
    })
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl File for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changes().len)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let changes = self.changes();
        if offset + buffer.len() as u64 > changes.len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if offset + buffer.len() as u64 <= changes.from_file {
            self.file.read_at(offset, buffer)?;
        } else {
            for (number, at, range) in parts(offset, buffer.len()) {
                let page = self.original(number, changes.from_file)?;
                copy(buffer.get_mut(range), page.get(at..));
            }
        }
        for (number, at, range) in parts(offset, buffer.len()) {
            if let Some(page) = changes.pages.get(&number) {
                copy(buffer.get_mut(range), page.get(at..));
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changes = self.changes();
        for (number, at, range) in parts(offset, data.len()) {
            if !changes.pages.contains_key(&number) {
                let page = self.original(number, changes.from_file)?;
                changes.pages.insert(number, page);
            }
            let page = changes.pages.get_mut(&number);
            copy(page.and_then(|page| page.get_mut(at..at + range.len())), data.get(range));
        }
        changes.len = changes.len.max(offset + data.len() as u64);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut changes = self.changes();
        changes.len = len;
        changes.from_file = changes.from_file.min(len);
        changes.pages.retain(|number, _| number * PAGE < len);
        if let Some(page) = changes.pages.get_mut(&(len / PAGE)) {
            page.iter_mut().skip(to_usize(len % PAGE)).for_each(|byte| *byte = 0);
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut changes = self.changes();
        changes.len = changes.len.max(offset + len);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.len()
    }
}

/// Fills `to` from the beginning of `from`.
fn copy(to: Option<&mut [u8]>, from: Option<&[u8]>) {
    if let (Some(to), Some(from)) = (to, from) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::fs::sim::Prng;
    use crate::fs::{FileSystem, OpenMode, SimFs};

    #[test]
    fn it_reads_as_a_file_that_was_changed_and_the_file_stays() {
        let disk = SimFs::new();
        let file = |name: &str| disk.open(Path::new(name), OpenMode::CreateNew).unwrap();
        let original: Vec<u8> = (0..20_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let (kept, changed) = (file("/kept"), file("/changed"));
        kept.write_at(0, &original).unwrap();
        changed.write_at(0, &original).unwrap();
        let overlay = Overlay::new(kept).unwrap();
        let mut rng = Prng::new(1);
        for _ in 0..2000 {
            let len = changed.len().unwrap();
            let (offset, bytes) =
                (rng.below(len + 100), vec![rng.below(256).to_le_bytes()[0]; to_usize(rng.below(9000))]);
            match rng.below(9) {
                0 => [changed.as_ref(), &overlay].iter().for_each(|file| file.set_len(rng_len(offset)).unwrap()),
                _ if offset <= len && offset < 60_000 && !bytes.is_empty() => {
                    changed.write_at(offset, &bytes).unwrap();
                    overlay.write_at(offset, &bytes).unwrap();
                }
                _ => {}
            }
            let len = changed.len().unwrap();
            assert_eq!(overlay.len().unwrap(), len);
            let from = rng.below(len + 1);
            let upto = from + rng.below(len - from + 1);
            let (mut one, mut other) = (vec![0; to_usize(upto - from)], vec![1; to_usize(upto - from)]);
            changed.read_at(from, &mut one).unwrap();
            overlay.read_at(from, &mut other).unwrap();
            assert_eq!(one, other, "{from}..{upto} of {len}");
        }
        assert_eq!(disk.contents("/kept").unwrap(), original);
    }

    fn rng_len(offset: u64) -> u64 {
        offset.max(1)
    }
}
