//! `sternpost verify`: says what is wrong with a data directory that no server has open.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::{Arg, ArgMatches, Command, value_parser};
use storage::Options;
use storage::fs::{FileSystem, RealFs};

pub(super) fn arguments() -> Command {
    let dir =
        Arg::new("DIR").required(true).value_parser(value_parser!(PathBuf)).help("Data directory, no server running");
    Command::new("verify").about("Check a data directory, changing nothing").arg(dir)
}

/// Answers the counts, or the first thing that is wrong with each of log and database file.
pub(super) fn run(matches: &ArgMatches) -> Result<String, String> {
    let dir = matches.get_one::<PathBuf>("DIR").expect("clap requires it");
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
