//! How long the machine takes the core away from a loop that does nothing but look at the clock.

use std::time::Duration;

use super::{FloorError, Samples};
use crate::affinity::pin_current_thread;
use crate::clock::TscClock;

/// Bounds in ns above which gaps are counted.
pub const POLL_GAP_BOUNDS_NS: [u64; 5] = [1_000, 5_000, 10_000, 50_000, 1_000_000];
/// Gaps kept one by one; more are counted and dropped.
const KEPT_MAX: usize = 1 << 20;

/// Gaps between two looks at the clock of a spinning thread.
#[derive(Debug, Clone)]
pub struct PollGaps {
    /// Time measured, in ns.
    pub duration_ns: u64,
    /// Looks at the clock.
    pub polls: u64,
    /// Number of gaps above each of [`POLL_GAP_BOUNDS_NS`].
    pub above: [u64; POLL_GAP_BOUNDS_NS.len()],
    /// Sum of the gaps above the first bound, in ns: the time lost.
    pub lost_ns: u64,
    /// The gaps above the first bound.
    pub gaps: Samples,
    /// Gaps counted above but not kept in `gaps`, for want of room.
    pub gaps_dropped: u64,
    /// The core.
    pub cpu: usize,
}

impl PollGaps {
    /// Share of the time lost in gaps above the first bound, 0 to 1.
    pub fn lost_fraction(&self) -> f64 {
        self.lost_ns as f64 / self.duration_ns.max(1) as f64
    }

    /// Gaps per second above bound number `index` of [`POLL_GAP_BOUNDS_NS`].
    pub fn per_second(&self, index: usize) -> f64 {
        self.above[index] as f64 * 1e9 / self.duration_ns.max(1) as f64
    }
}

/// Spins on core `cpu` for `duration`, reading the clock, and reports the gaps.
///
/// # Errors
/// [`FloorError::Placement`] when the core may not be used, [`FloorError::NoThread`] without one.
pub fn poll_gap_histogram(duration: Duration, cpu: usize) -> Result<PollGaps, FloorError> {
    let spin = move || {
        pin_current_thread(cpu)?;
        Ok(measure(duration, cpu))
    };
    let thread = std::thread::Builder::new().spawn(spin);
    let thread = thread.map_err(FloorError::NoThread)?;
    thread.join().map_err(|_| FloorError::Thread)?
}

fn measure(duration: Duration, cpu: usize) -> PollGaps {
    let clock = TscClock::of_process();
    let limit_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let mut above = [0u64; POLL_GAP_BOUNDS_NS.len()];
    let mut gaps_ns = Vec::with_capacity(KEPT_MAX.min(1 << 14));
    let (mut polls, mut lost_ns, mut gaps_dropped) = (0u64, 0u64, 0u64);
    let start = clock.ticks();
    let mut last = start;
    loop {
        let now = clock.ticks();
        let gap_ns = clock.ticks_to_ns(now.saturating_sub(last));
        polls += 1;
        last = now;
        if gap_ns > POLL_GAP_BOUNDS_NS[0] {
            for (count, bound) in above.iter_mut().zip(POLL_GAP_BOUNDS_NS) {
                *count += u64::from(gap_ns > bound);
            }
            lost_ns += gap_ns;
            if gaps_ns.len() < KEPT_MAX {
                gaps_ns.push(gap_ns);
            } else {
                gaps_dropped += 1;
            }
        }
        let duration_ns = clock.ticks_to_ns(now.saturating_sub(start));
        if duration_ns >= limit_ns {
            let gaps = Samples::from_unsorted(gaps_ns);
            return PollGaps {
                duration_ns,
                polls,
                above,
                lost_ns,
                gaps,
                gaps_dropped,
                cpu,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::allowed_cpus;

    #[test]
    fn gaps_are_counted_consistently() {
        let gaps = poll_gap_histogram(Duration::from_millis(20), allowed_cpus()[0]).unwrap();
        assert!(gaps.duration_ns >= 20_000_000 && gaps.polls > 1);
        assert!(
            gaps.above.is_sorted_by(|fewer, more| fewer >= more),
            "{:?}",
            gaps.above
        );
        assert_eq!(gaps.above[0], gaps.gaps.count() as u64 + gaps.gaps_dropped);
        assert!((0.0..=1.0).contains(&gaps.lost_fraction()));
        assert_eq!(gaps.per_second(0) > 0.0, gaps.above[0] > 0);
    }

    #[test]
    fn a_core_that_is_not_there_is_refused() {
        let refused = poll_gap_histogram(Duration::from_millis(1), 1_000_000);
        assert!(matches!(refused, Err(FloorError::Placement(_))));
    }
}
