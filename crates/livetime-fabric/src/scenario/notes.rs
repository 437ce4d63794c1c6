//! What a scenario can do to its user that is no mistake: said beside the result.

use livetime_wire::ByteSize;

use crate::analytic::building::lossless_buffer_bytes;
use crate::builder_network::Shaping;
use crate::network::{Arbiter, BufferPlace, Buffering, FlowControl, Queueing, SizeLaw, Topology};

use super::{Level, Scenario, Switching, TopologyChoice};

impl Scenario {
    /// What should be known beside the result, a sentence each.
    pub fn notes(&self, topology: &Topology) -> Vec<String> {
        let mut notes = Vec::new();
        notes.extend(self.deadlock_note(topology));
        notes.extend(self.level_note());
        notes.extend(self.loss_note(topology));
        notes.extend(self.cable_note(topology));
        notes
    }

    /// Whether packets can wait for each other for ever.
    fn deadlock_note(&self, topology: &Topology) -> Option<String> {
        let is_lossy = matches!(
            &self.switching,
            Switching::Buffered(Buffering { flow: FlowControl::None, .. })
                if self.level == Level::Packet
        );
        let TopologyChoice::Graph(graph) = &self.topology else {
            return None;
        };
        let cycle = topology.waiting_cycle().filter(|_| !is_lossy)?;
        let names = cycle.iter().map(|switch| &graph.switches[*switch as usize]);
        let names: Vec<&str> = names.map(String::as_str).collect();
        Some(format!(
            "links can wait for each other in a circle ({}): packets may stand still for ever, in \
             such a network as in this simulation",
            names.join(" -> ")
        ))
    }

    /// Keys of the scenario that do nothing at its level. Routes are chosen at each.
    fn level_note(&self) -> Option<String> {
        if self.level != Level::Flit {
            return None;
        }
        let arbiter = self.load.arbiter.name();
        let ignored = [
            (self.switching != Switching::Wormhole).then(|| {
                "`mode` and its buffers and queues in `[switch]`: routers are those of `[flit]`"
                    .to_owned()
            }),
            (self.load.arbiter != Arbiter::Random)
                .then(|| format!("`arbiter = \"{arbiter}\"` in `[switch]`: who is first is drawn")),
        ];
        let ignored: Vec<String> = ignored.into_iter().flatten().collect();
        let text = || {
            format!(
                "level flit takes no notice of {}",
                ignored.join(", nor of ")
            )
        };
        (!ignored.is_empty()).then(text)
    }

    /// Whether the credits of an event builder can overflow buffers that nothing guards.
    fn loss_note(&self, topology: &Topology) -> Option<String> {
        let (Some(builder), Switching::Buffered(buffering)) = (&self.builder, &self.switching)
        else {
            return None;
        };
        let largest = match &self.load.sizes {
            SizeLaw::Fixed(bytes) => *bytes,
            SizeLaw::Trace(sizes) => sizes.iter().copied().max()?,
            SizeLaw::Exponential { .. } | SizeLaw::LogNormal { .. } => return None,
        };
        let is_shaped = builder.shaping != Shaping::None;
        // How far several buffers behind each other get is not told by their sum.
        let has_several = matches!(
            buffering.queueing,
            Queueing::Combined { .. } | Queueing::Crosspoint { .. }
        );
        if buffering.flow != FlowControl::None || is_shaped || has_several {
            return None;
        }
        let sources = u64::from(builder.readouts(topology));
        let packets = builder.packets_of(largest.into());
        let fragment = u64::from(largest) + packets * u64::from(self.load.overhead_bytes);
        let needed = lossless_buffer_bytes(sources, builder.credits.into(), fragment);
        let there = match buffering.place {
            // The fragments of a builder unit come through one output.
            BufferPlace::Output | BufferPlace::Shared => buffering.bytes,
            BufferPlace::Input => buffering.bytes.saturating_mul(sources),
        };
        (needed > there).then(|| {
            format!(
                "{} credits of {sources} fragments of up to {fragment} B can be on their way to one \
                 builder unit, {} in all, and nothing keeps them from the {} of buffers on the way: \
                 packets may be lost. None is with {} or fewer credits, or with `flow_control`",
                builder.credits,
                ByteSize(needed),
                ByteSize(there),
                there / (sources * fragment).max(1),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder_network::BuilderNetwork;
    use crate::flit::FlitConfig;
    use crate::network::topology::Graph;
    use crate::network::{Forwarding, Load, Pattern, RoutePolicy, Traffic};

    fn scenario(topology: TopologyChoice) -> Scenario {
        Scenario {
            level: Level::Packet,
            topology,
            switching: Switching::Wormhole,
            flits: FlitConfig::default(),
            load: Load::saturated(Traffic::new(Pattern::Uniform), SizeLaw::Fixed(2048), 200),
            shift: None,
            rails: 1,
            builder: None,
            duration_max: None,
        }
    }

    fn notes(scenario: &Scenario) -> String {
        scenario
            .notes(&scenario.topology.build().unwrap())
            .join("\n")
    }

    fn lossy(bytes: u64) -> Switching {
        Switching::Buffered(Buffering {
            forwarding: Forwarding::StoreAndForward,
            queueing: Queueing::Output,
            place: BufferPlace::Output,
            bytes,
            lanes: 1,
            flow: FlowControl::None,
        })
    }

    #[test]
    fn a_ring_stands_still_at_both_levels_and_says_so() {
        let mut text = String::new();
        for s in 0..4 {
            text += &format!("switch s{s}\nnode a{s} s{s}\nnode b{s} s{s}\n");
        }
        for s in 0..4 {
            text += &format!("link s{s} s{}\n", (s + 1) % 4);
        }
        let graph = Graph::parse(&text).unwrap();
        let mut ring = scenario(TopologyChoice::Graph(graph));
        assert!(notes(&ring).contains("s0 -> s"), "{}", notes(&ring));
        for level in [Level::Packet, Level::Flit] {
            ring.level = level;
            let outcome = ring.run().unwrap();
            let network = outcome.network.unwrap();
            assert!(
                network.is_deadlocked() && network.is_conserved(),
                "{level:?}"
            );
            assert!(!network.efficiency_link.converged);
        }
        // Packets that are dropped wait for nothing.
        ring.level = Level::Packet;
        ring.switching = lossy(64 << 10);
        assert_eq!(notes(&ring), "");
        assert!(!ring.run().unwrap().network.unwrap().is_deadlocked());
    }

    #[test]
    fn what_flits_take_no_notice_of_is_named() {
        let mut plain = scenario(TopologyChoice::Crossbar { ports: 4 });
        plain.level = Level::Flit;
        assert_eq!(notes(&plain), "");
        plain.load.routes = RoutePolicy::BySourcePort;
        assert_eq!(notes(&plain), "", "these are noticed");
        let (mode, arbiter) = (
            "`mode` and its buffers and queues in `[switch]`: routers are those of `[flit]`",
            "`arbiter = \"oldest\"` in `[switch]`: who is first is drawn",
        );
        let before = "level flit takes no notice of";
        plain.load.arbiter = Arbiter::Oldest;
        assert_eq!(notes(&plain), format!("{before} {arbiter}"));
        plain.switching = lossy(64 << 10);
        assert_eq!(notes(&plain), format!("{before} {mode}, nor of {arbiter}"));
        plain.load.arbiter = Arbiter::Random;
        assert_eq!(notes(&plain), format!("{before} {mode}"));
        plain.level = Level::Packet;
        assert_eq!(notes(&plain), "");
    }

    #[test]
    fn credits_beyond_unguarded_buffers_are_named_with_those_that_fit() {
        let mut building = scenario(TopologyChoice::Crossbar { ports: 4 });
        building.builder = Some(BuilderNetwork::default());
        assert_eq!(notes(&building), "");
        // Four sources of 2 KiB: 8 KiB for a credit.
        building.switching = lossy(16 * 8192);
        assert_eq!(notes(&building), "");
        building.switching = lossy(16 * 8192 - 1);
        let found = notes(&building);
        assert!(
            found.contains("None is with 15 or fewer credits"),
            "{found}"
        );
    }
}
