//! The suites that a planted fault has to get past: each is one seed's worth of one kind of test.

use std::sync::Arc;
use std::time::Duration;

use storage::failpoints::{Action, Point, Scope};

use super::life::Life;
use super::{Checked, crashes, damage, garbage, leases, strangers};
use crate::embedded::crash::images;
use crate::embedded::driver::Embedded;
use crate::embedded::environment::{always_flushing, never_flushing};
use crate::embedded::histories;
use crate::model::check::Run;
use crate::model::coverage::Coverage;
use crate::model::rng::Rng;
use crate::model::state::Model;

/// A suite: what it finds is its error, or what it panics with.
pub type Suite = fn(&Arc<Scope>, u64) -> Checked;

/// All, cheap ones first.
pub const ALL: [(&str, Suite); 10] = [
    ("life", life),
    ("histories", histories),
    ("model", model),
    ("leases", leases::suite),
    ("strangers", strangers::suite),
    ("damage", damage::suite),
    ("flush timing", flush_timing),
    ("crashes", crashes::suite),
    ("images", images),
    ("garbage", garbage::suite),
];

/// Random requests, answered as the model answers them.
fn model(_: &Arc<Scope>, seed: u64) -> Checked {
    for seed in (0..4).map(|index| seed.wrapping_mul(4).wrapping_add(index)) {
        let options = if seed.is_multiple_of(3) { never_flushing() } else { always_flushing() };
        let (mut driver, mut model, mut coverage) = (Embedded::new(options), Model::new(), Coverage::default());
        Run::new(&mut driver, &mut model, &mut coverage, seed).sequence(seed, 120);
        driver.keyspace.verify()?;
    }
    Ok(())
}

/// Every function once, with what was acknowledged looked for after power cuts.
fn life(_: &Arc<Scope>, seed: u64) -> Checked {
    let (mut life, mut rng) = (Life::new(), Rng::new(seed));
    life.live(&mut |life, _| life.cut_power(&mut rng));
    if let Some(error) = life.ended.first() {
        return Err(format!("it ended: {error}").into());
    }
    if let Some((call, error)) = life.errors.first() {
        return Err(format!("{call}: {error}").into());
    }
    life.assert_nothing_is_lost();
    Ok(())
}

/// Many clients and watches, power cuts and failing disks, held against the checker. With delays where threads hand over, so that those
/// who come in between are met.
fn histories(scope: &Arc<Scope>, seed: u64) -> Checked {
    if seed.is_multiple_of(2) {
        for (point, micros) in
            [(Point::HubStep, 300), (Point::CaughtUp, 300), (Point::Publish, 50), (Point::FlushPublish, 500)]
        {
            scope.arm_always(point, Action::Sleep(Duration::from_micros(micros)));
        }
    }
    let options = history::Options { session_monotone: true, prev_kv_always: false };
    let (record, _) = histories::Run::new(seed, 4 + (seed % 13) as u32).record(4000, 5);
    scope.disarm();
    history::check(&record, &options).map_err(|violation| violation.to_string())?;
    Ok(())
}

/// Images of power cuts at any moment of a history.
fn images(_: &Arc<Scope>, seed: u64) -> Checked {
    let mut tally = images::Tally::default();
    Ok(images::History::new(seed, None, &mut tally).run().map_err(|stop| stop.to_string())?)
}

/// The same history, flushed at every position.
fn flush_timing(_: &Arc<Scope>, seed: u64) -> Checked {
    crate::flush_at_every_position(seed, 24);
    Ok(())
}
