//! Function generators: arithmetic against big integers, state machine and signals, streaming for
//! ten minutes of virtual time, faults of the emulated hardware, validation rule by rule.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use livetime_timing::function_generator::{
    Accumulator, FirmwareFault, FunctionGenerator, GeneratorConfig, GeneratorError,
    GeneratorSignal, GeneratorState, Segment, SetRule, ValidationMode, period_ns, samples,
};
use livetime_wire::{CoefficientSet, DurationNs, TaiNs};

#[path = "support/random.rs"]
mod random;

use GeneratorSignal::{Armed, Enabled, Refill, Running, Started, Stopped};
use random::Random;

const MS: u64 = 1_000_000;

fn any_set(random: &mut Random) -> CoefficientSet {
    CoefficientSet {
        a: random.next() as i16,
        b: random.next() as i16,
        c: random.next() as i32,
        step: random.below(8) as u8,
        frequency: random.below(8) as u8,
        shift_a: random.below(49) as u8,
        shift_b: random.below(49) as u8,
    }
}

/// A flat segment of the shortest kind: 250 samples at 2 MHz, 125 us.
fn flat(value: i32) -> CoefficientSet {
    CoefficientSet {
        c: value,
        frequency: 7,
        ..CoefficientSet::default()
    }
}

/// Big integers in base 2^32, sign and magnitude apart: shares nothing with the code under test.
fn big_output(set: &CoefficientSet, n: u64) -> i32 {
    // Each term as (sign, limbs), summed modulo 2^64 in two's complement.
    let multiply = |limbs: [u64; 6], by: u64| -> [u64; 6] {
        let mut carry = 0;
        limbs.map(|limb| {
            let product = limb * by + carry;
            carry = product >> 32;
            product & 0xFFFF_FFFF
        })
    };
    let shift = |value: u64, by: u32| -> [u64; 6] {
        let mut limbs = [value & 0xFFFF_FFFF, value >> 32, 0, 0, 0, 0];
        for _ in 0..by {
            limbs = multiply(limbs, 2);
        }
        limbs
    };
    let low = |limbs: [u64; 6]| limbs[0] | (limbs[1] << 32);
    let signed = |negative: bool, value: u64| {
        if negative {
            (!value).wrapping_add(1)
        } else {
            value
        }
    };
    let magnitude = |value: i64| value.unsigned_abs();
    let start = low(shift(magnitude(i64::from(set.c)), 32));
    let slope = low(multiply(
        shift(magnitude(i64::from(set.b)), u32::from(set.shift_b)),
        n,
    ));
    let pairs = if n == 0 { 0 } else { n * (n - 1) / 2 };
    let curve = low(multiply(
        shift(magnitude(i64::from(set.a)), u32::from(set.shift_a)),
        pairs,
    ));
    let sum = signed(set.c < 0, start)
        .wrapping_add(signed(set.b < 0, slope))
        .wrapping_add(signed(set.a < 0, curve));
    (sum >> 32) as u32 as i32
}

#[test]
fn stepping_jumping_and_big_integers_agree_on_the_whole_grid() {
    let mut random = Random::new();
    for step in 0..8u8 {
        for frequency in 0..8u8 {
            let mut set = any_set(&mut random);
            (set.step, set.frequency) = (step, frequency);
            let segment = Segment::new(&set);
            assert_eq!(segment.samples(), 250 * 2u64.pow(u32::from(step)));
            let khz = [16.0, 32.0, 64.0, 125.0, 250.0, 500.0, 1000.0, 2000.0];
            let period = 1e6 / khz[usize::from(frequency)];
            assert!((segment.period_ns() as f64 - period).abs() < 0.5);
            let mut accumulator = Accumulator::new(&segment);
            for n in 0..=segment.samples() {
                assert_eq!(accumulator.output(), segment.output_at(n), "{set:?} {n}");
                if n % 97 == 0 || n == segment.samples() {
                    assert_eq!(segment.output_at(n), big_output(&set, n), "{set:?} {n}");
                }
                accumulator.step();
            }
        }
    }
    assert_eq!(samples(0) * period_ns(7), 125_000);
    assert_eq!(samples(7) * period_ns(0), 2_000_000_000);
}

#[test]
fn values_that_wrap_wrap_as_64_bits_do() {
    let set = CoefficientSet {
        a: i16::MIN,
        b: i16::MAX,
        c: i32::MIN,
        step: 7,
        frequency: 7,
        shift_a: 48,
        shift_b: 48,
    };
    let segment = Segment::new(&set);
    for n in [0, 1, 2, 3, 31_999, 32_000] {
        assert_eq!(segment.output_at(n), big_output(&set, n));
        let wrapped = segment.exact_at(n) as i64;
        assert_eq!(wrapped, segment.accumulator_at(n));
    }
}

#[test]
fn the_exact_range_is_that_of_every_sample() {
    let mut random = Random::new();
    for _ in 0..300 {
        let mut set = any_set(&mut random);
        set.step = random.below(2) as u8;
        if random.below(2) == 0 {
            // Balanced, so that the turning point lies within.
            set.shift_b = set.shift_a + random.below(8).min(48 - u64::from(set.shift_a)) as u8;
        }
        let segment = Segment::new(&set);
        let all = (0..=segment.samples()).map(|n| segment.exact_at(n));
        let (lowest, highest) = all.fold((i128::MAX, i128::MIN), |(l, h), x| (l.min(x), h.max(x)));
        assert_eq!(
            segment.exact_range(),
            (lowest, highest),
            "{set:?} {}",
            random.seed()
        );
    }
}

fn generator() -> FunctionGenerator {
    FunctionGenerator::new(GeneratorConfig::default())
}

fn armed(sets: &[CoefficientSet]) -> FunctionGenerator {
    let mut generator = generator();
    generator.append(TaiNs(0), sets).unwrap();
    generator.set_start_tag(7).unwrap();
    generator.arm(TaiNs(0)).unwrap();
    let signals = drain(&mut generator, TaiNs(MS));
    assert_eq!(signals, [Enabled(true), Armed(true)]);
    generator
}

fn drain(generator: &mut FunctionGenerator, now: TaiNs) -> Vec<GeneratorSignal> {
    std::iter::from_fn(|| generator.poll_output(now)).collect()
}

const GOOD_STOP: [GeneratorSignal; 3] = [
    Running(false),
    Stopped {
        time: TaiNs(2 * MS + 250_000),
        abort: false,
        hardware_underflow: false,
        controller_underflow: false,
    },
    Enabled(false),
];

#[test]
fn a_good_cycle_gives_its_signals_in_order() {
    let mut generator = armed(&[flat(10), flat(11)]);
    assert!(!generator.handle_start_tag(TaiNs(MS), 8), "another tag");
    assert_eq!(generator.state(), GeneratorState::Armed);
    let start = TaiNs(2 * MS);
    assert!(generator.handle_start_tag(start, 7));
    assert!(
        !generator.handle_start_tag(start, 7),
        "only armed ones start"
    );
    let mut signals = drain(&mut generator, start);
    let dry_at = TaiNs(2 * MS + 250_000);
    let expected = [
        Armed(false),
        Running(true),
        Started { time: start },
        Refill { dry_at },
    ];
    assert_eq!(signals, expected);
    assert_eq!(generator.output(start), 10);
    assert_eq!(generator.output(TaiNs(2 * MS + 124_999)), 10);
    assert!(drain(&mut generator, TaiNs(2 * MS + 125_000)).is_empty());
    assert_eq!(generator.output(TaiNs(2 * MS + 125_000)), 11);
    assert_eq!(generator.poll_timeout(), Some(dry_at));
    signals = drain(&mut generator, TaiNs(9 * MS));
    assert_eq!(signals, GOOD_STOP, "the time is the hardware's");
    assert_eq!(
        generator.output(TaiNs(9 * MS)),
        11,
        "the last value is held"
    );
    assert_eq!((generator.executed(), generator.discarded()), (2, 0));
}

#[test]
fn what_is_not_allowed_in_a_state_is_refused_with_both_states() {
    let mut generator = generator();
    assert_eq!(generator.arm(TaiNs(0)), Err(GeneratorError::Empty));
    let mut generator = armed(&[flat(0)]);
    let error = generator.arm(TaiNs(MS)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "function generator is armed, it must be disabled"
    );
    assert!(generator.flush().is_err() && generator.set_start_tag(1).is_err());
    generator.append(TaiNs(MS), &[flat(0)]).unwrap();
}

#[test]
fn an_abort_is_acknowledged_flushes_and_allows_arming_at_once() {
    for started in [false, true] {
        let mut generator = armed(&vec![flat(5); 1000]);
        if started {
            generator.handle_start_tag(TaiNs(2 * MS), 7);
            drain(&mut generator, TaiNs(2 * MS));
        }
        generator.abort(TaiNs(3 * MS));
        generator.abort(TaiNs(3 * MS + 1));
        assert_eq!(generator.state(), GeneratorState::Aborting);
        assert!(drain(&mut generator, TaiNs(3 * MS + 9_999)).is_empty());
        let signals = drain(&mut generator, TaiNs(3 * MS + 10_000));
        let time = TaiNs(3 * MS + 10_000);
        let stopped = Stopped {
            time,
            abort: true,
            hardware_underflow: false,
            controller_underflow: false,
        };
        let first = if started {
            Running(false)
        } else {
            Armed(false)
        };
        assert_eq!(signals, [first, stopped, Enabled(false)]);
        assert_eq!(generator.queued(), 0);
        generator.append(time, &[flat(6)]).unwrap();
        generator.arm(time).unwrap();
    }
}

#[test]
fn hardware_that_never_answers_is_given_up() {
    let mut generator = generator();
    generator.set_fault(FirmwareFault::Silent);
    generator.append(TaiNs(0), &[flat(1)]).unwrap();
    generator.arm(TaiNs(0)).unwrap();
    assert_eq!(generator.poll_timeout(), Some(TaiNs(2000 * MS)));
    assert!(drain(&mut generator, TaiNs(2000 * MS - 1)).is_empty());
    let signals = drain(&mut generator, TaiNs(2000 * MS));
    assert!(
        matches!(signals[2], Stopped { abort: true, .. }),
        "{signals:?}"
    );
    assert_eq!(generator.state(), GeneratorState::Disabled);

    let mut generator = armed(&[flat(1)]);
    generator.set_fault(FirmwareFault::Silent);
    generator.abort(TaiNs(5 * MS));
    assert!(drain(&mut generator, TaiNs(1005 * MS - 1)).is_empty());
    let signals = drain(&mut generator, TaiNs(1005 * MS));
    assert_eq!(signals.len(), 3, "after one second the stop is synthesised");
    assert_eq!(generator.state(), GeneratorState::Disabled);
}

#[test]
fn starved_hardware_and_a_late_driver_are_told_apart() {
    // The controller has sets but does not hand them over: the hardware's underflow.
    let mut generator = armed(&[flat(3); 10]);
    generator.handle_start_tag(TaiNs(2 * MS), 7);
    drain(&mut generator, TaiNs(2 * MS));
    generator.set_fault(FirmwareFault::Starved);
    let signals = drain(&mut generator, TaiNs(9 * MS));
    let starved = Stopped {
        time: TaiNs(2 * MS + 125_000),
        abort: false,
        hardware_underflow: true,
        controller_underflow: false,
    };
    assert_eq!(signals[1], starved);
    assert_eq!(
        generator.discarded(),
        9,
        "a rest is not played later from its middle"
    );

    // 120 sets are with the controller and 200 here; polled one nanosecond before they run out.
    for late in [false, true] {
        let mut generator = armed(&vec![flat(3); 320]);
        let start = 2 * MS;
        generator.handle_start_tag(TaiNs(start), 7);
        drain(&mut generator, TaiNs(start));
        let dry = start + 120 * 125_000;
        let signals = drain(&mut generator, TaiNs(if late { dry } else { dry - 1 }));
        let controller = signals.iter().any(|signal| {
            matches!(
                signal,
                Stopped {
                    controller_underflow: true,
                    hardware_underflow: false,
                    ..
                }
            )
        });
        assert_eq!(controller, late, "{signals:?}");
        assert_eq!(generator.state() == GeneratorState::Running, !late);
    }
}

/// Twelve channels of the shortest segments, 125 us each, for ten minutes of virtual time. The
/// driver serves each refill interrupt as late as it may, and the client appends when it is asked.
#[test]
fn twelve_channels_run_for_ten_minutes_without_underflow() {
    let minutes = 10 * 60 * 1000 * MS;
    let mut channels: Vec<FunctionGenerator> =
        (0..12).map(|_| armed(&vec![flat(1); 600])).collect();
    let start = TaiNs(10 * MS);
    let mut refills = 0u64;
    for (index, channel) in channels.iter_mut().enumerate() {
        let at = start.after(DurationNs(index as u64 * 1000));
        assert!(channel.handle_start_tag(at, 7));
        // 72 segments after the start 48 are left: 9 ms on, 6 ms before the end.
        let mut now = at;
        while now.0 < at.0 + minutes {
            while let Some(signal) = channel.poll_output(now) {
                match signal {
                    Refill { dry_at } => {
                        refills += 1;
                        assert!(dry_at.since(now).0 >= 6 * MS, "the client has its deadline");
                        let appended = channel.append(now, &[flat(1); 300]).unwrap();
                        assert!(!appended.low_fill);
                    }
                    Stopped { .. } => panic!("underflow at {now}"),
                    _ => {}
                }
            }
            now = now.after(DurationNs(6 * MS - 1));
        }
        assert_eq!(channel.state(), GeneratorState::Running);
        assert!(channel.executed() >= 4_799_000, "{}", channel.executed());
    }
    assert!(
        refills > 12 * 15_000,
        "each refill is asked for once: {refills}"
    );
}

#[test]
fn the_firmware_asks_once_at_exactly_48_left() {
    // All sets fit the firmware's queue, so its interrupt cannot be served and must not repeat.
    let mut generator = armed(&vec![flat(1); 120]);
    let start = 2 * MS;
    generator.handle_start_tag(TaiNs(start), 7);
    drain(&mut generator, TaiNs(start));
    // Started: 119 left. 48 are left when the 72nd set begins, 71 segments after the start.
    let threshold = start + 71 * 125_000;
    for (at, left) in [(threshold - 1, 49), (threshold, 48)] {
        drain(&mut generator, TaiNs(at));
        assert_eq!(generator.firmware().queued(), left);
    }
    // What comes now goes to the firmware at its next request only: none is due any more.
    generator
        .append(TaiNs(threshold), &vec![flat(1); 100])
        .unwrap();
    drain(&mut generator, TaiNs(threshold + 125_000));
    assert_eq!(generator.firmware().queued(), 47);
    assert_eq!(generator.queued(), 147);
}

#[test]
fn outputs_have_as_many_bits_as_are_driven() {
    let config = GeneratorConfig {
        output_bits: 20,
        ..GeneratorConfig::default()
    };
    let mut generator = FunctionGenerator::new(config);
    generator
        .append(TaiNs(0), &[flat(0x1234_5FFF), flat(-1)])
        .unwrap_err();
    let sets = [flat(0x1234_5FFF)];
    generator.append(TaiNs(0), &sets).unwrap();
    generator.arm(TaiNs(0)).unwrap();
    drain(&mut generator, TaiNs(MS));
    generator.handle_start_tag(TaiNs(2 * MS), 0);
    assert_eq!(generator.output(TaiNs(2 * MS)), 0x1234_5000);
}

/// A smooth ramp of ten segments, each beginning where the one before ends.
fn good_ramp() -> Vec<CoefficientSet> {
    let mut sets = Vec::new();
    let mut c = 1000;
    for n in 0..10 {
        let set = CoefficientSet {
            a: n,
            b: 100 + n,
            c,
            step: 1,
            frequency: 6,
            shift_a: 20,
            shift_b: 30,
        };
        c = Segment::new(&set).end_value() as i32;
        sets.push(set);
    }
    sets
}

#[test]
fn each_broken_rule_is_found_at_its_set() {
    let mut config = GeneratorConfig::default();
    config.rules.joint = Some(2);
    config.rules.start = Some(1000);
    config.rules.output_max = 10_000_000;
    config.rules.output_min = -10_000_000;
    config.rules.duration_max_ns = Some(10 * 500_000);
    let broken = |change: &dyn Fn(&mut Vec<CoefficientSet>)| -> (usize, SetRule) {
        let mut sets = good_ramp();
        change(&mut sets);
        let mut generator = FunctionGenerator::new(config);
        let error = generator.append(TaiNs(0), &sets).unwrap_err();
        assert_eq!(generator.queued(), 0, "all or nothing");
        match error {
            GeneratorError::Set(problem) => (problem.index, problem.rule),
            other => panic!("{other}"),
        }
    };
    FunctionGenerator::new(config)
        .append(TaiNs(0), &good_ramp())
        .unwrap();
    for index in 0..10 {
        for (field, max) in [
            ("step", 7),
            ("frequency", 7),
            ("shift_a", 48),
            ("shift_b", 48),
        ] {
            let found = broken(&|sets| match field {
                "step" => sets[index].step = 8,
                "frequency" => sets[index].frequency = 8,
                "shift_a" => sets[index].shift_a = 49,
                _ => sets[index].shift_b = 49,
            });
            let rule = SetRule::Range {
                field,
                found: max + 1,
                max,
            };
            assert_eq!(found, (index, rule));
        }
        let (found, rule) = broken(&|sets| {
            sets[index].b = i16::MAX;
            sets[index].shift_b = 48;
        });
        assert_eq!((found, rule), (index, SetRule::Overflow));
        let (found, rule) = broken(&|sets| sets[index].c = 10_000_001);
        assert!(
            found == index && matches!(rule, SetRule::Window { .. }),
            "{rule:?}"
        );
        let (found, rule) = broken(&|sets| sets[index].c += 3);
        if index == 0 {
            assert!(matches!(rule, SetRule::Start { held: 0, .. }) || found == 1);
        } else {
            assert!(found == index && matches!(rule, SetRule::Joint { tolerance: 2, .. }));
        }
    }
    let (found, rule) = broken(&|sets| sets[0].c = -1001);
    assert_eq!(
        (found, rule),
        (
            0,
            SetRule::Start {
                held: 0,
                start: -1001,
                tolerance: 1000
            }
        )
    );
    let (found, rule) = broken(&|sets| sets[9].frequency = 5);
    let expected = SetRule::Duration {
        total_ns: 5_500_000,
        max_ns: 5_000_000,
    };
    assert_eq!((found, rule), (9, expected));
}

#[test]
fn modes_report_or_pass_over_what_they_find() {
    let jump = [flat(0), flat(5000), flat(0)];
    let mut config = GeneratorConfig::default();
    let mut append = |mode| {
        config.rules.mode = mode;
        FunctionGenerator::new(config).append(TaiNs(0), &jump)
    };
    assert!(append(ValidationMode::Reject).is_err());
    let warned = append(ValidationMode::Warn).unwrap();
    assert_eq!(
        (warned.warnings, warned.first_warning.unwrap().index),
        (2, 1)
    );
    assert_eq!(append(ValidationMode::Off).unwrap().warnings, 0);
    config.rules.mode = ValidationMode::Off;
    let set = CoefficientSet { step: 8, ..flat(0) };
    assert!(
        FunctionGenerator::new(config)
            .append(TaiNs(0), &[set])
            .is_err()
    );
}

#[test]
fn joints_are_checked_across_appends_and_queues_are_bounded() {
    let mut generator = generator();
    generator.append(TaiNs(0), &[flat(100)]).unwrap();
    let error = generator.append(TaiNs(0), &[flat(2000)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "set 0: starts at 2000 but the set before ends at 100, allowed step is 1024"
    );
    let room = generator.room();
    let error = generator
        .append(TaiNs(0), &vec![flat(100); room + 1])
        .unwrap_err();
    assert_eq!(
        error,
        GeneratorError::Full {
            sets: room + 1,
            room
        }
    );
    generator.append(TaiNs(0), &vec![flat(100); room]).unwrap();
}
