//! Elements with finite buffers: virtual cut-through and store-and-forward packets.
//!
//! A packet is kept whole in the buffer of each element that it crosses; it goes on when its next
//! link is idle and the flow control lets it. Queues are one FIFO for each input (or one for each
//! virtual lane), one for each pair of input and output, or one for each output. Without flow
//! control a packet that finds no room is lost and counted. Simultaneous events are settled in
//! random order after all of them are known, as in [`super::wormhole`].
//!
//! Cost: two events per packet and link; about 100 bytes per packet in the network, whose number
//! the buffers bound, and nothing allocated per packet once they have been full. What a scenario says
//! of buffers is in [`buffering`].

mod buffering;
mod packets;

use crate::address::NodeId;
use crate::kernel::{RunLimits, Simulation, SimulationConfig, World};
use crate::queue::EventClass;
use crate::random::{Purpose, RandomStream, RandomStreams};
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};
use crate::trace::EventLabel;

use super::arbiter::Arbiter;
use super::link_meter::LinkMeter;
use super::link_report::{BufferOwner, LinkReport};
use super::outcome::{NetworkOutcome, Tally};
use super::packet_source::{OfferedPacket, PacketSources};
use super::port::{Delivery, HostPort, Parcel, StepEvent};
use super::topology::{LinkEnd, Topology};
use super::wormhole::{Load, shuffle};

pub use buffering::{BufferPlace, Buffering, FlowControl, Forwarding, Queueing};

use packets::Packets;

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
    // Links.
    carries: Vec<u32>,
    speed: Vec<u32>,
    first_waiting: Vec<u32>,
    last_waiting: Vec<u32>,
    last_port: Vec<u16>,
    input_port: Vec<u16>,
    output_port: Vec<u16>,
    element_after: Vec<u32>,
    /// What a link sends: bytes, the buffer they leave, the queue they left, and whether the
    /// packet finds no room at the other end.
    carried_bytes: Vec<u64>,
    leaves: Vec<u32>,
    left_queue: Vec<u32>,
    is_lost: Vec<bool>,
    /// Packets that an input sends; one at a time unless queues are at outputs.
    sending: Vec<u16>,
    is_dirty: Vec<bool>,
    dirty: Vec<u32>,
    // Buffers: by link or by element, see `account`.
    used: Vec<u64>,
    is_stopped: Vec<bool>,
    /// Links that wait for room in a buffer, as a list through `next_blocked`.
    first_blocked: Vec<u32>,
    next_blocked: Vec<u32>,
    is_blocked: Vec<bool>,
    // Queues of inputs, by (link, lane); one that sends shows no head.
    lanes: usize,
    first: Vec<u32>,
    last: Vec<u32>,
    is_sending: Vec<bool>,
    // Sources.
    number: Vec<u64>,
    sources: PacketSources,
    is_settling: bool,
    ties: RandomStream,
    tally: Tally,
    meter: Option<Box<LinkMeter>>,
}

/// Runs traffic through a fabric with buffers.
///
/// # Panics
/// If load or buffers do not fit the topology: see [`Buffering::problem`],
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
    let links = fabric.take_link_report(report.now);
    let in_flight = (fabric.packets.source.len() - fabric.packets.free.len()) as u64;
    let offered = fabric.sources.offered();
    let mut outcome = fabric.tally.into_outcome(&report);
    outcome.packets_offered = offered;
    outcome.packets_in_flight = in_flight;
    outcome.links = links;
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
                    key: 0,
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
        self.settle_later(now, scheduler);
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
        let ports_max = topology.elements().iter().map(|e| e.outputs).max();
        let lanes = match buffering.queueing {
            Queueing::InputFifo => buffering.lanes as usize,
            Queueing::VirtualOutput | Queueing::Output => ports_max.unwrap_or(1) as usize,
        };
        let port = |end: LinkEnd| match end {
            LinkEnd::Port { port, .. } => port as u16,
            _ => 0,
        };
        let element = |end: LinkEnd| match end {
            LinkEnd::Port { element, .. } => element,
            _ => NONE,
        };
        let count = links.len();
        let accounts = count.max(topology.elements().len());
        let is_mixed = buffering.queueing == Queueing::InputFifo;
        let meter = LinkMeter::asked_for(topology, &load, count, accounts, is_mixed);
        Self {
            topology,
            network: 0,
            hosts: None,
            packets: Packets::default(),
            stride: topology.hops_max() + 1,
            carries: vec![NONE; count],
            speed: links.iter().map(|link| link.speed).collect(),
            first_waiting: vec![NONE; count],
            last_waiting: vec![NONE; count],
            last_port: vec![0; count],
            input_port: links.iter().map(|link| port(link.to)).collect(),
            output_port: links.iter().map(|link| port(link.from)).collect(),
            element_after: links.iter().map(|link| element(link.to)).collect(),
            carried_bytes: vec![0; count],
            leaves: vec![NONE; count],
            left_queue: vec![NONE; count],
            is_lost: vec![false; count],
            sending: vec![0; count],
            is_dirty: vec![false; count],
            dirty: Vec::with_capacity(count),
            used: vec![0; accounts],
            is_stopped: vec![false; accounts],
            first_blocked: vec![NONE; accounts],
            next_blocked: vec![NONE; count],
            is_blocked: vec![false; count],
            lanes,
            first: vec![NONE; count * lanes],
            last: vec![NONE; count * lanes],
            is_sending: vec![false; count * lanes],
            number: vec![0; sources],
            sources: PacketSources::new(topology, &load),
            is_settling: false,
            ties: streams.stream(NodeId(0), Purpose(2)),
            tally: Tally::new(topology, &load),
            meter,
            load,
            buffering,
        }
    }

    /// What links and buffers did, if it was counted.
    fn take_link_report(&mut self, end: SimPs) -> Option<LinkReport> {
        let links = self.topology.links();
        let elements = self.topology.elements().len();
        let place = self.buffering.place;
        let port = |end: LinkEnd| match end {
            LinkEnd::Port { .. } => Some(BufferOwner::Port(end)),
            LinkEnd::Source(_) | LinkEnd::Destination(_) => None,
        };
        let owner = |account: usize| match place {
            BufferPlace::Input => port(links.get(account)?.to),
            BufferPlace::Output => port(links.get(account)?.from),
            BufferPlace::Shared => {
                (account < elements).then_some(BufferOwner::Element(account as u32))
            }
        };
        Some(self.meter.take()?.into_report(end, owner))
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
        self.packets.route[p * self.stride..][..links.len()].copy_from_slice(links);
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
            Queueing::VirtualOutput | Queueing::Output => {
                usize::from(self.output_port[self.next_link(packet) as usize])
            }
        };
        link as usize * self.lanes + lane
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
        self.packets.next_queued[packet as usize] = NONE;
        match self.last[queue] {
            NONE => {
                self.first[queue] = packet;
                if !self.is_sending[queue] {
                    self.wait(packet);
                }
            }
            last => self.packets.next_queued[last as usize] = packet,
        }
        self.last[queue] = packet;
    }

    /// A head asks for its next link.
    fn wait(&mut self, packet: u32) {
        let link = self.next_link(packet);
        self.packets.next_waiting[packet as usize] = NONE;
        match self.last_waiting[link as usize] {
            NONE => self.first_waiting[link as usize] = packet,
            last => self.packets.next_waiting[last as usize] = packet,
        }
        self.last_waiting[link as usize] = packet;
        self.mark(link);
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
        let mut admitted = self.sources.take_admitted();
        for source in admitted.drain(..) {
            self.offer(now, source, scheduler);
        }
        self.sources.keep_admitted(admitted);
        let mut dirty = core::mem::take(&mut self.dirty);
        shuffle(&mut dirty, &mut self.ties);
        for link in &dirty {
            self.is_dirty[*link as usize] = false;
            self.start(now, *link, scheduler);
        }
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
        let Some((before, packet)) = self.arbitrate(link) else {
            return;
        };
        let p = packet as usize;
        let hop = usize::from(self.packets.hop[p]);
        let bytes = u64::from(self.packets.bytes[p]) + u64::from(self.load.overhead_bytes);
        let mut is_lost = false;
        if let Some(account) = self.account(packet, hop) {
            let is_full = self.used[account] + bytes > self.buffering.bytes;
            match self.buffering.flow {
                FlowControl::Credits if is_full => return self.block(link, account),
                FlowControl::StopGo { .. } if self.is_stopped[account] => {
                    return self.block(link, account);
                }
                _ if is_full => is_lost = true,
                _ => self.fill(now, account, bytes),
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
            self.is_sending[queue] = true;
            self.sending[from as usize] += 1;
            self.last_port[l] = self.input_port[from as usize];
            self.left_queue[l] = queue as u32;
            self.leaves[l] = self.account(packet, hop - 1).map_or(NONE, |a| a as u32);
        }
        let rate = self.load.link_bits_per_s * u64::from(self.speed[l]);
        let time = DurationPs::for_bits(bytes * 8, rate);
        if let Some(meter) = &mut self.meter {
            meter.carries(l, now, time);
        }
        scheduler.at(now + time, CAUSE, E::of(self.network, Step::Sent(link)));
        self.packets.hop[p] += 1;
        if self.is_lost[l] {
            return;
        }
        let delay = self.load.hop_delay;
        if self.element_after[l] == NONE {
            scheduler.at(
                now + time + delay,
                CAUSE,
                E::of(self.network, Step::Delivered(packet)),
            );
            return;
        }
        // A faster link would run dry before the tail is there.
        let next = self.packets.route[p * self.stride + hop + 1];
        let cuts_through = self.buffering.forwarding == Forwarding::CutThrough
            && self.speed[next as usize] <= self.speed[l];
        let head = if cuts_through { delay } else { time + delay };
        scheduler.at(now + head, CAUSE, E::of(self.network, Step::Ready(packet)));
    }

    /// The tail of what a link carries has left the element before it.
    fn sent<E: StepEvent<Step>>(&mut self, now: SimPs, link: u32, scheduler: &mut Scheduler<E>) {
        let l = link as usize;
        let packet = core::mem::replace(&mut self.carries[l], NONE);
        let bytes = self.carried_bytes[l];
        if self.is_lost[l] {
            self.tally.lost += 1;
            if let Some(hosts) = &mut self.hosts {
                hosts.lost.push(self.packets.tag[packet as usize]);
            }
            self.retire(packet);
        }
        match self.leaves[l] {
            NONE => {}
            account => self.free(now, account as usize, bytes),
        }
        match self.left_queue[l] {
            NONE => {
                // The links of sources come first, in their order.
                self.offer(now + self.load.source_gap, link, scheduler);
            }
            queue => self.show_next(now, queue as usize),
        }
        self.mark(link);
    }

    /// Shows the next head of a queue, and offers the input to the other lanes.
    fn show_next(&mut self, now: SimPs, queue: usize) {
        self.is_sending[queue] = false;
        let from = queue / self.lanes;
        self.sending[from] -= 1;
        if let Some(meter) = &mut self.meter {
            meter.has_left(from, now);
        }
        if self.first[queue] != NONE {
            self.wait(self.first[queue]);
        }
        if self.buffering.queueing == Queueing::Output {
            return;
        }
        for lane in from * self.lanes..(from + 1) * self.lanes {
            let head = self.first[lane];
            if lane != queue && head != NONE && !self.is_sending[lane] {
                self.mark(self.next_link(head));
            }
        }
    }

    fn fill(&mut self, now: SimPs, account: usize, bytes: u64) {
        self.used[account] += bytes;
        if let Some(meter) = &mut self.meter {
            meter.holds(account, now, self.used[account]);
        }
        if let FlowControl::StopGo { stop, .. } = self.buffering.flow
            && self.used[account] >= stop
        {
            self.is_stopped[account] = true;
        }
    }

    fn free(&mut self, now: SimPs, account: usize, bytes: u64) {
        self.used[account] -= bytes;
        if let Some(meter) = &mut self.meter {
            meter.holds(account, now, self.used[account]);
        }
        if let FlowControl::StopGo { go, .. } = self.buffering.flow {
            if self.used[account] > go {
                return;
            }
            self.is_stopped[account] = false;
        }
        let mut link = core::mem::replace(&mut self.first_blocked[account], NONE);
        while link != NONE {
            self.is_blocked[link as usize] = false;
            self.mark(link);
            link = self.next_blocked[link as usize];
        }
    }

    fn block(&mut self, link: u32, account: usize) {
        if !self.is_blocked[link as usize] {
            self.is_blocked[link as usize] = true;
            self.next_blocked[link as usize] = self.first_blocked[account];
            self.first_blocked[account] = link;
        }
    }

    /// Ends a packet's life, delivered or lost.
    fn retire(&mut self, packet: u32) {
        let number = self.packets.number[packet as usize];
        self.sources.complete(number);
        self.packets.free.push(packet);
    }

    fn is_eligible(&self, packet: u32) -> bool {
        self.buffering.queueing == Queueing::Output
            || self.came_by(packet).is_none_or(|from| {
                u32::from(self.sending[from as usize]) < self.speed[from as usize]
            })
    }

    /// The head that gets a link, and the one before it in the list.
    fn arbitrate(&mut self, link: u32) -> Option<(u32, u32)> {
        let mut eligible = 0;
        let (mut before, mut at) = (NONE, self.first_waiting[link as usize]);
        let (mut best, mut best_rank) = (None, u64::MAX);
        while at != NONE {
            if self.is_eligible(at) {
                eligible += 1;
                let rank = match self.load.arbiter {
                    // Each of them with equal probability, in one pass.
                    Arbiter::Random if eligible == 1 || self.ties.below(eligible) == 0 => 0,
                    Arbiter::Random => u64::MAX,
                    Arbiter::Oldest => eligible,
                    Arbiter::RoundRobin | Arbiter::LeastRecent => {
                        let port = self.came_by(at).map_or(0, |l| self.input_port[l as usize]);
                        u64::from(port.wrapping_sub(self.last_port[link as usize] + 1))
                    }
                    Arbiter::Fixed => {
                        u64::from(self.came_by(at).map_or(0, |l| self.input_port[l as usize]))
                    }
                };
                let is_drawn = self.load.arbiter == Arbiter::Random && rank == 0;
                if rank < best_rank || is_drawn {
                    (best, best_rank) = (Some((before, at)), rank);
                }
            }
            (before, at) = (at, self.packets.next_waiting[at as usize]);
        }
        best
    }

    fn unlink(&mut self, link: u32, before: u32, packet: u32) {
        let after = self.packets.next_waiting[packet as usize];
        match before {
            NONE => self.first_waiting[link as usize] = after,
            before => self.packets.next_waiting[before as usize] = after,
        }
        if after == NONE {
            self.last_waiting[link as usize] = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use core::ops::Range;

    use super::*;
    use crate::analytic::crossbar::fifo_inputs_exponential;
    use crate::network::topology::Wiring;
    use crate::network::{LinkUse, Pattern, SizeLaw, Spread, Traffic};

    const BASE: Buffering = Buffering {
        forwarding: Forwarding::CutThrough,
        queueing: Queueing::InputFifo,
        place: BufferPlace::Input,
        bytes: 4 * 2048,
        lanes: 1,
        flow: FlowControl::Credits,
    };

    fn uniform(times: u64) -> Load {
        Load::saturated(Traffic::new(Pattern::Uniform), SizeLaw::Fixed(2048), times)
    }

    fn conserved(outcome: &NetworkOutcome) {
        let accounted = outcome.packets_in_all + outcome.packets_lost + outcome.packets_in_flight;
        assert_eq!(outcome.packets_offered, accounted);
    }

    #[test]
    fn a_crossbar_with_input_fifos_has_head_of_line_blocking() {
        let topology = Topology::crossbar(8).unwrap();
        let outcome = run(&topology, &uniform(10_000), &BASE);
        conserved(&outcome);
        let value = outcome.efficiency_link.mean;
        assert!((value - 0.618).abs() < 0.01, "{value}");
        let sizes = SizeLaw::Exponential { mean: 2048.0 };
        let load = Load {
            sizes,
            ..uniform(10_000)
        };
        let wide = Buffering {
            bytes: 1 << 20,
            ..BASE
        };
        let value = run(&topology, &load, &wide).efficiency_link.mean;
        assert!((value - fifo_inputs_exponential(8)).abs() < 0.01, "{value}");
    }

    #[test]
    fn queues_at_outputs_carry_everything_and_lose_nothing_with_room() {
        let topology = Topology::crossbar(8).unwrap();
        let output = Buffering {
            forwarding: Forwarding::StoreAndForward,
            queueing: Queueing::Output,
            place: BufferPlace::Shared,
            bytes: 4 << 20,
            flow: FlowControl::Credits,
            ..BASE
        };
        let outcome = run(&topology, &uniform(4_000), &output);
        conserved(&outcome);
        assert!(outcome.efficiency_link.mean > 0.98, "{outcome:?}");
        assert_eq!(outcome.packets_lost, 0);
        let virtual_output = Buffering {
            queueing: Queueing::VirtualOutput,
            place: BufferPlace::Input,
            bytes: 1 << 20,
            ..output
        };
        let value = run(&topology, &uniform(4_000), &virtual_output);
        assert!(value.efficiency_link.mean > 0.85, "{value:?}");
    }

    #[test]
    fn links_and_buffers_are_counted_and_change_nothing() {
        let topology = Topology::crossbar(8).unwrap();
        let plain = uniform(2_000);
        let load = Load {
            counts_links: true,
            ..plain.clone()
        };
        for (queueing, is_mixed) in [
            (Queueing::InputFifo, true),
            (Queueing::VirtualOutput, false),
        ] {
            let buffering = Buffering { queueing, ..BASE };
            let outcome = run(&topology, &load, &buffering);
            let uncounted = run(&topology, &plain, &buffering);
            assert_eq!(outcome.trace_hash, uncounted.trace_hash);
            assert!(uncounted.links.is_none());
            let report = outcome.links.expect("asked for");
            let shares = |time: fn(&LinkUse) -> DurationPs, links: Range<usize>| {
                Spread::of(report.links[links].iter().map(|l| report.share(time(l))))
            };
            // Links to destinations carry what is delivered, but for what is on its way.
            let delivery = shares(|link| link.busy, 8..16).mean;
            assert!((delivery - outcome.efficiency_link.mean).abs() < 0.002);
            assert_eq!(shares(|link| link.blocked, 8..16).max, 0.0);
            // An input has packets nearly always, and sends or is blocked.
            let blocked = shares(|link| link.blocked, 0..8).mean;
            assert!(
                (delivery + blocked - 1.0).abs() < 0.01,
                "{delivery} {blocked}"
            );
            let behind = shares(|link| link.head_of_line, 0..8).mean;
            assert_eq!(behind > 0.3, is_mixed, "{behind}");
            assert_eq!(report.buffers.len(), 8);
            let levels = Spread::of(report.buffers.iter().map(|buffer| buffer.mean_bytes));
            assert!(levels.min > 6_144.0 && levels.max <= 8_192.0, "{levels:?}");
            assert!(
                report
                    .buffers
                    .iter()
                    .all(|buffer| buffer.max_bytes == 8_192)
            );
        }
        let shared = Buffering {
            queueing: Queueing::Output,
            place: BufferPlace::Shared,
            bytes: 64 * 2048,
            ..BASE
        };
        let report = run(&topology, &load, &shared).links.expect("asked for");
        let owners: Vec<BufferOwner> = report.buffers.iter().map(|b| b.owner).collect();
        assert_eq!(owners, [BufferOwner::Element(0)]);
    }

    #[test]
    fn buffers_raise_the_delta_and_lanes_raise_it_further() {
        let topology = Topology::delta(4, 2, &Wiring::Omega).unwrap();
        let run = |bytes, lanes| {
            let buffering = Buffering {
                bytes,
                lanes,
                ..BASE
            };
            let outcome = run(&topology, &uniform(6_000), &buffering);
            conserved(&outcome);
            outcome.efficiency_link.mean
        };
        let (small, large) = (run(2048, 1), run(16 * 2048, 1));
        assert!(small < large && large < 0.66, "{small} {large}");
        assert!(run(16 * 2048, 4) > large + 0.03);
    }

    #[test]
    fn without_flow_control_an_incast_is_lost_beyond_the_buffer_and_counted() {
        let topology = Topology::crossbar(4).unwrap();
        let traffic = Traffic::new(Pattern::Incast(1)).with_window(2);
        let load = Load {
            traffic,
            ..uniform(500)
        };
        let switch = |bytes, flow| Buffering {
            forwarding: Forwarding::StoreAndForward,
            queueing: Queueing::Output,
            place: BufferPlace::Output,
            bytes,
            lanes: 1,
            flow,
        };
        // Two packets of each of four sources may be on the way.
        let enough = run(&topology, &load, &switch(8 * 2048, FlowControl::None));
        let short = run(&topology, &load, &switch(4 * 2048, FlowControl::None));
        let credits = run(&topology, &load, &switch(4 * 2048, FlowControl::Credits));
        let stop_go = FlowControl::StopGo {
            stop: 4096,
            go: 2048,
        };
        let stopped = run(&topology, &load, &switch(8 * 2048, stop_go));
        for outcome in [&enough, &short, &credits, &stopped] {
            conserved(outcome);
        }
        assert_eq!(enough.packets_lost, 0);
        assert!(short.packets_lost > 0);
        assert_eq!((credits.packets_lost, stopped.packets_lost), (0, 0));
    }

    #[test]
    fn faster_trunks_carry_several_streams() {
        let topology = Topology::two_level(4, 4, 1, 4).unwrap();
        let to: Vec<u32> = (0..16).map(|s| (s + 4) % 16).collect();
        let load = Load {
            traffic: Traffic::new(Pattern::Permutation(to)),
            ..uniform(500)
        };
        let buffering = Buffering {
            queueing: Queueing::VirtualOutput,
            bytes: 16 * 2048,
            ..BASE
        };
        let value = run(&topology, &load, &buffering).efficiency_link.mean;
        assert!(value > 0.99, "{value}");
    }

    #[test]
    fn buffers_that_cannot_work_are_named() {
        let small = Buffering { bytes: 100, ..BASE };
        assert!(small.problem(2048).is_some());
        assert!(BASE.problem(2048).is_none());
        let lanes = Buffering { lanes: 0, ..BASE };
        assert!(lanes.problem(1).is_some());
        let flow = FlowControl::StopGo { stop: 1, go: 2 };
        assert!(Buffering { flow, ..BASE }.problem(1).is_some());
    }
}
