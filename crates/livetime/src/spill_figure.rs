//! Ramps, gates, triggers and read-back of a run with `[timing]`, on one time axis.
//!
//! What was scheduled is computed again from the configuration by the core that the run used; what
//! was taken is read from the events of the run file. Each event is compared with the gates.

use std::ops::Range;
use std::path::Path;

use livetime_client::RunFolder;
use livetime_node::ChainSpill;
use livetime_study::plot::{Axis, LinePlot, Series};
use livetime_study::report::Figure;
use livetime_timing::Spill;
use livetime_wire::fragment::{HEADER_WORDS, TRAILER_WORDS};
use livetime_wire::timing_read_back::ReadBackView;
use livetime_wire::{DurationNs, RunNs, TaiNs};

use crate::config;

/// Turns of the schedule that are drawn.
const TURNS: u64 = 2;
/// Points of a drawn curve.
const POINTS: u64 = 800;
/// Bins of the triggers.
const BINS: usize = 200;
/// Ramps that are drawn: the first ones that differ and are not negative.
const RAMPS: usize = 2;
const FULL_SCALE: f64 = 2_147_483_647.0;

/// What the events of the file say.
struct Taken {
    /// TAI at the start of the run if its spills are aligned, else 0.
    origin: TaiNs,
    /// Trigger times and the generators' (output, read-back).
    events: Vec<(RunNs, Vec<(i32, i32)>)>,
    inside: u64,
    outside: u64,
}

/// The figure, if the run had a spill structure.
///
/// # Errors
/// What could not be read, in one sentence.
pub(crate) fn spill_figure(config: &str, run: &Path) -> Result<Option<Figure>, String> {
    let Some(spill) = config::spill_of(config) else {
        return Ok(None);
    };
    let taken = read_events(run, &spill).map_err(|error| format!("{}: {error}", run.display()))?;
    Ok(Some(draw(&spill, &taken)?))
}

fn core(spill: &ChainSpill, origin: TaiNs) -> Result<Spill, String> {
    let joined = |problems: Vec<livetime_wire::Problem>| {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        texts.join("; ")
    };
    Spill::new(&spill.spill, origin).map_err(joined)
}

fn read_events(path: &Path, spill: &ChainSpill) -> Result<Taken, Box<dyn std::error::Error>> {
    let mut reader = RunFolder::open(path)?;
    let origin = match spill.spill.align {
        Some(_) => TaiNs(reader.begin().map_or(0, |begin| begin.started_tai_ns)),
        None => TaiNs(0),
    };
    let mut events = Vec::new();
    while let Some(event) = reader.next_event()? {
        let read_back = event.fragments().find_map(|(_, words)| {
            let data = words.get(HEADER_WORDS..words.len().checked_sub(TRAILER_WORDS)?)?;
            ReadBackView::new_checked(data).ok()
        });
        let generators = read_back.map_or_else(Vec::new, |view| {
            view.generators().map(|g| (g.output, g.read_back)).collect()
        });
        events.push((event.header().triggered_at, generators));
    }
    events.sort_unstable_by_key(|(at, _)| *at);
    let mut core = core(spill, origin)?;
    let (mut inside, mut outside) = (0, 0);
    for (at, _) in &events {
        core.advance(TaiNs(origin.0 + at.0));
        if core.is_gate_open() {
            inside += 1;
        } else {
            outside += 1;
        }
    }
    Ok(Taken {
        origin,
        events,
        inside,
        outside,
    })
}

/// How much is drawn, as far as there are events: turns may be hours long, and a core goes through all
/// of the time.
fn drawn_ns(spill: &ChainSpill, taken: &Taken, waited: u64) -> u64 {
    let last = taken.events.last().map_or(0, |(at, _)| at.0);
    let ran = last.saturating_sub(waited).max(DurationNs::SECOND.0);
    spill.spill.period.0.saturating_mul(TURNS).min(ran)
}

fn draw(spill: &ChainSpill, taken: &Taken) -> Result<Figure, String> {
    let first = spill.spill.first_turn(taken.origin);
    let waited = first.0 - taken.origin.0;
    let length = drawn_ns(spill, taken, waited);
    let percent = |value: i32| f64::from(value) / FULL_SCALE * 100.0;
    let seconds = |ns: u64| ns as f64 * 1e-9;
    let shown = shown_ramps(spill);
    let mut core = core(spill, taken.origin)?;
    let mut outputs = vec![Vec::new(); shown.len()];
    let mut gate = Vec::new();
    for point in 0..=POINTS {
        let at = waited + length * point / POINTS;
        let tai = TaiNs(taken.origin.0 + at);
        core.advance(tai);
        let generators: Vec<_> = core.read_back(tai).collect();
        for (series, ramp) in outputs.iter_mut().zip(&shown) {
            series.push((seconds(at), percent(generators[*ramp].output)));
        }
        gate.push((seconds(at), if core.is_gate_open() { 100.0 } else { 0.0 }));
    }
    let mut series = vec![Series {
        label: "trigger gate (100 % is open)".to_owned(),
        points: gate,
    }];
    let shown_times = waited..waited + length;
    let drawn = || (taken.events.iter()).filter(|(at, _)| shown_times.contains(&at.0));
    for (ramp, points) in shown.iter().zip(outputs) {
        series.push(Series {
            label: format!("ramp {ramp}, scheduled"),
            points,
        });
        let measured = drawn().filter_map(|(at, generators)| {
            let (_, read_back) = generators.get(*ramp)?;
            Some((seconds(at.0), percent(*read_back)))
        });
        series.push(Series {
            label: format!("magnet {ramp}, read back in events"),
            points: measured.collect(),
        });
    }
    series.push(Series {
        label: "events, % of the fullest bin".to_owned(),
        points: density(drawn().map(|(at, _)| at.0), &shown_times),
    });
    let plot = LinePlot {
        title: "Ramps, gate, events and read-back".to_owned(),
        x: Axis::linear("time since start [s]"),
        y: Axis::linear("[% of full scale]"),
        series,
    };
    let aligned = spill.spill.align.map_or_else(String::new, |align| {
        format!(
            " Turns are aligned to {align} of TAI: the first began at {first}, {} after the \
             start of the run.",
            DurationNs(waited)
        )
    });
    Ok(Figure {
        svg: plot.to_svg(),
        caption: format!(
            "The first {TURNS} turns of the schedule. Of the {} events in the run file {} were \
             triggered inside the gates and {} outside.{aligned} Generators and magnets are \
             simulated.",
            taken.events.len(),
            taken.inside,
            taken.outside
        ),
    })
}

/// The first ramps that differ from each other and never go below zero.
fn shown_ramps(spill: &ChainSpill) -> Vec<usize> {
    let ramps = &spill.spill.ramps;
    let mut shown: Vec<usize> = Vec::new();
    for (index, ramp) in ramps.iter().enumerate() {
        let new = shown.iter().all(|other| ramps[*other] != *ramp);
        if new && ramp.iter().all(|set| set.c >= 0) && shown.len() < RAMPS {
            shown.push(index);
        }
    }
    shown
}

/// Steps of how many times fall into each bin, in percent of the fullest.
fn density(times: impl Iterator<Item = u64>, shown: &Range<u64>) -> Vec<(f64, f64)> {
    let length = shown.end - shown.start;
    let mut counts = [0u64; BINS];
    for at in times {
        let bin = u128::from(at - shown.start) * BINS as u128 / u128::from(length.max(1));
        counts[(bin as usize).min(BINS - 1)] += 1;
    }
    let fullest = counts.iter().copied().max().unwrap_or(0).max(1) as f64;
    let edge = |bin: usize| (shown.start as f64 + length as f64 * bin as f64 / BINS as f64) * 1e-9;
    let steps = counts.iter().enumerate().flat_map(|(bin, count)| {
        let height = *count as f64 / fullest * 100.0;
        [(edge(bin), height), (edge(bin + 1), height)]
    });
    steps.collect()
}
