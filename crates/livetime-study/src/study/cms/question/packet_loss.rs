//! 500 x 500 Gigabit Ethernet: how is loss prevented or handled?
//!
//! Handled means that what is lost is asked for again, which the runs with small buffers of
//! `switch_buffers` show. Here are the ways to prevent it: switches that stop each other, credits
//! between switches with a queue for each output, and readout units that take turns.

use livetime_fabric::builder_network::{BuilderNetworkOutcome, Shaping};
use livetime_fabric::network::{Estimate, FlowControl, Queueing};
use livetime_wire::DurationNs;

use super::steady::{Carried, Lost, throughput_text};
use super::switch_buffers::Fullest;
use super::{
    Answer, BARREL, Case, GIGABIT_HZ, GIGABIT_NODES, Switch, gigabit_case, gigabit_networks,
    percent, promises, run_cases,
};

/// A way to prevent loss, on one network.
struct Found {
    network: &'static str,
    way: &'static str,
    carried: Carried,
    lost: Lost,
    /// Fragments that came to builder units, in events per second.
    throughput: Estimate,
    /// The most bytes that a buffer held, where it was counted.
    fullest_kib: Option<f64>,
    is_conserved: bool,
}

impl Found {
    fn of(network: &'static str, way: &'static str, outcome: &BuilderNetworkOutcome) -> Self {
        Self {
            network,
            way,
            carried: Carried::of_run(outcome),
            lost: Lost::of(&outcome.batches),
            throughput: throughput(outcome),
            fullest_kib: (!outcome.links.is_empty()).then(|| Fullest::of(outcome).any_kib()),
            is_conserved: outcome.is_conserved(),
        }
    }

    fn is_converged(&self) -> bool {
        let has_rate = match self.carried {
            Carried::Steady { .. } | Carried::Below { .. } => true,
            Carried::Growing { .. } => self.throughput.converged,
            Carried::Unknown => false,
        };
        has_rate && self.lost.is_known()
    }

    /// What it does, and what it costs.
    fn sentence(&self) -> String {
        let cost = match self.carried {
            Carried::Growing { .. } if self.throughput.converged => {
                let cost = 1.0 - self.throughput.mean / GIGABIT_HZ as f64;
                format!(
                    "; {} is what it moves, which costs {} of the throughput",
                    throughput_text(self.throughput),
                    percent(cost)
                )
            }
            Carried::Growing { .. } => "; what it moves has not converged".to_owned(),
            Carried::Steady { .. } if self.carried.is_carried() => {
                "; it costs no throughput at this load".to_owned()
            }
            Carried::Steady { share, .. } => {
                format!("; it costs {} of the throughput", percent(1.0 - share))
            }
            Carried::Below { most } => format!(
                "; it costs more than {:.0} % of the throughput",
                (100.0 * (1.0 - most)).floor()
            ),
            Carried::Unknown => String::new(),
        };
        let fullest = match self.fullest_kib {
            Some(kib) => format!("; the fullest port held {kib:.0} KiB"),
            None => String::new(),
        };
        let lost = match self.lost {
            Lost::Nothing { packets } => format!("nothing is lost of {packets} packets"),
            lost => format!("packets are lost all the same: {}", lost.to_text()),
        };
        format!(
            "{}, {}: {lost}; the network {}{cost}{fullest}.",
            self.network,
            self.way,
            self.carried.to_clause()
        )
    }
}

/// Fragments that come to builder units as events per second: steadier than events, which end all
/// at once.
fn throughput(outcome: &BuilderNetworkOutcome) -> Estimate {
    let seconds = outcome.batch.0 as f64 * 1e-12;
    let rate = |fragments: u64| fragments as f64 / GIGABIT_NODES / seconds;
    let rates: Vec<f64> = outcome.batches.iter().map(|b| rate(b.fragments)).collect();
    Estimate::of(&rates)
}

const STOP_GO: &str = "STOP/GO between switches, 256 KiB in a FIFO for each port";
const CREDITS: &str = "credits between switches, 1 MiB in queues by output for each port";
const IN_TURN: &str = "barrel shifter in the readout units, no flow control, 1 MiB for each port";

/// Warm-up and duration of each way, ms. A backlog comes to its size after some 120 ms with credits
/// on network II, and 250 ms with the barrel shifter; the more is open, the longer it takes to see
/// that it stays so. With STOP/GO the rate comes in bursts and rises for 400 ms.
struct Windows {
    stop_go: (u64, u64),
    credits: [(u64, u64); 2],
    in_turn: (u64, u64),
}

impl Windows {
    const QUICK: Self = Self {
        stop_go: (120, 160),
        credits: [(15, 140), (130, 200)],
        in_turn: (300, 320),
    };
    const FULL: Self = Self {
        stop_go: (400, 600),
        credits: [(130, 500), (130, 500)],
        in_turn: (300, 900),
    };
}

fn cases(quick: bool) -> Vec<(&'static str, &'static str, Case)> {
    let windows = if quick { Windows::QUICK } else { Windows::FULL };
    let stop_go = Switch {
        bytes: 256 << 10,
        flow: FlowControl::StopGo {
            stop: 128 << 10,
            go: 64 << 10,
        },
        queueing: Queueing::InputFifo,
    };
    let credits = Switch {
        bytes: 1 << 20,
        flow: FlowControl::Credits,
        queueing: Queueing::VirtualOutput,
    };
    let mut all = Vec::new();
    for ((network, topology), of_credits) in gigabit_networks().into_iter().zip(windows.credits) {
        let mut add = |way, shaping, switch, window| {
            let name = format!("{network}: {way}");
            let mut case = gigabit_case(&name, &topology, shaping, switch, window);
            // What is only slow is not asked for again.
            case.plan.retry = DurationNs::SECOND;
            if shaping == BARREL {
                // A round of the shifter is longer than what four credits fill.
                case.plan.credits = 16;
                case.load.counts_links = true;
            }
            all.push((network, way, case));
        };
        add(STOP_GO, Shaping::None, stop_go, windows.stop_go);
        add(CREDITS, Shaping::None, credits, of_credits);
        add(IN_TURN, BARREL, Switch::dropping(1024), windows.in_turn);
    }
    all
}

pub(super) fn answer(quick: bool) -> Answer {
    let mut names = Vec::new();
    let mut runs = Vec::new();
    for (network, way, case) in cases(quick) {
        names.push((network, way));
        runs.push(case);
    }
    let outcomes = run_cases(&runs);
    let found = names.into_iter().zip(&outcomes);
    let found: Vec<Found> = found
        .map(|((network, way), outcome)| Found::of(network, way, outcome))
        .collect();
    let rows = runs.iter().zip(&outcomes).zip(&found);
    let rows = rows.map(|((case, outcome), found)| {
        vec![
            case.name.clone(),
            found.carried.to_text(),
            throughput_text(found.throughput),
            found.lost.to_text(),
            outcome.fragments_sent_again.to_string(),
            promises(outcome),
        ]
    });
    conclude(&found, rows.collect())
}

fn conclude(found: &[Found], rows: Vec<Vec<String>>) -> Answer {
    let good = |way: &str| {
        let of_way = || found.iter().filter(|one| one.way == way);
        let is_good =
            |one: &Found| one.carried.is_carried() && matches!(one.lost, Lost::Nothing { .. });
        let is_known = of_way().all(|one| one.carried.is_known() && one.lost.is_known());
        match (of_way().all(is_good), of_way().any(is_good), is_known) {
            (true, _, _) => "yes",
            (_, _, false) => "not converged",
            (_, true, _) => "on one of the networks",
            (_, false, _) => "no",
        }
    };
    Answer {
        question: "500 x 500 Gigabit Ethernet: how is loss prevented or handled?",
        answer: format!(
            "Without loss and at the full rate by STOP/GO: {}; by credits and queues by output: \
             {}; by a barrel shifter in the readout units: {}.",
            good(STOP_GO),
            good(CREDITS),
            good(IN_TURN)
        ),
        verdict: found.iter().map(Found::sentence).collect(),
        conditions: format!(
            "{} kHz of log-normal fragments of 2 KiB on each of two networks, triggers at random; \
             STOP at half of the buffer, GO at a quarter; 4 credits for a builder unit, 16 with the \
             barrel shifter. How loss is handled, by asking again, is in the rows of the question \
             before.",
            GIGABIT_HZ / 1_000
        ),
        is_converged: found.iter().all(Found::is_converged),
        is_conserved: found.iter().all(|one| one.is_conserved),
        headings: vec![
            "network and what prevents loss",
            "built of the offered",
            "moved",
            "packets lost",
            "fragments sent again",
            "promises",
        ],
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Lost = Lost::Nothing { packets: 900 };
    const ALL: Carried = Carried::Steady {
        share: 1.0,
        ci95: 0.005,
    };

    fn found(way: &'static str, carried: Carried, lost: Lost) -> Found {
        Found {
            network: "I",
            way,
            carried,
            lost,
            throughput: Estimate::of(&[27e3; 32]),
            fullest_kib: None,
            is_conserved: true,
        }
    }

    #[test]
    fn what_carries_the_rate_without_loss_costs_nothing() {
        let answer = conclude(&[found(CREDITS, ALL, NOTHING)], vec![]);
        assert!(answer.is_converged);
        assert!(answer.answer.contains("queues by output: yes"));
        let sentence = &answer.verdict[0];
        assert!(sentence.contains("nothing is lost of 900 packets"));
        assert!(sentence.ends_with("it costs no throughput at this load."));
        let some = Carried::Steady {
            share: 0.9,
            ci95: 0.005,
        };
        let sentence = found(CREDITS, some, NOTHING).sentence();
        assert!(sentence.ends_with("it costs 10.0 % of the throughput."));
    }

    #[test]
    fn what_does_not_carry_the_rate_has_its_price() {
        let grows = Carried::Growing { share: 0.4 };
        let mut one = found(STOP_GO, grows, NOTHING);
        assert!(one.is_converged());
        assert!(one.sentence().contains("27.0 kHz"));
        assert!(one.sentence().ends_with("costs 40.0 % of the throughput."));
        assert!(conclude(&[one], vec![]).answer.contains("STOP/GO: no;"));
        one = found(STOP_GO, grows, NOTHING);
        one.throughput.converged = false;
        assert!(!one.is_converged() && one.sentence().contains("has not converged"));
        let both = [found(STOP_GO, grows, NOTHING), found(STOP_GO, ALL, NOTHING)];
        let answer = conclude(&both, vec![]).answer;
        assert!(answer.contains("STOP/GO: on one of the networks;"));
    }

    #[test]
    fn a_bound_is_an_answer_and_the_fullest_port_is_named() {
        let mut one = found(STOP_GO, Carried::Below { most: 0.704 }, NOTHING);
        one.fullest_kib = Some(20.4);
        one.is_conserved = false;
        assert!(one.is_converged());
        let sentence = one.sentence();
        assert!(sentence.contains("it is less than 71 %; it costs more than 29 % of"));
        assert!(sentence.ends_with("the fullest port held 20 KiB."));
        let answer = conclude(&[one, found(CREDITS, ALL, NOTHING)], vec![]);
        assert!(!answer.is_conserved && answer.answer.contains("STOP/GO: no;"));
    }

    #[test]
    fn a_loss_or_a_short_run_is_said() {
        let lost = Lost::Steady {
            ppm: 5.0,
            ci95: 0.5,
        };
        let answer = conclude(&[found(IN_TURN, ALL, lost)], vec![]);
        assert!(answer.is_converged && answer.answer.ends_with("readout units: no."));
        assert!(answer.verdict[0].contains("lost all the same: 5 +- 0 per million"));
        let answer = conclude(&[found(IN_TURN, Carried::Unknown, NOTHING)], vec![]);
        assert!(!answer.is_converged && answer.answer.ends_with("units: not converged."));
        assert!(answer.verdict[0].contains("not shown to carry the rate"));
    }
}
