//! A role made from its opened ends: rings, pages, counters.
//!
//! The same lines make a role among others in one process and a role that has a process for
//! itself; what differs is who opened the ends. Which ends there are is in [`crate::chain_plan`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use livetime_builder::{BuilderUnit, EventManager, ReadoutUnit};
use livetime_readout::{
    AssemblerConfig, FragmentAssembler, FragmentBuffer, FragmentBufferConfig, LinkConfig,
};
use livetime_shm::{Consumer, Doorbell, PagePool, Producer};
use livetime_source::{
    EventGenerator, FragmentWriter, PacketEncoder, PhysicsGenerator, TriggerSource,
};
use livetime_trigger::{
    AcceptAll, EventFilter, LevelTwo, LevelTwoNode, MassWindow, TriggerSupervisor,
};
use livetime_wire::{RunNs, UnitId, UnitKind};

use crate::chain_config::{ChainConfig, FilterConfig};
use crate::chain_plan::{Channel, FRONT_END, PoolKey, RingKey, TRIGGER_NODE, WRITER, units};
use crate::counter_block::CounterBlock;
use crate::emulated_link::EmulatedLink;
use crate::message_ring::{Inbox, Outbox};
use crate::role::Role;
use crate::role::builder::{Builder, BuilderParts};
use crate::role::event_manager::EventManagerRole;
use crate::role::filter::{FilterUnit, FilterUnitParts};
use crate::role::front_end::{DataLink, FrontEnd, FrontEndParts, ReadoutRings, TriggerRings};
use crate::role::readout::{Readout, ReadoutParts};
use crate::role::trigger::{TriggerNode, TriggerNodeParts};
use crate::role::writer::{RunFile, Writer, WriterParts};

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
    /// Where it publishes its counters.
    pub block: Arc<CounterBlock>,
    /// Rung when the writer has something to do.
    pub writer_bell: Doorbell,
    /// Its epoch.
    pub epoch: u32,
    /// Epochs of units that are not in their first.
    pub epochs: BTreeMap<UnitId, u32>,
}

/// What only the writer needs.
pub struct WriterEnds {
    /// The file.
    pub file: RunFile,
    /// Set when it can no longer be written.
    pub failed: Arc<AtomicBool>,
}

type Made = Result<Box<dyn Role>, MissingEnd>;

impl RoleEnds {
    /// The ends of a role without rings and pools.
    pub fn new(id: &str, block: Arc<CounterBlock>, writer_bell: Doorbell) -> Self {
        Self {
            id: id.to_owned(),
            producers: BTreeMap::new(),
            consumers: BTreeMap::new(),
            pools: BTreeMap::new(),
            block,
            writer_bell,
            epoch: FIRST_EPOCH,
            epochs: BTreeMap::new(),
        }
    }

    /// Makes the role; `writer` is for the writer alone.
    ///
    /// # Errors
    /// [`MissingEnd`] when an end is not there, or the role itself is unknown.
    pub fn into_role(self, config: &ChainConfig, writer: Option<WriterEnds>) -> Made {
        let id = self.id.clone();
        let unit = unit_of(&id).ok_or_else(|| self.missing("place in this chain"))?;
        match unit.kind {
            UnitKind::Source => self.front_end(config),
            UnitKind::Trigger => self.trigger_node(config),
            UnitKind::Readout => self.readout(config, unit),
            UnitKind::EventManager => self.event_manager(config),
            UnitKind::Builder => self.builder(config, unit),
            UnitKind::Filter => self.filter(config, unit),
            UnitKind::Writer => {
                let writer = writer.ok_or_else(|| self.missing("run file"))?;
                self.writer(config, writer)
            }
            UnitKind::Supervisor => Err(self.missing("place of its own")),
        }
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

    fn readout_pools(&self, config: &ChainConfig) -> Result<Vec<PagePool>, MissingEnd> {
        readout_units(config)
            .map(|ru| self.pool(PoolKey::Readout(ru.index)))
            .collect()
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
        let cards = UnitId::SUPERVISOR;
        let mut rings = Vec::new();
        for ru in readout_units(config) {
            rings.push(ReadoutRings {
                completions: self.sender(cards, ru, Channel::Completions)?,
                pages_back: self.receiver(ru, cards, Channel::PagesBack)?,
                decisions: self.sender(cards, ru, Channel::Messages)?,
                sequence: 0,
            });
        }
        let trigger = TriggerRings {
            completions: self.sender(cards, TRIGGER_NODE, Channel::Completions)?,
            pages_back: self.receiver(TRIGGER_NODE, cards, Channel::PagesBack)?,
            replies: self.receiver(TRIGGER_NODE, cards, Channel::Completions)?,
            reply_pages_back: self.sender(cards, TRIGGER_NODE, Channel::PagesBack)?,
            reply_pool: self.pool(PoolKey::Replies)?,
        };
        let (run, source) = (config.run, &config.source);
        Ok(Box::new(FrontEnd::new(FrontEndParts {
            run,
            source: TriggerSource::new(&source.triggers, source.seed),
            generator: generator(config),
            encoder: PacketEncoder::new(source.packet_words_max),
            writer: FragmentWriter::new(&source.fragment, source.seed, run, &source.data_links),
            supervisor: TriggerSupervisor::new(config.supervisor, RunNs(0)),
            trigger_link: EmulatedLink::new(
                config.trigger_link.clone(),
                self.pool(PoolKey::Packets)?,
                0,
            ),
            trigger,
            data_links: data_links(config, &self.readout_pools(config)?),
            readout_units: rings,
            event_manager: self.sender(cards, UnitId::EVENT_MANAGER, Channel::Messages)?,
            faults: config.faults.clone(),
            id: self.id,
            block: self.block,
            epoch: self.epoch,
        })))
    }

    fn trigger_node(mut self, config: &ChainConfig) -> Made {
        let cards = UnitId::SUPERVISOR;
        let link = LinkConfig {
            fragment_words_max: 64,
            ..config.trigger_link.clone()
        };
        Ok(Box::new(TriggerNode::new(TriggerNodeParts {
            node: LevelTwoNode::new(LevelTwo::new(&config.menu), config.run),
            packets: self.receiver(cards, TRIGGER_NODE, Channel::Completions)?,
            packet_pages_back: self.sender(TRIGGER_NODE, cards, Channel::PagesBack)?,
            packet_pool: self.pool(PoolKey::Packets)?,
            return_link: EmulatedLink::new(link, self.pool(PoolKey::Replies)?, 0),
            replies: self.sender(TRIGGER_NODE, cards, Channel::Completions)?,
            reply_pages_back: self.receiver(cards, TRIGGER_NODE, Channel::PagesBack)?,
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
            assemblers.push(FragmentAssembler::new(AssemblerConfig {
                run: config.run,
                pool: index,
                page_words: link.link.page_words,
                sources: vec![link.source],
                crc: link.link.crc,
            }));
        }
        let senders = std::iter::once(UnitId::SUPERVISOR).chain(builder_units(config));
        let buffer = FragmentBufferConfig {
            triggers_max: config.builder.trigger_window,
        };
        Ok(Box::new(Readout::new(ReadoutParts {
            core: ReadoutUnit::new(&config.builder, index, self.epoch),
            assemblers,
            first_pages,
            buffer: FragmentBuffer::new(buffer, &config.builder.sources_of(index)),
            pool: self.pool(PoolKey::Readout(index))?,
            completions: self.receiver(UnitId::SUPERVISOR, unit, Channel::Completions)?,
            pages_back: self.sender(unit, UnitId::SUPERVISOR, Channel::PagesBack)?,
            inboxes: self.inboxes(unit, senders)?,
            outbox: self.outbox(unit, builder_units(config))?,
            id: self.id,
            block: self.block,
        })))
    }

    fn event_manager(mut self, config: &ChainConfig) -> Made {
        let evm = UnitId::EVENT_MANAGER;
        let senders = std::iter::once(UnitId::SUPERVISOR).chain(builder_units(config));
        let inboxes = self.inboxes(evm, senders)?;
        let outbox = self.outbox(evm, builder_units(config))?;
        let core = EventManager::new(&config.builder, self.epoch);
        let role = EventManagerRole::new(self.id, core, inboxes, outbox, self.block);
        Ok(Box::new(role))
    }

    fn builder(mut self, config: &ChainConfig, unit: UnitId) -> Made {
        let evm = std::iter::once(UnitId::EVENT_MANAGER);
        let senders = (evm.clone())
            .chain(readout_units(config))
            .chain(filter_units(config))
            .chain(std::iter::once(WRITER));
        let mut tickets = Vec::new();
        for fu in filter_units(config) {
            tickets.push(self.sender(unit, fu, Channel::Tickets)?);
        }
        let mut core = BuilderUnit::new(&config.builder, unit.index, self.epoch);
        // It takes all units to be in its own epoch.
        for peer in senders.clone() {
            let epoch = self.epochs.get(&peer).copied().unwrap_or(FIRST_EPOCH);
            core.renew_peer(peer, epoch);
        }
        Ok(Box::new(Builder::new(BuilderParts {
            core,
            inboxes: self.inboxes(unit, senders)?,
            outbox: self.outbox(unit, evm.chain(readout_units(config)))?,
            tickets,
            id: self.id,
            block: self.block,
            sources: config.data_links.len(),
        })))
    }

    fn filter(mut self, config: &ChainConfig, unit: UnitId) -> Made {
        let mut tickets = Vec::new();
        for bu in builder_units(config) {
            tickets.push(self.receiver(bu, unit, Channel::Tickets)?);
        }
        Ok(Box::new(FilterUnit::new(FilterUnitParts {
            unit,
            filter: filter(config.filter),
            tickets,
            pools: self.readout_pools(config)?,
            writer: self.sender(unit, WRITER, Channel::Tickets)?,
            written: self.receiver(WRITER, unit, Channel::Written)?,
            outbox: self.outbox(unit, builder_units(config))?,
            writer_bell: self.writer_bell,
            id: self.id,
            block: self.block,
            sources: config.data_links.len(),
            epoch: self.epoch,
        })))
    }

    fn writer(mut self, config: &ChainConfig, writer: WriterEnds) -> Made {
        let (mut tickets, mut written) = (Vec::new(), Vec::new());
        for fu in filter_units(config) {
            tickets.push(self.receiver(fu, WRITER, Channel::Tickets)?);
            written.push(self.sender(WRITER, fu, Channel::Written)?);
        }
        let mut builders = Vec::new();
        for bu in builder_units(config) {
            builders.push(self.sender(WRITER, bu, Channel::Messages)?);
        }
        let in_filter = config.builder.filter_in_flight as usize;
        Ok(Box::new(Writer::new(WriterParts {
            builders,
            in_filter: in_filter * usize::from(config.builder.builder_units),
            epoch: self.epoch,
            run: config.run,
            file: writer.file,
            tickets,
            written,
            pools: self.readout_pools(config)?,
            id: self.id,
            block: self.block,
            failed: writer.failed,
            sources: config.data_links.len(),
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

fn readout_units(config: &ChainConfig) -> impl Iterator<Item = UnitId> + Clone + use<> {
    units(UnitKind::Readout, config.builder.readout_units.len())
}

fn builder_units(config: &ChainConfig) -> impl Iterator<Item = UnitId> + Clone + use<> {
    units(UnitKind::Builder, config.builder.builder_units.into())
}

fn filter_units(config: &ChainConfig) -> impl Iterator<Item = UnitId> + Clone + use<> {
    units(UnitKind::Filter, config.builder.filter_units.into())
}

fn data_links(config: &ChainConfig, pools: &[PagePool]) -> Vec<DataLink> {
    let mut next_page = vec![0; pools.len()];
    let mut next_index = vec![0; pools.len()];
    let links = config.data_links.iter().map(|link| {
        let unit = usize::from(link.unit);
        let (first_page, index_at_unit) = (next_page[unit], next_index[unit]);
        next_page[unit] += link.link.pages;
        next_index[unit] += 1;
        let link = EmulatedLink::new(link.link.clone(), pools[unit].clone(), first_page);
        DataLink {
            link,
            unit,
            index_at_unit,
        }
    });
    links.collect()
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

fn filter(config: FilterConfig) -> Box<dyn EventFilter> {
    match config {
        FilterConfig::AcceptAll => Box::new(AcceptAll),
        FilterConfig::MassWindow(window) => Box::new(MassWindow::new(window)),
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
        assert_eq!(unit_of("wr0"), Some(WRITER));
        for id in ["", "ru", "ru01", "evm0", "xx3", "bu-1", "fu70000"] {
            assert_eq!(unit_of(id), None, "{id}");
        }
    }
}
