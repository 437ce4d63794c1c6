//! Whose fault is an outlier: gaps in which the machine took a core away, and what they explain.
//!
//! A thread tells its [`StallMeter`] each time it looked at the clock with no work of ours since the
//! look before: at empty polls, and by two looks in a row at the checkpoints between stages. A gap of
//! more than 2 us between two such looks cannot be ours. [`Attribution::of`] takes the gaps of all
//! threads off an outlier: only if what is left is no outlier any more was it the host. Everything
//! else, the unknown too, is ours.

/// Gaps longer than this are kept.
pub(crate) const GAP_NS: u64 = 2_000;
/// Latencies so much above the mean of their event are outliers.
pub(crate) const OUTLIER_NS: u64 = 5_000;
/// Gaps kept of one thread; more are counted, and what they would explain counts as ours.
const GAPS_MAX: usize = 1 << 16;

/// A time in which a thread did not run, in ticks of the common clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Gap {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The gaps of one thread.
#[derive(Debug)]
pub(crate) struct StallMeter {
    /// The last look at the clock, if nothing of ours was done since.
    last: Option<u64>,
    bound_ticks: u64,
    gaps: Vec<Gap>,
    dropped: u64,
}

impl StallMeter {
    /// A meter for a clock with so many ticks in [`GAP_NS`]; its storage is made here.
    pub(crate) fn new(bound_ticks: u64) -> Self {
        Self {
            last: None,
            bound_ticks,
            gaps: Vec::with_capacity(GAPS_MAX),
            dropped: 0,
        }
    }

    /// A look at the clock with nothing of ours done since the last one but looking for work.
    #[inline]
    pub(crate) fn idle(&mut self, now: u64) {
        if let Some(last) = self.last
            && now.wrapping_sub(last) > self.bound_ticks
        {
            self.keep(Gap {
                start: last,
                end: now,
            });
        }
        self.last = Some(now);
    }

    /// Work of ours begins: time from here on is ours until the next look.
    #[inline]
    pub(crate) fn begin_work(&mut self) {
        self.last = None;
    }

    /// Two looks in a row between two stages of work.
    #[inline]
    pub(crate) fn checkpoint(&mut self, first: u64, second: u64) {
        self.last = Some(first);
        self.idle(second);
        self.last = None;
    }

    #[cold]
    fn keep(&mut self, gap: Gap) {
        if self.gaps.len() < GAPS_MAX {
            self.gaps.push(gap);
        } else {
            self.dropped += 1;
        }
    }

    /// The gaps in the order of time, and how many found no room.
    pub(crate) fn into_gaps(self) -> (Vec<Gap>, u64) {
        (self.gaps, self.dropped)
    }
}

/// The gaps of several threads as times in which at least one of them did not run, in order.
pub(crate) fn union(threads: &[&[Gap]]) -> Vec<Gap> {
    let mut all: Vec<Gap> = threads
        .iter()
        .flat_map(|gaps| gaps.iter().copied())
        .collect();
    all.sort_unstable();
    let mut merged: Vec<Gap> = Vec::with_capacity(all.len());
    for gap in all {
        match merged.last_mut() {
            Some(last) if gap.start <= last.end => last.end = last.end.max(gap.end),
            _ => merged.push(gap),
        }
    }
    merged
}

/// Ticks of `start..end` that lie in gaps of a union.
pub(crate) fn stalled_ticks(gaps: &[Gap], start: u64, end: u64) -> u64 {
    let first = gaps.partition_point(|gap| gap.end <= start);
    gaps[first..]
        .iter()
        .take_while(|gap| gap.start < end)
        .map(|gap| gap.end.min(end) - gap.start.max(start))
        .sum()
}

/// Whose an outlier is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attribution {
    /// The machine took a core away, and without that it would have been no outlier.
    Host,
    /// Anything else.
    Ours,
}

impl Attribution {
    /// Of an event that took from `start` to `end` where `expected_ticks` is its mean, and more than
    /// `allowed_ticks` above is an outlier; `gaps` is a union.
    pub(crate) fn of(
        gaps: &[Gap],
        (start, end): (u64, u64),
        expected_ticks: u64,
        allowed_ticks: u64,
    ) -> Self {
        let own = (end - start) - stalled_ticks(gaps, start, end);
        if stalled_ticks(gaps, start, end) > 0 && own <= expected_ticks + allowed_ticks {
            Self::Host
        } else {
            Self::Ours
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(start: u64, end: u64) -> Gap {
        Gap { start, end }
    }

    #[test]
    fn only_looks_with_nothing_between_them_make_gaps() {
        let mut meter = StallMeter::new(100);
        meter.idle(0);
        meter.idle(50);
        meter.idle(151);
        meter.begin_work();
        meter.idle(10_000);
        meter.idle(10_100);
        meter.checkpoint(20_000, 20_500);
        meter.idle(30_000);
        let (gaps, dropped) = meter.into_gaps();
        assert_eq!(gaps, [gap(50, 151), gap(20_000, 20_500)]);
        assert_eq!(dropped, 0);
    }

    #[test]
    fn gaps_of_threads_are_united_and_taken_off() {
        let all = union(&[&[gap(10, 20), gap(50, 60)], &[gap(15, 30), gap(60, 70)]]);
        assert_eq!(all, [gap(10, 30), gap(50, 70)]);
        assert_eq!(stalled_ticks(&all, 0, 100), 40);
        assert_eq!(stalled_ticks(&all, 20, 55), 15);
        assert_eq!(stalled_ticks(&all, 30, 50), 0);
    }

    #[test]
    fn an_outlier_is_the_hosts_only_if_its_gaps_explain_it() {
        let gaps = [gap(1000, 9000)];
        let of = |start, end| Attribution::of(&gaps, (start, end), 1000, 5000);
        assert_eq!(of(500, 9500), Attribution::Host);
        assert_eq!(
            of(500, 20_000),
            Attribution::Ours,
            "11 us more are not explained"
        );
        assert_eq!(of(9000, 20_000), Attribution::Ours, "no gap at all");
        let far = Attribution::of(&gaps, (20_000, 30_000), 1000, 5000);
        assert_eq!(far, Attribution::Ours);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut meter = StallMeter::new(1);
        for look in 0..=GAPS_MAX as u64 + 3 {
            meter.idle(look * 10);
        }
        let (gaps, dropped) = meter.into_gaps();
        assert_eq!((gaps.len(), dropped), (GAPS_MAX, 3));
    }
}
