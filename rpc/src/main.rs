//! Runs the Sternpost server.

fn main() -> std::process::ExitCode {
    rpc::run()
}
