//! `livetime run CONFIG`: a whole chain on this machine, from emulated front-ends to the report.
//!
//! Starts the chain, watches it until its source ends or somebody stops it, and closes the books:
//! run file, summary, report. The first Ctrl-C ends the run in order, the second at once.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use livetime_client::RunFolder;
use livetime_node::chain_plan::ChainPlan;
use livetime_node::machine_memory::{MemoryShort, check_memory};
use livetime_node::packet_log::{PACKET_FILE, packet_files_of};
#[cfg(not(feature = "cluster"))]
use livetime_node::process::RoleHosts;
use livetime_node::process::process_group::workers_of_processes;
use livetime_node::process::{Launcher, LossPolicy, ProcessFault};
use livetime_node::{
    Chain, ChainConfig, ChainOutcome, FilterConfig, LinkFault, RunFiles, stored_latency,
};
use livetime_shm::with_limit;
use livetime_store::{
    Condition, Histogram, NOTES_MAX, NoteError, RunBegin, RunEnd, RunNote, RunSummary,
};
use livetime_wire::{ByteSize, DurationNs, RateHz, RunNs, TaiNs};
use signal_hook::iterator::Signals;

use crate::command_words::shell_words;
use crate::config::{self, HostTable, Loaded, Overrides, RunConfig, RunFault};
use crate::console::readers::Readers;
use crate::console::{say, with_remedy};
use crate::end_at_once;
use crate::ending_signal::is_hang_up;
use crate::exit;
use crate::filter_of_run;
use crate::option_values::whole_number;
use crate::output_place;
use crate::run_control::{RunControl, SOCKET};
use crate::run_directory::RunDirectory;
use crate::run_faults::RunFate;
use crate::run_histograms::HistogramFile;
#[cfg(feature = "cluster")]
use crate::run_hosts::RunHosts;
use crate::run_live::LiveDisplay;
use crate::run_rates::RunRates;
use crate::run_summary::{self, RunFacts};
use crate::run_watch::{Ending, RunWatch};
use crate::verb::report::{NoPage, write_page};
use crate::verb::role;
use crate::writer_places;

/// The configuration in a run directory, with the options over it.
const CONFIG: &str = "config.toml";

/// A drain without any progress for this time, and that of the configured timeouts, is given up.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);

/// After this time it is said that the run file is not closed yet.
const CLOSING_SAID_AFTER: Duration = Duration::from_secs(1);

/// What is run: a configuration and the options over it, the same for every process of a run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SourceOptions {
    /// Configuration file
    pub(crate) config: PathBuf,
    /// Replay recorded events (CSV) instead of the configured source
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Seed of the generator
    #[arg(long, value_parser = whole_number)]
    seed: Option<u64>,
    /// End after this time of data taking, such as 10s
    #[arg(long, value_name = "TIME", value_parser = config::parse_quantity::<DurationNs>)]
    duration: Option<DurationNs>,
    /// End after this number of accepted triggers
    #[arg(long, value_name = "N", value_parser = whole_number)]
    triggers: Option<u64>,
    /// Wait for a free Level-2 buffer instead of refusing: equal seeds give equal runs
    #[arg(long)]
    lossless: bool,
    /// Begin with a pause: no trigger is taken until `livetime steer DIR resume`
    #[arg(long)]
    paused: bool,
    /// Rate of the triggers, such as 10kHz
    #[arg(long, value_parser = config::parse_quantity::<RateHz>)]
    rate: Option<RateHz>,
    /// Let something fail, such as link-down:3@4s+1s (data link 3 down at 4 s for 1 s); with
    /// --processes also kill:bu1@5s, stop:fu0@3s+2s, kill:evm@loss-of:bu1 (when it is to hear of that),
    /// and crash:1234 or hang:1234 (what event 1234 does to its filter unit)
    #[arg(long, value_name = "FAULT", value_parser = config::parse_fault)]
    pub(crate) fault: Vec<RunFault>,
}

impl SourceOptions {
    /// The values that go over those of the file.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            seed: self.seed,
            duration: self.duration,
            triggers: self.triggers,
            lossless: self.lossless,
            rate: self.rate,
            events: self.events.clone(),
            paused: self.paused,
            processes: false,
        }
    }

    /// Configuration and options as arguments that give the same values again.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![self.config.clone().into_os_string()];
        if let Some(path) = &self.events {
            let mut events = OsString::from("--events=");
            events.push(path);
            arguments.push(events);
        }
        arguments.extend(self.plain_options().into_iter().map(OsString::from));
        arguments
    }

    /// The options as texts that give the same values again; names of files must be texts for that.
    pub(crate) fn options(&self) -> Vec<String> {
        let events = self.events.iter();
        let events = events.map(|path| format!("--events={}", path.display()));
        events.chain(self.plain_options()).collect()
    }

    /// The options that are no paths.
    fn plain_options(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            arguments.extend(value.map(|value| format!("--{name}={value}")));
        };
        add("seed", self.seed.map(|seed| seed.to_string()));
        add(
            "duration",
            self.duration.map(|time| format!("{}ns", time.0)),
        );
        add("triggers", self.triggers.map(|count| count.to_string()));
        add("rate", self.rate.map(|rate| format!("{}Hz", rate.0)));
        for fault in &self.fault {
            add("fault", Some(fault.to_text()));
        }
        if self.lossless {
            arguments.push("--lossless".to_owned());
        }
        if self.paused {
            arguments.push("--paused".to_owned());
        }
        arguments
    }
}

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    source: SourceOptions,
    /// Note something of the run, kept in its summary, report and file; may be given several times
    #[arg(long, value_name = "TEXT", value_parser = note_at_start)]
    note: Vec<RunNote>,
    /// Put the run's files into this directory, which must not hold a run
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run each role in a process of its own, as `processes = true` under `[workers]` does
    #[arg(long)]
    processes: bool,
    /// Print one JSON document (livetime.run/1) on standard output
    #[arg(long)]
    json: bool,
}

fn note_at_start(text: &str) -> Result<RunNote, NoteError> {
    RunNote::new(RunNs(0), text)
}

/// Runs the chain.
pub(crate) fn run(options: &Options) -> ExitCode {
    let source = &options.source;
    if options.note.len() > NOTES_MAX {
        say(format_args!(
            "error: `--note` is given {} times; a run has at most {NOTES_MAX} notes",
            options.note.len()
        ));
        return exit::usage();
    }
    let overrides = Overrides {
        processes: options.processes,
        ..source.overrides()
    };
    let loaded = match config::load_with_files(&source.config, &overrides) {
        Ok((loaded, notes)) => {
            notes
                .iter()
                .for_each(|note| say(format_args!("warning: {note}")));
            loaded
        }
        Err(problems) => {
            say(problems.trim_end());
            return exit::PROBLEM;
        }
    };
    // Before anything can be lost or left behind: from here on signals are events, not deaths.
    let mut readers = match Readers::begin() {
        Ok(readers) => readers,
        Err(error) => {
            say(format_args!("error: {}", NotWatched(error)));
            return exit::PROBLEM;
        }
    };
    let code = match take_data(options, loaded, &mut readers) {
        Ok(good) if good => ExitCode::SUCCESS,
        Ok(_) => exit::PROBLEM,
        Err(error) => {
            match error.downcast_ref::<NotBegun>() {
                Some(NotBegun(why)) => say(why.trim_end()),
                None => say(format_args!("error: {}", with_remedy(error.as_ref()))),
            }
            exit::PROBLEM
        }
    };
    readers.flush();
    code
}

/// Signals and talk need descriptors and a thread.
#[derive(Debug, thiserror::Error)]
#[error("the run cannot be watched: {}", with_limit(.0))]
struct NotWatched(std::io::Error);

/// Why a run has not begun, in words that need none around them: rendered problems, for instance.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotBegun(String);

/// The whole run; `true` when everything is accounted for and nothing failed.
fn take_data(
    options: &Options,
    loaded: Loaded,
    readers: &mut Readers,
) -> Result<bool, Box<dyn std::error::Error>> {
    let Loaded { text, config } = loaded;
    let has_hosts = !config.hosts.hosts.is_empty();
    let processes = options.processes || config.processes || has_hosts;
    let faults = config::sort_faults(&options.source.fault, &config.chain, processes)?;
    look_over(&config, processes)?;
    // The hosts end when this does.
    let signals = &mut readers.signals;
    let start = || hosts_of(&options.source, &text, &config.hosts, signals);
    let hosts = has_hosts.then(start).transpose()?;
    let end_signals = end_at_once::signals().map_err(NotWatched)?;
    let directory = RunDirectory::create(&config.directory, options.out.as_deref())?;
    let RunConfig {
        mut chain, on_loss, ..
    } = config;
    place(&mut chain, &directory, faults.links, processes);
    let facts = RunFacts::new(&text, chain.source.seed, chain.run);
    let begin = facts.begin_record(RunBegin::new(chain.run), &text, &chain.menu);
    align_spills(&mut chain, &begin);
    let files = create_files(&directory, &mut chain, &facts, &begin, &text);
    let files = files.inspect_err(|_| directory.abandon())?;
    let of_run = (&directory, &facts, &chain);
    let launch = || launcher_of(&options.source, &text, of_run, hosts.as_ref());
    let launcher = processes.then(launch);
    let patience = drain_patience(&chain, processes.then_some(on_loss.time_limit));
    let started = start_chain(&chain, files, launcher, on_loss, faults.roles);
    let mut running = started.inspect_err(|_| directory.abandon())?;
    let control = control_of(&directory, running.is_paused()).map(Arc::new);
    let to_orders = control.as_ref().map(Arc::downgrade).unwrap_or_default();
    running.heed_end(end_at_once::ask(end_signals, to_orders));
    running.plan_stream_faults(faults.streams);
    let mut display = LiveDisplay::new(&chain);
    let mut histograms = HistogramFile::of(directory.path());
    let mut notes = options.note.clone();
    let watch = RunWatch {
        running: &mut running,
        signals: &mut readers.signals,
        display: &mut display,
        histograms: &mut histograms,
        control: control.as_deref(),
        notes: &mut notes,
        patience,
    };
    let (ending, rates) = watch.until_end();
    let to_orders = control.as_ref().map(Arc::downgrade).unwrap_or_default();
    if let Ok(ask) = end_at_once::ask_once_more(to_orders) {
        running.heed_end(ask);
    }
    if ending.is_by_operator() {
        readers.end_is_wanted();
    }
    let ended = EndedRun {
        facts: &facts,
        chain: &chain,
        hosts: &config.hosts,
        directory: &directory,
        ending,
        rates,
        notes,
        patience,
    };
    let outcome = running.finish();
    drop(control);
    Ok(ended.close_books(options, outcome, histograms, readers))
}

/// A run that has ended, and whose books are open.
struct EndedRun<'a> {
    facts: &'a RunFacts,
    chain: &'a ChainConfig,
    hosts: &'a HostTable,
    directory: &'a RunDirectory,
    ending: Ending,
    rates: RunRates,
    notes: Vec<RunNote>,
    /// For how long its drain was allowed to stand still.
    patience: Duration,
}

impl EndedRun<'_> {
    /// Closes run files, writes summary and report, and says what the run did; `true` for a good run.
    fn close_books(
        self,
        options: &Options,
        mut outcome: ChainOutcome,
        histograms: HistogramFile,
        readers: &mut Readers,
    ) -> bool {
        let (chain, ending, faults) = (self.chain, self.ending, &options.source.fault);
        let missed = missed_faults(faults, &outcome, ending);
        let mut condition = condition_of(ending, &outcome, !faults.is_empty());
        let end = end_record(&outcome, condition, ending, &self.notes);
        let closing = close_files(&mut outcome, chain.builder.writers, end, readers);
        if !closing.is_empty() {
            // A file has no end-of-run record.
            condition |= Condition::INTERRUPTED;
        }
        drop(histograms);
        let bound = chain.supervisor.deadline;
        let (facts, rates) = (self.facts, &self.rates);
        let mut summary = run_summary::summarise(facts, chain, &outcome, rates, bound, condition);
        summary.notes = self.notes;
        writer_places::note(&mut summary, self.hosts, self.directory, closing.is_empty());
        let mut errors: Vec<String> = outcome.failures.clone();
        errors.extend(closing);
        // Who has waited for room in vain finds none.
        let patience = match errors.is_empty() && !ending.is_at_once() {
            true => Duration::from_nanos(chain.files.full_wait.0),
            false => Duration::ZERO,
        };
        errors.extend(write_files(self.directory, &mut summary, readers, patience));
        // A disk that takes no more files is no reason to keep the account of the run back.
        let printed = print_summary(options.json, &summary, &outcome, self.directory, readers);
        errors.extend(printed.err().map(|error| error.to_string()));
        warn_of_ends(&outcome, &missed);
        errors.extend(ending.trouble(self.patience));
        conclude(&summary, &errors)
    }
}

/// Has a chain be the run of a directory, with these faults, in processes if it is to be.
fn place(
    chain: &mut ChainConfig,
    directory: &RunDirectory,
    faults: Vec<LinkFault>,
    processes: bool,
) {
    (chain.run, chain.faults) = (directory.number(), faults);
    if processes {
        chain.workers = workers_of_processes(chain, livetime_shm::allowed_cpus().len());
        // The process that plays them reads them.
        chain.recorded = None;
    }
    if let Some(packets) = &mut chain.packets {
        packets.path = directory.file(PACKET_FILE);
    }
}

/// What role processes are launched with, here or on hosts. Here they read the configuration in the run
/// directory, on hosts what these were told: the file that was named may be another when one is started
/// again.
fn launcher_of(
    source: &SourceOptions,
    text: &str,
    (directory, facts, chain): (&RunDirectory, &RunFacts, &ChainConfig),
    hosts: Option<&RunHosts>,
) -> std::io::Result<Launcher> {
    let filter = filter_of_run::kept_file(&chain.filter);
    if let Some(hosts) = hosts {
        let mut launcher = role::launcher(text, source, filter)?;
        launcher.hosts = Some(hosts.role_hosts());
        return Ok(launcher);
    }
    let mut source = source.clone();
    source.config = directory.file(CONFIG);
    role::launcher(&facts.config_with_options(text), &source, filter)
}

/// Starts the roles, in processes if there is something to launch these with.
fn start_chain(
    chain: &ChainConfig,
    files: RunFiles,
    launcher: Option<std::io::Result<Launcher>>,
    on_loss: LossPolicy,
    faults: Vec<ProcessFault>,
) -> Result<Chain, Box<dyn std::error::Error>> {
    Ok(match launcher.transpose()? {
        Some(launcher) => Chain::start_processes(chain, files, launcher, on_loss, faults)?,
        None => Chain::start(chain, files)?,
    })
}

/// Says of each fault that did not strike why it did not.
fn missed_faults(faults: &[RunFault], outcome: &ChainOutcome, ending: Ending) -> Vec<String> {
    let is_settled = matches!(
        ending,
        Ending::SourceFinished | Ending::Interrupted | Ending::WriterFailed
    );
    let fate = RunFate::new(outcome, is_settled);
    let missed = faults.iter().filter_map(|fault| {
        let why = fate.missed(fault)?;
        Some(format!(
            "warning: fault {} did not strike: {why}",
            fault.to_text()
        ))
    });
    missed.collect()
}

/// Says which faults did not strike, which roles died at the end of the run, and of which nobody knows
/// whether they have ended.
fn warn_of_ends(outcome: &ChainOutcome, missed: &[String]) {
    missed.iter().for_each(say);
    for death in &outcome.deaths_at_end {
        say(format_args!("warning: {death}"));
    }
    if !outcome.last_heard.is_empty() {
        say(format_args!(
            "warning: nobody has seen {} end: their hosts are not heard any more, and what was counted is \
             what was heard last",
            outcome.last_heard.join(", ")
        ));
    }
}

/// Prints what a run did.
fn print_summary(
    as_json: bool,
    summary: &RunSummary,
    outcome: &ChainOutcome,
    directory: &RunDirectory,
    readers: &mut Readers,
) -> std::io::Result<()> {
    readers.print(match as_json {
        true => serde_json::to_string(summary)? + "\n",
        false => run_summary::to_text(summary, outcome, directory.path()),
    })
}

/// Refuses what cannot be run here or like this, before there is a directory, and says what is to be known
/// of the rest.
fn look_over(config: &RunConfig, processes: bool) -> Result<(), Box<dyn std::error::Error>> {
    check_joining(config, processes)?;
    // Each host looks at its own memory.
    if config.hosts.hosts.is_empty() {
        check_room(&config.chain)?;
    }
    let notes = config::run_notes(config, processes).into_iter();
    notes.for_each(|note| say(format_args!("note: {note}")));
    Ok(())
}

/// Refuses filter units that are to join a run of threads.
fn check_joining(config: &RunConfig, processes: bool) -> Result<(), &'static str> {
    if config.on_loss.filters_at_start.is_some() && !processes {
        return Err(
            "`[filter] units_max` is above `units`, and filter units that are threads \
             cannot join a run; start it with `--processes`, or leave `units_max` out",
        );
    }
    Ok(())
}

/// Refuses a run that takes more memory than there is here; says of one that takes much that it does.
fn check_room(chain: &ChainConfig) -> Result<(), MemoryShort> {
    let plan = ChainPlan::new(chain);
    check_memory(&plan, |_| true)?;
    let note = config::making_note(ByteSize(plan.memory_bytes(|_| true)));
    note.iter().for_each(say);
    Ok(())
}

/// What takes orders for a run; one that takes none says so and goes on. One that begins with a pause
/// says how it is ended.
fn control_of(directory: &RunDirectory, is_paused: bool) -> Option<RunControl> {
    if is_paused {
        let folder = directory.path().display();
        say(format_args!(
            "paused: triggers are held back until `livetime steer {folder} resume`"
        ));
    }
    let control = RunControl::open(directory.path());
    if let Err(error) = &control {
        let socket = directory.file(SOCKET).display().to_string();
        say(format_args!(
            "warning: this run takes no orders: cannot make {socket}: {}",
            with_limit(error)
        ));
    }
    control.ok()
}

/// Writes down what is about to run and creates its files; says where.
fn create_files(
    directory: &RunDirectory,
    chain: &mut ChainConfig,
    facts: &RunFacts,
    begin: &RunBegin,
    text: &str,
) -> Result<RunFiles, Box<dyn std::error::Error>> {
    let config = directory.file(CONFIG);
    output_place::write(&config, facts.config_with_options(text))?;
    let writers = chain.builder.writers;
    let files = RunFiles::create_in(directory.path(), writers, begin, chain.store, &chain.files)?;
    say(format_args!(
        "run {} · seed {} · configuration {} · livetime {} · {}",
        chain.run,
        facts.seed,
        facts.config_hash,
        facts.version,
        directory.path().display()
    ));
    filter_of_run::keep(&mut chain.filter, directory.path())?;
    Ok(files)
}

/// Has the time of a run whose spills are aligned be 0 at the TAI that its file says.
fn align_spills(chain: &mut ChainConfig, begin: &RunBegin) {
    let Some(spill) = &mut chain.spill else {
        return;
    };
    let Some(align) = spill.spill.align else {
        return;
    };
    spill.origin = TaiNs(begin.started_tai_ns);
    let first = spill.spill.first_turn(spill.origin);
    say(format_args!(
        "spills are aligned to {align} of TAI: the first turn begins at {first}, {} from the start",
        DurationNs(first.0 - spill.origin.0)
    ));
}

/// Starts the hosts of a run, unless a signal comes before they are there.
#[cfg(feature = "cluster")]
fn hosts_of(
    source: &SourceOptions,
    text: &str,
    hosts: &HostTable,
    signals: &mut Signals,
) -> Result<RunHosts, Box<dyn std::error::Error>> {
    use crate::run_hosts::HostsError;
    say(format_args!("waiting for {} hosts", hosts.hosts.len()));
    let is_stopped = || signals.pending().next().is_some();
    RunHosts::start(hosts, text, &source.options(), is_stopped).map_err(|error| match error {
        HostsError::Problems(problems) => {
            NotBegun(config::render_later(&source.config, text, &problems)).into()
        }
        HostsError::Failed(reason) => reason.into(),
        HostsError::Stopped => {
            let why =
                "stopped while hosts were waited for: no run was begun, and nothing of it is left";
            NotBegun(why.to_owned()).into()
        }
    })
}

/// Without the feature there are none.
#[cfg(not(feature = "cluster"))]
fn hosts_of(
    _source: &SourceOptions,
    _text: &str,
    _hosts: &HostTable,
    _signals: &mut Signals,
) -> Result<RunHosts, Box<dyn std::error::Error>> {
    let reason = "this livetime was built for one host; `cargo build --release --package livetime \
                  --features cluster` gives one for configurations with `[[host]]`";
    Err(reason.into())
}

/// Hosts that this program was not built for.
#[cfg(not(feature = "cluster"))]
enum RunHosts {}

#[cfg(not(feature = "cluster"))]
impl RunHosts {
    fn role_hosts(&self) -> RoleHosts {
        match *self {}
    }
}

/// How long a drain may stand still: whatever the configuration waits for must have passed, and
/// `event_limit`, for which a filter unit may work on one event where it has a process that can be ended.
/// That of a filter in Python is for a batch, and work on one is no standstill.
fn drain_patience(chain: &ChainConfig, event_limit: Option<DurationNs>) -> Duration {
    let is_batched = matches!(chain.filter, FilterConfig::Python(_));
    let waits = [
        chain.builder.timeout,
        chain.supervisor.decision_timeout,
        chain.files.full_wait,
        event_limit.filter(|_| !is_batched).unwrap_or_default(),
    ];
    DRAIN_PATIENCE + waits.map(|wait| Duration::from_nanos(wait.0)).iter().sum()
}

/// Writes summary and report, and lists the run's files; returns what could not be written, and what the
/// files lack. A disk without room is waited for as long as `patience`. A signal ends that wait, and the
/// report, for which all events are read: it can be made later.
fn write_files(
    directory: &RunDirectory,
    summary: &mut RunSummary,
    readers: &mut Readers,
    patience: Duration,
) -> Vec<String> {
    let [summary_file, report] = ["summary.json", "report.html"].map(|name| directory.file(name));
    let mut is_stopped = stopped_by_signal(readers);
    let to_json =
        |summary: &RunSummary| serde_json::to_string_pretty(summary).unwrap_or_default() + "\n";
    // The report is no file of the run before it is there, whatever happens meanwhile.
    summary.files = files_of(directory, &[&summary_file]);
    let json = to_json(summary);
    if let Err(error) =
        output_place::write_when_room(&summary_file, json, patience, &mut is_stopped)
    {
        summary.files = files_of(directory, &[]);
        return vec![error];
    }
    let without_report = std::mem::take(&mut summary.files);
    summary.files = files_of(directory, &[&summary_file, &report]);
    let json = to_json(summary);
    let mut errors = Vec::new();
    match write_page(directory.path(), &json, &report, patience, &mut is_stopped) {
        Ok(shortage) => {
            errors.extend(shortage.and_then(|shortage| shortage.of_run()));
            match output_place::write_when_room(&summary_file, json, patience, &mut is_stopped) {
                Ok(()) => return errors,
                Err(error) => errors.push(error),
            }
        }
        Err(stopped @ NoPage::Stopped(_)) => say(format_args!("warning: {stopped}")),
        Err(NoPage::Failed(error)) => errors.push(error),
    }
    // What is printed and what is kept are the same.
    summary.files = without_report;
    errors
}

/// The files of a run that are there, and those that are `written`, in the order of the summary.
fn files_of(directory: &RunDirectory, written: &[&PathBuf]) -> Vec<String> {
    let events = RunFolder::paths(directory.path()).unwrap_or_default();
    let others = [filter_of_run::FILE, "summary.json", CONFIG, "report.html"];
    let files = (events.into_iter())
        .chain(packet_files_of(directory.path()))
        .chain(others.map(|name| directory.file(name)));
    files
        .filter(|file| written.contains(&file) || file.exists())
        .map(|file| file.display().to_string())
        .collect()
}

/// Whether a signal asks for the end of what is done when the run has ended. Those that came until now
/// asked for the end that has come.
fn stopped_by_signal(readers: &mut Readers) -> impl FnMut() -> bool {
    readers.signals.pending().for_each(drop);
    || {
        let mut signals = readers.signals.pending();
        let is_stopped = signals.any(|signal| !is_hang_up(signal));
        if is_stopped {
            readers.end_is_wanted();
        }
        is_stopped
    }
}

/// Says what went wrong, if anything did; `true` for a good run.
fn conclude(summary: &RunSummary, errors: &[String]) -> bool {
    let mut said: Vec<&String> = Vec::new();
    for error in errors.iter().chain(&summary.conservation_problems) {
        // A file that could not be written cannot be closed for the same reason.
        if !said.contains(&error) {
            say(format_args!("error: {error}"));
            said.push(error);
        }
    }
    let good = summary.conserved && errors.is_empty();
    if !good {
        let command = shell_words(&summary.command);
        say(format_args!("help: `{command}` reproduces the run"));
    }
    good
}

fn condition_of(ending: Ending, outcome: &ChainOutcome, faults: bool) -> Condition {
    let mut condition = match ending {
        Ending::SourceFinished => Condition::GOOD,
        Ending::Interrupted | Ending::WriterFailed => Condition::INTERRUPTED,
        Ending::Killed => Condition::INTERRUPTED | Condition::ABORTED,
        Ending::RoleLost { is_interrupted } | Ending::Stuck { is_interrupted } => {
            match is_interrupted {
                true => Condition::INTERRUPTED | Condition::ABORTED,
                false => Condition::ABORTED,
            }
        }
    };
    // Files that could not be written, and those that were left behind open.
    let mut writers = outcome.roles.iter();
    if writers.any(|(id, role)| id.starts_with("wr") && role.gauges.failed == 1)
        || outcome.files_left_open() > 0
    {
        condition |= Condition::INTERRUPTED;
    }
    let damaged = outcome.counts.events_incomplete + outcome.flagged_fragments().all;
    if faults || outcome.has_failed_filters() || damaged > 0 {
        condition |= Condition::DEGRADED;
    }
    // What a role did that nobody saw end is in no count.
    let is_all_seen = outcome.last_heard.is_empty();
    let is_whole = outcome.losses.total() == 0 && outcome.conservation_problems().is_empty();
    if !is_whole || !is_all_seen {
        condition |= Condition::INCOMPLETE;
    }
    condition
}

/// Closes the run files with their end-of-run records; returns what went wrong. A disk without room is
/// waited for, until a signal ends that.
fn close_files(
    outcome: &mut ChainOutcome,
    writers: u16,
    mut end: RunEnd,
    readers: &mut Readers,
) -> Vec<String> {
    let left_open = outcome.files_left_open();
    let files = std::mem::take(&mut outcome.run_files);
    let mut errors = Vec::new();
    if files.len() + left_open < usize::from(writers) {
        errors.push(match files.len() {
            0 => "the run file is gone with its writer".to_owned(),
            there => format!("only {there} of {writers} writers have left their run file"),
        });
    }
    let histograms = run_histograms(outcome);
    let (began, mut is_said) = (Instant::now(), false);
    let mut stopped = stopped_by_signal(readers);
    let mut is_stopped = || {
        if !is_said && began.elapsed() > CLOSING_SAID_AFTER {
            is_said = true;
            say(
                "\nwarning: the run file is not closed yet: its disk is slow or has no room; a signal ends \
                 the wait",
            );
        }
        stopped()
    };
    for (index, file) in files.into_values().enumerate() {
        // Those of the run are in one file.
        let histograms = if index == 0 { &histograms[..] } else { &[] };
        if let Err(error) = file.close(&end, histograms, &mut is_stopped) {
            errors.push(error.to_string());
            // Those after it know.
            end.condition |= Condition::INTERRUPTED;
        }
    }
    errors
}

fn end_record(
    outcome: &ChainOutcome,
    condition: Condition,
    ending: Ending,
    notes: &[RunNote],
) -> RunEnd {
    let reason = match ending {
        Ending::SourceFinished => "the source has ended",
        Ending::Interrupted => "stopped by the operator",
        Ending::Killed => "ended at once by the operator",
        Ending::WriterFailed => "the run file could not be written",
        Ending::RoleLost { .. } => "a role was lost",
        Ending::Stuck { .. } => "the chain did not drain",
    };
    let mut end = RunEnd::new(outcome.run, condition, reason, outcome.ended_at.0)
        .with_counts(&outcome.counts, &outcome.losses);
    (end.menu, end.menu_lacking) = (outcome.menu_counts(), outcome.menu_lacking());
    end.notes = notes.to_vec();
    end
}

/// The histograms that the run file gets.
fn run_histograms(outcome: &ChainOutcome) -> Vec<Histogram> {
    let mut histograms = vec![
        stored_latency(
            "decision_latency",
            "decision latency",
            &outcome.decision_latency,
        ),
        stored_latency("build_latency", "build latency", &outcome.build_latency),
        stored_latency(
            "hand_over_latency",
            "hand-over to a filter unit",
            &outcome.hand_over_latency,
        ),
    ];
    // A filter's histogram with the name of one of the run's own would hide it.
    let filled = outcome.filter_histograms.to_vec().into_iter();
    let own: Vec<String> = histograms.iter().map(|own| own.name().to_owned()).collect();
    histograms.extend(filled.filter(|filled| !own.iter().any(|own| own == filled.name())));
    histograms
}
