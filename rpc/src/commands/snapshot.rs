//! `sternpost snapshot save|status|restore`: a running server's data in a file, and the way back.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use storage::fs::RealFs;
use storage::{Environment, Options, SnapshotFile, SnapshotInfo, SystemClock, SystemEntropy};

use crate::dial::Trust;
use crate::download;

/// What a restore adds to the revision: more than any cluster gets through between a snapshot and its loss.
const BUMP: &str = "1000000000";

const RESTORE_HELP: &str =
    "By default the revision is raised and every revision below is compacted, so that a client from before the loss lists
anew instead of going on with a revision that means something else now. Keys keep their numbers.";

pub(super) fn arguments() -> Command {
    let save = Command::new("save")
        .about("Save the data of a running server in FILE")
        .arg(path("FILE").help("Snapshot to write; what has this name is replaced once the new one is complete"))
        .arg(
            Arg::new("endpoints")
                .long("endpoints")
                .value_name("URL")
                .default_value("http://127.0.0.1:2379")
                .help("Where the server listens: http:// or https://"),
        )
        .arg(file("cacert").help("Authorities that the server's certificate may be from, in PEM; needed with https"))
        .arg(file("cert").requires("key").help("Certificate to show to the server, in PEM"))
        .arg(file("key").requires("cert").help("The private key of that certificate, in PEM"));
    let status =
        Command::new("status").about("Check all of FILE and say what it holds").arg(path("FILE").help("Snapshot")).arg(
            Arg::new("write-out")
                .short('w')
                .long("write-out")
                .value_name("FORMAT")
                .value_parser(["simple", "json"])
                .default_value("simple")
                .help("How to print it"),
        );
    let restore = Command::new("restore")
        .about("Make a data directory of FILE")
        .after_help(RESTORE_HELP)
        .arg(path("FILE").help("Snapshot"))
        .arg(path("data-dir").long("data-dir").value_name("DIR").help("Data directory to make: missing or empty"))
        .arg(
            Arg::new("bump-revision")
                .long("bump-revision")
                .value_name("N")
                .value_parser(value_parser!(i64).range(1..))
                .default_value(BUMP)
                .help("Raise the revision by so much"),
        )
        .arg(
            switch("no-bump", "Keep revision and history as they are: only if no client knows the lost server")
                .conflicts_with("bump-revision"),
        )
        .arg(switch("skip-hash-check", "Do not compare the file with the SHA-256 at its end"));
    Command::new("snapshot")
        .about("Save, check or restore a snapshot")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands([save, status, restore])
}

fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

fn file(name: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf))
}

fn path(name: &'static str) -> Arg {
    Arg::new(name).required(true).value_parser(value_parser!(PathBuf))
}

/// Carries out one of the three, and answers the line with the numbers.
pub(super) fn run(matches: &ArgMatches) -> Result<String, String> {
    let (name, matches) = matches.subcommand().expect("clap requires one");
    let path = |name: &str| matches.get_one::<PathBuf>(name).expect("clap requires it");
    let text = |name: &str| matches.get_one::<String>(name).expect("it has a default");
    match name {
        "save" => save(path("FILE"), text("endpoints"), &trust(matches)),
        "status" => status(path("FILE"), text("write-out") == "json"),
        _ => {
            let bump = *matches.get_one::<i64>("bump-revision").expect("it has a default");
            let bump = if matches.get_flag("no-bump") { 0 } else { bump };
            restore(path("FILE"), path("data-dir"), bump, matches.get_flag("skip-hash-check"))
        }
    }
}

fn trust(matches: &ArgMatches) -> Trust {
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
    Trust { cacert: path("cacert"), own: path("cert").zip(path("key")) }
}

fn save(file: &Path, endpoint: &str, trust: &Trust) -> Result<String, String> {
    let begun = Instant::now();
    let info = download::snapshot(endpoint, trust, file)?;
    Ok(format!("saved {} seconds={:.1}", line(&info), begun.elapsed().as_secs_f64()))
}

fn status(file: &Path, json: bool) -> Result<String, String> {
    let snapshot = SnapshotFile::open(&RealFs, file, false).map_err(|error| error.to_string())?;
    let info = snapshot.info();
    Ok(if json { as_json(info) } else { line(info) })
}

fn restore(file: &Path, dir: &Path, bump: i64, skip_hash_check: bool) -> Result<String, String> {
    let begun = Instant::now();
    let environment =
        Environment { fs: Arc::new(RealFs), clock: Arc::new(SystemClock::new()), entropy: Arc::new(SystemEntropy) };
    let snapshot = SnapshotFile::open(&RealFs, file, skip_hash_check).map_err(|error| error.to_string())?;
    let restored = snapshot.restore(dir, bump, &Options::for_directory(environment.fs.as_ref(), dir), &environment);
    let report = restored.map_err(|error| error.to_string())?;
    let info = snapshot.info();
    let revision = info.revision.0 + bump;
    let compacted = if bump == 0 { info.compacted.0 } else { revision };
    Ok(format!(
        "restored revision={revision} compacted={compacted} keys={} versions={} leases={} size_bytes={} seconds={:.1}",
        report.keys,
        report.versions,
        info.leases,
        report.size_bytes,
        begun.elapsed().as_secs_f64()
    ))
}

fn line(info: &SnapshotInfo) -> String {
    format!(
        "revision={} compacted={} keys={} versions={} leases={} alarms={} marks={} data_bytes={} size_bytes={} cluster={:x} created_ms={} sha256={}",
        info.revision,
        info.compacted,
        info.keys,
        info.versions,
        info.leases,
        info.alarms,
        info.marks,
        info.data_bytes,
        info.size_bytes,
        info.cluster,
        info.created_ms,
        hex(&info.sha256)
    )
}

fn as_json(info: &SnapshotInfo) -> String {
    format!(
        concat!(
            r#"{{"revision":{},"compacted":{},"keys":{},"versions":{},"leases":{},"alarms":{},"marks":{},"dataBytes":{},"sizeBytes":{},"#,
            r#""cluster":"{:x}","createdMs":{},"sha256":"{}"}}"#
        ),
        info.revision,
        info.compacted,
        info.keys,
        info.versions,
        info.leases,
        info.alarms,
        info.marks,
        info.data_bytes,
        info.size_bytes,
        info.cluster,
        info.created_ms,
        hex(&info.sha256)
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
