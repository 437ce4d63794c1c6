//! The summary of a run: the `livetime.run/1` document and its text for people.
//!
//! It puts together what the chain counted and what is known of the machine; the form of the
//! document is in `livetime_store::summary`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use livetime_builder::{ShapingConfig, ShapingPace};
use livetime_node::chain_plan::FRONT_END;
use livetime_node::machine_memory::memory_bytes;
use livetime_node::{BuilderTransport, ChainConfig, ChainOutcome, RateSample, latency_summary};
use livetime_shm::tai_offset::tai_minus_utc_ns;
use livetime_store::summary::{
    BarrierSummary, DatagramSummary, DeadTime, FilterDeath, FilterFailureSummary, Latencies,
    MachineSummary, RateSeries, RunIdentification, ShapingSummary, TransportSummary, WorkerSummary,
    WriterSummary,
};
use livetime_store::{
    Condition, FileName, FilterMenuSummary, LatencySummary, RunBegin, RunSummary, TwoStepSummary,
};
use livetime_trigger::Menu;
use livetime_wire::{
    ByteSize, ChainCounts, DurationNs, LossArea, LossCause, RateHz, RunNumber, UnitId, UnitKind,
};
use sha2::{Digest, Sha256};

use crate::command_words::{self, shell_words};
use crate::machine_check;
use crate::packet_account::PacketAccount;
use crate::run_rates::RunRates;
use crate::run_remarks::remarks;

/// Bound of the build latency whose excess is given in ppm.
pub(crate) const BUILD_BOUND: DurationNs = DurationNs(1_000_000);

/// What identifies a run.
pub(crate) struct RunFacts {
    pub(crate) run: RunNumber,
    pub(crate) seed: u64,
    pub(crate) config_hash: String,
    pub(crate) version: String,
    pub(crate) command: Vec<String>,
}

/// The first 16 hexadecimal digits of the SHA-256 of a configuration's text.
pub(crate) fn config_hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).fold(String::new(), |mut hash, byte| {
        let _ = write!(hash, "{byte:02x}");
        hash
    })
}

impl RunFacts {
    /// The facts of a run of the configuration `text`, started by this process.
    pub(crate) fn new(text: &str, seed: u64, run: RunNumber) -> Self {
        let config_hash = config_hash(text);
        let mut command = command_words::of_process();
        if let Some(program) = command.first_mut() {
            *program = "livetime".to_owned();
        }
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self {
            run,
            seed,
            config_hash,
            version,
            command,
        }
    }

    /// The configuration as it is kept with the run: the file, and the options over it.
    pub(crate) fn config_with_options(&self, text: &str) -> String {
        format!(
            "# run {} was started by: {}\n{text}",
            self.run,
            shell_words(&self.command)
        )
    }

    /// The begin-of-run record.
    pub(crate) fn begin_record(&self, mut begin: RunBegin, text: &str, menu: &Menu) -> RunBegin {
        let utc = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let utc_ns = utc.map_or(0, |since| since.as_nanos() as u64);
        begin.seed = self.seed;
        begin.config_hash = self.config_hash.clone();
        begin.version = self.version.clone();
        begin.started_tai_ns = utc_ns + tai_minus_utc_ns();
        begin.command = self.command.clone();
        begin.config = text.to_owned();
        let paths = menu.paths().iter();
        begin.paths = paths.map(|path| (path.name.clone(), path.bit)).collect();
        begin
    }
}

/// The document of a run.
pub(crate) fn summarise(
    facts: &RunFacts,
    chain: &ChainConfig,
    outcome: &ChainOutcome,
    rates: &RunRates,
    bound: DurationNs,
    condition: Condition,
) -> RunSummary {
    let duration_s = outcome.ended_at.0 as f64 * 1e-9;
    let run = RunIdentification {
        number: facts.run.0,
        seed: facts.seed,
        config_hash: facts.config_hash.clone(),
        version: facts.version.clone(),
        duration_s,
        condition,
    };
    let latency = Latencies {
        decision: latency_summary(&outcome.decision_latency, bound.0),
        build: latency_summary(&outcome.build_latency, BUILD_BOUND.0),
    };
    let mut summary = RunSummary::new(run, &outcome.counts, &outcome.losses, latency);
    summary.not_seen_to_end.clone_from(&outcome.last_heard);
    let built: u64 = (outcome.roles.iter())
        .filter(|(id, _)| id.starts_with("bu"))
        .map(|(_, role)| role.gauges.bytes)
        .sum();
    // Offers that the source made too late count, those outside the trigger gate or in a pause do not.
    // A front-end that died has left these in its gauges, and nothing else of its dead time.
    let outside = outcome.roles.iter();
    let outside = outside.map(|(_, role)| role.gauges.refused_outside).sum();
    let front_end = outcome.details.get(FRONT_END);
    let is_known = front_end.is_some_and(|counters| !counters.is_empty());
    if is_known {
        summary = summary.with_digest(outcome.digest);
    }
    summary.dead_time = DeadTime {
        refused_fraction: dead_fraction(&outcome.counts, outside),
        busy_fraction: is_known.then_some(outcome.dead_time.1),
    };
    summary.copies_per_byte = (outcome.bytes_stored > 0).then(|| outcome.copies_per_byte());
    summary.rates = Some(rate_series(rates));
    summary.workers = workers(chain, outcome);
    summary.machine = Some(machine());
    summary.command = command_words::without_out(&facts.command);
    summary.roles = outcome.details.clone();
    bound_taking(&mut summary);
    let seconds = taking_seconds(&summary);
    summary.throughput_bytes_per_s = built as f64 / seconds;
    summary.filter_failures = filter_failures(outcome);
    let unlike = outcome.filter_histograms.unlike();
    summary.histograms_not_summed = unlike.map(str::to_owned).collect();
    let records_packets = chain.packets.is_some();
    let account = records_packets.then(|| PacketAccount::of(&summary, chain.trigger_nodes));
    summary.packets_uncounted = account.and_then(|account| account.uncounted());
    summary.builder_transport = builder_transport(chain, outcome);
    summary.writers = writers(chain, outcome);
    let menu = FilterMenuSummary::of_counts(&outcome.menu_counts(), seconds);
    summary.filter_menu = menu.map(|menu| FilterMenuSummary {
        lacking: outcome.menu_lacking(),
        ..menu
    });
    if !chain.builder.first_step.is_empty() {
        let lost = outcome.losses.in_area(LossArea::Filter);
        add_two_step(&mut summary, &chain.builder.first_step, lost);
    }
    summary
}

/// Holds `taking_us` to the length of the run: a front-end of a run that is ended by force says it when it
/// has come to its own end, which may be later.
fn bound_taking(summary: &mut RunSummary) {
    let run_us = (summary.run.duration_s * 1e6) as u64;
    let front_end = summary.roles.get_mut(FRONT_END);
    if let Some(taking_us) = front_end.and_then(|counters| counters.get_mut("taking_us")) {
        *taking_us = (*taking_us).min(run_us);
    }
}

/// The time in which a run took triggers: that is what its mean rates are of, since what passes in the
/// drain came before it. Where nobody has said it, the time to the end of the drain.
pub(crate) fn taking_seconds(summary: &RunSummary) -> f64 {
    let said = front_end_counters(summary).and_then(|counters| counters.get("taking_us"));
    let said = said.filter(|us| **us > 0).map(|us| *us as f64 * 1e-6);
    said.unwrap_or(summary.run.duration_s).max(1e-9)
}

/// The further counters of the front-end; none where they died with it.
pub(crate) fn front_end_counters(summary: &RunSummary) -> Option<&BTreeMap<String, u64>> {
    let counters = summary.roles.get(FRONT_END);
    counters.filter(|counters| !counters.is_empty())
}

/// A latency of a distribution; there is none of nothing.
pub(crate) fn latency_of(latency: &LatencySummary, ns: u64) -> String {
    match latency.count {
        0 => "-".to_owned(),
        _ => DurationNs(ns).to_string(),
    }
}

/// A share; there is none of nothing.
pub(crate) fn share(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

/// A share in per cent, `-` where there is none.
pub(crate) fn percent(share: Option<f64>, digits: usize) -> String {
    figure(share, |share| format!("{:.digits$} %", share * 100.0))
}

/// A figure in words, `-` where nobody knows it.
fn figure(figure: Option<f64>, in_words: impl Fn(f64) -> String) -> String {
    figure.map_or_else(|| "-".to_owned(), in_words)
}

/// The share of the offers that were refused, without those that came when none was wanted.
fn dead_fraction(counts: &ChainCounts, outside: u64) -> Option<f64> {
    let [refused, offered] = [counts.refused, counts.offered];
    share(
        refused.saturating_sub(outside),
        offered.saturating_sub(outside),
    )
}

/// What carried the event builder's payload over a network, with what of it was in force.
fn builder_transport(chain: &ChainConfig, outcome: &ChainOutcome) -> Option<TransportSummary> {
    let congestion = outcome.congestion.clone();
    let kind = chain.transport.to_string();
    let shaping = chain.builder.shaping.as_ref();
    let shaping = shaping.map(|shaping| shaping_summary(shaping, outcome));
    match chain.transport {
        BuilderTransport::Shm => None,
        // On several hosts nobody here knows the congestion control in force.
        BuilderTransport::Tcp { .. } => Some(TransportSummary {
            kind,
            congestion,
            datagrams: None,
            shaping,
        }),
        BuilderTransport::Udp { .. } => Some(TransportSummary {
            kind,
            congestion: None,
            datagrams: Some(datagrams(outcome)),
            shaping,
        }),
    }
}

/// The counter of that name of each role that has it.
fn of_roles(outcome: &ChainOutcome, name: &str) -> impl Iterator<Item = u64> {
    let roles = outcome.details.values();
    roles.filter_map(move |role| role.get(name).copied())
}

/// How the readout units' traffic was shaped, and what the shapers did.
fn shaping_summary(shaping: &ShapingConfig, outcome: &ChainOutcome) -> ShapingSummary {
    let sum = |name: &str| of_roles(outcome, name).sum();
    ShapingSummary {
        kind: shaping.kind().to_owned(),
        pace: shaping.pace.to_string(),
        block_bytes: shaping.block_bytes.into(),
        step_ns: match shaping.pace {
            ShapingPace::BackPressure { .. } | ShapingPace::Barrier { .. } => None,
            ShapingPace::Clock { step } => Some(step.0),
        },
        blocks: sum("shaping_blocks"),
        payload_bytes: sum("shaping_block_bytes"),
        turns_empty: sum("shaping_turns_empty"),
        turns_missed: sum("shaping_turns_missed"),
        turns_refused: sum("shaping_turns_refused"),
        turns_overrun: sum("shaping_turns_overrun"),
        barrier: shaping.is_linear().then(|| BarrierSummary {
            phases: sum("shaping_phases"),
            throughs_repeated: sum("shaping_throughs_repeated"),
            left_out: sum("shaping_readout_units_left_out"),
        }),
    }
}

/// What became of the datagrams of all roles.
fn datagrams(outcome: &ChainOutcome) -> DatagramSummary {
    let sum = |name: &str| of_roles(outcome, name).sum();
    DatagramSummary {
        sent: sum("network_datagrams_sent"),
        lost: sum("network_datagrams_lost"),
        kernel_drops: sum("network_kernel_drops"),
        late: sum("network_datagrams_late"),
        repeated: sum("network_datagrams_repeated"),
        bad: sum("network_datagrams_bad"),
        receive_buffer_bytes: of_roles(outcome, "network_receive_buffer_bytes")
            .min()
            .unwrap_or(0),
    }
}

/// What two-step building did, and whether builder and filter units agree about it.
fn add_two_step(summary: &mut RunSummary, first_step: &[u16], lost_in_filter: u64) {
    let units = first_step.iter();
    let units: Vec<String> = units.map(|u| UnitId::readout(*u).to_string()).collect();
    let two_step = TwoStepSummary::of_roles(&summary.roles, &units);
    let problems = two_step.problems(&summary.roles, lost_in_filter);
    summary.conserved &= problems.is_empty();
    let texts = problems.iter().map(ToString::to_string);
    summary.conservation_problems.extend(texts);
    summary.two_step = Some(two_step);
}

fn filter_failures(outcome: &ChainOutcome) -> Vec<FilterFailureSummary> {
    let death = |(role, reason): &(String, String)| FilterDeath {
        role: role.clone(),
        reason: reason.clone(),
    };
    let failures = outcome.filter_failures.iter();
    failures
        .map(|failure| FilterFailureSummary {
            trigger: failure.trigger.0,
            deaths: failure.deaths.iter().map(death).collect(),
            traceback: failure.traceback.clone(),
        })
        .collect()
}

/// What each writer has stored; where, the caller knows.
fn writers(chain: &ChainConfig, outcome: &ChainOutcome) -> Vec<WriterSummary> {
    let stored = |role: &str| {
        // A writer that was lost has left its events to the next.
        let lives = outcome.roles.iter();
        let lives = lives.filter(|(id, _)| id.split('~').next() == Some(role));
        lives.map(|(_, counts)| counts.chain.events_stored).sum()
    };
    let summary = |writer: u16| {
        let role = format!("{}{writer}", UnitKind::Writer.prefix());
        let name = FileName {
            writer,
            ..FileName::default()
        };
        let mut lost = outcome.lost_groups.iter();
        let lost = lost.find(|group| group.writer == writer);
        WriterSummary {
            events_stored: stored(&role),
            lost: lost.is_some(),
            events_built_again: lost.map_or(0, |group| group.built_again),
            role,
            host: None,
            file: name.to_string(),
            elsewhere: false,
        }
    };
    (0..chain.builder.writers.max(1)).map(summary).collect()
}

fn rate_series(rates: &RunRates) -> RateSeries {
    let samples = rates.samples();
    let column = |get: fn(&RateSample) -> f64| samples.iter().map(get).collect::<Vec<f64>>();
    let series = BTreeMap::from([
        ("trigger_hz".to_owned(), column(|rate| rate.trigger_hz)),
        ("l2_accept_hz".to_owned(), column(|rate| rate.l2_accept_hz)),
        (
            "filter_accept_hz".to_owned(),
            column(|rate| rate.filter_accept_hz),
        ),
        (
            "built_bytes_per_s".to_owned(),
            column(|rate| rate.built_bytes_per_s),
        ),
        (
            "refused_fraction".to_owned(),
            column(|rate| rate.refused_fraction.unwrap_or(0.0)),
        ),
    ]);
    RateSeries {
        interval_s: rates.interval_s(),
        series,
    }
}

fn workers(chain: &ChainConfig, outcome: &ChainOutcome) -> Vec<WorkerSummary> {
    let summary = |worker: &livetime_node::WorkerConfig| {
        let found = outcome
            .workers
            .iter()
            .find(|outcome| outcome.name == worker.name);
        let waits = found.map(|outcome| outcome.waits).unwrap_or_default();
        let cycles = waits.busy + waits.spins + waits.yields + waits.sleeps;
        WorkerSummary {
            name: worker.name.clone(),
            core: worker.core.and_then(|core| u32::try_from(core).ok()),
            roles: worker.roles.clone(),
            busy_fraction: waits.busy as f64 / cycles.max(1) as f64,
        }
    };
    chain.workers.iter().map(summary).collect()
}

/// What is known of this machine from its own files; empty where it does not say.
pub(crate) fn machine() -> MachineSummary {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key));
        line.and_then(|line| line.split_once(':'))
            .map_or("", |(_, value)| value.trim())
            .to_owned()
    };
    MachineSummary {
        host: read("/proc/sys/kernel/hostname").trim().to_owned(),
        cpu: field(&read("/proc/cpuinfo"), "model name"),
        cores: livetime_shm::allowed_cpus().len() as u32,
        memory_bytes: memory_bytes().unwrap_or(0),
        os: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        doctor: Some(machine_check::summary()),
    }
}

/// Processes that died with their further counters, which are in no sum.
pub(crate) fn roles_without_counters(summary: &RunSummary) -> Vec<&str> {
    let died = |(role, counters): &(&String, &BTreeMap<String, u64>)| {
        role.contains('~') && counters.is_empty()
    };
    let roles = summary.roles.iter().filter(died);
    roles.map(|(role, _)| role.as_str()).collect()
}

/// Events that a filter unit failed on; units name no more than their first, and count all.
fn failures_text(text: &mut String, summary: &RunSummary) {
    const LISTED_MAX: usize = 20;
    // A run that is ended by force stores nothing more.
    let place = match summary.run.condition.contains(Condition::ABORTED) {
        true => "was to go to the error stream before the run was aborted",
        false => "is in the error stream",
    };
    for failure in summary.filter_failures.iter().take(LISTED_MAX) {
        let deaths = failure.deaths.iter();
        let deaths: Vec<String> = deaths
            .map(|d| format!("{} ({})", d.role, d.reason))
            .collect();
        let _ = writeln!(
            text,
            "\n  event {} {place}, since {} failed on it",
            failure.trigger,
            deaths.join(", ")
        );
    }
    let named = summary.filter_failures.len();
    let counts = summary.roles.values();
    let counted: u64 = counts
        .filter_map(|role| role.get("filter.failed_events"))
        .sum();
    let more = counted.max(named as u64) - named.min(LISTED_MAX) as u64;
    if more > 0 {
        let _ = writeln!(
            text,
            "\n  and {more} more events are in the error stream; the summary names {named} in all"
        );
    }
}

/// Where the files are.
fn files_text(text: &mut String, summary: &RunSummary, directory: &Path) {
    let _ = writeln!(text, "\n  files    {}", directory.display());
    for (_, place) in summary.writers.iter().filter_map(WriterSummary::elsewhere) {
        let _ = writeln!(
            text,
            "           {place}, in a folder that only that host has"
        );
    }
    let report = directory.join("report.html").display().to_string();
    // On a disk without room there is none.
    if summary.files.contains(&report) {
        let _ = writeln!(text, "  report   {report}");
    }
}

/// A remark in lines that a terminal has room for.
fn remark_text(text: &mut String, remark: &str) {
    const COLUMNS: usize = 100;
    let mut room = 0;
    text.push('\n');
    for word in remark.split(' ') {
        let columns = word.chars().count() + 1;
        if columns > room {
            text.push_str(if room == 0 { "  " } else { "\n  " });
            room = COLUMNS;
        } else {
            text.push(' ');
        }
        text.push_str(word);
        room = room.saturating_sub(columns).max(1);
    }
    text.push('\n');
}

/// What `livetime run` prints at its end.
pub(crate) fn to_text(summary: &RunSummary, outcome: &ChainOutcome, directory: &Path) -> String {
    let mut text = String::new();
    let counts = ChainCounts::from(&summary.counts);
    let _ = writeln!(
        text,
        "\nRun {:06}  {}  {:.1} s  seed {}",
        summary.run.number, summary.run.condition, summary.run.duration_s, summary.run.seed
    );
    let _ = writeln!(text, "\n  {:<32}{:>14}", "counter", "count");
    for (name, count) in counts.entries() {
        let _ = writeln!(text, "  {name:<32}{count:>14}");
    }
    let _ = writeln!(text, "\n  losses");
    let mut lost = false;
    for (area, cause, count) in summary.losses.iter() {
        lost = true;
        let known = LossCause::ALL.iter().find(|known| known.key() == cause);
        let help = known.map_or("", |cause| cause.help());
        let name = format!("{area}.{cause}");
        let _ = writeln!(text, "  {name:<32}{count:>14}  {help}");
    }
    if !lost {
        let _ = writeln!(text, "  none");
    }
    failures_text(&mut text, summary);
    if let Some(menu) = &summary.filter_menu {
        let released = summary
            .two_step
            .as_ref()
            .map_or(0, |two| two.events_released);
        menu_text(&mut text, menu, released);
    }
    if let Some(two_step) = &summary.two_step {
        two_step_text(&mut text, two_step);
    }
    for remark in remarks(summary) {
        remark_text(&mut text, &remark);
    }
    figures(&mut text, summary, &counts);
    files_text(&mut text, summary, directory);
    verdict_text(&mut text, summary, outcome, lost);
    text
}

/// Whether everything is accounted for, and of whom that is not known to the end.
fn verdict_text(text: &mut String, summary: &RunSummary, outcome: &ChainOutcome, lost: bool) {
    let heard_last = outcome.last_heard.join(", ");
    let verdict = match (summary.conserved, lost) {
        (false, _) => "NOT everything is accounted for:",
        (true, _) if !heard_last.is_empty() => "What was heard last is accounted for, and no more:",
        (true, false) => "Everything is accounted for: nothing was lost.",
        (true, true) => "Everything is accounted for: every loss above is named.",
    };
    let _ = writeln!(text, "\n{verdict}");
    for problem in &summary.conservation_problems {
        let _ = writeln!(text, "  {problem}");
    }
    if !heard_last.is_empty() {
        let _ = writeln!(
            text,
            "  nobody has seen {heard_last} end, and what they did since is in no count"
        );
    }
}

/// What the menu, or a chain of stages, did; `released` is events that it never had whole.
fn menu_text(text: &mut String, menu: &FilterMenuSummary, released: u64) {
    let _ = writeln!(
        text,
        "\n  {:<22}{:>12}{:>12}{:>14}",
        "Level-3 path", "passed", "fired", "rate"
    );
    for (name, path) in &menu.paths {
        let rate = RateHz(path.fired_hz).to_string();
        let _ = writeln!(
            text,
            "  {name:<22}{:>12}{:>12}{rate:>14}",
            path.passed, path.fired
        );
    }
    for (name, stream) in &menu.streams {
        let rate = RateHz(stream.hz).to_string();
        let name = format!("stream {name}");
        let _ = writeln!(text, "  {name:<34}{:>12}{rate:>14}", stream.events);
    }
    let stages = menu.stage_ns.iter();
    let stages: Vec<String> = stages
        .map(|(name, ns)| format!("{name} {}", DurationNs(ns.round() as u64)))
        .collect();
    let longest = DurationNs(menu.event_ns_max);
    let _ = writeln!(
        text,
        "  per event: {}; longest event {longest}",
        stages.join(", ")
    );
    if released > 0 && !menu.paths.is_empty() {
        let _ = writeln!(
            text,
            "  passed is of whole events alone: {released} were released after the first step, and \
             paths may have passed\n  on them, too"
        );
    }
}

fn two_step_text(text: &mut String, two_step: &TwoStepSummary) {
    let TwoStepSummary {
        events_fetched,
        events_released,
        events_unjudged,
        ..
    } = two_step;
    let _ = writeln!(
        text,
        "\n  two steps  {events_released} events released after the first, {events_fetched} fetched, \
         {events_unjudged} fetched without a selection"
    );
    let causes = two_step.causes.iter();
    let causes: Vec<String> = causes
        .map(|(cause, count)| format!("{cause} {count}"))
        .collect();
    let _ = writeln!(text, "             {}", causes.join(", "));
    let _ = writeln!(
        text,
        "             {} in the first step, {} in the second, {} never asked for: {:.2} times less",
        mib(two_step.bytes_first_step),
        mib(two_step.bytes_second_step),
        mib(two_step.bytes_unasked),
        two_step.saving_factor
    );
    let _ = writeln!(
        text,
        "  {:<22}{:>14}{:>14}",
        "readout unit", "sent", "not asked for"
    );
    for (name, unit) in &two_step.readout_units {
        let step = match unit.first_step {
            true => "first step",
            false => "second step",
        };
        let name = format!("{name}, {step}");
        let [sent, unasked] = [unit.bytes_sent, unit.bytes_unasked].map(mib);
        let _ = writeln!(text, "  {name:<22}{sent:>14}{unasked:>14}");
    }
    let _ = writeln!(
        text,
        "             the unit that sent most sent {:.2} times the mean",
        two_step.imbalance
    );
}

/// Bytes for a table.
fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Offers that were refused, and which of them are dead time.
fn refusals(text: &mut String, summary: &RunSummary) {
    let DeadTime {
        refused_fraction,
        busy_fraction,
    } = summary.dead_time;
    let refused = percent(refused_fraction, 3);
    let Some(source) = front_end_counters(summary) else {
        let _ = writeln!(
            text,
            "  dead time  {refused} of offers refused; nobody knows why, nor how long it was busy: that went \
             with {FRONT_END}"
        );
        return;
    };
    let detail = |name: &str| source.get(name).copied().unwrap_or(0);
    let _ = writeln!(
        text,
        "  dead time  {refused} of offers refused ({} full buffers, {} XOFF, {} late), {} of the time busy",
        detail("refused_buffers"),
        detail("refused_xoff"),
        detail("refused_late"),
        percent(busy_fraction, 3)
    );
    let by_gate = [detail("refused_gate"), detail("refused_gate_passed")];
    if by_gate != [0, 0] {
        let [outside, passed] = by_gate;
        let _ = writeln!(
            text,
            "  gate       {outside} offers outside the trigger gate and {passed} whose gate had passed were \
             refused, which is no dead time"
        );
    }
    if detail("pauses") > 0 {
        let _ = writeln!(
            text,
            "  paused     {} times, {:.3} s in all; {} offers were refused meanwhile, which is no dead time",
            detail("pauses"),
            detail("paused_ms") as f64 / 1e3,
            detail("refused_paused")
        );
    }
}

fn figures(text: &mut String, summary: &RunSummary, counts: &ChainCounts) {
    let seconds = taking_seconds(summary);
    let rate = |count: u64| RateHz(count as f64 / seconds);
    let accepted = share(counts.l2_accepted, counts.triggers);
    let _ = writeln!(
        text,
        "\n  rates      {} triggers, {} Level-2 accepts ({}), {} stored",
        rate(counts.triggers),
        rate(counts.l2_accepted),
        percent(accepted, 2),
        rate(counts.events_stored)
    );
    refusals(text, summary);
    for (name, latency) in [
        ("decision", &summary.latency.decision),
        ("build", &summary.latency.build),
    ] {
        let _ = writeln!(text, "  {name:<10} {}", latency_text(latency));
    }
    if let Some(transport) = &summary.builder_transport {
        let _ = write!(text, "  transport  {}", transport.kind);
        if let Some(congestion) = &transport.congestion {
            let _ = write!(text, ", congestion control {congestion}");
        }
        if let Some(datagrams) = &transport.datagrams {
            let _ = write!(
                text,
                ", {} datagrams, {} lost, {} of them for want of room; receive buffers of {}",
                datagrams.sent,
                datagrams.lost,
                datagrams.kernel_drops,
                ByteSize(datagrams.receive_buffer_bytes)
            );
        }
        let _ = writeln!(text);
        if let Some(shaping) = &transport.shaping {
            let _ = writeln!(text, "  shaping    {}", shaping_text(shaping));
        }
    }
    let _ = writeln!(
        text,
        "  built      {:.1} MB/s of payload, {} copies per stored byte after the link page",
        summary.throughput_bytes_per_s / 1e6,
        figure(summary.copies_per_byte, |copies| format!("{copies:.2}"))
    );
}

fn shaping_text(shaping: &ShapingSummary) -> String {
    let ShapingSummary { blocks, kind, .. } = shaping;
    let size = ByteSize(shaping.block_bytes);
    let how = match (&shaping.barrier, shaping.step_ns) {
        (Some(barrier), _) => format!("{blocks} turns of {size} in {} phases", barrier.phases),
        (None, Some(ns)) => format!("{blocks} blocks of {size} every {}", DurationNs(ns)),
        (None, None) => format!("{blocks} blocks of {size} by {}", shaping.pace),
    };
    let barrier = shaping.barrier.as_ref().map(|barrier| {
        let BarrierSummary {
            throughs_repeated,
            left_out,
            ..
        } = barrier;
        format!("; barrier: {throughs_repeated} repeated, {left_out} left out")
    });
    format!(
        "{kind}, {how}, {} in each on average; turns: {} empty, {} missed, {} refused, {} overrun{}",
        ByteSize(shaping.payload_bytes / (*blocks).max(1)),
        shaping.turns_empty,
        shaping.turns_missed,
        shaping.turns_refused,
        shaping.turns_overrun,
        barrier.unwrap_or_default(),
    )
}

fn latency_text(latency: &LatencySummary) -> String {
    if latency.count == 0 {
        return "none known".to_owned();
    }
    let ns = |ns: u64| DurationNs(ns).to_string();
    format!(
        "min {}, median {}, 99 % {}, 99.9 % {}, max {}; {:.0} ppm above {}",
        ns(latency.min),
        ns(latency.p50),
        ns(latency.p99),
        ns(latency.p99_9),
        ns(latency.max),
        latency.over.ppm,
        ns(latency.over.bound_ns)
    )
}

#[cfg(test)]
mod tests {
    use livetime_wire::LossCounts;

    use super::*;

    #[test]
    fn offers_outside_the_gate_are_no_dead_time() {
        let mut counts = ChainCounts::default();
        (counts.offered, counts.refused) = (1000, 810);
        assert_eq!(dead_fraction(&counts, 800), Some(0.05));
        assert_eq!(dead_fraction(&counts, 0), Some(0.81));
        assert_eq!(dead_fraction(&counts, 1000), None, "a pause throughout");
        assert_eq!(dead_fraction(&ChainCounts::default(), 0), None);
    }

    #[test]
    fn triggers_are_taken_no_longer_than_the_run_lasts() {
        let run = RunIdentification {
            duration_s: 2.625_708,
            ..RunIdentification::default()
        };
        let (counts, losses) = (ChainCounts::default(), LossCounts::default());
        let mut summary = RunSummary::new(run, &counts, &losses, Latencies::default());
        for (said, taking_us) in [(2_638_985, 2_625_708), (2_000_000, 2_000_000)] {
            let counters = BTreeMap::from([("taking_us".to_owned(), said)]);
            summary.roles.insert(FRONT_END.to_owned(), counters);
            bound_taking(&mut summary);
            assert_eq!(summary.roles[FRONT_END]["taking_us"], taking_us);
            assert_eq!(taking_seconds(&summary), taking_us as f64 * 1e-6);
        }
    }

    #[test]
    fn what_nobody_has_measured_is_no_zero() {
        let counts = ChainCounts {
            offered: 3020,
            refused: 3020,
            ..ChainCounts::default()
        };
        let run = RunIdentification::default();
        let losses = LossCounts::default();
        let mut summary = RunSummary::new(run, &counts, &losses, Latencies::default());
        summary.dead_time.refused_fraction = dead_fraction(&counts, 3020);
        let counters = BTreeMap::from([("refused_paused".to_owned(), 3020)]);
        summary.roles.insert(FRONT_END.to_owned(), counters);
        let mut text = String::new();
        figures(&mut text, &summary, &counts);
        for said in [
            "0 Hz Level-2 accepts (-)",
            "dead time  - of offers refused (0 full buffers, 0 XOFF, 0 late), - of the time busy",
            "decision   none known",
            "- copies per stored byte",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}
