//! The configuration of a run: every table of the file, and the options that go over it.
//!
//! Reads values and units; what values are allowed is the business of the cores' `validate`, whose
//! problems are placed here on the keys that people wrote.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use livetime_node::{ChainConfig, DataLinkConfig, FilterConfig, LinkFault, WorkerConfig};
use livetime_readout::LinkConfig;
use livetime_shm::WaitStrategy;
use livetime_source::{ArrivalKind, OfferMode, RecordedEvents, SourceConfig};
use livetime_store::WriterLimits;
use livetime_trigger::{EnergyMev, MassWindowConfig, Menu, MenuConfig, SupervisorConfig};
use livetime_wire::fragment::CrcCheck;
use livetime_wire::{ByteSize, DurationNs, Problem, ProblemCode, RateHz, RunNumber, SourceId};

use super::document::{Findings, OUT_OF_RANGE, Section, parse};
use super::trigger_section::{ENERGY, LENGTH, read_menu};

/// The file is of another format version.
pub(crate) const FORMAT: ProblemCode = ProblemCode::new("C0102", "configuration of another format");
/// The number of sources or trigger links is not one.
pub(crate) const ONE_OF: ProblemCode = ProblemCode::new("C0103", "table is not there exactly once");
/// A link to a unit that does not exist.
pub(crate) const LINK_TARGET: ProblemCode = ProblemCode::new("C0104", "link to an unknown unit");
/// Two links with one source id.
pub(crate) const SOURCE_ID_TWICE: ProblemCode =
    ProblemCode::new("C0105", "source id is used twice");
/// Readout units without links in between.
pub(crate) const UNIT_GAP: ProblemCode = ProblemCode::new("C0106", "readout unit without links");

/// Options of the command line that replace values of the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    pub(crate) seed: Option<u64>,
    pub(crate) duration: Option<DurationNs>,
    pub(crate) triggers: Option<u64>,
    pub(crate) lossless: bool,
    pub(crate) rate: Option<RateHz>,
    pub(crate) events: Option<PathBuf>,
}

/// A run as configured.
#[derive(Debug, Clone)]
pub(crate) struct RunConfig {
    /// Where run directories go.
    pub(crate) directory: PathBuf,
    /// Recorded events to replay, if any.
    pub(crate) events: Option<PathBuf>,
    /// The chain, without run number and recorded events.
    pub(crate) chain: ChainConfig,
}

/// What reading a configuration gave.
pub(crate) struct Reading {
    /// The configuration, if it has no problem.
    pub(crate) config: Option<RunConfig>,
    /// All problems.
    pub(crate) problems: Vec<Problem>,
    /// Where the keys stand.
    pub(crate) spans: BTreeMap<String, Range<usize>>,
}

/// A link as it is written, with its key path.
struct LinkTable {
    path: String,
    to: String,
    source: u32,
    count: u32,
    link: LinkConfig,
}

/// Reads a configuration from its text; `cores` are those that workers may run on.
pub(crate) fn read(text: &str, overrides: &Overrides, cores: &[usize]) -> Reading {
    let findings = Findings::default();
    let table = parse(text, &findings);
    let root = Section::root(table.get_ref(), &findings);
    let config = read_root(root, overrides, cores, &findings);
    let (spans, mut problems) = findings.into_parts();
    let place = |problem: &Problem| spans.get(&problem.path).map_or(usize::MAX, |s| s.start);
    problems.sort_by_key(place);
    Reading {
        config: config.filter(|_| problems.is_empty()),
        problems,
        spans,
    }
}

fn read_root(
    mut root: Section<'_, '_>,
    overrides: &Overrides,
    cores: &[usize],
    findings: &Findings,
) -> Option<RunConfig> {
    check_format(&mut root, findings);
    let mut source = SourceConfig::default();
    let directory = read_run(&mut root, &mut source);
    let (source_path, events) = read_source(&mut root, &mut source, findings);
    let links = read_links(&mut root, findings);
    let (menu, supervisor, packet_words) = read_trigger(&mut root, findings);
    source.packet_words_max = packet_words;
    let (trigger_link, data_links, data_paths) = place_links(&links, findings);
    source.data_links = data_links.iter().map(|link| link.source).collect();
    apply(overrides, &mut source);
    let mut builder = read_builder(&mut root);
    builder.readout_units = units_of(&data_links, findings);
    let filter = read_filter(&mut root, &mut builder);
    let store = read_store(&mut root);
    let workers = read_workers(&mut root);
    root.finish();

    let data_path = |index: usize| data_paths.get(index).cloned().unwrap_or_default();
    let mut problems = menu.validate("trigger");
    problems.extend(source.validate(&source_path));
    problems.extend(supervisor.validate("trigger"));
    problems.extend(builder.validate("builder"));
    problems.extend(store.validate());
    if let FilterConfig::MassWindow(window) = filter {
        problems.extend(window.validate("filter"));
    }
    for table in &links {
        problems.extend(table.link.validate(&table.path));
    }
    let valid_menu = Menu::new_checked(menu, "trigger").ok();
    let empty_menu = || Menu::new_checked(MenuConfig::default(), "trigger").ok();
    let mut chain = ChainConfig {
        run: RunNumber(0),
        source,
        recorded: None,
        trigger_link: trigger_link?,
        data_links,
        menu: valid_menu.or_else(empty_menu)?,
        supervisor,
        builder,
        filter,
        store,
        workers: Vec::new(),
        faults: Vec::new(),
    };
    chain.workers = workers_of(&chain, workers, cores);
    problems.extend(chain.validate(cores, data_path));
    for problem in problems {
        findings.report(on_written_keys(problem, &source_path, &data_paths));
    }
    let events = overrides.events.clone().or(events);
    Some(RunConfig {
        directory,
        events,
        chain,
    })
}

fn check_format(root: &mut Section<'_, '_>, findings: &Findings) {
    root.require("format", "1");
    if let Some(format) = root.integer("format", 0..=u64::MAX)
        && format != 1
    {
        let help = "write `format = 1`; later formats need a later program";
        findings.report(Problem::new(FORMAT, "format", format, "1", help));
    }
}

fn read_run(root: &mut Section<'_, '_>, source: &mut SourceConfig) -> PathBuf {
    let mut directory = PathBuf::from("runs");
    let Some(mut run) = root.section("run") else {
        return directory;
    };
    let mut duration = source.triggers.duration.unwrap_or_default();
    run.quantity("duration", &mut duration);
    source.triggers.duration = Some(duration);
    if let Some(triggers) = run.integer("triggers", 1..=u64::MAX) {
        source.triggers.triggers_max = Some(triggers);
    }
    if let Some(seed) = run.integer("seed", 0..=u64::MAX) {
        source.seed = seed;
    }
    if let Some(path) = run.text("directory") {
        directory = PathBuf::from(path);
    }
    run.finish();
    directory
}

/// Options of the command line over the values of the file.
fn apply(overrides: &Overrides, source: &mut SourceConfig) {
    let triggers = &mut source.triggers;
    source.seed = overrides.seed.unwrap_or(source.seed);
    if let Some(rate) = overrides.rate {
        triggers.arrival.rate = rate;
    }
    if let Some(count) = overrides.triggers {
        triggers.triggers_max = Some(count);
        // A number of triggers is the end of the run, unless a duration is asked for as well.
        triggers.duration = overrides.duration;
    } else if overrides.duration.is_some() {
        triggers.duration = overrides.duration;
    }
    if overrides.lossless {
        triggers.mode = OfferMode::Lossless;
        if overrides.rate.is_none() {
            triggers.arrival.kind = ArrivalKind::Unpaced;
        }
    }
}

/// Reads the one `[[source]]` table; returns its key path and the recorded events it names.
fn read_source(
    root: &mut Section<'_, '_>,
    config: &mut SourceConfig,
    findings: &Findings,
) -> (String, Option<PathBuf>) {
    let mut sources = root.sections("source");
    if sources.len() != 1 {
        let found = format!("there {} times", sources.len());
        let help = "write one `[[source]]` table; it feeds all links";
        findings.report(Problem::new(ONE_OF, "source", found, "exactly once", help));
    }
    let Some(mut source) = sources.pop() else {
        return ("source".to_owned(), None);
    };
    let path = source.path().to_owned();
    let kinds = [("physics", false), ("recorded", true)];
    let is_recorded = source.choice("kind", &kinds).unwrap_or(false);
    let events = source.text("events").map(PathBuf::from);
    if is_recorded && events.is_none() {
        source.require("events", "the path of a CSV file of recorded events");
    }
    let triggers = &mut config.triggers;
    source.quantity("rate", &mut triggers.arrival.rate);
    let kinds = [
        ("poisson", ArrivalKind::Poisson),
        ("periodic", ArrivalKind::FixedGap),
    ];
    if let Some(kind) = source.choice("arrival", &kinds) {
        triggers.arrival.kind = kind;
    }
    source.quantity("lateness_max", &mut triggers.lateness_max);
    if let Some(mut fragment) = source.section("fragment") {
        fragment.quantity("bytes_mean", &mut config.fragment.bytes_mean);
        fragment.quantity("bytes_max", &mut config.fragment.bytes_max);
        if let Some(sigma) = fragment.number("log_sigma", 0.0..=2.0) {
            config.fragment.log_sigma = sigma;
        }
        fragment.finish();
    }
    if let Some(physics) = source.section("physics") {
        read_physics(physics, config);
    }
    source.finish();
    (path, events.filter(|_| is_recorded))
}

fn read_physics(mut section: Section<'_, '_>, config: &mut SourceConfig) {
    let physics = &mut config.physics;
    for (key, field) in [
        ("z_fraction", &mut physics.z_fraction),
        ("continuum_fraction", &mut physics.continuum_fraction),
        ("displaced_fraction", &mut physics.displaced_fraction),
        ("single_muon_fraction", &mut physics.single_muon_fraction),
        ("calorimeter_fraction", &mut physics.calorimeter_fraction),
        ("empty_fraction", &mut physics.empty_fraction),
    ] {
        *field = section.number(key, 0.0..=1.0).unwrap_or(*field);
    }
    for (key, field) in [
        ("soft_tracks_mean", &mut physics.soft_tracks_mean),
        ("soft_jets_mean", &mut physics.soft_jets_mean),
    ] {
        *field = section.number(key, 0.0..=60.0).unwrap_or(*field);
    }
    let spot = |section: &mut Section<'_, '_>, key| {
        section.parsed(key, LENGTH, str::parse::<livetime_trigger::LengthUm>)
    };
    if let Some(x) = spot(&mut section, "beam_x") {
        physics.beam_mm.0 = f64::from(x.0) * 1e-3;
    }
    if let Some(y) = spot(&mut section, "beam_y") {
        physics.beam_mm.1 = f64::from(y.0) * 1e-3;
    }
    section.finish();
}

fn read_links(root: &mut Section<'_, '_>, findings: &Findings) -> Vec<LinkTable> {
    let tables = root.sections("link");
    tables
        .into_iter()
        .filter_map(|link| read_link(link, findings))
        .collect()
}

fn read_link(mut section: Section<'_, '_>, findings: &Findings) -> Option<LinkTable> {
    let path = section.path().to_owned();
    section.require(
        "to",
        "the unit at its near end, such as \"ru0\" or \"trg0\"",
    );
    section.require("source_id", "the source at its far end, such as 0x510000");
    let to = section.text("to");
    let source = section.integer("source_id", 0..=u64::from(u32::MAX));
    let count = section.integer("count", 1..=4096).unwrap_or(1);
    let mut link = LinkConfig::default();
    if to.as_deref() == Some("trg0") {
        // Packets are small and never wait for the event builder.
        link.pages = 256;
    }
    let mut page = ByteSize(u64::from(link.page_words) * 4);
    section.quantity("page", &mut page);
    link.page_words = words(page, "page", &section, findings);
    let mut fragment_max = ByteSize(
        u64::from(link.page_words) * 4 * livetime_wire::message::FRAGMENT_PAGES_MAX as u64,
    );
    section.quantity("fragment_max", &mut fragment_max);
    link.fragment_words_max = words(fragment_max, "fragment_max", &section, findings);
    for (key, field) in [
        ("pages", &mut link.pages),
        ("request_depth", &mut link.request_depth),
        ("acknowledge_depth", &mut link.acknowledge_depth),
        ("xoff_below", &mut link.xoff_below),
        ("xon_above", &mut link.xon_above),
        ("words_in_flight", &mut link.words_in_flight),
    ] {
        if let Some(value) = section.integer(key, 0..=1 << 24) {
            *field = u32::try_from(value).unwrap_or(u32::MAX);
        }
    }
    if section.switch("crc") == Some(false) {
        link.crc = CrcCheck::Off;
    }
    section.finish();
    Some(LinkTable {
        path,
        to: to?,
        source: u32::try_from(source?).ok()?,
        count: u32::try_from(count).ok()?,
        link,
    })
}

/// A size as words; what is no whole number of words is a problem.
fn words(size: ByteSize, key: &str, section: &Section<'_, '_>, findings: &Findings) -> u32 {
    let words = u32::try_from(size.0 / 4)
        .ok()
        .filter(|_| size.0.is_multiple_of(4));
    words.unwrap_or_else(|| {
        let allowed = "a multiple of 4 B below 16 GiB";
        let help = "links carry words of 4 bytes";
        findings.report(Problem::new(
            OUT_OF_RANGE,
            section.key_path(key),
            size,
            allowed,
            help,
        ));
        1024
    })
}

/// Sorts links by what they end at: the trigger link and the data links with their key paths.
fn place_links(
    tables: &[LinkTable],
    findings: &Findings,
) -> (Option<LinkConfig>, Vec<DataLinkConfig>, Vec<String>) {
    let (mut trigger, mut data, mut paths) = (Vec::new(), Vec::<DataLinkConfig>::new(), Vec::new());
    for table in tables {
        if table.to == "trg0" {
            trigger.push(table.link.clone());
            continue;
        }
        let index = table
            .to
            .strip_prefix("ru")
            .and_then(|index| index.parse::<u16>().ok());
        let Some(unit) = index else {
            findings.report(Problem::new(
                LINK_TARGET,
                format!("{}.to", table.path),
                format!("\"{}\"", table.to),
                "\"trg0\" or a readout unit: \"ru0\", \"ru1\", ..",
                "connect the link to the trigger node or to a readout unit",
            ));
            continue;
        };
        for source in (0..table.count).map(|i| SourceId(table.source.wrapping_add(i))) {
            if let Some(other) = data.iter().position(|link| link.source == source) {
                let path = format!("{}.source_id", table.path);
                let help = "the builder files fragments under their source id, so each has its own";
                let allowed = "an id that no other link has";
                let problem = Problem::new(SOURCE_ID_TWICE, path, source, allowed, help);
                let first = format!("{}.source_id", paths[other]);
                findings.report(problem.with_related(first, "first used here"));
            }
            data.push(DataLinkConfig {
                source,
                unit,
                link: table.link.clone(),
            });
            paths.push(table.path.clone());
        }
    }
    let (data, paths) = interleaved(data, paths);
    if trigger.len() != 1 {
        let found = format!("{} links to trg0", trigger.len());
        let help = "write one `[[link]]` with `to = \"trg0\"`: triggers are decided on its packets";
        findings.report(Problem::new(ONE_OF, "link", found, "exactly one", help));
    }
    (trigger.pop(), data, paths)
}

/// The links in turn over the readout units: the first of each, the second of each, and so on.
///
/// The source puts object `i` of an event on link `i`, so that neighbours, such as the two muons
/// of a pair, come together only in the event builder.
fn interleaved(
    links: Vec<DataLinkConfig>,
    paths: Vec<String>,
) -> (Vec<DataLinkConfig>, Vec<String>) {
    let mut seen = BTreeMap::<u16, usize>::new();
    let mut all: Vec<_> = (links.into_iter().zip(paths))
        .map(|(link, path)| {
            let rank = seen.entry(link.unit).or_default();
            *rank += 1;
            ((*rank, link.unit), link, path)
        })
        .collect();
    all.sort_by_key(|(order, ..)| *order);
    all.into_iter().map(|(_, link, path)| (link, path)).unzip()
}

/// The sources of each readout unit.
fn units_of(links: &[DataLinkConfig], findings: &Findings) -> Vec<Vec<SourceId>> {
    let count = links
        .iter()
        .map(|link| usize::from(link.unit) + 1)
        .max()
        .unwrap_or(0);
    let mut units = vec![Vec::new(); count];
    for link in links {
        units[usize::from(link.unit)].push(link.source);
    }
    for (index, _) in units
        .iter()
        .enumerate()
        .filter(|(_, sources)| sources.is_empty())
    {
        let found = format!("ru{index}, which no link goes to");
        let help = "number the readout units from ru0 without gaps";
        findings.report(Problem::new(
            UNIT_GAP,
            "link",
            found,
            "a link to each unit",
            help,
        ));
    }
    units
}

fn read_trigger(
    root: &mut Section<'_, '_>,
    findings: &Findings,
) -> (MenuConfig, SupervisorConfig, usize) {
    let mut supervisor = SupervisorConfig::default();
    let mut packet_words = SourceConfig::default().packet_words_max;
    let Some(mut trigger) = root.section("trigger") else {
        return (MenuConfig::default(), supervisor, packet_words);
    };
    if let Some(buffers) = trigger.integer("l2_buffers", 1..=4) {
        supervisor.l2_buffers = u8::try_from(buffers).unwrap_or(4);
    }
    trigger.quantity("deadline", &mut supervisor.deadline);
    trigger.quantity("decision_timeout", &mut supervisor.decision_timeout);
    if let Some(queue) = trigger.integer("output_queue", 2..=65_536) {
        supervisor.output_queue = queue as usize;
    }
    if let Some(words) = trigger.integer("packet_words_max", 10..=65_535) {
        packet_words = words as usize;
    }
    let menu = read_menu(&mut trigger, findings);
    trigger.finish();
    (menu, supervisor, packet_words)
}

fn read_builder(root: &mut Section<'_, '_>) -> livetime_builder::BuilderConfig {
    let mut config = livetime_builder::BuilderConfig::default();
    let Some(mut section) = root.section("builder") else {
        return config;
    };
    if let Some(units) = section.integer("builder_units", 1..=4096) {
        config.builder_units = u16::try_from(units).unwrap_or(u16::MAX);
    }
    for (key, field) in [
        ("credits", &mut config.credits),
        ("requests_per_message", &mut config.requests_per_message),
        ("evm_queue", &mut config.evm_queue),
        ("history", &mut config.history),
        ("trigger_window", &mut config.trigger_window),
    ] {
        if let Some(value) = section.integer(key, 0..=1 << 24) {
            *field = u32::try_from(value).unwrap_or(u32::MAX);
        }
    }
    section.quantity("timeout", &mut config.timeout);
    section.quantity("retry", &mut config.retry);
    section.quantity("probe", &mut config.probe);
    section.finish();
    config
}

fn read_filter(
    root: &mut Section<'_, '_>,
    builder: &mut livetime_builder::BuilderConfig,
) -> FilterConfig {
    let mut window = MassWindowConfig::default();
    let Some(mut section) = root.section("filter") else {
        return FilterConfig::MassWindow(window);
    };
    if let Some(units) = section.integer("units", 1..=4096) {
        builder.filter_units = u16::try_from(units).unwrap_or(u16::MAX);
    }
    if let Some(in_flight) = section.integer("in_flight", 0..=1 << 24) {
        builder.filter_in_flight = u32::try_from(in_flight).unwrap_or(u32::MAX);
    }
    let accept_all = section.choice("name", &[("mass_window", false), ("accept_all", true)]);
    let gev = |energy: EnergyMev| f64::from(energy.0) * 1e-3;
    if let Some(min) = section.parsed("mass_min", ENERGY, str::parse) {
        window.mass_min_gev = gev(min);
    }
    if let Some(max) = section.parsed("mass_max", ENERGY, str::parse) {
        window.mass_max_gev = gev(max);
    }
    if let Some(one_in) = section.integer("keep_one_in", 0..=u64::from(u32::MAX)) {
        window.keep_one_in = u32::try_from(one_in).unwrap_or(u32::MAX);
    }
    section.finish();
    if accept_all == Some(true) {
        FilterConfig::AcceptAll
    } else {
        FilterConfig::MassWindow(window)
    }
}

fn read_store(root: &mut Section<'_, '_>) -> WriterLimits {
    let mut limits = WriterLimits::default();
    let Some(mut section) = root.section("store") else {
        return limits;
    };
    for (key, field) in [
        ("chunk", &mut limits.chunk_bytes),
        ("event_max", &mut limits.event_bytes_max),
    ] {
        let mut size = ByteSize(*field as u64);
        section.quantity(key, &mut size);
        *field = usize::try_from(size.0).unwrap_or(usize::MAX);
    }
    for (key, field) in [
        ("events_indexed_max", &mut limits.events_indexed_max),
        ("chunks_indexed_max", &mut limits.chunks_indexed_max),
    ] {
        if let Some(value) = section.integer(key, 1..=1 << 28) {
            *field = value as usize;
        }
    }
    section.finish();
    limits
}

const WAITS: [(&str, WaitStrategy); 3] = [
    ("spin", WaitStrategy::Spin),
    ("adaptive", WaitStrategy::Adaptive),
    ("block", WaitStrategy::Block),
];

/// The `[workers]` table: how all wait, and the workers if they are listed.
struct Workers {
    wait: Option<WaitStrategy>,
    listed: Vec<WorkerConfig>,
}

fn read_workers(root: &mut Section<'_, '_>) -> Workers {
    let mut workers = Workers {
        wait: None,
        listed: Vec::new(),
    };
    let Some(mut section) = root.section("workers") else {
        return workers;
    };
    workers.wait = section.choice("wait", &WAITS);
    for (index, mut worker) in section.sections("worker").into_iter().enumerate() {
        worker.require("roles", "a list of role ids, such as [\"ru0\", \"ru1\"]");
        workers.listed.push(WorkerConfig {
            name: worker
                .text("name")
                .unwrap_or_else(|| format!("worker{index}")),
            core: worker.integer("core", 0..=4095).map(|core| core as usize),
            wait: worker
                .choice("wait", &WAITS)
                .or(workers.wait)
                .unwrap_or_default(),
            roles: worker.texts("roles").unwrap_or_default(),
        });
        worker.finish();
    }
    section.finish();
    workers
}

fn workers_of(chain: &ChainConfig, workers: Workers, cores: &[usize]) -> Vec<WorkerConfig> {
    if !workers.listed.is_empty() {
        return workers.listed;
    }
    let mut default = chain.default_workers(cores.len());
    if let Some(wait) = workers.wait {
        // The writer sleeps at the disk whatever the others do.
        for worker in default
            .iter_mut()
            .filter(|worker| worker.wait != WaitStrategy::Block)
        {
            worker.wait = wait;
        }
    }
    default
}

/// Names the key that a person wrote where a core names its own field.
fn on_written_keys(mut problem: Problem, source_path: &str, data_paths: &[String]) -> Problem {
    let written = |path: &str| {
        let in_source = path.strip_prefix(&format!("{source_path}.data_links["));
        if let Some(index) = in_source.and_then(|rest| rest.trim_end_matches(']').parse().ok()) {
            return data_paths
                .get::<usize>(index)
                .map(|path| format!("{path}.source_id"));
        }
        let renamed = path
            .replace(".page_words", ".page")
            .replace(".fragment_words_max", ".fragment_max")
            .replace("builder.filter_units", "filter.units")
            .replace("builder.filter_in_flight", "filter.in_flight");
        let from_run = ["duration", "triggers"]
            .into_iter()
            .find(|key| renamed == format!("{source_path}.{key}"))
            .map(|key| format!("run.{key}"));
        Some(from_run.unwrap_or(renamed))
    };
    if let Some(path) = written(&problem.path) {
        problem.path = path;
    }
    if let Some((path, label)) = problem.related.take() {
        problem.related = Some((written(&path).unwrap_or(path), label));
    }
    problem
}

/// Reads recorded events for a configuration.
pub(crate) fn read_events(path: &std::path::Path) -> Result<RecordedEvents, String> {
    let file = std::fs::File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    RecordedEvents::read(std::io::BufReader::new(file))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// A fault of the command line: `link-down:L3@4s+1s`.
pub(crate) fn parse_fault(text: &str) -> Result<LinkFault, String> {
    const FORM: &str =
        "a fault is written link-down:LINK@START+DURATION, such as link-down:3@4s+1s";
    let rest = text.strip_prefix("link-down:").ok_or(FORM)?;
    let (link, when) = rest.split_once('@').ok_or(FORM)?;
    let (start, length) = when.split_once('+').ok_or(FORM)?;
    let duration = |text: &str| {
        text.parse::<DurationNs>()
            .map_err(|error| format!("\"{text}\" is no time ({error}); {FORM}"))
    };
    let from = livetime_wire::RunNs(duration(start)?.0);
    let until = from.after(duration(length)?);
    let link = link.trim_start_matches('L').parse().map_err(|_| FORM)?;
    Ok(LinkFault { link, from, until })
}
