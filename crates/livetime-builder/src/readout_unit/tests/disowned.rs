//! Triggers that builder units do not know any more.

use super::*;

impl Bench {
    fn forgotten(&mut self, builder: u16, trigger: u64) {
        let trigger = TriggerNumber(trigger);
        let message = BuilderMessage::Forgotten { trigger };
        self.send(UnitId::builder(builder), message);
    }

    /// The event manager has a trigger sent to a builder unit.
    fn push(&mut self, builder: u16, trigger: u64) {
        let message = BuilderMessage::Push {
            builder,
            builder_epoch: 9,
            triggers: [TriggerNumber(trigger)].into_iter().collect(),
        };
        self.send(UnitId::EVENT_MANAGER, message);
    }

    /// Lets scans pass until a fragment is sent; says to whom.
    fn next_probe(&mut self) -> UnitId {
        loop {
            let at = self.unit.poll_timeout();
            self.unit.handle_timeout(at);
            match self.unit.poll_output() {
                Some(ReadoutOutput::SendFragment { to, .. }) => return to,
                Some(free) => panic!("{free:?}"),
                None => assert!(at.0 < 100 * DurationNs::SECOND.0, "for ever"),
            }
        }
    }
}

/// The event is in a slow filter unit: its builder unit has it, and the other one none of it.
#[test]
fn what_one_builder_unit_has_is_not_freed_since_others_do_not_know_it() {
    let mut bench = Bench::new();
    bench.fragments(1);
    bench.decide(1, Keep::Build);
    for _ in 0..4 {
        // The first one has it, and says nothing.
        if bench.next_probe() == UnitId::builder(1) {
            bench.forgotten(1, 1);
        }
        bench.forgotten(1, 1);
        assert_eq!(bench.unit.poll_output(), None);
    }
    bench.request(0, 1);
    assert_eq!(bench.sent(1), SOURCES);
    bench.release(0, 1);
    assert_eq!(bench.freed(), Some((1, FreeReason::Released)));
    assert_eq!(bench.unit.counts().triggers_disowned, 0);
    assert_eq!(bench.unit.losses().total(), 0);
}

/// All that was said about it was lost.
#[test]
fn what_no_builder_unit_knows_is_in_no_event() {
    let mut bench = Bench::new();
    bench.fragments(1);
    bench.decide(1, Keep::Build);
    for _ in 0..2 {
        let UnitId { index, .. } = bench.next_probe();
        bench.forgotten(index, 1);
    }
    assert_eq!(bench.freed(), Some((1, FreeReason::Released)));
    assert_eq!(bench.lost(LossCause::FragmentLate), 3);
    assert_eq!(bench.unit.counts().triggers_disowned, 1);
    bench.forgotten(0, 1);
    assert_eq!(bench.unit.poll_output(), None);
    assert_eq!(bench.unit.losses().total(), 3);
}

#[test]
fn what_a_builder_unit_has_asked_for_it_had() {
    let mut bench = Bench::new();
    bench.fragments(1);
    bench.request(0, 1);
    assert_eq!(bench.sent(1), SOURCES);
    bench.forgotten(1, 1);
    assert_eq!(bench.unit.poll_output(), None, "another one");
    bench.forgotten(0, 1);
    assert_eq!(bench.freed(), Some((1, FreeReason::Released)));
    assert_eq!(bench.unit.losses().total(), 0);
}

/// An event manager has pushed it, and died before the assignment was heard.
#[test]
fn what_was_meant_for_a_builder_unit_it_may_never_have_had() {
    let mut bench = Bench::new();
    bench.fragments(1);
    bench.push(0, 1);
    assert_eq!(bench.sent(1), SOURCES);
    bench.unit.handle_manager_back(10);
    bench.forgotten(0, 1);
    assert_eq!(bench.unit.poll_output(), None);
    bench.request(1, 1);
    assert_eq!(bench.unit.counts().triggers_requested, 2);
    assert!(bench.unit.poll_output().is_some());
}

/// Another unit has built it since, and is gone: nobody else can say that its release was lost.
#[test]
fn what_a_dead_event_manager_had_pushed_ends_when_it_is_finished() {
    let mut bench = Bench::new();
    for trigger in [1, 2, 3] {
        bench.fragments(trigger);
        bench.push(0, trigger);
        assert_eq!(bench.sent(trigger), SOURCES);
    }
    let finished = [1, 3].map(TriggerNumber);
    assert_eq!(bench.unit.unasked(), [], "it is certain who builds them");
    assert_eq!(bench.unit.end_unasked(&finished), 0);
    bench.unit.handle_manager_back(10);
    // One is asked for meanwhile.
    bench.request(1, 3);
    while bench.unit.poll_output().is_some() {}
    assert_eq!(bench.unit.unasked(), [1, 2].map(TriggerNumber));
    assert_eq!(bench.unit.end_unasked(&finished), SOURCES.len() as u64);
    assert_eq!(bench.freed(), Some((1, FreeReason::Released)));
    assert_eq!(bench.freed(), None);
    assert_eq!(bench.unit.losses().total(), 0);
}

/// A trigger that an event manager had pushed to builder unit 0, which was sent it, and then died.
fn pushed_by_a_dead_event_manager() -> Bench {
    let mut bench = Bench::new();
    bench.config.mode = BuildMode::Push;
    bench.unit = ReadoutUnit::new(&bench.config, 1, 9);
    bench.fragments(1);
    bench.push(0, 1);
    assert_eq!(bench.sent(1), SOURCES);
    bench.unit.handle_manager_back(10);
    bench
}

/// Another unit has built it since: that its release was lost, it alone can say.
#[test]
fn what_a_dead_event_manager_had_pushed_is_sent_to_others_as_well() {
    let mut bench = pushed_by_a_dead_event_manager();
    let probed = [(); 12].map(|()| bench.next_probe().index);
    assert!(probed.contains(&0) && probed.contains(&1), "{probed:?}");
    bench.release(1, 1);
    assert_eq!(bench.freed(), Some((1, FreeReason::Released)));
    assert_eq!(bench.unit.losses().total(), 0);
}

/// Another unit may have been given the event since, and may need no more than it was sent: it reads
/// that when the run is ended by force.
#[test]
fn what_was_sent_to_another_builder_unit_outlives_loss_and_abort() {
    let mut bench = pushed_by_a_dead_event_manager();
    while bench.next_probe() != UnitId::builder(1) {}
    assert_eq!(bench.unit.take_back(0, &[TriggerNumber(1)]), 0);
    bench.unit.abort();
    assert_eq!(bench.freed(), None, "it may be in an event");
    // That the release was lost is to be known soon.
    let before = bench.unit.poll_timeout();
    let asked = [(); 2].map(|()| bench.next_probe().index);
    assert!(asked.contains(&1), "{asked:?}");
    let took = bench.unit.poll_timeout().since(before);
    assert!(took.0 <= 3 * bench.config.probe.0, "{took}");
    bench.release(1, 1);
    assert_eq!(bench.freed(), Some((1, FreeReason::Released)));
    assert_eq!(bench.unit.losses().total(), 0);
}
