//! The configuration of a run: all tables of the file together, and the options that go over them.
//!
//! Reads `[run]` itself and leaves the other tables to the files beside it. What values are allowed
//! is the business of the cores' `validate`, whose problems are placed here on the keys that people
//! wrote.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use livetime_builder::BuilderConfig;
use livetime_builder::problem_code::{FIRST_STEP, SUBFARMS, TOO_MANY_SOURCES, WRITERS};
use livetime_node::chain_config::{EVENT_LIMIT, FRAGMENT_LIMIT, ROLE_PLACEMENT, SHARED_PAGES};
use livetime_node::chain_plan::FRONT_END;
use livetime_node::front_end_server::FrontEndServerConfig;
use livetime_node::link::LinkTransport;
use livetime_node::packet_log::{PACKET_FILE, PacketLogConfig};
use livetime_node::process::{LossPolicy, OnLoss};
use livetime_node::{BuilderTransport, ChainConfig, DataLinkConfig, FilterConfig};
use livetime_readout::LinkConfig;
use livetime_readout::problem_code::PAGE_SIZE;
use livetime_source::problem_code::FRONT_ENDS;
use livetime_source::{ArrivalKind, OfferMode, SourceConfig};
use livetime_trigger::{Menu, MenuConfig, MergerConfig, SupervisorConfig};
use livetime_wire::{DurationNs, Problem, ProblemCode, RateHz, RunNumber};

use super::builder_section::read_builder;
use super::document::{Findings, Section, parse};
use super::filter_section::{FilterTable, read_filter};
use super::governed_keys::builder_problems;
use super::host_section::{HostTable, KnownRoles, ROLE_NUMBERS, read_hosts};
use super::link_section::{LinkTable, place_links, read_links, units_of};
use super::named_files::NamedFiles;
use super::problem_code::{FORMAT, LINK_KIND, LINK_TARGET, NAMED_FILE, SOURCE_ID_TWICE, UNIT_GAP};
use super::render::place;
use super::source_section::read_source;
use super::store_section::{StoreTable, read_store};
use super::timing_section::{TimingTable, place_spill, read_timing};
use super::trigger_section::{TriggerTable, read_trigger};
use super::worker_section::{WorkerTable, read_workers};

/// Role id of the event manager.
const EVENT_MANAGER: &str = "evm";

/// Options of the command line that replace values of the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    pub(crate) seed: Option<u64>,
    pub(crate) duration: Option<DurationNs>,
    pub(crate) triggers: Option<u64>,
    pub(crate) lossless: bool,
    pub(crate) rate: Option<RateHz>,
    pub(crate) events: Option<PathBuf>,
    pub(crate) paused: bool,
    pub(crate) processes: bool,
}

impl Overrides {
    /// Those that a file is read with which may lack the recorded events of an option: that of a run
    /// that was taken.
    pub(crate) fn of_taken_run() -> Self {
        Self {
            events: Some(PathBuf::new()),
            ..Self::default()
        }
    }

    /// The keys of the source whose values they replace.
    fn keys(&self) -> Vec<&'static str> {
        let keys = [
            ("duration", self.duration.is_some()),
            ("triggers", self.triggers.is_some()),
            ("rate", self.rate.is_some()),
        ];
        let replaced = keys.into_iter().filter(|(_, is_replaced)| *is_replaced);
        replaced.map(|(key, _)| key).collect()
    }
}

/// A run as configured.
#[derive(Debug, Clone)]
pub(crate) struct RunConfig {
    /// Where run directories go.
    pub(crate) directory: PathBuf,
    /// Whether each role gets a process of its own.
    pub(crate) processes: bool,
    /// Whether it is written that roles are threads.
    pub(crate) are_threads: bool,
    /// What is done about units that are lost.
    pub(crate) on_loss: LossPolicy,
    /// The hosts of the roles; with none, all are on this one.
    pub(crate) hosts: HostTable,
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
    /// The files that it names, whatever else is wrong.
    pub(crate) files: NamedFiles,
}

impl Reading {
    /// Takes in problems that were found after reading; one at whose key there is one is said already.
    pub(crate) fn add(&mut self, problems: Vec<Problem>) {
        for problem in problems {
            if self.problems.iter().all(|other| other.path != problem.path) {
                self.problems.push(problem);
            }
        }
        sort_by_place(&mut self.problems, &self.spans);
    }
}

/// In the order of the file; what has no place there comes last.
fn sort_by_place(problems: &mut [Problem], spans: &BTreeMap<String, Range<usize>>) {
    problems.sort_by_key(|problem| place(&problem.path, spans).map_or(usize::MAX, |s| s.start));
}

/// Reads a configuration from its text; `cores` are those that workers may run on.
pub(crate) fn read(text: &str, overrides: &Overrides, cores: &[usize]) -> Reading {
    let findings = Findings::default();
    let table = parse(text, &findings);
    let root = Section::root(table.get_ref(), &findings);
    let mut files = NamedFiles::default();
    let config = read_root(root, overrides, cores, (&findings, &mut files));
    let (spans, found) = findings.into_parts();
    // All links of a table have the same problem; it is said once.
    let mut problems: Vec<Problem> = Vec::new();
    for problem in found {
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    sort_by_place(&mut problems, &spans);
    Reading {
        config: config.filter(|_| problems.is_empty()),
        problems,
        spans,
        files,
    }
}

fn read_root(
    root: Section<'_, '_>,
    overrides: &Overrides,
    cores: &[usize],
    (findings, files): (&Findings, &mut NamedFiles),
) -> Option<RunConfig> {
    let Tables {
        directory,
        events,
        front_ends,
        on_loss,
        workers,
        hosts,
        mut keys,
        mut parts,
    } = Tables::read(root, overrides.events.is_some(), findings);
    keys.options = overrides.keys();
    parts.connect();
    apply(overrides, &mut parts.source, &mut parts.trigger);
    let of_parts = parts.validate(&keys.source, findings);
    let mut chain = parts.into_chain(&hosts, findings)?;
    chain.front_ends = front_ends;
    let (processes, are_threads) = (workers.processes, workers.are_threads);
    chain.workers = workers.workers_of(&chain, cores.len());
    let data_key = |index: usize| keys.data_links.get(index).cloned().unwrap_or_default();
    let mut between_parts = chain.validate(cores, &keys.trigger_link, data_key);
    // Filter units that join a run are processes, and so are all roles with hosts.
    let joins = on_loss.filters_at_start.is_some();
    if processes || overrides.processes || joins || !hosts.hosts.is_empty() {
        between_parts.extend(chain.check_processes(filters_key(&on_loss)));
    }
    keys.report(findings, of_parts, between_parts);
    hosts.check(&chain, keys.known_roles(findings), findings);
    check_readout_return(&chain, &on_loss, findings);
    check_front_ends(&chain, overrides, &keys.source, findings);
    // What an option names has no place in the file.
    let key = overrides
        .events
        .is_none()
        .then(|| format!("{}.events", keys.source));
    let events = overrides.events.clone().or(events);
    *files = NamedFiles::new(&chain, &keys.data_links, events.map(|path| (key, path)));
    Some(RunConfig {
        directory,
        processes,
        are_threads,
        on_loss,
        hosts,
        chain,
    })
}

/// What the tables say, before anything is checked across them.
struct Tables {
    directory: PathBuf,
    events: Option<PathBuf>,
    front_ends: Option<FrontEndServerConfig>,
    on_loss: LossPolicy,
    workers: WorkerTable,
    hosts: HostTable,
    keys: WrittenKeys,
    parts: ChainParts,
}

/// The parts of the chain.
struct ChainParts {
    source: SourceConfig,
    link_tables: Vec<LinkTable>,
    trigger_link: Option<LinkConfig>,
    data_links: Vec<DataLinkConfig>,
    trigger: TriggerTable,
    builder: BuilderConfig,
    transport: BuilderTransport,
    filter: FilterTable,
    store: StoreTable,
    timing: Option<TimingTable>,
}

impl Tables {
    /// Reads them; `has_events` says that an option names the recorded events.
    fn read(mut root: Section<'_, '_>, has_events: bool, findings: &Findings) -> Self {
        check_format(&mut root, findings);
        let mut source = SourceConfig::default();
        let directory = read_run(&mut root, &mut source);
        let table = read_source(&mut root, &mut source, has_events, findings);
        let (link_tables, are_read) = read_links(&mut root, findings);
        let mut trigger = read_trigger(&mut root, findings);
        let links = place_links((&link_tables, are_read), findings);
        let mut on_loss = LossPolicy::default();
        let (mut builder, transport) = read_builder(&mut root, &mut on_loss, findings);
        builder.readout_units = units_of(&links, findings);
        let filter = read_filter(&mut root, &mut builder, &mut on_loss, findings);
        let store = read_store(&mut root, &mut on_loss);
        let timing = read_timing(&mut root, findings);
        let workers = read_workers(&mut root);
        let hosts = read_hosts(&mut root, findings);
        root.finish();
        Self {
            directory,
            events: table.events,
            front_ends: table.front_ends,
            on_loss,
            workers,
            hosts,
            keys: WrittenKeys {
                source: table.path,
                trigger_link: links.trigger_path,
                readout_units: links.data.iter().map(|link| link.unit).collect(),
                data_links: links.data_paths,
                are_links_placed: links.are_placed,
                trigger_paths: std::mem::take(&mut trigger.path_keys),
                options: Vec::new(),
            },
            parts: ChainParts {
                source,
                link_tables,
                trigger_link: links.trigger,
                data_links: links.data,
                trigger,
                builder,
                transport,
                filter,
                store,
                timing,
            },
        }
    }
}

impl ChainParts {
    /// Tells each part what it has to know of the others.
    fn connect(&mut self) {
        self.source.packet_words_max = self.trigger.packet_words_max;
        self.source.data_links = self.data_links.iter().map(|link| link.source).collect();
        self.trigger.merger.words_max = self.source.packet_words_max;
        self.builder.writers = self.store.writers.unwrap_or(self.builder.writers);
        if let FilterConfig::Python(python) = &mut self.filter.filter {
            let paths = self.trigger.menu.paths.iter();
            python.paths = paths.map(|path| (path.name.clone(), path.bit)).collect();
        }
    }

    /// What the cores find in their own parts.
    fn validate(&self, source_key: &str, findings: &Findings) -> Vec<Problem> {
        let mut problems = self.trigger.menu.validate("trigger");
        problems.extend(self.source.validate(source_key));
        problems.extend(self.trigger.supervisor.validate("trigger"));
        let of_merger = self.trigger.merger.validate("trigger").into_iter();
        // The words are the packet's, of which the source speaks.
        problems.extend(of_merger.filter(|problem| !problem.path.ends_with("words_max")));
        let is_wrong = |key: &str| findings.has_problem_at(key);
        problems.extend(builder_problems(&self.builder, "builder", is_wrong));
        problems.extend(self.store.limits.validate());
        problems.extend(self.store.files.validate());
        match &self.filter.filter {
            FilterConfig::AcceptAll | FilterConfig::User(_) => {}
            FilterConfig::MassWindow(window) => problems.extend(window.validate("filter")),
            FilterConfig::Menu(menu) => problems.extend(menu.validate("filter")),
            FilterConfig::Python(python) => problems.extend(python.validate("filter")),
        }
        let tables = self.link_tables.iter();
        problems.extend(tables.clone().flat_map(LinkTable::validate_transport));
        problems.extend(tables.flat_map(|table| table.link.validate(&table.path)));
        problems
    }

    /// The chain of the parts, without its workers.
    fn into_chain(self, hosts: &HostTable, findings: &Findings) -> Option<ChainConfig> {
        let menu = Menu::new_checked(self.trigger.menu, "trigger")
            .or_else(|_| Menu::new_checked(MenuConfig::default(), "trigger"));
        let spill = place_spill(self.timing, &self.data_links, findings);
        let packets = self.store.trigger_packets.then(|| PacketLogConfig {
            path: PathBuf::from(PACKET_FILE),
            waits: self.source.triggers.mode == OfferMode::Lossless,
            full_wait: self.store.files.full_wait,
        });
        Some(ChainConfig {
            run: RunNumber(0),
            source: self.source,
            recorded: None,
            front_ends: None,
            // Without one there is a problem already; the others are to be found all the same.
            trigger_link: self.trigger_link.unwrap_or_default(),
            data_links: self.data_links,
            trigger_nodes: self.trigger.nodes,
            merger: self.trigger.merger,
            menu: menu.ok()?,
            supervisor: self.trigger.supervisor,
            builder: self.builder,
            event_manager_apart: hosts.are_apart(FRONT_END, EVENT_MANAGER),
            readout_apart: hosts.readout_apart(),
            transport: self.transport,
            filter_transport: self.filter.transport,
            filter: self.filter.filter,
            first_step: self.filter.first_step,
            store: self.store.limits,
            files: self.store.files,
            packets,
            workers: Vec::new(),
            faults: Vec::new(),
            spill,
        })
    }
}

/// The key that says how many filter units there may be.
pub(super) fn filters_key(policy: &LossPolicy) -> &'static str {
    match policy.filters_at_start {
        Some(_) => "filter.units_max",
        None => "filter.units",
    }
}

/// Refuses that another takes the place of a readout unit whose links cannot begin again.
fn check_readout_return(chain: &ChainConfig, policy: &LossPolicy, findings: &Findings) {
    let is_file = |link: &DataLinkConfig| matches!(link.transport, LinkTransport::File { .. });
    if policy.readout == OnLoss::Restart && chain.data_links.iter().any(is_file) {
        findings.report(Problem::new(
            LINK_KIND,
            "builder.on_readout_loss",
            "\"restart\" with links of `kind = \"file\"`",
            "\"stop\" or \"continue\" where links play files",
            "write `on_readout_loss = \"stop\"`: a file is played once, to the unit that was there",
        ));
    }
}

/// Refuses what would say a second time when triggers come and what is in them, where that is said by
/// front-ends.
fn check_front_ends(chain: &ChainConfig, overrides: &Overrides, source: &str, findings: &Findings) {
    let Some(front_ends) = &chain.front_ends else {
        return;
    };
    for problem in front_ends.events.validate(source) {
        findings.report(problem);
    }
    let is_file = |link: &DataLinkConfig| matches!(link.transport, LinkTransport::File { .. });
    let also = [
        (
            overrides.rate.is_some(),
            "`--rate`",
            "leave the option out: a trigger comes when each front-end has sent its part",
        ),
        (
            overrides
                .events
                .as_ref()
                .is_some_and(|path| path.as_os_str() != ""),
            "`--events`",
            "leave the option out, or write `kind = \"recorded\"` to play recorded events",
        ),
        (
            chain.spill.is_some(),
            "a `[timing]` table",
            "leave the table out: a gate and triggers of a spill are for our own sources so far",
        ),
        (
            chain.data_links.iter().any(is_file),
            "links of `kind = \"file\"`",
            "write links of another kind: those of files play what was recorded",
        ),
    ];
    let also = also.into_iter().filter(|(is_there, ..)| *is_there);
    for (_, what, help) in also {
        findings.report(Problem::new(
            FRONT_ENDS,
            format!("{source}.kind"),
            format!("\"external\" with {what}"),
            "\"external\" alone: front-ends say when triggers come and what is in them",
            help,
        ));
    }
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
    let has_duration = run.has("duration");
    let mut duration = source.triggers.duration.unwrap_or_default();
    run.quantity("duration", &mut duration);
    source.triggers.duration = Some(duration);
    if let Some(triggers) = run.integer("triggers", 1..=u64::MAX) {
        source.triggers.triggers_max = Some(triggers);
        // A number of triggers is the end of the run, unless a duration is given as well.
        source.triggers.duration = Some(duration).filter(|_| has_duration);
    }
    if let Some(seed) = run.integer("seed", 0..=u64::MAX) {
        source.seed = seed;
    }
    if let Some(path) = run.plain_text("directory") {
        directory = PathBuf::from(path);
        if directory.as_os_str().is_empty() {
            run.report(Problem::new(
                NAMED_FILE,
                "run.directory",
                "\"\"",
                "the path of a directory",
                "leave the key out for \"runs\", or write \".\" for where the program is started",
            ));
        }
    }
    run.finish();
    directory
}

/// Options of the command line over the values of the file.
fn apply(overrides: &Overrides, source: &mut SourceConfig, trigger: &mut TriggerTable) {
    let triggers = &mut source.triggers;
    source.seed = overrides.seed.unwrap_or(source.seed);
    triggers.starts_paused = overrides.paused;
    if let Some(rate) = overrides.rate {
        triggers.arrival.rate = rate;
    }
    if let Some(count) = overrides.triggers {
        triggers.triggers_max = Some(count);
        // As in the file, it is the end of the run unless a duration is asked for as well.
        triggers.duration = overrides.duration;
    } else if overrides.duration.is_some() {
        triggers.duration = overrides.duration;
    }
    if overrides.lossless {
        triggers.mode = OfferMode::Lossless;
        // A trigger given up because the machine stood still would make it another run.
        trigger.supervisor.decision_timeout = SupervisorConfig::TIMEOUT_MAX;
        trigger.merger.timeout = MergerConfig::TIMEOUT_MAX;
        if overrides.rate.is_none() {
            triggers.arrival.kind = ArrivalKind::Unpaced;
        }
    }
}

/// The pages of a run: those that a link knows, in whole cache lines.
const PAGES_ALLOWED: &str = "256 B to 4194240 B, a multiple of 64 B";
/// What the builder calls the links of the readout units.
const READOUT_UNITS: &str = "builder.readout_units";

/// What compares other keys with the longest fragment of the source.
const OF_LONGEST: [ProblemCode; 2] = [FRAGMENT_LIMIT, EVENT_LIMIT];

/// The keys that a person wrote, where the cores name their own fields.
struct WrittenKeys {
    source: String,
    trigger_link: String,
    data_links: Vec<String>,
    /// Whether each table of links says where they go.
    are_links_placed: bool,
    /// The readout unit of each data link.
    readout_units: Vec<u16>,
    trigger_paths: Vec<String>,
    /// Keys of the source whose values are those of options.
    options: Vec<&'static str>,
}

/// Whether a problem may be there only because another key, with which its value was compared, is wrong.
fn follows(problem: &Problem, findings: &Findings) -> bool {
    let related = problem.related.as_ref();
    related.is_some_and(|(path, _)| findings.has_problem_at(path))
}

/// The index and the rest of `path`, if it is an element of the list `list`.
fn element<'p>(path: &'p str, list: &str) -> Option<(usize, &'p str)> {
    let (index, rest) = path
        .strip_prefix(list)?
        .strip_prefix('[')?
        .split_once(']')?;
    Some((index.parse().ok()?, rest))
}

impl WrittenKeys {
    /// Reports what the cores found, on the written keys and without what has been said.
    fn report(&self, findings: &Findings, of_parts: Vec<Problem>, between_parts: Vec<Problem>) {
        let links_misplaced = self.are_links_misplaced(findings);
        // One that is there and refused is compared all the same.
        let longest = format!("{}.fragment.bytes_max", self.source);
        let is_longest_unread = findings.has_problem_at(&longest);
        let known = self.known_roles(findings);
        let roles_known = known.ids;
        let steps_misnamed = (of_parts.iter())
            .any(|problem| problem.code == FIRST_STEP && problem.path.ends_with(']'));
        for problem in of_parts {
            // What the cores say about misplaced links has been said where the links are written,
            // and that there is none is said once. How many units a list has is not counted while
            // it names one wrongly.
            // Too many of those that are known are too many, whatever the others are.
            let is_count = problem.code == TOO_MANY_SOURCES;
            let said = (links_misplaced && self.is_about_all_links(&problem) && !is_count)
                || (self.data_links.is_empty() && problem.path.starts_with(READOUT_UNITS))
                || (links_misplaced && problem.code == FIRST_STEP)
                || (steps_misnamed && problem.code == FIRST_STEP && !problem.path.ends_with(']'))
                || (!roles_known && [SUBFARMS, WRITERS].contains(&problem.code));
            let problem = self.place(problem);
            if !said && !follows(&problem, findings) {
                findings.report(problem);
            }
        }
        // A value that is wrong by itself is not compared with others.
        let placed = between_parts.into_iter().map(|problem| self.place(problem));
        let is_said = |problem: &Problem| {
            findings.has_problem_at(&problem.path)
                || follows(problem, findings)
                || (!roles_known && [ROLE_PLACEMENT, SHARED_PAGES].contains(&problem.code))
                || (!known.transports && problem.code == SHARED_PAGES)
                || (is_longest_unread && OF_LONGEST.contains(&problem.code))
        };
        let new: Vec<Problem> = placed.filter(|problem| !is_said(problem)).collect();
        new.into_iter().for_each(|problem| findings.report(problem));
    }

    /// Whether links are missing from those that are known, or are too many.
    fn are_links_misplaced(&self, findings: &Findings) -> bool {
        !self.are_links_placed || findings.has_any(&[LINK_TARGET, SOURCE_ID_TWICE, UNIT_GAP])
    }

    /// What is known of the roles in spite of the problems.
    fn known_roles(&self, findings: &Findings) -> KnownRoles {
        let is_wrong = |key: &str| findings.has_problem_at(key);
        let are_numbers_wrong = ROLE_NUMBERS.iter().any(|key| is_wrong(key));
        let mut links = self.data_links.iter();
        KnownRoles {
            ids: self.are_links_placed && !are_numbers_wrong && !is_wrong("filter.subfarms"),
            transports: !is_wrong("builder.transport")
                && !is_wrong("filter.transport")
                && !links.any(|link| is_wrong(&format!("{link}.kind"))),
        }
    }

    /// Whether a core found it in the set of all links, not in one of them.
    fn is_about_all_links(&self, problem: &Problem) -> bool {
        let sources = format!("{}.data_links", self.source);
        problem.path.starts_with(&sources) || problem.path.starts_with(READOUT_UNITS)
    }

    /// The number of links in the table that has most of a readout unit's, or of all: where there are
    /// too many of them, there are fewest to be changed.
    fn count_of_most(&self, unit: Option<usize>) -> Option<String> {
        let mut links = BTreeMap::<&String, usize>::new();
        for (key, of) in self.data_links.iter().zip(&self.readout_units) {
            if unit.is_none_or(|unit| unit == usize::from(*of)) {
                *links.entry(key).or_default() += 1;
            }
        }
        let (key, _) = links.into_iter().max_by_key(|(_, count)| *count)?;
        Some(format!("{key}.count"))
    }

    /// The problem on the written keys.
    fn place(&self, mut problem: Problem) -> Problem {
        let is_all = problem.path == READOUT_UNITS && problem.code == TOO_MANY_SOURCES;
        let all = is_all.then(|| self.count_of_most(None)).flatten();
        problem.path = all.unwrap_or_else(|| self.written(&problem.path));
        if problem.code == PAGE_SIZE {
            problem.allowed = PAGES_ALLOWED.to_owned();
        }
        if let Some((path, _)) = &mut problem.related {
            *path = self.written(path);
        }
        problem
    }

    fn written(&self, path: &str) -> String {
        let data_links = format!("{}.data_links", self.source);
        if let Some((index, _)) = element(path, &data_links)
            && let Some(key) = self.data_links.get(index)
        {
            return format!("{key}.source_id");
        }
        if let Some((unit, _)) = element(path, READOUT_UNITS)
            && let Some(key) = self.count_of_most(Some(unit))
        {
            return key;
        }
        if let Some((index, rest)) = element(path, "trigger.path")
            && let Some(key) = self.trigger_paths.get(index)
        {
            return format!("{key}{rest}");
        }
        if path == data_links || path.starts_with(READOUT_UNITS) {
            return "link".to_owned();
        }
        for key in &self.options {
            if path == format!("{}.{key}", self.source) {
                return format!("--{key}");
            }
        }
        for key in ["duration", "triggers"] {
            if path == format!("{}.{key}", self.source) {
                return format!("run.{key}");
            }
        }
        if path == format!("{}.packet_words_max", self.source) {
            return "trigger.packet_words_max".to_owned();
        }
        if path == "trigger.timeout" {
            return "trigger.merge_timeout".to_owned();
        }
        path.replace(".page_words", ".page")
            .replace(".data_words_max", ".datagram")
            .replace(".buffer_bytes", ".socket_buffer")
            .replace(".fragment_words_max", ".fragment_max")
            .replace("builder.filter_units", "filter.units")
            .replace("builder.filter_in_flight", "filter.in_flight")
            .replace("builder.subfarms", "filter.subfarms")
            .replace("builder.writers", "store.writers")
    }
}

#[cfg(test)]
mod tests;
