//! Hold-and-wait wormhole: no buffers, a blocked packet waits in place and holds its links.
//!
//! The header claims the links of its route one after the other; where a link is taken it waits
//! and keeps all it has. When the last link is claimed the packet streams, and when its tail has
//! left, the whole route is freed. Simultaneous events follow the rule "waiters first": what is
//! freed at an instant goes, in random order, to heads that waited before it; then come the heads
//! of that instant, in random order. Fixed sizes make exact ties the normal case, so that rule is
//! part of the model.
//!
//! Cost: one event per packet without delay per hop, else one more per hop; about 200 bytes per
//! source and 20 per link, nothing allocated per packet.

use crate::address::NodeId;
use crate::kernel::{RunLimits, Simulation, SimulationConfig, World};
use crate::queue::{EventClass, Lane, QueueKind};
use crate::random::{Purpose, RandomStream, RandomStreams};
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};
use crate::trace::EventLabel;

use super::arbiter::Arbiter;
use super::arrival::Arrival;
use super::outcome::{NetworkOutcome, Tally};
use super::packet_source::{OfferedPacket, PacketSources};
use super::port::{Delivery, HostPort, Parcel, StepEvent};
use super::size_law::SizeLaw;
use super::topology::{LinkEnd, ROUTE_LINKS_MAX, RoutePolicy, Topology};
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

/// The engine.
pub(crate) struct Fabric<'t> {
    topology: &'t Topology,
    load: Load,
    /// Which engine of its simulation this is.
    network: u8,
    /// The hosts' side, where packets come from hosts.
    hosts: Option<HostPort>,
    /// Input port at the element that each link ends at, for arbiters.
    input_port: Vec<u16>,
    // Links.
    owner: Vec<u32>,
    first_waiting: Vec<u32>,
    last_waiting: Vec<u32>,
    last_port: Vec<u16>,
    /// When each input port of each link was served, for [`Arbiter::LeastRecent`] alone.
    served: Vec<u64>,
    ports_max: usize,
    grants: u64,
    // Sources: each has one packet at most.
    route: Vec<[u32; ROUTE_LINKS_MAX]>,
    route_len: Vec<u8>,
    claimed: Vec<u8>,
    next_waiting: Vec<u32>,
    waits_since: Vec<SimPs>,
    packet: Vec<u64>,
    bytes: Vec<u32>,
    arrived: Vec<SimPs>,
    destination: Vec<u32>,
    has_packet: Vec<bool>,
    sources: PacketSources,
    // This instant.
    freed: Vec<u32>,
    heads: Vec<u32>,
    is_settling: bool,
    ties: RandomStream,
    tally: Tally,
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
    let fabric = simulation.into_world();
    let in_flight = fabric.has_packet.iter().filter(|has| **has).count() as u64;
    let offered = fabric.sources.offered();
    let mut outcome = fabric.tally.into_outcome(&report);
    outcome.packets_offered = offered;
    outcome.packets_in_flight = in_flight;
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
        let tags = vec![0; topology.sources() as usize];
        Self {
            network,
            hosts: Some(HostPort {
                tags,
                ..HostPort::default()
            }),
            ..Self::new(topology, load)
        }
    }

    /// The hosts' side.
    ///
    /// # Panics
    /// Without hosts.
    pub(crate) fn hosts_mut(&mut self) -> &mut HostPort {
        self.hosts.as_mut().expect("made for hosts")
    }

    /// Takes a parcel that the source sends from `at` on. Its link must be free.
    pub(crate) fn send<E: StepEvent<Step>>(
        &mut self,
        at: SimPs,
        source: u32,
        parcel: Parcel,
        scheduler: &mut Scheduler<E>,
    ) {
        let s = source as usize;
        assert!(!self.has_packet[s], "source {source} sends already");
        let hosts = self.hosts_mut();
        hosts.tags[s] = parcel.tag;
        hosts.taken += 1;
        self.bytes[s] = parcel.bytes;
        self.take_route(source, parcel.to, self.packet[s]);
        self.arrived[s] = at;
        scheduler.at(at, CAUSE, E::of(self.network, Step::Head(source)));
    }

    /// The parcel that a step delivers, if it does.
    #[inline]
    pub(crate) fn delivered_by(&self, step: &Step) -> Option<Delivery> {
        let (Step::Done(from), Some(hosts)) = (step, &self.hosts) else {
            return None;
        };
        let s = *from as usize;
        let parcel = Parcel {
            to: self.destination[s],
            bytes: self.bytes[s],
            tag: hosts.tags[s],
        };
        Some(Delivery {
            from: *from,
            parcel,
        })
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
                let destination = u64::from(self.destination[source as usize]);
                self.packet[source as usize] << 20 | destination
            }
        };
        EventLabel {
            node: NodeId(source),
            kind,
            key,
        }
    }

    /// Lets a step happen.
    #[inline]
    pub(crate) fn take_step<E: StepEvent<Step>>(
        &mut self,
        step: Step,
        scheduler: &mut Scheduler<E>,
    ) {
        let now = scheduler.now();
        match step {
            Step::Done(source) => {
                self.free_route(source);
                self.finish(now, source);
                self.settle_later(now, scheduler);
                self.offer(now + self.load.source_gap, source, scheduler);
            }
            Step::Head(source) => {
                self.heads.push(source);
                self.settle_later(now, scheduler);
            }
            Step::Settle => self.settle(now, scheduler),
        }
    }

    fn new(topology: &'t Topology, load: Load) -> Self {
        let sources = topology.sources() as usize;
        let links = topology.links();
        let streams = RandomStreams::new(load.seed);
        let ports_max = topology.elements().iter().map(|e| e.inputs).max();
        let ports_max = ports_max.unwrap_or(1) as usize;
        let served = match load.arbiter {
            Arbiter::LeastRecent => vec![0; links.len() * ports_max],
            _ => Vec::new(),
        };
        let input_port = |link: &super::topology::Link| match link.to {
            LinkEnd::Port { port, .. } => port as u16,
            _ => 0,
        };
        Self {
            topology,
            network: 0,
            hosts: None,
            input_port: links.iter().map(input_port).collect(),
            owner: vec![NONE; links.len()],
            first_waiting: vec![NONE; links.len()],
            last_waiting: vec![NONE; links.len()],
            last_port: vec![0; links.len()],
            served,
            ports_max,
            grants: 0,
            route: vec![[0; ROUTE_LINKS_MAX]; sources],
            route_len: vec![0; sources],
            claimed: vec![0; sources],
            next_waiting: vec![NONE; sources],
            waits_since: vec![SimPs::ZERO; sources],
            packet: vec![0; sources],
            bytes: vec![0; sources],
            arrived: vec![SimPs::ZERO; sources],
            destination: vec![0; sources],
            has_packet: vec![false; sources],
            sources: PacketSources::new(topology, &load),
            freed: Vec::with_capacity(links.len()),
            heads: Vec::with_capacity(sources),
            is_settling: false,
            ties: streams.stream(NodeId(0), Purpose(2)),
            tally: Tally::new(topology, &load),
            load,
        }
    }

    /// Makes the next packet of a source, from `at` on or when it arrives.
    fn offer<E: StepEvent<Step>>(&mut self, at: SimPs, source: u32, scheduler: &mut Scheduler<E>) {
        let s = source as usize;
        if let Some(hosts) = &mut self.hosts {
            hosts.idle.push(source);
            return;
        }
        let number = self.packet[s];
        if !self.sources.admits(source, number) {
            return;
        }
        let OfferedPacket { to, bytes } =
            self.sources.next(self.topology, &self.load, source, number);
        self.bytes[s] = bytes;
        self.take_route(source, to, number);
        self.arrived[s] = self.sources.arrival(source, number).unwrap_or(at);
        let ready = at.max(self.arrived[s]);
        // Heads that become ready while causes are handled need no event of their own.
        if ready == scheduler.now() && self.is_settling {
            self.heads.push(source);
        } else {
            scheduler.at(ready, CAUSE, E::of(self.network, Step::Head(source)));
        }
    }

    /// Chooses the route of a source's next packet.
    fn take_route(&mut self, source: u32, to: u32, number: u64) {
        let s = source as usize;
        let route = self
            .sources
            .route(self.topology, self.load.routes, [source, to], number);
        // The injection link belongs to the source alone, so it is never waited for.
        let links = &route.links()[1..];
        self.route[s][..links.len()].copy_from_slice(links);
        self.route_len[s] = links.len() as u8;
        self.claimed[s] = 0;
        self.destination[s] = to;
        self.has_packet[s] = true;
    }

    fn settle_later<E: StepEvent<Step>>(&mut self, now: SimPs, scheduler: &mut Scheduler<E>) {
        if !self.is_settling {
            self.is_settling = true;
            scheduler.at(now, SETTLE, E::of(self.network, Step::Settle));
        }
    }

    fn free_route(&mut self, source: u32) {
        let s = source as usize;
        for at in 0..usize::from(self.route_len[s]) {
            let link = self.route[s][at] as usize;
            self.owner[link] = NONE;
            if self.first_waiting[link] != NONE {
                self.freed.push(link as u32);
            }
        }
    }

    /// Counts a packet that left, and lets the window move.
    fn finish(&mut self, now: SimPs, source: u32) {
        let s = source as usize;
        let number = self.packet[s];
        self.packet[s] += 1;
        self.has_packet[s] = false;
        if let Some(hosts) = &mut self.hosts {
            hosts.delivered.push(Delivery {
                from: source,
                parcel: Parcel {
                    to: self.destination[s],
                    bytes: self.bytes[s],
                    tag: hosts.tags[s],
                },
            });
            return;
        }
        self.tally.delivered(
            now,
            source,
            self.destination[s],
            self.bytes[s],
            now - self.arrived[s],
        );
        self.sources.complete(number);
    }

    fn settle<E: StepEvent<Step>>(&mut self, now: SimPs, scheduler: &mut Scheduler<E>) {
        let mut admitted = self.sources.take_admitted();
        for source in admitted.drain(..) {
            self.offer(now, source, scheduler);
        }
        self.sources.keep_admitted(admitted);
        let mut freed = core::mem::take(&mut self.freed);
        shuffle(&mut freed, &mut self.ties);
        for link in freed.drain(..) {
            if self.owner[link as usize] == NONE
                && let Some(source) = self.take_waiting(link as usize, now)
            {
                self.claim(link, source);
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

    fn claim(&mut self, link: u32, source: u32) {
        self.owner[link as usize] = source;
        self.claimed[source as usize] += 1;
    }

    /// Claims links from where the head is, until one is taken or the route is complete.
    fn advance<E: StepEvent<Step>>(
        &mut self,
        now: SimPs,
        source: u32,
        scheduler: &mut Scheduler<E>,
    ) {
        let s = source as usize;
        let hop_delay = self.load.hop_delay;
        while self.claimed[s] < self.route_len[s] {
            let link = self.route[s][usize::from(self.claimed[s])];
            if self.owner[link as usize] != NONE {
                self.wait(link as usize, source, now);
                return;
            }
            self.claim(link, source);
            if hop_delay != DurationPs::ZERO && self.claimed[s] < self.route_len[s] {
                scheduler.after(hop_delay, CAUSE, E::of(self.network, Step::Head(source)));
                return;
            }
        }
        let bytes = u64::from(self.bytes[s]) + u64::from(self.load.overhead_bytes);
        let streaming = DurationPs::for_bits(bytes * 8, self.load.link_bits_per_s);
        let done = E::of(self.network, Step::Done(source));
        match self.hosts {
            // Those of hosts are blocks of one size, as a rule.
            Some(_) => {
                scheduler.at_in_order(Lane::First, now + (hop_delay + streaming), CAUSE, done);
            }
            None => scheduler.after(hop_delay + streaming, CAUSE, done),
        }
    }

    fn wait(&mut self, link: usize, source: u32, now: SimPs) {
        self.waits_since[source as usize] = now;
        self.next_waiting[source as usize] = NONE;
        match self.last_waiting[link] {
            NONE => self.first_waiting[link] = source,
            last => self.next_waiting[last as usize] = source,
        }
        self.last_waiting[link] = source;
    }

    /// The waiting head that the arbiter chooses of those that waited before `now`.
    fn take_waiting(&mut self, link: usize, now: SimPs) -> Option<u32> {
        let mut before = NONE;
        let mut at = self.first_waiting[link];
        if at == NONE || self.waits_since[at as usize] == now {
            return None;
        }
        if self.next_waiting[at as usize] != NONE && self.load.arbiter != Arbiter::Oldest {
            (before, at) = self.arbitrate(link, now);
        }
        let after = self.next_waiting[at as usize];
        match before {
            NONE => self.first_waiting[link] = after,
            before => self.next_waiting[before as usize] = after,
        }
        if after == NONE {
            self.last_waiting[link] = before;
        }
        let port = self.port_of(at);
        self.last_port[link] = port;
        if let Some(served) = self
            .served
            .get_mut(link * self.ports_max + usize::from(port))
        {
            self.grants += 1;
            *served = self.grants;
        }
        Some(at)
    }

    /// Input port at which a head waits.
    fn port_of(&self, source: u32) -> u16 {
        let s = source as usize;
        match self.claimed[s] {
            0 => self.input_port[s],
            claimed => self.input_port[self.route[s][usize::from(claimed) - 1] as usize],
        }
    }

    /// The chosen head and the one before it in the list, which is in the order of waiting.
    fn arbitrate(&mut self, link: usize, now: SimPs) -> (u32, u32) {
        let first = self.first_waiting[link];
        let mut candidates = 0;
        let mut at = first;
        while at != NONE && self.waits_since[at as usize] < now {
            candidates += 1;
            at = self.next_waiting[at as usize];
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
            (before, at) = (at, self.next_waiting[at as usize]);
        }
        best
    }

    /// Order of input ports at a link: the lowest rank is served.
    fn rank(&self, link: usize, port: u16) -> u64 {
        let ports = self.ports_max as u64;
        match self.load.arbiter {
            Arbiter::RoundRobin => {
                (u64::from(port) + ports - 1 - u64::from(self.last_port[link])) % ports
            }
            Arbiter::LeastRecent => self.served[link * self.ports_max + usize::from(port)],
            Arbiter::Random | Arbiter::Oldest | Arbiter::Fixed => u64::from(port),
        }
    }
}

/// Shuffles in place (Fisher and Yates), one draw for each element but the last.
pub(super) fn shuffle(values: &mut [u32], random: &mut RandomStream) {
    for i in (1..values.len()).rev() {
        values.swap(i, random.below(i as u64 + 1) as usize);
    }
}
