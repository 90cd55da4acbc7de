//! What was measured as a table, of the newest run of each row.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::bench::record::{self, Record};
use crate::bench::rows::{GROUPS, Row};

const BEGIN: &str = "<!-- measured -->";
const END: &str = "<!-- end of measured -->";
const SERVERS: [&str; 4] = ["sternpost", "etcd", "floor", "disk"];
/// Figures that every row has columns for: name, heading, digits behind the point.
const COLUMNS: [(&str, &str, usize); 9] = [
    ("rate", "requests/s", 0),
    ("p50_ms", "p50 ms", 2),
    ("p99_ms", "p99 ms", 2),
    ("p999_ms", "p99.9 ms", 2),
    ("cpu_us", "CPU µs", 1),
    ("client_cpu_us", "client CPU µs", 1),
    ("written_bytes", "bytes written", 0),
    ("idle_mib", "MiB before", 1),
    ("peak_mib", "MiB at most", 1),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The results.
    #[arg(long, default_value = "benches/results.jsonl")]
    results: PathBuf,
    /// The page that gets the table, between two marks.
    #[arg(long, default_value = "benches/README.md")]
    page: PathBuf,
    /// Prints the table instead.
    #[arg(long)]
    print: bool,
}

/// Median and spread of one figure over the rounds.
#[derive(Clone, Copy, Debug)]
struct Summary {
    median: f64,
    /// Half of the distance between the least and the most, over the median.
    spread: f64,
}

/// The rounds of one row in one run, summed up by server and figure.
struct Measured<'a> {
    first: &'a Record,
    rounds: u32,
    load: f64,
    figures: BTreeMap<(&'a str, &'a str), Summary>,
    missing: Vec<(&'a str, &'a str)>,
}

/// Renders the table.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let text = render(&record::read(&arguments.results)?);
    if arguments.print {
        print!("{text}");
        return Ok(());
    }
    put_between_marks(&arguments.page, &text)
}

/// One line for a round that has just ended.
pub(crate) fn print_round(record: &Record) {
    let mut line = format!("{:<16} {:<9} {}", record.row, record.server, record.round);
    for (name, value) in &record.figures {
        line += &format!("  {name} {value:.2}");
    }
    if let Some(missing) = &record.missing {
        line += &format!("  no figures: {missing}");
    }
    println!("{line}");
}

fn put_between_marks(page: &Path, table: &str) -> Result<(), Failure> {
    let text = fs::read_to_string(page).map_err(|error| format!("{}: {error}", page.display()))?;
    let unmarked = || format!("{} has no {BEGIN} before {END}", page.display());
    let (before, rest) = text.split_once(BEGIN).ok_or_else(unmarked)?;
    let (_, after) = rest.split_once(END).ok_or_else(unmarked)?;
    Ok(fs::write(page, format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))?)
}

fn render(records: &[Record]) -> String {
    let rows = GROUPS.iter().flat_map(|group| group.rows);
    let measured: Vec<(&Row, Measured<'_>)> =
        rows.filter_map(|row| Some((row, Measured::newest(records, row.name)?))).collect();
    let mut text = usual(&measured);
    text += "\n";
    text += &further(&measured);
    text += "\n";
    text += &goals(&measured);
    text += "\n";
    text += &circumstances(&measured);
    text
}

impl<'a> Measured<'a> {
    /// The rounds of the newest run of a row.
    fn newest(records: &'a [Record], row: &str) -> Option<Measured<'a>> {
        let of_row = || records.iter().filter(|record| record.row == row);
        let newest = of_row().map(|record| &record.run).max()?;
        let rounds: Vec<&Record> = of_row().filter(|record| &record.run == newest).collect();
        let mut values: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
        for record in &rounds {
            for (name, value) in &record.figures {
                values.entry((&record.server, name)).or_default().push(*value);
            }
        }
        let mut missing: Vec<_> =
            rounds.iter().filter_map(|record| Some((record.server.as_str(), record.missing.as_deref()?))).collect();
        missing.dedup();
        Some(Measured {
            first: rounds.first()?,
            rounds: rounds.iter().map(|record| record.round).max()?,
            load: rounds.iter().map(|record| record.load_average).fold(0.0, f64::max),
            figures: values.into_iter().map(|(key, values)| (key, Summary::of(values))).collect(),
            missing,
        })
    }

    fn median(&self, server: &str, figure: &str) -> Option<f64> {
        Some(self.figures.get(&(server, figure))?.median)
    }

    fn ratio(&self, figure: &str) -> String {
        match (self.median("sternpost", figure), self.median("etcd", figure)) {
            (Some(ours), Some(theirs)) if theirs > 0.0 => format!("{:.2}", ours / theirs),
            _ => String::new(),
        }
    }
}

impl Summary {
    fn of(mut values: Vec<f64>) -> Summary {
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let last = values.len().saturating_sub(1);
        let median = (at(last / 2) + at(last.div_ceil(2))) / 2.0;
        let spread = if median == 0.0 { 0.0 } else { (at(last) - at(0)) / 2.0 / median };
        Summary { median, spread }
    }

    fn text(&self, digits: usize) -> String {
        let spread = self.spread * 100.0;
        let spread = if spread < 0.5 { String::new() } else { format!(" ±{spread:.0} %") };
        grouped(self.median, digits) + &spread
    }
}

/// With a comma between thousands.
fn grouped(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$}");
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if index > 0 && left.is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    fraction.map_or(grouped.clone(), |fraction| format!("{grouped}.{fraction}"))
}

fn usual(measured: &[(&Row, Measured<'_>)]) -> String {
    let mut text = String::from("| row | server |");
    for (_, heading, _) in COLUMNS {
        text += &format!(" {heading} |");
    }
    text += &format!("\n|---|---|{}\n", "---|".repeat(COLUMNS.len()));
    for (row, measured) in measured {
        for server in SERVERS {
            if measured.figures.keys().any(|(of, _)| *of == server) {
                let cells = COLUMNS.map(|(figure, _, digits)| {
                    measured.figures.get(&(server, figure)).map_or(String::new(), |summary| summary.text(digits))
                });
                text += &format!("| {} | {server} | {} |\n", row.name, cells.join(" | "));
            }
        }
        let ratios = COLUMNS.map(|(figure, ..)| measured.ratio(figure));
        if ratios.iter().any(|ratio| !ratio.is_empty()) {
            text += &format!("| {} | **ratio** | {} |\n", row.name, ratios.join(" | "));
        }
        for (server, reason) in &measured.missing {
            text += &format!("| {} | {server} | {reason} |{}\n", row.name, " |".repeat(COLUMNS.len() - 1));
        }
    }
    text
}

/// Figures that only some rows have.
fn further(measured: &[(&Row, Measured<'_>)]) -> String {
    let mut text = String::from("| row | figure | sternpost | etcd | ratio |\n|---|---|---|---|---|\n");
    for (row, measured) in measured {
        let mut names: Vec<&str> = measured.figures.keys().map(|(_, name)| *name).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| {
            !COLUMNS.iter().any(|(column, ..)| column == name) && !["requests", "seconds"].contains(name)
        });
        for name in names {
            let of = |server| measured.figures.get(&(server, name)).map_or(String::new(), |summary| summary.text(2));
            let other = if name.starts_with("prewritten") { of("disk") } else { of("sternpost") };
            text += &format!("| {} | {name} | {other} | {} | {} |\n", row.name, of("etcd"), measured.ratio(name));
        }
    }
    text
}

fn goals(measured: &[(&Row, Measured<'_>)]) -> String {
    let mut text = String::from("| row | goal | measured | |\n|---|---|---|---|\n");
    for (row, measured) in measured {
        for goal in row.goals {
            let (value, verdict) = match goal.measured(|server, figure| measured.median(server, figure)) {
                Some((value, true)) => (format!("{value:.2}"), "met"),
                Some((value, false)) => (format!("{value:.2}"), "**missed**"),
                None => (String::new(), "not measured"),
            };
            text += &format!("| {} | {} | {value} | {verdict} |\n", row.name, goal.text());
        }
    }
    text
}

fn circumstances(measured: &[(&Row, Measured<'_>)]) -> String {
    let mut text = String::from("| row | run | commit | rounds | scale | seed | bytes by | load before | machine |\n");
    text += "|---|---|---|---|---|---|---|---|---|\n";
    for (row, measured) in measured {
        let Record { run, commit, scale, seed, bytes_by, machine, .. } = measured.first;
        let (rounds, load) = (measured.rounds, measured.load);
        text += &format!(
            "| {} | {run} | {commit} | {rounds} | {scale} | {seed} | {bytes_by} | {load:.2} | {machine} |\n",
            row.name
        );
    }
    text
}
