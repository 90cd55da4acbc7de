//! The rows: what each measures and what is wanted of it. Those of a group share a server and what it was filled with.

mod put;

use std::future::Future;
use std::pin::Pin;

use crate::Failure;
use crate::bench::cell::Cell;
use crate::bench::figures::Figures;
use crate::bench::goals::Bound::{AboveFloor, AtLeast, AtMost, OfFloorAndDisk};
use crate::bench::goals::{Goal, goal};
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
    /// The disk that a server gets, in MiB, at scale 1.
    pub(crate) disk_mib: u64,
    pub(crate) rows: &'static [Row],
}

const BOTH: &[Kind] = &[Kind::Sternpost, Kind::Etcd];
const WITH_FLOOR: &[Kind] = &[Kind::Sternpost, Kind::Etcd, Kind::Floor];
const WITH_DISK: &[Kind] = &[Kind::Sternpost, Kind::Etcd, Kind::Floor, Kind::Disk];

/// All of them, in the order in which they are measured.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        name: "put-1",
        servers: WITH_DISK,
        disk_mib: 4096,
        rows: &[Row {
            name: "put-1",
            about: "put of 256 B, one client",
            work: |cell| Box::pin(put::alone(cell)),
            goals: &[goal("p50_ms", OfFloorAndDisk(1.15)), goal("rate", AtLeast(1.0))],
        }],
    },
    Group {
        name: "put-1000",
        servers: WITH_FLOOR,
        disk_mib: 8192,
        rows: &[Row {
            name: "put-1000",
            about: "put of 256 B, 1000 clients on 100 connections, 100,000 keys",
            work: |cell| Box::pin(put::many(cell)),
            goals: &[
                goal("cpu_us", AtMost(0.45)),
                goal("cpu_us", AboveFloor(15.0)),
                goal("rate", AtLeast(2.0)),
                goal("written_bytes", AtMost(1.0)),
            ],
        }],
    },
    Group {
        name: "cas-1k",
        servers: WITH_FLOOR,
        disk_mib: 8192,
        rows: &[Row {
            name: "cas-1k",
            about: "update of 1 KiB if unchanged, else get, 1000 clients on 100 connections",
            work: |cell| Box::pin(put::cas(cell, 1024)),
            goals: &[goal("rate", AtLeast(2.0)), goal("cpu_us", AtMost(0.5))],
        }],
    },
    Group {
        name: "cas-10k",
        servers: WITH_FLOOR,
        disk_mib: 8192,
        rows: &[Row {
            name: "cas-10k",
            about: "update of 10 KiB if unchanged, else get, 1000 clients on 100 connections",
            work: |cell| Box::pin(put::cas(cell, 10 * 1024)),
            goals: &[goal("rate", AtLeast(2.0)), goal("cpu_us", AtMost(0.5))],
        }],
    },
    Group {
        name: "get-1000",
        servers: WITH_FLOOR,
        disk_mib: 4096,
        rows: &[Row {
            name: "get-1000",
            about: "linearizable get of one key of 256 B, 1000 clients on 100 connections, 100,000 keys",
            work: |cell| Box::pin(put::get(cell)),
            goals: &[goal("cpu_us", AtMost(0.65)), goal("cpu_us", AboveFloor(8.0))],
        }],
    },
];

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
