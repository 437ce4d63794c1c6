//! Designed waveforms against their curves: the stated error bound holds at any moment, the sets
//! pass the generator's checks, and what the generator puts out is what was designed.

use livetime_timing::formula::Formula;
use livetime_timing::function_generator::{FunctionGenerator, GeneratorConfig};
use livetime_timing::waveform::{DesignOptions, design, output_at};
use livetime_wire::{DurationNs, TaiNs};
use proptest::prelude::*;

fn smooth_curve() -> impl Strategy<Value = (f64, f64, f64, f64)> {
    // Offset, amplitude, frequency in Hz, phase: within the output, and slow enough to follow.
    (-5e8..5e8f64, 0.0..1e9f64, 0.1..20.0f64, 0.0..6.3f64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_stated_error_bounds_every_moment(
        (offset, amplitude, frequency, phase) in smooth_curve(),
        grid in 1u64..400,
        exponent in 5.0..7.0f64,
        moments in proptest::collection::vec(0.0..1.0f64, 200),
    ) {
        let curve = |t: f64| offset + amplitude * (core::f64::consts::TAU * frequency * t + phase).sin();
        let duration = DurationNs(grid * 125_000);
        // Two samples at 2 MHz apart, the steepest curve moves by 2 pi 20 Hz 1e9 0.5 us.
        let tolerance = 10f64.powf(exponent);
        let options = DesignOptions { tolerance, frequency: None };
        let design = design(curve, duration, &options).unwrap();
        prop_assert!(design.error_max <= tolerance);
        prop_assert_eq!(design.duration, duration);
        for moment in moments {
            let at = DurationNs((moment * (duration.0 - 1) as f64) as u64);
            let output = f64::from(output_at(&design.sets, at).unwrap());
            let error = (output - curve(at.0 as f64 * 1e-9)).abs();
            // Within a sample the curve may turn, by less than one unit at these frequencies.
            prop_assert!(error <= design.error_max + 1.0, "{} at {}: {}", design.error_max, at, error);
        }
        let mut config = GeneratorConfig::default();
        config.rules.joint = Some(2 * tolerance as u32 + 2);
        let mut generator = FunctionGenerator::new(config);
        generator.append(TaiNs(0), &design.sets).unwrap();
    }
}

#[test]
fn what_the_generator_puts_out_is_what_was_designed() {
    let formula = Formula::parse("1e8 * (1 - cos(pi * min(t, 0.05) / 0.05)) / 2").unwrap();
    let options = DesignOptions {
        tolerance: 4096.0,
        frequency: None,
    };
    let duration = DurationNs(60_000_000);
    let design = design(|t| formula.at(t), duration, &options).unwrap();
    let mut generator = FunctionGenerator::new(GeneratorConfig::default());
    generator.append(TaiNs(0), &design.sets).unwrap();
    generator.arm(TaiNs(0)).unwrap();
    while generator.poll_output(TaiNs(1_000_000)).is_some() {}
    let start = TaiNs(5_000_000);
    assert!(generator.handle_start_tag(start, 0));
    let mut compared = 0;
    for at in (0..61_000_000).step_by(12_345) {
        let now = start.after(DurationNs(at));
        while generator.poll_output(now).is_some() {}
        let expected = output_at(&design.sets, DurationNs(at)).unwrap();
        assert_eq!(generator.output(now), expected, "at {at} ns");
        compared += 1;
    }
    assert!(compared > 4000);
    assert!((f64::from(generator.output(start.after(duration))) - 1e8).abs() <= 4096.0);
}
