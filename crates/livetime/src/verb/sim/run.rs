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
use livetime_fabric::scenario::{Level, Scenario, ScenarioOutcome};
use livetime_node::latency_summary;
use livetime_study::plot::{Axis, LinePlot, Series, escape};
use serde_json::{Value, json};

use crate::config::{LoadedScenario, load_scenario};
use crate::console::{print, print_line, say};
use crate::exit;

use super::{builder_result, link_result, preset};

/// Latencies above this are counted apart; a millisecond is long for a fabric.
pub(super) const LATENCY_BOUND_NS: u64 = 1_000_000;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Scenario file, see docs/operator/scenarios.md
    #[arg(required_unless_present = "preset")]
    scenario: Option<PathBuf>,
    /// A built-in scenario instead of a file; `livetime sim presets` lists them
    #[arg(long, value_name = "NAME", conflicts_with = "scenario")]
    preset: Option<String>,
    /// Seed instead of that of the scenario
    #[arg(long)]
    seed: Option<u64>,
    /// Level instead of that of the scenario: packet, flit or analytic
    #[arg(long)]
    level: Option<LevelOption>,
    /// Print one JSON document (livetime.sim/1) on standard output
    #[arg(long)]
    json: bool,
    /// Write the efficiency against time as CSV
    #[arg(long, value_name = "FILE.csv")]
    csv: Option<PathBuf>,
    /// Write use and blocked time of every link as CSV
    #[arg(long, value_name = "FILE.csv")]
    links: Option<PathBuf>,
    /// Write a page with the figures, a plot against time and a map of the links
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
    let mut loaded = match (&options.scenario, &options.preset) {
        (Some(path), _) => load_scenario(path)?,
        (None, Some(name)) => preset::load(name)?,
        (None, None) => return Err("error: no scenario was given".to_owned()),
    };
    override_scenario(options, &mut loaded.scenario)?;
    say(format_args!(
        "network simulation · {} · seed {} · livetime {}",
        loaded.name,
        loaded.scenario.load.seed,
        env!("CARGO_PKG_VERSION")
    ));
    count_links(options, &mut loaded.scenario)?;
    let start = Instant::now();
    let outcome = loaded
        .scenario
        .run()
        .map_err(|error| format!("error: {error}"))?;
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
    let conserved = finished.network().is_none_or(NetworkOutcome::is_conserved);
    if let Some(builder) = &finished.outcome.builder
        && !builder.is_conserved()
    {
        for violation in &builder.violations {
            say(format_args!("error: {violation}"));
        }
        say(
            "error: the event builder broke a promise; this is a bug, please report it with the scenario",
        );
        return Ok(exit::PROBLEM);
    }
    if !conserved {
        say("error: packets are not conserved; this is a bug, please report it with the scenario");
        return Ok(exit::PROBLEM);
    }
    Ok(exit::after_printing(printed))
}

/// Seed and level of the options.
fn override_scenario(options: &Options, scenario: &mut Scenario) -> Result<(), String> {
    if let Some(seed) = options.seed {
        scenario.load.seed = seed;
    }
    let Some(level) = options.level else {
        return Ok(());
    };
    scenario.level = match level {
        LevelOption::Packet => Level::Packet,
        LevelOption::Flit => Level::Flit,
        LevelOption::Analytic => Level::Analytic,
    };
    // The file was checked with its own level.
    match scenario.validate().first() {
        Some(problem) => Err(problem.to_string()),
        None => Ok(()),
    }
}

/// Lets links be counted where that can be.
fn count_links(options: &Options, scenario: &mut Scenario) -> Result<(), String> {
    let counts_links = scenario.level == Level::Packet && scenario.builder.is_none();
    if options.links.is_some() && !counts_links {
        return Err(
            "error: --links needs a scenario at level packet without `[builder]`: nothing else \
             counts links\nhelp: leave --links out, or change the scenario"
                .to_owned(),
        );
    }
    scenario.load.counts_links = counts_links;
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text)
        .map_err(|error| format!("error: cannot write {}: {error}", path.display()))
}

impl Finished {
    fn network(&self) -> Option<&NetworkOutcome> {
        self.outcome.network.as_ref()
    }

    fn links(&self) -> Option<&LinkReport> {
        self.network()?.links.as_ref()
    }

    /// Efficiency of an event builder, relative to what one pair of units reaches.
    fn of_point_to_point(&self, builder: &BuilderNetworkOutcome) -> f64 {
        builder.efficiency_link / self.outcome.builder_point_to_point.unwrap_or(1.0)
    }

    fn rails(&self) -> f64 {
        f64::from(self.outcome.rails)
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
        });
        if let Some(builder) = &self.outcome.builder {
            let of_p2p = self.of_point_to_point(builder);
            builder_result::extend_json(&mut document, builder, of_p2p, self.seconds);
            return document;
        }
        let Some(network) = self.network() else {
            document["efficiency_link"] = json!(self.outcome.analytic);
            document["converged"] = json!(true);
            return document;
        };
        let efficiency = network.efficiency_link;
        // What has not converged is no steady-state number and is not given as one.
        let steady = |value: f64| {
            if efficiency.converged {
                json!(value)
            } else {
                Value::Null
            }
        };
        let rails = self.rails();
        let rest = json!({
            "efficiency_link": steady(efficiency.mean),
            "efficiency_p2p": steady(network.efficiency_p2p),
            "event_rate_hz": steady(network.packets_per_source_hz * rails),
            "throughput_per_node_bytes_per_s": steady(network.throughput_per_node * rails),
            "losses": { "buffer_full": network.packets_lost },
            "latency": latency_summary(&network.latency_ns, LATENCY_BOUND_NS),
            "converged": efficiency.converged,
            "ci95": efficiency.ci95,
            "mean_of_batches": efficiency.mean,
            "fairness_sources": network.fairness_sources,
            "fairness_destinations": network.fairness_destinations,
            "packets": {
                "offered": network.packets_offered,
                "delivered": network.packets_in_all,
                "lost": network.packets_lost,
                "in_flight": network.packets_in_flight,
                "conserved": network.is_conserved(),
            },
            "simulated_s": network.simulated.0 as f64 * 1e-12,
            "trace_hash": network.trace_hash.to_string(),
            "events": network.events,
            "events_per_s": network.events as f64 / self.seconds.max(1e-9),
            "packets_per_s": network.packets_in_all as f64 / self.seconds.max(1e-9),
            "wall_s": self.seconds,
            "peak_rss_bytes": peak_rss_bytes(),
        });
        if let (Some(document), Value::Object(rest)) = (document.as_object_mut(), rest) {
            document.extend(rest);
        }
        if let Some(report) = self.links() {
            let (links, buffers) = link_result::to_json(report);
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
        if let Some(builder) = &self.outcome.builder {
            let of_p2p = self.of_point_to_point(builder);
            return text + &builder_result::to_text(builder, of_p2p, self.seconds);
        }
        let Some(network) = self.network() else {
            return text;
        };
        let efficiency = network.efficiency_link;
        if efficiency.converged {
            text += &format!(
                "  efficiency        {:.2} % of the links (95 % confidence +- {:.2}), {:.2} % of point to point\n",
                100.0 * efficiency.mean,
                100.0 * efficiency.ci95,
                100.0 * network.efficiency_p2p
            );
            text += &format!(
                "  throughput        {:.1} MB/s per node, {:.2} kHz of packets per source\n",
                network.throughput_per_node * self.rails() / 1e6,
                network.packets_per_source_hz * self.rails() / 1e3
            );
        } else {
            text += &format!(
                "  efficiency        not converged: {:.2} % +- {:.2} so far, with a trend or too few packets\n\
                 \x20                   raise `duration` or `packet_times`; --csv shows it against time\n",
                100.0 * efficiency.mean,
                100.0 * efficiency.ci95
            );
        }
        let latency = latency_summary(&network.latency_ns, LATENCY_BOUND_NS);
        text += &format!(
            "  latency           median {}, 99.9 % {}, max {} (simulated)\n",
            livetime_wire::DurationNs(latency.p50),
            livetime_wire::DurationNs(latency.p99_9),
            livetime_wire::DurationNs(latency.max)
        );
        text += &format!(
            "  packets           {} offered = {} delivered + {} lost at full buffers + {} in flight\n",
            network.packets_offered,
            network.packets_in_all,
            network.packets_lost,
            network.packets_in_flight
        );
        text += &format!(
            "  fairness          {:.3} of sources, {:.3} of destinations (Jain)\n",
            network.fairness_sources, network.fairness_destinations
        );
        text += &self.links().map(link_result::to_text).unwrap_or_default();
        text += &format!(
            "  simulation        {:.3} ms in {:.2} s, {:.2} million events/s, trace {}\n",
            network.simulated.0 as f64 * 1e-9,
            self.seconds,
            network.events as f64 / self.seconds.max(1e-9) / 1e6,
            network.trace_hash
        );
        text
    }

    /// Efficiency of each batch at its end.
    fn series(&self) -> Vec<(f64, f64)> {
        let (series, batch) = match (self.network(), &self.outcome.builder) {
            (Some(network), _) => (&network.series, network.batch),
            (None, Some(builder)) => (&builder.series, builder.batch),
            (None, None) => return Vec::new(),
        };
        let start = self.loaded.scenario.load.warm_up.0 as f64;
        let point = |(i, value): (usize, &f64)| {
            let end = start + (i + 1) as f64 * batch.0 as f64;
            (end * 1e-6, *value)
        };
        series.iter().enumerate().map(point).collect()
    }

    /// What the series is: the column of the table, and the axis of the plot.
    fn series_names(&self) -> (&'static str, &'static str) {
        match self.outcome.builder {
            Some(_) => ("event_rate_hz", "events per second"),
            None => ("efficiency_link", "share of the links"),
        }
    }

    fn to_csv(&self) -> String {
        let mut text = format!("time_us,{}\n", self.series_names().0);
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
                self.series_names().1
            ),
            x: Axis::linear("simulated time [us]"),
            y: Axis::linear(self.series_names().1),
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
