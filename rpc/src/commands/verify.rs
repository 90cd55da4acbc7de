//! `sternpost verify`: says what is wrong with a data directory that no server has open, and takes what is intact out of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::{Arg, ArgMatches, Command, value_parser};
use storage::fs::{FileSystem, RealFs};
use storage::{Environment, Options, SystemClock, SystemEntropy};

/// Losses that are named one by one.
const NAMED_MAX: usize = 10_000;

const AFTER_HELP: &str =
    "With --salvage OUT everything that is intact goes to a new data directory; what does not come along is named on stderr, one
line each. DIR stays as it is. Keys keep their numbers and the store its revision. If a version is missing, everything below the
revision counts as compacted, and keys whose newest version is missing are left out.";

pub(super) fn arguments() -> Command {
    let path = |name: &'static str| Arg::new(name).value_parser(value_parser!(PathBuf));
    Command::new("verify")
        .about("Check a data directory, changing nothing; salvage a damaged one")
        .after_help(AFTER_HELP)
        .arg(path("salvage").long("salvage").value_name("OUT").help("Data directory to make: missing or empty"))
        .arg(path("DIR").required(true).help("Data directory, no server running"))
}

/// Answers the counts, or the first thing that is wrong with each of log and database file.
pub(super) fn run(matches: &ArgMatches) -> Result<String, String> {
    let dir = matches.get_one::<PathBuf>("DIR").expect("clap requires it");
    match matches.get_one::<PathBuf>("salvage") {
        Some(out) => salvage(dir, out),
        None => verify(dir),
    }
}

fn verify(dir: &Path) -> Result<String, String> {
    let begun = Instant::now();
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let report = storage::verify(dir, &fs, Options::standard().cache_bytes).map_err(|error| error.to_string())?;
    let line = format!(
        "revision={} compacted={} versions={} rows={} frames={} frames_ahead={} torn_bytes={} seconds={:.1}",
        report.revision,
        report.compacted,
        report.versions,
        report.rows,
        report.frames,
        report.ahead,
        report.torn_bytes,
        begun.elapsed().as_secs_f64()
    );
    if report.damage.is_empty() {
        return Ok(format!("sound {line}"));
    }
    let damage: Vec<String> = report.damage.iter().map(ToString::to_string).collect();
    Err(format!("{} ({line})", damage.join("; ")))
}

fn salvage(dir: &Path, out: &Path) -> Result<String, String> {
    let begun = Instant::now();
    let environment =
        Environment { fs: Arc::new(RealFs), clock: Arc::new(SystemClock::new()), entropy: Arc::new(SystemEntropy) };
    let report = storage::salvage(dir, out, &Options::standard(), &environment).map_err(|error| error.to_string())?;
    for lost in report.lost.iter().take(NAMED_MAX) {
        eprintln!("lost: {}", lost.to_string().replace('\n', " "));
    }
    if report.lost.len() > NAMED_MAX {
        eprintln!("lost: {} more", report.lost.len() - NAMED_MAX);
    }
    Ok(format!(
        "salvaged revision={} compacted={} keys={} versions={} frames={} lost={} seconds={:.1}",
        report.revision,
        report.compacted,
        report.keys,
        report.versions,
        report.frames,
        report.lost.len(),
        begun.elapsed().as_secs_f64()
    ))
}
