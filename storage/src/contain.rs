//! Runs what reads a damaged file: a panic within becomes an error.
//!
//! redb panics over pages that it does not expect. Where a panic unwinds, the thread ends and is asked why. Where it would end the process, as in
//! a release, the thread stops within the hook, for good, with what it holds: good enough for tools that look at a file once and end.

use std::cell::RefCell;
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::Once;
use std::sync::mpsc::channel;
use std::thread;

use crate::error::Error;

thread_local! {
    /// Where a panic of this thread is reported, if it is contained.
    static REPORT: RefCell<Option<Report>> = const { RefCell::new(None) };
}

type Report = Box<dyn Fn(String)>;

/// Does work on a thread of its own. Errors: `Corrupt` for a panic; `Io` if there is no thread.
pub(crate) fn contained<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| stop_if_contained(panic, &*others)));
    });
    let (sender, verdict) = channel();
    let body = move || {
        let report = sender.clone();
        REPORT.set(Some(Box::new(move |panic| drop(report.send(Err(panic))))));
        drop(sender.send(Ok(work())));
    };
    let spawned = thread::Builder::new().name("contained".to_owned()).spawn(body);
    spawned.map_err(|error| Error::io("start a thread", &error))?;
    let verdict = verdict.recv().unwrap_or_else(|gone| Err(gone.to_string()));
    verdict.map_err(|panic| Error::corrupt("base", format!("redb met what it does not expect: {panic}")))
}

/// The hook of all threads.
fn stop_if_contained(panic: &PanicHookInfo<'_>, others: &(dyn Fn(&PanicHookInfo<'_>) + Send + Sync)) {
    let Some(report) = REPORT.try_with(RefCell::take).ok().flatten() else { return others(panic) };
    report(panic.to_string().replace('\n', " "));
    #[cfg(panic = "abort")]
    loop {
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_says_why() {
        let error = contained::<()>(|| panic!("page {}", 7)).map_err(|error| error.to_string());
        assert!(error.as_ref().is_err_and(|text| text.contains("page 7") && text.contains("damaged")), "{error:?}");
        assert_eq!(contained(|| 5), Ok(5));
    }
}
