//! Scenarios whose efficiency theory tells (level F0).
//!
//! What is common to them: links that are all alike, no delays, no pauses, no window, nothing lost, and
//! packets that can follow each other without a pause wherever nobody waits for others (room for the
//! next one in buffers, whole flits). A destination's link is then always busy once a packet for it is
//! somewhere at the head of all that it has to pass, and what is left is who waits for whom:
//!
//! - incast: the one link, shared by all;
//! - senders that stay with their destinations, on a crossbar: each of these is busy;
//! - a barrel shifter without conflicts, fixed sizes: nobody waits;
//! - uniform traffic on a crossbar with input FIFOs: [`crate::analytic::crossbar`], and up to there
//!   what is offered.

use core::ops::RangeInclusive;

use crate::analytic::crossbar::{fifo_inputs, fifo_inputs_exponential, fifo_inputs_limit};
use crate::network::{
    Arbiter, Arrival, BufferPlace, Buffering, FlowControl, Forwarding, Load, Pattern, Queueing,
    SizeLaw, Topology,
};
use crate::time::DurationPs;

use super::{Level, Scenario, ShiftOrder, Switching, TopologyChoice, in_turn};

/// What there are closed forms for.
pub(super) const CLOSED_FORMS: &str = "links alike, no delays, gaps, windows or losses, buffers with room for the packet behind the one \
     that leaves, and one of these: a crossbar of up to 32 ports (or from 256) without buffers or with \
     input FIFOs, uniform traffic, fixed sizes, or exponential ones without `overhead` and with a mean of 32 B to 2 MiB, \
     saturated or with arrivals that are no bursts; a permutation of a crossbar, saturated; incast, saturated; a barrel shifter in its \
     conflict-free order, fixed sizes, saturated";

/// Ports from which the limit for many is as good.
const MANY_PORTS: u32 = 256;
/// Means of exponential sizes that are drawn as such: the rounding to whole bytes, and the cut of the
/// largest, change them by less than a part in a thousand.
const EXPONENTIAL_MEANS: RangeInclusive<f64> = 32.0..=2_097_152.0;

impl Scenario {
    /// Efficiency from theory, where there is one for this scenario.
    pub(super) fn analytic(&self, topology: &Topology) -> Option<f64> {
        let load = &self.load;
        let is_alike = !topology.has_cables() && topology.links().iter().all(|l| l.speed == 1);
        let is_plain = load.traffic.window.is_none()
            && load.source_gap == DurationPs::ZERO
            && load.hop_delay == DurationPs::ZERO;
        if !is_alike || !is_plain {
            return None;
        }
        let is_saturated = load.arrival == Arrival::Saturated;
        let is_crossbar = matches!(self.topology, TopologyChoice::Crossbar { .. });
        match (&load.traffic.pattern, self.shift) {
            (_, Some(order)) => {
                let is_free = order == ShiftOrder::ConflictFree;
                let is_fixed = matches!(load.sizes, SizeLaw::Fixed(_));
                let ports = topology.elements().iter().map(|element| element.inputs);
                let flows = self.keeps_up(ports.max().unwrap_or(1)) && self.stays_in_step();
                (is_free && is_fixed && is_saturated && flows).then_some(1.0)
            }
            (Pattern::Incast(_), None) if is_saturated && self.keeps_up(1) => {
                let nodes = topology.sources().min(topology.destinations());
                Some(1.0 / f64::from(nodes))
            }
            (Pattern::Permutation(to), None) if is_saturated && is_crossbar => {
                let mut busy = to.clone();
                busy.sort_unstable();
                busy.dedup();
                // Several senders to one destination take the places of others in a buffer of all.
                let is_even = busy.len() == to.len() || self.place() != Some(BufferPlace::Shared);
                let flows = is_even && self.keeps_up(topology.sources());
                flows.then_some(busy.len() as f64 / to.len() as f64)
            }
            (Pattern::Uniform, None) if is_crossbar && self.has_fifos() && self.keeps_up(1) => {
                // With ports that always come last some have less than is offered, others no more.
                if !is_saturated && self.level != Level::Flit && load.arbiter == Arbiter::Fixed {
                    return None;
                }
                let most = carried(load, topology.sources())?;
                let offered = offered(load, &in_turn(load.arrival.clone(), self.rails))?;
                Some(offered.min(most))
            }
            _ => None,
        }
    }

    /// Whether packets that wait for nobody follow each other without a pause, and none is lost, if so
    /// many ports of an element are busy at once.
    fn keeps_up(&self, ports: u32) -> bool {
        let overhead = self.load.overhead_bytes;
        let buffering = match &self.switching {
            _ if self.level == Level::Flit => {
                // The last flit takes its cycle, however little of it is a packet's.
                let flit = self.flits.flit_bytes.max(1);
                return matches!(self.load.sizes, SizeLaw::Fixed(bytes)
                    if (u64::from(bytes) + u64::from(overhead)).is_multiple_of(flit.into()));
            }
            Switching::Wormhole => return true,
            Switching::Buffered(buffering) => buffering,
        };
        let packet = self.largest_packet() + u64::from(overhead);
        let room = match buffering.flow {
            FlowControl::None => return false,
            FlowControl::Credits => buffering.bytes,
            // Up to `go` nobody is stopped for longer than his turn.
            FlowControl::StopGo { stop, go } if stop.saturating_add(packet) <= buffering.bytes => {
                go
            }
            FlowControl::StopGo { .. } => return false,
        };
        // What is sent on once it is there whole has the next one coming behind it. The largest packet
        // of a law without an end is that of a wide margin, which holds two of nearly all.
        let is_whole = buffering.forwarding == Forwarding::StoreAndForward
            || matches!(buffering.queueing, Queueing::Combined { .. });
        let has_end = matches!(self.load.sizes, SizeLaw::Fixed(_) | SizeLaw::Trace(_));
        let packets = if is_whole && has_end { 2 } else { 1 };
        let sharing = match buffering.place {
            BufferPlace::Shared => u64::from(ports),
            BufferPlace::Input | BufferPlace::Output => 1,
        };
        room >= packet.saturating_mul(packets * sharing)
    }

    /// Whether packets that leave together stay so: where each element takes time, those of short routes
    /// run ahead, into the way of packets of the step before.
    fn stays_in_step(&self) -> bool {
        let takes_time = match &self.switching {
            _ if self.level == Level::Flit => true,
            Switching::Wormhole => false,
            Switching::Buffered(buffering) => {
                buffering.forwarding == Forwarding::StoreAndForward || goes_faster_inside(buffering)
            }
        };
        let has_short_routes = matches!(
            self.topology,
            TopologyChoice::FatTree { .. } | TopologyChoice::TwoLevel { .. }
        );
        !(takes_time && has_short_routes)
    }

    /// Whose buffers packets are in; `None` without any.
    fn place(&self) -> Option<BufferPlace> {
        match &self.switching {
            Switching::Buffered(buffering) if self.level != Level::Flit => Some(buffering.place),
            _ => None,
        }
    }

    /// Whether packets wait at inputs alone, one behind the other.
    fn has_fifos(&self) -> bool {
        match &self.switching {
            _ if self.level == Level::Flit => self.flits.channels == 1,
            Switching::Wormhole => true,
            Switching::Buffered(Buffering {
                queueing,
                place,
                lanes,
                ..
            }) => *queueing == Queueing::InputFifo && *place == BufferPlace::Input && *lanes == 1,
        }
    }
}

/// Whether packets wait at each input until they are whole, since inside they go faster than they come.
const fn goes_faster_inside(buffering: &Buffering) -> bool {
    matches!(buffering.queueing, Queueing::Combined { speedup_thousandths, .. }
        if speedup_thousandths > 1_000)
}

/// Share of its links that a crossbar with input FIFOs carries at most.
fn carried(load: &Load, ports: u32) -> Option<f64> {
    match load.sizes {
        SizeLaw::Fixed(_) if ports >= MANY_PORTS => Some(fifo_inputs_limit()),
        SizeLaw::Fixed(_) => fifo_inputs(ports),
        SizeLaw::Exponential { mean }
            if load.overhead_bytes == 0 && EXPONENTIAL_MEANS.contains(&mean) =>
        {
            Some(fifo_inputs_exponential(ports))
        }
        // With an overhead, times on the link are exponential no more.
        SizeLaw::Exponential { .. } | SizeLaw::LogNormal { .. } | SizeLaw::Trace(_) => None,
    }
}

/// Share of its link that each source offers.
fn offered(load: &Load, arrival: &Arrival) -> Option<f64> {
    let interval = match arrival {
        Arrival::Saturated => return Some(1.0),
        Arrival::Fixed { interval } | Arrival::Poisson { interval } => interval.0 as f64,
        Arrival::Bernoulli { slot, probability } => slot.0 as f64 / *probability,
        Arrival::InTurn { law, every } => return Some(offered(load, law)? / f64::from(*every)),
        Arrival::Bursty { .. } | Arrival::Bunches { .. } => return None,
    };
    let bytes = load.sizes.mean() + f64::from(load.overhead_bytes);
    let packet = bytes * 8e12 / load.link_bits_per_s as f64;
    Some(packet / interval)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flit::FlitConfig;
    use crate::network::Traffic;
    use crate::network::topology::{Graph, Wiring};

    fn scenario(topology: TopologyChoice, pattern: Pattern) -> Scenario {
        Scenario {
            level: Level::Packet,
            topology,
            switching: Switching::Wormhole,
            flits: FlitConfig::default(),
            load: Load::saturated(Traffic::new(pattern), SizeLaw::Fixed(2048), 2_000),
            shift: None,
            rails: 1,
            builder: None,
            duration_max: None,
        }
    }

    fn fifos(flow: FlowControl) -> Switching {
        Switching::Buffered(Buffering {
            forwarding: Forwarding::StoreAndForward,
            queueing: Queueing::InputFifo,
            place: BufferPlace::Input,
            bytes: 64 << 10,
            lanes: 1,
            flow,
        })
    }

    fn delta() -> TopologyChoice {
        TopologyChoice::Delta {
            radix: 4,
            stages: 2,
            wiring: Wiring::Omega,
        }
    }

    /// The closed form, which simulations by packets, with and without buffers, and by flits agree
    /// with.
    fn agreed(scenario: &Scenario) -> f64 {
        let theory = Scenario {
            level: Level::Analytic,
            ..scenario.clone()
        };
        assert_eq!(theory.validate(), []);
        let exact = theory.run().unwrap().analytic.unwrap();
        for (level, switching) in [
            (Level::Packet, Switching::Wormhole),
            (Level::Packet, fifos(FlowControl::Credits)),
            (Level::Flit, Switching::Wormhole),
        ] {
            let simulated = Scenario {
                level,
                switching,
                ..scenario.clone()
            };
            let outcome = simulated.run().unwrap();
            let found = outcome.network.unwrap().efficiency_link.mean;
            assert!(
                (found - exact).abs() < 0.015,
                "{level:?} {switching:?}: {found}, in theory {exact}"
            );
        }
        exact
    }

    #[test]
    fn simulations_agree_with_theory() {
        assert_eq!(agreed(&scenario(delta(), Pattern::Incast(3))), 1.0 / 16.0);
        let crossbar = || TopologyChoice::Crossbar { ports: 4 };
        let pairs = |to: &[u32]| scenario(crossbar(), Pattern::Permutation(to.to_vec()));
        assert_eq!(agreed(&pairs(&[1, 0, 3, 2])), 1.0);
        assert_eq!(agreed(&pairs(&[1, 1, 1, 2])), 0.5);
        let shift = Scenario {
            shift: Some(ShiftOrder::ConflictFree),
            ..scenario(delta(), Pattern::Uniform)
        };
        assert_eq!(agreed(&shift), 1.0);
        // 16.384 us of packet every 40.96 us, and every 20.48 us, which is too much.
        for (microseconds, expected) in [(40.96, 0.4), (20.48, 0.655242)] {
            let mut offered = scenario(crossbar(), Pattern::Uniform);
            let interval = DurationPs((microseconds * 1e6) as u64);
            offered.load.arrival = Arrival::Poisson { interval };
            assert!((agreed(&offered) - expected).abs() < 1e-6);
        }
    }

    /// Elements with so much room, made otherwise by `change`.
    fn elements(bytes: u64, change: fn(&mut Buffering)) -> Switching {
        let mut buffering = Buffering {
            forwarding: Forwarding::CutThrough,
            queueing: Queueing::InputFifo,
            place: BufferPlace::Input,
            bytes,
            lanes: 1,
            flow: FlowControl::Credits,
        };
        change(&mut buffering);
        Switching::Buffered(buffering)
    }

    fn is_stored(buffering: &mut Buffering) {
        buffering.forwarding = Forwarding::StoreAndForward;
    }

    fn is_shared(buffering: &mut Buffering) {
        buffering.place = BufferPlace::Shared;
    }

    fn is_combined(buffering: &mut Buffering) {
        buffering.queueing = Queueing::Combined {
            speedup_thousandths: 2_000,
            output_bytes: 2048,
            matching: None,
        };
    }

    fn is_combined_at_the_same_rate(buffering: &mut Buffering) {
        buffering.queueing = Queueing::Combined {
            speedup_thousandths: 1_000,
            output_bytes: 2048,
            matching: None,
        };
    }

    fn has_stop_and_go(buffering: &mut Buffering) {
        is_stored(buffering);
        let (stop, go) = (buffering.bytes - 2048, buffering.bytes - 2048);
        buffering.flow = FlowControl::StopGo { stop, go };
    }

    /// Theory, if there is any, and the simulated efficiency.
    fn both(scenario: &Scenario) -> (Option<f64>, f64) {
        assert_eq!(scenario.validate(), []);
        let outcome = scenario.run().unwrap();
        let network = outcome.network.unwrap();
        (outcome.analytic, network.efficiency_link.mean)
    }

    #[test]
    fn theory_is_told_where_buffers_have_room_for_the_next_packet_alone() {
        const PACKET: u64 = 2048;
        let crossbar = TopologyChoice::Crossbar { ports: 4 };
        let even = scenario(crossbar.clone(), Pattern::Permutation(vec![1, 2, 3, 0]));
        let shift = Scenario {
            shift: Some(ShiftOrder::ConflictFree),
            ..scenario(delta(), Pattern::Uniform)
        };
        let uniform = scenario(crossbar, Pattern::Uniform);
        // Room in packets that is enough, and what half a packet less makes of the permutation.
        type Change = fn(&mut Buffering);
        let cases: [(Change, u64, f64); 4] = [
            (is_stored, 2, 0.5),
            (is_shared, 4, 0.75),
            (is_combined, 2, 0.667),
            (has_stop_and_go, 3, 1.0),
        ];
        for (change, packets, less) in cases {
            for base in [&even, &shift, &uniform] {
                let of = |bytes| Scenario {
                    switching: elements(bytes, change),
                    ..base.clone()
                };
                let (theory, found) = both(&of(packets * PACKET));
                let agrees = theory.is_none_or(|theory| (theory - found).abs() < 0.015);
                assert!(agrees, "{packets}: {found}, in theory {theory:?}");
                let is_told = base.load.traffic.pattern != Pattern::Uniform || base.shift.is_some();
                assert!(theory.is_some() || !is_told, "{packets}");
                let (theory, found) = both(&of((packets - 1) * PACKET + PACKET / 2));
                assert_eq!(theory, None, "{packets}: {found}");
                let is_even = base.shift.is_none() && is_told;
                assert!(
                    !is_even || (found - less).abs() < 0.01,
                    "{packets}: {found}"
                );
            }
        }
    }

    #[test]
    fn theory_is_told_where_nothing_is_lost_and_nobody_starves() {
        let crossbar = || TopologyChoice::Crossbar { ports: 4 };
        let even = || scenario(crossbar(), Pattern::Permutation(vec![1, 2, 3, 0]));
        // The second packet finds room for a half of it.
        let mut lossy = even();
        lossy.switching = elements(3 << 10, |buffering| {
            is_stored(buffering);
            let (stop, go) = (3 << 10, 1 << 10);
            buffering.flow = FlowControl::StopGo { stop, go };
        });
        assert_eq!(both(&lossy).0, None);
        assert!(lossy.run().unwrap().network.unwrap().packets_lost > 0);
        // Three senders to one destination leave the fourth little of a buffer that all share.
        let mut uneven = even();
        uneven.load.traffic.pattern = Pattern::Permutation(vec![1, 1, 1, 2]);
        uneven.switching = elements(8 << 10, is_shared);
        let (theory, found) = both(&uneven);
        assert!(theory.is_none() && found < 0.45, "{found}");
        // An arbiter that starves the last port, below what the crossbar carries in all.
        let mut starved = scenario(crossbar(), Pattern::Uniform);
        starved.switching = elements(64 << 10, |_| {});
        starved.load.arrival = Arrival::Poisson {
            interval: DurationPs::from_ns(25_600),
        };
        starved.load.arbiter = Arbiter::Fixed;
        let (theory, found) = both(&starved);
        assert!(theory.is_none() && found < 0.62, "{found}");
        starved.load.arbiter = Arbiter::Oldest;
        let (theory, found) = both(&starved);
        assert!((theory.unwrap() - found).abs() < 0.015, "{found}");
    }

    #[test]
    fn theory_is_told_where_packets_of_a_step_stay_together() {
        let tree = TopologyChoice::FatTree {
            radix: 2,
            levels: 3,
        };
        let edges = TopologyChoice::TwoLevel {
            edges: 4,
            nodes: 4,
            cores: 4,
            trunk_speed: 1,
        };
        for (topology, has_short_routes) in [(tree, true), (edges, true), (delta(), false)] {
            let mut shift = scenario(topology, Pattern::Uniform);
            shift.shift = Some(ShiftOrder::ConflictFree);
            for switching in [
                Switching::Wormhole,
                elements(8 << 10, |_| {}),
                elements(4 << 10, is_combined_at_the_same_rate),
            ] {
                shift.switching = switching;
                let (theory, found) = both(&shift);
                assert!(theory == Some(1.0) && (found - 1.0).abs() < 0.01, "{found}");
            }
            shift.switching = elements(8 << 10, is_stored);
            let mut flits = shift.clone();
            flits.level = Level::Flit;
            flits.flits.flit_bytes = 2048;
            let mut faster_inside = shift.clone();
            faster_inside.switching = elements(4 << 10, is_combined);
            for timed in [shift, faster_inside, flits] {
                let (theory, found) = both(&timed);
                assert_eq!(theory.is_none(), has_short_routes, "{found}");
                assert_eq!(found < 0.95, has_short_routes, "{found}");
            }
        }
    }

    /// Half of each packet on the link is the same for all: ports wait for each other less.
    #[test]
    fn theory_of_exponential_sizes_is_that_of_times_on_the_link() {
        let mut drawn = scenario(TopologyChoice::Crossbar { ports: 4 }, Pattern::Uniform);
        drawn.load.sizes = SizeLaw::Exponential { mean: 2048.0 };
        drawn.load.duration = drawn.load.duration * 10;
        let (theory, found) = both(&drawn);
        let theory = theory.unwrap();
        assert!(
            (theory - found).abs() < 0.015,
            "{found}, in theory {theory}"
        );
        drawn.load.overhead_bytes = 2048;
        drawn.load.duration = drawn.load.duration * 2;
        let (none, found) = both(&drawn);
        assert!(none.is_none() && found > theory + 0.02, "{found}");
        drawn.level = Level::Analytic;
        let problems = drawn.validate();
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0]
                .allowed
                .contains("exponential ones without `overhead`")
        );
        drawn.load.sizes = SizeLaw::Fixed(2048);
        assert_eq!(drawn.validate(), []);
    }

    /// Small ones are rounded to whole bytes, and of large ones many are cut.
    #[test]
    fn theory_is_told_of_exponential_sizes_that_are_drawn_as_such() {
        let crossbar = TopologyChoice::Crossbar { ports: 4 };
        let mut offered = scenario(crossbar, Pattern::Uniform);
        for (mean, is_told) in [
            (2, false),
            (2 << 10, true),
            (2 << 20, true),
            (16 << 20, false),
        ] {
            let mean = f64::from(mean);
            let sizes = SizeLaw::Exponential { mean };
            offered.load = Load::saturated(Traffic::new(Pattern::Uniform), sizes, 40_000);
            // 0.4 of the link, if sizes had this mean.
            offered.load.arrival = Arrival::Poisson {
                interval: DurationPs((mean * 8_000.0 / 0.4) as u64),
            };
            let (theory, found) = both(&offered);
            assert_eq!(theory.is_some(), is_told, "{mean} B: {found}");
            let agrees = (found - 0.4).abs() < 0.015;
            assert_eq!(agrees, is_told, "{mean} B: {found}");
        }
    }

    #[test]
    fn theory_of_flits_is_that_of_whole_ones() {
        let crossbar = TopologyChoice::Crossbar { ports: 4 };
        let mut flits = scenario(crossbar, Pattern::Permutation(vec![1, 2, 3, 0]));
        flits.level = Level::Flit;
        for (bytes, is_whole) in [(1 << 10, true), (2 << 10, true), (3 << 10, false)] {
            flits.flits.flit_bytes = bytes;
            let (theory, found) = both(&flits);
            assert_eq!(theory.is_some(), is_whole, "{bytes}");
            assert_eq!((found - 1.0).abs() < 0.01, is_whole, "{bytes}: {found}");
        }
    }

    #[test]
    fn an_incast_fills_one_link_of_as_many_as_the_smaller_side_has() {
        for (sources, destinations) in [(8, 4), (4, 8)] {
            let mut text = "switch a\n".to_owned();
            for (kind, count) in [("source", sources), ("destination", destinations)] {
                for node in 0..count {
                    text += &format!("{kind} {kind}{node} a\n");
                }
            }
            let graph = TopologyChoice::Graph(Graph::parse(&text).unwrap());
            assert_eq!(agreed(&scenario(graph, Pattern::Incast(1))), 0.25);
        }
    }

    #[test]
    fn what_theory_does_not_tell_is_left_to_simulations() {
        let refused = |change: fn(&mut Scenario)| {
            let mut scenario = scenario(delta(), Pattern::Incast(0));
            scenario.level = Level::Analytic;
            assert_eq!(scenario.validate(), []);
            change(&mut scenario);
            let problems = scenario.validate();
            problems.len() == 1 && problems[0].code.code == "F0206"
        };
        assert!(refused(|s| s.load.traffic.pattern = Pattern::Uniform));
        assert!(refused(|s| s.load.source_gap = DurationPs::from_ns(1)));
        assert!(refused(|s| s.load.hop_delay = DurationPs::from_ns(1)));
        assert!(refused(|s| s.load.traffic.window = Some(3)));
        assert!(refused(|s| s.switching = fifos(FlowControl::None)));
        assert!(refused(|s| {
            s.load.arrival = Arrival::Poisson {
                interval: DurationPs::from_us(1),
            };
        }));
        assert!(refused(|s| {
            s.topology = TopologyChoice::TwoLevel {
                edges: 2,
                nodes: 2,
                cores: 1,
                trunk_speed: 2,
            };
        }));
        assert!(refused(|s| {
            s.shift = Some(ShiftOrder::ConflictFree);
            s.load.sizes = SizeLaw::Exponential { mean: 2048.0 };
        }));
    }
}
