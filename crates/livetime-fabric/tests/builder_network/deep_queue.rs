//! A queue of accepted triggers that is deeper than what the builder units hold.

use livetime_builder::BuildMode;
use livetime_fabric::DurationPs;
use livetime_fabric::builder_network::Shaping;
use livetime_fabric::network::Topology;
use livetime_fabric::scenario::Switching;

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
