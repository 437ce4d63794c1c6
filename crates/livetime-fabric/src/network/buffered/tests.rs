//! Elements with buffers: known limits, conservation, and what links and buffers are counted for.

use core::ops::Range;

use super::super::arbiter::Arbiter;
use super::*;
use crate::analytic::crossbar::fifo_inputs_exponential;
use crate::cell::{MatchedSwitch, Offered};
use crate::matcher::Matching;
use crate::network::topology::{Graph, Wiring};
use crate::network::{Arrival, LinkUse, Pattern, SizeLaw, Spread, Traffic};

const BASE: Buffering = Buffering {
    forwarding: Forwarding::CutThrough,
    queueing: Queueing::InputFifo,
    place: BufferPlace::Input,
    bytes: 4 * 2048,
    lanes: 1,
    flow: FlowControl::Credits,
};

fn uniform(times: u64) -> Load {
    Load::saturated(Traffic::new(Pattern::Uniform), SizeLaw::Fixed(2048), times)
}

fn conserved(outcome: &NetworkOutcome) {
    let accounted = outcome.packets_in_all + outcome.packets_lost + outcome.packets_in_flight;
    assert_eq!(outcome.packets_offered, accounted);
}

#[test]
fn a_crossbar_with_input_fifos_has_head_of_line_blocking() {
    let topology = Topology::crossbar(8).unwrap();
    let outcome = run(&topology, &uniform(10_000), &BASE);
    conserved(&outcome);
    let value = outcome.efficiency_link.mean;
    assert!((value - 0.618).abs() < 0.01, "{value}");
    let sizes = SizeLaw::Exponential { mean: 2048.0 };
    let load = Load {
        sizes,
        ..uniform(10_000)
    };
    let wide = Buffering {
        bytes: 1 << 20,
        ..BASE
    };
    let value = run(&topology, &load, &wide).efficiency_link.mean;
    assert!((value - fifo_inputs_exponential(8)).abs() < 0.01, "{value}");
}

/// They were one and the same for a while: alike in what they carry, not in whom they serve.
#[test]
fn the_port_served_longest_ago_is_not_the_next_one() {
    let topology = Topology::crossbar(4).unwrap();
    let of = |arbiter| {
        let load = Load {
            arbiter,
            ..uniform(3_000)
        };
        let outcome = run(&topology, &load, &BASE);
        conserved(&outcome);
        outcome
    };
    let (next, longest_ago) = (of(Arbiter::RoundRobin), of(Arbiter::LeastRecent));
    assert_ne!(next.trace_hash, longest_ago.trace_hash);
    let carried = [&next, &longest_ago].map(|outcome| outcome.efficiency_link.mean);
    assert!((carried[0] - carried[1]).abs() < 0.03, "{carried:?}");
}

#[test]
fn queues_at_outputs_carry_everything_and_lose_nothing_with_room() {
    let topology = Topology::crossbar(8).unwrap();
    let output = Buffering {
        forwarding: Forwarding::StoreAndForward,
        queueing: Queueing::Output,
        place: BufferPlace::Shared,
        bytes: 4 << 20,
        flow: FlowControl::Credits,
        ..BASE
    };
    let outcome = run(&topology, &uniform(4_000), &output);
    conserved(&outcome);
    assert!(outcome.efficiency_link.mean > 0.98, "{outcome:?}");
    assert_eq!(outcome.packets_lost, 0);
    let virtual_output = Buffering {
        queueing: Queueing::VirtualOutput,
        place: BufferPlace::Input,
        bytes: 1 << 20,
        ..output
    };
    let value = run(&topology, &uniform(4_000), &virtual_output);
    assert!(value.efficiency_link.mean > 0.85, "{value:?}");
}

#[test]
fn links_and_buffers_are_counted_and_change_nothing() {
    let topology = Topology::crossbar(8).unwrap();
    let plain = uniform(2_000);
    let load = Load {
        counts_links: true,
        ..plain.clone()
    };
    for (queueing, is_mixed) in [
        (Queueing::InputFifo, true),
        (Queueing::VirtualOutput, false),
    ] {
        let buffering = Buffering { queueing, ..BASE };
        let outcome = run(&topology, &load, &buffering);
        let uncounted = run(&topology, &plain, &buffering);
        assert_eq!(outcome.trace_hash, uncounted.trace_hash);
        assert!(uncounted.links.is_none());
        let report = outcome.links.expect("asked for");
        let shares = |time: fn(&LinkUse) -> DurationPs, links: Range<usize>| {
            Spread::of(report.links[links].iter().map(|l| report.share(time(l))))
        };
        // Links to destinations carry what is delivered, but for what is on its way.
        let delivery = shares(|link| link.busy, 8..16).mean;
        assert!((delivery - outcome.efficiency_link.mean).abs() < 0.002);
        assert_eq!(shares(|link| link.blocked, 8..16).max, 0.0);
        // An input has packets nearly always, and sends or is blocked.
        let blocked = shares(|link| link.blocked, 0..8).mean;
        assert!(
            (delivery + blocked - 1.0).abs() < 0.01,
            "{delivery} {blocked}"
        );
        let behind = shares(|link| link.head_of_line, 0..8).mean;
        assert_eq!(behind > 0.3, is_mixed, "{behind}");
        assert_eq!(report.buffers.len(), 8);
        let levels = Spread::of(report.buffers.iter().map(|buffer| buffer.mean_bytes));
        assert!(levels.min > 6_144.0 && levels.max <= 8_192.0, "{levels:?}");
        assert!(
            report
                .buffers
                .iter()
                .all(|buffer| buffer.max_bytes == 8_192)
        );
    }
    let shared = Buffering {
        queueing: Queueing::Output,
        place: BufferPlace::Shared,
        bytes: 64 * 2048,
        ..BASE
    };
    let report = run(&topology, &load, &shared).links.expect("asked for");
    let owners: Vec<BufferOwner> = report.buffers.iter().map(|b| b.owner).collect();
    assert_eq!(owners, [BufferOwner::Element(0)]);
}

#[test]
fn buffers_raise_the_delta_and_lanes_raise_it_further() {
    let topology = Topology::delta(4, 2, &Wiring::Omega).unwrap();
    let run = |bytes, lanes| {
        let buffering = Buffering {
            bytes,
            lanes,
            ..BASE
        };
        let outcome = run(&topology, &uniform(6_000), &buffering);
        conserved(&outcome);
        outcome.efficiency_link.mean
    };
    let (small, large) = (run(2048, 1), run(16 * 2048, 1));
    assert!(small < large && large < 0.66, "{small} {large}");
    assert!(run(16 * 2048, 4) > large + 0.03);
}

#[test]
fn without_flow_control_an_incast_is_lost_beyond_the_buffer_and_counted() {
    let topology = Topology::crossbar(4).unwrap();
    let traffic = Traffic::new(Pattern::Incast(1)).with_window(2);
    let load = Load {
        traffic,
        ..uniform(500)
    };
    let switch = |bytes, flow| Buffering {
        forwarding: Forwarding::StoreAndForward,
        queueing: Queueing::Output,
        place: BufferPlace::Output,
        bytes,
        lanes: 1,
        flow,
    };
    // Two packets of each of four sources may be on the way.
    let enough = run(&topology, &load, &switch(8 * 2048, FlowControl::None));
    let short = run(&topology, &load, &switch(4 * 2048, FlowControl::None));
    let credits = run(&topology, &load, &switch(4 * 2048, FlowControl::Credits));
    let stop_go = FlowControl::StopGo {
        stop: 4096,
        go: 2048,
    };
    let stopped = run(&topology, &load, &switch(8 * 2048, stop_go));
    for outcome in [&enough, &short, &credits, &stopped] {
        conserved(outcome);
    }
    assert_eq!(enough.packets_lost, 0);
    assert!(short.packets_lost > 0);
    assert_eq!((credits.packets_lost, stopped.packets_lost), (0, 0));
}

#[test]
fn faster_trunks_carry_several_streams() {
    let topology = Topology::two_level(4, 4, 1, 4).unwrap();
    let to: Vec<u32> = (0..16).map(|s| (s + 4) % 16).collect();
    let load = Load {
        traffic: Traffic::new(Pattern::Permutation(to)),
        ..uniform(500)
    };
    let buffering = Buffering {
        queueing: Queueing::VirtualOutput,
        bytes: 16 * 2048,
        ..BASE
    };
    let value = run(&topology, &load, &buffering).efficiency_link.mean;
    assert!(value > 0.99, "{value}");
}

#[test]
fn buffers_that_cannot_work_are_named() {
    let topology = Topology::crossbar(16).unwrap();
    let keys = |buffering: Buffering| -> Vec<&str> {
        let problems = buffering.problems(2048, &topology);
        problems.iter().map(|problem| problem.key).collect()
    };
    let key = |buffering: Buffering| keys(buffering).first().copied();
    assert_eq!(key(BASE), None);
    assert_eq!(key(Buffering { bytes: 100, ..BASE }), Some("buffer"));
    assert_eq!(key(Buffering { lanes: 0, ..BASE }), Some("lanes"));
    assert_eq!(key(Buffering { lanes: 16, ..BASE }), None);
    let flow = FlowControl::StopGo { stop: 1, go: 2 };
    assert_eq!(key(Buffering { flow, ..BASE }), Some("stop"));
    let queues = |queueing| Buffering { queueing, ..BASE };
    let lanes = Buffering {
        lanes: 2,
        ..queues(Queueing::VirtualOutput)
    };
    assert_eq!(key(lanes), Some("lanes"));
    let matched = |matching| queues(Queueing::Matched(matching));
    let slip = matched(Matching::Slip { iterations: 1 });
    assert_eq!(key(slip), None);
    let none = matched(Matching::Slip { iterations: 0 });
    assert_eq!(key(none), Some("iterations"));
    assert_eq!(key(matched(Matching::MaximumWeight)), Some("matching"));
    let outputs = Buffering {
        place: BufferPlace::Output,
        ..slip
    };
    assert_eq!(key(outputs), Some("buffer_place"));
    // All at once, each key with one of them.
    let all = Buffering {
        bytes: 1,
        lanes: 99,
        place: BufferPlace::Output,
        flow,
        ..queues(Queueing::Combined {
            speedup_thousandths: 17_000,
            output_bytes: 2,
            matching: Some(Matching::Slip { iterations: 0 }),
        })
    };
    let expected = [
        "buffer",
        "lanes",
        "speedup",
        "output_buffer",
        "buffer_place",
        "stop",
    ];
    assert_eq!(keys(all), expected);
}

/// Saturated uniform traffic of one size through a crossbar that starts all packets together, so that
/// it is matched once in a packet time.
fn slotted(ports: u32, matching: Matching, bytes: u64, times: u64) -> f64 {
    let topology = Topology::crossbar(ports).unwrap();
    let switch = Buffering {
        forwarding: Forwarding::StoreAndForward,
        queueing: Queueing::Matched(matching),
        bytes,
        ..BASE
    };
    assert_eq!(switch.problems(2048, &topology), []);
    let outcome = run(&topology, &uniform(times), &switch);
    conserved(&outcome);
    assert_eq!(outcome.packets_lost, 0);
    outcome.efficiency_link.mean
}

#[test]
fn matchings_carry_what_they_carry_in_slots() {
    for iterations in [1, 2, 4] {
        let matching = Matching::Parallel { iterations };
        let cells = MatchedSwitch {
            ports: 16,
            matching,
        };
        let expected = cells.run(&Offered::Saturated, 100, 5_000, 1).throughput;
        let found = slotted(16, matching, 2 << 20, 5_000);
        // Some queues are empty now and then, where those of the cells never are.
        let difference = expected - found;
        assert!((-0.005..0.03).contains(&difference), "{expected} {found}");
    }
    let slip = slotted(16, Matching::Slip { iterations: 1 }, 2 << 20, 20_000);
    assert!(slip > 0.97, "{slip}");
    let round_robin = |moves_in_all, iterations| {
        let matching = Matching::RoundRobin {
            iterations,
            moves_in_all,
        };
        slotted(16, matching, 2 << 20, 5_000)
    };
    // Pointers that move at every grant keep the distances that the start left them, and grant to
    // the same inputs: 1/N where they are equal, 0.64 where they are random, less where they bunch.
    let locked = round_robin(true, 1);
    assert!((1.0 / 16.0..0.7).contains(&locked), "{locked}");
    let several = round_robin(true, 4);
    assert!(several > 0.95, "{several}");
    let heaviest = slotted(8, Matching::MaximumWeight, 2 << 20, 5_000);
    assert!(heaviest > 0.98, "{heaviest}");
}

fn combined(speedup_thousandths: u32, matching: Option<Matching>) -> Queueing {
    Queueing::Combined {
        speedup_thousandths,
        output_bytes: 1 << 20,
        matching,
    }
}

#[test]
fn queues_at_both_sides_are_those_of_inputs_or_of_outputs_by_their_speedup() {
    let topology = Topology::crossbar(8).unwrap();
    let sizes = SizeLaw::Exponential { mean: 2048.0 };
    let saturated = Load {
        sizes: sizes.clone(),
        ..uniform(6_000)
    };
    let switch = |queueing| Buffering {
        queueing,
        bytes: 1 << 20,
        ..BASE
    };
    let efficiency = |queueing| {
        let switch = switch(queueing);
        assert_eq!(switch.problems(40 * 2048, &topology), []);
        let outcome = run(&topology, &saturated, &switch);
        conserved(&outcome);
        assert_eq!(outcome.packets_lost, 0);
        outcome.efficiency_link.mean
    };
    let inputs = efficiency(Queueing::VirtualOutput);
    let once = efficiency(combined(1_000, None));
    assert!((once - inputs).abs() < 0.015, "{once} {inputs}");
    let pim = Matching::Parallel { iterations: 1 };
    for matching in [None, Some(pim)] {
        let twice = efficiency(combined(2_000, matching));
        assert!(twice > 0.985, "{twice}");
    }
    // Delay at a load of 0.9: that of queues at outputs alone.
    let rate = Load {
        arrival: Arrival::Poisson {
            interval: DurationPs(18_204_444),
        },
        ..saturated.clone()
    };
    let delay = |queueing| {
        let switch = Buffering {
            forwarding: Forwarding::StoreAndForward,
            ..switch(queueing)
        };
        run(&topology, &rate, &switch).latency_ns.mean()
    };
    let (outputs, twice) = (delay(Queueing::Output), delay(combined(2_000, None)));
    assert!((twice / outputs - 1.0).abs() < 0.1, "{twice} {outputs}");
    let inputs = delay(Queueing::VirtualOutput);
    assert!(inputs > 1.2 * twice, "{inputs} {twice}");
}

#[test]
fn small_queues_at_crosspoints_carry_nearly_all_and_lose_nothing_inside() {
    let topology = Topology::crossbar(8).unwrap();
    let switch = Buffering {
        queueing: Queueing::Crosspoint { bytes: 2 * 2048 },
        bytes: 1 << 20,
        ..BASE
    };
    let load = Load {
        counts_links: true,
        ..uniform(4_000)
    };
    for arbiter in Arbiter::ALL {
        let load = Load {
            arbiter,
            ..load.clone()
        };
        let outcome = run(&topology, &load, &switch);
        conserved(&outcome);
        let value = outcome.efficiency_link.mean;
        assert!(value > 0.97, "{arbiter:?} {value}");
        let report = outcome.links.expect("asked for");
        assert_eq!((report.links.len(), report.buffers.len()), (16, 8 + 64));
        let crosspoints = Spread::of(report.buffers[8..].iter().map(|b| b.max_bytes as f64));
        assert!(crosspoints.max == 4096.0, "{crosspoints:?}");
    }
}

/// The last port of the largest element is the one with the number 65535.
#[test]
fn every_input_of_the_largest_element_has_its_crosspoints() {
    let nodes = (0..65_536).map(|node| format!("source s{node} a\n"));
    let graph: String = ["switch a\ndestination d a\n".to_owned()]
        .into_iter()
        .chain(nodes)
        .collect();
    let topology = Topology::graph(&Graph::parse(&graph).unwrap()).unwrap();
    let switch = Buffering {
        queueing: Queueing::Crosspoint { bytes: 2 * 2048 },
        ..BASE
    };
    let load = Load {
        traffic: Traffic::new(Pattern::Incast(0)),
        counts_links: true,
        ..uniform(20)
    };
    assert_eq!(switch.problems(2048, &topology), []);
    let outcome = run(&topology, &load, &switch);
    conserved(&outcome);
    assert!(outcome.efficiency_link.mean > 0.9, "{outcome:?}");
    let report = outcome.links.expect("asked for");
    let crosspoints = report.buffers[65_536..].iter();
    assert!(crosspoints.clone().all(|buffer| buffer.max_bytes > 0));
    assert_eq!(crosspoints.count(), 65_536);
}

#[test]
fn inner_queues_of_large_networks_keep_every_packet_and_lose_at_inputs_alone() {
    let topology = Topology::fat_tree(4, 2).unwrap();
    let traffic = Traffic::new(Pattern::HotSpot {
        destination: 3,
        share: 0.3,
    });
    for flow in [
        FlowControl::Credits,
        FlowControl::None,
        FlowControl::StopGo {
            stop: 4096,
            go: 2048,
        },
    ] {
        let crosspoint = Queueing::Crosspoint { bytes: 2048 };
        let matched = combined(1_500, Some(Matching::Slip { iterations: 2 }));
        for queueing in [combined(2_000, None), matched, crosspoint] {
            let load = Load {
                traffic: traffic.clone(),
                hop_delay: DurationPs::from_ns(100),
                ..uniform(1_000)
            };
            let switch = Buffering {
                queueing,
                flow,
                bytes: 16 * 2048,
                ..BASE
            };
            let outcome = run(&topology, &load, &switch);
            conserved(&outcome);
            assert_eq!(outcome.packets_lost > 0, flow == FlowControl::None);
            assert!(outcome.packets > 1_000, "{flow:?} {queueing:?}");
        }
    }
}
