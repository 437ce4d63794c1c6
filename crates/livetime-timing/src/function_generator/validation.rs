//! Checks of coefficient sets before they are queued: ranges, overflow, window, joints, length.
//!
//! Ranges of step, frequency and shifts are always enforced; what else is checked, and whether a
//! finding refuses the sets or is only reported, is chosen by [`ValidationRules`]. Each finding
//! names the index of the set; the channel is added by [`crate::function_generator::master`].

use core::fmt;

use livetime_wire::CoefficientSet;

use super::segment::{FREQUENCY_MAX, SHIFT_MAX, STEP_MAX, Segment};

/// What to do with findings beyond the ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValidationMode {
    /// Ranges only.
    Off,
    /// Findings are reported, and the sets queued.
    Warn,
    /// The first finding refuses all sets.
    Reject,
}

/// Which rules, with their bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValidationRules {
    /// What to do with findings.
    pub mode: ValidationMode,
    /// Smallest output allowed.
    pub output_min: i32,
    /// Largest output allowed.
    pub output_max: i32,
    /// Largest step between the end of a segment and the start of the next, in units of the
    /// output; `None` allows any.
    pub joint: Option<u32>,
    /// Largest step between the output now held and the first start value; `None` allows any.
    pub start: Option<u32>,
    /// Longest waveform that may be queued, ns; `None` allows any.
    pub duration_max_ns: Option<u64>,
}

impl Default for ValidationRules {
    /// Refuses overflow and joints of more than 1024 units (a quarter of a 20-bit converter's
    /// step), allows the whole output, any start and any length.
    fn default() -> Self {
        Self {
            mode: ValidationMode::Reject,
            output_min: i32::MIN,
            output_max: i32::MAX,
            joint: Some(1024),
            start: None,
            duration_max_ns: None,
        }
    }
}

/// Which rule a set breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SetRule {
    /// A field is out of range.
    Range {
        /// Name of the field.
        field: &'static str,
        /// Value found.
        found: u8,
        /// Largest value allowed.
        max: u8,
    },
    /// The 64-bit accumulator wraps within the segment.
    Overflow,
    /// The output leaves the window.
    Window {
        /// The output furthest out.
        found: i32,
        /// Smallest allowed.
        min: i32,
        /// Largest allowed.
        max: i32,
    },
    /// The segment does not begin where the one before ends.
    Joint {
        /// End of the segment before.
        end: i64,
        /// Start value.
        start: i32,
        /// Largest step allowed.
        tolerance: u32,
    },
    /// The waveform does not begin where the output is.
    Start {
        /// Output now held.
        held: i32,
        /// Start value.
        start: i32,
        /// Largest step allowed.
        tolerance: u32,
    },
    /// The waveform is too long from this set on.
    Duration {
        /// Length with this set, ns.
        total_ns: u64,
        /// Longest allowed, ns.
        max_ns: u64,
    },
}

/// A set that breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("set {index}: {rule}")]
pub struct SetProblem {
    /// Which set, from 0.
    pub index: usize,
    /// Which rule.
    pub rule: SetRule,
}

impl fmt::Display for SetRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { field, found, max } => {
                write!(f, "{field} is {found}, allowed is 0 to {max}")
            }
            Self::Overflow => f.write_str("the accumulator overflows 64 bits within the segment"),
            Self::Window { found, min, max } => {
                write!(f, "output reaches {found}, allowed is {min} to {max}")
            }
            Self::Joint {
                end,
                start,
                tolerance,
            } => write!(
                f,
                "starts at {start} but the set before ends at {end}, allowed step is {tolerance}"
            ),
            Self::Start {
                held,
                start,
                tolerance,
            } => write!(
                f,
                "starts at {start} but the output holds {held}, allowed step is {tolerance}"
            ),
            Self::Duration { total_ns, max_ns } => {
                write!(f, "waveform is {total_ns} ns long, allowed is {max_ns} ns")
            }
        }
    }
}

/// Where a sequence of sets begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SequenceStart {
    /// End value of the set queued last, if the queue is not empty.
    pub end_before: Option<i64>,
    /// Output now held, if the sets are the first of a waveform.
    pub held: Option<i32>,
    /// Length of what is queued already, ns.
    pub queued_ns: u64,
}

/// Checks sets in order and calls `found` for each finding until it returns `false`.
///
/// Range findings come with every mode; the others only if the mode is not
/// [`ValidationMode::Off`].
pub fn validate_sets<'a>(
    sets: impl Iterator<Item = &'a CoefficientSet>,
    start: &SequenceStart,
    rules: &ValidationRules,
    mut found: impl FnMut(SetProblem) -> bool,
) {
    let mut end_before = start.end_before;
    let mut total_ns = start.queued_ns;
    let limit = magnitude_limit(rules);
    let longest_ns = rules.duration_max_ns.unwrap_or(u64::MAX);
    for (index, set) in sets.enumerate() {
        let segment = Segment::new(set);
        total_ns = total_ns.saturating_add(segment.duration().0);
        // Most sets break no rule, which is seen sooner than which rule one breaks.
        if total_ns <= longest_ns
            && is_in_range(set)
            && joint_problem(set, end_before, rules).is_none()
            && start_problem(set, index, start.held, rules).is_none()
            && let Some(end) = segment.end_if_within(limit)
        {
            end_before = Some(end);
            continue;
        }
        let mut findings = [None; 5];
        findings[0] = range_problem(set);
        if rules.mode != ValidationMode::Off {
            findings[1] = output_problem(&segment, rules);
            findings[2] = joint_problem(set, end_before, rules);
            findings[3] = start_problem(set, index, start.held, rules);
            findings[4] = rules
                .duration_max_ns
                .filter(|max_ns| total_ns > *max_ns)
                .map(|max_ns| SetRule::Duration { total_ns, max_ns });
        }
        for rule in findings.into_iter().flatten() {
            if !found(SetProblem { index, rule }) {
                return;
            }
        }
        end_before = Some(segment.end_value());
    }
}

/// The accumulator's magnitude from which on an output may be out of the window: 2^32 times the
/// bound that is nearer to 0, at most 2^63 - 2^32; 0 for a window without 0.
fn magnitude_limit(rules: &ValidationRules) -> u64 {
    let (min, max) = (rules.output_min, rules.output_max);
    if min < 0 && max > 0 {
        u64::from(min.unsigned_abs().min(max.unsigned_abs())) << 32
    } else {
        0
    }
}

#[inline]
fn is_in_range(set: &CoefficientSet) -> bool {
    set.step <= STEP_MAX
        && set.frequency <= FREQUENCY_MAX
        && set.shift_a <= SHIFT_MAX
        && set.shift_b <= SHIFT_MAX
}

fn range_problem(set: &CoefficientSet) -> Option<SetRule> {
    [
        ("step", set.step, STEP_MAX),
        ("frequency", set.frequency, FREQUENCY_MAX),
        ("shift_a", set.shift_a, SHIFT_MAX),
        ("shift_b", set.shift_b, SHIFT_MAX),
    ]
    .into_iter()
    .find(|(_, found, max)| found > max)
    .map(|(field, found, max)| SetRule::Range { field, found, max })
}

fn output_problem(segment: &Segment, rules: &ValidationRules) -> Option<SetRule> {
    let (min, max) = (rules.output_min, rules.output_max);
    // Most of the segments that take a second look are inside, which a bound without divisions
    // shows.
    if segment.magnitude_bound() < u128::from(magnitude_limit(rules)) {
        return None;
    }
    let (lowest, highest) = segment.exact_range();
    let fits = |value: i128| i64::try_from(value).ok().map(|value| (value >> 32) as i32);
    let (Some(lowest), Some(highest)) = (fits(lowest), fits(highest)) else {
        return Some(SetRule::Overflow);
    };
    let found = if lowest < min {
        lowest
    } else if highest > max {
        highest
    } else {
        return None;
    };
    Some(SetRule::Window { found, min, max })
}

#[inline]
fn joint_problem(
    set: &CoefficientSet,
    end_before: Option<i64>,
    rules: &ValidationRules,
) -> Option<SetRule> {
    let (end, tolerance) = (end_before?, rules.joint?);
    let step = end.abs_diff(i64::from(set.c));
    (step > u64::from(tolerance)).then_some(SetRule::Joint {
        end,
        start: set.c,
        tolerance,
    })
}

#[inline]
fn start_problem(
    set: &CoefficientSet,
    index: usize,
    held: Option<i32>,
    rules: &ValidationRules,
) -> Option<SetRule> {
    let (held, tolerance) = (held?, rules.start?);
    (index == 0 && held.abs_diff(set.c) > tolerance).then_some(SetRule::Start {
        held,
        start: set.c,
        tolerance,
    })
}
