//! What is said again, and how often.

use super::*;

/// A unit that takes the place of one that died when all was built gets nothing; others wait until
/// nothing is said.
#[test]
fn credits_are_asked_for_ever_more_rarely_while_no_event_comes() {
    let mut bench = Bench::new();
    let retry = Bench::config().retry;
    for times in [1, 2, 4, 8, 16, 16, 16] {
        let asked_at = bench.now;
        bench.strike();
        assert_eq!(bench.now, RunNs(asked_at.0 + times * retry.0));
        let again = bench.unit.poll_output(bench.now).unwrap();
        let message = again.envelope.message;
        assert_eq!(message, BuilderMessage::EventRequest { credits: 4 });
        assert_eq!(bench.unit.poll_output(bench.now), None);
        assert!(bench.unit.is_idle());
    }
    bench.assign(5);
    bench.sent();
    bench.fragments(5);
    assert_eq!(bench.ticket(), Some(5));
    // The shortest that may be configured.
    let mut bench = Bench::of(&BuilderConfig {
        retry: DurationNs(1),
        ..Bench::config()
    });
    for _ in 0..40 {
        bench.unit.poll_output(bench.now).unwrap();
        bench.strike();
    }
    bench.unit.poll_output(bench.now).unwrap();
    let asked_at = bench.now;
    bench.strike();
    let rarely = 200 * DurationNs::MILLISECOND.0;
    assert_eq!(bench.now, RunNs(asked_at.0 + rarely));
}

#[test]
fn repeated_assignments_build_nothing_twice() {
    let mut bench = Bench::new();
    bench.assign(5);
    bench.assign(5);
    assert_eq!(
        bench.sent(),
        [Sent::Request(0, vec![5]), Sent::Request(1, vec![5])]
    );
    bench.fragments(5);
    assert_eq!(bench.ticket(), Some(5));
    bench.done(UnitId::filter(0), 5);
    bench.done(UnitId::filter(0), 5);
    bench.sent();
    bench.assign(5);
    bench.assign(5);
    let once_more = [Sent::ClearAccepted(vec![5])];
    assert_eq!(bench.sent(), once_more, "what the filter said is forgotten");
    assert_eq!(bench.ticket(), None);
    let counts = bench.unit.counts();
    assert_eq!((counts.assignments, counts.assignments_repeated), (1, 3));
    assert_eq!((counts.cleared, counts.clears_repeated), (1, 1));
    assert_eq!(counts.dones_unknown, 1);
}

#[test]
fn missing_fragments_are_asked_for_less_and_less_often_until_one_comes() {
    let config = BuilderConfig {
        timeout: DurationNs(10 * DurationNs::SECOND.0),
        ..Bench::config()
    };
    let mut bench = Bench::of(&config);
    bench.assign(5);
    bench.assign(6);
    bench.sent();
    // Until it asks again, in units of the retry time.
    let waits = |bench: &mut Bench| {
        let from = bench.now;
        while !(bench.sent().iter()).any(|sent| matches!(sent, Sent::Request(..))) {
            bench.strike();
        }
        bench.now.since(from).0 / config.retry.0
    };
    let pauses: Vec<u64> = (0..7).map(|_| waits(&mut bench)).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 16, 16]);
    bench.fragments(6);
    bench.fragment(5, 1);
    let pauses: Vec<u64> = (0..3).map(|_| waits(&mut bench)).collect();
    assert_eq!(pauses, [1, 2, 4], "what came begins it anew");
    assert_eq!(bench.unit.counts().events_incomplete, 0);
}

#[test]
fn a_readout_unit_that_missed_the_release_hears_it_again() {
    let mut bench = Bench::new();
    bench.assign(5);
    bench.assign(6);
    bench.sent();
    bench.fragments(5);
    bench.fragment(6, 4);
    while bench.ticket() != Some(6) {
        bench.strike();
    }
    bench.done(UnitId::filter(0), 5);
    bench.done(UnitId::filter(0), 6);
    bench.sent();
    bench.fragment(5, 1);
    bench.fragment(5, 1);
    bench.fragment(6, 3);
    assert!(!bench.unit.is_idle());
    assert_eq!(
        bench.sent(),
        [Sent::Release(0, vec![5]), Sent::Partial(1, 6, 0b01)]
    );
    let counts = bench.unit.counts();
    assert_eq!((counts.fragments_late, counts.releases_repeated), (3, 2));
}

/// Given more incomplete events than the unit has credits, and a readout unit whose fragment and the
/// release after it were lost on their ways, when that asks after the event at last, then it hears what
/// the event lacked: what it was asked for would be in no count otherwise.
#[test]
fn what_an_event_lacked_is_known_after_many_incomplete_ones() {
    let config = BuilderConfig {
        history: 1024,
        ..Bench::config()
    };
    let mut bench = Bench::of(&config);
    assert!(bench.unit.poll_output(RunNs(0)).is_some(), "its credits");
    let triggers = 5..=504;
    for trigger in triggers.clone() {
        bench.assign_at(trigger, trigger);
        bench.sent();
        bench.fragment(trigger, 4);
        while bench.ticket() != Some(trigger) {
            bench.strike();
        }
        bench.done(UnitId::filter(0), trigger);
        bench.sent();
    }
    for trigger in [triggers.start(), triggers.end()] {
        bench.fragment(*trigger, 3);
        assert_eq!(bench.sent(), [Sent::Partial(1, *trigger, 0b01)]);
        bench.fragment(*trigger, 1);
        assert_eq!(bench.sent(), [Sent::Partial(0, *trigger, 0b11)]);
    }
    assert_eq!(bench.unit.counts().events_incomplete, 500);
}

#[test]
fn credits_are_asked_for_until_the_first_assignment() {
    let mut bench = Bench::silent();
    let ask = |bench: &mut Bench| {
        let message = bench.unit.poll_output(bench.now)?.envelope.message;
        assert_eq!(message, BuilderMessage::EventRequest { credits: 4 });
        Some(())
    };
    assert_eq!(ask(&mut bench), Some(()));
    assert_eq!(ask(&mut bench), None);
    bench.strike();
    assert_eq!(bench.now, RunNs(0).after(Bench::config().retry));
    assert_eq!(ask(&mut bench), Some(()));
    bench.assign(1);
    bench.sent();
    bench.fragments(1);
    bench.strike();
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.unit.poll_timeout(), RunNs::MAX);
}
