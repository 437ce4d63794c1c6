//! A role made from its opened ends: rings, pages, counters.
//!
//! The same lines make a role among others in one process and a role that has a process for
//! itself; what differs is who opened the ends. Which ends there are is in [`crate::chain_plan`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use livetime_builder::{BuilderUnit, EventManager, PeerEpochs, ReadoutUnit};
use livetime_readout::{AssemblerConfig, FragmentAssembler, FragmentBuffer, FragmentBufferConfig};
use livetime_shm::{Consumer, Doorbell, PagePool, Producer};
use livetime_source::{
    EventGenerator, FragmentWriter, PacketEncoder, PhysicsGenerator, TriggerSource,
};
use livetime_trigger::{FirstStep, LevelTwo, LevelTwoNode, PacketMerger, TriggerSupervisor};
use livetime_wire::{RunNs, SourceId, TriggerNumber, UnitId, UnitKind};

use crate::builder_transport::{BuilderTransport, PeerSocket};
use crate::building_group::BuildingGroup;
use crate::chain_config::{ChainConfig, DataLinkConfig, FilterConfig};
use crate::chain_plan::{
    Channel, FRONT_END, PoolKey, RingKey, front_end_of, has_cards, packet_link, reply_link,
    transport_of, trigger_nodes, units,
};
use crate::counter_block::CounterBlock;
use crate::event_fault::{EventFault, FaultyFilter};
use crate::link::{FragmentLink, LinkReceiver, LinkSender, LinkTransport, run_of_frames};
use crate::message_ring::{Inbox, MessageSender, Outbox};
use crate::packet_link::PacketLink;
use crate::packet_log::PacketLog;
use crate::pooled_page::LinkPages;
use crate::python_filter::BatchFilter;
use crate::python_filter::batch_filter::BatchBounds;
use crate::python_filter::interpreter::Surroundings;
use crate::role::Role;
use crate::role::builder::{Builder, BuilderParts};
use crate::role::event_manager::{EventManagerParts, EventManagerRole, ManagerClosings};
use crate::role::filter::{FilterUnit, FilterUnitParts, UnitFilter};
use crate::role::front_end::{
    CardRings, DataLink, FrontEnd, FrontEndParts, ReadoutRings, TriggerPath, TriggerRings,
};
use crate::role::manager_barrier::ManagerBarrier;
use crate::role::manager_path::ManagerPath;
use crate::role::manager_succession::ManagerSuccession;
use crate::role::readout::{CardEnds, Readout, ReadoutParts, SocketLink};
use crate::role::spill_gate::SpillGate;
use crate::role::trigger::{TriggerNode, TriggerNodeParts};
use crate::role::writer::{Writer, WriterParts};
use crate::run_clock::RunClock;
use crate::run_file::RunFile;
use crate::transport::{
    EventReceiver, EventSender, FragmentShaper, NetworkLink, ReceivePages, TcpFrameLink,
};
use crate::unit_network::network_link;

/// Epoch of a unit that was not lost yet.
pub const FIRST_EPOCH: u32 = 1;

/// What a role needs and does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{role} has no {end}")]
pub struct MissingEnd {
    /// The role.
    pub role: String,
    /// The ring, pool or counters that it was not given.
    pub end: String,
}

/// The opened ends of one role.
pub struct RoleEnds {
    /// Role id.
    pub id: String,
    /// Rings that it writes.
    pub producers: BTreeMap<RingKey, Producer>,
    /// Rings that it reads.
    pub consumers: BTreeMap<RingKey, Consumer>,
    /// Pools of pages.
    pub pools: BTreeMap<PoolKey, PagePool>,
    /// Sockets to other units, by unit.
    pub sockets: BTreeMap<UnitId, PeerSocket>,
    /// Sockets of data links, by the front-end of each.
    pub data_sockets: BTreeMap<UnitId, PeerSocket>,
    /// Where it publishes its counters.
    pub block: Arc<CounterBlock>,
    /// What hand-overs are timed with, by both of their ends.
    pub clock: RunClock,
    /// Bells of other units that sleep until it has something for them; one on the same worker
    /// needs none.
    pub bells: BTreeMap<UnitId, Doorbell>,
    /// Where it sleeps itself, if others are to wake it.
    pub own_bell: Option<Doorbell>,
    /// Its epoch.
    pub epoch: u32,
    /// Epochs of units that are not in their first.
    pub epochs: BTreeMap<UnitId, u32>,
    /// Filter units, readout units and builder units that are not there.
    pub absent: BTreeSet<UnitId>,
    /// Readout units that took the place of others, and the last triggers that were given before they
    /// joined.
    pub joined: BTreeMap<UnitId, TriggerNumber>,
    /// Whether another event manager may take the place of one that dies: then the supervisor
    /// remembers accepts until they are finished.
    pub remembers_accepts: bool,
    /// Whether the time of the run goes on while its roles are started: then it is without triggers until
    /// all of them are there.
    pub starts_late: bool,
    /// Events that a filter is not to survive.
    pub event_faults: Vec<EventFault>,
}

type Made = Result<Box<dyn Role>, MissingEnd>;

impl RoleEnds {
    /// The ends of a role without rings and pools.
    pub fn new(id: &str, block: Arc<CounterBlock>, clock: RunClock) -> Self {
        Self {
            id: id.to_owned(),
            producers: BTreeMap::new(),
            consumers: BTreeMap::new(),
            pools: BTreeMap::new(),
            sockets: BTreeMap::new(),
            data_sockets: BTreeMap::new(),
            block,
            clock,
            bells: BTreeMap::new(),
            own_bell: None,
            epoch: FIRST_EPOCH,
            epochs: BTreeMap::new(),
            absent: BTreeSet::new(),
            joined: BTreeMap::new(),
            remembers_accepts: false,
            starts_late: false,
            event_faults: Vec::new(),
        }
    }

    /// Makes the role; `file` is for the writer alone.
    ///
    /// # Errors
    /// [`MissingEnd`] when an end is not there, or the role itself is unknown.
    pub fn into_role(self, config: &ChainConfig, file: Option<RunFile>) -> Made {
        let id = self.id.clone();
        let unit = unit_of(&id).ok_or_else(|| self.missing("place in this chain"))?;
        match unit.kind {
            UnitKind::Source => self.front_end(config),
            UnitKind::Trigger => self.trigger_node(config, unit),
            UnitKind::Readout => self.readout(config, unit),
            UnitKind::EventManager => self.event_manager(config),
            UnitKind::Builder => self.builder(config, unit),
            UnitKind::Filter => self.filter(config, unit),
            UnitKind::Writer => {
                let file = file.ok_or_else(|| self.missing("run file"))?;
                self.writer(config, BuildingGroup::of(config, unit.index), file)
            }
            UnitKind::Supervisor => Err(self.missing("place of its own")),
        }
    }

    /// Takes a socket that is known by the unit at its other end, or by the front-end of its data link.
    pub(crate) fn put_socket(&mut self, name: UnitId, socket: PeerSocket) {
        match name.kind {
            UnitKind::Source => self.data_sockets.insert(name, socket),
            _ => self.sockets.insert(name, socket),
        };
    }

    fn missing(&self, end: impl ToString) -> MissingEnd {
        MissingEnd {
            role: self.id.clone(),
            end: end.to_string(),
        }
    }

    fn sender(
        &mut self,
        from: UnitId,
        to: UnitId,
        channel: Channel,
    ) -> Result<Producer, MissingEnd> {
        let key = RingKey { from, to, channel };
        let found = self.producers.remove(&key);
        found.ok_or_else(|| self.missing(key))
    }

    fn receiver(
        &mut self,
        from: UnitId,
        to: UnitId,
        channel: Channel,
    ) -> Result<Consumer, MissingEnd> {
        let key = RingKey { from, to, channel };
        let found = self.consumers.remove(&key);
        found.ok_or_else(|| self.missing(key))
    }

    fn pool(&self, key: PoolKey) -> Result<PagePool, MissingEnd> {
        let found = self.pools.get(&key).cloned();
        found.ok_or_else(|| self.missing(format!("pool {key}")))
    }

    /// The bells of some units, in their order.
    fn bells_of(&self, units: impl Iterator<Item = UnitId>) -> Vec<Option<Doorbell>> {
        units.map(|unit| self.bells.get(&unit).cloned()).collect()
    }

    fn readout_pools(&self, config: &ChainConfig) -> Result<Vec<PagePool>, MissingEnd> {
        readout_units(config)
            .map(|ru| self.pool(PoolKey::Readout(ru.index)))
            .collect()
    }

    /// The pools in which a filter unit finds events.
    fn filter_pools(
        &self,
        config: &ChainConfig,
        unit: UnitId,
    ) -> Result<Vec<PagePool>, MissingEnd> {
        match config.filter_transport.is_network() {
            false => self.event_pools(config, BuildingGroup::of(config, unit.index)),
            true => Ok(vec![self.pool(PoolKey::Filter(unit.index))?]),
        }
    }

    /// The pools in which the builder units of a group have built events, by their places in it, or
    /// those of the readout units.
    fn event_pools(
        &self,
        config: &ChainConfig,
        group: BuildingGroup,
    ) -> Result<Vec<PagePool>, MissingEnd> {
        if !config.transport.is_network() {
            return self.readout_pools(config);
        }
        group
            .builders(config)
            .map(|bu| self.pool(PoolKey::Builder(bu.index)))
            .collect()
    }

    /// A builder unit's streams to its filter units, where a network is between them.
    fn event_sender(
        &mut self,
        config: &ChainConfig,
        unit: UnitId,
    ) -> Result<Option<EventSender>, MissingEnd> {
        if !config.filter_transport.is_network() {
            return Ok(None);
        }
        let pools = match config.transport.is_network() {
            true => vec![self.pool(PoolKey::Builder(unit.index))?],
            false => self.readout_pools(config)?,
        };
        let builder = &config.builder;
        let served = builder.filters_of(unit.index);
        let window = builder.filter_in_flight as usize;
        let sizes = (builder.filter_units.into(), served.clone().count(), window);
        let sources = config.data_links.len();
        let mut sender = EventSender::new(unit, self.epoch, pools, sizes, sources);
        for filter in served.map(UnitId::filter) {
            let Some(stream) = self.take_stream(filter) else {
                continue;
            };
            // Nobody is at the other end of the stream to one that is not there.
            if self.absent.contains(&filter) {
                continue;
            }
            if let Err(error) = sender.add(filter, stream) {
                return Err(self.missing(format!("stream to {filter}: {error}")));
            }
        }
        Ok(Some(sender))
    }

    /// The streams of a filter unit from its builder units, where a network is between them: what
    /// makes events of their messages, and the link that the messages come over.
    fn event_receiver(
        &mut self,
        config: &ChainConfig,
        unit: UnitId,
    ) -> Result<Option<(EventReceiver, TcpFrameLink)>, MissingEnd> {
        if !config.filter_transport.is_network() {
            return Ok(None);
        }
        // Its own pool is its first and only one.
        let pages = ReceivePages::new(self.pool(PoolKey::Filter(unit.index))?, 0);
        let mut link = TcpFrameLink::new(None, Some(pages)).ending_with_damage();
        for (peer, socket) in std::mem::take(&mut self.sockets) {
            let Some(stream) = socket.into_stream() else {
                continue;
            };
            if let Some(bell) = &self.own_bell
                && let Err(error) = bell.watch(&stream)
            {
                return Err(self.missing(format!("bell at the stream to {peer}: {error}")));
            }
            if let Err(error) = link.add(peer, stream, None) {
                return Err(self.missing(format!("stream to {peer}: {error}")));
            }
        }
        let builder = &config.builder;
        let window = builder.filter_in_flight as usize;
        let sources = config.data_links.iter().map(|link| link.source).collect();
        let receiver = EventReceiver::new(builder.builder_units.into(), window, sources);
        Ok(Some((receiver, link)))
    }

    /// The sockets of a unit to its peers, where a network carries their messages.
    fn network(
        &mut self,
        config: &ChainConfig,
        sent_from: Option<PagePool>,
        pages: Option<ReceivePages>,
    ) -> Result<Option<NetworkLink>, MissingEnd> {
        let Some(mut link) = network_link(config, sent_from, pages) else {
            return Ok(None);
        };
        for (peer, socket) in std::mem::take(&mut self.sockets) {
            let kind = socket.kind();
            if let Err(error) = link.add(peer, socket) {
                return Err(self.missing(format!("{kind} to {peer}: {error}")));
            }
        }
        Ok(Some(link))
    }

    fn inboxes(
        &mut self,
        to: UnitId,
        from: impl Iterator<Item = UnitId>,
    ) -> Result<Vec<Inbox>, MissingEnd> {
        from.map(|from| {
            Ok(Inbox::new(
                from,
                self.receiver(from, to, Channel::Messages)?,
            ))
        })
        .collect()
    }

    fn outbox(
        &mut self,
        from: UnitId,
        to: impl Iterator<Item = UnitId>,
    ) -> Result<Outbox, MissingEnd> {
        let routes = to.map(|to| Ok((to, self.sender(from, to, Channel::Messages)?)));
        Ok(Outbox::new(routes.collect::<Result<_, MissingEnd>>()?))
    }

    fn front_end(mut self, config: &ChainConfig) -> Made {
        let mut rings = Vec::new();
        for ru in readout_units(config) {
            let is_carded = has_cards(config, ru.index);
            let of_cards = is_carded.then(|| self.card_rings(ru)).transpose()?;
            let is_apart = config.readout_apart.contains(&ru.index);
            rings.push(ReadoutRings {
                cards: of_cards,
                decisions: self.sender_of_decisions(ru, is_apart)?,
                sequence: 0,
                is_lost: false,
            });
        }
        let nodes = trigger_nodes(config).map(|node| self.trigger_path(config, node));
        let trigger = nodes.collect::<Result<_, MissingEnd>>()?;
        let (run, source) = (config.run, &config.source);
        let front_ends = config.front_end_server().transpose();
        Ok(Box::new(FrontEnd::new(FrontEndParts {
            run,
            source: TriggerSource::new(&source.triggers, source.seed),
            generator: generator(config),
            front_ends: front_ends.map_err(|error| self.missing(error))?,
            encoder: PacketEncoder::new(source.packet_words_max),
            writer: FragmentWriter::new(
                &source.fragment,
                source.seed,
                run,
                &config.detector_sources(),
            ),
            spill: config.spill.as_ref().and_then(SpillGate::new),
            supervisor: TriggerSupervisor::new(config.supervisor, RunNs(0)),
            trigger,
            data_links: self.data_links(config)?,
            in_step: config.is_replayed(),
            starts_paused: source.triggers.starts_paused,
            starts_late: self.starts_late && !config.is_aligned(),
            readout_units: rings,
            event_manager: self.manager_path(config)?,
            faults: config.faults.clone(),
            id: self.id,
            block: self.block,
            epoch: self.epoch,
        })))
    }

    /// The supervisor's way to the event manager.
    fn manager_path(&mut self, config: &ChainConfig) -> Result<ManagerPath, MissingEnd> {
        let (evm, is_apart) = (UnitId::EVENT_MANAGER, config.event_manager_apart);
        let path = ManagerPath::new(self.sender_of_decisions(evm, is_apart)?, self.epoch);
        if !self.remembers_accepts {
            return Ok(path);
        }
        let closings = (!is_apart)
            .then(|| self.receiver(evm, UnitId::SUPERVISOR, Channel::Messages))
            .transpose()?;
        let closings = closings.map(|ring| Inbox::new(evm, ring));
        Ok(path.with_log(&config.builder, closings))
    }

    /// The rings of the links of a readout unit whose pages are filled by the front-end.
    fn card_rings(&mut self, unit: UnitId) -> Result<CardRings, MissingEnd> {
        let cards = UnitId::SUPERVISOR;
        Ok(CardRings {
            completions: self.sender(cards, unit, Channel::Completions)?,
            pages_back: self.receiver(unit, cards, Channel::PagesBack)?,
        })
    }

    /// The supervisor's way to the event manager or a readout unit.
    fn sender_of_decisions(
        &mut self,
        to: UnitId,
        is_apart: bool,
    ) -> Result<MessageSender, MissingEnd> {
        let from = UnitId::SUPERVISOR;
        if !is_apart {
            return Ok(MessageSender::Ring(self.sender(
                from,
                to,
                Channel::Messages,
            )?));
        }
        let link = Box::new(self.stream_to(to)?);
        Ok(MessageSender::Stream { to, link })
    }

    /// The stream to a unit, if there is one.
    fn take_stream(&mut self, peer: UnitId) -> Option<TcpStream> {
        self.sockets.remove(&peer)?.into_stream()
    }

    /// The stream to a unit, alone in its link.
    fn stream_to(&mut self, peer: UnitId) -> Result<TcpFrameLink, MissingEnd> {
        let stream = self.take_stream(peer);
        let stream = stream.ok_or_else(|| self.missing(format!("stream to {peer}")))?;
        let mut link = TcpFrameLink::new(None, None);
        // Its congestion control was set by who made it.
        match link.add(peer, stream, None) {
            Ok(_) => Ok(link),
            Err(error) => Err(self.missing(format!("stream to {peer}: {error}"))),
        }
    }

    /// The links and rings between the front-end and a trigger node.
    fn trigger_path(
        &mut self,
        config: &ChainConfig,
        node: UnitId,
    ) -> Result<TriggerPath, MissingEnd> {
        let cards = UnitId::SUPERVISOR;
        let inputs = 0..config.merger.inputs;
        let links = inputs.map(|_| PacketLink::for_packets(packet_link(config)));
        Ok(TriggerPath {
            links: links.collect(),
            rings: TriggerRings {
                packets: self.sender(cards, node, Channel::Packets)?,
                replies: self.receiver(node, cards, Channel::Packets)?,
            },
        })
    }

    fn data_links(&mut self, config: &ChainConfig) -> Result<Vec<DataLink>, MissingEnd> {
        let units = config.builder.readout_units.len();
        let (mut next_page, mut next_index) = (vec![0; units], vec![0; units]);
        let links = config.data_links.iter().enumerate().map(|(index, link)| {
            let unit = usize::from(link.unit);
            let (first_page, index_at_unit) = (next_page[unit], next_index[unit]);
            next_page[unit] += link.link.pages;
            next_index[unit] += 1;
            Ok(DataLink {
                link: self.fragment_link(index, link, first_page)?,
                unit,
                index_at_unit,
                source: link.source,
                has_ended: false,
                joined_after: TriggerNumber(0),
            })
        });
        links.collect()
    }

    /// The front-end's part of a data link.
    fn fragment_link(
        &mut self,
        index: usize,
        link: &DataLinkConfig,
        first_page: u32,
    ) -> Result<FragmentLink, MissingEnd> {
        let source = link.source;
        let failed = |ends: &Self, error: io::Error| {
            ends.missing(format!("link to source {source}: {error}"))
        };
        let receiver = link.link.clone();
        match &link.transport {
            LinkTransport::Emulated => {
                let pool = self.pool(PoolKey::Readout(link.unit))?;
                Ok(FragmentLink::emulated(receiver, pool, first_page))
            }
            LinkTransport::File { path } => {
                let pool = self.pool(PoolKey::Readout(link.unit))?;
                FragmentLink::play(path, receiver, pool, first_page)
                    .map_err(|error| failed(self, error))
            }
            transport @ (LinkTransport::Udp { .. } | LinkTransport::Tcp) => {
                let socket = self.data_socket(index, source)?;
                let words_max = receiver.fragment_words_max as usize;
                LinkSender::new(socket, words_max, transport.datagram_words())
                    .map(FragmentLink::over_socket)
                    .map_err(|error| failed(self, error))
            }
        }
    }

    /// The socket of a data link.
    fn data_socket(&mut self, index: usize, source: SourceId) -> Result<PeerSocket, MissingEnd> {
        let found = self.data_sockets.remove(&front_end_of(index));
        found.ok_or_else(|| self.missing(format!("socket of the link to source {source}")))
    }

    /// The links over sockets that end at a readout unit; each fills its part of the pool.
    fn socket_links(
        &mut self,
        config: &ChainConfig,
        unit: u16,
        first_pages: &[u32],
    ) -> Result<Vec<SocketLink>, MissingEnd> {
        let pool = self.pool(PoolKey::Readout(unit))?;
        let links = config.data_links.iter().enumerate();
        let of_unit = links.filter(|(_, link)| link.unit == unit);
        let mut opened = Vec::new();
        for (at_unit, (index, link)) in of_unit.enumerate() {
            let transport = &link.transport;
            if transport.socket().is_none() {
                continue;
            }
            let socket = self.data_socket(index, link.source)?;
            let (receiver, first_page) = (link.link.clone(), first_pages[at_unit]);
            if self.epoch != FIRST_EPOCH {
                // What was in them is gone with the unit before.
                let pages = first_page..first_page + receiver.pages;
                if !LinkPages::new(pool.clone()).free_range(pages) {
                    return Err(self.missing("free pages: somebody reads those of its former life"));
                }
            }
            let end = LinkReceiver::open(socket, transport, receiver, pool.clone(), first_page);
            opened.push(SocketLink {
                index: at_unit as u16,
                front_end: front_end_of(index),
                receiver: end.map_err(|error| {
                    self.missing(format!("link from source {}: {error}", link.source))
                })?,
            });
        }
        Ok(opened)
    }

    fn trigger_node(mut self, config: &ChainConfig, node: UnitId) -> Made {
        let cards = UnitId::SUPERVISOR;
        let merger = (config.merger.inputs > 1)
            .then(|| PacketMerger::new_checked(config.merger, "trigger"))
            .transpose()
            .map_err(|_| self.missing("merger with these inputs"))?;
        let packet_log = (config.packets.as_ref())
            .map(|log| {
                PacketLog::start(log, config.run, node.index, config.source.packet_words_max)
            })
            .transpose()
            .map_err(|reason| self.missing(format!("packet file: {reason}")))?;
        Ok(Box::new(TriggerNode::new(TriggerNodeParts {
            packet_log,
            node: LevelTwoNode::new(LevelTwo::new(&config.menu), config.run),
            merger,
            packets: self.receiver(cards, node, Channel::Packets)?,
            return_link: PacketLink::for_packets(reply_link(config)),
            replies: self.sender(node, cards, Channel::Packets)?,
            id: self.id,
            block: self.block,
        })))
    }

    fn readout(mut self, config: &ChainConfig, unit: UnitId) -> Made {
        let index = unit.index;
        let mut first_pages = vec![0];
        let mut assemblers = Vec::new();
        for link in config.data_links.iter().filter(|link| link.unit == index) {
            first_pages.push(first_pages[first_pages.len() - 1] + link.link.pages);
            // Recorded fragments are of the run in which they were recorded.
            let run = match &link.transport {
                LinkTransport::File { path } => run_of_frames(path, link.source)
                    .map_err(|error| self.missing(format!("{}: {error}", path.display())))?,
                _ => config.run,
            };
            assemblers.push(FragmentAssembler::new(AssemblerConfig {
                run,
                pool: index,
                page_words: link.link.page_words,
                sources: vec![link.source],
                crc: link.link.crc,
            }));
        }
        let is_network = config.transport.is_network();
        let pool = self.pool(PoolKey::Readout(index))?;
        let manager = UnitId::EVENT_MANAGER;
        let peers = builder_units(config).chain(config.readout_meets_manager().then_some(manager));
        let is_apart = config.readout_apart.contains(&index);
        let supervisor = Some(UnitId::SUPERVISOR).filter(|_| !is_apart);
        let senders = supervisor.into_iter().chain(peers.filter(|_| !is_network));
        let mut inboxes = self.inboxes(unit, senders)?;
        if is_apart {
            let link = self.stream_to(UnitId::SUPERVISOR)?;
            inboxes.push(Inbox::over_stream(UnitId::SUPERVISOR, link));
        }
        let is_carded = has_cards(config, index);
        let cards = is_carded.then(|| self.card_ends(unit)).transpose()?;
        let links = self.socket_links(config, index, &first_pages)?;
        let mut outbox = self.outbox(unit, builder_units(config).filter(|_| !is_network))?;
        if let Some(network) = self.network(config, Some(pool.clone()), None)? {
            outbox = outbox.with_network(network, builder_units(config));
        }
        let buffer = FragmentBufferConfig {
            triggers_max: config.builder.trigger_window,
        };
        let shaping = config.builder.shaping.as_ref();
        let shaper = shaping.map(|shaping| FragmentShaper::new(shaping, &config.builder, index));
        self.absent.iter().for_each(|unit| outbox.lose(*unit));
        Ok(Box::new(Readout::new(ReadoutParts {
            core: self.readout_core(config, index),
            assemblers,
            first_pages,
            buffer: FragmentBuffer::new(buffer, &config.builder.sources_of(index)),
            pool,
            cards,
            links,
            inboxes,
            outbox,
            shaper: shaper.filter(|_| is_network),
            id: self.id,
            block: self.block,
        })))
    }

    /// The core of a readout unit; of one that takes the place of another, the trigger after which it
    /// joins is told later.
    fn readout_core(&self, config: &ChainConfig, index: u16) -> ReadoutUnit {
        if self.epoch == FIRST_EPOCH {
            return ReadoutUnit::new(&config.builder, index, self.epoch);
        }
        let builders = self.epochs_of(builder_units(config));
        let peers = PeerEpochs {
            supervisor: FIRST_EPOCH,
            manager: self.epoch_of(UnitId::EVENT_MANAGER),
            builders: &builders,
            readouts: &[],
        };
        let unknown = TriggerNumber(u64::MAX);
        ReadoutUnit::rejoining(&config.builder, index, self.epoch, peers, unknown)
    }

    /// The epoch of a unit.
    fn epoch_of(&self, unit: UnitId) -> u32 {
        self.epochs.get(&unit).copied().unwrap_or(FIRST_EPOCH)
    }

    fn epochs_of(&self, units: impl Iterator<Item = UnitId>) -> Vec<u32> {
        units.map(|unit| self.epoch_of(unit)).collect()
    }

    /// The rings of the links of a readout unit whose pages are filled elsewhere.
    fn card_ends(&mut self, unit: UnitId) -> Result<CardEnds, MissingEnd> {
        let cards = UnitId::SUPERVISOR;
        Ok(CardEnds {
            completions: self.receiver(cards, unit, Channel::Completions)?,
            pages_back: self.sender(unit, cards, Channel::PagesBack)?,
        })
    }

    fn event_manager(mut self, config: &ChainConfig) -> Made {
        let evm = UnitId::EVENT_MANAGER;
        let is_network = config.transport.is_network();
        let local = builder_units(config).filter(|_| !is_network);
        let is_apart = config.event_manager_apart;
        let supervisor = Some(UnitId::SUPERVISOR).filter(|_| !is_apart);
        let mut inboxes = self.inboxes(evm, supervisor.into_iter().chain(local))?;
        if is_apart {
            let link = self.stream_to(UnitId::SUPERVISOR)?;
            inboxes.push(Inbox::over_stream(UnitId::SUPERVISOR, link));
        }
        let met = readout_units(config).filter(|_| config.readout_meets_manager());
        let receivers = builder_units(config).chain(met);
        let mut outbox = self.outbox(evm, receivers.clone().filter(|_| !is_network))?;
        if let Some(network) = self.network(config, None, None)? {
            outbox = outbox.with_network(network, receivers);
        }
        // Nobody listens who is not there.
        self.absent.iter().for_each(|unit| outbox.lose(*unit));
        let mut core = EventManager::new(&config.builder, self.epoch);
        let closings = self.manager_closings(is_apart)?;
        if closings.is_some() {
            core.report_closed();
        }
        let shaping = config.builder.shaping.as_ref();
        let shaping = shaping.filter(|shaping| is_network && shaping.is_linear());
        let barrier = shaping.map(|shaping| {
            let readout_units = config.builder.readout_units.len();
            ManagerBarrier::new(readout_units, shaping.barrier_patience(), self.epoch)
        });
        Ok(Box::new(EventManagerRole::new(EventManagerParts {
            succession: self.manager_succession(config),
            id: self.id,
            core,
            closings,
            inboxes,
            outbox,
            barrier,
            block: self.block,
        })))
    }

    /// What an event manager tells the supervisor, if that remembers accepts.
    fn manager_closings(&mut self, is_apart: bool) -> Result<Option<ManagerClosings>, MissingEnd> {
        if !self.remembers_accepts {
            return Ok(None);
        }
        let (evm, supervisor) = (UnitId::EVENT_MANAGER, UnitId::SUPERVISOR);
        let ring = (!is_apart)
            .then(|| self.sender(evm, supervisor, Channel::Messages))
            .transpose()?;
        Ok(Some(ManagerClosings::new(ring, self.epoch)))
    }

    /// What an event manager has to hear first that takes the place of another.
    fn manager_succession(&self, config: &ChainConfig) -> Option<ManagerSuccession> {
        let (builders, readouts) = (builder_units(config), readout_units(config));
        (self.epoch != FIRST_EPOCH).then(|| {
            let (builders, readouts) = (self.epochs_of(builders), self.epochs_of(readouts));
            ManagerSuccession::new(&config.builder, self.epoch, builders, readouts)
        })
    }

    fn builder(mut self, config: &ChainConfig, unit: UnitId) -> Made {
        let evm = std::iter::once(UnitId::EVENT_MANAGER);
        let is_shared = !config.filter_transport.is_network();
        let served = config.builder.filters_of(unit.index).map(UnitId::filter);
        let group = BuildingGroup::of(config, unit.index);
        let streams = self.event_sender(config, unit)?;
        let senders = (evm.clone()).chain(readout_units(config)).chain(served);
        let mut tickets = Vec::new();
        for fu in filter_units(config) {
            let is_served = is_shared && config.builder.serves(unit.index, fu.index);
            let ring = is_served.then(|| self.sender(unit, fu, Channel::Tickets));
            tickets.push(ring.transpose()?);
        }
        let mut core = BuilderUnit::new(&config.builder, unit.index, self.epoch);
        // It takes all units to be in its own epoch.
        for peer in senders.clone() {
            core.renew_peer(peer, self.epoch_of(peer));
        }
        self.tell_who_is_there(&mut core);
        let is_network = config.transport.is_network();
        let is_local =
            |peer: &UnitId| transport_of(config, (unit, *peer)) == &BuilderTransport::Shm;
        let receivers = evm.chain(readout_units(config));
        let mut outbox = self.outbox(unit, receivers.clone().filter(is_local))?;
        if is_network {
            let pool = self.pool(PoolKey::Builder(unit.index))?;
            core.report_freed_pages(pool.page_count() as usize);
            if matches!(config.transport, BuilderTransport::Tcp { .. }) {
                core.group_messages();
            }
            let pages = Some(ReceivePages::new(pool, place_of(group, unit)));
            if let Some(network) = self.network(config, None, pages)? {
                outbox = outbox.with_network(network, receivers);
            }
        }
        self.absent.iter().for_each(|unit| outbox.lose(*unit));
        Ok(Box::new(Builder::new(BuilderParts {
            core,
            inboxes: self.inboxes(unit, senders.filter(is_local))?,
            outbox,
            tickets,
            filter_bells: self.bells_of(filter_units(config)),
            streams,
            writer: self.sender(unit, group.writer(), Channel::Tickets)?,
            writer_bell: self.bells.remove(&group.writer()),
            written: self.receiver(group.writer(), unit, Channel::Written)?,
            clock: self.clock,
            id: self.id,
            block: self.block,
            sources: config.data_links.len(),
        })))
    }

    /// Tells a builder unit which units are not there, and since when others are.
    fn tell_who_is_there(&self, core: &mut BuilderUnit) {
        let start = RunNs(0);
        for unit in &self.absent {
            match unit.kind {
                UnitKind::Filter => core.retire_filter(unit.index),
                UnitKind::Readout => core.handle_readout_lost(start, unit.index),
                _ => {}
            }
        }
        let joined = self.joined.iter();
        for (unit, newest) in joined.filter(|(unit, _)| !self.absent.contains(unit)) {
            core.handle_readout_joined(start, unit.index, *newest);
        }
    }

    fn filter(mut self, config: &ChainConfig, unit: UnitId) -> Made {
        let event_faults = std::mem::take(&mut self.event_faults);
        let mut tickets = Vec::new();
        for bu in builder_units(config) {
            let is_shared = !config.filter_transport.is_network();
            let serves = is_shared && config.builder.serves(bu.index, unit.index);
            let ring = serves.then(|| self.receiver(bu, unit, Channel::Tickets));
            tickets.push(ring.transpose()?);
        }
        let builders = config.builder.builders_of(unit.index).map(UnitId::builder);
        let filter = self.unit_filter(config, unit, event_faults)?;
        let (streams, outbox) = match self.event_receiver(config, unit)? {
            None => (None, self.outbox(unit, builders)?),
            Some((streams, link)) => {
                let link = NetworkLink::Tcp(Box::new(link));
                let outbox = Outbox::new(Vec::new()).with_network(link, builders);
                (Some(streams), outbox)
            }
        };
        let parts = FilterUnitParts {
            unit,
            tickets,
            streams,
            pools: self.filter_pools(config, unit)?,
            outbox,
            bell: self.own_bell.clone(),
            clock: self.clock,
            id: self.id,
            block: self.block,
            sources: config.data_links.len(),
            epoch: self.epoch,
            credits: config.builder.credits as usize,
            first_step: (!config.builder.first_step.is_empty())
                .then(|| FirstStep::new(config.first_step.clone())),
        };
        Ok(Box::new(FilterUnit::new(parts, filter)))
    }

    /// What a filter unit runs; a filter in Python is started and has loaded.
    fn unit_filter(
        &self,
        config: &ChainConfig,
        unit: UnitId,
        faults: Vec<EventFault>,
    ) -> Result<UnitFilter, MissingEnd> {
        let FilterConfig::Python(python) = &config.filter else {
            let filter = config
                .filter
                .to_filter()
                .ok_or_else(|| self.missing("filter"))?;
            return Ok(UnitFilter::Event(FaultyFilter::over(filter, faults)));
        };
        let builder = &config.builder;
        // Subfarm 0 has as many units as any.
        let filters = builder.filters_of(0).count().max(1);
        let share = builder.builders_of(0).count() as u64 * u64::from(builder.credits);
        let share = share / filters as u64;
        let bounds = BatchBounds {
            sources: config.data_links.len(),
            event_words: (config.data_links.iter())
                .map(|link| link.link.fragment_words_max as usize)
                .sum(),
            events: in_filter(config).min(usize::try_from(share).unwrap_or(usize::MAX)),
        };
        let pools = self.filter_pools(config, unit)?;
        let surroundings = Surroundings {
            bell: self.own_bell.clone(),
            faults,
        };
        let started = BatchFilter::start(&self.id, python, bounds, pools, surroundings);
        let filter =
            started.map_err(|error| self.missing(format!("working Python filter: {error}")))?;
        Ok(UnitFilter::Batch(Box::new(filter)))
    }

    fn writer(mut self, config: &ChainConfig, group: BuildingGroup, file: RunFile) -> Made {
        let writer = group.writer();
        let (mut tickets, mut written) = (Vec::new(), Vec::new());
        for bu in group.builders(config) {
            tickets.push(self.receiver(bu, writer, Channel::Tickets)?);
            written.push(self.sender(writer, bu, Channel::Written)?);
        }
        // What one second may hold is shared out evenly.
        let mut output = config.store.output;
        output.bytes_per_s /= u64::from(group.count);
        Ok(Box::new(Writer::new(WriterParts {
            credits: config.builder.credits as usize,
            run: config.run,
            file,
            tickets,
            written,
            pools: self.event_pools(config, group)?,
            group,
            id: self.id,
            block: self.block,
            sources: config.data_links.len(),
            output,
        })))
    }
}

/// The unit of a role id.
pub fn unit_of(id: &str) -> Option<UnitId> {
    if id == FRONT_END {
        return Some(UnitId {
            kind: UnitKind::Source,
            index: 0,
        });
    }
    UnitKind::ALL.into_iter().find_map(|kind| {
        let rest = id.strip_prefix(kind.prefix())?;
        let index = match rest {
            "" => 0,
            rest => rest.parse().ok()?,
        };
        let unit = UnitId { kind, index };
        (unit.to_string() == id).then_some(unit)
    })
}

/// Events that a filter unit may have at once, of every builder unit that serves it. Subfarm 0 has as
/// many as any.
fn in_filter(config: &ChainConfig) -> usize {
    config.builder.filter_in_flight as usize * config.builder.builders_of(0).count()
}

/// The place of a builder or filter unit in its group.
fn place_of(group: BuildingGroup, unit: UnitId) -> u16 {
    unit.index / group.count
}

fn readout_units(config: &ChainConfig) -> impl Iterator<Item = UnitId> + Clone + use<> {
    units(UnitKind::Readout, config.builder.readout_units.len())
}

fn builder_units(config: &ChainConfig) -> impl Iterator<Item = UnitId> + Clone + use<> {
    units(UnitKind::Builder, config.builder.builder_units.into())
}

fn filter_units(config: &ChainConfig) -> impl Iterator<Item = UnitId> + Clone + use<> {
    units(UnitKind::Filter, config.builder.filter_units.into())
}

fn generator(config: &ChainConfig) -> EventGenerator {
    match &config.recorded {
        Some(recorded) => EventGenerator::Recorded(recorded.clone()),
        None => EventGenerator::Physics(Box::new(PhysicsGenerator::new(
            config.source.physics.clone(),
            config.source.seed,
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_ids_name_units_and_nothing_else_does() {
        let unit = |kind, index| Some(UnitId { kind, index });
        assert_eq!(unit_of("src0"), unit(UnitKind::Source, 0));
        assert_eq!(unit_of("ru12"), unit(UnitKind::Readout, 12));
        assert_eq!(unit_of("evm"), Some(UnitId::EVENT_MANAGER));
        assert_eq!(unit_of("wr1"), unit(UnitKind::Writer, 1));
        for id in ["", "ru", "ru01", "evm0", "xx3", "bu-1", "fu70000"] {
            assert_eq!(unit_of(id), None, "{id}");
        }
    }
}
