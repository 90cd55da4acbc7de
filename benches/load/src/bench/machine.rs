//! Where and when something was measured.

use std::fs;

use crate::Failure;
use crate::bench::place::output;

/// Cores, processor, memory, kernel.
pub(crate) fn machine() -> String {
    let file = |name: &str| fs::read_to_string(name).unwrap_or_default();
    let cpus = file("/proc/cpuinfo");
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']);
    let memory = file("/proc/meminfo");
    let kib = memory.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cores} cores, {model}, {} GiB, Linux {}", kib >> 20, file("/proc/sys/kernel/osrelease").trim())
}

/// The commit that is checked out, with a plus if files differ from it, other than what is measured and its page.
pub(crate) fn commit() -> Result<String, Failure> {
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"])?;
    let but = [":/", ":!/benches/results.jsonl", ":!/benches/README.md"];
    let changed = output("git", &[["status", "--porcelain", "--untracked-files=no", "--"].as_slice(), &but].concat())?;
    Ok(if changed.is_empty() { commit } else { commit + "+" })
}

/// Now, in UTC.
pub(crate) fn date() -> Result<String, Failure> {
    output("date", &["--utc", "+%Y-%m-%dT%H:%M:%SZ"])
}

/// Processes that want a core, in the average of the last minute.
pub(crate) fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(f64::NAN)
}
