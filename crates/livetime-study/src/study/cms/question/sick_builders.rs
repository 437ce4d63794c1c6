//! 512 x 512 Myrinet with 1 % of the builders slow or dead.
//!
//! Slow ones are steady states. A death is not: it is noticed, its events are given to others, and
//! what is asked is whether the last quarter of the run is again like one in which all are well.
//! Deaths take a second, so that `--quick` has them on 64 ports of the same kind alone.

use livetime_fabric::builder_network::{BuilderNetworkOutcome, Deaths, SickUnits};
use livetime_fabric::network::{Topology, TopologyError};
use livetime_fabric::time::DurationPs;

use super::steady::Carried;
use super::{Answer, Case, MYRINET_HZ, large_window, myrinet_case, promises, run_cases};

/// What the builder units of a run have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Well,
    Slow,
    Dying,
}

/// What is found of a run.
struct Found {
    name: String,
    health: Health,
    /// Over the run, or for one with deaths over its last quarter.
    carried: Carried,
    /// Events of a slow builder unit, of those of one that is well.
    slow_share: f64,
    refused: u64,
    reassigned: u64,
    incomplete: u64,
    is_conserved: bool,
}

impl Found {
    fn of(case: &Case, health: Health, outcome: &BuilderNetworkOutcome) -> Self {
        let from = match health {
            Health::Dying => outcome.batches.len() * 3 / 4,
            Health::Well | Health::Slow => 0,
        };
        Self {
            name: case.name.clone(),
            health,
            carried: Carried::of(&outcome.batches[from..], outcome.open),
            slow_share: outcome.slow_share,
            refused: outcome.refused,
            reassigned: outcome.events_reassigned,
            incomplete: outcome.events_incomplete,
            is_conserved: outcome.is_conserved(),
        }
    }

    fn is_good(&self) -> bool {
        self.carried.is_carried() && self.is_conserved && self.incomplete == 0
    }

    fn sentence(&self) -> String {
        let carries = self.carried.to_clause();
        let promises = match self.is_conserved {
            true => "",
            false => "; a promise of the protocol was broken",
        };
        match self.health {
            Health::Well => format!("{}: the network {carries}{promises}.", self.name),
            Health::Slow => format!(
                "{}: the network {carries}; a slow one is given {:.0} % of the events of one that \
                 is well, and the shifters stay in step{promises}.",
                self.name,
                100.0 * self.slow_share
            ),
            Health::Dying => format!(
                "{}: {} triggers were refused until the dead were missed, {} of their events were \
                 built by others from what the readout units kept, {} were incomplete; in the last \
                 quarter of the run the network {carries}{promises}.",
                self.name, self.refused, self.reassigned, self.incomplete
            ),
        }
    }
}

/// Some builder units that are not well, on a network of so many ports.
fn case(
    name: &str,
    ports: u32,
    sick: SickUnits,
    window: (u64, u64),
) -> Result<Case, TopologyError> {
    let topology = match ports {
        512 => Topology::six_layer(8)?,
        _ => Topology::four_layer(4)?,
    };
    let mut case = myrinet_case(name, topology, window);
    // Filters that are three quarters busy when all are well.
    case.plan.hosts.event = DurationPs(u64::from(ports) * 7_500_000);
    case.plan.sick = sick;
    // The queue holds what comes while the dead are not yet missed.
    case.plan.queue = 4_096;
    if ports != 512 {
        case.plan.hosts.interval = DurationPs::from_ms(1);
    }
    Ok(case)
}

fn cases(quick: bool) -> Result<Vec<(Health, Case)>, TopologyError> {
    let slow = |slow| SickUnits {
        slow,
        slow_factor: 2.0,
        ..SickUnits::default()
    };
    let dead = |dead| SickUnits {
        builders: Deaths {
            units: dead,
            at: DurationPs::from_ms(300),
            dead_for: None,
        },
        ..SickUnits::default()
    };
    let well = SickUnits::default();
    let large = large_window(quick);
    let small = if quick { (60, 400) } else { (60, 2_000) };
    let long = if quick { (300, 900) } else { (300, 2_400) };
    let mut cases = vec![
        (Health::Well, case("512 x 512, all well", 512, well, large)?),
        (
            Health::Slow,
            case("512 x 512, 5 at half their speed", 512, slow(5), large)?,
        ),
        (Health::Well, case("64 x 64, all well", 64, well, small)?),
        (
            Health::Slow,
            case("64 x 64, 1 at half its speed", 64, slow(1), small)?,
        ),
        (
            Health::Dying,
            case("64 x 64, 1 dies after 300 ms", 64, dead(1), long)?,
        ),
    ];
    if !quick {
        let name = "512 x 512, 5 die after 300 ms";
        cases.push((Health::Dying, case(name, 512, dead(5), (300, 1_500))?));
    }
    Ok(cases)
}

pub(super) fn answer(quick: bool) -> Result<Answer, TopologyError> {
    let (healths, cases): (Vec<Health>, Vec<Case>) = cases(quick)?.into_iter().unzip();
    let outcomes = run_cases(&cases);
    let found: Vec<Found> = healths
        .into_iter()
        .zip(cases.iter().zip(&outcomes))
        .map(|(health, (case, outcome))| Found::of(case, health, outcome))
        .collect();
    let rows = found.iter().zip(&outcomes).map(|(found, outcome)| {
        vec![
            found.name.clone(),
            found.carried.to_text(),
            format!("{:.0} %", 100.0 * found.slow_share),
            found.refused.to_string(),
            found.reassigned.to_string(),
            found.incomplete.to_string(),
            promises(outcome),
        ]
    });
    let rows = rows.collect();
    Ok(conclude(&found, rows))
}

/// In a word, whether all runs of a kind are good.
fn in_a_word(found: &[Found], health: Health) -> &'static str {
    let of_kind = || found.iter().filter(|one| one.health == health);
    match (
        of_kind().all(Found::is_good),
        of_kind().all(|one| one.carried.is_known()),
    ) {
        (true, _) => "yes",
        (false, true) => "no",
        (false, false) => "not converged",
    }
}

fn conclude(found: &[Found], rows: Vec<Vec<String>>) -> Answer {
    Answer {
        question: "512 x 512 Myrinet with 1 % of the builders slow or dead?",
        answer: format!(
            "The rate is carried with all well: {}; with 1 % at half their speed: {}; again after \
             builder units died: {}.",
            in_a_word(found, Health::Well),
            in_a_word(found, Health::Slow),
            in_a_word(found, Health::Dying)
        ),
        verdict: found.iter().map(Found::sentence).collect(),
        conditions: format!(
            "The protocol of the question before at {} kHz, filters three quarters busy when all \
             are well, a queue of 4096 triggers; 64 x 64 is a network of the same kind with 4 layers \
             of 4 x 4 crossbars, where builder units look for work every ms. Runs with deaths are \
             judged by their last quarter.",
            MYRINET_HZ / 1_000
        ),
        is_converged: found.iter().all(|one| one.carried.is_known()),
        is_conserved: found.iter().all(|one| one.is_conserved),
        headings: vec![
            "builders",
            "built of the offered",
            "events of a slow one",
            "triggers refused",
            "built again",
            "incomplete",
            "promises",
        ],
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(health: Health, carried: Carried) -> Found {
        Found {
            name: "64 x 64".to_owned(),
            health,
            carried,
            slow_share: 0.75,
            refused: 30,
            reassigned: 16,
            incomplete: 0,
            is_conserved: true,
        }
    }

    const ALL: Carried = Carried::Steady {
        share: 1.0,
        ci95: 0.005,
    };

    #[test]
    fn each_kind_of_run_has_its_sentence() {
        let runs = [Health::Well, Health::Slow, Health::Dying].map(|health| found(health, ALL));
        let answer = conclude(&runs, vec![]);
        assert!(answer.is_converged);
        assert_eq!(answer.answer.matches(": yes").count(), 3);
        assert!(answer.verdict[0].ends_with("the network carries the rate (100.0 % +- 0.5)."));
        assert!(answer.verdict[1].contains("given 75 % of the events"));
        assert!(answer.verdict[2].contains("30 triggers were refused"));
        assert!(answer.verdict[2].contains("16 of their events were built by others"));
    }

    #[test]
    fn what_is_lost_or_grows_or_is_unknown_is_said() {
        let mut one = found(Health::Dying, ALL);
        one.incomplete = 2;
        assert_eq!(in_a_word(&[one], Health::Dying), "no");
        let grows = found(Health::Slow, Carried::Growing { share: 0.1 });
        assert!(grows.sentence().contains("backlog grows by 10 %"));
        assert_eq!(in_a_word(&[grows], Health::Slow), "no");
        let unknown = [found(Health::Well, Carried::Unknown)];
        let answer = conclude(&unknown, vec![]);
        assert!(!answer.is_converged);
        assert!(answer.answer.contains("with all well: not converged"));
        let mut broken = found(Health::Well, ALL);
        broken.is_conserved = false;
        assert!(!broken.is_good() && broken.sentence().contains("promise"));
        assert!(!conclude(&[broken], vec![]).is_conserved);
    }
}
