//! Rewriting the database file and releasing the log: on request, and on its own when the policy says that it is worth it.

use std::sync::Arc;
use std::time::Duration;

use compaction::{Proposal, Shrinking, Sizes};
use storage::{Error, Keyspace, Shrunk};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

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

/// Does what the policy proposes, looking every `interval`, until `stop` turns true.
pub(crate) async fn run(
    keyspace: Keyspace,
    interval: Duration,
    segment_bytes: u64,
    metrics: Arc<Metrics>,
    mut stop: watch::Receiver<bool>,
) {
    let epoch = Instant::now();
    let mut shrinking = Shrinking::default();
    let mut ticks = tokio::time::interval_at(epoch + interval, interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let Some(before) = sizes(&keyspace, segment_bytes) else { continue };
        let begun = epoch.elapsed();
        let reason = match shrinking.propose(begun, before) {
            None => continue,
            Some(Proposal::Flush) => {
                flush(&keyspace).await;
                continue;
            }
            Some(Proposal::RewriteAtWork) => "garbage outweighs data",
            Some(Proposal::RewriteAtRest) => "little else to do",
        };
        match rewrite(&keyspace, &metrics, reason).await {
            Ok(_) => {
                shrinking.done(begun, epoch.elapsed(), sizes(&keyspace, segment_bytes).unwrap_or(before));
            }
            Err(_) => shrinking.failed(epoch.elapsed()),
        }
    }
}

async fn flush(keyspace: &Keyspace) {
    let keyspace = keyspace.clone();
    let flushed = tokio::task::spawn_blocking(move || keyspace.flush()).await;
    // A lack of room raises an alarm elsewhere; any other error ends the keyspace.
    if let Ok(Err(error)) = flushed {
        debug!(%error, "no flush");
    }
}

/// None if the disk does not say what is free: the next look may know more.
fn sizes(keyspace: &Keyspace, segment_bytes: u64) -> Option<Sizes> {
    let status = keyspace.status();
    let free = keyspace.free_bytes().ok()?;
    let log = status.size_bytes.saturating_sub(status.base_bytes);
    Some(Sizes {
        file: status.base_bytes,
        rewritten: status.base_bytes_if_rewritten,
        free,
        // One segment stays.
        log: log.saturating_sub(segment_bytes),
        revision: status.revision.0,
    })
}
