//! What is to go wrong in the keyspaces of one test.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Planted, Point};
use crate::error::Error;

/// What happens at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The thread panics.
    Panic,
    /// The thread sleeps.
    Sleep(Duration),
    /// The call fails, where it can; elsewhere nothing happens.
    Error,
}

/// What is to go wrong, and how often each place was passed.
#[derive(Debug)]
pub struct Scope {
    planted: Option<Planted>,
    small: bool,
    armed: Mutex<Vec<Armed>>,
    passed: [AtomicU64; Point::ALL.len()],
}

#[derive(Debug)]
struct Armed {
    point: Point,
    /// Passes until it acts, 1 being the next; it acts at each of them if `None`.
    left: Option<u64>,
    action: Action,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Scope>>> = const { RefCell::new(None) };
}

/// The thread is in a scope until this is dropped.
#[must_use = "the scope is left when this is dropped"]
#[derive(Debug)]
pub struct Entered {
    before: Option<Arc<Scope>>,
}

impl Scope {
    /// A scope with one fault or none; `small` makes every limit as small as it can be.
    pub fn new(planted: Option<Planted>, small: bool) -> Arc<Scope> {
        let passed = std::array::from_fn(|_| AtomicU64::new(0));
        Arc::new(Scope { planted, small, armed: Mutex::default(), passed })
    }

    /// Enters the scope with this thread, and with the threads of every keyspace that it opens meanwhile.
    pub fn enter(self: &Arc<Self>) -> Entered {
        Entered { before: CURRENT.replace(Some(Arc::clone(self))) }
    }

    /// Acts at the `nth` pass from now on, 1 being the next, and only then.
    pub fn arm(&self, point: Point, nth: u64, action: Action) {
        self.armed().push(Armed { point, left: Some(nth), action });
    }

    /// Acts at every pass.
    pub fn arm_always(&self, point: Point, action: Action) {
        self.armed().push(Armed { point, left: None, action });
    }

    /// True if something is armed that has not acted yet.
    pub fn is_armed(&self) -> bool {
        !self.armed().is_empty()
    }

    /// Nothing acts any more.
    pub fn disarm(&self) {
        self.armed().clear();
    }

    /// How often a place was passed.
    pub fn passed(&self, point: Point) -> u64 {
        self.passed.get(point as usize).map_or(0, |passed| passed.load(Ordering::Relaxed))
    }

    /// True if the calling thread is in a scope.
    pub fn is_entered() -> bool {
        CURRENT.with_borrow(Option::is_some)
    }

    fn armed(&self) -> MutexGuard<'_, Vec<Armed>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn due(&self, point: Point) -> Option<Action> {
        if let Some(passed) = self.passed.get(point as usize) {
            passed.fetch_add(1, Ordering::Relaxed);
        }
        let mut due = None;
        self.armed().retain_mut(|armed| {
            if armed.point != point {
                return true;
            }
            let Some(left) = &mut armed.left else {
                due = Some(armed.action);
                return true;
            };
            *left -= 1;
            if *left == 0 {
                due = Some(armed.action);
            }
            *left > 0
        });
        due
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before.take());
    }
}

fn current() -> Option<Arc<Scope>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Passes a place; an error if the call is to fail.
///
/// # Panics
///
/// If it is to.
pub(crate) fn pass(point: Point) -> Option<Error> {
    match current()?.due(point)? {
        Action::Panic => panic!("failpoint {point:?}"),
        Action::Sleep(time) => {
            std::thread::sleep(time);
            None
        }
        Action::Error => Some(Error::Io { doing: "passing a failpoint".into(), reason: format!("{point:?}") }),
    }
}

pub(crate) fn is_planted(fault: Planted) -> bool {
    CURRENT.with_borrow(|scope| scope.as_ref().is_some_and(|scope| scope.planted == Some(fault)))
}

pub(crate) fn is_small() -> bool {
    CURRENT.with_borrow(|scope| scope.as_ref().is_some_and(|scope| scope.small))
}

pub(crate) fn inherit<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let scope = current();
    move || {
        let _entered = scope.map(|scope| scope.enter());
        work()
    }
}
