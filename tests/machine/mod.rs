//! The real binary under the faults of a machine: kills at exactly one system call, power cuts, and limits.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test that panics has failed"
)]

mod kills;
mod phases;

use std::process::Command;

use crate::support::server::Server;

/// Looks at the data directory of a server that does not run; panics if anything is wrong with it.
fn verify(server: &Server, context: &dyn std::fmt::Display) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sternpost"));
    let output = command.arg("verify").arg(server.data()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{context}: {said}\n{}", server.log());
}
