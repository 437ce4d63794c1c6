//! The result of a bench as a document: `livetime.bench/1`.
//!
//! The machine, its floor, the result, ratios with the two figures that each is of, and the targets
//! with what was reached. Numbers that could not be measured are null, never left out. Latencies are
//! made by [`latency`]; pages for people are made from the JSON in [`crate::bench::page`], and
//! [`crate::bench::kept_document`] looks at one that was kept.

use livetime_shm::floor::Samples;
use serde_json::{Map, Value, json};

use super::interleave::LIKE_FLOORS;

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

/// What became of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was reached.
    Met,
    /// It was not.
    NotMet,
    /// The measurement does not say, for this reason.
    NotJudged(&'static str),
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
    /// Whether the floors around its blocks agreed.
    pub floors_agree: bool,
    /// Whether the value is a latency by its floor, which nothing real is below.
    pub is_by_floor: bool,
}

impl Target {
    /// A value that must be at least `target`.
    pub fn at_least(name: impl Into<String>, value: f64, target: f64) -> Self {
        Self {
            name: name.into(),
            value,
            target,
            bound: Bound::AtLeast,
            floors_agree: true,
            is_by_floor: false,
        }
    }

    /// A value that must be at most `target`.
    pub fn at_most(name: impl Into<String>, value: f64, target: f64) -> Self {
        Self {
            name: name.into(),
            value,
            target,
            bound: Bound::AtMost,
            floors_agree: true,
            is_by_floor: false,
        }
    }

    /// A latency by its floor that must be at most `target`.
    pub fn by_floor(name: impl Into<String>, value: f64, target: f64) -> Self {
        Self {
            is_by_floor: true,
            ..Self::at_most(name, value, target)
        }
    }

    /// The same, judged only where the floors around its blocks agreed.
    pub fn where_floors_agree(self, floors_agree: bool) -> Self {
        Self {
            floors_agree,
            ..self
        }
    }

    /// What became of it, by the value as it is printed.
    pub fn verdict(&self) -> Verdict {
        let Some(value) = rounded(self.value).as_f64() else {
            return Verdict::NotJudged("not measured");
        };
        if !self.floors_agree {
            return Verdict::NotJudged("no two floors agreed");
        }
        // Floors that agree may differ by so much.
        if self.is_by_floor && value < 1.0 / LIKE_FLOORS {
            return Verdict::NotJudged("below its floor");
        }
        match self.bound {
            Bound::AtLeast if value >= self.target => Verdict::Met,
            Bound::AtMost if value <= self.target => Verdict::Met,
            _ => Verdict::NotMet,
        }
    }

    /// Whether it is reached; never without a measured value.
    pub fn is_met(&self) -> bool {
        self.verdict() == Verdict::Met
    }

    fn to_json(&self) -> Value {
        let bound = match self.bound {
            Bound::AtLeast => "at_least",
            Bound::AtMost => "at_most",
        };
        let verdict = self.verdict();
        let mut target = json!({
            "value": rounded(self.value),
            "target": self.target,
            "bound": bound,
            "met": verdict == Verdict::Met,
        });
        if let Verdict::NotJudged(why) = verdict {
            target["met"] = Value::Null;
            target["not_judged"] = why.into();
        }
        target
    }
}

/// Two figures of the same block, and with them what the first is of the second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quotient {
    /// What is divided.
    pub over: f64,
    /// By what.
    pub under: f64,
}

impl Quotient {
    /// The ratio.
    pub fn value(self) -> f64 {
        self.over / self.under
    }

    /// The one with the median ratio, of two in the middle the lower; NaN of nothing.
    pub fn median(mut all: Vec<Self>) -> Self {
        all.sort_by(|a, b| a.value().total_cmp(&b.value()));
        let middle = all.len().saturating_sub(1) / 2;
        all.get(middle).copied().unwrap_or(Self {
            over: f64::NAN,
            under: f64::NAN,
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
    /// The two figures of a ratio, where it is that of one block.
    pub ratio_of: Map<String, Value>,
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

    /// Adds a ratio with its two figures.
    pub fn add_quotient(&mut self, key: impl Into<String>, quotient: Quotient) {
        let key = key.into();
        let Quotient { over, under } = quotient;
        let figures = json!({ "over": rounded(over), "under": rounded(under) });
        self.ratio_of.insert(key.clone(), figures);
        self.add_ratio(key, quotient.value());
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
            "ratio_of": self.ratio_of,
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
            "ratio_of": by_bench(|document| &document.ratio_of),
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
        assert_eq!(unknown["met"], Value::Null);
        assert_eq!(unknown["not_judged"], "not measured");
    }

    #[test]
    fn a_target_is_judged_only_by_a_value_that_can_be_true_and_floors_that_agree() {
        let by_floor = |value| Target::by_floor("a", value, 1.5);
        assert_eq!(by_floor(0.8).verdict(), Verdict::Met);
        assert_eq!(by_floor(1.6).verdict(), Verdict::NotMet);
        let below = Verdict::NotJudged("below its floor");
        assert_eq!(by_floor(0.79).verdict(), below);
        assert!(Target::at_most("a", 0.79, 1.5).is_met());
        for value in [0.5, 1.0, 2.0] {
            let moved = by_floor(value).where_floors_agree(false);
            assert_eq!(moved.verdict(), Verdict::NotJudged("no two floors agreed"));
            assert_eq!(moved.to_json()["met"], Value::Null);
            assert!(!moved.is_met());
        }
        // As it is printed: 1.3.
        assert!(Target::at_most("a", 1.300_004, 1.3).is_met());
    }

    #[test]
    fn a_ratio_is_that_of_the_two_figures_beside_it() {
        let of = |over, under| Quotient { over, under };
        let blocks = vec![of(30.0, 10.0), of(1.0, 4.0), of(9.0, 9.0), of(8.0, 2.0)];
        let median = Quotient::median(blocks);
        assert_eq!(median, of(9.0, 9.0), "of 0.25, 1, 3 and 4");
        assert!(Quotient::median(Vec::new()).value().is_nan());
        let mut document = BenchDocument::new("ring");
        document.add_quotient("gain", of(30.0, 8.0));
        let document = document.to_json();
        assert_eq!(document["ratio"]["gain"], json!(3.75));
        let figures = json!({ "over": 30.0, "under": 8.0 });
        assert_eq!(document["ratio_of"]["gain"], figures);
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
            "bench", "floor", "machine", "ratio", "ratio_of", "result", "schema", "targets",
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
