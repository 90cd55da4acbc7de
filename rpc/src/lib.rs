//! The etcd v3 API over a keyspace.

mod codec;
mod config;
mod pb;
mod status;

/// Runs the server as the command line says.
pub fn run() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
