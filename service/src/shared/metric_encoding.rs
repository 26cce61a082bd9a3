//! Writes single metrics of a collector: gauges, counters, and counters with labels.

use std::{fmt, time::Duration};

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter},
    registry::Unit,
};

pub(crate) fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: &impl EncodeGaugeValue,
) -> fmt::Result {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(value)
}

/// Writes a gauge of a time, in seconds.
pub(crate) fn seconds(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, time: Duration) -> fmt::Result {
    let unit = Some(&Unit::Seconds);
    encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?.encode_gauge(&time.as_secs_f64())
}

/// Writes a counter without labels.
pub(crate) fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, count: u64) -> fmt::Result {
    ConstCounter::new(count).encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
}

/// Writes a counter for each set of labels.
pub(crate) fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, count) in counts {
        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
