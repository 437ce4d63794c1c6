//! The result of a bench as a document: `livetime.bench/1`.
//!
//! Five objects: the machine, its floor, the result, ratios of the two, and the targets with what
//! was reached. Numbers that could not be measured are null, never left out. Every latency has the
//! same members, made by [`latency`]; pages for people are made from the JSON in
//! [`crate::bench::page`].

use livetime_shm::floor::Samples;
use serde_json::{Map, Value, json};

/// Name of the format.
pub const SCHEMA: &str = "livetime.bench/1";
/// Bins of a latency histogram per factor of ten.
const BINS_PER_DECADE: f64 = 10.0;

/// On which side of the target a value has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// At least the target.
    AtLeast,
    /// At most the target.
    AtMost,
}

/// A figure that the project has set itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Name within its bench.
    pub name: String,
    /// What was reached; not finite where nothing could be measured.
    pub value: f64,
    /// What was to be reached.
    pub target: f64,
    /// On which side.
    pub bound: Bound,
}

impl Target {
    /// A value that must be at least `target`.
    pub fn at_least(name: impl Into<String>, value: f64, target: f64) -> Self {
        Self {
            name: name.into(),
            value,
            target,
            bound: Bound::AtLeast,
        }
    }

    /// A value that must be at most `target`.
    pub fn at_most(name: impl Into<String>, value: f64, target: f64) -> Self {
        Self {
            name: name.into(),
            value,
            target,
            bound: Bound::AtMost,
        }
    }

    /// Whether it is reached; never without a measured value.
    pub fn is_met(&self) -> bool {
        self.value.is_finite()
            && match self.bound {
                Bound::AtLeast => self.value >= self.target,
                Bound::AtMost => self.value <= self.target,
            }
    }

    fn to_json(&self) -> Value {
        let bound = match self.bound {
            Bound::AtLeast => "at_least",
            Bound::AtMost => "at_most",
        };
        json!({
            "value": rounded(self.value),
            "target": self.target,
            "bound": bound,
            "met": self.is_met(),
        })
    }
}

/// What one bench found.
#[derive(Debug, Clone, Default)]
pub struct BenchDocument {
    /// Which bench.
    pub bench: String,
    /// The machine and how it was used.
    pub machine: Value,
    /// What the bare machine did meanwhile.
    pub floor: Map<String, Value>,
    /// What was measured.
    pub result: Map<String, Value>,
    /// Results as multiples of floors.
    pub ratio: Map<String, Value>,
    /// The targets.
    pub targets: Vec<Target>,
}

impl BenchDocument {
    /// An empty document.
    pub fn new(bench: &str) -> Self {
        Self {
            bench: bench.to_owned(),
            ..Self::default()
        }
    }

    /// Adds a fact about the machine.
    pub fn add_machine(&mut self, key: &str, value: impl Into<Value>) {
        if let Value::Object(machine) = &mut self.machine {
            machine.insert(key.to_owned(), value.into());
        }
    }

    /// Adds a result.
    pub fn add_result(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.result.insert(key.into(), value.into());
    }

    /// Adds a floor.
    pub fn add_floor(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.floor.insert(key.into(), value.into());
    }

    /// Adds a ratio; one that is not finite becomes null.
    pub fn add_ratio(&mut self, key: impl Into<String>, value: f64) {
        self.ratio.insert(key.into(), rounded(value));
    }

    /// Adds a ratio that has a target.
    pub fn add_target(&mut self, target: Target) {
        self.targets.push(target);
    }

    /// The document.
    pub fn to_json(&self) -> Value {
        let targets: Map<String, Value> = self
            .targets
            .iter()
            .map(|target| (target.name.clone(), target.to_json()))
            .collect();
        json!({
            "schema": SCHEMA,
            "bench": self.bench,
            "machine": self.machine,
            "floor": self.floor,
            "result": self.result,
            "ratio": self.ratio,
            "targets": targets,
        })
    }

    /// One document for several: the same members, one level deeper by the name of the bench, and
    /// the targets as `bench.name`.
    pub fn of_all(documents: &[Self]) -> Value {
        let by_bench = |member: fn(&Self) -> &Map<String, Value>| -> Map<String, Value> {
            let entry = |document: &Self| (document.bench.clone(), member(document).clone().into());
            documents.iter().map(entry).collect()
        };
        let machine: Map<String, Value> = documents
            .iter()
            .map(|document| (document.bench.clone(), document.machine.clone()))
            .collect();
        let targets: Map<String, Value> = documents
            .iter()
            .flat_map(|document| {
                let name = |target: &Target| format!("{}.{}", document.bench, target.name);
                document
                    .targets
                    .iter()
                    .map(move |target| (name(target), target.to_json()))
            })
            .collect();
        json!({
            "schema": SCHEMA,
            "bench": "all",
            "machine": machine,
            "floor": by_bench(|document| &document.floor),
            "result": by_bench(|document| &document.result),
            "ratio": by_bench(|document| &document.ratio),
            "targets": targets,
        })
    }
}

/// A number with four digits after the first, as nothing here is known better; null if not finite.
pub fn rounded(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    if value == 0.0 {
        return json!(0.0);
    }
    let digits = (4 - value.abs().log10().floor() as i32).clamp(0, 15);
    let scale = 10f64.powi(digits);
    json!((value * scale).round() / scale)
}

/// Latencies in nanoseconds: their quantiles, and a histogram of ten bins per decade in which bin
/// `i` counts from `edges_ns[i]` on.
pub fn latency(samples: &Samples) -> Value {
    json!({
        "count": samples.count(),
        "min": samples.min(),
        "mean": rounded(samples.mean()),
        "p50": samples.p50(),
        "p90": samples.p90(),
        "p99": samples.p99(),
        "p99_9": samples.p99_9(),
        "p99_99": samples.p99_99(),
        "max": samples.max(),
        "histogram": histogram(samples.sorted_ns()),
    })
}

fn histogram(sorted_ns: &[u64]) -> Value {
    let bin_of = |ns: u64| (ns.max(1) as f64).log10() * BINS_PER_DECADE;
    let (Some(first), Some(last)) = (sorted_ns.first(), sorted_ns.last()) else {
        return json!({ "edges_ns": [], "counts": [] });
    };
    let (low, high) = (bin_of(*first).floor() as i32, bin_of(*last).floor() as i32);
    let edge = |bin: i32| 10f64.powf(f64::from(bin) / BINS_PER_DECADE);
    let mut edges = Vec::new();
    let mut counts = Vec::new();
    for bin in low..=high {
        let below = |limit: f64| sorted_ns.partition_point(|ns| (*ns as f64) < limit);
        // The first bin takes what its own edge, once rounded, would leave out.
        let from = if bin == low { 0 } else { below(edge(bin)) };
        let until = if bin == high {
            sorted_ns.len()
        } else {
            below(edge(bin + 1))
        };
        edges.push(rounded(edge(bin)));
        counts.push(until - from);
    }
    json!({ "edges_ns": edges, "counts": counts })
}

/// Times per item of blocks \[ns\], with the rate that their median means.
pub fn time_per_item(ns: &[f64]) -> Value {
    json!({
        "blocks": ns.len(),
        "min": rounded(quantile(ns, 0.0)),
        "p50": rounded(quantile(ns, 0.5)),
        "p90": rounded(quantile(ns, 0.9)),
        "p99": rounded(quantile(ns, 0.99)),
        "p99_9": rounded(quantile(ns, 0.999)),
        "max": rounded(quantile(ns, 1.0)),
        "per_s_at_p50": rounded(1e9 / quantile(ns, 0.5)),
    })
}

/// The smallest value such that a share of at least `fraction` is not above it; NaN of nothing.
pub fn quantile(values: &[f64], fraction: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (fraction * sorted.len() as f64).ceil() as usize;
    match sorted.len() {
        0 => f64::NAN,
        count => sorted[rank.clamp(1, count) - 1],
    }
}

/// The median; NaN of nothing.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_met_on_their_side_only_and_never_without_a_value() {
        assert!(Target::at_least("a", 2.0, 2.0).is_met());
        assert!(!Target::at_least("a", 1.9, 2.0).is_met());
        assert!(Target::at_most("a", 2.0, 2.0).is_met());
        assert!(!Target::at_most("a", 2.1, 2.0).is_met());
        assert!(!Target::at_most("a", f64::NAN, 2.0).is_met());
        let unknown = Target::at_least("a", f64::NAN, 2.0).to_json();
        assert_eq!(unknown["value"], Value::Null);
        assert_eq!(unknown["met"], json!(false));
    }

    #[test]
    fn document_has_the_members_of_the_schema_alone_and_together() {
        let mut ring = BenchDocument::new("ring");
        ring.machine = json!({});
        ring.add_machine("cores", 2);
        ring.add_floor("line", 3);
        ring.add_result("one_way", 4);
        ring.add_ratio("way", 1.234_56);
        ring.add_target(Target::at_most("way", 1.234_56, 1.3));
        let alone = ring.to_json();
        let mut members: Vec<&String> = alone.as_object().unwrap().keys().collect();
        members.sort();
        let expected = [
            "bench", "floor", "machine", "ratio", "result", "schema", "targets",
        ];
        assert_eq!(members, expected);
        assert_eq!(alone["targets"]["way"]["value"], json!(1.2346));
        let all = BenchDocument::of_all(&[ring, BenchDocument::new("loop")]);
        assert_eq!(all["bench"], "all");
        assert_eq!(all["targets"]["ring.way"]["met"], json!(true));
        assert_eq!(all["floor"]["ring"]["line"], 3);
        assert_eq!(all["machine"]["ring"]["cores"], 2);
    }

    #[test]
    fn numbers_keep_five_digits() {
        assert_eq!(rounded(1_234_567.8), json!(1_234_568.0));
        assert_eq!(rounded(0.000_123_456_7), json!(0.000_123_46));
        assert_eq!(rounded(f64::INFINITY), Value::Null);
        assert_eq!(rounded(0.0), json!(0.0));
    }

    #[test]
    fn histogram_holds_every_sample_once() {
        let samples = Samples::from_unsorted((0..1000).map(|i| i * i).collect());
        let latency = latency(&samples);
        let counts = latency["histogram"]["counts"].as_array().unwrap();
        let sum: u64 = counts.iter().filter_map(Value::as_u64).sum();
        assert_eq!(sum, 1000);
        let edges = latency["histogram"]["edges_ns"].as_array().unwrap();
        assert_eq!(edges.len(), counts.len());
        assert!(
            edges
                .windows(2)
                .all(|pair| pair[0].as_f64() < pair[1].as_f64())
        );
        let none = super::latency(&Samples::from_unsorted(Vec::new()));
        assert_eq!(none["histogram"]["counts"], json!([]));
    }

    #[test]
    fn quantiles_of_blocks() {
        let values = [3.0, 1.0, 2.0, 4.0];
        assert_eq!((quantile(&values, 0.0), quantile(&values, 1.0)), (1.0, 4.0));
        assert_eq!(median(&values), 2.0);
        assert!(median(&[]).is_nan());
        assert_eq!(time_per_item(&values)["per_s_at_p50"], json!(500_000_000.0));
    }
}
