//! Everything that a chain is built from: the configurations of its cores and where they run.
//!
//! Typed values only; files, units and places in texts are read by the program. The rules between
//! parts are in `rules`.

mod rules;

use livetime_builder::{BuildMode, BuilderConfig, ShapingConfig};
use livetime_readout::LinkConfig;
use livetime_shm::{TscClock, WaitStrategy};
use livetime_source::{RecordedEvents, SourceConfig};
use livetime_store::{FilePlan, WriterLimits};
use livetime_timing::SpillConfig;
use livetime_trigger::{
    AcceptAll, EventFilter, EventMenu, EventMenuConfig, FirstStepConfig, MassWindow,
    MassWindowConfig, Menu, MergerConfig, StageClock, SupervisorConfig, UserFilter,
};
use livetime_wire::{RunNumber, SourceId, TaiNs, UnitId, UnitKind};

pub use self::rules::{EVENT_LIMIT, FRAGMENT_LIMIT, ROLE_PLACEMENT, SHARED_PAGES};
use crate::builder_transport::BuilderTransport;
use crate::front_end_server::{AddressError, FrontEndServer, FrontEndServerConfig};
use crate::link::LinkTransport;
use crate::packet_log::PacketLogConfig;
use crate::python_filter::PythonConfig;
use crate::role::front_end::LinkFault;
use crate::run_clock::RunClock;

/// One data link.
#[derive(Debug, Clone)]
pub struct DataLinkConfig {
    /// The source at its far end.
    pub source: SourceId,
    /// The readout unit at its near end.
    pub unit: u16,
    /// Its receiver.
    pub link: LinkConfig,
    /// What its fragments travel over.
    pub transport: LinkTransport,
}

/// What filter units run.
#[derive(Debug, Clone, PartialEq)]
pub enum FilterConfig {
    /// Every event passes.
    AcceptAll,
    /// The dimuon mass window.
    MassWindow(MassWindowConfig),
    /// The Level-3 menu.
    Menu(Box<EventMenuConfig>),
    /// A chain of stages that the program was built with.
    User(Box<UserFilter>),
    /// A function in Python, in an interpreter beside each filter unit.
    Python(Box<PythonConfig>),
}

impl FilterConfig {
    /// A filter of this kind that judges events one by one; `None` for one of batches.
    pub fn to_filter(&self) -> Option<Box<dyn EventFilter>> {
        match self {
            Self::AcceptAll => Some(Box::new(AcceptAll)),
            Self::MassWindow(window) => Some(Box::new(MassWindow::new(*window))),
            Self::Menu(menu) => {
                let clock = Box::new(StageTicks(TscClock::calibrate()));
                Some(Box::new(EventMenu::new((**menu).clone(), clock)))
            }
            Self::User(filter) => {
                let clock = Box::new(StageTicks(TscClock::calibrate()));
                Some(filter.to_filter(clock))
            }
            Self::Python(_) => None,
        }
    }
}

/// The clock of the stages of a filter: the processor's counter.
struct StageTicks(TscClock);

impl StageClock for StageTicks {
    fn now_ns(&mut self) -> u64 {
        self.0.ticks_to_ns(self.0.ticks())
    }
}

/// One worker thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerConfig {
    /// Name of its thread.
    pub name: String,
    /// The core it is pinned to, if any.
    pub core: Option<usize>,
    /// How it waits when there is nothing to do.
    pub wait: WaitStrategy,
    /// Ids of its roles in the order in which they are polled.
    pub roles: Vec<String>,
}

/// A whole chain in one process.
#[derive(Debug, Clone)]
pub struct ChainConfig {
    /// Run number.
    pub run: RunNumber,
    /// Triggers, events and fragments.
    pub source: SourceConfig,
    /// Events to replay instead of generated ones.
    pub recorded: Option<RecordedEvents>,
    /// Where front-ends of users send their fragments, of which the events then are.
    pub front_ends: Option<FrontEndServerConfig>,
    /// Receiver of the trigger link, and of the return link.
    pub trigger_link: LinkConfig,
    /// The data links, in the order of `source.data_links`.
    pub data_links: Vec<DataLinkConfig>,
    /// Decision nodes, 1 to 16, which get triggers in turn. Prescales are counted by each.
    pub trigger_nodes: u16,
    /// Inputs of the merger in front of each node; with 1 there is none and packets come whole.
    pub merger: MergerConfig,
    /// The Level-2 menu.
    pub menu: Menu,
    /// The supervisor.
    pub supervisor: SupervisorConfig,
    /// The builder; its readout units follow from the data links.
    pub builder: BuilderConfig,
    /// What carries messages and payload between readout units, event manager and builder units.
    pub transport: BuilderTransport,
    /// Whether the event manager is on another host than the front-ends, so that the supervisor's
    /// accepts go to it as the builder's messages do.
    pub event_manager_apart: bool,
    /// Indices of readout units on other hosts than the front-ends, so that the supervisor's decisions
    /// go to them over streams.
    pub readout_apart: Vec<u16>,
    /// What carries whole events from builder units to filter units.
    pub filter_transport: BuilderTransport,
    /// What filter units run.
    pub filter: FilterConfig,
    /// What they ask of an event on its first step, where events are built in two.
    pub first_step: FirstStepConfig,
    /// The run file.
    pub store: WriterLimits,
    /// Which files it consists of.
    pub files: FilePlan,
    /// Where trigger packets are recorded with their decisions, if they are.
    pub packets: Option<PacketLogConfig>,
    /// The threads.
    pub workers: Vec<WorkerConfig>,
    /// Links that go down during the run.
    pub faults: Vec<LinkFault>,
    /// The spill structure, if there is one.
    pub spill: Option<ChainSpill>,
}

/// A spill structure around a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainSpill {
    /// Gate, triggers and ramps.
    pub spill: SpillConfig,
    /// Index of the data link that carries the read-back instead of detector data, if any.
    pub read_back: Option<usize>,
    /// TAI at which the time of the run is 0, set by whoever starts a run that is aligned to TAI;
    /// 0 for the others, whose turns begin with them whenever that is.
    pub origin: TaiNs,
}

impl ChainConfig {
    /// The clock of a run whose start is at a certain time, which one that is aligned to TAI has.
    pub fn aligned_clock(&self) -> Option<RunClock> {
        let origin = self.spill.as_ref()?.origin;
        self.is_aligned().then(|| RunClock::started_at_tai(origin))
    }

    /// Whether the run has a certain start, from which on triggers are taken.
    pub fn is_aligned(&self) -> bool {
        let spill = self.spill.as_ref();
        spill.is_some_and(|spill| spill.origin > TaiNs(0))
    }

    /// The sources with detector data, over which an event's objects are spread: all but the one of
    /// the read-back.
    pub fn detector_sources(&self) -> Vec<SourceId> {
        let read_back = self.spill.as_ref().and_then(|spill| spill.read_back);
        let links = self.source.data_links.iter().enumerate();
        let detectors = links.filter(|(link, _)| Some(*link) != read_back);
        detectors.map(|(_, source)| *source).collect()
    }

    /// The sockets of front-ends of users, if events are theirs.
    pub(crate) fn front_end_server(&self) -> Option<Result<FrontEndServer, AddressError>> {
        let words = (self.source.fragment.bytes_max.0 / 4) as usize;
        let server = self.front_ends.as_ref()?;
        let sources = self.detector_sources();
        Some(FrontEndServer::bind(server, self.run, &sources, words))
    }

    /// Whether fragments come from files, so that triggers must be their events.
    pub fn is_replayed(&self) -> bool {
        let mut links = self.data_links.iter();
        links.any(|link| matches!(link.transport, LinkTransport::File { .. }))
    }

    /// Whether readout units have a link to the event manager: where it tells them to send, or where
    /// it keeps the barrier of their phases.
    pub fn readout_meets_manager(&self) -> bool {
        let is_pushed = self.builder.mode == BuildMode::Push;
        let shaping = self.builder.shaping.as_ref();
        let has_barrier = shaping.is_some_and(ShapingConfig::is_linear);
        is_pushed || has_barrier && self.transport.is_network()
    }

    /// Ids of all roles, in the order of the data.
    pub fn role_ids(&self) -> Vec<String> {
        let units = |kind: UnitKind, count: u16| {
            (0..count).map(move |index| UnitId { kind, index }.to_string())
        };
        let mut ids = vec!["src0".to_owned()];
        ids.extend(units(UnitKind::Trigger, self.trigger_nodes));
        ids.extend(units(
            UnitKind::Readout,
            self.builder.readout_units.len() as u16,
        ));
        ids.push(UnitId::EVENT_MANAGER.to_string());
        ids.extend(units(UnitKind::Builder, self.builder.builder_units));
        ids.extend(units(UnitKind::Filter, self.builder.filter_units));
        ids.extend(units(UnitKind::Writer, self.builder.writers.max(1)));
        ids
    }

    /// A placement that suits `cores` cores: the front-end alone, the units behind it together or
    /// apart as cores allow, and the writer, which waits for the disk, on its own and asleep.
    pub fn default_workers(&self, cores: usize) -> Vec<WorkerConfig> {
        let ids = self.role_ids();
        let of = |prefixes: &[&str]| -> Vec<String> {
            let is_of = |id: &String| prefixes.iter().any(|prefix| id.starts_with(prefix));
            ids.iter().filter(|id| is_of(id)).cloned().collect()
        };
        let groups: Vec<(&str, Vec<String>)> = if cores >= 8 {
            vec![
                ("source", of(&["src"])),
                ("trigger", of(&["trg"])),
                ("readout", of(&["ru"])),
                ("builder", of(&["evm", "bu"])),
                ("filter", of(&["fu"])),
            ]
        } else {
            vec![
                ("source", of(&["src"])),
                ("units", of(&["trg", "ru", "evm", "bu", "fu"])),
            ]
        };
        let wait = WaitStrategy::Adaptive;
        let mut workers: Vec<WorkerConfig> = groups
            .into_iter()
            .map(|(name, roles)| WorkerConfig {
                name: name.to_owned(),
                core: None,
                wait,
                roles,
            })
            .collect();
        workers.push(WorkerConfig {
            name: "writer".to_owned(),
            core: None,
            wait: WaitStrategy::Block,
            roles: of(&["wr"]),
        });
        workers
    }
}
