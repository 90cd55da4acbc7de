//! Panics that are expected, and say nothing.

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// How many threads expect panics: then those of a keyspace may panic too.
static ANYWHERE: AtomicU64 = AtomicU64::new(0);
static HOOK: Once = Once::new();

const THREADS: [&str; 4] = ["committer", "maintenance", "hub", "replay"];

/// While it lives, panics of this thread are not reported, nor those of keyspaces' threads.
pub struct Quiet(());

impl Quiet {
    /// Does work in which something may panic.
    pub fn run<T>(work: impl FnOnce() -> T) -> T {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                let of_keyspace = || std::thread::current().name().is_some_and(|name| THREADS.contains(&name));
                let expected = EXPECTED.get() || (ANYWHERE.load(Ordering::SeqCst) > 0 && of_keyspace());
                if !expected {
                    before(info);
                }
            }));
        });
        EXPECTED.set(true);
        ANYWHERE.fetch_add(1, Ordering::SeqCst);
        let _quiet = Quiet(());
        work()
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        EXPECTED.set(false);
        ANYWHERE.fetch_sub(1, Ordering::SeqCst);
    }
}
