//! Events that nobody has asked this unit for.

use super::*;

/// A bench with two builder units, whose unit is in the second step of two where it is asked.
fn bench(first_step: &[u16]) -> Bench {
    let mut bench = Bench::new();
    bench.config.builder_units = 2;
    bench.config.first_step = first_step.to_vec();
    bench.unit = ReadoutUnit::new(&bench.config, 1, 9);
    bench
}

/// All that is freed now.
fn all_freed(bench: &mut Bench) -> Vec<(u64, FreeReason)> {
    std::iter::from_fn(|| bench.freed()).collect()
}

/// With many scans to a count, only every second one asks: it must not be the same builder unit that
/// is asked at each of them.
#[test]
fn one_builder_unit_after_the_other_is_asked_about_an_event() {
    for probes_per_timeout in [1, 50, 200, 400] {
        let mut bench = bench(&[]);
        bench.config.timeout = DurationNs(bench.config.probe.0 * probes_per_timeout);
        bench.unit = ReadoutUnit::new(&bench.config, 1, 9);
        bench.fragments(1);
        bench.decide(1, Keep::Build);
        let mut asked = Vec::new();
        while asked.len() < 4 {
            let at = bench.unit.poll_timeout();
            bench.unit.handle_timeout(at);
            while let Some(output) = bench.unit.poll_output() {
                let ReadoutOutput::SendFragment { to, .. } = output else {
                    panic!("{output:?}");
                };
                asked.push(to.index);
            }
        }
        let first = asked[0];
        let turns = [first, 1 - first, first, 1 - first];
        assert_eq!(asked, turns, "{probes_per_timeout} probes in a timeout");
    }
}

#[test]
fn rejected_events_whose_release_was_lost_are_ended_when_their_builder_unit_is_gone() {
    let mut bench = bench(&[0]);
    for trigger in [1, 2, 4] {
        bench.fragments(trigger);
    }
    for trigger in [4, 2, 1, 5] {
        bench.decide(trigger, Keep::Build);
    }
    // Of one there is no decision yet, and one is asked for.
    bench.fragments(3);
    bench.request(0, 2);
    assert_eq!(bench.sent(2), SOURCES);
    assert_eq!(bench.unit.unasked(), [1, 4, 5].map(TriggerNumber));
    // Who names what is finished may name more than there is, or what has been asked for meanwhile.
    let finished = [1, 2, 3, 5, 9].map(TriggerNumber);
    assert_eq!(bench.unit.end_unasked(&finished), 0, "rejected, not freed");
    assert_eq!(all_freed(&mut bench), [(1, FreeReason::Unasked)]);
    assert_eq!(bench.unit.unasked(), [TriggerNumber(4)]);
    let counts = *bench.unit.counts();
    assert_eq!((counts.unasked_ended, counts.triggers_unasked), (2, 2));
    assert_eq!(counts.fragments_dropped_by_decision, 3);
    // One whose fragments come later is rejected like those that were there.
    for trigger in [1, 5] {
        let late = bench.fragment(trigger, SOURCES[0]);
        assert_eq!(late, FragmentVerdict::DiscardUnasked);
    }
    assert_eq!(bench.unit.end_unasked(&finished), 0);
    assert_eq!(bench.unit.counts().unasked_ended, 2, "ended once");
    assert_eq!(bench.unit.losses().total(), 0);
}

/// In one step, too: a unit that was away when an event was asked for never hears of it again.
#[test]
fn an_event_that_was_built_without_this_unit_is_ended() {
    let mut bench = bench(&[]);
    bench.fragments(1);
    bench.decide(1, Keep::Build);
    let unasked = bench.unit.unasked();
    assert_eq!(bench.unit.end_unasked(&unasked), 3);
    assert_eq!(all_freed(&mut bench), [(1, FreeReason::Released)]);
    assert!(bench.unit.is_idle());
    assert_eq!(bench.unit.end_unasked(&[TriggerNumber(1)]), 0);
    assert_eq!(bench.unit.counts().unasked_ended, 1);
}
