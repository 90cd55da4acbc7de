//! The real binary under the faults of a machine: kills at exactly one system call, power cuts, and limits.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test that panics has failed"
)]

mod faults;
mod kills;
mod limits;
mod phases;
mod power;
mod probe;
mod scene;
mod stopping;
mod volume;

use std::process::Command;

use crate::support::server::Server;
use volume::Volume;

/// Looks at the data directory of a server that does not run; panics if anything is wrong with it.
fn verify(server: &Server, context: &dyn std::fmt::Display) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sternpost"));
    let output = command.arg("verify").arg(server.data()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{context}: {said}\n{}", server.log());
}

/// A volume, if the environment asks for what needs one and the machine allows it; else says in one line which it is.
fn volume(what: &str, asked: u64, create: impl FnOnce() -> Result<Volume, String>) -> Option<Volume> {
    if asked == 0 {
        println!("0 {what}: not asked for");
        return None;
    }
    match create() {
        Ok(volume) => Some(volume),
        Err(why) => {
            println!("machine: 0 {what}: not possible on this machine: {why}");
            None
        }
    }
}

/// Says how to run a test again as it is run now.
fn replay(seed: u64, size: &str, count: u64, name: &str) {
    println!("replay: STERNPOST_TEST_SEED={seed} STERNPOST_TEST_{size}={count} cargo test --test process {name}");
}
