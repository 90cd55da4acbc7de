//! Rewriting the database file: on request, and on its own when the policy says that it is worth it.

use std::sync::Arc;
use std::time::Duration;

use compaction::{Shrinking, Sizes};
use storage::{Error, Keyspace, Shrunk};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::metrics::Metrics;

/// Has the file rewritten and logs what that did. Dropping the future gives up the answer, not the rewrite.
pub(crate) async fn rewrite(
    keyspace: &Keyspace,
    metrics: &Arc<Metrics>,
    reason: &'static str,
) -> Result<Shrunk, Error> {
    let (keyspace, metrics) = (keyspace.clone(), Arc::clone(metrics));
    let task = tokio::spawn(async move {
        let begun = Instant::now();
        info!(reason, bytes = keyspace.status().base_bytes, "rewriting the database file");
        metrics.chores.rewrite_begins();
        let result = keyspace.defragment().await;
        metrics.chores.rewrite_ended(&result, begun.elapsed());
        let seconds = begun.elapsed().as_secs_f64();
        match &result {
            Ok(Shrunk { bytes_before, bytes_after }) => {
                info!(bytes_before, bytes_after, seconds, "rewrote the database file");
            }
            Err(error) => warn!(%error, seconds, "the database file stays as it is"),
        }
        result
    });
    // It is lost only if the runtime is being torn down.
    task.await.unwrap_or(Err(Error::Stopped))
}

/// Rewrites the file whenever it is worth it, looking every `interval`, until `stop` turns true.
pub(crate) async fn run(
    keyspace: Keyspace,
    interval: Duration,
    metrics: Arc<Metrics>,
    mut stop: watch::Receiver<bool>,
) {
    let begun = Instant::now();
    let mut shrinking = Shrinking::default();
    let mut ticks = tokio::time::interval_at(begun + interval, interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let Some(before) = sizes(&keyspace) else { continue };
        if !shrinking.is_due(begun.elapsed(), before) {
            continue;
        }
        match rewrite(&keyspace, &metrics, "garbage outweighs data").await {
            Ok(_) => shrinking.done(sizes(&keyspace).unwrap_or(before)),
            Err(_) => shrinking.failed(begun.elapsed()),
        }
    }
}

/// None if the disk does not say what is free: the next look may know more.
fn sizes(keyspace: &Keyspace) -> Option<Sizes> {
    let status = keyspace.status();
    let free = keyspace.free_bytes().ok()?;
    Some(Sizes { file: status.base_bytes, rewritten: status.base_bytes_if_rewritten, free })
}
