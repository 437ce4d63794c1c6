//! Histograms that filters fill: what an interpreter sends of a batch, and the sum over all.
//!
//! A filter's histogram comes into being with its first fill. Fills count when the batch that they
//! belong to is judged, so that an event that failed is in none. How the sums of the units come
//! together is the business of those who have them.

use std::collections::{BTreeMap, BTreeSet};

use livetime_store::{Axis, Histogram};
use serde_json::Value;

/// Most histograms of one filter; further ones are refused and counted.
const HISTOGRAMS_MAX: usize = 256;

/// What a batch adds to one histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterFill {
    name: String,
    axis: Axis,
    /// Bins, flow bins included, and their entries.
    bins: Vec<(usize, u64)>,
}

impl FilterFill {
    /// Reads `[name, label, bins, lower, upper, [[bin, entries], ..]]`; `None` if it is not that.
    pub fn from_json(value: &Value) -> Option<Self> {
        let bins = usize::try_from(value[2].as_u64()?).ok()?;
        let (lower, upper) = (value[3].as_f64()?, value[4].as_f64()?);
        let (title, unit) = title_and_unit(value[1].as_str()?);
        let entry = |pair: &Value| {
            let bin = usize::try_from(pair[0].as_u64()?).ok()?;
            (bin < bins + 2).then_some((bin, pair[1].as_u64()?))
        };
        Some(Self {
            name: value[0].as_str()?.to_owned(),
            axis: Axis::regular(title, unit, bins, lower, upper).ok()?,
            bins: value[5]
                .as_array()?
                .iter()
                .map(entry)
                .collect::<Option<_>>()?,
        })
    }
}

/// `mass [GeV]` is a title with a unit.
fn title_and_unit(label: &str) -> (&str, &str) {
    match label
        .strip_suffix(']')
        .and_then(|label| label.rsplit_once(" ["))
    {
        Some(parts) => parts,
        None => (label, ""),
    }
}

/// Histograms by name.
#[derive(Debug, Clone, Default)]
pub struct FilterHistograms {
    by_name: BTreeMap<String, Histogram>,
    refused: u64,
    unlike: BTreeSet<String>,
}

impl FilterHistograms {
    /// Adds a fill; one with other bins than the first of its name is refused and counted.
    pub fn add(&mut self, fill: &FilterFill) {
        if !self.by_name.contains_key(&fill.name) {
            let made = Histogram::counting(&fill.name, vec![fill.axis.clone()]);
            match made {
                Ok(made) if self.by_name.len() < HISTOGRAMS_MAX => {
                    self.by_name.insert(fill.name.clone(), made);
                }
                _ => {
                    self.refused += 1;
                    return;
                }
            }
        }
        let Some(histogram) = self.by_name.get_mut(&fill.name) else {
            return;
        };
        if histogram.axes() != std::slice::from_ref(&fill.axis) {
            self.refused += 1;
            return;
        }
        for (bin, entries) in &fill.bins {
            histogram.add_to_bin(*bin, *entries);
        }
    }

    /// Adds the histograms of another unit; those with other bins are refused, counted and named.
    pub fn merge(&mut self, others: &[Histogram]) {
        for other in others {
            let Some(ours) = self.by_name.get_mut(other.name()) else {
                self.by_name.insert(other.name().to_owned(), other.clone());
                continue;
            };
            if ours.merge(other).is_err() {
                self.refused += 1;
                self.unlike.insert(other.name().to_owned());
            }
        }
    }

    /// Names of histograms to which units gave different bins, so that they are no sum over all.
    pub fn unlike(&self) -> impl Iterator<Item = &str> {
        self.unlike.iter().map(String::as_str)
    }

    /// All of them, by name.
    pub fn to_vec(&self) -> Vec<Histogram> {
        self.by_name.values().cloned().collect()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Fills and histograms that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fill(bins: u64, entries: &[[u64; 2]]) -> FilterFill {
        let value = json!(["mass", "mass [GeV]", bins, 60.0, 120.0, entries]);
        FilterFill::from_json(&value).expect("a fill")
    }

    #[test]
    fn fills_of_several_units_are_one_histogram() {
        let mut first = FilterHistograms::default();
        assert!(first.is_empty());
        first.add(&fill(3, &[[0, 1], [2, 5]]));
        first.add(&fill(3, &[[4, 2], [2, 1]]));
        let mut second = FilterHistograms::default();
        second.add(&fill(3, &[[3, 4]]));
        second.merge(&first.to_vec());
        let merged = second.to_vec();
        assert_eq!(merged.len(), 1);
        let counts: Vec<f64> = (0..5).map(|bin| merged[0].count(bin)).collect();
        assert_eq!(counts, [1.0, 0.0, 6.0, 4.0, 2.0]);
        assert_eq!(merged[0].axes()[0].unit(), "GeV");
        assert_eq!((second.refused(), second.unlike().count()), (0, 0));
        // A unit that took its bins from its own first events.
        let mut third = FilterHistograms::default();
        third.add(&fill(4, &[[1, 1]]));
        second.merge(&third.to_vec());
        assert_eq!(second.refused(), 1);
        assert_eq!(second.unlike().collect::<Vec<_>>(), ["mass"]);
    }

    #[test]
    fn other_bins_and_nonsense_are_refused() {
        let mut histograms = FilterHistograms::default();
        histograms.add(&fill(3, &[]));
        histograms.add(&fill(4, &[[1, 1]]));
        assert_eq!(histograms.refused(), 1);
        for nonsense in [
            json!(null),
            json!(["mass", "", 3, 1.0, 1.0, []]),
            json!(["mass", "", 3, 0.0, 1.0, [[5, 1]]]),
            json!(["mass", "", 3, 0.0, 1.0, [[1, -1]]]),
        ] {
            assert_eq!(FilterFill::from_json(&nonsense), None, "{nonsense}");
        }
    }
}
