//! What is printed: requests, latencies, and what they cost the server.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::process::{self, Usage};
use crate::{Common, Failure};

/// Latencies in microseconds, up to five minutes.
pub(crate) type Latencies = Histogram<u64>;

/// An empty histogram.
pub(crate) fn latencies() -> Result<Latencies, Failure> {
    Ok(Histogram::new_with_bounds(1, 300_000_000, 3)?)
}

/// Adds one latency.
pub(crate) fn record(latencies: &mut Latencies, latency: Duration) {
    latencies.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1));
}

/// One run being measured.
pub(crate) struct Measurement {
    pid: Option<u32>,
    line: Option<String>,
    disks: Vec<String>,
    before: Usage,
    on_disks: Vec<u64>,
    began: Instant,
}

impl Measurement {
    /// Begins now.
    pub(crate) fn begin(common: &Common) -> Measurement {
        if let Some(pid) = common.server_pid {
            process::forget_peak(pid);
        }
        let before = common.server_pid.map(Usage::of).unwrap_or_default();
        let (pid, line, disks) = (common.server_pid, common.line.clone(), common.disk.clone());
        let on_disks = process::written_to(&disks);
        Measurement { pid, line, disks, before, on_disks, began: Instant::now() }
    }

    /// Ends now and prints. `items` is what the requests carried, if they carry more than one thing each.
    pub(crate) fn end(self, latencies: &Latencies, items: u64) {
        let seconds = self.began.elapsed().as_secs_f64();
        let requests = latencies.len();
        let percentile = |percent: f64| latencies.value_at_quantile(percent / 100.0) as f64 / 1000.0;
        let (half, most, nearly_all, worst) =
            (percentile(50.0), percentile(90.0), percentile(99.0), latencies.max() as f64 / 1000.0);
        let rate = requests as f64 / seconds;
        let usage = self.pid.map(Usage::of).unwrap_or_default();
        let each = |total: u64| total as f64 / requests.max(1) as f64;
        let cpu = each(usage.cpu_micros.saturating_sub(self.before.cpu_micros));
        let now = process::written_to(&self.disks);
        let mut parts: Vec<u64> = now.iter().zip(&self.on_disks).map(|(now, then)| now.saturating_sub(*then)).collect();
        if parts.is_empty() {
            parts.push(usage.written.saturating_sub(self.before.written));
        }
        let written: u64 = parts.iter().sum();
        let shares: Vec<String> = parts.iter().map(|part| format!("{:.0}", each(*part))).collect();
        let shares = if shares.len() > 1 { format!(" ({})", shares.join(" + ")) } else { String::new() };
        let read = usage.read.saturating_sub(self.before.read);
        let mib = |kib: u64| kib as f64 / 1024.0;
        let (resident, peak) = (mib(usage.resident_kib), mib(usage.peak_kib));
        if let Some(name) = self.line {
            println!(
                "{name:<28} {rate:>9.0}/s  p50 {half:>8.2} p90 {most:>8.2} p99 {nearly_all:>8.2} max {worst:>8.2} ms  cpu {cpu:>8.1} us  \
                 written {:>7.0} B/req{shares}  rss {resident:>6.1} peak {peak:>6.1} MiB",
                each(written)
            );
            return;
        }
        println!(
            "{requests} requests, {items} items in {seconds:.2} s: {rate:.0} requests/s, {:.0} items/s",
            items as f64 / seconds
        );
        println!("latency ms: p50 {half:.2}  p90 {most:.2}  p99 {nearly_all:.2}  max {worst:.2}");
        if self.pid.is_some() {
            println!(
                "server: {cpu:.1} us CPU a request, {:.0} bytes written a request{shares} ({:.1} MiB in all), {:.1} MiB read",
                each(written),
                written as f64 / 1048576.0,
                read as f64 / 1048576.0
            );
            println!(
                "server: resident {:.1} MiB before, {resident:.1} after, {peak:.1} at most",
                mib(self.before.resident_kib)
            );
        }
    }
}
