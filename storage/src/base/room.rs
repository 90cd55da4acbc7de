//! The room that work on base needs in the worst case: asked for before it is begun, where a refusal does no harm.

use super::flush::{self, Garbage};
use super::usage::PAGE_BYTES;
use crate::recent::PartData;

/// Leaves that share a page of the branches above, at least.
const LEAVES_PER_BRANCH: u64 = 8;
/// What a commit writes whatever it holds: the header, the state of the allocator, first pages of tables.
pub(crate) const COMMIT_BYTES: u64 = 1 << 20;

/// What a flush of this part needs at most: scattered rows, and the data itself twice, because pages split half full.
pub(crate) fn worst_flush_bytes(part: &PartData, garbage: Garbage, in_use: u64) -> u64 {
    let data: u64 = part.changes.iter().map(|change| change.weight() as u64).sum();
    scattered_bytes(flush::scattered_rows_max(part, garbage), in_use) + 2 * data
}

/// The same for any part of so many changes and bytes, if versions that nobody can read stay.
pub(crate) fn worst_part_bytes(changes: usize, bytes: usize) -> u64 {
    scattered_bytes(changes, u64::MAX).saturating_add(2 * bytes as u64)
}

/// What a step of the sweep needs at most: each visit may remove a row of `index` and a version of `history`, which shares its first page and
/// its last with others; pages between have nothing else.
pub(super) fn worst_sweep_bytes(rows: usize, in_use: u64) -> u64 {
    scattered_bytes(3 * rows, in_use)
}

/// Each scattered row rewrites its page and a share of the path to it, but a commit can rewrite each page in use once only.
fn scattered_bytes(rows: usize, in_use: u64) -> u64 {
    let leaves = rows as u64;
    let pages = leaves + leaves / LEAVES_PER_BRANCH;
    (pages * PAGE_BYTES).min(in_use) + COMMIT_BYTES
}
