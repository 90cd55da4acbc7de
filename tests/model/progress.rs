//! Progress on request: when it must come, and when it must not.

use std::time::Duration;

use super::check::{Checked, Run};
use super::driver::Driver;
use super::watching::is_progress;
use super::wire_more::*;

impl<D: Driver> Run<'_, D> {
    /// Asks for progress: it must come once everything has, and must not come while a watch waits for a revision to come. A watch that
    /// was overtaken and not canceled yet, or that waits for the very next revision, may keep it from coming.
    pub fn ask_for_progress(&mut self) -> Checked {
        if self.streams.is_empty() {
            return Ok(());
        }
        let stream = self.rng.below(self.streams.len());
        self.drain(stream)?;
        let current = self.model.revision;
        let watchers = || self.streams[stream].watchers.values().filter(|watcher| !watcher.compacted);
        let waits = watchers().any(|watcher| watcher.next > current + 1);
        let unsure = watchers().any(|watcher| watcher.future && watcher.next == current + 1)
            || watchers().count() != self.streams[stream].watchers.len();
        let some = watchers().count() > 0;
        let tries = if waits {
            1
        } else if some && !unsure {
            40
        } else {
            0
        };
        let patience = Duration::from_millis(if waits { 15 } else { 250 });
        for _ in 0..tries {
            self.send(stream, WatchUnion::Progress(Empty {}));
            while let Some(got) = self.driver.watch_next(self.streams[stream].id, patience) {
                let done = is_progress(&got)
                    && got.watch_id == -1
                    && got.header.as_ref().is_some_and(|header| header.revision == current);
                self.take(stream, got)?;
                if done {
                    self.coverage.note("watch: progress");
                    return Ok(());
                }
                if self.streams[stream].watchers.values().any(|watcher| watcher.compacted) {
                    return Ok(());
                }
            }
        }
        self.coverage.note_if(waits, "watch: no progress while one waits");
        let watchers = &self.streams[stream].watchers;
        if tries > 1 { Err(format!("progress never came, the store is at {current}: {watchers:?}")) } else { Ok(()) }
    }
}
