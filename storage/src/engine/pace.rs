//! Turns: in tests the maintenance thread does its next piece of work when it is told to, so that a run follows from its seed.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Who decides when the maintenance thread works: itself, or whoever gives it turns.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    by_turns: bool,
    turn: Mutex<Turn>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum Turn {
    #[default]
    None,
    Given,
    /// What was done with it.
    Done(Option<&'static str>),
    Ended,
}

impl Pace {
    pub(crate) fn new(by_turns: bool) -> Pace {
        Pace { by_turns, ..Pace::default() }
    }

    /// True if work waits for turns.
    pub(crate) fn is_by_turns(&self) -> bool {
        self.by_turns
    }

    /// What may be done now of what could be.
    pub(crate) fn admit<T>(&self, next: Option<T>) -> Option<T> {
        if !self.by_turns {
            return next;
        }
        let given = matches!(*self.lock(), Turn::Given);
        if given && next.is_none() {
            self.done(None);
        }
        next.filter(|_| given)
    }

    /// The piece of work is done, or there was none.
    pub(crate) fn done(&self, what: Option<&'static str>) {
        self.change(Turn::Done(what));
    }

    /// Nothing more will be done.
    pub(crate) fn end(&self) {
        self.change(Turn::Ended);
    }

    /// Gives a turn and waits until it is over. What was done with it, if anything.
    pub(crate) fn give(&self, nudge: impl FnOnce()) -> Option<&'static str> {
        self.change(Turn::Given);
        nudge();
        let mut turn = self.lock();
        loop {
            match *turn {
                Turn::Done(what) => return what,
                Turn::Ended => return None,
                Turn::None | Turn::Given => turn = self.changed.wait(turn).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn change(&self, next: Turn) {
        let mut turn = self.lock();
        if !matches!(*turn, Turn::Ended) {
            *turn = next;
        }
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
