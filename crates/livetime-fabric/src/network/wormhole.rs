//! Hold-and-wait wormhole: no buffers, a blocked packet waits in place and holds its links.
//!
//! The header claims the links of its route one after the other; where a link is taken it waits
//! and keeps all it has. When the last link is claimed the packet streams, and when its tail has
//! left, the whole route is freed. Simultaneous events follow the rule "waiters first": what is
//! freed at an instant goes, in random order, to heads that waited before it; then come the heads
//! of that instant, in random order. Fixed sizes make exact ties the normal case, so that rule is
//! part of the model.
//!
//! Cables of their own: a header needs the delay of each on top of that of a hop, from the source's
//! on; a packet streams at the rate of the slowest link of its route, and holds all of them until
//! its tail is at its destination, however long they are.
//!
//! Cost: one event per packet without delay per hop, else one more per hop; about 200 bytes per
//! source and 16 per link, nothing allocated per packet. What an event of a packet touches is one
//! cache line of its source, while its route has four links at most, and those of its links.

use crate::address::{LinkId, NodeId};
use crate::kernel::{RunLimits, Simulation, SimulationConfig, World};
use crate::queue::{EventClass, Lane, QueueKind};
use crate::random::{Purpose, RandomStream, RandomStreams};
use crate::scheduler::Scheduler;
use crate::time::{ByteTime, DurationPs, SimPs};
use crate::trace::EventLabel;

use super::arbiter::{Arbiter, ServedPorts};
use super::arrival::Arrival;
use super::link_meter::LinkMeter;
use super::link_report::LinkReport;
use super::outcome::{NetworkOutcome, Tally};
use super::packet_source::{OfferedPacket, PacketSources};
use super::port::{Delivery, Parcel, StepEvent};
use super::size_law::SizeLaw;
use super::standstill::{Standstill, Waits};
use super::topology::{LinkEnd, Route, RoutePolicy, Topology};
use super::traffic::Traffic;

/// No source, no link.
const NONE: u32 = u32::MAX;

/// Completions and what else makes links free or heads ready.
const CAUSE: EventClass = EventClass(0);
/// The one event of an instant that gives links away.
const SETTLE: EventClass = EventClass(1);

/// What does not depend on the engine: packets, times, and where a run ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Destinations.
    pub traffic: Traffic,
    /// Sizes.
    pub sizes: SizeLaw,
    /// All fragments of an event have the same size.
    pub sizes_per_event: bool,
    /// When packets arrive at the sources.
    pub arrival: Arrival,
    /// Rate of a node's link, bits per second.
    pub link_bits_per_s: u64,
    /// Bytes on the link for each packet besides its payload.
    pub overhead_bytes: u32,
    /// Pause of a source after each packet: what keeps a single source below the link.
    pub source_gap: DurationPs,
    /// Time of a header from one element to the next.
    pub hop_delay: DurationPs,
    /// Choice of routes.
    pub routes: RoutePolicy,
    /// Arbiter of every link.
    pub arbiter: Arbiter,
    /// Seed of everything random.
    pub seed: u64,
    /// Simulated time that is not counted.
    pub warm_up: DurationPs,
    /// Simulated time that is counted, after the warm-up.
    pub duration: DurationPs,
    /// The queue of the kernel; results do not depend on it.
    pub queue: QueueKind,
    /// Whether [`NetworkOutcome::links`] is wanted. It costs a tenth of the speed with buffers, and a
    /// third without.
    pub counts_links: bool,
}

impl Load {
    /// Saturated sources with packets of 2 KiB on links of 1 Gb/s, for `packet_times` of them
    /// after a tenth more of warm-up.
    pub fn saturated(traffic: Traffic, sizes: SizeLaw, packet_times: u64) -> Self {
        let link_bits_per_s = 1_000_000_000;
        let packet = DurationPs::for_bits((sizes.mean() * 8.0) as u64, link_bits_per_s);
        Self {
            traffic,
            sizes,
            sizes_per_event: false,
            arrival: Arrival::Saturated,
            link_bits_per_s,
            overhead_bytes: 0,
            source_gap: DurationPs::ZERO,
            hop_delay: DurationPs::ZERO,
            routes: RoutePolicy::default(),
            arbiter: Arbiter::default(),
            seed: 1,
            warm_up: packet * (packet_times / 10),
            duration: packet * packet_times,
            queue: QueueKind::default(),
            counts_links: false,
        }
    }
}

/// An event of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The tail of a source's packet has left.
    Done(u32),
    /// The head of a source's packet is at its next element.
    Head(u32),
    /// All causes of this instant are known.
    Settle,
}

/// A link, and the heads that wait for it.
#[derive(Debug, Clone, Copy)]
struct LinkState {
    owner: u32,
    first_waiting: u32,
    last_waiting: u32,
    last_port: u16,
    /// Input port at the element that the link ends at, for arbiters.
    input_port: u16,
}

/// A source and its packet: it has one at most.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Source {
    /// Number of the packet.
    packet: u64,
    arrived: SimPs,
    waits_since: SimPs,
    destination: u32,
    bytes: u32,
    next_waiting: u32,
    /// The hosts' number of the packet.
    tag: u32,
    has_packet: bool,
    /// Links of the route that it holds. The injection link belongs to the source alone, so it is never
    /// waited for.
    claimed: u8,
    route: Route,
}

impl Source {
    const IDLE: Self = Self {
        packet: 0,
        arrived: SimPs::ZERO,
        waits_since: SimPs::ZERO,
        destination: 0,
        bytes: 0,
        next_waiting: NONE,
        tag: 0,
        has_packet: false,
        claimed: 0,
        route: Route::new(),
    };
}

/// Rate and delay of a link, where any link of the network has its own.
#[derive(Debug, Clone, Copy)]
struct Pace {
    bits_per_s: u64,
    delay: DurationPs,
}

/// The engine.
pub(crate) struct Fabric<'t> {
    topology: &'t Topology,
    load: Load,
    byte_time: ByteTime,
    /// Of each link; `None` where none has anything of its own.
    paces: Option<Box<[Pace]>>,
    /// Which engine of its simulation this is.
    network: u8,
    /// Packets come from hosts.
    is_for_hosts: bool,
    links: Vec<LinkState>,
    served: ServedPorts,
    ports_max: usize,
    sources: Vec<Source>,
    packets: PacketSources,
    // This instant.
    freed: Vec<u32>,
    heads: Vec<u32>,
    is_settling: bool,
    ties: RandomStream,
    tally: Tally,
    meter: Option<Box<LinkMeter>>,
}

/// Runs saturated or offered traffic through a fabric without buffers.
///
/// # Panics
/// If the load does not fit the topology: see [`Traffic::problem`] and [`SizeLaw::problem`].
pub fn run(topology: &Topology, load: &Load) -> NetworkOutcome {
    let config = SimulationConfig {
        queue: load.queue,
        ..SimulationConfig::default()
    };
    let mut simulation = Simulation::new(Fabric::new(topology, load.clone()), config);
    let (fabric, scheduler) = simulation.parts_mut();
    for source in 0..topology.sources() {
        fabric.offer(SimPs::ZERO, source, scheduler);
    }
    let end = SimPs::ZERO + load.warm_up + load.duration;
    let report = simulation.run(RunLimits::new(end, u64::MAX));
    let mut fabric = simulation.into_world();
    let (links, standstill) = (fabric.take_link_report(report.now), fabric.standstill());
    let left = fabric.sources.iter().filter(|source| source.has_packet);
    let arrivals = left.clone().map(|source| source.arrived);
    let mut outcome = fabric.tally.into_outcome(&report);
    let in_flight = left.count() as u64;
    fabric.packets.settle(&mut outcome, in_flight, arrivals);
    (outcome.links, outcome.standstill) = (links, standstill);
    outcome
}

impl World for Fabric<'_> {
    type Event = Step;

    #[inline]
    fn label(&self, event: &Step) -> EventLabel {
        self.label_of(event)
    }

    #[inline]
    fn handle(&mut self, _now: SimPs, event: Step, scheduler: &mut Scheduler<Step>) {
        self.take_step(event, scheduler);
    }
}

impl<'t> Fabric<'t> {
    /// An engine whose packets come from hosts, as engine `network` of its simulation.
    pub(crate) fn for_hosts(topology: &'t Topology, load: Load, network: u8) -> Self {
        Self {
            network,
            is_for_hosts: true,
            tally: Tally::of_hosts(topology, &load),
            ..Self::new(topology, load)
        }
    }

    /// What links did until the end of the run, if it was counted.
    pub(crate) fn take_link_report(&mut self, end: SimPs) -> Option<LinkReport> {
        self.end_waits(end);
        let meter = self.meter.take()?;
        Some(LinkReport {
            waited_for: self.standstill().links,
            ..meter.into_report(end, |_| None)
        })
    }

    /// What stands still for ever as things are: packets that wait for a link whose owner is one of them.
    pub(crate) fn standstill(&self) -> Standstill {
        let mut waits = Waits::new(self.sources.len());
        let mut is_waiting = vec![false; self.sources.len()];
        for (link, source) in self.waiting() {
            is_waiting[source as usize] = true;
            match self.links[link as usize].owner {
                NONE => waits.free(source as usize),
                owner => waits.wait(source as usize, owner as usize),
            }
        }
        for (source, _) in is_waiting.iter().enumerate().filter(|(_, is)| !**is) {
            waits.free(source);
        }
        let can_go = waits.settle();
        let still = self
            .waiting()
            .filter(|(_, source)| !can_go[*source as usize]);
        let (links, sources) = still.unzip();
        Standstill::of(sources, links)
    }

    /// Links that are waited for, each with every source whose head waits for it.
    fn waiting(&self) -> impl Iterator<Item = (u32, u32)> {
        let some = |source: u32| (source != NONE).then_some(source);
        (0..).zip(&self.links).flat_map(move |(number, link)| {
            let next = move |source: &u32| some(self.sources[*source as usize].next_waiting);
            let waiting = std::iter::successors(some(link.first_waiting), next);
            waiting.map(move |source| (number, source))
        })
    }

    /// Takes a parcel that the source sends from `at` on. Its link must be free.
    #[inline]
    pub(crate) fn send<E: StepEvent<Step>>(
        &mut self,
        at: SimPs,
        source: u32,
        parcel: Parcel,
        scheduler: &mut Scheduler<E>,
    ) {
        let state = &mut self.sources[source as usize];
        assert!(!state.has_packet, "source {source} sends already");
        (state.tag, state.bytes, state.arrived) = (parcel.tag, parcel.bytes, at);
        self.take_route(source, parcel.to);
        let at = at + self.delay_of(source);
        scheduler.at(at, CAUSE, E::of(self.network, Step::Head(source)));
    }

    /// The parcel that a step delivers to hosts, if it does.
    #[inline]
    pub(crate) fn delivered_by(&self, step: &Step) -> Option<Delivery> {
        match step {
            Step::Done(from) if self.is_for_hosts => Some(self.delivery(*from)),
            _ => None,
        }
    }

    #[inline]
    fn delivery(&self, from: u32) -> Delivery {
        let source = &self.sources[from as usize];
        let parcel = Parcel {
            to: source.destination,
            bytes: source.bytes,
            tag: source.tag,
        };
        Delivery { from, parcel }
    }

    /// What the trace says of a step.
    #[inline]
    pub(crate) fn label_of(&self, event: &Step) -> EventLabel {
        let (kind, source) = match event {
            Step::Done(source) => (0, *source),
            Step::Head(source) => (1, *source),
            Step::Settle => (2, 0),
        };
        let key = match event {
            Step::Settle => 0,
            _ => {
                let state = &self.sources[source as usize];
                state.packet << 20 | u64::from(state.destination)
            }
        };
        EventLabel {
            node: NodeId(source),
            kind,
            key,
        }
    }

    /// Lets a step happen; what it delivers to hosts, if it does. The link that it came from is free
    /// then.
    #[inline]
    pub(crate) fn take_step<E: StepEvent<Step>>(
        &mut self,
        step: Step,
        scheduler: &mut Scheduler<E>,
    ) -> Option<Delivery> {
        let now = scheduler.now();
        match step {
            Step::Done(source) => {
                self.free_route(source);
                self.settle_later(now, scheduler);
                let state = &mut self.sources[source as usize];
                state.packet += 1;
                state.has_packet = false;
                if self.is_for_hosts {
                    return Some(self.delivery(source));
                }
                self.count(now, source);
                self.offer(now + self.load.source_gap, source, scheduler);
            }
            Step::Head(source) => {
                self.heads.push(source);
                self.settle_later(now, scheduler);
            }
            Step::Settle => self.settle(now, scheduler),
        }
        None
    }

    fn new(topology: &'t Topology, load: Load) -> Self {
        let sources = topology.sources() as usize;
        let links = topology.links();
        let streams = RandomStreams::new(load.seed);
        let ports_max = topology.elements().iter().map(|e| e.inputs).max();
        let ports_max = ports_max.unwrap_or(1) as usize;
        let link = |link: &super::topology::Link| LinkState {
            owner: NONE,
            first_waiting: NONE,
            last_waiting: NONE,
            last_port: 0,
            input_port: match link.to {
                LinkEnd::Port { port, .. } => port as u16,
                _ => 0,
            },
        };
        Self {
            topology,
            byte_time: ByteTime::new(load.link_bits_per_s),
            paces: paces(topology, load.link_bits_per_s),
            network: 0,
            is_for_hosts: false,
            links: links.iter().map(link).collect(),
            served: ServedPorts::new(load.arbiter, links.len(), ports_max),
            ports_max,
            sources: vec![Source::IDLE; sources],
            packets: PacketSources::new(topology, &load),
            freed: Vec::with_capacity(links.len()),
            heads: Vec::with_capacity(sources),
            is_settling: false,
            ties: streams.stream(NodeId(0), Purpose(2)),
            tally: Tally::new(topology, &load),
            meter: LinkMeter::asked_for(topology, &load, 0, 0, true),
            load,
        }
    }

    /// Makes the next packet of a source, from `at` on or when it arrives.
    fn offer<E: StepEvent<Step>>(&mut self, at: SimPs, source: u32, scheduler: &mut Scheduler<E>) {
        let number = self.sources[source as usize].packet;
        if !self.packets.admits(source, number) {
            return;
        }
        let OfferedPacket { to, bytes } =
            self.packets.next(self.topology, &self.load, source, number);
        self.take_route(source, to);
        let state = &mut self.sources[source as usize];
        state.bytes = bytes;
        state.arrived = self.packets.arrival(source, number).unwrap_or(at);
        let ready = at.max(state.arrived) + self.delay_of(source);
        // Heads that become ready while causes are handled need no event of their own.
        if ready == scheduler.now() && self.is_settling {
            self.heads.push(source);
        } else {
            scheduler.at(ready, CAUSE, E::of(self.network, Step::Head(source)));
        }
    }

    /// What a link delays a header beside the hop.
    #[inline]
    fn delay_of(&self, link: u32) -> DurationPs {
        let paces = self.paces.as_ref();
        paces.map_or(DurationPs::ZERO, |paces| paces[link as usize].delay)
    }

    /// Chooses the route of a source's next packet.
    #[inline]
    fn take_route(&mut self, source: u32, to: u32) {
        let state = &mut self.sources[source as usize];
        state.destination = to;
        state.has_packet = true;
        state.claimed = 1;
        let (pair, policy) = ([source, to], self.load.routes);
        let packets = &mut self.packets;
        packets.write_route(self.topology, policy, pair, state.packet, &mut state.route);
    }

    fn settle_later<E: StepEvent<Step>>(&mut self, now: SimPs, scheduler: &mut Scheduler<E>) {
        if !self.is_settling {
            self.is_settling = true;
            scheduler.at(now, SETTLE, E::of(self.network, Step::Settle));
        }
    }

    // In line: called for each packet.
    #[inline(always)]
    fn free_route(&mut self, source: u32) {
        for link in &self.sources[source as usize].route.links()[1..] {
            let state = &mut self.links[*link as usize];
            state.owner = NONE;
            if state.first_waiting != NONE {
                self.freed.push(*link);
            }
        }
    }

    /// Counts a packet that left, and lets the window move.
    fn count(&mut self, now: SimPs, source: u32) {
        let Source {
            packet,
            arrived,
            destination,
            bytes,
            ..
        } = self.sources[source as usize];
        let latency = now - arrived;
        self.tally
            .delivered(now, source, destination, bytes, latency);
        // The packet after it has its number already.
        self.packets.complete(packet - 1);
    }

    fn settle<E: StepEvent<Step>>(&mut self, now: SimPs, scheduler: &mut Scheduler<E>) {
        let mut admitted = self.packets.take_admitted();
        for source in admitted.drain(..) {
            self.offer(now, source, scheduler);
        }
        self.packets.keep_admitted(admitted);
        let mut freed = core::mem::take(&mut self.freed);
        shuffle(&mut freed, &mut self.ties);
        for link in freed.drain(..) {
            if self.links[link as usize].owner == NONE
                && let Some(source) = self.take_waiting(link as usize, now)
            {
                self.end_wait(source, now);
                self.links[link as usize].owner = source;
                self.advance(now, source, scheduler);
            }
        }
        self.freed = freed;
        let mut heads = core::mem::take(&mut self.heads);
        shuffle(&mut heads, &mut self.ties);
        for source in heads.drain(..) {
            self.advance(now, source, scheduler);
        }
        self.heads = heads;
        self.is_settling = false;
    }

    /// Counts the wait of a head for all links that it holds.
    #[inline]
    fn end_wait(&mut self, source: u32, now: SimPs) {
        if let Some(meter) = &mut self.meter {
            let state = &self.sources[source as usize];
            for link in &state.route.links()[..usize::from(state.claimed)] {
                meter.held(*link as usize, state.waits_since, now);
            }
        }
    }

    /// Counts the waits of those that still wait at the end.
    fn end_waits(&mut self, end: SimPs) {
        if self.meter.is_none() {
            return;
        }
        for link in 0..self.links.len() {
            let mut at = self.links[link].first_waiting;
            while at != NONE {
                self.end_wait(at, end);
                at = self.sources[at as usize].next_waiting;
            }
        }
    }

    /// Claims links from where the head is, until one is taken or the route is complete. The first one
    /// may be its own already, if it has waited for it.
    fn advance<E: StepEvent<Step>>(
        &mut self,
        now: SimPs,
        source: u32,
        scheduler: &mut Scheduler<E>,
    ) {
        let mut hop_delay = self.load.hop_delay;
        let state = &mut self.sources[source as usize];
        let links = state.route.links();
        while let Some(link) = links.get(usize::from(state.claimed)) {
            let owner = &mut self.links[*link as usize].owner;
            if *owner != NONE && *owner != source {
                let link = *link;
                return self.wait(link as usize, source, now);
            }
            *owner = source;
            state.claimed += 1;
            if let Some(paces) = &self.paces {
                hop_delay = self.load.hop_delay + paces[*link as usize].delay;
            }
            if hop_delay != DurationPs::ZERO && usize::from(state.claimed) < links.len() {
                scheduler.after(hop_delay, CAUSE, E::of(self.network, Step::Head(source)));
                return;
            }
        }
        // Behind the last link the head is at its destination, where the bytes follow it.
        let bytes = u64::from(state.bytes) + u64::from(self.load.overhead_bytes);
        let streaming = match &self.paces {
            None => self.byte_time.of(bytes),
            Some(paces) => streaming(paces, links, bytes),
        };
        if let Some(meter) = &mut self.meter {
            for link in links {
                meter.carries(*link as usize, now + hop_delay, streaming);
            }
        }
        let done = E::of(self.network, Step::Done(source));
        match self.is_for_hosts {
            // Those of hosts are blocks of one size, as a rule.
            true => scheduler.at_in_order(Lane::First, now + (hop_delay + streaming), CAUSE, done),
            false => scheduler.after(hop_delay + streaming, CAUSE, done),
        }
    }

    fn wait(&mut self, link: usize, source: u32, now: SimPs) {
        let state = &mut self.sources[source as usize];
        (state.waits_since, state.next_waiting) = (now, NONE);
        let link = &mut self.links[link];
        match link.last_waiting {
            NONE => link.first_waiting = source,
            last => self.sources[last as usize].next_waiting = source,
        }
        link.last_waiting = source;
    }

    /// The waiting head that the arbiter chooses of those that waited before `now`.
    // In line: called for each link that comes free.
    #[inline(always)]
    fn take_waiting(&mut self, link: usize, now: SimPs) -> Option<u32> {
        let mut before = NONE;
        let mut at = self.links[link].first_waiting;
        if at == NONE || self.sources[at as usize].waits_since == now {
            return None;
        }
        if self.sources[at as usize].next_waiting != NONE && self.load.arbiter != Arbiter::Oldest {
            (before, at) = self.arbitrate(link, now);
        }
        let after = self.sources[at as usize].next_waiting;
        match before {
            NONE => self.links[link].first_waiting = after,
            before => self.sources[before as usize].next_waiting = after,
        }
        if after == NONE {
            self.links[link].last_waiting = before;
        }
        let port = self.port_of(at);
        self.links[link].last_port = port;
        self.served.note(link, port);
        Some(at)
    }

    /// Input port at which a head waits.
    fn port_of(&self, source: u32) -> u16 {
        let state = &self.sources[source as usize];
        let held = state.route.links()[usize::from(state.claimed) - 1];
        self.links[held as usize].input_port
    }

    /// The chosen head and the one before it in the list, which is in the order of waiting.
    fn arbitrate(&mut self, link: usize, now: SimPs) -> (u32, u32) {
        let first = self.links[link].first_waiting;
        let mut candidates = 0;
        let mut at = first;
        while at != NONE && self.sources[at as usize].waits_since < now {
            candidates += 1;
            at = self.sources[at as usize].next_waiting;
        }
        let wanted = match self.load.arbiter {
            Arbiter::Random => Some(self.ties.below(candidates)),
            _ => None,
        };
        let (mut best, mut best_rank) = ((NONE, first), u64::MAX);
        let (mut before, mut at) = (NONE, first);
        for place in 0..candidates {
            if wanted == Some(place) {
                return (before, at);
            }
            let rank = self.rank(link, self.port_of(at));
            if rank < best_rank {
                (best, best_rank) = ((before, at), rank);
            }
            (before, at) = (at, self.sources[at as usize].next_waiting);
        }
        best
    }

    /// Order of input ports at a link: the lowest rank is served.
    fn rank(&self, link: usize, port: u16) -> u64 {
        let ports = self.ports_max as u64;
        match self.load.arbiter {
            Arbiter::RoundRobin => {
                (u64::from(port) + ports - 1 - u64::from(self.links[link].last_port)) % ports
            }
            Arbiter::LeastRecent => self.served.rank(link, port),
            Arbiter::Random | Arbiter::Oldest | Arbiter::Fixed => u64::from(port),
        }
    }
}

/// Rates and delays of all links; `None` where none has anything of its own.
fn paces(topology: &Topology, node_bits_per_s: u64) -> Option<Box<[Pace]>> {
    let pace = |(number, bits_per_s): (u32, u64)| Pace {
        bits_per_s,
        delay: topology.cable(LinkId(number)).delay,
    };
    let rates = (0..).zip(topology.rates(node_bits_per_s));
    topology.has_cables().then(|| rates.map(pace).collect())
}

/// How long bytes go over links that a packet holds all at once: at the rate of the slowest.
fn streaming(paces: &[Pace], links: &[u32], bytes: u64) -> DurationPs {
    let rates = links.iter().map(|link| paces[*link as usize].bits_per_s);
    let slowest = rates.min().expect("a route has links");
    DurationPs::for_bits(bytes * 8, slowest)
}

/// Shuffles in place (Fisher and Yates), one draw for each element but the last.
pub(super) fn shuffle(values: &mut [u32], random: &mut RandomStream) {
    for i in (1..values.len()).rev() {
        values.swap(i, random.below(i as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Pattern;

    #[test]
    fn a_saturated_source_sends_or_holds_its_links_and_waits() {
        let topology = Topology::delta(4, 2, &super::super::topology::Wiring::Omega).unwrap();
        let traffic = Traffic::new(Pattern::Uniform);
        let plain = Load::saturated(traffic, SizeLaw::Fixed(2048), 1_000);
        let load = Load {
            counts_links: true,
            ..plain.clone()
        };
        let outcome = run(&topology, &load);
        assert_eq!(outcome.trace_hash, run(&topology, &plain).trace_hash);
        let report = outcome.links.expect("asked for");
        for link in &report.links[..16] {
            assert_eq!(link.busy + link.blocked, report.counted, "{link:?}");
            assert_eq!(link.blocked, link.head_of_line);
        }
        let delivery = report.links[32..].iter();
        let delivered: f64 = delivery.clone().map(|link| report.share(link.busy)).sum();
        assert!((delivered / 16.0 - outcome.efficiency_link.mean).abs() < 0.002);
        assert!(delivery.into_iter().all(|l| l.blocked == DurationPs::ZERO));
        // A link between stages is held while its packet waits for the destination's.
        assert!(
            report.links[16..32]
                .iter()
                .all(|l| l.blocked > DurationPs::ZERO)
        );
        assert_eq!(report.buffers, []);
    }
}
