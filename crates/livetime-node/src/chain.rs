//! The chain: pools, rings and roles joined, and the threads that run them.
//!
//! [`Chain::start`] builds everything that will ever be allocated, [`Chain::snapshot`] looks at
//! the run, [`Chain::finish`] collects what is left. When to stop is the caller's decision; how a
//! run that was ended by force is settled is in [`crate::settlement`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use livetime_builder::{BuilderUnit, EventManager, ReadoutUnit};
use livetime_readout::{
    AssemblerConfig, FragmentAssembler, FragmentBuffer, FragmentBufferConfig, LinkConfig,
};
use livetime_shm::{
    Consumer, Doorbell, HugePages, PagePool, PoolConfig, PoolError, Producer, RingConfig,
    RingError, Waiter, ring,
};
use livetime_source::{
    EventGenerator, FragmentWriter, PacketEncoder, PhysicsGenerator, TriggerSource,
};
use livetime_trigger::{AcceptAll, EventFilter, LevelTwo, LevelTwoNode, MassWindow, TriggerSupervisor};
use livetime_wire::message::{EventTicket, FRAGMENT_PAGES_MAX, MESSAGE_WORDS_MAX};
use livetime_wire::{LossArea, RunNs, RunNumber, UnitId, UnitKind};

use crate::chain_config::{ChainConfig, FilterConfig};
use crate::chain_outcome::ChainOutcome;
use crate::completion::COMPLETION_WORDS;
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
use crate::run_clock::RunClock;
use crate::settlement::settle;
use crate::snapshot::Snapshot;
use crate::worker::{Phase, PhaseCell, Worker, WorkerResult};

/// Epoch of a run that has lost no unit.
const EPOCH: u32 = 1;
/// Slots of the rings between cards and hosts; when full, entries wait in the card's FIFO.
const CARD_RING_SLOTS: u32 = 1024;
/// Words of a message that returns pages.
const PAGES_BACK_WORDS: u32 = 16;

/// Why a chain could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// No memory for pages.
    #[error("cannot create a page pool: {0}")]
    Pool(#[from] PoolError),
    /// No memory for a ring.
    #[error("cannot create a ring: {0}")]
    Ring(#[from] RingError),
    /// No thread.
    #[error("cannot start a worker: {0}")]
    Thread(#[from] std::io::Error),
}

/// A running chain.
pub struct Chain {
    run: RunNumber,
    clock: RunClock,
    phase: PhaseCell,
    blocks: Vec<(String, Arc<CounterBlock>)>,
    threads: Vec<JoinHandle<WorkerResult>>,
    writer_failed: Arc<AtomicBool>,
}

type Pair = (Producer, Consumer);

fn message_ring(slots: u64, words: usize) -> Result<Pair, RingError> {
    let slots = u32::try_from(slots).unwrap_or(u32::MAX / 2).next_power_of_two().max(16);
    ring(&RingConfig { slots, slot_words: words as u32 })
}

fn pool(pages: u32, page_words: u32) -> Result<PagePool, PoolError> {
    let page_bytes = page_words * 4;
    PagePool::create(&PoolConfig { pages, page_bytes, huge_pages: HugePages::Prefer })
}

/// Rings by who sends and who receives, while the roles are being made.
#[derive(Default)]
struct Wiring {
    producers: BTreeMap<(UnitId, UnitId), Producer>,
    consumers: BTreeMap<(UnitId, UnitId), Consumer>,
}

impl Wiring {
    fn connect(
        &mut self,
        from: UnitId,
        to: UnitId,
        slots: u64,
        words: usize,
    ) -> Result<(), RingError> {
        let (producer, consumer) = message_ring(slots, words)?;
        self.producers.insert((from, to), producer);
        self.consumers.insert((from, to), consumer);
        Ok(())
    }

    fn sender(&mut self, from: UnitId, to: UnitId) -> Producer {
        self.producers.remove(&(from, to)).expect("the ring was connected and not taken")
    }

    fn receiver(&mut self, from: UnitId, to: UnitId) -> Consumer {
        self.consumers.remove(&(from, to)).expect("the ring was connected and not taken")
    }

    fn inboxes(&mut self, to: UnitId, from: impl Iterator<Item = UnitId>) -> Vec<Inbox> {
        from.map(|from| Inbox::new(self.receiver(from, to))).collect()
    }

    fn outbox(&mut self, from: UnitId, to: impl Iterator<Item = UnitId>) -> Outbox {
        Outbox::new(to.map(|to| (to, self.sender(from, to))).collect())
    }
}

/// The parts of a chain while it is being built.
struct Assembly<'c> {
    config: &'c ChainConfig,
    wiring: Wiring,
    pools: Vec<PagePool>,
    sources: usize,
    blocks: Vec<(String, Arc<CounterBlock>)>,
    roles: BTreeMap<String, Box<dyn Role>>,
}

const TRIGGER_NODE: UnitId = UnitId { kind: UnitKind::Trigger, index: 0 };
const WRITER: UnitId = UnitId { kind: UnitKind::Writer, index: 0 };

impl<'c> Assembly<'c> {
    fn new(config: &'c ChainConfig) -> Result<Self, ChainError> {
        let mut pools = Vec::new();
        for unit in 0..config.builder.readout_units.len() {
            let links = || config.data_links.iter().filter(|l| usize::from(l.unit) == unit);
            let pages = links().map(|link| link.link.pages).sum();
            let page_words = links().map(|link| link.link.page_words).max().unwrap_or(16);
            pools.push(pool(pages, page_words)?);
        }
        let sources = config.data_links.len();
        let blocks = config.role_ids().into_iter().map(|id| (id, CounterBlock::new())).collect();
        let (wiring, roles) = (Wiring::default(), BTreeMap::new());
        let mut assembly = Self { config, wiring, pools, sources, blocks, roles };
        assembly.connect()?;
        Ok(assembly)
    }

    fn readout_units(&self) -> impl Iterator<Item = UnitId> + use<> {
        (0..self.config.builder.readout_units.len() as u16).map(UnitId::readout)
    }

    fn builder_units(&self) -> impl Iterator<Item = UnitId> + use<> {
        (0..self.config.builder.builder_units).map(UnitId::builder)
    }

    fn filter_units(&self) -> impl Iterator<Item = UnitId> + use<> {
        (0..self.config.builder.filter_units).map(UnitId::filter)
    }

    fn block(&self, id: &str) -> Arc<CounterBlock> {
        let found = self.blocks.iter().find(|(name, _)| name == id);
        found.map(|(_, block)| block.clone()).expect("every role has a block")
    }

    /// Makes the rings between units.
    fn connect(&mut self) -> Result<(), RingError> {
        let config = &self.config.builder;
        let (evm, slots) = (UnitId::EVENT_MANAGER, config.ring_slots());
        let credits = config.credits_total();
        let ticket_words = EventTicket::words_max(self.sources, FRAGMENT_PAGES_MAX);
        let in_filters = u64::from(config.filter_in_flight) * u64::from(config.builder_units);
        let wiring = &mut self.wiring;
        wiring.connect(UnitId::SUPERVISOR, evm, config.evm_queue.into(), MESSAGE_WORDS_MAX)?;
        let units = |kind, count: u16| (0..count).map(move |index| UnitId { kind, index });
        let readout_units = config.readout_units.len() as u16;
        for ru in units(UnitKind::Readout, readout_units) {
            let window = config.trigger_window.into();
            wiring.connect(UnitId::SUPERVISOR, ru, window, MESSAGE_WORDS_MAX)?;
        }
        for bu in units(UnitKind::Builder, config.builder_units) {
            wiring.connect(evm, bu, credits, MESSAGE_WORDS_MAX)?;
            wiring.connect(bu, evm, credits, MESSAGE_WORDS_MAX)?;
            for ru in units(UnitKind::Readout, readout_units) {
                wiring.connect(bu, ru, slots, MESSAGE_WORDS_MAX)?;
                wiring.connect(ru, bu, slots, MESSAGE_WORDS_MAX)?;
            }
            for fu in units(UnitKind::Filter, config.filter_units) {
                wiring.connect(bu, fu, config.filter_in_flight.into(), ticket_words)?;
                wiring.connect(fu, bu, credits, MESSAGE_WORDS_MAX)?;
            }
        }
        for fu in units(UnitKind::Filter, config.filter_units) {
            wiring.connect(fu, WRITER, in_filters, ticket_words)?;
            wiring.connect(WRITER, fu, in_filters, 4)?;
        }
        Ok(())
    }

    fn add(&mut self, id: String, role: Box<dyn Role>) {
        self.roles.insert(id, role);
    }

    /// Front-end and trigger node, with the links between them.
    fn add_front_end(&mut self) -> Result<(), ChainError> {
        let config = self.config;
        let mut readout_rings = Vec::new();
        let mut readout_sides = Vec::new();
        for ru in self.readout_units() {
            let (completions, card_completions) =
                message_ring(CARD_RING_SLOTS.into(), COMPLETION_WORDS)?;
            let (pages_back, card_pages_back) =
                message_ring(CARD_RING_SLOTS.into(), PAGES_BACK_WORDS as usize)?;
            let decisions = self.wiring.sender(UnitId::SUPERVISOR, ru);
            readout_rings.push(ReadoutRings {
                completions,
                pages_back: card_pages_back,
                decisions,
                sequence: 0,
            });
            readout_sides.push((card_completions, pages_back));
        }
        let data_links = self.data_links();
        let trigger_pool = pool(config.trigger_link.pages, config.trigger_link.page_words)?;
        let (packets, trigger_node) =
            open_trigger_node(config, &trigger_pool, self.block("trg0"))?;
        let id = "src0".to_owned();
        let front_end = FrontEnd::new(FrontEndParts {
            id: id.clone(),
            run: config.run,
            source: TriggerSource::new(&config.source.triggers, config.source.seed),
            generator: generator(config),
            encoder: PacketEncoder::new(config.source.packet_words_max),
            writer: FragmentWriter::new(
                &config.source.fragment,
                config.source.seed,
                config.run,
                &config.source.data_links,
            ),
            supervisor: TriggerSupervisor::new(config.supervisor, RunNs(0)),
            trigger_link: EmulatedLink::new(config.trigger_link.clone(), trigger_pool, 0),
            trigger: packets,
            data_links,
            readout_units: readout_rings,
            event_manager: self.wiring.sender(UnitId::SUPERVISOR, UnitId::EVENT_MANAGER),
            faults: config.faults.clone(),
            block: self.block(&id),
            epoch: EPOCH,
        });
        self.add(id, Box::new(front_end));
        self.add("trg0".to_owned(), Box::new(trigger_node));
        for (index, (completions, pages_back)) in readout_sides.into_iter().enumerate() {
            self.add_readout(index as u16, completions, pages_back);
        }
        Ok(())
    }

    fn data_links(&self) -> Vec<DataLink> {
        let mut next_page = vec![0; self.pools.len()];
        let mut next_index = vec![0; self.pools.len()];
        let links = self.config.data_links.iter().map(|link| {
            let unit = usize::from(link.unit);
            let (first_page, index_at_unit) = (next_page[unit], next_index[unit]);
            next_page[unit] += link.link.pages;
            next_index[unit] += 1;
            let pool = self.pools[unit].clone();
            let link = EmulatedLink::new(link.link.clone(), pool, first_page);
            DataLink { link, unit, index_at_unit }
        });
        links.collect()
    }

    fn add_readout(&mut self, index: u16, completions: Consumer, pages_back: Producer) {
        let config = self.config;
        let unit = UnitId::readout(index);
        let links = || config.data_links.iter().filter(|link| link.unit == index);
        let mut first_pages = vec![0];
        let mut assemblers = Vec::new();
        for link in links() {
            first_pages.push(first_pages[first_pages.len() - 1] + link.link.pages);
            assemblers.push(FragmentAssembler::new(AssemblerConfig {
                run: config.run,
                pool: index,
                page_words: link.link.page_words,
                sources: vec![link.source],
                crc: link.link.crc,
            }));
        }
        let senders = std::iter::once(UnitId::SUPERVISOR).chain(self.builder_units());
        let inboxes = self.wiring.inboxes(unit, senders);
        let receivers = self.builder_units();
        let outbox = self.wiring.outbox(unit, receivers);
        let buffer =
            FragmentBufferConfig { triggers_max: config.builder.trigger_window };
        let role = Readout::new(ReadoutParts {
            id: unit.to_string(),
            core: ReadoutUnit::new(&config.builder, index, EPOCH),
            assemblers,
            first_pages,
            buffer: FragmentBuffer::new(buffer, &config.builder.sources_of(index)),
            pool: self.pools[usize::from(index)].clone(),
            completions,
            pages_back,
            inboxes,
            outbox,
            block: self.block(&unit.to_string()),
        });
        self.add(unit.to_string(), Box::new(role));
    }

    fn add_event_manager(&mut self) {
        let evm = UnitId::EVENT_MANAGER;
        let senders = std::iter::once(UnitId::SUPERVISOR).chain(self.builder_units());
        let inboxes = self.wiring.inboxes(evm, senders);
        let receivers = self.builder_units();
        let outbox = self.wiring.outbox(evm, receivers);
        let core = EventManager::new(&self.config.builder, EPOCH);
        let block = self.block(&evm.to_string());
        let role = EventManagerRole::new(evm.to_string(), core, inboxes, outbox, block);
        self.add(evm.to_string(), Box::new(role));
    }

    fn add_builders(&mut self) {
        for bu in self.builder_units() {
            let evm = std::iter::once(UnitId::EVENT_MANAGER);
            let senders = evm.clone().chain(self.readout_units()).chain(self.filter_units());
            let inboxes = self.wiring.inboxes(bu, senders);
            let receivers = evm.chain(self.readout_units());
            let outbox = self.wiring.outbox(bu, receivers);
            let tickets = self.filter_units().map(|fu| self.wiring.sender(bu, fu)).collect();
            let role = Builder::new(BuilderParts {
                id: bu.to_string(),
                core: BuilderUnit::new(&self.config.builder, bu.index, EPOCH),
                inboxes,
                outbox,
                tickets,
                block: self.block(&bu.to_string()),
                sources: self.sources,
            });
            self.add(bu.to_string(), Box::new(role));
        }
    }

    fn add_filters(&mut self, writer_bell: &Doorbell) {
        for fu in self.filter_units() {
            let tickets = self.builder_units().map(|bu| self.wiring.receiver(bu, fu)).collect();
            let receivers = self.builder_units();
            let role = FilterUnit::new(FilterUnitParts {
                id: fu.to_string(),
                unit: fu,
                filter: filter(self.config.filter),
                tickets,
                pools: self.pools.clone(),
                writer: self.wiring.sender(fu, WRITER),
                writer_bell: writer_bell.clone(),
                written: self.wiring.receiver(WRITER, fu),
                outbox: self.wiring.outbox(fu, receivers),
                block: self.block(&fu.to_string()),
                sources: self.sources,
                epoch: EPOCH,
            });
            self.add(fu.to_string(), Box::new(role));
        }
    }

    fn add_writer(&mut self, file: RunFile, failed: Arc<AtomicBool>) {
        let tickets = self.filter_units().map(|fu| self.wiring.receiver(fu, WRITER)).collect();
        let written = self.filter_units().map(|fu| self.wiring.sender(WRITER, fu)).collect();
        let role = Writer::new(WriterParts {
            id: WRITER.to_string(),
            run: self.config.run,
            file,
            tickets,
            written,
            pools: self.pools.clone(),
            block: self.block(&WRITER.to_string()),
            failed,
            sources: self.sources,
        });
        self.add(WRITER.to_string(), Box::new(role));
    }
}

/// Makes the trigger node and the rings of its two links.
fn open_trigger_node(
    config: &ChainConfig,
    packet_pool: &PagePool,
    block: Arc<CounterBlock>,
) -> Result<(TriggerRings, TriggerNode), ChainError> {
    let link = LinkConfig { fragment_words_max: 64, ..config.trigger_link.clone() };
    let reply_pool = pool(link.pages, link.page_words)?;
    // A slot for every page, so that returning a page never fails.
    let slots = u64::from(link.pages);
    let (completions, packets) = message_ring(slots, COMPLETION_WORDS)?;
    let (packet_pages_back, pages_back) = message_ring(slots, 2)?;
    let (replies_out, replies) = message_ring(slots, COMPLETION_WORDS)?;
    let (reply_pages_back, reply_pages_in) = message_ring(slots, 2)?;
    let node = TriggerNode::new(TriggerNodeParts {
        id: TRIGGER_NODE.to_string(),
        node: LevelTwoNode::new(LevelTwo::new(&config.menu), config.run),
        packets,
        packet_pages_back,
        packet_pool: packet_pool.clone(),
        return_link: EmulatedLink::new(link, reply_pool.clone(), 0),
        replies: replies_out,
        reply_pages_back: reply_pages_in,
        block,
    });
    let rings = TriggerRings { completions, pages_back, replies, reply_pages_back, reply_pool };
    Ok((rings, node))
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

impl Chain {
    /// Builds the chain and starts its workers; triggers come at once.
    ///
    /// # Errors
    /// [`ChainError`] when memory or threads cannot be had.
    ///
    /// # Panics
    /// If the configuration was not validated.
    pub fn start(config: &ChainConfig, file: RunFile) -> Result<Self, ChainError> {
        let mut assembly = Assembly::new(config)?;
        let writer_bell = Doorbell::in_process();
        let writer_failed = Arc::new(AtomicBool::new(false));
        assembly.add_front_end()?;
        assembly.add_event_manager();
        assembly.add_builders();
        assembly.add_filters(&writer_bell);
        assembly.add_writer(file, writer_failed.clone());
        let Assembly { mut roles, blocks, .. } = assembly;
        let phase = PhaseCell::default();
        let clock = RunClock::start();
        let mut threads = Vec::new();
        for worker in &config.workers {
            let of_worker = worker.roles.iter().filter_map(|id| roles.remove(id)).collect();
            let has_writer = worker.roles.iter().any(|id| *id == WRITER.to_string());
            let waiter = if has_writer {
                Waiter::with_doorbell(worker.wait, writer_bell.clone())
            } else {
                Waiter::new(worker.wait)
            };
            let worker = Worker {
                name: worker.name.clone(),
                core: worker.core,
                waiter,
                roles: of_worker,
            };
            threads.push(worker.spawn(clock.clone(), phase.clone())?);
        }
        assert!(roles.is_empty(), "validated configurations place every role");
        Ok(Self { run: config.run, clock, phase, blocks, threads, writer_failed })
    }

    /// The counters of all roles now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::read(self.clock.now(), &self.blocks)
    }

    /// Whether the source has sent its last trigger and every one of them is decided.
    pub fn is_source_finished(&self) -> bool {
        self.snapshot().role("src0").gauges.idle == 1
    }

    /// Whether the run file can no longer be written.
    pub fn has_writer_failed(&self) -> bool {
        self.writer_failed.load(Ordering::Relaxed)
    }

    /// Offers no more triggers and lets everything pass through.
    pub fn stop(&self) {
        self.phase.advance(Phase::Draining);
    }

    /// Whether nothing is on its way any more; to be asked after [`Chain::stop`].
    pub fn is_drained(&self) -> bool {
        let snapshot = self.snapshot();
        let (mut counts, losses) = (snapshot.counts(), snapshot.losses());
        // Events in the chunk that is not full yet count as stored when the file is closed.
        counts.events_stored =
            counts.filter_accepted.saturating_sub(losses.in_area(LossArea::Store));
        let in_writer = snapshot.kind("wr").map(|role| role.gauges.received).sum::<u64>();
        snapshot.is_idle()
            && in_writer == counts.filter_accepted
            && counts.problems(&losses).is_empty()
    }

    /// Ends the run: in order after [`Chain::is_drained`], else by force, which gives up what is
    /// still on its way and counts it.
    pub fn finish(self) -> ChainOutcome {
        let drained = self.is_drained();
        self.phase.advance(if drained { Phase::Ending } else { Phase::Aborting });
        let ended_at = self.clock.now();
        let mut roles = Vec::new();
        let mut workers = Vec::new();
        for thread in self.threads {
            // A panic of a worker ends the program through the panic hook, so joining succeeds.
            let Ok(mut result) = thread.join() else { continue };
            roles.append(&mut result.roles);
            workers.push(result);
        }
        if !drained {
            settle(&mut roles, &self.clock);
        }
        let results = roles.into_iter().map(|role| role.finish(self.clock.now())).collect();
        ChainOutcome::collect(self.run, results, workers, ended_at, drained)
    }
}
