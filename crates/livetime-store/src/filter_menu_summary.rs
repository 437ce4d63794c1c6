//! What the Level-3 menu did in a run: events by path and by stream, and what its stages took.
//!
//! It is made of the counters that the filter units leave by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What the Level-3 menu did, over all filter units.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FilterMenuSummary {
    /// Events by path.
    pub paths: BTreeMap<String, FilterPathSummary>,
    /// Events by stream.
    pub streams: BTreeMap<String, FilterStreamSummary>,
    /// Mean time in each stage \[ns\].
    pub stage_ns: BTreeMap<String, f64>,
    /// Longest time for one event \[ns\].
    pub event_ns_max: u64,
    /// Events over their limit, which are in the error stream and in no path's or stream's count.
    pub over_time: u64,
    /// Filter units that died with what they had counted: all counts here lack their share. Empty
    /// where they lack nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<String>,
}

/// A path of the Level-3 menu, over the events that it was asked about: those that were built whole,
/// and judged within their limit.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FilterPathSummary {
    /// Events that passed its cuts.
    pub passed: u64,
    /// Those of them on which it fired, after its prescale.
    pub fired: u64,
    /// Fires over the time in which triggers were taken \[Hz\].
    pub fired_hz: f64,
}

/// A stream of the Level-3 menu.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FilterStreamSummary {
    /// Events in it.
    pub events: u64,
    /// Their rate \[Hz\].
    pub hz: f64,
}

impl FilterMenuSummary {
    /// From the counters of a menu by name, in a run of this length; `None` without a menu.
    pub fn of_counts(counts: &BTreeMap<String, u64>, duration_s: f64) -> Option<Self> {
        let events = *counts.get("menu.events")?;
        let hz = |count: u64| count as f64 / duration_s.max(1e-9);
        let mut menu = Self {
            event_ns_max: counts.get("menu.event_ns_max").copied().unwrap_or(0),
            over_time: counts.get("menu.over_time").copied().unwrap_or(0),
            ..Self::default()
        };
        for (name, count) in counts {
            let mut parts = name.splitn(2, '.');
            let (kind, rest) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
            let (name, what) = rest.rsplit_once('.').unwrap_or((rest, ""));
            let name = name.to_owned();
            match (kind, what) {
                ("path", "passed") => menu.paths.entry(name).or_default().passed = *count,
                ("path", "fired") => {
                    let path = menu.paths.entry(name).or_default();
                    (path.fired, path.fired_hz) = (*count, hz(*count));
                }
                ("stream", "events") => {
                    let stream = FilterStreamSummary {
                        events: *count,
                        hz: hz(*count),
                    };
                    menu.streams.insert(name, stream);
                }
                ("stage", "ns") => {
                    let mean = *count as f64 / events.max(1) as f64;
                    menu.stage_ns.insert(name, mean);
                }
                _ => {}
            }
        }
        Some(menu)
    }
}
