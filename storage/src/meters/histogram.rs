//! A histogram with few, fixed buckets: an observation is two additions, whoever makes it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics::Distribution;

/// Counts observations in buckets whose bounds double, from a first one on. Observations are whole numbers of a unit.
#[derive(Debug)]
pub(crate) struct Histogram {
    /// The upper bound of the first bucket, inclusive.
    first: u64,
    /// How many units are 1 in what is told of it.
    scale: f64,
    /// The last one has no bound.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Durations, observed in nanoseconds and told in seconds: `buckets` of them, the first one up to `first_ns`.
    pub(crate) fn of_seconds(first_ns: u64, buckets: usize) -> Histogram {
        Histogram::new(first_ns, buckets, 1e9)
    }

    /// Observations and bounds in the unit in which they are told, `scale` of them to 1.
    pub(crate) fn new(first: u64, buckets: usize, scale: f64) -> Histogram {
        let counts = (0..=buckets).map(|_| AtomicU64::new(0)).collect();
        Histogram { first, scale, counts, sum: AtomicU64::new(0) }
    }

    pub(crate) fn observe(&self, value: u64) {
        // Divided before the power of two is taken, rounded up: a value at a bound belongs below it.
        let power = value.div_ceil(self.first).checked_next_power_of_two();
        let steps = power.map_or(usize::MAX, |power| power.trailing_zeros() as usize);
        if let Some(count) = self.counts.get(steps.min(self.counts.len() - 1)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub(crate) fn observe_duration(&self, duration: std::time::Duration) {
        self.observe(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn read(&self) -> Distribution {
        let bound =
            |step: usize| (self.first as f64) * 2_f64.powi(i32::try_from(step).unwrap_or(i32::MAX)) / self.scale;
        Distribution {
            upper_bounds: (0..self.counts.len() - 1).map(bound).collect(),
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed) as f64 / self.scale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_falls_into_the_first_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::of_seconds(1_000_000, 3);
        for (value, bucket) in [
            (0, 0),
            (1, 0),
            (1_000_000, 0),
            (1_000_001, 1),
            (2_000_000, 1),
            (2_000_001, 2),
            (4_000_000, 2),
            (4_000_001, 3),
            (u64::MAX / 2, 3),
        ] {
            let before = histogram.read().counts;
            histogram.observe(value);
            let mut expected = before;
            *expected.get_mut(bucket).expect("four buckets") += 1;
            assert_eq!(histogram.read().counts, expected, "{value}");
        }
        assert_eq!(histogram.read().upper_bounds, [0.001, 0.002, 0.004]);
        let seconds = Histogram::new(1, 2, 1.0);
        seconds.observe(u64::MAX);
        assert_eq!(seconds.read().counts, [0, 0, 1]);
    }

    #[test]
    fn the_sum_is_told_in_the_unit_of_the_bounds() {
        let histogram = Histogram::of_seconds(1_000_000, 14);
        histogram.observe_duration(std::time::Duration::from_millis(1_500));
        histogram.observe_duration(std::time::Duration::from_millis(500));
        assert_eq!(histogram.read().sum, 2.0);
        assert_eq!(histogram.read().upper_bounds.last(), Some(&8.192));
        assert_eq!(histogram.read().total(), 2);
    }
}
