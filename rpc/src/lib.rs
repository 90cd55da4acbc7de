//! The etcd v3 API over a keyspace.

mod codec;
mod config;
mod convert;
mod hashkv;
mod overlap;
mod pb;
mod service_set;
mod services;
mod status;

/// Runs the server as the command line says.
pub fn run() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
