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
/// Most events whose read-back is drawn: more would not be told apart, and a turn may be hours long.
const DRAWN_MAX: usize = 8_192;
/// Events between two looks whether to stop: some milliseconds.
const LOOK_EVERY: u64 = 256;

/// What the events of the file say.
struct Taken {
    /// TAI at the start of the run if its spills are aligned, else 0.
    origin: TaiNs,
    /// Trigger times of all events, in order.
    times: Vec<RunNs>,
    measured: Measured,
    inside: u64,
    outside: u64,
}

/// What was read back of the shown ramps, in every so-many-th event of the turns that are drawn.
struct Measured {
    shown: Vec<usize>,
    until: RunNs,
    /// Of so many events one is kept.
    every: u64,
    seen: u64,
    /// Trigger times and read-backs by shown ramp.
    events: Vec<(RunNs, [Option<i32>; RAMPS])>,
}

/// What came of making the figure.
pub(crate) enum SpillFigure {
    /// The run had no spill structure.
    None,
    Made(Figure),
    /// Somebody has stopped it.
    Stopped,
}

/// Makes the figure, if the run had a spill structure. It reads all events, between which it asks whether
/// to stop.
///
/// # Errors
/// What could not be read, in one sentence.
pub(crate) fn spill_figure(
    config: &str,
    run: &Path,
    is_stopped: &mut dyn FnMut() -> bool,
) -> Result<SpillFigure, String> {
    let Some(spill) = config::spill_of(config) else {
        return Ok(SpillFigure::None);
    };
    let taken = read_events(run, &spill, is_stopped);
    match taken.map_err(|error| format!("{}: {error}", run.display()))? {
        Some(taken) => Ok(SpillFigure::Made(draw(&spill, &taken)?)),
        None => Ok(SpillFigure::Stopped),
    }
}

fn core(spill: &ChainSpill, origin: TaiNs) -> Result<Spill, String> {
    let joined = |problems: Vec<livetime_wire::Problem>| {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        texts.join("; ")
    };
    Spill::new(&spill.spill, origin).map_err(joined)
}

fn read_events(
    path: &Path,
    spill: &ChainSpill,
    is_stopped: &mut dyn FnMut() -> bool,
) -> Result<Option<Taken>, Box<dyn std::error::Error>> {
    let mut reader = RunFolder::open(path)?;
    let origin = match spill.spill.align {
        Some(_) => TaiNs(reader.begin().map_or(0, |begin| begin.started_tai_ns)),
        None => TaiNs(0),
    };
    let waited = spill.spill.first_turn(origin).0 - origin.0;
    let until = waited.saturating_add(spill.spill.period.0.saturating_mul(TURNS));
    let mut measured = Measured::new(shown_ramps(spill), RunNs(until));
    let mut times = Vec::new();
    loop {
        if (times.len() as u64).is_multiple_of(LOOK_EVERY) && is_stopped() {
            return Ok(None);
        }
        let Some(event) = reader.next_event()? else {
            break;
        };
        let at = event.header().triggered_at;
        times.push(at);
        if measured.takes(at) {
            let read_back = event.fragments().find_map(|(_, words)| {
                let data = words.get(HEADER_WORDS..words.len().checked_sub(TRAILER_WORDS)?)?;
                ReadBackView::new_checked(data).ok()
            });
            measured.add(at, read_back);
        }
    }
    // Files of several writers take turns.
    times.sort_unstable();
    measured.events.sort_unstable_by_key(|(at, _)| *at);
    let mut core = core(spill, origin)?;
    let (mut inside, mut outside) = (0, 0);
    for at in &times {
        core.advance(TaiNs(origin.0 + at.0));
        if core.is_gate_open() {
            inside += 1;
        } else {
            outside += 1;
        }
    }
    Ok(Some(Taken {
        origin,
        times,
        measured,
        inside,
        outside,
    }))
}

impl Measured {
    fn new(shown: Vec<usize>, until: RunNs) -> Self {
        Self {
            shown,
            until,
            every: 1,
            seen: 0,
            events: Vec::new(),
        }
    }

    /// Whether the event of this time is one to be kept.
    fn takes(&mut self, at: RunNs) -> bool {
        if at >= self.until {
            return false;
        }
        self.seen += 1;
        (self.seen - 1).is_multiple_of(self.every)
    }

    /// Keeps one; where that makes too many, each other one goes, and from here on as few are taken.
    fn add(&mut self, at: RunNs, read_back: Option<ReadBackView<'_>>) {
        let mut values = [None; RAMPS];
        if let Some(view) = read_back {
            for (value, ramp) in values.iter_mut().zip(&self.shown) {
                *value = view.generators().nth(*ramp).map(|g| g.read_back);
            }
        }
        self.events.push((at, values));
        if self.events.len() > DRAWN_MAX {
            let mut index = 0_usize;
            self.events.retain(|_| {
                index += 1;
                !index.is_multiple_of(2)
            });
            self.every *= 2;
        }
    }

    /// The read-back of a shown ramp.
    fn series(&self, index: usize, shown_times: &Range<u64>) -> Series {
        let drawn = (self.events.iter()).filter(|(at, _)| shown_times.contains(&at.0));
        let points = drawn.filter_map(|(at, values)| {
            let read_back = values.get(index).copied().flatten()?;
            Some((seconds(at.0), percent(read_back)))
        });
        let ramp = self.shown[index];
        Series {
            label: match self.every {
                1 => format!("magnet {ramp}, read back in events"),
                every => format!("magnet {ramp}, read back in one of {every} events"),
            },
            points: points.collect(),
        }
    }
}

fn percent(value: i32) -> f64 {
    f64::from(value) / FULL_SCALE * 100.0
}

fn seconds(ns: u64) -> f64 {
    ns as f64 * 1e-9
}

/// How much is drawn, as far as there are events: turns may be hours long, and a core goes through all
/// of the time.
fn drawn_ns(spill: &ChainSpill, taken: &Taken, waited: u64) -> u64 {
    let last = taken.times.last().map_or(0, |at| at.0);
    let ran = last.saturating_sub(waited).max(DurationNs::SECOND.0);
    spill.spill.period.0.saturating_mul(TURNS).min(ran)
}

fn draw(spill: &ChainSpill, taken: &Taken) -> Result<Figure, String> {
    let first = spill.spill.first_turn(taken.origin);
    let waited = first.0 - taken.origin.0;
    let length = drawn_ns(spill, taken, waited);
    let shown = &taken.measured.shown;
    let mut core = core(spill, taken.origin)?;
    let mut outputs = vec![Vec::new(); shown.len()];
    let mut gate = Vec::new();
    for point in 0..=POINTS {
        let at = waited + length * point / POINTS;
        let tai = TaiNs(taken.origin.0 + at);
        core.advance(tai);
        let generators: Vec<_> = core.read_back(tai).collect();
        for (series, ramp) in outputs.iter_mut().zip(shown) {
            series.push((seconds(at), percent(generators[*ramp].output)));
        }
        gate.push((seconds(at), if core.is_gate_open() { 100.0 } else { 0.0 }));
    }
    let mut series = vec![Series {
        label: "trigger gate (100 % is open)".to_owned(),
        points: gate,
    }];
    let shown_times = waited..waited + length;
    for (index, (ramp, points)) in shown.iter().zip(outputs).enumerate() {
        series.push(Series {
            label: format!("ramp {ramp}, scheduled"),
            points,
        });
        series.push(taken.measured.series(index, &shown_times));
    }
    let times = taken.times.iter().map(|at| at.0);
    series.push(Series {
        label: "events, % of the fullest bin".to_owned(),
        points: density(times.filter(|at| shown_times.contains(at)), &shown_times),
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
            taken.times.len(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_events_a_few_are_kept_over_all_of_the_time() {
        let most = 100 * DRAWN_MAX as u64;
        let mut measured = Measured::new(vec![0], RunNs(most));
        for at in 0..most + 9 {
            if measured.takes(RunNs(at)) {
                measured.add(RunNs(at), None);
            }
        }
        let events = &measured.events;
        assert!((DRAWN_MAX / 2..=DRAWN_MAX).contains(&events.len()));
        let spacing = |pair: &[(RunNs, [Option<i32>; RAMPS])]| pair[1].0.0 - pair[0].0.0;
        assert!(
            events
                .windows(2)
                .all(|pair| spacing(pair) == measured.every)
        );
        assert_eq!(events[0].0, RunNs(0));
        assert!(most - events[events.len() - 1].0.0 <= measured.every);
    }
}
