//! Late, early, conflict and delayed on a virtual clock, each boundary at one nanosecond either
//! side; queue, high-water mark and reports; and the static conflict check against what is flagged.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use livetime_timing::{
    Action, ActionFlag, ActionUnitConfig, Caller, Change, ClientId, ConditionId, ConditionSpec,
    ConflictPolicy, FlagSet, IdFilter, QueueSharing, RegistryConfig, Role, SinkId, SinkKind,
    SinkSpec, TAG_OFF, TAG_ON, TimingCore,
};
use livetime_wire::{EventId, TaiNs, TimingMessage};

#[path = "support/random.rs"]
mod random;

use random::Random;

const CALLER: Caller = Caller {
    client: ClientId(1),
    role: Role::Admin,
};
const LATENCY: u64 = 4096;
const NOW: u64 = 1_000_000;

fn core() -> TimingCore {
    TimingCore::new(RegistryConfig::HARDWARE, ActionUnitConfig::HARDWARE).unwrap()
}

fn sink(core: &mut TimingCore, kind: SinkKind, name: &str) -> SinkId {
    let mut spec = SinkSpec::new(kind, name);
    spec.conflict_policy = ConflictPolicy::Ignore;
    spec.offset_max_ns = i64::MAX;
    spec.offset_min_ns = i64::MIN;
    core.create_sink(&CALLER, spec).unwrap()
}

fn add(core: &mut TimingCore, spec: ConditionSpec) -> ConditionId {
    core.apply(&CALLER, &[Change::Add(spec)]).unwrap().added[0]
}

fn accepting(sink: SinkId, filter: IdFilter, tag: u32) -> ConditionSpec {
    ConditionSpec {
        accept: FlagSet::ALL,
        ..ConditionSpec::new(sink, filter, tag)
    }
}

fn message(time: u64) -> TimingMessage {
    TimingMessage::new(EventId(0x1234), 5, TaiNs(time))
}

/// Everything that is executed, polled only when something is due.
fn run(core: &mut TimingCore) -> Vec<Action> {
    let mut actions = Vec::new();
    while let Some(at) = core.poll_timeout() {
        let before = core.poll_output(TaiNs(at.0 - 1));
        assert_eq!(before, None, "nothing comes before its time");
        while let Some(action) = core.poll_output(at) {
            assert_eq!(action.executed, at);
            actions.push(action);
        }
    }
    actions
}

fn single(time: u64, offset_ns: i64) -> Action {
    let mut core = core();
    let sink = sink(&mut core, SinkKind::Software, "s");
    let spec = ConditionSpec {
        offset_ns,
        ..accepting(sink, IdFilter::ALL, 0)
    };
    add(&mut core, spec);
    assert_eq!(core.handle_message(TaiNs(NOW), &message(time)), 1);
    let actions = run(&mut core);
    assert_eq!(actions.len(), 1);
    actions[0]
}

#[test]
fn late_begins_one_nanosecond_after_the_arrival_at_the_channel() {
    let at_channel = NOW + LATENCY;
    for offset in [0, -500, 500] {
        let time = |deadline: u64| deadline.checked_add_signed(-offset).unwrap();
        let good = single(time(at_channel), offset);
        assert_eq!((good.flag, good.executed.0), (None, at_channel));
        let late = single(time(at_channel - 1), offset);
        assert_eq!(late.flag, Some(ActionFlag::Late));
        assert_eq!(late.executed.0, at_channel, "acted on at once");
        assert_eq!(late.deadline.0, at_channel - 1);
        let later = single(time(at_channel + 1), offset);
        assert_eq!((later.flag, later.executed.0), (None, at_channel + 1));
    }
    assert_eq!(single(0, 0).flag, Some(ActionFlag::Late));
    assert_eq!(single(10, -500).deadline, TaiNs(0), "time does not wrap");
}

#[test]
fn early_begins_one_nanosecond_beyond_the_threshold() {
    let threshold = NOW + LATENCY + (1 << 32);
    for (deadline, flag) in [
        (threshold - 1, None),
        (threshold, None),
        (threshold + 1, Some(ActionFlag::Early)),
        (u64::MAX, Some(ActionFlag::Early)),
    ] {
        let action = single(deadline, 0);
        assert_eq!(action.flag, flag, "{deadline}");
        let executed = if flag.is_some() {
            NOW + LATENCY
        } else {
            deadline
        };
        assert_eq!(action.executed.0, executed);
    }
}

#[test]
fn of_conflicting_actions_the_first_is_not_flagged() {
    for apart in [0, 1] {
        let mut core = core();
        let sink = sink(&mut core, SinkKind::Output, "io");
        let first = add(&mut core, accepting(sink, IdFilter::ALL, TAG_ON));
        core.handle_message(TaiNs(NOW), &message(2 * NOW));
        core.handle_message(TaiNs(NOW), &message(2 * NOW + apart));
        let actions = run(&mut core);
        assert!(actions.iter().all(|action| action.condition == first));
        let flags: Vec<_> = actions.iter().map(|action| action.flag).collect();
        let expected = (apart == 0).then_some(ActionFlag::Conflict);
        assert_eq!(flags, [None, expected], "{apart} ns apart");
        let after = if apart == 0 { 8 } else { 1 };
        assert_eq!(actions[1].executed.0, 2 * NOW + after);
    }
}

#[test]
fn a_conflict_is_found_even_after_the_first_was_executed() {
    let mut core = core();
    let sink = sink(&mut core, SinkKind::Output, "io");
    add(&mut core, accepting(sink, IdFilter::ALL, TAG_OFF));
    let deadline = NOW + LATENCY;
    core.handle_message(TaiNs(NOW), &message(deadline));
    assert_eq!(core.poll_output(TaiNs(deadline)).unwrap().flag, None);
    core.handle_message(TaiNs(NOW), &message(deadline));
    let second = core.poll_output(TaiNs(deadline + 8)).unwrap();
    assert_eq!(second.flag, Some(ActionFlag::Conflict));
}

#[test]
fn software_sinks_share_a_channel_and_delay_each_other() {
    let mut core = core();
    let sinks: Vec<SinkId> = (0..3)
        .map(|n| sink(&mut core, SinkKind::Software, &format!("s{n}")))
        .collect();
    let other = sink(&mut core, SinkKind::BusTag, "bus");
    for (sink, tag) in sinks.iter().chain([&other]).zip(0..) {
        add(&mut core, accepting(*sink, IdFilter::ALL, tag));
    }
    core.handle_message(TaiNs(NOW), &message(2 * NOW));
    let actions = run(&mut core);
    let found: Vec<_> = actions
        .iter()
        .map(|a| (a.tag, a.flag, a.executed.0 - 2 * NOW))
        .collect();
    let delayed = Some(ActionFlag::Delayed);
    // Equal filters: the oldest condition comes first. The bus is a channel of its own.
    assert_eq!(
        found,
        [
            (0, None, 0),
            (3, None, 0),
            (1, delayed, 8),
            (2, delayed, 16)
        ]
    );
}

#[test]
fn a_stalled_channel_delays_and_empties_one_per_cycle() {
    let mut core = core();
    let sink = sink(&mut core, SinkKind::EmbeddedCpu, "cpu");
    add(&mut core, accepting(sink, IdFilter::ALL, 0));
    for time in [2 * NOW, 2 * NOW + 100, 2 * NOW + 5000] {
        core.handle_message(TaiNs(NOW), &message(time));
    }
    let kind = SinkKind::EmbeddedCpu;
    core.actions_mut().handle_stall(kind, TaiNs(2 * NOW + 1000));
    let found: Vec<_> = run(&mut core)
        .iter()
        .map(|a| (a.flag, a.executed.0 - 2 * NOW))
        .collect();
    let delayed = Some(ActionFlag::Delayed);
    assert_eq!(found, [(delayed, 1000), (delayed, 1008), (None, 5000)]);
}

#[test]
fn the_most_severe_flag_wins() {
    // Late and in conflict and delayed: late. In conflict and delayed: conflict.
    let mut core = core();
    let sink = sink(&mut core, SinkKind::Output, "io");
    add(&mut core, accepting(sink, IdFilter::ALL, TAG_ON));
    let stall = TaiNs(NOW + LATENCY + 100);
    core.actions_mut().handle_stall(SinkKind::Output, stall);
    let deadline = NOW + LATENCY;
    for time in [deadline - 1, deadline, deadline] {
        core.handle_message(TaiNs(NOW), &message(time));
    }
    let flags: Vec<_> = run(&mut core).iter().map(|a| a.flag).collect();
    let expected = [ActionFlag::Late, ActionFlag::Delayed, ActionFlag::Conflict];
    assert_eq!(flags, expected.map(Some));
}

#[test]
fn what_is_not_accepted_is_counted_and_kept_until_it_is_read() {
    let mut core = core();
    let sink = sink(&mut core, SinkKind::Software, "s");
    let condition = add(&mut core, ConditionSpec::new(sink, IdFilter::ALL, 9));
    for time in [1, 2, 3] {
        core.handle_message(TaiNs(NOW), &message(time));
    }
    assert_eq!(
        core.poll_output(TaiNs(u64::MAX)),
        None,
        "late is not accepted"
    );
    let counters = core.actions().counters(sink);
    assert_eq!(
        (counters.matched, counters.delivered, counters.refused),
        (3, 0, 3)
    );
    assert_eq!(counters.flagged, [3, 0, 0, 0]);
    assert_eq!(
        core.actions().fill(SinkKind::Software),
        1,
        "the report takes a place"
    );
    let report = core
        .actions_mut()
        .take_report(sink, SinkKind::Software, ActionFlag::Late)
        .unwrap();
    assert_eq!(report.count, 3);
    let first = report.first;
    assert_eq!(
        (first.condition, first.tag, first.deadline),
        (condition, 9, TaiNs(1))
    );
    assert_eq!(first.executed, TaiNs(NOW + LATENCY));
    assert_eq!(core.actions().fill(SinkKind::Software), 0);
    let again = core
        .actions_mut()
        .take_report(sink, SinkKind::Software, ActionFlag::Late);
    assert_eq!(again, None, "reading clears");
}

#[test]
fn the_queue_holds_256_and_drops_the_257th() {
    let mut core = core();
    let sink_a = sink(&mut core, SinkKind::Software, "a");
    let sink_b = sink(&mut core, SinkKind::Software, "b");
    let id = |n: u64| IdFilter::prefix(EventId(n), u64::MAX).unwrap();
    add(&mut core, accepting(sink_a, id(1), 0));
    add(&mut core, accepting(sink_b, id(2), 0));
    let send = |core: &mut TimingCore, n: u64, time: u64| {
        core.handle_message(TaiNs(NOW), &TimingMessage::new(EventId(n), 0, TaiNs(time)));
    };
    for n in 0..256 {
        send(&mut core, 1, 2 * NOW + n);
    }
    assert_eq!(core.actions().fill(SinkKind::Software), 256);
    assert_eq!(core.actions().counters(sink_a).overflow, 0);
    send(&mut core, 2, 3 * NOW);
    assert_eq!(
        core.actions().counters(sink_b).overflow,
        1,
        "charged to its sink"
    );
    assert_eq!(core.actions().most_full(SinkKind::Software), 256);
    core.poll_output(TaiNs(2 * NOW)).unwrap();
    send(&mut core, 2, 3 * NOW);
    assert_eq!(
        core.actions().counters(sink_b).overflow,
        1,
        "one place was free"
    );
    assert_eq!(run(&mut core).len(), 256);
    core.actions_mut().clear_most_full(SinkKind::Software);
    assert_eq!(core.actions().most_full(SinkKind::Software), 0);

    // A report that nobody reads makes the queue one shorter.
    send(&mut core, 1, 1);
    assert_eq!(run(&mut core).len(), 1);
    for n in 0..256 {
        send(&mut core, 1, 2 * NOW + n);
    }
    assert_eq!(core.actions().counters(sink_a).overflow, 1);
}

/// Whoever floods the queue leaves room for those who come later, and all of it is accounted for.
#[test]
fn a_software_sink_has_its_share_of_the_queue_and_no_more() {
    let unit = ActionUnitConfig {
        queue: 120,
        sharing: QueueSharing::Fair,
        ..ActionUnitConfig::HARDWARE
    };
    let mut core = TimingCore::new(RegistryConfig::HARDWARE, unit).unwrap();
    let names = ["a", "b", "c"];
    let sinks = names.map(|name| sink(&mut core, SinkKind::Software, name));
    for (sink, n) in sinks.iter().zip(0..) {
        let filter = IdFilter::prefix(EventId(n), u64::MAX).unwrap();
        add(&mut core, accepting(*sink, filter, 0));
    }
    let send = |core: &mut TimingCore, n: u64, count: u64| {
        for at in 0..count {
            let message = TimingMessage::new(EventId(n), 0, TaiNs(2 * NOW + at));
            core.handle_message(TaiNs(NOW), &message);
        }
    };
    let queued = |core: &TimingCore, n: usize| {
        let counters = core.actions().counters(sinks[n]);
        counters.matched - counters.overflow
    };
    send(&mut core, 0, 500);
    assert_eq!(queued(&core, 0), 60);
    send(&mut core, 1, 500);
    assert_eq!(queued(&core, 1), 30);
    send(&mut core, 0, 500);
    send(&mut core, 2, 15);
    assert_eq!((queued(&core, 0), queued(&core, 2)), (60, 15));
    let mut told = [0; 3];
    while let Some((sink, count)) = core.actions_mut().take_unqueued(100) {
        told[sinks.iter().position(|its| *its == sink).unwrap()] += count;
    }
    assert_eq!(told, [940, 470, 0]);
    assert_eq!(core.actions().overflow(), 1410);
    // A sink that is gone leaves its share, which is the larger one, to the others at once.
    core.destroy_sink(&CALLER, sinks[0]).unwrap();
    let again = sink(&mut core, SinkKind::Software, "d");
    assert_eq!(again, sinks[0]);
    assert_eq!(core.actions().withdrawn(), 60);
    assert_eq!(run(&mut core).len(), 45);
    let filter = IdFilter::prefix(EventId(0), u64::MAX).unwrap();
    add(&mut core, accepting(again, filter, 0));
    let before = core.actions().fill(SinkKind::Software) as u64;
    send(&mut core, 0, 500);
    let taken = (120 - before).div_ceil(2);
    assert_eq!(queued(&core, 0), taken);
    assert_eq!(core.actions().overflow(), 1410 + 500 - taken);
}

#[test]
fn every_action_is_delivered_refused_dropped_or_waiting() {
    let mut random = Random::new();
    for _ in 0..200 {
        let mut core = core();
        let kinds = [SinkKind::Output, SinkKind::Software, SinkKind::BusTag];
        let sinks: Vec<SinkId> = (0..6)
            .map(|n| sink(&mut core, kinds[n % 3], &format!("s{n}")))
            .collect();
        for _ in 0..12 {
            let place = sinks[random.below(6) as usize];
            let filter = IdFilter::leading(EventId(0x1234), random.below(65) as u32).unwrap();
            let spec = ConditionSpec {
                offset_ns: random.below(3) as i64,
                accept: FlagSet::from_bits(random.below(16) as u8),
                ..ConditionSpec::new(place, filter, TAG_ON)
            };
            add(&mut core, spec);
        }
        let mut delivered = 0;
        for n in 0..200 {
            let now = NOW + 50 * n;
            let time = (now + random.below(9000)).saturating_sub(1000);
            core.handle_message(TaiNs(now), &message(time));
            if random.below(3) == 0 {
                while core.poll_output(TaiNs(now)).is_some() {
                    delivered += 1;
                }
            }
        }
        let waiting = |core: &TimingCore, kind| {
            let reports = sinks.iter().filter(|s| kinds[s.index() % 3] == kind);
            let kept: usize = reports
                .map(|s| {
                    ActionFlag::ALL
                        .iter()
                        .filter(|f| core.actions().report(*s, **f).is_some())
                        .count()
                })
                .sum();
            core.actions().fill(kind) - kept
        };
        let waiting: usize = kinds.iter().map(|kind| waiting(&core, *kind)).sum();
        let sum = |part: fn(&livetime_timing::SinkCounters) -> u64| -> u64 {
            sinks
                .iter()
                .map(|s| part(&core.actions().counters(*s)))
                .sum()
        };
        assert_eq!(sum(|c| c.delivered), delivered);
        let accounted = sum(|c| c.delivered + c.refused + c.overflow) + waiting as u64;
        assert_eq!(sum(|c| c.matched), accounted, "seed {}", random.seed());
    }
}

#[test]
fn outputs_do_not_depend_on_when_they_are_polled() {
    let mut random = Random::new();
    for _ in 0..200 {
        let script: Vec<(u64, u64)> = (0..60)
            .map(|n| (NOW + 700 * n, NOW + 700 * n + 4000 + random.below(900)))
            .collect();
        let play = |mut poll: Box<dyn FnMut() -> bool>| {
            let mut core = core();
            for n in 0..4 {
                let sink = sink(&mut core, SinkKind::Software, &format!("s{n}"));
                add(&mut core, accepting(sink, IdFilter::ALL, n));
            }
            let mut actions = Vec::new();
            for (now, time) in &script {
                if poll() {
                    // What is due before this message arrives.
                    while let Some(action) = core.poll_output(TaiNs(*now)) {
                        actions.push(action);
                    }
                }
                core.handle_message(TaiNs(*now), &message(*time));
            }
            while let Some(action) = core.poll_output(TaiNs(u64::MAX)) {
                actions.push(action);
            }
            actions
        };
        let always = play(Box::new(|| true));
        let never = play(Box::new(|| false));
        assert_eq!(always.len(), 240);
        assert_eq!(always, never, "seed {}", random.seed());
    }
}

/// For one message alone and on time: the pairs that the static check names are those flagged.
#[test]
fn static_conflicts_are_exactly_those_of_a_single_message() {
    let mut random = Random::new();
    let mut must = 0;
    for _ in 0..3000 {
        let mut core = core();
        let sinks = [
            sink(&mut core, SinkKind::Software, "a"),
            sink(&mut core, SinkKind::Software, "b"),
        ];
        let base = random.next() << 56;
        for _ in 0..1 + random.below(6) {
            let id = base ^ (random.below(8) << 56);
            let filter = match random.below(4) {
                0 => IdFilter::masked(EventId(id & (5 << 56)), 5 << 56).unwrap(),
                1 => {
                    let other = base ^ (random.below(8) << 56);
                    IdFilter::span(EventId(id.min(other)), EventId(id.max(other))).unwrap()
                }
                _ => IdFilter::leading(EventId(id), 4 + random.below(5) as u32).unwrap(),
            };
            let spec = ConditionSpec {
                offset_ns: random.below(2) as i64,
                ..accepting(sinks[random.below(2) as usize], filter, 0)
            };
            add(&mut core, spec);
        }
        let pairs: Vec<_> = sinks
            .iter()
            .flat_map(|sink| core.registry().conflicts(*sink).pairs)
            .collect();
        must += pairs.len();
        for low in 0..8 {
            let id = EventId(base ^ (low << 56));
            let message = TimingMessage::new(id, 0, TaiNs(NOW * (low + 10)));
            core.handle_message(TaiNs(NOW), &message);
            let flagged: Vec<_> = run(&mut core)
                .iter()
                .filter(|action| action.flag == Some(ActionFlag::Conflict))
                .map(|action| action.condition)
                .collect();
            let matches = |id_: ConditionId| {
                core.registry()
                    .condition(id_)
                    .unwrap()
                    .spec
                    .filter
                    .matches(id)
            };
            for pair in &pairs {
                let both = matches(pair.first) && matches(pair.second);
                assert!(
                    !both || flagged.contains(&pair.second),
                    "seed {}",
                    random.seed()
                );
            }
            for condition in flagged {
                let named = pairs.iter().any(|pair| {
                    pair.second == condition && matches(pair.first) && matches(pair.second)
                });
                assert!(named, "{condition} was flagged, seed {}", random.seed());
            }
        }
        for pair in pairs {
            for condition in [pair.first, pair.second] {
                let filter = core.registry().condition(condition).unwrap().spec.filter;
                assert!(filter.matches(pair.example));
            }
        }
    }
    assert!(must > 1000, "conflicts occur: {must}");
}
