//! Families of samples, made of numbers that somebody else keeps.

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use storage::Distribution;

/// Names and values of labels.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

/// A number that only grows.
pub(super) fn counter(name: &str, help: &str, value: impl Number) -> MetricFamily {
    counters(name, help, [(&[] as Labels<'_>, value)])
}

/// Numbers that only grow, told apart by labels.
pub(super) fn counters<'a, N: Number>(
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (Labels<'a>, N)>,
) -> MetricFamily {
    let samples = samples.into_iter().map(|(labels, value)| {
        let mut counter = Counter::default();
        counter.set_value(value.as_f64());
        let mut metric = labelled(labels);
        metric.set_counter(counter);
        metric
    });
    family(name, help, MetricType::COUNTER, samples.collect())
}

/// A number that goes up and down.
pub(super) fn gauge(name: &str, help: &str, value: impl Number) -> MetricFamily {
    gauges(name, help, [(&[] as Labels<'_>, value)])
}

/// Numbers that go up and down, told apart by labels.
pub(super) fn gauges<'a, N: Number>(
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (Labels<'a>, N)>,
) -> MetricFamily {
    let samples = samples.into_iter().map(|(labels, value)| {
        let mut gauge = Gauge::default();
        gauge.set_value(value.as_f64());
        let mut metric = labelled(labels);
        metric.set_gauge(gauge);
        metric
    });
    family(name, help, MetricType::GAUGE, samples.collect())
}

/// A histogram.
pub(super) fn histogram(name: &str, help: &str, distribution: &Distribution) -> MetricFamily {
    let mut total = 0;
    let mut buckets = Vec::with_capacity(distribution.upper_bounds.len());
    for (bound, count) in distribution.upper_bounds.iter().zip(&distribution.counts) {
        total += count;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(total);
        buckets.push(bucket);
    }
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets);
    histogram.set_sample_count(distribution.total());
    histogram.set_sample_sum(distribution.sum);
    let mut metric = Metric::default();
    metric.set_histogram(histogram);
    family(name, help, MetricType::HISTOGRAM, vec![metric])
}

fn labelled(labels: Labels<'_>) -> Metric {
    let pairs = labels.iter().map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    });
    Metric::from_label(pairs.collect())
}

fn family(name: &str, help: &str, kind: MetricType, samples: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(samples);
    family
}

/// What a sample can be made of. Samples are doubles: beyond 2^53 they lose their last digits.
pub(super) trait Number {
    /// The number as a sample.
    fn as_f64(&self) -> f64;
}

impl Number for u64 {
    fn as_f64(&self) -> f64 {
        *self as f64
    }
}

impl Number for i64 {
    fn as_f64(&self) -> f64 {
        *self as f64
    }
}

impl Number for f64 {
    fn as_f64(&self) -> f64 {
        *self
    }
}

impl Number for bool {
    fn as_f64(&self) -> f64 {
        f64::from(u8::from(*self))
    }
}
