//! The maintenance thread: it brings frozen parts to base, and between them sweeps what compaction made unreadable, rewrites base and reads it again
//! when asked to.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::base::Garbage;
use crate::engine::scrub::Scrub;
use crate::engine::shared::{Head, Shared};
use crate::engine::shrink::Shrink;
use crate::error::Error;
use crate::recent::Part;
use crate::types::Revision;

/// What the maintenance thread is to do next; a part comes before a step of anything else.
enum Next {
    Flush(Arc<Part>),
    /// Up to this compacted revision.
    Sweep(Revision),
    /// Begin to rewrite base.
    Begin,
    /// A step of that.
    Rewrite,
    /// A step of a scrub.
    Scrub,
    /// See who still reads from the base before.
    LookAgain,
    End,
}

/// How long to wait before room is looked for again.
const RETRY: Duration = Duration::from_millis(500);

/// Runs until the keyspace ends. A step of the sweep visits so many rows, at least and at most.
pub(crate) fn run(shared: &Shared, ended: &dyn Fn() -> bool, mut scrub: Scrub, sweep_rows: &RangeInclusive<usize>) {
    let mut shrink = Shrink::default();
    if let Err(error) = serve(shared, ended, sweep_rows, &mut shrink, &mut scrub) {
        shared.fail(error);
    }
    shrink.abandon(shared, Error::Stopped);
}

fn serve(
    shared: &Shared,
    ended: &dyn Fn() -> bool,
    sweep_rows: &RangeInclusive<usize>,
    shrink: &mut Shrink,
    scrub: &mut Scrub,
) -> Result<(), Error> {
    let mut rows = *sweep_rows.start();
    loop {
        if shared.queue.is_ending() {
            shrink.abandon(shared, Error::Stopped);
        }
        let let_go = shrink.let_go(shared);
        let next = shared.wait_for_base(|head| {
            let next = match &head.sources.frozen {
                _ if ended() || shared.failure().is_some() => return Some(Next::End),
                Some(part) if !shrink.comes_first() => Some(Next::Flush(part.clone())),
                _ if shrink.comes_first() => Some(Next::Rewrite),
                _ if !shared.scrubs.is_empty() => return Some(Next::Scrub),
                _ if shrink.is_running() => Some(Next::Rewrite),
                _ if head.sweep_is_due() => Some(Next::Sweep(head.compacted)),
                _ if shrink.is_due(shared, head) => Some(Next::Begin),
                _ => (!let_go).then_some(Next::LookAgain),
            };
            shared.pace.admit(next)
        });
        let piece = next.piece();
        let done = match next {
            Next::Flush(part) => {
                bring(shared, &part, shrink.garbage()).map(|()| shrink.flushed(part.read().changes.len()))
            }
            Next::Sweep(compacted) => sweep(shared, compacted, sweep_rows, &mut rows),
            Next::Begin => {
                shrink.begin(shared);
                Ok(())
            }
            Next::Rewrite => shrink.step(shared),
            Next::Scrub => scrub.step(shared),
            Next::LookAgain => Ok(()),
            Next::End => return Ok(()),
        };
        match done {
            Ok(()) => {}
            Err(Error::NoSpace) => {
                // What the copy takes may be what is missing.
                shrink.abandon_for_room(shared);
                shared.publish_base(|head| head.out_of_room = true);
                shared.queue.poke();
                if !shared.pace.is_by_turns() {
                    std::thread::park_timeout(RETRY);
                }
            }
            Err(error) => return Err(error),
        }
        if piece.is_some() {
            shared.pace.done(piece);
        }
    }
}

impl Next {
    /// What the work is called, if it is any.
    fn piece(&self) -> Option<&'static str> {
        match self {
            Next::Flush(_) => Some("flush"),
            Next::Sweep(_) => Some("sweep"),
            Next::Begin | Next::Rewrite => Some("rewrite"),
            Next::Scrub | Next::LookAgain | Next::End => None,
        }
    }
}

/// One durable commit, then readers get the new base and the part is forgotten: both under the lock that views are taken under. A
/// crash before the commit replays the part from the log; after it, the log below is no longer needed.
pub(crate) fn bring(shared: &Shared, part: &Part, garbage: Garbage) -> Result<(), Error> {
    failpoint!(Reserve, |_| Err(Error::NoSpace));
    if planted!(PartFromLiveState) {
        part.write().applied.position = shared.head().position;
    }
    let (base, data) = (shared.base(), part.read());
    base.reserve(&data)?;
    failpoint!(Flush, Err);
    base.flush(&data, garbage)?;
    drop(data);
    if planted!(PartInvisible) {
        shared.publish_base(|head| head.sources.frozen = None);
    }
    failpoint!(FlushPublish, Err);
    publish(shared, |head| head.sources.frozen = None)?;
    shared.queue.poke();
    Ok(())
}

/// One bounded step, then a rest as long as the step took. A crash leaves the cursor of the step before or of this one; what a replayed
/// log says about compaction is the same or less, and the state never depends on what the sweep drops.
fn sweep(shared: &Shared, compacted: Revision, within: &RangeInclusive<usize>, rows: &mut usize) -> Result<(), Error> {
    let (base, begun) = (shared.base(), shared.clock.monotonic());
    failpoint!(Sweep, Err);
    if let Err(error) = base.reserve_sweep(*rows) {
        // Where room is scarce a small step may fit.
        *rows = *within.start();
        if error != Error::NoSpace {
            return Err(error);
        }
        base.reserve_sweep(*rows)?;
    }
    base.sweep(compacted, *rows)?;
    publish(shared, |_| {})?;
    *rows = next_rows(*rows, within, shared.head().sources.frozen.is_some());
    shared.rest(shared.clock.monotonic().saturating_sub(begun));
    Ok(())
}

/// A step that a part had to wait for is followed by one half as large, any other by one twice as large.
fn next_rows(rows: usize, within: &RangeInclusive<usize>, a_part_waits: bool) -> usize {
    let next = if a_part_waits { rows / 2 } else { rows * 2 };
    next.clamp(*within.start(), *within.end())
}

fn publish(shared: &Shared, and: impl FnOnce(&mut Head)) -> Result<(), Error> {
    let base = shared.base();
    let snapshot = base.snapshot()?;
    shared.publish_base(|head| {
        head.take_base(snapshot, &base);
        head.out_of_room = false;
        and(head);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_the_sweep_grow_until_a_part_waits() {
        let within = 4000..=128_000;
        assert_eq!(
            [4000, 64_000, 100_000, 128_000].map(|rows| next_rows(rows, &within, false)),
            [8000, 128_000, 128_000, 128_000]
        );
        assert_eq!([4000, 5000, 128_000].map(|rows| next_rows(rows, &within, true)), [4000, 4000, 64_000]);
    }
}
