//! The builder's own protocol on switching networks: what is promised must hold whatever the
//! network does to its packets. All of it is simulated.

mod deaths;
mod parts;
mod phases;
mod recovery;
mod two_step;

use std::ops::Range;

use livetime_builder::BuildMode;
use livetime_fabric::DurationPs;
use livetime_fabric::builder_network::{
    BatchCounts, BuilderNetwork, BuilderNetworkOutcome, Control, Deaths, HostModel, Placement,
    ShaperPlace, Shaping, TwoStep,
};
use livetime_fabric::network::topology::Wiring;
use livetime_fabric::network::{
    Arrival, BufferPlace, Buffering, FlowControl, Forwarding, LinkReport, Load, Pattern, Queueing,
    SizeLaw, Topology, Traffic,
};
use livetime_fabric::scenario::{ShiftOrder, Switching};
use livetime_wire::DurationNs;

const BARREL: Shaping = Shaping::BarrelShifter {
    block_bytes: 4096,
    order: ShiftOrder::ConflictFree,
};

fn load(ms: u64) -> Load {
    let sizes = SizeLaw::LogNormal {
        mean: 2048.0,
        rms: 1024.0,
    };
    Load {
        warm_up: DurationPs::from_ms(ms / 4),
        duration: DurationPs::from_ms(ms),
        ..Load::saturated(Traffic::new(Pattern::Uniform), sizes, 1)
    }
}

fn builder(shaping: Shaping) -> BuilderNetwork {
    BuilderNetwork {
        shaping,
        hosts: HostModel {
            event: DurationPs::from_us(20),
            ..HostModel::default()
        },
        ..BuilderNetwork::default()
    }
}

/// So many units that die after 100 ms.
fn dead(units: u32, dead_for: Option<DurationPs>) -> Deaths {
    Deaths {
        units,
        at: DurationPs::from_ms(100),
        dead_for,
    }
}

/// What a run gave, without its histogram.
fn brief(outcome: &BuilderNetworkOutcome) -> String {
    let mut text = format!("{outcome:?}");
    text.truncate(text.find("latency_ns").unwrap_or(text.len()));
    text
}

/// Runs it and looks at what must hold in every run.
fn run(
    plan: &BuilderNetwork,
    topology: &Topology,
    load: &Load,
    switching: &Switching,
    rails: u32,
) -> BuilderNetworkOutcome {
    let problems = plan.validate(topology, load, switching, rails);
    assert_eq!(problems, []);
    let outcome = plan.run(topology, load, switching, rails);
    assert_eq!(outcome.violations, Vec::<String>::new());
    assert!(outcome.is_conserved(), "{}", brief(&outcome));
    assert!(outcome.events_built > 100, "{}", brief(&outcome));
    assert!(!outcome.is_deadlocked(), "{}", brief(&outcome));
    assert!(outcome.efficiency_link <= 1.0, "{}", brief(&outcome));
    outcome
}

/// The mean rate of some batches, relative to that of others.
fn rate_ratio(outcome: &BuilderNetworkOutcome, later: Range<usize>, before: Range<usize>) -> f64 {
    let mean = |batches: Range<usize>| {
        let rates = &outcome.series[batches];
        rates.iter().sum::<f64>() / rates.len() as f64
    };
    mean(later) / mean(before)
}

fn buffers(flow: FlowControl, bytes: u64) -> Switching {
    Switching::Buffered(Buffering {
        forwarding: Forwarding::StoreAndForward,
        queueing: Queueing::Output,
        place: BufferPlace::Output,
        bytes,
        lanes: 1,
        flow,
    })
}

#[test]
fn builder_units_have_equal_shares_at_a_low_rate() {
    let topology = Topology::crossbar(8).unwrap();
    let load = Load {
        arrival: Arrival::Poisson {
            interval: DurationPs::from_us(200),
        },
        ..load(400)
    };
    let plan = builder(Shaping::None);
    let outcome = run(&plan, &topology, &load, &Switching::Wormhole, 1);
    assert!(outcome.fairness_builders > 0.99, "{}", brief(&outcome));
}

/// Given readout units that shift in step, when the network has no buffers, then nothing blocks and
/// the links are full but for what blocks leave free.
#[test]
fn a_barrel_shifter_fills_the_links_of_a_network_without_buffers() {
    let topology = Topology::four_layer(4).unwrap();
    let load = load(120);
    let plan = BuilderNetwork {
        credits: 48,
        ..builder(BARREL)
    };
    let shifted = run(&plan, &topology, &load, &Switching::Wormhole, 1);
    assert!(
        shifted.block_fill > 0.95 && shifted.efficiency_link > 0.9,
        "{}",
        brief(&shifted)
    );
    // A builder unit has one readout unit's turn after the other: the last fragment comes a round after
    // the first, if there is no more of others in front of it.
    let block_ns = 4096 * 8;
    let round_ns = 63 * block_ns;
    let skew = &shifted.skew_ns;
    assert_eq!(skew.len(), shifted.latency_ns.len());
    assert!(
        skew.min() > round_ns / 2 && skew.max() < shifted.latency_ns.max(),
        "{} to {}",
        skew.min(),
        skew.max()
    );
    let plain = run(
        &builder(Shaping::None),
        &topology,
        &load,
        &Switching::Wormhole,
        1,
    );
    assert!(plain.efficiency_link < 0.75, "{}", brief(&plain));
}

/// Given credits in bytes for five of the largest events, when events are of one size, then a builder
/// unit never holds more of them; and bytes set aside for less than an event are found out.
#[test]
fn credits_in_bytes_bound_what_a_builder_unit_holds() {
    let topology = Topology::crossbar(4).unwrap();
    let event = 4 * 2048;
    // A list: a size that is fixed is refused before the start where too little is set aside.
    let load = Load {
        sizes: SizeLaw::Trace(vec![2048]),
        ..load(40)
    };
    let switching = buffers(FlowControl::Credits, 64 << 10);
    for mode in [BuildMode::Pull, BuildMode::Push] {
        let plan = |event_bytes| BuilderNetwork {
            mode,
            credit_bytes: 5 * event,
            event_bytes,
            ..builder(Shaping::None)
        };
        let outcome = run(&plan(event), &topology, &load, &switching, 1);
        assert_eq!(outcome.held_max, 5, "{}", brief(&outcome));
        let less = plan(event / 2);
        assert_eq!(less.validate(&topology, &load, &switching, 1), []);
        let outcome = less.run(&topology, &load, &switching, 1);
        assert!(outcome.is_event_too_large);
        let violations = outcome.violations.join("\n");
        assert!(
            violations.contains("larger than `event_bytes`"),
            "{violations}"
        );
        let fixed = Load {
            sizes: SizeLaw::Fixed(2048),
            ..load.clone()
        };
        let refused = less.validate(&topology, &fixed, &switching, 1);
        assert_eq!(refused[0].path, "builder.event_bytes");
        let refused = plan(6 * event).validate(&topology, &load, &switching, 1);
        assert_eq!(refused[0].path, "builder.event_bytes");
    }
}

/// Given a schedule for other places than the units are on, when they shift, then they block each
/// other, and every event is built all the same.
#[test]
fn a_plain_order_blocks_on_a_network_that_needs_another() {
    let topology = Topology::delta(4, 3, &Wiring::Natural).unwrap();
    let plain = Shaping::BarrelShifter {
        block_bytes: 4096,
        order: ShiftOrder::Plain,
    };
    let load = load(20);
    let wrong = run(&builder(plain), &topology, &load, &Switching::Wormhole, 1);
    let right = run(&builder(BARREL), &topology, &load, &Switching::Wormhole, 1);
    assert!(
        wrong.efficiency_link < 0.7 * right.efficiency_link,
        "{} of {}",
        wrong.efficiency_link,
        right.efficiency_link
    );
}

/// Given one network, when a second like it is laid beside, then the same hosts carry nearly twice
/// as much, and no fragment is counted twice.
#[test]
fn a_second_rail_carries_as_much_again() {
    let topology = Topology::crossbar(16).unwrap();
    let plan = BuilderNetwork {
        credits: 32,
        ..builder(BARREL)
    };
    let one = run(&plan, &topology, &load(20), &Switching::Wormhole, 1);
    let two = run(&plan, &topology, &load(20), &Switching::Wormhole, 2);
    let ratio = two.throughput_per_node / one.throughput_per_node;
    assert!((1.9..=2.05).contains(&ratio), "{ratio}");
}

/// Given control messages on the other direction of the data network, or on a slow network of their
/// own, then events are built either way, and the slow one costs its share.
#[test]
fn control_messages_share_the_network_or_have_their_own() {
    let topology = Topology::delta(4, 2, &Wiring::Omega).unwrap();
    let (load, switching) = (load(20), Switching::Wormhole);
    let rate = |control| {
        let plan = BuilderNetwork {
            control,
            ..builder(BARREL)
        };
        let outcome = run(&plan, &topology, &load, &switching, 1);
        outcome.throughput_per_node
    };
    let latency = DurationPs::from_us(10);
    let shared = rate(Control::Shared {
        bits_per_s: 1_000_000_000,
        latency,
    });
    let separate = rate(Control::Separate {
        bits_per_s: 1_000_000_000,
        latency,
    });
    let slow = rate(Control::Separate {
        bits_per_s: 4_000_000,
        latency,
    });
    assert!(shared > 0.95 * separate, "{shared} {separate}");
    assert!(slow < 0.7 * separate, "{slow} {separate}");
}

/// Given hosts that are slower than the links, then the bus, the processor and the shaper in the
/// host each bound the throughput where they are the bottleneck.
#[test]
fn the_slowest_part_of_a_host_bounds_the_throughput() {
    let topology = Topology::crossbar(8).unwrap();
    let of = |shaper, hosts| {
        let plan = BuilderNetwork {
            shaper,
            hosts,
            ..builder(BARREL)
        };
        run(&plan, &topology, &load(20), &Switching::Wormhole, 1).throughput_per_node
    };
    let base = builder(BARREL).hosts;
    let free = of(ShaperPlace::Adapter, base);
    let bus = of(
        ShaperPlace::Adapter,
        HostModel {
            bus_bytes_per_s: 60_000_000,
            ..base
        },
    );
    // Blocks are not quite full.
    assert!((0.9..=1.0).contains(&(bus / 60e6)), "{bus}");
    let packet = DurationPs::from_us(16);
    let adapter = of(ShaperPlace::Adapter, HostModel { packet, ..base });
    // A block takes 32.8 us on the link and 16 us before it.
    assert!((adapter / free - 0.67).abs() < 0.03, "{adapter} of {free}");
    let messages = HostModel {
        packet,
        message: DurationPs::from_us(30),
        ..base
    };
    let host = of(ShaperPlace::Host, messages);
    assert!(host < of(ShaperPlace::Adapter, messages), "{host}");
}

/// Given switches that drop what finds no room, when fragments are lost, then they are asked for
/// again and every event is complete; with credits between switches nothing is lost at all.
#[test]
fn lost_packets_are_asked_for_again() {
    let topology = Topology::two_level(4, 4, 2, 2).unwrap();
    let plan = BuilderNetwork {
        retry: DurationNs(2_000_000),
        credits: 4,
        ..builder(Shaping::None)
    };
    let lossy = buffers(FlowControl::None, 48 << 10);
    let outcome = run(&plan, &topology, &load(60), &lossy, 1);
    assert!(outcome.packets_lost > 0, "{}", brief(&outcome));
    assert!(outcome.fragments_sent_again > 0);
    assert_eq!(outcome.events_incomplete, 0);
    let roomy = buffers(FlowControl::None, 1 << 20);
    let outcome = run(&plan, &topology, &load(20), &roomy, 1);
    assert_eq!((outcome.packets_lost, outcome.events_incomplete), (0, 0));
}

/// Given packets that come damaged, with fragments, blocks that tear fragments, phases, and control
/// messages on the same network, then what misses is asked for again and every event is complete.
#[test]
fn damaged_packets_are_asked_for_again() {
    let topology = Topology::four_layer(4).unwrap();
    let damage = 1e-3;
    let shared = Control::Shared {
        bits_per_s: 1_000_000_000,
        latency: DurationPs::from_us(10),
    };
    let phases = Shaping::LinearShift {
        phase_bytes: 4096,
        order: ShiftOrder::ConflictFree,
    };
    let credits = buffers(FlowControl::Credits, 64 << 10);
    for (shaping, control, switching) in [
        (Shaping::None, shared, &credits),
        (Shaping::None, BuilderNetwork::default().control, &credits),
        (BARREL, shared, &Switching::Wormhole),
        (
            phases,
            BuilderNetwork::default().control,
            &Switching::Wormhole,
        ),
    ] {
        let plan = BuilderNetwork {
            retry: DurationNs(8_000_000),
            packet_damage: damage,
            control,
            ..builder(shaping)
        };
        let outcome = run(&plan, &topology, &load(60), switching, 1);
        let seen = brief(&outcome);
        let packets = outcome.packets as f64;
        let few = 0.5 * damage * packets;
        assert!(outcome.packets_damaged as f64 > few, "{seen}");
        assert!(
            (outcome.packets_damaged as f64) < 1.5 * damage * (packets + outcome.messages as f64)
        );
        assert!(outcome.fragments_sent_again > 0, "{seen}");
        assert_eq!(
            (outcome.packets_lost, outcome.events_incomplete),
            (0, 0),
            "{seen}"
        );
        let whole = BuilderNetwork {
            packet_damage: 0.0,
            ..plan
        };
        let whole = run(&whole, &topology, &load(60), switching, 1);
        assert_eq!((whole.packets_damaged, whole.fragments_lost), (0, 0));
    }
}

/// Given barrel shifters and lost blocks, then the rest of a torn fragment is thrown away and the
/// whole of it asked for again.
#[test]
fn torn_fragments_are_asked_for_again() {
    let topology = Topology::two_level(4, 4, 2, 2).unwrap();
    let plan = BuilderNetwork {
        retry: DurationNs(4_000_000),
        shaping: Shaping::BarrelShifter {
            block_bytes: 1024,
            order: ShiftOrder::Plain,
        },
        ..builder(Shaping::None)
    };
    let outcome = run(
        &plan,
        &topology,
        &load(60),
        &buffers(FlowControl::None, 6 << 10),
        1,
    );
    assert!(outcome.packets_lost > 0 && outcome.fragments_lost > 0);
    assert_eq!(outcome.events_incomplete, 0);
}

/// Given triggers that come at random below what the network carries, then each is built; above
/// it, the rest is refused and nothing is lost.
#[test]
fn offered_triggers_are_built_or_refused() {
    let topology = Topology::crossbar(8).unwrap();
    let at = |khz: u64| {
        let load = Load {
            arrival: Arrival::Poisson {
                interval: DurationPs::from_ns(1_000_000 / khz),
            },
            ..load(40)
        };
        run(&builder(BARREL), &topology, &load, &Switching::Wormhole, 1)
    };
    let below = at(30);
    assert_eq!(below.refused, 0);
    assert!(
        (below.event_rate.mean / 30e3 - 1.0).abs() < 0.05,
        "{}",
        brief(&below)
    );
    let above = at(90);
    assert!(above.refused > 0);
    assert!(above.efficiency_link > 0.9, "{}", brief(&above));
}

/// Given the same scenario, then the same trace; placement, pushing and the linear shift are other
/// stories in which the same holds.
#[test]
fn every_discipline_tells_one_story_and_keeps_its_promises() {
    let topology = Topology::crossbar(8).unwrap();
    let linear = Shaping::LinearShift {
        phase_bytes: 16 << 10,
        order: ShiftOrder::ConflictFree,
    };
    let mut hashes = Vec::new();
    for shaping in [Shaping::None, BARREL, linear] {
        for mode in [BuildMode::Pull, BuildMode::Push] {
            let plan = BuilderNetwork {
                mode,
                placement: Placement::Random,
                readout_units: 7,
                builder_units: 6,
                ..builder(shaping)
            };
            let first = run(&plan, &topology, &load(10), &Switching::Wormhole, 1);
            let again = run(&plan, &topology, &load(10), &Switching::Wormhole, 1);
            assert_eq!(first.trace_hash, again.trace_hash, "{shaping:?} {mode:?}");
            assert!(
                first.efficiency_link > 0.3,
                "{shaping:?} {mode:?} {}",
                brief(&first)
            );
            hashes.push(first.trace_hash.to_string());
        }
    }
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), 6, "each is a story of its own");
}

/// Builders that cannot be are refused before the start, with the key.
#[test]
fn a_builder_that_does_not_fit_is_refused_with_its_key() {
    let topology = Topology::crossbar(8).unwrap();
    let path = |change: fn(&mut BuilderNetwork)| {
        let mut plan = builder(BARREL);
        change(&mut plan);
        let problems = plan.validate(&topology, &load(1), &Switching::Wormhole, 1);
        problems
            .first()
            .map(|problem| (problem.code.code, problem.path.clone()))
    };
    let found = |code, key: &str| Some((code, key.to_owned()));
    assert_eq!(path(|_| {}), None);
    assert_eq!(
        path(|p| p.builder_units = 9),
        found("F0208", "builder.builder_units")
    );
    assert_eq!(path(|p| p.sick.slow = 8), found("F0208", "builder.slow"));
    let readouts = path(|p| p.sick.readouts = dead(8, None));
    assert_eq!(readouts, found("F0208", "builder.dead_readouts"));
    let with_short = [
        (
            path(|p| p.sick.builders = dead(1, Some(DurationPs::from_ms(4)))),
            "builder.dead_for",
        ),
        (
            path(|p| p.sick.readouts = dead(1, Some(DurationPs::from_ms(4)))),
            "builder.dead_readouts_for",
        ),
        (
            path(|p| p.sick.manager = dead(1, Some(DurationPs::from_ms(4)))),
            "builder.dead_manager_for",
        ),
    ];
    for (refused, key) in with_short {
        assert_eq!(refused, found("F0208", key));
    }
    let late = path(|p| p.sick.manager = dead(1, Some(DurationPs::from_ms(5))));
    assert_eq!(late, found("F0208", "builder.dead_manager_at"));
    let damage = found("F0208", "builder.packet_damage");
    assert_eq!(path(|p| p.packet_damage = 0.6), damage);
    assert_eq!(path(|p| p.packet_damage = f64::NAN), damage);
    assert_eq!(
        path(|p| p.placement = Placement::Interleaved { slot_ports: 3 }),
        found("F0208", "builder.slot_ports")
    );
    // Neither has an effect.
    for slots in [
        path(|p| p.placement = Placement::Interleaved { slot_ports: 1 }),
        path(|p| p.placement = Placement::Interleaved { slot_ports: 8 }),
    ] {
        assert_eq!(slots, found("F0208", "builder.placement"));
    }
    assert_eq!(
        path(|p| p.placement = Placement::Interleaved { slot_ports: 4 }),
        None
    );
    assert_eq!(
        path(|p| {
            p.shaping = Shaping::BarrelShifter {
                block_bytes: 8,
                order: ShiftOrder::ConflictFree,
            };
        }),
        found("F0208", "builder.block")
    );
    fn steps(first_units: u32) -> Option<TwoStep> {
        let accept = 0.5;
        Some(TwoStep {
            first_units,
            accept,
        })
    }
    assert_eq!(path(|p| p.two_step = steps(7)), None);
    let all_first = path(|p| p.two_step = steps(8));
    assert_eq!(all_first, found("B0115", "builder.first_step"));
    let pushed = path(|p| (p.two_step, p.mode) = (steps(1), BuildMode::Push));
    assert_eq!(pushed, found("B0115", "builder.first_step"));
    assert_eq!(
        path(|p| p.credits = 0).map(|p| p.1),
        Some("builder.credits".to_owned())
    );
}

#[test]
fn one_readout_unit_reaches_its_point_to_point_rate_with_one_builder_unit() {
    let topology = Topology::crossbar(1).unwrap();
    let us = DurationPs::from_us;
    let quick = HostModel {
        message: DurationPs::from_ns(100),
        event: DurationPs::ZERO,
        ..HostModel::default()
    };
    let per_packet = HostModel {
        packet: us(2),
        ..quick
    };
    let bus = HostModel {
        bus_bytes_per_s: 80_000_000,
        ..quick
    };
    let fragments = HostModel {
        fragment: us(30),
        ..quick
    };
    for (hosts, shaping, rails, bound) in [
        (quick, Shaping::None, 1, 0.97),
        (per_packet, Shaping::None, 1, 0.87),
        (per_packet, BARREL, 1, 0.93),
        (bus, Shaping::None, 1, 0.64),
        (fragments, Shaping::None, 1, 0.55),
        (fragments, Shaping::None, 2, 0.28),
    ] {
        let plan = BuilderNetwork {
            hosts,
            credits: 256,
            queue: 256,
            ..builder(shaping)
        };
        let load = Load {
            sizes: SizeLaw::Fixed(2048),
            overhead_bytes: 64,
            ..load(40)
        };
        let expected = plan.point_to_point(&load, rails);
        assert!((expected - bound).abs() < 0.01, "{expected} {bound}");
        let found = run(&plan, &topology, &load, &Switching::Wormhole, rails).efficiency_link;
        assert!((found / expected - 1.0).abs() < 0.02, "{found} {expected}");
    }
}

/// Given buffers that overflow and triggers at random, when a run counts from its start, then its
/// batches add up to its totals, and the buffers of each network say how full they became.
#[test]
fn batches_add_up_and_buffers_say_how_full_they_were() {
    let topology = Topology::crossbar(8).unwrap();
    let plan = BuilderNetwork {
        retry: DurationNs(2 * DurationNs::MILLISECOND.0),
        queue: 8,
        ..builder(Shaping::None)
    };
    let offered = Load {
        arrival: Arrival::Poisson {
            interval: DurationPs::from_us(140),
        },
        warm_up: DurationPs::ZERO,
        duration: DurationPs::from_ms(64),
        counts_links: true,
        ..load(64)
    };
    let bytes = 48 << 10;
    let found = run(
        &plan,
        &topology,
        &offered,
        &buffers(FlowControl::None, bytes),
        2,
    );
    let sum = |of: fn(&BatchCounts) -> u64| found.batches.iter().map(of).sum::<u64>();
    assert_eq!(sum(|batch| batch.offered), found.triggers + found.refused);
    assert_eq!(sum(|batch| batch.refused), found.refused);
    assert_eq!(sum(|batch| batch.built), found.events_built);
    assert_eq!(sum(|batch| batch.fragments), found.fragments_delivered);
    assert_eq!(sum(|batch| batch.packets), found.packets);
    assert_eq!(sum(|batch| batch.packets_lost), found.packets_lost);
    assert_eq!(found.links.len(), 2);
    let fullest = |links: &LinkReport| {
        let levels = links.buffers.iter().map(|buffer| buffer.max_bytes);
        levels.max().unwrap()
    };
    for links in &found.links {
        assert!((1..=bytes).contains(&fullest(links)), "{}", fullest(links));
    }
    let not_asked = Load {
        counts_links: false,
        ..offered
    };
    let again = run(
        &plan,
        &topology,
        &not_asked,
        &buffers(FlowControl::None, bytes),
        2,
    );
    assert_eq!(again.links, []);
    assert_eq!(again.trace_hash, found.trace_hash);
}
