//! Stories told by the kernel: couriers that carry letters over bad roads.
//!
//! A sender numbers its letters, repeats each until it is acknowledged, and keeps a few on the way
//! at once; the receiver opens each letter once. That is enough protocol to need everything the
//! kernel gives: order, streams, timeouts, faults, and an account of every message.

use std::collections::BTreeMap;

use livetime_fabric::random::{Purpose, RandomStream, RandomStreams};
use livetime_fabric::trace::first_divergence;
use livetime_fabric::{
    Admission, Arrival, DurationPs, EventClass, EventLabel, FaultAction, FaultPlan, FaultProfile,
    FaultShim, LinkId, NodeId, Occasion, Outage, OutageKind, Probability, QueueKind, RunLimits,
    RunReport, Scheduler, ScriptedFault, SimPs, Simulation, SimulationConfig, StopReason,
    TimeWindow, TraceHash, WakeUp, World,
};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const MESSAGES: EventClass = EventClass(0);
const TIMERS: EventClass = EventClass(1);
const LATENCY: DurationPs = DurationPs::from_ns(500);
const JITTER_MAX: DurationPs = DurationPs::from_ns(50);
const RETRY: DurationPs = DurationPs::from_us(4);
const ON_THE_WAY_MAX: usize = 4;
const WAYS: Purpose = Purpose(0);

#[derive(Debug, Clone, Copy)]
enum Kind {
    Letter(u32),
    Acknowledgement(u32),
    Timeout,
    Restart,
}

#[derive(Debug, Clone, Copy)]
struct Event {
    node: NodeId,
    kind: Kind,
}

#[derive(Debug, Clone)]
struct Sender {
    letter_count: u32,
    next: u32,
    /// Letters on the way, and when each is to be repeated.
    unanswered: BTreeMap<u32, SimPs>,
    wake_up: WakeUp,
    ways: RandomStream,
    sent: u64,
    acknowledgements: u64,
}

#[derive(Debug, Clone)]
struct Receiver {
    ways: RandomStream,
    /// Each letter opened, and when.
    opened: Vec<(u32, SimPs)>,
    received: u64,
    restarts: u32,
}

/// Pairs of a sender (node 2p, link 2p) and a receiver (node 2p + 1, link 2p + 1).
#[derive(Debug, Clone)]
struct Post {
    senders: Vec<Sender>,
    receivers: Vec<Receiver>,
    shim: FaultShim,
}

impl Post {
    fn new(seed: u64, pair_count: u32, letter_count: u32, plan: &FaultPlan) -> Self {
        let streams = RandomStreams::new(seed);
        let count = 2 * pair_count as usize;
        let sender = |pair| Sender {
            letter_count,
            next: 0,
            unanswered: BTreeMap::new(),
            wake_up: WakeUp::new(),
            ways: streams.stream(NodeId(2 * pair), WAYS),
            sent: 0,
            acknowledgements: 0,
        };
        let receiver = |pair| Receiver {
            ways: streams.stream(NodeId(2 * pair + 1), WAYS),
            opened: Vec::new(),
            received: 0,
            restarts: 0,
        };
        Self {
            senders: (0..pair_count).map(sender).collect(),
            receivers: (0..pair_count).map(receiver).collect(),
            shim: FaultShim::new_checked(plan, count, count, streams)
                .expect("plans here fit the post"),
        }
    }

    fn send(&mut self, from: NodeId, kind: Kind, scheduler: &mut Scheduler<Event>) {
        let now = scheduler.now();
        let pair = from.index() / 2;
        let ways = match kind {
            Kind::Letter(_) => &mut self.senders[pair].ways,
            _ => &mut self.receivers[pair].ways,
        };
        let arrival = now + LATENCY + ways.between(DurationPs::ZERO, JITTER_MAX);
        let node = NodeId(from.0 ^ 1);
        for time in self.shim.transmit(LinkId(from.0), now, arrival).arrivals() {
            scheduler.at(time, MESSAGES, Event { node, kind });
        }
    }

    /// Sends what is new or overdue, and sets the timer.
    fn work(&mut self, node: NodeId, scheduler: &mut Scheduler<Event>) {
        let now = scheduler.now();
        let sender = &mut self.senders[node.index() / 2];
        let due = |(letter, retry): (&u32, &SimPs)| (*retry <= now).then_some(*letter);
        let mut letters: Vec<u32> = sender.unanswered.iter().filter_map(due).collect();
        while sender.unanswered.len() + letters.len() < ON_THE_WAY_MAX
            && sender.next < sender.letter_count
        {
            letters.push(sender.next);
            sender.next += 1;
        }
        for letter in &letters {
            sender.unanswered.insert(*letter, now + RETRY);
            sender.sent += 1;
        }
        if let Some(at) = sender
            .wake_up
            .arm(sender.unanswered.values().min().copied())
        {
            scheduler.at(
                at,
                TIMERS,
                Event {
                    node,
                    kind: Kind::Timeout,
                },
            );
        }
        for letter in letters {
            self.send(node, Kind::Letter(letter), scheduler);
        }
    }

    fn open(&mut self, node: NodeId, letter: u32, scheduler: &mut Scheduler<Event>) {
        let receiver = &mut self.receivers[node.index() / 2];
        receiver.received += 1;
        if receiver.opened.iter().all(|(known, _)| *known != letter) {
            receiver.opened.push((letter, scheduler.now()));
        }
        self.send(node, Kind::Acknowledgement(letter), scheduler);
    }
}

impl World for Post {
    type Event = Event;

    fn label(&self, event: &Event) -> EventLabel {
        let (kind, key) = match event.kind {
            Kind::Letter(letter) => (1, u64::from(letter)),
            Kind::Acknowledgement(letter) => (2, u64::from(letter)),
            Kind::Timeout => (3, 0),
            Kind::Restart => (4, 0),
        };
        EventLabel {
            node: event.node,
            kind,
            key,
        }
    }

    fn handle(&mut self, now: SimPs, event: Event, scheduler: &mut Scheduler<Event>) {
        let Event { node, kind } = event;
        let pair = node.index() / 2;
        if let Kind::Restart = kind {
            // A new receiver knows nothing of the letters it has opened: they are written down.
            self.receivers[pair].restarts += 1;
            return;
        }
        let timer = matches!(kind, Kind::Timeout);
        let what = if timer {
            Arrival::Timer
        } else {
            Arrival::Message
        };
        match self.shim.admit(node, now, what) {
            Admission::Taken => {}
            Admission::Lost => return,
            Admission::PutOff(until) => return scheduler.put_off(until, event),
        }
        match kind {
            Kind::Letter(letter) => self.open(node, letter, scheduler),
            Kind::Acknowledgement(letter) => {
                let sender = &mut self.senders[pair];
                sender.acknowledgements += 1;
                sender.unanswered.remove(&letter);
                self.work(node, scheduler);
            }
            Kind::Timeout => {
                // Due or not, the work is the same: what is overdue is repeated, the timer set.
                let _due = self.senders[pair].wake_up.fire(now);
                self.work(node, scheduler);
            }
            Kind::Restart => {}
        }
    }
}

/// A post ready to go: each sender gets a timeout at time 0, restarts are scheduled.
fn post(
    seed: u64,
    pairs: u32,
    letters: u32,
    plan: &FaultPlan,
    queue: QueueKind,
) -> Simulation<Post> {
    let config = SimulationConfig {
        queue,
        trace_ring: 64,
        ..SimulationConfig::default()
    };
    let mut simulation = Simulation::new(Post::new(seed, pairs, letters, plan), config);
    let restarts: Vec<_> = simulation.world().shim.restarts().collect();
    for (node, time) in restarts {
        simulation.schedule(
            time,
            TIMERS,
            Event {
                node,
                kind: Kind::Restart,
            },
        );
    }
    for pair in 0..pairs {
        let node = NodeId(2 * pair);
        simulation.schedule(
            SimPs::ZERO,
            TIMERS,
            Event {
                node,
                kind: Kind::Timeout,
            },
        );
    }
    simulation
}

const NO_LIMITS: RunLimits = RunLimits::new(SimPs::MAX, 1_000_000);

fn bad_roads() -> FaultProfile {
    FaultProfile {
        drop: Probability::from_ppm(100_000),
        duplicate: Probability::from_ppm(100_000),
        delay: Probability::from_ppm(50_000),
        reorder: Probability::from_ppm(100_000),
        shift_min: DurationPs::from_ns(10),
        shift_max: DurationPs::from_us(3),
        active: TimeWindow::ALWAYS,
    }
}

/// Every letter was opened once, and every message is accounted for on both sides.
fn assert_all_delivered(post: &Post) {
    for (sender, receiver) in post.senders.iter().zip(&post.receivers) {
        let mut opened: Vec<u32> = receiver.opened.iter().map(|(letter, _)| *letter).collect();
        opened.sort_unstable();
        assert_eq!(opened, (0..sender.letter_count).collect::<Vec<_>>());
        assert!(sender.unanswered.is_empty());
    }
    let counts = post.shim.counts();
    assert!(counts.conserved(), "{counts:?}");
    // The shim's counts against the nodes' own, so that neither is believed for its own sake.
    let letters: u64 = post.senders.iter().map(|sender| sender.sent).sum();
    let received: u64 = post
        .receivers
        .iter()
        .map(|receiver| receiver.received)
        .sum();
    let answered: u64 = post
        .senders
        .iter()
        .map(|sender| sender.acknowledgements)
        .sum();
    assert_eq!(
        counts.offered,
        letters + received,
        "each letter received is acknowledged"
    );
    assert_eq!(counts.admitted, received + answered);
}

fn run(seed: u64, plan: &FaultPlan, queue: QueueKind) -> (Simulation<Post>, RunReport) {
    let mut simulation = post(seed, 3, 200, plan, queue);
    let report = simulation.run(NO_LIMITS);
    (simulation, report)
}

#[test]
fn on_good_roads_each_letter_is_sent_once_and_the_run_drains() {
    let (simulation, report) = run(1, &FaultPlan::none(), QueueKind::Wheel);
    assert_eq!(report.stop, StopReason::Drained);
    assert_eq!(report.pending, 0);
    assert_all_delivered(simulation.world());
    let counts = simulation.world().shim.counts();
    assert_eq!(
        (counts.offered, counts.admitted),
        (2 * 3 * 200, 2 * 3 * 200)
    );
    assert!(
        report.pending_peak <= 3 * (ON_THE_WAY_MAX + 2),
        "{}",
        report.pending_peak
    );
}

#[test]
fn on_bad_roads_each_letter_still_arrives_once_and_every_message_is_accounted_for() {
    let (simulation, report) = run(1, &FaultPlan::by_chance(bad_roads()), QueueKind::Wheel);
    assert_eq!(report.stop, StopReason::Drained);
    assert_all_delivered(simulation.world());
    let counts = simulation.world().shim.counts();
    let kinds = [
        counts.dropped,
        counts.duplicated,
        counts.delayed,
        counts.reordered,
    ];
    assert!(
        kinds.iter().all(|count| *count > 20),
        "every kind of fault struck: {counts:?}"
    );
    assert!(counts.overtakes > 20);
}

#[test]
fn one_seed_tells_one_story_on_either_queue() {
    let plan = FaultPlan::by_chance(bad_roads());
    let told = |seed, queue| run(seed, &plan, queue).1;
    let first = told(7, QueueKind::Wheel);
    assert_eq!(told(7, QueueKind::Wheel), first);
    assert_eq!(told(7, QueueKind::Heap), first);
    assert_ne!(told(8, QueueKind::Wheel).trace_hash, first.trace_hash);
}

#[test]
fn the_story_of_seed_42_is_the_same_for_ever() {
    // Pinned: order, streams, faults and trace hash all stand behind this number, in every build
    // and on every machine. If a change is meant to alter it, say so in the changelog.
    let (_, report) = run(42, &FaultPlan::by_chance(bad_roads()), QueueKind::Wheel);
    assert_eq!(report.events, 1_751);
    assert_eq!(report.trace_hash.to_string(), "d6e2c50a49d9b4f7");
}

#[test]
fn more_nodes_change_nothing_for_those_that_were_there() {
    let opened = |pairs| {
        let plan = FaultPlan::by_chance(bad_roads());
        let mut simulation = post(3, pairs, 200, &plan, QueueKind::Wheel);
        simulation.run(NO_LIMITS);
        simulation.world().receivers[0].opened.clone()
    };
    assert_eq!(opened(1), opened(9));
}

#[test]
fn a_run_in_pieces_is_the_same_run() {
    let plan = FaultPlan::by_chance(bad_roads());
    let (_, whole) = run(5, &plan, QueueKind::Wheel);
    for queue in [QueueKind::Wheel, QueueKind::Heap] {
        let mut simulation = post(5, 3, 200, &plan, queue);
        let mut horizon = SimPs::ZERO;
        let pieces = loop {
            horizon = horizon + DurationPs(777_777);
            let report = simulation.run(RunLimits::new(horizon, u64::MAX));
            if report.stop != StopReason::Horizon {
                break report;
            }
            assert_eq!(report.now, horizon);
        };
        assert_eq!(pieces, whole);
    }
}

#[test]
fn the_log_of_a_bad_day_replays_it_without_chance() {
    let (by_chance, first) = run(11, &FaultPlan::by_chance(bad_roads()), QueueKind::Wheel);
    assert_eq!(by_chance.world().shim.log_missed(), 0);
    let script = by_chance.world().shim.log().to_vec();
    let (_, again) = run(11, &FaultPlan::scripted(script.clone()), QueueKind::Wheel);
    assert_eq!(again, first);

    // One line less is another story, and the trace says where it parts.
    let shorter = script[..script.len() - 1].to_vec();
    let after = |script: &[ScriptedFault], events| {
        let plan = FaultPlan::scripted(script.to_vec());
        let limits = RunLimits::new(SimPs::MAX, events);
        post(11, 3, 200, &plan, QueueKind::Wheel)
            .run(limits)
            .trace_hash
    };
    let parted = first_divergence(first.events, |n| after(&script, n), |n| after(&shorter, n));
    let parted = parted.expect("the last fault made a difference");
    assert_eq!(after(&script, parted - 1), after(&shorter, parted - 1));
    assert!(
        parted > first.events / 2,
        "the last fault struck late: {parted} of {}",
        first.events
    );
}

#[test]
fn letters_to_a_dead_receiver_are_lost_by_name_and_repeated_until_it_is_back() {
    let node = NodeId(1);
    let window = TimeWindow::new(SimPs(20_000_000), SimPs(60_000_000));
    let outages = vec![Outage {
        node,
        kind: OutageKind::Death,
        window,
    }];
    let plan = FaultPlan {
        outages,
        ..FaultPlan::none()
    };
    let (simulation, report) = run(1, &plan, QueueKind::Wheel);
    assert_eq!(report.stop, StopReason::Drained);
    let post = simulation.world();
    assert_all_delivered(post);
    assert_eq!(post.receivers[0].restarts, 1);
    assert!(
        post.receivers[0]
            .opened
            .iter()
            .all(|(_, time)| !window.contains(*time))
    );
    // Four letters on the way, repeated every 4 us for 40 us.
    let lost = post.shim.counts().lost_at_dead_node;
    assert!((36..=44).contains(&lost), "{lost}");
    assert_eq!(post.shim.counts().timers_lost, 0);
}

#[test]
fn a_dead_sender_falls_silent() {
    let window = TimeWindow::new(SimPs(20_000_000), SimPs::MAX);
    let outages = vec![Outage {
        node: NodeId(0),
        kind: OutageKind::Death,
        window,
    }];
    let plan = FaultPlan {
        outages,
        ..FaultPlan::none()
    };
    let (simulation, report) = run(1, &plan, QueueKind::Wheel);
    assert_eq!(report.stop, StopReason::Drained);
    let post = simulation.world();
    let counts = post.shim.counts();
    assert!(counts.conserved());
    assert!((1..=4).contains(&counts.lost_at_dead_node), "{counts:?}");
    assert!(counts.timers_lost >= 1);
    let (last, time) = post.receivers[0].opened.last().unwrap();
    assert!(*last < 199 && *time < window.from + LATENCY + JITTER_MAX);
    assert_eq!(
        post.receivers[1].opened.len(),
        200,
        "the others do not notice"
    );
}

#[test]
fn a_paused_receiver_opens_its_letters_in_order_when_it_wakes() {
    let node = NodeId(1);
    let window = TimeWindow::new(SimPs(20_000_000), SimPs(22_000_000));
    let outages = vec![Outage {
        node,
        kind: OutageKind::Pause,
        window,
    }];
    let plan = FaultPlan {
        outages,
        ..FaultPlan::none()
    };
    let (simulation, _) = run(1, &plan, QueueKind::Wheel);
    let post = simulation.world();
    assert_all_delivered(post);
    let counts = post.shim.counts();
    assert_eq!(
        (counts.messages_put_off, counts.lost_at_dead_node),
        (ON_THE_WAY_MAX as u64, 0)
    );
    let opened = &post.receivers[0].opened;
    assert!(opened.is_sorted(), "neither letters nor times jump");
    let woken = opened
        .iter()
        .filter(|(_, time)| *time == window.until)
        .count();
    assert_eq!(woken, ON_THE_WAY_MAX);
    assert!(opened.iter().all(|(_, time)| !window.contains(*time)));
}

#[test]
fn put_off_events_stand_before_what_was_scheduled_after_them() {
    /// Events are numbered in the order of scheduling; those before 100 are put off to 100.
    struct Waiting {
        handled: Vec<u32>,
    }
    impl World for Waiting {
        type Event = u32;
        fn label(&self, event: &u32) -> EventLabel {
            EventLabel {
                node: NodeId(0),
                kind: 0,
                key: u64::from(*event),
            }
        }
        fn handle(&mut self, now: SimPs, event: u32, scheduler: &mut Scheduler<u32>) {
            if now < SimPs(100) {
                scheduler.put_off(SimPs(100), event);
            } else {
                self.handled.push(event);
            }
        }
    }
    let world = Waiting {
        handled: Vec::new(),
    };
    let mut simulation = Simulation::new(world, SimulationConfig::default());
    for (event, time) in [30, 20, 100, 50].into_iter().enumerate() {
        simulation.schedule(SimPs(time), MESSAGES, event as u32);
    }
    assert_eq!(simulation.run(NO_LIMITS).stop, StopReason::Drained);
    assert_eq!(simulation.world().handled, [0, 1, 2, 3]);
}

#[test]
fn runs_end_where_they_are_told_to() {
    let plan = FaultPlan::none();
    let mut simulation = post(1, 1, 200, &plan, QueueKind::Wheel);
    let report = simulation.run(RunLimits::new(SimPs(10_000_000), 1_000_000));
    assert_eq!(
        (report.stop, report.now),
        (StopReason::Horizon, SimPs(10_000_000))
    );
    let report = simulation.run(RunLimits::new(SimPs::MAX, report.events + 10));
    assert_eq!(report.stop, StopReason::EventLimit);
    let events = report.events;
    let report = simulation.run(RunLimits::new(SimPs::MAX, events));
    assert_eq!(
        (report.stop, report.events),
        (StopReason::EventLimit, events),
        "not one more"
    );
    assert_eq!(simulation.trace().count(), events);
    assert_eq!(simulation.trace().records().count(), 64);
    let last = simulation.trace().records().last().unwrap();
    assert_eq!(last.time, report.now);
}

/// A world in which each event schedules `children` more and asks to halt at event `halt_at`.
struct Chain {
    children: u32,
    halt_at: u32,
}

impl World for Chain {
    type Event = u32;

    fn label(&self, event: &u32) -> EventLabel {
        EventLabel {
            node: NodeId(0),
            kind: 0,
            key: u64::from(*event),
        }
    }

    fn handle(&mut self, _now: SimPs, event: u32, scheduler: &mut Scheduler<u32>) {
        for _ in 0..self.children {
            scheduler.after(DurationPs(1), MESSAGES, event + 1);
        }
        if event == self.halt_at {
            scheduler.note(EventLabel {
                node: NodeId(0),
                kind: 9,
                key: 0,
            });
            scheduler.halt();
        }
    }
}

#[test]
fn a_world_that_breeds_events_is_stopped_by_the_bound() {
    let config = SimulationConfig {
        pending_max: 1_000,
        ..SimulationConfig::default()
    };
    let mut simulation = Simulation::new(
        Chain {
            children: 2,
            halt_at: u32::MAX,
        },
        config,
    );
    simulation.schedule(SimPs::ZERO, MESSAGES, 0);
    let report = simulation.run(NO_LIMITS);
    assert_eq!(
        (report.stop, report.pending),
        (StopReason::PendingLimit, 1_001)
    );
    assert_eq!(report.pending_peak, 1_001);
}

#[test]
fn a_world_can_end_its_run_and_go_on_later() {
    let chain = Chain {
        children: 1,
        halt_at: 5,
    };
    let mut simulation = Simulation::new(chain, SimulationConfig::default());
    simulation.schedule(SimPs::ZERO, MESSAGES, 0);
    let report = simulation.run(NO_LIMITS);
    assert_eq!(
        (report.stop, report.events, report.now),
        (StopReason::Halted, 6, SimPs(5))
    );
    assert_eq!(simulation.trace().count(), 7, "six events and a note");
    let report = simulation.run(RunLimits::new(SimPs(9), u64::MAX));
    assert_eq!((report.stop, report.events), (StopReason::Horizon, 10));
}

#[test]
#[should_panic(expected = "before the present")]
fn the_past_cannot_be_changed() {
    let chain = Chain {
        children: 1,
        halt_at: u32::MAX,
    };
    let mut simulation = Simulation::new(chain, SimulationConfig::default());
    simulation.schedule(SimPs(10), MESSAGES, 0);
    simulation.run(RunLimits::new(SimPs(10), 1));
    simulation.schedule(SimPs(9), MESSAGES, 0);
}

fn hashes(seed: u64, plan: &FaultPlan) -> (TraceHash, TraceHash) {
    let told = |queue| {
        let (simulation, report) = run(seed, plan, queue);
        assert_eq!(report.stop, StopReason::Drained);
        assert_all_delivered(simulation.world());
        report.trace_hash
    };
    (told(QueueKind::Wheel), told(QueueKind::Heap))
}

fn profiles() -> impl Strategy<Value = FaultProfile> {
    let chance = || (0_u32..300_000).prop_map(Probability::from_ppm);
    (
        chance(),
        chance(),
        chance(),
        chance(),
        0_u64..1_000_000,
        0_u64..10_000_000,
    )
        .prop_map(
            |(drop, duplicate, delay, reorder, min, width)| FaultProfile {
                drop,
                duplicate,
                delay,
                reorder,
                shift_min: DurationPs(min),
                shift_max: DurationPs(min + width),
                active: TimeWindow::ALWAYS,
            },
        )
}

fn scripts() -> impl Strategy<Value = Vec<ScriptedFault>> {
    let action = (0_u8..4, 0_u64..2_000_000).prop_map(|(kind, shift)| match kind {
        0 => FaultAction::Drop,
        1 => FaultAction::Duplicate {
            gap: DurationPs(shift),
        },
        2 => FaultAction::Delay {
            extra: DurationPs(shift),
        },
        _ => FaultAction::Reorder {
            hold: DurationPs(shift),
        },
    });
    let window = (0_u64..50_000_000, 1_u64..5_000_000)
        .prop_map(|(from, width)| TimeWindow::new(SimPs(from), SimPs(from + width)));
    let occasion = prop_oneof![
        (0_u64..300).prop_map(Occasion::Message),
        window.prop_map(Occasion::Window)
    ];
    let fault = (0_u32..6, occasion, action).prop_map(|(link, occasion, action)| ScriptedFault {
        link: LinkId(link),
        occasion,
        action,
    });
    prop::collection::vec(fault, 0..20)
}

fn outages() -> impl Strategy<Value = Vec<Outage>> {
    let receiver_outage = (
        0_u32..3,
        any::<bool>(),
        0_u64..50_000_000,
        1_u64..10_000_000,
    )
        .prop_map(|(pair, death, from, width)| Outage {
            node: NodeId(2 * pair + 1),
            kind: if death {
                OutageKind::Death
            } else {
                OutageKind::Pause
            },
            window: TimeWindow::new(SimPs(from), SimPs(from + width)),
        });
    prop::collection::vec(receiver_outage, 0..6)
}

/// Seeds that once failed are kept and tried first.
fn config(cases: u32) -> ProptestConfig {
    let seeds = FileFailurePersistence::Direct("tests/seeds/kernel_stories.txt");
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(seeds)),
        ..Default::default()
    }
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn whatever_goes_wrong_is_counted_and_no_letter_is_lost(
        seed in any::<u64>(),
        everywhere in profiles(),
        script in scripts(),
        outages in outages(),
    ) {
        let plan = FaultPlan { everywhere, script, outages, ..FaultPlan::none() };
        let (wheel, heap) = hashes(seed, &plan);
        prop_assert_eq!(wheel, heap);
    }
}
