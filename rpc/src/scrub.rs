//! The scrub: what lies on the disk is read again once per interval, slowly, and the log says what was found.

use std::sync::Arc;
use std::time::Duration;

use compaction::Scrubbing;
use storage::{Error, Keyspace, ScrubStep};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{error, info, warn};

use crate::metrics::Metrics;

/// Scrubs every `interval`, until `stop` turns true or the keyspace ends.
pub(crate) async fn run(
    keyspace: Keyspace,
    interval: Duration,
    metrics: Arc<Metrics>,
    mut stop: watch::Receiver<bool>,
) {
    let begun = Instant::now();
    let mut scrubbing = Scrubbing::new(interval, Duration::ZERO);
    loop {
        if stopped(&mut stop, scrubbing.wait(begun.elapsed())).await {
            return;
        }
        scrubbing.begun(begun.elapsed());
        match scrub(&keyspace, &metrics, &mut stop).await {
            Ok(true) => {}
            Ok(false) | Err(Error::Stopped) => return,
            // It ended the keyspace: a read could have been answered wrongly.
            Err(error) => return error!(%error, "the scrub met damage"),
        }
    }
}

/// One whole scrub; false if it was stopped. Errors: those of a step.
async fn scrub(keyspace: &Keyspace, metrics: &Metrics, stop: &mut watch::Receiver<bool>) -> Result<bool, Error> {
    let begun = Instant::now();
    let (mut rows, mut frames, mut bytes_read, mut damaged) = (0, 0, 0, 0_usize);
    loop {
        let step_begun = Instant::now();
        let step: ScrubStep = keyspace.scrub_step(Scrubbing::STEP_BYTES).await?;
        for error in &step.damage {
            warn!(%error, "the scrub met damage; nobody is answered wrongly because of it");
        }
        metrics.chores.scrub_step(&step);
        rows += step.rows;
        frames += step.frames;
        bytes_read += step.bytes_read;
        damaged += step.damage.len();
        if step.done {
            metrics.chores.scrubbed(begun.elapsed());
            let seconds = begun.elapsed().as_secs_f64();
            info!(rows, frames, bytes_read, damaged, seconds, "scrubbed");
            return Ok(true);
        }
        if stopped(stop, Scrubbing::rest(step_begun.elapsed(), step.bytes_read)).await {
            return Ok(false);
        }
    }
}

/// Waits; true at once if `stop` turns true.
async fn stopped(stop: &mut watch::Receiver<bool>, patience: Duration) -> bool {
    timeout(patience, stop.wait_for(|stop| *stop)).await.is_ok()
}
