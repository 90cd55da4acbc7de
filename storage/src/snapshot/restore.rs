//! Restores a snapshot: a new data directory, with an identity of its own.

use std::path::Path;

use super::file::SnapshotFile;
use crate::error::Error;
use crate::import::{Import, ImportReport, ImportedLease};
use crate::options::{Environment, Options};
use crate::types::Revision;

impl SnapshotFile {
    /// Makes a data directory of it in `dir`, which must be missing, empty, or left by a restore that did not end.
    ///
    /// With `bump` 0 revision and compacted revision are those of the snapshot. Otherwise the revision is higher by `bump` and everything below is
    /// compacted: keys keep their numbers, and who knows a revision from before, or one that was lost, is told that it is compacted, and never
    /// sees another state under its name.
    ///
    /// Until it has returned, a start refuses the directory. Memory: as `Import`.
    ///
    /// Errors: `Io`, also if the directory holds anything else; `Corrupt` if the file changed since it was opened, or `bump` is below 0 or too
    /// large; `NoSpace`.
    pub fn restore(
        &self,
        dir: &Path,
        bump: i64,
        options: &Options,
        environment: &Environment,
    ) -> Result<ImportReport, Error> {
        let info = self.info();
        let revision = info.revision.0.checked_add(bump).filter(|bumped| bump >= 0 && *bumped < i64::MAX / 2);
        let revision = revision.map(Revision).ok_or_else(|| {
            Error::corrupt("snapshot", format!("revision {} cannot be raised by {bump}", info.revision))
        })?;
        let compacted = if bump == 0 { info.compacted } else { revision };
        let mut import = Import::begin(dir, compacted, options, environment)?;
        import.expect_keys(info.keys);
        self.each_change(|change| import.add(change))?;
        for alarm in &self.alarms {
            import.add_alarm(alarm.member, alarm.kind);
        }
        self.each_mark(|(time_ms, revision)| import.add_mark(time_ms, revision))?;
        let forgotten = if planted!(RestoreForgetsLeases) { self.leases.len() } else { 0 };
        let leases: Vec<ImportedLease> = self.leases.iter().skip(forgotten).map(imported).collect();
        import.finish(revision, &leases)
    }
}

fn imported(lease: &super::Lease) -> ImportedLease {
    ImportedLease { id: lease.id, ttl: lease.ttl, remaining: (lease.left_ms / 1000).clamp(0, lease.ttl) }
}
