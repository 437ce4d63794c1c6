use super::*;
use livetime_wire::L2Mask;

mod disowned;
mod unasked;

/// Given fragments of a trigger behind the newest that was named, then only those are held once all others
/// are settled.
#[test]
fn what_is_held_for_triggers_that_nobody_named_is_told_apart() {
    let mut bench = Bench::new();
    assert!(bench.unit.holds_only_ahead());
    assert_eq!(bench.fragment(4, 10), FragmentVerdict::Hold);
    assert!(bench.unit.holds_only_ahead() && !bench.unit.is_idle());
    bench.fragments(1);
    bench.decide(1, Keep::Build);
    assert_eq!(bench.unit.newest(), TriggerNumber(1));
    assert!(!bench.unit.holds_only_ahead(), "it is to be built");
    bench.request(0, 1);
    bench.release(0, 1);
    while bench.unit.poll_output().is_some() {}
    assert!(bench.unit.holds_only_ahead());
    bench.decide(4, Keep::Build);
    assert!(!bench.unit.holds_only_ahead());
}

const SOURCES: [u32; 3] = [10, 20, 30];

struct Bench {
    unit: ReadoutUnit,
    config: BuilderConfig,
    sequences: [u32; 4],
}

impl Bench {
    fn new() -> Self {
        let config = BuilderConfig {
            readout_units: vec![vec![SourceId(1)], SOURCES.map(SourceId).to_vec()],
            trigger_window: 8,
            history: 64,
            ..BuilderConfig::default()
        };
        Self {
            unit: ReadoutUnit::new(&config, 1, 9),
            config,
            sequences: [0; 4],
        }
    }

    fn fragment(&mut self, trigger: u64, source: u32) -> FragmentVerdict {
        self.unit
            .handle_fragment(RunNs(0), TriggerNumber(trigger), SourceId(source))
    }

    /// All three fragments of a trigger.
    fn fragments(&mut self, trigger: u64) {
        for source in SOURCES {
            assert_eq!(self.fragment(trigger, source), FragmentVerdict::Hold);
        }
    }

    fn send_from(&mut self, sender: UnitId, sequence: u32, message: BuilderMessage) -> Handled {
        let envelope = Envelope {
            sender,
            epoch: 9,
            sequence,
            message,
        };
        self.unit.handle_message(RunNs(0), &envelope)
    }

    fn send(&mut self, sender: UnitId, message: BuilderMessage) {
        let lane = match sender.kind {
            UnitKind::Supervisor => 3,
            _ => usize::from(sender.index),
        };
        let sequence = self.sequences[lane];
        self.sequences[lane] += 1;
        assert_eq!(self.send_from(sender, sequence, message), Handled::Taken);
    }

    fn decide(&mut self, trigger: u64, keep: Keep) {
        let trigger = TriggerNumber(trigger);
        self.send(
            UnitId::SUPERVISOR,
            BuilderMessage::Decision { trigger, keep },
        );
    }

    fn request(&mut self, builder: u16, trigger: u64) {
        let triggers = [TriggerNumber(trigger)].into_iter().collect();
        self.send(
            UnitId::builder(builder),
            BuilderMessage::FragmentRequest { triggers },
        );
    }

    fn release(&mut self, builder: u16, trigger: u64) {
        let triggers = [TriggerNumber(trigger)].into_iter().collect();
        self.send(
            UnitId::builder(builder),
            BuilderMessage::Release { triggers },
        );
    }

    /// Sources sent to builder unit 0 for `trigger`.
    fn sent(&mut self, trigger: u64) -> Vec<u32> {
        let mut sources = Vec::new();
        while let Some(output) = self.unit.poll_output() {
            match output {
                ReadoutOutput::SendFragment {
                    to,
                    trigger: sent,
                    source,
                    ..
                } => {
                    assert_eq!((to, sent), (UnitId::builder(0), TriggerNumber(trigger)));
                    sources.push(source.0);
                }
                free => panic!("{free:?}"),
            }
        }
        sources
    }

    fn freed(&mut self) -> Option<(u64, FreeReason)> {
        match self.unit.poll_output()? {
            ReadoutOutput::Free { trigger, reason } => Some((trigger.0, reason)),
            send => panic!("{send:?}"),
        }
    }

    fn lost(&self, cause: LossCause) -> u64 {
        self.unit.losses().of(cause)
    }
}

#[test]
fn fragments_are_sent_once_when_asked_for_and_freed_at_the_release() {
    let mut bench = Bench::new();
    bench.fragments(1);
    bench.decide(1, Keep::Build);
    assert_eq!(bench.sent(1), []);
    bench.request(0, 1);
    assert_eq!(bench.sent(1), SOURCES);
    assert_eq!(bench.sent(1), []);
    bench.release(0, 1);
    assert_eq!(bench.freed(), Some((1, FreeReason::Released)));
    assert_eq!(bench.freed(), None);
    assert!(bench.unit.is_idle());
    let counts = bench.unit.counts();
    assert_eq!((counts.fragments_filed, counts.fragments_sent), (3, 3));
    assert_eq!((counts.triggers_kept, counts.triggers_released), (1, 1));
    assert_eq!(counts.messages.sent, 3);
    assert_eq!(bench.unit.losses().total(), 0);
}

#[test]
fn a_fragment_that_comes_after_the_request_is_sent_when_it_comes() {
    let mut bench = Bench::new();
    bench.request(0, 1);
    assert_eq!(bench.sent(1), []);
    assert_eq!(bench.fragment(1, 20), FragmentVerdict::Hold);
    assert_eq!(bench.sent(1), [20]);
    assert_eq!(bench.fragment(1, 10), FragmentVerdict::Hold);
    assert_eq!(bench.fragment(1, 30), FragmentVerdict::Hold);
    assert_eq!(bench.sent(1), [10, 30]);
}

#[test]
fn dropped_triggers_are_freed_and_their_later_fragments_discarded() {
    let mut bench = Bench::new();
    assert_eq!(bench.fragment(1, 10), FragmentVerdict::Hold);
    assert_eq!(bench.fragment(1, 20), FragmentVerdict::Hold);
    bench.decide(1, Keep::Drop);
    let discard = FragmentVerdict::Discard { loss: None };
    assert_eq!(bench.fragment(1, 30), discard, "before it is freed");
    assert_eq!(bench.freed(), Some((1, FreeReason::Dropped)));
    assert!(bench.unit.is_idle());
    bench.decide(2, Keep::Drop);
    for source in SOURCES {
        assert_eq!(bench.fragment(2, source), discard, "decided before it came");
    }
    bench.request(0, 1);
    bench.request(0, 2);
    bench.decide(2, Keep::Build);
    assert_eq!(bench.unit.poll_output(), None);
    let counts = bench.unit.counts();
    assert_eq!(counts.fragments_dropped_by_decision, 6);
    assert_eq!(counts.triggers_dropped, 2);
    assert_eq!(counts.requests_closed, 2);
    assert_eq!(counts.decisions_repeated, 1);
    assert_eq!(bench.unit.losses().total(), 0);
}

#[test]
fn duplicates_strangers_late_and_impossible_fragments_are_named() {
    let mut bench = Bench::new();
    let lost = |cause| FragmentVerdict::Discard { loss: Some(cause) };
    bench.fragments(1);
    assert_eq!(bench.fragment(1, 20), FragmentVerdict::KeepBetter);
    assert_eq!(bench.fragment(1, 11), lost(LossCause::FragmentStranger));
    assert_eq!(bench.fragment(1, 1), lost(LossCause::FragmentStranger));
    assert_eq!(bench.fragment(0, 10), lost(LossCause::FragmentMalformed));
    assert_eq!(bench.fragment(9, 10), lost(LossCause::FragmentMalformed));
    assert_eq!(bench.fragment(8, 10), FragmentVerdict::Hold, "just ahead");
    bench.request(0, 1);
    assert_eq!(
        bench.fragment(1, 20),
        lost(LossCause::FragmentDuplicate),
        "a builder unit may read the first"
    );
    bench.release(0, 1);
    assert_eq!(bench.fragment(1, 10), lost(LossCause::FragmentLate));
    while bench.unit.poll_output().is_some() {}
    assert_eq!(bench.fragment(1, 10), lost(LossCause::FragmentLate));
    assert_eq!(bench.lost(LossCause::FragmentLate), 2);
    assert_eq!(bench.lost(LossCause::FragmentDuplicate), 2);
    assert_eq!(bench.unit.losses().total(), 8);
    bench.request(0, 1);
    assert_eq!(bench.unit.poll_output(), None);
    assert_eq!(bench.unit.counts().requests_closed, 1);
}

#[test]
fn a_partial_release_counts_what_is_here_and_in_no_event() {
    let mut bench = Bench::new();
    assert_eq!(bench.fragment(1, 10), FragmentVerdict::Hold);
    assert_eq!(bench.fragment(1, 20), FragmentVerdict::Hold);
    bench.request(0, 1);
    assert_eq!(bench.sent(1), [10, 20]);
    // The message with source 20 was lost, and source 30 never came.
    bench.send(
        UnitId::builder(0),
        BuilderMessage::ReleasePartial {
            trigger: TriggerNumber(1),
            missing: 0b110,
        },
    );
    assert_eq!(bench.freed(), Some((1, FreeReason::Released)));
    assert_eq!(bench.lost(LossCause::FragmentLate), 1);
    let late = FragmentVerdict::Discard {
        loss: Some(LossCause::FragmentLate),
    };
    assert_eq!(bench.fragment(1, 30), late);
}

#[test]
fn a_new_request_of_the_same_builder_sends_again_a_repeated_message_does_not() {
    let mut bench = Bench::new();
    bench.fragments(1);
    bench.request(0, 1);
    assert_eq!(bench.sent(1), SOURCES);
    let triggers = [TriggerNumber(1)].into_iter().collect();
    let request = BuilderMessage::FragmentRequest { triggers };
    let again = bench.send_from(UnitId::builder(0), 0, request);
    assert_eq!(again, Handled::Taken);
    assert_eq!(bench.sent(1), []);
    bench.request(0, 1);
    assert_eq!(bench.sent(1), SOURCES);
    let counts = bench.unit.counts();
    assert_eq!((counts.fragments_sent, counts.fragments_sent_again), (6, 3));
    assert_eq!(counts.requests_repeated, 2);
    assert_eq!(counts.messages.repeated, 1);
}

#[test]
fn conflicting_messages_are_refused() {
    let mut bench = Bench::new();
    bench.fragments(1);
    bench.decide(1, Keep::Build);
    bench.decide(1, Keep::Drop);
    bench.request(0, 1);
    bench.request(1, 1);
    bench.release(1, 1);
    assert_eq!(bench.sent(1), SOURCES);
    assert!(!bench.unit.is_idle());
    bench.release(0, 1);
    bench.release(0, 1);
    assert_eq!(bench.freed(), Some((1, FreeReason::Released)));
    assert_eq!(bench.freed(), None);
    let counts = bench.unit.counts();
    assert_eq!(counts.decisions_conflicting, 1);
    assert_eq!(counts.requests_conflicting, 2);
    assert_eq!(counts.releases_repeated, 1);
}

#[test]
fn messages_of_others_are_refused_and_counted() {
    let mut bench = Bench::new();
    let accept = BuilderMessage::L2Accept {
        trigger: TriggerNumber(1),
        mask: L2Mask(1),
        triggered_at: RunNs(0),
    };
    let release = BuilderMessage::Release {
        triggers: [TriggerNumber(1)].into_iter().collect(),
    };
    for (sender, message) in [
        (UnitId::SUPERVISOR, accept.clone()),
        (UnitId::SUPERVISOR, release.clone()),
        (UnitId::builder(0), accept),
        (UnitId::builder(2), release.clone()),
        (UnitId::filter(0), release),
    ] {
        assert_eq!(bench.send_from(sender, 0, message), Handled::Refused);
    }
    let messages = bench.unit.counts().messages;
    assert_eq!((messages.unexpected, messages.strangers), (3, 2));
    assert!(bench.unit.is_idle());
}

#[test]
fn a_full_table_makes_fragments_wait_and_requests_come_again() {
    let mut bench = Bench::new();
    for trigger in 1..=8 {
        assert_eq!(bench.fragment(trigger, 10), FragmentVerdict::Hold);
    }
    bench.request(0, 9);
    assert_eq!(bench.unit.counts().requests_without_room, 1);
    assert_eq!(bench.fragment(9, 10), FragmentVerdict::Wait);
    assert_eq!(
        bench.fragment(8, 20),
        FragmentVerdict::Hold,
        "has its entry"
    );
    bench.decide(9, Keep::Build);
    bench.decide(1, Keep::Drop);
    assert_eq!(bench.freed(), Some((1, FreeReason::Dropped)));
    assert_eq!(bench.fragment(9, 10), FragmentVerdict::Hold);
    assert_eq!(bench.unit.losses().total(), 0);
    assert_eq!(bench.unit.triggers_held(), 8);
}

#[test]
fn a_request_is_not_forgotten_before_the_timeout_however_often_is_probed() {
    let mut bench = Bench::new();
    bench.config.timeout = DurationNs(20_000_000_000);
    bench.config.probe = DurationNs(50_000_000);
    bench.unit = ReadoutUnit::new(&bench.config, 1, 9);
    bench.request(0, 2);
    while bench.unit.triggers_held() == 1 {
        let at = bench.unit.poll_timeout();
        bench.unit.handle_timeout(at);
        assert!(at.0 < 60_000_000_000, "for ever");
        let is_over = at.0 >= 2 * bench.config.timeout.0;
        bench.sent(1);
        assert!(is_over || bench.unit.triggers_held() == 1, "{at:?}");
    }
}

#[test]
fn a_missing_release_is_asked_for_and_a_forgotten_request_ends() {
    let mut bench = Bench::new();
    bench.fragments(1);
    bench.request(0, 1);
    bench.request(0, 2);
    assert_eq!(bench.sent(1), SOURCES);
    let mut probes = 0;
    let mut scans = 0;
    while bench.unit.triggers_held() == 2 {
        let at = bench.unit.poll_timeout();
        bench.unit.handle_timeout(RunNs(at.0 - 1));
        assert_eq!(bench.sent(1), [], "not before its time");
        bench.unit.handle_timeout(at);
        probes += bench.sent(1).len();
        scans += 1;
    }
    let second = DurationNs::SECOND;
    assert_eq!((bench.config.timeout, bench.config.probe), (second, second));
    assert_eq!(scans, 5, "twice the timeout and a margin");
    assert_eq!(probes, 4, "from the second scan on");
    let counts = bench.unit.counts();
    assert_eq!(counts.requests_forgotten, 1);
    assert_eq!(counts.fragments_sent_again, 4);
    assert_eq!(
        bench.fragment(2, 10),
        FragmentVerdict::Discard {
            loss: Some(LossCause::FragmentLate)
        }
    );
    bench.release(0, 1);
    assert_eq!(bench.freed(), Some((1, FreeReason::Released)));
    assert_eq!(bench.unit.poll_timeout(), RunNs::MAX);
}

#[test]
fn an_aborted_run_frees_what_nobody_asked_for_then_the_rest() {
    let mut bench = Bench::new();
    bench.fragments(1);
    bench.fragments(2);
    bench.request(0, 2);
    assert_eq!(bench.sent(2), SOURCES);
    bench.unit.abort();
    assert_eq!(bench.freed(), Some((1, FreeReason::Aborted)));
    assert_eq!(bench.freed(), None);
    let aborted = FragmentVerdict::Discard {
        loss: Some(LossCause::FragmentAborted),
    };
    assert_eq!(bench.fragment(3, 10), aborted);
    assert_eq!(bench.lost(LossCause::FragmentAborted), 4);
    bench.unit.close();
    assert_eq!(bench.freed(), Some((2, FreeReason::Aborted)));
    assert_eq!(bench.lost(LossCause::FragmentAborted), 7);
    assert!(bench.unit.is_idle());
}

/// All requests were lost, and a fragment went out to ask who builds the event: it may have been
/// the last one that the event waited for.
#[test]
fn a_fragment_that_was_sent_unasked_outlives_the_abort() {
    let mut bench = Bench::new();
    bench.fragments(1);
    bench.decide(1, Keep::Build);
    let mut sent = 0;
    while sent == 0 {
        let at = bench.unit.poll_timeout();
        bench.unit.handle_timeout(at);
        while let Some(output) = bench.unit.poll_output() {
            assert!(matches!(output, ReadoutOutput::SendFragment { .. }));
            sent += 1;
        }
    }
    bench.unit.abort();
    assert_eq!(bench.freed(), None);
    bench.release(0, 1);
    assert_eq!(bench.freed(), Some((1, FreeReason::Released)));
    assert_eq!(bench.unit.losses().total(), 0, "it is in the event");
}

#[test]
fn the_work_queue_keeps_its_bound_while_nothing_is_polled() {
    let mut bench = Bench::new();
    for trigger in 1..=500 {
        bench.decide(trigger, Keep::Drop);
        assert_eq!(
            bench.fragment(trigger + 1, 10),
            FragmentVerdict::Hold,
            "{trigger}"
        );
        if trigger % 4 == 0 {
            while bench.unit.poll_output().is_some() {}
        }
    }
    assert!(bench.unit.triggers_held() <= 5);
}

#[test]
fn fragments_of_a_lost_builder_unit_are_freed_and_counted() {
    let mut bench = Bench::new();
    for trigger in 1..=3 {
        bench.fragments(trigger);
        bench.decide(trigger, Keep::Build);
    }
    bench.request(1, 1);
    bench.request(0, 2);
    // It had asked for 1, was given 3 and had not asked, and was given 4, of which nothing came.
    let lost = [TriggerNumber(3), TriggerNumber(4)];
    bench.unit.handle_builder_lost(RunNs(0), 1, &lost);
    assert_eq!(bench.lost(LossCause::FragmentAborted), 6);
    let mut freed = Vec::new();
    let mut sent = 0;
    while let Some(output) = bench.unit.poll_output() {
        match output {
            ReadoutOutput::Free { trigger, reason } => freed.push((trigger.0, reason)),
            ReadoutOutput::SendFragment { to, trigger, .. } => {
                assert_eq!((to, trigger.0), (UnitId::builder(0), 2), "it lives");
                sent += 1;
            }
        }
    }
    freed.sort_by_key(|(trigger, _)| *trigger);
    assert_eq!(
        freed,
        [(1, FreeReason::Aborted), (3, FreeReason::Aborted)],
        "of 4 there is nothing to free"
    );
    assert_eq!(sent, 3);
    let late = bench.fragment(4, SOURCES[0]);
    let loss = Some(LossCause::FragmentLate);
    assert_eq!(late, FragmentVerdict::Discard { loss });
    assert_eq!(bench.unit.triggers_held(), 1);

    bench.unit.handle_builder_back(1, 10);
    bench.fragments(5);
    let triggers = [TriggerNumber(5)].into_iter().collect();
    let request = BuilderMessage::FragmentRequest { triggers };
    let old = bench.send_from(UnitId::builder(1), 1, request.clone());
    assert_eq!(old, Handled::Refused, "a message of its past");
    let envelope = Envelope {
        sender: UnitId::builder(1),
        epoch: 10,
        sequence: 0,
        message: request,
    };
    let fresh = bench.unit.handle_message(RunNs(0), &envelope);
    assert_eq!(fresh, Handled::Taken);
    assert_eq!(bench.unit.counts().triggers_requested, 3);
}

#[test]
fn fragments_of_a_lost_builder_unit_wait_for_the_next_one() {
    let mut bench = Bench::new();
    for trigger in 1..=3 {
        bench.fragments(trigger);
        bench.decide(trigger, Keep::Build);
        bench.request(1, trigger);
    }
    // What was sent to the lost unit is of no interest any more.
    while bench.unit.poll_output().is_some() {}
    let freed = bench.unit.take_back(1, &[3, 2].map(TriggerNumber));
    bench.unit.handle_builder_back(1, 10);
    assert_eq!(freed, 3, "the event that the unit had handed on");
    assert_eq!(bench.freed(), Some((1, FreeReason::Released)));
    assert_eq!(bench.unit.poll_output(), None);
    let triggers = [TriggerNumber(2)].into_iter().collect();
    let late = BuilderMessage::Release { triggers };
    let handled = bench.send_from(UnitId::builder(1), bench.sequences[1], late);
    assert_eq!(handled, Handled::Refused, "a message of its past");
    bench.request(0, 2);
    assert_eq!(bench.sent(2), SOURCES);
    bench.request(0, 3);
    assert_eq!(bench.sent(3), SOURCES);
    bench.release(0, 2);
    bench.release(0, 3);
    assert_eq!(bench.freed(), Some((2, FreeReason::Released)));
    assert_eq!(bench.freed(), Some((3, FreeReason::Released)));
    assert!(bench.unit.is_idle());
    assert_eq!(bench.unit.losses().total(), 0);
    assert_eq!(bench.unit.counts().triggers_taken_back, 2);
}

#[test]
fn what_a_lost_builder_unit_had_released_is_known_here() {
    let mut bench = Bench::new();
    for trigger in 1..=4 {
        bench.fragments(trigger);
        bench.decide(trigger, Keep::Build);
        bench.request(1, trigger);
    }
    while bench.unit.poll_output().is_some() {}
    bench.release(1, 1);
    bench.release(1, 3);
    let closed = bench.unit.poll_output();
    assert!(
        matches!(closed, Some(ReadoutOutput::Free { trigger, .. }) if trigger.0 == 1),
        "one is history, the other is on its way there: {closed:?}"
    );
    let asked = [4, 3, 2, 1, 5].map(TriggerNumber);
    let released = bench.unit.released_by(1, &asked);
    assert_eq!(released, [3, 1].map(TriggerNumber), "of 5 nothing came yet");
    let triggers = [TriggerNumber(2)].into_iter().collect();
    let late = BuilderMessage::Release { triggers };
    let handled = bench.send_from(UnitId::builder(1), bench.sequences[1], late);
    assert_eq!(handled, Handled::Refused, "what was said is final");
    assert_eq!(bench.unit.take_back(1, &[2, 4, 5].map(TriggerNumber)), 0);
    assert_eq!(bench.freed(), Some((3, FreeReason::Released)));
    bench.request(0, 2);
    assert_eq!(bench.sent(2), SOURCES);
}

#[test]
fn what_is_forgotten_without_a_release_is_none_of_a_lost_builder_unit() {
    let mut bench = Bench::new();
    bench.decide(7, Keep::Build);
    bench.request(1, 7);
    bench.request(1, 8);
    for _ in 0..10 {
        let at = bench.unit.poll_timeout();
        bench.unit.handle_timeout(at);
    }
    assert_eq!(bench.unit.counts().requests_forgotten, 2);
    // Of one a release comes after all.
    bench.release(1, 8);
    let asked = [7, 8].map(TriggerNumber);
    assert_eq!(bench.unit.released_by(1, &asked), [TriggerNumber(8)]);
    while bench.unit.poll_output().is_some() {}
    assert!(bench.unit.is_idle());
    assert_eq!(bench.unit.released_by(1, &asked), [TriggerNumber(8)]);
}

#[test]
fn what_nobody_asked_for_is_in_no_event_whatever_its_release_says() {
    let mut bench = Bench::new();
    for trigger in [1, 2] {
        bench.fragments(trigger);
        bench.decide(trigger, Keep::Build);
    }
    bench.request(0, 2);
    while bench.unit.poll_output().is_some() {}
    bench.release(0, 1);
    bench.release(0, 2);
    assert_eq!(bench.lost(LossCause::FragmentLate), SOURCES.len() as u64);
    assert_eq!(bench.unit.losses().total(), SOURCES.len() as u64);
    assert_eq!(bench.freed(), Some((1, FreeReason::Released)));
    assert_eq!(bench.freed(), Some((2, FreeReason::Released)));
}

/// Which trigger is the last without it, a unit that takes the place of another is told when it is
/// there already: nothing of what is said before is believed to be its own.
#[test]
fn a_unit_that_rejoins_takes_what_comes_after_it_has_joined() {
    let mut bench = Bench::new();
    let peers = PeerEpochs {
        supervisor: 9,
        manager: 9,
        builders: &[9, 9],
        readouts: &[],
    };
    let unknown = TriggerNumber(u64::MAX);
    bench.unit = ReadoutUnit::rejoining(&bench.config, 1, 10, peers, unknown);
    bench.decide(3, Keep::Build);
    bench.request(0, 3);
    bench.release(0, 2);
    assert!(bench.unit.is_idle());
    bench.unit.handle_joined(TriggerNumber(4));
    assert_eq!(
        bench.fragment(4, 10),
        FragmentVerdict::Discard {
            loss: Some(LossCause::FragmentLate)
        }
    );
    bench.fragments(5);
    bench.decide(5, Keep::Build);
    bench.request(0, 5);
    assert_eq!(bench.sent(5), SOURCES);
    bench.release(0, 5);
    assert_eq!(bench.freed(), Some((5, FreeReason::Released)));
    assert_eq!(bench.unit.counts().messages.wrong_epoch, 0);
    assert_eq!(bench.unit.losses().total(), 1);
    assert_eq!(bench.unit.joined_after(), TriggerNumber(4));
}

#[test]
fn a_run_of_fragments_is_what_they_are_one_by_one() {
    let [mut one, mut other] = [Bench::new(), Bench::new()];
    let runs = [
        (1, 4, 10),
        (1, 6, 10),
        (3, 7, 10),
        (6, 9, 10),
        (1, 9, 30),
        (9, 12, 10),
        (0, 3, 10),
        (900, 903, 10),
        (5, 8, 99),
        (9, 11, 20),
        (11, 17, 10),
        (12, 30, 10),
    ];
    for (step, (first, end, source)) in runs.into_iter().enumerate() {
        let left = one
            .unit
            .handle_fragments(RunNs(0), first..end, SourceId(source));
        let waits = |trigger: &u64| other.fragment(*trigger, source) == FragmentVerdict::Wait;
        let waiting = (first..end).find(waits).unwrap_or(end);
        assert_eq!(left, waiting..end, "step {step}");
        for bench in [&mut one, &mut other] {
            for trigger in [2 * step as u64 + 1, 2 * step as u64 + 2] {
                bench.request(0, trigger);
                bench.release(0, trigger);
            }
            while bench.unit.poll_output().is_some() {}
        }
        assert_eq!(one.unit.counts(), other.unit.counts(), "step {step}");
        assert_eq!(one.unit.losses(), other.unit.losses(), "step {step}");
        assert_eq!(one.unit.triggers_held(), other.unit.triggers_held());
        assert_eq!(one.unit.poll_timeout(), other.unit.poll_timeout());
    }
    assert_eq!(one.unit.counts().fragments_filed, 16);
    assert!(one.lost(LossCause::FragmentDuplicate) > 0);
    assert!(one.lost(LossCause::FragmentStranger) > 0);
}

/// Whatever room the driver has, what a message wants done is the same, in the same order.
#[test]
fn at_once_is_what_would_be_polled() {
    for room in 0..9 {
        let [mut one, mut other] = [Bench::new(), Bench::new()];
        for bench in [&mut one, &mut other] {
            for trigger in [1, 2, 3, 4] {
                bench.fragments(trigger);
            }
        }
        let triggers = |numbers: &[u64]| numbers.iter().copied().map(TriggerNumber).collect();
        let messages = [
            BuilderMessage::FragmentRequest {
                triggers: triggers(&[1, 2, 7]),
            },
            BuilderMessage::FragmentRequest {
                triggers: triggers(&[2, 3]),
            },
            BuilderMessage::Release {
                triggers: triggers(&[1, 7, 3]),
            },
            BuilderMessage::Release {
                triggers: triggers(&[2, 1, 4]),
            },
        ];
        for (sequence, message) in (0..).zip(messages) {
            let envelope = Envelope {
                sender: UnitId::builder(0),
                epoch: 9,
                sequence,
                message,
            };
            let (mut done, mut expected) = (Vec::new(), Vec::new());
            let handled = one
                .unit
                .handle_message_at_once(RunNs(0), &envelope, |output| {
                    done.push(output);
                    done.len() < room
                });
            assert_eq!(handled, Handled::Taken);
            let at_once = done.len();
            done.extend(std::iter::from_fn(|| one.unit.poll_output()));
            assert_eq!(
                other.unit.handle_message(RunNs(0), &envelope),
                Handled::Taken
            );
            expected.extend(std::iter::from_fn(|| other.unit.poll_output()));
            assert_eq!(done, expected, "room for {room}, message {sequence}");
            // What is asked for again waits, and all behind it.
            let least = usize::from(sequence != 1);
            assert!(
                (least..=room.max(1)).contains(&at_once),
                "{at_once} at once"
            );
        }
        assert_eq!(one.unit.counts(), other.unit.counts());
        assert!(one.unit.is_idle());
    }
}
