//! Flits and cycles: wormhole routers with virtual channels and small buffers (level F1).
//!
//! A packet is a train of flits; each cycle every link carries at most one. A router input has a
//! buffer for each virtual channel, the head flit claims a free channel of its next link (given by
//! the arbiter), the others follow, and the tail releases it. Flits need a credit of the buffer
//! ahead. A flit takes one cycle for a link and the router behind it, where links are alike; those
//! that are faster or slower than those of sources, or longer than a cycle, are in
//! `flit/cables.rs`. Slower by far than packets ([`crate::network::wormhole`]), which must agree with
//! it: that is what it is for.
//!
//! Cost: some 20 ns per flit and link; nothing is allocated per flit.

mod cables;
mod standing;

use crate::address::NodeId;
use crate::kernel::{RunReport, StopReason};
use crate::network::outcome::Tally;
use crate::network::packet_source::{OfferedPacket, PacketSources};
use crate::network::topology::LinkEnd;
use crate::network::{Load, NetworkOutcome, Topology};
use crate::queue::EventClass;
use crate::random::{Purpose, RandomStream, RandomStreams};
use crate::time::{DurationPs, SimPs};
use crate::trace::{EventLabel, Trace, TraceRecord};

use cables::{Arrival, Cables, rooms};
pub(crate) use cables::{
    BUFFER_PLACES_MAX, DELAY_CYCLES_MAX, FLITS_UNDER_WAY_MAX, buffer_places, too_long,
};

/// No packet, no channel.
const NONE: u32 = u32::MAX;
/// The most flits of a buffer.
pub const BUFFER_FLITS_MAX: u32 = 1024;

/// Routers and links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlitConfig {
    /// Bytes of a flit.
    pub flit_bytes: u32,
    /// Flits of the buffer of each virtual channel, 2 to [`BUFFER_FLITS_MAX`], beside those that can
    /// be under way before their credits are back.
    pub buffer_flits: u32,
    /// Virtual channels of each link, 1 to 16.
    pub channels: u32,
}

impl Default for FlitConfig {
    /// Flits of 8 bytes, 8 of them in a buffer, one channel.
    fn default() -> Self {
        Self {
            flit_bytes: 8,
            buffer_flits: 8,
            channels: 1,
        }
    }
}

impl FlitConfig {
    /// What is wrong with it; `None` if nothing is.
    pub fn problem(&self) -> Option<String> {
        let is_good = (1..=65_536).contains(&self.flit_bytes)
            && (2..=BUFFER_FLITS_MAX).contains(&self.buffer_flits)
            && (1..=16).contains(&self.channels);
        (!is_good).then(|| {
            format!(
                "flits of {} B, buffers of {} flits, {} channels",
                self.flit_bytes, self.buffer_flits, self.channels
            )
        })
    }
}

/// Packets in the network, at most one per channel of a source beyond what the buffers hold.
#[derive(Default)]
struct Packets {
    source: Vec<u32>,
    destination: Vec<u32>,
    number: Vec<u64>,
    bytes: Vec<u32>,
    flits: Vec<u32>,
    arrived: Vec<SimPs>,
    route: Vec<u32>,
    free: Vec<u32>,
}

/// The buffers of all channels at the far ends of their links; packets of a buffer follow each
/// other, and one whose tail is still to come may have no flit in it.
struct Buffers {
    all: Vec<Buffer>,
    /// Rings of all buffers, one behind the other.
    trains: Vec<Train>,
}

/// A buffer: what each flit touches is in one place.
#[derive(Clone, Copy)]
struct Buffer {
    /// Flits that there is room for, and those of it that the sender has used.
    room: u32,
    used: u32,
    /// Flits of the first packet that are still to be sent on.
    left: u32,
    /// First place of its ring of packets, and how many there are.
    start: u32,
    packets: u32,
    /// The first packet, and how many there are.
    head: u32,
    len: u32,
}

/// A packet of a buffer, and its flits that are there.
#[derive(Clone, Copy)]
struct Train {
    packet: u32,
    here: u32,
    hop: u8,
}

struct Network<'t> {
    topology: &'t Topology,
    load: Load,
    config: FlitConfig,
    channels: usize,
    stride: usize,
    cycle: u64,
    cycle_ps: u64,
    packets: Packets,
    buffers: Buffers,
    /// `None` where all links are alike and a cycle long.
    cables: Option<Box<Cables>>,
    is_delivery: Vec<bool>,
    /// Buffer from which each channel is fed, [`NONE`] when free; for links of sources itself.
    owner: Vec<u32>,
    owned: Vec<u8>,
    /// Links with at least one channel in use, in no order.
    active: Vec<u32>,
    place_in_active: Vec<u32>,
    turn: Vec<u8>,
    /// Buffers whose first head asks for each link.
    asking: Vec<Vec<u32>>,
    asked: Vec<u32>,
    /// Cycle in which each input was used last, and for how many flits.
    used: Vec<u64>,
    used_flits: Vec<u32>,
    moves: Vec<(u32, u32)>,
    // Sources: a packet for each channel of their links.
    source_packet: Vec<u32>,
    source_left: Vec<u32>,
    number: Vec<u64>,
    idle: Vec<(SimPs, u32)>,
    /// Until which cycle each source pauses behind a packet, and all of them do.
    rests_until: Vec<u64>,
    all_rested_at: u64,
    sources: PacketSources,
    ties: RandomStream,
    tally: Tally,
    trace: Trace,
    flit_hops: u64,
    /// Whether nothing can happen any more.
    is_dry: bool,
}

/// Runs traffic through a network of routers, cycle by cycle.
///
/// The arbiter of the load is not used: ties are drawn. A hop takes a cycle at least.
///
/// # Panics
/// If the load does not fit the topology, the configuration is refused by [`FlitConfig::problem`],
/// or a link is so long that more flits than there may be are under way.
pub fn run(topology: &Topology, load: &Load, config: &FlitConfig) -> NetworkOutcome {
    let mut network = Network::new(topology, load.clone(), *config);
    network.offer_all();
    let end = (load.warm_up + load.duration).0 / network.cycle_ps;
    while network.cycle < end && !network.is_dry {
        network.step();
    }
    network.into_outcome()
}

/// Flits that crossed a link in a run of so many cycles, for measurements of speed.
pub fn flit_hops(topology: &Topology, load: &Load, config: &FlitConfig, cycles: u64) -> u64 {
    let mut network = Network::new(topology, load.clone(), *config);
    network.offer_all();
    while network.cycle < cycles {
        network.step();
    }
    network.flit_hops
}

impl<'t> Network<'t> {
    fn new(topology: &'t Topology, load: Load, config: FlitConfig) -> Self {
        let sources = topology.sources() as usize;
        let links = topology.links();
        let channels = config.channels as usize;
        let buffers = links.len() * channels;
        let streams = RandomStreams::new(load.seed);
        let cycle = DurationPs::for_bits(u64::from(config.flit_bytes) * 8, load.link_bits_per_s);
        let is_delivery =
            |link: &crate::network::topology::Link| matches!(link.to, LinkEnd::Destination(_));
        let cables = Cables::new(topology, &load, &config);
        Self {
            topology,
            config,
            channels,
            stride: topology.hops_max() + 1,
            cycle: 0,
            cycle_ps: cycle.0,
            packets: Packets::default(),
            buffers: Buffers::new(topology, &load, &config),
            cables: cables.map(Box::new),
            is_delivery: links.iter().map(is_delivery).collect(),
            owner: vec![NONE; buffers],
            owned: vec![0; links.len()],
            active: Vec::with_capacity(links.len()),
            place_in_active: vec![NONE; links.len()],
            turn: vec![0; links.len()],
            asking: vec![Vec::new(); links.len()],
            asked: Vec::with_capacity(links.len()),
            used: vec![u64::MAX; links.len()],
            used_flits: vec![0; links.len()],
            moves: Vec::with_capacity(links.len()),
            source_packet: vec![NONE; sources * channels],
            source_left: vec![0; sources * channels],
            number: vec![0; sources],
            idle: Vec::with_capacity(sources),
            rests_until: vec![0; sources],
            all_rested_at: 0,
            sources: PacketSources::new(topology, &load),
            ties: streams.stream(NodeId(0), Purpose(4)),
            tally: Tally::new(topology, &load),
            trace: Trace::new(0),
            flit_hops: 0,
            is_dry: false,
            load,
        }
    }

    fn now(&self) -> SimPs {
        SimPs(self.cycle * self.cycle_ps)
    }

    fn offer_all(&mut self) {
        for slot in 0..self.source_packet.len() as u32 {
            self.offer(SimPs::ZERO, slot);
        }
    }

    /// Makes the next packet of a source, in a slot: a channel of its link.
    fn offer(&mut self, at: SimPs, slot: u32) {
        let source = slot / self.config.channels;
        let s = source as usize;
        let number = self.number[s];
        if !self.sources.admits(slot, number) {
            return;
        }
        self.number[s] += 1;
        let OfferedPacket { to, bytes } =
            self.sources.next(self.topology, &self.load, source, number);
        let route = self
            .sources
            .route(self.topology, self.load.routes, [source, to], number);
        let arrived = self.sources.arrival(source, number).unwrap_or(at);
        let packet = self.packets.take(self.stride);
        let p = packet as usize;
        self.packets.source[p] = source;
        self.packets.destination[p] = to;
        self.packets.number[p] = number;
        self.packets.bytes[p] = bytes;
        self.packets.flits[p] = (bytes + self.load.overhead_bytes)
            .div_ceil(self.config.flit_bytes)
            .max(1);
        self.packets.arrived[p] = arrived;
        let links = route.links();
        self.packets.route[p * self.stride..][..links.len()].copy_from_slice(links);
        self.source_packet[slot as usize] = packet;
        self.source_left[slot as usize] = self.packets.flits[p];
        self.idle.push((at.max(arrived), slot));
    }

    /// One cycle: channels are given away, flits move, sources go on.
    fn step(&mut self) {
        self.take_arrivals();
        self.start_sources();
        self.give_channels();
        let is_waiting = match self.cables.take() {
            None => {
                self.choose_moves();
                false
            }
            Some(cables) => self.choose_paced_moves(cables),
        };
        let mut moves = core::mem::take(&mut self.moves);
        self.cycle += 1;
        self.flit_hops += moves.len() as u64;
        let is_still = moves.is_empty() && !is_waiting;
        for (from, to) in moves.drain(..) {
            self.move_flit(from, to);
        }
        self.moves = moves;
        let mut admitted = self.sources.take_admitted();
        for slot in admitted.drain(..) {
            self.offer(self.now(), slot);
        }
        self.sources.keep_admitted(admitted);
        // Without a move no channel and no credit becomes free, and no packet is yet to start or go on.
        let is_rested = self.cycle > self.all_rested_at;
        self.is_dry = is_still && self.idle.is_empty() && is_rested;
    }

    /// Packets that are due take the channel of their slot.
    fn start_sources(&mut self) {
        let now = self.now();
        let mut at = 0;
        while at < self.idle.len() {
            let (ready, slot) = self.idle[at];
            if ready > now {
                at += 1;
                continue;
            }
            self.idle.swap_remove(at);
            self.owner[slot as usize] = slot;
            self.activate(slot / self.config.channels);
        }
    }

    fn activate(&mut self, link: u32) {
        let l = link as usize;
        self.owned[l] += 1;
        if self.owned[l] == 1 {
            self.place_in_active[l] = self.active.len() as u32;
            self.active.push(link);
        }
    }

    fn release(&mut self, channel: usize) {
        self.owner[channel] = NONE;
        let l = channel / self.channels;
        self.owned[l] -= 1;
        if self.owned[l] == 0 {
            let place = self.place_in_active[l] as usize;
            self.active.swap_remove(place);
            if let Some(moved) = self.active.get(place) {
                self.place_in_active[*moved as usize] = place as u32;
            }
        }
        self.ask_again(l as u32);
    }

    fn ask_again(&mut self, link: u32) {
        if !self.asking[link as usize].is_empty() && !self.asked.contains(&link) {
            self.asked.push(link);
        }
    }

    /// Gives free channels to heads that ask, in random order.
    fn give_channels(&mut self) {
        let mut asked = core::mem::take(&mut self.asked);
        for link in asked.drain(..) {
            let l = link as usize;
            for channel in l * self.channels..(l + 1) * self.channels {
                let heads = self.asking[l].len() as u64;
                if heads == 0 {
                    break;
                }
                if self.owner[channel] != NONE {
                    continue;
                }
                let place = self.ties.below(heads) as usize;
                let buffer = self.asking[l].swap_remove(place);
                self.owner[channel] = buffer;
                self.activate(link);
            }
        }
        self.asked = asked;
    }

    /// Flits that move in this cycle: one for each link and input, with a credit.
    fn choose_moves(&mut self) {
        // All alike.
        let room = self.config.buffer_flits;
        let sources = self.topology.sources();
        for link in &self.active {
            let l = *link as usize;
            if *link < sources && self.rests_until[l] > self.cycle {
                continue;
            }
            let first = usize::from(self.turn[l]);
            for i in 0..self.channels {
                let lane = if first + i < self.channels {
                    first + i
                } else {
                    first + i - self.channels
                };
                let channel = l * self.channels + lane;
                let from = self.owner[channel];
                if from == NONE || !self.is_delivery[l] && self.buffers.all[channel].used >= room {
                    continue;
                }
                if *link >= sources {
                    if self.buffers.first(from as usize).here == 0 {
                        continue;
                    }
                    if self.channels > 1 {
                        let input = from as usize / self.channels;
                        if self.used[input] == self.cycle {
                            continue;
                        }
                        self.used[input] = self.cycle;
                    }
                }
                self.turn[l] = ((lane + 1) % self.channels) as u8;
                self.moves.push((from, channel as u32));
                break;
            }
        }
    }

    /// Moves a flit from a buffer (or a source) onto a channel.
    #[inline]
    fn move_flit(&mut self, from: u32, to: u32) {
        let (channel, link) = (to as usize, to as usize / self.channels);
        let sources = self.topology.sources() as usize;
        let (packet, hop, is_tail) = if link < sources {
            self.source_left[channel] -= 1;
            let is_tail = self.source_left[channel] == 0;
            (self.source_packet[channel], 0, is_tail)
        } else {
            self.return_credit(from);
            self.buffers.send(from as usize)
        };
        if !self.is_delivery[link] {
            self.buffers.all[channel].used += 1;
        }
        let flit = Arrival::Flit {
            channel: to,
            packet,
            hop: hop + 1,
            is_tail,
        };
        let cables = self.cables.as_mut();
        let way = cables.as_ref().map_or(0, |c| c.way(self.cycle, link));
        match cables {
            Some(cables) if way > 0 => cables.send(self.cycle + way, flit),
            _ => self.arrive(link, to, packet, hop + 1, is_tail),
        }
        if !is_tail {
            return;
        }
        self.release(channel);
        if link >= sources {
            let from = from as usize;
            if self.buffers.pop(from, &self.packets.flits) {
                self.ask(from as u32);
            }
        } else {
            let at = self.now() + self.load.source_gap;
            // Other packets of the source wait with the next one.
            self.rests_until[link] = at.0.div_ceil(self.cycle_ps);
            self.all_rested_at = self.all_rested_at.max(self.rests_until[link]);
            self.offer(at, to);
        }
    }

    /// A flit has left a buffer: whoever feeds it may send another one.
    #[inline(always)]
    fn return_credit(&mut self, buffer: u32) {
        if let Some(cables) = &mut self.cables {
            let link = buffer as usize / self.channels;
            let delay = cables.delay(link);
            if delay > 0 {
                return cables.send(self.cycle + u64::from(delay), Arrival::Credit { buffer });
            }
        }
        self.buffers.all[buffer as usize].used -= 1;
    }

    /// What is at its end of a long link by now.
    fn take_arrivals(&mut self) {
        let Some(cables) = &mut self.cables else {
            return;
        };
        let mut arrivals = cables.take_arrivals(self.cycle);
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Credit { buffer } => self.buffers.all[buffer as usize].used -= 1,
                Arrival::Flit {
                    channel,
                    packet,
                    hop,
                    is_tail,
                } => {
                    let link = channel as usize / self.channels;
                    self.arrive(link, channel, packet, hop, is_tail);
                }
            }
        }
        if let Some(cables) = &mut self.cables {
            cables.keep_arrivals(self.cycle, arrivals);
        }
    }

    /// A flit is at the end of its link.
    #[inline(always)]
    fn arrive(&mut self, link: usize, channel: u32, packet: u32, hop: u8, is_tail: bool) {
        if self.is_delivery[link] {
            if is_tail {
                self.deliver(packet);
            }
            return;
        }
        let flits = &self.packets.flits;
        if (self.buffers).receive(channel as usize, packet, hop, flits) {
            self.ask(channel);
        }
    }

    /// The first packet of a buffer asks for its next link.
    fn ask(&mut self, buffer: u32) {
        let Train { packet, hop, .. } = *self.buffers.first(buffer as usize);
        let link = self.packets.route[packet as usize * self.stride + usize::from(hop)];
        self.asking[link as usize].push(buffer);
        self.ask_again(link);
    }

    fn deliver(&mut self, packet: u32) {
        let p = packet as usize;
        let now = self.now();
        let (source, to) = (self.packets.source[p], self.packets.destination[p]);
        let number = self.packets.number[p];
        let latency = now - self.packets.arrived[p];
        let bytes = self.packets.bytes[p];
        self.tally.delivered(now, source, to, bytes, latency);
        self.trace.record(TraceRecord {
            time: now,
            class: EventClass(0),
            label: EventLabel {
                node: NodeId(source),
                kind: 0,
                key: number << 20 | u64::from(to),
            },
        });
        self.sources.complete(number);
        self.packets.free.push(packet);
    }

    fn into_outcome(self) -> NetworkOutcome {
        let report = RunReport {
            stop: match self.is_dry {
                true => StopReason::Drained,
                false => StopReason::Horizon,
            },
            now: self.now(),
            events: self.flit_hops,
            pending: 0,
            pending_peak: 0,
            trace_hash: self.trace.hash(),
        };
        let in_flight = (self.packets.source.len() - self.packets.free.len()) as u64;
        let standstill = self.standstill();
        let mut outcome = self.tally.into_outcome(&report);
        outcome.standstill = standstill;
        // Those that are gone had arrived.
        let arrivals = self.packets.arrived.iter().copied();
        self.sources.settle(&mut outcome, in_flight, arrivals);
        outcome
    }
}

impl Buffers {
    fn new(topology: &Topology, load: &Load, config: &FlitConfig) -> Self {
        let (mut all, mut places) = (Vec::new(), 0);
        for (flits, packets) in rooms(topology, load, config) {
            let is_bounded = flits <= u64::from(BUFFER_FLITS_MAX) + FLITS_UNDER_WAY_MAX;
            assert!(is_bounded, "links of a bounded length");
            for _ in 0..config.channels {
                all.push(Buffer {
                    room: flits as u32,
                    used: 0,
                    left: 0,
                    start: places,
                    packets: packets as u32,
                    head: 0,
                    len: 0,
                });
                places += packets as u32;
            }
        }
        let vacant = Train {
            packet: NONE,
            here: 0,
            hop: 0,
        };
        Self {
            all,
            trains: vec![vacant; places as usize],
        }
    }

    fn first(&self, buffer: usize) -> &Train {
        &self.trains[self.all[buffer].place(0)]
    }

    /// Takes a flit of the first packet out: the packet, its hop, and whether it was the tail.
    #[inline]
    fn send(&mut self, buffer: usize) -> (u32, u8, bool) {
        let buffer = &mut self.all[buffer];
        let train = &mut self.trains[buffer.place(0)];
        train.here -= 1;
        buffer.left -= 1;
        (train.packet, train.hop, buffer.left == 0)
    }

    /// Takes a flit in; whether it is the head of what is now the first packet.
    #[inline]
    fn receive(&mut self, buffer: usize, packet: u32, hop: u8, flits: &[u32]) -> bool {
        let buffer = &mut self.all[buffer];
        if buffer.len > 0 {
            let last = &mut self.trains[buffer.place(buffer.len - 1)];
            if last.packet == packet {
                last.here += 1;
                return false;
            }
        }
        self.trains[buffer.place(buffer.len)] = Train {
            packet,
            here: 1,
            hop,
        };
        buffer.len += 1;
        if buffer.len == 1 {
            buffer.left = flits[packet as usize];
        }
        buffer.len == 1
    }

    /// Forgets the first packet; whether another one is first now.
    fn pop(&mut self, buffer: usize, flits: &[u32]) -> bool {
        let buffer = &mut self.all[buffer];
        self.trains[buffer.place(0)].packet = NONE;
        buffer.head = match buffer.head + 1 {
            next if next == buffer.packets => 0,
            next => next,
        };
        buffer.len -= 1;
        if buffer.len == 0 {
            return false;
        }
        let next = self.trains[buffer.place(0)].packet;
        buffer.left = flits[next as usize];
        true
    }
}

impl Buffer {
    /// Where its `nth` packet is.
    #[inline]
    fn place(&self, nth: u32) -> usize {
        let at = self.head + nth;
        let round = if at < self.packets { 0 } else { self.packets };
        (self.start + at - round) as usize
    }
}

impl Packets {
    fn take(&mut self, stride: usize) -> u32 {
        if let Some(packet) = self.free.pop() {
            return packet;
        }
        let packet = self.source.len() as u32;
        self.source.push(0);
        self.destination.push(0);
        self.number.push(0);
        self.bytes.push(0);
        self.flits.push(0);
        self.arrived.push(SimPs::ZERO);
        self.route.resize(self.route.len() + stride, 0);
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::topology::Wiring;
    use crate::network::topology::shift::ShiftSchedule;
    use crate::network::{Pattern, SizeLaw, Traffic};

    fn outcome(topology: &Topology, traffic: Traffic, times: u64, channels: u32) -> NetworkOutcome {
        let load = Load::saturated(traffic, SizeLaw::Fixed(1024), times);
        let config = FlitConfig {
            channels,
            ..FlitConfig::default()
        };
        let outcome = run(topology, &load, &config);
        let accounted = outcome.packets_in_all + outcome.packets_in_flight;
        assert_eq!(outcome.packets_offered, accounted);
        outcome
    }

    #[test]
    fn a_permutation_fills_every_link() {
        let topology = Topology::delta(4, 2, &Wiring::Omega).unwrap();
        let schedule = ShiftSchedule::conflict_free(&topology).unwrap();
        let to = (0..16).map(|s| schedule.destination(s, 3, 16)).collect();
        let traffic = Traffic::new(Pattern::Permutation(to));
        let value = outcome(&topology, traffic, 100, 1).efficiency_link.mean;
        assert!(value > 0.99, "{value}");
    }

    #[test]
    fn a_router_has_head_of_line_blocking_and_channels_help() {
        let topology = Topology::crossbar(8).unwrap();
        let run = |channels| {
            let traffic = Traffic::new(Pattern::Uniform);
            outcome(&topology, traffic, 1_500, channels)
                .efficiency_link
                .mean
        };
        let one = run(1);
        assert!((one - 0.618).abs() < 0.02, "{one}");
        assert!(run(4) > one + 0.05);
    }

    #[test]
    fn the_same_seed_is_the_same_run() {
        let topology = Topology::crossbar(4).unwrap();
        let run = || outcome(&topology, Traffic::new(Pattern::Uniform), 100, 2).trace_hash;
        assert_eq!(run(), run());
        assert!(FlitConfig::default().problem().is_none());
        let shallow = FlitConfig {
            buffer_flits: 1,
            ..FlitConfig::default()
        };
        assert!(shallow.problem().is_some());
    }
}
