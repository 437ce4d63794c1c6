//! Everything that a chain is built from: the configurations of its cores and where they run.
//!
//! Typed values only; files, units and places in texts are read by the program. The rules between
//! parts (pages against credits, links against readout units) are checked here.

use livetime_builder::{BuilderConfig, PageDemand};
use livetime_readout::LinkConfig;
use livetime_shm::WaitStrategy;
use livetime_source::{RecordedEvents, SourceConfig};
use livetime_store::WriterLimits;
use livetime_trigger::{MassWindowConfig, Menu, SupervisorConfig};
use livetime_wire::{ByteSize, Problem, ProblemCode, RunNumber, SourceId, UnitId, UnitKind};

use crate::role::front_end::LinkFault;

/// Links of one readout unit must have pages of one size.
pub const MIXED_PAGES: ProblemCode =
    ProblemCode::new("L0201", "links of one readout unit have pages of different sizes");
/// Page size that memory cannot be divided into.
pub const PAGE_ALIGNMENT: ProblemCode =
    ProblemCode::new("L0202", "page size is not a multiple of 64 B");
/// More spinning workers than cores.
pub const SPINNING_WORKERS: ProblemCode =
    ProblemCode::new("R0101", "more spinning workers than cores");
/// A role that runs nowhere, twice, or does not exist.
pub const ROLE_PLACEMENT: ProblemCode =
    ProblemCode::new("R0102", "roles and workers do not match");
/// A core that this process may not use.
pub const WORKER_CORE: ProblemCode = ProblemCode::new("R0103", "worker on a core that is not there");

/// One data link.
#[derive(Debug, Clone)]
pub struct DataLinkConfig {
    /// The source at its far end.
    pub source: SourceId,
    /// The readout unit at its near end.
    pub unit: u16,
    /// Its receiver.
    pub link: LinkConfig,
}

/// What filter units run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FilterConfig {
    /// Every event passes.
    AcceptAll,
    /// The dimuon mass window.
    MassWindow(MassWindowConfig),
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
    /// The Level-2 menu.
    pub menu: Menu,
    /// The supervisor.
    pub supervisor: SupervisorConfig,
    /// The builder; its readout units follow from the data links.
    pub builder: BuilderConfig,
    /// What filter units run.
    pub filter: FilterConfig,
    /// The run file.
    pub store: WriterLimits,
    /// The threads.
    pub workers: Vec<WorkerConfig>,
    /// Links that go down during the run.
    pub faults: Vec<LinkFault>,
}

impl ChainConfig {
    /// Ids of all roles, in the order of the data.
    pub fn role_ids(&self) -> Vec<String> {
        let units = |kind: UnitKind, count: u16| {
            (0..count).map(move |index| UnitId { kind, index }.to_string())
        };
        let mut ids = vec!["src0".to_owned(), "trg0".to_owned()];
        ids.extend(units(UnitKind::Readout, self.builder.readout_units.len() as u16));
        ids.push(UnitId::EVENT_MANAGER.to_string());
        ids.extend(units(UnitKind::Builder, self.builder.builder_units));
        ids.extend(units(UnitKind::Filter, self.builder.filter_units));
        ids.push("wr0".to_owned());
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
            vec![("source", of(&["src"])), ("units", of(&["trg", "ru", "evm", "bu", "fu"]))]
        };
        let wait = WaitStrategy::Adaptive;
        let mut workers: Vec<WorkerConfig> = groups
            .into_iter()
            .map(|(name, roles)| WorkerConfig { name: name.to_owned(), core: None, wait, roles })
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
    /// `link_path` gives the key of a data link by its index.
    pub fn validate(&self, cores: &[usize], link_path: impl Fn(usize) -> String) -> Vec<Problem> {
        let mut problems = self.check_pages(&link_path);
        problems.extend(self.check_workers(cores));
        problems
    }

    fn check_pages(&self, link_path: &impl Fn(usize) -> String) -> Vec<Problem> {
        let mut problems = Vec::new();
        for unit in 0..self.builder.readout_units.len() {
            let links: Vec<(usize, &DataLinkConfig)> = (self.data_links.iter().enumerate())
                .filter(|(_, link)| usize::from(link.unit) == unit)
                .collect();
            let Some((first, reference)) = links.first() else { continue };
            for (index, link) in &links {
                let (found, expected) = (link.link.page_words, reference.link.page_words);
                if found != expected {
                    let size = |words: u32| ByteSize(u64::from(words) * 4);
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
        let all = self.data_links.iter().enumerate();
        for (index, link) in all.filter(|(_, link)| !link.link.page_words.is_multiple_of(16)) {
            problems.push(Problem::new(
                PAGE_ALIGNMENT,
                format!("{}.page", link_path(index)),
                format!("{} B", u64::from(link.link.page_words) * 4),
                "a multiple of 64 B",
                "choose a power of two, such as \"4 KiB\"",
            ));
        }
        problems
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
        demand.check(&self.builder, "builder", 1, u64::from(link.link.pages), &pool_path)
    }

    fn check_workers(&self, cores: &[usize]) -> Vec<Problem> {
        let mut problems = Vec::new();
        let spinning =
            self.workers.iter().filter(|worker| worker.wait == WaitStrategy::Spin).count();
        if spinning > 0 && self.workers.len() > cores.len() {
            problems.push(Problem::new(
                SPINNING_WORKERS,
                "workers.wait",
                format!("\"spin\" with {} workers on {} cores", self.workers.len(), cores.len()),
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
        let placed = || self.workers.iter().flat_map(|worker| &worker.roles);
        let ids = self.role_ids();
        for id in &ids {
            let count = placed().filter(|role| *role == id).count();
            if count != 1 {
                problems.push(Problem::new(
                    ROLE_PLACEMENT,
                    "workers.worker",
                    format!("{count} workers with the role {id}"),
                    "exactly one",
                    "list each role in one worker, or leave out `[[workers.worker]]` altogether",
                ));
            }
        }
        for role in placed().filter(|role| !ids.contains(role)) {
            problems.push(Problem::new(
                ROLE_PLACEMENT,
                "workers.worker",
                format!("a role {role} that this chain does not have"),
                ids.join(", "),
                "remove it, or add the unit",
            ));
        }
        problems
    }
}
