//! The maintenance thread: it brings frozen parts to base, and between them sweeps what compaction made unreadable, and rewrites base when
//! asked to.

use std::sync::Arc;
use std::time::Duration;

use crate::base::Garbage;
use crate::engine::room;
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
    /// See who still reads from the base before.
    LookAgain,
    End,
}

/// How long to wait before room is looked for again, also if nothing happens here: others use the disk as well.
const RETRY: Duration = Duration::from_millis(500);
/// The same while the alarm is on and may clear itself.
const RETRY_SOON: Duration = Duration::from_millis(50);

/// Rows that one step of the sweep visits: enough to share a commit, few enough that a part never waits long.
const SWEEP_ROWS: usize = 4000;

/// Runs until the keyspace ends.
pub(crate) fn run(shared: &Shared, ended: &dyn Fn() -> bool) {
    let mut thread = Maintenance { shared, shrink: Shrink::default(), stuck: false };
    if let Err(error) = thread.serve(ended) {
        shared.fail(error);
    }
    thread.shrink.abandon(shared, Error::Stopped);
}

struct Maintenance<'a> {
    shared: &'a Shared,
    shrink: Shrink,
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
            let done = match next {
                Some(Next::End) => return Ok(()),
                Some(next) => self.work(next),
                None => {
                    self.stuck = false;
                    self.attend()
                }
            };
            match done {
                Ok(()) => {}
                Err(Error::NoSpace) => self.wait_for_room()?,
                Err(error) => return Err(error),
            }
        }
    }

    fn next(&self, head: &Head, let_go: bool, ended: &dyn Fn() -> bool) -> Option<Next> {
        match &head.sources.frozen {
            _ if ended() || self.shared.failure().is_some() => Some(Next::End),
            Some(part) if !self.stuck && !self.shrink.comes_first() => Some(Next::Flush(part.clone())),
            _ if self.shrink.is_running() => Some(Next::Rewrite),
            _ if head.sweep_is_due() => Some(Next::Sweep(head.compacted)),
            _ if let_go && (self.shrink.is_due(self.shared, head) || self.shrink.saves_room(head)) => Some(Next::Begin),
            _ => (!let_go).then_some(Next::LookAgain),
        }
    }

    fn work(&mut self, next: Next) -> Result<(), Error> {
        match next {
            Next::Flush(part) => {
                let flushed = bring(self.shared, &part, self.shrink.garbage());
                self.stuck = flushed == Err(Error::NoSpace);
                flushed?;
                self.shrink.flushed(part.read().changes.len());
            }
            Next::Sweep(compacted) => {
                sweep(self.shared, compacted)?;
                self.stuck = false;
            }
            Next::Begin => self.shrink.begin(self.shared),
            Next::Rewrite => {
                self.shrink.step(self.shared)?;
                self.stuck &= self.shrink.is_running();
            }
            Next::LookAgain | Next::End => return Ok(()),
        }
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
        if !self.stuck {
            std::thread::park_timeout(RETRY);
        }
        Ok(())
    }
}

/// One durable commit, then readers get the new base and the part is forgotten: both under the lock that views are taken under. A
/// crash before the commit replays the part from the log; after it, the log below is no longer needed.
pub(crate) fn bring(shared: &Shared, part: &Part, garbage: Garbage) -> Result<(), Error> {
    let (base, data) = (shared.base(), part.read());
    let garbage = base.reserve(&data, garbage)?;
    base.flush(&data, garbage)?;
    drop(data);
    publish(shared, |head| head.sources.frozen = None)?;
    shared.queue.poke();
    Ok(())
}

/// One bounded step, then a rest as long as the step took. A crash leaves the cursor of the step before or of this one; what a replayed
/// log says about compaction is the same or less, and the state never depends on what the sweep drops.
fn sweep(shared: &Shared, compacted: Revision) -> Result<(), Error> {
    let (base, begun) = (shared.base(), shared.clock.monotonic());
    let rows = base.reserve_sweep(SWEEP_ROWS)?;
    base.sweep(compacted, rows)?;
    publish(shared, |_| {})?;
    shared.rest(shared.clock.monotonic().saturating_sub(begun));
    Ok(())
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
