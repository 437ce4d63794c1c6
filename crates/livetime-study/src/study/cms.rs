//! `cms`: the CMS event builder studies (Lyon, 2000), every row and figure simulated anew.
//!
//! The rows are the gates of the network simulator: the talk's value, the model's, and where there
//! is one a real run on this machine (`talk_row`, `this_machine`). The figures are redrawn from simulations,
//! and the talk's open questions are answered by simulations of the large networks with the
//! protocol that Livetime runs (`question`). Which parameters are fitted is said on the page.

mod question;
mod talk_row;
mod this_machine;

use livetime_fabric::analytic::crossbar::{fifo_inputs, fifo_inputs_exponential};
use livetime_fabric::analytic::transfer::{FramedTransfer, LinearTransfer};
use livetime_fabric::barrel_builder::{Assignment, BarrelBuilder};
use livetime_fabric::cell::{BufferedDelta, FifoCrossbar, Refill};
use livetime_fabric::gate::{GateRow, Rule};
use livetime_fabric::network::topology::Wiring;
use livetime_fabric::network::{
    Arbiter, Load, Pattern, RoutePolicy, SizeLaw, Topology, TopologyError, Traffic, wormhole,
};
use livetime_fabric::time::DurationPs;
use serde_json::{Value, json};

use crate::bench::BenchError;
use crate::plot::{Axis, LinePlot, Series};
use crate::report::{Figure, Report, Table};

use question::Answer;
use this_machine::ThisMachine;

/// Name of the document's format.
pub const SCHEMA: &str = "livetime.study_cms/1";

/// The study's results.
#[derive(Debug)]
pub struct CmsStudy {
    /// The JSON document.
    pub document: Value,
    /// The page.
    pub report: Report,
    /// Whether every row that is judged is within its tolerance, and the protocol kept its promises in
    /// every run.
    pub passed: bool,
}

/// Makes the study; `command` is what reproduces it.
///
/// # Errors
/// [`BenchError::Simulation`] when a network cannot be built.
pub fn run(quick: bool, command: &str) -> Result<CmsStudy, BenchError> {
    let here = ThisMachine::measure(quick)?;
    let rows = talk_row::rows(quick);
    let answers =
        question::answers(quick).map_err(|error| BenchError::Simulation(error.to_string()))?;
    let figures =
        figures(quick, &here).map_err(|error| BenchError::Simulation(error.to_string()))?;
    let is_conserved = answers.iter().all(|answer| answer.is_conserved);
    let passed = is_conserved && rows.iter().all(GateRow::passes);
    let judged = rows.iter().filter(|row| row.rule != Rule::Reported).count();
    let failed = rows.iter().filter(|row| !row.passes()).count();
    let document = json!({
        "schema": SCHEMA,
        "simulated": true,
        "protocol": "livetime-builder on simulated hosts",
        "quick": quick,
        "command": command,
        "passed": passed,
        "rows": rows.iter().map(|row| talk_row::to_json(row, &here)).collect::<Vec<_>>(),
        "this_machine": here.to_json(),
        "questions": answers.iter().map(answer_json).collect::<Vec<_>>(),
    });
    let mut tables = vec![talk_row::table(&rows, &here)];
    tables.extend(answers.iter().map(answer_table));
    let report = Report {
        title: "CMS event builder studies, simulated".to_owned(),
        subtitle:
            "after the talk at Lyon, 2000; every number is simulated but those of this machine"
                .to_owned(),
        verdict: verdict(judged - failed, judged, is_conserved),
        verdict_good: passed,
        figures_of_merit: answers
            .iter()
            .map(|answer| (answer.question.to_owned(), answer.answer.clone()))
            .collect(),
        figures,
        tables,
        command: command.to_owned(),
        config: FITTED.to_owned(),
        summary_json: document.to_string(),
    };
    Ok(CmsStudy {
        document,
        report,
        passed,
    })
}

/// What is not predicted.
const FITTED: &str = "\
Fitted on point-to-point rows: offset, speed and plateau of the adapters; source gap 7.4 % (149 of 160 MB/s).
Fitted on event building rows: 12 us for a message of 4 requests, 3.04 us per block, and for Gigabit
Ethernet 2.0 us per fragment and 0.4 us per frame.
Fitted on their own row: rates of the two 33 MHz buses.
Everything else is a prediction of the same models. The talk does not define efficiency: measured
values are taken relative to point to point, expected ones to the link. Its event building values
for large networks (15 %, 30 %) depend on run length, order and arbiter, which it does not state:
they are shown beside one natural scenario and not judged.";

fn verdict(within: usize, judged: usize, is_conserved: bool) -> String {
    let promises = match is_conserved {
        true => "",
        false => "; the protocol broke a promise in a run of the questions",
    };
    format!("{within} of {judged} judged rows are within their tolerance{promises}")
}

fn answer_json(answer: &Answer) -> Value {
    json!({
        "question": answer.question,
        "answer": answer.answer,
        "verdict": answer.verdict,
        "conditions": answer.conditions,
        "converged": answer.is_converged,
        "promises_kept": answer.is_conserved,
        "headings": answer.headings,
        "rows": answer.rows,
    })
}

fn answer_table(answer: &Answer) -> Table {
    let mut conclusion = vec![answer.answer.clone()];
    conclusion.extend(answer.verdict.iter().cloned());
    conclusion.push(format!("Conditions: {}", answer.conditions));
    Table {
        caption: answer.question.to_owned(),
        headings: answer.headings.iter().map(|h| (*h).to_owned()).collect(),
        rows: answer.rows.clone(),
        conclusion,
    }
}

fn series(label: &str, points: Vec<(f64, f64)>) -> Series {
    Series {
        label: label.to_owned(),
        points,
    }
}

fn figure(title: &str, x: Axis, y: &str, all: Vec<Series>, caption: &str) -> Figure {
    let plot = LinePlot {
        title: title.to_owned(),
        x,
        y: Axis::linear(y),
        series: all,
    };
    Figure {
        svg: plot.to_svg(),
        caption: caption.to_owned(),
    }
}

fn figures(quick: bool, here: &ThisMachine) -> Result<Vec<Figure>, TopologyError> {
    Ok(vec![
        crossbar_figure(quick),
        throughput_figure(here),
        rate_figure(quick),
        buffer_figure(quick),
        transient_figure()?,
        slow_builder_figure(quick),
    ])
}

fn crossbar_figure(quick: bool) -> Figure {
    let ports = [2_u32, 3, 4, 6, 8, 12, 16];
    let slots = if quick { 20_000 } else { 200_000 };
    let simulated = ports
        .iter()
        .map(|n| {
            (
                f64::from(*n),
                FifoCrossbar::new(*n, Arbiter::Random).throughput(slots, 1),
            )
        })
        .collect();
    let exact = ports
        .iter()
        .filter_map(|n| Some((f64::from(*n), fifo_inputs(*n)?)))
        .collect();
    let exponential = ports
        .iter()
        .map(|n| (f64::from(*n), fifo_inputs_exponential(*n)))
        .collect();
    figure(
        "Crossbar with input queues, random traffic",
        Axis::log("ports"),
        "share of the links",
        vec![
            series("fixed lengths, exact", exact),
            series("fixed lengths, simulated", simulated),
            series("exponential lengths, exact", exponential),
        ],
        "Head-of-line blocking: the limit for many ports is 58.6 % with fixed and 50 % with \
         exponential lengths.",
    )
}

fn throughput_figure(here: &ThisMachine) -> Figure {
    let sizes: Vec<u32> = (0..50).map(|i| (46.0 * 1.127_f64.powi(i)) as u32).collect();
    let line = |transfer: LinearTransfer| {
        let point = |size: &u32| (f64::from(*size), transfer.throughput_mb_s(f64::from(*size)));
        sizes.iter().map(point).collect()
    };
    figure(
        "Throughput against fragment size, Myrinet",
        Axis::log("fragment [B]"),
        "MB/s per node",
        vec![
            series("point to point", line(LinearTransfer::MYRINET)),
            series(
                "point to point, Myrinet 2000",
                line(LinearTransfer::MYRINET_2000),
            ),
            series(
                "event building, barrel shifter",
                line(LinearTransfer::MYRINET_BUILDER),
            ),
            series(
                "this machine, TCP over loopback, measured",
                here.throughput(),
            ),
        ],
        "Plateau and line of the talk, as closed forms; the event-driven models of the gates agree \
         with them within the tolerances of the table. What this machine does is another interface \
         25 years later: it shows the same form.",
    )
}

fn rate_figure(quick: bool) -> Figure {
    let step = if quick { 100 } else { 20 };
    let sizes: Vec<u32> = (400..=4000).step_by(step).collect();
    let ethernet = |size: &u32| {
        let rate = FramedTransfer::GIGABIT_BUILDER.rate_hz(*size);
        (f64::from(*size), rate / 1e3)
    };
    let myrinet = [256_u32, 512, 1024, 1536, 2048, 3072, 4000]
        .into_iter()
        .map(|size| {
            let builder = BarrelBuilder::demonstrator(16, SizeLaw::Fixed(size));
            let outcome = builder.run(if quick { 2_000 } else { 10_000 });
            (f64::from(size), outcome.event_rate_hz / 1e3)
        })
        .collect();
    figure(
        "Event rate against fragment size",
        Axis::linear("fragment [B]"),
        "kHz",
        vec![
            series(
                "Gigabit Ethernet 15 x 15, closed form",
                sizes.iter().map(ethernet).collect(),
            ),
            series("Myrinet 16 x 16, barrel shifter, simulated", myrinet),
        ],
        "At 2 KiB the talk has 52 kHz and 70 kHz. The teeth of Ethernet are at multiples of 1460 B.",
    )
}

fn buffer_figure(quick: bool) -> Figure {
    let cycles = if quick { 600 } else { 4_000 };
    let depths = [1_u32, 2, 4, 8, 16, 64];
    let of = |refill| {
        let point = |cells: &u32| {
            let network = BufferedDelta::new(8, 3, *cells, refill);
            let warm_up = 200 + 20 * u64::from(*cells);
            (f64::from(*cells), network.throughput(warm_up, cycles, 1))
        };
        depths.iter().map(point).collect()
    };
    figure(
        "512 ports with FIFOs between stages, random traffic",
        Axis::log("cells of a FIFO"),
        "share of the links",
        vec![
            series("places refilled in the same cycle", of(Refill::SameCycle)),
            series("places refilled in the next cycle", of(Refill::NextCycle)),
        ],
        "The ultimate efficiency of the talk, about 60 %, is the head-of-line limit of an 8 x 8 \
         crossbar (61.8 %). Adding stages with random routes does not raise it: without buffers 4 \
         and 6 layers reach 29 % and 22 %, less than the 35 % of the delta network.",
    )
}

fn transient_figure() -> Result<Figure, TopologyError> {
    let networks = [
        (
            "delta, natural wiring",
            Topology::delta(8, 3, &Wiring::Natural)?,
        ),
        ("4 layers, route by source port", Topology::four_layer(8)?),
    ];
    let of = |topology: &Topology| {
        let traffic = Traffic::new(Pattern::Staggered);
        let load = Load {
            routes: RoutePolicy::BySourcePort,
            arbiter: Arbiter::RoundRobin,
            warm_up: DurationPs::ZERO,
            ..Load::saturated(traffic, SizeLaw::Fixed(65_536), 1_600)
        };
        let outcome = wormhole::run(topology, &load);
        let times = 1_600.0 / outcome.series.len() as f64;
        let point = |(i, value): (usize, &f64)| ((i + 1) as f64 * times, *value);
        outcome.series.iter().enumerate().map(point).collect()
    };
    let all = networks
        .iter()
        .map(|(name, topology)| series(name, of(topology)))
        .collect();
    Ok(figure(
        "Event building in 512 ports, staggered round robin",
        Axis::linear("packet times"),
        "share of the links",
        all,
        "Not a steady state: what is quoted depends on the length of the run. After some 800 packet \
         times, with the round-robin arbiter and waiting heads first, the means are near the 15 % \
         and 30 % of the talk, which does not state its conditions.",
    ))
}

fn slow_builder_figure(quick: bool) -> Figure {
    let of = |assignment| {
        let sizes = SizeLaw::LogNormal {
            mean: 2048.0,
            rms: 1024.0,
        };
        let builder = BarrelBuilder {
            assignment,
            slow_share: 0.5,
            credits: 64,
            ..BarrelBuilder::demonstrator(16, sizes)
        };
        let outcome = builder.run(if quick { 20_000 } else { 100_000 });
        let point = |(i, value): (usize, &f64)| ((i + 1) as f64 / 10.0, value / 1e6);
        outcome.series.iter().enumerate().map(point).collect()
    };
    figure(
        "One builder of 16 slow by 50 %",
        Axis::linear("share of the run"),
        "MB/s per node",
        vec![
            series("events on demand", of(Assignment::OnDemand)),
            series("events in turn", of(Assignment::InTurn)),
        ],
        "The barrel shifter stays in step; the event manager gives the slow builder fewer events, \
         or all wait for it.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_in_the_document_and_after_the_rows_of_the_page() {
        let answer = Answer {
            question: "how?",
            answer: "So.".to_owned(),
            verdict: vec!["I: 5 KiB are enough.".to_owned()],
            conditions: "at 45 kHz".to_owned(),
            is_converged: true,
            is_conserved: true,
            headings: vec!["buffer"],
            rows: vec![vec!["5 KiB".to_owned()]],
        };
        let document = answer_json(&answer);
        assert_eq!(document["verdict"], json!(["I: 5 KiB are enough."]));
        assert_eq!(document["converged"], json!(true));
        assert_eq!(document["promises_kept"], json!(true));
        let table = answer_table(&answer);
        let expected = ["So.", "I: 5 KiB are enough.", "Conditions: at 45 kHz"];
        assert_eq!(table.conclusion, expected);
    }

    #[test]
    fn a_broken_promise_is_in_the_verdict() {
        assert!(verdict(3, 4, true).ends_with("3 of 4 judged rows are within their tolerance"));
        assert!(verdict(4, 4, false).contains("broke a promise"));
    }
}
