//! Automatic compaction: the retention policy's proposals, carried out one after the other.

use std::sync::Arc;
use std::time::Duration;

use compaction::{Policy, Retention};
use storage::{Error, Keyspace};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::metrics::{Compaction, Metrics};

/// Compacts as the policy says, until `stop` turns true.
pub(crate) async fn run(keyspace: Keyspace, policy: Policy, metrics: Arc<Metrics>, mut stop: watch::Receiver<bool>) {
    let begun = Instant::now();
    let mut retention = Retention::new(policy, Duration::ZERO);
    let Some(interval) = retention.interval() else { return };
    let mut ticks = tokio::time::interval(interval);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let now = begun.elapsed();
        let Some(revision) = retention.sample(now, keyspace.revision()) else { continue };
        match keyspace.compact(revision.0).await {
            Ok(_) => {
                metrics.chores.compacted(Compaction::Done(revision));
                info!(%revision, "compacted automatically");
            }
            Err(Error::Compacted { floor, .. }) => {
                metrics.chores.compacted(Compaction::DoneBefore);
                info!(%revision, floor, "was compacted already");
            }
            Err(error) => {
                metrics.chores.compacted(Compaction::Failed);
                warn!(%revision, %error, "automatic compaction failed, tried again at the next sample");
                continue;
            }
        }
        retention.compacted(revision, now);
    }
}
