//! Results: a file with one line of JSON for each round of each server.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::bench::figures::Figures;

/// One round of one row with one server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// When the command began; all that it measured has the same.
    pub(crate) run: String,
    pub(crate) commit: String,
    pub(crate) machine: String,
    pub(crate) row: String,
    pub(crate) server: String,
    /// From 1 on.
    pub(crate) round: u32,
    /// 1 is the documented size.
    pub(crate) scale: f64,
    pub(crate) seed: u64,
    /// `diskstats` of a disk of its own, or `proc`.
    pub(crate) bytes_by: String,
    /// The average of the minute before, of processes that wanted a core.
    pub(crate) load_average: f64,
    pub(crate) figures: Figures,
    /// Why there are no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) missing: Option<String>,
}

/// Appends one line.
pub(crate) fn append(path: &Path, record: &Record) -> Result<(), Failure> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let line = serde_json::to_string(record)? + "\n";
    Ok(file.write_all(line.as_bytes())?)
}

/// All lines. Errors: the file cannot be read; a line is no record, by number.
pub(crate) fn read(path: &Path) -> Result<Vec<Record>, Failure> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let parse = |(number, line)| {
        serde_json::from_str(line).map_err(|error| format!("{}, line {number}: {error}", path.display()).into())
    };
    (1..).zip(text.lines()).map(parse).collect()
}
