//! Stories of the builder with all faults at once. `LIVETIME_SWARM_RUNS` and `LIVETIME_SWARM_SEED`
//! set how many, and from which seed on.

use std::collections::BTreeMap;

use livetime_fabric::swarm::{
    SwarmRun, SwarmScenario, SwarmShaping, UNBROKEN, run_scenario, run_seed,
};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {text}"))
    })
}

fn assert_good(run: &SwarmRun) {
    if let Some(violation) = &run.violation {
        panic!(
            "seed {}: {} at {}\n{}",
            run.scenario.seed, violation.what, violation.at, run.scenario
        );
    }
}

#[test]
fn hundreds_of_stories_hold_and_every_fault_happens() {
    let (first, runs) = (
        number("LIVETIME_SWARM_SEED", 1),
        number("LIVETIME_SWARM_RUNS", 300),
    );
    let mut faults = BTreeMap::new();
    let mut kinds = BTreeMap::new();
    let (mut built, mut released) = (0, 0);
    let mut failed = Vec::new();
    for seed in first..first + runs {
        let run = run_seed(seed, UNBROKEN);
        if let Some(violation) = &run.violation {
            failed.push(format!(
                "seed {seed}: {} at {}\n{}",
                violation.what, violation.at, run.scenario
            ));
        }
        built += run.events_built;
        released += run.events_released;
        for kind in run.scenario.kinds() {
            *kinds.entry(kind).or_insert(0) += 1;
        }
        for (fault, count) in run.faults {
            *faults.entry(fault).or_insert(0) += count;
        }
    }
    println!("{runs} stories from seed {first}: {kinds:?}");
    println!("{built} events, {released} released after a first step, {faults:?}");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    if runs >= 300 {
        for fault in [
            "dropped",
            "duplicated",
            "delayed",
            "builder_slow",
            "builder_stopped",
            "builder_cut_off",
            "builder_killed",
            "builder_gone",
            "falsely_dead",
            "readout_stopped",
            "readout_cut_off",
            "readout_killed",
            "manager_killed",
            "manager_killed_beside",
            "manager_outlived",
            "manager_stopped",
            "manager_cut_off",
            "filter_killed",
            "filter_stopped",
            "writer_killed",
            "writer_silent",
            "writer_stopped",
            "tickets_refused",
            "ended_unasked",
            "fragments_broken",
            "fragments_orphaned",
            "forced_end",
        ] {
            assert!(faults.get(fault).is_some_and(|n| *n > 0), "no {fault}");
        }
        for kind in [
            "pull",
            "push",
            "two_steps",
            "blocks",
            "blocks_by_clock",
            "phases",
        ] {
            assert!(kinds.get(kind).is_some_and(|n| *n > 10), "no {kind}");
        }
        assert!(released > 100 && released * 2 < built);
    }
}

/// Seed 66969: an event manager dies while a builder unit has smaller events in hand than is set
/// aside for each. Its successor must learn their sizes, or it counts more bytes than there are.
#[test]
fn a_restarted_event_manager_learns_the_sizes_of_built_events() {
    let story = SwarmScenario {
        shaping: SwarmShaping::None,
        first_step: 0,
        ..SwarmScenario::from_seed(66_969)
    };
    assert_good(&run_scenario(&story, UNBROKEN));
}

/// Seed 481: a builder unit that remembers 16 triggers is cut off for a moment. Were assignments
/// repeated to it only now and then, one would reach it when it had closed 16 later ones, and be taken
/// for a closed one.
#[test]
fn an_assignment_that_was_cut_off_is_repeated_in_time() {
    let story = SwarmScenario {
        history: 16,
        ..SwarmScenario::from_seed(481)
    };
    assert_good(&run_scenario(&story, UNBROKEN));
}

/// Seed 11144695: a request to a readout unit that died came to the next one, late. Had the numbers of
/// what is said to it begun again, all that was said from then on would have been older, and its
/// fragments not been sent again.
#[test]
fn a_late_request_to_a_dead_readout_unit_does_not_silence_the_next_one() {
    assert_good(&run_seed(11_144_695, UNBROKEN));
}

/// Seed 14044022: an event that one event manager had pushed to a builder unit was built by another, whose
/// release was lost with it.
#[test]
fn what_was_pushed_to_one_builder_unit_and_built_by_another_is_freed() {
    assert_good(&run_seed(14_044_022, UNBROKEN));
}

/// Every moment of a settlement is one at which the event manager may die, and its successor be needed
/// to go on with it.
#[test]
fn an_event_manager_may_die_while_the_loss_of_a_builder_unit_is_settled() {
    use livetime_fabric::swarm::{SwarmFault, TimedFault};
    let (first, runs) = (
        number("LIVETIME_SWARM_SEED", 1),
        number("LIVETIME_SWARM_RUNS", 300),
    );
    let (mut beside, mut failed) = (0, Vec::new());
    for seed in first..first + runs {
        let mut story = SwarmScenario::from_seed(seed);
        let builder = (seed % u64::from(story.builders)) as u16;
        let killed = 10 + seed % 37;
        story.faults = vec![TimedFault {
            at_ms: killed,
            fault: SwarmFault::KillBuilder { builder },
        }];
        // Those that are missed by their silence alone are missed after half a second.
        for after in [seed % 53, 20 + seed % 61, 520 + seed % 71] {
            story.faults.push(TimedFault {
                at_ms: killed + after,
                fault: SwarmFault::RestartManager {
                    for_ms: 1 + seed % 7,
                },
            });
        }
        let run = run_scenario(&story, UNBROKEN);
        if let Some(violation) = &run.violation {
            failed.push(format!(
                "seed {seed}: {} at {}\n{}",
                violation.what, violation.at, run.scenario
            ));
        }
        beside += run.faults.get("manager_killed_beside").unwrap_or(&0);
    }
    println!("{runs} stories from seed {first}: killed {beside} times beside it");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(beside > runs / 2, "{beside}");
}

#[test]
fn a_seed_is_the_same_story_every_time() {
    for seed in [3, 17] {
        let (first, again) = (run_seed(seed, UNBROKEN), run_seed(seed, UNBROKEN));
        assert_eq!(first, again);
        assert_ne!(first.trace_hash, run_seed(seed + 1, UNBROKEN).trace_hash);
    }
}

/// A story without any trouble.
fn calm(seed: u64) -> SwarmScenario {
    SwarmScenario {
        drop_ppm: 0,
        duplicate_ppm: 0,
        delay_ppm: 0,
        faults: Vec::new(),
        shaping: SwarmShaping::None,
        first_step: 0,
        triggers: 400,
        interval_us: 300,
        builders: 2,
        credits: 4,
        ..SwarmScenario::from_seed(seed)
    }
}

#[test]
fn a_slow_builder_unit_gets_fewer_events_and_the_other_keeps_its_pace() {
    use livetime_fabric::swarm::{SwarmFault, TimedFault};
    let equal = run_scenario(&calm(5), UNBROKEN);
    assert_good(&equal);
    let mut story = calm(5);
    story.faults = vec![TimedFault {
        at_ms: 0,
        fault: SwarmFault::SlowBuilder {
            builder: 0,
            more_us: 20_000,
        },
    }];
    let slow = run_scenario(&story, UNBROKEN);
    assert_good(&slow);
    let [slow_one, other] = slow.events_by_builder[..] else {
        panic!("two builder units");
    };
    assert_eq!(slow_one + other, equal.events_built, "nothing is lost");
    assert!(slow_one * 3 < other, "{:?}", slow.events_by_builder);
    assert!(other > equal.events_by_builder[1]);
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_is_found_and_its_story_shrinks() {
    use livetime_builder::mutant::Mutant;
    use livetime_fabric::swarm::shrink;
    for (name, mutant) in Mutant::ALL {
        let found = (1..=2000)
            .map(|seed| run_seed(seed, Some(mutant)))
            .find(|run| run.violation.is_some());
        let found = found.unwrap_or_else(|| panic!("{name} is not found"));
        let before = found.scenario.clone();
        let small = shrink(found, Some(mutant));
        assert!(small.violation.is_some());
        assert!(small.scenario.triggers <= before.triggers);
        assert!(small.scenario.faults.len() <= before.faults.len());
        println!("{name}: seed {}: {:?}", before.seed, small.violation);
        println!("  {}", small.scenario);
    }
}

/// Seed 21075051: what a dead event manager had pushed to one builder unit, another one has been sent by
/// a readout unit that asks about it, and needs no more of. That unit must not free it when the run is
/// ended by force.
#[test]
fn what_another_builder_unit_was_sent_outlives_the_end_by_force() {
    assert_good(&run_seed(21_075_051, UNBROKEN));
}

/// Seed 15: releases are lost when a run is ended by force, and nobody works any more. What they release
/// must not be counted as lost.
#[test]
fn a_release_that_was_lost_is_asked_for_before_a_run_ends_by_force() {
    let run = run_seed(15, UNBROKEN);
    assert_good(&run);
    assert_eq!(run.faults.get("forced_end"), Some(&1));
}
