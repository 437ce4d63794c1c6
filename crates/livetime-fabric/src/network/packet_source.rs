//! What the sources of a network offer, the same at packet and flit level.
//!
//! A source draws destination, size and route of its next packet from a stream of its own, so that
//! one level's packets are those of the other. The event window, where there is one, holds sources
//! back until the oldest event is complete everywhere.

use crate::address::NodeId;
use crate::random::{Purpose, RandomStream, RandomStreams};
use crate::time::SimPs;

use super::arrival::ArrivalTimes;
use super::outcome::NetworkOutcome;
use super::topology::{Route, RouteNumbers, RoutePolicy, Topology};
use super::traffic::{Window, mixed};
use super::wormhole::Load;

/// All sources of a network. Packets of each are numbered by whoever sends them, from 0 on.
#[derive(Debug)]
pub(crate) struct PacketSources {
    seed: u64,
    draws: Vec<RandomStream>,
    arrivals: ArrivalTimes,
    window: Option<Window>,
    /// Those that the window lets go on.
    admitted: Vec<u32>,
    offered: u64,
}

/// A source's next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OfferedPacket {
    pub(crate) to: u32,
    pub(crate) bytes: u32,
}

impl PacketSources {
    pub(crate) fn new(topology: &Topology, load: &Load) -> Self {
        let sources = topology.sources();
        let streams = RandomStreams::new(load.seed);
        let draws = (0..sources).map(|source| streams.stream(NodeId(source), Purpose(1)));
        let arrivals = match load.traffic.window {
            Some(window) if load.traffic.pattern.is_event_building() => {
                ArrivalTimes::shared(&load.arrival, window, streams)
            }
            _ => ArrivalTimes::new(&load.arrival, sources, streams),
        };
        Self {
            seed: load.seed,
            draws: draws.collect(),
            arrivals,
            window: load.traffic.window.map(|size| Window::new(size, sources)),
            admitted: Vec::with_capacity(sources as usize),
            offered: 0,
        }
    }

    /// Whether the window lets packet `number` go; if not, `waiter` is among those that
    /// [`PacketSources::take_admitted`] gives once it does.
    pub(crate) fn admits(&mut self, waiter: u32, number: u64) -> bool {
        let window = self.window.as_mut();
        window.is_none_or(|window| window.admits(waiter, number))
    }

    /// Draws destination and size of packet `number` of a source.
    pub(crate) fn next(
        &mut self,
        topology: &Topology,
        load: &Load,
        source: u32,
        number: u64,
    ) -> OfferedPacket {
        let draw = &mut self.draws[source as usize];
        let destinations = topology.destinations();
        let to = load
            .traffic
            .destination(source, number, destinations, load.seed, draw);
        let size_draw = if load.sizes_per_event {
            mixed(load.seed ^ mixed(number))
        } else {
            draw.next_u64()
        };
        self.offered += 1;
        OfferedPacket {
            to,
            bytes: load.sizes.size(source, number, size_draw),
        }
    }

    /// Chooses the route of a packet, by a draw where the policy wants one.
    pub(crate) fn route(
        &mut self,
        topology: &Topology,
        policy: RoutePolicy,
        pair: [u32; 2],
        number: u64,
    ) -> Route {
        let mut route = Route::new();
        self.write_route(topology, policy, pair, number, &mut route);
        route
    }

    /// As [`PacketSources::route`], in place of what is in `route`.
    #[inline]
    pub(crate) fn write_route(
        &mut self,
        topology: &Topology,
        policy: RoutePolicy,
        [source, to]: [u32; 2],
        number: u64,
        route: &mut Route,
    ) {
        let choice = if policy == RoutePolicy::Random && topology.has_choice() {
            self.draw(source) >> 8
        } else {
            0
        };
        let numbers = RouteNumbers {
            packet: number,
            random: choice,
            seed: self.seed,
        };
        topology.write_chosen_route([source, to], policy, numbers, route);
    }

    /// The next number of a source's stream.
    pub(crate) fn draw(&mut self, source: u32) -> u64 {
        self.draws[source as usize].next_u64()
    }

    /// When packet `number` of a source arrives; `None` if whenever the source is free.
    pub(crate) fn arrival(&mut self, source: u32, number: u64) -> Option<SimPs> {
        let oldest = self.window.as_ref().map_or(0, Window::oldest);
        self.arrivals.time(source, number, oldest)
    }

    /// Counts a packet that is gone, delivered or lost: the window may move.
    pub(crate) fn complete(&mut self, number: u64) {
        if let Some(window) = &mut self.window {
            window.complete(number, &mut self.admitted);
        }
    }

    /// Those that may go on, to be given back empty to [`PacketSources::keep_admitted`], which
    /// keeps their memory.
    pub(crate) fn take_admitted(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.admitted)
    }

    pub(crate) fn keep_admitted(&mut self, admitted: Vec<u32>) {
        self.admitted = admitted;
    }

    /// Puts what the sources know into the outcome of a run that left so many packets, in the network
    /// or drawn at a source; `arrivals` are those of packets that may not have arrived before the end.
    /// What was drawn and would have arrived after it was never offered. Where there is always a packet,
    /// none arrives.
    pub(crate) fn settle(
        &self,
        outcome: &mut NetworkOutcome,
        left: u64,
        arrivals: impl Iterator<Item = SimPs>,
    ) {
        let end = outcome.simulated;
        let to_come = match self.arrivals.is_saturated() {
            true => 0,
            false => arrivals.filter(|time| *time > end).count() as u64,
        };
        outcome.packets_offered = self.offered - to_come;
        outcome.packets_in_flight = left - to_come;
        outcome.sources_behind = self.arrivals.behind(outcome.simulated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flit::{self, FlitConfig};
    use crate::network::{
        Arrival, BufferPlace, Buffering, FlowControl, Forwarding, Pattern, Queueing, SizeLaw,
        Traffic, buffered, wormhole,
    };
    use crate::time::DurationPs;

    fn load(traffic: Traffic) -> Load {
        Load::saturated(traffic, SizeLaw::Fixed(2048), 10)
    }

    #[test]
    fn a_source_beyond_the_window_goes_on_when_the_oldest_packet_is_gone_everywhere() {
        let topology = Topology::crossbar(2).unwrap();
        let load = load(Traffic::new(Pattern::Uniform).with_window(1));
        let mut sources = PacketSources::new(&topology, &load);
        assert!(sources.admits(0, 0) && sources.admits(1, 0));
        assert!(!sources.admits(0, 1));
        sources.complete(0);
        assert!(sources.take_admitted().is_empty(), "one of two");
        sources.complete(0);
        assert_eq!(sources.take_admitted(), [0]);
        assert!(sources.admits(0, 1));
    }

    #[test]
    fn packets_of_a_source_do_not_depend_on_what_others_draw() {
        let topology = Topology::crossbar(4).unwrap();
        let load = load(Traffic::new(Pattern::Uniform));
        let (mut alone, mut together) = (
            PacketSources::new(&topology, &load),
            PacketSources::new(&topology, &load),
        );
        for number in 0..50 {
            together.next(&topology, &load, 0, number);
            let packet = together.next(&topology, &load, 2, number);
            assert_eq!(packet, alone.next(&topology, &load, 2, number));
        }
        assert_eq!([alone.offered, together.offered], [50, 100]);
    }

    #[test]
    fn routes_of_pairs_are_drawn_once_for_each_seed() {
        let topology = Topology::clos(8, 4, 4).unwrap();
        let policy = RoutePolicy::RandomPerPair;
        let routes = |seed, number| -> Vec<Route> {
            let load = Load {
                seed,
                ..load(Traffic::new(Pattern::Uniform))
            };
            let mut sources = PacketSources::new(&topology, &load);
            let pairs = (0..256).map(|pair| [pair / 16, pair % 16]);
            let routes = pairs.map(|pair| sources.route(&topology, policy, pair, number));
            routes.collect()
        };
        let first = routes(1, 0);
        assert_eq!(first, routes(1, 7), "for all packets");
        // One in eight pairs is led through the same crossbar in the middle by chance.
        let second = routes(2, 0);
        let others = first.iter().zip(&second).filter(|(one, two)| one != two);
        assert!(others.count() > 192, "another seed has other routes");
    }

    /// A packet of 2 KiB takes 16.384 us; one comes every 100 us to each of four sources.
    #[test]
    fn what_has_not_arrived_before_the_end_was_never_offered() {
        let topology = Topology::crossbar(4).unwrap();
        let mut load = load(Traffic::new(Pattern::Permutation(vec![1, 2, 3, 0])));
        load.arrival = Arrival::Fixed {
            interval: DurationPs::from_us(100),
        };
        load.warm_up = DurationPs::ZERO;
        let buffering = Buffering {
            forwarding: Forwarding::CutThrough,
            queueing: Queueing::Output,
            place: BufferPlace::Input,
            bytes: 64 << 10,
            lanes: 1,
            flow: FlowControl::Credits,
        };
        let flits = FlitConfig::default();
        // A source draws a packet for each of them beforehand.
        let channels = FlitConfig {
            channels: 4,
            ..flits
        };
        // Those of the last moment are on their way.
        for (end_us, offered, in_flight) in [(99, 0, 0), (105, 4, 4), (199, 4, 0)] {
            load.duration = DurationPs::from_us(end_us);
            for outcome in [
                wormhole::run(&topology, &load),
                buffered::run(&topology, &load, &buffering),
                flit::run(&topology, &load, &flits),
                flit::run(&topology, &load, &channels),
            ] {
                assert!(outcome.is_conserved(), "{end_us} us");
                let counts = (outcome.packets_offered, outcome.packets_in_flight);
                assert_eq!(counts, (offered, in_flight), "{end_us} us");
            }
        }
    }
}
