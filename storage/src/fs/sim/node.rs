//! One file: what processes see, what the disk holds, and what lies between.

use std::sync::Arc;

use crate::fs::sim::image::Image;
use crate::fs::sim::prng::Prng;

/// How a power cut treats what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashStyle {
    /// Only what was synced is there.
    KeepNone,
    /// Everything is there, as if the last moment had been synced.
    KeepAll,
    /// A random part of the 512-byte sectors, lengths, names.
    Sectors,
    /// A random part of the 4-KiB pages, lengths, names.
    Pages,
    /// Like `Sectors`, but of the first sector of a file, where its header is, a random part of the single bytes.
    HeaderBytes,
}

/// A change that was not synced yet.
#[derive(Clone, Debug)]
enum Unsynced {
    Write(u64, Arc<[u8]>),
    SetLen(u64),
    Allocate(u64, u64),
}

/// A file's two states.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Tells files apart, whatever their names.
    pub(super) id: u64,
    live: Image,
    durable: Image,
    unsynced: Vec<Unsynced>,
}

impl Node {
    pub(super) fn new(id: u64) -> Node {
        Node { id, live: Image::default(), durable: Image::default(), unsynced: Vec::new() }
    }

    pub(super) fn live(&self) -> &Image {
        &self.live
    }

    pub(super) fn write(&mut self, offset: u64, data: &Arc<[u8]>) {
        self.live.write(offset, data);
        self.unsynced.push(Unsynced::Write(offset, data.clone()));
    }

    pub(super) fn set_len(&mut self, len: u64) {
        self.live.set_len(len);
        self.unsynced.push(Unsynced::SetLen(len));
    }

    pub(super) fn allocate(&mut self, offset: u64, len: u64) {
        self.live.allocate(offset, len);
        self.unsynced.push(Unsynced::Allocate(offset, len));
    }

    /// Makes what changed since the last sync durable, page by page: what a failed sync lost stays lost unless its page was
    /// written again.
    pub(super) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            match change {
                Unsynced::Write(offset, data) => self.durable.copy_pages(&self.live, offset, data.len() as u64),
                Unsynced::SetLen(len) => self.durable.set_len(len),
                Unsynced::Allocate(offset, len) => self.durable.copy_pages(&self.live, offset, len),
            }
        }
        self.durable.set_len(self.live.len);
    }

    /// What a failed sync leaves: a random part reached the disk, and the system takes all of it for written.
    pub(super) fn lose_part(&mut self, random: &mut Prng) {
        let changes = std::mem::take(&mut self.unsynced);
        apply_part(&mut self.durable, &changes, CrashStyle::Sectors, random);
    }

    /// The file after a power cut.
    pub(super) fn crashed(&self, style: CrashStyle, random: &mut Prng) -> Node {
        let image = match style {
            CrashStyle::KeepNone => self.durable.clone(),
            CrashStyle::KeepAll => self.live.clone(),
            CrashStyle::Sectors | CrashStyle::Pages | CrashStyle::HeaderBytes => {
                let mut image = self.durable.clone();
                apply_part(&mut image, &self.unsynced, style, random);
                image
            }
        };
        Node { id: self.id, live: image.clone(), durable: image, unsynced: Vec::new() }
    }

    /// Changes a stretch behind everyone's back, in memory and on the disk.
    pub(super) fn damage(&mut self, offset: u64, data: &[u8]) {
        self.live.write(offset, data);
        self.durable.write(offset, data);
    }
}

fn apply_part(image: &mut Image, changes: &[Unsynced], style: CrashStyle, random: &mut Prng) {
    // Files fare differently: of one nearly all reaches the disk, of another nearly nothing.
    let percent = [0, 10, 50, 50, 90, 100].get(pick(random, 6)).copied().unwrap_or(50);
    let sector = |at: u64| match style {
        CrashStyle::Pages => 4096,
        CrashStyle::HeaderBytes if at < 512 => 1,
        _ => 512,
    };
    for change in changes {
        match change {
            Unsynced::Write(offset, data) => write_part(image, *offset, data, &sector, percent, random),
            Unsynced::SetLen(len) if random.chance(percent) => image.set_len(*len),
            Unsynced::Allocate(offset, len) if random.chance(percent) => image.allocate(*offset, *len),
            Unsynced::SetLen(_) | Unsynced::Allocate(..) => {}
        }
    }
}

fn write_part(
    image: &mut Image,
    offset: u64,
    data: &[u8],
    sector: &impl Fn(u64) -> u64,
    percent: u64,
    random: &mut Prng,
) {
    let end = offset + data.len() as u64;
    // The new length may reach the disk before, with or without the bytes.
    if end > image.len && random.chance(percent) {
        image.set_len(end);
    }
    let mut at = offset;
    let mut rest = data;
    while !rest.is_empty() {
        let room = usize::try_from(sector(at) - at % sector(at)).unwrap_or(usize::MAX);
        let (now, later) = rest.split_at(room.min(rest.len()));
        if random.chance(percent) {
            image.write(at, now);
        }
        at += now.len() as u64;
        rest = later;
    }
}

fn pick(random: &mut Prng, bound: u64) -> usize {
    usize::try_from(random.below(bound)).unwrap_or(0)
}
