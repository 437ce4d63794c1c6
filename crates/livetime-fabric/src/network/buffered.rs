//! Elements with finite buffers: virtual cut-through and store-and-forward packets.
//!
//! A packet is kept whole in the buffer of each element that it crosses; it goes on when its next
//! link is idle and the flow control lets it. Queues are one FIFO for each input (or one for each
//! virtual lane), one for each pair of input and output, or one for each output; who goes on is
//! said by an arbiter of each output (`arbitration`), or by a scheduler of the element
//! (`crossbars`). Elements may have queues at both sides, with links of their own in between
//! (`inner_links`). Without flow control a packet that finds no room is lost and counted. Links may
//! have rates and delays of their own, and a long one has flow control of its own (`cables`).
//! Simultaneous events are settled in random order after all of them are known, as in
//! [`super::wormhole`].
//!
//! Cost: two events per packet and link; about 100 bytes per packet in the network, whose number
//! the buffers bound, and nothing allocated per packet once they have been full. What a scenario says
//! of buffers is in `buffering`, and what fits into them in `room`.

mod arbitration;
mod buffering;
mod cables;
mod crossbars;
mod inner_links;
mod packets;
mod room;
mod standing;
#[cfg(test)]
mod tests;

use crate::address::NodeId;
use crate::kernel::{RunLimits, Simulation, SimulationConfig, World};
use crate::queue::EventClass;
use crate::random::{Purpose, RandomStream, RandomStreams};
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};
use crate::trace::EventLabel;

use super::arbiter::ServedPorts;
use super::link_meter::LinkMeter;
use super::link_report::{BufferOwner, LinkReport};
use super::outcome::{NetworkOutcome, Tally};
use super::packet_source::{OfferedPacket, PacketSources};
use super::port::{Delivery, HostPort, Parcel, StepEvent};
use super::topology::{LinkEnd, Topology};
use super::wormhole::{Load, shuffle};

pub use buffering::{BufferPlace, Buffering, BufferingProblem, FlowControl, Forwarding, Queueing};

use cables::{Cables, News};
use crossbars::{Crossbar, Crossbars};
use inner_links::InnerLinks;
use packets::Packets;
use room::Admission;

/// No packet, no link.
const NONE: u32 = u32::MAX;
/// What makes links idle, packets ready or room free.
const CAUSE: EventClass = EventClass(0);
/// The one event of an instant that starts transmissions.
const SETTLE: EventClass = EventClass(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The packet that a link carries has left its sender.
    Sent(u32),
    /// A packet is ready to go on from where it is.
    Ready(u32),
    /// The last byte of a packet is at its destination.
    Delivered(u32),
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
    buffering: Buffering,
    packets: Packets,
    stride: usize,
    // Links: those of the topology, then the inner ones.
    outer: usize,
    inner: InnerLinks,
    carries: Vec<u32>,
    /// Bits per second.
    rate: Vec<u64>,
    /// What is on long cables, where there are any.
    cables: Option<Box<Cables>>,
    first_waiting: Vec<u32>,
    last_waiting: Vec<u32>,
    last_port: Vec<u16>,
    served: ServedPorts,
    input_port: Vec<u16>,
    output_port: Vec<u16>,
    element_after: Vec<u32>,
    /// What a link sends: bytes, the buffer they leave, the queue they left and the link before it,
    /// and whether the packet finds no room at the other end.
    carried_bytes: Vec<u64>,
    leaves: Vec<u32>,
    left_queue: Vec<u32>,
    left_link: Vec<u32>,
    is_lost: Vec<bool>,
    /// What is left of an input's rate beside the links that it sends on, each with at most the
    /// rate of a node's link: it sends another packet while something is, or always with queues at
    /// outputs.
    rate_left: Vec<i64>,
    is_dirty: Vec<bool>,
    dirty: Vec<u32>,
    // Buffers: by link or by element, see `account`.
    used: Vec<u64>,
    is_stopped: Vec<bool>,
    /// Links that wait for room in a buffer, as a list through `next_blocked`.
    first_blocked: Vec<u32>,
    next_blocked: Vec<u32>,
    is_blocked: Vec<bool>,
    // Queues of inputs, by link and lane or output; one that sends shows no head.
    /// The first queue behind each link, and their number.
    first_queue: Vec<u32>,
    first: Vec<u32>,
    last: Vec<u32>,
    /// The link that the head of each queue last asked for.
    asked: Vec<u32>,
    is_sending: Vec<bool>,
    // Sources.
    number: Vec<u64>,
    sources: PacketSources,
    is_settling: bool,
    ties: RandomStream,
    tally: Tally,
    meter: Option<Box<LinkMeter>>,
    crossbars: Option<Crossbars>,
    /// Packets that wait in each queue, for crossbars alone.
    waiting: Vec<u32>,
}

/// Runs traffic through a fabric with buffers.
///
/// # Panics
/// If load or buffers do not fit the topology: see [`Buffering::problems`],
/// [`super::Traffic::problem`] and [`super::SizeLaw::problem`].
pub fn run(topology: &Topology, load: &Load, buffering: &Buffering) -> NetworkOutcome {
    let config = SimulationConfig {
        queue: load.queue,
        ..SimulationConfig::default()
    };
    let fabric = Fabric::new(topology, load.clone(), *buffering);
    let mut simulation = Simulation::new(fabric, config);
    let (fabric, scheduler) = simulation.parts_mut();
    for source in 0..topology.sources() {
        fabric.offer(SimPs::ZERO, source, scheduler);
    }
    let end = SimPs::ZERO + load.warm_up + load.duration;
    let report = simulation.run(RunLimits::new(end, u64::MAX));
    let mut fabric = simulation.into_world();
    let (links, standstill) = (fabric.take_link_report(report.now), fabric.standstill());
    let in_flight = (fabric.packets.source.len() - fabric.packets.free.len()) as u64;
    let mut outcome = fabric.tally.into_outcome(&report);
    // Those that are gone had arrived.
    let arrivals = fabric.packets.arrived.iter().copied();
    fabric.sources.settle(&mut outcome, in_flight, arrivals);
    (outcome.links, outcome.standstill) = (links, standstill);
    outcome
}

impl World for Fabric<'_> {
    type Event = Step;

    #[inline]
    fn label(&self, event: &Step) -> EventLabel {
        self.label_of(event)
    }

    fn handle(&mut self, _now: SimPs, event: Step, scheduler: &mut Scheduler<Step>) {
        self.take_step(event, scheduler);
    }
}

impl<'t> Fabric<'t> {
    /// An engine whose packets come from hosts, as engine `network` of its simulation.
    pub(crate) fn for_hosts(
        topology: &'t Topology,
        load: Load,
        buffering: Buffering,
        network: u8,
    ) -> Self {
        Self {
            network,
            hosts: Some(HostPort::default()),
            tally: Tally::of_hosts(topology, &load),
            ..Self::new(topology, load, buffering)
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
        let number = self.number[source as usize];
        self.number[source as usize] += 1;
        self.hosts_mut().taken += 1;
        let packet = self.new_packet(source, parcel.to, parcel.bytes, number);
        self.packets.tag[packet as usize] = parcel.tag;
        self.packets.arrived[packet as usize] = at;
        scheduler.at(at, CAUSE, E::of(self.network, Step::Ready(packet)));
    }

    /// What the trace says of a step.
    #[inline]
    pub(crate) fn label_of(&self, event: &Step) -> EventLabel {
        let (kind, packet) = match event {
            Step::Sent(link) => (0, self.carries[*link as usize]),
            Step::Ready(packet) => (1, *packet),
            Step::Delivered(packet) => (2, *packet),
            Step::Settle => {
                return EventLabel {
                    node: NodeId(0),
                    kind: 3,
                    key: self.cables.as_ref().map_or(0, |cables| cables.said),
                };
            }
        };
        let p = packet as usize;
        EventLabel {
            node: NodeId(self.packets.source[p]),
            kind,
            key: self.packets.number[p] << 24
                | u64::from(self.packets.destination[p]) << 5
                | u64::from(self.packets.hop[p]),
        }
    }

    /// Lets a step happen.
    pub(crate) fn take_step<E: StepEvent<Step>>(
        &mut self,
        step: Step,
        scheduler: &mut Scheduler<E>,
    ) {
        let now = scheduler.now();
        if step != Step::Settle {
            self.settle_later(now, scheduler);
        }
        match step {
            Step::Sent(link) => self.sent(now, link, scheduler),
            Step::Ready(packet) => self.ready(now, packet),
            Step::Delivered(packet) => self.delivered(now, packet),
            Step::Settle => self.settle(now, scheduler),
        }
    }

    fn delivered(&mut self, now: SimPs, packet: u32) {
        let p = packet as usize;
        let (source, to) = (self.packets.source[p], self.packets.destination[p]);
        let bytes = self.packets.bytes[p];
        match &mut self.hosts {
            Some(hosts) => hosts.delivered.push(Delivery {
                from: source,
                parcel: Parcel {
                    to,
                    bytes,
                    tag: self.packets.tag[p],
                },
            }),
            None => {
                let latency = now - self.packets.arrived[p];
                self.tally.delivered(now, source, to, bytes, latency);
            }
        }
        self.retire(packet);
    }

    fn new(topology: &'t Topology, load: Load, buffering: Buffering) -> Self {
        let sources = topology.sources() as usize;
        let links = topology.links();
        let streams = RandomStreams::new(load.seed);
        let lanes = buffering.lanes_of(topology);
        let inputs_max = topology.elements().iter().map(|e| e.inputs).max();
        let outer = links.len();
        let inner = InnerLinks::new(topology, buffering.queueing);
        let count = outer + inner.links.len();
        let accounts = count.max(topology.elements().len());
        let queues = outer * lanes + inner.links.len();
        let is_mixed = buffering.queueing == Queueing::InputFifo;
        let matching = buffering.queueing.matching();
        let node = load.link_bits_per_s;
        let rate = inner.rates(topology, node);
        let crossbars =
            matching.map(|matching| Crossbars::new(topology, matching, &inner, &rate, node));
        let meter = LinkMeter::asked_for(topology, &load, count, accounts, is_mixed);
        Self {
            topology,
            network: 0,
            hosts: None,
            packets: Packets::default(),
            stride: inner.stride(topology),
            outer,
            carries: vec![NONE; count],
            rate_left: rate.iter().map(|rate| *rate as i64).collect(),
            rate,
            cables: Cables::new(topology),
            first_waiting: vec![NONE; count],
            last_waiting: vec![NONE; count],
            last_port: vec![0; count],
            served: ServedPorts::new(load.arbiter, count, inputs_max.unwrap_or(1) as usize),
            input_port: inner.extend(links.iter().map(|link| port_at(link.to)), |link| link.input),
            output_port: inner.extend(links.iter().map(|link| port_at(link.from)), |link| {
                link.output
            }),
            element_after: inner.extend(links.iter().map(|l| element_at(l.to)), |l| l.element),
            carried_bytes: vec![0; count],
            leaves: vec![NONE; count],
            left_queue: vec![NONE; count],
            left_link: vec![NONE; count],
            is_lost: vec![false; count],
            is_dirty: vec![false; count],
            dirty: Vec::with_capacity(count),
            used: vec![0; accounts],
            is_stopped: vec![false; accounts],
            first_blocked: vec![NONE; accounts],
            next_blocked: vec![NONE; count],
            is_blocked: vec![false; count],
            first_queue: inner.first_queues(lanes),
            first: vec![NONE; queues],
            last: vec![NONE; queues],
            asked: vec![NONE; queues],
            is_sending: vec![false; queues],
            number: vec![0; sources],
            sources: PacketSources::new(topology, &load),
            is_settling: false,
            ties: streams.stream(NodeId(0), Purpose(2)),
            tally: Tally::new(topology, &load),
            meter,
            waiting: vec![0; crossbars.as_ref().map_or(0, |_| queues)],
            crossbars,
            inner,
            load,
            buffering,
        }
    }

    /// What links and buffers did, if it was counted.
    pub(crate) fn take_link_report(&mut self, end: SimPs) -> Option<LinkReport> {
        let links = self.topology.links();
        let elements = self.topology.elements().len();
        let place = self.buffering.place;
        let (outer, inner) = (self.outer, &self.inner);
        let owner = |account: usize| match place {
            BufferPlace::Input if account >= outer => inner.owner(account - outer),
            BufferPlace::Input => match links[account].to {
                LinkEnd::Port { element, port } => Some(BufferOwner::Input { element, port }),
                LinkEnd::Source(_) | LinkEnd::Destination(_) => None,
            },
            BufferPlace::Output => match links.get(account)?.from {
                LinkEnd::Port { element, port } => Some(BufferOwner::Output { element, port }),
                LinkEnd::Source(_) | LinkEnd::Destination(_) => None,
            },
            BufferPlace::Shared => {
                (account < elements).then_some(BufferOwner::Element(account as u32))
            }
        };
        let report = self.meter.take()?.into_report(end, owner);
        Some(LinkReport {
            waited_for: self.standstill().links,
            ..report
        })
    }

    /// Makes the next packet of a source.
    fn offer<E: StepEvent<Step>>(&mut self, at: SimPs, source: u32, scheduler: &mut Scheduler<E>) {
        if let Some(hosts) = &mut self.hosts {
            hosts.idle.push(source);
            return;
        }
        let number = self.number[source as usize];
        if !self.sources.admits(source, number) {
            return;
        }
        self.number[source as usize] += 1;
        let OfferedPacket { to, bytes } =
            self.sources.next(self.topology, &self.load, source, number);
        let packet = self.new_packet(source, to, bytes, number);
        let arrived = self.sources.arrival(source, number).unwrap_or(at);
        self.packets.arrived[packet as usize] = arrived;
        scheduler.at(
            at.max(arrived),
            CAUSE,
            E::of(self.network, Step::Ready(packet)),
        );
    }

    /// A packet with its lane and route, at its source.
    fn new_packet(&mut self, source: u32, to: u32, bytes: u32, number: u64) -> u32 {
        let route = self
            .sources
            .route(self.topology, self.load.routes, [source, to], number);
        let lane = match self.buffering.lanes {
            1 => 0,
            lanes => self.sources.draw(source) % u64::from(lanes),
        };
        let packet = self.packets.take(self.stride);
        let p = packet as usize;
        self.packets.source[p] = source;
        self.packets.destination[p] = to;
        self.packets.number[p] = number;
        self.packets.bytes[p] = bytes;
        self.packets.lane[p] = lane as u16;
        self.packets.hop[p] = 0;
        let links = route.links();
        let places = &mut self.packets.route[p * self.stride..][..self.stride];
        if self.inner.links.is_empty() {
            places[..links.len()].copy_from_slice(links);
        } else {
            self.inner.write_route(self.topology, links, places);
        }
        packet
    }

    /// The link that a packet takes next.
    fn next_link(&self, packet: u32) -> u32 {
        let p = packet as usize;
        self.packets.route[p * self.stride + usize::from(self.packets.hop[p])]
    }

    /// The link by which a packet came to where it is; `None` at its source.
    fn came_by(&self, packet: u32) -> Option<u32> {
        let p = packet as usize;
        let hop = usize::from(self.packets.hop[p]);
        (hop > 0).then(|| self.packets.route[p * self.stride + hop - 1])
    }

    /// The buffer that a packet takes behind link number `hop` of its route.
    fn account(&self, packet: u32, hop: usize) -> Option<usize> {
        let route = packet as usize * self.stride + hop;
        let link = self.packets.route[route];
        let element = self.element_after[link as usize];
        if element == NONE {
            return None;
        }
        Some(match self.buffering.place {
            BufferPlace::Input => link as usize,
            BufferPlace::Output => self.packets.route[route + 1] as usize,
            BufferPlace::Shared => element as usize,
        })
    }

    /// Queue of a packet at the element where it is: by the link it came by and its lane.
    fn queue_of(&self, packet: u32, link: u32) -> usize {
        let lane = match self.buffering.queueing {
            Queueing::InputFifo => usize::from(self.packets.lane[packet as usize]),
            _ if link as usize >= self.outer => 0,
            _ => usize::from(self.output_port[self.next_link(packet) as usize]),
        };
        self.first_queue[link as usize] as usize + lane
    }

    /// Takes a packet into the queue of its element, or into the source's hands.
    fn ready(&mut self, now: SimPs, packet: u32) {
        let Some(link) = self.came_by(packet) else {
            self.wait(packet);
            return;
        };
        let queue = self.queue_of(packet, link);
        if let Some(meter) = &mut self.meter {
            meter.joins(link as usize, now, self.last[queue] == NONE);
        }
        if let Some(waiting) = self.waiting.get_mut(queue) {
            *waiting += 1;
        }
        self.packets.next_queued[packet as usize] = NONE;
        match self.last[queue] {
            NONE => {
                self.first[queue] = packet;
                if !self.is_sending[queue] {
                    self.asked[queue] = self.wait(packet);
                }
            }
            last => self.packets.next_queued[last as usize] = packet,
        }
        self.last[queue] = packet;
    }

    /// A head asks for its next link, which is returned.
    fn wait(&mut self, packet: u32) -> u32 {
        let link = self.next_link(packet);
        self.packets.next_waiting[packet as usize] = NONE;
        match self.last_waiting[link as usize] {
            NONE => self.first_waiting[link as usize] = packet,
            last => self.packets.next_waiting[last as usize] = packet,
        }
        self.last_waiting[link as usize] = packet;
        self.mark(link);
        link
    }

    /// Remembers that a link may be able to start.
    fn mark(&mut self, link: u32) {
        if !self.is_dirty[link as usize] {
            self.is_dirty[link as usize] = true;
            self.dirty.push(link);
        }
    }

    fn settle_later<E: StepEvent<Step>>(&mut self, now: SimPs, scheduler: &mut Scheduler<E>) {
        if !self.is_settling {
            self.is_settling = true;
            scheduler.at(now, SETTLE, E::of(self.network, Step::Settle));
        }
    }

    fn settle<E: StepEvent<Step>>(&mut self, now: SimPs, scheduler: &mut Scheduler<E>) {
        self.take_news(now, scheduler);
        let mut admitted = self.sources.take_admitted();
        for source in admitted.drain(..) {
            self.offer(now, source, scheduler);
        }
        self.sources.keep_admitted(admitted);
        let mut dirty = core::mem::take(&mut self.dirty);
        shuffle(&mut dirty, &mut self.ties);
        for link in &dirty {
            self.is_dirty[*link as usize] = false;
            let crossbars = self.crossbars.as_mut();
            if !crossbars.is_some_and(|crossbars| crossbars.take_over(*link)) {
                self.start(now, *link, scheduler);
            }
        }
        self.match_crossbars(now, scheduler);
        // What marks links here are losses alone; they are handled at once.
        dirty.clear();
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
        self.is_settling = false;
        if !self.dirty.is_empty() {
            self.settle_later(now, scheduler);
        }
    }

    /// Starts a transmission if the link is idle and a head may go.
    fn start<E: StepEvent<Step>>(&mut self, now: SimPs, link: u32, scheduler: &mut Scheduler<E>) {
        if self.carries[link as usize] != NONE {
            return;
        }
        if let Some(head) = self.arbitrate(link) {
            self.launch(now, link, head, scheduler);
        }
    }

    /// Matches the inputs and outputs of the elements that are due, and starts transmissions.
    fn match_crossbars<E: StepEvent<Step>>(&mut self, now: SimPs, scheduler: &mut Scheduler<E>) {
        let Some(mut crossbars) = self.crossbars.take() else {
            return;
        };
        while let Some(element) = crossbars.take_due() {
            let crossbar = &mut crossbars.elements[element as usize];
            // Inputs that may send several packets at once take part as often.
            for round in 0..crossbar.rounds {
                if !self.match_crossbar(now, crossbar, round, scheduler) {
                    break;
                }
            }
        }
        self.crossbars = Some(crossbars);
    }

    /// One matching; whether anybody asked for one.
    fn match_crossbar<E: StepEvent<Step>>(
        &mut self,
        now: SimPs,
        crossbar: &mut Crossbar,
        round: u32,
        scheduler: &mut Scheduler<E>,
    ) -> bool {
        crossbar.matcher.clear();
        let mut is_asked = false;
        for (output, link) in crossbar.outputs.iter().enumerate() {
            if *link == NONE || self.carries[*link as usize] != NONE {
                continue;
            }
            let mut at = self.first_waiting[*link as usize];
            while at != NONE {
                if let Some(from) = self.came_by(at)
                    && let input = usize::from(self.input_port[from as usize])
                    && crossbar.input_rounds[input] > round
                    && self.is_eligible(at)
                    && self.may_enter(*link, at)
                {
                    let waiting = self.waiting[self.queue_of(at, from)];
                    crossbar.matcher.request(input, output, waiting.into());
                    is_asked = true;
                }
                at = self.packets.next_waiting[at as usize];
            }
        }
        if !is_asked {
            return false;
        }
        crossbar.matcher.schedule(&mut self.ties);
        for (input, output) in crossbar.matcher.outputs().iter().enumerate() {
            if let Some(link) = crossbar.outputs.get(*output)
                && let Some(head) = self.head_from(*link, crossbar.inputs[input])
            {
                self.launch(now, *link, head, scheduler);
            }
        }
        true
    }

    /// Whether a link, or the buffer behind it, is inside of an element. Buffers have the numbers of
    /// links wherever there are inner ones.
    fn is_inner(&self, link: usize) -> bool {
        !self.inner.links.is_empty() && link >= self.outer
    }

    fn wire_bytes(&self, packet: u32) -> u64 {
        u64::from(self.packets.bytes[packet as usize]) + u64::from(self.load.overhead_bytes)
    }

    /// Starts the transmission of a head if the flow control lets it; `before` is the one before it
    /// in the list of those that wait for the link.
    fn launch<E: StepEvent<Step>>(
        &mut self,
        now: SimPs,
        link: u32,
        (before, packet): (u32, u32),
        scheduler: &mut Scheduler<E>,
    ) {
        let hop = usize::from(self.packets.hop[packet as usize]);
        let bytes = self.wire_bytes(packet);
        let mut is_lost = false;
        if let Some(account) = self.account(packet, hop) {
            match self.admission(link, account, bytes) {
                Admission::Wait => return self.block(link, account),
                Admission::Lose => is_lost = true,
                Admission::Take => self.fill(now, account, bytes),
                Admission::Send => {}
            }
        }
        self.unlink(link, before, packet);
        self.is_lost[link as usize] = is_lost;
        self.carry(now, link, packet, bytes, scheduler);
    }

    /// Puts a packet onto an idle link.
    fn carry<E: StepEvent<Step>>(
        &mut self,
        now: SimPs,
        link: u32,
        packet: u32,
        bytes: u64,
        scheduler: &mut Scheduler<E>,
    ) {
        let (l, p) = (link as usize, packet as usize);
        let hop = usize::from(self.packets.hop[p]);
        self.carries[l] = packet;
        self.carried_bytes[l] = bytes;
        (self.leaves[l], self.left_queue[l]) = (NONE, NONE);
        if let Some(from) = self.came_by(packet) {
            let queue = self.queue_of(packet, from);
            self.first[queue] = self.packets.next_queued[p];
            if self.first[queue] == NONE {
                self.last[queue] = NONE;
            }
            if let Some(meter) = &mut self.meter {
                meter.goes_on(from as usize, now, self.first[queue] == NONE);
            }
            if let Some(waiting) = self.waiting.get_mut(queue) {
                *waiting -= 1;
            }
            self.is_sending[queue] = true;
            self.rate_left[from as usize] -= self.share(l);
            self.last_port[l] = self.input_port[from as usize];
            self.served.note(l, self.last_port[l]);
            self.left_queue[l] = queue as u32;
            self.left_link[l] = from;
            self.leaves[l] = self.account(packet, hop - 1).map_or(NONE, |a| a as u32);
        }
        let time = DurationPs::for_bits(bytes * 8, self.rate[l]);
        if let Some(meter) = &mut self.meter {
            meter.carries(l, now, time);
        }
        scheduler.at(now + time, CAUSE, E::of(self.network, Step::Sent(link)));
        self.packets.hop[p] += 1;
        if self.is_lost[l] {
            return;
        }
        let delay = match self.is_inner(l) {
            true => DurationPs::ZERO,
            false => self.load.hop_delay + self.cable(l),
        };
        if self.element_after[l] == NONE {
            let delivered = E::of(self.network, Step::Delivered(packet));
            scheduler.at(now + time + delay, CAUSE, delivered);
            return;
        }
        if self.decides_late(l) {
            return self.send_news(now + self.cable(l), News::Head(packet), scheduler);
        }
        let ready = now + self.until_ready(packet, hop, time) + delay;
        scheduler.at(ready, CAUSE, E::of(self.network, Step::Ready(packet)));
    }

    /// How long a packet waits behind link number `hop` of its route, from when its head is there:
    /// not at all, or the time of its bytes on that link. A faster link would run dry before the
    /// tail is there.
    #[inline]
    fn until_ready(&self, packet: u32, hop: usize, time: DurationPs) -> DurationPs {
        let route = packet as usize * self.stride + hop;
        let (link, next) = (self.packets.route[route], self.packets.route[route + 1]);
        let may_cut =
            self.buffering.forwarding == Forwarding::CutThrough || self.is_inner(link as usize);
        let rate = |link: u32| self.rate[link as usize];
        match may_cut && rate(next) <= rate(link) {
            true => DurationPs::ZERO,
            false => time,
        }
    }

    /// The tail of what a link carries has left the element before it.
    fn sent<E: StepEvent<Step>>(&mut self, now: SimPs, link: u32, scheduler: &mut Scheduler<E>) {
        let l = link as usize;
        let packet = core::mem::replace(&mut self.carries[l], NONE);
        let bytes = self.carried_bytes[l];
        if self.is_lost[l] {
            self.lose(packet);
        }
        match self.leaves[l] {
            NONE => {}
            account if self.is_freed_late(account as usize) => {
                self.free_late(now, account as usize, bytes, scheduler);
            }
            account => self.free(now, account as usize, bytes),
        }
        match self.left_queue[l] {
            NONE => {
                // The links of sources come first, in their order.
                self.offer(now + self.load.source_gap, link, scheduler);
            }
            queue => {
                let from = self.left_link[l] as usize;
                self.rate_left[from] += self.share(l);
                self.show_next(now, queue as usize, from);
            }
        }
        self.mark(link);
    }

    /// Shows the next head of a queue behind link `from`, and offers the input to the other lanes.
    fn show_next(&mut self, now: SimPs, queue: usize, from: usize) {
        self.is_sending[queue] = false;
        if let Some(meter) = &mut self.meter {
            meter.has_left(from, now);
        }
        if self.first[queue] != NONE {
            self.asked[queue] = self.wait(self.first[queue]);
        }
        if self.buffering.queueing == Queueing::Output {
            return;
        }
        for lane in self.first_queue[from] as usize..self.first_queue[from + 1] as usize {
            if lane != queue && self.first[lane] != NONE && !self.is_sending[lane] {
                // Its head waits: the packet itself, far away in memory, need not be looked at.
                self.mark(self.asked[lane]);
            }
        }
    }

    /// Counts a packet that found no room.
    fn lose(&mut self, packet: u32) {
        self.tally.lost += 1;
        if let Some(hosts) = &mut self.hosts {
            hosts.lost.push(self.packets.tag[packet as usize]);
        }
        self.retire(packet);
    }

    /// Ends a packet's life, delivered or lost.
    fn retire(&mut self, packet: u32) {
        let number = self.packets.number[packet as usize];
        self.sources.complete(number);
        self.packets.free.push(packet);
    }
}

/// Port of an element at an end of a link; 0 at a node.
fn port_at(end: LinkEnd) -> u16 {
    match end {
        LinkEnd::Port { port, .. } => port as u16,
        LinkEnd::Source(_) | LinkEnd::Destination(_) => 0,
    }
}

/// Element at an end of a link.
fn element_at(end: LinkEnd) -> u32 {
    match end {
        LinkEnd::Port { element, .. } => element,
        LinkEnd::Source(_) | LinkEnd::Destination(_) => NONE,
    }
}
