//! What a run of the chain depends on: its seeds and its configuration, and in lossless mode the
//! decisions on the events alone.

use livetime_builder::BuildMode;
use livetime_fabric::chain::{FilterChoice, LineTiming};
use livetime_fabric::{
    DurationPs, FaultPlan, FaultProfile, Probability, QueueKind, SimulatedChainConfig,
    SimulatedOutcome,
};
use livetime_source::{
    EventGenerator, PacketEncoder, PacketHeader, PhysicsGenerator, RecordedEvents, SourceEvent,
};
use livetime_trigger::{LevelTwo, LevelTwoNode, MassWindowConfig};
use livetime_wire::{DecisionDigest, RunNs, TriggerNumber, UnitId};

use crate::story::{default_menu, lossless, ms, small_chain, stored_events, tell_in_order};

const TRIGGERS: u64 = 4_000;

fn physics_chain() -> SimulatedChainConfig {
    let mut config = lossless(small_chain(default_menu(), 1.0, 1), TRIGGERS);
    config.filter = FilterChoice::MassWindow(MassWindowConfig::default());
    config
}

/// A timed chain with faults of every kind, on which much depends.
fn eventful_chain() -> SimulatedChainConfig {
    let mut config = small_chain(default_menu(), 30_000.0, 40);
    config.supervisor.decision_timeout = ms(1);
    config.builder.retry = ms(1);
    config.builder.probe = ms(4);
    let chance = Probability::from_ppm(20_000);
    config.faults = FaultPlan::by_chance(FaultProfile {
        drop: chance,
        duplicate: chance,
        delay: chance,
        reorder: chance,
        shift_max: DurationPs::from_us(40),
        ..FaultProfile::HEALTHY
    });
    config
}

/// What the decisions must be: the generator's events through the menu, one after the other,
/// without links, buffers or time.
fn decisions_alone(config: &SimulatedChainConfig) -> (DecisionDigest, Vec<TriggerNumber>) {
    let generator = match &config.recorded {
        Some(recorded) => EventGenerator::Recorded(recorded.clone()),
        None => EventGenerator::Physics(Box::new(PhysicsGenerator::new(
            config.source.physics.clone(),
            config.source.seed,
        ))),
    };
    let mut encoder = PacketEncoder::new(config.source.packet_words_max);
    let mut node = LevelTwoNode::new(LevelTwo::new(&config.menu), config.run());
    let (mut event, mut words) = (SourceEvent::new(), Vec::new());
    let (mut digest, mut accepted) = (DecisionDigest::default(), Vec::new());
    for index in 0..TRIGGERS {
        let trigger = TriggerNumber(index + 1);
        generator.event(index, &mut event);
        let header = PacketHeader {
            trigger,
            l2_buffer: 0,
            bunch: 0,
            run: config.run(),
            lumi_section: 0,
            triggered_at: RunNs(0),
            index,
        };
        encoder.encode(&event, &header, &mut words);
        let mask = node.handle_packet(&words).unwrap().reply.mask;
        digest.add(trigger, mask);
        if mask.is_accept() {
            accepted.push(trigger);
        }
    }
    (digest, accepted)
}

fn essence(outcome: &SimulatedOutcome) -> (DecisionDigest, Vec<TriggerNumber>) {
    (outcome.digest, outcome.stored_triggers.clone())
}

/// Given chains of different lines, hops, hosts, units and pages, when the same events come in
/// lossless mode, then decisions and stored events are the same, and those of the menu alone.
#[test]
fn lossless_decisions_do_not_depend_on_time() {
    type Change = fn(&mut SimulatedChainConfig);
    let changes: [(&str, Change); 10] = [
        ("as it is", |_| {}),
        ("other jitter", |c| c.seed = 99),
        ("slow lines", |c| {
            c.timing.data_line.bytes_per_s = 20_000_000
        }),
        ("no time at all", |c| {
            c.timing.data_line = LineTiming::INSTANT;
            c.timing.trigger_line = LineTiming::INSTANT;
            c.timing.hop.jitter_max = DurationPs::ZERO;
            c.timing.service.decision = DurationPs::ZERO;
            c.timing.service.reply = DurationPs::ZERO;
        }),
        ("long decisions", |c| {
            c.timing.service.decision = DurationPs::from_us(90)
        }),
        ("slow filter", |c| {
            c.timing.service.filter = DurationPs::from_ms(1)
        }),
        ("one Level-2 buffer, one credit", |c| {
            c.supervisor.l2_buffers = 1;
            c.builder.credits = 1;
        }),
        ("pushed", |c| c.builder.mode = BuildMode::Push),
        ("pushed, room for two events", |c| {
            c.builder.mode = BuildMode::Push;
            c.builder.event_bytes = 64 << 10;
            c.builder.credit_bytes = 128 << 10;
            c.builder.requests_per_message = 3;
        }),
        ("three of all units, one slow", |c| {
            c.builder.builder_units = 3;
            c.builder.filter_units = 3;
            c.timing.slow_units.insert(UnitId::builder(1), 30);
        }),
    ];
    let (digest, accepted) = decisions_alone(&physics_chain());
    let mut first: Option<SimulatedOutcome> = None;
    for (name, change) in changes {
        let mut config = physics_chain();
        change(&mut config);
        let outcome = tell_in_order(&config);
        assert_eq!(outcome.digest, digest, "{name}");
        assert_eq!(outcome.counts.l2_accepted, accepted.len() as u64, "{name}");
        assert_eq!(
            (outcome.counts.triggers, outcome.counts.refused),
            (TRIGGERS, 0),
            "{name}"
        );
        assert_eq!(outcome.losses.total(), 0, "{name}");
        assert!(
            outcome
                .stored_triggers
                .iter()
                .all(|t| accepted.binary_search(t).is_ok())
        );
        stored_events(&config, &outcome);
        let first = first.get_or_insert_with(|| outcome.clone());
        assert_eq!(essence(&outcome), essence(first), "{name}");
        assert_eq!(
            outcome.trace_hash == first.trace_hash,
            name == "as it is",
            "{name}"
        );
    }
    assert!(first.is_some_and(|outcome| outcome.stored_triggers.len() > 50));
}

/// Given another seed of the source, when all else is equal, then decisions differ.
#[test]
fn other_events_give_other_decisions() {
    let mut config = physics_chain();
    config.source.seed = 2;
    let outcome = tell_in_order(&config);
    assert_eq!(outcome.digest, decisions_alone(&config).0);
    assert_ne!(outcome.digest, decisions_alone(&physics_chain()).0);
}

/// Given recorded events, when there are more triggers than events, then they repeat, and decisions
/// are those of the menu on the recorded events.
#[test]
fn recorded_events_are_decided_as_they_are() {
    let table = "Run,Event,pt1,eta1,phi1,Q1,dxy1,iso1,pt2,eta2,phi2,Q2,dxy2,iso2\n\
                 165617,74601703,54.7055,-0.4324,2.5742,1,-0.0745,0.4999,34.2464,-0.9885,-0.4987,-1,0.0712,3.4221\n\
                 165617,75100943,24.5872,-2.0522,2.8666,-1,-0.0554,0.0,28.5389,0.3852,-1.9912,1,0.0515,0.0\n\
                 165617,75587682,31.7386,-2.2595,-1.3323,-1,0.0879,0.0,30.2344,-0.4684,1.8833,1,-0.0876,0.0\n";
    let mut config = physics_chain();
    config.recorded = Some(RecordedEvents::read(table.as_bytes()).unwrap());
    let outcome = tell_in_order(&config);
    let (digest, accepted) = decisions_alone(&config);
    assert_eq!(outcome.digest, digest);
    assert_eq!(outcome.counts.l2_accepted, accepted.len() as u64);
    assert!(outcome.counts.events_stored > 1_000, "{:?}", outcome.counts);
}

/// Given one configuration, when it is run twice, on either queue, then everything is the same,
/// down to the bytes of the file; with another seed of time, or of events, the story is another.
#[test]
fn equal_seeds_tell_equal_stories_on_either_queue() {
    let config = eventful_chain();
    let first = tell_in_order(&config);
    assert!(first.faults.dropped > 40 && first.counts.refused > 0);
    let mut on_heap = config.clone();
    on_heap.kernel.queue = QueueKind::Heap;
    for again in [tell_in_order(&config), tell_in_order(&on_heap)] {
        assert_eq!(again.trace_hash, first.trace_hash);
        assert_eq!(again.events_simulated, first.events_simulated);
        assert_eq!((again.counts, again.losses), (first.counts, first.losses));
        assert_eq!(essence(&again), essence(&first));
        assert!(again.run_file == first.run_file, "the file's bytes");
        assert_eq!(again.dead_time, first.dead_time);
    }
    let mut other_time = config.clone();
    other_time.seed += 1;
    let mut other_events = config;
    other_events.source.seed += 1;
    let others = [tell_in_order(&other_time), tell_in_order(&other_events)];
    assert_ne!(others[0].trace_hash, first.trace_hash);
    assert_ne!(others[1].trace_hash, first.trace_hash);
    assert_ne!(others[0].trace_hash, others[1].trace_hash);
}

/// Given the faults that chance brought, when they are replayed as a script without chance, then
/// the same happens: the bad luck of a seed can be cut down by hand.
#[test]
fn the_bad_luck_of_a_seed_can_be_replayed_without_it() {
    let config = eventful_chain();
    let first = tell_in_order(&config);
    assert!(
        first.fault_log.len() < config.faults.log_max,
        "the log is complete"
    );
    let replay = SimulatedChainConfig {
        faults: FaultPlan::scripted(first.fault_log.clone()),
        ..config
    };
    let again = tell_in_order(&replay);
    assert_eq!(again.trace_hash, first.trace_hash);
    assert_eq!(again.faults, first.faults);
}

/// Given a run that was traced, when it is over, then the last records tell its end.
#[test]
fn the_last_records_of_the_trace_are_kept_when_asked_for() {
    let mut config = eventful_chain();
    config.kernel.trace_ring = 50;
    let outcome = tell_in_order(&config);
    assert_eq!(outcome.trace.len(), 50);
    assert!(outcome.trace.is_sorted_by_key(|record| record.time));
}
