use proptest::prelude::*;

use super::*;

const SOURCES: [SourceId; 3] = [SourceId(30), SourceId(10), SourceId(20)];
const WAIT: DurationNs = DurationNs(1000);

fn events(queue: u32) -> FrontEndEvents {
    let config = FrontEndEventsConfig { queue, wait: WAIT };
    FrontEndEvents::new(&config, RunNumber(7), &SOURCES, 64)
}

fn frame(source: u32, trigger: u64, words: usize) -> FrontEndFrame {
    FrontEndFrame {
        run: None,
        source: SourceId(source),
        trigger: TriggerNumber(trigger),
        content: FrameContent::Data {
            words: words as u32,
            event_type: 4,
            status: 2,
        },
    }
}

fn end(source: u32, trigger: u64) -> FrontEndFrame {
    FrontEndFrame {
        content: FrameContent::End,
        ..frame(source, trigger, 0)
    }
}

/// Sends the data words (source, trigger).
fn send(events: &mut FrontEndEvents, at: u64, source: u32, trigger: u64) -> FrameTaken {
    let data = [source, trigger as u32];
    let frame = frame(source, trigger, data.len());
    assert_eq!(events.check(&frame), Ok(2));
    events.handle_frame(RunNs(at), &frame, &data)
}

/// Hands the head on; the data of each link.
fn hand_on(events: &mut FrontEndEvents) -> Vec<Vec<u32>> {
    let (mut event, mut out) = (SourceEvent::new(), Vec::new());
    let trigger = FragmentTrigger {
        trigger: events.head(),
        bunch: 1,
        trigger_type: 1,
        event_type: 0,
    };
    events.begin(&mut event);
    let data = (0..SOURCES.len()).map(|link| {
        events.write(link, &trigger, &mut out);
        let check =
            livetime_wire::fragment::check_parts(&[&out], livetime_wire::fragment::CrcCheck::On)
                .unwrap();
        assert_eq!(check.header.source, SOURCES[link]);
        assert_eq!(check.header.trigger_low, trigger.trigger.low());
        assert_eq!(check.crc_good, Some(true));
        let words = &out[livetime_wire::fragment::HEADER_WORDS..][..check.data_words];
        let is_absent = check.front_end_status == STATUS_ABSENT;
        assert_eq!(
            (is_absent, check.front_end_status == 2),
            (words.is_empty(), !words.is_empty())
        );
        words.to_vec()
    });
    let data = data.collect();
    events.release();
    data
}

#[test]
fn an_event_is_handed_on_when_all_have_sent_theirs_in_any_order() {
    let mut events = events(4);
    assert_eq!(send(&mut events, 0, 10, 2), FrameTaken::Kept);
    assert_eq!(send(&mut events, 0, 10, 1), FrameTaken::Kept);
    assert_eq!(send(&mut events, 0, 20, 1), FrameTaken::Kept);
    assert!(
        !events.is_ready(RunNs(u64::MAX)),
        "source 30 may not run yet"
    );
    assert_eq!(events.unheard().collect::<Vec<_>>(), [SourceId(30)]);
    assert_eq!(send(&mut events, 5, 30, 1), FrameTaken::Kept);
    assert!(events.is_ready(RunNs(5)));
    assert_eq!(
        hand_on(&mut events),
        [vec![30, 1], vec![10, 1], vec![20, 1]]
    );
    assert!(!events.is_ready(RunNs(6)));
    assert_eq!(events.waiting(), 1);
}

#[test]
fn what_is_missing_is_waited_for_once_and_a_silent_source_no_more() {
    let mut events = events(8);
    for source in [10, 20, 30] {
        send(&mut events, 0, source, 1);
    }
    hand_on(&mut events);
    for trigger in 2..=4 {
        send(&mut events, 100 * trigger, 10, trigger);
        send(&mut events, 100 * trigger, 20, trigger);
    }
    assert!(!events.is_ready(RunNs(400)));
    assert!(!events.is_ready(RunNs(400 + WAIT.0 - 1)));
    assert!(events.is_ready(RunNs(400 + WAIT.0)));
    assert_eq!(hand_on(&mut events), [vec![], vec![10, 2], vec![20, 2]]);
    assert_eq!(events.silent().collect::<Vec<_>>(), [SourceId(30)]);
    assert!(events.is_ready(RunNs(401 + WAIT.0)), "not waited for again");
    assert_eq!(hand_on(&mut events), [vec![], vec![10, 3], vec![20, 3]]);
    // What it sends too late is dropped, and from then on it is waited for.
    assert_eq!(send(&mut events, 1500, 30, 2), FrameTaken::Late);
    assert!(!events.is_ready(RunNs(1501)));
    assert_eq!(send(&mut events, 1502, 30, 4), FrameTaken::Kept);
    assert!(events.is_ready(RunNs(1502)));
    assert_eq!(
        hand_on(&mut events),
        [vec![30, 4], vec![10, 4], vec![20, 4]]
    );
    let counts = events.counts();
    assert_eq!((counts.absent, counts.late, counts.used), (2, 1, 10));
}

#[test]
fn who_holds_the_run_up_is_named_after_100_ms() {
    const MS: u64 = 1_000_000;
    let config = FrontEndEventsConfig {
        queue: 4,
        wait: DurationNs(500 * MS),
    };
    let mut events = FrontEndEvents::new(&config, RunNumber(7), &SOURCES, 64);
    let awaited = |events: &FrontEndEvents, at: u64| -> Vec<u32> {
        events.awaited(RunNs(at)).map(|source| source.0).collect()
    };
    assert_eq!(awaited(&events, 0), [10, 20, 30], "nothing has come of any");
    send(&mut events, 1, 20, 1);
    assert_eq!(awaited(&events, 1), [10, 30]);
    send(&mut events, 1, 10, 1);
    send(&mut events, 1, 30, 1);
    assert_eq!(awaited(&events, 1), [0; 0]);
    assert!(events.is_ready(RunNs(1)));
    hand_on(&mut events);
    send(&mut events, 2, 10, 2);
    let look = |events: &mut FrontEndEvents, at: u64| {
        // As often as a run does.
        let ready = (0..=at / MS).map(|ms| events.is_ready(RunNs(ms * MS + 2)));
        ready.filter(|ready| *ready).count() > 0
    };
    assert!(!look(&mut events, 100 * MS));
    assert_eq!(awaited(&events, 2 + 100 * MS), [0; 0], "not so long");
    assert_eq!(awaited(&events, 3 + 100 * MS), [20, 30]);
    send(&mut events, 101 * MS, 30, 2);
    assert_eq!(awaited(&events, 102 * MS), [20]);
    assert!(look(&mut events, 510 * MS), "it is given up");
    assert_eq!(awaited(&events, 511 * MS), [0; 0], "and not waited for");
    assert_eq!(events.silent().collect::<Vec<_>>(), [SourceId(20)]);
    hand_on(&mut events);
    let counts = events.counts();
    assert_eq!((counts.absent, counts.passed_over), (1, 0));
    send(&mut events, 512 * MS, 20, 3);
    assert_eq!(events.silent().count(), 0);
}

#[test]
fn a_slow_source_is_waited_for_by_each_head_from_its_turn_on() {
    let mut events = events(8);
    for trigger in 1..=8 {
        send(&mut events, 0, 10, trigger);
        send(&mut events, 0, 20, trigger);
    }
    for trigger in 1..=8 {
        let at = 300 * trigger;
        assert!(!events.is_ready(RunNs(at - 1)));
        send(&mut events, at, 30, trigger);
        assert!(events.is_ready(RunNs(at)));
        hand_on(&mut events);
    }
    assert_eq!(events.counts().absent, 0);
}

#[test]
fn a_source_that_starts_long_after_the_others_has_its_time() {
    let mut events = events(8);
    for trigger in 1..=4 {
        send(&mut events, 0, 10, trigger);
        send(&mut events, 0, 20, trigger);
    }
    let at = 10 * WAIT.0;
    send(&mut events, at, 30, 1);
    assert!(events.is_ready(RunNs(at)));
    hand_on(&mut events);
    assert!(!events.is_ready(RunNs(at + 1)));
    assert_eq!(events.silent().count(), 0);
}

#[test]
fn when_all_have_gone_on_the_head_follows_them() {
    let mut events = events(2);
    for trigger in 1..=2 {
        for source in [10, 20, 30] {
            send(&mut events, 0, source, trigger);
        }
        hand_on(&mut events);
    }
    for source in [10, 20, 30] {
        assert_eq!(send(&mut events, 9, source, 7), FrameTaken::Ahead);
    }
    for _ in 3..=5 {
        assert!(events.is_ready(RunNs(9)), "none sends it any more");
        assert_eq!(hand_on(&mut events), [vec![], vec![], vec![]]);
    }
    // Their sender still has them.
    for source in [10, 20, 30] {
        assert_eq!(send(&mut events, 9, source, 7), FrameTaken::Kept);
    }
    assert!(!events.is_ready(RunNs(9)), "6 is in the window");
    assert!(events.is_ready(RunNs(9 + WAIT.0)));
    hand_on(&mut events);
    assert_eq!(
        hand_on(&mut events),
        [vec![30, 7], vec![10, 7], vec![20, 7]]
    );
    let counts = events.counts();
    assert_eq!((counts.absent, events.silent().count()), (12, 0));
    assert_eq!(counts.passed_over, 12);
}

#[test]
fn one_that_is_a_window_ahead_holds_nobody_up() {
    let mut events = events(2);
    for source in [10, 20, 30] {
        send(&mut events, 0, source, 1);
    }
    hand_on(&mut events);
    assert_eq!(send(&mut events, 0, 30, 999), FrameTaken::Ahead);
    for trigger in 2..=9 {
        send(&mut events, 0, 10, trigger);
        send(&mut events, 0, 20, trigger);
        assert!(events.is_ready(RunNs(0)));
        hand_on(&mut events);
    }
    // The others have no data: one bad number makes no triggers without data.
    send(&mut events, 0, 30, 10);
    assert!(!events.is_ready(RunNs(1)));
    assert!(!events.is_ready(RunNs(WAIT.0)));
}

#[test]
fn one_that_begins_with_1_again_costs_one_wait() {
    let mut events = events(4);
    for trigger in 1..=20 {
        for source in [10, 20, 30] {
            send(&mut events, 0, source, trigger);
        }
        hand_on(&mut events);
    }
    for (at, trigger) in (1..).zip(21..=24) {
        for source in [10, 20] {
            send(&mut events, at, source, trigger);
        }
    }
    assert!(!events.is_ready(RunNs(5)));
    assert!(events.is_ready(RunNs(5 + WAIT.0)));
    for (head, trigger) in (21..=24).zip(1..) {
        assert_eq!(events.head().0, head);
        assert_eq!(send(&mut events, 6 + WAIT.0, 30, trigger), FrameTaken::Late);
        assert!(events.is_ready(RunNs(6 + WAIT.0)), "{head}");
        hand_on(&mut events);
    }
    let silent: Vec<SourceId> = events.silent().collect();
    assert_eq!(silent, [SourceId(30)]);
    // What is less late may be in time soon.
    assert_eq!(send(&mut events, 7 + WAIT.0, 30, 22), FrameTaken::Late);
    assert_eq!(events.silent().count(), 0);
}

#[test]
fn gaps_are_waited_for_together() {
    let mut events = events(8);
    send(&mut events, 0, 30, 1);
    for trigger in 1..=6 {
        for source in [10, 20] {
            send(&mut events, 0, source, trigger);
        }
    }
    hand_on(&mut events);
    for trigger in [3, 5, 6] {
        send(&mut events, 100, 30, trigger);
    }
    assert!(!events.is_ready(RunNs(100)));
    assert!(events.is_ready(RunNs(100 + WAIT.0)));
    hand_on(&mut events);
    hand_on(&mut events);
    assert!(
        events.is_ready(RunNs(101 + WAIT.0)),
        "4 was waited for with 2"
    );
    assert_eq!(events.silent().count(), 0);
}

#[test]
fn a_caller_that_stood_still_gives_nothing_up() {
    let mut events = events(8);
    for source in [10, 20, 30] {
        send(&mut events, 0, source, 1);
    }
    hand_on(&mut events);
    send(&mut events, 0, 10, 2);
    assert!(!events.is_ready(RunNs(1)));
    let late = 10 * WAIT.0 + STANDSTILL.0;
    assert!(
        !events.is_ready(RunNs(late)),
        "what has come is not read yet"
    );
    for source in [20, 30] {
        send(&mut events, late, source, 2);
    }
    assert!(events.is_ready(RunNs(late)));
    hand_on(&mut events);
    // No caller that is always late waits for ever.
    send(&mut events, late, 10, 3);
    let looks = (1..=3).map(|n| RunNs(late + n * late));
    assert_eq!(
        looks.map(|at| events.is_ready(at)).collect::<Vec<_>>(),
        [false, false, true]
    );
}

#[test]
fn a_source_that_has_ended_and_sends_again_is_waited_for() {
    let mut events = events(8);
    for source in [10, 20, 30] {
        send(&mut events, 0, source, 1);
    }
    events.handle_frame(RunNs(0), &end(20, 1), &[]);
    hand_on(&mut events);
    send(&mut events, 0, 20, 3);
    for trigger in [2, 3] {
        send(&mut events, 0, 10, trigger);
        send(&mut events, 0, 30, trigger);
    }
    assert!(!events.is_ready(RunNs(0)));
}

#[test]
fn an_end_that_overtakes_the_last_frame_does_not_end_the_run() {
    let mut events = events(4);
    for source in [10, 20, 30] {
        send(&mut events, 0, source, 1);
        events.handle_frame(RunNs(0), &end(source, 2), &[]);
    }
    hand_on(&mut events);
    assert!(!events.is_ended());
    assert!(!events.is_ready(RunNs(1)));
    for source in [10, 20] {
        send(&mut events, 2, source, 2);
    }
    assert!(events.is_ready(RunNs(1 + WAIT.0)), "the third was lost");
    assert_eq!(hand_on(&mut events), [vec![], vec![10, 2], vec![20, 2]]);
    assert!(events.is_ended());
}

#[test]
fn numbers_that_are_far_off_are_refused() {
    let mut events = events(4);
    let check = |events: &mut FrontEndEvents, trigger| events.check(&frame(10, trigger, 0));
    let most = 1 + AHEAD_MAX_AT_FIRST;
    assert_eq!(check(&mut events, most), Ok(0));
    assert_eq!(check(&mut events, most + 1), Err(FrameRefusal::Far));
    for source in [10, 20, 30] {
        send(&mut events, 0, source, 1);
    }
    hand_on(&mut events);
    assert_eq!(check(&mut events, 2 + AHEAD_MAX), Ok(0));
    assert_eq!(check(&mut events, u64::MAX), Err(FrameRefusal::Far));
    assert_eq!(events.check(&end(10, u64::MAX)), Ok(0));
    assert_eq!(events.counts().refused, 2);
}

#[test]
fn a_trigger_that_one_has_left_out_costs_one_wait_and_no_silence() {
    let mut events = events(8);
    for source in [10, 20, 30] {
        send(&mut events, 0, source, 2);
    }
    assert!(!events.is_ready(RunNs(WAIT.0 - 1)));
    assert!(events.is_ready(RunNs(WAIT.0)));
    assert_eq!(hand_on(&mut events), [vec![], vec![], vec![]]);
    assert_eq!(events.silent().count(), 0);
    assert!(events.is_ready(RunNs(WAIT.0)));
    assert_eq!(events.counts().absent, 3);
}

#[test]
fn frames_beyond_the_window_wait_with_their_sender() {
    let mut events = events(2);
    for trigger in 1..=2 {
        assert_eq!(send(&mut events, 0, 10, trigger), FrameTaken::Kept);
    }
    assert_eq!(send(&mut events, 0, 10, 3), FrameTaken::Ahead);
    assert_eq!(send(&mut events, 0, 10, 99), FrameTaken::Ahead);
    assert_eq!(send(&mut events, 0, 10, 2), FrameTaken::Twice);
    send(&mut events, 0, 20, 1);
    send(&mut events, 0, 30, 1);
    assert!(events.is_ready(RunNs(0)));
    // While it is written its place is taken.
    events.begin(&mut SourceEvent::new());
    assert_eq!(send(&mut events, 0, 10, 3), FrameTaken::Ahead);
    assert_eq!(send(&mut events, 0, 10, 1), FrameTaken::Late);
    events.release();
    assert_eq!(send(&mut events, 0, 10, 3), FrameTaken::Kept);
    let counts = events.counts();
    assert_eq!((counts.late, counts.twice, counts.kept), (1, 1, 5));
}

#[test]
fn the_end_is_when_all_have_ended_and_nothing_is_left() {
    let mut events = events(4);
    assert!(!events.is_ended());
    for source in [10, 20] {
        send(&mut events, 0, source, 1);
        events.handle_frame(RunNs(0), &end(source, 1), &[]);
    }
    send(&mut events, 0, 30, 1);
    send(&mut events, 0, 30, 2);
    assert!(events.is_ready(RunNs(0)));
    hand_on(&mut events);
    assert!(events.is_ready(RunNs(0)), "the others will not send it");
    events.handle_frame(RunNs(0), &end(30, 2), &[]);
    assert!(!events.is_ended());
    assert_eq!(hand_on(&mut events), [vec![30, 2], vec![], vec![]]);
    assert!(events.is_ended() && !events.is_ready(RunNs(u64::MAX)));
}

#[test]
fn frames_of_others_are_refused_and_counted() {
    let mut events = events(4);
    assert_eq!(events.words_max(), 50);
    let of_run = |run| FrontEndFrame {
        run: Some(RunNumber(run)),
        ..frame(10, 1, 50)
    };
    assert_eq!(events.check(&of_run(7)), Ok(50));
    assert_eq!(events.check(&of_run(8)), Err(FrameRefusal::Run));
    assert_eq!(events.check(&frame(11, 1, 1)), Err(FrameRefusal::Source));
    assert_eq!(events.check(&frame(10, 1, 51)), Err(FrameRefusal::TooLong));
    assert_eq!(events.counts().refused, 3);
}

#[test]
fn objects_of_all_fragments_are_those_of_the_event_unless_they_cannot_be() {
    let muon = |pt| PhysicsObject {
        kind: livetime_wire::object::ObjectKind::Muon,
        index: 0,
        pt,
        eta: 1.0,
        phi: -1.0,
        charge: 1.0,
        dxy: 0.0,
    };
    let block = livetime_wire::object::ObjectBlock {
        source_run: RunNumber(3),
        source_event: EventNumber(99),
        event_objects: 2,
    };
    let mut events = events(4);
    for (source, pts) in [
        (10, vec![20.0, f32::NAN]),
        (20, vec![30.0, -1.0]),
        (30, vec![]),
    ] {
        let objects: Vec<PhysicsObject> = pts.into_iter().map(muon).collect();
        let mut data = [0; 24];
        let words = block.emit(objects.iter(), &mut data);
        events.handle_frame(RunNs(0), &frame(source, 1, words), &data[..words]);
    }
    assert!(events.is_ready(RunNs(0)));
    let mut event = SourceEvent::new();
    events.begin(&mut event);
    let mut pts: Vec<f32> = event.objects.iter().map(|object| object.pt).collect();
    pts.sort_by(f32::total_cmp);
    assert_eq!(pts, [20.0, 30.0]);
    assert_eq!((event.run, event.number), (RunNumber(3), EventNumber(99)));
}

#[derive(Debug, Clone)]
enum Step {
    Send(usize, u64),
    End(usize),
    Pass(u64),
    HandOn,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3_usize, 0..12_u64).prop_map(|(source, ahead)| Step::Send(source, ahead)),
        1 => (0..3_usize).prop_map(Step::End),
        2 => (0..600_u64).prop_map(Step::Pass),
        4 => Just(Step::HandOn),
    ]
}

proptest! {
    /// Whatever is sent in whatever order: each kept frame is handed on once, with its own
    /// trigger, or discarded.
    #[test]
    fn frames_are_conserved(steps in prop::collection::vec(step(), 0..200)) {
        let mut events = events(4);
        let (mut now, mut used) = (0, 0);
        let mut last = 1;
        for step in steps {
            match step {
                Step::Send(source, ahead) => {
                    let trigger = (events.head().0 + ahead).saturating_sub(4).max(1);
                    send(&mut events, now, SOURCES[source].0, trigger);
                }
                Step::End(source) => {
                    let frame = end(SOURCES[source].0, events.head().0);
                    events.handle_frame(RunNs(now), &frame, &[]);
                }
                Step::Pass(time) => now += time,
                Step::HandOn => {
                    if !events.is_ready(RunNs(now)) {
                        continue;
                    }
                    prop_assert_eq!(events.head().0, last);
                    for (source, data) in SOURCES.iter().zip(hand_on(&mut events)) {
                        if let [from, trigger] = data[..] {
                            prop_assert_eq!((from, u64::from(trigger)), (source.0, last));
                            used += 1;
                        }
                    }
                    last += 1;
                }
            }
            let counts = events.counts();
            prop_assert_eq!(counts.used, used);
            prop_assert_eq!(counts.used + counts.absent, 3 * (last - 1));
            prop_assert_eq!(counts.kept, used + events.waiting());
        }
        events.end();
        prop_assert_eq!(events.waiting(), 0);
    }
}
