//! Assignments of triggers that are older than what the unit remembers.

use super::*;

/// A unit that has built 101 and 102 at the times 11 and 12, and remembers 64 triggers.
fn bench() -> Bench {
    let mut bench = Bench::new();
    for trigger in [101, 102] {
        bench.assign_at(trigger, trigger - 90);
        bench.sent();
        build(&mut bench, trigger);
    }
    bench
}

/// More assignments than it knows the times of.
fn more(bench: &mut Bench) {
    for trigger in 201..=217 {
        bench.assign_at(trigger, trigger - 180);
        bench.sent();
        build(bench, trigger);
    }
}

/// Builds an assigned event, and says that it did.
fn build(bench: &mut Bench, trigger: u64) {
    bench.fragments(trigger);
    assert_eq!(bench.ticket(), Some(trigger));
    bench.done(UnitId::filter(0), trigger);
    let sent = bench.sent();
    assert_eq!(sent.last(), Some(&Sent::Clear(vec![trigger])));
}

/// Its builder unit died, after it had long been in a filter unit.
#[test]
fn one_of_another_unit_is_built_and_then_known_by_its_time() {
    let mut bench = bench();
    bench.assign_at(101 - 64, 13);
    let requests = [0, 1].map(|readout| Sent::Request(readout, vec![101 - 64]));
    assert_eq!(bench.sent(), requests);
    build(&mut bench, 101 - 64);
    for time in [13, 0] {
        bench.assign_at(101 - 64, time);
        assert_eq!(bench.sent(), [Sent::ClearAccepted(vec![37])]);
    }
    let counts = bench.unit.counts();
    assert_eq!((counts.assignments, counts.assignments_repeated), (3, 2));
    assert_eq!((counts.assignments_too_old, counts.cleared), (0, 3));
    assert!(bench.unit.losses().total() == 0);
}

/// It may have been built here, or its assignment may be the message that was lost.
#[test]
fn one_that_is_said_again_after_a_gap_is_given_up_with_all_its_fragments() {
    let mut bench = bench();
    bench.sequences[0] += 1;
    more(&mut bench);
    bench.assign_at(101 - 64, 2);
    let sent = bench.sent();
    let releases = [0, 1].map(|readout| Sent::Partial(readout, 101 - 64, 0b11));
    assert_eq!(sent[..2], releases);
    assert_eq!(sent[2..], [Sent::Clear(vec![101 - 64])]);
    assert_eq!(bench.unit.counts().assignments_too_old, 1);
    assert_eq!(bench.unit.losses().of(LossCause::EventAborted), 1);
    // What is surely new is built after a gap as well.
    bench.assign_at(102 - 64, 50);
    bench.sent();
    build(&mut bench, 102 - 64);
    assert_eq!(bench.unit.losses().total(), 1);
}

/// The first message of another event manager.
fn recover(triggers: &[u64]) -> Envelope {
    Envelope {
        sender: UnitId::EVENT_MANAGER,
        epoch: 3,
        sequence: 0,
        message: BuilderMessage::Recover {
            batch: 0,
            triggers: triggers.iter().copied().map(TriggerNumber).collect(),
        },
    }
}

/// It would be built twice, if the clear came to the event manager before only.
#[test]
fn another_event_manager_is_told_of_what_was_closed_late() {
    let mut bench = bench();
    bench.assign_at(101 - 64, 13);
    bench.sent();
    build(&mut bench, 101 - 64);
    let question = recover(&[37, 38, 102]);
    let handled = bench.unit.handle_message(bench.now, &question);
    assert_eq!(handled, Handled::Taken);
    let answer = bench.unit.poll_output(bench.now).unwrap();
    let expected = BuilderMessage::Recovered {
        manager_epoch: 3,
        batch: 0,
        held: 0,
        closed: 0b101,
    };
    assert_eq!(answer.envelope.message, expected);
}

/// Its clock may be behind that of the one before, and it numbers its messages anew.
#[test]
fn another_event_manager_begins_anew() {
    let mut bench = bench();
    bench.sequences[0] += 1;
    bench.assign_at(200, 14);
    bench.sent();
    build(&mut bench, 200);
    let recover = recover(&[]);
    assert_eq!(
        bench.unit.handle_message(bench.now, &recover),
        Handled::Taken
    );
    assert!(bench.unit.poll_output(bench.now).is_some(), "the answer");
    let assignment = |sequence, trigger, assigned_at| Envelope {
        sequence,
        message: BuilderMessage::Assignment {
            trigger: TriggerNumber(trigger),
            mask: L2Mask(7),
            triggered_at: RunNs(1),
            assigned_at: RunNs(assigned_at),
            builder_epoch: 2,
        },
        ..recover.clone()
    };
    for (sequence, assigned_at, expected) in [(1, 5, 38), (2, 0, 37)] {
        let envelope = assignment(sequence, expected, assigned_at);
        assert_eq!(
            bench.unit.handle_message(bench.now, &envelope),
            Handled::Taken
        );
    }
    let sent = bench.sent();
    assert_eq!(sent[0], Sent::Request(0, vec![38]));
    assert_eq!(sent[2], Sent::ClearAccepted(vec![37]));
    assert!(bench.unit.losses().total() == 0);
}

/// Fragments that are sent unasked come before the assignment, or long after the event was built.
#[test]
fn fragments_of_old_triggers_wait_for_the_assignment_and_are_released_without_one() {
    let mut bench = Bench::of(&BuilderConfig {
        mode: BuildMode::Push,
        ..Bench::config()
    });
    bench.unit.poll_output(RunNs(0)).expect("credits");
    for trigger in [101, 102] {
        bench.assign_at(trigger, trigger - 90);
        build(&mut bench, trigger);
    }
    bench.fragment(101 - 64, 3);
    assert_eq!(bench.sent(), [], "it may be open");
    bench.assign_at(101 - 64, 13);
    for source in [1, 2, 4] {
        bench.fragment(101 - 64, source);
    }
    assert_eq!(bench.ticket(), Some(37));
    bench.done(UnitId::filter(0), 37);
    assert_eq!(bench.sent().last(), Some(&Sent::Clear(vec![37])));
    bench.fragment(101 - 64, 3);
    assert_eq!(bench.sent(), [Sent::Release(1, vec![37])], "it was built");
    bench.fragment(102 - 64, 3);
    while bench.now < RunNs(0).after(Bench::config().timeout) {
        assert_eq!(bench.sent(), [], "it may be open");
        bench.strike();
    }
    assert_eq!(bench.sent(), [Sent::Forgotten(1, 38)]);
    let counts = bench.unit.counts();
    assert_eq!((counts.assignments, counts.events_early_forgotten), (3, 1));
    assert_eq!(bench.unit.events_held(), 0);
    assert!(bench.unit.losses().total() == 0);
}

/// A readout unit that nobody has asked sends one fragment to each unit in turn.
#[test]
fn of_one_that_may_be_another_units_nothing_is_released() {
    let mut bench = bench();
    bench.fragment(101 - 64, 3);
    bench.fragment(102, 3);
    assert_eq!(
        bench.sent(),
        [Sent::Forgotten(1, 37), Sent::Release(1, vec![102])]
    );
    assert_eq!(bench.unit.counts().fragments_late, 2);
}
