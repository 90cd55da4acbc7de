//! What the system knows about this process.

use procfs::process::{LimitValue, Process};
use procfs::{CurrentSI, ProcResult};
use prometheus::proto::MetricFamily;

use super::family::{counter, gauge};

/// The families; what the system does not tell is left out.
pub(super) fn families() -> Vec<MetricFamily> {
    let Ok(process) = Process::myself() else { return Vec::new() };
    let found = [usage(&process), descriptors(&process)];
    found.into_iter().filter_map(Result::ok).flatten().collect()
}

fn usage(process: &Process) -> ProcResult<Vec<MetricFamily>> {
    let stat = process.stat()?;
    let ticks_per_second = procfs::ticks_per_second() as f64;
    let cpu = (stat.utime + stat.stime) as f64 / ticks_per_second;
    let booted = procfs::KernelStats::current()?.btime as f64;
    Ok(vec![
        counter("process_cpu_seconds_total", "CPU time, of the program and of the system for it.", cpu),
        gauge("process_resident_memory_bytes", "Memory that is resident.", stat.rss * procfs::page_size()),
        gauge("process_virtual_memory_bytes", "Address space that is in use.", stat.vsize),
        gauge(
            "process_start_time_seconds",
            "When the process started, in seconds since 1970.",
            booted + stat.starttime as f64 / ticks_per_second,
        ),
    ])
}

fn descriptors(process: &Process) -> ProcResult<Vec<MetricFamily>> {
    let open = process.fd_count()? as u64;
    let limit = match process.limits()?.max_open_files.soft_limit {
        LimitValue::Value(limit) => limit,
        LimitValue::Unlimited => u64::MAX,
    };
    Ok(vec![
        gauge("process_open_fds", "File descriptors that are open.", open),
        gauge("process_max_fds", "File descriptors that may be open.", limit),
        gauge("os_fd_used", "File descriptors that are open.", open),
        gauge("os_fd_limit", "File descriptors that may be open.", limit),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_of_this_process() {
        let families = families();
        let value = |name: &str| {
            let family = families.iter().find(|family| family.name() == name).expect(name);
            let metric = family.get_metric().first().expect("one sample");
            metric.get_gauge().get_value().max(metric.get_counter().get_value())
        };
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0 && value("process_open_fds") < value("process_max_fds"));
        assert!(value("process_start_time_seconds") > 1.6e9);
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert_eq!(families.len(), 8);
    }
}
