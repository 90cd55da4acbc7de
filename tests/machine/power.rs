//! The power goes: a real kernel forgets what was not synced, while clients write and at exactly one system call.

use std::time::Instant;

use super::phases::Phase;
use super::scene::Scene;
use super::volume::Volume;
use crate::model::rng::{seed, setting};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_power_is_cut_loses_nothing_and_starts_by_itself() {
    let seed = seed();
    let cuts = setting("STERNPOST_TEST_POWER_CUTS", 0);
    let Some(volume) = super::volume("power cuts", cuts, Volume::create) else { return };
    super::replay(seed, "POWER_CUTS", cuts, "power_is_cut");
    let begun = Instant::now();
    let mut scene = Scene::new(seed, Some(volume)).await;
    let mut phases = Phase::ALL.iter().cycle();
    while scene.cuts < cuts {
        scene.cut_under_way().await;
        scene.round(*phases.next().expect("it goes round")).await;
    }
    let (cuts, tally) = (scene.cuts, std::mem::take(&mut scene.tally));
    let account = scene.finish().await;
    println!(
        "machine: {cuts} power cuts, seed={seed}: {tally}; {} requests answered, {} not, {} revisions, {:?} in all",
        account.answered,
        account.unknown,
        account.revisions,
        begun.elapsed()
    );
    assert!(account.answered > cuts * 5 && account.unknown > 0);
}
