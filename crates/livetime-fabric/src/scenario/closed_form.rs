//! Scenarios whose efficiency theory tells (level F0).
//!
//! What is common to them: links that are all alike, no delays, no pauses, no window, nothing lost.
//! A destination's link is then always busy once a packet for it is somewhere at the head of all that
//! it has to pass, and what is left is who waits for whom:
//!
//! - incast: the one link, shared by all;
//! - senders that stay with their destinations, on a crossbar: each of these is busy;
//! - a barrel shifter without conflicts, fixed sizes: nobody waits;
//! - uniform traffic on a crossbar with input FIFOs: [`crate::analytic::crossbar`], and up to there
//!   what is offered.

use crate::analytic::crossbar::{fifo_inputs, fifo_inputs_exponential, fifo_inputs_limit};
use crate::network::{
    Arrival, BufferPlace, Buffering, FlowControl, Load, Pattern, Queueing, SizeLaw, Topology,
};
use crate::time::DurationPs;

use super::{Level, Scenario, ShiftOrder, Switching, TopologyChoice, thinned};

/// What there are closed forms for.
pub(super) const CLOSED_FORMS: &str = "links alike, no delays, gaps, windows or losses, and one of these: a crossbar of up to 32 ports \
     (or from 256) without buffers or with input FIFOs, uniform traffic, fixed or exponential sizes, \
     saturated or with arrivals that are no bursts; a permutation of a crossbar, saturated; incast, \
     saturated; a barrel shifter in its conflict-free order, fixed sizes, saturated";

/// Ports from which the limit for many is as good.
const MANY_PORTS: u32 = 256;

impl Scenario {
    /// Efficiency from theory, where there is one for this scenario.
    pub(super) fn analytic(&self, topology: &Topology) -> Option<f64> {
        let load = &self.load;
        let is_alike = !topology.has_cables() && topology.links().iter().all(|l| l.speed == 1);
        let is_plain = load.traffic.window.is_none()
            && load.source_gap == DurationPs::ZERO
            && load.hop_delay == DurationPs::ZERO;
        if !is_alike || !is_plain || self.is_lossy() {
            return None;
        }
        let is_saturated = load.arrival == Arrival::Saturated;
        let is_crossbar = matches!(self.topology, TopologyChoice::Crossbar { .. });
        match (&load.traffic.pattern, self.shift) {
            (_, Some(order)) => {
                let is_free = order == ShiftOrder::ConflictFree;
                let is_fixed = matches!(load.sizes, SizeLaw::Fixed(_));
                (is_free && is_fixed && is_saturated).then_some(1.0)
            }
            (Pattern::Incast(_), None) if is_saturated => Some(1.0 / f64::from(topology.sources())),
            (Pattern::Permutation(to), None) if is_saturated && is_crossbar => {
                let mut busy = to.clone();
                busy.sort_unstable();
                busy.dedup();
                Some(busy.len() as f64 / to.len() as f64)
            }
            (Pattern::Uniform, None) if is_crossbar && self.has_fifos() => {
                let most = carried(load, topology.sources())?;
                let offered = offered(load, &thinned(load.arrival.clone(), self.rails))?;
                Some(offered.min(most))
            }
            _ => None,
        }
    }

    fn is_lossy(&self) -> bool {
        match &self.switching {
            _ if self.level == Level::Flit => false,
            Switching::Wormhole => false,
            Switching::Buffered(buffering) => buffering.flow == FlowControl::None,
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

/// Share of its links that a crossbar with input FIFOs carries at most.
fn carried(load: &Load, ports: u32) -> Option<f64> {
    match load.sizes {
        SizeLaw::Fixed(_) if ports >= MANY_PORTS => Some(fifo_inputs_limit()),
        SizeLaw::Fixed(_) => fifo_inputs(ports),
        SizeLaw::Exponential { .. } => Some(fifo_inputs_exponential(ports)),
        SizeLaw::LogNormal { .. } | SizeLaw::Trace(_) => None,
    }
}

/// Share of its link that each source offers.
fn offered(load: &Load, arrival: &Arrival) -> Option<f64> {
    let interval = match arrival {
        Arrival::Saturated => return Some(1.0),
        Arrival::Fixed { interval } | Arrival::Poisson { interval } => interval.0 as f64,
        Arrival::Bernoulli { slot, probability } => slot.0 as f64 / *probability,
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
    use crate::network::topology::Wiring;
    use crate::network::{Forwarding, Traffic};

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
