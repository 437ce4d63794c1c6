//! Histograms in UHI form: filled without allocation, merged, written as JSON that `uhi`, `hist`
//! and `boost-histogram` read.
//!
//! The JSON follows `uhi_schema` 1, checked against `uhi` 1.2.1; a document is a dictionary of
//! histograms by name. UHI has no logarithmic axis: one is written as variable edges with
//! `"scale": "log"` in its metadata and comes back as what it was. Bin numbers count from the
//! underflow, so bin 0 is the underflow, 1 the first bin and `bins + 1` the overflow; the bins of
//! several axes lie in row-major order, the last axis fastest. Drawing is not done here. The
//! document is described in `docs/formats/histogram.md`.

use serde_json::{Map, Value, json};

/// Version of the UHI schema that is written.
pub const UHI_SCHEMA: u64 = 1;
/// Most bins of one histogram, flow bins included.
pub const BINS_MAX: usize = 1 << 24;

/// How an axis is divided.
#[derive(Debug, Clone, PartialEq)]
enum Binning {
    /// Equal widths.
    Regular { lower: f64, upper: f64, bins: usize },
    /// Edges, rising; `log` if they were made with equal ratios.
    Variable { edges: Vec<f64>, log: bool },
}

/// One axis of a histogram, with an underflow and an overflow bin.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    title: String,
    unit: String,
    binning: Binning,
}

/// Why a histogram cannot be made, merged or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistogramError {
    /// The edges of an axis do not rise, are not finite, or (logarithmic) not positive.
    #[error("edges of the axis do not rise or are not finite")]
    Edges,
    /// More bins than allowed.
    #[error("more than {BINS_MAX} bins")]
    TooManyBins,
    /// The two histograms differ in axes or storage.
    #[error("histograms differ in their axes or storage")]
    Mismatch,
    /// The JSON is not a histogram of the form that this version reads.
    #[error("not a UHI histogram of schema {UHI_SCHEMA} with regular or variable axes: {what}")]
    Json {
        /// The part that is missing or wrong.
        what: &'static str,
    },
}

impl Axis {
    /// An axis of `bins` bins of equal width from `lower` to `upper`.
    ///
    /// # Errors
    /// [`HistogramError`] for edges that do not rise and for too many bins.
    pub fn regular(
        title: &str,
        unit: &str,
        bins: usize,
        lower: f64,
        upper: f64,
    ) -> Result<Self, HistogramError> {
        let rising = lower < upper && lower.is_finite() && upper.is_finite();
        if !rising || bins == 0 {
            return Err(HistogramError::Edges);
        }
        if bins > BINS_MAX - 2 {
            return Err(HistogramError::TooManyBins);
        }
        let binning = Binning::Regular { lower, upper, bins };
        Ok(Self {
            title: title.to_owned(),
            unit: unit.to_owned(),
            binning,
        })
    }

    /// An axis of `bins` bins of equal ratio from `lower` to `upper`, both above 0.
    ///
    /// # Errors
    /// [`HistogramError`] for edges that do not rise or are not positive and for too many bins.
    pub fn log(
        title: &str,
        unit: &str,
        bins: usize,
        lower: f64,
        upper: f64,
    ) -> Result<Self, HistogramError> {
        if bins > BINS_MAX - 2 {
            return Err(HistogramError::TooManyBins);
        }
        if lower.is_nan() || lower <= 0.0 || bins == 0 {
            return Err(HistogramError::Edges);
        }
        let step = (upper / lower).ln() / bins as f64;
        let mut edges: Vec<f64> = (0..bins).map(|i| lower * (i as f64 * step).exp()).collect();
        edges.push(upper);
        Self::with_edges(title, unit, edges, true)
    }

    /// An axis with these edges.
    ///
    /// # Errors
    /// [`HistogramError`] for edges that do not rise and for too many bins.
    pub fn variable(title: &str, unit: &str, edges: Vec<f64>) -> Result<Self, HistogramError> {
        Self::with_edges(title, unit, edges, false)
    }

    fn with_edges(
        title: &str,
        unit: &str,
        edges: Vec<f64>,
        log: bool,
    ) -> Result<Self, HistogramError> {
        let rising = edges.windows(2).all(|pair| pair[0] < pair[1]);
        if edges.len() < 2 || !rising || !edges.iter().all(|edge| edge.is_finite()) {
            return Err(HistogramError::Edges);
        }
        if edges.len() > BINS_MAX - 1 {
            return Err(HistogramError::TooManyBins);
        }
        let binning = Binning::Variable { edges, log };
        Ok(Self {
            title: title.to_owned(),
            unit: unit.to_owned(),
            binning,
        })
    }

    /// What is counted along the axis.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Its unit, empty for none.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// Title and unit as an axis of a plot shows them: `title [unit]`.
    pub fn label(&self) -> String {
        match self.unit.as_str() {
            "" => self.title.clone(),
            unit => format!("{} [{unit}]", self.title),
        }
    }

    /// Number of bins without the flow bins.
    pub fn bins(&self) -> usize {
        match &self.binning {
            Binning::Regular { bins, .. } => *bins,
            Binning::Variable { edges, .. } => edges.len() - 1,
        }
    }

    /// Whether the bins have equal ratios.
    pub fn is_log(&self) -> bool {
        matches!(self.binning, Binning::Variable { log: true, .. })
    }

    /// Edge `i`: the lower edge of bin `i + 1`, the upper edge of bin `i`.
    ///
    /// # Panics
    /// If `i` is above [`Axis::bins`].
    pub fn edge(&self, i: usize) -> f64 {
        match &self.binning {
            Binning::Regular { lower, upper, bins } => {
                assert!(i <= *bins);
                let share = i as f64 / *bins as f64;
                lower * (1.0 - share) + upper * share
            }
            Binning::Variable { edges, .. } => edges[i],
        }
    }

    /// The bin that a value falls into: lower edges belong to their bin, NaN to the overflow.
    pub fn bin_of(&self, value: f64) -> usize {
        match &self.binning {
            Binning::Regular { lower, upper, bins } => {
                // The formula of boost-histogram, so that other programs find the same bin.
                let position = (value - lower) / (upper - lower);
                if position < 0.0 {
                    0
                } else if position < 1.0 {
                    // Rounding may yield `bins`; the value is below the upper edge all the same.
                    1 + ((position * *bins as f64) as usize).min(bins - 1)
                } else {
                    bins + 1
                }
            }
            Binning::Variable { edges, .. } if value.is_nan() => edges.len(),
            Binning::Variable { edges, .. } => edges.partition_point(|edge| *edge <= value),
        }
    }

    fn to_json(&self) -> Value {
        let mut metadata = json!({ "title": self.title, "unit": self.unit, "label": self.label() });
        let mut axis = match &self.binning {
            Binning::Regular { lower, upper, bins } => {
                json!({ "type": "regular", "lower": lower, "upper": upper, "bins": bins })
            }
            Binning::Variable { edges, log } => {
                if *log {
                    metadata["scale"] = json!("log");
                }
                json!({ "type": "variable", "edges": edges })
            }
        };
        for (key, value) in [("underflow", true), ("overflow", true), ("circular", false)] {
            axis[key] = json!(value);
        }
        axis["metadata"] = metadata;
        axis
    }

    fn from_json(json: &Value) -> Result<Self, HistogramError> {
        let wrong = |what| HistogramError::Json { what };
        let flags = [("underflow", true), ("overflow", true), ("circular", false)];
        if flags.iter().any(|(key, value)| json[key] != json!(value)) {
            return Err(wrong("flow bins"));
        }
        let metadata = &json["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default();
        let number = |key: &str| json[key].as_f64().ok_or(wrong("axis"));
        match json["type"].as_str() {
            Some("regular") => {
                let bins = json["bins"].as_u64().ok_or(wrong("axis"))?;
                let bins = usize::try_from(bins).map_err(|_| HistogramError::TooManyBins)?;
                let (lower, upper) = (number("lower")?, number("upper")?);
                Self::regular(text("title"), text("unit"), bins, lower, upper)
            }
            Some("variable") => {
                let edges = json["edges"].as_array().ok_or(wrong("edges"))?;
                let edges: Option<Vec<f64>> = edges.iter().map(Value::as_f64).collect();
                let log = metadata["scale"] == json!("log");
                Self::with_edges(
                    text("title"),
                    text("unit"),
                    edges.ok_or(wrong("edges"))?,
                    log,
                )
            }
            _ => Err(wrong("type of the axis")),
        }
    }
}

/// What a bin holds.
#[derive(Debug, Clone, PartialEq)]
enum Storage {
    /// Number of entries.
    Count(Vec<u64>),
    /// Sum of weights and sum of their squares.
    Weighted {
        values: Vec<f64>,
        variances: Vec<f64>,
    },
}

/// A histogram with one or more axes.
///
/// ```
/// use livetime_store::{Axis, Histogram};
/// let mass = Axis::regular("dimuon mass", "GeV", 60, 60.0, 120.0)?;
/// let mut histogram = Histogram::counting("dimuon_mass", vec![mass])?;
/// histogram.fill(&[91.2]);
/// assert_eq!(histogram.count(32), 1.0);
/// # Ok::<(), livetime_store::histogram::HistogramError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    name: String,
    axes: Vec<Axis>,
    storage: Storage,
}

impl Histogram {
    /// An empty histogram that counts entries.
    ///
    /// # Errors
    /// [`HistogramError::TooManyBins`].
    pub fn counting(name: &str, axes: Vec<Axis>) -> Result<Self, HistogramError> {
        let bins = total_bins(&axes)?;
        Ok(Self {
            name: name.to_owned(),
            axes,
            storage: Storage::Count(vec![0; bins]),
        })
    }

    /// An empty histogram that sums weights and their squares.
    ///
    /// # Errors
    /// [`HistogramError::TooManyBins`].
    pub fn weighted(name: &str, axes: Vec<Axis>) -> Result<Self, HistogramError> {
        let bins = total_bins(&axes)?;
        let storage = Storage::Weighted {
            values: vec![0.0; bins],
            variances: vec![0.0; bins],
        };
        Ok(Self {
            name: name.to_owned(),
            axes,
            storage,
        })
    }

    /// Its name, the key in documents.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its axes.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Adds one entry, with one value for each axis.
    ///
    /// # Panics
    /// If there are not as many values as axes.
    pub fn fill(&mut self, values: &[f64]) {
        self.fill_many(values, 1);
    }

    /// Adds `entries` equal entries.
    ///
    /// # Panics
    /// If there are not as many values as axes.
    pub fn fill_many(&mut self, values: &[f64], entries: u64) {
        self.add_to_bin(self.bin_of(values), entries);
    }

    /// Adds equal entries to a bin that the caller has found, flow bins counted, as
    /// [`Histogram::bin_of`] gives it.
    ///
    /// # Panics
    /// If there is no such bin.
    pub fn add_to_bin(&mut self, bin: usize, entries: u64) {
        match &mut self.storage {
            Storage::Count(counts) => counts[bin] += entries,
            Storage::Weighted { values, variances } => {
                values[bin] += entries as f64;
                variances[bin] += entries as f64;
            }
        }
    }

    /// Adds one entry with a weight; a histogram that counts takes it as weight 1.
    ///
    /// # Panics
    /// If there are not as many values as axes, or the weight is not finite.
    pub fn fill_weighted(&mut self, values: &[f64], weight: f64) {
        assert!(
            weight.is_finite(),
            "one weight without value would spoil the sum"
        );
        let bin = self.bin_of(values);
        match &mut self.storage {
            Storage::Count(counts) => counts[bin] += 1,
            Storage::Weighted { values, variances } => {
                values[bin] += weight;
                variances[bin] += weight * weight;
            }
        }
    }

    /// The number of the bin, over all axes, that values fall into.
    ///
    /// # Panics
    /// If there are not as many values as axes.
    pub fn bin_of(&self, values: &[f64]) -> usize {
        assert_eq!(values.len(), self.axes.len(), "one value for each axis");
        let pairs = self.axes.iter().zip(values);
        pairs.fold(0, |bin, (axis, value)| {
            bin * (axis.bins() + 2) + axis.bin_of(*value)
        })
    }

    /// Number of bins over all axes, flow bins included.
    pub fn bins(&self) -> usize {
        match &self.storage {
            Storage::Count(counts) => counts.len(),
            Storage::Weighted { values, .. } => values.len(),
        }
    }

    /// Entries, or sum of weights, in a bin.
    ///
    /// # Panics
    /// If `bin` is not below [`Histogram::bins`].
    pub fn count(&self, bin: usize) -> f64 {
        match &self.storage {
            Storage::Count(counts) => counts[bin] as f64,
            Storage::Weighted { values, .. } => values[bin],
        }
    }

    /// Variance of [`Histogram::count`].
    ///
    /// # Panics
    /// If `bin` is not below [`Histogram::bins`].
    pub fn variance(&self, bin: usize) -> f64 {
        match &self.storage {
            Storage::Count(counts) => counts[bin] as f64,
            Storage::Weighted { variances, .. } => variances[bin],
        }
    }

    /// Sum over all bins, flow bins included.
    pub fn total(&self) -> f64 {
        (0..self.bins()).map(|bin| self.count(bin)).sum()
    }

    /// Mean along the only axis, from the centres of the bins without the flow bins; `None` for an
    /// empty histogram or more axes.
    pub fn mean(&self) -> Option<f64> {
        let [axis] = &self.axes[..] else { return None };
        let centre = |i: usize| 0.5 * (axis.edge(i) + axis.edge(i + 1));
        let entries: f64 = (1..=axis.bins()).map(|bin| self.count(bin)).sum();
        let sum: f64 = (0..axis.bins())
            .map(|i| self.count(i + 1) * centre(i))
            .sum();
        (entries != 0.0).then(|| sum / entries)
    }

    /// Adds the entries of a histogram with the same axes and storage.
    ///
    /// # Errors
    /// [`HistogramError::Mismatch`] if they differ; nothing is changed then.
    pub fn merge(&mut self, other: &Self) -> Result<(), HistogramError> {
        if self.axes != other.axes {
            return Err(HistogramError::Mismatch);
        }
        match (&mut self.storage, &other.storage) {
            (Storage::Count(mine), Storage::Count(theirs)) => {
                mine.iter_mut()
                    .zip(theirs)
                    .for_each(|(mine, theirs)| *mine += theirs);
            }
            (
                Storage::Weighted { values, variances },
                Storage::Weighted {
                    values: their_values,
                    variances: their_variances,
                },
            ) => {
                values
                    .iter_mut()
                    .zip(their_values)
                    .for_each(|(mine, theirs)| *mine += theirs);
                let pairs = variances.iter_mut().zip(their_variances);
                pairs.for_each(|(mine, theirs)| *mine += theirs);
            }
            _ => return Err(HistogramError::Mismatch),
        }
        Ok(())
    }

    /// Empties every bin.
    pub fn clear(&mut self) {
        match &mut self.storage {
            Storage::Count(counts) => counts.fill(0),
            Storage::Weighted { values, variances } => {
                values.fill(0.0);
                variances.fill(0.0);
            }
        }
    }

    /// The histogram in UHI form.
    pub fn to_json(&self) -> Value {
        let storage = match &self.storage {
            Storage::Count(counts) => {
                json!({ "type": "int", "values": nested(&self.axes, counts) })
            }
            Storage::Weighted { values, variances } => json!({
                "type": "weighted",
                "values": nested(&self.axes, values),
                "variances": nested(&self.axes, variances),
            }),
        };
        json!({
            "uhi_schema": UHI_SCHEMA,
            "writer_info": { "livetime": { "histogram_format": 1 } },
            "metadata": { "name": self.name },
            "axes": self.axes.iter().map(Axis::to_json).collect::<Vec<_>>(),
            "storage": storage,
        })
    }

    /// Reads a histogram in UHI form: regular and variable axes with flow bins, storage `int`,
    /// `double` or `weighted`, dense and inline.
    ///
    /// # Errors
    /// [`HistogramError`] that names what is not of that form.
    pub fn from_json(name: &str, json: &Value) -> Result<Self, HistogramError> {
        let wrong = |what| HistogramError::Json { what };
        if json["uhi_schema"].as_u64() != Some(UHI_SCHEMA) {
            return Err(wrong("uhi_schema"));
        }
        let axes = json["axes"].as_array().ok_or(wrong("axes"))?;
        let axes: Vec<Axis> = axes.iter().map(Axis::from_json).collect::<Result<_, _>>()?;
        let bins = total_bins(&axes)?;
        let storage = &json["storage"];
        let floats = |key: &'static str| {
            let mut out = Vec::new();
            flatten(&storage[key], &axes, &mut out, &Value::as_f64).ok_or(wrong(key))?;
            (out.len() == bins).then_some(out).ok_or(wrong(key))
        };
        let storage = match storage["type"].as_str() {
            Some("int") => {
                let mut counts = Vec::new();
                let read = flatten(&storage["values"], &axes, &mut counts, &Value::as_u64);
                if read.is_none() || counts.len() != bins {
                    return Err(wrong("values"));
                }
                Storage::Count(counts)
            }
            Some("double") => {
                let values = floats("values")?;
                Storage::Weighted {
                    variances: values.clone(),
                    values,
                }
            }
            Some("weighted") => Storage::Weighted {
                values: floats("values")?,
                variances: floats("variances")?,
            },
            _ => return Err(wrong("storage")),
        };
        Ok(Self {
            name: name.to_owned(),
            axes,
            storage,
        })
    }
}

/// Several histograms as one document: a dictionary by name.
pub fn histograms_to_json(histograms: &[Histogram]) -> Value {
    let entries = histograms
        .iter()
        .map(|histogram| (histogram.name.clone(), histogram.to_json()));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// Reads the document of [`histograms_to_json`], in the order of the names.
///
/// # Errors
/// As [`Histogram::from_json`].
pub fn histograms_from_json(json: &Value) -> Result<Vec<Histogram>, HistogramError> {
    let entries = json
        .as_object()
        .ok_or(HistogramError::Json { what: "dictionary" })?;
    entries
        .iter()
        .map(|(name, json)| Histogram::from_json(name, json))
        .collect()
}

fn total_bins(axes: &[Axis]) -> Result<usize, HistogramError> {
    let product = axes
        .iter()
        .try_fold(1usize, |product, axis| product.checked_mul(axis.bins() + 2));
    product
        .filter(|bins| *bins <= BINS_MAX)
        .ok_or(HistogramError::TooManyBins)
}

/// Nested arrays, one level for each axis.
fn nested<T: Copy + Into<Value>>(axes: &[Axis], bins: &[T]) -> Value {
    match axes {
        [] => bins[0].into(),
        [_] => Value::Array(bins.iter().map(|bin| (*bin).into()).collect()),
        [_, inner @ ..] => {
            let row: usize = inner.iter().map(|axis| axis.bins() + 2).product();
            Value::Array(
                bins.chunks_exact(row)
                    .map(|row| nested(inner, row))
                    .collect(),
            )
        }
    }
}

/// The reverse of [`nested`]; `None` if the levels do not fit the axes.
fn flatten<T>(
    json: &Value,
    axes: &[Axis],
    out: &mut Vec<T>,
    number: &dyn Fn(&Value) -> Option<T>,
) -> Option<()> {
    let [axis, inner @ ..] = axes else {
        out.push(number(json)?);
        return Some(());
    };
    let row = json.as_array().filter(|row| row.len() == axis.bins() + 2)?;
    row.iter()
        .try_for_each(|json| flatten(json, inner, out, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mass() -> Axis {
        Axis::regular("dimuon mass", "GeV", 3, 60.0, 120.0).unwrap()
    }

    fn latency() -> Axis {
        Axis::log("latency", "ns", 2, 1e3, 1e5).unwrap()
    }

    #[test]
    fn lower_edges_belong_to_their_bin_and_strange_values_to_the_flow() {
        for axis in [
            mass(),
            latency(),
            Axis::variable("x", "", vec![0.0, 1.0, 5.0]).unwrap(),
        ] {
            let bins = axis.bins();
            for i in 0..=bins {
                let edge = axis.edge(i);
                assert_eq!(axis.bin_of(edge), i + 1, "{axis:?} edge {i}");
                assert_eq!(axis.bin_of(edge.next_down()), i, "{axis:?} below edge {i}");
            }
            assert_eq!(axis.bin_of(f64::NEG_INFINITY), 0);
            assert_eq!(axis.bin_of(f64::INFINITY), bins + 1);
            assert_eq!(axis.bin_of(f64::NAN), bins + 1);
        }
        assert_eq!(latency().edge(1).round(), 1e4);
        assert_eq!(mass().label(), "dimuon mass [GeV]");
    }

    #[test]
    fn impossible_axes_are_refused() {
        assert_eq!(
            Axis::regular("", "", 3, 1.0, 1.0),
            Err(HistogramError::Edges)
        );
        assert_eq!(
            Axis::regular("", "", 0, 0.0, 1.0),
            Err(HistogramError::Edges)
        );
        assert_eq!(
            Axis::regular("", "", 3, 0.0, f64::NAN),
            Err(HistogramError::Edges)
        );
        assert_eq!(Axis::log("", "", 3, 0.0, 1.0), Err(HistogramError::Edges));
        assert_eq!(Axis::log("", "", 3, 2.0, 1.0), Err(HistogramError::Edges));
        assert_eq!(
            Axis::variable("", "", vec![1.0]),
            Err(HistogramError::Edges)
        );
        assert_eq!(
            Axis::regular("", "", BINS_MAX, 0.0, 1.0),
            Err(HistogramError::TooManyBins)
        );
        let wide = Axis::regular("", "", 10_000, 0.0, 1.0).unwrap();
        let cube = Histogram::counting("cube", vec![wide.clone(), wide]);
        assert_eq!(cube, Err(HistogramError::TooManyBins));
    }

    #[test]
    fn filling_merging_and_reading_back() {
        let mut counted = Histogram::counting("mass", vec![mass()]).unwrap();
        for value in [59.0, 60.0, 91.2, 91.2, 120.0] {
            counted.fill(&[value]);
        }
        let bins: Vec<f64> = (0..counted.bins()).map(|bin| counted.count(bin)).collect();
        assert_eq!(bins, [1.0, 1.0, 2.0, 0.0, 1.0]);
        assert_eq!(counted.total(), 5.0);
        assert_eq!(counted.mean(), Some((70.0 + 2.0 * 90.0) / 3.0));
        let mut twice = counted.clone();
        twice.merge(&counted).unwrap();
        assert_eq!(twice.count(2), 4.0);
        twice.clear();
        assert_eq!(twice.total(), 0.0);
        assert_eq!(twice.mean(), None);

        let mut plane = Histogram::weighted("plane", vec![mass(), latency()]).unwrap();
        plane.fill_weighted(&[91.2, 2e3], 0.5);
        plane.fill_many(&[91.2, 2e3], 2);
        assert_eq!(plane.bin_of(&[91.2, 2e3]), 2 * 4 + 1);
        assert_eq!((plane.count(9), plane.variance(9)), (2.5, 2.25));
        assert_eq!(plane.merge(&counted), Err(HistogramError::Mismatch));

        let document = histograms_to_json(&[counted.clone(), plane.clone()]);
        let text = document.to_string();
        let read = histograms_from_json(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(read, [counted, plane]);
    }

    #[test]
    fn foreign_json_is_refused_before_memory_is_taken() {
        let good = Histogram::counting("mass", vec![mass()]).unwrap().to_json();
        type Change = fn(&mut Value);
        let changes: [(&str, Change); 6] = [
            ("uhi_schema", |json| json["uhi_schema"] = json!(2)),
            ("values", |json| json["axes"][0]["bins"] = json!(16_000_000)),
            ("values", |json| json["storage"]["values"] = json!([1, 2])),
            ("values", |json| json["storage"]["values"][0] = json!(-1)),
            ("flow bins", |json| {
                json["axes"][0]["underflow"] = json!(false)
            }),
            ("type of the axis", |json| {
                json["axes"][0]["type"] = json!("boolean")
            }),
        ];
        for (what, change) in changes {
            let mut json = good.clone();
            change(&mut json);
            assert_eq!(
                Histogram::from_json("mass", &json),
                Err(HistogramError::Json { what })
            );
        }
        assert!(histograms_from_json(&json!([])).is_err());
    }
}
