//! The latencies of a simulated network as documents have them.

use livetime_fabric::network::Latencies;
use livetime_store::summary::{LatencySummary, OverBound};

/// Latencies above this are counted apart; a millisecond is long for a fabric.
const LATENCY_BOUND_NS: u64 = 1_000_000;

/// Their summary. Least, greatest and mean are exact.
pub(super) fn latency_summary(latencies: &Latencies) -> LatencySummary {
    let count = latencies.len();
    let above = latencies.count_above(LATENCY_BOUND_NS);
    let over = OverBound {
        bound_ns: LATENCY_BOUND_NS,
        ppm: above as f64 * 1e6 / count.max(1) as f64,
    };
    LatencySummary::from_percentiles(count, latencies.mean(), over, |percent| match percent {
        0.0 => latencies.min(),
        100.0 => latencies.max(),
        percent => latencies.value_at_quantile(percent / 100.0),
    })
}
