//! One turn of a connection's task: what is woken during it still belongs to it.
//!
//! A request that has sent something is often woken at once to send more, and those of other requests come meanwhile. To return for each
//! to the runtime would send what is written so far by itself.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// Nothing is to be done: whoever wakes tells the runtime.
const RESTING: u8 = 0;
/// The turn goes on, and looks at the end whether it was woken.
const RUNNING: u8 = 1;
/// There is something to be done, and it will be.
const WOKEN: u8 = 2;

/// Wakes the task of a connection, unless its turn has not ended yet.
#[derive(Debug, Default)]
pub(super) struct Turn {
    state: AtomicU8,
    task: Mutex<Option<Waker>>,
}

impl Turn {
    /// A turn begins, of the task that `waker` wakes.
    pub(super) fn begin(&self, waker: &Waker) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if !task.as_ref().is_some_and(|task| task.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }

    /// Everything is looked at from here on: what woke before is dealt with.
    pub(super) fn go_on(&self) {
        self.state.store(RUNNING, Ordering::SeqCst);
    }

    /// Ends the turn; false if there was a wake-up since `go_on`.
    pub(super) fn rest(&self) -> bool {
        self.state.compare_exchange(RUNNING, RESTING, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Ends the turn with more to do: the runtime gives the task another.
    pub(super) fn pause(&self) {
        self.state.store(WOKEN, Ordering::SeqCst);
        self.wake_task();
    }

    fn wake_task(&self) {
        if let Some(task) = &*self.task.lock().unwrap_or_else(PoisonError::into_inner) {
            task.wake_by_ref();
        }
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::SeqCst) == RESTING {
            self.wake_task();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn the_runtime_hears_of_what_comes_between_turns_and_only_once() {
        let (task, turn) = (Arc::new(Task::default()), Arc::new(Turn::default()));
        let (outer, inner) = (Waker::from(Arc::clone(&task)), Waker::from(Arc::clone(&turn)));
        let woken = || task.0.load(Ordering::SeqCst);
        turn.begin(&outer);
        turn.go_on();
        assert!(turn.rest());
        inner.wake_by_ref();
        inner.wake_by_ref();
        assert_eq!(woken(), 1);
        // What comes during a turn prolongs it.
        turn.begin(&outer);
        turn.go_on();
        inner.wake_by_ref();
        assert!(!turn.rest());
        turn.go_on();
        assert!(turn.rest());
        assert_eq!(woken(), 1);
        inner.wake_by_ref();
        assert_eq!(woken(), 2);
        // A turn that is too long is followed by another.
        turn.begin(&outer);
        turn.go_on();
        inner.wake_by_ref();
        assert!(!turn.rest());
        turn.pause();
        assert_eq!(woken(), 3);
        inner.wake_by_ref();
        assert_eq!(woken(), 3, "its turn comes anyway");
    }
}
