//! Filter and readout units that are lost, come back or join.

use super::*;

#[test]
fn a_lost_filter_unit_loses_its_events_and_their_credits_return() {
    let mut bench = Bench::new();
    for trigger in 1..=3 {
        bench.assign(trigger);
        bench.fragments(trigger);
    }
    bench.sent();
    assert_eq!((bench.ticket(), bench.ticket()), (Some(1), Some(2)));
    bench.unit.handle_filter_lost(0);
    assert_eq!(bench.ticket(), None);
    assert_eq!(bench.unit.losses().of(LossCause::FilterLost), 2);
    assert_eq!(bench.sent().last(), Some(&Sent::Clear(vec![1, 2])));
    bench.done(UnitId::filter(0), 1);
    assert_eq!(bench.unit.counts().dones_unknown, 1);
    bench.unit.handle_filter_back(0);
    assert_eq!(bench.ticket(), Some(3));
}

#[test]
fn filter_units_of_another_subfarm_get_nothing_even_when_they_come_back() {
    let config = BuilderConfig {
        builder_units: 2,
        filter_units: 4,
        subfarms: 2,
        filter_in_flight: 1,
        ..Bench::config()
    };
    let mut bench = Bench::of(&config);
    for trigger in 1..=4 {
        bench.assign(trigger);
        bench.fragments(trigger);
    }
    let mut ticket = bench.unit.empty_ticket();
    let mut next = |unit: &mut BuilderUnit| unit.poll_ticket(&mut ticket).map(|fu| fu.index);
    let unit = &mut bench.unit;
    assert_eq!(
        [next(unit), next(unit), next(unit)],
        [Some(0), Some(2), None]
    );
    unit.handle_filter_back(3);
    assert_eq!(next(unit), None);
    // One dies: the other gets its event when it has room.
    assert_eq!(unit.redispatch_filter(0, &[]), []);
    assert_eq!(next(unit), None);
    assert_eq!(config.builders_of(3).collect::<Vec<_>>(), [1]);
    assert_eq!(config.filters_of(1).collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn events_of_a_lost_filter_unit_are_given_out_again_and_failed_ones_are_marked() {
    let mut bench = Bench::new();
    for trigger in 1..=3 {
        bench.assign(trigger);
        bench.fragments(trigger);
    }
    bench.sent();
    assert_eq!((bench.ticket(), bench.ticket()), (Some(1), Some(2)));
    let failed = [TriggerNumber(2), TriggerNumber(9)];
    let given_up = bench.unit.redispatch_filter(0, &failed);
    assert_eq!(given_up, [TriggerNumber(2)], "the other is not in it");
    assert_eq!(bench.ticket(), None, "there is no filter unit");
    bench.unit.handle_filter_back(0);
    let mut ticket = bench.unit.empty_ticket();
    let mut next = || {
        bench.unit.poll_ticket(&mut ticket)?;
        Some((ticket.trigger.0, ticket.streams))
    };
    assert_eq!(next(), Some((1, 0)), "in order, ahead of the others");
    assert_eq!(next(), Some((2, EventHeader::ERROR_STREAM)));
    assert_eq!(next(), None, "its window is full");
    bench.unit.retire_filter(0);
    (1..=2).for_each(|trigger| bench.done(UnitId::filter(0), trigger));
    assert_eq!(bench.ticket(), None, "it has left");
    bench.unit.handle_filter_back(0);
    assert_eq!(bench.ticket(), Some(3));
    bench.done(UnitId::filter(0), 3);
    assert_eq!(bench.unit.losses().total(), 0);
    assert_eq!(bench.unit.counts().tickets_again, 2);
    assert_eq!(bench.unit.counts().events_done, 3);
}

/// As long as there are fragments of a lost readout unit in events, its pages may be read.
#[test]
fn events_with_fragments_of_a_lost_readout_unit_are_named_until_they_are_released() {
    let mut bench = Bench::new();
    bench.assign(5);
    bench.sent();
    bench.fragment(5, 3);
    bench.unit.handle_readout_lost(bench.now, 0);
    let with = |bench: &Bench, readout| bench.unit.events_with(readout).collect::<Vec<_>>();
    assert_eq!(with(&bench, 0), []);
    assert_eq!(with(&bench, 1), [TriggerNumber(5)]);
    assert_eq!(with(&bench, 7), [], "there is no such unit");
    bench.fragment(5, 4);
    assert_eq!(bench.ticket(), Some(5));
    assert_eq!(
        with(&bench, 1),
        [TriggerNumber(5)],
        "a filter unit reads it"
    );
    bench.done(UnitId::filter(0), 5);
    bench.sent();
    assert_eq!(with(&bench, 1), []);
}

/// Sequence numbers of what is said to readout unit 1.
fn said_to_the_second(bench: &mut Bench) -> Vec<u32> {
    let outputs = std::iter::from_fn(|| bench.unit.poll_output(bench.now));
    let to_it = outputs.filter(|outgoing| outgoing.to == UnitId::readout(1));
    to_it.map(|outgoing| outgoing.envelope.sequence).collect()
}

#[test]
fn a_readout_unit_that_has_joined_is_waited_for_from_the_next_trigger_on() {
    let mut bench = Bench::new();
    bench.unit.handle_readout_lost(bench.now, 1);
    bench.unit.renew_peer(UnitId::readout(1), 2);
    // What is said to it before it joins is said in its new life.
    let mut said = Vec::new();
    for trigger in [5, 6] {
        bench.assign(trigger);
        said.extend(said_to_the_second(&mut bench));
        bench.fragment(trigger, 1);
    }
    let newest = TriggerNumber(6);
    bench.unit.handle_readout_joined(bench.now, 1, newest);
    for trigger in [5, 6] {
        bench.fragment(trigger, 2);
        assert_eq!(bench.ticket(), Some(trigger));
        assert_eq!(bench.ticket.missing, [SourceId(3), SourceId(4)]);
        bench.done(UnitId::filter(0), trigger);
    }
    bench.assign(7);
    said.extend(said_to_the_second(&mut bench));
    let in_order: Vec<u32> = (0..said.len() as u32).collect();
    assert_eq!(said, in_order, "its numbers do not begin again");
    assert!(said.len() > 2);
    for source in [1, 2, 3] {
        bench.fragment(7, source);
        assert_eq!(bench.ticket(), None, "one more is to come");
    }
    bench.fragment(7, 4);
    assert_eq!(bench.ticket(), Some(7));
    let counts = bench.unit.counts();
    assert_eq!((counts.events_built, counts.events_incomplete), (1, 2));
    assert_eq!(counts.messages.missing, 0);
}
