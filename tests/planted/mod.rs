//! Every failpoint walked, every planted fault caught: only with the feature `failpoints`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test that panics has failed"
)]

mod caught;
mod crashes;
mod damage;
mod garbage;
mod leases;
mod life;
mod strangers;
mod suites;
mod walk;

use std::panic::AssertUnwindSafe;
use std::sync::{Once, mpsc};
use std::time::Duration;

use storage::failpoints::Scope;

/// How long a case may take before it counts as hanging; it takes a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a case with a thread of its own in a scope. What it panics with is an error, and so is that it does not end.
fn guarded<T: Send + 'static>(
    scope: &std::sync::Arc<Scope>,
    case: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    silence();
    let (scope, (done, ended)) = (scope.clone(), mpsc::channel());
    std::thread::spawn(move || {
        let _entered = scope.enter();
        let result = std::panic::catch_unwind(AssertUnwindSafe(case));
        // Nobody waits any more for a case that hung.
        drop(done.send(result.unwrap_or_else(|panic| Err(text(panic.as_ref())))));
    });
    ended.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(format!("no end within {PATIENCE:?}")))
}

/// What a panic says.
fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// Panics in a scope are expected by the hundred: what they say is told by who catches them.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !Scope::is_entered() {
                loud(info);
            }
        }));
    });
}
