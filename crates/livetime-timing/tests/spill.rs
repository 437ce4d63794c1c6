//! A spill structure on virtual time: gates, triggers and twelve ramps at their scheduled moments.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use livetime_timing::waveform::{DesignOptions, PointCurve, design};
use livetime_timing::{GateSince, Schedule, ScheduledTrigger, Spill, SpillConfig};
use livetime_wire::{CoefficientSet, DurationNs, EventId, TaiNs};

const MS: u64 = 1_000_000;

fn ramp(height: f64) -> Vec<CoefficientSet> {
    let points = vec![(0.0, 0.0), (0.020, height), (0.060, height), (0.080, 0.0)];
    let curve = PointCurve::new(points).unwrap();
    let options = DesignOptions {
        tolerance: 20_000.0,
        frequency: None,
    };
    design(|t| curve.at(t), DurationNs(80 * MS), &options)
        .unwrap()
        .sets
}

/// 100 ms: ramp from 5 ms on, flat-top from 25 to 65 ms, gate from 30 to 60 ms, trigger at 45 ms.
fn config() -> SpillConfig {
    let text = "0x10 0 5000000\n0x11 0 30000000\n0x13 0 45000000\n0x12 0 60000000\n";
    SpillConfig {
        schedule: Schedule::parse(text).unwrap(),
        period: DurationNs(100 * MS),
        align: None,
        gate: Some((EventId(0x11), EventId(0x12))),
        trigger: Some(EventId(0x13)),
        ramp_start: Some(EventId(0x10)),
        ramps: (1..=12).map(|n| ramp(f64::from(n) * 5e7)).collect(),
        magnet: DurationNs(MS),
    }
}

const fn asked(at: TaiNs, gate: GateSince) -> ScheduledTrigger {
    ScheduledTrigger { at, gate }
}

#[test]
fn gates_triggers_and_ramps_come_at_their_times() {
    let mut spill = Spill::new(&config(), TaiNs(0)).unwrap();
    assert!(!spill.is_gate_open(), "closed until it is opened");
    for turn in 0..50 {
        let start = turn * 100 * MS;
        let at = |ms: u64| TaiNs(start + ms * MS);
        for (time, open) in [
            (TaiNs(at(30).0 - 1), false),
            (at(30), true),
            (TaiNs(at(60).0 - 1), true),
            (at(60), false),
        ] {
            spill.advance(time);
            assert_eq!(spill.is_gate_open(), open, "{time}");
            if time == at(30) {
                // On the flat-top every output is at its height, and the magnet near it.
                for (n, generator) in (1..).zip(spill.read_back(time)) {
                    let height = f64::from(n) * 5e7;
                    assert!((f64::from(generator.output) - height).abs() < 20_001.0);
                    assert!((f64::from(generator.read_back) / height - 1.0).abs() < 0.01);
                }
            }
        }
        assert_eq!(spill.poll_trigger(), Some(asked(at(45), GateSince::Passed)));
        assert_eq!(spill.poll_trigger(), None);
    }
    spill.advance(TaiNs(5000 * MS));
    let counters = spill.counters();
    assert_eq!((counters.gates_opened, counters.triggers), (50, 50));
    assert_eq!((counters.ramps_started, counters.cycles), (600, 50));
    assert_eq!((counters.ramp_faults, counters.triggers_missed), (0, 0));
}

#[test]
fn what_the_gate_was_is_known_for_a_while_and_who_still_waits_is_counted_at_the_end() {
    let mut spill = Spill::new(&config(), TaiNs(0)).unwrap();
    spill.advance(TaiNs(5000 * MS));
    for turn in [0, 1, 30, 49] {
        let at = |ms: u64| TaiNs(turn * 100 * MS + ms * MS);
        for (time, open) in [
            (TaiNs(at(30).0 - 1), false),
            (at(30), true),
            (TaiNs(at(60).0 - 1), true),
            (at(60), false),
        ] {
            assert_eq!(spill.was_gate_open(time), open, "{time}");
        }
    }
    assert!(spill.poll_trigger().is_some());
    assert_eq!(spill.end(), 49);
    assert_eq!(spill.end(), 0);
    // More than wait at a time, and more changes of the gate than are kept.
    let mut spill = Spill::new(&config(), TaiNs(0)).unwrap();
    spill.advance(TaiNs(200_000 * MS));
    let missed = spill.counters().triggers_missed;
    assert!(missed > 0);
    assert_eq!(spill.end(), spill.counters().triggers);
    assert!(!spill.was_gate_open(TaiNs(200_000 * MS)));
    assert!(spill.was_gate_open(TaiNs(199_935 * MS)));
}

/// Given a run that drains for some turns of the schedule, then its gates and triggers are those of the
/// time in which it took triggers, while gate and ramps go on.
#[test]
fn what_passes_in_the_drain_of_a_run_is_not_counted() {
    let mut spill = Spill::new(&config(), TaiNs(0)).unwrap();
    spill.advance(TaiNs(500 * MS));
    let taken = spill.counters();
    assert_eq!((taken.gates_opened, taken.triggers), (5, 5));
    assert_eq!(spill.end(), 5);
    spill.advance(TaiNs(840 * MS));
    assert_eq!(spill.counters(), taken);
    assert!(spill.is_gate_open());
    assert_eq!(spill.end(), 3);
    assert_eq!(spill.counters(), taken);
}

/// Given a run that takes triggers after some turns of the schedule, then those asked for before are
/// nobody's, nor are the gates that closed before, while gate and ramps are those of the schedule.
#[test]
fn what_was_asked_for_before_triggers_are_taken_is_forgotten() {
    for turns in [5, 2000] {
        let mut spill = Spill::new(&config(), TaiNs(0)).unwrap();
        spill.advance(TaiNs((turns * 100 + 40) * MS));
        spill.forget_triggers();
        assert_eq!(spill.poll_trigger(), None);
        let counters = spill.counters();
        assert_eq!((counters.triggers, counters.triggers_missed), (0, 0));
        assert!(spill.is_gate_open() && counters.gates_opened == 1);
        let at = TaiNs((turns * 100 + 45) * MS);
        spill.advance(at);
        assert_eq!(spill.poll_trigger(), Some(asked(at, GateSince::Same)));
        assert_eq!((spill.end(), spill.counters().triggers), (0, 1));
    }
}

/// However late a driver comes to a trigger, it knows whether that still belongs where it was asked
/// for.
#[test]
fn a_scheduled_trigger_says_whether_its_gate_has_passed() {
    let at = |ms: u64| TaiNs(ms * MS);
    let first_trigger = |config: &SpillConfig, now: TaiNs| {
        let mut spill = Spill::new(config, TaiNs(0)).unwrap();
        spill.advance(now);
        spill.poll_trigger()
    };
    let inside = config();
    for (now, gate) in [
        (at(45), GateSince::Same),
        (TaiNs(at(60).0 - 1), GateSince::Same),
        (at(60), GateSince::Passed),
        // In the gate of the next turn, which is not the one that it was asked for in.
        (at(135), GateSince::Passed),
    ] {
        assert_eq!(first_trigger(&inside, now), Some(asked(at(45), gate)));
    }
    // Outside the gates, and with the gate's own opening and closing.
    for (trigger_ms, same_until_ms) in [(10, 30), (30, 60), (60, 130)] {
        let mut config = config();
        let text = format!("0x11 0 30000000\n0x12 0 60000000\n0x13 0 {trigger_ms}000000\n");
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_by_key(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
        config.schedule = Schedule::parse(&lines.join("\n")).unwrap();
        config.ramps.clear();
        for (now, gate) in [
            (TaiNs(at(same_until_ms).0 - 1), GateSince::Same),
            (at(same_until_ms), GateSince::Passed),
        ] {
            assert_eq!(
                first_trigger(&config, now),
                Some(asked(at(trigger_ms), gate))
            );
        }
    }
    // Without a gate there is none to pass.
    let mut open = config();
    open.gate = None;
    assert_eq!(
        first_trigger(&open, at(999)),
        Some(asked(at(45), GateSince::Same))
    );
}

#[test]
fn the_moments_of_advancing_change_nothing() {
    let sample = |steps: &[u64]| {
        let mut spill = Spill::new(&config(), TaiNs(0)).unwrap();
        for step in steps {
            spill.advance(TaiNs(*step));
        }
        let end = TaiNs(137 * MS + 123);
        spill.advance(end);
        let generators: Vec<_> = spill.read_back(end).collect();
        (generators, spill.is_gate_open(), spill.counters())
    };
    let fine: Vec<u64> = (0..13_700).map(|n| n * 10_000 + 7).collect();
    assert_eq!(sample(&[]), sample(&fine));
}

#[test]
fn the_first_turn_begins_on_the_grid_and_nothing_before_it() {
    let grid = DurationNs(1000 * MS);
    let config = SpillConfig {
        align: Some(grid),
        ..config()
    };
    let second = 1_800_000_000 * 1000 * MS;
    for (start, first) in [
        (second, second),
        (second + 1, second + 1000 * MS),
        (second + 999 * MS, second + 1000 * MS),
    ] {
        assert_eq!(config.first_turn(TaiNs(start)), TaiNs(first));
        let mut spill = Spill::new(&config, TaiNs(start)).unwrap();
        let before = TaiNs(first + 30 * MS - 1);
        spill.advance(TaiNs(start));
        assert!(
            spill
                .read_back(TaiNs(start))
                .all(|g| g.output == 0 && g.read_back == 0)
        );
        spill.advance(before);
        assert!(!spill.is_gate_open() && spill.counters().gates_opened == 0);
        spill.advance(TaiNs(first + 30 * MS));
        assert!(spill.is_gate_open());
        spill.advance(TaiNs(first + 1000 * MS));
        for turn in 0..10 {
            let trigger = spill.poll_trigger().unwrap();
            assert_eq!(trigger.at, TaiNs(first + turn * 100 * MS + 45 * MS));
        }
        assert_eq!(spill.poll_trigger(), None);
        assert_eq!(
            (spill.counters().cycles, spill.counters().ramp_faults),
            (10, 0)
        );
    }
}

/// With the default period, the length of the schedule, a gate that closes with the last message
/// opens again with the first of the next turn, in the same nanosecond: it stays open.
#[test]
fn a_gate_that_closes_and_opens_in_one_nanosecond_stays_open() {
    for lines in [
        "0x11 0 0\n0x12 0 500000\n",
        "0x11 0 0\n0x13 0 0\n0x13 0 0\n0x12 0 500000\n",
    ] {
        let schedule = Schedule::parse(lines).unwrap();
        let config = SpillConfig {
            period: schedule.length(),
            schedule,
            ramps: Vec::new(),
            ..config()
        };
        let mut spill = Spill::new(&config, TaiNs(0)).unwrap();
        for at in (0..20).map(|n| n * 250_000) {
            spill.advance(TaiNs(at));
            assert!(spill.is_gate_open(), "at {at} ns");
        }
        spill.advance(TaiNs(5_000_100));
        let counters = spill.counters();
        assert_eq!((counters.gates_opened, counters.actions_dropped), (11, 0));
        // Two triggers of one moment are two, and belong to the gate that opens with them.
        let triggers = 11 * lines.matches("0x13").count();
        assert_eq!(counters.triggers as usize, triggers);
    }
}

/// However many messages one lead time holds, all are executed.
#[test]
fn a_dense_schedule_loses_no_action() {
    let lines: String = (0..2_000u64)
        .map(|n| {
            format!(
                "{} 0 {}\n",
                if n % 2 == 0 { "0x11" } else { "0x12" },
                n * 100
            )
        })
        .collect();
    let config = SpillConfig {
        schedule: Schedule::parse(&lines).unwrap(),
        period: DurationNs(20 * MS),
        ramps: Vec::new(),
        ..config()
    };
    let mut spill = Spill::new(&config, TaiNs(0)).unwrap();
    spill.advance(TaiNs(200 * MS - 1));
    let counters = spill.counters();
    assert_eq!(
        (counters.gates_opened, counters.actions_dropped),
        (10_000, 0)
    );
}

#[test]
fn messages_of_the_gate_at_one_time_are_refused() {
    let problem = |lines: &str, period: u64| {
        let config = SpillConfig {
            schedule: Schedule::parse(lines).unwrap(),
            period: DurationNs(period),
            ramps: Vec::new(),
            ..config()
        };
        let problems = config.validate("timing");
        problems
            .first()
            .map(ToString::to_string)
            .unwrap_or_default()
    };
    for lines in [
        "0x11 0 0\n0x11 0 7\n0x12 0 7\n",
        "0x12 0 7\n0x11 0 7\n",
        "0x11 0 0\n0x12 0 7\n0x13 0 7\n0x12 0 7\n",
    ] {
        let found = problem(lines, 200_000);
        assert!(
            found.contains("G0303") && found.contains("at 7 ns"),
            "{found}"
        );
        assert!(found.contains("timing.schedule"), "{found}");
    }
    // Opened with the end of a turn and closed with the start of the next.
    let late = "0x12 0 0\n0x11 0 200000\n";
    assert!(problem(late, 200_000).contains("of the next turn"));
    assert_eq!(problem(late, 200_001), "");
    assert_eq!(problem("0x11 0 0\n0x12 0 200000\n", 200_000), "");
}

/// A front-end that handles nothing but messages would never come to an end of its turns.
#[test]
fn a_turn_has_time_for_its_messages() {
    let problem = |messages: usize, period: u64| {
        let lines: String = (0..messages).map(|n| format!("0x20 0 {n}\n")).collect();
        let config = SpillConfig {
            schedule: Schedule::parse(&lines).unwrap(),
            period: DurationNs(period),
            ramps: Vec::new(),
            ..config()
        };
        let found = config.validate("timing");
        found.first().map(ToString::to_string).unwrap_or_default()
    };
    for (messages, period) in [(1, 100_000), (10, 100_000), (11, 110_000), (500, 5_000_000)] {
        assert_eq!(problem(messages, period), "");
        let short = problem(messages, period - 1);
        assert!(short.contains("G0301"), "{messages}: {short}");
    }
}

#[test]
fn every_start_of_the_ramps_leaves_them_time() {
    // Ramps of 80 ms, with 1 ms to be armed again.
    let codes = |starts_ms: &[u64], period_ms: u64| -> Vec<String> {
        let lines: String = starts_ms
            .iter()
            .map(|ms| format!("0x10 0 {ms}000000\n"))
            .collect();
        let config = SpillConfig {
            schedule: Schedule::parse(&lines).unwrap(),
            period: DurationNs(period_ms * MS),
            gate: None,
            ..config()
        };
        let problems = config.validate("timing");
        problems.iter().map(ToString::to_string).collect()
    };
    for (starts, period, cycle) in [
        (&[5, 85][..], 200, "80.0 ms"),
        (&[0, 150], 230, "80.0 ms"),
        (&[50, 50], 1000, "0 ns"),
        (&[0, 200], 200, "0 ns"),
    ] {
        let found = codes(starts, period);
        assert_eq!(found.len(), 1, "{starts:?}");
        assert!(
            found[0].contains("G0302") && found[0].contains(cycle),
            "{found:?}"
        );
    }
    assert_eq!(codes(&[0, 81], 162), [""; 0]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let codes = |change: &dyn Fn(&mut SpillConfig)| -> Vec<&str> {
        let mut config = config();
        change(&mut config);
        match Spill::new(&config, TaiNs(0)) {
            Ok(_) => Vec::new(),
            Err(problems) => problems.iter().map(|problem| problem.code.code).collect(),
        }
    };
    assert!(codes(&|_| {}).is_empty());
    assert_eq!(codes(&|c| c.period = DurationNs(59 * MS))[0], "G0301");
    assert_eq!(codes(&|c| c.period = DurationNs(80 * MS)), ["G0302"]);
    assert_eq!(codes(&|c| c.align = Some(DurationNs(0))), ["G0304"]);
    assert_eq!(
        codes(&|c| c.align = Some(DurationNs(3_600_001 * MS))),
        ["G0304"]
    );
    assert_eq!(codes(&|c| c.ramp_start = None), ["G0302"]);
    assert_eq!(codes(&|c| c.ramps.clear()), [""; 0]);
    assert_eq!(
        codes(&|c| c.gate = Some((EventId(1), EventId(1)))),
        ["G0303"]
    );
}
