//! `level3`: Figure 2 of the Level-3 note (paper 002): throughput against number of processors.
//!
//! Measured: the whole stage of this program with events of 150 kB, for growing numbers of filter
//! units on two cores. Simulated, by the protocol code in simulated time: a converter with the 16.5
//! MB/s of the paper's port and processors that take as long for an event as four hand-overs, for one
//! subfarm; and the same with the sleeps of a polling processor. The lines are the base and the
//! enhanced requirement of one of 16 subfarms. Not simulated: several subfarms at once, and socket
//! buffers, whose drops the paper cured.

use std::thread;
use std::time::Duration;

use livetime_fabric::chain::{SimulatedChain, SimulatedChainConfig};
use livetime_fabric::time::DurationPs;
use livetime_node::{Chain, ChainConfig, RunFile};
use livetime_shm::floor::memcpy_through_pool;
use livetime_shm::{HugePages, PagePool, PoolConfig};
use livetime_source::{ArrivalKind, OfferMode};
use livetime_store::RunBegin;
use livetime_trigger::{Cut, Menu, MenuConfig, PathConfig};
use livetime_wire::{ByteSize, RunNumber};
use serde_json::{Value, json};

use crate::bench::document::rounded;
use crate::bench::{BenchError, chain, farm};
use crate::plot::{Axis, LinePlot, Series};
use crate::report::{Figure, Report, Table};

/// Name of the document's format.
pub const SCHEMA: &str = "livetime.study_level3/1";
const LINKS: u16 = 8;
const FRAGMENT_BYTES: u64 = 18_752;
const EVENT_BYTES: f64 = FRAGMENT_BYTES as f64 * LINKS as f64;
/// The paper's port of a converter \[MB/s\].
const PORT_MB_PER_S: f64 = 16.5;
/// 300 Hz x 150 kB and 1 kHz x 250 kB over 16 subfarms, and what the paper's text says \[MB/s\].
const BASE: f64 = 300.0 * 0.15 / 16.0;
const ENHANCED: f64 = 1000.0 * 0.25 / 16.0;
const BASE_OF_TEXT: f64 = 3.8;
/// Hand-overs that a processor's time for an event is as long as: so many fill a converter.
const PROCESSORS_PER_CONVERTER: f64 = 4.0;
/// One only: with more, the pages of the simulated links and not the converters set the limit.
const SUBFARMS: [u16; 1] = [1];
const PROCESSORS: [u16; 8] = [1, 2, 3, 4, 5, 6, 8, 12];
/// Time slices of a kernel; a sleep takes one to two of them \[ms\].
const SLICES_MS: [f64; 3] = [0.0, 1.0, 10.0];
const UNITS_MEASURED: [u16; 4] = [1, 2, 4, 8];
/// How far the plateau of a converter may be from its port.
const TOLERANCE: f64 = 0.05;

/// What the study found.
pub struct Level3Study {
    /// Everything as a document.
    pub document: Value,
    /// The same for people.
    pub report: Report,
    /// Whether the simulation reaches the port and both requirements are met by the measured stage.
    pub passed: bool,
}

/// A curve: processors and MB/s.
type Curve = Vec<(f64, f64)>;

/// Makes the study; `quick` measures for shorter times and simulates fewer events.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when an event is lost.
pub fn run(quick: bool, command: &str) -> Result<Level3Study, BenchError> {
    let time = Duration::from_millis(if quick { 300 } else { 2_000 });
    let events = if quick { 60 } else { 200 };
    let measured = UNITS_MEASURED
        .iter()
        .map(|units| Ok((f64::from(*units), measure(*units, time)?)))
        .collect::<Result<Curve, BenchError>>()?;
    let message = calibrated_message(events)?;
    let farms = SUBFARMS
        .iter()
        .map(|subfarms| {
            let points = PROCESSORS.iter().map(|processors| {
                let rate = simulate(message, *subfarms, *processors, 0.0, events)?;
                Ok((f64::from(*processors), rate / f64::from(*subfarms)))
            });
            Ok((*subfarms, points.collect::<Result<Curve, BenchError>>()?))
        })
        .collect::<Result<Vec<(u16, Curve)>, BenchError>>()?;
    let sleeps = SLICES_MS
        .iter()
        .map(|slice| {
            let points = PROCESSORS.iter().map(|processors| {
                let rate = simulate(message, 1, *processors, *slice, events)?;
                Ok((f64::from(*processors), rate))
            });
            Ok((*slice, points.collect::<Result<Curve, BenchError>>()?))
        })
        .collect::<Result<Vec<(f64, Curve)>, BenchError>>()?;
    let copy_gb_per_s = copy_speed()?;
    let plateau = farms[0].1.iter().map(|point| point.1).fold(0.0, f64::max);
    let best = measured.iter().map(|point| point.1).fold(0.0, f64::max);
    let reaches_port = (plateau / PORT_MB_PER_S - 1.0).abs() <= TOLERANCE;
    let passed = reaches_port && best >= 16.0 * ENHANCED;
    let document = json!({
        "schema": SCHEMA,
        "quick": quick,
        "event_bytes": EVENT_BYTES,
        "requirements_mb_per_s": {
            "base_per_subfarm": BASE, "base_of_text": BASE_OF_TEXT,
            "enhanced_per_subfarm": ENHANCED, "port": PORT_MB_PER_S,
        },
        "measured": {
            "simulated": false,
            "mb_per_s_by_filter_units": curve_json(&measured),
        },
        "predicted": farms.iter().map(|(subfarms, curve)| json!({
            "simulated": true,
            "subfarms": subfarms,
            "mb_per_s_per_subfarm_by_processors": curve_json(curve),
        })).collect::<Vec<_>>(),
        "sleep_granularity": sleeps.iter().map(|(slice, curve)| json!({
            "simulated": true,
            "slice_ms": slice,
            "mb_per_s_by_processors": curve_json(curve),
        })).collect::<Vec<_>>(),
        "memory": {
            "copy_gb_per_s": rounded(copy_gb_per_s),
            "paper_moves_per_byte": 8,
            "mb_per_s_at_paper_moves": rounded(copy_gb_per_s * 1e3 / 8.0),
        },
        "plateau_mb_per_s": rounded(plateau),
        "passed": passed,
    });
    let report = page(&document, command, passed, &measured, &farms, &sleeps);
    Ok(Level3Study {
        document,
        report,
        passed,
    })
}

fn curve_json(curve: &Curve) -> Value {
    let points = curve.iter();
    points.map(|(x, y)| json!([x, rounded(*y)])).collect()
}

/// Opens a path for every trigger.
fn everything() -> Menu {
    let mut menu = MenuConfig::default();
    menu.paths.push(PathConfig {
        name: "EVERYTHING".to_owned(),
        bit: 127,
        l1_mask: u64::MAX,
        cut: Cut::Auto,
        prescale: 1.into(),
    });
    Menu::new_checked(menu, "trigger").expect("the path has a bit of its own")
}

/// MB/s of the whole stage on this machine with so many filter units.
fn measure(units: u16, time: Duration) -> Result<f64, BenchError> {
    let mut config: ChainConfig = farm::stage_config();
    config.source.triggers.arrival.kind = ArrivalKind::Unpaced;
    config.source.triggers.mode = OfferMode::Lossless;
    config.source.fragment.bytes_mean = ByteSize(FRAGMENT_BYTES);
    config.source.fragment.bytes_max = ByteSize(FRAGMENT_BYTES);
    config.builder.filter_units = units;
    config.workers = chain::workers(&config);
    let file = RunFile::discarding(&RunBegin::new(RunNumber(1)), config.store)?;
    let chain = Chain::start(&config, file)?;
    thread::sleep(time / 4);
    let before = chain.snapshot();
    thread::sleep(time);
    let after = chain.snapshot();
    chain::end_in_order(chain)?;
    let filtered =
        |counts: livetime_wire::ChainCounts| counts.filter_accepted + counts.filter_rejected;
    let events = filtered(after.counts()) - filtered(before.counts());
    let seconds = after.at.since(before.at).as_seconds().max(1e-9);
    Ok(events as f64 * EVENT_BYTES / seconds / 1e6)
}

/// The simulated farm: MB/s of all subfarms. `slice_ms` is the time slice of a kernel in which a
/// processor sleeps between two looks.
fn simulate(
    message: DurationPs,
    subfarms: u16,
    processors: u16,
    slice_ms: f64,
    events: u64,
) -> Result<f64, BenchError> {
    let mut config = SimulatedChainConfig::new(RunNumber(1), LINKS, 1, everything());
    config.source.triggers.mode = OfferMode::Lossless;
    config.source.triggers.arrival.kind = ArrivalKind::Unpaced;
    config.source.triggers.duration = None;
    // Shortened on their way: what 150 kB cost is the time of the converter.
    config.source.fragment.bytes_mean = ByteSize(1024);
    config.source.fragment.log_sigma = 0.0;
    config.builder.builder_units = subfarms;
    config.builder.filter_units = subfarms * processors;
    // A processor asks for its next event when it is through with the one before.
    config.builder.filter_in_flight = 1;
    config.store.events_indexed_max = 10_000;
    config.store.chunks_indexed_max = 10_000;
    let hand_over_s = EVENT_BYTES / (PORT_MB_PER_S * 1e6);
    let filter_s = PROCESSORS_PER_CONVERTER * hand_over_s + 1.5e-3 * slice_ms;
    let service = &mut config.timing.service;
    service.builder_message = message;
    service.filter = DurationPs::from_us((filter_s * 1e6) as u64);
    // Twice, with other numbers of events: start and end of a run fall out of the difference.
    let events = events * u64::from(subfarms);
    let mut seconds = |triggers: u64| {
        config.source.triggers.triggers_max = Some(triggers);
        taken(&config)
    };
    let between = seconds(2 * events)? - seconds(events)?;
    Ok(events as f64 * EVENT_BYTES / between.max(1e-9) / 1e6)
}

/// Simulated seconds until the farm was through with everything.
fn taken(config: &SimulatedChainConfig) -> Result<f64, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::Simulation(error.to_string());
    let chain = SimulatedChain::new_checked(config).map_err(|error| failed(&error))?;
    let outcome = chain.run();
    let is_whole = outcome.is_drained && outcome.conservation_problems().is_empty();
    if !is_whole || Some(outcome.counts.events_built) != config.source.triggers.triggers_max {
        return Err(failed(&"the simulated farm did not conserve its events"));
    }
    Ok(outcome.ended_at.0 as f64 * 1e-9)
}

/// The time of a converter for a message with which it hands over what its port brings: found by
/// simulation, since how many messages an event takes is the protocol's business.
fn calibrated_message(events: u64) -> Result<DurationPs, BenchError> {
    let trial = DurationPs::from_us(1_000);
    let processors = 64;
    let rate = simulate(trial, 1, processors, 0.0, events)?;
    let scaled = trial.0 as f64 * rate / PORT_MB_PER_S;
    Ok(DurationPs(scaled as u64))
}

/// Copies through pages of 64 KiB on this machine.
fn copy_speed() -> Result<f64, BenchError> {
    let pool = PagePool::create(&PoolConfig {
        pages: 256,
        page_bytes: 64 * 1024,
        huge_pages: HugePages::Prefer,
    })?;
    Ok(memcpy_through_pool(&pool, 256 << 20)?.gb_per_s())
}

fn page(
    document: &Value,
    command: &str,
    passed: bool,
    measured: &Curve,
    farms: &[(u16, Curve)],
    sleeps: &[(f64, Curve)],
) -> Report {
    let line = |label: &str, value: f64| Series {
        label: label.to_owned(),
        points: vec![(1.0, value), (12.0, value)],
    };
    let mut series: Vec<Series> = (farms.iter())
        .map(|(subfarms, curve)| Series {
            label: format!("simulated, {subfarms} subfarms"),
            points: curve.clone(),
        })
        .collect();
    series.push(line("base requirement", BASE));
    series.push(line("enhanced requirement", ENHANCED));
    let predicted = LinePlot {
        title: "Throughput of a subfarm".to_owned(),
        x: Axis::linear("processors of a subfarm"),
        y: Axis::linear("MB/s of a subfarm"),
        series,
    };
    let of_sleeps = LinePlot {
        title: "What the sleeps of a polling processor cost".to_owned(),
        x: Axis::linear("processors"),
        y: Axis::linear("MB/s of a subfarm"),
        series: (sleeps.iter())
            .map(|(slice, curve)| Series {
                label: format!("simulated, time slice {slice} ms"),
                points: curve.clone(),
            })
            .collect(),
    };
    let figure = |plot: &LinePlot, caption: &str| Figure {
        svg: plot.to_svg(),
        caption: caption.to_owned(),
    };
    let row = |(x, y): &(f64, f64)| vec![format!("{x:.0}"), format!("{y:.1}")];
    Report {
        title: "Level 3: throughput against processors".to_owned(),
        subtitle: "Figure 2 of the Level-3 note, measured and simulated".to_owned(),
        verdict: match passed {
            true => {
                "the simulated converter fills its port, and this machine takes the enhanced rate"
            }
            false => {
                "a converter does not fill its port, or this machine is below the enhanced rate"
            }
        }
        .to_owned(),
        verdict_good: passed,
        figures_of_merit: vec![
            ("base, per subfarm".to_owned(), format!("{BASE:.2} MB/s")),
            (
                "enhanced, per subfarm".to_owned(),
                format!("{ENHANCED:.2} MB/s"),
            ),
            (
                "port of a converter".to_owned(),
                format!("{PORT_MB_PER_S} MB/s"),
            ),
        ],
        figures: vec![
            figure(
                &predicted,
                "Simulated with the protocol code: events of 150 kB, a converter with the paper's \
                 port, processors that take as long as four hand-overs. Fragments travel shortened: what 150 kB cost is the converter's time.",
            ),
            figure(
                &of_sleeps,
                "Simulated: a processor that polls sleeps one to two time slices for each event.",
            ),
        ],
        tables: vec![Table {
            caption: "Measured on this machine: the whole stage on two cores, events of 150 kB"
                .to_owned(),
            headings: vec!["filter units".to_owned(), "MB/s".to_owned()],
            rows: measured.iter().map(row).collect(),
        }],
        command: command.to_owned(),
        config: String::new(),
        summary_json: document.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_converter_is_filled_by_its_processors_and_no_further() {
        let message = calibrated_message(40).unwrap();
        let [one, two, many] =
            [1, 2, 12].map(|processors| simulate(message, 1, processors, 0.0, 40).unwrap());
        assert!((1.7..2.3).contains(&(two / one)), "{one} {two}");
        assert!((many / PORT_MB_PER_S - 1.0).abs() < 0.1, "{many}");
        let slow = simulate(message, 1, 1, 10.0, 40).unwrap();
        assert!(slow < 0.85 * one, "sleeps of 10 ms cost: {slow} of {one}");
    }
}
