//! The keys of traffic shaping in the `[builder]` table of a run.
//!
//! `shaping` and `block` are called what scenario files call them ([`super::builder_scenario`]). What
//! the values may be says [`ShapingConfig`]; here is which keys go together.

use livetime_builder::shaping_config::{BLOCK_BYTES, STEP};
use livetime_builder::{ShapingConfig, ShapingPace};
use livetime_wire::{ByteSize, DurationNs, Problem};

use super::builder_scenario::RATE;
use super::document::{Findings, Quantity, Section};
use super::problem_code::{BOTH_KEYS, IDLE_KEY, MISSING_KEY, OUT_OF_RANGE};
use super::scenario::parse_bit_rate;

/// Who says when the next builder unit has its turn, by its name.
const PACE: [(&str, PaceMaker); 2] = [
    ("back-pressure", PaceMaker::Links),
    ("clock", PaceMaker::Clock),
];

/// Whether readout units are shaped, by the name of how.
const SHAPING: [(&str, Shaper); 3] = [
    ("none", Shaper::None),
    ("barrel-shifter", Shaper::BarrelShifter),
    ("linear-shift", Shaper::LinearShift),
];

/// How it is said that readout units are shaped by a barrel shifter, and in any way.
const BARREL_SHIFTER: &str = "`shaping = \"barrel-shifter\"`";
const LINEAR_SHIFT: &str = "`shaping = \"linear-shift\"`";
const ANY_SHAPING: &str = "`shaping = \"barrel-shifter\"` or \"linear-shift\"";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shaper {
    None,
    BarrelShifter,
    LinearShift,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PaceMaker {
    Links,
    Clock,
}

/// Reads `shaping` and what belongs to it.
pub(super) fn read_shaping(
    section: &mut Section<'_, '_>,
    findings: &Findings,
) -> Option<ShapingConfig> {
    let shaper = section.choice("shaping", &SHAPING);
    let written = WrittenKeys::read(section);
    match shaper {
        Some(Shaper::BarrelShifter) => Some(written.barrel_shifter(section, findings)),
        Some(Shaper::LinearShift) => Some(written.linear_shift(section, findings)),
        // A word that is none was found already.
        None if section.has("shaping") => None,
        None | Some(Shaper::None) => {
            for key in ["block", "turn_max", "shift_numbers"] {
                refuse(section, findings, key, ANY_SHAPING);
            }
            for key in ["pace", "step", "link_rate"] {
                refuse(section, findings, key, BARREL_SHIFTER);
            }
            refuse(section, findings, "barrier_retry", LINEAR_SHIFT);
            None
        }
    }
}

/// The keys beside `shaping`, as they are written.
struct WrittenKeys {
    block: Option<ByteSize>,
    pace: PaceMaker,
    turn_max: Option<DurationNs>,
    barrier_retry: Option<DurationNs>,
    step: Option<DurationNs>,
    bits_per_s: Option<u64>,
    numbers: Vec<u16>,
}

impl WrittenKeys {
    /// Reads them all, whichever belong together, so that each is known.
    fn read(section: &mut Section<'_, '_>) -> Self {
        let numbers = section.integers("shift_numbers", u16::MAX.into());
        let numbers = numbers.unwrap_or_default().into_iter();
        Self {
            block: quantity(section, "block", ByteSize(0)),
            pace: section.choice("pace", &PACE).unwrap_or(PaceMaker::Links),
            turn_max: quantity(section, "turn_max", DurationNs(0)),
            barrier_retry: quantity(section, "barrier_retry", DurationNs(0)),
            step: quantity(section, "step", DurationNs(0)),
            bits_per_s: section.parsed("link_rate", RATE, parse_bit_rate),
            numbers: numbers.map(|number| number as u16).collect(),
        }
    }

    /// What both have.
    fn of_pace(&self, pace: ShapingPace) -> ShapingConfig {
        let default = ShapingConfig::default();
        let bytes = |block: ByteSize| u32::try_from(block.0).unwrap_or(u32::MAX);
        ShapingConfig {
            block_bytes: self.block.map_or(default.block_bytes, bytes),
            pace,
            numbers: self.numbers.clone(),
        }
    }

    fn linear_shift(self, section: &Section<'_, '_>, findings: &Findings) -> ShapingConfig {
        for key in ["pace", "step", "link_rate"] {
            refuse(section, findings, key, BARREL_SHIFTER);
        }
        let mut pace = ShapingPace::BARRIER;
        if let ShapingPace::Barrier { turn_max, retry } = &mut pace {
            *turn_max = self.turn_max.unwrap_or(*turn_max);
            *retry = self.barrier_retry.unwrap_or(*retry);
        }
        self.of_pace(pace)
    }

    fn barrel_shifter(self, section: &Section<'_, '_>, findings: &Findings) -> ShapingConfig {
        refuse(section, findings, "barrier_retry", LINEAR_SHIFT);
        let mut shaping = self.of_pace(ShapingPace::default());
        match self.pace {
            PaceMaker::Links => {
                // Behind a pace that could not be read they may belong there.
                for key in ["step", "link_rate"] {
                    if !section.is_unread("pace") {
                        refuse(section, findings, key, "`pace = \"clock\"`");
                    }
                }
                if let Some(turn_max) = self.turn_max {
                    shaping.pace = ShapingPace::BackPressure { turn_max };
                }
            }
            PaceMaker::Clock => {
                refuse(section, findings, "turn_max", "`pace = \"back-pressure\"`");
                let step = self.step(shaping.block_bytes, section, findings);
                shaping.pace = ShapingPace::Clock { step };
            }
        }
        shaping
    }

    /// The time of a step: the one that is written, or that of a block on a link.
    fn step(&self, block_bytes: u32, section: &Section<'_, '_>, findings: &Findings) -> DurationNs {
        let (has_step, has_rate) = (section.has("step"), section.has("link_rate"));
        if has_step && has_rate {
            let help = "leave one of them out: the rate of a link and `block` give the step";
            let key = section.key_path("link_rate");
            let problem = Problem::new(BOTH_KEYS, key, "beside `step`", "one of them", help);
            findings.report(problem.with_related(section.key_path("step"), "set here"));
        } else if !has_step && !has_rate {
            findings.report(
                Problem::new(
                    MISSING_KEY,
                    section.key_path("link_rate"),
                    "not there",
                    "`link_rate` or `step`, with `pace = \"clock\"`",
                    "add `link_rate = ..` with the rate of a link, such as \"1 Gb/s\"",
                )
                .with_related(section.key_path("pace"), "the pace that needs it"),
            );
        }
        if let Some(step) = self.step {
            return step;
        }
        let Some(bits_per_s) = self.bits_per_s else {
            // What is missing or wrong was said.
            return *STEP.end();
        };
        let ns = u128::from(block_bytes) * 8_000_000_000;
        let step = DurationNs((ns.div_ceil(bits_per_s.into())) as u64);
        if !STEP.contains(&step) && BLOCK_BYTES.contains(&block_bytes) {
            let (shortest, longest) = (STEP.start(), STEP.end());
            let problem = Problem::new(
                OUT_OF_RANGE,
                section.key_path("link_rate"),
                format!("steps of {step}"),
                format!("a rate at which a block takes {shortest} to {longest}"),
                "choose another `block`, or correct the rate",
            );
            findings.report(problem.with_related(section.key_path("block"), "the block"));
        }
        step.clamp(*STEP.start(), *STEP.end())
    }
}

/// A quantity that may be left out; `zero` is of its kind.
fn quantity<T: Quantity>(section: &mut Section<'_, '_>, key: &'static str, zero: T) -> Option<T> {
    let mut value = zero;
    section.quantity(key, &mut value);
    section.has(key).then_some(value)
}

/// Refuses a key that is written where it has no meaning.
fn refuse(section: &Section<'_, '_>, findings: &Findings, key: &str, needed: &str) {
    if section.has(key) {
        findings.report(Problem::new(
            IDLE_KEY,
            section.key_path(key),
            "set",
            format!("only with {needed}"),
            format!("leave the key out, or set {needed}"),
        ));
    }
}
