//! Designer: from a wanted curve to coefficient sets, with a bound of the error.
//!
//! The curve is cut into segments from its start on, each as long as the tolerance allows. A
//! segment is the parabola through the curve at its start, middle and end, in the integers of the
//! hardware; all but the first begin where the one before ends, so that there are no steps between them, and
//! end within half of the tolerance, so that the next one has room. Then *every* sample of it is computed as the hardware would and compared with the
//! curve at both ends of the time that the sample is held. The largest difference found is the
//! stated error: it bounds the error at every moment, provided that the curve is monotonic between
//! neighbouring samples (0.5 to 62.5 us). What is designed passes the checks of
//! [`crate::function_generator::validation`]; formulas are read by [`crate::formula`].

use std::ops::Range;

use livetime_wire::{CoefficientSet, DurationNs};

use crate::function_generator::segment::{FREQUENCY_MAX, SHIFT_MAX, STEP_MAX, Segment};

/// Curves end on a multiple of this, the shortest segment: 125 us.
pub const GRID_NS: u64 = 125_000;
/// Longest curve that is designed: one hour.
pub const DURATION_MAX: DurationNs = DurationNs(3_600_000_000_000);

/// What the designer must keep to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DesignOptions {
    /// Largest error allowed, in units of the output (1 / 2^31 of full scale).
    pub tolerance: f64,
    /// Sample frequency index to use, 0..=7; `None` chooses for each segment.
    pub frequency: Option<u8>,
}

/// A designed waveform.
#[derive(Debug, Clone, PartialEq)]
pub struct Design {
    /// The sets.
    pub sets: Vec<CoefficientSet>,
    /// Largest difference between curve and output, in units of the output.
    pub error_max: f64,
    /// Where it is.
    pub error_at: DurationNs,
    /// Length of all segments; the curve's, rounded up to the grid.
    pub duration: DurationNs,
}

/// Why a curve cannot be designed.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum DesignError {
    /// The curve has no length, or is too long.
    #[error("curve is {found} long, allowed is more than 0 ns and at most {DURATION_MAX}")]
    Duration {
        /// Length found.
        found: DurationNs,
    },
    /// The tolerance is not a positive number.
    #[error("tolerance is {found}, it must be a positive number of output units")]
    Tolerance {
        /// Tolerance found.
        found: f64,
    },
    /// No such sample frequency.
    #[error("frequency index is {found}, allowed is 0 to {FREQUENCY_MAX}")]
    Frequency {
        /// Index found.
        found: u8,
    },
    /// The curve leaves the output, or is not a number.
    #[error("curve is {found} at {at}, the output reaches from -2147483648 to 2147483647")]
    Range {
        /// Value found.
        found: f64,
        /// Where.
        at: DurationNs,
    },
    /// Even the shortest segment is off by more than the tolerance.
    #[error(
        "the shortest segment at {at} is off by {} output units, allowed is {}; \
         raise the tolerance or smooth the curve there",
        sensible(*.found), sensible(*.tolerance)
    )]
    Unreachable {
        /// Where.
        at: DurationNs,
        /// Its error, as far as it was looked at.
        found: f64,
        /// Tolerance.
        tolerance: f64,
    },
    /// The shortest segment through the curve leaves the output on its way.
    #[error(
        "the shortest segment at {at} would leave the output between its ends; smooth the curve \
         there"
    )]
    Overshoot {
        /// Where.
        at: DurationNs,
    },
    /// Points that do not make a curve.
    #[error("point {index} of the curve is not after the one before, or not a number")]
    Points {
        /// Which point, from 0.
        index: usize,
    },
}

/// A number of output units with four digits at least: tolerances can be far below one.
fn sensible(value: f64) -> String {
    match value < 1.0 {
        true => format!("{value:.3e}"),
        false => format!("{value:.3}"),
    }
}

/// A curve of points with straight lines between them; before the first and after the last point
/// it keeps their values.
#[derive(Debug, Clone, PartialEq)]
pub struct PointCurve {
    points: Vec<(f64, f64)>,
}

impl PointCurve {
    /// A curve through (seconds, value) points.
    ///
    /// # Errors
    /// [`DesignError::Points`] unless the times rise and all numbers are finite.
    pub fn new(points: Vec<(f64, f64)>) -> Result<Self, DesignError> {
        let mut before = f64::NEG_INFINITY;
        for (index, (time, value)) in points.iter().enumerate() {
            if !(time.is_finite() && value.is_finite() && *time > before) {
                return Err(DesignError::Points { index });
            }
            before = *time;
        }
        if points.is_empty() {
            return Err(DesignError::Points { index: 0 });
        }
        Ok(Self { points })
    }

    /// The curve's value at a time in seconds.
    pub fn at(&self, time: f64) -> f64 {
        let after = self.points.partition_point(|(t, _)| *t <= time);
        let (Some(left), Some(right)) = (
            after.checked_sub(1).map(|left| self.points[left]),
            self.points.get(after),
        ) else {
            let nearest = after.saturating_sub(1).min(self.points.len() - 1);
            return self.points[nearest].1;
        };
        left.1 + (right.1 - left.1) * (time - left.0) / (right.0 - left.0)
    }

    /// Time of the last point, seconds.
    pub fn end(&self) -> f64 {
        self.points.last().map_or(0.0, |(time, _)| *time)
    }
}

/// One way to sample a segment.
#[derive(Debug, Clone, Copy)]
struct Shape {
    duration_ns: u64,
    step: u8,
    frequency: u8,
}

/// Every way to sample, the longest first and of equal ones the finest first.
fn shapes(frequency: Option<u8>) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for step in 0..=STEP_MAX {
        for candidate in 0..=FREQUENCY_MAX {
            if frequency.is_some_and(|wanted| wanted != candidate) {
                continue;
            }
            let set = CoefficientSet {
                step,
                frequency: candidate,
                ..CoefficientSet::default()
            };
            let duration_ns = Segment::new(&set).duration().0;
            // Other lengths would leave the grid, and the rest could not be filled.
            if duration_ns.is_multiple_of(GRID_NS) {
                shapes.push(Shape {
                    duration_ns,
                    step,
                    frequency: candidate,
                });
            }
        }
    }
    shapes.sort_by_key(|shape| (u64::MAX - shape.duration_ns, u8::MAX - shape.frequency));
    shapes
}

/// Designs a waveform for `curve`, a function of seconds that gives units of the output.
///
/// With a fixed frequency the length is rounded up to that frequency's shortest segment instead of
/// the grid; the curve keeps its last value there.
///
/// # Errors
/// [`DesignError`] saying where and by how much the curve cannot be followed.
pub fn design(
    curve: impl Fn(f64) -> f64,
    duration: DurationNs,
    options: &DesignOptions,
) -> Result<Design, DesignError> {
    if duration.0 == 0 || duration > DURATION_MAX {
        return Err(DesignError::Duration { found: duration });
    }
    if !(options.tolerance > 0.0 && options.tolerance.is_finite()) {
        return Err(DesignError::Tolerance {
            found: options.tolerance,
        });
    }
    if let Some(found) = options.frequency.filter(|f| *f > FREQUENCY_MAX) {
        return Err(DesignError::Frequency { found });
    }
    let shapes = shapes(options.frequency);
    let shortest = shapes.last().map_or(GRID_NS, |shape| shape.duration_ns);
    let end = duration.0.div_ceil(shortest) * shortest;
    let value = |at_ns: u64| curve(at_ns.min(duration.0) as f64 * 1e-9);
    let mut design = Design {
        sets: Vec::new(),
        error_max: 0.0,
        error_at: DurationNs(0),
        duration: DurationNs(end),
    };
    let mut start = 0;
    // Where the segment before ends.
    let mut joint = None;
    while start < end {
        let fitted = longest(&value, start..end, &shapes, joint, options.tolerance)?;
        if fitted.error > design.error_max {
            (design.error_max, design.error_at) = (fitted.error, DurationNs(fitted.error_at));
        }
        joint = Some(Segment::new(&fitted.set).end_value());
        design.sets.push(fitted.set);
        start += fitted.duration_ns;
    }
    Ok(design)
}

/// A segment that follows the curve closely enough.
struct Fitted {
    set: CoefficientSet,
    duration_ns: u64,
    /// Its largest distance from the curve, and where that is.
    error: f64,
    error_at: u64,
}

/// The longest segment that fits `span` from its start on, of `shapes` (longest first).
fn longest(
    value: &impl Fn(u64) -> f64,
    span: Range<u64>,
    shapes: &[Shape],
    joint: Option<i64>,
    tolerance: f64,
) -> Result<Fitted, DesignError> {
    let start = span.start;
    let shortest = shapes.last().map_or(GRID_NS, |shape| shape.duration_ns);
    let mut best: Option<(f64, u64)> = None;
    let fitting = shapes
        .iter()
        .filter(|shape| shape.duration_ns <= span.end - start);
    for shape in fitting {
        check_range(value, start)?;
        let Some(set) = fit(value, start, shape, joint) else {
            continue;
        };
        let (error, error_at) = segment_error(value, start, &set, tolerance);
        let after = start + shape.duration_ns;
        let end_error = (value(after) - Segment::new(&set).end_value() as f64).abs();
        // The shortest has nothing shorter behind it.
        let leaves_room = end_error <= tolerance / 2.0 || shape.duration_ns == shortest;
        if error <= tolerance && leaves_room {
            return Ok(Fitted {
                set,
                duration_ns: shape.duration_ns,
                error,
                error_at,
            });
        }
        // The shortest comes last and is no worse, but where the curve has no value at all.
        best = Some((error, error_at));
    }
    // What leaves the output within the shortest segment is better said so.
    check_range(value, start + shortest / 2)?;
    check_range(value, start + shortest)?;
    let start = DurationNs(start);
    let Some((found, at)) = best else {
        return Err(DesignError::Overshoot { at: start });
    };
    check_range(value, at)?;
    Err(DesignError::Unreachable {
        at: start,
        found,
        tolerance,
    })
}

fn check_range(value: &impl Fn(u64) -> f64, at: u64) -> Result<(), DesignError> {
    let found = value(at);
    if (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&found) {
        Ok(())
    } else {
        Err(DesignError::Range {
            found,
            at: DurationNs(at),
        })
    }
}

/// The parabola through start, middle and end, in the hardware's integers, which begins at `joint` if
/// there is one; `None` if it does not fit them.
fn fit(
    value: &impl Fn(u64) -> f64,
    start: u64,
    shape: &Shape,
    joint: Option<i64>,
) -> Option<CoefficientSet> {
    let mut set = CoefficientSet {
        step: shape.step,
        frequency: shape.frequency,
        ..CoefficientSet::default()
    };
    let segment = Segment::new(&set);
    let samples = segment.samples() as f64;
    let half = samples / 2.0;
    let [first, middle, last] =
        [0, shape.duration_ns / 2, shape.duration_ns].map(|after| value(start + after));
    if ![first, middle, last].iter().all(|v| v.is_finite()) {
        return None;
    }
    set.c = match joint {
        Some(end) => i32::try_from(end).ok()?,
        None => round_to_i32(first)?,
    };
    let scale = (1u64 << 32) as f64;
    let curvature = (last - 2.0 * middle + first) / (half * half) * scale;
    (set.a, set.shift_a) = mantissa(curvature)?;
    let curvature = f64::from(set.a) * (1u64 << set.shift_a) as f64;
    // With the curvature as it is after rounding, the slope that reaches the end value; the start
    // is the rounded one.
    let rise = (last - f64::from(set.c)) * scale;
    let slope = rise / samples - curvature * (samples - 1.0) / 2.0;
    (set.b, set.shift_b) = mantissa(slope)?;
    let (lowest, highest) = Segment::new(&set).exact_range();
    let fits = i64::try_from(lowest).is_ok() && i64::try_from(highest).is_ok();
    fits.then_some(set)
}

fn round_to_i32(value: f64) -> Option<i32> {
    let rounded = value.round();
    (f64::from(i32::MIN)..=f64::from(i32::MAX))
        .contains(&rounded)
        .then_some(rounded as i32)
}

/// A 16-bit number and a shift nearest to a value, with the smallest shift that can hold it.
fn mantissa(value: f64) -> Option<(i16, u8)> {
    (0..=SHIFT_MAX).find_map(|shift| {
        let mantissa = (value / (1u64 << shift) as f64).round();
        let fits = mantissa.abs() <= f64::from(i16::MAX);
        fits.then_some((mantissa as i16, shift))
    })
}

/// The largest difference between a segment and the curve, and where; stops early once it is
/// beyond `enough`.
fn segment_error(
    value: &impl Fn(u64) -> f64,
    start: u64,
    set: &CoefficientSet,
    enough: f64,
) -> (f64, u64) {
    let segment = Segment::new(set);
    let (samples, period) = (segment.samples(), segment.period_ns());
    let mut worst = (0.0, start);
    // A few spread samples first: most candidates that are too long fail there.
    let spread = (0..16).map(|n| n * samples / 16);
    for n in spread.chain(0..samples) {
        let at = start + n * period;
        let output = f64::from(segment.output_at(n));
        for time in [at, at + period] {
            let error = (value(time) - output).abs();
            // Not a number is an error beyond all bounds.
            if error > worst.0 || error.is_nan() {
                worst = (error, time);
            }
        }
        if worst.0 > enough || worst.0.is_nan() {
            break;
        }
    }
    worst
}

/// The output of a waveform at a time since its start; what is held after its end.
pub fn output_at(sets: &[CoefficientSet], at: DurationNs) -> Option<i32> {
    let mut start = 0;
    let mut last = None;
    for set in sets {
        let segment = Segment::new(set);
        let n = (at.0 - start) / segment.period_ns();
        if n < segment.samples() {
            return Some(segment.output_at(n));
        }
        last = Some(segment.output_at(segment.samples() - 1));
        start += segment.duration().0;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function_generator::validation::{SequenceStart, ValidationRules, validate_sets};

    const FULL: f64 = 2_147_483_647.0;

    fn options(tolerance: f64) -> DesignOptions {
        DesignOptions {
            tolerance,
            frequency: None,
        }
    }

    #[test]
    fn a_ramp_needs_few_segments_and_keeps_its_bound() {
        let curve = PointCurve::new(vec![(0.0, 0.0), (0.5, 1e8), (0.75, 1e8), (1.0, 0.0)]).unwrap();
        let second = DurationNs::SECOND;
        let design = design(|t| curve.at(t), second, &options(4096.0)).unwrap();
        assert_eq!(design.duration, second);
        assert!(design.error_max <= 4096.0);
        assert!(design.sets.len() < 200, "{} sets", design.sets.len());
        let flat = output_at(&design.sets, DurationNs(600_000_000)).unwrap();
        assert!(flat.abs_diff(100_000_000) <= 4096, "{flat}");
    }

    /// The default rules of a generator allow joints of 1024 units, however large the tolerance is.
    #[test]
    fn whatever_is_designed_is_taken_by_a_generator() {
        let corners = vec![(0.0, 0.0), (0.1, 0.2 * FULL), (0.5, 0.4 * FULL)];
        let points = PointCurve::new(corners).unwrap();
        let curves: [(&str, &dyn Fn(f64) -> f64); 6] = [
            ("points", &|t| points.at(t)),
            ("line", &|t| FULL * t),
            ("square", &|t| FULL * t * t),
            ("sine", &|t| FULL * (6.0 * t).sin()),
            ("decay", &|t| FULL * (-5.0 * t).exp()),
            ("cosine", &|t| {
                FULL / 2.0 * (1.0 - (core::f64::consts::PI * t).cos())
            }),
        ];
        for (name, curve) in curves {
            for tolerance in [1e-5, 1e-4, 1e-3] {
                let options = options(tolerance * FULL);
                let design = design(curve, DurationNs::SECOND, &options).unwrap();
                assert!(design.error_max <= options.tolerance, "{name} {tolerance}");
                let (start, rules) = (SequenceStart::default(), ValidationRules::default());
                validate_sets(design.sets.iter(), &start, &rules, |problem| {
                    panic!("{name} {tolerance}: {problem}")
                });
            }
        }
    }

    #[test]
    fn a_constant_hour_is_made_of_the_longest_segments() {
        let design = design(|_| 12_345.0, DURATION_MAX, &options(0.5)).unwrap();
        assert_eq!(design.sets.len(), 1800);
        assert!(design.error_max == 0.0);
    }

    #[test]
    fn what_cannot_be_followed_is_refused_with_its_place() {
        let ms = DurationNs::MILLISECOND;
        let jump = |t: f64| if t < 0.0005 { 0.0 } else { 1e6 };
        let error = design(jump, ms, &options(100.0)).unwrap_err();
        let DesignError::Unreachable { at, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(at, DurationNs(375_000));
        // Also of tolerances far below one unit it is said what they are.
        let text = design(jump, ms, &options(0.002)).unwrap_err().to_string();
        assert!(text.contains("allowed is 2.000e-3; raise"), "{text}");
        let far = design(|t| 3e9 * t * 1000.0, ms, &options(1e9)).unwrap_err();
        assert!(matches!(far, DesignError::Range { .. }), "{far}");
        assert!(design(|_| f64::NAN, ms, &options(1.0)).is_err());
        // A single moment without a value, between the ends of all segments.
        for hole in [f64::NAN, f64::INFINITY] {
            let holed = move |t: f64| if (t - 3e-4).abs() < 1e-9 { hole } else { 0.0 };
            let error = design(holed, ms, &options(1e9)).unwrap_err();
            let DesignError::Range { found, at } = error else {
                panic!("{error}");
            };
            assert!(found.to_bits() == hole.to_bits());
            assert_eq!(at, DurationNs(300_000));
        }
        // Down and up again within the shortest segment, from limit to limit.
        let cusp = |t: f64| FULL * ((t - 62.5e-6).abs() / 31.25e-6 - 1.0).clamp(-1.0, 1.0);
        let error = design(cusp, ms, &options(1.0)).unwrap_err();
        let place = matches!(error, DesignError::Overshoot { at } | DesignError::Unreachable { at, .. } if at.0 == 0);
        assert!(place, "{error}");
        assert!(design(|_| 0.0, DurationNs(0), &options(1.0)).is_err());
        assert!(design(|_| 0.0, ms, &options(0.0)).is_err());
        assert!(design(|_| 0.0, ms, &options(f64::NAN)).is_err());
    }

    #[test]
    fn points_must_rise() {
        assert!(PointCurve::new(vec![]).is_err());
        let error = PointCurve::new(vec![(0.0, 1.0), (1.0, 2.0), (1.0, 3.0)]).unwrap_err();
        assert_eq!(error, DesignError::Points { index: 2 });
        let curve = PointCurve::new(vec![(1.0, 10.0), (2.0, 20.0)]).unwrap();
        let values = [0.0, 1.0, 1.5, 2.0, 9.0].map(|t| curve.at(t));
        assert!(values == [10.0, 10.0, 15.0, 20.0, 20.0]);
    }

    #[test]
    fn a_fixed_frequency_rounds_the_length_to_its_segments() {
        let options = DesignOptions {
            tolerance: 10.0,
            frequency: Some(4),
        };
        let design = design(|_| FULL, DurationNs(2_500_001), &options).unwrap();
        assert_eq!(design.duration, DurationNs(3_000_000));
        assert!(design.sets.iter().all(|set| set.frequency == 4));
        assert_eq!(output_at(&design.sets, DurationNs(0)), Some(i32::MAX));
    }
}
