//! What a scenario can do to its user that is no mistake: said beside the result.

use livetime_wire::{ByteSize, DurationNs};

use crate::analytic::building::lossless_buffer_bytes;
use crate::builder_network::{BuilderNetwork, BuilderNetworkOutcome, Shaping};
use crate::flit::FlitConfig;
use crate::network::{
    Arbiter, BufferPlace, Buffering, FlowControl, Queueing, RoutePolicy, SizeLaw, Topology,
};
use crate::time::DurationPs;

use super::buffer_load::Pairs;
use super::{Level, RETRIES_MIN, Scenario, Switching, TopologyChoice};

impl Scenario {
    /// What should be known beside the result, a sentence each.
    pub fn notes(&self, topology: &Topology) -> Vec<String> {
        let mut notes = Vec::new();
        notes.extend(self.deadlock_note(topology));
        notes.extend(self.level_note(topology));
        notes.extend(self.size_note());
        notes.extend(self.tail_note(topology));
        notes.extend(self.stop_note(topology));
        notes.extend(self.loss_note(topology));
        notes.extend(self.order_note(topology));
        notes.extend(self.cable_note(topology));
        notes.extend(self.rounding_note());
        notes.extend(self.whole_flits_note());
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
    fn level_note(&self, topology: &Topology) -> Option<String> {
        let level = match self.level {
            Level::Flit => return self.flit_note(topology),
            Level::Packet => "packet",
            Level::Analytic => "analytic",
        };
        (self.flits != FlitConfig::default())
            .then(|| format!("level {level} takes no notice of `[flit]`: it knows no flits"))
    }

    /// Keys of the scenario that do nothing at level flit.
    fn flit_note(&self, topology: &Topology) -> Option<String> {
        let arbiter = self.load.arbiter.name();
        let flit_bits = u64::from(self.flits.flit_bytes) * 8;
        let cycle = DurationPs::for_bits(flit_bits, self.load.link_bits_per_s);
        let hop_delay = self.load.hop_delay.0;
        let ignored = [
            (self.switching != Switching::Wormhole).then(|| {
                "`mode` and its buffers and queues in `[switch]`: routers are those of `[flit]`"
                    .to_owned()
            }),
            (self.load.arbiter != Arbiter::Random)
                .then(|| format!("`arbiter = \"{arbiter}\"` in `[switch]`: who is first is drawn")),
            (hop_delay > 0 && 2 * hop_delay < 3 * cycle.0 && !topology.has_cables())
                .then(|| "`hop_delay`, which is within the cycle that a flit takes".to_owned()),
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

    /// What sizes of events are where there are none, or where a list says otherwise.
    fn size_note(&self) -> Option<String> {
        if !self.load.sizes_per_event || self.builder.is_some() {
            return None;
        }
        if matches!(self.load.sizes, SizeLaw::Trace(_)) {
            return Some(
                "`per_event` of `[size]` does nothing for a list without `[builder]`: each source \
                 goes through it from another place on"
                    .to_owned(),
            );
        }
        (!self.load.traffic.pattern.is_event_building()).then(|| {
            "`per_event` of `[size]` where the pattern of `[traffic]` has no events: the n-th packets \
             of all sources are of one size"
                .to_owned()
        })
    }

    /// Whether a packet may be larger than the buffer that it must be in as a whole or be let into.
    fn tail_note(&self, topology: &Topology) -> Option<String> {
        let Switching::Buffered(buffering) = &self.switching else {
            return None;
        };
        let is_in_parts = |builder: &BuilderNetwork| {
            builder.mtu > 0 || matches!(builder.shaping, Shaping::BarrelShifter { .. })
        };
        let has_parts = self.builder.as_ref().is_some_and(is_in_parts);
        if self.level != Level::Packet || has_parts {
            return None;
        }
        let overhead = u64::from(self.load.overhead_bytes);
        let above = |bytes: u64| self.load.sizes.share_above(bytes.saturating_sub(overhead));
        let inner = buffering.inner_bytes();
        let is_inner_less = inner.is_some_and(|inner| inner < buffering.bytes);
        let (bytes, key, share, what_then) = match (buffering.flow, inner) {
            (_, Some(inner)) if is_inner_less => {
                let key = match buffering.queueing {
                    Queueing::Crosspoint { .. } => "crosspoint_buffer",
                    _ => "output_buffer",
                };
                // Without credits those that are larger than the buffer before it are lost there.
                let share = match buffering.flow {
                    FlowControl::Credits => above(inner),
                    FlowControl::None | FlowControl::StopGo { .. } => {
                        above(inner) - above(buffering.bytes)
                    }
                };
                let then = "stays in its queue at an input for ever, and so does all behind it";
                (inner, key, share, then)
            }
            (FlowControl::Credits, _) => {
                let then = "never gets through, and its source stands still from then on";
                (buffering.bytes, "buffer", above(buffering.bytes), then)
            }
            (FlowControl::None | FlowControl::StopGo { .. }, _) => return None,
        };
        self.are_expected(share, topology).then(|| {
            let with = if overhead > 0 { "with `overhead` " } else { "" };
            let whose = if key == "buffer" { "" } else { " inside of an element" };
            format!(
                "of a million packets {:.2} are {with}larger than the {} of a buffer{whose}: such a \
                 packet {what_then}. Raise `{key}`, or choose `[size]` with a shorter tail",
                share * 1e6,
                ByteSize(bytes),
            )
        })
    }

    /// Whether packets that are this share of all come in a run at all, with some probability.
    fn are_expected(&self, share: f64, topology: &Topology) -> bool {
        // As many as the links can carry.
        let bits = (self.load.sizes.mean() + f64::from(self.load.overhead_bytes)) * 8.0;
        let seconds = (self.load.warm_up.0 + self.load.duration.0) as f64 / 1e12;
        let of_source = seconds * self.load.link_bits_per_s as f64 / bits;
        share * of_source * f64::from(topology.sources()) > 0.1
    }

    /// Whether a packet that stop-go lets come may find no room, on links without a delay of their own.
    fn stop_note(&self, topology: &Topology) -> Option<String> {
        let Switching::Buffered(buffering) = &self.switching else {
            return None;
        };
        let FlowControl::StopGo { stop, .. } = buffering.flow else {
            return None;
        };
        if self.level != Level::Packet {
            return None;
        }
        let (overhead, bytes) = (u64::from(self.load.overhead_bytes), buffering.bytes);
        // A packet comes while a buffer holds less than `stop`.
        let room = (bytes + 1).saturating_sub(stop);
        let part = self
            .builder
            .as_ref()
            .and_then(|builder| match (builder.shaping, builder.mtu) {
                (Shaping::BarrelShifter { block_bytes, .. }, _) => Some(block_bytes),
                (_, 0) => None,
                (_, mtu) => Some(mtu),
            });
        let largest = match &self.load.sizes {
            SizeLaw::Fixed(size) => Some(*size),
            SizeLaw::Trace(sizes) => sizes.iter().copied().max(),
            SizeLaw::Exponential { .. } | SizeLaw::LogNormal { .. } => None,
        };
        let largest = match (largest, part) {
            (Some(size), Some(part)) => Some(size.min(part)),
            (size, part) => size.or(part),
        };
        let share = self.load.sizes.share_above(room.saturating_sub(overhead));
        let (what, needed) = match largest {
            Some(largest) => {
                let largest = u64::from(largest) + overhead;
                // Packets of one size fill a buffer in steps of it.
                let is_fixed = matches!(self.load.sizes, SizeLaw::Fixed(_)) && part.is_none();
                let fits = largest <= room || is_fixed && stop.next_multiple_of(largest) <= bytes;
                if fits {
                    return None;
                }
                (format!("packets have up to {largest} B"), largest)
            }
            None if !self.are_expected(share, topology) => return None,
            None => (
                format!("of a million packets {:.2} are larger", share * 1e6),
                self.largest_packet() + overhead,
            ),
        };
        Some(format!(
            "with \"stop-go\" a packet comes as long as its buffer holds less than `stop`, above which \
             there are {} of {}, and {what}: one that finds no room is lost, and so is any that is larger \
             than the buffer. Leave {needed} B above `stop`: raise `buffer`, or lower `stop`",
            ByteSize(room),
            ByteSize(bytes),
        ))
    }

    /// Whether packets or flits are so short that the simulated clock, of whole picoseconds, tells.
    fn rounding_note(&self) -> Option<String> {
        let sizes = &self.load.sizes;
        let (what, bytes, is_fixed) = match self.level {
            Level::Analytic => return None,
            Level::Flit => ("a flit", f64::from(self.flits.flit_bytes), true),
            Level::Packet => {
                let bytes = sizes.mean() + f64::from(self.load.overhead_bytes);
                ("a packet", bytes, matches!(sizes, SizeLaw::Fixed(_)))
            }
        };
        let exact = bytes * 8e12 / self.load.link_bits_per_s as f64;
        let taken = match is_fixed {
            true => exact.ceil(),
            false => exact + 0.5,
        };
        (taken > 1.005 * exact).then(|| {
            format!(
                "{what} of {bytes} B takes {exact:.2} ps on the link and {taken:.2} ps here, where time \
                 is in whole picoseconds: what is simulated is up to {:.1} % slower",
                (taken / exact - 1.0) * 100.0
            )
        })
    }

    /// Whether the last flits of packets are much of what the links carry.
    fn whole_flits_note(&self) -> Option<String> {
        if self.level != Level::Flit {
            return None;
        }
        let (flit, sizes) = (f64::from(self.flits.flit_bytes), &self.load.sizes);
        let bytes = sizes.mean() + f64::from(self.load.overhead_bytes);
        let taken = match sizes {
            SizeLaw::Fixed(_) => (bytes / flit).ceil() * flit,
            // The last one is half full, in the mean.
            _ => bytes + flit / 2.0,
        };
        let empty = 1.0 - bytes / taken;
        (empty > 0.01).then(|| {
            format!(
                "packets of {bytes} B go in whole flits of {flit} B: {:.1} % of what the links carry is \
                 empty, and no efficiency is above {:.3}. Choose a smaller `bytes` of `[flit]`",
                100.0 * empty,
                1.0 - empty
            )
        })
    }

    /// Whether a run is so short that events for which fragments are missing hang in it, until they are
    /// asked for again.
    pub(super) fn retry_note(
        &self,
        builder: &BuilderNetwork,
        outcome: &BuilderNetworkOutcome,
    ) -> Option<String> {
        let needed = DurationPs::from_duration_ns(builder.retry) * RETRIES_MIN;
        (outcome.fragments_lost > 0 && self.load.duration < needed).then(|| {
            format!(
                "{} fragments were lost, what misses is asked for again after {} (`retry` of \
                 `[builder]`), and {} were counted: events hang until then, and take the credits of \
                 others. Count {} times `retry` or more for a rate that stays",
                outcome.fragments_lost,
                builder.retry,
                DurationNs(self.load.duration.0 / 1_000),
                RETRIES_MIN
            )
        })
    }

    /// Whether the blocks of a barrel shifter can overtake each other.
    fn order_note(&self, topology: &Topology) -> Option<String> {
        let builder = self.builder.as_ref()?;
        let are_blocks = matches!(builder.shaping, Shaping::BarrelShifter { .. });
        let may_overtake = self.level == Level::Packet
            && self.load.routes == RoutePolicy::Random
            && self.switching != Switching::Wormhole
            && topology.has_choice();
        (are_blocks && may_overtake).then(|| {
            "blocks on different routes overtake each other in buffers, and a fragment in one that does \
             not follow the block before is lost, unless it is asked for again (`retry`): choose \
             `routes` that keep the order, such as \"by-destination\""
                .to_owned()
        })
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
        if buffering.flow != FlowControl::None || builder.shaping != Shaping::None {
            return None;
        }
        let [sources, destinations] = builder.ports(topology, self.load.seed);
        // Each rail has a seed of its own, which pairs with one route each draw it by.
        let rails = match self.load.routes {
            RoutePolicy::RandomPerPair => self.rails,
            _ => 1,
        };
        let most = |rail: u32| {
            let pairs = Pairs {
                sources: &sources,
                destinations: &destinations,
                policy: self.load.routes,
                seed: self.load.seed.wrapping_add(rail.into()),
            };
            pairs.most_in_a_buffer(topology, buffering.place)
        };
        let pairs = (0..rails).map(most).max()?;
        let packets = builder.packets_of(largest.into());
        let fragment = u64::from(largest) + packets * u64::from(self.load.overhead_bytes);
        let needed = lossless_buffer_bytes(pairs, builder.credits.into(), fragment);
        (needed > buffering.bytes).then(|| {
            let whose = match buffering.place {
                BufferPlace::Input => "the buffer of an input",
                BufferPlace::Output => "the buffer of an output",
                BufferPlace::Shared => "the buffer of an element",
            };
            let fewer = match buffering.bytes / (pairs * fragment).max(1) {
                0 => String::new(),
                credits => format!("with {credits} or fewer credits, "),
            };
            format!(
                "up to {pairs} pairs of readout and builder unit send through {whose}, each up to {} \
                 fragments of up to {fragment} B for its credits, {} in all, and nothing keeps them \
                 from the {} that it holds: packets may be lost. While nothing is asked for again, \
                 none is {fewer}with a `buffer` of {needed} B, or with `flow_control`",
                builder.credits,
                ByteSize(needed),
                ByteSize(buffering.bytes),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::topology::Graph;
    use crate::network::{Forwarding, Load, Pattern, Traffic};

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

    fn unguarded(bytes: u64) -> Buffering {
        Buffering {
            forwarding: Forwarding::StoreAndForward,
            queueing: Queueing::Output,
            place: BufferPlace::Output,
            bytes,
            lanes: 1,
            flow: FlowControl::None,
        }
    }

    fn lossy(bytes: u64) -> Switching {
        Switching::Buffered(unguarded(bytes))
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
    fn packets_that_are_larger_than_a_buffer_are_named() {
        let mut wide = scenario(TopologyChoice::Crossbar { ports: 8 });
        let lossless = |bytes| {
            Switching::Buffered(Buffering {
                flow: FlowControl::Credits,
                ..unguarded(bytes)
            })
        };
        (wide.load.warm_up, wide.load.duration) = (DurationPs::ZERO, DurationPs::from_ms(2_000));
        wide.load.link_bits_per_s = 1_000_000_000;
        wide.load.sizes = SizeLaw::LogNormal {
            mean: 2048.0,
            rms: 2048.0,
        };
        assert_eq!(notes(&wide), "", "a wormhole packet is in no buffer");
        wide.switching = lossless(64 << 10);
        let said = notes(&wide);
        assert!(said.starts_with("of a million packets 2."), "{said}");
        wide.builder = Some(BuilderNetwork {
            mtu: 9000,
            ..BuilderNetwork::default()
        });
        assert_eq!(notes(&wide), "", "its packets are parts of fragments");
        wide.builder = None;
        wide.switching = lossless(1 << 20);
        assert_eq!(notes(&wide), "");
        wide.switching = lossless(48 << 10);
        wide.load.sizes = SizeLaw::Exponential { mean: 2048.0 };
        assert_eq!(notes(&wide), "");
    }

    #[test]
    fn packets_that_are_larger_than_a_queue_inside_of_an_element_are_named() {
        let mut wide = scenario(TopologyChoice::Crossbar { ports: 8 });
        (wide.load.warm_up, wide.load.duration) = (DurationPs::ZERO, DurationPs::from_ms(2_000));
        wide.load.sizes = SizeLaw::LogNormal {
            mean: 2048.0,
            rms: 2048.0,
        };
        let within = |queueing, bytes, flow| {
            Switching::Buffered(Buffering {
                queueing,
                place: BufferPlace::Input,
                flow,
                ..unguarded(bytes)
            })
        };
        let crosspoint = Queueing::Crosspoint { bytes: 64 << 10 };
        let combined = Queueing::Combined {
            speedup_thousandths: 2_000,
            output_bytes: 64 << 10,
            matching: None,
        };
        let stop_go = FlowControl::StopGo {
            stop: 256 << 10,
            go: 128 << 10,
        };
        for (queueing, key) in [
            (crosspoint, "`crosspoint_buffer`"),
            (combined, "`output_buffer`"),
        ] {
            for flow in [FlowControl::Credits, FlowControl::None, stop_go] {
                wide.switching = within(queueing, 1 << 20, flow);
                assert_eq!(wide.validate(), []);
                let said = notes(&wide);
                assert!(said.starts_with("of a million packets 2.3"), "{said}");
                assert!(said.contains(&format!("Raise {key}")), "{said}");
            }
            // The least of them, and nothing where what is too large is lost before it comes there.
            wide.switching = within(queueing, 48 << 10, FlowControl::Credits);
            assert!(notes(&wide).contains("Raise `buffer`"), "{}", notes(&wide));
            wide.switching = within(queueing, 64 << 10, FlowControl::None);
            assert_eq!(notes(&wide), "");
        }
        let share = |scenario: &Scenario| {
            let said = notes(scenario);
            let number = said.strip_prefix("of a million packets ");
            let number = number.and_then(|said| said.split(' ').next());
            number.expect("a note").parse::<f64>().expect("a number")
        };
        // What a packet takes on the link counts.
        wide.switching = within(crosspoint, 1 << 20, FlowControl::Credits);
        let before = share(&wide);
        wide.load.overhead_bytes = 8 << 10;
        assert!(share(&wide) > 1.5 * before, "{}", notes(&wide));
    }

    #[test]
    fn packets_without_room_above_stop_are_named_and_lost() {
        let mut stopped = scenario(TopologyChoice::Crossbar { ports: 4 });
        let stop_go = |bytes, stop| {
            Switching::Buffered(Buffering {
                flow: FlowControl::StopGo { stop, go: stop / 2 },
                ..unguarded(bytes)
            })
        };
        let sizes = SizeLaw::Trace(vec![500, 9_000, 1_200, 4_000]);
        stopped.load = Load::saturated(Traffic::new(Pattern::Uniform), sizes, 2_000);
        let run = |scenario: &Scenario| {
            assert_eq!(scenario.validate(), []);
            let outcome = scenario.run().unwrap();
            (
                outcome.notes.join("\n"),
                outcome.network.unwrap().packets_lost,
            )
        };
        stopped.switching = stop_go(10_240, 5_120);
        let (note, lost) = run(&stopped);
        assert!(note.contains("packets have up to 9000 B"), "{note}");
        assert!(
            note.contains("Leave 9000 B above `stop`") && lost > 0,
            "{note} {lost}"
        );
        // A packet comes at 5119 B at most.
        stopped.switching = stop_go(5_119 + 9_000, 5_120);
        assert_eq!(run(&stopped), (String::new(), 0));
        stopped.load.overhead_bytes = 1;
        assert!(notes(&stopped).contains("up to 9001 B"));
        // Packets of one size: a second one comes into 5121 B, and none into 6000.
        stopped.load.overhead_bytes = 0;
        stopped.load.sizes = SizeLaw::Fixed(6_000);
        stopped.switching = stop_go(10_240, 5_120);
        assert_eq!(run(&stopped), (String::new(), 0));
        stopped.load.sizes = SizeLaw::Fixed(5_119);
        stopped.switching = stop_go(10_237, 5_120);
        let (note, lost) = run(&stopped);
        assert!(note.contains("up to 5119 B") && lost > 0, "{note} {lost}");
        // Of a law without end those that are larger than the room, and than the buffer.
        stopped.load.sizes = SizeLaw::LogNormal {
            mean: 2048.0,
            rms: 2048.0,
        };
        stopped.load.duration = stopped.load.duration * 100;
        stopped.switching = stop_go(48 << 10, 24 << 10);
        let (note, lost) = run(&stopped);
        assert!(
            note.contains(" are larger: one that finds no room is lost"),
            "{note}"
        );
        assert!(lost > 0 && !note.contains("stands still"), "{note}");
    }

    #[test]
    fn blocks_that_may_overtake_each_other_are_named() {
        let mut clos = scenario(TopologyChoice::Clos {
            middle: 2,
            ports: 2,
            edges: 4,
        });
        clos.builder = Some(BuilderNetwork {
            shaping: Shaping::BarrelShifter {
                block_bytes: 4096,
                order: crate::scenario::ShiftOrder::Plain,
            },
            ..BuilderNetwork::default()
        });
        assert_eq!(notes(&clos), "", "whole routes are held");
        clos.switching = Switching::Buffered(Buffering {
            flow: FlowControl::Credits,
            ..unguarded(64 << 10)
        });
        assert!(notes(&clos).starts_with("blocks on different routes overtake"));
        clos.load.routes = RoutePolicy::ByDestination;
        assert_eq!(notes(&clos), "");
    }

    #[test]
    fn what_flits_take_no_notice_of_is_named() {
        let mut plain = scenario(TopologyChoice::Crossbar { ports: 4 });
        plain.level = Level::Flit;
        assert_eq!(notes(&plain), "");
        plain.load.routes = RoutePolicy::BySourcePort;
        assert_eq!(notes(&plain), "", "these are noticed");
        // A cycle of 8 B at 1 Gb/s takes 64 ns.
        plain.load.hop_delay = DurationPs::from_ns(97);
        assert_eq!(notes(&plain), "");
        plain.load.hop_delay = DurationPs::from_ns(95);
        assert!(notes(&plain).ends_with("within the cycle that a flit takes"));
        plain.load.hop_delay = DurationPs::ZERO;
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
        plain.flits.channels = 4;
        let text = "level packet takes no notice of `[flit]`: it knows no flits";
        assert_eq!(notes(&plain), text);
    }

    #[test]
    fn a_hop_that_takes_no_cycle_is_named_where_no_cable_adds_to_it() {
        let graph = |cable: &str| {
            let text = format!("switch a\nswitch b\nnode x a\nnode y b\nlink a b {cable}");
            TopologyChoice::Graph(Graph::parse(&text).unwrap())
        };
        let ends = "within the cycle that a flit takes";
        for (cable, is_named) in [("", true), ("delay=1us", false)] {
            let mut short = scenario(graph(cable));
            short.level = Level::Flit;
            short.load.hop_delay = DurationPs::from_ns(20);
            let said = notes(&short);
            assert_eq!(said.ends_with(ends), is_named, "{cable}: {said}");
        }
    }

    #[test]
    fn packets_of_few_picoseconds_are_named() {
        let mut fast = scenario(TopologyChoice::Crossbar { ports: 4 });
        fast.load.sizes = SizeLaw::Fixed(64);
        fast.load.link_bits_per_s = 100_000_000_000_000;
        let said = notes(&fast);
        let expected = "a packet of 64 B takes 5.12 ps on the link and 6.00 ps here";
        assert!(
            said.starts_with(expected) && said.ends_with("up to 17.2 % slower"),
            "{said}"
        );
        fast.level = Level::Flit;
        assert!(notes(&fast).starts_with("a flit of 8 B takes 0.64 ps"));
        fast.load.link_bits_per_s = 100_000_000_000;
        assert_eq!(notes(&fast), "");
        fast.level = Level::Packet;
        assert_eq!(notes(&fast), "");
    }

    #[test]
    fn sizes_of_events_that_are_none_are_named() {
        let mut sized = scenario(TopologyChoice::Crossbar { ports: 4 });
        sized.load.sizes = SizeLaw::Exponential { mean: 2048.0 };
        sized.load.sizes_per_event = true;
        assert!(notes(&sized).contains("has no events"), "{}", notes(&sized));
        sized.load.traffic = Traffic::new(Pattern::EventsInOrder);
        assert_eq!(notes(&sized), "");
        sized.load.sizes = SizeLaw::Trace(vec![1, 2]);
        assert!(notes(&sized).contains("for a list"), "{}", notes(&sized));
        sized.builder = Some(BuilderNetwork::default());
        assert_eq!(notes(&sized), "");
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
            found.contains("none is with 15 or fewer credits, with a `buffer` of 131072 B"),
            "{found}"
        );
        building.switching = lossy(8191);
        let found = notes(&building);
        assert!(
            found.contains("none is with a `buffer` of 131072 B"),
            "{found}"
        );
    }

    /// Units at full speed, whose packets meet in buffers with room for one credit of each pair.
    #[test]
    fn credits_for_which_nothing_is_said_lose_nothing_and_eight_times_as_many_do() {
        let fragment = 8192;
        let combined = Queueing::Combined {
            speedup_thousandths: 2_000,
            output_bytes: 64 << 10,
            matching: None,
        };
        let crosspoint = Queueing::Crosspoint { bytes: 16 << 10 };
        for (queueing, place, pairs) in [
            (Queueing::Output, BufferPlace::Input, 8),
            (Queueing::InputFifo, BufferPlace::Input, 8),
            (Queueing::VirtualOutput, BufferPlace::Input, 8),
            (combined, BufferPlace::Input, 8),
            (crosspoint, BufferPlace::Input, 8),
            (Queueing::Output, BufferPlace::Output, 8),
            (Queueing::InputFifo, BufferPlace::Shared, 64),
        ] {
            let mut building = scenario(TopologyChoice::Crossbar { ports: 8 });
            let sizes = SizeLaw::Fixed(fragment as u32);
            building.load = Load::saturated(Traffic::new(Pattern::Uniform), sizes, 1_000);
            building.load.link_bits_per_s = 10_000_000_000;
            building.load.hop_delay = DurationPs::from_ns(200);
            let mut run = |credits, bytes| {
                let mut builder = BuilderNetwork {
                    credits,
                    ..BuilderNetwork::default()
                };
                builder.hosts.event = DurationPs::ZERO;
                builder.retry = DurationNs(2_000_000);
                builder.timeout = DurationNs(100_000_000);
                building.builder = Some(builder);
                building.switching = Switching::Buffered(Buffering {
                    queueing,
                    place,
                    ..unguarded(bytes)
                });
                assert_eq!(building.validate(), [], "{queueing:?}");
                let outcome = building.run().unwrap();
                let lost = outcome.builder.unwrap().packets_lost;
                let mut notes = outcome.notes;
                notes.retain(|note| !note.contains("this start alone"));
                (notes.join("\n"), lost)
            };
            for credits in [1, 3] {
                let room = u64::from(credits) * pairs * fragment;
                let said = run(credits, room);
                assert_eq!(said, (String::new(), 0), "{queueing:?} {place:?}");
                let (note, lost) = run(8 * credits, room);
                let safe = format!("none is with {credits} or fewer credits");
                assert!(note.contains(&safe), "{note}");
                assert!(lost > 0, "{queueing:?} {place:?} {credits}");
            }
        }
    }
}
