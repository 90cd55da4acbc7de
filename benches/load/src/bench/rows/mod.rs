//! The rows: what each measures and what is wanted of it. Those of a group share a server and what it was filled with.

mod catalogue;
mod cluster;
mod lease;
mod life;
mod put;
mod read;
mod space;
mod watch;

use std::future::Future;
use std::pin::Pin;

use crate::Failure;
use crate::bench::cell::Cell;
use crate::bench::figures::Figures;
use crate::bench::goals::Goal;
use crate::bench::server::Kind;

/// What the work of a row returns.
pub(crate) type Measuring<'a> = Pin<Box<dyn Future<Output = Result<Figures, Failure>> + Send + 'a>>;

/// Something that is measured.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// What it does, for people.
    pub(crate) about: &'static str,
    pub(crate) work: for<'a, 'b> fn(&'a mut Cell<'b>) -> Measuring<'a>,
    pub(crate) goals: &'static [Goal],
}

/// Rows over the same data.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) servers: &'static [Kind],
    /// Flags that Sternpost gets besides.
    pub(crate) flags: &'static [&'static str],
    /// The disk that a server gets, in MiB: Sternpost's defaults are smaller on one below 13 GiB.
    pub(crate) disk_mib: u64,
    pub(crate) rows: &'static [Row],
}

/// All of them, in the order in which they are measured.
pub(crate) const GROUPS: &[Group] = catalogue::GROUPS;

/// Names and what they mean, a line each.
pub(crate) fn list() -> String {
    let mut text = String::from("Rows:\n  all                all of them\n");
    for group in GROUPS {
        if group.rows.len() > 1 {
            let names: Vec<&str> = group.rows.iter().map(|row| row.name).collect();
            text += &format!("  {:<18} {}, over the same data\n", group.name, names.join(", "));
        }
        for row in group.rows {
            text += &format!("  {:<18} {}\n", row.name, row.about);
        }
    }
    text
}
