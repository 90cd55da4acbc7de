//! The etcd v3 API over a keyspace: flags, the edge and the services, with [`run`] to start them.
//!
//! - `flags` turns the command line and the environment into one `Settings`; nothing below it reads either.
//! - `edge` owns sockets, HTTP limits and what is answered before a service is reached.
//! - `run` reads top-down: settings, runtime, bind, open, serve, wait, drain with a deadline.

use std::process::ExitCode;

mod edge;
mod flags;
mod join;
mod logging;
mod run;
mod signals;

/// Gives memory back to the system after a burst, which the system's own allocator does late.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the server as the command line and the environment say, until a signal or a final error ends it.
pub fn run() -> ExitCode {
    run::run()
}
