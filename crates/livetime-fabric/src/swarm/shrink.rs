//! Makes a failing story as small as possible.
//!
//! Parts are taken away one at a time and stay away if the story still fails, in whatever way: most
//! bugs need one fault and a handful of triggers, and that is what one wants to read. A part that
//! cannot be taken away any more is needed.

use livetime_wire::UnitKind;

use super::scenario::{SwarmFault, SwarmScenario, SwarmShaping};
use super::{Broken, SwarmRun, run_scenario};

/// Most stories that are tried.
const TRIES_MAX: usize = 200;

/// The smallest failing story that was found, and what it does; `failing` must fail.
pub fn shrink(failing: SwarmRun, broken: Broken) -> SwarmRun {
    let mut best = failing;
    let mut tries = 0;
    loop {
        let mut is_smaller = false;
        for scenario in smaller(&best.scenario) {
            tries += 1;
            if tries > TRIES_MAX {
                return best;
            }
            let run = run_scenario(&scenario, broken);
            if run.violation.is_some() {
                best = run;
                is_smaller = true;
                break;
            }
        }
        if !is_smaller {
            return best;
        }
    }
}

/// Stories with one part less.
fn smaller(scenario: &SwarmScenario) -> Vec<SwarmScenario> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut SwarmScenario)| {
        let mut less = scenario.clone();
        change(&mut less);
        if less != *scenario {
            all.push(less);
        }
    };
    for fault in 0..scenario.faults.len() {
        with(&|less| {
            less.faults.remove(fault);
        });
    }
    with(&|less| less.triggers = (less.triggers / 2).max(1));
    with(&|less| less.drop_ppm = 0);
    with(&|less| less.duplicate_ppm = 0);
    with(&|less| less.delay_ppm = 0);
    with(&|less| less.credit_events_by_bytes = 0);
    with(&|less| less.shaping = SwarmShaping::None);
    with(&|less| (less.first_step, less.rest_percent) = (0, 0));
    with(&|less| less.goes_on_without = false);
    with(&|less| less.forced_end = None);
    with(&leave_one_filter);
    with(&|less| less.sources = 1);
    with(&|less| less.credits = (less.credits / 2).max(1));
    with(&|less| less.triggers = (less.triggers - less.triggers / 4).max(1));
    all
}

/// One filter unit is left, and what was to happen to others happens to it: of a unit that is not there
/// the story itself would fail.
fn leave_one_filter(less: &mut SwarmScenario) {
    less.filters = 1;
    for timed in &mut less.faults {
        match &mut timed.fault {
            SwarmFault::KillFilter { filter, .. } => *filter = 0,
            SwarmFault::Stop { unit, .. } if unit.kind == UnitKind::Filter => unit.index = 0,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::UnitId;

    use super::super::UNBROKEN;
    use super::super::scenario::TimedFault;
    use super::*;

    /// Given a story that holds, with faults of its last filter unit, then every smaller one holds, too.
    #[test]
    fn smaller_stories_have_no_faults_of_units_that_are_not_there() {
        let mut scenario = SwarmScenario::from_seed(1);
        scenario.filters = 2;
        let unit = UnitId::filter(1);
        let faults = [
            SwarmFault::KillFilter {
                filter: 1,
                for_ms: 50,
            },
            SwarmFault::Stop { unit, for_ms: 50 },
        ];
        let timed = |fault| TimedFault { at_ms: 100, fault };
        scenario.faults = faults.map(timed).to_vec();
        let smaller = smaller(&scenario);
        assert!(smaller.iter().any(|story| story.filters == 1));
        for story in std::iter::once(&scenario).chain(&smaller) {
            let run = run_scenario(story, UNBROKEN);
            assert_eq!(run.violation, None, "{story}");
        }
    }
}
