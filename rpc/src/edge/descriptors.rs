//! File descriptors: as many as the system gives, most of them for connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors kept for data files, listeners and the runtime.
const KEPT: u64 = 150;
/// A server that takes fewer connections looks alive and is of no use.
const CONNECTIONS_MIN: usize = 16;
/// More would cost memory before anyone noticed.
const CONNECTIONS_MAX: usize = 1_000_000;

/// Raises this process's limit as far as it may and answers how many connections that leaves room for; the reason if it is too few.
/// They must not take the descriptors of data files: a segment that cannot be opened ends the server.
pub(crate) fn connections_max() -> Result<usize, String> {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).is_ok();
    connections_within(if raised { limit.maximum } else { limit.current })
}

fn connections_within(descriptors: Option<u64>) -> Result<usize, String> {
    let Some(descriptors) = descriptors else { return Ok(CONNECTIONS_MAX) };
    let connections = usize::try_from(descriptors.saturating_sub(KEPT)).unwrap_or(CONNECTIONS_MAX);
    if connections < CONNECTIONS_MIN {
        let least = KEPT + CONNECTIONS_MIN as u64;
        return Err(format!("this process may open {descriptors} files, {least} are the least (ulimit -n)"));
    }
    Ok(connections.min(CONNECTIONS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_for_data_is_for_connections() {
        assert_eq!(connections_within(Some(166)), Ok(16));
        assert_eq!(connections_within(Some(1024)), Ok(874));
        assert_eq!(connections_within(Some(u64::MAX)), Ok(CONNECTIONS_MAX));
        assert_eq!(connections_within(None), Ok(CONNECTIONS_MAX));
        for few in [0, 150, 165] {
            let why = connections_within(Some(few)).expect_err("too few");
            assert_eq!(why, format!("this process may open {few} files, 166 are the least (ulimit -n)"));
        }
    }
}
