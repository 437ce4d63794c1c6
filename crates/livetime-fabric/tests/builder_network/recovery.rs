//! Event managers that begin again: with a deep queue, and where a builder unit is gone as well.

use livetime_builder::BuildMode;
use livetime_fabric::DurationPs;
use livetime_fabric::builder_network::{Deaths, Shaping};
use livetime_fabric::network::{Arrival, Topology};
use livetime_fabric::scenario::Switching;
use livetime_wire::DurationNs;

use super::{BARREL, brief, builder, dead, load, rate_ratio, run};

/// Given sources that are never at a loss and an event manager that dies, then the next one finds the
/// triggers of a deep queue far ahead of all that the readout units had heard of, and goes on as before.
#[test]
fn building_goes_on_after_another_event_manager_has_begun() {
    let topology = Topology::crossbar(4).unwrap();
    for (mode, shaping, queue) in [
        (BuildMode::Pull, Shaping::None, 256),
        (BuildMode::Pull, Shaping::None, 1_000),
        (BuildMode::Pull, BARREL, 1_000),
        (BuildMode::Push, Shaping::None, 1_000),
    ] {
        let mut plan = builder(shaping);
        (plan.mode, plan.queue) = (mode, queue);
        plan.sick.manager = dead(1, Some(DurationPs::from_ms(5)));
        let outcome = run(&plan, &topology, &load(320), &Switching::Wormhole, 1);
        let case = format!("{mode:?}, {queue}: {}", brief(&outcome));
        assert_eq!(outcome.manager_restarts, 1, "{case}");
        assert_eq!(outcome.events_incomplete, 0, "{case}");
        let gap = outcome.longest_gap.0 / 1_000_000_000;
        assert!(gap < 10, "{gap} ms without an event; {case}");
        let after = rate_ratio(&outcome, 16..32, 0..8);
        assert!((0.8..1.25).contains(&after), "{after}; {case}");
    }
}

/// Given a builder unit that dies just before the event manager, then the next one waits for its answer
/// until it is taken for dead, which is longer than events may take: no promise is broken by that.
#[test]
fn who_waits_for_a_dead_builder_unit_makes_no_progress_and_breaks_no_promise() {
    let topology = Topology::crossbar(4).unwrap();
    let mut plan = builder(Shaping::None);
    let ms = |ms| DurationNs(ms * DurationNs::MILLISECOND.0);
    (plan.retry, plan.timeout) = (ms(5), ms(40));
    plan.sick.builders = Deaths {
        at: DurationPs::from_ms(20),
        ..dead(1, None)
    };
    plan.sick.manager = Deaths {
        at: DurationPs::from_ms(30),
        ..dead(1, Some(DurationPs::from_ms(5)))
    };
    let mut load = load(900);
    load.warm_up = DurationPs::from_ms(5);
    load.arrival = Arrival::Poisson {
        interval: DurationPs::from_us(100),
    };
    let outcome = run(&plan, &topology, &load, &Switching::Wormhole, 1);
    assert_eq!((outcome.manager_restarts, outcome.builders_dead), (1, 1));
    let gap = outcome.longest_gap.0 / 1_000_000_000;
    assert!(gap > 400, "{gap} ms without an event");
}
