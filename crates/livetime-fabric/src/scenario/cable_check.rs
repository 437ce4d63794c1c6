//! What links with rates and delays of their own cannot be combined with, and what they ask of
//! buffers, by the line of the graph.
//!
//! The statements themselves are checked where they are read, by [`Graph::parse`].

use std::collections::BTreeSet;

use livetime_wire::{BitRate, ByteSize, DurationNs, Problem};

use crate::address::LinkId;
use crate::builder_network::{Control, Shaping};
use crate::flit::{
    BUFFER_PLACES_MAX, DELAY_CYCLES_MAX, FLITS_UNDER_WAY_MAX, buffer_places, too_long,
};
use crate::network::topology::{Cable, Graph, LinkEnd, RATES};
use crate::network::{
    BufferPlace, Buffering, FlowControl, Forwarding, Queueing, SizeLaw, Topology,
};
use crate::problem_code::{BUFFERS, BUILDER_NETWORK, LEVEL, TIMES};
use crate::time::DurationPs;

use super::{DURATION_MAX, Level, Scenario, Switching, TopologyChoice};

/// A link of a graph with something of its own.
struct OwnLink {
    cable: Cable,
    /// Bits per second.
    bits_per_s: u64,
    /// Whether it is a node's.
    is_node: bool,
    /// Of the fastest link behind the element that it enters, bits per second.
    onward_bits_per_s: u64,
    /// Whether a buffer is at its far end.
    enters_element: bool,
    /// Line of the graph.
    line: usize,
    /// File, line and name.
    place: String,
}

impl Scenario {
    /// Adds what links with rates or delays of their own cannot do.
    pub(super) fn check_cables(&self, topology: &Topology, problems: &mut Vec<Problem>) {
        let TopologyChoice::Graph(graph) = &self.topology else {
            return;
        };
        let links = self.own_links(graph, topology);
        self.check_node_rates(&links, problems);
        self.check_shared_buffers(&links, problems);
        self.check_control(graph, problems);
    }

    /// Adds links on which flits would be under way for longer than is simulated, and too large buffers.
    pub(super) fn check_under_way(&self, topology: &Topology, problems: &mut Vec<Problem>) {
        let has_flits = self.flits.problem().is_none() && self.load.sizes.problem().is_none();
        let has_times =
            RATES.contains(&self.load.link_bits_per_s) && self.load.hop_delay <= DURATION_MAX;
        if !has_flits || !has_times {
            return;
        }
        let own = |link| match &self.topology {
            TopologyChoice::Graph(graph) => {
                let (line, name) = graph.statement(link as usize)?;
                let cable = described(topology.cable(LinkId(link)));
                let place = format!("{}:{line} ({name}) with {cable}", graph.file);
                (!cable.is_empty()).then_some((line, place))
            }
            _ => None,
        };
        let mut lines = BTreeSet::new();
        let found = too_long(topology, &self.load, &self.flits).filter_map(|(link, length)| {
            let hop = format!("each link with a `hop_delay` of {}", self.load.hop_delay);
            let (line, place) = own(link).unwrap_or((0, hop));
            let is_new = lines.insert(line);
            is_new.then(|| format!("{length} on {place}"))
        });
        let allowed = format!(
            "less than {FLITS_UNDER_WAY_MAX} flits under way on a link and back, and than \
             {DELAY_CYCLES_MAX} cycles"
        );
        let help =
            "use `level = \"packet\"`, larger `bytes` of `[flit]`, or shorter or faster links";
        let before = problems.len();
        report(found, |found| {
            problems.push(Problem::new(LEVEL, "level", found, &allowed, help));
        });
        let places = buffer_places(topology, &self.load, &self.flits);
        if problems.len() == before && places > BUFFER_PLACES_MAX {
            let allowed = format!("up to {BUFFER_PLACES_MAX} of them, some 600 MB");
            let found = format!("buffers in which {places} packets may be");
            problems.push(Problem::new(LEVEL, "level", found, &allowed, help));
        }
    }

    /// What long cables make of the scenario, where it is less than may be expected.
    pub(super) fn cable_note(&self, topology: &Topology) -> Option<String> {
        let TopologyChoice::Graph(graph) = &self.topology else {
            return None;
        };
        let links = self.own_links(graph, topology);
        let long = links
            .iter()
            .filter(|link| link.cable.delay > DurationPs::ZERO);
        match &self.switching {
            _ if self.level != Level::Packet => None,
            Switching::Wormhole => {
                let longest = long.max_by_key(|link| link.cable.delay)?;
                let packet = self.load.sizes.mean() * 8.0 / self.load.link_bits_per_s as f64;
                let is_seen = longest.cable.delay.0 as f64 > packet * 1e11;
                is_seen.then(|| {
                    format!(
                        "{}: without buffers a packet holds all links of its path until its last \
                         byte has come, and each waits for its {} of cable; with `mode` of \
                         `[switch]` they follow each other on it",
                        longest.place,
                        DurationNs(longest.cable.delay.0 / 1_000)
                    )
                })
            }
            Switching::Buffered(buffering) => {
                let long = long.filter(|link| link.enters_element);
                let worst = long.max_by_key(|link| self.under_way(link, buffering))?;
                self.buffer_note(worst, buffering)
            }
        }
    }

    /// Bytes that a link can have under way before flow control says anything about the first of
    /// them; of credits no more than certain, and for the mean packet.
    fn under_way(&self, link: &OwnLink, buffering: &Buffering) -> u64 {
        let rate = u128::from(link.bits_per_s);
        let (time, packets) = match (buffering.flow, buffering.forwarding) {
            (FlowControl::None, _) => return 0,
            // It is said when a head comes, and heard a delay later.
            (FlowControl::StopGo { .. }, _) => (link.cable.delay * 2, 0),
            // It is said when a tail has gone on.
            (FlowControl::Credits, forwarding) => {
                let (packet, _) = self.packet_bytes();
                let onward = match (forwarding, buffering.queueing) {
                    (Forwarding::CutThrough, _) => 0,
                    // How fast it goes on inside of an element depends on its speed.
                    (_, Queueing::Combined { .. } | Queueing::Crosspoint { .. }) => 0,
                    (Forwarding::StoreAndForward, _) => {
                        let bytes = u128::from(packet) * rate;
                        (bytes / u128::from(link.onward_bits_per_s.max(1))) as u64
                    }
                };
                (link.cable.delay * 2 + self.load.hop_delay, packet + onward)
            }
        };
        let bits = rate * u128::from(time.0) / 1_000_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX) + packets
    }

    /// Bytes of a mean packet on a link, and whether all are alike.
    fn packet_bytes(&self) -> (u64, bool) {
        let mean = self.load.sizes.mean() as u64;
        let is_fixed = matches!(self.load.sizes, SizeLaw::Fixed(_));
        let (bytes, is_fixed) = match &self.builder {
            None => (mean, is_fixed),
            Some(builder) => match (builder.shaping, u64::from(builder.mtu)) {
                (Shaping::BarrelShifter { block_bytes, .. }, _) => (block_bytes.into(), true),
                (_, mtu) if (1..mean).contains(&mtu) => (mtu, false),
                _ => (mean, is_fixed),
            },
        };
        (bytes + u64::from(self.load.overhead_bytes), is_fixed)
    }

    fn buffer_note(&self, link: &OwnLink, buffering: &Buffering) -> Option<String> {
        let (place, rate) = (&link.place, BitRate(link.bits_per_s));
        let under_way = self.under_way(link, buffering);
        let (bytes, needed) = (ByteSize(buffering.bytes), ByteSize(under_way));
        match buffering.flow {
            FlowControl::Credits => {
                let (packet, is_fixed) = self.packet_bytes();
                // Of packets of one size whole ones alone are in a buffer.
                let (used, enough) = match is_fixed && packet > 0 {
                    true => (
                        buffering.bytes / packet * packet,
                        under_way.next_multiple_of(packet),
                    ),
                    false => (buffering.bytes, under_way),
                };
                let whole = match used < buffering.bytes {
                    true => format!(", {} of them in whole packets", ByteSize(used)),
                    false => String::new(),
                };
                (used < under_way).then(|| {
                    format!(
                        "{place}: at {rate} a round trip of its credits takes {needed}, and its \
                         buffer holds {bytes}{whole}: it carries {:.1} % of its rate at most, and all \
                         of it takes a `buffer` of {enough} B or more",
                        100.0 * used as f64 / under_way as f64
                    )
                })
            }
            FlowControl::StopGo { stop, .. }
                if buffering.bytes.saturating_sub(stop) < under_way =>
            {
                Some(format!(
                    "{place}: at {rate} up to {needed} come behind a stop, and above `stop` the \
                     buffer has room for {}: packets may be lost; none is from a `buffer` of {} B \
                     and two packets on",
                    ByteSize(buffering.bytes.saturating_sub(stop)),
                    stop + under_way
                ))
            }
            _ => None,
        }
    }

    /// Those of a graph's links that have something of their own, one for each line.
    fn own_links(&self, graph: &Graph, topology: &Topology) -> Vec<OwnLink> {
        let mut lines = BTreeSet::new();
        let node_rate = self.load.link_bits_per_s;
        let fastest = fastest_from_elements(topology, node_rate);
        let rates = topology.rates(node_rate);
        let links = (0..).zip(topology.links().iter().zip(rates));
        let own = links.filter_map(|(number, (link, bits_per_s))| {
            let cable = topology.cable(LinkId(number));
            let (line, name) = graph.statement(number as usize)?;
            let is_new = cable != Cable::default() && lines.insert(line);
            let is_port = |end| matches!(end, LinkEnd::Port { .. });
            is_new.then(|| OwnLink {
                cable,
                bits_per_s,
                onward_bits_per_s: match link.to {
                    LinkEnd::Port { element, .. } => fastest[element as usize],
                    LinkEnd::Source(_) | LinkEnd::Destination(_) => 0,
                },
                is_node: !(is_port(link.from) && is_port(link.to)),
                enters_element: is_port(link.to),
                line,
                place: format!("{}:{line} ({name})", graph.file),
            })
        });
        let mut own: Vec<OwnLink> = own.collect();
        own.sort_by_key(|link| link.line);
        own
    }

    /// Control messages on the other direction of the network go from a unit's source to another's
    /// destination, so that the cables of both must be alike.
    fn check_control(&self, graph: &Graph, problems: &mut Vec<Problem>) {
        let builder = self.builder.as_ref();
        if !builder.is_some_and(|builder| matches!(builder.control, Control::Shared { .. })) {
            return;
        }
        let pairs = graph.sources.iter().zip(&graph.destinations);
        let unlike = pairs.filter(|(source, destination)| source.cable != destination.cable);
        let file = &graph.file;
        let found = unlike.map(|(source, destination)| {
            format!(
                "\"shared\" between {file}:{} (source `{}`) and {file}:{} (destination `{}`), whose \
                 links are not alike",
                source.line, source.name, destination.line, destination.name
            )
        });
        let allowed = "\"shared\" where the n-th source and the n-th destination have links alike, \
                       which the other direction is made of";
        let help = "set `control = \"separate\"`, or give both lines the same `rate` and `delay`";
        report(found, |found| {
            let path = "builder.control";
            problems.push(Problem::new(BUILDER_NETWORK, path, found, allowed, help));
        });
    }

    fn check_node_rates(&self, links: &[OwnLink], problems: &mut Vec<Problem>) {
        let most = self.load.link_bits_per_s;
        let fast = links.iter().filter_map(|link| {
            let rate = link.cable.bits_per_s.filter(|rate| *rate > most)?;
            let rate = BitRate(rate);
            link.is_node
                .then(|| format!("less than the {rate} of {}", link.place))
        });
        let allowed = format!(
            "up to {}, the `rate` of `[link]`, which figures are relative to",
            BitRate(most)
        );
        let help = "set `[link] rate` to the rate of the fastest node";
        report(fast, |found| {
            problems.push(Problem::new(TIMES, "link.rate", found, &allowed, help));
        });
    }

    fn check_shared_buffers(&self, links: &[OwnLink], problems: &mut Vec<Problem>) {
        let Switching::Buffered(Buffering { place, flow, .. }) = &self.switching else {
            return;
        };
        if self.level != Level::Packet || *place == BufferPlace::Input || *flow == FlowControl::None
        {
            return;
        }
        let long = links
            .iter()
            .filter(|link| link.enters_element && link.cable.delay > DurationPs::ZERO);
        let found = long.map(|link| {
            format!(
                "a buffer that links share, behind {} with {}",
                link.place,
                described(link.cable)
            )
        });
        let allowed = "delays of links with `buffer_place = \"input\"`, or without flow control: \
                       senders at different distances do not agree on the room that is left";
        let help = "remove `buffer_place` from `[switch]`, or `delay` from the line of the graph";
        report(found, |found| {
            problems.push(Problem::new(
                BUFFERS,
                "switch.buffer_place",
                found,
                allowed,
                help,
            ));
        });
    }
}

/// Reports the first, and how many others are like it.
fn report(mut found: impl Iterator<Item = String>, report: impl FnOnce(String)) {
    if let Some(first) = found.next() {
        report(match found.count() {
            0 => first,
            others => format!("{first}, and {others} more like it"),
        });
    }
}

/// Bits per second of the fastest link from each element.
fn fastest_from_elements(topology: &Topology, node_bits_per_s: u64) -> Vec<u64> {
    let mut fastest = vec![0; topology.elements().len()];
    let rates = topology.rates(node_bits_per_s);
    for (link, rate) in topology.links().iter().zip(rates) {
        if let LinkEnd::Port { element, .. } = link.from {
            let most: &mut u64 = &mut fastest[element as usize];
            *most = rate.max(*most);
        }
    }
    fastest
}

/// A cable as its line says it.
fn described(cable: Cable) -> String {
    let rate = cable
        .bits_per_s
        .map(|rate| format!("a rate of {}", BitRate(rate)));
    let delay = (cable.delay > DurationPs::ZERO)
        .then(|| format!("a delay of {}", DurationNs(cable.delay.0 / 1_000)));
    let parts: Vec<String> = rate.into_iter().chain(delay).collect();
    parts.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder_network::BuilderNetwork;
    use crate::flit::FlitConfig;
    use crate::network::{Load, Pattern, Traffic};

    /// Nodes of 1 Gb/s that send 500 B, 4 us, over a cable of 10 us.
    fn scenario(graph: &str, switching: Switching) -> Scenario {
        let graph = Graph::parse(graph).unwrap();
        Scenario {
            level: Level::Packet,
            topology: TopologyChoice::Graph(Graph {
                file: "halls.graph".to_owned(),
                ..graph
            }),
            switching,
            flits: FlitConfig::default(),
            load: Load::saturated(Traffic::new(Pattern::Uniform), SizeLaw::Fixed(500), 200),
            shift: None,
            rails: 1,
            builder: None,
            duration_max: None,
        }
    }

    const LONG: &str = "switch a\nswitch b\nnode n a\nnode m b rate=500Mb/s\n\
                        link a b delay=10us\nlink a b rate=2Gb/s\n";

    /// Path and value found of each problem.
    fn found(scenario: &Scenario) -> Vec<(String, String)> {
        let problems = scenario.validate().into_iter();
        problems.map(|p| (p.path, p.found)).collect()
    }

    fn one(path: &str, found: &str) -> Vec<(String, String)> {
        vec![(path.to_owned(), found.to_owned())]
    }

    fn buffers(place: BufferPlace, bytes: u64, flow: FlowControl) -> Switching {
        Switching::Buffered(Buffering {
            forwarding: Forwarding::CutThrough,
            queueing: Queueing::VirtualOutput,
            place,
            bytes,
            lanes: 1,
            flow,
        })
    }

    #[test]
    fn links_that_hold_too_many_flits_are_refused_by_line_or_by_the_delay_of_all() {
        let mut scenario = scenario(LONG, Switching::Wormhole);
        scenario.level = Level::Flit;
        assert_eq!(found(&scenario), []);
        assert_eq!(scenario.notes(&scenario.topology.build().unwrap()), [""; 0]);
        // 10 us at 80 Gb/s are 12500 flits of 8 B; of 1 B there are 100000.
        scenario.load.link_bits_per_s = 80_000_000_000;
        assert_eq!(found(&scenario), []);
        scenario.flits.flit_bytes = 1;
        let text = "199998 flits under way and back on halls.graph:5 (link from `a` to `b`) with a \
                    delay of 10.0 us";
        let problems = found(&scenario);
        assert_eq!(problems, one("level", text), "{problems:?}");
        scenario.load.hop_delay = DurationPs::from_us(20);
        let text = &found(&scenario)[0].1;
        assert!(
            text.starts_with("599998 flits") && text.ends_with("1 more like it"),
            "{text}"
        );
        let plain = "switch a\nnode n a\n";
        scenario.topology = TopologyChoice::Graph(Graph::parse(plain).unwrap());
        let text = &found(&scenario)[0].1;
        assert!(
            text.starts_with(
                "399998 flits under way and back on each link with a `hop_delay` of 20"
            ),
            "{text}"
        );
        // A slow link has few flits on it, however long it is.
        let slow = "switch a\nsource n a\ndestination m a rate=1kb/s delay=1s\n";
        scenario.load.hop_delay = DurationPs::ZERO;
        scenario.topology = TopologyChoice::Graph(Graph::parse(slow).unwrap());
        let text = &found(&scenario)[0].1;
        assert!(text.starts_with("10079999999 cycles on "), "{text}");
        // Small packets in many channels of long links take memory.
        scenario.load.hop_delay = DurationPs::from_us(2);
        scenario.load.sizes = SizeLaw::Exponential { mean: 500.0 };
        scenario.topology = TopologyChoice::Crossbar { ports: 512 };
        scenario.flits.channels = 16;
        let text = &found(&scenario)[0].1;
        assert!(text.starts_with("buffers in which 32"), "{text}");
        scenario.load.sizes = SizeLaw::Fixed(500);
        assert_eq!(found(&scenario), []);
    }

    #[test]
    fn nodes_that_are_faster_than_what_figures_are_relative_to_are_refused() {
        let mut scenario = scenario(LONG, Switching::Wormhole);
        scenario.load.link_bits_per_s = 400_000_000;
        let text = "less than the 500 Mb/s of halls.graph:4 (source `m`)";
        assert_eq!(found(&scenario), one("link.rate", text));
        scenario.load.link_bits_per_s = 500_000_000;
        assert_eq!(found(&scenario), []);
    }

    #[test]
    fn flow_control_over_cables_is_refused_for_buffers_that_links_share() {
        let stop_go = FlowControl::StopGo {
            stop: 1_000,
            go: 500,
        };
        for place in [BufferPlace::Input, BufferPlace::Output, BufferPlace::Shared] {
            for flow in [FlowControl::Credits, FlowControl::None, stop_go] {
                let problems = found(&scenario(LONG, buffers(place, 10_000, flow)));
                let text = "a buffer that links share, behind halls.graph:5 (link from `a` to `b`) \
                            with a delay of 10.0 us";
                let expected = match place != BufferPlace::Input && flow != FlowControl::None {
                    true => one("switch.buffer_place", text),
                    false => Vec::new(),
                };
                assert_eq!(problems, expected, "{place:?} {flow:?}");
            }
        }
        // What only leaves over a cable knows its own buffer.
        let node = "switch a\nsource n a rate=1Mb/s\ndestination m a delay=1us\n";
        let shared = buffers(BufferPlace::Shared, 10_000, FlowControl::Credits);
        assert_eq!(found(&scenario(node, shared)), []);
    }

    #[test]
    fn control_messages_the_other_way_need_hosts_with_links_alike() {
        let building = |graph| Scenario {
            builder: Some(BuilderNetwork {
                control: Control::Shared {
                    bits_per_s: 1_000_000_000,
                    latency: DurationPs::from_us(10),
                },
                ..BuilderNetwork::default()
            }),
            ..scenario(graph, Switching::Wormhole)
        };
        let unlike = building("switch a\nsource n a delay=1us\ndestination m a\n");
        let text = "\"shared\" between halls.graph:2 (source `n`) and halls.graph:3 \
                    (destination `m`), whose links are not alike";
        assert_eq!(found(&unlike), one("builder.control", text));
        let alike = building("switch a\nsource n a delay=1us\ndestination m a delay=1us\n");
        assert_eq!(found(&alike), []);
    }

    #[test]
    fn a_buffer_that_is_too_small_for_its_cable_is_named_with_one_that_is_not() {
        let notes = |switching| {
            let scenario = scenario(LONG, switching);
            scenario.notes(&scenario.topology.build().unwrap())
        };
        // 20 us at 1 Gb/s, and a packet: 2500 + 500 B.
        let input = |bytes, flow| buffers(BufferPlace::Input, bytes, flow);
        assert_eq!(notes(input(3_000, FlowControl::Credits)), [""; 0]);
        let text = &notes(input(1_500, FlowControl::Credits))[0];
        assert!(
            text.starts_with("halls.graph:5 (link from `a` to `b`): at 1 Gb/s"),
            "{text}"
        );
        assert!(
            text.contains("carries 50.0 %") && text.contains("takes a `buffer` of 3000 B"),
            "{text}"
        );
        let stop_go = |stop| FlowControl::StopGo { stop, go: 500 };
        assert_eq!(notes(input(4_000, stop_go(1_500))), [""; 0]);
        let text = &notes(input(4_000, stop_go(1_501)))[0];
        assert!(
            text.contains("packets may be lost") && text.contains("4001 B"),
            "{text}"
        );
        assert_eq!(notes(input(500, FlowControl::None)), [""; 0]);
        let text = &notes(Switching::Wormhole)[0];
        assert!(
            text.contains("each waits for its 10.0 us of cable"),
            "{text}"
        );
    }

    /// What fits into a buffer is whole packets, as many as a simulation then has on the cable.
    #[test]
    fn a_link_carries_what_the_note_says_of_packets_of_one_size() {
        let graph = "switch a\nswitch b\nsource s a\ndestination d b\n\
                     link a b rate=100Gb/s delay=1us\n";
        for (forwarding, kib, percent) in [
            (Forwarding::StoreAndForward, 127, Some(41.3)),
            (Forwarding::StoreAndForward, 128, Some(82.7)),
            (Forwarding::StoreAndForward, 191, Some(82.7)),
            (Forwarding::StoreAndForward, 192, None),
            (Forwarding::CutThrough, 127, Some(70.4)),
            (Forwarding::CutThrough, 128, None),
        ] {
            let mut scenario = scenario(
                graph,
                Switching::Buffered(Buffering {
                    forwarding,
                    queueing: Queueing::VirtualOutput,
                    place: BufferPlace::Input,
                    bytes: kib << 10,
                    lanes: 1,
                    flow: FlowControl::Credits,
                }),
            );
            let sizes = SizeLaw::Fixed(64 << 10);
            scenario.load = Load::saturated(Traffic::new(Pattern::Uniform), sizes, 20_000);
            scenario.load.link_bits_per_s = 100_000_000_000;
            scenario.load.duration = DurationPs::from_us(20_000);
            scenario.load.hop_delay = DurationPs::from_ns(200);
            let outcome = scenario.run().unwrap();
            let note = outcome.notes.join("\n");
            let said = percent.map_or(String::new(), |percent| format!("carries {percent} % of"));
            assert!(note.contains(&said), "{forwarding:?} {kib}: {note}");
            assert_eq!(note.is_empty(), percent.is_none(), "{forwarding:?} {kib}");
            let carried = 100.0 * outcome.network.unwrap().efficiency_link.mean;
            let expected = percent.unwrap_or(100.0);
            assert!(
                (carried - expected).abs() < 0.3,
                "{forwarding:?} {kib}: {carried}"
            );
        }
    }
}
