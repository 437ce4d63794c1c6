//! Scenario files of the network simulator: TOML with places, to a checked [`Scenario`].
//!
//! Every key is documented in `docs/operator/scenarios.md`. Files that a scenario names (graphs,
//! lists of sizes) are read from the folder of the scenario. What the values mean together is
//! checked by the simulator itself.

mod switch_section;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use livetime_fabric::DurationPs;
use livetime_fabric::builder_network::{BuilderNetwork, Shaping};
use livetime_fabric::flit::FlitConfig;
use livetime_fabric::network::topology::{Graph, GraphProblem, NODES_MAX, Wiring};
use livetime_fabric::network::{Arrival, Load, Pattern, SizeLaw, Traffic};
use livetime_fabric::scenario::{DURATION_MAX, Level, Scenario, ShiftOrder, TopologyChoice};
use livetime_shm::plain_file::{self, TEXT_BYTES_MAX};
use livetime_wire::quantity::QuantityError;
use livetime_wire::{BitRate, ByteSize, DurationNs, Problem, RateHz};
use toml::de::DeTable;

use self::switch_section::{IdleRoutes, read_switch};
use super::builder_scenario::read_builder;
use super::document::{Findings, Section, parse};
use super::problem_code::{BAD_QUANTITY, BOTH_KEYS, FORMAT, IDLE_KEY, OUT_OF_RANGE, SYNTAX};
use super::render;

/// Version of the format of scenario files.
const VERSION: u64 = 1;
/// Packet times of a run without `duration`.
const PACKET_TIMES: u64 = 2_000;
/// Probabilities of arrivals: with 0 nothing would come.
const PROBABILITIES: RangeInclusive<f64> = 1e-9..=1.0;
/// The lowest rate of arrivals: one in a quarter of an hour.
const RATE_MIN: RateHz = RateHz(1e-3);
/// The most bytes on a link for each packet beside its size.
const OVERHEAD_MAX: u64 = 1 << 20;
/// The most of any count in a scenario.
const COUNT_MAX: u64 = 1 << 20;
/// The most networks side by side.
const RAILS_MAX: u64 = 16;
/// Keys of `[topology]`, and the kinds that have them.
const OF_KINDS: [(&str, &[&str]); 10] = [
    ("ports", &["crossbar", "clos", "benes"]),
    ("radix", &["delta", "four-layer", "six-layer", "fat-tree"]),
    ("stages", &["delta"]),
    ("wiring", &["delta"]),
    ("middle", &["clos"]),
    ("edges", &["clos", "two-level"]),
    ("levels", &["fat-tree"]),
    ("nodes", &["two-level"]),
    ("cores", &["two-level"]),
    ("trunk_speed", &["two-level"]),
];
/// Keys of `[size]`, and the laws that have them.
const OF_SIZES: [(&str, &[&str]); 4] = [
    ("mean", &["fixed", "exponential", "log-normal"]),
    ("rms", &["log-normal"]),
    ("file", &["list"]),
    ("per_event", &["exponential", "log-normal", "list"]),
];
/// Keys of `[traffic]`, and the patterns that have them.
const OF_PATTERNS: [(&str, &[&str]); 5] = [
    ("to", &["permutation"]),
    ("destination", &["hot-spot", "incast"]),
    ("share", &["hot-spot"]),
    ("radix", &["events-digit-reversed"]),
    ("order", &["barrel-shifter"]),
];
/// Keys of `[arrival]`, and the laws that have them.
const OF_ARRIVALS: [(&str, &[&str]); 9] = [
    ("rate", &["fixed", "poisson"]),
    ("slot", &["bernoulli"]),
    ("probability", &["bernoulli", "bunches"]),
    ("spacing", &["bursty"]),
    ("burst", &["bursty"]),
    ("pause", &["bursty"]),
    ("crossing", &["bunches"]),
    ("filled", &["bunches"]),
    ("train", &["bunches"]),
];
/// Kinds of network.
const KINDS: [&str; 12] = [
    "crossbar",
    "delta",
    "four-layer",
    "six-layer",
    "clos",
    "benes",
    "fat-tree",
    "two-level",
    "gigabit-1",
    "gigabit-2",
    "chassis",
    "graph",
];

/// A scenario file that was read.
pub(crate) struct LoadedScenario {
    /// Name of the scenario.
    pub(crate) name: String,
    /// Its text.
    pub(crate) text: String,
    /// What it says.
    pub(crate) scenario: Scenario,
    /// Files that it names: graphs and lists.
    pub(crate) files: Vec<PathBuf>,
}

/// What is on the way from a table to a value.
struct Reader<'r> {
    folder: &'r Path,
    findings: &'r Findings,
    /// Files that were named so far.
    files: RefCell<Vec<PathBuf>>,
}

/// What options of a command change in a scenario before it is checked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScenarioOverrides {
    /// Seed.
    pub(crate) seed: Option<u64>,
    /// Level.
    pub(crate) level: Option<Level>,
}

impl ScenarioOverrides {
    fn apply(self, scenario: &mut Scenario) {
        scenario.load.seed = self.seed.unwrap_or(scenario.load.seed);
        scenario.level = self.level.unwrap_or(scenario.level);
    }
}

/// Whether a text is meant as a scenario: it has a network. Of one that is no TOML, false.
pub(crate) fn is_scenario(text: &str) -> bool {
    let findings = Findings::default();
    parse(text, &findings).get_ref().contains_key("topology")
}

/// Whether a text is meant as the configuration of a run: it has links or sources of data.
fn is_configuration(text: &str) -> bool {
    let findings = Findings::default();
    let table = parse(text, &findings);
    let has = |key: &str| table.get_ref().contains_key(key);
    !has("topology") && (has("link") && has("source") || has("run"))
}

/// Reads and checks a scenario file, with the changes of a command.
///
/// # Errors
/// The rendered problems, all at once; of the configuration of a run, which verb simulates it.
pub(crate) fn load_scenario(
    path: &Path,
    overrides: ScenarioOverrides,
) -> Result<LoadedScenario, String> {
    let name = path.display().to_string();
    let text = super::read_marked(path).map_err(|error| {
        let help = "docs/operator/scenarios.md shows a scenario to start from, and \
                    `livetime sim presets` lists those that are built in";
        format!("error: cannot read {name}: {error}\nhelp: {help}\n")
    })?;
    if is_configuration(&text) {
        return Err(format!(
            "error: {name} is the configuration of a run, not the scenario of a network\nhelp: \
             `livetime sim {name}` simulates its chain; docs/operator/scenarios.md shows scenarios\n"
        ));
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    read_scenario(&name, text, folder, overrides)
}

/// Reads and checks the text of a scenario; `name` is what problems call it.
///
/// # Errors
/// The rendered problems, all at once.
pub(crate) fn read_scenario(
    name: &str,
    text: String,
    folder: &Path,
    overrides: ScenarioOverrides,
) -> Result<LoadedScenario, String> {
    let findings = Findings::default();
    let table = parse(&text, &findings);
    let reader = Reader {
        folder,
        findings: &findings,
        files: RefCell::default(),
    };
    let mut root = Section::root(table.get_ref(), &findings);
    let (title, mut scenario) = reader.root(&mut root);
    overrides.apply(&mut scenario);
    root.finish();
    report_all(&scenario, table.get_ref(), &findings);
    let is_good = !findings.has_any_problem();
    drop(table);
    if is_good {
        return Ok(LoadedScenario {
            name: title.unwrap_or_else(|| name.to_owned()),
            text,
            scenario,
            files: reader.files.into_inner(),
        });
    }
    let (spans, problems) = findings.into_parts();
    Err(render::render_problems(name, &text, &spans, &problems))
}

/// Reports what is wrong with what was read, as far as this does not follow from what could not be. A run
/// that is too long by the number or the times of its packets is a problem of these, where the file
/// states no duration.
fn report_all(scenario: &Scenario, table: &DeTable<'_>, findings: &Findings) {
    // Behind a line that is none, and in another format, values may be those of others.
    if findings.has_any(&[SYNTAX, FORMAT]) {
        return;
    }
    let mut problems = scenario.validate();
    let unread = findings.tables_unread(&[IDLE_KEY]);
    problems.retain(|problem| is_known(&problem.path, &unread));
    let is_there = |path: &str| problems.iter().any(|problem| problem.path == path);
    let has_packet_time = !is_there("size") && !is_there("link.rate");
    for problem in &problems {
        let is_stated = table.contains_key(problem.path.as_str());
        match problem.path.as_str() {
            "duration" if !is_stated && !has_packet_time => {}
            "duration" if !is_stated => {
                findings.report(too_long(
                    problem,
                    scenario,
                    table.contains_key("packet_times"),
                ));
            }
            // A tenth of the duration.
            "warm_up" if !is_stated => {}
            _ => findings.report(problem.clone()),
        }
    }
}

/// Whether nothing that a problem at this path depends on is among the tables, or keys outside of any,
/// that could not be read.
fn is_known(path: &str, unread: &BTreeSet<String>) -> bool {
    let table = path.split('.').next().unwrap_or(path);
    let others: &[&str] = match table {
        "size" | "arrival" | "link" | "rails" | "topology" | "flit" => &[],
        "switch" => &["topology", "size", "link", "builder"],
        "traffic" if path == table => &["topology"],
        "traffic" => &["topology", "arrival"],
        "duration" | "duration_max" | "warm_up" => &["duration", "packet_times", "size", "link"],
        _ => return unread.is_empty(),
    };
    let is_read = |table: &str| !unread.contains(table);
    is_read(table) && others.iter().all(|other| is_read(other))
}

/// The problem of a duration that is made of packet times, stated or not.
fn too_long(problem: &Problem, scenario: &Scenario, is_stated: bool) -> Problem {
    let packet = packet_time(&scenario.load);
    let (run, time) = (&problem.found, DurationNs(packet.0 / 1_000));
    let most = DURATION_MAX.0 / packet.0.max(1);
    let allowed = format!("runs of up to an hour, {most} packets of {time}");
    let fewer = format!("set `packet_times` to {most} or less, or raise `rate` of `[link]`");
    let help = match most {
        0 => "raise `rate` of `[link]`",
        _ => &fewer,
    };
    let (path, found) = match is_stated {
        true => ("packet_times", format!("so many that they take {run}")),
        false => {
            let found = format!("so low that {PACKET_TIMES} packets take {run}");
            ("link.rate", found)
        }
    };
    Problem::new(problem.code, path, found, allowed, help)
}

/// The time of a mean packet on a node's link.
fn packet_time(load: &Load) -> DurationPs {
    let bytes = load.sizes.mean() + f64::from(load.overhead_bytes);
    DurationPs::for_bits((bytes * 8.0) as u64, load.link_bits_per_s)
}

impl Reader<'_> {
    fn root(&self, root: &mut Section<'_, '_>) -> (Option<String>, Scenario) {
        root.require("format", "1");
        if let Some(version) = root.integer("format", 0..=u64::MAX >> 1)
            && version != VERSION
        {
            let help = "write `format = 1`";
            self.findings
                .report(Problem::new(FORMAT, "format", version, "1", help));
        }
        let name = root.text("name");
        let levels = [
            ("packet", Level::Packet),
            ("flit", Level::Flit),
            ("analytic", Level::Analytic),
        ];
        let level = root.choice("level", &levels).unwrap_or_default();
        let seed = root.integer("seed", 0..=u64::MAX >> 1).unwrap_or(1);
        let rails = root.integer("rails", 1..=RAILS_MAX).unwrap_or(1) as u32;
        let topology = self.topology(root);
        let sizes = self.sizes(root);
        let (traffic, shift) = self.traffic(root);
        let mut load = Load::saturated(traffic, sizes.0, PACKET_TIMES);
        load.sizes_per_event = sizes.1;
        load.seed = seed;
        let builder = read_builder(root);
        read_link(root, &mut load);
        let idle_routes = match scheduled_by(builder.as_ref(), shift) {
            Some(table) => Some(IdleRoutes::Scheduled(table)),
            None => topology.as_ref().and_then(IdleRoutes::of_network),
        };
        let switching = read_switch(root, &mut load, idle_routes);
        load.arrival = self.arrival(root);
        let flits = read_flits(root);
        if builder.is_some() && root.has("traffic") {
            self.findings.report(Problem::new(
                BOTH_KEYS,
                "traffic",
                "given beside `[builder]`",
                "one of them",
                "remove `[traffic]`: with `[builder]` the protocol decides who sends to whom",
            ));
        }
        self.times(root, &mut load);
        let duration_max = duration(root, "duration_max");
        let scenario = Scenario {
            level,
            topology: topology.unwrap_or(TopologyChoice::Crossbar { ports: 1 }),
            switching,
            flits,
            load,
            shift,
            rails,
            builder,
            duration_max,
        };
        (name, scenario)
    }

    /// `duration` and `warm_up`, or `packet_times`.
    fn times(&self, root: &mut Section<'_, '_>, load: &mut Load) {
        let times = root.integer("packet_times", 1..=1_000_000_000);
        let duration = duration(root, "duration");
        if let (Some(_), Some(_)) = (times, duration) {
            self.findings.report(Problem::new(
                BOTH_KEYS,
                "packet_times",
                "given beside `duration`",
                "one of them",
                "remove one of the two keys",
            ));
        }
        let of_packets = packet_time(load) * times.unwrap_or(PACKET_TIMES);
        load.duration = duration.unwrap_or(of_packets);
        load.warm_up = duration_or(root, "warm_up", DurationPs(load.duration.0 / 10));
    }

    fn topology(&self, root: &mut Section<'_, '_>) -> Option<TopologyChoice> {
        root.require("topology", "a table [topology]");
        let mut section = root.section("topology")?;
        section.require("kind", "the kind of network, such as \"delta\"");
        let words = KINDS.map(|kind| (kind, kind));
        let kind = section.choice("kind", &words)?;
        section.refuse_others("kind", kind, &OF_KINDS);
        if kind == "graph" {
            let graph = self.graph(&mut section);
            section.finish();
            return graph;
        }
        section.refuse_others("kind", kind, &[("file", &["graph"])]);
        let mut count = |key: &'static str| {
            section.require(key, "a count");
            section.integer(key, 1..=COUNT_MAX).unwrap_or(0) as u32
        };
        let two_level = |edges, nodes, cores, trunk_speed| TopologyChoice::TwoLevel {
            edges,
            nodes,
            cores,
            trunk_speed,
        };
        let choice = match kind {
            "crossbar" => TopologyChoice::Crossbar {
                ports: count("ports"),
            },
            "delta" => {
                let (radix, stages) = (count("radix"), count("stages"));
                TopologyChoice::Delta {
                    radix,
                    stages,
                    wiring: wiring(&mut section),
                }
            }
            "four-layer" => TopologyChoice::FourLayer {
                radix: count("radix"),
            },
            "six-layer" => TopologyChoice::SixLayer {
                radix: count("radix"),
            },
            "clos" => TopologyChoice::Clos {
                middle: count("middle"),
                ports: count("ports"),
                edges: count("edges"),
            },
            "benes" => TopologyChoice::Benes {
                ports: count("ports"),
            },
            "fat-tree" => TopologyChoice::FatTree {
                radix: count("radix"),
                levels: count("levels"),
            },
            "two-level" => two_level(
                count("edges"),
                count("nodes"),
                count("cores"),
                count("trunk_speed"),
            ),
            "gigabit-1" => two_level(25, 20, 20, 1),
            "gigabit-2" => two_level(25, 20, 2, 10),
            // A chassis.
            _ => two_level(8, 8, 1, 16),
        };
        section.finish();
        Some(choice)
    }

    fn graph(&self, section: &mut Section<'_, '_>) -> Option<TopologyChoice> {
        section.require("file", "a graph file beside the scenario");
        let text = self.file(section, "file")?;
        let file = section.text("file")?;
        match Graph::parse(&text) {
            Ok(graph) => Some(TopologyChoice::Graph(Graph { file, ..graph })),
            Err(problems) => {
                let allowed = "statements of a graph";
                let help = "docs/operator/scenarios.md describes the statements";
                for GraphProblem { line, problem } in problems {
                    let path = section.key_path("file");
                    let found = format!("{file}:{line}: {problem}");
                    let problem = Problem::new(BAD_QUANTITY, path, found, allowed, help);
                    self.findings.report(problem);
                }
                None
            }
        }
    }

    /// The text of a file that a key names.
    fn file(&self, section: &mut Section<'_, '_>, key: &'static str) -> Option<String> {
        let name = section.text(key)?;
        let path = self.folder.join(&name);
        self.files.borrow_mut().push(path.clone());
        match plain_file::read_text_from_any(&path, TEXT_BYTES_MAX) {
            Ok(text) => Some(text),
            Err(error) => {
                let found = format!("\"{name}\" ({error})");
                let help = "name a file by its path from the folder of the scenario";
                let path = section.key_path(key);
                let problem = Problem::new(BAD_QUANTITY, path, found, "a file to read", help);
                self.findings.report(problem);
                None
            }
        }
    }

    fn sizes(&self, root: &mut Section<'_, '_>) -> (SizeLaw, bool) {
        let default = (SizeLaw::Fixed(2048), false);
        let Some(mut section) = root.section("size") else {
            return default;
        };
        let laws = ["fixed", "exponential", "log-normal", "list"];
        let law = section.choice("law", &laws.map(|law| (law, law)));
        let mut mean = ByteSize(2048);
        section.quantity("mean", &mut mean);
        let mut rms = mean;
        section.quantity("rms", &mut rms);
        let per_event = section.switch("per_event").unwrap_or(false);
        let law = law.unwrap_or("fixed");
        section.refuse_others("law", law, &OF_SIZES);
        let (mean_f, rms_f) = (mean.0 as f64, rms.0 as f64);
        let sizes = match law {
            "exponential" => SizeLaw::Exponential { mean: mean_f },
            "log-normal" => SizeLaw::LogNormal {
                mean: mean_f,
                rms: rms_f,
            },
            "list" => self.size_list(&mut section),
            _ => SizeLaw::Fixed(u32::try_from(mean.0).unwrap_or(u32::MAX)),
        };
        section.finish();
        (sizes, per_event)
    }

    fn size_list(&self, section: &mut Section<'_, '_>) -> SizeLaw {
        section.require("file", "a file with one size in bytes a line");
        let text = self.file(section, "file").unwrap_or_default();
        let mut sizes = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let word = line.split('#').next().unwrap_or_default().trim();
            if word.is_empty() {
                continue;
            }
            match word.parse() {
                Ok(size) => sizes.push(size),
                Err(_) => {
                    let found = format!("`{word}` on line {}", index + 1);
                    let allowed = "a size in bytes on each line";
                    let path = section.key_path("file");
                    let help = "correct the line";
                    self.findings
                        .report(Problem::new(BAD_QUANTITY, path, found, allowed, help));
                    break;
                }
            }
        }
        SizeLaw::Trace(sizes)
    }

    fn traffic(&self, root: &mut Section<'_, '_>) -> (Traffic, Option<ShiftOrder>) {
        let Some(mut section) = root.section("traffic") else {
            return (Traffic::new(Pattern::Uniform), None);
        };
        let patterns = [
            "uniform",
            "permutation",
            "hot-spot",
            "incast",
            "events-in-order",
            "events-random",
            "events-permuted",
            "events-digit-reversed",
            "staggered",
            "barrel-shifter",
        ];
        let words = patterns.map(|pattern| (pattern, pattern));
        let kind = section.choice("pattern", &words).unwrap_or("uniform");
        section.refuse_others("pattern", kind, &OF_PATTERNS);
        let mut shift = None;
        let mut number = |key: &'static str, default: u64| {
            section.integer(key, 0..=COUNT_MAX).unwrap_or(default) as u32
        };
        let pattern = match kind {
            "permutation" => {
                section.require("to", "the destination of each source");
                let to = section.integers("to", u64::from(NODES_MAX) - 1);
                let to = to.unwrap_or_default();
                Pattern::Permutation(to.iter().map(|d| *d as u32).collect())
            }
            "hot-spot" => Pattern::HotSpot {
                destination: number("destination", 0),
                share: section.number("share", 0.0..=1.0).unwrap_or(0.1),
            },
            "incast" => Pattern::Incast(number("destination", 0)),
            "events-in-order" => Pattern::EventsInOrder,
            "events-random" => Pattern::EventsRandom,
            "events-permuted" => Pattern::EventsPermuted,
            "events-digit-reversed" => Pattern::EventsDigitReversed {
                radix: number("radix", 2),
            },
            "staggered" => Pattern::Staggered,
            "barrel-shifter" => {
                let orders = [
                    ("conflict-free", ShiftOrder::ConflictFree),
                    ("plain", ShiftOrder::Plain),
                ];
                shift = Some(section.choice("order", &orders).unwrap_or_default());
                Pattern::Staggered
            }
            _ => Pattern::Uniform,
        };
        let window = section.integer("window", 0..=u64::from(u32::MAX));
        let mut traffic = Traffic::new(pattern);
        traffic.window = window.map(|window| window as u32);
        section.finish();
        (traffic, shift)
    }

    fn arrival(&self, root: &mut Section<'_, '_>) -> Arrival {
        let Some(mut section) = root.section("arrival") else {
            return Arrival::Saturated;
        };
        let laws = [
            "saturated",
            "fixed",
            "bernoulli",
            "poisson",
            "bursty",
            "bunches",
        ];
        let law = section.choice("law", &laws.map(|law| (law, law)));
        let law = law.unwrap_or("saturated");
        section.refuse_others("law", law, &OF_ARRIVALS);
        let needs_rate = matches!(law, "fixed" | "poisson");
        if needs_rate {
            section.require("rate", "the rate of each source, such as \"100 kHz\"");
        }
        let interval = match law {
            "fixed" | "poisson" => {
                let mut rate = RateHz(1.0);
                section.quantity("rate", &mut rate);
                if rate < RATE_MIN {
                    let help = "write the rate of each source, such as \"100 kHz\"";
                    let (path, allowed) = (section.key_path("rate"), "0.001 Hz or more");
                    section.report(Problem::new(OUT_OF_RANGE, path, rate, allowed, help));
                }
                DurationPs((1e12 / rate.0).round() as u64)
            }
            _ => DurationPs::ZERO,
        };
        let mut time = |key: &'static str, default| duration_or(&mut section, key, default);
        let arrival = match law {
            "fixed" => Arrival::Fixed { interval },
            "poisson" => Arrival::Poisson { interval },
            "bernoulli" => Arrival::Bernoulli {
                slot: time("slot", DurationPs::from_us(1)),
                probability: section.number("probability", PROBABILITIES).unwrap_or(0.5),
            },
            "bursty" => Arrival::Bursty {
                spacing: time("spacing", DurationPs::from_us(1)),
                pause: time("pause", DurationPs::from_us(100)),
                burst: section.number("burst", 1.0..=1e6).unwrap_or(10.0),
            },
            "bunches" => Arrival::Bunches {
                crossing: time("crossing", DurationPs::from_ns(25)),
                probability: section
                    .number("probability", PROBABILITIES)
                    .unwrap_or(0.0025),
                filled: section.integer("filled", 0..=3564).unwrap_or(48) as u32,
                train: section.integer("train", 0..=3564).unwrap_or(54) as u32,
            },
            _ => Arrival::Saturated,
        };
        section.finish();
        arrival
    }
}

/// How the stages of a delta network are wired.
fn wiring(section: &mut Section<'_, '_>) -> Wiring {
    let words = ["omega", "natural", "swapped"].map(|word| (word, word));
    match section.choice("wiring", &words) {
        Some("natural") => Wiring::Natural,
        Some("swapped") => Wiring::Swapped,
        _ => Wiring::Omega,
    }
}

fn read_link(root: &mut Section<'_, '_>, load: &mut Load) {
    let Some(mut section) = root.section("link") else {
        return;
    };
    let allowed = "a rate with unit in quotes, such as \"2 Gb/s\" or \"160 MB/s\"";
    if let Some(rate) = section.parsed("rate", allowed, parse_bit_rate) {
        load.link_bits_per_s = rate;
    }
    let mut overhead = ByteSize(0);
    section.quantity("overhead", &mut overhead);
    if overhead.0 > OVERHEAD_MAX {
        let path = section.key_path("overhead");
        let help = "write the bytes of headers and gaps that go with each packet";
        let allowed = "0 B to 1 MiB";
        let problem = Problem::new(BAD_QUANTITY, path, overhead, allowed, help);
        section.report(problem);
    }
    load.overhead_bytes = overhead.0.min(OVERHEAD_MAX) as u32;
    load.hop_delay = duration_or(&mut section, "hop_delay", DurationPs::ZERO);
    load.source_gap = duration_or(&mut section, "source_gap", DurationPs::ZERO);
    if root.has("builder") {
        let help =
            "remove `source_gap`: hosts have times of their own, such as `packet` of `[host]`";
        section.refuse_idle(&["source_gap"], "`source_gap` without `[builder]`", help);
    }
    section.finish();
}

/// The table whose `order` says by which routes packets go, if one does: a conflict-free order.
fn scheduled_by(
    builder: Option<&BuilderNetwork>,
    shift: Option<ShiftOrder>,
) -> Option<&'static str> {
    let Some(builder) = builder else {
        return (shift == Some(ShiftOrder::ConflictFree)).then_some("traffic");
    };
    match builder.shaping {
        Shaping::BarrelShifter { order, .. } | Shaping::LinearShift { order, .. } => {
            (order == ShiftOrder::ConflictFree).then_some("builder")
        }
        Shaping::None => None,
    }
}

fn read_flits(root: &mut Section<'_, '_>) -> FlitConfig {
    let mut flits = FlitConfig::default();
    let Some(mut section) = root.section("flit") else {
        return flits;
    };
    let mut bytes = ByteSize(u64::from(flits.flit_bytes));
    section.quantity("bytes", &mut bytes);
    flits.flit_bytes = bytes.0.min(u64::from(u32::MAX)) as u32;
    for (key, field) in [
        ("buffer", &mut flits.buffer_flits),
        ("channels", &mut flits.channels),
    ] {
        if let Some(value) = section.integer(key, 0..=COUNT_MAX) {
            *field = value as u32;
        }
    }
    section.finish();
    flits
}

pub(super) fn duration(section: &mut Section<'_, '_>, key: &'static str) -> Option<DurationPs> {
    let is_there = section.has(key);
    let mut time = DurationNs(0);
    // Asked for in any case, so that it is among the keys that a misspelt one is compared with.
    section.quantity(key, &mut time);
    is_there.then(|| DurationPs::from_duration_ns(time))
}

pub(super) fn duration_or(
    section: &mut Section<'_, '_>,
    key: &'static str,
    default: DurationPs,
) -> DurationPs {
    duration(section, key).unwrap_or(default)
}

/// Bits per second of a rate such as `2 Gb/s` or `160 MB/s`; prefixes are decimal.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse_bit_rate(text: &str) -> Result<u64, QuantityError> {
    text.parse().map(|BitRate(rate)| rate)
}

#[cfg(test)]
mod tests;
