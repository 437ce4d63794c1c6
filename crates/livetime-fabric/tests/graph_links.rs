//! Links of a graph with rates and delays of their own: single packets against times worked out by
//! hand, and what slow and long links carry. All of it is simulated.

use proptest::prelude::*;

use livetime_fabric::builder_network::{BuilderNetwork, HostModel};
use livetime_fabric::network::topology::Graph;
use livetime_fabric::network::{
    Arrival, BufferPlace, Buffering, FlowControl, Forwarding, LinkUse, Load, Matching,
    NetworkOutcome, Pattern, Queueing, SizeLaw, Topology, Traffic, buffered, wormhole,
};
use livetime_fabric::scenario::Switching;
use livetime_fabric::{DurationPs, QueueKind};

const FLOWS: [FlowControl; 3] = [
    FlowControl::Credits,
    FlowControl::None,
    FlowControl::StopGo {
        stop: 4_000,
        go: 2_000,
    },
];

/// Buffers of inputs, with cut-through and credits.
const BASE: Buffering = Buffering {
    forwarding: Forwarding::CutThrough,
    queueing: Queueing::InputFifo,
    place: BufferPlace::Input,
    bytes: 10_000,
    lanes: 1,
    flow: FlowControl::Credits,
};

fn topology(graph: &str) -> Topology {
    Topology::graph(&Graph::parse(graph).expect("it is a graph")).expect("it can be built")
}

/// Nodes of 1 Gb/s with packets of one size that come always, for so many times of a packet.
fn saturated(bytes: u32, times: u64) -> Load {
    let traffic = Traffic::new(Pattern::Uniform);
    Load {
        counts_links: true,
        ..Load::saturated(traffic, SizeLaw::Fixed(bytes), times)
    }
}

fn run(topology: &Topology, load: &Load, switching: &Switching) -> NetworkOutcome {
    let outcome = match switching {
        Switching::Wormhole => wormhole::run(topology, load),
        Switching::Buffered(buffering) => {
            assert_eq!(buffering.problems(1, topology), []);
            buffered::run(topology, load, buffering)
        }
    };
    assert!(outcome.is_conserved(), "{switching:?}");
    assert!(outcome.packets > 20, "{switching:?}");
    outcome
}

/// Latency of packets that are alone in the network, nanoseconds.
fn alone_ns(graph: &str, switching: Switching) -> u64 {
    let load = Load {
        arrival: Arrival::Fixed {
            interval: DurationPs::from_us(10),
        },
        hop_delay: DurationPs::from_ns(10),
        duration: DurationPs::from_ms(1),
        ..saturated(50, 1)
    };
    let outcome = run(&topology(graph), &load, &switching);
    assert_eq!(outcome.packets_lost, 0);
    let latency = outcome.latency_ns;
    // The histogram tells all times apart up to 2048 ns, and even ones up to 4096 ns.
    let least = latency.min();
    assert!(latency.max() <= least + 1, "{least} to {}", latency.max());
    least
}

fn with_buffers(forwarding: Forwarding, flow: FlowControl) -> Switching {
    Switching::Buffered(Buffering {
        forwarding,
        flow,
        ..BASE
    })
}

/// From a source over two switches to a destination, 50 B and 10 ns for each hop. A packet takes
/// 400 ns on a node's link; the source's cable is 30 ns long and the destination's 20 ns.
#[test]
fn a_single_packet_comes_when_rates_and_delays_say() {
    let cases = [
        // 400 Mb/s: 1000 ns, and 100 ns of cable.
        // Wormhole: the header needs 30 to the first switch, 10 + 100 to the second one and 10 + 20
        // to the destination, and the packet streams behind it at the slowest rate: 170 + 1000.
        // Cut-through: at the first switch at 10 + 30, sent at once into the slower link; whole at
        // the second one at 40 + 1000 + 10 + 100 = 1150, since it would outrun itself on the faster
        // link behind it; there at 1150 + 400 + 10 + 20.
        // Store and forward: whole at 400 + 40 = 440, at 440 + 1000 + 110 = 1550, at 1550 + 430.
        ("rate=400Mb/s delay=100ns", [1170, 1580, 1980]),
        // 10 Gb/s: 40 ns, and 100 ns of cable.
        // Wormhole: 170 as above, and 400 at the rate of the nodes.
        // Cut-through: whole at the first switch at 400 + 40 = 440 for the faster link; at the second
        // one at 440 + 110 = 550, and on at once into the slower link: 550 + 430.
        // Store and forward: 440, then 440 + 40 + 110 = 590, then 590 + 430.
        ("delay=100ns rate=10Gb/s", [570, 980, 1020]),
        // The rate of the nodes, and 1000 ns of cable: 30 + 1010 + 30 + 400; 40 + 1010 + 430;
        // 440 + 400 + 1010 + 430.
        ("delay=1us", [1470, 1480, 2280]),
        ("1 delay=1us", [1470, 1480, 2280]),
    ];
    for (link, [held, cut, stored]) in cases {
        let graph = format!(
            "switch a\nswitch b\nsource s a delay=30ns\ndestination d b delay=20ns\nlink a b {link}\n"
        );
        assert_eq!(alone_ns(&graph, Switching::Wormhole), held, "{link}");
        for flow in FLOWS {
            let through = with_buffers(Forwarding::CutThrough, flow);
            assert_eq!(alone_ns(&graph, through), cut, "{link} {flow:?}");
            let whole = with_buffers(Forwarding::StoreAndForward, flow);
            assert_eq!(alone_ns(&graph, whole), stored, "{link} {flow:?}");
        }
    }
}

/// The destination's link is the slow one: 200 Mb/s, 2000 ns for 50 B, and no cable.
#[test]
fn a_slow_node_sets_the_pace_of_its_packets() {
    let graph = "switch a\nsource s a\ndestination d a rate=200Mb/s\n";
    // Wormhole: the header needs 10 to the destination, the packet 2000 behind it.
    assert_eq!(alone_ns(graph, Switching::Wormhole), 2_010);
    // Cut-through: 10 to the switch, on at once, 2000 + 10.
    let through = with_buffers(Forwarding::CutThrough, FlowControl::Credits);
    assert_eq!(alone_ns(graph, through), 2_020);
    // Store and forward: 400 + 10, and 2000 + 10.
    let whole = with_buffers(Forwarding::StoreAndForward, FlowControl::Credits);
    assert_eq!(alone_ns(graph, whole), 2_420);
}

/// A rate that is a multiple of a node's is the multiple: everything happens as with the speed.
#[test]
fn a_rate_of_four_nodes_is_a_speed_of_four() {
    let graph = |trunk: &str| {
        let mut text = "switch a\nswitch b\n".to_owned();
        for n in 0..4 {
            text += &format!("node a{n} a\nnode b{n} b\n");
        }
        topology(&format!("{text}link a b {trunk}\n"))
    };
    let (speed, rate) = (graph("4"), graph("rate=4Gb/s"));
    assert!(rate.has_cables() && !speed.has_cables());
    let load = saturated(2048, 500);
    let queues = [
        Queueing::InputFifo,
        Queueing::VirtualOutput,
        Queueing::Matched(Matching::Slip { iterations: 2 }),
        Queueing::Output,
        Queueing::Crosspoint { bytes: 4_096 },
        Queueing::Combined {
            speedup_thousandths: 1_500,
            output_bytes: 8_192,
            matching: None,
        },
    ];
    for switching in queues
        .map(|queueing| Switching::Buffered(Buffering { queueing, ..BASE }))
        .into_iter()
        .chain([Switching::Wormhole])
    {
        let outcomes = [&speed, &rate].map(|topology| run(topology, &load, &switching));
        let [speed, rate] = outcomes;
        assert_eq!(speed.trace_hash, rate.trace_hash, "{switching:?}");
        let (speed, rate) = (speed.links.unwrap(), rate.links.unwrap());
        assert_eq!(speed.buffers, rate.buffers, "{switching:?}");
        for (speed, rate) in speed.links.iter().zip(&rate.links) {
            assert_eq!(speed.bits_per_s, rate.bits_per_s);
            let times = |link: &LinkUse| (link.busy, link.blocked, link.head_of_line);
            assert_eq!(times(speed), times(rate), "{switching:?}");
        }
    }
}

/// Two sources of 1 Gb/s want to go over a link of 400 Mb/s.
#[test]
fn what_goes_over_a_slow_link_is_its_rate_in_every_mode() {
    let graph = "switch a\nswitch b\nsource s0 a\nsource s1 a\ndestination d0 b\n\
                 destination d1 b\nlink a b rate=400Mb/s\n";
    let topology = topology(graph);
    let load = saturated(500, 4_000);
    let mut modes = vec![Switching::Wormhole];
    for flow in FLOWS {
        for forwarding in [Forwarding::CutThrough, Forwarding::StoreAndForward] {
            modes.push(with_buffers(forwarding, flow));
        }
    }
    for switching in modes {
        let outcome = run(&topology, &load, &switching);
        // Of 2 Gb/s.
        let share = outcome.efficiency_link.mean;
        assert!((share - 0.2).abs() < 0.001, "{share} {switching:?}");
        let report = outcome.links.expect("asked for");
        let slow = &report.links[2];
        assert_eq!(slow.bits_per_s, 400_000_000);
        assert!(report.share(slow.busy) > 0.999, "{slow:?}");
        // Links of destinations are used for 0.2 of the time at their own rate, but for as long as
        // the slow one where a packet holds both.
        let busy = report.share(report.links[4].busy) + report.share(report.links[5].busy);
        let expected = match switching {
            Switching::Wormhole => 1.0,
            Switching::Buffered(_) => 0.4,
        };
        assert!((busy - expected).abs() < 0.01, "{busy} {switching:?}");
        let is_lossy = matches!(
            switching,
            Switching::Buffered(Buffering {
                flow: FlowControl::None,
                ..
            })
        );
        assert_eq!(outcome.packets_lost > 0, is_lossy, "{switching:?}");
    }
}

/// One packet, 4 us long at 1 Gb/s, after the other over 10 us of cable.
fn over_ten_us(graph: &str, buffering: Buffering) -> f64 {
    let outcome = run(
        &topology(graph),
        &saturated(500, 4_000),
        &Switching::Buffered(buffering),
    );
    assert_eq!(outcome.packets_lost, 0);
    outcome.efficiency_link.mean
}

/// The head of a packet is at the far buffer after 10 us. With cut-through it goes on at once, its
/// tail leaves 4 us later, and the credit is back after 10 us more: a buffer in 24 us. Stored
/// first, in 28 us.
#[test]
fn credits_carry_a_buffer_in_a_round_trip_and_everything_with_a_buffer_of_one() {
    let trunk = "switch a\nswitch b\nsource s a\ndestination d b\nlink a b delay=10us\n";
    let host = "switch a\nsource s a delay=10us\ndestination d a\n";
    for graph in [trunk, host] {
        for (forwarding, round_trip_us) in [
            (Forwarding::CutThrough, 24),
            (Forwarding::StoreAndForward, 28),
        ] {
            for packets in 2..=8 {
                let buffering = Buffering {
                    forwarding,
                    bytes: packets * 500,
                    ..BASE
                };
                let expected = (4 * packets) as f64 / f64::from(round_trip_us);
                let found = over_ten_us(graph, buffering);
                let difference = (found - expected.min(1.0)).abs();
                assert!(difference < 0.002, "{packets} packets: {found}");
            }
        }
    }
}

/// Without flow control a packet takes its room when it comes, not when it is sent: a buffer for
/// two packets is enough for a cable that holds more, if as much leaves as comes.
#[test]
fn a_long_cable_without_flow_control_needs_no_buffer_for_what_is_on_it() {
    let small = Buffering {
        bytes: 1_000,
        flow: FlowControl::None,
        ..BASE
    };
    for place in [BufferPlace::Input, BufferPlace::Output, BufferPlace::Shared] {
        let trunk = "switch a\nswitch b\nsource s a\ndestination d b\nlink a b delay=10us\n";
        let found = over_ten_us(trunk, Buffering { place, ..small });
        assert!(found > 0.999, "{found} {place:?}");
    }
    // Twice as much comes as goes: half of it is lost at the far end.
    let graph = "switch a\nswitch b\nsource s0 a\nsource s1 a\ndestination d b\n\
                 link a b rate=2Gb/s delay=10us\n";
    let large = Buffering {
        bytes: 10_000,
        ..small
    };
    let outcome = run(
        &topology(graph),
        &saturated(500, 4_000),
        &Switching::Buffered(large),
    );
    assert!(outcome.efficiency_link.mean > 0.999);
    let lost = outcome.packets_lost as f64 / outcome.packets_offered as f64;
    assert!((lost - 0.5).abs() < 0.01, "{lost}");
}

/// What is under way when a buffer says stop comes all the same: 2 x 10 us of 2 Gb/s are 5000 B, of
/// which 2500 B leave meanwhile at 1 Gb/s. And for 20 us after go nothing comes, in which 2500 B
/// leave.
#[test]
fn stop_and_go_need_room_for_what_a_round_trip_brings_and_takes() {
    let graph = "switch a\nswitch b\nsource s0 a\nsource s1 a\ndestination d b\n\
                 link a b rate=2Gb/s delay=10us\n";
    let topology = topology(graph);
    let of = |bytes, stop, go| {
        let buffering = Buffering {
            bytes,
            flow: FlowControl::StopGo { stop, go },
            ..BASE
        };
        let switching = Switching::Buffered(buffering);
        run(&topology, &saturated(500, 8_000), &switching)
    };
    let enough = of(10_000, 5_000, 3_500);
    assert_eq!(enough.packets_lost, 0);
    assert!(enough.efficiency_link.mean > 0.999, "{enough:?}");
    let short = of(6_000, 5_000, 3_500);
    assert!(short.packets_lost > 0);
    // It runs dry: 1000 B are left at go, and 20 us pass before more comes.
    let late = of(10_000, 5_000, 1_000);
    assert_eq!(late.packets_lost, 0);
    assert!(late.efficiency_link.mean < 0.95, "{late:?}");
}

/// An input of 1 Gb/s with ten outputs of 100 Mb/s behind it: it sends to all of them at once, as
/// its rate lets it.
#[test]
fn a_fast_input_feeds_several_slow_outputs_at_once() {
    let mut graph = "switch a\nsource s a\n".to_owned();
    for d in 0..10 {
        graph += &format!("destination d{d} a rate=100Mb/s\n");
    }
    let topology = topology(&graph);
    let load = saturated(500, 40_000);
    for queueing in [
        Queueing::VirtualOutput,
        Queueing::Matched(Matching::Slip { iterations: 1 }),
        Queueing::Output,
    ] {
        let buffering = Buffering {
            queueing,
            bytes: 1 << 20,
            ..BASE
        };
        let outcome = run(&topology, &load, &Switching::Buffered(buffering));
        let carried = outcome.efficiency_link.mean;
        assert!(carried > 0.97 && carried <= 1.001, "{queueing:?} {carried}");
    }
}

/// Queues inside of elements have rates of their outputs: nothing is lost in them, and a slow and
/// long link behind them is full.
#[test]
fn queues_inside_of_elements_feed_slow_and_long_links() {
    let graph = "switch a\nswitch b\nnode a0 a\nnode a1 a\nnode b0 b\nnode b1 b\n\
                 link a b rate=500Mb/s delay=20us\n";
    let topology = topology(graph);
    let combined = Queueing::Combined {
        speedup_thousandths: 2_000,
        output_bytes: 4_000,
        matching: Some(Matching::Parallel { iterations: 2 }),
    };
    for queueing in [combined, Queueing::Crosspoint { bytes: 1_000 }] {
        for flow in FLOWS {
            let buffering = Buffering {
                queueing,
                flow,
                bytes: 100_000,
                ..BASE
            };
            let outcome = run(
                &topology,
                &saturated(500, 8_000),
                &Switching::Buffered(buffering),
            );
            let report = outcome.links.expect("asked for");
            for link in &report.links[4..6] {
                assert_eq!(link.delay, DurationPs::from_us(20));
                assert!(
                    report.share(link.busy) > 0.98,
                    "{link:?} {queueing:?} {flow:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever links and elements are like, every packet is accounted for, nothing stands still in
    /// a tree, links carry no more than their time, and both queues of the kernel see the same.
    #[test]
    fn packets_of_any_tree_are_accounted_for(
        rates in prop::collection::vec(1_u64..40, 6),
        delays in prop::collection::vec(0_u64..30_000, 6),
        queueing in 0_usize..6,
        flow in 0_usize..3,
        forwarding in prop::bool::ANY,
        seed in 0_u64..1_000,
    ) {
        let own = |link: usize, most: u64| {
            let rate = (rates[link] * 100).min(most);
            format!("rate={rate}Mb/s delay={}ns", delays[link])
        };
        let mut graph = "switch root\nswitch a\nswitch b\n".to_owned();
        for (node, switch) in ["a", "a", "b", "root"].iter().enumerate() {
            graph += &format!("node n{node} {switch} {}\n", own(node, 1_000));
        }
        graph += &format!("link a root {}\nlink root b {}\n", own(4, 4_000), own(5, 4_000));
        let topology = topology(&graph);
        let buffering = Buffering {
            forwarding: match forwarding {
                true => Forwarding::CutThrough,
                false => Forwarding::StoreAndForward,
            },
            queueing: [
                Queueing::InputFifo,
                Queueing::VirtualOutput,
                Queueing::Matched(Matching::Parallel { iterations: 2 }),
                Queueing::Output,
                Queueing::Crosspoint { bytes: 1_000 },
                Queueing::Combined {
                    speedup_thousandths: 1_500,
                    output_bytes: 2_000,
                    matching: None,
                },
            ][queueing],
            bytes: 8_000,
            flow: FLOWS[flow],
            ..BASE
        };
        for switching in [Switching::Wormhole, Switching::Buffered(buffering)] {
            let load = Load {
                seed,
                hop_delay: DurationPs::from_ns(seed % 3 * 100),
                ..saturated(500, 1_000)
            };
            let outcome = run(&topology, &load, &switching);
            prop_assert!(!outcome.is_deadlocked());
            let report = outcome.links.as_ref().expect("asked for");
            for link in &report.links {
                prop_assert!(link.busy <= report.counted, "{link:?}");
            }
            let heap = Load { queue: QueueKind::Heap, ..load };
            prop_assert_eq!(outcome.trace_hash, run(&topology, &heap, &switching).trace_hash);
        }
    }
}

/// The event builder's own units over two halls, 20 km of cable apart, on a link that is faster
/// than any node's and no multiple of it.
#[test]
fn the_event_builder_builds_every_event_over_long_and_odd_links() {
    let mut graph = "switch hall\nswitch surface\n".to_owned();
    for unit in 0..4 {
        graph += &format!("source ru{unit} hall delay=100ns\n");
        graph += &format!("destination bu{unit} surface rate=800Mb/s\n");
    }
    let topology = topology(&format!(
        "{graph}link hall surface rate=2.5Gb/s delay=100us\n"
    ));
    let load = Load {
        warm_up: DurationPs::from_ms(30),
        duration: DurationPs::from_ms(200),
        ..saturated(2048, 1)
    };
    let plan = BuilderNetwork {
        hosts: HostModel {
            event: DurationPs::from_us(20),
            ..HostModel::default()
        },
        ..BuilderNetwork::default()
    };
    let large = |flow| {
        Switching::Buffered(Buffering {
            queueing: Queueing::VirtualOutput,
            bytes: 1 << 20,
            flow,
            ..BASE
        })
    };
    let stop_go = FlowControl::StopGo {
        stop: 400_000,
        go: 200_000,
    };
    for (switching, is_full) in [
        (Switching::Wormhole, false),
        (large(FlowControl::Credits), true),
        (large(FlowControl::None), true),
        (large(stop_go), true),
    ] {
        assert_eq!(plan.validate(&topology, &load, &switching, 1), []);
        let outcome = plan.run(&topology, &load, &switching, 1);
        assert_eq!(outcome.violations, Vec::<String>::new());
        assert!(outcome.is_conserved(), "{switching:?}");
        assert!(outcome.events_built > 100, "{switching:?}");
        // Builders could take 4 x 0.8 Gb/s; of 4 Gb/s the link carries 2.5. The last events counted
        // may have been under way when counting began.
        let share = outcome.efficiency_link;
        assert!(share < 0.631, "{share} {switching:?}");
        assert_eq!(share > 0.6, is_full, "{share} {switching:?}");
        // 100 us for the request and on the cable, 4 x 20.48 us on the builder's link.
        assert!(outcome.latency_ns.min() > 180_000, "{switching:?}");
    }
}

/// Of packets of 2 KiB that all go to one destination: how much of its link is used, and the least
/// latency.
fn held(graph: &str, hop_delay: DurationPs) -> (f64, u64) {
    let load = Load {
        hop_delay,
        traffic: Traffic::new(Pattern::Incast(0)),
        ..saturated(2048, 1_000)
    };
    let outcome = run(&topology(graph), &load, &Switching::Wormhole);
    (outcome.efficiency_link.mean, outcome.latency_ns.min())
}

#[test]
fn a_head_that_had_to_wait_for_a_link_needs_its_delay_as_any_other() {
    // A packet takes 16384 ns on a node's link, and holds all links until its tail has come.
    let near = |(share, least): (f64, u64), packet_ns: f64, least_ns: u64| {
        let expected = 16_384.0 / packet_ns;
        assert!((share - expected).abs() < 0.003, "{share} for {expected}");
        // The histogram rounds by a thousandth.
        assert!(least.abs_diff(least_ns) <= least_ns / 1000, "{least}");
    };
    let far = "switch a\nsource s a\ndestination d a delay=20us\n";
    near(held(far, DurationPs::ZERO), 36_384.0, 36_384);
    // Two take turns: each waits for the other's packet, but for the first of them.
    let two = format!("{far}source t a\n");
    near(held(&two, DurationPs::ZERO), 36_384.0, 36_384 * 2);
    // A link between elements: what comes behind waits for it.
    let halls = "switch a\nswitch b\nsource s a\nsource t a\nsource u a\ndestination d b\n\
                 link a b delay=5us\n";
    near(held(halls, DurationPs::ZERO), 21_384.0, 21_384 * 2);
    // The delay of a hop, on two links between elements and on that of the destination.
    let chain = "switch a\nswitch b\nswitch c\nsource s a\nsource t a\ndestination d c\n\
                 link a b\nlink b c\n";
    near(held(chain, DurationPs::from_us(5)), 31_384.0, 31_384 * 2);
}
