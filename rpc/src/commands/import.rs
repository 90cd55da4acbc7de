//! `sternpost import etcd`: a new data directory with all that a snapshot of an etcd holds.

use std::path::PathBuf;
use std::time::Instant;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::import::{self, Request};

const AFTER_HELP: &str =
    "FILE is what `etcdctl snapshot save` wrote, or member/snap/db of an etcd that was stopped in order.
Keys, history, revisions, leases and the compacted revision come along; users, roles and members do not.";

pub(super) fn arguments() -> Command {
    let switch =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let path = |name: &'static str| Arg::new(name).required(true).value_parser(value_parser!(PathBuf));
    let etcd = Command::new("etcd")
        .about("Import a snapshot or a database file of etcd 3.4 to 3.7")
        .after_help(AFTER_HELP)
        .arg(path("FILE").help("Snapshot or database file"))
        .arg(path("data-dir").long("data-dir").value_name("DIR").help("Data directory to make: missing or empty"))
        .arg(switch("skip-hash-check", "Do not compare the file with the SHA-256 at its end"))
        .arg(switch("without-auth", "Import although authentication is enabled: users and roles are left behind"));
    Command::new("import")
        .about("Make a data directory from the data of another store")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(etcd)
}

/// Imports, warns on stderr, and answers the line with the numbers.
pub(super) fn run(matches: &ArgMatches) -> Result<String, String> {
    let (_, matches) = matches.subcommand().expect("clap requires one");
    let path = |name: &str| matches.get_one::<PathBuf>(name).expect("clap requires it").clone();
    let request = Request {
        file: path("FILE"),
        data_dir: path("data-dir"),
        skip_hash_check: matches.get_flag("skip-hash-check"),
        without_auth: matches.get_flag("without-auth"),
    };
    let begun = Instant::now();
    let report = import::etcd(&request)?;
    for warning in &report.warnings {
        eprintln!("sternpost: {warning}");
    }
    Ok(format!("{report} seconds={:.1}", begun.elapsed().as_secs_f64()))
}
