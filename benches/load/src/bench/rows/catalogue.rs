//! What the rows are called, what they do, and what is wanted of them.

use crate::bench::goals::Bound::{AboveFloor, AtLeast, AtLeastOf, AtMost, AtMostOf, Below, ByCpu, OfFloorAndDisk};
use crate::bench::goals::goal;
use crate::bench::rows::{Group, Row, cluster, lease, life, put, read, space, watch};
use crate::bench::server::Kind;

const BOTH: &[Kind] = &[Kind::Sternpost, Kind::Etcd];
const WITH_FLOOR: &[Kind] = &[Kind::Sternpost, Kind::Etcd, Kind::Floor];
const WITH_DISK: &[Kind] = &[Kind::Sternpost, Kind::Etcd, Kind::Floor, Kind::Disk];

/// A disk for 10,000,000 keys.
const LARGE_MIB: u64 = 28 * 1024;

/// A group of one.
const fn alone(servers: &'static [Kind], rows: &'static [Row; 1]) -> Group {
    let [row] = rows;
    Group { name: row.name, servers, flags: &[], disk_mib: 14 * 1024, rows }
}

pub(super) const GROUPS: &[Group] = &[
    alone(
        WITH_DISK,
        &[Row {
            name: "put-1",
            about: "put of 256 B, one client",
            work: |cell| Box::pin(put::alone(cell)),
            goals: &[goal("p50_ms", OfFloorAndDisk(1.15)), goal("rate", AtLeast(1.0))],
        }],
    ),
    alone(
        WITH_FLOOR,
        &[Row {
            name: "put-1000",
            about: "put of 256 B, 1000 clients on 100 connections, 100,000 keys",
            work: |cell| Box::pin(put::many(cell)),
            goals: &[
                goal("cpu_us", AtMost(0.45)),
                goal("cpu_us", AboveFloor(15.0)),
                goal("cpu_us", ByCpu(2.0)),
                goal("written_bytes", AtMost(1.0)),
            ],
        }],
    ),
    alone(
        WITH_FLOOR,
        &[Row {
            name: "cas-1k",
            about: "update of 1 KiB if unchanged, else get, 1000 clients on 100 connections",
            work: |cell| Box::pin(put::cas(cell, 1024)),
            goals: &[goal("rate", AtLeast(2.0)), goal("cpu_us", AtMost(0.5))],
        }],
    ),
    alone(
        WITH_FLOOR,
        &[Row {
            name: "cas-10k",
            about: "update of 10 KiB if unchanged, else get, 1000 clients on 100 connections",
            work: |cell| Box::pin(put::cas(cell, 10 * 1024)),
            goals: &[goal("rate", AtLeast(2.0)), goal("cpu_us", AtMost(0.5))],
        }],
    ),
    alone(
        WITH_FLOOR,
        &[Row {
            name: "get-1000",
            about: "linearizable get of one key of 256 B, 1000 clients on 100 connections, 100,000 keys",
            work: |cell| Box::pin(put::get(cell)),
            goals: &[goal("cpu_us", AtMost(0.65)), goal("cpu_us", AboveFloor(8.0))],
        }],
    ),
    Group {
        name: "lists",
        servers: BOTH,
        flags: &[],
        disk_mib: 14 * 1024,
        rows: &[
            Row {
                name: "list-10000",
                about: "10,000 keys of 1 KiB in one reply, 4 clients",
                work: |cell| Box::pin(read::list(cell)),
                goals: &[goal("rate", AtLeast(3.0)), goal("cpu_us", ByCpu(3.0))],
            },
            Row {
                name: "pages-500",
                about: "the same in pages of 500 at the revision of the first",
                work: |cell| Box::pin(read::pages(cell)),
                goals: &[goal("rate", AtLeast(3.0)), goal("cpu_us", ByCpu(3.0))],
            },
        ],
    },
    Group {
        name: "big",
        servers: BOTH,
        flags: &[],
        disk_mib: 14 * 1024,
        rows: &[
            Row {
                name: "big-pages",
                about: "150,000 keys of 10 KiB in pages of 10,000, one client, three times",
                work: |cell| Box::pin(read::big_pages(cell)),
                goals: &[goal("items_rate", AtLeast(3.0)), goal("cpu_us", ByCpu(3.0)), goal("growth_mib", Below(64.0))],
            },
            Row {
                name: "big-stream",
                about: "the same as a RangeStream",
                work: |cell| Box::pin(read::big_stream(cell)),
                goals: &[goal("items_rate", AtLeast(3.0)), goal("cpu_us", ByCpu(3.0)), goal("growth_mib", Below(64.0))],
            },
            Row {
                name: "count",
                about: "count of 150,000 keys of 10 KiB, 4 clients",
                work: |cell| Box::pin(read::count(cell)),
                goals: &[goal("rate", AtLeast(3.0))],
            },
            Row {
                name: "keys-only",
                about: "the keys alone of 150,000 keys of 10 KiB in one reply, 4 clients",
                work: |cell| Box::pin(read::keys_only(cell)),
                goals: &[goal("rate", AtLeast(1.0))],
            },
        ],
    },
    alone(
        BOTH,
        &[Row {
            name: "watch-1000",
            about: "1000 watches of one prefix on 100 streams, 100 puts a second; every event in order",
            work: |cell| Box::pin(watch::fan_out(cell, 1000, 100)),
            goals: &[goal("cpu_us", AtMost(0.333))],
        }],
    ),
    alone(
        BOTH,
        &[Row {
            name: "watch-10000",
            about: "10,000 watches of one prefix on 100 streams, 10 puts a second; every event in order",
            work: |cell| Box::pin(watch::fan_out(cell, 10_000, 10)),
            goals: &[goal("cpu_us", AtMost(0.2))],
        }],
    ),
    alone(
        BOTH,
        &[Row {
            name: "watch-memory",
            about: "memory of 100,000 watches on 100 streams, each of a key of its own",
            work: |cell| Box::pin(watch::memory(cell)),
            goals: &[goal("growth_mib", Below(100.0))],
        }],
    ),
    alone(
        BOTH,
        &[Row {
            name: "watch-distinct",
            about: "puts of one key, 16 clients, with 10,000 watches of which one is of that key, and with that one alone",
            work: |cell| Box::pin(watch::distinct(cell)),
            goals: &[goal("rate", AtLeastOf(0.9, "alone_rate"))],
        }],
    ),
    alone(
        BOTH,
        &[Row {
            name: "keepalive",
            about: "keep-alives of 1000 leases, each on a stream of its own, 100 connections",
            work: |cell| Box::pin(lease::keep_alive(cell)),
            goals: &[goal("rate", AtLeast(1.0)), goal("written_bytes", Below(0.0))],
        }],
    ),
    alone(
        BOTH,
        &[Row {
            name: "expiry",
            about: "100,000 leases with a key each run out in the same second, while 16 clients put 1000 times a second",
            work: |cell| Box::pin(lease::expiry(cell)),
            goals: &[goal("gone_after_s", Below(2.0)), goal("p99_ms", AtMostOf(2.0, "before_p99_ms"))],
        }],
    ),
    alone(
        BOTH,
        &[Row {
            name: "kubernetes",
            about: "80 % updates of 5000 hot keys, gets, lists, objects of 10 KiB, 10 watches, compaction every 30 s; a minute",
            work: |cell| Box::pin(cluster::kubernetes(cell)),
            goals: &[goal("cpu_us", AtMost(0.5)), goal("written_bytes", AtMost(1.0))],
        }],
    ),
    alone(
        BOTH,
        &[Row {
            name: "slow-disk",
            about: "linearizable gets, 16 clients, while each sync takes 120 ms and 40 clients put; needs strace",
            work: |cell| Box::pin(cluster::slow_disk(cell)),
            goals: &[goal("p99_ms", Below(5.0))],
        }],
    ),
    alone(
        BOTH,
        &[Row {
            name: "compaction",
            about: "1,000,000 superseded revisions are compacted while 16 clients put 1000 times a second",
            work: |cell| Box::pin(space::compaction(cell)),
            goals: &[goal("p99_ms", AtMostOf(1.2, "before_p99_ms")), goal("max_ms", Below(50.0))],
        }],
    ),
    Group {
        name: "shrink",
        servers: BOTH,
        // Only when it is asked for.
        flags: &["--shrink-interval=0"],
        disk_mib: 14 * 1024,
        rows: &[Row {
            name: "shrink",
            about: "a file of 2 GiB with nine tenths garbage is rewritten while 16 clients put 100 times a second",
            work: |cell| Box::pin(space::shrink(cell)),
            goals: &[
                goal("file_over_live", Below(1.2)),
                goal("p99_ms", AtMostOf(2.0, "before_p99_ms")),
                goal("failed", Below(0.0)),
            ],
        }],
    },
    alone(
        BOTH,
        &[Row {
            name: "start-1m",
            about: "killed just before a flush with 1,000,000 keys: time until it answers, page cache warm",
            work: |cell| Box::pin(life::start(cell, 1_000_000)),
            goals: &[goal("ready_s", Below(0.3))],
        }],
    ),
    Group {
        name: "start-10m",
        servers: BOTH,
        flags: &[],
        disk_mib: LARGE_MIB,
        rows: &[Row {
            name: "start-10m",
            about: "the same with 10,000,000 keys",
            work: |cell| Box::pin(life::start(cell, 10_000_000)),
            goals: &[goal("ready_s", Below(0.3))],
        }],
    },
    alone(
        BOTH,
        &[Row {
            name: "idle",
            about: "no client for ten minutes",
            work: |cell| Box::pin(life::idle(cell)),
            goals: &[
                goal("idle_written_bytes", Below(0.0)),
                goal("switches_per_second", Below(10.0)),
                goal("cpu_ms_per_minute", Below(60.0)),
                goal("peak_mib", Below(16.0)),
            ],
        }],
    ),
    Group {
        name: "scale",
        servers: BOTH,
        flags: &[],
        disk_mib: LARGE_MIB,
        rows: &[
            Row {
                name: "put-10k",
                about: "put of 256 B, 64 clients, 10,000 keys",
                work: |cell| Box::pin(put::put_of(cell, 10_000)),
                goals: &[],
            },
            Row {
                name: "get-10k",
                about: "linearizable get of one key, 64 clients, 10,000 keys",
                work: |cell| Box::pin(put::get_of(cell, 10_000)),
                goals: &[],
            },
            Row {
                name: "put-100k",
                about: "puts, 100,000 keys",
                work: |cell| Box::pin(put::put_of(cell, 100_000)),
                goals: &[],
            },
            Row {
                name: "get-100k",
                about: "gets, 100,000 keys",
                work: |cell| Box::pin(put::get_of(cell, 100_000)),
                goals: &[],
            },
            Row {
                name: "put-1m",
                about: "puts, 1,000,000 keys",
                work: |cell| Box::pin(put::put_of(cell, 1_000_000)),
                goals: &[],
            },
            Row {
                name: "get-1m",
                about: "gets, 1,000,000 keys",
                work: |cell| Box::pin(put::get_of(cell, 1_000_000)),
                goals: &[],
            },
            Row {
                name: "put-10m",
                about: "puts, 10,000,000 keys",
                work: |cell| Box::pin(put::put_of(cell, 10_000_000)),
                goals: &[],
            },
            Row {
                name: "get-10m",
                about: "gets, 10,000,000 keys",
                work: |cell| Box::pin(put::get_of(cell, 10_000_000)),
                goals: &[],
            },
        ],
    },
];
