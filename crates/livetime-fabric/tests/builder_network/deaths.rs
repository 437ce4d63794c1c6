//! Units that are slow, die and begin again: no event is lost but those that a dead one had.

use livetime_builder::BuildMode;
use livetime_fabric::DurationPs;
use livetime_fabric::builder_network::{BuilderNetwork, Control, Deaths, Shaping, SickUnits};
use livetime_fabric::network::{Arrival, Load, Topology};
use livetime_fabric::scenario::{ShiftOrder, Switching};
use livetime_wire::DurationNs;

use super::{BARREL, brief, builder, dead, load, rate_ratio, run};

/// Given a builder unit of half the speed, then it builds half as many events and the others lose
/// nothing; given some that die, then others build their events, each once.
#[test]
fn slow_builder_units_get_less_and_dead_ones_lose_no_event() {
    let topology = Topology::crossbar(16).unwrap();
    let with = |sick: SickUnits, ms| {
        let mut plan = builder(BARREL);
        // The filters are the bottleneck, at 1 kHz each.
        plan.hosts.event = DurationPs::from_us(1_000);
        plan.sick = sick;
        run(&plan, &topology, &load(ms), &Switching::Wormhole, 1)
    };
    let well = with(SickUnits::default(), 200);
    let slow = SickUnits {
        slow: 1,
        slow_factor: 2.0,
        ..SickUnits::default()
    };
    let slow = with(slow, 200);
    assert!((0.45..=0.55).contains(&slow.slow_share), "{}", brief(&slow));
    let share = slow.event_rate.mean / well.event_rate.mean;
    assert!((share - 15.5 / 16.0).abs() < 0.01, "{share}");
    let dead = SickUnits {
        builders: dead(2, None),
        ..SickUnits::default()
    };
    let dead = with(dead, 1_000);
    assert_eq!((dead.builders_dead, dead.builders_found_dead), (2, 2));
    assert!(dead.events_reassigned > 0);
    assert_eq!(dead.events_incomplete, 0);
    let tail = dead.series[24..].iter().sum::<f64>() / 8.0;
    assert!(
        (tail / well.event_rate.mean - 14.0 / 16.0).abs() < 0.02,
        "{tail}"
    );
}

/// Given builder units that die and begin again, then the rate is as before, and each event was built
/// once, whether the event manager missed them or whoever started them told it.
#[test]
fn builder_units_that_begin_again_take_their_share() {
    let topology = Topology::crossbar(8).unwrap();
    for (dead_for, interval) in [(20, 0), (700, 0), (700, 1)] {
        let mut plan = builder(BARREL);
        plan.hosts.event = DurationPs::from_us(1_000);
        plan.hosts.interval = DurationPs::from_ms(interval);
        plan.sick.builders = dead(4, Some(DurationPs::from_ms(dead_for)));
        let load = Load {
            warm_up: DurationPs::from_ms(20),
            ..load(1_280)
        };
        let outcome = run(&plan, &topology, &load, &Switching::Wormhole, 1);
        let (lost, back) = (outcome.builders_dead, outcome.builders_back);
        assert_eq!((lost, back), (4, 4), "{}", brief(&outcome));
        assert!(outcome.events_reassigned > 0);
        assert_eq!(outcome.events_incomplete, 0);
        // A batch is 40 ms: they die in the third.
        let during = rate_ratio(&outcome, 3..17, 0..2);
        let after = rate_ratio(&outcome, 22..32, 0..2);
        assert!((0.95..=1.05).contains(&after), "{after}");
        if dead_for == 700 {
            assert!(during < 0.8, "{during}");
        }
    }
}

/// Given readout units that die, then events go on without their fragments, and with them again once
/// they have begun again; nobody waits for what they took with them.
#[test]
fn readout_units_that_die_leave_events_incomplete_until_they_begin_again() {
    let topology = Topology::crossbar(8).unwrap();
    let linear = Shaping::LinearShift {
        phase_bytes: 4096,
        order: ShiftOrder::ConflictFree,
    };
    for shaping in [Shaping::None, BARREL, linear] {
        let with = |readouts| {
            let mut plan = builder(shaping);
            plan.sick.readouts = readouts;
            let load = Load {
                warm_up: DurationPs::from_ms(10),
                ..load(320)
            };
            run(&plan, &topology, &load, &Switching::Wormhole, 1)
        };
        let outcome = with(dead(2, Some(DurationPs::from_ms(100))));
        let units = (outcome.readouts_dead, outcome.readouts_back);
        assert_eq!(units, (2, 2), "{}", brief(&outcome));
        // They are away for 100 of 330 ms.
        let share = outcome.events_incomplete as f64 / outcome.events_built as f64;
        assert!((0.2..0.45).contains(&share), "{shaping:?}: {share}");
        let after = rate_ratio(&outcome, 24..32, 0..8);
        assert!((0.95..1.05).contains(&after), "{shaping:?}: {after}");
        assert!(outcome.longest_gap < DurationPs::from_ms(5));
        let for_ever = with(dead(2, None));
        assert_eq!((for_ever.readouts_dead, for_ever.readouts_back), (2, 0));
        assert!(for_ever.events_incomplete > outcome.events_incomplete);
    }
}

/// Given an event manager that dies, then another one takes its place and every event is built once:
/// nothing is built meanwhile but what was assigned.
#[test]
fn an_event_manager_that_begins_again_recovers_every_event() {
    let topology = Topology::crossbar(8).unwrap();
    for mode in [BuildMode::Pull, BuildMode::Push] {
        let mut plan = builder(Shaping::None);
        plan.mode = mode;
        plan.sick.manager = dead(1, Some(DurationPs::from_ms(50)));
        let load = Load {
            arrival: Arrival::Poisson {
                interval: DurationPs::from_us(40),
            },
            warm_up: DurationPs::from_ms(10),
            ..load(320)
        };
        let outcome = run(&plan, &topology, &load, &Switching::Wormhole, 1);
        assert_eq!(outcome.manager_restarts, 1);
        assert_eq!(outcome.events_incomplete, 0, "{}", brief(&outcome));
        // What comes in 50 ms finds nobody who takes it.
        assert!(
            (1_100..1_400).contains(&outcome.refused),
            "{}",
            outcome.refused
        );
        let gap = outcome.longest_gap;
        assert!(
            (45..60).contains(&(gap.0 / 1_000_000_000)),
            "{mode:?}: {gap}"
        );
        let after = rate_ratio(&outcome, 16..32, 0..8);
        assert!((0.9..1.1).contains(&after), "{mode:?}: {after}");
    }
}

/// Given builder units that were lost for ever before the event manager dies, then the next one does
/// not wait for them.
#[test]
fn an_event_manager_knows_who_is_gone_when_it_begins_again() {
    let topology = Topology::crossbar(8).unwrap();
    let mut plan = builder(Shaping::None);
    plan.hosts.event = DurationPs::from_us(500);
    plan.sick.builders = dead(3, None);
    plan.sick.manager = Deaths {
        at: DurationPs::from_ms(800),
        ..dead(1, Some(DurationPs::from_ms(20)))
    };
    let outcome = run(&plan, &topology, &load(1_280), &Switching::Wormhole, 1);
    let counts = (outcome.builders_dead, outcome.manager_restarts);
    assert_eq!(counts, (3, 1), "{}", brief(&outcome));
    let gap = outcome.longest_gap;
    assert!(gap < DurationPs::from_ms(40), "{gap}");
}

/// Given messages that take longer than a unit is away, then it hears nothing that was said before its
/// present life; and a filter that takes longer is not through with events of it any sooner.
#[test]
fn nothing_of_a_former_life_counts() {
    let topology = Topology::crossbar(4).unwrap();
    let away = dead(1, Some(DurationPs::from_ms(5)));
    let mut plan = builder(Shaping::None);
    plan.control = Control::Separate {
        bits_per_s: 1_000_000_000,
        latency: DurationPs::from_ms(20),
    };
    plan.retry = DurationNs(200_000_000);
    let sick = SickUnits::default();
    for sick in [
        SickUnits {
            builders: away,
            ..sick
        },
        SickUnits {
            readouts: away,
            ..sick
        },
        SickUnits {
            manager: away,
            ..sick
        },
    ] {
        plan.sick = sick;
        let outcome = run(&plan, &topology, &load(640), &Switching::Wormhole, 1);
        // A message there and back takes 40 ms, several times for each event.
        let gap = outcome.longest_gap;
        assert!(gap < DurationPs::from_ms(190), "{sick:?}: {gap}");
        assert!(
            rate_ratio(&outcome, 16..32, 0..4) > 0.8,
            "{}",
            brief(&outcome)
        );
    }
    // Of four filters three are busy on average.
    let mut plan = builder(Shaping::None);
    plan.hosts.event = DurationPs::from_ms(50);
    plan.sick.builders = dead(3, Some(DurationPs::from_ms(5)));
    let load = Load {
        arrival: Arrival::Fixed {
            interval: DurationPs::from_ms(16),
        },
        ..load(2_560)
    };
    let outcome = run(&plan, &topology, &load, &Switching::Wormhole, 1);
    let soonest = outcome.latency_ns.min();
    assert!(soonest > 49_900_000, "{soonest} ns");
}

/// Given all of it at once, then every promise holds, whoever is told first.
#[test]
fn all_kinds_of_units_die_and_begin_again() {
    let topology = Topology::four_layer(2).unwrap();
    let linear = Shaping::LinearShift {
        phase_bytes: 4096,
        order: ShiftOrder::ConflictFree,
    };
    let shared = Control::Shared {
        bits_per_s: 1_000_000_000,
        latency: DurationPs::from_us(10),
    };
    let separate = BuilderNetwork::default().control;
    for (mode, shaping, control, rails) in [
        (BuildMode::Pull, Shaping::None, shared, 1),
        (BuildMode::Pull, BARREL, separate, 2),
        (BuildMode::Push, linear, separate, 1),
        (BuildMode::Push, BARREL, shared, 1),
    ] {
        for (ms, dead_for) in [(100, 10), (101, 30), (99, 600), (130, 5)] {
            let mut plan = BuilderNetwork {
                mode,
                control,
                retry: DurationNs(20_000_000),
                ..builder(shaping)
            };
            plan.sick = SickUnits {
                builders: dead(3, Some(DurationPs::from_ms(dead_for))),
                readouts: dead(2, Some(DurationPs::from_ms(40))),
                manager: Deaths {
                    at: DurationPs::from_ms(ms),
                    ..dead(1, Some(DurationPs::from_ms(20)))
                },
                ..SickUnits::default()
            };
            let outcome = run(&plan, &topology, &load(800), &Switching::Wormhole, rails);
            let back = (outcome.builders_back, outcome.readouts_back);
            assert_eq!(back, (3, 2), "{}", brief(&outcome));
            assert_eq!(outcome.manager_restarts, 1);
            let after = rate_ratio(&outcome, 28..32, 26..28);
            assert!(after > 0.8, "{shaping:?}, {ms} ms: {}", brief(&outcome));
        }
    }
}
