//! Everything that a simulated chain is built from.
//!
//! The configurations of the cores are those of the real program; what is added is time
//! ([`ChainTiming`]) and what shall go wrong. Problems within a core's configuration are found by
//! its own `validate`, which is called here as well.

use livetime_builder::BuilderConfig;
use livetime_readout::LinkConfig;
use livetime_source::{RecordedEvents, SourceConfig};
use livetime_store::{RunBegin, WriterLimits};
use livetime_timing::SpillConfig;
use livetime_trigger::{
    EventMenuConfig, FirstStepConfig, MassWindowConfig, Menu, SupervisorConfig,
};
use livetime_wire::{Problem, RunNs, RunNumber, SourceId};

use super::chain_layout::ChainLayout;
use super::chain_timing::{ChainTiming, LineTiming};
use crate::address::LinkId;
use crate::fault_plan::{FaultAction, FaultPlan, FaultProfile, OutageKind};
use crate::kernel::SimulationConfig;
use crate::problem_code::{FAULT_PLAN, FRONT_END_EVENTS, LINE_TIMING, LINK_LAYOUT, LINK_OUTAGE};
use crate::random::Probability;

/// One data link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulatedDataLink {
    /// The source at its far end.
    pub source: SourceId,
    /// The readout unit at its near end.
    pub unit: u16,
    /// Its receiver.
    pub link: LinkConfig,
}

/// What filter units run.
#[derive(Debug, Clone, PartialEq)]
pub enum FilterChoice {
    /// Every event passes.
    AcceptAll,
    /// The dimuon mass window.
    MassWindow(MassWindowConfig),
    /// The Level-3 menu, whose stages take no time here.
    Menu(Box<EventMenuConfig>),
}

/// A data link that is down for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkOutage {
    /// Index of the data link.
    pub link: usize,
    /// When it goes down.
    pub from: RunNs,
    /// When it comes up again.
    pub until: RunNs,
}

/// A whole chain in simulated time.
#[derive(Debug, Clone)]
pub struct SimulatedChainConfig {
    /// First record of the run file; its run number is that of the run.
    pub begin: RunBegin,
    /// Triggers, events and fragments.
    pub source: SourceConfig,
    /// Events to replay instead of generated ones.
    pub recorded: Option<RecordedEvents>,
    /// Receiver of the trigger link, and of the return link.
    pub trigger_link: LinkConfig,
    /// The data links, in the order of `source.data_links`.
    pub data_links: Vec<SimulatedDataLink>,
    /// The Level-2 menu.
    pub menu: Menu,
    /// Decision nodes, which get triggers in turn and count prescales each for itself. Default 1.
    pub trigger_nodes: u16,
    /// The supervisor.
    pub supervisor: SupervisorConfig,
    /// The builder; its readout units serve the sources of the data links.
    pub builder: BuilderConfig,
    /// What filter units run.
    pub filter: FilterChoice,
    /// What they ask of an event on its first step, where events are built in two. Default nothing.
    pub first_step: FirstStepConfig,
    /// The run file.
    pub store: WriterLimits,
    /// Bytes after which the disk is full. Default none.
    pub disk_bytes_max: Option<u64>,
    /// How long things take.
    pub timing: ChainTiming,
    /// Seed of what is random in time: jitter and faults. Events have their own seed in `source`.
    /// Default 1.
    pub seed: u64,
    /// What goes wrong with messages and hosts; numbers of nodes and links are those of
    /// [`ChainLayout`]. Default nothing. `everywhere` strikes only where messages may be lost, but
    /// its delays and reorderings strike all hops. Hosts may pause, not die.
    pub faults: FaultPlan,
    /// What goes wrong with data links. Default nothing.
    pub link_outages: Vec<LinkOutage>,
    /// When the run is ended by force, if it is.
    pub force_end_at: Option<RunNs>,
    /// When a run that does not end is ended by force. Default one hour.
    pub horizon: RunNs,
    /// The kernel: queue, trace.
    pub kernel: SimulationConfig,
    /// The spill structure. Default none.
    pub spill: Option<SimulatedSpill>,
}

/// A spill structure around a simulated chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulatedSpill {
    /// Gate, triggers and ramps.
    pub spill: SpillConfig,
    /// Index of the data link that carries the read-back instead of detector data, if any.
    pub read_back: Option<usize>,
}

impl SimulatedChainConfig {
    /// A chain with `links` data links spread evenly over `readout_units` readout units, the
    /// default source and menu, and every other parameter at its default.
    ///
    /// # Panics
    /// If there are no links, no readout units, or fewer links than readout units.
    pub fn new(run: RunNumber, links: u16, readout_units: u16, menu: Menu) -> Self {
        assert!(0 < readout_units && readout_units <= links);
        let source_id = |link: u16| SourceId(1 << 16 | u32::from(link));
        let unit =
            |link: u16| (u32::from(link) * u32::from(readout_units) / u32::from(links)) as u16;
        let data_links: Vec<SimulatedDataLink> = (0..links)
            .map(|link| SimulatedDataLink {
                source: source_id(link),
                unit: unit(link),
                link: LinkConfig::default(),
            })
            .collect();
        let of_unit = |index| -> Vec<SourceId> {
            let links = data_links.iter().filter(|link| link.unit == index);
            links.map(|link| link.source).collect()
        };
        Self {
            begin: RunBegin::new(run),
            source: SourceConfig {
                data_links: (0..links).map(source_id).collect(),
                ..SourceConfig::default()
            },
            recorded: None,
            trigger_link: LinkConfig::default(),
            menu,
            trigger_nodes: 1,
            supervisor: SupervisorConfig::default(),
            builder: BuilderConfig {
                readout_units: (0..readout_units).map(of_unit).collect(),
                ..BuilderConfig::default()
            },
            data_links,
            filter: FilterChoice::AcceptAll,
            first_step: FirstStepConfig::default(),
            store: WriterLimits::default(),
            disk_bytes_max: None,
            timing: ChainTiming::default(),
            seed: 1,
            faults: FaultPlan::none(),
            link_outages: Vec::new(),
            force_end_at: None,
            horizon: RunNs(3_600_000_000_000),
            kernel: SimulationConfig::default(),
            spill: None,
        }
    }

    /// The run number.
    pub fn run(&self) -> RunNumber {
        self.begin.run_number()
    }

    /// Nodes and links, for a fault plan.
    pub fn layout(&self) -> ChainLayout {
        ChainLayout::new(&self.builder)
    }

    /// Every problem, those of the cores' configurations included.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = self.source.validate("source");
        problems.extend(self.trigger_link.validate("trigger_link"));
        for (index, link) in self.data_links.iter().enumerate() {
            problems.extend(link.link.validate(&format!("link[{index}]")));
        }
        problems.extend(self.supervisor.validate("trigger"));
        problems.extend(self.builder.validate("builder"));
        problems.extend(self.store.validate());
        if let Some(spill) = &self.spill {
            problems.extend(spill.spill.validate("timing"));
        }
        match &self.filter {
            FilterChoice::AcceptAll => {}
            FilterChoice::MassWindow(window) => problems.extend(window.validate("filter")),
            FilterChoice::Menu(menu) => problems.extend(menu.validate("filter")),
        }
        self.check_layout(&mut problems);
        self.check_timing(&mut problems);
        self.check_outages(&mut problems);
        if problems.is_empty() {
            self.check_faults(&mut problems);
        }
        problems
    }

    fn check_layout(&self, problems: &mut Vec<Problem>) {
        let sources: Vec<SourceId> = self.data_links.iter().map(|link| link.source).collect();
        if sources != self.source.data_links {
            problems.push(Problem::new(
                LINK_LAYOUT,
                "link",
                format!("{} links", sources.len()),
                "one link per source of `source.data_links`, in the same order",
                "list the links in the order of their sources",
            ));
        }
        for (unit, served) in self.builder.readout_units.iter().enumerate() {
            let links = self.data_links.iter();
            let links = links.filter(|link| usize::from(link.unit) == unit);
            let mut linked: Vec<SourceId> = links.map(|link| link.source).collect();
            let mut served = served.clone();
            linked.sort_unstable();
            served.sort_unstable();
            if linked != served {
                problems.push(Problem::new(
                    LINK_LAYOUT,
                    format!("builder.readout_units[{unit}]"),
                    format!("{} sources", served.len()),
                    format!("the {} sources of its links", linked.len()),
                    "let each readout unit serve exactly the sources of the links that end at it",
                ));
            }
        }
        let units = self.builder.readout_units.len();
        for (index, link) in self.data_links.iter().enumerate() {
            if usize::from(link.unit) >= units {
                problems.push(Problem::new(
                    LINK_LAYOUT,
                    format!("link[{index}].unit"),
                    link.unit,
                    format!("below {units}, the number of readout units"),
                    "let the link end at a readout unit that exists",
                ));
            }
        }
    }

    fn check_timing(&self, problems: &mut Vec<Problem>) {
        let mut check = |path: &str, line: &LineTiming, in_flight: Option<u32>| {
            if line.bytes_per_s == 0 || line.burst_words == 0 {
                problems.push(Problem::new(
                    LINE_TIMING,
                    path,
                    format!(
                        "{} B/s in steps of {} words",
                        line.bytes_per_s, line.burst_words
                    ),
                    "a rate and a step above 0",
                    "160 MB/s in steps of 64 words is an S-LINK",
                ));
            } else if let Some(allowed) = in_flight
                && line.fitted(allowed).is_none()
            {
                let least = LineTiming {
                    burst_words: 1,
                    ..*line
                };
                problems.push(Problem::new(
                    LINE_TIMING,
                    "link.words_in_flight",
                    allowed,
                    format!(
                        "{} or more: so many words are under way on the simulated line",
                        least.in_flight_words_max()
                    ),
                    "raise it, and `xoff_below` with it",
                ));
            }
        };
        let in_flight = self.data_links.iter();
        let in_flight = in_flight.map(|link| link.link.words_in_flight).min();
        check("timing.data_line", &self.timing.data_line, in_flight);
        check("timing.trigger_line", &self.timing.trigger_line, None);
        if self.timing.front_end_events == 0 {
            problems.push(Problem::new(
                FRONT_END_EVENTS,
                "timing.front_end_events",
                0,
                "1 or more",
                "8 keeps all links busy",
            ));
        }
    }

    fn check_outages(&self, problems: &mut Vec<Problem>) {
        for (index, outage) in self.link_outages.iter().enumerate() {
            let LinkOutage { link, from, until } = *outage;
            if link >= self.data_links.len() || from >= until {
                problems.push(Problem::new(
                    LINK_OUTAGE,
                    format!("link_outages[{index}]"),
                    format!("link {link} from {} ns until {} ns", from.0, until.0),
                    format!(
                        "a link below {} and an end after the start",
                        self.data_links.len()
                    ),
                    "name a data link by its index and give the outage a length",
                ));
            }
        }
    }

    fn check_faults(&self, problems: &mut Vec<Problem>) {
        let layout = self.layout();
        let mut refuse = |found: String, allowed: &str, help: &str| {
            problems.push(Problem::new(FAULT_PLAN, "faults", found, allowed, help));
        };
        if let Err(error) = self
            .faults
            .validate(layout.link_count(), layout.node_count())
        {
            refuse(
                error.to_string(),
                "what the chain has",
                "see the layout of the chain",
            );
            return;
        }
        let help = "let a hop between event manager, builder and readout units, or a trigger link, \
                    lose it; the others are rings of one machine";
        let reliable = |link: LinkId| !layout.is_lossy(link);
        for (link, profile) in &self.faults.links {
            if reliable(*link) && (profile.drop.is_possible() || profile.duplicate.is_possible()) {
                let found = format!("loss or repetition on link {}", link.0);
                refuse(found, "delay and reordering there", help);
            }
        }
        for fault in self
            .faults
            .script
            .iter()
            .filter(|fault| reliable(fault.link))
        {
            if matches!(
                fault.action,
                FaultAction::Drop | FaultAction::Duplicate { .. }
            ) {
                let found = format!("{:?} on link {}", fault.action, fault.link.0);
                refuse(found, "delay and reordering there", help);
            }
        }
        for outage in &self.faults.outages {
            if outage.kind == OutageKind::Death {
                refuse(
                    format!("death of node {}", outage.node.0),
                    "pauses",
                    "let the host pause: units that come back with a new epoch are not there yet",
                );
            }
        }
    }

    /// The plan with `everywhere` kept from the hops that must not lose or repeat.
    pub(crate) fn effective_faults(&self, layout: &ChainLayout) -> FaultPlan {
        let mut plan = self.faults.clone();
        let harmless = FaultProfile {
            drop: Probability::NEVER,
            duplicate: Probability::NEVER,
            ..plan.everywhere
        };
        if plan.everywhere == harmless {
            return plan;
        }
        for link in (0..layout.link_count() as u32).map(LinkId) {
            if !layout.is_lossy(link) && !plan.links.iter().any(|(own, _)| *own == link) {
                plan.links.push((link, harmless));
            }
        }
        plan
    }
}
