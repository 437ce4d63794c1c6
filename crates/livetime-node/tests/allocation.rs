//! Nothing is allocated after start: a whole chain on threads, and the cores that a chain drives,
//! under a counting allocator.
//!
//! Verified: in windows of a chain that takes data at full rate, and in the steady state of the
//! receiving end of a link and of Level 2, the process allocates, grows and frees nothing. Progress
//! is checked between windows, where the look at the counters may allocate. Not verified: starting,
//! stopping, closing the file, the control plane, and roles in processes of their own, which run the
//! same code.
#![expect(clippy::unwrap_used, reason = "a failed test may panic")]

use std::alloc::System;
use std::time::{Duration, Instant};

use livetime_builder::{
    AcceptLog, AcceptedTrigger, BuilderConfig, EventManager, Handled, ShapingConfig, ShapingPace,
};
use livetime_node::link::LinkTransport;
use livetime_node::{
    BuilderTransport, Chain, ChainConfig, DataLinkConfig, FilterConfig, RunFile, WorkerConfig,
};
use livetime_readout::{
    Assembled, AssemblerConfig, FragmentAssembler, FragmentBuffer, FragmentBufferConfig, HeapPages,
    LineSlice, LinkConfig, PageLink, Receiver,
};
use livetime_shm::WaitStrategy;
use livetime_source::{
    ArrivalConfig, ArrivalKind, FragmentConfig, OfferMode, PayloadKind, SourceConfig,
    TriggerSourceConfig,
};
use livetime_store::{FilePlan, RunBegin, WriterLimits};
use livetime_trigger::{
    Cut, FirstStepConfig, LevelTwo, MassWindowConfig, Menu, MenuConfig, MergerConfig, PathConfig,
};
use livetime_wire::fragment::{CrcCheck, FragmentHeader, OVERHEAD_WORDS};
use livetime_wire::message::{BuilderMessage, Envelope};
use livetime_wire::slink::ControlWord;
use livetime_wire::trigger_packet::{SvtTrack, TriggerPacket, TriggerPacketView};
use livetime_wire::{
    ByteSize, DurationNs, L2Mask, RunNs, RunNumber, SourceId, TriggerNumber, UnitId,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const RUN: RunNumber = RunNumber(1);
const LINKS: u32 = 4;
const READOUT_UNITS: u16 = 2;
/// Length of one window.
const WINDOW: Duration = Duration::from_millis(50);
/// Least windows in which nothing is allocated, in a row, and decisions and events that pass.
const WINDOWS: u32 = 8;
const DECISIONS_MIN: u64 = 2_000;
const EVENTS_MIN: u64 = 200;
/// A chain that does not move in this time is stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// Calls of the allocator so far, by kind.
fn calls() -> [usize; 3] {
    let Stats {
        allocations,
        reallocations,
        deallocations,
        ..
    } = ALLOCATOR.stats();
    [allocations, reallocations, deallocations]
}

/// One test, so that no other one allocates meanwhile; the chains come first, since the harness
/// still allocates while it starts the test.
#[test]
fn nothing_is_allocated_after_start() {
    the_allocator_is_counted();
    let discarding = |limits| RunFile::discarding(&RunBegin::new(RUN), limits).unwrap();
    chain(
        "generated events, every event kept",
        generated(),
        discarding,
    );
    chain("objects, filtered by mass", filtered(), discarding);
    let mut streamed = generated();
    streamed.filter_transport = BuilderTransport::Tcp { congestion: None };
    chain("events over TCP to filter units", streamed, discarding);
    let mut in_datagrams = generated();
    in_datagrams.transport = BuilderTransport::Udp {
        receive_buffer_bytes: 0,
    };
    chain("fragments over UDP", in_datagrams.clone(), discarding);
    let clocked = ShapingPace::Clock {
        step: DurationNs(20_000),
    };
    in_datagrams.builder.shaping = Some(ShapingConfig {
        pace: clocked,
        ..ShapingConfig::default()
    });
    chain("blocks over UDP, by a clock", in_datagrams, discarding);
    let mut in_blocks = generated();
    in_blocks.transport = BuilderTransport::Tcp { congestion: None };
    in_blocks.builder.shaping = Some(ShapingConfig {
        block_bytes: 4096,
        ..ShapingConfig::default()
    });
    chain(
        "blocks over TCP, by back-pressure",
        in_blocks.clone(),
        discarding,
    );
    in_blocks.builder.shaping = Some(ShapingConfig {
        block_bytes: 4096,
        pace: ShapingPace::BARRIER,
        ..ShapingConfig::default()
    });
    chain("phases over TCP", in_blocks, discarding);
    receiving_end();
    level_two();
    remembered_accepts();
}

/// The control: what is allocated is seen.
fn the_allocator_is_counted() {
    let before = calls();
    let mut grown = vec![0u8; 16];
    grown.resize(1 << 16, 1);
    drop(std::hint::black_box(grown));
    let after = calls();
    for (before, after) in before.iter().zip(after) {
        assert!(after > *before, "a call was not counted");
    }
}

/// Runs a chain in windows, in none of which anything may be allocated.
fn chain(what: &str, config: ChainConfig, file: impl Fn(WriterLimits) -> RunFile) {
    let cores = livetime_shm::allowed_cpus();
    let problems = config.validate(&cores, "link", |link| format!("link[{link}]"));
    assert_eq!(problems, [], "{what}");
    let chain = Chain::start(&config, file(config.store)).unwrap();
    let end = Instant::now() + PATIENCE;
    // Every part has worked before the first window opens.
    wait_for(&chain, end, 2 * DECISIONS_MIN, 2 * EVENTS_MIN);
    let mut windows = 0;
    loop {
        let counts = chain.snapshot().counts();
        let decided = counts.l2_accepted + counts.l2_rejected;
        let have_passed = decided > 3 * DECISIONS_MIN && counts.events_built > 3 * EVENTS_MIN;
        if windows >= WINDOWS && have_passed {
            break;
        }
        let before = calls();
        // The length of a measurement, not a wait for something to happen.
        std::thread::sleep(WINDOW);
        assert_eq!(
            calls(),
            before,
            "{what}: allocations, reallocations, deallocations in window {windows}"
        );
        windows += 1;
        wait_for(&chain, end, decided + 1, counts.events_built + 1);
    }
    chain.stop();
    while !chain.is_drained() {
        assert!(Instant::now() < end, "{what}: no end");
        std::thread::sleep(Duration::from_millis(1));
    }
    let outcome = chain.finish();
    assert!(outcome.conservation_problems().is_empty(), "{what}");
    println!(
        "{what}: {} triggers, {} events built, {} stored; nothing allocated in {windows} windows",
        outcome.counts.triggers, outcome.counts.events_built, outcome.counts.events_stored
    );
}

/// Waits for counts to be reached; looks and therefore allocates.
fn wait_for(chain: &Chain, end: Instant, decisions: u64, events: u64) {
    loop {
        let counts = chain.snapshot().counts();
        if counts.l2_accepted + counts.l2_rejected >= decisions && counts.events_built >= events {
            return;
        }
        assert!(Instant::now() < end, "no progress: {counts:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Two readout units of two links each, fragments of many sizes, and triggers without pace.
fn generated() -> ChainConfig {
    let sources: Vec<SourceId> = (0..LINKS).map(|link| SourceId(0x51_0000 + link)).collect();
    let unit_of = |link: usize| link as u16 % READOUT_UNITS;
    let readout_units = (0..READOUT_UNITS).map(|unit| {
        let of_unit = sources.iter().enumerate();
        let of_unit = of_unit.filter(|(link, _)| unit_of(*link) == unit);
        of_unit.map(|(_, source)| *source).collect()
    });
    let source = SourceConfig {
        triggers: TriggerSourceConfig {
            arrival: ArrivalConfig {
                kind: ArrivalKind::Unpaced,
                ..ArrivalConfig::default()
            },
            mode: OfferMode::Lossless,
            duration: None,
            ..TriggerSourceConfig::default()
        },
        fragment: FragmentConfig {
            bytes_mean: ByteSize(1024),
            log_sigma: 0.5,
            payload: PayloadKind::Prefilled,
            ..FragmentConfig::default()
        },
        data_links: sources.clone(),
        ..SourceConfig::default()
    };
    let data_links = sources.iter().enumerate();
    let data_links = data_links.map(|(link, source)| DataLinkConfig {
        source: *source,
        unit: unit_of(link),
        link: LinkConfig::default(),
        transport: LinkTransport::Emulated,
    });
    let mut config = ChainConfig {
        run: RUN,
        data_links: data_links.collect(),
        recorded: None,
        front_ends: None,
        trigger_link: LinkConfig {
            pages: 256,
            ..LinkConfig::default()
        },
        trigger_nodes: 1,
        merger: MergerConfig::NONE,
        menu: menu(),
        supervisor: Default::default(),
        builder: BuilderConfig {
            readout_units: readout_units.collect(),
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
        source,
    };
    config.workers = workers(&config);
    config
}

/// Fragments that hold the physics objects, and a filter that computes a mass of them.
fn filtered() -> ChainConfig {
    let mut config = generated();
    config.source.fragment.payload = FragmentConfig::default().payload;
    config.filter = FilterConfig::MassWindow(MassWindowConfig::default());
    config
}

/// The default menu, and a path that keeps a quarter of everything.
fn menu() -> Menu {
    let mut config = MenuConfig::default();
    config.paths.push(PathConfig {
        name: "ONE_IN_FOUR".to_owned(),
        bit: 127,
        l1_mask: 1,
        cut: Cut::Auto,
        prescale: 4.into(),
    });
    Menu::new_checked(config, "trigger").unwrap()
}

fn workers(config: &ChainConfig) -> Vec<WorkerConfig> {
    let (source, others): (Vec<String>, Vec<String>) = config
        .role_ids()
        .into_iter()
        .partition(|id| id.starts_with("src"));
    let worker = |name: &str, roles| WorkerConfig {
        name: name.to_owned(),
        core: None,
        wait: WaitStrategy::Adaptive,
        roles,
    };
    vec![worker("source", source), worker("units", others)]
}

/// Words of a link to fragments on file and back to free pages.
fn receiving_end() {
    const SOURCE: SourceId = SourceId(1);
    let config = LinkConfig::default();
    let mut pages = HeapPages::new(0, config.pages, config.page_words);
    let mut assembler = FragmentAssembler::new(AssemblerConfig {
        run: RUN,
        pool: 0,
        page_words: config.page_words,
        sources: vec![SOURCE],
        crc: CrcCheck::On,
    });
    let mut receiver = Receiver::new(config, 0);
    let mut buffer = FragmentBuffer::new(FragmentBufferConfig::default(), &[SOURCE]);
    let mut words = vec![0; 3000 + OVERHEAD_WORDS];
    let mut before = calls();
    for trigger in 1..=2000u64 {
        // Every size up to three pages; the numbers wrap, so that old triggers are met again.
        let data_words = (trigger * 37 % 3000) as usize;
        let fragment = &mut words[..data_words + OVERHEAD_WORDS];
        let header = FragmentHeader {
            source: SOURCE,
            run: RUN,
            trigger_low: TriggerNumber(trigger).low(),
            bunch: 0,
            trigger_type: 0,
            event_type: 0,
        };
        header.emit(0, data_words, fragment, |data| data.fill(trigger as u32));
        for slice in [
            LineSlice::Control(ControlWord::BEGIN_FRAGMENT),
            LineSlice::Data(fragment),
            LineSlice::Control(ControlWord::END_FRAGMENT),
        ] {
            assert_eq!(
                receiver.handle_line(RunNs(trigger), slice, &mut pages),
                slice.words()
            );
        }
        while let Some(completed) = receiver.poll() {
            match assembler.handle_completed(&completed, &pages) {
                Assembled::MoreToCome => {}
                Assembled::Fragment { trigger, fragment } => {
                    buffer.insert(trigger, fragment).unwrap();
                }
                Assembled::Refused { why, .. } => panic!("{why:?}"),
            }
        }
        if let Some(old) = trigger.checked_sub(20) {
            buffer.remove(TriggerNumber(old), |fragment| {
                let recycled = fragment.pages.iter().map(|page| receiver.recycle(*page));
                recycled.for_each(Result::unwrap);
            });
        }
        if trigger == 100 {
            before = calls();
        }
    }
    assert_eq!(calls(), before, "the receiving end of a link allocates");
}

/// Accepts that the supervisor remembers until the event manager says that they are finished, as in a
/// run with processes.
fn remembered_accepts() {
    const IN_FLIGHT: u64 = 16;
    let (supervisor, builder) = (UnitId::SUPERVISOR, UnitId::builder(0));
    let config = BuilderConfig {
        builder_units: 1,
        ..BuilderConfig::default()
    };
    let mut log = AcceptLog::new(&config);
    let mut manager = EventManager::new(&config, 1);
    manager.report_closed();
    let mut say = |log: &mut AcceptLog, sender, sequence, message| {
        let envelope = Envelope {
            sender,
            epoch: 1,
            sequence,
            message,
        };
        let handled = manager.handle_message(RunNs(1), &envelope);
        assert_eq!(handled, Handled::Taken);
        while let Some(assigned) = manager.poll_output(RunNs(1)) {
            std::hint::black_box(assigned);
        }
        std::iter::from_fn(|| manager.poll_closed()).for_each(|closed| log.close(closed));
        log.len()
    };
    let credits = config.credits;
    say(
        &mut log,
        builder,
        0,
        BuilderMessage::EventRequest { credits },
    );
    let mut before = calls();
    for number in 1..=20_000 {
        if number == 1_000 {
            before = calls();
        }
        let trigger = TriggerNumber(number);
        let accepted = AcceptedTrigger {
            trigger,
            mask: L2Mask(1),
            triggered_at: RunNs(number),
        };
        assert!(log.add(accepted));
        let accept = BuilderMessage::L2Accept {
            trigger,
            mask: accepted.mask,
            triggered_at: accepted.triggered_at,
        };
        say(&mut log, supervisor, number as u32, accept);
        if let Some(built) = number.checked_sub(IN_FLIGHT).filter(|built| *built > 0) {
            let triggers = [TriggerNumber(built)].into_iter().collect();
            let clear = BuilderMessage::Clear { triggers };
            let open = say(&mut log, builder, number as u32, clear);
            assert_eq!(open as u64, IN_FLIGHT);
        }
    }
    assert_eq!(calls(), before, "remembering accepts allocates");
}

/// Decisions on packets with tracks.
fn level_two() {
    let mut level_two = LevelTwo::new(&menu());
    let tracks = (0..12).map(|n| SvtTrack([n * 300, n * 0x0101_0101]));
    let packet = TriggerPacket {
        l1_bits: u64::MAX,
        svt: tracks.collect(),
        ..TriggerPacket::default()
    };
    let mut words = Vec::new();
    packet.emit(&mut words);
    let view = TriggerPacketView::new_checked(&words).unwrap();
    level_two.decide(&view);
    let before = calls();
    for _ in 0..10_000 {
        std::hint::black_box(level_two.decide(&view));
    }
    assert_eq!(calls(), before, "Level 2 allocates");
}
