//! What tests need to decide the order of everything that happens on the disk; of no use to anybody else.

use crate::keyspace::Keyspace;

impl Keyspace {
    /// With `Tuning::by_turns`: lets the maintenance thread do one piece of work, if there is one, and waits until it is done and the
    /// committer rests. What it was.
    #[doc(hidden)]
    pub fn give_turn(&self) -> Option<&'static str> {
        let shared = &self.inner.shared;
        let done = shared.pace.give(|| shared.nudge());
        self.rest();
        done
    }

    /// Waits until the committer has nothing left to do. It must not be waiting for base.
    #[doc(hidden)]
    pub fn rest(&self) {
        self.inner.shared.queue.wait_until_idle();
    }

    /// Makes what is in memory a part for the maintenance thread to flush, unless one waits already.
    #[doc(hidden)]
    pub fn freeze(&self) {
        if !self.part_waits() {
            self.inner.shared.queue.request_flush();
            self.rest();
        }
    }

    /// True if a part waits to be flushed.
    #[doc(hidden)]
    pub fn part_waits(&self) -> bool {
        self.inner.shared.head().sources.frozen.is_some()
    }

    /// While it is held, commands wait; those that come meanwhile make one frame.
    #[doc(hidden)]
    pub fn hold(&self, held: bool) {
        self.inner.shared.queue.hold(held);
    }
}
