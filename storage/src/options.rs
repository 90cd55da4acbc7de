//! What a keyspace is given: its limits, and what it stands on.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use crate::env::{Clock, Entropy};
use crate::fs::FileSystem;

/// The limits of a keyspace, all of them.
#[derive(Clone, Debug)]
pub struct Options {
    /// The memory that changes not yet in base may take, in bytes; at half of it a part is flushed.
    pub recent_bytes: usize,
    /// How many changes not yet in base there may be; at half of it a part is flushed.
    pub recent_changes: usize,
    /// redb's page cache, in bytes.
    pub cache_bytes: usize,
    /// The size of a log segment, in bytes.
    pub segment_bytes: u64,
    /// Commands that may wait; one more is refused with `TooManyRequests`.
    pub queue_commands: usize,
    /// Bytes of commands that may wait; beyond it they are refused with `TooManyRequests`.
    pub queue_bytes: usize,
    /// What a frame aims at, in bytes; more than a quarter of `log::frame::MAX_FRAME_LEN` counts as that.
    pub batch_bytes: usize,
    /// Messages that wait on a watch stream, in bytes; above it watches fall back to catching up.
    pub watch_queue_bytes: usize,
    /// The bytes of pages in use at which puts and grants are refused with `NoSpace`; `None` means that only the volume sets a limit.
    pub quota_bytes: Option<u64>,
    /// The bytes of disk held back for what makes room on a full volume; 0 means none.
    pub ballast_bytes: u64,
    /// If true, an alarm for want of room is raised by the keyspace, but cleared only by `set_alarm`.
    pub sticky_no_space: bool,
    /// What only tests change.
    #[doc(hidden)]
    pub tuning: Tuning,
}

/// What is the same in every server, and other in tests, where everything is to happen often and in a known order.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Rows that one step of the sweep visits, at least and at most.
    pub sweep_rows: RangeInclusive<usize>,
    /// The maintenance thread works when `Keyspace::give_turn` lets it.
    pub by_turns: bool,
}

impl Tuning {
    /// What the server uses.
    ///
    /// What the sweep drops lies scattered over the pages of both tables, and each step writes those it changes, so a few large steps write
    /// far less than many small ones. 100,000 keys drawn at random, compacted every 150,000 puts, a cache of 64 MiB: the sweep writes 8.2 kB
    /// for each put with steps of 4,000 rows, 2.4 with 64,000, 1.5 with 128,000 (flushes: 1.4).
    pub const STANDARD: Tuning = Tuning { sweep_rows: 4000..=128_000, by_turns: false };
}

impl Options {
    /// What the server uses.
    pub fn standard() -> Options {
        Options {
            recent_bytes: 64 << 20,
            recent_changes: 400_000,
            cache_bytes: 64 << 20,
            segment_bytes: 4 << 20,
            queue_commands: 10_000,
            queue_bytes: 64 << 20,
            batch_bytes: 256 << 10,
            watch_queue_bytes: 1 << 20,
            quota_bytes: Some(2 << 30),
            ballast_bytes: BALLAST_BYTES,
            sticky_no_space: false,
            tuning: Tuning::STANDARD,
        }
    }

    /// What the server uses for a data directory, which need not exist yet, on the volume that it is or will be on; the standard if the file
    /// system does not say how large that is.
    pub fn for_directory(fs: &dyn FileSystem, dir: &Path) -> Options {
        let here = Path::new(".");
        let known = dir.ancestors().chain([here]).find_map(|ancestor| fs.volume(ancestor).ok());
        known.map_or_else(Options::standard, |volume| Options::for_volume(volume.total))
    }

    /// What the server uses on a volume of so many bytes: what takes room there is smaller on a small one.
    pub fn for_volume(total: u64) -> Options {
        let standard = Options::standard();
        let share = |part: u64, least: u64, most: u64| (total / part).clamp(least.min(most), most);
        let memory =
            |part: u64, least: u64, most: usize| usize::try_from(share(part, least, most as u64)).unwrap_or(most);
        Options {
            recent_bytes: memory(RECENT_SHARE, RECENT_BYTES_MIN, standard.recent_bytes),
            recent_changes: memory(VOLUME_BYTES_PER_CHANGE, RECENT_CHANGES_MIN, standard.recent_changes),
            segment_bytes: share(SEGMENT_SHARE, SEGMENT_BYTES_MIN, standard.segment_bytes),
            ballast_bytes: share(BALLAST_SHARE, 0, standard.ballast_bytes),
            ..standard
        }
    }
}

/// On a volume of less than 2 GiB changes in memory take a smaller share of it: they are in the log as well, and a flush may need twice that.
const RECENT_SHARE: u64 = 32;
const RECENT_BYTES_MIN: u64 = 512 << 10;
/// Each change may rewrite a page of its own, and half of them go into a flush: a fourteenth of the volume at worst.
const VOLUME_BYTES_PER_CHANGE: u64 = 32 << 10;
const RECENT_CHANGES_MIN: u64 = 512;
const SEGMENT_SHARE: u64 = 64;
const SEGMENT_BYTES_MIN: u64 = 256 << 10;
/// The ballast is what remains if others fill the volume: half of a small one, so that the other half can be rewritten.
const BALLAST_SHARE: u64 = 2;
const BALLAST_BYTES: u64 = 64 << 20;

/// What a keyspace stands on.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The file system.
    pub fs: Arc<dyn FileSystem>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_small_volume_everything_is_smaller_and_on_none_larger_than_the_standard() {
        let of = |total: u64| {
            let Options { recent_bytes, recent_changes, segment_bytes, ballast_bytes, .. } = Options::for_volume(total);
            (recent_bytes, recent_changes, segment_bytes, ballast_bytes)
        };
        assert_eq!(of(0), (512 << 10, 512, 256 << 10, 0));
        assert_eq!(of(64 << 20), (2 << 20, 2048, 1 << 20, 32 << 20));
        assert_eq!(of(200 << 20), (6_553_600, 6400, 3_276_800, 64 << 20));
        for total in [13 << 30, 1 << 40, u64::MAX] {
            assert_eq!(of(total), (64 << 20, 400_000, 16 << 20, 64 << 20));
        }
    }

    #[test]
    fn a_directory_that_does_not_exist_yet_is_on_the_volume_of_the_one_above() {
        let disk = crate::fs::SimFs::new();
        disk.set_capacity(64 << 20);
        let options = Options::for_directory(&disk, Path::new("/not/there/yet"));
        assert_eq!(options.recent_changes, 2048);
    }
}
