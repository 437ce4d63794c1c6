//! How the readout units shape what they send to the builder units: the keys of a run.
//!
//! What is done by them is in [`crate::barrel_shifter`], [`crate::linear_shift`] and
//! [`crate::shift_schedule`]; here are the bounds of the values. What a block is on a transport says who drives the shifter.

use core::fmt;

use livetime_wire::{ByteSize, DurationNs, Problem, RunNs};

use crate::barrel_shifter::Pace;
use crate::problem_code;
use crate::shift_schedule::ShiftSchedule;

/// Payload bytes that a block may have at least and at most.
pub const BLOCK_BYTES: core::ops::RangeInclusive<u32> = 256..=16 << 20;
/// Shortest and longest step, or time of a turn.
pub const STEP: core::ops::RangeInclusive<DurationNs> =
    DurationNs::MICROSECOND..=DurationNs::SECOND;

/// Longest time of a turn, by default.
const TURN_MAX: DurationNs = DurationNs(10 * DurationNs::MILLISECOND.0);
/// Longest turns of readout units that the barrier of a linear shift waits for one of them.
const BARRIER_TURNS: u64 = 10;

/// A barrel shifter, or a linear shift, in each readout unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapingConfig {
    /// Payload bytes of a full block, 256 B to 16 MiB; of a linear shift those after which a phase
    /// takes no further fragment. Default 64 KiB. Smaller blocks cost more turns and more calls of the
    /// system; larger ones let an event wait longer for its turns.
    pub block_bytes: u32,
    /// When a readout unit goes on to the next builder unit. Default by back-pressure. With a barrier
    /// it is a linear shift, otherwise a barrel shifter.
    pub pace: ShapingPace,
    /// Number of each readout unit in the schedule of shifts, as the network between the units needs
    /// it. Default empty: as they are numbered, which suits a single switch.
    pub numbers: Vec<u16>,
}

/// When a readout unit goes on to the next builder unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShapingPace {
    /// When the block was taken.
    BackPressure {
        /// Longest time of a turn, 1 us to 1 s. Default 10 ms. Who has not taken its block by then
        /// does so while others have their turns, so that one that is slow stops no other.
        turn_max: DurationNs,
    },
    /// Each `step` of the run's clock, 1 us to 1 s: the time of a block on a link, and a little more.
    Clock {
        /// Time of one step.
        step: DurationNs,
    },
    /// When all readout units have sent what they had for the builder unit of their phase.
    Barrier {
        /// Longest time of a turn, 1 us to 1 s, as by back-pressure. Default 10 ms. A readout unit
        /// that is not through after ten of them is not waited for until it is heard of again.
        turn_max: DurationNs,
        /// When a readout unit for which something waits says again that it is through, 1 us to 1 s.
        /// Default 5 ms. A few round trips; too long, and a message that is lost costs all of them as
        /// much.
        retry: DurationNs,
    },
}

impl ShapingPace {
    /// With a barrier, by default.
    pub const BARRIER: Self = Self::Barrier {
        turn_max: TURN_MAX,
        retry: DurationNs(5 * DurationNs::MILLISECOND.0),
    };
}

impl Default for ShapingPace {
    fn default() -> Self {
        Self::BackPressure { turn_max: TURN_MAX }
    }
}

impl fmt::Display for ShapingPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BackPressure { .. } => "back-pressure",
            Self::Clock { .. } => "clock",
            Self::Barrier { .. } => "barrier",
        })
    }
}

impl Default for ShapingConfig {
    fn default() -> Self {
        Self {
            block_bytes: 64 << 10,
            pace: ShapingPace::default(),
            numbers: Vec::new(),
        }
    }
}

impl ShapingConfig {
    /// What it is called.
    pub fn kind(&self) -> &'static str {
        match self.is_linear() {
            true => "linear-shift",
            false => "barrel-shifter",
        }
    }

    /// Whether whole fragments are sent in phases, between which the event manager keeps a barrier.
    pub fn is_linear(&self) -> bool {
        matches!(self.pace, ShapingPace::Barrier { .. })
    }

    /// Longest time of a turn; `None` where a clock ends them.
    pub fn turn_max(&self) -> Option<DurationNs> {
        match self.pace {
            ShapingPace::BackPressure { turn_max } | ShapingPace::Barrier { turn_max, .. } => {
                Some(turn_max)
            }
            ShapingPace::Clock { .. } => None,
        }
    }

    /// How long the barrier of a linear shift waits for a readout unit.
    pub fn barrier_patience(&self) -> DurationNs {
        let turn_max = self.turn_max().unwrap_or(DurationNs::SECOND);
        DurationNs(turn_max.0.saturating_mul(BARRIER_TURNS))
    }

    /// The pace of barrel shifters. Step 0 is that of the start of the run, for all of them.
    pub fn pace(&self) -> Pace {
        match self.pace {
            ShapingPace::BackPressure { .. } | ShapingPace::Barrier { .. } => Pace::BackPressure,
            ShapingPace::Clock { step } => Pace::Clock {
                start: RunNs(0),
                step,
            },
        }
    }

    /// Who sends to whom, with so many readout and builder units; in their order where the numbers
    /// are not good.
    pub fn schedule(&self, readout_units: u16, builder_units: u16) -> ShiftSchedule {
        let is_complete = self.numbers.len() == usize::from(readout_units);
        let numbered = ShiftSchedule::new_checked(self.numbers.clone(), builder_units, "");
        match numbered {
            Ok(schedule) if is_complete => schedule,
            _ => ShiftSchedule::in_order(readout_units, builder_units),
        }
    }

    /// Every problem, with so many readout and builder units; `path` is that of the table.
    pub fn validate(&self, path: &str, (readout, builder): (usize, u16)) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !BLOCK_BYTES.contains(&self.block_bytes) {
            let of = |bytes: &u32| ByteSize(u64::from(*bytes));
            problems.push(Problem::new(
                problem_code::SHAPING,
                format!("{path}.block"),
                of(&self.block_bytes),
                format!("{} to {}", of(BLOCK_BYTES.start()), of(BLOCK_BYTES.end())),
                "64 KiB suits links of 1 Gb/s",
            ));
        }
        let turn_max = |time| {
            (
                "turn_max",
                time,
                "set it to several times what a block takes on a link",
            )
        };
        let times = match self.pace {
            ShapingPace::BackPressure { turn_max: time } => [Some(turn_max(time)), None],
            ShapingPace::Clock { step } => {
                let help = "set it to what a block takes on a link, and choose `block` for it";
                [Some(("step", step, help)), None]
            }
            ShapingPace::Barrier {
                turn_max: time,
                retry,
            } => {
                let help = "set it to a few round trips between readout units and event manager";
                [Some(turn_max(time)), Some(("barrier_retry", retry, help))]
            }
        };
        for (key, time, help) in times.into_iter().flatten() {
            if !STEP.contains(&time) {
                problems.push(Problem::new(
                    problem_code::SHAPING,
                    format!("{path}.{key}"),
                    time,
                    format!("{} to {}", STEP.start(), STEP.end()),
                    help,
                ));
            }
        }
        problems.extend(self.check_numbers(path, readout, builder));
        problems
    }

    fn check_numbers(&self, path: &str, readout: usize, builder: u16) -> Option<Problem> {
        if self.numbers.is_empty() {
            return None;
        }
        let key = format!("{path}.shift_numbers");
        if self.numbers.len() == readout {
            let schedule = ShiftSchedule::new_checked(self.numbers.clone(), builder, &key);
            return schedule.err();
        }
        Some(Problem::new(
            problem_code::SCHEDULE,
            key,
            format!("{} numbers", self.numbers.len()),
            format!("one for each of the {readout} readout units"),
            "give each readout unit a number, or leave the key out",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_good_and_bad_values_are_named_with_their_key() {
        let good = ShapingConfig::default();
        assert_eq!(good.validate("b", (4, 2)), []);
        let clock = |ns| ShapingPace::Clock {
            step: DurationNs(ns),
        };
        let turn_max = |ns| ShapingPace::BackPressure {
            turn_max: DurationNs(ns),
        };
        let barrier = |turn_max, retry| ShapingPace::Barrier {
            turn_max: DurationNs(turn_max),
            retry: DurationNs(retry),
        };
        let of = |block_bytes, pace, numbers: &[u16]| ShapingConfig {
            block_bytes,
            pace,
            numbers: numbers.to_vec(),
        };
        for (config, code, key) in [
            (of(255, clock(1000), &[]), "B0118", "b.block"),
            (of((16 << 20) + 1, clock(1000), &[]), "B0118", "b.block"),
            (of(256, clock(999), &[]), "B0118", "b.step"),
            (of(256, turn_max(1_000_000_001), &[]), "B0118", "b.turn_max"),
            (of(256, barrier(999, 1000), &[]), "B0118", "b.turn_max"),
            (of(256, barrier(1000, 999), &[]), "B0118", "b.barrier_retry"),
            (of(256, clock(1000), &[0, 1]), "B0114", "b.shift_numbers"),
            (
                of(256, clock(1000), &[0, 1, 1, 2]),
                "B0114",
                "b.shift_numbers[2]",
            ),
        ] {
            let problems = config.validate("b", (4, 2));
            let found: Vec<_> = problems.iter().map(|p| (p.code.code, &*p.path)).collect();
            assert_eq!(found, [(code, key)]);
        }
        let numbered = of(256, clock(1000), &[3, 1, 2, 0]);
        assert_eq!(numbered.validate("b", (4, 2)), []);
        let linear = of(256, ShapingPace::BARRIER, &[]);
        assert_eq!(linear.validate("b", (4, 2)), []);
        assert_eq!(
            (linear.kind(), numbered.kind()),
            ("linear-shift", "barrel-shifter")
        );
        assert_eq!(linear.barrier_patience(), DurationNs(100_000_000));
        let schedule = numbered.schedule(4, 2);
        assert_eq!(schedule.receiver(3, 0), Some(0));
        assert_eq!(schedule.receiver(0, 0), None, "it rests");
    }
}
