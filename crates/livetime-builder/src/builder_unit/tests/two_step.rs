//! Events that are built in two steps.

use super::*;

/// A bench with its first readout unit in the first step, and its credits asked for.
fn in_two_steps() -> Bench {
    let mut bench = Bench::of(&BuilderConfig {
        first_step: vec![0],
        ..Bench::config()
    });
    bench.unit.poll_output(RunNs(0)).unwrap();
    bench
}

impl Bench {
    fn fetch(&mut self, filter: u16, trigger: u64) {
        let triggers = [TriggerNumber(trigger)].into_iter().collect();
        let fetch = BuilderMessage::FetchRest { triggers };
        assert_eq!(self.send(UnitId::filter(filter), fetch), Handled::Taken);
    }
}

#[test]
fn the_first_step_is_marked_and_its_rest_is_fetched_once() {
    let mut bench = in_two_steps();
    bench.assign(5);
    assert_eq!(bench.sent(), [Sent::Request(0, vec![5])]);
    // Its readout unit looks whether the event is still in work: nobody has asked.
    bench.fragment(5, 3);
    assert_eq!(bench.unit.counts().fragments_late, 1);
    bench.fragment(5, 1);
    bench.fragment(5, 2);
    assert_eq!(bench.ticket(), Some(5));
    assert!(bench.ticket.is_first_step());
    assert_eq!(bench.ticket.missing, [SourceId(3), SourceId(4)]);
    bench.fetch(0, 5);
    assert_eq!(bench.sent(), [Sent::Request(1, vec![5])]);
    bench.fragment(5, 3);
    bench.fragment(5, 4);
    assert_eq!(bench.ticket(), Some(5));
    assert!(!bench.ticket.is_first_step() && bench.ticket.missing.is_empty());
    // Said again over a stream that was made again.
    bench.fetch(0, 5);
    assert_eq!(bench.unit.counts().fetches_refused, 1);
    bench.done(UnitId::filter(0), 5);
    let counts = *bench.unit.counts();
    assert_eq!((counts.events_built, counts.events_fetched), (1, 1));
    assert_eq!(counts.events_first_step_only, 0);
}

/// Given a first step that lacks a fragment when its time is over, then the rest is fetched without a
/// selection, and the filter judges an incomplete event.
#[test]
fn a_first_step_that_is_not_whole_selects_nothing() {
    let mut bench = in_two_steps();
    bench.assign(5);
    bench.sent();
    bench.fragment(5, 1);
    while bench.unit.counts().events_unjudged == 0 {
        bench.strike();
        bench.sent();
    }
    bench.fragment(5, 3);
    bench.fragment(5, 4);
    assert_eq!(bench.ticket(), None, "what is late may still come");
    while bench.unit.counts().events_incomplete == 0 {
        bench.strike();
        bench.sent();
    }
    assert_eq!(bench.ticket(), Some(5));
    assert!(!bench.ticket.is_first_step());
    assert_eq!(bench.ticket.missing, [SourceId(2)]);
}

#[test]
fn without_the_readout_unit_of_the_first_step_the_rest_is_fetched_at_once() {
    let mut bench = in_two_steps();
    bench.assign(5);
    bench.sent();
    bench.unit.handle_readout_lost(bench.now, 0);
    assert_eq!(bench.sent(), [Sent::Request(1, vec![5])]);
    bench.fragment(5, 3);
    bench.fragment(5, 4);
    assert_eq!(bench.ticket(), Some(5));
    assert!(!bench.ticket.is_first_step());
    assert_eq!(bench.unit.counts().events_unjudged, 1);
}
