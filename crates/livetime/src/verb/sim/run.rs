//! `livetime sim run FILE`: a scenario of the network simulator, from file to figures.
//!
//! The simulation is `livetime_fabric::scenario`; here its outcome becomes a document, a summary, a
//! table against time and a page. A number of the steady state is printed only when the run has
//! converged; otherwise that is said instead.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use livetime_fabric::builder_network::BuilderNetworkOutcome;
use livetime_fabric::network::{LinkReport, NetworkOutcome};
use livetime_fabric::scenario::{Level, Scenario, ScenarioOutcome, TopologyChoice};
use livetime_study::plot::{Axis, LinePlot, Series, escape};
use serde_json::{Value, json};

use crate::command_words;
use crate::config::{LoadedScenario, ScenarioOverrides, load_scenario};
use crate::console::{print, print_line, say};
use crate::exit;
use crate::option_values::whole_number;
use crate::output_place::{self, Remade};
use crate::run_summary::config_hash;

use super::{builder_result, link_result, network_result, parse_threads, preset};

/// Keys of the document that a closed form says nothing of.
const SIMULATED_KEYS: [&str; 21] = [
    "efficiency_p2p",
    "event_rate_hz",
    "throughput_per_node_bytes_per_s",
    "losses",
    "latency",
    "deadlock",
    "deadlock_sources",
    "overloaded",
    "sources_behind_s",
    "ci95",
    "mean_of_batches",
    "fairness_sources",
    "fairness_destinations",
    "packets",
    "simulated_s",
    "trace_hash",
    "events",
    "events_per_s",
    "packets_per_s",
    "wall_s",
    "peak_rss_bytes",
];

/// Columns of the table against time: of a network, and of an event builder.
const SERIES_HEADERS: [&str; 2] = ["time_us,efficiency_link\n", "time_us,event_rate_hz\n"];
const SERIES_TABLE: Remade = Remade {
    begins: &SERIES_HEADERS,
    name: "table against time",
};
const LINKS_TABLE: Remade = Remade {
    begins: &[link_result::LINKS_HEADER],
    name: "table of links",
};

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Scenario file, see docs/operator/scenarios.md
    #[arg(required_unless_present = "preset")]
    scenario: Option<PathBuf>,
    /// A built-in scenario instead of a file; `livetime sim presets` lists them
    #[arg(long, value_name = "NAME", conflicts_with = "scenario", value_parser = preset::parse_name)]
    preset: Option<String>,
    /// Seed instead of that of the scenario
    #[arg(long, value_parser = whole_number)]
    seed: Option<u64>,
    /// Run an event builder from so many starts, 2 to 100, each with the next seed: the event rate is
    /// the mean over all, its interval that across them, and all else is of the first start
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100))]
    starts: Option<u32>,
    /// Threads that simulate starts side by side; results do not depend on it [default: all cores]
    #[arg(long, value_name = "N", value_parser = parse_threads, requires = "starts")]
    threads: Option<usize>,
    /// Level instead of that of the scenario: packet, flit or analytic
    #[arg(long)]
    level: Option<LevelOption>,
    /// Print one JSON document (livetime.sim/1) on standard output
    #[arg(long)]
    json: bool,
    /// Write the efficiency against time as CSV; only a former such table is replaced
    #[arg(long, value_name = "FILE.csv")]
    csv: Option<PathBuf>,
    /// Write use and blocked time of every link as CSV; only a former such table is replaced
    #[arg(long, value_name = "FILE.csv")]
    links: Option<PathBuf>,
    /// Write a page with the figures, a plot against time and a map of the links; only a former page
    /// is replaced
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum LevelOption {
    /// Packets (F2)
    Packet,
    /// Flits and cycles (F1)
    Flit,
    /// Closed forms (F0)
    Analytic,
}

impl LevelOption {
    const fn level(self) -> Level {
        match self {
            Self::Packet => Level::Packet,
            Self::Flit => Level::Flit,
            Self::Analytic => Level::Analytic,
        }
    }
}

/// A run with what is known of it.
struct Finished {
    loaded: LoadedScenario,
    outcome: ScenarioOutcome,
    seconds: f64,
}

/// Simulates a scenario.
pub(crate) fn run(options: &Options) -> ExitCode {
    match simulate(options) {
        Ok(code) => code,
        Err(problems) => {
            say(problems.trim_end());
            exit::PROBLEM
        }
    }
}

fn simulate(options: &Options) -> Result<ExitCode, String> {
    let overrides = ScenarioOverrides {
        seed: options.seed,
        level: options.level.map(LevelOption::level),
    };
    let mut loaded = match (&options.scenario, &options.preset) {
        (Some(path), _) => load_scenario(path, overrides)?,
        (None, Some(name)) => preset::load(name, overrides)?,
        (None, None) => return Err("error: no scenario was given".to_owned()),
    };
    say(format_args!(
        "network simulation · {} · scenario {} · seed {} · livetime {}",
        loaded.name,
        config_hash(&loaded.text),
        loaded.scenario.load.seed,
        env!("CARGO_PKG_VERSION")
    ));
    check_starts(options, &loaded.scenario)?;
    count_links(options, &mut loaded.scenario)?;
    check_outputs(options, &loaded)?;
    // Now, and not when everything is simulated.
    check_places(options)?;
    let start = Instant::now();
    let outcome = match options.starts {
        None => loaded.scenario.run(),
        Some(starts) => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let threads = options.threads.unwrap_or(cores);
            loaded.scenario.run_starts(starts, threads)
        }
    };
    let outcome = outcome.map_err(|error| format!("error: {error}"))?;
    let finished = Finished {
        loaded,
        outcome,
        seconds: start.elapsed().as_secs_f64(),
    };
    if let Some(path) = &options.csv {
        write(path, &finished.to_csv())?;
    }
    if let (Some(path), Some(report)) = (&options.links, finished.links()) {
        write(path, &link_result::to_csv(report))?;
    }
    if let Some(path) = &options.html {
        write(path, &finished.to_html())?;
    }
    let printed = if options.json {
        print_line(finished.to_json())
    } else {
        print(finished.to_text())
    };
    match finished.broken_promise() {
        Some(problem) => {
            say(problem);
            Ok(exit::PROBLEM)
        }
        None => Ok(exit::after_printing(printed)),
    }
}

/// Refuses files that would be written over each other, over the scenario or what it names, and one that
/// would be empty.
fn check_outputs(options: &Options, loaded: &LoadedScenario) -> Result<(), String> {
    if options.csv.is_some() && loaded.scenario.level == Level::Analytic {
        return Err(
            "error: --csv needs a simulation: a closed form says nothing against time\n\
             help: leave --csv out, or change the level"
                .to_owned(),
        );
    }
    let files = [
        ("the scenario", &options.scenario),
        ("--csv", &options.csv),
        ("--links", &options.links),
        ("--html", &options.html),
    ];
    let of_options = files
        .iter()
        .filter_map(|(what, path)| path.as_ref().map(|path| (*what, path)));
    let named = loaded.files.iter().map(|path| ("the scenario", path));
    let files = named.chain(of_options);
    // Most are not there yet.
    let place = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path));
    let same = |a: &Path, b: &Path| place(a).ok() == place(b).ok();
    for (at, (option, path)) in files.clone().enumerate() {
        let mut before = files.clone().take(at);
        if let Some((other, _)) = before.find(|(_, other)| same(other, path)) {
            return Err(format!(
                "error: {option} {}: this is the file of {other}\n\
                 help: give each its own",
                path.display()
            ));
        }
    }
    Ok(())
}

/// Refuses places that cannot be written, and those of files that are nothing former of their option.
fn check_places(options: &Options) -> Result<(), String> {
    for (path, kind) in [
        (&options.csv, &SERIES_TABLE),
        (&options.links, &LINKS_TABLE),
        (&options.html, &Remade::PAGE),
    ] {
        let checked = (path.as_ref()).map_or(Ok(()), |path| output_place::check_remade(path, kind));
        checked.map_err(|error| format!("error: {error}"))?;
    }
    Ok(())
}

/// Refuses several starts where there is no event builder to start.
fn check_starts(options: &Options, scenario: &Scenario) -> Result<(), String> {
    match options.starts {
        Some(_) if scenario.builder.is_none() => Err(
            "error: --starts needs a scenario with `[builder]`: patterns have one start\n\
             help: leave --starts out, or run the scenario with other `--seed`s"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

/// Lets links be counted where that can be.
fn count_links(options: &Options, scenario: &mut Scenario) -> Result<(), String> {
    let counts_links = scenario.level == Level::Packet;
    if options.links.is_some() && !counts_links {
        return Err(
            "error: --links needs a scenario at level packet: nothing else counts links\n\
             help: leave --links out, or change the scenario"
                .to_owned(),
        );
    }
    scenario.load.counts_links = counts_links;
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    output_place::write(path, text).map_err(|error| format!("error: {error}"))
}

impl Finished {
    fn network(&self) -> Option<&NetworkOutcome> {
        self.outcome.network.as_ref()
    }

    /// What the links did, of one rail: of the one that stands still, if one does.
    fn links(&self) -> Option<&LinkReport> {
        match &self.outcome.builder {
            Some(builder) => builder.links.get(builder.rail_deadlocked.unwrap_or(0)),
            None => self.network()?.links.as_ref(),
        }
    }

    /// Efficiency of an event builder, relative to what one pair of units reaches.
    fn of_point_to_point(&self, builder: &BuilderNetworkOutcome) -> f64 {
        builder.efficiency_link / self.outcome.builder_point_to_point.unwrap_or(1.0)
    }

    fn to_json(&self) -> Value {
        let scenario = &self.loaded.scenario;
        let mut document = json!({
            "schema": "livetime.sim/1",
            "simulated": true,
            "name": self.loaded.name,
            "seed": scenario.load.seed.to_string(),
            "level": level_name(scenario.level),
            "sources": self.outcome.sources,
            "destinations": self.outcome.destinations,
            "rails": self.outcome.rails,
            "efficiency_analytic": self.outcome.analytic,
            "scenario_hash": config_hash(&self.loaded.text),
            "version": env!("CARGO_PKG_VERSION"),
            "command": command_words::of_process(),
            "notes": self.outcome.notes,
            "starts": builder_result::starts_json(&self.outcome.starts),
        });
        if let Some(builder) = &self.outcome.builder {
            let of_p2p = self.of_point_to_point(builder);
            builder_result::extend_json(&mut document, builder, of_p2p, self.seconds);
        } else if let Some(network) = self.network() {
            let rails = self.outcome.rails;
            network_result::extend_json(&mut document, network, rails, self.seconds);
        } else {
            document["efficiency_link"] = json!(self.outcome.analytic);
            document["converged"] = json!(true);
            for key in SIMULATED_KEYS {
                document[key] = Value::Null;
            }
        }
        if let Some(report) = self.links() {
            let (links, buffers) = link_result::to_json(report, self.is_deadlocked());
            document["links"] = links;
            document["buffers"] = json!(buffers);
        }
        document
    }

    fn to_text(&self) -> String {
        let mut text = format!(
            "SIMULATED: {}, {} sources x {} destinations, level {}\n",
            self.loaded.name,
            self.outcome.sources,
            self.outcome.destinations,
            level_name(self.loaded.scenario.level)
        );
        if let Some(analytic) = self.outcome.analytic {
            text += &format!(
                "  theory            {:.2} % of the links\n",
                100.0 * analytic
            );
        }
        for note in &self.outcome.notes {
            text += &format!("  note              {note}\n");
        }
        if let Some(builder) = &self.outcome.builder {
            let (of_p2p, starts) = (self.of_point_to_point(builder), &self.outcome.starts);
            text += &builder_result::to_text(builder, of_p2p, starts);
        } else if let Some(network) = self.network() {
            text += &network_result::to_text(network, self.outcome.rails);
        }
        text += &self.links_text();
        match (&self.outcome.builder, self.network()) {
            (Some(builder), _) => text += &builder_result::cost_text(builder, self.seconds),
            (None, Some(network)) => text += &network_result::cost_text(network, self.seconds),
            (None, None) => {}
        }
        text
    }

    /// Whether nothing moves any more in the network of the link report.
    fn is_deadlocked(&self) -> bool {
        let of_builder = |builder: &BuilderNetworkOutcome| builder.rail_deadlocked.is_some();
        self.network().is_some_and(NetworkOutcome::is_deadlocked)
            || self.outcome.builder.as_ref().is_some_and(of_builder)
    }

    /// What links did, or which ones stand still.
    fn links_text(&self) -> String {
        let graph = match &self.loaded.scenario.topology {
            TopologyChoice::Graph(graph) => Some(graph),
            _ => None,
        };
        match self.links() {
            Some(report) if self.is_deadlocked() => link_result::held_text(report, graph),
            report => report.map(link_result::to_text).unwrap_or_default(),
        }
    }

    /// What is wrong with a run that should not have come to it.
    fn broken_promise(&self) -> Option<String> {
        const REPORT: &str = "this is a bug, please report it with the scenario";
        if !self.network().is_none_or(NetworkOutcome::is_conserved) {
            return Some(format!("error: packets are not conserved; {REPORT}"));
        }
        let builder = self
            .outcome
            .builder
            .as_ref()
            .filter(|b| !b.is_conserved())?;
        let mut text = String::new();
        for violation in &builder.violations {
            text += &format!("error: {violation}\n");
        }
        text += &match builder.is_event_too_large {
            true => "help: raise `builder.event_bytes` to the size of the largest event".to_owned(),
            false => format!("error: the event builder broke a promise; {REPORT}"),
        };
        Some(text)
    }

    /// Efficiency of each batch at its end.
    fn series(&self) -> Vec<(f64, f64)> {
        let (series, batch) = match (self.network(), &self.outcome.builder) {
            (Some(network), _) => (&network.series, network.batch),
            (None, Some(builder)) => (&builder.series, builder.batch),
            (None, None) => return Vec::new(),
        };
        let start = self.outcome.warm_up.0 as f64;
        let point = |(i, value): (usize, &f64)| {
            let end = start + (i + 1) as f64 * batch.0 as f64;
            (end * 1e-6, *value)
        };
        series.iter().enumerate().map(point).collect()
    }

    /// What the series is: the axis of the plot.
    fn series_name(&self) -> &'static str {
        match self.outcome.builder {
            Some(_) => "events per second",
            None => "share of the links",
        }
    }

    fn to_csv(&self) -> String {
        let [of_network, of_builder] = SERIES_HEADERS;
        let mut text = match self.outcome.builder {
            Some(_) => of_builder.to_owned(),
            None => of_network.to_owned(),
        };
        for (time, efficiency) in self.series() {
            text += &format!("{time:.3},{efficiency:.6}\n");
        }
        text
    }

    fn to_html(&self) -> String {
        let plot = LinePlot {
            title: format!(
                "{}: {} against time (simulated)",
                self.loaded.name,
                self.series_name()
            ),
            x: Axis::linear("simulated time [us]"),
            y: Axis::linear(self.series_name()),
            series: vec![Series {
                label: level_name(self.loaded.scenario.level).to_owned(),
                points: self.series(),
            }],
        };
        format!(
            "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n\
             <body style=\"font-family: sans-serif; max-width: 60rem; margin: 2rem auto\">\n\
             <h1>{title}</h1>\n<p>A simulation; nothing here was measured on hardware.</p>\n\
             <pre>{text}</pre>\n{plot}\n{links}<h2>Scenario</h2>\n<pre>{scenario}</pre>\n\
             <h2>Document</h2>\n<pre>{document}</pre>\n</body></html>\n",
            title = escape(&self.loaded.name),
            text = escape(&self.to_text()),
            plot = plot.to_svg(),
            links = self.links().map(link_result::to_html).unwrap_or_default(),
            scenario = escape(&self.loaded.text),
            document = escape(&format!("{:#}", self.to_json())),
        )
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Analytic => "analytic",
        Level::Packet => "packet",
        Level::Flit => "flit",
    }
}

/// The most memory that this process ever had, from the kernel; 0 where it does not say.
pub(crate) fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
