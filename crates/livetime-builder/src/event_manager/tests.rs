use std::collections::BTreeMap;

use super::*;
use crate::message_exchange::PeerEpochs;

const SECOND: u64 = DurationNs::SECOND.0;

struct Bench {
    evm: EventManager,
    sequences: [u32; 4],
    /// By trigger: the time of its assignment.
    times: BTreeMap<TriggerNumber, RunNs>,
}

impl Bench {
    /// Two builder units with 3 credits each, a queue of 4.
    fn new() -> Self {
        let config = BuilderConfig {
            credits: 3,
            evm_queue: 4,
            ..BuilderConfig::default()
        };
        Self {
            evm: EventManager::new(&config, 5),
            sequences: [0; 4],
            times: BTreeMap::new(),
        }
    }

    fn granted() -> Self {
        let mut bench = Self::new();
        bench.grant(0, 3);
        bench.grant(1, 3);
        bench
    }

    fn send(&mut self, sender: UnitId, message: BuilderMessage) -> Handled {
        let lane = match sender.kind {
            UnitKind::Supervisor => 3,
            _ => usize::from(sender.index) % 3,
        };
        let envelope = Envelope {
            sender,
            epoch: 5,
            sequence: self.sequences[lane],
            message,
        };
        let handled = self.evm.handle_message(RunNs(0), &envelope);
        self.sequences[lane] += u32::from(handled == Handled::Taken);
        handled
    }

    fn offer(&mut self, trigger: u64) -> Handled {
        self.send(
            UnitId::SUPERVISOR,
            BuilderMessage::L2Accept {
                trigger: TriggerNumber(trigger),
                mask: L2Mask(u128::from(trigger)),
                triggered_at: RunNs(trigger),
            },
        )
    }

    fn accept(&mut self, trigger: u64) {
        assert_eq!(self.offer(trigger), Handled::Taken);
    }

    fn grant(&mut self, builder: u16, credits: u32) {
        let request = BuilderMessage::EventRequest { credits };
        assert_eq!(self.send(UnitId::builder(builder), request), Handled::Taken);
    }

    fn clear(&mut self, builder: u16, trigger: u64) {
        let triggers = [TriggerNumber(trigger)].into_iter().collect();
        let clear = BuilderMessage::Clear { triggers };
        assert_eq!(self.send(UnitId::builder(builder), clear), Handled::Taken);
    }

    /// Polls one assignment: trigger and builder unit.
    fn assigned(&mut self) -> Option<(u64, u16)> {
        let outgoing = self.evm.poll_output(RunNs(100))?;
        assert_eq!(outgoing.envelope.sender, UnitId::EVENT_MANAGER);
        match outgoing.envelope.message {
            BuilderMessage::Assignment {
                trigger,
                mask,
                triggered_at,
                assigned_at,
                builder_epoch,
            } => {
                assert!(builder_epoch >= 5);
                assert_eq!((mask.0, triggered_at.0), (trigger.0.into(), trigger.0));
                let is_again = self.times.get(&trigger) == Some(&assigned_at);
                let latest = self.times.values().max().copied().unwrap_or(RunNs(99));
                assert!(is_again || assigned_at == RunNs(latest.0 + 1));
                self.times.insert(trigger, assigned_at);
                Some((trigger.0, outgoing.to.index))
            }
            other => panic!("event manager sent {other:?}"),
        }
    }
}

#[test]
fn events_go_in_trigger_order_to_the_unit_with_most_credits() {
    let mut bench = Bench::granted();
    for trigger in [10, 30, 20] {
        bench.accept(trigger);
    }
    assert_eq!(bench.assigned(), Some((10, 0)), "first of equals");
    assert_eq!(bench.assigned(), Some((20, 1)));
    assert_eq!(bench.assigned(), Some((30, 0)));
    assert_eq!(bench.assigned(), None);
    bench.clear(0, 10);
    bench.clear(0, 30);
    assert_eq!(bench.evm.free_credits(0), 3);
    bench.accept(40);
    assert_eq!(bench.assigned(), Some((40, 0)), "bu1 is behind");
    assert!(bench.evm.credits_conserved());
    assert_eq!(bench.evm.counts().cleared, 2);
}

/// At a low rate each event is done before the next one comes.
#[test]
fn units_with_equal_credits_take_turns() {
    let mut bench = Bench::granted();
    let mut builders = Vec::new();
    for trigger in 1..=6 {
        bench.accept(trigger);
        let (_, builder) = bench.assigned().unwrap();
        bench.clear(builder, trigger);
        builders.push(builder);
    }
    assert_eq!(builders, [0, 1, 0, 1, 0, 1]);
}

/// The talk slows one builder unit down by half: the others keep their pace.
#[test]
fn a_builder_of_half_the_speed_gets_half_the_events() {
    let mut bench = Bench::granted();
    let mut building: [VecDeque<u64>; 2] = Default::default();
    let mut next = 1;
    for cycle in 0..300 {
        while bench.evm.queued() < 4 {
            bench.accept(next);
            next += 1;
        }
        while let Some((trigger, builder)) = bench.assigned() {
            building[usize::from(builder)].push_back(trigger);
        }
        for builder in 0..2_u16 {
            if builder == 0 || cycle % 2 == 0 {
                let done = building[usize::from(builder)].pop_front();
                bench.clear(builder, done.expect("never without work"));
            }
        }
    }
    assert_eq!(bench.evm.counts().cleared, 300 + 150);
}

#[test]
fn without_credits_the_queue_fills_and_the_supervisor_waits() {
    let mut bench = Bench::new();
    for trigger in 1..=4 {
        bench.accept(trigger);
    }
    assert_eq!(bench.offer(5), Handled::Busy);
    assert_eq!(bench.assigned(), None);
    bench.grant(1, 1);
    assert_eq!(bench.assigned(), Some((1, 1)));
    assert_eq!(bench.assigned(), None);
    assert_eq!(bench.offer(5), Handled::Taken, "handed in again");
    assert_eq!(bench.evm.counts().messages.missing, 0);
    assert_eq!(bench.evm.queued(), 4);
}

#[test]
fn repetitions_change_nothing() {
    let mut bench = Bench::granted();
    bench.grant(0, 3);
    assert_eq!(bench.evm.free_credits(0), 3, "never beyond the window");
    bench.accept(1);
    bench.accept(1);
    assert_eq!(bench.assigned(), Some((1, 0)));
    bench.accept(1);
    bench.clear(1, 1);
    assert_eq!(bench.evm.free_credits(1), 3, "not its event");
    bench.clear(0, 1);
    bench.clear(0, 1);
    bench.accept(1);
    bench.accept(0);
    assert_eq!(bench.assigned(), None);
    let counts = bench.evm.counts();
    assert_eq!((counts.credits_refused, counts.credits_granted), (1, 6));
    assert_eq!((counts.accepts, counts.accepts_repeated), (1, 4));
    assert_eq!((counts.cleared, counts.clears_unknown), (1, 2));
    assert!(bench.evm.is_idle());
    assert!(bench.evm.credits_conserved());
}

#[test]
fn foreign_messages_are_refused_and_counted() {
    let mut bench = Bench::granted();
    let drop = BuilderMessage::EventRequest { credits: 1 };
    assert_eq!(
        bench.send(UnitId::readout(0), drop.clone()),
        Handled::Refused
    );
    assert_eq!(
        bench.send(UnitId::SUPERVISOR, drop.clone()),
        Handled::Refused
    );
    assert_eq!(bench.send(UnitId::builder(2), drop), Handled::Refused);
    let messages = bench.evm.counts().messages;
    assert_eq!((messages.strangers, messages.unexpected), (2, 1));
    let envelope = Envelope {
        sender: UnitId::builder(0),
        epoch: 4,
        sequence: 1,
        message: BuilderMessage::EventRequest { credits: 1 },
    };
    assert_eq!(
        bench.evm.handle_message(RunNs(0), &envelope),
        Handled::Refused
    );
    assert_eq!(bench.evm.counts().messages.wrong_epoch, 1);
}

#[test]
fn uncleared_events_are_assigned_again_to_the_same_unit() {
    let mut bench = Bench::granted();
    assert_eq!(bench.evm.poll_timeout(), RunNs::MAX);
    bench.accept(1);
    bench.accept(2);
    assert_eq!(bench.assigned(), Some((1, 0)));
    assert_eq!(bench.assigned(), Some((2, 1)));
    let first = bench.evm.poll_timeout();
    assert_eq!(first, RunNs(100 + SECOND));
    bench.evm.handle_timeout(RunNs(SECOND));
    bench.evm.handle_timeout(first);
    assert!(bench.evm.poll_output(first).is_none(), "seen once");
    bench.clear(0, 1);
    bench.evm.handle_timeout(bench.evm.poll_timeout());
    assert_eq!(bench.assigned(), Some((2, 1)));
    assert_eq!(bench.assigned(), None);
    let counts = bench.evm.counts();
    assert_eq!((counts.assignments, counts.assignments_repeated), (2, 1));
    assert!(bench.evm.credits_conserved());
}

#[test]
fn aborted_events_are_counted_once_under_their_cause() {
    let mut bench = Bench::granted();
    for trigger in 1..=4 {
        bench.accept(trigger);
    }
    for _ in 0..2 {
        bench.assigned().unwrap();
    }
    bench.evm.abort();
    assert_eq!(bench.assigned(), None);
    bench.accept(5);
    assert_eq!(bench.evm.losses().of(LossCause::EventAborted), 3);
    bench.clear(0, 1);
    assert!(!bench.evm.is_idle());
    bench.evm.close();
    // Its builder unit is not lost: it was not heard in time.
    assert_eq!(bench.evm.losses().of(LossCause::EventAborted), 4);
    assert!(bench.evm.is_idle());
    assert!(bench.evm.credits_conserved());
    assert_eq!(bench.evm.losses().total() + bench.evm.counts().cleared, 5);
}

#[test]
fn a_lost_builder_unit_takes_its_events_and_credits_and_comes_back_empty() {
    let mut bench = Bench::granted();
    (1..=4).for_each(|trigger| bench.accept(trigger));
    let assigned: Vec<_> = std::iter::from_fn(|| bench.assigned()).collect();
    assert_eq!(assigned, [(1, 0), (2, 1), (3, 0), (4, 1)]);
    bench.clear(0, 1);
    let lost = bench.evm.handle_builder_lost(0);
    assert_eq!(lost, [TriggerNumber(3)]);
    assert_eq!(bench.evm.losses().of(LossCause::BuilderLost), 1);
    assert!(bench.evm.credits_conserved());
    (5..=6).for_each(|trigger| bench.accept(trigger));
    assert_eq!(bench.assigned(), Some((5, 1)), "the other one has a credit");
    assert_eq!(bench.assigned(), None, "nobody else has");
    assert_eq!(bench.evm.handle_builder_lost(0), [], "it holds nothing");
    assert_eq!(
        bench.evm.handle_builder_lost(77),
        [],
        "there is no such unit"
    );

    bench.evm.handle_builder_back(0, 6);
    let request = BuilderMessage::EventRequest { credits: 3 };
    let old = bench.send(UnitId::builder(0), request.clone());
    assert_eq!(old, Handled::Refused, "a message of its past");
    let envelope = Envelope {
        sender: UnitId::builder(0),
        epoch: 6,
        sequence: 0,
        message: request,
    };
    let fresh = bench.evm.handle_message(RunNs(0), &envelope);
    assert_eq!(fresh, Handled::Taken);
    assert_eq!(bench.assigned(), Some((6, 0)));
    bench.accept(3);
    assert_eq!(bench.assigned(), None, "what is lost is not assigned again");
    assert!(bench.evm.credits_conserved());
}

#[test]
fn events_of_a_lost_builder_unit_are_built_by_another_unless_handed_on() {
    let mut bench = Bench::granted();
    (1..=4).for_each(|trigger| bench.accept(trigger));
    while bench.assigned().is_some() {}
    bench.accept(5);
    bench.accept(6);
    assert_eq!(bench.assigned(), Some((5, 0)));
    let held = bench.evm.withdraw_builder(0);
    assert_eq!(held, [1, 3, 5].map(TriggerNumber));
    assert!(bench.evm.credits_conserved() && !bench.evm.is_idle());
    bench.accept(3);
    assert_eq!(bench.evm.counts().accepts_repeated, 1, "it is parked");
    let again = bench.evm.reassign(0, &[TriggerNumber(1)]);
    assert_eq!(again, [3, 5].map(TriggerNumber));
    assert_eq!(bench.assigned(), Some((3, 1)), "the oldest first");
    bench.evm.handle_builder_back(0, 6);
    let late = BuilderMessage::Clear {
        triggers: [TriggerNumber(3)].into_iter().collect(),
    };
    assert_eq!(bench.send(UnitId::builder(0), late), Handled::Refused);
    bench.clear(1, 2);
    assert_eq!(bench.assigned(), Some((5, 1)));
    bench.clear(1, 4);
    bench.clear(1, 3);
    assert_eq!(bench.assigned(), Some((6, 1)));
    [5, 6].iter().for_each(|trigger| bench.clear(1, *trigger));
    assert!(bench.evm.is_idle() && bench.evm.credits_conserved());
    let counts = bench.evm.counts();
    assert_eq!((counts.reassigned, counts.handed_on), (2, 1));
    assert_eq!(bench.evm.losses().total(), 0, "nothing is lost");
    bench.accept(1);
    assert_eq!(bench.assigned(), None, "what was handed on is finished");
}

/// Who takes the place of an event manager with two builder units is told these.
const SUCCESSOR: PeerEpochs<'static> = PeerEpochs {
    supervisor: 5,
    manager: 5,
    builders: &[5, 5],
    readouts: &[],
};

/// Triggers that are open when it does.
fn accepted<const N: usize>(triggers: [u64; N]) -> [AcceptedTrigger; N] {
    triggers.map(|trigger| AcceptedTrigger {
        trigger: TriggerNumber(trigger),
        mask: L2Mask(u128::from(trigger)),
        triggered_at: RunNs(trigger),
    })
}

/// Nobody behind the lost unit may know of it yet: the one that built it says so, and is believed.
#[test]
fn what_another_unit_has_closed_is_not_built_again_for_a_lost_one() {
    let open = accepted([1, 2, 3]);
    let mut bench = Bench::new();
    let config = BuilderConfig {
        credits: 3,
        evm_queue: 4,
        ..BuilderConfig::default()
    };
    bench.evm = EventManager::recovering(&config, 5, SUCCESSOR, &open, &[]);
    bench.evm.report_closed();
    let lost = bench.evm.withdraw_builder(0);
    assert_eq!(lost, [1, 2, 3].map(TriggerNumber), "all may be its");
    // The first is for an event manager before it, which has asked about others.
    for (manager_epoch, closed) in [(4, 0b001), (5, 0b010)] {
        let answer = BuilderMessage::Recovered {
            manager_epoch,
            batch: 0,
            held: 0b100,
            closed,
        };
        assert_eq!(bench.send(UnitId::builder(1), answer), Handled::Taken);
    }
    // At once: this event manager may be gone, too, before it knows all.
    assert_eq!(bench.evm.poll_closed(), Some(TriggerNumber(2)));
    let again = bench.evm.reassign(0, &[]);
    assert_eq!(again, [TriggerNumber(1)]);
    assert!(!bench.evm.is_in_recovery());
    assert_eq!(bench.evm.open_triggers(), [1, 3].map(TriggerNumber));
    assert_eq!(bench.evm.poll_closed(), None, "told before");
    assert_eq!(bench.assigned(), Some((1, 1)));
    assert_eq!(bench.assigned(), None, "3 is in flight, 2 is closed");
    assert!(bench.evm.credits_conserved());
}

/// Given a builder unit that says to hold more events than it has credits, then the event manager does
/// not believe it of the rest, which are built like those that nobody holds.
#[test]
fn nobody_holds_more_than_its_credits() {
    let open = accepted([1, 2, 3, 4]);
    let mut bench = Bench::new();
    let config = BuilderConfig {
        credits: 3,
        evm_queue: 4,
        ..BuilderConfig::default()
    };
    bench.evm = EventManager::recovering(&config, 5, SUCCESSOR, &open, &[]);
    for (builder, held) in [(0, 0b1111), (1, 0)] {
        let answer = BuilderMessage::Recovered {
            manager_epoch: 5,
            batch: 0,
            held,
            closed: 0,
        };
        let answered = bench.send(UnitId::builder(builder), answer);
        assert_eq!(answered, Handled::Taken);
    }
    assert!(!bench.evm.is_in_recovery() && bench.evm.credits_conserved());
    assert_eq!(bench.assigned(), Some((4, 1)));
    assert_eq!(bench.assigned(), None);
    assert_eq!(bench.evm.losses().total(), 0);
}

/// What nobody has is queued when a recovery ends, but not in a run that is ended by force meanwhile.
#[test]
fn a_recovery_that_ends_in_an_aborted_run_queues_nothing() {
    let open = accepted([1, 2]);
    let mut bench = Bench::new();
    bench.evm = EventManager::recovering(&BuilderConfig::default(), 5, SUCCESSOR, &open, &[]);
    bench.evm.abort();
    for builder in 0..2 {
        let answer = BuilderMessage::Recovered {
            manager_epoch: 5,
            batch: 0,
            held: 0,
            closed: 0,
        };
        assert!(bench.evm.is_in_recovery());
        let answered = bench.send(UnitId::builder(builder), answer);
        assert_eq!(answered, Handled::Taken);
    }
    assert_eq!(bench.assigned(), None);
    assert_eq!(bench.evm.losses().of(LossCause::EventAborted), 2);
    assert!(bench.evm.is_idle());
}

#[test]
fn what_a_lost_builder_unit_had_at_its_writer_is_counted_over_its_lives() {
    let mut bench = Bench::granted();
    (1..=4).for_each(|trigger| bench.accept(trigger));
    while bench.assigned().is_some() {}
    let accepted = |triggers: &[u64]| BuilderMessage::ClearAccepted {
        triggers: triggers.iter().copied().map(TriggerNumber).collect(),
    };
    bench.clear(0, 1);
    // 2 is another's, and 3 is cleared twice: a repetition.
    for triggers in [&[3, 2][..], &[3]] {
        let sent = bench.send(UnitId::builder(0), accepted(triggers));
        assert_eq!(sent, Handled::Taken);
    }
    bench.clear(1, 2);
    assert_eq!(bench.evm.counts().cleared, 3);
    let counted = |bench: &Bench| bench.evm.accepted_of_builders().collect::<Vec<_>>();
    assert_eq!(counted(&bench), [(0, 1), (1, 0)]);
    bench.evm.withdraw_builder(0);
    bench.evm.handle_builder_back(0, 6);
    assert_eq!(counted(&bench), [(0, 1), (1, 0)], "of all its lives");
}

/// It stands still: what it cannot read must not keep the others waiting.
#[test]
fn a_builder_unit_that_says_nothing_is_told_little() {
    let mut bench = Bench::granted();
    for trigger in 1..=6 {
        bench.accept(trigger);
        assert!(bench.assigned().is_some());
    }
    let mut told = [0; 2];
    for scan in 0..20 {
        let at = bench.evm.poll_timeout();
        bench.evm.handle_timeout(at);
        while let Some((_, builder)) = bench.assigned() {
            told[usize::from(builder)] += 1;
        }
        // The other one has something slow, and lives.
        let handled = bench.send(UnitId::builder(1), BuilderMessage::Alive);
        assert_eq!(handled, Handled::Taken);
        assert!(scan > 0 || told == [0, 0], "not before a whole interval");
    }
    // 32 in eleven looks, then ever more rarely.
    assert_eq!(told, [32 + 1, 3 * 19]);
}
