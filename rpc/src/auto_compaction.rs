//! Automatic compaction: the retention policy's proposals, carried out one after the other, and followed until they are swept.

use std::time::Duration;

use compaction::{Policy, Progress, Retention};
use storage::{Error, Keyspace, Revision};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, sleep};
use tracing::{info, warn};

/// How soon the sweep is looked at first; then half as often each time, but not less often than the policy samples.
const LOOK: Duration = Duration::from_secs(1);

/// Compacts as the policy says, until `stop` turns true. `progress` always has the last results.
pub(crate) async fn run(
    keyspace: Keyspace,
    policy: Policy,
    progress: watch::Sender<Progress>,
    mut stop: watch::Receiver<bool>,
) {
    let begun = Instant::now();
    let mut retention = Retention::new(policy, Duration::ZERO);
    let Some(interval) = retention.interval() else { return };
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look = LOOK;
    loop {
        let sweeping = progress.borrow().sweeping().is_some();
        let sample = tokio::select! {
            _ = ticks.tick() => true,
            () = sleep(look), if sweeping => false,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        if !sample {
            look = (look * 2).min(interval.max(LOOK));
            follow(keyspace.status().swept, &progress, begun);
        } else if let Some(revision) = retention.sample(begun.elapsed(), keyspace.revision()) {
            progress.send_modify(|progress| progress.propose(revision, begun.elapsed()));
            if compact(&keyspace, revision, &progress, begun).await {
                retention.compacted(revision, begun.elapsed());
                look = LOOK;
            }
        }
    }
}

/// Has a proposal carried out; false if it was not.
async fn compact(keyspace: &Keyspace, revision: Revision, progress: &watch::Sender<Progress>, begun: Instant) -> bool {
    match keyspace.compact(revision.0).await {
        Ok(_) | Err(Error::Compacted { .. }) => {
            progress.send_modify(|progress| progress.accept(begun.elapsed()));
            let Progress { proposals, failures, accepted_after, .. } = progress.borrow().clone();
            info!(%revision, proposals, failures, seconds = accepted_after.as_secs_f64(), "compacted automatically");
            true
        }
        Err(error) => {
            progress.send_modify(|progress| progress.fail(error.to_string()));
            let failures = progress.borrow().failures;
            warn!(%revision, %error, failures, "automatic compaction failed, tried again at the next sample");
            false
        }
    }
}

/// Says so once nothing is left of what the last proposal made unreadable.
fn follow(swept: Revision, progress: &watch::Sender<Progress>, begun: Instant) {
    let complete = progress.send_if_modified(|progress| progress.sweep(swept, begun.elapsed()));
    if complete {
        let Progress { swept, swept_after, .. } = progress.borrow().clone();
        let revision = swept.unwrap_or_default();
        info!(%revision, seconds = swept_after.as_secs_f64(), "swept what automatic compaction made unreadable");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use storage::{Environment, Key, Options, Put, PutLease, PutValue, SystemClock, SystemEntropy};

    use super::*;

    fn keyspace(dir: &std::path::Path) -> Keyspace {
        let fs = Arc::new(storage::fs::RealFs);
        let environment = Environment { fs, clock: Arc::new(SystemClock::new()), entropy: Arc::new(SystemEntropy) };
        Keyspace::open(dir, Options::standard(), environment).unwrap()
    }

    async fn put(keyspace: &Keyspace) -> Revision {
        let key = Key::new("key").unwrap();
        let put = Put { key, value: PutValue::Set("value".into()), lease: PutLease::Detach, prev_kv: false };
        keyspace.put(put).await.unwrap().revision
    }

    #[tokio::test]
    async fn what_is_proposed_is_accepted_and_swept_and_the_numbers_say_so() {
        let dir = tempfile::tempdir().unwrap();
        let keyspace = keyspace(&dir.path().join("data"));
        for _ in 0..20 {
            put(&keyspace).await;
        }
        keyspace.flush().unwrap();
        let (sender, mut progress) = watch::channel(Progress::default());
        let (stop, stopped) = watch::channel(false);
        let policy = Policy::Age(Duration::from_secs(1));
        let task = tokio::spawn(run(keyspace.clone(), policy, sender, stopped));
        let limit = Duration::from_secs(60);
        let done = |progress: &Progress| progress.swept.is_some();
        let found = tokio::time::timeout(limit, progress.wait_for(done)).await.unwrap().unwrap().clone();
        assert_eq!((found.proposed, found.accepted, found.swept), (Some(Revision(21)), found.proposed, found.proposed));
        assert_eq!((found.proposals, found.failures, found.failure), (1, 0, None));
        let status = keyspace.status();
        assert_eq!((status.compacted, status.swept >= Revision(21)), (Revision(21), true));
        stop.send_replace(true);
        task.await.unwrap();
        keyspace.close().unwrap();
    }

    #[tokio::test]
    async fn what_cannot_be_compacted_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let keyspace = keyspace(&dir.path().join("data"));
        put(&keyspace).await;
        let (sender, progress) = watch::channel(Progress::default());
        keyspace.close().unwrap();
        sender.send_modify(|progress| progress.propose(Revision(2), Duration::ZERO));
        assert!(!compact(&keyspace, Revision(2), &sender, Instant::now()).await);
        let found = progress.borrow().clone();
        assert_eq!((found.failures, found.accepted, found.failure.is_some()), (1, None, true));
    }
}
