//! The emulated receiver on a virtual clock: schedules, inputs, lock and clock faults.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use livetime_timing::{
    ActionFlag, ActionUnitConfig, Caller, Change, ClientId, ClockFault, ConditionSpec,
    EmulatedReceiver, FlagSet, IdFilter, InputConfig, LockState, Playback, Registry,
    RegistryConfig, Role, SCHEDULES_MAX, Schedule, SchedulePlayer, SinkId, SinkKind, SinkSpec,
    TimingReceiver,
};
use livetime_wire::{DurationNs, EventId, TaiNs, TimingMessage};

const CALLER: Caller = Caller {
    client: ClientId(1),
    role: Role::Admin,
};
const SECOND: u64 = 1_000_000_000;

fn receiver(offset_ns: i64) -> (EmulatedReceiver, SinkId) {
    let mut registry = Registry::new(RegistryConfig::HARDWARE).unwrap();
    let sink = registry
        .create_sink(&CALLER, SinkSpec::new(SinkKind::Software, "all"))
        .unwrap();
    let spec = ConditionSpec {
        offset_ns,
        accept: FlagSet::ALL,
        ..ConditionSpec::new(sink, IdFilter::ALL, 0)
    };
    let table = registry.apply(&CALLER, &[Change::Add(spec)]).unwrap().table;
    let mut receiver = EmulatedReceiver::new(ActionUnitConfig::HARDWARE, 2).unwrap();
    receiver.install(table);
    (receiver, sink)
}

/// Steps from time-out to time-out and collects (executed, flag) in true time of the poll.
fn run(receiver: &mut EmulatedReceiver, until: u64) -> Vec<(u64, u64, Option<ActionFlag>)> {
    let mut actions = Vec::new();
    while let Some(at) = receiver.poll_timeout().filter(|at| at.0 <= until) {
        while let Some(action) = receiver.poll_output(at) {
            actions.push((at.0, action.executed.0, action.flag));
        }
    }
    actions
}

#[test]
fn a_repeated_schedule_is_executed_to_the_nanosecond() {
    let (mut receiver, sink) = receiver(100);
    let schedule = Schedule::parse("0x1 0 0\n0x2 0 300\n").unwrap();
    let playback = Playback {
        times: Some(3),
        period: DurationNs(1_000_000),
        align: DurationNs(SECOND),
        lead: DurationNs(10_000),
    };
    let player = SchedulePlayer::new(schedule, playback, TaiNs(5));
    assert!(receiver.play(player).is_none());
    let actions = run(&mut receiver, 2 * SECOND);
    let expected: Vec<_> = (0..3)
        .flat_map(|turn| [100, 400].map(|at| SECOND + turn * 1_000_000 + at))
        .map(|at| (at, at, None))
        .collect();
    assert_eq!(actions, expected);
    assert_eq!(receiver.counters(sink).delivered, 6);
    assert_eq!(receiver.players().count(), 0);
}

#[test]
fn schedules_play_beside_each_other_until_all_places_are_taken() {
    let (mut receiver, _) = receiver(100);
    let schedule = Schedule::parse("0x1 0 0\n0x2 0 300\n").unwrap();
    let player = |start| {
        let once = Playback::once(&schedule);
        SchedulePlayer::new(schedule.clone(), once, TaiNs(SECOND + start))
    };
    for start in 0..SCHEDULES_MAX as u64 {
        assert!(receiver.play(player(1000 * start)).is_none());
    }
    let refused = receiver.play(player(7)).unwrap();
    assert_eq!((refused.start(), refused.played()), (TaiNs(SECOND + 7), 0));
    let actions = run(&mut receiver, 2 * SECOND);
    assert_eq!(actions.len(), 2 * SCHEDULES_MAX);
    assert!(actions.is_sorted_by_key(|(at, ..)| *at));
    let ended = receiver.play(player(2 * SECOND)).unwrap();
    assert_eq!((ended.played(), receiver.players().count()), (2, 1));
}

/// However long its lead: what should have been sent before is sent when it is asked for.
#[test]
fn a_schedule_of_the_past_arrives_when_it_is_asked_for_and_is_late() {
    const LATENCY: u64 = 4096;
    let now = 2_000 * SECOND;
    for (back, lead) in [
        (5_000_000, 5_000),
        (5_000_000, 1_000 * SECOND),
        (100 * SECOND, 1_000 * SECOND),
    ] {
        let (mut receiver, _) = receiver(0);
        let messages =
            [now - back, now + 10 * LATENCY].map(|at| TimingMessage::new(EventId(1), 0, TaiNs(at)));
        let player = SchedulePlayer::of_messages(&messages, DurationNs(lead), 1, DurationNs(0));
        let mut player = player.unwrap();
        player.ask(TaiNs(now));
        assert!(receiver.play(player).is_none());
        let executed = run(&mut receiver, 2 * now);
        let [late, due] = [LATENCY, 10 * LATENCY].map(|after| now + after);
        let expected = [(late, late, Some(ActionFlag::Late)), (due, due, None)];
        assert_eq!(executed, expected, "{back} ns past, {lead} ns ahead");
    }
}

#[test]
fn a_drifting_clock_executes_by_its_own_time() {
    let (mut receiver, _) = receiver(0);
    let drift = ClockFault::Drift {
        parts_per_billion: 100_000,
    };
    receiver.handle_fault(TaiNs(0), drift).unwrap();
    receiver
        .handle_fault(TaiNs(0), ClockFault::LockLost)
        .unwrap();
    assert_eq!(
        receiver.lock_state(),
        LockState::Holdover { since: TaiNs(0) }
    );
    let message = TimingMessage::new(EventId(1), 0, TaiNs(SECOND + 100_000));
    receiver.inject(TaiNs(0), &message);
    let actions = run(&mut receiver, 2 * SECOND);
    // A clock that is 100 ppm fast shows the deadline after one true second.
    assert_eq!(actions, [(SECOND, SECOND + 100_000, None)]);
    receiver
        .handle_fault(TaiNs(2 * SECOND), ClockFault::LockRegained)
        .unwrap();
    assert!(receiver.lock_state().is_locked());
    assert_eq!(receiver.time(TaiNs(3 * SECOND)), TaiNs(3 * SECOND));
}

#[test]
fn a_step_of_the_clock_makes_messages_late_or_early() {
    for (ns, flag) in [
        (2_000_000, Some(ActionFlag::Late)),
        (0, None),
        (-(5 * SECOND as i64), Some(ActionFlag::Early)),
    ] {
        let (mut receiver, _) = receiver(0);
        let now = TaiNs(10 * SECOND);
        receiver.handle_fault(now, ClockFault::Step { ns }).unwrap();
        let message = TimingMessage::new(EventId(1), 0, TaiNs(10 * SECOND + 1_000_000));
        receiver.inject(now, &message);
        let actions = run(&mut receiver, 20 * SECOND);
        assert_eq!(actions.len(), 1);
        assert_eq!(actions[0].2, flag, "step {ns}");
    }
}

#[test]
fn edges_of_inputs_become_messages_and_actions() {
    let (mut receiver, sink) = receiver(10_000);
    let config = InputConfig {
        enabled: true,
        prefix: EventId(0xFF00),
        stable_ns: 16,
    };
    receiver.configure_input(1, config).unwrap().unwrap();
    assert!(receiver.configure_input(2, config).is_none());
    receiver.handle_level(TaiNs(1000), 1, true);
    receiver.handle_level(TaiNs(1010), 1, false);
    receiver.handle_level(TaiNs(2000), 1, true);
    receiver.handle_level(TaiNs(3000), 1, false);
    let executed: Vec<u64> = run(&mut receiver, SECOND).iter().map(|a| a.1).collect();
    assert_eq!(executed, [12_000, 13_000], "the glitch of 10 ns is none");
    assert_eq!(receiver.counters(sink).delivered, 2);
}
