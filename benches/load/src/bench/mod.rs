//! Measuring side by side: rows of work, the servers in turn, several rounds, fresh data.

mod cell;
mod figures;
mod goals;
mod machine;
mod phases;
mod place;
mod record;
mod rows;
mod server;
pub(crate) mod table;

use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::Failure;
use cell::Cell;
use figures::Figures;
use place::Place;
use record::Record;
use rows::{GROUPS, Group, Row};
use server::{Binaries, Kind, Server};

/// How long a row may take with one server at scale 1.
const LIMIT: Duration = Duration::from_secs(3600);
/// The shortest time that is measured.
const LEAST: Duration = Duration::from_millis(250);

#[derive(Debug, clap::Args)]
#[command(after_help = rows::list())]
pub(crate) struct Arguments {
    /// Rows or groups of rows, or `all`.
    #[arg(required = true)]
    rows: Vec<String>,
    /// Rounds; each has every server once.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// What to multiply numbers of keys, watches and leases with, and the time.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Seconds to measure at scale 1, after a fifth of that to warm up.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Decides which keys are drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these servers, separated by commas.
    #[arg(long, value_delimiter = ',')]
    servers: Vec<Kind>,
    #[command(flatten)]
    binaries: Binaries,
    /// Where the servers' data is kept meanwhile.
    #[arg(long, default_value = "target/bench")]
    place: PathBuf,
    /// A directory instead of a file system on a loop device; bytes are then the process's own figure.
    #[arg(long)]
    no_loop: bool,
    /// Leaves the file behind the loop device for the next run, which takes as long to write as its size says.
    #[arg(long)]
    keep_disk: bool,
    /// Where to append the results.
    #[arg(long, default_value = "benches/results.jsonl")]
    results: PathBuf,
}

/// Measures what was asked for. Errors: a row is unknown; a server failed, after everything else was measured.
pub(crate) async fn run(arguments: &Arguments) -> Result<(), Failure> {
    let chosen = choose(&arguments.rows)?;
    let mut place = Place::new(&arguments.place, !arguments.no_loop, arguments.keep_disk)?;
    let proto = Record {
        run: machine::date()?,
        commit: machine::commit()?,
        machine: machine::machine(),
        row: String::new(),
        server: String::new(),
        round: 0,
        scale: arguments.scale,
        seed: arguments.seed,
        bytes_by: place.counts_by().to_owned(),
        load_average: 0.0,
        figures: Figures::new(),
        missing: None,
    };
    println!("{} commit {} scale {} seed {}", proto.machine, proto.commit, proto.scale, proto.seed);
    let (mut ended, mut stopped) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut failures = 0;
    tokio::select! {
        result = measure(arguments, &chosen, &mut place, &proto, &mut failures) => result?,
        _ = ended.recv() => return Err("ended by SIGTERM".into()),
        _ = stopped.recv() => return Err("ended by SIGINT".into()),
    }
    if failures > 0 {
        return Err(format!("{failures} rounds have no figures").into());
    }
    Ok(())
}

/// The groups, with those of their rows that were asked for.
fn choose(names: &[String]) -> Result<Vec<(&'static Group, Vec<&'static Row>)>, Failure> {
    let asked = |name: &str| names.iter().any(|asked| asked == name || asked == "all");
    let known = |name: &String| {
        name == "all" || GROUPS.iter().any(|group| group.name == name || group.rows.iter().any(|row| row.name == name))
    };
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        return Err(format!("no row is called {unknown}; --help lists them").into());
    }
    let rows_of = |group: &'static Group| {
        let rows: Vec<_> = group.rows.iter().filter(|row| asked(row.name) || asked(group.name)).collect();
        (group, rows)
    };
    Ok(GROUPS.iter().map(rows_of).filter(|(_, rows)| !rows.is_empty()).collect())
}

async fn measure(
    arguments: &Arguments,
    chosen: &[(&'static Group, Vec<&'static Row>)],
    place: &mut Place,
    proto: &Record,
    failures: &mut u32,
) -> Result<(), Failure> {
    for (group, rows) in chosen {
        let wanted = |kind: &&Kind| arguments.servers.is_empty() || arguments.servers.contains(kind);
        let kinds: Vec<Kind> = group.servers.iter().filter(wanted).copied().collect();
        for round in 0..arguments.rounds {
            for turn in 0..kinds.len() {
                // Each round begins with another server.
                let Some(&kind) = kinds.get((turn + usize::try_from(round)?) % kinds.len()) else { continue };
                let named = Record { server: kind.name().to_owned(), round: round + 1, ..proto.clone() };
                *failures += measure_cell(arguments, group, rows, place, kind, &named).await?;
            }
        }
    }
    Ok(())
}

/// The rows of a group with one server; says how many failed.
async fn measure_cell(
    arguments: &Arguments,
    group: &Group,
    rows: &[&Row],
    place: &mut Place,
    kind: Kind,
    named: &Record,
) -> Result<u32, Failure> {
    place.make_fresh(group.disk_mib)?;
    let server = Server::start(kind, &arguments.binaries, &place.path(), group.flags).await;
    let mut failures = 0;
    let mut cell = server.map(|server| Cell {
        server,
        place,
        scale: arguments.scale,
        seed: arguments.seed,
        measured: Duration::from_secs_f64(arguments.seconds * arguments.scale).max(LEAST),
        filled: 0,
    });
    for row in rows {
        let load_average = machine::load_average();
        let result = match &mut cell {
            Ok(cell) => match timeout(LIMIT, (row.work)(cell)).await {
                Ok(result) => result,
                Err(_) => Err(format!("not done after {LIMIT:?}").into()),
            },
            Err(failure) => Err(failure.to_string().into()),
        };
        let mut record = Record { row: row.name.to_owned(), load_average, ..named.clone() };
        match result {
            Ok(figures) => record.figures = figures,
            Err(failure) => {
                failures += 1;
                record.missing = Some(failure.to_string());
            }
        }
        table::print_round(&record);
        record::append(&arguments.results, &record)?;
    }
    Ok(failures)
}
