mod lost_units;
mod old_triggers;
mod repetitions;
mod two_step;

use livetime_wire::event::EventHeader;
use livetime_wire::message::AcceptedEvent;
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{L2Mask, SourceId};

use super::*;

/// Two readout units with two sources each, one filter unit.
struct Bench {
    unit: BuilderUnit,
    now: RunNs,
    sequences: [u32; 6],
    ticket: EventTicket,
}

/// What a builder unit sent: a readout unit's index or the event manager, and what it said.
#[derive(Debug, PartialEq, Eq)]
enum Sent {
    Request(u16, Vec<u64>),
    Release(u16, Vec<u64>),
    Partial(u16, u64, u32),
    Forgotten(u16, u64),
    Clear(Vec<u64>),
    ClearAccepted(Vec<u64>),
}

fn descriptor(source: u32) -> FragmentDescriptor {
    FragmentDescriptor {
        source: SourceId(source),
        pool: 3,
        words: 8,
        status: FragmentStatus::GOOD,
        crc: source,
        pages: [source].into_iter().collect(),
    }
}

impl Bench {
    fn config() -> BuilderConfig {
        BuilderConfig {
            readout_units: vec![
                vec![SourceId(1), SourceId(2)],
                vec![SourceId(3), SourceId(4)],
            ],
            builder_units: 1,
            credits: 4,
            requests_per_message: 2,
            filter_in_flight: 2,
            history: 64,
            ..BuilderConfig::default()
        }
    }

    fn new() -> Self {
        let mut bench = Self::silent();
        let first = bench.unit.poll_output(RunNs(0)).unwrap();
        assert_eq!(first.to, UnitId::EVENT_MANAGER);
        assert_eq!(
            first.envelope.message,
            BuilderMessage::EventRequest { credits: 4 }
        );
        bench
    }

    /// One that was not polled yet.
    fn silent() -> Self {
        Self::of(&Self::config())
    }

    fn of(config: &BuilderConfig) -> Self {
        let unit = BuilderUnit::new(config, 0, 2);
        Self {
            ticket: unit.empty_ticket(),
            unit,
            now: RunNs(0),
            sequences: [0; 6],
        }
    }

    fn send(&mut self, sender: UnitId, message: BuilderMessage) -> Handled {
        let lane = match sender.kind {
            UnitKind::EventManager => 0,
            UnitKind::Readout => 1 + usize::from(sender.index),
            UnitKind::Filter => 4,
            _ => 5,
        };
        let envelope = Envelope {
            sender,
            epoch: 2,
            sequence: self.sequences[lane],
            message,
        };
        self.sequences[lane] += 1;
        self.unit.handle_message(self.now, &envelope)
    }

    fn assign(&mut self, trigger: u64) {
        self.assign_at(trigger, 2);
    }

    fn assign_at(&mut self, trigger: u64, assigned_at: u64) {
        let message = BuilderMessage::Assignment {
            trigger: TriggerNumber(trigger),
            mask: L2Mask(7),
            triggered_at: RunNs(1),
            assigned_at: RunNs(assigned_at),
            builder_epoch: 2,
        };
        assert_eq!(self.send(UnitId::EVENT_MANAGER, message), Handled::Taken);
    }

    fn fragment(&mut self, trigger: u64, source: u32) {
        let message = BuilderMessage::FragmentData {
            trigger: TriggerNumber(trigger),
            fragment: descriptor(source),
        };
        let readout = UnitId::readout(u16::from(source > 2));
        assert_eq!(self.send(readout, message), Handled::Taken);
    }

    fn fragments(&mut self, trigger: u64) {
        for source in [4, 2, 3, 1] {
            self.fragment(trigger, source);
        }
    }

    fn done(&mut self, sender: UnitId, trigger: u64) {
        let triggers = [TriggerNumber(trigger)].into_iter().collect();
        let done = BuilderMessage::EventDone { triggers };
        assert_eq!(self.send(sender, done), Handled::Taken);
    }

    fn accept(&mut self, trigger: u64) {
        let event = AcceptedEvent {
            trigger: TriggerNumber(trigger),
            reason: 3,
            streams: 5,
        };
        let events = [event].into_iter().collect();
        let accepted = BuilderMessage::EventsAccepted { events };
        assert_eq!(self.send(UnitId::filter(0), accepted), Handled::Taken);
    }

    fn for_writer(&mut self) -> Option<u64> {
        let any = self.unit.poll_accepted(&mut self.ticket);
        any.then(|| {
            let verdict = (self.ticket.filter_reason, self.ticket.streams);
            assert_eq!((verdict, self.ticket.fragments.len()), ((3, 5), 4));
            self.ticket.trigger.0
        })
    }

    fn ticket(&mut self) -> Option<u64> {
        let filter = self.unit.poll_ticket(&mut self.ticket)?;
        assert_eq!(filter, UnitId::filter(0));
        Some(self.ticket.trigger.0)
    }

    fn sent(&mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        while let Some(Outgoing { to, envelope }) = self.unit.poll_output(self.now) {
            let numbers = |triggers: TriggerList| triggers.iter().map(|t| t.0).collect();
            all.push(match envelope.message {
                BuilderMessage::FragmentRequest { triggers } => {
                    Sent::Request(to.index, numbers(triggers))
                }
                BuilderMessage::Release { triggers } => Sent::Release(to.index, numbers(triggers)),
                BuilderMessage::ReleasePartial { trigger, missing } => {
                    Sent::Partial(to.index, trigger.0, missing)
                }
                BuilderMessage::Forgotten { trigger } => Sent::Forgotten(to.index, trigger.0),
                BuilderMessage::Clear { triggers } => {
                    assert_eq!(to, UnitId::EVENT_MANAGER);
                    Sent::Clear(numbers(triggers))
                }
                BuilderMessage::ClearAccepted { triggers } => {
                    assert_eq!(to, UnitId::EVENT_MANAGER);
                    Sent::ClearAccepted(numbers(triggers))
                }
                other => panic!("{other:?}"),
            });
        }
        all
    }

    /// Lets the next timeout strike.
    fn strike(&mut self) {
        self.now = self.unit.poll_timeout();
        self.unit.handle_timeout(self.now);
    }
}

#[test]
fn requests_are_grouped_and_a_lone_event_does_not_wait() {
    let mut bench = Bench::new();
    bench.assign(5);
    bench.assign(6);
    bench.assign(7);
    assert_eq!(
        bench.sent(),
        [
            Sent::Request(0, vec![5, 6]),
            Sent::Request(1, vec![5, 6]),
            Sent::Request(0, vec![7]),
            Sent::Request(1, vec![7]),
        ]
    );
    assert_eq!(bench.sent(), []);
}

#[test]
fn over_streams_requests_and_releases_wait_for_more_while_enough_is_to_come() {
    let mut bench = Bench::of(&BuilderConfig {
        credits: 16,
        requests_per_message: 8,
        filter_in_flight: 16,
        ..Bench::config()
    });
    bench.unit.group_messages();
    let _credits = bench.unit.poll_output(RunNs(0));
    let to_both = |said: fn(u16, Vec<u64>) -> Sent, triggers: &[u64]| {
        [0, 1].map(|unit| said(unit, triggers.to_vec()))
    };
    for trigger in 1..=4 {
        bench.assign(trigger);
        // Nothing else is to come until then.
        assert_eq!(bench.sent(), to_both(Sent::Request, &[trigger]));
    }
    for trigger in 5..=7 {
        bench.assign(trigger);
        assert_eq!(bench.sent(), []);
    }
    bench.assign(8);
    assert_eq!(bench.sent(), to_both(Sent::Request, &[5, 6, 7, 8]));
    let finish = |bench: &mut Bench, trigger| {
        bench.fragments(trigger);
        assert_eq!(bench.ticket(), Some(trigger));
        bench.done(UnitId::filter(0), trigger);
    };
    let requested_and_released = |requested: &[u64], released: &[u64]| {
        let mut sent = Vec::from(to_both(Sent::Request, requested));
        sent.extend(to_both(Sent::Release, released));
        sent.push(Sent::Clear(released.to_vec()));
        sent
    };
    // Releases go with the next requests.
    for trigger in 9..=11 {
        bench.assign(trigger);
    }
    finish(&mut bench, 1);
    finish(&mut bench, 2);
    assert_eq!(bench.sent(), []);
    bench.assign(12);
    let expected = requested_and_released(&[9, 10, 11, 12], &[1, 2]);
    assert_eq!(bench.sent(), expected);
    // Or when enough are together.
    for trigger in 3..=5 {
        finish(&mut bench, trigger);
    }
    assert_eq!(bench.sent(), []);
    finish(&mut bench, 6);
    let [first, second] = to_both(Sent::Release, &[3, 4, 5, 6]);
    assert_eq!(bench.sent(), [first, second, Sent::Clear(vec![3, 4, 5, 6])]);
    // What is to come does not come: neither waits for ever.
    bench.assign(13);
    finish(&mut bench, 7);
    assert_eq!(bench.sent(), []);
    bench.strike();
    let retry = Bench::config().retry;
    assert_eq!(bench.now, RunNs(retry.0 / 16));
    assert_eq!(bench.sent(), requested_and_released(&[13], &[7]));
    for trigger in 8..=11 {
        finish(&mut bench, trigger);
    }
    bench.sent();
    // Too little is to come for anything to wait.
    finish(&mut bench, 12);
    let [first, second] = to_both(Sent::Release, &[12]);
    assert_eq!(bench.sent(), [first, second, Sent::Clear(vec![12])]);
}

#[test]
fn copies_are_the_messages_that_would_follow() {
    let [mut one, mut other] = [Bench::new(), Bench::new()];
    let mut groups = Vec::new();
    for step in 0..10_u64 {
        for bench in [&mut one, &mut other] {
            let trigger = 5 + step / 2;
            if step % 2 == 0 {
                bench.assign(trigger);
            } else {
                bench.fragments(trigger);
                if bench.ticket().is_some() && step > 2 {
                    bench.done(UnitId::filter(0), trigger - 1);
                }
            }
        }
        let mut copies = Vec::new();
        while let Some(first) = one.unit.poll_copies(RunNs(0), &mut copies) {
            groups.push(1 + copies.len());
            assert_eq!(other.unit.poll_output(RunNs(0)).as_ref(), Some(&first));
            for copy in &copies {
                let mut expected = first.clone();
                expected.to = UnitId::readout(copy.to);
                expected.envelope.sequence = copy.sequence;
                assert_eq!(other.unit.poll_output(RunNs(0)), Some(expected));
            }
        }
        assert_eq!(other.unit.poll_output(RunNs(0)), None);
    }
    assert!(groups.contains(&1), "a clear goes alone: {groups:?}");
    assert!(groups.iter().filter(|group| **group == 2).count() >= 8);
    assert_eq!(one.unit.counts(), other.unit.counts());
}

#[test]
fn skew_is_the_time_from_the_first_fragment_to_the_last() {
    let mut bench = Bench::new();
    bench.assign(5);
    bench.sent();
    let skew = |bench: &Bench| bench.unit.event_skew(TriggerNumber(5));
    // Around the time at which steps of 16 ns no longer fit into 32 bits.
    bench.now = RunNs((1 << 36) - 1000);
    bench.fragment(5, 4);
    for source in [2, 3] {
        bench.now = bench.now.after(DurationNs(400));
        bench.fragment(5, source);
    }
    bench.now = bench.now.after(DurationNs(4000));
    bench.fragment(5, 1);
    assert_eq!(skew(&bench), DurationNs(4800));
    assert_eq!(bench.ticket(), Some(5));
    bench.done(UnitId::filter(0), 5);
    bench.sent();
    assert_eq!(skew(&bench), DurationNs(0), "not in hand any more");
}

#[test]
fn a_complete_event_goes_to_the_filter_and_is_released_then_cleared() {
    let mut bench = Bench::new();
    bench.now = RunNs(3);
    bench.assign(5);
    bench.sent();
    bench.now = RunNs(1000);
    for source in [4, 2, 3] {
        bench.fragment(5, source);
        assert_eq!(bench.ticket(), None);
    }
    bench.fragment(5, 1);
    assert_eq!(bench.ticket(), Some(5));
    let ticket = bench.ticket.clone();
    assert_eq!(
        ticket.fragments,
        [descriptor(1), descriptor(2), descriptor(3), descriptor(4)]
    );
    assert_eq!((ticket.missing.len(), ticket.mask), (0, L2Mask(7)));
    let times = (ticket.triggered_at, ticket.assigned_at, ticket.built_at);
    assert_eq!(times, (RunNs(1), RunNs(2), RunNs(1000)));
    assert_eq!(bench.sent(), [], "nothing is released before it is done");
    bench.done(UnitId::filter(0), 5);
    assert_eq!(
        bench.sent(),
        [
            Sent::Release(0, vec![5]),
            Sent::Release(1, vec![5]),
            Sent::Clear(vec![5]),
        ]
    );
    assert!(bench.unit.is_idle());
    let counts = bench.unit.counts();
    assert_eq!((counts.events_built, counts.fragments_in_built), (1, 4));
    assert_eq!((counts.events_done, counts.cleared), (1, 1));
    assert_eq!((counts.fragments_done, counts.incomplete_done), (4, 0));
}

#[test]
fn the_filter_window_bounds_the_tickets_and_releases_are_grouped() {
    let mut bench = Bench::new();
    for trigger in 1..=4 {
        bench.assign(trigger);
        bench.fragments(trigger);
    }
    bench.sent();
    assert_eq!((bench.ticket(), bench.ticket()), (Some(1), Some(2)));
    assert_eq!(bench.ticket(), None, "two in flight");
    assert_eq!(bench.unit.events_ready(), 2);
    bench.accept(2);
    assert_eq!(bench.ticket(), Some(3), "the window is the filter unit's");
    assert_eq!(bench.sent(), [], "its pages stay for the writer");
    bench.unit.handle_written(TriggerNumber(2));
    bench.done(UnitId::filter(0), 1);
    bench.done(UnitId::filter(0), 3);
    assert_eq!(
        bench.sent(),
        [
            Sent::Release(0, vec![2, 1]),
            Sent::Release(1, vec![2, 1]),
            Sent::Release(0, vec![3]),
            Sent::Release(1, vec![3]),
            Sent::Clear(vec![1, 3]),
            Sent::ClearAccepted(vec![2]),
        ]
    );
}

/// A driver that stood still reads part of what has come before it looks at the time.
#[test]
fn an_event_is_not_closed_for_the_time_in_which_its_unit_stood_still() {
    let mut bench = Bench::new();
    bench.assign(5);
    bench.assign(6);
    bench.sent();
    bench.now = RunNs(0).after(DurationNs(5 * DurationNs::SECOND.0));
    bench.fragment(5, 1);
    bench.unit.handle_timeout(bench.now);
    assert_eq!(bench.ticket(), None);
    for source in [2, 3, 4] {
        bench.fragment(5, source);
    }
    assert_eq!(bench.ticket(), Some(5));
    assert_eq!(bench.ticket.missing, []);
    // Of the other one nothing has come: it has a timeout more, not five seconds.
    let resumed = bench.now;
    while bench.ticket().is_none() {
        bench.strike();
        bench.sent();
    }
    assert_eq!(bench.now, resumed.after(DurationNs::SECOND));
    assert_eq!((bench.ticket.trigger.0, bench.ticket.missing.len()), (6, 4));
    let counts = bench.unit.counts();
    assert_eq!((counts.events_built, counts.events_incomplete), (1, 1));
}

#[test]
fn a_timeout_closes_the_event_and_names_the_missing_sources() {
    let mut bench = Bench::new();
    bench.assign(5);
    bench.sent();
    bench.fragment(5, 1);
    bench.fragment(5, 3);
    bench.fragment(5, 4);
    let mut repetitions = 0;
    while bench.ticket().is_none() {
        bench.strike();
        for sent in bench.sent() {
            assert_eq!(
                sent,
                Sent::Request(0, vec![5]),
                "only unit 0 is asked again"
            );
            repetitions += 1;
        }
    }
    assert_eq!(bench.now, RunNs(0).after(DurationNs::SECOND));
    assert_eq!(repetitions, 3, "after 100, 300 and 700 ms of 1 s");
    assert_eq!(bench.ticket.missing, [SourceId(2)]);
    assert_eq!(bench.ticket.fragments.len(), 3);
    assert_eq!(bench.ticket.built_at, bench.now);
    bench.fragment(5, 2);
    assert_eq!(bench.unit.counts().fragments_late, 1);
    bench.done(UnitId::filter(0), 5);
    assert_eq!(
        bench.sent(),
        [
            Sent::Partial(0, 5, 0b10),
            Sent::Partial(1, 5, 0),
            Sent::Clear(vec![5]),
        ]
    );
    let counts = bench.unit.counts();
    assert_eq!(counts.events_incomplete, 1);
    assert_eq!(counts.fragments_in_incomplete, 3);
    assert_eq!(counts.events_built, 0);
    assert_eq!((counts.events_done, counts.incomplete_done), (1, 1));
    let done = (counts.fragments_done, counts.fragments_in_incomplete_done);
    assert_eq!(done, (3, 3));
}

#[test]
fn more_events_than_credits_are_refused() {
    let mut bench = Bench::new();
    for trigger in 100..=104 {
        bench.assign(trigger);
    }
    bench.assign(0);
    assert_eq!(bench.unit.counts().assignments_refused, 2);
    assert_eq!(bench.unit.events_held(), 4);
}

#[test]
fn fragments_that_do_not_belong_are_counted() {
    let mut bench = Bench::new();
    bench.assign(5);
    bench.sent();
    bench.fragment(5, 1);
    bench.fragment(5, 1);
    bench.fragment(6, 1);
    bench.fragment(5, 99);
    let foreign = BuilderMessage::FragmentData {
        trigger: TriggerNumber(5),
        fragment: descriptor(2),
    };
    assert_eq!(
        bench.send(UnitId::readout(1), foreign.clone()),
        Handled::Taken
    );
    assert_eq!(
        bench.send(UnitId::readout(2), foreign.clone()),
        Handled::Refused
    );
    assert_eq!(
        bench.send(UnitId::filter(0), foreign.clone()),
        Handled::Refused
    );
    assert_eq!(bench.send(UnitId::SUPERVISOR, foreign), Handled::Refused);
    let counts = bench.unit.counts();
    assert_eq!(counts.fragments_repeated, 1);
    assert_eq!(counts.fragments_unknown, 1);
    assert_eq!(counts.fragments_stranger, 2);
    let messages = counts.messages;
    assert_eq!((messages.strangers, messages.unexpected), (2, 1));
}

#[test]
fn accepted_events_stay_until_a_writer_is_through_with_them() {
    let mut bench = Bench::new();
    for trigger in 1..=4 {
        bench.assign(trigger);
        bench.fragments(trigger);
    }
    bench.sent();
    for (first, second) in [(1, 2), (3, 4)] {
        assert_eq!(
            (bench.ticket(), bench.ticket()),
            (Some(first), Some(second))
        );
        bench.accept(second);
        bench.accept(first);
        bench.accept(first);
    }
    assert_eq!(bench.unit.counts().events_accepted, 4);
    assert_eq!(bench.unit.counts().dones_unknown, 2, "accepted twice");
    assert_eq!(bench.unit.redispatch_filter(0, &[]), []);
    let next = Bench::for_writer;
    assert_eq!([(); 3].map(|()| next(&mut bench)), [2, 1, 4].map(Some));
    bench.unit.handle_written(TriggerNumber(1));
    // The writer dies: what it had goes to the next one first, but not to a third.
    bench.unit.handle_writer_back();
    assert_eq!([(); 2].map(|()| next(&mut bench)), [2, 4].map(Some));
    bench.unit.handle_writer_back();
    assert_eq!(bench.unit.losses().of(LossCause::WriterLost), 2);
    assert_eq!([(); 2].map(|()| next(&mut bench)), [Some(3), None]);
    bench.unit.handle_written(TriggerNumber(2));
    assert_eq!(bench.unit.counts().dones_unknown, 3, "it is lost");
    bench.unit.handle_writer_back();
    assert_eq!(next(&mut bench), Some(3), "for the second time");
    bench.unit.abort();
    assert_eq!(bench.unit.losses().total(), 2, "the writer has it");
    bench.unit.close();
    assert_eq!(bench.unit.losses().of(LossCause::WriterLost), 3);
    while bench.unit.poll_output(bench.now).is_some() {}
    let counts = bench.unit.counts();
    assert!(bench.unit.is_idle());
    assert_eq!((counts.events_done, counts.cleared), (4, 4));
    assert_eq!(counts.events_written_again, 3);
}

#[test]
fn an_aborted_run_counts_each_event_where_it_was() {
    let mut bench = Bench::new();
    for trigger in 1..=4 {
        bench.assign(trigger);
    }
    bench.sent();
    for trigger in 1..=3 {
        bench.fragments(trigger);
    }
    bench.fragment(4, 1);
    assert_eq!((bench.ticket(), bench.ticket()), (Some(1), Some(2)));
    bench.unit.abort();
    assert_eq!(bench.unit.losses().of(LossCause::FilterAborted), 1);
    assert_eq!(bench.unit.losses().of(LossCause::EventAborted), 1);
    assert_eq!(
        bench.sent(),
        [
            Sent::Release(0, vec![3]),
            Sent::Release(1, vec![3]),
            Sent::Partial(0, 4, 0b11),
            Sent::Partial(1, 4, 0b11),
            Sent::Clear(vec![3, 4]),
        ]
    );
    bench.assign(5);
    assert_eq!(
        bench.sent(),
        [
            Sent::Partial(0, 5, 0b11),
            Sent::Partial(1, 5, 0b11),
            Sent::Clear(vec![5]),
        ]
    );
    bench.fragment(4, 2);
    assert_eq!(bench.sent(), [Sent::Partial(0, 4, 0b11)]);
    bench.done(UnitId::filter(0), 2);
    assert!(!bench.unit.is_idle());
    bench.unit.close();
    assert_eq!(bench.unit.losses().of(LossCause::FilterLost), 1);
    bench.sent();
    assert!(bench.unit.is_idle());
    let counts = bench.unit.counts();
    let ended = bench.unit.losses().total() + counts.events_done;
    assert_eq!(ended, counts.assignments);
}

/// Where payload comes in pages of the builder unit: each page is named once, when its event is
/// cleared, or at once when the fragment is not wanted.
#[test]
fn every_page_that_came_is_given_back_once() {
    let mut bench = Bench::new();
    bench.unit.report_freed_pages(16);
    let freed = |bench: &mut Bench| -> Vec<u32> {
        std::iter::from_fn(|| bench.unit.poll_freed_page()).collect()
    };
    bench.fragment(9, 1);
    assert_eq!(freed(&mut bench), [1], "of an event that is not here");
    bench.assign(1);
    bench.fragments(1);
    assert_eq!(freed(&mut bench), []);
    bench.fragment(1, 2);
    assert_eq!(freed(&mut bench), [2], "repeated");
    while bench.unit.poll_output(bench.now).is_some() {}
    assert!(bench.unit.poll_ticket(&mut bench.ticket).is_some());
    assert_eq!(freed(&mut bench), [], "a filter unit reads it");
    let triggers = [TriggerNumber(1)].into_iter().collect();
    let done = BuilderMessage::EventDone { triggers };
    assert_eq!(
        bench.send(
            UnitId {
                kind: UnitKind::Filter,
                index: 0
            },
            done
        ),
        Handled::Taken
    );
    while bench.unit.poll_output(bench.now).is_some() {}
    assert_eq!(freed(&mut bench), [1, 2, 3, 4], "cleared");
    bench.fragment(1, 3);
    assert_eq!(freed(&mut bench), [3], "late");
    let stray = Envelope {
        sender: UnitId::readout(0),
        epoch: 1,
        sequence: 0,
        message: BuilderMessage::FragmentData {
            trigger: TriggerNumber(1),
            fragment: descriptor(2),
        },
    };
    assert_eq!(
        bench.unit.handle_message(bench.now, &stray),
        Handled::Refused
    );
    assert_eq!(freed(&mut bench), [2], "of an old epoch");
}

#[test]
fn a_fragment_off_a_link_without_numbers_is_the_next_message() {
    let [mut one, mut other] = [Bench::new(), Bench::new()];
    for bench in [&mut one, &mut other] {
        bench.assign(5);
        bench.sent();
    }
    for (source, readout) in [(1, 0), (3, 1), (1, 0), (2, 1), (2, 0), (4, 1), (4, 1)] {
        let fragment = descriptor(source);
        let unit = &mut one.unit;
        let handled = unit.handle_next_fragment(RunNs(0), readout, TriggerNumber(5), &fragment);
        assert_eq!(handled, Handled::Taken);
        let lane = 1 + usize::from(readout);
        let envelope = Envelope {
            sender: UnitId::readout(readout),
            epoch: 2,
            sequence: other.sequences[lane],
            message: BuilderMessage::FragmentData {
                trigger: TriggerNumber(5),
                fragment,
            },
        };
        other.sequences[lane] += 1;
        assert_eq!(
            other.unit.handle_message(RunNs(0), &envelope),
            Handled::Taken
        );
        assert_eq!(one.unit.counts(), other.unit.counts());
    }
    assert_eq!(one.unit.counts().events_built, 1);
    let stranger = one
        .unit
        .handle_next_fragment(RunNs(0), 2, TriggerNumber(5), &descriptor(1));
    assert_eq!(stranger, Handled::Refused);
    assert_eq!(one.unit.counts().messages.strangers, 1);
}
