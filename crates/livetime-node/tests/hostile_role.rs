//! A role that writes nonsense into all its rings: the others refuse it, count it, and live.
//!
//! Every role of a small chain is replaced in turn by one that sends random words, damaged messages
//! and well-formed messages about events, links and pages that there are not, and that returns pages
//! of the pools at random. What the others make of it is theirs; here nobody panics, nothing that
//! was not built reaches the file twice, and the run can still be ended. Runs with another seed:
//! `LIVETIME_SEED=77 cargo test`.
#![expect(clippy::unwrap_used, reason = "a failed test may panic")]

use std::collections::{BTreeMap, BTreeSet};

use livetime_builder::BuilderConfig;
use livetime_node::chain_plan::{ChainPlan, Channel, RingKey, role_of};
use livetime_node::completion::{COMPLETION_WORDS, Completion};
use livetime_node::counter_block::CounterBlock;
use livetime_node::link::LinkTransport;
use livetime_node::role::Role;
use livetime_node::role_ends::{FIRST_EPOCH, RoleEnds};
use livetime_node::run_clock::RunClock;
use livetime_node::run_file::ClosingFile;
use livetime_node::worker::Phase;
use livetime_node::{BuilderTransport, ChainConfig, DataLinkConfig, FilterConfig, RunFile};
use livetime_readout::{BlockEnd, Completed, LinkConfig};
use livetime_shm::{PageIndex, PagePool, Producer, ring};
use livetime_source::{ArrivalConfig, ArrivalKind, OfferMode, SourceConfig, TriggerSourceConfig};
use livetime_store::{Condition, FilePlan, RunBegin, RunEnd, RunReader, WriterLimits};
use livetime_trigger::{Cut, FirstStepConfig, Menu, MenuConfig, MergerConfig, PathConfig};
use livetime_wire::fragment::{FragmentHeader, OVERHEAD_WORDS};
use livetime_wire::message::{AcceptedEvent, BuilderMessage, Envelope, FragmentDescriptor, Keep};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{L2Mask, LossCause, RunNs, RunNumber, SourceId, TriggerNumber, UnitId};

const RUN: RunNumber = RunNumber(1);
const ROUNDS: u64 = 3_000;
/// Time between two rounds: all timeouts strike within the test.
const STEP_NS: u64 = 1_000_000;

/// Numbers that look random and are the same everywhere.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z ^ (z >> 27)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// A number that may well be one in use, or is far away.
    fn small_or_any(&mut self) -> u64 {
        match self.below(4) {
            0 => self.next(),
            _ => self.below(200),
        }
    }
}

fn config() -> ChainConfig {
    let sources: Vec<SourceId> = (0..4).map(SourceId).collect();
    let mut menu = MenuConfig::default();
    menu.paths.push(PathConfig {
        name: "ALL".to_owned(),
        bit: 127,
        l1_mask: 1,
        cut: Cut::Auto,
        prescale: 1.into(),
    });
    let mut config = ChainConfig {
        run: RUN,
        source: SourceConfig {
            triggers: TriggerSourceConfig {
                arrival: ArrivalConfig {
                    kind: ArrivalKind::Unpaced,
                    ..ArrivalConfig::default()
                },
                mode: OfferMode::Lossless,
                duration: None,
                ..TriggerSourceConfig::default()
            },
            data_links: sources.clone(),
            ..SourceConfig::default()
        },
        recorded: None,
        front_ends: None,
        trigger_link: LinkConfig::default(),
        data_links: (sources.iter())
            .map(|source| DataLinkConfig {
                source: *source,
                unit: (source.0 % 2) as u16,
                link: LinkConfig::default(),
                transport: LinkTransport::Emulated,
            })
            .collect(),
        trigger_nodes: 1,
        merger: MergerConfig::NONE,
        menu: Menu::new_checked(menu, "trigger").unwrap(),
        supervisor: Default::default(),
        builder: BuilderConfig {
            readout_units: vec![
                vec![SourceId(0), SourceId(2)],
                vec![SourceId(1), SourceId(3)],
            ],
            filter_units: 2,
            ..BuilderConfig::default()
        },
        transport: BuilderTransport::Shm,
        event_manager_apart: false,
        readout_apart: Vec::new(),
        filter_transport: BuilderTransport::Shm,
        filter: FilterConfig::AcceptAll,
        first_step: FirstStepConfig::default(),
        store: WriterLimits::default(),
        files: FilePlan::default(),
        packets: None,
        workers: Vec::new(),
        faults: Vec::new(),
        spill: None,
    };
    config.workers = config.default_workers(2);
    config
}

/// Whether the supervisor remembers accepts until they are finished, as in a run with processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accepts {
    Remembered,
    Forgotten,
}

/// A chain in which one role is nobody's: its producers and pools are the test's.
struct Chain {
    roles: Vec<Box<dyn Role>>,
    rings: BTreeMap<RingKey, Producer>,
    pools: Vec<PagePool>,
    counters: Vec<std::sync::Arc<CounterBlock>>,
}

fn chain_without(evil: &str, config: &ChainConfig, file: RunFile, accepts: Accepts) -> Chain {
    let plan = ChainPlan::new(config);
    let clock = RunClock::start();
    let mut ends: BTreeMap<String, RoleEnds> = (plan.roles.iter())
        .map(|id| {
            (
                id.clone(),
                RoleEnds::new(id, CounterBlock::new(), clock.clone()),
            )
        })
        .collect();
    for planned in &plan.pools {
        let pool = PagePool::create(&planned.config).unwrap();
        for role in &planned.roles {
            let pools = &mut ends.get_mut(role).unwrap().pools;
            pools.insert(planned.key, pool.clone());
        }
    }
    for planned in &plan.rings {
        let (producer, consumer) = ring(&planned.config).unwrap();
        let from = ends.get_mut(&role_of(planned.key.from)).unwrap();
        from.producers.insert(planned.key, producer);
        let to = ends.get_mut(&role_of(planned.key.to)).unwrap();
        to.consumers.insert(planned.key, consumer);
    }
    let mut nobody = ends.remove(evil).unwrap();
    let counters = ends.values().map(|ends| ends.block.clone()).collect();
    let mut file = Some(file);
    let roles = (plan.roles.iter())
        .filter_map(|id| ends.remove(id))
        .map(|mut ends| {
            ends.remembers_accepts = accepts == Accepts::Remembered;
            let file = file.take_if(|_| ends.id == "wr0");
            ends.into_role(config, file).unwrap()
        })
        .collect();
    Chain {
        roles,
        rings: std::mem::take(&mut nobody.producers),
        pools: nobody.pools.into_values().collect(),
        counters,
    }
}

fn triggers(noise: &mut Noise) -> livetime_wire::message::TriggerList {
    let count = noise.below(5);
    (0..count)
        .map(|_| TriggerNumber(noise.small_or_any()))
        .collect()
}

fn message(noise: &mut Noise) -> BuilderMessage {
    let trigger = TriggerNumber(noise.small_or_any());
    let count = noise.below(4);
    let pages = (0..count).map(|_| noise.small_or_any() as u32).collect();
    let at = RunNs(noise.small_or_any());
    match noise.below(10) {
        0 => BuilderMessage::Decision {
            trigger,
            keep: Keep::Build,
        },
        1 => BuilderMessage::L2Accept {
            trigger,
            mask: L2Mask(1),
            triggered_at: at,
        },
        2 => BuilderMessage::EventRequest {
            credits: noise.small_or_any() as u32,
        },
        3 => BuilderMessage::Assignment {
            trigger,
            mask: L2Mask(1),
            triggered_at: at,
            assigned_at: at,
            builder_epoch: FIRST_EPOCH,
        },
        4 => BuilderMessage::FragmentRequest {
            triggers: triggers(noise),
        },
        5 => BuilderMessage::FragmentData {
            trigger,
            fragment: FragmentDescriptor {
                source: SourceId(noise.below(6) as u32),
                pool: noise.below(3) as u16,
                words: noise.small_or_any() as u32,
                status: FragmentStatus(noise.next() as u32),
                crc: noise.next() as u32,
                pages,
            },
        },
        6 => BuilderMessage::Release {
            triggers: triggers(noise),
        },
        7 => BuilderMessage::Clear {
            triggers: triggers(noise),
        },
        8 => BuilderMessage::EventsAccepted {
            events: (triggers(noise).into_iter())
                .map(|trigger| AcceptedEvent {
                    trigger,
                    reason: noise.next() as u16,
                    streams: noise.next() as u16,
                })
                .collect(),
        },
        _ => BuilderMessage::EventDone {
            triggers: triggers(noise),
        },
    }
}

/// An acknowledge entry of a page with so many words.
fn entry(noise: &mut Noise, len_words: u32) -> [u32; COMPLETION_WORDS] {
    Completion {
        link: noise.below(4) as u16,
        completed: Completed {
            page: noise.small_or_any() as u32,
            len_words,
            status: FragmentStatus([0, noise.next() as u32][noise.below(2) as usize]),
            begin: None,
            end: None,
            block_end: [BlockEnd::EndWord, BlockEnd::MoreToCome][noise.below(2) as usize],
        },
    }
    .to_words()
}

/// Words for a ring: well-formed, damaged, or nothing at all like it.
fn words(noise: &mut Noise, key: RingKey, sequence: u32) -> Vec<u32> {
    let mut words = match key.channel {
        Channel::Messages => Envelope {
            sender: key.from,
            epoch: FIRST_EPOCH,
            sequence,
            message: message(noise),
        }
        .to_words()
        .to_vec(),
        Channel::Completions => {
            let len_words = noise.small_or_any() as u32;
            entry(noise, len_words).to_vec()
        }
        Channel::Packets => {
            let count = noise.below(20);
            let packet = (0..count).map(|_| noise.small_or_any() as u32);
            let packet: Vec<u32> = packet.collect();
            let mut words = entry(noise, count as u32).to_vec();
            words.extend(packet);
            words
        }
        Channel::PagesBack | Channel::Written | Channel::Tickets => {
            let count = noise.below(20);
            (0..count).map(|_| noise.small_or_any() as u32).collect()
        }
    };
    match noise.below(8) {
        0 => {
            let count = noise.below(12);
            words = (0..count).map(|_| noise.next() as u32).collect();
        }
        1 if !words.is_empty() => {
            let at = noise.below(words.len() as u64) as usize;
            words[at] ^= 1 << noise.below(32);
        }
        2 => words.truncate(noise.below(1 + words.len() as u64) as usize),
        _ => {}
    }
    words
}

fn hostile(evil: &str, seed: u64, accepts: Accepts) {
    let config = config();
    let folder =
        std::env::temp_dir().join(format!("livetime-hostile-{}-{evil}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("events.mcap");
    let file = RunFile::create(&path, &RunBegin::new(RUN), config.store).unwrap();
    let mut chain = chain_without(evil, &config, file, accepts);
    let mut noise = Noise(seed);
    let mut sent = 0_u32;
    let mut now = RunNs(0);
    for _ in 0..ROUNDS {
        now = RunNs(now.0 + STEP_NS);
        for (key, ring) in &mut chain.rings {
            if noise.below(3) == 0 {
                // A full ring is as good as a read one.
                sent += u32::from(ring.try_push(&words(&mut noise, *key, sent)).is_ok());
            }
        }
        if let Some(pool) = chain.pools.first().filter(|_| noise.below(4) == 0) {
            // Pages that are not filled, or being read, are refused.
            let _refused = pool.release(PageIndex(noise.small_or_any() as u32));
        }
        for role in &mut chain.roles {
            role.poll(now, Phase::Running);
        }
    }
    assert!(sent > 100, "{evil} wrote {sent} messages");
    for phase in [Phase::Draining, Phase::Aborting] {
        for _ in 0..200 {
            now = RunNs(now.0 + STEP_NS);
            chain.roles.iter_mut().for_each(|role| {
                role.poll(now, phase);
            });
        }
    }
    for _ in 0..2 {
        chain.roles.iter_mut().for_each(|role| role.close());
        chain.roles.iter_mut().for_each(|role| {
            role.poll(now, Phase::Aborting);
        });
    }
    let activity: u64 = chain
        .counters
        .iter()
        .map(|b| b.read().gauges.received)
        .sum();
    println!("{evil}: {sent} messages of nonsense, {activity} events went around");
    let files = chain
        .roles
        .into_iter()
        .filter_map(|role| role.finish(now).run_file);
    for file in files {
        let ClosingFile::Here(file) = file else {
            panic!("it was written here")
        };
        let end = RunEnd::new(RUN, Condition::ABORTED, "test", now.0);
        file.close(&end, &[]).unwrap();
    }
    let mut reader = RunReader::open(std::fs::File::open(&path).unwrap()).unwrap();
    let mut stored = BTreeSet::new();
    while let Some(event) = reader.next_event().unwrap() {
        let is_new = stored.insert(event.header().trigger);
        // A builder unit can hand an event over twice: a writer takes its word for it. An event manager
        // can have it built twice: one of two builder units then gets none of its fragments.
        let is_hollow = event.missing().len() == config.data_links.len();
        let may_repeat = evil.starts_with("bu") || (evil == "evm" && is_hollow);
        assert!(is_new || may_repeat, "stored twice");
    }
    assert!(reader.damage().entries().is_empty());
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Given a fragment with the number of a trigger that was never given, then its readout unit holds it as
/// long as the run goes on, is through without it once no more triggers come, and loses it by name.
#[test]
fn a_fragment_of_no_trigger_holds_up_no_drain_and_is_lost_by_name() {
    let config = config();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.mcap");
    let file = RunFile::create(&path, &RunBegin::new(RUN), config.store).unwrap();
    let mut chain = chain_without("src0", &config, file, Accepts::Forgotten);
    let header = FragmentHeader {
        source: SourceId(0),
        run: RUN,
        trigger_low: 7,
        bunch: 0,
        trigger_type: 0,
        event_type: 0,
    };
    let len_words = 3 + OVERHEAD_WORDS;
    let mut page = chain.pools[0].write(PageIndex(0)).unwrap();
    header.emit(0, 3, &mut page[..len_words], |data| data.fill(5));
    page.finish();
    let completed = Completed {
        page: 0,
        len_words: len_words as u32,
        status: FragmentStatus::GOOD,
        begin: None,
        end: None,
        block_end: BlockEnd::EndWord,
    };
    let of_unit =
        |key: &RingKey| key.channel == Channel::Completions && key.to == UnitId::readout(0);
    let mut rings = chain.rings.iter_mut();
    let (_, ring) = rings.find(|(key, _)| of_unit(key)).unwrap();
    let entry = Completion { link: 0, completed }.to_words();
    assert!(ring.try_push(&entry).is_ok());
    let mut role = chain
        .roles
        .into_iter()
        .find(|role| role.id() == "ru0")
        .unwrap();
    let mut gauges_in = |phase| {
        (0..10).for_each(|step| {
            role.poll(RunNs(step), phase);
        });
        let of_unit = chain.counters.iter().map(|block| block.read());
        let mut of_unit = of_unit.filter(|counts| counts.chain.fragments_received == 1);
        of_unit.next().unwrap().gauges
    };
    let running = gauges_in(Phase::Running);
    assert_eq!((running.idle, running.held), (0, 1));
    let draining = gauges_in(Phase::Draining);
    assert_eq!((draining.idle, draining.held), (1, 1));
    let counts = role.finish(RunNs(20)).counts;
    assert_eq!(counts.losses.of(LossCause::FragmentMalformed), 1);
    assert_eq!((counts.losses.total(), counts.gauges.held), (1, 0));
}

#[test]
fn nonsense_of_any_role_is_survived_by_the_others() {
    let seed = std::env::var("LIVETIME_SEED").ok();
    let seed = seed.map_or(2026, |seed| seed.parse().unwrap());
    println!("seed {seed}");
    for evil in config().role_ids() {
        hostile(&evil, seed, Accepts::Forgotten);
        if evil == "src0" || evil == "evm" {
            hostile(&evil, seed, Accepts::Remembered);
        }
    }
}
