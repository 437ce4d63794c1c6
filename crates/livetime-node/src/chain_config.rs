//! Everything that a chain is built from: the configurations of its cores and where they run.
//!
//! Typed values only; files, units and places in texts are read by the program. The rules between
//! parts (pages against credits, links against readout units) are checked here.

use std::collections::BTreeMap;

use livetime_builder::problem_code::POOL_TOO_SMALL;
use livetime_builder::{BuildMode, BuilderConfig, PageDemand, ShapingConfig};
use livetime_readout::LinkConfig;
use livetime_shm::{TscClock, WaitStrategy};
use livetime_source::{RecordedEvents, SourceConfig};
use livetime_store::problem_code::OUTPUT_LIMIT;
use livetime_store::{FilePlan, WriterLimits};
use livetime_timing::SpillConfig;
use livetime_trigger::{
    AcceptAll, EventFilter, EventMenu, EventMenuConfig, FirstStepConfig, MassWindow,
    MassWindowConfig, Menu, MergerConfig, StageClock, SupervisorConfig, UserFilter,
};
use livetime_wire::event::EventHeader;
use livetime_wire::message_datagram::PAYLOAD_WORDS_MAX;
use livetime_wire::{ByteSize, Problem, ProblemCode, RunNumber, SourceId, TaiNs, UnitId, UnitKind};

use crate::builder_transport::BuilderTransport;
use crate::chain_plan::event_buffer_bytes;
use crate::link::LinkTransport;
use crate::packet_log::PacketLogConfig;
use crate::python_filter::PythonConfig;
use crate::role::front_end::LinkFault;
use crate::run_clock::RunClock;

/// Links of one readout unit must have pages of one size.
pub const MIXED_PAGES: ProblemCode = ProblemCode::new(
    "L0201",
    "links of one readout unit have pages of different sizes",
);
/// Page size that memory cannot be divided into.
pub const PAGE_ALIGNMENT: ProblemCode =
    ProblemCode::new("L0202", "page size is not a multiple of 64 B");
/// Fragments of the source that a link does not take.
pub const FRAGMENT_LIMIT: ProblemCode = ProblemCode::new(
    "L0203",
    "link takes shorter fragments than the source sends",
);
/// Trigger packets that do not fit into a page of the trigger link.
pub const PACKET_PAGE: ProblemCode =
    ProblemCode::new("L0204", "trigger packet does not fit into a page");
/// Pages that do not go into datagrams between the units of the event builder.
pub const DATAGRAM_PAGES: ProblemCode = ProblemCode::new(
    "L0205",
    "page does not go into a datagram of the event builder",
);
/// A receive buffer in which the fragments of one event overflow.
pub const RECEIVE_BUFFER: ProblemCode = ProblemCode::new(
    "L0206",
    "receive buffer does not hold one event of a readout unit",
);
/// Traffic shaping between units that share memory.
pub const SHAPING_IN_MEMORY: ProblemCode =
    ProblemCode::new("L0207", "traffic shaping without a network");
/// Events of the source that the run file does not take.
pub const EVENT_LIMIT: ProblemCode = ProblemCode::new(
    "S0104",
    "run file takes smaller events than the source sends",
);
/// More spinning workers than cores.
pub const SPINNING_WORKERS: ProblemCode =
    ProblemCode::new("R0101", "more spinning workers than cores");
/// A role that runs nowhere, twice, or does not exist.
pub const ROLE_PLACEMENT: ProblemCode = ProblemCode::new("R0102", "roles and workers do not match");
/// A core that this process may not use.
pub const WORKER_CORE: ProblemCode =
    ProblemCode::new("R0103", "worker on a core that is not there");
/// A worker without a name that its thread can have.
pub const WORKER_NAME: ProblemCode = ProblemCode::new("R0105", "worker has no name of its own");

/// Bytes that the name of a worker may have.
const WORKER_NAME_BYTES_MAX: usize = 64;

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
        let spill = self.spill.as_ref()?;
        (spill.origin > TaiNs(0)).then(|| RunClock::started_at_tai(spill.origin))
    }

    /// The sources with detector data, over which an event's objects are spread: all but the one of
    /// the read-back.
    pub fn detector_sources(&self) -> Vec<SourceId> {
        let read_back = self.spill.as_ref().and_then(|spill| spill.read_back);
        let links = self.source.data_links.iter().enumerate();
        let detectors = links.filter(|(link, _)| Some(*link) != read_back);
        detectors.map(|(_, source)| *source).collect()
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

    /// Problems between the parts; those within a part are found by its own `validate`.
    /// `trigger_path` is the key of the trigger link, `link_path` gives that of a data link by its
    /// index.
    pub fn validate(
        &self,
        cores: &[usize],
        trigger_path: &str,
        link_path: impl Fn(usize) -> String,
    ) -> Vec<Problem> {
        let mut problems = self.check_pages(&link_path);
        for (index, link) in self.data_links.iter().enumerate() {
            problems.extend(self.check_data_link(link, &link_path(index)));
        }
        problems.extend(self.check_trigger_link(trigger_path));
        problems.extend(self.check_receive_buffer());
        problems.extend(self.check_shaping());
        problems.extend(self.check_store());
        problems.extend(self.check_output());
        problems.extend(self.check_workers(cores));
        problems
    }

    fn check_pages(&self, link_path: &impl Fn(usize) -> String) -> Vec<Problem> {
        let mut problems = Vec::new();
        for unit in 0..self.builder.readout_units.len() {
            let links: Vec<(usize, &DataLinkConfig)> = (self.data_links.iter().enumerate())
                .filter(|(_, link)| usize::from(link.unit) == unit)
                .collect();
            let Some((first, reference)) = links.first() else {
                continue;
            };
            for (index, link) in &links {
                let (found, expected) = (link.link.page_words, reference.link.page_words);
                if found != expected {
                    let size = |words: u32| exact_size(ByteSize(u64::from(words) * 4));
                    let problem = Problem::new(
                        MIXED_PAGES,
                        format!("{}.page", link_path(*index)),
                        size(found),
                        format!("{}, as the other links of ru{unit}", size(expected)),
                        "give all links of a readout unit one page size: they share its pool",
                    );
                    let first = format!("{}.page", link_path(*first));
                    problems.push(problem.with_related(first, "first used here"));
                }
            }
            problems.extend(self.check_demand(&links, link_path));
        }
        problems.extend(self.check_order(link_path));
        problems
    }

    /// Whether the pages of each link allow decisions out of order. Trigger nodes side by side may have
    /// an event get its credit before older ones, which then wait for it while their fragments lie
    /// before its own on each link: as many as there are Level-2 buffers, and they may be the longest.
    fn check_order(&self, link_path: &impl Fn(usize) -> String) -> Option<Problem> {
        if self.trigger_nodes < 2 {
            return None;
        }
        let longest = self.source.fragment.bytes_max.0;
        let buffers = u64::from(self.supervisor.l2_buffers);
        let missing = |(index, DataLinkConfig { link, .. }): (usize, &DataLinkConfig)| {
            let page_bytes = u64::from(link.page_words) * 4;
            let apart = u64::from(link.request_depth) + u64::from(link.xon_above);
            let needed = buffers * longest.div_ceil(page_bytes.max(1)) + apart;
            (u64::from(link.pages) < needed).then_some((index, link.pages, needed))
        };
        let mut links = self.data_links.iter().enumerate();
        let (index, pages, needed) = links.find_map(missing)?;
        let problem = Problem::new(
            POOL_TOO_SMALL,
            "trigger.nodes",
            self.trigger_nodes,
            format!("1, or `pages` of at least {needed}"),
            "raise `pages` of the links, or lower `bytes_max` of the fragments; `livetime explain \
             B0107` says why",
        );
        let label = format!(
            "{pages} pages here, {needed} needed: {buffers} Level-2 buffers x {} of the longest fragment, \
             and those posted and for XOFF",
            ByteSize(longest)
        );
        Some(problem.with_related(format!("{}.pages", link_path(index)), label))
    }

    /// Where datagrams carry payload, each takes a page, from its readout unit into one of its builder
    /// unit.
    fn check_datagram(&self, link: &DataLinkConfig, path: &str) -> Option<Problem> {
        let (words, of_all) = (link.link.page_words, self.data_links[0].link.page_words);
        if !self.transport.is_udp() || (words as usize <= PAYLOAD_WORDS_MAX && words == of_all) {
            return None;
        }
        let size = |words: u32| exact_size(ByteSize(u64::from(words) * 4));
        let (allowed, help) = match words == of_all {
            // Pages are divided into parts of 64 bytes.
            true => (
                format!("at most {} B", PAYLOAD_WORDS_MAX / 16 * 64),
                "choose \"32 KiB\" or less, or `transport = \"tcp\"` under `[builder]`",
            ),
            false => (
                format!("{}, as the other data links", size(of_all)),
                "give all data links one page size, or set `transport = \"tcp\"` under `[builder]`",
            ),
        };
        let key = format!("{path}.page");
        let problem = Problem::new(DATAGRAM_PAGES, key, size(words), allowed, help);
        Some(problem.with_related("builder.transport", "the transport of the payload"))
    }

    /// A builder unit that misses a fragment asks a readout unit for all that it has of the event: where
    /// these overflow, the last ones never come.
    fn check_receive_buffer(&self) -> Option<Problem> {
        let BuilderTransport::Udp {
            receive_buffer_bytes: found @ 1..,
        } = self.transport
        else {
            return None;
        };
        let least = ByteSize(event_buffer_bytes(self).next_multiple_of(1 << 10));
        (found < least.0).then(|| {
            Problem::new(
                RECEIVE_BUFFER,
                "builder.receive_buffer",
                exact_size(ByteSize(found)),
                format!(
                    "at least {}, for the largest fragments of one event",
                    exact_size(least)
                ),
                "leave the key out: the buffers are then as large as the credits need",
            )
        })
    }

    /// In shared memory payload stays where the links have put it: there is no traffic to shape.
    fn check_shaping(&self) -> Option<Problem> {
        let shaping = self.builder.shaping.as_ref();
        shaping
            .filter(|_| !self.transport.is_network())
            .map(|shaping| {
                Problem::new(
                    SHAPING_IN_MEMORY,
                    "builder.shaping",
                    format!("\"{}\"", shaping.kind()),
                    "\"none\" with `transport = \"shm\"`, where fragments do not move",
                    "set `transport` to \"tcp\" or \"udp\", or leave `shaping` out",
                )
                .with_related("builder.transport", "what carries the payload")
            })
    }

    fn check_data_link(&self, link: &DataLinkConfig, path: &str) -> Vec<Problem> {
        let mut problems: Vec<Problem> = check_alignment(&link.link, path).into_iter().collect();
        problems.extend(self.check_datagram(link, path));
        let (sent, taken) = (
            self.source.fragment.bytes_max,
            ByteSize(u64::from(link.link.fragment_words_max) * 4),
        );
        if taken < sent {
            problems.push(Problem::new(
                FRAGMENT_LIMIT,
                format!("{path}.fragment_max"),
                exact_size(taken),
                format!(
                    "at least {}, the source's `fragment.bytes_max`",
                    exact_size(sent)
                ),
                "raise `fragment_max` or `page`, or lower `bytes_max`: what is longer is lost",
            ));
        }
        problems
    }

    fn check_trigger_link(&self, path: &str) -> Vec<Problem> {
        let link = &self.trigger_link;
        let mut problems: Vec<Problem> = check_alignment(link, path).into_iter().collect();
        let most = link.page_words.min(link.fragment_words_max);
        let packet = self.source.packet_words_max;
        if packet as u64 > u64::from(most) {
            let problem = Problem::new(
                PACKET_PAGE,
                "trigger.packet_words_max",
                packet,
                format!("at most {most}, the words of a page of the trigger link"),
                "raise `page` of the link to trg0, and its `fragment_max` if it is set: packets above a \
                 lower limit lose items",
            );
            problems.push(problem.with_related(format!("{path}.page"), "page set here"));
        }
        problems
    }

    /// Whether the run file takes the largest event: the longest fragment of each link.
    fn check_store(&self) -> Option<Problem> {
        let links = self.data_links.len();
        let header_bytes = 4 * EventHeader::words(links, 0) as u64;
        let fragment_bytes = self.source.fragment.bytes_max.0;
        let largest = ByteSize(header_bytes + links as u64 * fragment_bytes);
        let taken = ByteSize(self.store.event_bytes_max as u64);
        (taken < largest).then(|| {
            Problem::new(
                EVENT_LIMIT,
                "store.event_max",
                exact_size(taken),
                format!(
                    "at least {}: a fragment of {fragment_bytes} B on each link",
                    exact_size(largest)
                ),
                "raise it, or lower `bytes_max` of the fragments: what is larger is not stored",
            )
        })
    }

    /// Whether a writer's share of the output budget takes the largest event.
    fn check_output(&self) -> Option<Problem> {
        let (budget, event) = (self.store.output.bytes_per_s, self.store.event_bytes_max);
        let writers = u64::from(self.builder.writers.max(1));
        let is_short = budget > 0 && writers > 1 && budget / writers < event as u64;
        is_short.then(|| {
            Problem::new(
                OUTPUT_LIMIT,
                "store.output_per_second",
                exact_size(ByteSize(budget)),
                format!(
                    "0, or at least {} for {writers} writers",
                    exact_size(ByteSize(event as u64 * writers))
                ),
                "raise it, or lower store.event_max: one event of each writer must fit into a second",
            )
            .with_related("store.writers", "the writers that share it")
        })
    }

    /// Whether the links' pages cover the credits. The smallest link counts for all: an event needs
    /// pages on each of its links.
    fn check_demand(
        &self,
        links: &[(usize, &DataLinkConfig)],
        link_path: &impl Fn(usize) -> String,
    ) -> Option<Problem> {
        let (index, link) = links.iter().min_by_key(|(_, link)| link.link.pages)?;
        let page_bytes = u64::from(link.link.page_words) * 4;
        let demand = PageDemand {
            page: ByteSize(page_bytes),
            pages_per_fragment: self
                .source
                .fragment
                .bytes_mean
                .0
                .div_ceil(page_bytes.max(1))
                .try_into()
                .unwrap_or(u32::MAX),
            l2_buffers: u32::from(self.supervisor.l2_buffers),
            posted_pages: link.link.request_depth,
            xoff_reserve: link.link.xon_above,
        };
        let pool_path = format!("{}.pages", link_path(*index));
        demand.check(
            &self.builder,
            "builder",
            1,
            u64::from(link.link.pages),
            &pool_path,
        )
    }

    fn check_workers(&self, cores: &[usize]) -> Vec<Problem> {
        let mut problems = Vec::new();
        let spinning = self
            .workers
            .iter()
            .filter(|worker| worker.wait == WaitStrategy::Spin)
            .count();
        if spinning > 0 && self.workers.len() > cores.len() {
            problems.push(Problem::new(
                SPINNING_WORKERS,
                "workers.wait",
                format!(
                    "\"spin\" with {} workers on {} cores",
                    self.workers.len(),
                    cores.len()
                ),
                "\"adaptive\", or no more workers than cores",
                "set `wait = \"adaptive\"`: a spinning worker keeps the others from their core",
            ));
        }
        for (index, worker) in self.workers.iter().enumerate() {
            if let Some(core) = worker.core.filter(|core| !cores.contains(core)) {
                problems.push(Problem::new(
                    WORKER_CORE,
                    format!("workers.worker[{index}].core"),
                    core,
                    format!("{cores:?}"),
                    "choose a core that this process may run on, or leave `core` out",
                ));
            }
        }
        problems.extend(self.check_worker_names());
        problems.extend(self.check_roles());
        problems
    }

    /// Whether each worker has a name that a thread can have, and no other worker has: it is what
    /// people find the thread by.
    fn check_worker_names(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (index, worker) in self.workers.iter().enumerate() {
            let key = |index: usize| format!("workers.worker[{index}].name");
            let name = &worker.name;
            let is_name = (1..=WORKER_NAME_BYTES_MAX).contains(&name.len())
                && !name.contains(char::is_control);
            let mut before = self.workers[..index].iter();
            let first = before.position(|other| other.name == *name);
            if is_name && first.is_none() {
                continue;
            }
            let allowed = format!(
                "1 to {WORKER_NAME_BYTES_MAX} bytes of text without control characters, which no other \
                 worker has"
            );
            let help = "give the worker a short name of its own, or leave `name` out";
            let mut problem = Problem::new(
                WORKER_NAME,
                key(index),
                format!("\"{}\"", name.escape_debug()),
                allowed,
                help,
            );
            problem.related = first.map(|first| (key(first), "first used here".to_owned()));
            problems.push(problem);
        }
        problems
    }

    /// Whether each role runs in exactly one worker.
    fn check_roles(&self) -> Vec<Problem> {
        let ids = self.role_ids();
        let mut places: BTreeMap<&str, usize> = ids.iter().map(|id| (id.as_str(), 0)).collect();
        let mut strangers = Vec::new();
        for role in self.workers.iter().flat_map(|worker| &worker.roles) {
            match places.get_mut(role.as_str()) {
                Some(count) => *count += 1,
                None => strangers.push(role.as_str()),
            }
        }
        let in_order = ids.iter().map(String::as_str);
        let nowhere = in_order.clone().filter(|id| places[id] == 0).collect();
        let twice = in_order.filter(|id| places[id] > 1).collect();
        let mut problems = Vec::new();
        for (roles, place, allowed, help) in [
            (
                nowhere,
                "in no worker",
                "each role in exactly one worker",
                "add them to a worker, or leave out `[[workers.worker]]` altogether",
            ),
            (
                twice,
                "in several places",
                "each role in exactly one worker",
                "leave each of them in one worker",
            ),
            (
                strangers,
                "not in this chain",
                "the roles that `livetime check` lists for the chain without workers",
                "remove them, or add the units",
            ),
        ] {
            if !roles.is_empty() {
                let found = format!("{} {place}", some_of(&roles));
                let key = "workers.worker";
                problems.push(Problem::new(ROLE_PLACEMENT, key, found, allowed, help));
            }
        }
        problems
    }
}

/// A size in the largest unit of which it is a whole number: one that is refused is not to look like
/// one that is allowed.
pub fn exact_size(size: ByteSize) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let whole = units
        .into_iter()
        .find(|(_, bytes)| size.0 >= *bytes && size.0.is_multiple_of(*bytes));
    let (unit, bytes) = whole.unwrap_or(("B", 1));
    format!("{} {unit}", size.0 / bytes)
}

fn check_alignment(link: &LinkConfig, path: &str) -> Option<Problem> {
    if link.page_words.is_multiple_of(16) {
        return None;
    }
    Some(Problem::new(
        PAGE_ALIGNMENT,
        format!("{path}.page"),
        format!("{} B", u64::from(link.page_words) * 4),
        "a multiple of 64 B",
        "choose a power of two, such as \"4 KiB\"",
    ))
}

/// The first of a list of roles, and how many more there are.
fn some_of(roles: &[&str]) -> String {
    const SHOWN: usize = 8;
    let shown = roles[..roles.len().min(SHOWN)].join(" ");
    match roles.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use livetime_builder::ShapingPace;
    use livetime_builder::builder_config::TRIGGERS_HELD_MAX;
    use livetime_shm::ring::MAX_SLOTS;
    use livetime_source::SourceConfig;
    use livetime_trigger::MenuConfig;

    use super::*;
    use crate::chain_plan::{ChainPlan, pages_bytes};

    const CORES: [usize; 2] = [0, 1];

    /// Two readout units with two links each, and the default workers.
    fn config() -> ChainConfig {
        let link = |index: u16| DataLinkConfig {
            source: SourceId(u32::from(index)),
            unit: index % 2,
            link: LinkConfig::default(),
            transport: LinkTransport::Emulated,
        };
        let sources = |unit| vec![SourceId(unit), SourceId(unit + 2)];
        let mut config = ChainConfig {
            run: RunNumber(1),
            source: SourceConfig::default(),
            recorded: None,
            trigger_link: LinkConfig::default(),
            data_links: (0..4).map(link).collect(),
            trigger_nodes: 1,
            merger: MergerConfig::NONE,
            menu: Menu::new_checked(MenuConfig::default(), "trigger").expect("it is good"),
            supervisor: SupervisorConfig::default(),
            builder: BuilderConfig {
                readout_units: vec![sources(0), sources(1)],
                ..BuilderConfig::default()
            },
            transport: BuilderTransport::Shm,
            event_manager_apart: false,
            readout_apart: Vec::new(),
            filter_transport: BuilderTransport::Shm,
            filter: FilterConfig::AcceptAll,
            first_step: FirstStepConfig::default(),
            store: WriterLimits::default(),
            files: FilePlan::default(),
            packets: None,
            workers: Vec::new(),
            faults: Vec::new(),
            spill: None,
        };
        config.workers = config.default_workers(CORES.len());
        config
    }

    fn problems(config: &ChainConfig) -> Vec<(&'static str, String)> {
        let problems = config.validate(&CORES, "trigger_link", |index| format!("link[{index}]"));
        let problems = problems.into_iter();
        problems.map(|p| (p.code.code, p.path)).collect()
    }

    #[test]
    fn chain_of_default_parts_has_no_problem() {
        assert_eq!(problems(&config()), []);
    }

    #[test]
    fn each_contradiction_between_parts_is_one_problem_at_its_key() {
        type Change = fn(&mut ChainConfig);
        let cases: [(&str, &str, Change); 12] = [
            ("L0201", "link[2].page", |c| {
                c.data_links[2].link.page_words = 2048;
            }),
            ("L0202", "trigger_link.page", |c| {
                c.trigger_link.page_words = 1000
            }),
            ("L0203", "link[3].fragment_max", |c| {
                c.data_links[3].link.fragment_words_max = 4095;
            }),
            ("L0204", "trigger.packet_words_max", |c| {
                c.source.packet_words_max = 1025;
            }),
            ("L0204", "trigger.packet_words_max", |c| {
                c.trigger_link.fragment_words_max = 509;
            }),
            ("S0104", "store.event_max", |c| {
                c.store.event_bytes_max = 4 * 16 * 1024;
            }),
            ("B0107", "builder.credits", |c| {
                c.data_links[1].link.pages = 242
            }),
            ("B0107", "trigger.nodes", |c| {
                c.trigger_nodes = 2;
                c.workers[0].roles.push("trg1".to_owned());
                c.source.fragment.bytes_max = ByteSize(256 << 10);
                c.store.event_bytes_max = 16 << 20;
                let links = c.data_links.iter_mut();
                links.for_each(|link| link.link.fragment_words_max = 64 << 10);
                c.data_links[2].link.pages = 250;
            }),
            ("R0101", "workers.wait", |c| {
                c.workers[1].wait = WaitStrategy::Spin
            }),
            ("R0103", "workers.worker[0].core", |c| {
                c.workers[0].core = Some(2)
            }),
            ("R0102", "workers.worker", |c| c.builder.builder_units = 200),
            ("R0102", "workers.worker", |c| {
                c.workers[0].roles.push("ts0".to_owned());
            }),
        ];
        for (code, key, change) in cases {
            let mut config = config();
            change(&mut config);
            if code == "R0102" && config.builder.builder_units > 2 {
                // Enough pages, so that only the roles are wrong.
                let links = config.data_links.iter_mut();
                links.for_each(|link| link.link.pages = 4096);
            }
            assert_eq!(problems(&config), [(code, key.to_owned())]);
        }
    }

    #[test]
    fn pages_that_do_not_go_into_datagrams_are_named() {
        let over_udp = |change: fn(&mut ChainConfig)| {
            let mut config = config();
            change(&mut config);
            let before = problems(&config);
            config.transport = BuilderTransport::Udp {
                receive_buffer_bytes: 0,
            };
            (before, problems(&config))
        };
        let all = |index: usize| ("L0205", format!("link[{index}].page"));
        let (before, after) = over_udp(|config| {
            config.source.fragment.bytes_mean = ByteSize(100);
            for link in &mut config.data_links {
                link.link.page_words = (64 << 10) / 4;
            }
        });
        assert_eq!((before, after), (vec![], (0..4).map(all).collect()));
        let (before, after) = over_udp(|config| {
            config.data_links[1].link.page_words = 2048;
            config.data_links[3].link.page_words = 2048;
        });
        assert_eq!((before, after), (vec![], vec![all(1), all(3)]));
        let mut small = config();
        small.transport = BuilderTransport::Udp {
            receive_buffer_bytes: 32 << 10,
        };
        assert_eq!(
            problems(&small),
            [("L0206", "builder.receive_buffer".to_owned())]
        );
        let largest = |config: &mut ChainConfig| {
            for link in &mut config.data_links {
                link.link.page_words = 65_344 / 4;
            }
        };
        assert_eq!(over_udp(largest), (vec![], vec![]));
    }

    #[test]
    fn workers_have_names_that_threads_can_have_and_each_its_own() {
        let named = |name: &str| {
            let mut config = config();
            config.workers[1].name = name.to_owned();
            let problems = config.check_worker_names();
            problems.into_iter().map(|p| (p.path, p.found)).collect()
        };
        let refused = |name: &str, found: &str| {
            let expected = ("workers.worker[1].name".to_owned(), found.to_owned());
            assert_eq!(named(name), [expected], "{name:?}");
        };
        refused("", "\"\"");
        refused("a\0b", "\"a\\0b\"");
        refused("a\nb", "\"a\\nb\"");
        refused(&"x".repeat(65), &format!("\"{}\"", "x".repeat(65)));
        refused("source", "\"source\"");
        let good: Vec<(String, String)> = named("größe 測試");
        assert_eq!(good, []);
        assert_eq!(named(&"x".repeat(64)), good);
    }

    #[test]
    fn sizes_that_are_refused_are_not_rounded() {
        for (bytes, text) in [
            (0, "0 B"),
            (16_385, "16385 B"),
            (16 << 10, "16 KiB"),
            (1_572_864, "1536 KiB"),
            (3 << 30, "3 GiB"),
        ] {
            assert_eq!(exact_size(ByteSize(bytes)), text);
        }
    }

    #[test]
    fn rings_of_the_largest_window_and_of_all_credits_can_be_made() {
        let mut config = config();
        config.builder.trigger_window = TRIGGERS_HELD_MAX;
        config.builder.history = TRIGGERS_HELD_MAX;
        let plan = ChainPlan::new(&config);
        let most = plan.rings.iter().map(|ring| ring.config.slots).max();
        assert_eq!(most, Some(MAX_SLOTS));
    }

    #[test]
    fn the_memory_of_a_run_is_that_of_its_pages_and_rings() {
        let mut config = config();
        let of_pages = |config: &ChainConfig| {
            let plan = ChainPlan::new(config);
            let pools = plan.pools.iter().map(|pool| pool.config);
            let pages = pools.map(|pool| u64::from(pool.pages) * u64::from(pool.page_bytes));
            let pages: u64 = pages.sum();
            assert_eq!(pages_bytes(config), pages);
            assert!(plan.memory_bytes(|_| true) > pages, "rings come on top");
            assert_eq!(plan.memory_bytes(|_| false), 0);
            assert!(plan.memory_bytes(|role| role == "ru0") < plan.memory_bytes(|_| true));
            pages
        };
        let in_memory = of_pages(&config);
        assert_eq!(
            in_memory,
            4 * 1024 * 4096,
            "1024 pages for each of four links"
        );
        config.transport = BuilderTransport::Tcp { congestion: None };
        let over_tcp = of_pages(&config);
        config.filter_transport = BuilderTransport::Tcp { congestion: None };
        let events_over_tcp = of_pages(&config);
        config.transport = BuilderTransport::Udp {
            receive_buffer_bytes: 0,
        };
        assert!(in_memory < over_tcp && over_tcp < events_over_tcp);
        assert!(of_pages(&config) > in_memory);
    }

    #[test]
    fn what_does_not_move_is_not_shaped() {
        let mut config = config();
        for pace in [ShapingPace::default(), ShapingPace::BARRIER] {
            config.builder.shaping = Some(ShapingConfig {
                pace,
                ..ShapingConfig::default()
            });
            assert_eq!(problems(&config), [("L0207", "builder.shaping".to_owned())]);
        }
        config.transport = BuilderTransport::Tcp { congestion: None };
        assert_eq!(problems(&config), []);
    }

    #[test]
    fn link_with_pages_of_an_odd_size_is_named() {
        let mut config = config();
        let links = config.data_links.iter_mut();
        links.for_each(|link| link.link.page_words = 1032);
        let keys: Vec<String> = problems(&config).into_iter().map(|(_, key)| key).collect();
        assert_eq!(
            keys,
            [
                "link[0].page",
                "link[1].page",
                "link[2].page",
                "link[3].page"
            ]
        );
    }

    #[test]
    fn misplaced_roles_are_listed_shortly() {
        let mut config = config();
        config.builder.builder_units = 20;
        config.workers[0].roles.push("wr0".to_owned());
        let problems = config.check_roles();
        let found: Vec<&str> = problems.iter().map(|p| p.found.as_str()).collect();
        let expected = [
            "bu2 bu3 bu4 bu5 bu6 bu7 bu8 bu9 and 10 more in no worker",
            "wr0 in several places",
        ];
        assert_eq!(found, expected);
    }
}
