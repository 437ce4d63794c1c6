//! The event builder's own protocol on a switching network: its real units on simulated hosts.
//!
//! [`ReadoutUnit`](livetime_builder::ReadoutUnit), [`BuilderUnit`](livetime_builder::BuilderUnit)
//! and [`EventManager`](livetime_builder::EventManager) run here unchanged, with their shapers, on
//! hosts with a bus, a processor and an adapter for each network. Payload is a descriptor: bytes
//! are counted and never moved. What is sent crosses the engines of [`crate::network`] packet by
//! packet, with their blocking, buffers and losses. A supervisor hands triggers to the event
//! manager; a filter behind each builder unit takes the events. Single units under all faults are
//! in [`crate::swarm`], the whole chain without a switching network in [`crate::chain`].
//!
//! ```text
//! triggers ─► EVM ─assignments─► BU ─requests, releases─► RU     control network, or the data
//!                                 ▲                        │     network's other direction
//!                                 └── data networks ◄─ shaper
//! ```
//!
//! While it runs, this is checked: each event is built once, with the fragment of every source and
//! the right number of bytes; credits and fragments are conserved; builder units hold no more than
//! their credits, in events and in bytes; something is built as long as there is something to build.

mod adapter;
mod builder_loss;
mod busy;
mod check;
mod control;
mod deliveries;
mod engine;
mod event;
mod foresight;
mod hosts;
mod letters;
mod manager_loss;
mod membership;
mod moving;
mod outcome;
mod packet_loss;
mod parts;
mod patience;
mod placement;
mod readout_loss;
mod sick_units;
mod summary;
mod tally;
mod two_step;
mod world;

use livetime_builder::builder_config::{TRIGGERS_HELD_MAX, TRIGGERS_UNDECIDED};
use livetime_builder::problem_code::TIMEOUT;
use livetime_builder::{BuildMode, BuilderConfig};
use livetime_wire::{ByteSize, DurationNs, Problem, SourceId};

use crate::kernel::{RunLimits, Simulation, SimulationConfig, StopReason};
use crate::network::topology::shift::ShiftSchedule;
use crate::network::{Load, RoutePolicy, SizeLaw, Topology};
use crate::problem_code::{BUILDER_NETWORK, SCHEDULE, TIMES};
use crate::scenario::{ShiftOrder, Switching};
use crate::time::{DurationPs, SimPs};

pub use busy::HostShares;
pub use outcome::{BatchCounts, BuilderNetworkOutcome};
pub use sick_units::{Deaths, SickUnits};
pub use two_step::{TwoStep, TwoStepOutcome};

/// Share of damaged packets beyond which a network is broken rather than noisy.
const PACKET_DAMAGE_MAX: f64 = 0.5;

/// The shortest interval at which builder units look for work, if not at once: each look is an event of
/// the simulation.
const INTERVAL_MIN: DurationPs = DurationPs::from_ns(100);

/// The most events that are released and not yet seen to be by every readout unit.
const RELEASED_MAX: u32 = 1_024;

/// The most events that may be open at once: units remember twice as many, and those released.
const OPEN_MAX: u32 = TRIGGERS_HELD_MAX / 2 - RELEASED_MAX;

/// The longest time after which an event is closed without what misses.
pub(crate) const TIMEOUT_MAX: DurationNs = DurationNs(3600 * DurationNs::SECOND.0);

/// Bytes that the largest packet of a network may have: every control message fits into the least.
pub(crate) const MTU: core::ops::RangeInclusive<u32> = 512..=1 << 20;

/// Pairs of units for whose states huge pages are worth the while: fewer are at hand anyway, and of
/// more a short run leaves much untouched that huge pages would take memory for.
const HUGE_PAGES_FOR: core::ops::RangeInclusive<usize> = 1 << 14..=1 << 20;

/// Sixteenths of such a run after which the heap is gathered in huge pages: units take most of their
/// memory at the start, and the rest when the first events are open.
const GATHERED_AFTER: &[u64] = &[0, 1, 4];

/// How readout units spread what they send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shaping {
    /// Not at all: fragments go as packets in the order in which they are asked for.
    #[default]
    None,
    /// Blocks of equal size, to one builder unit after the other.
    BarrelShifter {
        /// Bytes of a block.
        block_bytes: u32,
        /// Order of the receivers.
        order: ShiftOrder,
    },
    /// Whole fragments, to one builder unit after the other, with a barrier after each phase.
    LinearShift {
        /// Bytes from which a readout unit is through with a phase.
        phase_bytes: u32,
        /// Order of the receivers.
        order: ShiftOrder,
    },
}

/// Who fills blocks and packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShaperPlace {
    /// The adapter: a packet costs it time, and the host none.
    #[default]
    Adapter,
    /// The host: a packet takes its processor, which requests take, too.
    Host,
}

/// How control messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// By a network of their own.
    Separate {
        /// Rate of a host's link to it, bits per second.
        bits_per_s: u64,
        /// Time from host to host.
        latency: DurationPs,
    },
    /// Between builder and readout units by the other direction of the data network, as packets;
    /// to and from the event manager by a network of their own.
    Shared {
        /// Rate of a host's link to the event manager's network, bits per second.
        bits_per_s: u64,
        /// Time from host to host on it.
        latency: DurationPs,
    },
}

impl Control {
    /// Whether it is shared, rate and latency.
    const fn parts(self) -> (bool, u64, DurationPs) {
        match self {
            Self::Separate {
                bits_per_s,
                latency,
            } => (false, bits_per_s, latency),
            Self::Shared {
                bits_per_s,
                latency,
            } => (true, bits_per_s, latency),
        }
    }
}

/// Which unit is on which port of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// Unit n on port n.
    #[default]
    InOrder,
    /// Neighbours on ports as far apart as possible: units are dealt to the slots in turn.
    Interleaved {
        /// Ports of a slot; the number of ports must be a multiple of it.
        slot_ports: u32,
    },
    /// In a random order, by the seed.
    Random,
}

/// What hosts take time for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostModel {
    /// Rate of the bus between memory and adapter, bytes per second; 0 for one that is never busy.
    pub bus_bytes_per_s: u64,
    /// Processor time for a control message, sent or received.
    pub message: DurationPs,
    /// Processor time of a builder unit for a fragment.
    pub fragment: DurationPs,
    /// Time for a block or packet beside its transfer: the adapter's, or the host's if it shapes.
    pub packet: DurationPs,
    /// Time of the filter behind a builder unit for an event.
    pub event: DurationPs,
    /// Builder units look for work this often, and what comes between goes out in groups; 0 for at
    /// once.
    pub interval: DurationPs,
}

impl Default for HostModel {
    fn default() -> Self {
        Self {
            bus_bytes_per_s: 0,
            message: DurationPs::from_us(2),
            fragment: DurationPs::ZERO,
            packet: DurationPs::ZERO,
            event: DurationPs::from_us(100),
            interval: DurationPs::ZERO,
        }
    }
}

/// An event builder on a network. Rates, sizes, arrivals and times come from the [`Load`].
#[derive(Debug, Clone, PartialEq)]
pub struct BuilderNetwork {
    /// Readout units, each with one source; 0 for one on every source of the network.
    pub readout_units: u32,
    /// Builder units; 0 for one on every destination of the network.
    pub builder_units: u32,
    /// Pull or push.
    pub mode: BuildMode,
    /// Two steps, in pull mode; `None` for whole events at once.
    pub two_step: Option<TwoStep>,
    /// Events that a builder unit may hold.
    pub credits: u32,
    /// Payload bytes that a builder unit may hold, on top of `credits`; 0 for no such bound.
    pub credit_bytes: u64,
    /// Payload bytes that are set aside for an event until its size is known; with `credit_bytes`.
    pub event_bytes: u64,
    /// Most events that a request, release or clear names.
    pub requests_per_message: u32,
    /// Accepted triggers that may wait for a credit.
    pub queue: u32,
    /// After it an event is closed without the fragments that did not come.
    pub timeout: DurationNs,
    /// After it missing fragments are asked for again.
    pub retry: DurationNs,
    /// With the linear shift: after it a readout unit that waits for the next phase says again that it
    /// is through with the last one.
    pub barrier_retry: DurationNs,
    /// Shaping.
    pub shaping: Shaping,
    /// Who shapes.
    pub shaper: ShaperPlace,
    /// Control messages.
    pub control: Control,
    /// Placement on the ports.
    pub placement: Placement,
    /// Hosts.
    pub hosts: HostModel,
    /// Most bytes of a packet, without overhead: larger fragments go in several. 0 for any size.
    pub mtu: u32,
    /// Share of the packets that come damaged and are dropped, 0 to 0.5: a control message on a
    /// shared network and a block or fragment alike.
    pub packet_damage: f64,
    /// Units that are not well.
    pub sick: SickUnits,
}

impl Default for BuilderNetwork {
    fn default() -> Self {
        Self {
            readout_units: 0,
            builder_units: 0,
            mode: BuildMode::Pull,
            two_step: None,
            credits: 16,
            credit_bytes: 0,
            event_bytes: 0,
            requests_per_message: 8,
            queue: 64,
            timeout: DurationNs(5 * DurationNs::SECOND.0),
            retry: DurationNs::SECOND,
            barrier_retry: DurationNs(5 * DurationNs::MILLISECOND.0),
            shaping: Shaping::None,
            shaper: ShaperPlace::Adapter,
            control: Control::Separate {
                bits_per_s: 1_000_000_000,
                latency: DurationPs::from_us(10),
            },
            placement: Placement::InOrder,
            hosts: HostModel::default(),
            mtu: 0,
            packet_damage: 0.0,
            sick: SickUnits::default(),
        }
    }
}

impl BuilderNetwork {
    pub(crate) fn readouts(&self, topology: &Topology) -> u32 {
        match self.readout_units {
            0 => topology.sources(),
            units => units,
        }
    }

    pub(crate) fn builders(&self, topology: &Topology) -> u32 {
        match self.builder_units {
            0 => topology.destinations(),
            units => units,
        }
    }

    /// The ports of the readout units, and those of the builder units.
    pub(crate) fn ports(&self, topology: &Topology, seed: u64) -> [Vec<u16>; 2] {
        let of = |ports, units| placement::ports(self.placement, ports, units, seed);
        [
            of(topology.sources(), self.readouts(topology)),
            of(topology.destinations(), self.builders(topology)),
        ]
    }

    /// Payload that one readout unit can send to one builder unit while nobody else sends, as a share
    /// of what the links of a builder unit carry, all rails together; above 0 and up to 1. The
    /// readout unit always has a full block, or a fragment of mean size in its packets. What is left
    /// of the link is bounded by their overhead, the time that a packet costs the adapter or the host, the
    /// bus, and the builder unit's time for a fragment; not by delays, control messages or filters,
    /// behind which more events hide.
    pub fn point_to_point(&self, load: &Load, rails: u32) -> f64 {
        let (hosts, rails) = (&self.hosts, f64::from(rails));
        let seconds = |time: DurationPs| time.0 as f64 * 1e-12;
        let fragment = load.sizes.mean();
        let (payload, packets) = match self.shaping {
            Shaping::BarrelShifter { block_bytes, .. } => (f64::from(block_bytes), 1),
            Shaping::None | Shaping::LinearShift { .. } => {
                (fragment, self.packets_of(fragment as u64))
            }
        };
        let on_link = |bytes: f64| bytes * 8.0 / load.link_bits_per_s as f64;
        let packets = packets as f64;
        let packet = seconds(hosts.packet) * packets;
        let link = on_link(payload + f64::from(load.overhead_bytes) * packets) + packet;
        let bus = match hosts.bus_bytes_per_s {
            0 => 0.0,
            rate => payload / rate as f64,
        };
        // One processor for the packets of all rails.
        let shaper = match self.shaper {
            ShaperPlace::Adapter => 0.0,
            ShaperPlace::Host => packet * rails,
        };
        let builder = seconds(hosts.fragment) * payload / fragment * rails;
        on_link(payload) / link.max(bus).max(shaper).max(builder)
    }

    /// Packets that a fragment of so many bytes takes, where it goes in packets of its own.
    pub(crate) const fn packets_of(&self, bytes: u64) -> u64 {
        match self.mtu {
            0 => 1,
            mtu if bytes <= mtu as u64 => 1,
            mtu => bytes.div_ceil(mtu as u64),
        }
    }

    /// Events that may be open at once: those that wait and those in building.
    fn open_max(&self, builders: u32) -> u32 {
        self.queue
            .saturating_add(builders.saturating_mul(self.credits))
    }

    /// The configuration of the units.
    pub fn builder_config(&self, topology: &Topology) -> BuilderConfig {
        let builders = self.builders(topology);
        // Some that are released are not yet seen to be by every readout unit.
        let slack = (2 * builders).clamp(TRIGGERS_UNDECIDED, RELEASED_MAX);
        let window = self.open_max(builders).saturating_add(slack);
        let window = match self.sick.manager.units {
            0 => window,
            // The next event manager queues what was open, and as many triggers that are new.
            _ => window.saturating_mul(2),
        };
        BuilderConfig {
            readout_units: (0..self.readouts(topology))
                .map(|unit| vec![SourceId(unit)])
                .collect(),
            builder_units: u16::try_from(builders).unwrap_or(u16::MAX),
            filter_units: 1,
            credits: self.credits,
            credit_bytes: self.credit_bytes,
            event_bytes: self.event_bytes,
            requests_per_message: self.requests_per_message,
            timeout: self.timeout,
            retry: self.retry,
            probe: self.timeout,
            evm_queue: self.queue,
            filter_in_flight: self.credits,
            history: window.saturating_mul(2).next_power_of_two(),
            trigger_window: window,
            mode: self.mode,
            first_step: match &self.two_step {
                Some(steps) => steps.units(self.readouts(topology)),
                None => Vec::new(),
            },
            heartbeat: self.sick.heartbeat(),
            ..BuilderConfig::default()
        }
    }

    /// Everything that is wrong, with the key of the scenario file.
    pub fn validate(
        &self,
        topology: &Topology,
        load: &Load,
        switching: &Switching,
        rails: u32,
    ) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.check_units(topology, &mut problems);
        let units = (self.readouts(topology), self.builders(topology));
        let end = load.warm_up + load.duration;
        self.sick.check(units, end, &mut problems);
        self.check_damage(&mut problems);
        self.check_mtu(&mut problems);
        self.check_times(&mut problems);
        self.check_timeouts(&mut problems);
        self.check_open_events(topology, &mut problems);
        self.check_shaping(topology, load, switching, &mut problems);
        self.check_event_bytes(topology, load, &mut problems);
        if matches!(self.control, Control::Shared { .. })
            && (self.builders(topology) > topology.sources()
                || self.readouts(topology) > topology.destinations())
        {
            let found = "more units on one side than ports on the other";
            let allowed = "as many sources as destinations";
            let help = "set `control = \"separate\"`, or change the network";
            let path = "builder.control";
            problems.push(Problem::new(BUILDER_NETWORK, path, found, allowed, help));
        }
        if rails > 1 && matches!(self.shaping, Shaping::LinearShift { .. }) {
            let help = "use one network, or a barrel shifter";
            let allowed = "1 with a linear shift: its barrier is of one network";
            problems.push(Problem::new(BUILDER_NETWORK, "rails", rails, allowed, help));
        }
        if rails > 8 {
            let help = "use fewer networks side by side";
            problems.push(Problem::new(
                BUILDER_NETWORK,
                "rails",
                rails,
                "1 to 8 with [builder]",
                help,
            ));
        }
        if problems.is_empty() {
            // What follows from several keys was checked before: a message names keys of the file.
            // Simulated fragments have no pages, so that tickets of more sources are small enough.
            let units = self.builder_config(topology).validate("builder");
            problems.extend(units.into_iter().filter(|p| p.code.code != "B0110"));
        }
        problems
    }

    fn check_units(&self, topology: &Topology, problems: &mut Vec<Problem>) {
        let mut report = |path: &str, found: String, allowed: String, help: &str| {
            problems.push(Problem::new(BUILDER_NETWORK, path, found, allowed, help));
        };
        for (path, units, ports) in [
            (
                "builder.readout_units",
                self.readouts(topology),
                topology.sources(),
            ),
            (
                "builder.builder_units",
                self.builders(topology),
                topology.destinations(),
            ),
        ] {
            let most = ports.min(4096);
            if !(1..=most).contains(&units) {
                let help = "each unit needs a port of its own; leave the key out for all ports";
                report(path, units.to_string(), format!("1 to {most}"), help);
            }
        }
        let Placement::Interleaved { slot_ports } = self.placement else {
            return;
        };
        let sides = [topology.sources(), topology.destinations()];
        let is_in_order = |ports: u32| slot_ports == 1 || slot_ports == ports;
        if slot_ports == 0 || sides.iter().any(|ports| !ports.is_multiple_of(slot_ports)) {
            let help = "set it to the ports of one slot or edge switch";
            let allowed = "a divisor of the number of ports".to_owned();
            report("builder.slot_ports", slot_ports.to_string(), allowed, help);
        } else if sides.into_iter().all(is_in_order) {
            // The key that is there in any case.
            let path = "builder.placement";
            let found =
                format!("interleaved with a `slot_ports` of {slot_ports}, which is in order");
            let allowed = "a `slot_ports` of more than 1 and less than all ports".to_owned();
            let help =
                "set `slot_ports` to the ports of one slot or edge switch, or remove `placement`";
            report(path, found, allowed, help);
        }
    }

    fn check_damage(&self, problems: &mut Vec<Problem>) {
        if !(0.0..=PACKET_DAMAGE_MAX).contains(&self.packet_damage) {
            let found = self.packet_damage;
            let allowed = format!("0 to {PACKET_DAMAGE_MAX}");
            let help = "write a share such as 1e-6: bit errors times the bits of a packet";
            let path = "builder.packet_damage";
            problems.push(Problem::new(BUILDER_NETWORK, path, found, allowed, help));
        }
    }

    fn check_mtu(&self, problems: &mut Vec<Problem>) {
        let path = "builder.mtu";
        if self.mtu > 0 && !MTU.contains(&self.mtu) {
            let found = ByteSize(self.mtu.into());
            let help = "1500 B is that of Ethernet, 9000 B with jumbo frames";
            let allowed = "512 B to 1 MiB";
            problems.push(Problem::new(BUILDER_NETWORK, path, found, allowed, help));
        } else if let Shaping::BarrelShifter { block_bytes, .. } = self.shaping
            && (1..block_bytes).contains(&self.mtu)
        {
            let found = ByteSize(self.mtu.into());
            let allowed = format!(
                "{} or more: a block is a packet",
                ByteSize(block_bytes.into())
            );
            let help = "use smaller blocks with `block`, or a network with larger packets";
            problems.push(Problem::new(BUILDER_NETWORK, path, found, allowed, help));
        }
    }

    fn check_times(&self, problems: &mut Vec<Problem>) {
        let (Control::Separate { bits_per_s, .. } | Control::Shared { bits_per_s, .. }) =
            self.control;
        if !(1_000..=100_000_000_000_000).contains(&bits_per_s) {
            let found = format!("{bits_per_s} bit/s");
            let help = "write a rate such as \"1 Gb/s\"";
            let path = "builder.control_rate";
            problems.push(Problem::new(
                BUILDER_NETWORK,
                path,
                found,
                "1 kb/s to 100 Tb/s",
                help,
            ));
        }
        let (_, _, latency) = self.control.parts();
        let heartbeat = self.sick.heartbeat();
        let silence = BuilderConfig::default().dead.0.saturating_sub(heartbeat.0);
        if heartbeat.0 > 0 && latency >= DurationPs::from_ns(silence) {
            let found = DurationNs(latency.0 / 1_000);
            let allowed = format!(
                "below {} where builder units or the event manager die: who is not heard is dead",
                DurationNs(silence)
            );
            let help = "lower it, or let no unit die";
            let path = "builder.control_latency";
            problems.push(Problem::new(BUILDER_NETWORK, path, found, allowed, help));
        }
        let interval = self.hosts.interval;
        if interval > DurationPs::ZERO && interval < INTERVAL_MIN {
            let found = DurationNs(interval.0 / 1_000);
            let allowed = "0 ns for at once, or 100 ns and more";
            let help =
                "no host looks for work more often; `100 us` is usual where messages are grouped";
            problems.push(Problem::new(TIMES, "host.interval", found, allowed, help));
        }
    }

    fn check_timeouts(&self, problems: &mut Vec<Problem>) {
        let timeouts = DurationNs::MILLISECOND..=TIMEOUT_MAX;
        let retry_most = match timeouts.contains(&self.timeout) {
            true => self.timeout,
            false => TIMEOUT_MAX,
        };
        for (path, time, allowed, help) in [
            (
                "builder.timeout",
                self.timeout,
                timeouts,
                "set it above the worst delay of a fragment",
            ),
            (
                "builder.retry",
                self.retry,
                DurationNs::MICROSECOND..=retry_most,
                "set it between the worst round trip and `timeout`",
            ),
            (
                "builder.barrier_retry",
                self.barrier_retry,
                DurationNs::MICROSECOND..=DurationNs::SECOND,
                "set it to a few round trips of control messages",
            ),
        ] {
            if !allowed.contains(&time) {
                let allowed = format!("{} to {}", allowed.start(), allowed.end());
                problems.push(Problem::new(TIMEOUT, path, time, allowed, help));
            }
        }
    }

    /// Tables of all units have a place for each event that may be open.
    fn check_open_events(&self, topology: &Topology, problems: &mut Vec<Problem>) {
        let builders = self.builders(topology);
        let open = self.open_max(builders);
        if open > OPEN_MAX {
            let path = match self.queue > open / 2 {
                true => "builder.queue",
                false => "builder.credits",
            };
            let found = format!(
                "{open} open events: {} credits of each of {builders} builder units, and a queue of {}",
                self.credits, self.queue
            );
            let allowed = format!("up to {OPEN_MAX} open events");
            let help = "lower `credits` or `queue`";
            problems.push(Problem::new(BUILDER_NETWORK, path, found, allowed, help));
        }
    }

    /// Of sizes that are known before, whether an event is as small as is set aside for it.
    fn check_event_bytes(&self, topology: &Topology, load: &Load, problems: &mut Vec<Problem>) {
        let SizeLaw::Fixed(bytes) = load.sizes else {
            return;
        };
        // Fragments are of whole words.
        let event = u64::from(bytes.next_multiple_of(4)) * u64::from(self.readouts(topology));
        if self.credit_bytes > 0 && (1..event).contains(&self.event_bytes) {
            let found = ByteSize(self.event_bytes);
            let allowed = format!("{} or more, the size of every event", ByteSize(event));
            let help = "raise it, or lower `size.mean`";
            let path = "builder.event_bytes";
            problems.push(Problem::new(BUILDER_NETWORK, path, found, allowed, help));
        }
    }

    fn check_shaping(
        &self,
        topology: &Topology,
        load: &Load,
        switching: &Switching,
        problems: &mut Vec<Problem>,
    ) {
        let (bytes, order) = match self.shaping {
            Shaping::None => return,
            Shaping::BarrelShifter { block_bytes, order } => (block_bytes, order),
            Shaping::LinearShift { phase_bytes, order } => (phase_bytes, order),
        };
        if !(64..=1 << 20).contains(&bytes) {
            let path = "builder.block";
            let help = "4 KiB is usual";
            problems.push(Problem::new(
                BUILDER_NETWORK,
                path,
                format!("{bytes} B"),
                "64 B to 1 MiB",
                help,
            ));
        }
        if let (Shaping::BarrelShifter { .. }, Switching::Buffered(buffering)) =
            (self.shaping, switching)
            && let block = u64::from(bytes) + u64::from(load.overhead_bytes)
            && buffering.bytes < block
        {
            let found = format!("blocks of {block} bytes for buffers of {}", buffering.bytes);
            let (path, help) = (
                "builder.block",
                "raise `switch.buffer`, or use smaller blocks",
            );
            let allowed = "blocks that fit into the buffers";
            problems.push(Problem::new(BUILDER_NETWORK, path, found, allowed, help));
        }
        let mut report = |found: String| {
            let allowed = "a network with a schedule in which no two sources share a link";
            let help = "set `builder.order = \"plain\"` to run it with conflicts";
            let path = "builder.order";
            problems.push(Problem::new(SCHEDULE, path, found, allowed, help));
        };
        if topology.sources() > topology.destinations() {
            report("more sources than destinations".to_owned());
        } else if order == ShiftOrder::ConflictFree {
            match ShiftSchedule::conflict_free(topology) {
                None => report("a network for which no such schedule is known".to_owned()),
                Some(schedule) => {
                    let steps = topology.destinations().min(512);
                    if let Some(conflict) = schedule.first_conflict(topology, steps) {
                        report(conflict.to_string());
                    }
                }
            }
        }
    }

    /// Number of each source in the shifts, and the routes that go with it.
    fn schedule(&self, topology: &Topology, routes: RoutePolicy) -> ShiftSchedule {
        let plain = || ShiftSchedule::naive(topology, routes);
        match self.shaping {
            Shaping::None => plain(),
            Shaping::BarrelShifter { order, .. } | Shaping::LinearShift { order, .. } => {
                match order {
                    ShiftOrder::ConflictFree => {
                        ShiftSchedule::conflict_free(topology).unwrap_or_else(plain)
                    }
                    ShiftOrder::Plain => plain(),
                }
            }
        }
    }

    /// Runs it. Call [`BuilderNetwork::validate`] first.
    ///
    /// # Panics
    /// When the builder does not fit the network.
    pub fn run(
        &self,
        topology: &Topology,
        load: &Load,
        switching: &Switching,
        rails: u32,
    ) -> BuilderNetworkOutcome {
        self.run_with_shares(topology, load, switching, rails).0
    }

    /// Runs it and says how busy its hosts were. Call [`BuilderNetwork::validate`] first.
    ///
    /// # Panics
    /// When the builder does not fit the network.
    pub fn run_with_shares(
        &self,
        topology: &Topology,
        load: &Load,
        switching: &Switching,
        rails: u32,
    ) -> (BuilderNetworkOutcome, HostShares) {
        let config = SimulationConfig {
            queue: load.queue,
            ..SimulationConfig::default()
        };
        let world = world::NetworkWorld::new(self, topology, load, switching, rails);
        let mut simulation = Simulation::new(world, config);
        let (world, scheduler) = simulation.parts_mut();
        world.start(scheduler);
        let pairs = world.adapters.len() * world.builders.len();
        let end = SimPs::ZERO + load.warm_up + load.duration;
        let pieces = match HUGE_PAGES_FOR.contains(&pairs) {
            true => GATHERED_AFTER,
            false => &[],
        };
        // A run in pieces is the same as one run.
        let mut ends = pieces.iter().map(|piece| SimPs(end.0 / 16 * piece));
        let report = loop {
            let until = ends.next();
            let report = simulation.run(RunLimits::new(until.unwrap_or(end), u64::MAX));
            if until.is_none() || report.stop != StopReason::Horizon {
                break report;
            }
            livetime_shm::heap_pages::heap_into_huge_pages();
        };
        let world = simulation.into_world();
        let shares = HostShares::of(&world, report.now);
        (world.into_outcome(&report), shares)
    }
}
