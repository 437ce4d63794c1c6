//! Packets that stand still for ever: found whether or not others still move, and never of packets that
//! go on. All of it is simulated.

use proptest::prelude::*;

use livetime_fabric::DurationPs;
use livetime_fabric::builder_network::{BuilderNetwork, HostModel};
use livetime_fabric::flit::{self, FlitConfig};
use livetime_fabric::network::topology::{Graph, LinkEnd};
use livetime_fabric::network::{
    BufferPlace, Buffering, FlowControl, Forwarding, Load, Matching, NetworkOutcome, Pattern,
    Queueing, SizeLaw, Topology, Traffic, buffered, wormhole,
};
use livetime_fabric::scenario::Switching;

const QUEUES: [Queueing; 6] = [
    Queueing::InputFifo,
    Queueing::VirtualOutput,
    Queueing::Matched(Matching::Slip { iterations: 2 }),
    Queueing::Output,
    Queueing::Crosspoint { bytes: 2_000 },
    Queueing::Combined {
        speedup_thousandths: 1_500,
        output_bytes: 2_000,
        matching: None,
    },
];

fn with_buffers(queueing: Queueing, flow: FlowControl) -> Switching {
    Switching::Buffered(Buffering {
        forwarding: Forwarding::CutThrough,
        queueing,
        place: BufferPlace::Input,
        bytes: 2_000,
        lanes: 1,
        flow,
    })
}

/// Switches in a ring with a node each, and one more node at the first of them.
fn ring(switches: usize, cable: &str) -> Topology {
    let nodes = (0..switches).map(|n| format!("switch s{n}\nnode n{n} s{n}\n"));
    let links = (0..switches).map(|n| format!("link s{n} s{} {cable}\n", (n + 1) % switches));
    let graph: String = nodes
        .chain(["node x s0\n".to_owned()])
        .chain(links)
        .collect();
    Topology::graph(&Graph::parse(&graph).expect("it is a graph")).expect("it can be built")
}

fn load(pattern: Pattern, times: u64) -> Load {
    Load {
        hop_delay: DurationPs::from_us(1),
        counts_links: true,
        ..Load::saturated(Traffic::new(pattern), SizeLaw::Fixed(1_000), times)
    }
}

/// `None` is the level of flits.
fn run(topology: &Topology, load: &Load, switching: Option<&Switching>) -> NetworkOutcome {
    let outcome = match switching {
        None => flit::run(topology, load, &FlitConfig::default()),
        Some(Switching::Wormhole) => wormhole::run(topology, load),
        Some(Switching::Buffered(buffering)) => buffered::run(topology, load, buffering),
    };
    assert!(outcome.is_conserved(), "{switching:?}");
    outcome
}

/// Given five nodes of a ring that each send to the one after the next, and another one that sends to
/// itself, then the five wait for each other, and the last one goes on as ever.
#[test]
fn a_circle_is_found_though_others_move() {
    let ring = ring(5, "");
    let load = load(Pattern::Permutation(vec![2, 3, 4, 0, 1, 5]), 2_000);
    let fifo = with_buffers(Queueing::InputFifo, FlowControl::Credits);
    let voq = with_buffers(Queueing::VirtualOutput, FlowControl::Credits);
    let stop = FlowControl::StopGo {
        stop: 1_000,
        go: 500,
    };
    let stop_go = with_buffers(Queueing::InputFifo, stop);
    for switching in [
        Some(&Switching::Wormhole),
        Some(&fifo),
        Some(&voq),
        Some(&stop_go),
        None,
    ] {
        let outcome = run(&ring, &load, switching);
        assert!(outcome.is_deadlocked(), "{switching:?}");
        assert!(outcome.do_others_move(), "{switching:?}");
        let still = &outcome.standstill;
        assert_eq!(still.sources, [0, 1, 2, 3, 4], "{switching:?}");
        assert!(still.packets >= 5, "{switching:?} {still:?}");
        assert!(still.packets < outcome.packets_in_flight, "{switching:?}");
        let between = still.links.iter().map(|link| ring.links()[*link as usize]);
        let is_port = |end| matches!(end, LinkEnd::Port { .. });
        let between = between.filter(|link| is_port(link.from) && is_port(link.to));
        assert_eq!(between.count(), 5, "{switching:?}");
        if let Some(report) = outcome.links {
            assert_eq!(report.waited_for, still.links, "{switching:?}");
        }
    }
}

/// Destinations at random: the run ends when nothing can happen any more, and what was not simulated is no
/// time in which nothing came.
#[test]
fn where_nothing_moves_every_packet_stands_still_and_the_figures_end() {
    let ring = ring(5, "");
    let mut load = load(Pattern::Uniform, 20_000);
    load.hop_delay = DurationPs::ZERO;
    let fifo = with_buffers(Queueing::InputFifo, FlowControl::Credits);
    for switching in [Some(&Switching::Wormhole), Some(&fifo), None] {
        let outcome = run(&ring, &load, switching);
        assert!(!outcome.do_others_move(), "{switching:?}");
        assert_eq!(outcome.standstill.packets, outcome.packets_in_flight);
        let counted = outcome.simulated.0.saturating_sub(load.warm_up.0);
        let over = counted / outcome.batch.0;
        assert!(over < 32, "{switching:?} {over}");
        assert_eq!(outcome.series.len() as u64, over, "{switching:?}");
        assert!(outcome.series.iter().all(|share| *share > 0.0));
    }
}

/// Of sizes without an end few are larger than what they are to go into: such a packet never goes on, whatever
/// leaves it, nor does what is behind it. Some others of 8 ports move.
#[test]
fn a_packet_that_is_larger_than_what_it_goes_into_stands_still_for_ever() {
    let crossbar = Topology::crossbar(8).expect("it can be built");
    // 205 in a million are above 20 kB.
    let sizes = SizeLaw::LogNormal {
        mean: 100.0,
        rms: 1_000.0,
    };
    let (narrow, wide) = (20_100, 1 << 20);
    let combined = |speedup_thousandths, matching| Queueing::Combined {
        speedup_thousandths,
        output_bytes: narrow,
        matching,
    };
    let slip = Matching::Slip { iterations: 2 };
    let cases = [
        (Queueing::Crosspoint { bytes: narrow }, wide),
        (combined(1_000, None), wide),
        (combined(2_000, None), wide),
        (combined(2_000, Some(slip)), wide),
        (Queueing::VirtualOutput, narrow),
        (Queueing::Output, narrow),
    ];
    for (queueing, bytes) in cases {
        for flow in [FlowControl::Credits, FlowControl::None] {
            let Switching::Buffered(buffering) = with_buffers(queueing, flow) else {
                continue;
            };
            let switching = Switching::Buffered(Buffering { bytes, ..buffering });
            let of = |times| {
                let traffic = Traffic::new(Pattern::Uniform);
                let load = Load::saturated(traffic, sizes.clone(), times);
                run(&crossbar, &load, Some(&switching))
            };
            let (short, long) = (of(4_000), of(8_000));
            let is_lost = bytes == narrow && flow == FlowControl::None;
            for outcome in [&short, &long] {
                assert_eq!(outcome.is_deadlocked(), !is_lost, "{queueing:?} {flow:?}");
                assert!(outcome.do_others_move(), "{queueing:?} {flow:?}");
            }
            let sources = |outcome: &NetworkOutcome| outcome.standstill.sources.clone();
            let still = sources(&long);
            assert!(sources(&short).iter().all(|source| still.contains(source)));
            assert!(short.standstill.packets <= long.standstill.packets);
        }
    }
}

/// Between hosts, too, the run ends when nothing moves any more. One that is over shortly before has a
/// circle already, while the last packets that are not in it come.
#[test]
fn a_circle_between_hosts_is_found_at_the_end_of_the_run() {
    let ring = ring(5, "");
    let plan = BuilderNetwork {
        hosts: HostModel {
            event: DurationPs::from_us(1),
            ..HostModel::default()
        },
        ..BuilderNetwork::default()
    };
    let fifo = with_buffers(Queueing::InputFifo, FlowControl::Credits);
    let warm_up = DurationPs::from_us(500);
    let run = |duration| {
        let load = Load {
            duration,
            warm_up,
            ..load(Pattern::Uniform, 1)
        };
        let outcome = plan.run(&ring, &load, &fifo, 1);
        assert!(outcome.is_conserved());
        outcome
    };
    let whole = run(DurationPs::from_ms(60));
    let counted = DurationPs(whole.simulated.0 - warm_up.0);
    assert!(whole.is_deadlocked() && !whole.do_others_move);
    let over = counted.0 / whole.batch.0;
    assert!((2..32).contains(&over), "{over}");
    assert_eq!(whole.series.len() as u64, over);
    let built = whole.events_counted as f64 / (counted.0 as f64 * 1e-12);
    let ratio = whole.event_rate.mean / built;
    assert!((0.8..1.6).contains(&ratio), "{ratio}");

    let mut in_part = (1..60_u64).filter_map(|back| {
        let outcome = run(DurationPs(counted.0 - DurationPs::from_us(2 * back).0));
        assert!(outcome.packets_deadlocked <= whole.packets_deadlocked);
        outcome.is_deadlocked().then_some(outcome)
    });
    let outcome = in_part.next().expect("a circle before all stands still");
    assert!(outcome.do_others_move && !outcome.event_rate.converged);
    assert_eq!(
        (outcome.series.len(), outcome.rail_deadlocked),
        (32, Some(0))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// What stands still after some time does so after twice that time, and where nothing moves any more
    /// it is all that is in the network.
    #[test]
    fn what_stands_still_does_so_for_ever(
        switches in 3_usize..7,
        kind in 0_usize..8,
        flow in 0_usize..3,
        cable in 0_usize..3,
        times in 20_u64..300,
        seed in 0_u64..1_000,
    ) {
        let ring = ring(switches, ["", "delay=3us", "rate=700Mb/s"][cable]);
        let flow = [
            FlowControl::Credits,
            FlowControl::StopGo { stop: 1_000, go: 500 },
            FlowControl::None,
        ][flow];
        let buffers = QUEUES.map(|queueing| with_buffers(queueing, flow));
        let switching = match kind {
            0 => None,
            1 => Some(&Switching::Wormhole),
            kind => Some(&buffers[kind - 2]),
        };
        let of = |times| {
            let load = Load { seed, ..load(Pattern::Uniform, times) };
            run(&ring, &load, switching)
        };
        let (short, long) = (of(times), of(2 * times));
        prop_assert!(short.standstill.packets <= long.standstill.packets);
        for source in &short.standstill.sources {
            prop_assert!(long.standstill.sources.contains(source));
        }
        for outcome in [&short, &long] {
            if !outcome.do_others_move() {
                prop_assert_eq!(outcome.standstill.packets, outcome.packets_in_flight);
            }
        }
        if flow == FlowControl::None && kind > 1 && kind < 6 {
            prop_assert_eq!(long.standstill.packets, 0);
        }
    }
}
