//! Checks of what lies on the disk, while a keyspace is open.

use crate::error::Error;
use crate::keyspace::Keyspace;
use crate::pending::Pending;
use crate::reply::ScrubStep;

impl Keyspace {
    /// Walks all of base and compares every row with its checksum, every table with its totals, index with history, and attached keys with leases. Costs about a
    /// read of the whole file. Errors: `Corrupt`, saying which table; `Io`.
    pub fn verify(&self) -> Result<(), Error> {
        let base = self.inner.shared.view().sources.base;
        base.verify()?;
        base.verify_lease_keys()
    }

    /// Does a step of a scrub: about `bytes_max` of what base and the log hold on the disk is read again, past every cache, and compared with
    /// checksums, with the counts and sums of every table, and `index` with `history`. Steps go on where the last one ended, whatever is
    /// written, compacted or rewritten meanwhile; how fast is up to the caller. A part that waits to be flushed waits for one step.
    ///
    /// Errors: `Corrupt`, with file, table and key, if a read could be answered wrongly, and `Io`: both end the keyspace; what ended it before;
    /// `Stopped`.
    pub fn scrub_step(&self, bytes_max: usize) -> Pending<ScrubStep> {
        let shared = &self.inner.shared;
        let asked = shared.scrubs.add(bytes_max);
        shared.nudge();
        if let Some(error) = shared.over() {
            return Pending::new(std::future::ready(Err(error)));
        }
        Pending::new(async move { asked.await.unwrap_or(Err(Error::Stopped)) })
    }
}
