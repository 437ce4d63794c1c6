//! Makes the units, links and hops of a simulated chain from its configuration.

use livetime_builder::{BuildMode, BuilderUnit, EventManager, ReadoutUnit};
use livetime_readout::{
    AssemblerConfig, FragmentAssembler, FragmentBuffer, FragmentBufferConfig, HeapPages, LinkConfig,
};
use livetime_source::{
    EventGenerator, FragmentWriter, PacketEncoder, PhysicsGenerator, TriggerSource,
};
use livetime_store::{RunWriter, WriteError};
use livetime_trigger::{
    AcceptAll, EventFilter, EventMenu, FirstStep, LevelTwo, LevelTwoNode, MassWindow, NoClock,
    TriggerSupervisor,
};
use livetime_wire::message::EventTicket;
use livetime_wire::{RunNs, SourceId, TaiNs, UnitId};

use super::builder_host::{BuilderHost, WriterLanes};
use super::chain_config::{FilterChoice, SimulatedChainConfig};
use super::chain_layout::{ChainLayout, TRIGGER_NODE, WRITER};
use super::chain_world::{ChainWorld, Units};
use super::filter_host::{FilterHost, FilterParts};
use super::front_end::{FrontEnd, FrontEndParts};
use super::host::{Hall, Latencies, Route};
use super::mailbox::{Intake, Outbox};
use super::manager_host::ManagerHost;
use super::message_fabric::MessageFabric;
use super::readout_host::{ReadoutHost, ReadoutParts, ReadoutTimes};
use super::simulated_disk::SimulatedDisk;
use super::simulated_link::{LinkSetup, SimulatedLink};
use super::spill_gate::SpillGate;
use super::trigger_host::TriggerHost;
use super::writer_host::{WriterHost, WriterParts};
use crate::address::LinkId;
use crate::fault::FaultShim;
use crate::random::RandomStreams;
use crate::time::SimPs;

/// Epoch of a run that has lost no unit.
const EPOCH: u32 = 1;
/// Words of the longest reply that a return link must take.
const REPLY_WORDS_MAX: u32 = 64;

/// The numbers needed while the units are being made.
struct Assembly<'c> {
    config: &'c SimulatedChainConfig,
    layout: ChainLayout,
    /// First page of each data link in its unit's pool.
    first_pages: Vec<u32>,
    sources: usize,
}

/// Makes the chain of a validated configuration.
///
/// # Errors
/// When the disk has no room for the beginning of the run file.
pub(crate) fn assemble(config: &SimulatedChainConfig) -> Result<ChainWorld, WriteError> {
    let assembly = Assembly::new(config);
    let layout = &assembly.layout;
    let streams = RandomStreams::new(config.seed);
    let plan = config.effective_faults(layout);
    let shim = FaultShim::new_checked(&plan, layout.link_count(), layout.node_count(), streams)
        .expect("a validated plan fits the layout");
    let hall = Hall {
        fabric: MessageFabric::new(layout, config.timing.hop, shim, streams),
        links: assembly.links(),
        pools: assembly.pools(),
        latencies: Latencies::new(),
        called: Vec::new(),
        now: SimPs(0),
        mishaps: 0,
    };
    let builder = &config.builder;
    let units = Units {
        front_end: assembly.front_end(),
        trigger: assembly.trigger(),
        manager: assembly.manager(),
        readouts: (0..builder.readout_units.len() as u16)
            .map(|i| assembly.readout(i))
            .collect(),
        builders: (0..builder.builder_units)
            .map(|i| assembly.builder(i))
            .collect(),
        filters: (0..builder.filter_units)
            .map(|i| assembly.filter(i))
            .collect(),
        writer: assembly.writer()?,
    };
    Ok(ChainWorld::new(config, layout, hall, units))
}

impl<'c> Assembly<'c> {
    fn new(config: &'c SimulatedChainConfig) -> Self {
        let mut pages = vec![0; config.builder.readout_units.len()];
        let mut first_pages = Vec::new();
        for link in &config.data_links {
            let next = &mut pages[usize::from(link.unit)];
            first_pages.push(*next);
            *next += link.link.pages;
        }
        Self {
            config,
            layout: config.layout(),
            first_pages,
            sources: config.data_links.len(),
        }
    }

    fn units_of(&self, kind: livetime_wire::UnitKind) -> impl Iterator<Item = UnitId> + '_ {
        let units = self.layout.units().iter().copied();
        units.filter(move |unit| unit.kind == kind)
    }

    fn readouts(&self) -> impl Iterator<Item = UnitId> + '_ {
        self.units_of(livetime_wire::UnitKind::Readout)
    }

    fn builders(&self) -> impl Iterator<Item = UnitId> + '_ {
        self.units_of(livetime_wire::UnitKind::Builder)
    }

    fn filters(&self) -> impl Iterator<Item = UnitId> + '_ {
        self.units_of(livetime_wire::UnitKind::Filter)
    }

    fn lane(&self, from: UnitId, to: UnitId) -> u32 {
        self.layout
            .link(from, to)
            .expect("the layout joins these units")
            .0
    }

    fn host(&self, unit: UnitId) -> u32 {
        self.layout.node(unit).expect("the layout has this unit").0
    }

    fn intake(&self, to: UnitId, from: impl Iterator<Item = UnitId>) -> Intake {
        Intake::new(from.map(|from| self.lane(from, to)).collect())
    }

    fn outbox(&self, from: UnitId, to: impl Iterator<Item = UnitId>) -> Outbox {
        let route = |to| Route {
            to,
            lane: self.lane(from, to),
        };
        Outbox::new(to.map(route).collect())
    }

    fn empty_ticket(&self) -> EventTicket {
        EventTicket::with_capacity(self.sources)
    }

    fn reply_link(&self) -> LinkConfig {
        LinkConfig {
            fragment_words_max: REPLY_WORDS_MAX,
            ..self.config.trigger_link.clone()
        }
    }

    /// One pool per readout unit, then those of the trigger link and of the return link.
    fn pools(&self) -> Vec<HeapPages> {
        let config = self.config;
        let units = 0..config.builder.readout_units.len();
        let mut pools: Vec<HeapPages> = units
            .map(|unit| {
                let of_unit = config.data_links.iter();
                let links = of_unit.filter(|link| usize::from(link.unit) == unit);
                let words = links.clone().map(|link| link.link.page_words).max();
                let pages = links.map(|link| link.link.pages).sum();
                HeapPages::new(0, pages, words.unwrap_or(0))
            })
            .collect();
        let trigger_pages =
            HeapPages::new(0, config.trigger_link.pages, config.trigger_link.page_words);
        pools.extend([trigger_pages.clone(), trigger_pages]);
        pools
    }

    fn links(&self) -> Vec<SimulatedLink> {
        let config = self.config;
        let line = config.timing.data_line;
        let numbered = (0..).zip(config.data_links.iter().zip(&self.first_pages));
        let mut links: Vec<SimulatedLink> = numbered
            .map(|(index, (link, first_page))| {
                SimulatedLink::new(LinkSetup {
                    index,
                    config: link.link.clone(),
                    first_page: *first_page,
                    pool: link.unit.into(),
                    line: line.fitted(link.link.words_in_flight).unwrap_or(line),
                    shim_link: None,
                    host: self.host(UnitId::readout(link.unit)),
                })
            })
            .collect();
        let pool = config.builder.readout_units.len();
        let trigger_line = |offset: usize, config: LinkConfig, link: LinkId, to: UnitId| {
            SimulatedLink::new(LinkSetup {
                index: (self.sources + offset) as u32,
                config,
                first_page: 0,
                pool: pool + offset,
                line: self.config.timing.trigger_line,
                shim_link: Some(link),
                host: self.host(to),
            })
        };
        let packets = config.trigger_link.clone();
        links.push(trigger_line(
            0,
            packets,
            self.layout.trigger_link(),
            TRIGGER_NODE,
        ));
        let replies = self.reply_link();
        links.push(trigger_line(
            1,
            replies,
            self.layout.return_link(),
            UnitId::SUPERVISOR,
        ));
        links
    }

    fn front_end(&self) -> FrontEnd {
        let config = self.config;
        let source = &config.source;
        let generator = match &config.recorded {
            Some(recorded) => EventGenerator::Recorded(recorded.clone()),
            None => EventGenerator::Physics(Box::new(PhysicsGenerator::new(
                source.physics.clone(),
                source.seed,
            ))),
        };
        let to_readouts = self
            .readouts()
            .map(|unit| self.lane(UnitId::SUPERVISOR, unit));
        let spill = config.spill.as_ref();
        let read_back = spill.and_then(|spill| spill.read_back);
        let started = TaiNs(config.begin.started_tai_ns);
        let links = source.data_links.iter().enumerate();
        let detectors = links.filter(|(link, _)| Some(*link) != read_back);
        let detectors: Vec<SourceId> = detectors.map(|(_, source)| *source).collect();
        FrontEnd::new(FrontEndParts {
            run: config.run(),
            epoch: EPOCH,
            source: TriggerSource::new(&source.triggers, source.seed),
            generator,
            encoder: PacketEncoder::new(source.packet_words_max),
            writer: FragmentWriter::new(&source.fragment, source.seed, config.run(), &detectors),
            supervisor: TriggerSupervisor::new(config.supervisor, RunNs(0)),
            events_max: config.timing.front_end_events,
            data_links: self.sources,
            trigger_link: self.sources,
            return_link: self.sources + 1,
            decisions: to_readouts.collect(),
            accepts: self.lane(UnitId::SUPERVISOR, UnitId::EVENT_MANAGER),
            reply_time: config.timing.service.reply,
            spill: spill.and_then(|spill| SpillGate::new(spill, started, &source.data_links).ok()),
        })
    }

    fn trigger(&self) -> TriggerHost {
        let node = LevelTwoNode::new(LevelTwo::new(&self.config.menu), self.config.run());
        TriggerHost::new(
            vec![node; self.config.trigger_nodes.max(1).into()],
            self.sources,
            self.sources + 1,
            self.config.timing.service.decision,
        )
    }

    /// Whether readout units send unasked.
    fn is_pushed(&self) -> bool {
        self.config.builder.mode == BuildMode::Push
    }

    fn manager(&self) -> ManagerHost {
        let unit = UnitId::EVENT_MANAGER;
        let senders = std::iter::once(UnitId::SUPERVISOR).chain(self.builders());
        ManagerHost::new(
            EventManager::new(&self.config.builder, EPOCH),
            self.intake(unit, senders),
            self.outbox(
                unit,
                self.builders()
                    .chain(self.readouts().filter(|_| self.is_pushed())),
            ),
            self.config.timing.service.manager_message,
        )
    }

    fn readout(&self, index: u16) -> ReadoutHost {
        let config = self.config;
        let unit = UnitId::readout(index);
        let numbered = || config.data_links.iter().enumerate();
        let own = || numbered().filter(|(_, link)| link.unit == index);
        let assembler = |(_, link): (usize, &super::SimulatedDataLink)| {
            FragmentAssembler::new(AssemblerConfig {
                run: config.run(),
                pool: index,
                page_words: link.link.page_words,
                sources: vec![link.source],
                crc: link.link.crc,
            })
        };
        let buffer = FragmentBufferConfig {
            triggers_max: config.builder.trigger_window,
        };
        let pusher = self.is_pushed().then_some(UnitId::EVENT_MANAGER);
        let senders = (std::iter::once(UnitId::SUPERVISOR).chain(self.builders())).chain(pusher);
        ReadoutHost::new(ReadoutParts {
            core: ReadoutUnit::new(&config.builder, index, EPOCH),
            assemblers: own().map(assembler).collect(),
            buffer: FragmentBuffer::new(buffer, &config.builder.sources_of(index)),
            links: own().map(|(link, _)| link).collect(),
            first_pages: own().map(|(link, _)| self.first_pages[link]).collect(),
            pool: index.into(),
            intake: self.intake(unit, senders),
            outbox: self.outbox(unit, self.builders()),
            times: ReadoutTimes {
                page: config.timing.service.page,
                message: config.timing.service.readout_message,
            },
        })
    }

    fn builder(&self, index: u16) -> BuilderHost {
        let unit = UnitId::builder(index);
        let manager = std::iter::once(UnitId::EVENT_MANAGER);
        let senders = manager.clone().chain(self.readouts()).chain(self.filters());
        BuilderHost::new(
            BuilderUnit::new(&self.config.builder, index, EPOCH),
            self.intake(unit, senders),
            self.outbox(unit, manager.chain(self.readouts())),
            self.filters()
                .map(|filter| self.lane(unit, filter))
                .collect(),
            WriterLanes {
                tickets: self.lane(unit, WRITER),
                written: self.lane(WRITER, unit),
            },
            self.config.timing.service.builder_message,
        )
    }

    fn filter(&self, index: u16) -> FilterHost {
        let unit = UnitId::filter(index);
        let filter: Box<dyn EventFilter> = match &self.config.filter {
            FilterChoice::AcceptAll => Box::new(AcceptAll),
            FilterChoice::MassWindow(window) => Box::new(MassWindow::new(*window)),
            FilterChoice::Menu(menu) => {
                Box::new(EventMenu::new((**menu).clone(), Box::new(NoClock)))
            }
        };
        let parts = FilterParts {
            unit,
            epoch: EPOCH,
            filter,
            first_step: FirstStep::new(self.config.first_step.clone()),
            tickets: self
                .builders()
                .map(|builder| self.lane(builder, unit))
                .collect(),
            outbox: self.outbox(unit, self.builders()),
            filter_time: self.config.timing.service.filter,
            stream: self.config.timing.event_stream,
        };
        FilterHost::new(parts, self.empty_ticket())
    }

    fn writer(&self) -> Result<WriterHost, WriteError> {
        let config = self.config;
        let disk = SimulatedDisk::new(config.disk_bytes_max);
        let parts = WriterParts {
            run: config.run(),
            node: self.layout.node(WRITER).expect("the layout has a writer"),
            file: RunWriter::new(disk, &config.begin, config.store)?,
            tickets: self
                .builders()
                .map(|builder| self.lane(builder, WRITER))
                .collect(),
            written: self
                .builders()
                .map(|builder| self.lane(WRITER, builder))
                .collect(),
            write_time: config.timing.service.write,
        };
        Ok(WriterHost::new(parts, self.empty_ticket()))
    }
}
