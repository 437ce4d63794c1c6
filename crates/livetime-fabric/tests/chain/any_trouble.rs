//! Chains of any shape in any trouble: whatever comes together, everything is accounted for, the
//! file is whole, and the same configuration does the same again.

use livetime_builder::BuildMode;
use livetime_fabric::chain::{LineTiming, LinkOutage};
use livetime_fabric::{
    DurationPs, FaultPlan, FaultProfile, NodeId, Outage, OutageKind, Probability, QueueKind, SimPs,
    SimulatedChainConfig, TimeWindow,
};
use livetime_readout::LinkConfig;
use livetime_source::{ArrivalKind, OfferMode};
use livetime_wire::{ByteSize, DurationNs, RateHz, RunNs, RunNumber};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::story::{default_menu, menu_one_in, stored_events, tell};

/// Failing inputs are kept here and tried first.
const SEEDS: &str = "tests/seeds/any_trouble.txt";

/// What the chain is made of.
#[derive(Debug, Clone)]
struct Shape {
    links: u16,
    readout_units: u16,
    builder_units: u16,
    filter_units: u16,
    l2_buffers: u8,
    credits: u32,
    evm_queue: u32,
    filter_in_flight: u32,
    page_words: u32,
    pages: u32,
    acknowledge_depth: u32,
    front_end_events: usize,
    prescale: u32,
    rate_hz: u32,
    is_lossless: bool,
    fragment_bytes: u64,
}

/// How long things take, in microseconds.
#[derive(Debug, Clone)]
struct Slowness {
    decision: u64,
    page: u64,
    builder: u64,
    filter: u64,
    write: u64,
    hop: u64,
    line_mb_per_s: u64,
}

/// What goes wrong.
#[derive(Debug, Clone)]
struct Trouble {
    percent: [u32; 4],
    shift_max_us: u64,
    /// Link, from, for how long [us].
    outages: Vec<(u16, u64, u64)>,
    /// Node, from, for how long [us].
    pauses: Vec<(u32, u64, u64)>,
    disk_bytes: Option<u64>,
    force_end_us: Option<u64>,
    decision_timeout_us: u64,
    builder_timeout_ms: u64,
}

prop_compose! {
    fn shape()(
        readout_units in 1..4_u16,
        links_more in 0..5_u16,
        builder_units in 1..4_u16,
        filter_units in 1..3_u16,
        l2_buffers in 1..5_u8,
        credits in 1..9_u32,
        evm_queue in 1..20_u32,
        filter_in_flight in 1..5_u32,
        page_words in prop::sample::select(vec![128_u32, 256, 1024]),
        pages_more in 0..100_u32,
        acknowledge_depth in 2..16_u32,
        front_end_events in 1..9_usize,
        prescale in 0..6_u32,
        rate_hz in 1_000..200_000_u32,
        is_lossless: bool,
        fragment_bytes in 160..1_500_u64,
    ) -> Shape {
        Shape {
            links: readout_units + links_more,
            readout_units,
            builder_units,
            filter_units,
            l2_buffers,
            credits,
            evm_queue,
            filter_in_flight,
            page_words,
            pages: 60 + pages_more,
            acknowledge_depth,
            front_end_events,
            prescale,
            rate_hz,
            is_lossless,
            fragment_bytes,
        }
    }
}

prop_compose! {
    fn slowness()(
        decision in 0..60_u64,
        page in 0..10_u64,
        builder in 0..30_u64,
        filter in 0..300_u64,
        write in 0..100_u64,
        hop in 0..20_u64,
        line_mb_per_s in 10..2_000_u64,
    ) -> Slowness {
        Slowness { decision, page, builder, filter, write, hop, line_mb_per_s }
    }
}

prop_compose! {
    fn trouble()(
        percent in prop::array::uniform4(0..12_u32),
        is_faulty: bool,
        shift_max_us in 1..3_000_u64,
        outages in prop::collection::vec((any::<u16>(), 0..4_000_u64, 1..3_000_u64), 0..3),
        pauses in prop::collection::vec((any::<u32>(), 0..4_000_u64, 1..20_000_u64), 0..3),
        disk_bytes in prop::option::weighted(0.2, 20_000..200_000_u64),
        force_end_us in prop::option::weighted(0.3, 0..6_000_u64),
        decision_timeout_us in 500..5_000_u64,
        builder_timeout_ms in 2..30_u64,
    ) -> Trouble {
        let percent = if is_faulty { percent } else { [0; 4] };
        Trouble {
            percent,
            shift_max_us,
            outages,
            pauses,
            disk_bytes,
            force_end_us,
            decision_timeout_us,
            builder_timeout_ms,
        }
    }
}

/// A chain of this shape, healthy.
fn chain(shape: &Shape, slowness: &Slowness, seed: u64) -> SimulatedChainConfig {
    let menu = match shape.prescale {
        0 => default_menu(),
        prescale => menu_one_in(prescale),
    };
    let mut config =
        SimulatedChainConfig::new(RunNumber(3), shape.links, shape.readout_units, menu);
    config.seed = seed;
    config.horizon = RunNs(5_000_000_000);
    config.source.seed = seed;
    config.source.fragment.bytes_mean = ByteSize(shape.fragment_bytes);
    config.source.fragment.bytes_max = ByteSize(12_288.min(u64::from(shape.page_words) * 64));
    let triggers = &mut config.source.triggers;
    triggers.arrival.rate = RateHz(shape.rate_hz.into());
    triggers.triggers_max = Some(150);
    triggers.duration = Some(DurationNs(1_000_000_000));
    if shape.is_lossless {
        triggers.mode = OfferMode::Lossless;
        triggers.arrival.kind = ArrivalKind::Unpaced;
    }
    config.supervisor.l2_buffers = shape.l2_buffers;
    config.builder.builder_units = shape.builder_units;
    config.builder.filter_units = shape.filter_units;
    config.builder.credits = shape.credits;
    if shape.credits.is_multiple_of(2) {
        config.builder.mode = BuildMode::Push;
    }
    config.builder.evm_queue = shape.evm_queue;
    config.builder.filter_in_flight = shape.filter_in_flight;
    // As small as is allowed.
    config.builder.trigger_window = u32::from(shape.builder_units) * shape.credits
        + shape.evm_queue
        + livetime_builder::builder_config::TRIGGERS_UNDECIDED;
    config.builder.history = 1024;
    for link in &mut config.data_links {
        link.link = LinkConfig {
            page_words: shape.page_words,
            pages: shape.pages,
            acknowledge_depth: shape.acknowledge_depth,
            xoff_below: 20,
            xon_above: 30,
            fragment_words_max: 16 * shape.page_words,
            ..LinkConfig::default()
        };
    }
    let us = DurationPs::from_us;
    config.timing.front_end_events = shape.front_end_events;
    config.timing.service.decision = us(slowness.decision);
    config.timing.service.page = us(slowness.page);
    config.timing.service.builder_message = us(slowness.builder);
    config.timing.service.filter = us(slowness.filter);
    config.timing.service.write = us(slowness.write);
    config.timing.hop.latency = us(slowness.hop);
    config.timing.hop.jitter_max = us(slowness.hop);
    config.timing.data_line = LineTiming {
        bytes_per_s: slowness.line_mb_per_s * 1_000_000,
        latency: DurationPs::from_ns(50),
        burst_words: 32,
    };
    config
}

/// Adds the trouble to a healthy chain.
fn troubled(mut config: SimulatedChainConfig, trouble: &Trouble) -> SimulatedChainConfig {
    let at = |us: u64| RunNs(us * 1_000);
    config.supervisor.decision_timeout = DurationNs(trouble.decision_timeout_us * 1_000);
    config.builder.timeout = DurationNs(trouble.builder_timeout_ms * 1_000_000);
    config.builder.retry = DurationNs(1_000_000);
    config.builder.probe = DurationNs(5_000_000);
    config.disk_bytes_max = trouble.disk_bytes;
    config.store.chunk_bytes = 8 << 10;
    config.force_end_at = trouble.force_end_us.map(at);
    // Outages of one link come one after the other.
    let mut next = 0;
    for (link, from, length) in &trouble.outages {
        let from = next + from;
        next = from + length;
        config.link_outages.push(LinkOutage {
            link: usize::from(*link) % config.data_links.len(),
            from: at(from),
            until: at(next),
        });
    }
    let nodes = config.layout().node_count() as u32;
    let pause = |(node, from, length): &(u32, u64, u64)| Outage {
        node: NodeId(node % nodes),
        kind: OutageKind::Pause,
        window: TimeWindow::new(
            SimPs::from_run_ns(at(*from)),
            SimPs::from_run_ns(at(from + length)),
        ),
    };
    let [drop, duplicate, delay, reorder] = trouble
        .percent
        .map(|percent| Probability::from_ppm(percent * 10_000));
    config.faults = FaultPlan {
        outages: trouble.pauses.iter().map(pause).collect(),
        log_max: 0,
        ..FaultPlan::by_chance(FaultProfile {
            drop,
            duplicate,
            delay,
            reorder,
            shift_min: DurationPs(1),
            shift_max: DurationPs::from_us(trouble.shift_max_us),
            active: TimeWindow::ALWAYS,
        })
    };
    config
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        max_shrink_iters: 200,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(SEEDS))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_chain_in_any_trouble_accounts_for_everything(
        shape in shape(),
        slowness in slowness(),
        trouble in trouble(),
        seed: u64,
    ) {
        let config = troubled(chain(&shape, &slowness, seed), &trouble);
        prop_assert_eq!(config.validate(), []);
        let outcome = tell(&config);
        let was_forced = trouble.force_end_us.is_some();
        prop_assert!(outcome.is_drained || was_forced, "stuck: {:?}", outcome.counts);
        if outcome.is_drained {
            prop_assert!(outcome.faults.conserved());
        }
        if outcome.file_summary.is_some() {
            stored_events(&config, &outcome);
        }
        if shape.is_lossless {
            prop_assert_eq!(outcome.counts.refused, 0);
        }

        let mut on_heap = config;
        on_heap.kernel.queue = QueueKind::Heap;
        let again = tell(&on_heap);
        prop_assert_eq!(again.trace_hash, outcome.trace_hash);
        prop_assert_eq!(again.counts, outcome.counts);
    }

    /// Without trouble nothing is lost, however slow the parts are and however small the queues.
    #[test]
    fn any_healthy_chain_loses_nothing(
        shape in shape(),
        slowness in slowness(),
        seed: u64,
    ) {
        let config = chain(&shape, &slowness, seed);
        prop_assert_eq!(config.validate(), []);
        let outcome = tell(&config);
        prop_assert!(outcome.is_drained, "stuck: {:?}", outcome.counts);
        prop_assert_eq!(outcome.losses.total() + outcome.counts.events_incomplete, 0);
        prop_assert_eq!(outcome.counts.events_stored, outcome.counts.l2_accepted);
        stored_events(&config, &outcome);
    }
}
