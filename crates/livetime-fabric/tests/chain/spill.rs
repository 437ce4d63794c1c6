//! A spill structure in the simulated chain: events only inside the gates, and their read-back.

use std::io::Cursor;

use livetime_fabric::chain::SimulatedSpill;
use livetime_fabric::{DurationPs, SimulatedChain};
use livetime_store::RunReader;
use livetime_timing::waveform::{DesignOptions, PointCurve, design};
use livetime_timing::{Schedule, SpillConfig};
use livetime_wire::fragment::FragmentView;
use livetime_wire::timing_read_back::ReadBackView;
use livetime_wire::{DurationNs, EventId};

use crate::story::{menu_one_in, ms, small_chain, tell_in_order};

const MS: u64 = 1_000_000;
const HEIGHT: f64 = 5e8;

/// 20 ms: a ramp up to 6 ms and down from 16 ms on, the gate from 8 to 14 ms, a trigger at 9 ms.
fn spill() -> SpillConfig {
    let points = vec![(0.0, 0.0), (0.006, HEIGHT), (0.016, HEIGHT), (0.018, 0.0)];
    let curve = PointCurve::new(points).unwrap();
    let options = DesignOptions {
        tolerance: 200_000.0,
        frequency: None,
    };
    let sets = design(|t| curve.at(t), ms(18), &options).unwrap().sets;
    let schedule = "0x10 0 0\n0x11 0 8000000\n0x13 0 9000000\n0x12 0 14000000\n";
    SpillConfig {
        schedule: Schedule::parse(schedule).unwrap(),
        period: ms(20),
        align: None,
        gate: Some((EventId(0x11), EventId(0x12))),
        trigger: Some(EventId(0x13)),
        ramp_start: Some(EventId(0x10)),
        ramps: vec![sets; 3],
        magnet: DurationNs(200_000),
    }
}

#[test]
fn events_come_in_the_gates_with_their_read_back() {
    let mut config = small_chain(menu_one_in(1), 5_000.0, 100);
    config.spill = Some(SimulatedSpill {
        spill: spill(),
        read_back: Some(1),
    });
    let outcome = SimulatedChain::new_checked(&config).unwrap().run();
    assert!(outcome.is_drained && outcome.conservation_problems().is_empty());
    let mut reader = RunReader::open(Cursor::new(&outcome.run_file)).unwrap();
    let (mut events, mut scheduled) = (0, 0);
    while let Some(event) = reader.next_event().unwrap() {
        events += 1;
        let at = event.header().triggered_at.0;
        assert!((8 * MS..14 * MS).contains(&(at % (20 * MS))), "{at}");
        let source = config.source.data_links[1];
        let (_, words) = event
            .fragments()
            .find(|(entry, _)| entry.source == source)
            .unwrap();
        let fragment = FragmentView::new_checked(words).unwrap();
        let view = ReadBackView::new_checked(fragment.data()).unwrap();
        assert!(view.is_gate_open() && view.generators().len() == 3);
        for generator in view.generators() {
            assert!((f64::from(generator.output) - HEIGHT).abs() <= 200_001.0);
            assert!((f64::from(generator.read_back) / HEIGHT - 1.0).abs() < 0.01);
        }
        let is_scheduled = fragment.header().trigger_type == 2;
        assert!(!is_scheduled || at % (20 * MS) == 9 * MS);
        scheduled += u64::from(is_scheduled);
    }
    // 5 kHz for 30 of 100 ms, and one of the schedule in each turn.
    assert!((100..250).contains(&events), "{events}");
    assert_eq!(scheduled, 5);
    assert_eq!(outcome.counts.triggers, events);
    assert!(
        outcome.counts.refused > 200,
        "most offers met a closed gate"
    );
}

/// Given decisions of 2 ms and one Level-2 buffer, when a trigger is scheduled 10 us before its gate
/// closes, then it is taken in that gate or refused, and never stamped after it.
#[test]
fn a_scheduled_trigger_that_waits_past_its_gate_is_refused() {
    let mut config = small_chain(menu_one_in(1), 5_000.0, 200);
    config.supervisor.l2_buffers = 1;
    config.timing.service.decision = DurationPs::from_us(2_000);
    let schedule = "0x10 0 0\n0x11 0 8000000\n0x13 0 13990000\n0x12 0 14000000\n";
    config.spill = Some(SimulatedSpill {
        spill: SpillConfig {
            schedule: Schedule::parse(schedule).unwrap(),
            ..spill()
        },
        read_back: Some(1),
    });
    let outcome = tell_in_order(&config);
    let mut reader = RunReader::open(Cursor::new(&outcome.run_file)).unwrap();
    let (mut events, mut scheduled) = (0, 0);
    while let Some(event) = reader.next_event().unwrap() {
        events += 1;
        let at = event.header().triggered_at.0;
        assert!((8 * MS..14 * MS).contains(&(at % (20 * MS))), "{at}");
        let (_, words) = event.fragments().next().unwrap();
        let fragment = FragmentView::new_checked(words).unwrap();
        scheduled += u64::from(fragment.header().trigger_type == 2);
    }
    assert!(events >= 20, "at least two in each of ten gates: {events}");
    assert!(scheduled < 10, "a buffer was free each time");
}

#[test]
fn aligned_turns_begin_on_the_grid_of_tai_and_the_gate_is_closed_before() {
    // The run starts 7 ms after a multiple of 20 ms, so the first turn begins 13 ms later.
    const STARTED: u64 = 1_800_000_000 * 1000 * MS + 7 * MS;
    let mut config = small_chain(menu_one_in(1), 5_000.0, 100);
    config.begin.started_tai_ns = STARTED;
    config.spill = Some(SimulatedSpill {
        spill: SpillConfig {
            align: Some(ms(20)),
            ..spill()
        },
        read_back: Some(1),
    });
    let outcome = SimulatedChain::new_checked(&config).unwrap().run();
    assert!(outcome.is_drained && outcome.conservation_problems().is_empty());
    let mut reader = RunReader::open(Cursor::new(&outcome.run_file)).unwrap();
    assert_eq!(reader.begin().unwrap().started_tai_ns, STARTED);
    let mut events = 0;
    while let Some(event) = reader.next_event().unwrap() {
        events += 1;
        let at = event.header().triggered_at.0;
        assert!(at >= 21 * MS, "{at}: the first gate");
        let in_turn = (STARTED + at) % (20 * MS);
        assert!((8 * MS..14 * MS).contains(&in_turn), "{at}");
    }
    // Four gates of 6 ms, the last one from 81 to 87 ms; at 5 kHz, with one of the schedule each.
    assert!((60..180).contains(&events), "{events}");
    assert_eq!(outcome.counts.triggers, events);
    let again = SimulatedChain::new_checked(&config).unwrap().run();
    assert_eq!(
        (again.digest, again.counts),
        (outcome.digest, outcome.counts)
    );
    // On the grid it is as if it were not aligned.
    config.begin.started_tai_ns = STARTED - 7 * MS;
    let on_grid = SimulatedChain::new_checked(&config).unwrap().run();
    config.spill.as_mut().unwrap().spill.align = None;
    let plain = SimulatedChain::new_checked(&config).unwrap().run();
    assert_eq!(
        (on_grid.digest, on_grid.counts),
        (plain.digest, plain.counts)
    );
}
