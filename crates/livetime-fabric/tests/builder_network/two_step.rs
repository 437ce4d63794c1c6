//! Building in two steps: what it saves, who bounds it, and that nothing is lost with units that die.

use livetime_fabric::DurationPs;
use livetime_fabric::builder_network::{BuilderNetwork, Deaths, Shaping, SickUnits, TwoStep};
use livetime_fabric::network::Topology;
use livetime_fabric::scenario::Switching;

use super::{BARREL, brief, builder, dead, load, rate_ratio, run};

/// The talk's case: a quarter of the readout units first, and a tenth of the events in full. What moves
/// is 0.25 + 0.1 x 0.75 of the payload; the first units send for every event, so that their links
/// are the bound as before.
#[test]
fn two_steps_move_a_third_of_the_payload_and_the_first_units_are_the_bound() {
    let topology = Topology::four_layer(4).unwrap();
    let at_once = BuilderNetwork {
        credits: 48,
        ..builder(BARREL)
    };
    let plan = BuilderNetwork {
        two_step: Some(TwoStep {
            first_units: 16,
            accept: 0.1,
        }),
        ..at_once.clone()
    };
    let whole = run(&at_once, &topology, &load(120), &Switching::Wormhole, 1);
    let outcome = run(&plan, &topology, &load(120), &Switching::Wormhole, 1);
    assert_eq!(whole.two_step, None);
    let steps = outcome.two_step.expect("two steps");
    assert_eq!(steps.first_units, 16);
    let expected = 0.25 + 0.75 * steps.accepted;
    assert!((steps.accepted - 0.1).abs() < 0.02, "{steps:?}");
    assert!((steps.moved - expected).abs() < 0.01, "{steps:?}");
    let rejected = steps.events_released as f64 / outcome.events_built as f64;
    assert!((rejected - 0.9).abs() < 0.02, "{steps:?}");
    // The others send a tenth of what the first ones do, whose links are no faster than before.
    let uneven = steps.rest_bytes_per_s / steps.first_bytes_per_s;
    assert!((uneven - steps.accepted).abs() < 0.02, "{steps:?}");
    assert!(outcome.events_incomplete == 0 && whole.events_incomplete == 0);
    assert!(outcome.fragments_sent < outcome.events_built * 64 / 2);
    // Without accepted events nothing but the first step moves, with all of them everything.
    for accept in [0.0, 1.0] {
        let plan = BuilderNetwork {
            two_step: Some(TwoStep {
                first_units: 16,
                accept,
            }),
            ..at_once.clone()
        };
        let outcome = run(&plan, &topology, &load(60), &Switching::Wormhole, 1);
        let steps = outcome.two_step.expect("two steps");
        assert_eq!(steps.accepted, accept);
        assert!(
            (steps.moved - (0.25 + 0.75 * accept)).abs() < 0.01,
            "{steps:?}"
        );
        assert_eq!(steps.events_released == 0, accept == 1.0);
    }
}

/// What a dead builder unit had released after the first step is freed in all readout units, and its
/// other events are built or released by others, each once.
#[test]
fn two_steps_lose_nothing_with_builder_units_that_die() {
    let topology = Topology::four_layer(2).unwrap();
    let with = |sick| {
        let plan = BuilderNetwork {
            two_step: Some(TwoStep {
                first_units: 4,
                accept: 0.3,
            }),
            sick,
            ..builder(Shaping::None)
        };
        run(&plan, &topology, &load(1_200), &Switching::Wormhole, 1)
    };
    let outcome = with(SickUnits {
        builders: dead(3, None),
        ..SickUnits::default()
    });
    assert_eq!(outcome.builders_dead, 3, "{}", brief(&outcome));
    assert!(outcome.events_reassigned > 0, "{}", brief(&outcome));
    assert_eq!(outcome.events_incomplete, 0);
    // Units of both steps die, and the event manager while builder units are missed.
    let outcome = with(SickUnits {
        builders: dead(3, Some(DurationPs::from_ms(650))),
        readouts: dead(4, Some(DurationPs::from_ms(200))),
        manager: Deaths {
            at: DurationPs::from_ms(400),
            ..dead(1, Some(DurationPs::from_ms(100)))
        },
        ..SickUnits::default()
    });
    let back = (outcome.builders_back, outcome.readouts_back);
    assert_eq!((back, outcome.manager_restarts), ((3, 4), 1));
    assert!(outcome.events_incomplete > 0, "{}", brief(&outcome));
    let after = rate_ratio(&outcome, 28..32, 24..28);
    assert!(after > 0.9, "{after}");
}
