//! Dead time: how much of the run, and of the offered triggers, was refused and why.
//!
//! Two measures that must agree for random triggers: the fraction of offers refused, counted, and
//! the fraction of time in which an offer would have been refused, integrated exactly between the
//! inputs of [`crate::supervisor`]. [`refused_fraction_m_d_1_k`] is the closed form that both are
//! tested against; nothing here models a machine.

use livetime_wire::{DurationNs, RunNs};

/// Why an offered trigger is refused. When several hold, the first of this order is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusedBy {
    /// The run is being stopped; not dead time.
    Stopped,
    /// Back-pressure: a readout unit runs out of free pages.
    Xoff,
    /// All Level-2 buffers wait for their decisions.
    BuffersFull,
    /// The decisions already taken have not been fetched.
    OutputsFull,
}

impl RefusedBy {
    /// The causes of dead time.
    pub const DEAD: [Self; 3] = [Self::Xoff, Self::BuffersFull, Self::OutputsFull];

    /// The key in JSON documents.
    #[inline]
    pub fn key(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Xoff => "xoff",
            Self::BuffersFull => "buffers_full",
            Self::OutputsFull => "outputs_full",
        }
    }
}

/// Dead time up to some moment of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeadTime {
    /// Triggers offered while the run was not being stopped.
    pub offered: u64,
    /// Of these, refused, in the order of [`RefusedBy::DEAD`].
    pub refused: [u64; 3],
    /// Time from start to stop, or to now.
    pub time: DurationNs,
    /// Of this, time in which an offer would have been refused, in the same order.
    pub busy: [DurationNs; 3],
}

impl DeadTime {
    /// Fraction of the offers that were refused, 0..=1; 0 without any.
    #[inline]
    pub fn refused_fraction(&self) -> f64 {
        fraction(self.refused.iter().sum(), self.offered)
    }

    /// Fraction of the time in which an offer would have been refused, 0..=1; 0 without any.
    #[inline]
    pub fn busy_fraction(&self) -> f64 {
        fraction(self.busy.iter().map(|busy| busy.0).sum(), self.time.0)
    }
}

#[inline]
fn fraction(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Counts refused offers and integrates busy time.
///
/// The state given with [`DeadTimeMeter::set_state`] holds until the next one.
#[derive(Debug, Clone)]
pub(crate) struct DeadTimeMeter {
    sum: DeadTime,
    state: Option<RefusedBy>,
    since: RunNs,
}

impl DeadTimeMeter {
    pub(crate) fn new(start: RunNs) -> Self {
        Self {
            sum: DeadTime::default(),
            state: None,
            since: start,
        }
    }

    /// Integrates the present state up to `now`; a `now` before the last one adds nothing.
    pub(crate) fn advance(&mut self, now: RunNs) {
        let passed = now.since(self.since);
        self.since = self.since.max(now);
        if self.state == Some(RefusedBy::Stopped) {
            return;
        }
        self.sum.time.0 += passed.0;
        if let Some(index) = self.state.and_then(dead_index) {
            self.sum.busy[index].0 += passed.0;
        }
    }

    /// Why an offer would be refused from now on.
    #[inline]
    pub(crate) fn set_state(&mut self, state: Option<RefusedBy>) {
        self.state = state;
    }

    /// Counts an offer and its fate.
    #[inline]
    pub(crate) fn count_offer(&mut self, refused: Option<RefusedBy>) {
        if refused == Some(RefusedBy::Stopped) {
            return;
        }
        self.sum.offered += 1;
        if let Some(index) = refused.and_then(dead_index) {
            self.sum.refused[index] += 1;
        }
    }

    /// The dead time up to `now`.
    #[inline]
    pub(crate) fn dead_time(&self, now: RunNs) -> DeadTime {
        let mut meter = self.clone();
        meter.advance(now);
        meter.sum
    }
}

#[inline]
fn dead_index(by: RefusedBy) -> Option<usize> {
    RefusedBy::DEAD.iter().position(|dead| *dead == by)
}

/// Fraction of triggers refused by a serial decision loop, M/D/1/K: Poisson triggers, each decision
/// taking the same time, one at a time, `buffers` triggers at most, the one in service included.
///
/// `load` is rate x decision time. Solved by the chain of the numbers left behind at departures
/// (any text on queues, M/G/1/K): pi'(0) = 1, pi'(j + 1) a(0) = pi'(j) - sum over i = 1..j of
/// pi'(i) a(j - i + 1) - a(j), with a(k) the chance of k arrivals during one decision; the
/// fraction is 1 - 1 / (pi(0) + load).
///
/// # Panics
/// If `buffers` is 0 or `load` is not positive.
pub fn refused_fraction_m_d_1_k(load: f64, buffers: usize) -> f64 {
    assert!(buffers > 0 && load > 0.0, "a loop has a buffer and a load");
    let mut arrivals = Vec::with_capacity(buffers);
    let mut chance = (-load).exp();
    for k in 1..=buffers {
        arrivals.push(chance);
        chance *= load / k as f64;
    }
    let mut left = vec![1.0];
    for j in 0..buffers - 1 {
        let queued: f64 = (1..=j).map(|i| left[i] * arrivals[j - i + 1]).sum();
        left.push((left[j] - queued - arrivals[j]) / arrivals[0]);
    }
    let empty = 1.0 / left.iter().sum::<f64>();
    1.0 - 1.0 / (empty + load)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_form_gives_the_published_values_at_40_khz() {
        let percent = |us: f64| 100.0 * refused_fraction_m_d_1_k(us * 0.04, 4);
        assert!((percent(11.0) - 0.43).abs() < 0.005, "{}", percent(11.0));
        assert!((percent(12.0) - 0.64).abs() < 0.005, "{}", percent(12.0));
        assert!((percent(20.0) - 5.9).abs() < 0.05, "{}", percent(20.0));
    }

    #[test]
    fn closed_form_with_one_buffer_is_the_loss_formula_of_erlang() {
        for load in [0.1, 0.5, 1.0, 3.0] {
            let expected = load / (1.0 + load);
            assert!((refused_fraction_m_d_1_k(load, 1) - expected).abs() < 1e-12);
        }
        let many = refused_fraction_m_d_1_k(0.5, 30);
        assert!(many.abs() < 1e-9, "{many}");
    }

    #[test]
    fn busy_time_is_integrated_between_states() {
        let mut meter = DeadTimeMeter::new(RunNs(100));
        meter.advance(RunNs(150));
        meter.set_state(Some(RefusedBy::BuffersFull));
        meter.advance(RunNs(160));
        meter.advance(RunNs(155));
        meter.advance(RunNs(170));
        meter.set_state(Some(RefusedBy::Xoff));
        meter.advance(RunNs(175));
        meter.set_state(None);
        let now = meter.dead_time(RunNs(200));
        assert_eq!(now.time, DurationNs(100));
        assert_eq!(now.busy, [5, 20, 0].map(DurationNs));
        assert!((now.busy_fraction() - 0.25).abs() < 1e-12);
        meter.advance(RunNs(200));
        meter.set_state(Some(RefusedBy::Stopped));
        assert_eq!(meter.dead_time(RunNs(900)), now);
        meter.count_offer(Some(RefusedBy::Stopped));
        assert_eq!(meter.dead_time(RunNs(900)), now);
    }

    #[test]
    fn refused_offers_are_counted_by_reason() {
        let mut meter = DeadTimeMeter::new(RunNs(0));
        assert!(meter.dead_time(RunNs(0)).refused_fraction() == 0.0);
        assert!(meter.dead_time(RunNs(0)).busy_fraction() == 0.0);
        for refused in [
            None,
            Some(RefusedBy::OutputsFull),
            Some(RefusedBy::Xoff),
            Some(RefusedBy::Xoff),
        ] {
            meter.count_offer(refused);
        }
        let now = meter.dead_time(RunNs(0));
        assert_eq!((now.offered, now.refused), (4, [2, 0, 1]));
        assert!((now.refused_fraction() - 0.75).abs() < 1e-12);
    }
}
