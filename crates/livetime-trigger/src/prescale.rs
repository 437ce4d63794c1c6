//! Prescales: which passes of a path fire.
//!
//! Four rules, all in integers and all from what stands in the packets, so that equal packets in
//! equal order give equal decisions (`docs/formats/trigger-packet.md`, section 3): a fixed factor, a
//! list of factors stepped through by the dead time, a least interval between two fires, and a
//! luminosity above which the path is closed. The dead time itself is followed in
//! [`crate::prescale_step`]; AUTO paths are a cut, not a prescale.

use livetime_wire::{DurationNs, Problem};

use crate::problem_code::{FIRE_INTERVAL, LUMINOSITY_ZERO, PRESCALE_STEPS, PRESCALE_ZERO};

/// Most factors of a dynamic prescale.
pub const STEPS_MAX: usize = 8;
/// One tick of the packet's time stamp.
const TICK_NS: u64 = 25;
/// Longest interval between two fires: an hour.
const INTERVAL_MAX: DurationNs = DurationNs(3_600_000_000_000);

/// When a path that passes fires.
///
/// ```
/// use livetime_trigger::Prescale;
///
/// assert_eq!(Prescale::from(3).steps, [3]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prescale {
    /// One of this many passes fires. One factor, each at least 1, is a fixed prescale; with several
    /// (at most [`STEPS_MAX`]) the first one holds without dead time and the dead time decides how far
    /// to go. Default \[1\].
    pub steps: Vec<u32>,
    /// Fires are at least this far apart in the time of the packets; zero sets no limit, and more is
    /// a multiple of 25 ns up to an hour. Default 0. `1 s` gives at most one accept a second.
    pub interval_min: DurationNs,
    /// The path is open only below this luminosity in units of 10^30 / cm^2 / s; `None` is always.
    pub luminosity_max: Option<u32>,
}

impl Default for Prescale {
    fn default() -> Self {
        Self::from(1)
    }
}

impl From<u32> for Prescale {
    /// A fixed factor.
    fn from(factor: u32) -> Self {
        Self {
            steps: vec![factor],
            interval_min: DurationNs(0),
            luminosity_max: None,
        }
    }
}

impl Prescale {
    /// Checks the values; `path` is the key of the path, such as `trigger.path[3]`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        let key = if self.steps.len() == 1 {
            format!("{path}.prescale")
        } else {
            format!("{path}.prescales")
        };
        if self.steps.contains(&0) {
            problems.push(Problem::new(
                PRESCALE_ZERO,
                &key,
                0,
                "1 or more",
                "set 1 to keep every pass, or remove the path to switch it off",
            ));
        }
        let rising = self.steps.windows(2).all(|pair| pair[0] < pair[1]);
        if !(1..=STEPS_MAX).contains(&self.steps.len()) || !rising {
            problems.push(Problem::new(
                PRESCALE_STEPS,
                &key,
                format!("{:?}", self.steps),
                format!("1 to {STEPS_MAX} factors, each above the one before"),
                "list the factors from the one without dead time to the one of most dead time",
            ));
        }
        if self.interval_min > INTERVAL_MAX || !self.interval_min.0.is_multiple_of(TICK_NS) {
            problems.push(Problem::new(
                FIRE_INTERVAL,
                format!("{path}.interval_min"),
                self.interval_min,
                "a multiple of 25 ns, at most an hour",
                "time in packets comes in ticks of 25 ns; \"1 s\" allows one accept a second",
            ));
        }
        if self.luminosity_max == Some(0) {
            problems.push(Problem::new(
                LUMINOSITY_ZERO,
                format!("{path}.luminosity_max"),
                0,
                "1 or more, in 10^30 / cm^2 / s",
                "leave the key out to open the path at any luminosity",
            ));
        }
        problems
    }
}

/// What a prescale looks at besides the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrescaleState {
    /// Step that the dead time asks for; paths with fewer factors stay at their last.
    pub step: usize,
    /// Time of the packet in ticks of 25 ns, extended beyond the wrap of its 32 bits.
    pub ticks: u64,
    /// Luminosity in 10^30 / cm^2 / s; 0 if none is known.
    pub luminosity: u32,
}

/// The prescale of one path at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrescaleCounter {
    factors: [u32; STEPS_MAX],
    last: usize,
    interval_ticks: u64,
    /// `u32::MAX + 1` if there is no limit.
    luminosity_max: u64,
    passes: u32,
    /// First tick at which a path with an interval may fire again.
    open_at: u64,
}

impl PrescaleCounter {
    /// A counter at 0.
    ///
    /// # Panics
    /// If there is no factor, too many, or one of 0: [`Prescale::validate`] refuses them.
    pub fn new(prescale: &Prescale) -> Self {
        let steps = &prescale.steps;
        assert!(
            (1..=STEPS_MAX).contains(&steps.len()) && !steps.contains(&0),
            "a prescale has factors, and one of zero has no meaning"
        );
        let last = steps.len() - 1;
        Self {
            factors: core::array::from_fn(|step| steps[step.min(last)]),
            last,
            interval_ticks: prescale.interval_min.0 / TICK_NS,
            luminosity_max: prescale
                .luminosity_max
                .map_or(u64::from(u32::MAX) + 1, u64::from),
            passes: 0,
            open_at: 0,
        }
    }

    /// Whether the luminosity leaves the path open.
    #[inline]
    pub fn is_open(&self, state: &PrescaleState) -> bool {
        u64::from(state.luminosity) < self.luminosity_max
    }

    /// Counts a pass; whether it fires.
    pub fn count(&mut self, state: &PrescaleState) -> bool {
        let factor = self.factors[state.step.min(self.last)];
        // One is by far the most frequent factor, and a division costs as much as a small cut.
        let due = factor == 1 || self.passes.is_multiple_of(factor);
        self.passes = self.passes.wrapping_add(1);
        let fires = due && state.ticks >= self.open_at;
        if fires && self.interval_ticks > 0 {
            self.open_at = state.ticks + self.interval_ticks;
        }
        fires
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ticks: u64) -> PrescaleState {
        PrescaleState {
            ticks,
            ..PrescaleState::default()
        }
    }

    fn fired(counter: &mut PrescaleCounter, passes: usize) -> Vec<bool> {
        (0..passes).map(|_| counter.count(&at(0))).collect()
    }

    #[test]
    fn the_first_of_every_n_fires() {
        let mut counter = PrescaleCounter::new(&Prescale::from(3));
        let expected = [true, false, false, true, false, false, true];
        assert_eq!(fired(&mut counter, 7), expected);
        let mut always = PrescaleCounter::new(&Prescale::from(1));
        assert_eq!(fired(&mut always, 5), [true; 5]);
    }

    #[test]
    fn the_counter_wraps_to_zero_and_fires_there() {
        let mut counter = PrescaleCounter {
            passes: u32::MAX - 1,
            ..PrescaleCounter::new(&Prescale::from(3))
        };
        // 2^32 - 2 is no multiple of 3, 2^32 - 1 is, and 0 is again.
        assert_eq!(fired(&mut counter, 4), [false, true, true, false]);
    }

    #[test]
    fn a_change_of_step_keeps_the_counter() {
        let steps = Prescale {
            steps: vec![1, 4],
            ..Prescale::default()
        };
        let mut counter = PrescaleCounter::new(&steps);
        let step = |step| PrescaleState { step, ..at(0) };
        assert!(counter.count(&step(0)), "pass 0");
        assert!(!counter.count(&step(1)), "pass 1");
        assert!(counter.count(&step(0)), "pass 2");
        assert!(!counter.count(&step(7)), "pass 3, beyond the last step");
        assert!(counter.count(&step(7)), "pass 4");
    }

    #[test]
    fn fires_are_an_interval_apart_and_passes_between_count() {
        let slow = Prescale {
            steps: vec![2],
            interval_min: DurationNs(1000),
            luminosity_max: None,
        };
        let mut counter = PrescaleCounter::new(&slow);
        let ticks = [0, 1, 39, 40, 40, 41, 80, 81, 120];
        let fired: Vec<bool> = ticks.map(|tick| counter.count(&at(tick))).to_vec();
        let expected = [true, false, false, false, true, false, true, false, true];
        assert_eq!(fired, expected, "odd passes are prescaled, pass 2 is early");
    }

    #[test]
    fn luminosity_closes_a_path_at_its_limit() {
        let low = Prescale {
            luminosity_max: Some(150),
            ..Prescale::default()
        };
        let is_open = |prescale: &Prescale, luminosity| {
            PrescaleCounter::new(prescale).is_open(&PrescaleState {
                luminosity,
                ..at(0)
            })
        };
        assert!(is_open(&low, 149));
        assert!(!is_open(&low, 150));
        assert!(is_open(&Prescale::default(), u32::MAX));
    }

    #[test]
    fn unusable_values_are_all_named() {
        let broken = Prescale {
            steps: vec![0, 5, 5],
            interval_min: DurationNs(30),
            luminosity_max: Some(0),
        };
        let problems = broken.validate("p");
        let found: Vec<_> = problems
            .iter()
            .map(|problem| (problem.code.code, problem.path.as_str()))
            .collect();
        let expected = [
            ("T0103", "p.prescales"),
            ("T0111", "p.prescales"),
            ("T0112", "p.interval_min"),
            ("T0113", "p.luminosity_max"),
        ];
        assert_eq!(found, expected);
        assert_eq!(Prescale::from(0).validate("p")[0].path, "p.prescale");
        assert_eq!(Prescale::from(u32::MAX).validate("p"), []);
    }
}
