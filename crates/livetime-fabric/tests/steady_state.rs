//! What is a steady state and what is none: backlogs that grow, events that hang, shares of rails. All of
//! it is simulated.

use livetime_fabric::DurationPs;
use livetime_fabric::builder_network::BuilderNetwork;
use livetime_fabric::flit::FlitConfig;
use livetime_fabric::network::topology::Graph;
use livetime_fabric::network::{
    Arrival, BufferPlace, Buffering, FlowControl, Forwarding, Load, NetworkOutcome, Pattern,
    Queueing, SizeLaw, Traffic,
};
use livetime_fabric::scenario::{Level, Scenario, Switching, TopologyChoice};
use livetime_wire::DurationNs;

const BUFFERING: Buffering = Buffering {
    forwarding: Forwarding::StoreAndForward,
    queueing: Queueing::InputFifo,
    place: BufferPlace::Input,
    bytes: 16 << 20,
    lanes: 1,
    flow: FlowControl::Credits,
};

/// A crossbar with packets of 1000 B, 8 us on its links, for so many of these times.
fn crossbar(ports: u32, times: u64, arrival: Arrival) -> Scenario {
    let traffic = Traffic::new(Pattern::Uniform);
    Scenario {
        level: Level::Packet,
        topology: TopologyChoice::Crossbar { ports },
        switching: Switching::Wormhole,
        flits: FlitConfig::default(),
        load: Load {
            arrival,
            ..Load::saturated(traffic, SizeLaw::Fixed(1000), times)
        },
        shift: None,
        rails: 1,
        builder: None,
        duration_max: None,
    }
}

fn network(scenario: &Scenario) -> NetworkOutcome {
    assert_eq!(scenario.validate(), []);
    let outcome = scenario.run().expect("the network can be built");
    outcome.network.expect("a level that simulates")
}

/// A source of 125 kHz at most: a part in a thousand more than that is too much, however long the run is.
#[test]
fn more_than_a_link_carries_is_too_much_at_any_length() {
    for times in [20_000, 60_000] {
        for (ns, is_overloaded) in [(7_300, true), (7_992, true), (8_000, false), (9_000, false)] {
            let interval = DurationPs::from_ns(ns);
            let outcome = network(&crossbar(1, times, Arrival::Fixed { interval }));
            assert!(outcome.efficiency_link.converged, "{times} {ns}");
            assert_eq!(outcome.is_overloaded(), is_overloaded, "{times} {ns}");
        }
    }
}

/// Sixteen ports with input FIFOs carry 0.602 of their links: the backlog is in the buffers of the switch,
/// and the sources are not behind.
#[test]
fn what_waits_in_buffers_of_switches_is_backlog_too() {
    for (load, is_overloaded) in [(0.56, false), (0.656, true)] {
        let interval = DurationPs((8e6 / load) as u64);
        let mut scenario = crossbar(16, 10_000, Arrival::Poisson { interval });
        scenario.switching = Switching::Buffered(BUFFERING);
        let outcome = network(&scenario);
        assert_eq!(outcome.is_overloaded(), is_overloaded, "{load}");
        assert!(outcome.sources_behind < DurationPs::from_ms(1), "{load}");
        let at_end = outcome.latency_at_end;
        assert_eq!(at_end > DurationPs::from_ms(5), is_overloaded, "{at_end}");
    }
}

/// Two sources with 1.2 times what the one link to their destination carries, which is as long as a tenth of
/// the run: nothing comes in its first batches.
#[test]
fn a_backlog_grows_behind_a_long_cable_too() {
    let graph = "switch a\nsource x a\nsource y a\ndestination z a delay=10ms\n";
    let graph = Graph::parse(graph).expect("it is a graph");
    for (load, is_overloaded) in [(0.45, false), (0.6, true)] {
        let interval = DurationPs((8e6 / load) as u64);
        let mut scenario = crossbar(2, 1, Arrival::Fixed { interval });
        scenario.topology = TopologyChoice::Graph(graph.clone());
        scenario.switching = Switching::Buffered(BUFFERING);
        scenario.load.traffic.pattern = Pattern::Incast(0);
        scenario.load.warm_up = DurationPs::ZERO;
        scenario.load.duration = DurationPs::from_ms(100);
        let outcome = network(&scenario);
        assert_eq!(outcome.is_backlog_growing, is_overloaded, "{load}");
        assert!(outcome.sources_behind < DurationPs::from_ms(1), "{load}");
        // A sixth of what came in 90 ms is yet to go.
        let at_end = outcome.latency_at_end;
        let waits = DurationPs::from_ms(if is_overloaded { 23 } else { 10 });
        assert!(
            (waits..waits + DurationPs::from_ms(3)).contains(&at_end),
            "{at_end}"
        );
    }
}

/// Queues that are long at times and short at others are no backlog that grows, nor are sources that always
/// have a packet.
#[test]
fn chance_is_no_overload() {
    let interval = DurationPs((8e6 / 0.95) as u64);
    let mut scenario = crossbar(4, 4_000, Arrival::Poisson { interval });
    scenario.switching = Switching::Buffered(Buffering {
        queueing: Queueing::Output,
        ..BUFFERING
    });
    for seed in 1..=20 {
        scenario.load.seed = seed;
        assert!(!network(&scenario).is_overloaded(), "seed {seed}");
    }
    scenario.load.arrival = Arrival::Saturated;
    assert!(!network(&scenario).is_overloaded());
}

/// Times of packets that wait for nobody, whatever the bins of a histogram are.
#[test]
fn the_ends_of_latencies_are_exact() {
    let interval = DurationPs::from_us(100);
    let mut scenario = crossbar(2, 2_000, Arrival::Fixed { interval });
    scenario.load.traffic.pattern = Pattern::Permutation(vec![1, 0]);
    scenario.load.sizes = SizeLaw::Fixed(1687);
    scenario.load.hop_delay = DurationPs::from_ns(4);
    scenario.switching = Switching::Buffered(BUFFERING);
    let latency = network(&scenario).latency_ns;
    // Two times 13496 ns on a link, and 4 ns of the switch and of the source's cable each.
    let ends = (latency.min(), latency.max(), latency.value_at_quantile(0.5));
    assert_eq!(ends, (27_000, 27_000, 27_000));
    assert_eq!(latency.mean(), 27_000.0);
}

/// Of a source with Poisson arrivals that takes its rails in turn, each rail has every k-th: the more rails,
/// the more even, and the less they wait at the same load.
#[test]
fn packets_that_go_to_rails_in_turn_wait_less() {
    let waits = [1_u32, 2, 4].map(|rails| {
        let interval = DurationPs((8e6 / 0.9) as u64 / u64::from(rails));
        let mut scenario = crossbar(1, 100_000, Arrival::Poisson { interval });
        scenario.rails = rails;
        network(&scenario).latency_ns.mean() / 8_000.0 - 1.0
    });
    // Half of the load over what is left of the link, and less where arrivals vary less.
    for (wait, expected) in waits.into_iter().zip([4.5, 2.15, 1.0]) {
        assert!((wait / expected - 1.0).abs() < 0.1, "{waits:?}");
    }
}

/// Fragments are lost, and nothing is asked for again within the run: events hang, and what is built
/// meanwhile says nothing of later.
#[test]
fn events_that_hang_until_they_are_asked_for_are_no_steady_state() {
    let mut scenario = crossbar(8, 1, Arrival::Saturated);
    scenario.load.duration = DurationPs::from_ms(300);
    scenario.load.warm_up = DurationPs::from_ms(20);
    scenario.load.sizes = SizeLaw::Fixed(2048);
    scenario.switching = Switching::Buffered(Buffering {
        forwarding: Forwarding::CutThrough,
        queueing: Queueing::Output,
        bytes: 32 << 10,
        flow: FlowControl::None,
        ..BUFFERING
    });
    let run = |retry| {
        let mut scenario = scenario.clone();
        scenario.builder = Some(BuilderNetwork {
            credits: 16,
            retry,
            ..BuilderNetwork::default()
        });
        assert_eq!(scenario.validate(), []);
        let outcome = scenario.run().unwrap();
        let builder = outcome.builder.unwrap();
        assert!(builder.fragments_lost > 0);
        let is_said = outcome
            .notes
            .iter()
            .any(|note| note.contains("`retry`") && note.contains("hang"));
        assert_eq!(
            is_said,
            retry > DurationNs::MILLISECOND,
            "{:?}",
            outcome.notes
        );
        builder.event_rate.converged
    };
    assert!(!run(DurationNs::SECOND));
    // What is asked for again soon is said to be nothing.
    run(DurationNs::MILLISECOND);
}
