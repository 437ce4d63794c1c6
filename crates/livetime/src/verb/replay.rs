//! `livetime replay RUN`: a run through one of its stages once more.
//!
//! Into the filter go the stored events, into the trigger the recorded packets (`decisions`), into
//! links or builder the fragments of the stored events (`rebuild`); `pace` says how fast.
//!
//! A filter's answer depends on the event alone, so that the answers must be the recorded ones; each
//! that is not is listed. With another configuration it says what that filter would have done.
//! Events of the error stream were stored unfiltered: they are passed over, or alone taken with
//! `--stream error`, in this process: a filter that crashed on one crashes here in the same way.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use livetime_client::{RunFolder, Shortfall};
use livetime_node::FilterConfig;
use livetime_node::packet_log::{PACKET_SOURCE, is_of_packets};
use livetime_node::python_filter::batch_filter::REASONS;
use livetime_node::recorded_chain::Entry;
use livetime_shm::TscClock;
use livetime_shm::floor::Samples;
use livetime_trigger::{EventFilter, FilterOutput};
use livetime_wire::TriggerNumber;
use livetime_wire::event::{EventHeader, EventView};
use serde_json::{Value, json};

use crate::config::{Overrides, RunConfig, load, read_text};
use crate::console::{print, print_line, say, with_causes};
use crate::exit;
use crate::filter_of_run;
use crate::verb::export::say_shortfall;
use crate::verb::replay_batches::{Answer, BatchReplay};

mod decisions;
mod pace;
mod rebuild;

use pace::{Pace, Pacer};

/// Differences that are listed; all are counted.
const LISTED_MAX: usize = 20;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run directory, or its events.mcap
    run: PathBuf,
    /// Which stage the run is played back into
    #[arg(long, value_enum, default_value_t = Stage::Filter)]
    into: Stage,
    /// How fast: max, own (as the run was taken), or a rate such as 1kHz
    #[arg(long, value_name = "PACE", default_value = "max")]
    pace: Pace,
    /// Use the filter (into the trigger: the menu) of this configuration instead of the run's own
    #[arg(long, value_name = "CONFIG")]
    filter_of: Option<PathBuf>,
    /// Which events: those that were filtered, or those that filter units failed on
    #[arg(long, value_enum, default_value_t = Stream::Filtered)]
    stream: Stream,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Where a run is played back into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Stage {
    /// At the sources: through links, readout and event builder into the filter.
    Links,
    /// The recorded trigger packets into the Level-2 menu.
    Trigger,
    /// At the readout units: through the event builder into the filter.
    Builder,
    /// The stored events into the filter.
    Filter,
}

/// Which events are replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Stream {
    /// Everything but the error stream.
    Filtered,
    /// The error stream.
    Error,
}

impl Stream {
    fn takes(self, event: &EventView<'_>) -> bool {
        let failed = event.header().streams & EventHeader::ERROR_STREAM != 0;
        failed == (self == Self::Error)
    }

    fn key(self) -> &'static str {
        match self {
            Self::Filtered => "filtered",
            Self::Error => "error",
        }
    }
}

/// One event with another answer than the recorded one.
struct Difference {
    trigger: TriggerNumber,
    recorded: (u16, u16),
    now: FilterOutput,
}

/// What came of it.
struct Replayed {
    run: u64,
    stream: Stream,
    own_filter: bool,
    events: u64,
    passed_over: u64,
    accepted: u64,
    differing: u64,
    /// Events that the filter failed on, here as in the run.
    failed: u64,
    /// Events that took longer than the limit of the filter, which then has no verdict on them.
    over_time: u64,
    listed: Vec<Difference>,
    filter_ns: Samples,
    damage: Vec<String>,
    /// What the run lacks.
    shortfall: Option<Shortfall>,
}

impl Replayed {
    /// Notes an answer.
    fn note(&mut self, answer: Answer) {
        let Answer {
            trigger,
            recorded,
            now,
        } = answer;
        self.events += 1;
        let Some(now) = now else {
            self.failed += 1;
            return;
        };
        if has_verdict(now) {
            self.accepted += u64::from(now.accept);
        } else {
            self.over_time += 1;
        }
        // A stored event was accepted; one of the error stream has no answer to compare with.
        let differs = !now.accept || (now.reason, now.streams) != recorded;
        if self.stream == Stream::Filtered && differs {
            self.differing += 1;
            if self.listed.len() < LISTED_MAX {
                self.listed.push(Difference {
                    trigger,
                    recorded,
                    now,
                });
            }
        }
    }
}

/// Whether the filter has come to a verdict: an event over its time goes to the error stream unjudged.
fn has_verdict(output: FilterOutput) -> bool {
    output.streams & EventHeader::ERROR_STREAM == 0
}

/// What a filter made of an event, for people.
fn verdict_text(output: FilterOutput) -> &'static str {
    match (has_verdict(output), output.accept) {
        (false, _) => "not judged",
        (true, true) => "accepted",
        (true, false) => "rejected",
    }
}

/// Replays the run and says what differs.
pub(crate) fn run(options: &Options) -> ExitCode {
    match try_run(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => exit::PROBLEM,
        Err(error) => {
            say(error.trim_end());
            exit::PROBLEM
        }
    }
}

fn try_run(options: &Options) -> Result<bool, String> {
    if options.stream == Stream::Error && options.into != Stage::Filter {
        let reason = "error: events of the error stream can be replayed into the filter alone\n\
                      help: leave out `--into`, or `--stream error`";
        return Err(reason.to_owned());
    }
    let entry = match options.into {
        Stage::Trigger => return replay_trigger(options),
        Stage::Links => Some(Entry::Links),
        Stage::Builder => Some(Entry::Builder),
        Stage::Filter => None,
    };
    let path = &options.run;
    let failed = |error: &dyn std::error::Error| {
        format!("error: {}: {}", path.display(), with_causes(error))
    };
    let mut reader = RunFolder::open(path).map_err(|error| format!("error: {error}"))?;
    refuse_packets(path, &mut reader).map_err(|error| failed(&error))??;
    let filter = match &options.filter_of {
        Some(config) => load(config, &Overrides::default())?.config.chain.filter,
        None => filter_of_run::kept(own_config(path, &reader)?.chain.filter, path)?,
    };
    if let Some(entry) = entry {
        let Some(mut filter) = filter.to_filter() else {
            return Err("error: a filter in Python takes part in `--into filter` only".to_owned());
        };
        let own = options.filter_of.is_none();
        let found = rebuild::replay(path, entry, filter.as_mut(), own, options.pace)?;
        let (document, text) = (found.document(), found.text());
        let agrees = conclude(options, document, &text, &found.damage, found.differing)?;
        return Ok(is_whole(path, found.shortfall.as_ref()) && agrees);
    }
    let mut judge = Judge::new(&filter, options)?;
    // A number means what it meant to the filter that gave it.
    let recorded_reasons = match options.filter_of {
        Some(_) => reasons_of_run(path, &reader),
        None => judge.reasons(),
    };
    let found = replay(&mut reader, &mut judge, options).map_err(|error| failed(&error))?;
    let printed = match options.json {
        true => print_line(document(&found)),
        false => print(text(&found, &recorded_reasons, &judge.reasons())),
    };
    printed.map_err(|error| failed(&error))?;
    warn_of_damage(&found.damage);
    let whole = is_whole(path, found.shortfall.as_ref());
    let are_judged =
        found.failed == 0 && (found.over_time == 0 || found.stream == Stream::Filtered);
    Ok(whole && are_judged && (found.differing == 0 || !found.own_filter))
}

/// Refuses a file of trigger packets: no stage but the trigger reads them. A stream of events may have
/// the name of theirs.
fn refuse_packets(path: &Path, reader: &mut RunFolder) -> std::io::Result<Result<(), String>> {
    if !reader.begin().is_some_and(is_of_packets) {
        return Ok(Ok(()));
    }
    let first = reader.next_event()?;
    let are_packets =
        first.is_some_and(|event| (event.entries()).all(|entry| entry.source == PACKET_SOURCE));
    reader.rewind();
    Ok(match are_packets {
        true => Err(format!(
            "error: {} holds the trigger packets of a run, and no events\n\
             help: `--into trigger` decides on them again; name the run directory for the other stages",
            path.display()
        )),
        false => Ok(()),
    })
}

/// Decides on the recorded trigger packets again.
fn replay_trigger(options: &Options) -> Result<bool, String> {
    let reader = RunFolder::open(&options.run).map_err(|error| format!("error: {error}"));
    let own = reader.and_then(|reader| own_config(&options.run, &reader));
    // What nodes were to record must be there, whatever files say.
    let of_own = own.as_ref().ok().map(|own| &own.chain);
    let recording = of_own.filter(|chain| chain.packets.is_some());
    let nodes = recording.map_or(0, |chain| chain.trigger_nodes);
    let other = options.filter_of.as_ref();
    let other = other.map(|config| load(config, &Overrides::default()));
    let other = other.transpose()?.map(|loaded| loaded.config.chain);
    let nodes_of_other = other.as_ref().map(|chain| chain.trigger_nodes);
    let menu = match other {
        Some(other) => other.menu,
        None => own?.chain.menu,
    };
    let is_own = options.filter_of.is_none();
    let found = decisions::replay(&options.run, nodes, &menu, is_own, options.pace)?;
    let (document, text) = (found.document(), found.text());
    let agreed = conclude(options, document, &text, &found.damage, found.differing)?;
    for doubt in &found.doubts {
        say(format_args!("warning: {doubt}"));
    }
    note_nodes(options, nodes_of_other, found.nodes);
    Ok(agreed && found.is_whole())
}

/// Says that the other configuration has another number of trigger nodes than recorded the packets: each
/// of these counts the prescales of its own packets.
fn note_nodes(options: &Options, of_other: Option<u16>, recorded: usize) {
    if let (Some(config), Some(nodes)) = (&options.filter_of, of_other)
        && usize::from(nodes) != recorded
    {
        say(format_args!(
            "note: {} has `nodes = {nodes}` under [trigger], which is not used: the packets are those of \
             the run's {recorded}, each of which counts its own prescales",
            config.display()
        ));
    }
}

/// Prints what came of it; `false` if the run's own stage gave other answers.
fn conclude(
    options: &Options,
    document: Value,
    text: &str,
    damage: &[String],
    differing: u64,
) -> Result<bool, String> {
    let printed = match options.json {
        true => print_line(document),
        false => print(text),
    };
    printed.map_err(|error| format!("error: cannot write: {error}"))?;
    warn_of_damage(damage);
    Ok(differing == 0 || options.filter_of.is_some())
}

/// Whether the run lacks nothing; says so if it does.
fn is_whole(run: &Path, shortfall: Option<&Shortfall>) -> bool {
    shortfall
        .inspect(|lacking| say_shortfall(run, lacking))
        .is_none()
}

/// Names what was passed over.
fn warn_of_damage(damage: &[String]) {
    for range in damage.iter().take(LISTED_MAX) {
        say(format_args!("warning: passed over {range}"));
    }
    if damage.len() > LISTED_MAX {
        let more = damage.len() - LISTED_MAX;
        say(format_args!(
            "warning: {more} more damaged ranges were passed over"
        ));
    }
}

/// The filter, of events one by one or of batches.
enum Judge {
    Event(Box<dyn EventFilter>),
    Batch(Box<BatchReplay>),
}

impl Judge {
    fn new(filter: &FilterConfig, options: &Options) -> Result<Self, String> {
        match (filter.to_filter(), filter) {
            (Some(filter), _) => Ok(Self::Event(filter)),
            (None, FilterConfig::Python(python)) => {
                let one_by_one = options.stream == Stream::Error;
                let batches = BatchReplay::start(python, one_by_one)?;
                Ok(Self::Batch(Box::new(batches)))
            }
            (None, _) => Err("error: this filter cannot be replayed".to_owned()),
        }
    }

    fn reasons(&self) -> Vec<String> {
        match self {
            Self::Event(filter) => filter.reason_names(),
            Self::Batch(_) => REASONS.map(str::to_owned).to_vec(),
        }
    }
}

/// The configuration that the run was taken with.
fn own_config(path: &Path, reader: &RunFolder) -> Result<RunConfig, String> {
    let Some(begin) = reader.begin() else {
        return Err(format!(
            "error: {}: the begin-of-run record is damaged, so that its stages are not known\n\
             help: name a configuration with --filter-of",
            path.display()
        ));
    };
    if begin.config.trim().is_empty() {
        return Err(format!(
            "error: {}: the run has no configuration that names its stages; an imported run has \
             none, nor has a repaired copy whose begin-of-run record was lost\n\
             help: name a configuration with --filter-of",
            path.display()
        ));
    }
    read_text(
        "the run's configuration",
        &begin.config,
        &Overrides::of_taken_run(),
    )
}

fn replay(
    reader: &mut RunFolder,
    judge: &mut Judge,
    options: &Options,
) -> std::io::Result<Replayed> {
    let clock = TscClock::calibrate();
    let mut filter_ns = Vec::new();
    let mut found = Replayed {
        run: reader.run().0.into(),
        stream: options.stream,
        own_filter: options.filter_of.is_none(),
        events: 0,
        passed_over: 0,
        accepted: 0,
        differing: 0,
        failed: 0,
        over_time: 0,
        listed: Vec::new(),
        filter_ns: Samples::from_unsorted(Vec::new()),
        damage: Vec::new(),
        shortfall: None,
    };
    let mut pacer = Pacer::new(options.pace);
    while let Some(event) = reader.next_event()? {
        if !options.stream.takes(&event) {
            found.passed_over += 1;
            continue;
        }
        let header = event.header();
        pacer.wait(header.triggered_at);
        let filter = match judge {
            Judge::Event(filter) => filter,
            Judge::Batch(batches) => {
                batches.take(&event, &mut |answer| found.note(answer));
                continue;
            }
        };
        if options.stream == Stream::Error {
            // Said before it is tried: if it brings the program down, it is the last word.
            say(format_args!("trigger {}", header.trigger));
        }
        let start = clock.ticks();
        let now = filter.filter(&event);
        filter_ns.push(clock.ticks_to_ns(clock.ticks().wrapping_sub(start)));
        if options.stream == Stream::Error && !has_verdict(now) {
            say(format_args!(
                "error: the filter took longer than its `event_limit` on trigger {}",
                header.trigger
            ));
        }
        found.note(Answer {
            trigger: header.trigger,
            recorded: (header.filter_reason, header.streams),
            now: Some(now),
        });
    }
    if let Judge::Batch(batches) = judge {
        batches.judge(&mut |answer| found.note(answer));
    }
    found.filter_ns = Samples::from_unsorted(filter_ns);
    found.shortfall = reader.shortfall();
    found.damage = (reader.damage())
        .map(|(path, damage)| format!("{}: {damage}", path.display()))
        .collect();
    Ok(found)
}

fn document(found: &Replayed) -> Value {
    let listed = found.listed.iter().map(|difference| {
        let Difference { now, recorded, .. } = difference;
        json!({
            "trigger": difference.trigger.0.to_string(),
            "recorded": { "reason": recorded.0, "streams": recorded.1 },
            "now": {
                "accept": now.accept && has_verdict(*now),
                "reason": now.reason,
                "streams": now.streams,
            },
        })
    });
    json!({
        "schema": "livetime.replay/1",
        "run": found.run,
        "stage": "filter",
        "stream": found.stream.key(),
        "own_filter": found.own_filter,
        "events": found.events,
        "passed_over": found.passed_over,
        "accepted": found.accepted,
        // Of an event of the error stream the filter's answer was not recorded.
        "differing": (found.stream == Stream::Filtered).then_some(found.differing),
        "failed": found.failed,
        "over_time": found.over_time,
        "differences": listed.collect::<Vec<_>>(),
        "damaged_ranges": found.damage.len(),
        "filter_ns": livetime_study::bench::latency(&found.filter_ns),
    })
}

/// Names of the reasons of the run's own filter; none if that is not known.
fn reasons_of_run(path: &Path, reader: &RunFolder) -> Vec<String> {
    let own = own_config(path, reader).ok();
    let filter = own.and_then(|own| own.chain.filter.to_filter());
    filter.map_or_else(Vec::new, |filter| filter.reason_names())
}

/// With the names of the reasons of the run's filter, and of the one that was asked.
fn text(found: &Replayed, recorded_reasons: &[String], reasons: &[String]) -> String {
    let named = |names: &[String], index: u16| -> String {
        let name = names.get(usize::from(index));
        name.map_or_else(|| format!("reason {index}"), Clone::clone)
    };
    let compared = match found.stream {
        Stream::Filtered => format!("{} with another answer than recorded", found.differing),
        Stream::Error => "nothing to compare with, since no answer to them was recorded".to_owned(),
    };
    let mut text = format!(
        "run {}: {} events through the filter, {} accepted, {compared}\n",
        found.run, found.events, found.accepted
    );
    for Difference {
        trigger,
        recorded,
        now,
    } in &found.listed
    {
        let verdict = verdict_text(*now);
        text += &format!(
            "  trigger {trigger}: recorded {} in streams {:#06x}, now {verdict} as {} in streams {:#06x}\n",
            named(recorded_reasons, recorded.0),
            recorded.1,
            named(reasons, now.reason),
            now.streams
        );
    }
    if found.differing > found.listed.len() as u64 {
        text += &format!(
            "  and {} more\n",
            found.differing - found.listed.len() as u64
        );
    }
    if found.passed_over > 0 {
        let (count, other) = (
            found.passed_over,
            match found.stream {
                Stream::Filtered => "in the error stream",
                Stream::Error => "outside the error stream",
            },
        );
        text += &format!("  {count} events {other} were passed over\n");
    }
    if found.failed > 0 {
        text += &format!("  the filter failed on {} of them\n", found.failed);
    }
    if found.over_time > 0 {
        text += &format!(
            "  {} of them took longer than the filter's `event_limit`, and have no verdict\n",
            found.over_time
        );
    }
    if found.filter_ns.max() > 0 {
        text += &format!(
            "filter   median {} ns, 99 % {} ns, max {} ns per event\n",
            found.filter_ns.p50(),
            found.filter_ns.p99(),
            found.filter_ns.max()
        );
    }
    text
}
