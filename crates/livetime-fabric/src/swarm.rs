//! The builder's protocol under all faults at once, seed after seed.
//!
//! The very structs of `livetime-builder` run on a simple simulated network: every hop has a
//! latency, and messages between event manager, builder units and readout units are dropped,
//! duplicated and delayed past each other; builder units are slow, dead, or falsely taken for dead;
//! readout units die and rejoin; the event manager, filter units and the writer are restarted; all of
//! them stand still or are cut off for a while. A seed is a story ([`scenario`]); what must hold at every
//! moment of it is in [`check`], who tells the units of lost ones in `membership`. Switches and queues of
//! real networks are not modelled here.
//!
//! What is on its way from a readout unit to a builder unit ends with that, since the sockets do.
//! The hops from the supervisor, to and from the filter units and to the writer lose nothing, as
//! documented in `livetime-builder`; filter units and the writer refuse what is of a builder unit's
//! past, which is what makes a false death harmless.

mod accounts;
mod builder_loss;
pub mod check;
mod filter_loss;
mod forced_end;
mod former_manager;
mod hosts;
mod interruption;
mod membership;
mod network;
pub mod scenario;
mod shaper;
mod shrink;
mod world;
mod writer;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use check::Violation;
#[cfg(feature = "mutants")]
pub use livetime_builder::mutant::Mutant;
pub use scenario::{ForcedEndPlan, SwarmFault, SwarmScenario, SwarmShaping, TimedFault};
pub use shrink::shrink;

use crate::kernel::{RunLimits, Simulation, SimulationConfig, StopReason};
use crate::time::{DurationPs, SimPs};
use crate::trace::TraceHash;
use world::SwarmWorld;

/// More events than any story takes.
const EVENTS_MAX: u64 = 20_000_000;

/// What is broken on purpose; nothing without the feature `mutants`.
#[cfg(feature = "mutants")]
pub type Broken = Option<livetime_builder::mutant::Mutant>;
/// What is broken on purpose; nothing without the feature `mutants`.
#[cfg(not(feature = "mutants"))]
pub type Broken = ();
/// Nothing is broken.
#[cfg(feature = "mutants")]
pub const UNBROKEN: Broken = None;
/// Nothing is broken.
#[cfg(not(feature = "mutants"))]
pub const UNBROKEN: Broken = ();

/// What one seed did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwarmRun {
    /// Its story.
    pub scenario: SwarmScenario,
    /// Events that filter units took.
    pub events_built: u64,
    /// Those of them that were released after the first of two steps.
    pub events_released: u64,
    /// Those of each builder unit.
    pub events_by_builder: Vec<u64>,
    /// Those of all without all fragments: only where a readout unit died.
    pub events_incomplete: u64,
    /// How often each fault happened.
    pub faults: BTreeMap<&'static str, u64>,
    /// Kernel events.
    pub kernel_events: u64,
    /// Hash of the trace: the same seed gives the same.
    pub trace_hash: TraceHash,
    /// What did not hold.
    pub violation: Option<Violation>,
}

/// Runs the story of a seed.
pub fn run_seed(seed: u64, broken: Broken) -> SwarmRun {
    run_scenario(&SwarmScenario::from_seed(seed), broken)
}

/// Runs a story. An assertion of a core that fails is a violation, too.
pub fn run_scenario(scenario: &SwarmScenario, broken: Broken) -> SwarmRun {
    let mut simulation = Simulation::new(
        SwarmWorld::new(scenario.clone(), broken),
        SimulationConfig::default(),
    );
    let (world, scheduler) = simulation.parts_mut();
    world.start(scheduler);
    let horizon = SimPs::ZERO + DurationPs::from_ms(scenario.horizon_ms());
    let limits = RunLimits::new(horizon, EVENTS_MAX);
    let ended = catch_unwind(AssertUnwindSafe(|| simulation.run(limits)));
    let (kernel_events, trace_hash, panicked) = match ended {
        Ok(report) => {
            let is_halted = report.stop == StopReason::Halted;
            let now = report.now;
            let world = simulation.world_mut();
            if !is_halted {
                let state = world.state();
                world.check.report(now, format!("no progress: {state}"));
            }
            (report.events, report.trace_hash, None)
        }
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let text = text.unwrap_or_else(|| "an assertion failed".to_owned());
            (0, simulation.trace().hash(), Some(text))
        }
    };
    let (world, scheduler) = simulation.parts_mut();
    if let Some(text) = panicked {
        let now = scheduler.now();
        world
            .check
            .report(now, format!("assertion of a unit: {text}"));
    }
    SwarmRun {
        scenario: scenario.clone(),
        events_built: world.check.events_taken(),
        events_released: world.check.events_released(),
        events_by_builder: world.check.events_by_builder().to_vec(),
        events_incomplete: world.check.events_incomplete(),
        faults: world.faults.clone(),
        kernel_events,
        trace_hash,
        violation: world.check.violation().cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A unit that is not there stands for any assertion.
    #[test]
    fn an_assertion_that_fails_is_a_violation_at_its_time() {
        let mut scenario = SwarmScenario::from_seed(1);
        let fault = SwarmFault::KillFilter {
            filter: u16::MAX,
            for_ms: 1,
        };
        scenario.faults = vec![TimedFault { at_ms: 30, fault }];
        let run = run_scenario(&scenario, UNBROKEN);
        let violation = run.violation.expect("there is no such filter unit");
        assert!(violation.what.starts_with("assertion of a unit: "));
        assert_eq!(violation.at, SimPs::ZERO + DurationPs::from_ms(30));
    }
}
