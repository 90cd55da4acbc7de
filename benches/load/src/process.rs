//! What a process has used, as `/proc` tells it.

use std::fs;

/// The use of one process up to a moment; all zero where it cannot be read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// CPU time in user mode and in the kernel, in microseconds.
    pub(crate) cpu_micros: u64,
    /// Resident memory, in KiB.
    pub(crate) resident_kib: u64,
    /// The most that was resident since `forget_peak`, in KiB.
    pub(crate) peak_kib: u64,
    /// Bytes sent towards the disk.
    pub(crate) written: u64,
    /// Bytes fetched from the disk.
    pub(crate) read: u64,
    /// Bytes that it read by system calls, from the page cache or the disk; what is mapped is not among them.
    pub(crate) read_calls: u64,
}

/// Linux counts CPU time in hundredths of a second.
const TICK_MICROS: u64 = 10_000;

impl Usage {
    /// The use of a process so far.
    pub(crate) fn of(pid: u32) -> Usage {
        let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let (status, io, stat) = (file("status"), file("io"), file("stat"));
        // The name in parentheses may hold anything; user and system time are the 12th and 13th field behind it.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        Usage {
            cpu_micros: (ticks(11) + ticks(12)) * TICK_MICROS,
            resident_kib: number_after(&status, "VmRSS:"),
            peak_kib: number_after(&status, "VmHWM:"),
            written: number_after(&io, "write_bytes:"),
            read: number_after(&io, "read_bytes:"),
            read_calls: number_after(&io, "rchar:"),
        }
    }
}

/// Bytes written to each disk so far, from any process, after everything in the page cache has got there.
pub(crate) fn written_to(disks: &[String]) -> Vec<u64> {
    // The server's own syncs are what counts, but what it has only begun to write belongs to the run as well.
    if !disks.is_empty() && std::process::Command::new("sync").status().is_err() {
        eprintln!("load: no sync: the disk's figure may be too small");
    }
    disks.iter().map(|disk| sectors_written(disk) * 512).collect()
}

/// Sectors of 512 bytes written to a disk so far, from any process.
pub(crate) fn sectors_written(disk: &str) -> u64 {
    let text = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = lines.find(|fields| fields.get(2) == Some(&disk));
    found.and_then(|fields| fields.get(9)?.parse().ok()).unwrap_or(0)
}

/// How often the threads of a process were put to sleep or taken off a core.
pub(crate) fn context_switches(pid: u32) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let of_thread = |status: String| {
        number_after(&status, "voluntary_ctxt_switches:") + number_after(&status, "nonvoluntary_ctxt_switches:")
    };
    threads.flatten().flat_map(|thread| fs::read_to_string(thread.path().join("status"))).map(of_thread).sum()
}

/// Makes the peak count from now on, if that is allowed.
pub(crate) fn forget_peak(pid: u32) {
    if fs::write(format!("/proc/{pid}/clear_refs"), "5").is_err() {
        eprintln!("load: the peak counts from the start of the process");
    }
}

fn number_after(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}
