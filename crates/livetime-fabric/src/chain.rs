//! The whole chain in simulated time, in memory, on the cores of the real program.
//!
//! [`SimulatedChain`] drives the same cores in the same order of calls as the real program: what
//! differs is what is between them. Lines have a rate and a latency, message hops a latency with
//! jitter, hosts take their time for each thing they do and work on one after the other, pages and
//! the run file are vectors. A run is a function of its configuration: the same seeds give the same
//! events, picosecond by picosecond.
//!
//! In lossless runs the decisions, and so the digest and the stored events, are those of the real
//! program: they depend on the events and on prescales counted in trigger order, not on time.
//!
//! Not simulated: the words' content on its way (no bit errors), the death of units, and how long
//! a disk takes for what. Read [`chain_config`] for what can be set, [`chain_timing`] for times and
//! [`ChainLayout`] for the numbers that a fault plan names; the stories in `tests/chain` tell
//! what can happen.
//!
//! Cost: about 150 events of the kernel per trigger with 8 links of 2 KiB fragments, most of them
//! bursts of 64 words.

mod builder_host;
mod chain_assembly;
pub mod chain_config;
mod chain_event;
pub mod chain_layout;
pub mod chain_outcome;
pub mod chain_timing;
mod chain_world;
pub mod event_stream;
mod filter_host;
mod front_end;
mod host;
mod mailbox;
mod manager_host;
mod message_fabric;
mod readout_host;
mod simulated_disk;
mod simulated_event;
mod simulated_link;
mod spill_gate;
mod trigger_host;
mod writer_host;

use std::collections::BTreeMap;

use livetime_store::{Condition, WriteError};
use livetime_wire::{ChainCounts, LossArea, LossCounts, Problem, RunNs};

pub use chain_config::{
    FilterChoice, LinkOutage, SimulatedChainConfig, SimulatedDataLink, SimulatedSpill,
};
pub use chain_layout::ChainLayout;
pub use chain_outcome::{LinkOutcome, SimulatedOutcome, UnitOutcomes};
pub use chain_timing::{ChainTiming, HopTiming, LineTiming, ServiceTimes};
pub use event_stream::EventStream;

use crate::kernel::{RunLimits, RunReport, Simulation};
use crate::time::{DurationPs, SimPs};
use chain_world::{ChainWorld, Units};
use writer_host::Ending;

/// Intervals of the builder's probe that are waited for answers at a forced end. A message that was
/// lost is repeated after one or two.
const PROBES_TO_SETTLE: u64 = 20;

/// Why a chain cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulatedChainError {
    /// The configuration has problems.
    #[error("{}", joined(.0))]
    Config(Vec<Problem>),
    /// The disk has no room for the beginning of the run file.
    #[error("the run file cannot be begun: {0}")]
    RunFile(#[from] WriteError),
}

fn joined(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

/// A chain at the start of its run.
///
/// ```
/// use livetime_fabric::chain::{SimulatedChain, SimulatedChainConfig};
/// use livetime_source::OfferMode;
/// use livetime_trigger::{Menu, MenuConfig};
/// use livetime_wire::RunNumber;
///
/// let menu = Menu::new_checked(MenuConfig::default(), "trigger").expect("the default is good");
/// let mut config = SimulatedChainConfig::new(RunNumber(1), 4, 2, menu);
/// config.source.triggers.mode = OfferMode::Lossless;
/// config.source.triggers.triggers_max = Some(200);
/// let outcome = SimulatedChain::new_checked(&config)?.run();
/// assert_eq!(outcome.counts.triggers, 200);
/// assert!(outcome.is_drained && outcome.conservation_problems().is_empty());
/// # Ok::<(), livetime_fabric::chain::SimulatedChainError>(())
/// ```
pub struct SimulatedChain {
    simulation: Simulation<ChainWorld>,
    /// When the run is ended by force at the latest.
    end_at: SimPs,
    /// How long answers are waited for at a forced end.
    patience: DurationPs,
    /// End of the last pause of a host: nothing is settled before.
    pauses_end: SimPs,
    has_outages: bool,
}

impl SimulatedChain {
    /// A chain of this configuration.
    ///
    /// # Errors
    /// [`SimulatedChainError`]: the problems of the configuration, or a disk without any room.
    pub fn new_checked(config: &SimulatedChainConfig) -> Result<Self, SimulatedChainError> {
        let problems = config.validate();
        if !problems.is_empty() {
            return Err(SimulatedChainError::Config(problems));
        }
        let world = chain_assembly::assemble(config)?;
        let mut simulation = Simulation::new(world, config.kernel);
        let (world, scheduler) = simulation.parts_mut();
        world.start(config, scheduler);
        let probe = DurationPs::from_duration_ns(config.builder.probe);
        let pauses = config.faults.outages.iter();
        let end_at = config
            .force_end_at
            .unwrap_or(config.horizon)
            .min(config.horizon);
        Ok(Self {
            simulation,
            end_at: SimPs::from_run_ns(end_at),
            patience: probe * PROBES_TO_SETTLE,
            pauses_end: pauses
                .map(|pause| pause.window.until)
                .max()
                .unwrap_or_default(),
            has_outages: !config.link_outages.is_empty(),
        })
    }

    /// Takes the run to its end, in order or by force, and settles the accounts.
    pub fn run(mut self) -> SimulatedOutcome {
        let mut report = self.simulation.run(RunLimits::new(self.end_at, u64::MAX));
        let ended_at = report.now.to_run_ns();
        let is_drained = self.simulation.world().is_idle();
        if !is_drained {
            report = self.settle();
        }
        self.simulation.world_mut().units.writer.flush();
        self.into_outcome(report, ended_at, is_drained)
    }

    /// Brings a run that is ended by force to the point where every counter is final. The order
    /// follows the event builder's rules: all units give up what they can, builder units then
    /// close, and only then those whose pages they held.
    fn settle(&mut self) -> RunReport {
        let steps = [
            ChainWorld::abort,
            ChainWorld::close_builders,
            ChainWorld::close_others,
        ];
        let mut report = None;
        for step in steps {
            let (world, scheduler) = self.simulation.parts_mut();
            step(world, scheduler);
            let until = scheduler.now().max(self.pauses_end) + self.patience;
            report = Some(self.simulation.run(RunLimits::new(until, u64::MAX)));
        }
        report.expect("three steps were taken")
    }

    fn into_outcome(
        self,
        report: RunReport,
        ended_at: RunNs,
        is_drained: bool,
    ) -> SimulatedOutcome {
        let trace = self.simulation.trace().records().copied().collect();
        let has_outages = self.has_outages;
        let world = self.simulation.into_world();
        let now = report.now.to_run_ns();
        let links = link_outcomes(&world, now);
        let counts = chain_counts(&world, &links);
        let losses = chain_losses(&world, &links);
        let failure = world.units.writer.failure().map(str::to_owned);
        let mut condition = condition(&counts, &losses, is_drained, failure.is_some());
        if has_outages {
            condition |= Condition::DEGRADED;
        }
        let reason = match (&failure, is_drained) {
            (Some(failure), _) => failure.as_str(),
            (None, true) => "the source had finished",
            (None, false) => "ended by force",
        };
        let stored_triggers = world.units.writer.stored_triggers();
        let credits_conserved = world.units.manager.core.credits_conserved();
        let data_words = data_links(&links).iter();
        let data_words: u64 = data_words.map(|link| link.source.data_words).sum();
        let unit_outcomes = unit_outcomes(&world.units, links);
        let units = world.units;
        let (run_file, file_summary) = units.writer.close(&Ending {
            at: ended_at,
            condition,
            reason,
            counts: &counts,
            losses: &losses,
            menu: &unit_outcomes.menu,
        });
        let supervisor = units.front_end.supervisor();
        let shim = &world.hall.fabric.shim;
        SimulatedOutcome {
            counts,
            losses,
            digest: supervisor.digest(),
            stored_triggers,
            trace_hash: report.trace_hash,
            trace,
            dead_time: supervisor.dead_time(now),
            ended_at,
            is_drained,
            events_simulated: report.events,
            condition,
            run_file,
            file_summary,
            writer_failure: failure,
            bytes_sent: 4 * data_words,
            fragments_unsent: units.front_end.unsent(),
            faults: shim.counts(),
            fault_log: shim.log().to_vec(),
            credits_conserved,
            mishaps: world.hall.mishaps,
            units: unit_outcomes,
            decision_latency: world.hall.latencies.decision,
            build_latency: world.hall.latencies.build,
        }
    }
}

fn unit_outcomes(units: &Units, links: Vec<LinkOutcome>) -> UnitOutcomes {
    let (readouts, builders) = (units.readouts.iter(), units.builders.iter());
    UnitOutcomes {
        source: units.front_end.source().counts(),
        packets: units.front_end.packets(),
        supervisor: *units.front_end.supervisor().counters(),
        trigger_node: units.trigger.counters(),
        manager: *units.manager.core.counts(),
        readouts: readouts.map(|unit| *unit.parts.core.counts()).collect(),
        builders: builders.map(|unit| *unit.core.counts()).collect(),
        filters: units
            .filters
            .iter()
            .map(|unit| unit.counts().clone())
            .collect(),
        links,
        menu: menu_counts(units),
    }
}

/// What the Level-3 menu counted in all filter units. The times of its stages are left out: no time
/// passes in them here.
fn menu_counts(units: &Units) -> BTreeMap<String, u64> {
    let details = units.filters.iter().flat_map(|unit| unit.details());
    let is_time = |name: &str| name.ends_with(".ns") || name.ends_with("_ns_max");
    let mut sums = BTreeMap::new();
    for (name, count) in details.filter(|(name, _)| !is_time(name)) {
        *sums.entry(name).or_default() += count;
    }
    sums
}

fn link_outcomes(world: &ChainWorld, now: RunNs) -> Vec<LinkOutcome> {
    let outcome = |link: &simulated_link::SimulatedLink| {
        let mut losses = *link.source.losses();
        losses.merge(link.receiver.losses());
        LinkOutcome {
            source: link.source.counters(now),
            receiver: link.receiver.counters(now),
            losses,
            pages: link.receiver.page_account(),
        }
    };
    world.hall.links.iter().map(outcome).collect()
}

/// The data links: all but the trigger link and the return link.
fn data_links(links: &[LinkOutcome]) -> &[LinkOutcome] {
    &links[..links.len() - 2]
}

/// The chain's counters, each from the unit that counts it.
fn chain_counts(world: &ChainWorld, links: &[LinkOutcome]) -> ChainCounts {
    let units = &world.units;
    let source = units.front_end.source().counts();
    let supervisor = units.front_end.supervisor().counters();
    let mut counts = ChainCounts {
        offered: source.offered,
        refused: source.refused(),
        triggers: supervisor.triggers,
        l2_accepted: supervisor.l2_accepted,
        l2_rejected: supervisor.l2_rejected,
        fragments_sent: data_links(links)
            .iter()
            .map(|link| link.source.handed)
            .sum(),
        events_stored: units.writer.events_stored(),
        ..ChainCounts::default()
    };
    for readout in &units.readouts {
        counts.fragments_received += readout.fragments_received();
        counts.fragments_dropped_by_decision +=
            readout.parts.core.counts().fragments_dropped_by_decision;
    }
    for builder in &units.builders {
        let core = builder.core.counts();
        counts.events_built += core.events_built;
        counts.events_incomplete += core.events_incomplete;
        counts.fragments_in_built += core.fragments_in_built;
        counts.fragments_in_incomplete += core.fragments_in_incomplete;
    }
    for filter in &units.filters {
        counts.filter_accepted += filter.counts().accepted;
        counts.filter_rejected += filter.counts().rejected;
    }
    counts
}

/// The losses, each from the unit that lost.
fn chain_losses(world: &ChainWorld, links: &[LinkOutcome]) -> LossCounts {
    let units = &world.units;
    let mut losses = *units.front_end.supervisor().losses();
    data_links(links)
        .iter()
        .for_each(|link| losses.merge(&link.losses));
    units
        .readouts
        .iter()
        .for_each(|unit| losses.merge(&unit.losses()));
    losses.merge(units.manager.core.losses());
    units
        .builders
        .iter()
        .for_each(|unit| losses.merge(unit.core.losses()));
    units
        .filters
        .iter()
        .for_each(|unit| losses.merge(unit.losses()));
    losses.merge(&units.writer.losses());
    losses
}

fn condition(
    counts: &ChainCounts,
    losses: &LossCounts,
    is_drained: bool,
    is_failed: bool,
) -> Condition {
    let mut condition = Condition::GOOD;
    let is_lost = losses.total() > 0 || counts.events_incomplete > 0;
    if is_lost || !counts.problems(losses).is_empty() {
        condition |= Condition::INCOMPLETE;
    }
    if is_failed || losses.in_area(LossArea::Store) > 0 {
        condition |= Condition::INTERRUPTED;
    }
    if !is_drained {
        condition |= Condition::ABORTED;
    }
    condition
}
