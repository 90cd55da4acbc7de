//! The server over gRPC: the model's test body, other clients, and input that is wrong.

mod clients;
mod hostile;
mod model;
mod support;

use std::time::{Duration, Instant};

use model::check::Run;
use model::coverage::Coverage;
use model::rng::{seed, setting};
use model::state::Model;
use support::remote::Remote;

/// Small bounds, so that flushes run all the time.
const SMALL: &[&str] = &["--recent-changes", "64", "--recent-bytes", "65536"];

#[test]
fn random_requests_over_grpc_are_answered_as_the_model_answers() {
    let first = seed();
    let sequences = setting("STERNPOST_TEST_SEQUENCES", 400);
    let limit = Duration::from_secs(setting("STERNPOST_TEST_SECONDS", 60));
    let mut coverage = Coverage::default();
    let begun = Instant::now();
    let mut done = 0;
    while done < sequences && begun.elapsed() < limit {
        let mut driver = Remote::start(SMALL);
        let mut model = Model::new();
        // A store grows over some sequences, then a fresh one takes its place.
        for _ in 0..20.min(sequences - done) {
            let seed = first.wrapping_mul(1_000_003).wrapping_add(done);
            let mut run = Run::new(&mut driver, &mut model, &mut coverage, seed);
            run.reopens_per_mille = if support::server::reference().is_some() { 2 } else { 8 };
            run.sequence(first, 80);
            done += 1;
        }
    }
    println!("seed={first}: {done} sequences of 80 steps in {:?}", begun.elapsed());
    assert!(done >= 40, "only {done} sequences in {limit:?}");
    coverage.print();
    if support::server::reference().is_none() {
        coverage.assert_all(false, true, true);
    }
}
