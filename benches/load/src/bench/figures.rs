//! What a round measured, by name; and the meter that measures the usual part of it.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::process::{self, Usage};
use crate::report::Latencies;

/// Numbers by name. The unit ends the name: `_us`, `_ms`, `_mib`, `_bytes`, `_s`; without one it counts, and `rate` is a second.
pub(crate) type Figures = BTreeMap<String, f64>;

const MIB: f64 = 1024.0;

/// Adds one.
pub(crate) fn note(figures: &mut Figures, name: &str, value: f64) {
    figures.insert(name.to_owned(), value);
}

/// From when on CPU time and memory count, of the server and of this process.
pub(crate) struct Meter {
    pid: Option<u32>,
    server: Usage,
    client: Usage,
    began: Instant,
}

/// What was used between two moments.
pub(crate) struct Used {
    server_micros: u64,
    client_micros: u64,
    resident_before_kib: u64,
    peak_kib: u64,
    seconds: f64,
}

impl Meter {
    /// Begins now, with a new peak.
    pub(crate) fn begin(pid: Option<u32>) -> Meter {
        if let Some(pid) = pid {
            process::forget_peak(pid);
        }
        let server = pid.map(Usage::of).unwrap_or_default();
        Meter { pid, server, client: Usage::of(std::process::id()), began: Instant::now() }
    }

    /// Ends now.
    pub(crate) fn end(self) -> Used {
        let seconds = self.began.elapsed().as_secs_f64();
        let server = self.pid.map(Usage::of).unwrap_or_default();
        let client = Usage::of(std::process::id());
        Used {
            server_micros: server.cpu_micros.saturating_sub(self.server.cpu_micros),
            client_micros: client.cpu_micros.saturating_sub(self.client.cpu_micros),
            resident_before_kib: self.server.resident_kib,
            peak_kib: server.peak_kib,
            seconds,
        }
    }
}

impl Used {
    /// The seconds between the two moments.
    pub(crate) fn seconds(&self) -> f64 {
        self.seconds
    }

    /// By how much memory grew at most.
    pub(crate) fn growth_mib(&self) -> f64 {
        self.peak_kib.saturating_sub(self.resident_before_kib) as f64 / MIB
    }

    /// The usual figures, where `requests` were made meanwhile.
    pub(crate) fn figures(&self, requests: u64) -> Figures {
        let mut figures = Figures::new();
        let each = |micros: u64| micros as f64 / requests.max(1) as f64;
        note(&mut figures, "requests", requests as f64);
        note(&mut figures, "seconds", self.seconds);
        note(&mut figures, "rate", requests as f64 / self.seconds);
        note(&mut figures, "cpu_us", each(self.server_micros));
        note(&mut figures, "client_cpu_us", each(self.client_micros));
        note(&mut figures, "idle_mib", self.resident_before_kib as f64 / MIB);
        note(&mut figures, "peak_mib", self.peak_kib as f64 / MIB);
        figures
    }
}

/// Adds the latencies, in milliseconds, their names led by `prefix`.
pub(crate) fn note_latencies(figures: &mut Figures, prefix: &str, latencies: &Latencies) {
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
        let micros = latencies.value_at_quantile(quantile);
        note(figures, &format!("{prefix}{name}_ms"), micros as f64 / 1000.0);
    }
}
