//! The etcd v3 API over a keyspace: flags, the edge and the services, with [`run`] to start them.
//!
//! - `flags` turns the command line and the environment into one `Settings`; nothing below it reads either.
//! - `edge` owns sockets, HTTP limits and what is answered before a service is reached.
//! - `run` reads top-down: settings, runtime, bind, open, serve, wait, drain with a deadline.
//! - `pages` are what is not gRPC, `metrics` what one of them tells.
//! - `services` answer the calls; `convert` is the one place where wire types and storage types meet, `status` the one that
//!   knows gRPC codes, `codec` the one that turns bytes into messages.

use std::process::ExitCode;

mod auto_compaction;
mod buffers;
mod codec;
mod commands;
mod config;
mod convert;
mod dial;
mod download;
mod edge;
mod encoded;
mod flags;
mod hashkv;
mod import;
mod join;
mod logging;
mod metrics;
mod notice;
mod pages;
mod pb;
mod run;
mod scrub;
mod service_set;
mod services;
mod shrink;
mod signals;
mod status;

/// Gives memory back to the system after a burst, which the system's own allocator does late.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Carries out the command that the command line names. Without one it runs the server, as command line and environment say, until a
/// signal or a final error ends it.
pub fn run() -> ExitCode {
    run::run()
}
