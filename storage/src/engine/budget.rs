//! The budget: how much data base may still take, so that it can always be written and always be rewritten.
//!
//! What a copy of base needs is twice there: for the one in use, and for the one that a rewrite makes, each with an eighth and a little
//! more around it. On top of that come one flush at its worst and the log. So whatever is deleted and compacted gives room back, whatever
//! others put on the volume meanwhile, and nothing has to be believed about where redb finds free pages.

use crate::base::COMMIT_BYTES;

/// What has to be free for puts before an alarm clears itself: a share of the volume, and no more than this.
const USEFUL_SHARE: u64 = 32;
const USEFUL_BYTES_MAX: u64 = 64 << 20;
/// The same as a share of what data may take in all, by the quota and by the volume.
const USEFUL_SHARE_OF_QUOTA: u64 = 16;
const USEFUL_SHARE_OF_CAPACITY: u64 = 2;

/// What the limits say, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The pages in use at which puts are refused; none: only the volume counts.
    pub(crate) quota: Option<u64>,
    /// What a flush takes at most.
    pub(crate) flush: u64,
    /// What the log takes at most.
    pub(crate) log: u64,
}

/// What was measured, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// The volume.
    pub(crate) total: u64,
    /// What is free on it, with the ballast.
    pub(crate) free: u64,
    /// What base takes of it.
    pub(crate) base: u64,
    /// What the log takes of it.
    pub(crate) log: u64,
    /// The pages that base has in use.
    pub(crate) in_use: u64,
    /// What deleting every key would add to these.
    pub(crate) deletions: u64,
}

/// What puts are judged by, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Budget {
    /// What may be added by the quota, with nothing in memory.
    by_quota: u64,
    /// What may be added by the volume.
    by_volume: u64,
    /// With less than this an alarm is raised; it clears itself with as much.
    pub(crate) useful: u64,
    /// What is free, with the ballast.
    pub(crate) free: u64,
    /// What must stay free for a rewrite and a flush beside it.
    pub(crate) rewrite: u64,
}

impl Budget {
    pub(crate) fn new(limits: &Limits, measured: &Measured) -> Budget {
        let Measured { total, free, base, log, in_use, deletions } = *measured;
        let log_to_come = limits.log.saturating_sub(log);
        let all = base.saturating_add(free.saturating_sub(log_to_come));
        let beside = limits.flush.saturating_add(COMMIT_BYTES);
        let capacity = capacity(all.saturating_sub(beside));
        let quota = limits.quota.unwrap_or(u64::MAX);
        Budget {
            by_quota: quota.saturating_sub(in_use),
            by_volume: capacity.saturating_sub(in_use).saturating_sub(deletions),
            useful: useful(total, capacity, quota),
            free,
            rewrite: copy_bytes(in_use).saturating_add(beside),
        }
    }

    /// What may still be added, with so many bytes of pages in memory or on the way there.
    pub(crate) fn remaining(&self, recent: u64) -> u64 {
        self.by_quota.min(self.by_volume).saturating_sub(recent)
    }

    /// True if a rewrite, which would leave base with a copy of what is in use, comes to the rescue of the next one: there is just room for it, and
    /// it gains something.
    pub(crate) fn wants_rewrite(&self, base: u64, in_use: u64) -> bool {
        let copy = copy_bytes(in_use);
        self.free < self.rewrite
            && self.free >= copy.saturating_add(COMMIT_BYTES)
            && base >= copy.saturating_add(self.useful)
    }
}

/// The pages that may be in use if everything has to be there twice, with what surrounds a copy.
fn capacity(all: u64) -> u64 {
    all / 18 * 8
}

/// What a copy of so many bytes in use takes: blocks are obtained ahead of them.
fn copy_bytes(in_use: u64) -> u64 {
    in_use.saturating_add(in_use / 8)
}

fn useful(total: u64, capacity: u64, quota: u64) -> u64 {
    let of_volume = (total / USEFUL_SHARE).min(USEFUL_BYTES_MAX);
    of_volume.min(quota / USEFUL_SHARE_OF_QUOTA).min(capacity / USEFUL_SHARE_OF_CAPACITY).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A volume of 64 MiB as the server divides it, in MiB: free, what base takes, what of it is in use.
    fn small(free: u64, base: u64, in_use: u64) -> Budget {
        let limits = Limits { quota: None, flush: 8 * MIB, log: 7 * MIB };
        let [free, base, in_use] = [free, base, in_use].map(|mib| mib * MIB);
        Budget::new(&limits, &Measured { total: 64 * MIB, free, base, log: 7 * MIB, in_use, deletions: 0 })
    }

    #[test]
    fn what_may_be_in_use_does_not_depend_on_the_files_garbage() {
        let left: Vec<u64> = [(56, 1, 0), (30, 27, 0), (30, 27, 10), (30, 27, 20), (30, 27, 22)]
            .map(|(free, base, in_use)| small(free, base, in_use).remaining(0) / 1024)
            .into();
        assert_eq!(left, [21845, 21845, 11605, 1365, 0]);
    }

    #[test]
    fn at_the_limit_there_is_room_for_a_copy_and_a_flush() {
        for all in [10_u64, 24, 57, 200, 1000, 100_000] {
            let limits = Limits { quota: None, flush: 8 * MIB, log: 7 * MIB };
            let empty = Measured { total: all * MIB, free: all * MIB, base: 0, log: 0, in_use: 0, deletions: 0 };
            let full = Budget::new(&limits, &empty).remaining(0);
            let base = copy_bytes(full);
            let left = (all * MIB).saturating_sub(limits.log);
            assert!(full == 0 || left - base >= copy_bytes(full) + limits.flush + COMMIT_BYTES, "{all} MiB");
        }
    }

    #[test]
    fn what_is_in_memory_and_what_deletions_would_add_counts() {
        let limits = Limits { quota: None, flush: 8 * MIB, log: 7 * MIB };
        let measured =
            Measured { total: 64 * MIB, free: 57 * MIB, base: 0, log: 7 * MIB, in_use: 4 * MIB, deletions: 2 * MIB };
        let budget = Budget::new(&limits, &measured);
        assert_eq!(budget.remaining(0), small(57, 0, 6).remaining(0));
        assert_eq!(budget.remaining(3 * MIB), small(57, 0, 9).remaining(0));
        assert_eq!(budget.remaining(u64::MAX), 0);
        // A quota asks for what is in use alone.
        let limits = Limits { quota: Some(10 * MIB), ..limits };
        assert_eq!(Budget::new(&limits, &measured).remaining(0), 6 * MIB);
    }

    #[test]
    fn what_is_useful_is_a_share_of_the_volume_of_the_quota_and_of_what_is_left() {
        let useful =
            |total: u64, capacity: u64, quota: u64| super::useful(total * MIB, capacity * MIB, quota * MIB) / MIB;
        assert_eq!(useful(64, 20, 2048), 2);
        assert_eq!(useful(200, 4, 2048), 2);
        assert_eq!(useful(1000, 300, 160), 10);
        assert_eq!(useful(1 << 30, 1 << 29, 1 << 30), 64);
        assert_eq!(super::useful(0, 0, 1), 1);
    }

    #[test]
    fn a_rewrite_is_wanted_before_there_is_no_room_for_it() {
        let wanted: Vec<bool> = [
            // Much garbage, but the room is there.
            (40, 17, 4),
            // The next flush may take it.
            (20, 37, 10),
            // It would gain nothing.
            (20, 37, 32),
            // It is too late.
            (10, 47, 10),
        ]
        .map(|(free, base, in_use)| small(free, base, in_use).wants_rewrite(base * MIB, in_use * MIB))
        .into();
        assert_eq!(wanted, [false, true, false, false]);
    }
}
