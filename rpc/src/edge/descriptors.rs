//! File descriptors: as many as the system gives, most of them for connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors kept for data files, listeners and the runtime.
const KEPT: u64 = 150;
/// Fewer connections would make a server that looks alive and is of no use.
const CONNECTIONS_MIN: usize = 16;
/// More would cost memory before anyone noticed.
const CONNECTIONS_MAX: usize = 1_000_000;

/// Raises this process's limit as far as it may and answers how many connections that leaves room for.
pub(crate) fn connections_max() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).is_ok();
    let descriptors = if raised { limit.maximum } else { limit.current };
    let connections = descriptors
        .map_or(CONNECTIONS_MAX, |count| usize::try_from(count.saturating_sub(KEPT)).unwrap_or(CONNECTIONS_MAX));
    connections.clamp(CONNECTIONS_MIN, CONNECTIONS_MAX)
}
