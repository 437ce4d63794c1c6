//! Phases of the linear shift: what they cost, and who waits for whom.

use livetime_fabric::DurationPs;
use livetime_fabric::builder_network::{BuilderNetwork, Deaths, Placement, Shaping, SickUnits};
use livetime_fabric::network::{Arrival, Topology};
use livetime_fabric::scenario::{ShiftOrder, Switching};

use super::{brief, builder, dead, load, run};

const LINEAR: Shaping = Shaping::LinearShift {
    phase_bytes: 4096,
    order: ShiftOrder::ConflictFree,
};

/// Given readout units that hear of a phase late, then they do not ask each other ever more often.
#[test]
fn phases_cost_a_few_messages_whoever_is_late() {
    let topology = Topology::crossbar(8).unwrap();
    let mut load = load(30);
    load.arrival = Arrival::Poisson {
        interval: DurationPs::from_us(100),
    };
    let slow = SickUnits {
        slow: 4,
        slow_factor: 20.0,
        ..SickUnits::default()
    };
    for (placement, sick, seed) in [
        (Placement::Random, SickUnits::default(), 2),
        (Placement::Random, SickUnits::default(), 3),
        (Placement::InOrder, slow, 1),
    ] {
        let plan = BuilderNetwork {
            placement,
            sick,
            ..builder(LINEAR)
        };
        load.seed = seed;
        let outcome = run(&plan, &topology, &load, &Switching::Wormhole, 1);
        assert!(outcome.events_built > 100, "{}", brief(&outcome));
        let of_fragment = outcome.events / outcome.fragments_delivered.max(1);
        assert!(of_fragment < 100, "{of_fragment} kernel events a fragment");
    }
}

/// Given a manager that dies, then the linear shift stands still hardly longer than it is gone.
#[test]
fn a_phase_that_a_dead_manager_did_not_hear_is_said_again() {
    let topology = Topology::crossbar(8).unwrap();
    let mut load = load(200);
    load.arrival = Arrival::Poisson {
        interval: DurationPs::from_us(100),
    };
    let mut plan = builder(LINEAR);
    plan.sick.manager = Deaths {
        at: DurationPs::from_ms(50),
        ..dead(1, Some(DurationPs::from_ms(20)))
    };
    let outcome = run(&plan, &topology, &load, &Switching::Wormhole, 1);
    assert_eq!(outcome.manager_restarts, 1);
    let gap = outcome.longest_gap;
    assert!(gap < DurationPs::from_ms(40), "{gap:?}");
}
