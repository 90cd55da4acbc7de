//! What a keyspace is given: its limits, and what it stands on.

use std::ops::RangeInclusive;
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
    /// The bytes of data at which puts and grants are refused with `NoSpace`; `None` means no quota.
    pub quota_bytes: Option<u64>,
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
            tuning: Tuning::STANDARD,
        }
    }
}

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
