//! The plan of a chain: which pools and rings there are, how large, and whose ends they are.
//!
//! It follows from the configuration alone, so that every process of a run derives the same plan
//! and only descriptors have to be passed. What a role does with its ends is in
//! [`crate::role_ends`]; who makes them is [`crate::chain`] for threads and [`crate::process`] for
//! processes.

use std::fmt;

use livetime_builder::unit_memory::{builder_unit_bytes, event_manager_bytes, readout_unit_bytes};
use livetime_readout::{FragmentBufferConfig, LinkConfig};
use livetime_shm::ring::MAX_SLOTS;
use livetime_shm::{HugePages, PoolConfig, RingConfig};
use livetime_wire::decision::REPLY_WORDS;
use livetime_wire::fragment::OVERHEAD_WORDS;
use livetime_wire::message::{EventTicket, FRAGMENT_PAGES_MAX, MESSAGE_WORDS_MAX, TRIGGERS_MAX};
use livetime_wire::message_datagram::PAYLOAD_AT;
use livetime_wire::{UnitId, UnitKind};

use crate::builder_transport::BuilderTransport;
use crate::building_group::BuildingGroup;
use crate::chain_config::{ChainConfig, DataLinkConfig};
use crate::completion::COMPLETION_WORDS;
use crate::front_end_server::FrontEndServerConfig;
use crate::hand_over_stamp::STAMP_WORDS;
use crate::packet_link::{config_for, slot_words};
use crate::role_ends::unit_of;
use crate::transport::STREAM_PAGES_MAX;
use crate::transport::udp_frame_link::{BATCH, PARTIAL_FRAGMENTS_MAX};

/// Slots of the rings between cards and hosts; when full, entries wait in the card's FIFO.
const CARD_RING_SLOTS: u32 = 1024;
/// Words of a message that returns pages.
const PAGES_BACK_WORDS: usize = 16;
/// Words of a message that says what was written.
const WRITTEN_WORDS: usize = 2;

/// Role id of the front-ends, with which the trigger supervisor lives.
pub const FRONT_END: &str = "src0";

/// What travels in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    /// Builder messages.
    Messages,
    /// Event tickets.
    Tickets,
    /// Trigger packets and replies, whole.
    Packets,
    /// Acknowledge entries of filled pages.
    Completions,
    /// Page numbers that go back to their link.
    PagesBack,
    /// Events that the writer is through with.
    Written,
}

/// Which ring: who sends what to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RingKey {
    /// The sender.
    pub from: UnitId,
    /// The receiver.
    pub to: UnitId,
    /// What it sends.
    pub channel: Channel,
}

impl fmt::Display for RingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channel = match self.channel {
            Channel::Messages => "messages",
            Channel::Tickets => "tickets",
            Channel::Packets => "packets",
            Channel::Completions => "completions",
            Channel::PagesBack => "pages_back",
            Channel::Written => "written",
        };
        write!(f, "{}>{}:{channel}", self.from, self.to)
    }
}

/// Which pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolKey {
    /// The pages of a readout unit's data links.
    Readout(u16),
    /// The pages that a builder unit receives payload into, where a network brings it.
    Builder(u16),
    /// The pages that a filter unit receives events into, where a network brings them.
    Filter(u16),
}

impl fmt::Display for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Readout(index) => write!(f, "{}", UnitId::readout(*index)),
            Self::Builder(index) => write!(f, "{}", UnitId::builder(*index)),
            Self::Filter(index) => write!(f, "{}", UnitId::filter(*index)),
        }
    }
}

/// Role id of a unit.
pub fn role_of(unit: UnitId) -> String {
    match unit.kind {
        // The front-ends of all data links, by their index, and the supervisor.
        UnitKind::Source | UnitKind::Supervisor => FRONT_END.to_owned(),
        _ => unit.to_string(),
    }
}

/// A ring that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingPlan {
    /// Which.
    pub key: RingKey,
    /// Its size.
    pub config: RingConfig,
}

/// A pool that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPlan {
    /// Which.
    pub key: PoolKey,
    /// Its size.
    pub config: PoolConfig,
    /// The roles that open it.
    pub roles: Vec<String>,
}

/// Tables that a role makes for itself, which grow with how many triggers or events it is to know of;
/// of front-ends of users, whose data have room when they come, the most that they may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablePlan {
    /// Whose.
    pub role: String,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// A bell that is to be made: of a unit that may sleep until another has something for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BellPlan {
    /// Who sleeps at it.
    pub unit: UnitId,
    /// The roles that ring it.
    pub ringers: Vec<String>,
}

/// Every ring, pool and role of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainPlan {
    /// The rings.
    pub rings: Vec<RingPlan>,
    /// The pools.
    pub pools: Vec<PoolPlan>,
    /// The tables.
    pub tables: Vec<TablePlan>,
    /// The bells.
    pub bells: Vec<BellPlan>,
    /// The pairs of units with sockets between them, where a network carries their messages.
    pub streams: Vec<(UnitId, UnitId)>,
    /// The data links over sockets: the front-end of each, by the link's index, and its readout unit.
    pub data_sockets: Vec<(UnitId, UnitId)>,
    /// Role ids, in the order of the data.
    pub roles: Vec<String>,
}

/// Units of one kind, by their number.
pub fn units(kind: UnitKind, count: usize) -> impl Iterator<Item = UnitId> + Clone {
    (0..count as u16).map(move |index| UnitId { kind, index })
}

/// A trigger link, with pages for its packets.
pub fn packet_link(config: &ChainConfig) -> LinkConfig {
    config_for(&config.trigger_link, config.source.packet_words_max)
}

/// The return link of a trigger node.
pub fn reply_link(config: &ChainConfig) -> LinkConfig {
    config_for(&config.trigger_link, REPLY_WORDS)
}

/// The writers of a chain.
pub fn writers(config: &ChainConfig) -> impl Iterator<Item = UnitId> + Clone + use<> {
    units(UnitKind::Writer, config.builder.writers.max(1).into())
}

/// The decision nodes of a chain.
pub fn trigger_nodes(config: &ChainConfig) -> impl Iterator<Item = UnitId> + Clone + use<> {
    units(UnitKind::Trigger, config.trigger_nodes.into())
}

impl ChainPlan {
    /// The plan of a configuration.
    pub fn new(config: &ChainConfig) -> Self {
        let mut plan = Self {
            rings: Vec::new(),
            pools: Vec::new(),
            tables: tables(config).collect(),
            bells: Vec::new(),
            streams: Vec::new(),
            data_sockets: data_sockets(config).collect(),
            roles: config.role_ids(),
        };
        plan.add_pools(config);
        plan.add_card_rings(config);
        plan.add_message_rings(config);
        plan.add_event_rings(config);
        plan.add_bells();
        plan
    }

    /// The plan of a ring.
    pub fn ring(&self, key: RingKey) -> Option<&RingPlan> {
        self.rings.iter().find(|ring| ring.key == key)
    }

    /// The rings of which a unit has an end.
    pub fn rings_of(&self, unit: UnitId) -> impl Iterator<Item = &RingPlan> {
        self.rings
            .iter()
            .filter(move |ring| ring.key.from == unit || ring.key.to == unit)
    }

    /// The peers to which a unit has a socket.
    pub fn stream_peers(&self, unit: UnitId) -> impl Iterator<Item = UnitId> + '_ {
        self.streams.iter().filter_map(move |(a, b)| match unit {
            unit if unit == *a => Some(*b),
            unit if unit == *b => Some(*a),
            _ => None,
        })
    }

    /// Bytes of the pools, rings and tables of which a role that `is_meant` has a part: what is made
    /// before the first trigger.
    pub fn memory_bytes(&self, is_meant: impl Fn(&str) -> bool) -> u64 {
        let is_pooled = |pool: &&PoolPlan| pool.roles.iter().any(|role| is_meant(role));
        let pools = self.pools.iter().filter(is_pooled);
        let pools = pools.map(|pool| pool_bytes((pool.config.pages, pool.config.page_bytes / 4)));
        let has_end = |ring: &&RingPlan| {
            let mut ends = [ring.key.from, ring.key.to].into_iter();
            ends.any(|unit| is_meant(&role_of(unit)))
        };
        let rings = self.rings.iter().filter(has_end);
        let rings =
            rings.map(|ring| 4 * u64::from(ring.config.slots) * u64::from(ring.config.slot_words));
        let tables = self.tables.iter().filter(|table| is_meant(&table.role));
        let tables = tables.map(|table| table.bytes);
        pools
            .chain(rings)
            .chain(tables)
            .fold(0, u64::saturating_add)
    }

    /// Filter units and the writer sleep between events; all others look for work.
    fn add_bells(&mut self) {
        let sleeps = |unit: &UnitId| matches!(unit.kind, UnitKind::Filter | UnitKind::Writer);
        for unit in self
            .roles
            .iter()
            .filter_map(|id| unit_of(id))
            .filter(sleeps)
        {
            let to_it = self.rings.iter().filter(|ring| ring.key.to == unit);
            let ringers = to_it.map(|ring| role_of(ring.key.from)).collect();
            self.bells.push(BellPlan { unit, ringers });
        }
    }

    fn add_ring(&mut self, from: UnitId, to: UnitId, channel: Channel, slots: u64, words: usize) {
        let slots = ring_slots(slots);
        let key = RingKey { from, to, channel };
        debug_assert!(self.ring(key).is_none(), "{key} is planned twice");
        let slot_words = words as u32;
        let config = RingConfig { slots, slot_words };
        self.rings.push(RingPlan { key, config });
    }

    fn add_pools(&mut self, config: &ChainConfig) {
        let pool = |pages: u32, page_words: u32| PoolConfig {
            pages,
            page_bytes: page_words * 4,
            huge_pages: HugePages::Prefer,
        };
        let mut add = |key: PoolKey, (pages, page_words): (u32, u32)| {
            self.pools.push(PoolPlan {
                key,
                config: pool(pages, page_words),
                roles: roles_of_pool(config, key),
            });
        };
        for ru in units(UnitKind::Readout, config.builder.readout_units.len()) {
            add(PoolKey::Readout(ru.index), readout_pages(config, ru.index));
        }
        for bu in units(UnitKind::Builder, config.builder.builder_units.into()) {
            if config.transport.is_network() {
                add(PoolKey::Builder(bu.index), builder_pages(config));
            }
        }
        for fu in units(UnitKind::Filter, config.builder.filter_units.into()) {
            if config.filter_transport.is_network() {
                add(PoolKey::Filter(fu.index), filter_pages(config, fu.index));
            }
        }
    }

    /// Rings between the cards of the links and their hosts.
    fn add_card_rings(&mut self, config: &ChainConfig) {
        let cards = UnitId::SUPERVISOR;
        let packets = packet_link(config);
        let pages = u64::from(packets.pages);
        for node in trigger_nodes(config) {
            let of_inputs = pages * config.merger.inputs as u64;
            let reply_words = slot_words(&reply_link(config));
            self.add_ring(
                cards,
                node,
                Channel::Packets,
                of_inputs,
                slot_words(&packets),
            );
            self.add_ring(node, cards, Channel::Packets, pages, reply_words);
        }
        let slots = u64::from(CARD_RING_SLOTS);
        let units = units(UnitKind::Readout, config.builder.readout_units.len());
        for ru in units.filter(|ru| has_cards(config, ru.index)) {
            self.add_ring(cards, ru, Channel::Completions, slots, COMPLETION_WORDS);
            self.add_ring(ru, cards, Channel::PagesBack, slots, PAGES_BACK_WORDS);
        }
    }

    /// Rings of messages between supervisor, event manager, readout and builder units.
    fn add_message_rings(&mut self, config: &ChainConfig) {
        let builder = &config.builder;
        let (evm, slots) = (UnitId::EVENT_MANAGER, builder.ring_slots());
        let credits = builder.credits_total();
        let mut connect = |from: UnitId, to: UnitId, slots| {
            if transport_of(config, (from, to)) == &BuilderTransport::Shm {
                self.add_ring(
                    from,
                    to,
                    Channel::Messages,
                    with_room(slots),
                    MESSAGE_WORDS_MAX,
                );
            } else if !self.streams.contains(&(to, from)) {
                self.streams.push((from, to));
            }
        };
        connect(UnitId::SUPERVISOR, evm, builder.evm_queue.into());
        // What is finished, many triggers at a time.
        let closings = (credits + u64::from(builder.evm_queue)).div_ceil(TRIGGERS_MAX as u64);
        connect(evm, UnitId::SUPERVISOR, closings);
        let readout_units = units(UnitKind::Readout, builder.readout_units.len());
        for ru in readout_units.clone() {
            connect(UnitId::SUPERVISOR, ru, builder.trigger_window.into());
            if config.readout_meets_manager() {
                connect(evm, ru, credits);
            }
        }
        for bu in units(UnitKind::Builder, builder.builder_units.into()) {
            connect(evm, bu, builder.assignment_slots());
            connect(bu, evm, credits);
            for ru in readout_units.clone() {
                connect(bu, ru, slots);
                connect(ru, bu, slots);
            }
            for fu in builder.filters_of(bu.index).map(UnitId::filter) {
                connect(fu, bu, credits);
            }
        }
    }

    /// Rings of whole events, from builder units to filter units and writers.
    fn add_event_rings(&mut self, config: &ChainConfig) {
        let builder = &config.builder;
        let ticket_words = EventTicket::words_max(config.data_links.len(), FRAGMENT_PAGES_MAX);
        let per_builder = u64::from(builder.filter_in_flight);
        for bu in units(UnitKind::Builder, builder.builder_units.into()) {
            let filters = builder.filters_of(bu.index).map(UnitId::filter);
            for fu in filters.filter(|_| !config.filter_transport.is_network()) {
                let words = ticket_words + STAMP_WORDS;
                self.add_ring(bu, fu, Channel::Tickets, per_builder, words);
            }
            let writer = BuildingGroup::of(config, bu.index).writer();
            let credits = builder.credits.into();
            self.add_ring(bu, writer, Channel::Tickets, credits, ticket_words);
            self.add_ring(writer, bu, Channel::Written, credits, WRITTEN_WORDS);
        }
    }
}

/// The front-end of a data link.
pub fn front_end_of(link: usize) -> UnitId {
    UnitId {
        kind: UnitKind::Source,
        index: link as u16,
    }
}

/// What a unit knows its socket to another by: the unit at the other end, or the front-end of a data
/// link at both of its ends, since a readout unit has many.
pub fn name_of_socket(unit: UnitId, peer: UnitId) -> UnitId {
    match unit.kind {
        UnitKind::Source => unit,
        _ => peer,
    }
}

/// The data links over sockets, as [`ChainPlan::data_sockets`].
fn data_sockets(config: &ChainConfig) -> impl Iterator<Item = (UnitId, UnitId)> + '_ {
    let links = config.data_links.iter().enumerate();
    let over_sockets = links.filter(|(_, link)| link.transport.socket().is_some());
    over_sockets.map(|(index, link)| (front_end_of(index), UnitId::readout(link.unit)))
}

/// Whether pages of a readout unit are filled in the front-end's role, as by a card beside it.
pub fn has_cards(config: &ChainConfig, unit: u16) -> bool {
    let mut of_unit = config.data_links.iter().filter(|link| link.unit == unit);
    of_unit.any(|link| link.transport.socket().is_none())
}

/// What is between two units.
pub fn transport_of(config: &ChainConfig, (a, b): (UnitId, UnitId)) -> &BuilderTransport {
    use UnitKind::{Builder, EventManager, Filter, Readout, Source, Supervisor};
    match (a.kind, b.kind) {
        (Source, Readout) | (Readout, Source) => {
            let link = if a.kind == Source { a.index } else { b.index };
            let link = config.data_links.get(usize::from(link));
            link.and_then(|link| link.transport.socket())
                .unwrap_or(&BuilderTransport::Shm)
        }
        (Filter, Builder) | (Builder, Filter) => &config.filter_transport,
        (Supervisor, EventManager) | (EventManager, Supervisor) if config.event_manager_apart => {
            match config.transport {
                BuilderTransport::Tcp { .. } => &config.transport,
                // The supervisor says each accept once: no datagram may lose it.
                _ => &BuilderTransport::Tcp { congestion: None },
            }
        }
        (Supervisor, Readout) if config.readout_apart.contains(&b.index) => {
            // As with accepts: each decision is said once.
            &BuilderTransport::Tcp { congestion: None }
        }
        (Readout, Supervisor) => transport_of(config, (b, a)),
        (Readout | EventManager | Builder, Readout | EventManager | Builder) => &config.transport,
        _ => &BuilderTransport::Shm,
    }
}

/// The roles that open a pool.
fn roles_of_pool(config: &ChainConfig, key: PoolKey) -> Vec<String> {
    let is_network = config.transport.is_network();
    match key {
        PoolKey::Readout(index) => {
            let mut roles = vec![UnitId::readout(index).to_string()];
            if has_cards(config, index) {
                roles.insert(0, FRONT_END.to_owned());
            }
            if !is_network {
                let groups = writers(config).map(|writer| BuildingGroup::of(config, writer.index));
                roles.extend(groups.flat_map(|group| readers_of_events(config, group)));
            }
            roles
        }
        PoolKey::Builder(index) => {
            let mut roles = vec![UnitId::builder(index).to_string()];
            let group = BuildingGroup::of(config, index);
            let readers = readers_of_events(config, group).into_iter();
            roles.extend(readers.filter(|role| !role.starts_with(UnitKind::Builder.prefix())));
            roles
        }
        PoolKey::Filter(index) => vec![UnitId::filter(index).to_string()],
    }
}

/// The pool that most roles open, and those roles. Without a plan, which takes its time for each pair
/// of thousands of units.
pub(crate) fn fullest_pool(config: &ChainConfig) -> Option<(PoolKey, Vec<String>)> {
    // All readout units have the same readers, and all builder units of a group. A filter unit's pool is
    // its own.
    let mut readout = 0..config.builder.readout_units.len() as u16;
    let with_cards = readout.clone().find(|unit| has_cards(config, *unit));
    let readout = with_cards.or(readout.next()).map(PoolKey::Readout);
    let groups = match config.transport.is_network() {
        true => config.builder.writers.max(1),
        false => 0,
    };
    let builders = 0..groups.min(config.builder.builder_units);
    let keys = readout.into_iter().chain(builders.map(PoolKey::Builder));
    keys.map(|key| (key, roles_of_pool(config, key)))
        .max_by_key(|(_, roles)| roles.len())
}

/// Roles of a group that read built events where its builder units have them: the writer and the
/// filter units, or in place of those the builder units themselves, which send the events on.
fn readers_of_events(config: &ChainConfig, group: BuildingGroup) -> Vec<String> {
    let kind = match config.filter_transport.is_network() {
        true => (UnitKind::Builder, config.builder.builder_units),
        false => (UnitKind::Filter, config.builder.filter_units),
    };
    let readers = std::iter::once(group.writer()).chain(group.units(kind.0, kind.1));
    readers.map(|unit| unit.to_string()).collect()
}

/// Bytes of all pages and tables of a run, and of the rings that hold the trigger windows and the pages
/// of the trigger links, on whatever host they are: most of what [`ChainPlan::memory_bytes`] says of all
/// roles, and never more. Other than the plan it takes no time for each pair of thousands of units.
pub fn memory_bytes_least(config: &ChainConfig) -> u64 {
    let window = with_room(config.builder.trigger_window.into());
    let of_window = 4 * u64::from(ring_slots(window)) * MESSAGE_WORDS_MAX as u64;
    let here = (0..config.builder.readout_units.len() as u16)
        .filter(|unit| !config.readout_apart.contains(unit));
    let windows = of_window.saturating_mul(here.count() as u64);
    let tables = tables(config).map(|table| table.bytes);
    tables.fold(
        windows.saturating_add(pages_bytes(config)),
        u64::saturating_add,
    )
}

/// Bytes of the rings of the trigger links, whose slots are the pages of packets and replies.
fn trigger_rings_bytes(config: &ChainConfig) -> u64 {
    let (packets, replies) = (packet_link(config), reply_link(config));
    let pages = u64::from(packets.pages);
    let of_ring = |slots: u64, link: &LinkConfig| {
        let words = u64::from(ring_slots(slots)).saturating_mul(slot_words(link) as u64);
        words.saturating_mul(4)
    };
    let of_inputs = pages.saturating_mul(config.merger.inputs as u64);
    let of_node = of_ring(of_inputs, &packets).saturating_add(of_ring(pages, &replies));
    of_node.saturating_mul(config.trigger_nodes.into())
}

/// The tables of all roles.
fn tables(config: &ChainConfig) -> impl Iterator<Item = TablePlan> + '_ {
    let builder = &config.builder;
    let plan = |unit: UnitId, bytes| TablePlan {
        role: role_of(unit),
        bytes,
    };
    let buffer = FragmentBufferConfig {
        triggers_max: builder.trigger_window,
    };
    let readout = units(UnitKind::Readout, builder.readout_units.len()).map(move |ru| {
        let sources = builder.readout_units[usize::from(ru.index)].len();
        let of_unit = readout_unit_bytes(builder, ru.index);
        plan(ru, buffer.memory_bytes(sources).saturating_add(of_unit))
    });
    let manager = plan(UnitId::EVENT_MANAGER, event_manager_bytes(builder));
    let of_builder = builder_unit_bytes(builder);
    let builders = units(UnitKind::Builder, builder.builder_units.into());
    let of_writer = config.store.memory_bytes();
    let front_ends = config
        .front_ends
        .as_ref()
        .map(|server| plan(UnitId::SUPERVISOR, window_bytes(config, server)));
    readout
        .chain(front_ends)
        .chain(std::iter::once(manager))
        .chain(builders.map(move |bu| plan(bu, of_builder)))
        .chain(writers(config).map(move |writer| plan(writer, of_writer)))
}

/// Bytes of the open triggers of front-ends of users, each with the longest data of every source.
fn window_bytes(config: &ChainConfig, server: &FrontEndServerConfig) -> u64 {
    let sources = config.detector_sources().len() as u64;
    let data = config.source.fragment.bytes_max.0;
    server.events.memory_bytes(sources, data)
}

/// Bytes of all pages of a run, those of trigger links included, on whatever host they are.
pub fn pages_bytes(config: &ChainConfig) -> u64 {
    let builder = &config.builder;
    let readout = units(UnitKind::Readout, builder.readout_units.len());
    let readout = readout.map(|ru| pool_bytes(readout_pages(config, ru.index)));
    let of_builder = match config.transport.is_network() {
        true => pool_bytes(builder_pages(config)),
        false => 0,
    };
    let with_pages = match config.filter_transport.is_network() {
        true => builder.filter_units,
        false => 0,
    };
    let filter = (0..with_pages).map(|index| pool_bytes(filter_pages(config, index)));
    let builders = of_builder.saturating_mul(builder.builder_units.into());
    let of_trigger = std::iter::once(trigger_rings_bytes(config));
    let all = readout.chain(filter).chain(of_trigger);
    all.fold(builders, u64::saturating_add)
}

/// Bytes of so many pages of so many words.
fn pool_bytes((pages, page_words): (u32, u32)) -> u64 {
    4 * u64::from(pages) * u64::from(page_words)
}

/// Number and words of the pages of a readout unit's links.
fn readout_pages(config: &ChainConfig, unit: u16) -> (u32, u32) {
    let links = || config.data_links.iter().filter(|link| link.unit == unit);
    let pages = links().map(|link| link.link.pages).sum();
    let page_words = links().map(|link| link.link.page_words).max();
    (pages, page_words.unwrap_or(16))
}

/// The same of those into which a network brings a builder unit its fragments.
fn builder_pages(config: &ChainConfig) -> (u32, u32) {
    let streams = config.builder.readout_units.len();
    match config.transport.is_udp() {
        false => receive_pages(config, config.builder.credits.into(), streams),
        true => datagram_pages(config),
    }
}

/// The same of those into which a network brings a filter unit its events.
fn filter_pages(config: &ChainConfig, unit: u16) -> (u32, u32) {
    let builders = config.builder.builders_of(unit).count();
    let events = builders as u64 * u64::from(config.builder.filter_in_flight);
    receive_pages(config, events, builders)
}

/// Number and words of the pages in which a unit receives payload: for all events that it may hold,
/// each fragment of the most pages, and those that its streams set aside for what comes twice.
fn receive_pages(config: &ChainConfig, events: u64, streams: usize) -> (u32, u32) {
    let set_aside = STREAM_PAGES_MAX * streams;
    let pages = events * pages_of_event(config) + set_aside as u64;
    (u32::try_from(pages).unwrap_or(u32::MAX), page_words(config))
}

/// The same of a builder unit that receives datagrams: beside its events, the pages of a batch, and
/// of fragments of each readout unit that are not whole.
fn datagram_pages(config: &ChainConfig) -> (u32, u32) {
    let fragments = config
        .data_links
        .iter()
        .map(|link| fragment_pages(config, link));
    let partial = fragments.max().unwrap_or(1) * PARTIAL_FRAGMENTS_MAX as u64;
    let partial = partial * config.builder.readout_units.len() as u64;
    let events = u64::from(config.builder.credits);
    let pages = events * pages_of_event(config) + partial + BATCH as u64;
    (u32::try_from(pages).unwrap_or(u32::MAX), page_words(config))
}

/// Words of a page that holds payload of any link: never 0, also where a check of the configuration has
/// not refused that yet.
fn page_words(config: &ChainConfig) -> u32 {
    let links = config.data_links.iter().map(|link| &link.link);
    links.map(|link| link.page_words).max().unwrap_or(16).max(1)
}

/// Pages of the largest fragment of a link.
pub(crate) fn fragment_pages(config: &ChainConfig, link: &DataLinkConfig) -> u64 {
    pages_of_words(link, page_words(config))
}

fn pages_of_words(link: &DataLinkConfig, page_words: u32) -> u64 {
    let words = u64::from(link.link.fragment_words_max) + OVERHEAD_WORDS as u64;
    words.div_ceil(page_words.into())
}

fn pages_of_event(config: &ChainConfig) -> u64 {
    // Looked for once: with thousands of links and units it would take seconds.
    let page_words = page_words(config);
    let links = config.data_links.iter();
    links.map(|link| pages_of_words(link, page_words)).sum()
}

/// Bytes asked for each buffer of a socket for datagrams: what is configured, or so many that it holds
/// what a readout unit sends for all credits of a builder unit, each fragment of the largest size.
pub fn receive_buffer_bytes(config: &ChainConfig) -> usize {
    const BYTES_MIN: u64 = 256 << 10;
    const BYTES_MAX: u64 = 256 << 20;
    let bytes = match config.transport {
        BuilderTransport::Udp {
            receive_buffer_bytes: bytes @ 1..,
        } => bytes,
        _ => {
            let of_event = datagram_bytes(config, |link| fragment_pages(config, link));
            (of_event * u64::from(config.builder.credits)).clamp(BYTES_MIN, BYTES_MAX)
        }
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Bytes that a receive buffer needs for what a readout unit sends at once: all of its fragments of
/// one event, of the largest size that the source makes.
pub fn event_buffer_bytes(config: &ChainConfig) -> u64 {
    let words = config.source.fragment.bytes_max.0.div_ceil(4) + OVERHEAD_WORDS as u64;
    let pages = words.div_ceil(page_words(config).into());
    datagram_bytes(config, |_| pages)
}

/// Bytes of the datagrams with one fragment of each link of the readout unit that has the most, by
/// the pages of a fragment.
fn datagram_bytes(config: &ChainConfig, pages_of: impl Fn(&DataLinkConfig) -> u64) -> u64 {
    /// What the kernel needs for a datagram beside its bytes. It rounds a datagram up to a power of
    /// two, and doubles what it is asked for.
    const OVERHEAD_BYTES: u64 = 1024;
    let of_page = u64::from(page_words(config)) * 4 + PAYLOAD_AT as u64 * 4 + OVERHEAD_BYTES;
    let of_unit = |unit: u16| -> u64 {
        let links = config.data_links.iter().filter(|link| link.unit == unit);
        links.map(&pages_of).fold(0, u64::saturating_add)
    };
    let units = 0..config.builder.readout_units.len() as u16;
    let pages = units.map(of_unit).max().unwrap_or(1);
    pages.saturating_mul(of_page)
}

/// Slots of a ring that is to have so many.
fn ring_slots(slots: u64) -> u32 {
    let slots = u32::try_from(slots).unwrap_or(u32::MAX / 2);
    slots.next_power_of_two().max(16)
}

/// Slots of which so many are free for the sender, whatever a reader that stands still has read: it
/// gives slots back by quarters of the ring (`tail_batch` in `livetime-shm`), so that almost one of them
/// may stay with it. In the largest of all rings they are the sender's only as the reader reads: with
/// millions of messages in it whoever waits for room waits for a unit that has stood still for long.
fn with_room(slots: u64) -> u64 {
    (4 * slots.div_ceil(3)).min(MAX_SLOTS.into())
}
