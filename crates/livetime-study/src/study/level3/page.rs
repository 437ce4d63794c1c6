//! The page of the Level-3 study.

use serde_json::Value;

use super::{BASE, Curve, Curves, ENHANCED, Measured, PORT_MB_PER_S, Simulated};
use crate::plot::{Axis, LinePlot, Series};
use crate::report::{Figure, Report, Table};
use crate::study::row::{self, Row};

pub(super) fn page(
    document: &Value,
    command: &str,
    passed: bool,
    rows: &[Row],
    simulated: &Simulated,
    measured: &Measured,
) -> Report {
    Report {
        title: "Level 3: throughput against processors and subfarms".to_owned(),
        subtitle: "Figure 2 of the Level-3 note and what it says of sleeps, sockets and memory, \
                   measured and simulated"
            .to_owned(),
        verdict: match passed {
            true => {
                "the simulated farm is where the note has it, and this machine takes the enhanced \
                 rate"
            }
            false => {
                "the simulated farm is not where the note has it, or this machine is below the \
                 enhanced rate"
            }
        }
        .to_owned(),
        verdict_good: passed,
        figures_of_merit: [
            ("base, per subfarm", BASE),
            ("enhanced, per subfarm", ENHANCED),
            ("port of a converter", PORT_MB_PER_S),
        ]
        .map(|(name, value)| (name.to_owned(), format!("{value:.2} MB/s")))
        .to_vec(),
        figures: figures(simulated),
        tables: vec![
            row::table("Note, model and this machine", "note", rows),
            measured_table(measured),
        ],
        command: command.to_owned(),
        config: String::new(),
        summary_json: document.to_string(),
    }
}

fn line(label: &str, value: f64) -> Series {
    Series {
        label: label.to_owned(),
        points: vec![(1.0, value), (12.0, value)],
    }
}

fn series(
    curves: &Curves,
    label: impl Fn(f64) -> String,
    scale: impl Fn(f64) -> f64,
) -> Vec<Series> {
    let each = curves.iter().map(|(key, curve)| Series {
        label: label(*key),
        points: curve.iter().map(|(x, y)| (*x, y / scale(*key))).collect(),
    });
    each.collect()
}

fn figure(title: &str, x: &str, y: &str, series: Vec<Series>, caption: &str) -> Figure {
    let plot = LinePlot {
        title: title.to_owned(),
        x: Axis::linear(x),
        y: Axis::linear(y),
        series,
    };
    Figure {
        svg: plot.to_svg(),
        caption: caption.to_owned(),
    }
}

const SLEEPS_CAPTION: &str = "Simulated: a processor that polls sleeps one to two time slices for each \
                              event. A converter's time is one for each message: where events share \
                              messages it comes out a little above its port, which no real one does.";

fn figures(simulated: &Simulated) -> Vec<Figure> {
    let mut farms = series(&simulated.farms, |n| format!("{n:.0} subfarms"), |n| n);
    farms.push(line("base requirement", BASE));
    farms.push(line("enhanced requirement", ENHANCED));
    let totals = simulated.farms.iter();
    let totals: Curve = totals
        .map(|(subfarms, curve)| (*subfarms, super::largest(curve)))
        .collect();
    vec![
        figure(
            "Throughput of a subfarm",
            "processors of a subfarm",
            "MB/s of a subfarm",
            farms,
            "Simulated with the protocol code: events of 150 kB, converters with the paper's port, \
             processors that take as long as four hand-overs. Fragments travel shortened: what \
             150 kB cost is the converter's time.",
        ),
        figure(
            "Throughput of the farm",
            "subfarms",
            "MB/s of all subfarms",
            vec![
                Series {
                    label: "simulated".to_owned(),
                    points: totals,
                },
                Series {
                    label: "enhanced requirement".to_owned(),
                    points: vec![(1.0, 16.0 * ENHANCED), (16.0, 16.0 * ENHANCED)],
                },
            ],
            "Simulated: the same farms, with as many processors as fill the converters.",
        ),
        figure(
            "What the sleeps of a polling processor cost",
            "processors",
            "MB/s of a subfarm",
            series(
                &simulated.sleeps,
                |slice| format!("time slice {slice} ms"),
                |_| 1.0,
            ),
            SLEEPS_CAPTION,
        ),
        figure(
            "What small socket buffers cost",
            "processors",
            "MB/s of a subfarm",
            series(
                &simulated.buffers,
                |kib| format!("buffers of {kib:.0} KiB"),
                |_| 1.0,
            ),
            "Simulated: Fast Ethernet between converter and processors, each asking for its next \
             event while it works on one. What the buffers do not hold of that comes only when \
             the processor reads.",
        ),
        figure(
            "What memory allows a converter",
            "memory bandwidth [MB/s]",
            "MB/s of a subfarm",
            vec![Series {
                label: "8 moves of each byte".to_owned(),
                points: simulated.memory.clone(),
            }],
            "Simulated: a converter that moves each byte eight times, behind a port of 16.5 MB/s.",
        ),
    ]
}

fn measured_table(measured: &Measured) -> Table {
    let mut rows = Vec::new();
    let mut add = |what: &str, curve: &Curve| {
        for (x, y) in curve {
            rows.push(vec![what.to_owned(), format!("{x:.0}"), format!("{y:.1}")]);
        }
    };
    add("filter units of one subfarm", &measured.by_units);
    add("subfarms, in shared memory", &measured.by_subfarms);
    add("subfarms, over TCP", &measured.by_subfarms_tcp);
    add(
        "KiB of each socket's buffer, bare stream",
        &measured.by_buffer,
    );
    Table {
        caption: "Measured on this machine: the whole stage on two cores, events of 150 kB; and a \
                  bare stream whose reader works as long as an event takes on it"
            .to_owned(),
        headings: ["varied", "value", "MB/s"].map(str::to_owned).to_vec(),
        rows,
        ..Table::default()
    }
}
