//! Check 16: what the machine does to a thread that spins, hands over or waits.

use std::time::{Duration, Instant};

use livetime_shm::floor::{PollGaps, Samples, cache_line_ping_pong, poll_gap_histogram};
use livetime_wire::DurationNs;

use super::stored;
use super::{Check, Context, Question, Status};

/// Gaps longer than this make latencies of a loop meaningless.
const GAP_FAIL: Duration = Duration::from_millis(100);
/// A tuned machine takes the core away for less than this.
const GAP_WARN: Duration = Duration::from_micros(20);
/// Hand-overs between two threads.
const ROUNDS: u32 = 200_000;

/// Spins on each hot core, hands a cache line over, and sleeps as `cyclictest` does; the check, and
/// the largest gap seen.
pub(super) fn live_test(context: &Context) -> (Check, Option<Duration>) {
    let question = Question {
        id: 16,
        name: "live test",
        threshold: "no gap above 20 us on a spinning core",
        why: "what happens here happens in every run: the tail of each latency begins with these gaps",
    };
    let gaps: Result<Vec<PollGaps>, _> = context
        .hot
        .iter()
        .map(|core| poll_gap_histogram(context.live, *core))
        .collect();
    let gaps = match gaps {
        Ok(gaps) if !gaps.is_empty() => gaps,
        Ok(_) => {
            return (
                question.answer(Status::NotApplicable, "no hot core", ""),
                None,
            );
        }
        Err(error) => return (question.answer(Status::Fail, error, "free a core"), None),
    };
    let largest = gaps
        .iter()
        .filter_map(|gaps| gaps.gaps.sorted_ns().last())
        .max();
    let largest = Duration::from_nanos(largest.copied().unwrap_or(0));
    let lost = gaps.iter().map(PollGaps::lost_fraction).sum::<f64>() / gaps.len() as f64;
    let above: f64 = gaps.iter().map(|gaps| gaps.per_second(2)).sum::<f64>() / gaps.len() as f64;
    let hand_over =
        cache_line_ping_pong(0, ROUNDS).map_or(0, |ping_pong| ping_pong.round_trip.p50() / 2);
    let wake_up = wake_up_latency(Duration::from_millis(500));
    let before = stored::last().and_then(|last| last.largest_gap);
    let text = |duration: Duration| DurationNs(duration.as_nanos() as u64).to_string();
    let value = format!(
        "largest gap {}{}, {above:.1} gaps above 10 us a second, {:.4} % of the time lost; hand-over {} \
         median; wake-up {} median, {} at most",
        text(largest),
        before.map_or(String::new(), |gap| format!(" (last time {})", text(gap))),
        100.0 * lost,
        DurationNs(hand_over),
        DurationNs(wake_up.p50()),
        DurationNs(wake_up.sorted_ns().last().copied().unwrap_or(0)),
    );
    let status = if largest > GAP_FAIL {
        Status::Fail
    } else if largest > GAP_WARN {
        Status::Warn
    } else {
        Status::Pass
    };
    let fix = "mend checks 4 to 8 first; on a virtual machine ask for cores of its own";
    (question.answer(status, value, fix), Some(largest))
}

/// How late a thread wakes that asked to sleep for a millisecond.
fn wake_up_latency(duration: Duration) -> Samples {
    const PERIOD: Duration = Duration::from_millis(1);
    let start = Instant::now();
    let mut late_ns = Vec::with_capacity(1024);
    while start.elapsed() < duration {
        let asked = Instant::now();
        std::thread::sleep(PERIOD);
        let late = asked.elapsed().saturating_sub(PERIOD);
        late_ns.push(late.as_nanos() as u64);
    }
    Samples::from_unsorted(late_ns)
}
