//! What can happen to files: bits flip, sectors vanish or change places.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use storage::fs::sim::SimFs;

use crate::model::rng::Rng;

const SECTOR: usize = 512;

/// What happens to a file behind everyone's back.
#[derive(Clone, Copy, Debug)]
pub enum Damage {
    /// This bit of the file is flipped.
    Flip(u64),
    /// This sector is zeros.
    Zero(usize),
    /// These two have changed places.
    Swap(usize, usize),
}

/// What a file is.
pub fn kind_of(path: &Path) -> &'static str {
    match path.extension().and_then(|name| name.to_str()) {
        Some("redb") => "base",
        Some("log") => "log",
        _ => "identity",
    }
}

/// The files of an image, and where something was written.
pub struct Files {
    contents: BTreeMap<PathBuf, Vec<u8>>,
    written: BTreeMap<PathBuf, Vec<usize>>,
    newest_segment: Option<PathBuf>,
    last_frame: usize,
}

impl Files {
    pub fn of(image: &SimFs) -> Files {
        let mut files =
            Files { contents: BTreeMap::new(), written: BTreeMap::new(), newest_segment: None, last_frame: 0 };
        for path in image.files().into_iter().filter(|path| !path.ends_with("lock")) {
            let bytes = image.contents(&path).expect("it is there");
            let sectors = bytes.chunks(SECTOR).enumerate().filter(|(_, sector)| sector.iter().any(|byte| *byte != 0));
            let written: Vec<usize> = sectors.map(|(number, _)| number).collect();
            if path.extension().is_some_and(|name| name == "log") {
                // A frame's first sector has a tag of its own.
                let first = written.iter().rev().find(|number| bytes[**number * SECTOR] == 0xa5);
                (files.newest_segment, files.last_frame) = (Some(path.clone()), first.copied().unwrap_or(usize::MAX));
            }
            files.written.insert(path.clone(), written);
            files.contents.insert(path, bytes);
        }
        files
    }

    /// A damage somewhere, of what holds data most of the time.
    pub fn damage(&self, rng: &mut Rng) -> (PathBuf, Damage) {
        let wanted = *rng.pick(&["base", "base", "base", "base", "base", "log", "log", "last", "last", "identity"]);
        let last = wanted == "last";
        let fits = |path: &&PathBuf| match &self.newest_segment {
            Some(newest) if last => *path == newest,
            _ => kind_of(path) == wanted,
        };
        let paths: Vec<&PathBuf> = self.written.keys().filter(fits).collect();
        let path = *rng.pick(&paths);
        let sectors = &self.written[path];
        let of_last: Vec<usize> = sectors.iter().copied().filter(|sector| *sector >= self.last_frame).collect();
        let choice = if last && !of_last.is_empty() { &of_last } else { sectors };
        let sector = *rng.pick(choice);
        let len = SECTOR.min(self.contents[path].len() - sector * SECTOR);
        let other = *rng.pick(sectors);
        let damage = match rng.below(10) {
            6 | 7 => Damage::Zero(sector),
            8 | 9 if self.differ(path, sector, other) => Damage::Swap(sector, other),
            _ => Damage::Flip(((sector * SECTOR + rng.below(len)) * 8 + rng.below(8)) as u64),
        };
        (path.clone(), damage)
    }

    fn differ(&self, path: &Path, one: usize, other: usize) -> bool {
        let mut sectors = self.contents[path].chunks(SECTOR);
        let (low, high) = (one.min(other), one.max(other));
        low != high && sectors.nth(low) != sectors.nth(high - low - 1)
    }

    pub fn apply(&self, disk: &SimFs, path: &Path, damage: Damage) {
        let bytes = &self.contents[path];
        let sector = |number: usize| &bytes[number * SECTOR..bytes.len().min((number + 1) * SECTOR)];
        let put = |number: usize, data: &[u8]| disk.damage(path, (number * SECTOR) as u64, data).expect("it is there");
        match damage {
            Damage::Flip(bit) => disk.flip_bit(path, bit).expect("it is there"),
            Damage::Zero(number) => put(number, &vec![0; sector(number).len()]),
            Damage::Swap(one, other) => {
                put(one, sector(other));
                put(other, sector(one));
            }
        }
    }

    /// True if the damage takes a sector of the last frame away.
    pub fn in_last_frame(&self, path: &Path, damage: Damage) -> bool {
        let last = self.newest_segment.as_deref() == Some(path);
        last && matches!(damage, Damage::Zero(sector) if sector >= self.last_frame)
    }
}
