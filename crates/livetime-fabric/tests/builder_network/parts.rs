//! Fragments that are larger than a packet may be.

use livetime_fabric::DurationPs;
use livetime_fabric::builder_network::{BuilderNetwork, Shaping, SickUnits};
use livetime_fabric::network::topology::Wiring;
use livetime_fabric::network::{FlowControl, Load, SizeLaw, Topology};
use livetime_fabric::scenario::{ShiftOrder, Switching};
use livetime_wire::DurationNs;

use super::{BARREL, brief, buffers, builder, dead, load, run};

/// Fragments of 4000 bytes, on links that take 38 bytes more for each packet.
fn large_fragments(ms: u64) -> Load {
    Load {
        sizes: SizeLaw::Fixed(4000),
        overhead_bytes: 38,
        ..load(ms)
    }
}

/// With packets of at most 1500 bytes.
fn ethernet(shaping: Shaping) -> BuilderNetwork {
    BuilderNetwork {
        mtu: 1500,
        retry: DurationNs(20_000_000),
        ..builder(shaping)
    }
}

#[test]
fn a_fragment_larger_than_a_packet_goes_in_several_and_takes_the_overhead_of_each() {
    let topology = Topology::crossbar(4).unwrap();
    let load = large_fragments(300);
    let switching = buffers(FlowControl::Credits, 64 << 10);
    let linear = Shaping::LinearShift {
        phase_bytes: 4000,
        order: ShiftOrder::ConflictFree,
    };
    for shaping in [Shaping::None, linear] {
        let cut = run(&ethernet(shaping), &topology, &load, &switching, 1);
        // What is delivered took three packets; of what is on its way some are counted.
        let (fragments, packets) = (cut.fragments_delivered, cut.packets);
        let sent = cut.fragments_delivered + cut.fragments_in_flight;
        let warm_up = fragments / 4;
        assert!(packets <= 3 * sent, "{packets} of {sent}");
        assert!(
            packets + 3 * warm_up >= 3 * fragments - 100,
            "{packets} of {fragments}"
        );
    }
    // Unshaped, the links are full: what is left of them is the payload's share.
    let share = |plan: &BuilderNetwork| {
        let outcome = run(plan, &topology, &load, &switching, 1);
        outcome.efficiency_link
    };
    let (cut, whole) = (
        share(&ethernet(Shaping::None)),
        share(&builder(Shaping::None)),
    );
    let expected = (4000.0 + 38.0) / (4000.0 + 3.0 * 38.0);
    assert!(
        (cut / whole / expected - 1.0).abs() < 0.005,
        "{cut} of {whole}"
    );
    let point = |plan: &BuilderNetwork| plan.point_to_point(&load, 1);
    let told = point(&ethernet(Shaping::None)) / point(&builder(Shaping::None));
    assert!((told / expected - 1.0).abs() < 1e-9, "{told}");
}

#[test]
fn packets_that_are_large_enough_change_nothing() {
    let topology = Topology::delta(4, 2, &Wiring::Omega).unwrap();
    let load = large_fragments(50);
    let hash = |mtu| {
        let plan = BuilderNetwork {
            mtu,
            ..builder(Shaping::None)
        };
        run(&plan, &topology, &load, &Switching::Wormhole, 1).trace_hash
    };
    assert_eq!(hash(0), hash(4000));
    assert_ne!(hash(0), hash(3999));
}

/// A fragment of three packets lacks one three times as often as a packet is lost.
#[test]
fn a_fragment_that_lacks_a_packet_is_asked_for_again() {
    let topology = Topology::crossbar(4).unwrap();
    let plan = BuilderNetwork {
        packet_damage: 0.01,
        ..ethernet(Shaping::None)
    };
    let switching = buffers(FlowControl::Credits, 64 << 10);
    let outcome = run(&plan, &topology, &large_fragments(2000), &switching, 1);
    assert_eq!(outcome.events_incomplete, 0);
    let lost = outcome.fragments_lost as f64 / outcome.fragments_sent as f64;
    let expected = 1.0 - 0.99_f64.powi(3);
    assert!((lost / expected - 1.0).abs() < 0.1, "{lost}");
    assert!(outcome.fragments_sent_again >= outcome.fragments_lost - 100);
}

/// By several routes packets overtake each other; at full buffers they are lost.
#[test]
fn parts_come_in_any_order_and_are_lost_at_buffers() {
    let topology = Topology::four_layer(2).unwrap();
    let plan = BuilderNetwork {
        credits: 2,
        ..ethernet(Shaping::None)
    };
    let switching = buffers(FlowControl::None, 32 << 10);
    let outcome = run(&plan, &topology, &large_fragments(1000), &switching, 2);
    assert!(outcome.packets_lost > 0 && outcome.fragments_lost > 0);
    assert_eq!(outcome.events_incomplete, 0);
}

/// Units die in the middle of fragments, and begin again.
#[test]
fn deaths_in_the_middle_of_a_fragment_lose_it_and_no_event() {
    let topology = Topology::crossbar(8).unwrap();
    let deaths = dead(2, Some(DurationPs::from_ms(20)));
    for sick in [
        SickUnits {
            builders: deaths,
            ..SickUnits::default()
        },
        SickUnits {
            readouts: deaths,
            ..SickUnits::default()
        },
    ] {
        let plan = BuilderNetwork {
            sick,
            ..ethernet(Shaping::None)
        };
        let switching = buffers(FlowControl::Credits, 64 << 10);
        let outcome = run(&plan, &topology, &large_fragments(400), &switching, 1);
        assert_eq!(outcome.builders_back + outcome.readouts_back, 2);
        assert!(outcome.fragments_withdrawn > 0, "{}", brief(&outcome));
    }
}

#[test]
fn packets_that_cannot_be_are_refused() {
    let topology = Topology::crossbar(4).unwrap();
    let found = |plan: BuilderNetwork| {
        let problems = plan.validate(&topology, &load(10), &Switching::Wormhole, 1);
        let texts: Vec<String> = problems
            .iter()
            .map(|p| format!("{} {}", p.path, p.found))
            .collect();
        texts.join(", ")
    };
    assert_eq!(found(ethernet(BARREL)), "builder.mtu 1.5 KiB");
    let mtu = |mtu| BuilderNetwork {
        mtu,
        ..builder(Shaping::None)
    };
    assert_eq!(found(mtu(511)), "builder.mtu 511 B");
    assert_eq!(found(mtu(512)), "");
    assert_eq!(found(mtu(2 << 20)), "builder.mtu 2 MiB");
}
