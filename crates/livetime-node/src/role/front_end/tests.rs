//! What a front-end hands to a peer that is gone is in its account, and so has a cause; triggers are
//! taken from when it runs.

use livetime_readout::LinkConfig;
use livetime_shm::{HugePages, PagePool, PoolConfig, RingConfig, ring};
use livetime_source::{
    ArrivalConfig, ArrivalKind, FragmentConfig, PhysicsConfig, PhysicsGenerator,
    TriggerSourceConfig,
};
use livetime_trigger::SupervisorConfig;
use livetime_wire::{ChainCounts, DurationNs, L2Mask, L2Reply, LossCounts, RateHz};

use super::*;
use crate::completion::COMPLETION_WORDS;
use crate::packet_link;
use crate::process::lost_unit::{Neighbours, settle_lost};

const PAGES: u32 = 16;
const PAGE_WORDS: u32 = 64;
const NOW: RunNs = RunNs(1);

fn ends(slot_words: usize) -> (Producer, Consumer) {
    let config = RingConfig {
        slots: 16,
        slot_words: slot_words as u32,
    };
    ring(&config).unwrap()
}

fn data_link() -> DataLink {
    let pool = PagePool::create(&PoolConfig {
        pages: PAGES,
        page_bytes: PAGE_WORDS * 4,
        huge_pages: HugePages::Never,
    });
    let config = LinkConfig {
        pages: PAGES,
        page_words: PAGE_WORDS,
        fragment_words_max: PAGE_WORDS,
        xoff_below: 4,
        xon_above: 8,
        ..LinkConfig::default()
    };
    DataLink {
        link: FragmentLink::emulated(config, pool.unwrap(), 0),
        unit: 0,
        index_at_unit: 0,
        source: SourceId(1),
        has_ended: false,
        joined_after: TriggerNumber(0),
    }
}

/// Given a readout unit that ends its side after two of five fragments, then those it never saw are
/// the front-end's, are named when the loss is settled, and the link is not held up by them.
#[test]
fn fragments_for_a_readout_unit_that_is_gone_are_lost_by_name() {
    let mut data_link = data_link();
    let (completions, taken) = ends(COMPLETION_WORDS);
    let (_pages_out, pages_back) = ends(2);
    let mut cards = Some(CardRings {
        completions,
        pages_back,
    });
    let mut taken = Some(taken);
    let mut received = 0;
    for number in 0..5_u32 {
        assert!(data_link.link.is_idle(), "fragment {number} is held up");
        data_link.link.send(NOW, |words| {
            words.clear();
            words.resize(8, number);
        });
        while pump_link(NOW, &mut data_link, &mut cards, true) > 0 {}
        if let Some(ring) = &mut taken {
            while let Ok(Some(_)) = ring.try_pop(|words| words.len()) {
                received += 1;
            }
        }
        if number == 1 {
            // The unit is gone, and nobody has said so yet.
            taken = None;
        }
    }
    let mut losses: LossCounts = data_link.link.losses();
    assert_eq!((data_link.link.handed(NOW).0, losses.total()), (5, 0));
    let mut counts = ChainCounts {
        fragments_sent: data_link.link.handed(NOW).0,
        fragments_received: received,
        fragments_dropped_by_decision: received,
        ..ChainCounts::default()
    };
    settle_lost(
        &mut counts,
        &mut losses,
        &[UnitKind::Readout],
        Neighbours::default(),
    );
    assert_eq!(counts.problems(&losses), []);
    assert_eq!((received, losses.of(LossCause::LinkAborted)), (2, 3));
}

const MS: u64 = 1_000_000;
/// How long the roles of a run have taken to start.
const STARTED: u64 = 3_000 * MS;
/// Words of the longest trigger packet.
const PACKET_WORDS: usize = 1024;

/// A front-end without data links, with a trigger every millisecond for 3.5 ms, and the other ends of
/// its rings.
fn front_end(starts_late: bool, starts_paused: bool) -> (FrontEnd, [Consumer; 2], Producer) {
    let config = packet_link::config_for(&LinkConfig::default(), PACKET_WORDS);
    let (packets, packets_out) = ends(packet_link::slot_words(&config));
    let (replies_in, replies) = ends(packet_link::slot_words(&config));
    let (accepts, accepts_out) = ends(64);
    let triggers = TriggerSourceConfig {
        arrival: ArrivalConfig {
            kind: ArrivalKind::FixedGap,
            rate: RateHz(1000.0),
        },
        duration: Some(DurationNs(3_500_000)),
        ..TriggerSourceConfig::default()
    };
    let physics = PhysicsGenerator::new(PhysicsConfig::default(), 1);
    let run = RunNumber(1);
    let front_end = FrontEnd::new(FrontEndParts {
        id: "src0".to_owned(),
        run,
        source: TriggerSource::new(&triggers, 1),
        generator: EventGenerator::Physics(Box::new(physics)),
        front_ends: None,
        encoder: PacketEncoder::new(PACKET_WORDS),
        writer: FragmentWriter::new(&FragmentConfig::default(), 1, run, &[]),
        supervisor: TriggerSupervisor::new(SupervisorConfig::default(), RunNs(0)),
        trigger: vec![TriggerPath {
            links: vec![PacketLink::for_packets(config)],
            rings: TriggerRings { packets, replies },
        }],
        data_links: Vec::new(),
        readout_units: Vec::new(),
        event_manager: ManagerPath::new(MessageSender::Ring(accepts), 1),
        faults: Vec::new(),
        spill: None,
        block: CounterBlock::new(),
        epoch: 1,
        in_step: false,
        starts_paused,
        starts_late,
    });
    (front_end, [packets_out, accepts_out], replies_in)
}

/// What it leaves: offers, refusals and triggers, and a detail by name.
fn left(front_end: FrontEnd, now: RunNs) -> ([u64; 3], impl Fn(&str) -> u64) {
    let result = Role::finish(Box::new(front_end), now);
    let chain = result.counts.chain;
    let counts = [chain.offered, chain.refused, chain.triggers];
    assert_eq!(result.dead_time.map(|(_, busy)| busy), Some(0.0));
    (counts, move |name: &str| result.details[name])
}

/// Given roles that took 3 s to start, then triggers, the duration and the pause count from when the
/// front-end runs, and nothing of the time before is dead time.
#[test]
fn triggers_are_taken_from_when_a_front_end_runs() {
    for resumed_at in [None, Some(4)] {
        let (mut front_end, _others, _replies) = front_end(true, resumed_at.is_some());
        // Twice a millisecond, to the end of the source and on.
        let steps = 0..12;
        let at = |step: u64| RunNs(STARTED + step * MS / 2);
        for step in steps {
            if resumed_at == Some(step) {
                front_end.handle_command(at(step), RoleCommand::Pause { is_on: false });
            }
            front_end.poll(at(step), Phase::Running);
        }
        let (counts, detail) = left(front_end, at(12));
        // The trigger that comes when the pause is over is taken.
        let paused = u64::from(resumed_at.is_some());
        assert_eq!(counts, [3, paused, 3 - paused]);
        assert_eq!(detail("refused_paused"), paused);
        assert_eq!(detail("paused_ms"), 2 * paused);
        assert_eq!(detail("taking_from_us"), STARTED / 1000);
        assert_eq!(detail("taking_us"), 3_500);
    }
}

/// Given a run whose start is at a certain time, then what came while its roles were started is late.
#[test]
fn a_run_with_a_certain_start_has_offers_from_there_on() {
    let (mut front_end, _others, _replies) = front_end(false, false);
    front_end.poll(RunNs(STARTED), Phase::Running);
    let (counts, detail) = left(front_end, RunNs(STARTED));
    assert_eq!(counts, [3, 3, 0]);
    assert_eq!(detail("refused_late"), 3);
    assert_eq!(
        (detail("taking_from_us"), detail("taking_us")),
        (0, STARTED / 1000)
    );
}

/// Given triggers without a decision, then a front-end that has come to the end of its run says so although
/// it still waits, so that somebody can see that nothing moves.
#[test]
fn a_front_end_that_waits_says_that_its_run_is_at_its_end() {
    let (mut front_end, _others, _replies) = front_end(true, false);
    let gauges_at = |front_end: &mut FrontEnd, step: u64| {
        front_end.poll(RunNs(STARTED + step * MS / 2), Phase::Running);
        let gauges = front_end.parts.block.read().gauges;
        (gauges.ended, gauges.idle)
    };
    for step in 0..7 {
        assert_eq!(gauges_at(&mut front_end, step), (0, 0), "{step}");
    }
    assert_eq!(gauges_at(&mut front_end, 7), (1, 0));
}

/// Given a readout unit that reads no decisions, as one that stands still, and a run that is ended by force,
/// then each accepted trigger has come to the event manager or is counted as given up.
#[test]
fn accepts_behind_decisions_that_nobody_reads_are_given_up_by_name() {
    const ACCEPTED: u64 = 20;
    let (mut front_end, [_packets, mut accepts], _replies) = front_end(false, true);
    let (decisions, _unread) = ends(64);
    front_end.parts.readout_units.push(ReadoutRings {
        cards: None,
        decisions: MessageSender::Ring(decisions),
        sequence: 0,
        is_lost: false,
    });
    for trigger in (1..=ACCEPTED).map(TriggerNumber) {
        let supervisor = &mut front_end.parts.supervisor;
        assert_eq!(supervisor.refusal(), None);
        supervisor.offer(NOW, false);
        let reply = L2Reply {
            trigger_low: trigger.low(),
            mask: L2Mask(1),
        };
        supervisor.handle_reply(NOW, &reply);
    }
    let mut told = 0;
    for phase in [Phase::Running, Phase::Aborting, Phase::Aborting] {
        front_end.poll(NOW, phase);
        while let Ok(Some(_)) = accepts.try_pop(|words| words.len()) {
            told += 1;
        }
    }
    Role::close(&mut front_end);
    front_end.poll(NOW, Phase::Aborting);
    assert!(accepts.is_empty(), "the event manager has closed its books");
    let counts = Role::finish(Box::new(front_end), NOW).counts;
    assert_eq!(counts.chain.l2_accepted, ACCEPTED);
    assert!(
        told < ACCEPTED,
        "the readout unit has room for all decisions"
    );
    assert_eq!(counts.losses.of(LossCause::EventAborted), ACCEPTED - told);
}
