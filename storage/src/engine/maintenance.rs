//! The maintenance thread: it brings frozen parts to base, and between them sweeps what compaction made unreadable, rewrites base and reads it again
//! when asked to.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::base::Garbage;
use crate::engine::room;
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

/// How long to wait before room is looked for again, also if nothing happens here: others use the disk as well.
const RETRY: Duration = Duration::from_millis(500);
/// The same while the alarm is on and may clear itself.
const RETRY_SOON: Duration = Duration::from_millis(50);

/// Runs until the keyspace ends. A step of the sweep visits so many rows, at least and at most.
pub(crate) fn run(shared: &Shared, ended: &dyn Fn() -> bool, scrub: Scrub, sweep_rows: &RangeInclusive<usize>) {
    let (shrink, rows) = (Shrink::default(), *sweep_rows.start());
    let mut thread = Maintenance { shared, shrink, scrub, sweep_rows, rows, stuck: false };
    if let Err(error) = thread.serve(ended) {
        shared.fail(error);
    }
    thread.shrink.abandon(shared, Error::Stopped);
}

struct Maintenance<'a> {
    shared: &'a Shared,
    shrink: Shrink,
    scrub: Scrub,
    sweep_rows: &'a RangeInclusive<usize>,
    /// What the next step of the sweep visits.
    rows: usize,
    /// There was no room for the part that waits, and nothing was done about it since.
    stuck: bool,
}

impl Maintenance<'_> {
    fn serve(&mut self, ended: &dyn Fn() -> bool) -> Result<(), Error> {
        self.attend()?;
        loop {
            if self.shared.queue.is_ending() {
                self.shrink.abandon(self.shared, Error::Stopped);
            }
            let let_go = self.shrink.let_go(self.shared);
            if let_go && self.shared.head().beside_bytes > self.shrink.bytes() {
                // What the old base took is free: others must not be faster than the ballast.
                self.attend()?;
            }
            let patience = if self.shared.head().out_of_room_alarm { RETRY_SOON } else { RETRY };
            let next = self.shared.wait_for_base_at_most(patience, |head| self.next(head, let_go, ended));
            let piece = next.as_ref().and_then(Next::piece);
            let done = match next {
                Some(Next::End) => return Ok(()),
                Some(next) => self.work(next),
                None => self.look_around(),
            };
            match done {
                Ok(()) => {}
                Err(Error::NoSpace) => self.wait_for_room()?,
                Err(error) => return Err(error),
            }
            if piece.is_some() {
                self.shared.pace.done(piece);
            }
        }
    }

    fn next(&self, head: &Head, let_go: bool, ended: &dyn Fn() -> bool) -> Option<Next> {
        let next = match &head.sources.frozen {
            _ if ended() || self.shared.failure().is_some() => return Some(Next::End),
            Some(part) if !self.stuck && !self.shrink.comes_first() => Some(Next::Flush(part.clone())),
            _ if self.shrink.comes_first() => Some(Next::Rewrite),
            _ if !self.shared.scrubs.is_empty() => return Some(Next::Scrub),
            _ if self.shrink.is_running() => Some(Next::Rewrite),
            _ if head.sweep_is_due() => Some(Next::Sweep(head.compacted)),
            _ if let_go && (self.shrink.is_due(self.shared, head) || self.shrink.saves_room(head)) => Some(Next::Begin),
            _ => (!let_go).then_some(Next::LookAgain),
        };
        self.shared.pace.admit(next)
    }

    fn work(&mut self, next: Next) -> Result<(), Error> {
        match next {
            Next::Flush(part) => {
                let flushed = bring(self.shared, &part, self.shrink.garbage());
                self.stuck = flushed == Err(Error::NoSpace) && !self.shared.pace.is_by_turns();
                flushed?;
                self.shrink.flushed(part.read().changes.len());
            }
            Next::Sweep(compacted) => {
                sweep(self.shared, compacted, self.sweep_rows, &mut self.rows)?;
                self.stuck = false;
            }
            Next::Begin => self.shrink.begin(self.shared),
            Next::Rewrite => {
                self.shrink.step(self.shared)?;
                self.stuck &= self.shrink.is_running();
            }
            Next::Scrub => return self.scrub.step(self.shared),
            Next::LookAgain | Next::End => return Ok(()),
        }
        self.attend()
    }

    /// Nothing happened for a while, here at least. What is told when to work does not look at the clock.
    fn look_around(&mut self) -> Result<(), Error> {
        if self.shared.pace.is_by_turns() {
            return Ok(());
        }
        self.stuck = false;
        self.attend()
    }

    fn attend(&self) -> Result<(), Error> {
        room::attend(self.shared, self.shrink.bytes())
    }

    /// What the copy takes may be what is missing; what the sweep or a rewrite gives back may be too. If there is nothing of that, others
    /// may make room.
    fn wait_for_room(&mut self) -> Result<(), Error> {
        let shared = self.shared;
        self.shrink.abandon_for_room(shared);
        shared.publish_base(|head| head.out_of_room = true);
        shared.queue.poke();
        self.attend()?;
        if !self.stuck && !shared.pace.is_by_turns() {
            std::thread::park_timeout(RETRY);
        }
        Ok(())
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
    let garbage = base.reserve(&data, garbage)?;
    failpoint!(Flush, Err);
    let begun = shared.clock.monotonic();
    let report = base.flush(&data, garbage)?;
    let took = shared.clock.monotonic().saturating_sub(begun);
    shared.meters.flushed(data.changes.len(), report, took);
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
    // Where room is scarce a smaller step may fit.
    *rows = base.reserve_sweep(*rows)?;
    let report = base.sweep(compacted, *rows)?;
    shared.meters.swept(compacted, report, begun, shared.clock.monotonic(), shared.clock.wall_ms());
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
