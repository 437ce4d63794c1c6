//! `livetime report DIR`: the report page of a run directory, from its files alone.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use livetime_client::RunFolder;
use livetime_node::chain_plan::FRONT_END;
use livetime_shm::plain_file::{self, TEXT_BYTES_MAX};
use livetime_store::{Histogram, RunSummary};
use livetime_study::plot::{Axis, HistogramPlot, LinePlot, Scale, Series};
use livetime_study::report::{Figure, Report};
use livetime_trigger::dimuon_mass;
use livetime_wire::{DurationNs, RateHz};

use crate::command_words::shell_words;
use crate::console::{print_line, say};
use crate::exit;
use crate::output_place;
use crate::run_summary::{latency_of, percent, taking_seconds};
use crate::spill_figure::{SpillFigure, spill_figure};

mod tables;

use tables::tables;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run directory, such as runs/000001
    directory: PathBuf,
    /// File to write; report.html in the run directory without it. Only a former page is replaced
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Writes the page.
pub(crate) fn run(options: &Options) -> ExitCode {
    let output = options
        .output
        .clone()
        .unwrap_or_else(|| options.directory.join("report.html"));
    let place = output_place::check_page(&output);
    let write = || write_again(&options.directory, &output);
    match place.and_then(|()| write()) {
        Ok(shortage) => {
            let printed = exit::after_printing(print_line(output.display()));
            let Some(shortage) = shortage else {
                return printed;
            };
            say(format_args!("warning: {}", shortage.said));
            exit::PROBLEM
        }
        Err(error) => {
            say(format_args!("error: {error}"));
            exit::PROBLEM
        }
    }
}

/// What the files of a run lack of what it stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    /// In words, with the directory.
    said: String,
    /// Whether hosts have files of the run that are not here.
    is_elsewhere: bool,
}

impl Shortage {
    /// What the run itself has to say of it: that hosts have the rest is no fault.
    pub(crate) fn of_run(self) -> Option<String> {
        (!self.is_elsewhere).then_some(self.said)
    }
}

/// Why there is no report of a run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoPage {
    /// Somebody has stopped it.
    #[error("stopped while the report was made; `livetime report {}` makes it", .0.display())]
    Stopped(PathBuf),
    /// What could not be read or written, in one sentence.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for NoPage {
    fn from(error: String) -> Self {
        Self::Failed(error)
    }
}

/// Writes the report of a run directory by its summary there.
fn write_again(directory: &Path, output: &Path) -> Result<Option<Shortage>, String> {
    let summary = read_file(directory, "summary.json").map_err(|error| {
        let Ok(run) = RunFolder::open(directory) else {
            return error;
        };
        let reason = match run.end() {
            Some(_) => {
                "it is an imported run, its summary was removed, or the disk had no room for it"
            }
            None => "the run did not end in order",
        };
        let directory = directory.display();
        format!("{error}: {reason}; `livetime inspect {directory}` says what is in its files")
    })?;
    let page = write_page(directory, &summary, output, Duration::ZERO, &mut || false);
    page.map_err(|error| error.to_string())
}

fn read_file(directory: &Path, name: &str) -> Result<String, String> {
    let path = directory.join(name);
    plain_file::read_text(&path, TEXT_BYTES_MAX)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Writes the report of a run directory with this summary; what its files lack of what the run stored.
/// It reads all events, between which it asks whether to stop; a disk without room is waited for as long
/// as `patience`.
///
/// # Errors
/// [`NoPage`].
pub(crate) fn write_page(
    directory: &Path,
    summary_json: &str,
    output: &Path,
    patience: Duration,
    is_stopped: &mut dyn FnMut() -> bool,
) -> Result<Option<Shortage>, NoPage> {
    let summary: RunSummary = serde_json::from_str(summary_json).map_err(|error| {
        let path = directory.join("summary.json");
        format!("{} is no run summary: {error}", path.display())
    })?;
    let config = read_file(directory, "config.toml")?;
    let stored = read_stored(directory, is_stopped);
    let stored = stored.map_err(|error| format!("cannot read the run: {error}"))?;
    let Some(stored) = stored else {
        return Err(NoPage::Stopped(directory.to_owned()));
    };
    let spill = match spill_figure(&config, directory, is_stopped)? {
        SpillFigure::None => None,
        SpillFigure::Made(figure) => Some(figure),
        SpillFigure::Stopped => return Err(NoPage::Stopped(directory.to_owned())),
    };
    let mut report = page(&summary, config, summary_json.to_owned(), &stored);
    report.figures.splice(0..0, spill);
    output_place::write_when_room(output, report.to_html(), patience, is_stopped)?;
    let directory = directory.display();
    Ok(shortage(&summary, &stored).map(|shortage| Shortage {
        said: format!("{directory}: {shortage}; `livetime inspect {directory}` says where"),
        is_elsewhere: !stored.elsewhere.is_empty(),
    }))
}

/// That the files hold fewer events than the run stored, in words.
fn shortage(summary: &RunSummary, stored: &Stored) -> Option<String> {
    let (here, then) = (stored.events, summary.counts.events_stored);
    let places = stored.elsewhere.join(", ");
    let others = match places.is_empty() {
        true => String::new(),
        false => format!("; hosts have the others: {places}"),
    };
    (here < then).then(|| {
        format!(
            "the run files here hold {here} whole events of the {then} that the run stored{others}"
        )
    })
}

/// What the report takes from the run file.
struct Stored {
    masses: HistogramPlot,
    histograms: Vec<Histogram>,
    events: u64,
    /// Files that only the hosts of their writers have, as `HOST:PATH`.
    elsewhere: Vec<String>,
}

/// Reads the stored events and fills the mass histogram from their full-precision objects; `None` when
/// it was stopped.
fn read_stored(
    path: &Path,
    is_stopped: &mut dyn FnMut() -> bool,
) -> Result<Option<Stored>, Box<dyn std::error::Error>> {
    /// Events between two looks whether to stop: some milliseconds.
    const LOOK_EVERY: u64 = 256;
    const LOW: f64 = 40.0;
    const HIGH: f64 = 140.0;
    const BINS: usize = 100;
    let mut reader = RunFolder::open(path)?;
    let histograms = reader.histograms()?.unwrap_or_default();
    let mut counts = vec![0.0_f64; BINS];
    let (mut below, mut above, mut events) = (0.0, 0.0, 0_u64);
    loop {
        if events.is_multiple_of(LOOK_EVERY) && is_stopped() {
            return Ok(None);
        }
        let Some(event) = reader.next_event()? else {
            break;
        };
        events += 1;
        let Some(mass) = dimuon_mass(&event) else {
            continue;
        };
        let bin = ((mass - LOW) / (HIGH - LOW) * BINS as f64).floor();
        match bin {
            bin if bin < 0.0 => below += 1.0,
            bin if bin >= BINS as f64 => above += 1.0,
            bin => counts[bin as usize] += 1.0,
        }
    }
    let edges: Vec<f64> = (0..=BINS).map(|i| LOW + i as f64).collect();
    let peak = peak_position(&counts, &edges);
    let masses = HistogramPlot {
        title: "Dimuon mass of the stored events".to_owned(),
        x: Axis::linear("dimuon mass [GeV]"),
        y: Axis::linear("events / 1 GeV"),
        edges,
        counts,
        underflow: below,
        overflow: above,
        marks: peak
            .map(|peak| (peak, format!("peak {peak:.1} GeV")))
            .into_iter()
            .collect(),
    };
    Ok(Some(Stored {
        masses,
        histograms,
        events,
        elsewhere: reader.files_elsewhere(),
    }))
}

/// Where the peak is: the mean of the entries within three bins of the highest one.
fn peak_position(counts: &[f64], edges: &[f64]) -> Option<f64> {
    const REACH: usize = 3;
    let (highest, count) = (counts.iter().enumerate()).max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    if *count <= 0.0 {
        return None;
    }
    let first = highest.saturating_sub(REACH);
    let bins = first..(highest + REACH + 1).min(counts.len());
    let sum: f64 = counts[bins.clone()].iter().sum();
    let centre = |bin: usize| (edges[bin] + edges[bin + 1]) / 2.0;
    Some(bins.map(|bin| counts[bin] * centre(bin)).sum::<f64>() / sum)
}

/// The sentence at the top, and whether it is a good one.
fn verdict(summary: &RunSummary, stored: &Stored) -> (String, bool) {
    let unseen = &summary.not_seen_to_end;
    let text = if summary.conserved && !unseen.is_empty() {
        format!(
            "What was heard last is accounted for, and no more: nobody has seen {} end.",
            unseen.join(", ")
        )
    } else if summary.conserved {
        let lost = summary.losses.total();
        let named = if lost == 0 {
            "nothing was lost".to_owned()
        } else {
            format!("{lost} losses are named")
        };
        format!("Every fragment and event is accounted for; {named}.")
    } else {
        format!(
            "Not accounted for: {}",
            summary.conservation_problems.join("; ")
        )
    };
    match shortage(summary, stored) {
        None => (text, summary.conserved),
        Some(shortage) if stored.elsewhere.is_empty() => (
            format!(
                "Now {shortage}: they were cut off or damaged afterwards, or are in part \
                 elsewhere. When the run ended: {text}"
            ),
            false,
        ),
        Some(shortage) => (format!("{text} Now {shortage}."), summary.conserved),
    }
}

fn page(summary: &RunSummary, config: String, summary_json: String, stored: &Stored) -> Report {
    let run = &summary.run;
    let (verdict, verdict_good) = verdict(summary, stored);
    let mut figures = vec![Figure {
        svg: stored.masses.to_svg(),
        caption: format!(
            "From the full-precision objects of the {} events in the run file, not from the coarse \
             trigger words.",
            stored.events
        ),
    }];
    figures.extend(latency_figure(summary, stored));
    figures.extend(rate_figure(summary));
    Report {
        title: match summary.simulated {
            true => format!("Simulated run {:06}", run.number),
            false => format!("Run {:06}", run.number),
        },
        subtitle: format!(
            "{} · {:.1} s · seed {} · configuration {} · livetime {}",
            run.condition, run.duration_s, run.seed, run.config_hash, run.version
        ),
        verdict,
        verdict_good,
        figures_of_merit: key_figures(summary),
        figures,
        tables: tables(summary),
        command: shell_words(&summary.command),
        config,
        summary_json,
    }
}

fn key_figures(summary: &RunSummary) -> Vec<(String, String)> {
    let counts = &summary.counts;
    let seconds = taking_seconds(summary);
    let rate = |count: u64| RateHz(count as f64 / seconds).to_string();
    let decision = &summary.latency.decision;
    let of_roles = summary.roles.values().flatten();
    let by_gate = of_roles.filter(|(name, _)| name.starts_with("refused_gate"));
    let by_gate: u64 = by_gate.map(|(_, count)| count).sum();
    let gate = (by_gate > 0).then(|| ("refused by the trigger gate", by_gate.to_string()));
    let source = summary.roles.get(FRONT_END);
    let paused = source.and_then(|details| details.get("paused_ms"));
    let paused = paused.filter(|ms| **ms > 0);
    let paused = paused.map(|ms| ("paused", DurationNs(ms * 1_000_000).to_string()));
    let figures = [
        ("triggers", rate(counts.triggers)),
        (
            "dead time (offers refused)",
            percent(summary.dead_time.refused_fraction, 2),
        ),
        ("Level-2 accepts", rate(counts.l2_accepted)),
        ("events stored", counts.events_stored.to_string()),
        (
            "decision latency, median",
            latency_of(decision, decision.p50),
        ),
        (
            "decision latency, 99.9 %",
            latency_of(decision, decision.p99_9),
        ),
        (
            "built",
            format!("{:.1} MB/s", summary.throughput_bytes_per_s / 1e6),
        ),
    ];
    let figures = figures.into_iter().chain(gate).chain(paused);
    figures
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn latency_figure(summary: &RunSummary, stored: &Stored) -> Option<Figure> {
    let histogram = stored
        .histograms
        .iter()
        .find(|h| h.name() == "decision_latency")?;
    let axis = histogram.axes().first()?;
    let bins = axis.bins();
    let latency = &summary.latency.decision;
    let mark = |ns: u64, name: &str| (ns as f64 / 1e3, format!("{name} {}", DurationNs(ns)));
    let plot = HistogramPlot {
        title: "Decision latency".to_owned(),
        x: Axis::log("latency [us]"),
        y: Axis {
            title: "triggers / bin".to_owned(),
            scale: Scale::Log,
        },
        edges: (0..=bins).map(|i| axis.edge(i) / 1e3).collect(),
        counts: (1..=bins).map(|bin| histogram.count(bin)).collect(),
        underflow: histogram.count(0),
        overflow: histogram.count(bins + 1),
        marks: match latency.count {
            0 => Vec::new(),
            _ => vec![
                mark(latency.p50, "50 %"),
                mark(latency.p99, "99 %"),
                mark(latency.p99_9, "99.9 %"),
                mark(latency.max, "max"),
            ],
        },
    };
    Some(Figure {
        svg: plot.to_svg(),
        caption: "From the first word of the trigger packet to the last word of the reply at the \
                  supervisor. On a shared or virtual machine the tail is the machine's."
            .to_owned(),
    })
}

fn rate_figure(summary: &RunSummary) -> Option<Figure> {
    let rates = summary.rates.as_ref()?;
    let series = |key: &str, label: &str| {
        let values = rates.series.get(key)?;
        let at = |(i, value): (usize, &f64)| ((i + 1) as f64 * rates.interval_s, *value);
        Some(Series {
            label: label.to_owned(),
            points: values.iter().enumerate().map(at).collect(),
        })
    };
    let values = rates.series.values().map(Vec::len).max().unwrap_or(0);
    if values < 2 {
        let caption = format!(
            "Rates over the run are not drawn: they are means over whole intervals of {} s, of which the \
             run had {values}, and a line takes two.",
            rates.interval_s
        );
        return Some(Figure {
            svg: String::new(),
            caption,
        });
    }
    let plot = LinePlot {
        title: "Rates over the run".to_owned(),
        x: Axis::linear("time of data taking [s]"),
        y: Axis {
            title: "rate [Hz]".to_owned(),
            scale: Scale::Log,
        },
        series: [
            series("trigger_hz", "triggers"),
            series("l2_accept_hz", "Level-2 accepts"),
            series("filter_accept_hz", "filter accepts"),
        ]
        .into_iter()
        .flatten()
        .collect(),
    };
    let caption = format!("Means over intervals of {} s.", rates.interval_s);
    Some(Figure {
        svg: plot.to_svg(),
        caption,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use livetime_store::summary::{Latencies, RunIdentification};
    use livetime_store::{Condition, RunBegin, RunEnd, RunWriter, WriterLimits};
    use livetime_wire::{ChainCounts, LossCounts, RunNumber};

    use super::*;

    /// A run without events in `folder`.
    fn write_run(folder: &Path) {
        let begin = RunBegin::new(RunNumber(1));
        let file = fs::File::create(folder.join("events.mcap")).unwrap();
        let mut writer = RunWriter::new(file, &begin, WriterLimits::default()).unwrap();
        let end = RunEnd::new(RunNumber(1), Condition::GOOD, "it has ended", 0);
        writer.finish(&end).unwrap();
        let run = RunIdentification {
            number: 1,
            ..RunIdentification::default()
        };
        let (counts, losses) = (ChainCounts::default(), LossCounts::default());
        let summary = RunSummary::new(run, &counts, &losses, Latencies::default());
        let summary = serde_json::to_string(&summary).unwrap();
        fs::write(folder.join("summary.json"), summary).unwrap();
        fs::write(folder.join("config.toml"), "").unwrap();
    }

    #[test]
    fn a_report_that_is_stopped_leaves_no_page_and_says_who_makes_it() {
        let folder = tempfile::tempdir().unwrap();
        write_run(folder.path());
        let page = folder.path().join("report.html");
        let summary = fs::read_to_string(folder.path().join("summary.json")).unwrap();
        let write = |is_stopped: bool| {
            let mut stop = || is_stopped;
            write_page(folder.path(), &summary, &page, Duration::ZERO, &mut stop)
        };
        let stopped = write(true).unwrap_err();
        assert_eq!(stopped, NoPage::Stopped(folder.path().to_owned()));
        let said = format!("`livetime report {}` makes it", folder.path().display());
        assert!(stopped.to_string().ends_with(&said), "{stopped}");
        assert!(!page.exists());
        assert_eq!(write(false), Ok(None));
        assert!(page.is_file());
    }

    #[test]
    fn a_report_is_stopped_in_each_of_its_readings() {
        let folder = tempfile::tempdir().unwrap();
        write_run(folder.path());
        let timing = include_str!("../../../../examples/spill.toml");
        fs::write(folder.path().join("config.toml"), timing).unwrap();
        let page = folder.path().join("report.html");
        let summary = fs::read_to_string(folder.path().join("summary.json")).unwrap();
        let write = |stopped_at: u32| {
            let mut looks = 0;
            let mut stop = || {
                looks += 1;
                looks == stopped_at
            };
            let written = write_page(folder.path(), &summary, &page, Duration::ZERO, &mut stop);
            (written, looks)
        };
        let stopped = || Err(NoPage::Stopped(folder.path().to_owned()));
        assert_eq!(write(1), (stopped(), 1));
        assert_eq!(write(2), (stopped(), 2));
        assert!(!page.exists());
        assert_eq!(write(0), (Ok(None), 2));
    }
}
