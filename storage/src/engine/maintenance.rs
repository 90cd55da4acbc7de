//! The maintenance thread: it brings frozen parts to base, and between them sweeps what compaction made unreadable.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::shared::{Head, Shared};
use crate::error::Error;
use crate::recent::Part;
use crate::types::Revision;

/// What the maintenance thread is to do next; a part comes before a step of the sweep.
enum Next {
    Flush(Arc<Part>),
    /// Up to this compacted revision.
    Sweep(Revision),
    End,
}

/// How long to wait before room is looked for again.
const RETRY: Duration = Duration::from_millis(500);

/// Rows that one step of the sweep visits: enough to share a commit, few enough that a part never waits long.
const SWEEP_ROWS: usize = 4000;

/// Runs until the keyspace ends.
pub(crate) fn run(shared: &Shared, ended: &dyn Fn() -> bool) {
    loop {
        let next = shared.wait_for_base(|head| match &head.sources.frozen {
            _ if ended() || shared.failure().is_some() => Some(Next::End),
            Some(part) => Some(Next::Flush(part.clone())),
            None => head.sweep_is_due().then_some(Next::Sweep(head.compacted)),
        });
        let done = match next {
            Next::Flush(part) => bring(shared, &part),
            Next::Sweep(compacted) => sweep(shared, compacted),
            Next::End => return,
        };
        match done {
            Ok(()) => {}
            Err(Error::NoSpace) => {
                shared.publish_base(|head| head.out_of_room = true);
                shared.queue.poke();
                std::thread::park_timeout(RETRY);
            }
            Err(error) => return shared.fail(error),
        }
    }
}

/// One durable commit, then readers get the new base and the part is forgotten: both under the lock that views are taken under. A
/// crash before the commit replays the part from the log; after it, the log below is no longer needed.
pub(crate) fn bring(shared: &Shared, part: &Part) -> Result<(), Error> {
    let data = part.read();
    shared.base.reserve(&data)?;
    shared.base.flush(&data)?;
    drop(data);
    publish(shared, |head| head.sources.frozen = None)?;
    shared.queue.poke();
    Ok(())
}

/// One bounded step, then a rest as long as the step took. A crash leaves the cursor of the step before or of this one; what a replayed
/// log says about compaction is the same or less, and the state never depends on what the sweep drops.
fn sweep(shared: &Shared, compacted: Revision) -> Result<(), Error> {
    let begun = shared.clock.monotonic();
    shared.base.reserve_sweep(SWEEP_ROWS)?;
    shared.base.sweep(compacted, SWEEP_ROWS)?;
    publish(shared, |_| {})?;
    shared.rest(shared.clock.monotonic().saturating_sub(begun));
    Ok(())
}

fn publish(shared: &Shared, and: impl FnOnce(&mut Head)) -> Result<(), Error> {
    let snapshot = shared.base.snapshot()?;
    shared.publish_base(|head| {
        head.take_base(snapshot, &shared.base);
        head.out_of_room = false;
        and(head);
    });
    Ok(())
}
