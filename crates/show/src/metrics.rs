//! The text for a scraper: a [`RunModel`] as OpenMetrics.
//!
//! Names and units follow Prometheus' own rules ("Metric and label naming", "Instrumentation", both on prometheus.io):
//! base units (seconds, bytes, ratios of 0 to 1), `_total` for what only grows, one meaning for a name whatever its
//! labels, and label sets that are bounded: a node, a guard, a reason, a rule (at most [`crate::run::MOST_RULES`] and
//! one for the rest), a group of the configuration (at most [`MOST_GROUPS`](crate::run::MOST_GROUPS) and one for the
//! rest). Threads and processes are not labels: they come and go, and each would leave a series of its own for ever.
//! `ctl status` and the page show them.
//!
//! All metrics are in one table ([`METRICS`]), from which the text, the table in `docs/serve.md` and the
//! checks of `contrib/` are drawn. A figure that was not measured has no sample, and a metric without
//! any is left out.

mod table;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use serde::Serialize;

use crate::run::{LATENESS_BOUNDS_S, Lateness, RunModel};
pub use table::METRICS;

/// The content type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the server that shows a status knows about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Serving {
    /// Connections that are open.
    pub connections: u64,
    /// Connections that were refused, because there were too many.
    pub connections_refused: u64,
    /// Requests that were answered with what they asked for.
    pub answered: u64,
    /// Requests that were refused: malformed, unknown, not allowed, too slow.
    pub refused: u64,
    /// Watchers that are streaming.
    pub watchers: u64,
    /// Watchers that were dropped, because they were too slow.
    pub watchers_dropped: u64,
}

/// What metrics are drawn from.
#[derive(Clone, Copy, Debug)]
pub struct View<'s> {
    /// The herd and its machine.
    pub run: &'s RunModel,
    /// The server, where there is one.
    pub serving: Option<&'s Serving>,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, except at a restart.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Says something by its labels; its value is 1.
    Info,
    /// Counts by size.
    Histogram,
}

/// One metric.
pub struct Metric {
    /// Its name after `numaherd_`, without its unit and without the suffix of its kind.
    name: &'static str,
    /// The unit, which the name ends in.
    unit: Option<&'static str>,
    /// What it is.
    pub kind: Kind,
    /// The labels of its samples, except for a histogram's bounds.
    pub labels: &'static [&'static str],
    /// One sentence.
    pub help: &'static str,
    draw: fn(View<'_>, &mut Samples),
}

/// Samples of one metric as they are drawn.
#[derive(Debug, Default)]
struct Samples(Vec<(Vec<String>, Value)>);

#[derive(Clone, Copy, Debug)]
enum Value {
    Whole(u64),
    Real(f64),
    Late(Lateness),
}

/// No labels, where an exemplar could have some.
type NoLabels = [(&'static str, &'static str); 0];

impl Samples {
    fn whole(&mut self, labels: &[&str], value: u64) {
        self.push(labels, Value::Whole(value));
    }

    /// Adds a figure; one that was not measured, or is not finite, is left out.
    fn real(&mut self, labels: &[&str], value: impl Into<Option<f64>>) {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            self.push(labels, Value::Real(value));
        }
    }

    fn push(&mut self, labels: &[&str], value: Value) {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        self.0.push((labels, value));
    }
}

impl Metric {
    /// Its full name in the text, with `_info` for an info and `_total` for a counter.
    pub fn name(&self) -> String {
        let mut name = format!("numaherd_{}", self.name);
        if let Some(unit) = self.unit {
            name.push('_');
            name += unit;
        }
        name += match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        name
    }

    fn encode(&self, samples: &Samples, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if samples.0.is_empty() {
            return Ok(());
        }
        let unit = self.unit.map(|unit| Unit::Other(unit.to_owned()));
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Info => MetricType::Info,
            Kind::Histogram => MetricType::Histogram,
        };
        let name = format!("numaherd_{}", self.name);
        let mut encoder = encoder.encode_descriptor(&name, self.help, unit.as_ref(), kind)?;
        for (values, value) in &samples.0 {
            debug_assert_eq!(values.len(), self.labels.len(), "{name}");
            let names = self.labels.iter().copied();
            let labels: Vec<(&str, &str)> = names.zip(values.iter().map(String::as_str)).collect();
            if self.kind == Kind::Info {
                encoder.encode_info(&labels)?;
            } else if labels.is_empty() {
                self.encode_value(*value, &mut encoder)?;
            } else {
                self.encode_value(*value, &mut encoder.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn encode_value(&self, value: Value, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        let is_counter = self.kind == Kind::Counter;
        match value {
            Value::Whole(value) if is_counter => {
                encoder.encode_counter::<NoLabels, _, f64>(&value, None)
            }
            Value::Real(value) if is_counter => {
                encoder.encode_counter::<NoLabels, _, f64>(&value, None)
            }
            // Prometheus keeps doubles, whatever is written.
            Value::Whole(value) => encoder.encode_gauge(&(value as f64)),
            Value::Real(value) => encoder.encode_gauge(&value),
            Value::Late(late) => {
                let bounds = LATENESS_BOUNDS_S.into_iter().chain([f64::INFINITY]);
                let buckets: Vec<(f64, u64)> = bounds.zip(late.counts).collect();
                encoder.encode_histogram::<NoLabels>(late.sum_s, late.intervals, &buckets, None)
            }
        }
    }
}

impl fmt::Debug for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// The samples of all metrics, in the order of [`METRICS`].
#[derive(Debug)]
struct Drawn(Vec<Samples>);

impl Collector for Drawn {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut each = METRICS.iter().zip(&self.0);
        each.try_for_each(|(metric, samples)| metric.encode(samples, &mut encoder))
    }
}

/// All metrics as OpenMetrics text, to be sent as [`CONTENT_TYPE`].
pub fn text(view: View<'_>) -> String {
    let draw = |metric: &Metric| {
        let mut samples = Samples::default();
        (metric.draw)(view, &mut samples);
        samples
    };
    let drawn = Drawn(METRICS.iter().map(draw).collect());
    let mut registry = Registry::default();
    registry.register_collector(Box::new(drawn));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes whatever is written");
    text
}
