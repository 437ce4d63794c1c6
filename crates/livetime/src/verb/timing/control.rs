//! Acts that ask the daemon one thing: inject, status, conditions, schedules.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use livetime_client::{EventId, Filter, TaiNs, TimingMessage};
use livetime_shm::plain_file::{self, TEXT_BYTES_MAX};
use livetime_timing::{Schedule, ScheduleEntry};
use livetime_wire::DurationNs;
use serde_json::{Value, json};

use super::known_objects::KnownObjects;
use super::lease::{LeaseOptions, ResumeOption};
use super::text::{condition_lines, status_text};
use super::{Daemon, Failure, hex};
use crate::console::{print, print_line};

const RECEIVER: &str = "/org/livetime/Timing1/tr0";
const SECOND_NS: u64 = 1_000_000_000;
/// How far ahead a message is that is injected for `now`.
const LEAD_NS: u64 = 1_000_000;

/// Options of `inject`.
#[derive(Debug, clap::Args)]
pub(crate) struct InjectOptions {
    #[command(flatten)]
    daemon: Daemon,
    /// Event ID, hexadecimal
    #[arg(value_parser = hex)]
    id: u64,
    /// Parameter, hexadecimal
    #[arg(value_parser = hex)]
    param: u64,
    /// When: TAI ns, or `+` and ns from now
    #[arg(default_value = "+1000000")]
    time: String,
    /// Count the time from the next full second
    #[arg(short = 'p', long)]
    ppsalign: bool,
}

/// Injects one message.
pub(super) fn inject(options: &InjectOptions) -> Result<(), Failure> {
    let client = options.daemon.connect()?;
    let number = options.time.trim_start_matches('+');
    let ns: u64 = number.parse().map_err(|_| {
        Failure::new(format!(
            "time `{}` is not decimal nanoseconds, with `+` from now",
            options.time
        ))
    })?;
    let start = if options.ppsalign {
        next_second(client.raw_time()?)
    } else if options.time.starts_with('+') {
        Some(client.raw_time()?.0)
    } else {
        Some(0)
    };
    let time = start
        .and_then(|start| start.checked_add(ns))
        .ok_or_else(|| beyond_the_end(format_args!("time `{}`", options.time)))?;
    Ok(client.inject(EventId(options.id), options.param, TaiNs(time))?)
}

/// The full second after a time, if it is not beyond the last time.
fn next_second(now: TaiNs) -> Option<u64> {
    (now.0 / SECOND_NS + 1).checked_mul(SECOND_NS)
}

/// A time after the last one that 64 bits of nanoseconds can say.
pub(super) fn beyond_the_end(what: impl std::fmt::Display) -> Failure {
    Failure::new(format!(
        "{what} ends after the last time there is, {} ns TAI",
        u64::MAX
    ))
}

/// Options of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusOptions {
    #[command(flatten)]
    daemon: Daemon,
    /// Print one JSON document (livetime.timing_status/1)
    #[arg(long)]
    json: bool,
    /// Print the last actions that the daemon executed instead, oldest first
    #[arg(long, conflicts_with = "json")]
    flight: bool,
}

/// Prints the state.
pub(super) fn status(options: &StatusOptions) -> Result<(), Failure> {
    let client = options.daemon.connect()?;
    if options.flight {
        for (id, param, deadline, executed, flags, delay) in client.flight_recorder()? {
            print_line(format_args!(
                "tDeadline: {deadline:#018x} EvtID: {id:#018x} Param: {param:#018x} executed \
                 {} ns after, delivered {delay} ns later, flags {flags:#x}",
                i128::from(executed) - i128::from(deadline)
            ))?;
        }
        return Ok(());
    }
    let text = client.status()?;
    if options.json {
        return Ok(print_line(text)?);
    }
    let status: Value = serde_json::from_str(&text)?;
    Ok(print_line(status_text(&status).trim_end())?)
}

pub(super) fn status_of(daemon: &Daemon) -> Result<Value, Failure> {
    let text = daemon.connect()?.status()?;
    Ok(serde_json::from_str(&text)?)
}

/// Options of `cond`.
#[derive(Debug, clap::Args)]
pub(crate) struct ConditionOptions {
    #[command(flatten)]
    daemon: Daemon,
    #[command(subcommand)]
    act: ConditionAct,
}

#[derive(Debug, Subcommand)]
enum ConditionAct {
    /// List all conditions
    List,
    /// Add one to an output or a bus; it stays when this command ends, for good or for a lease
    Add {
        /// Sink, such as IO1 or bus1
        sink: String,
        /// Event ID, hexadecimal
        #[arg(value_parser = hex)]
        id: u64,
        /// Leading bits that are compared, hexadecimal
        #[arg(value_parser = hex)]
        mask: u64,
        /// Deadline minus time of the message [ns]
        #[arg(allow_hyphen_values = true)]
        offset: i64,
        /// `on`, `off`, or the tag for a bus, decimal
        action: String,
        #[command(flatten)]
        lease: LeaseOptions,
        /// Print one JSON document (livetime.timing_condition/1)
        #[arg(long)]
        json: bool,
    },
    /// Remove one
    Remove {
        /// Sink, such as IO1
        sink: String,
        /// Number of the condition, as `list` prints it, or the path that `add` printed
        condition: String,
        #[command(flatten)]
        resume: ResumeOption,
    },
}

/// What `cond add` was asked for.
struct NewCondition<'a> {
    sink: &'a str,
    filter: Filter,
    action: &'a str,
    lease: &'a LeaseOptions,
    json: bool,
}

/// The tag of an action: `on` and `off` are for outputs alone, numbers for what has tags.
fn tag_of(sink: &str, kind: &str, action: &str) -> Result<u32, Failure> {
    let tag = match (kind, action) {
        ("output", "on") => Some(livetime_timing::TAG_ON),
        ("output", "off") => Some(livetime_timing::TAG_OFF),
        ("output", _) => None,
        (_, tag) => tag.parse().ok(),
    };
    tag.ok_or_else(|| {
        let allowed = match kind {
            "output" => "`on` or `off`, as it is an output".to_owned(),
            _ => format!("a decimal tag of 0 to {}, as it is no output", u32::MAX),
        };
        Failure::new(format!(
            "action `{action}` for {sink}: allowed is {allowed}"
        ))
    })
}

/// Adds a condition, and prints its path and under which lease it is.
fn add_condition(daemon: &Daemon, new: &NewCondition<'_>) -> Result<(), Failure> {
    let client = daemon.connect()?;
    let kind = KnownObjects::of(&client)?.kind_of_sink(new.sink)?;
    let tag = tag_of(new.sink, &kind, new.action)?;
    let resumed = new.lease.resume(&client)?;
    let path = client.add_output_condition(new.sink, &new.filter, tag)?;
    let token = new.lease.keep(&client, &path)?;
    if new.json {
        let document = json!({
            "schema": "livetime.timing_condition/1",
            "condition": path,
            "token": token,
            "objects_resumed": resumed,
        });
        return Ok(print_line(document)?);
    }
    print_line(&path)?;
    if let Some(token) = token {
        print_line(format_args!("token {token}"))?;
    }
    Ok(())
}

/// The number of a condition as it is listed, of that or of what `add` printed: a path or its end.
fn number_of_condition(sink: &str, given: &str) -> String {
    let path = format!("{RECEIVER}/{sink}/");
    let name = given.strip_prefix(&path).unwrap_or(given);
    name.strip_prefix('c').unwrap_or(name).replace('_', ".")
}

/// Lists, adds, removes.
pub(super) fn conditions(options: &ConditionOptions) -> Result<(), Failure> {
    match &options.act {
        ConditionAct::List => {
            let status = status_of(&options.daemon)?;
            for sink in status["sinks"].as_array().into_iter().flatten() {
                print_line(sink["name"].as_str().unwrap_or(""))?;
                for line in condition_lines(sink) {
                    print(line)?;
                }
            }
            Ok(())
        }
        ConditionAct::Add {
            sink,
            id,
            mask,
            offset,
            action,
            lease,
            json,
        } => {
            let filter = Filter {
                id: *id,
                mask: *mask,
                offset_ns: *offset,
                accept_all: false,
            };
            let new = NewCondition {
                sink,
                filter,
                action,
                lease,
                json: *json,
            };
            add_condition(&options.daemon, &new)
        }
        ConditionAct::Remove {
            sink,
            condition,
            resume,
        } => {
            let client = options.daemon.connect()?;
            // A lease brings its conditions back.
            resume.resume(&client)?;
            let number = number_of_condition(sink, condition);
            KnownObjects::of(&client)?.check_condition(sink, &number, condition)?;
            let name = number.replace('.', "_");
            let path = format!("{RECEIVER}/{sink}/c{name}");
            Ok(client.destroy(&path)?)
        }
    }
}

/// Options of `dm`.
#[derive(Debug, clap::Args)]
pub(crate) struct ScheduleOptions {
    #[command(flatten)]
    daemon: Daemon,
    /// Schedule: `eventID param time` per line, hexadecimal and decimal ns from the start
    #[arg(required_unless_present = "stop")]
    file: Option<PathBuf>,
    /// End all schedules that are playing
    #[arg(long, conflicts_with_all = ["file", "repeat", "period", "ppsalign", "lead"])]
    stop: bool,
    /// How often
    #[arg(short = 'n', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// From one start to the next [ns]; the schedule's length without it, and no less
    #[arg(long, value_name = "NS")]
    period: Option<u64>,
    /// Start at the next full second
    #[arg(short = 'p', long)]
    ppsalign: bool,
    /// How long before its time a message is sent [ns]
    #[arg(long, value_name = "NS", default_value_t = LEAD_NS)]
    lead: u64,
}

/// Has a schedule played, or those that are playing stopped.
pub(super) fn schedule(options: &ScheduleOptions) -> Result<(), Failure> {
    match &options.file {
        Some(file) => play(options, file),
        None => stop_schedules(options),
    }
}

fn stop_schedules(options: &ScheduleOptions) -> Result<(), Failure> {
    let stopped = options.daemon.connect()?.stop_schedules()?;
    print_line(format_args!("stopped {stopped} schedules"))?;
    Ok(())
}

fn play(options: &ScheduleOptions, file: &Path) -> Result<(), Failure> {
    let path = file.display();
    let text = plain_file::read_text_from_any(file, TEXT_BYTES_MAX)
        .map_err(|error| Failure::new(format!("cannot read {path}: {error}")))?;
    let schedule =
        Schedule::parse(&text).map_err(|error| Failure::new(format!("{path}: {error}")))?;
    let DurationNs(length) = schedule.length();
    let period = options.period.unwrap_or(length);
    if period < length {
        return Err(Failure::new(format!(
            "--period {period}: the schedule in {path} is {length} ns long, so that its repetitions would \
             overlap"
        )));
    }
    let client = options.daemon.connect()?;
    let now = client.raw_time()?.0;
    let start = if options.ppsalign {
        next_second(TaiNs(now))
            .ok_or_else(|| beyond_the_end(format_args!("the schedule in {path}")))?
    } else {
        let start = options.lead.checked_mul(2);
        start
            .and_then(|ahead| now.checked_add(ahead))
            .ok_or_else(|| {
                Failure::new(format!(
                    "--lead {}: allowed is at most {} ns, since a schedule starts twice its lead from \
                     now; give a shorter one",
                    options.lead,
                    (u64::MAX - now) / 2
                ))
            })?
    };
    let turns = u64::from(options.repeat.saturating_sub(1));
    let last = period
        .checked_mul(turns)
        .and_then(|turns| start.checked_add(turns));
    if last.is_none_or(|last| last.checked_add(length).is_none()) {
        return Err(beyond_the_end(format_args!("the schedule in {path}")));
    }
    let at = |entry: &ScheduleEntry| TimingMessage {
        tef: entry.tef,
        ..TimingMessage::new(entry.id, entry.param, TaiNs(start + entry.at.0))
    };
    let messages: Vec<TimingMessage> = schedule.entries().iter().map(at).collect();
    let count = client.play(&messages, options.lead, options.repeat, period)?;
    print_line(format_args!(
        "playing {count} messages {} times from TAI {start} ns",
        options.repeat
    ))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_named_as_it_is_listed_or_as_it_was_printed() {
        for given in ["0.3", "0_3", "c0_3", "/org/livetime/Timing1/tr0/IO1/c0_3"] {
            assert_eq!(number_of_condition("IO1", given), "0.3", "{given}");
        }
        let of_other = "/org/livetime/Timing1/tr0/IO2/c0_3";
        assert_ne!(number_of_condition("IO1", of_other), "0.3");
    }

    #[test]
    fn the_last_full_second_has_none_after_it() {
        let last = u64::MAX / SECOND_NS * SECOND_NS;
        assert_eq!(next_second(TaiNs(0)), Some(SECOND_NS));
        assert_eq!(next_second(TaiNs(last - 1)), Some(last));
        assert_eq!(next_second(TaiNs(last)), None);
        assert_eq!(next_second(TaiNs(u64::MAX)), None);
    }

    #[test]
    fn an_action_is_one_of_the_sink() {
        let tag = |kind, action| tag_of("it", kind, action).map_err(|Failure(text)| text);
        assert_eq!(tag("output", "on"), Ok(2));
        assert_eq!(tag("output", "off"), Ok(1));
        assert_eq!(tag("bus_tag", "17"), Ok(17));
        for (kind, action, said) in [
            ("output", "1", "`on` or `off`, as it is an output"),
            ("output", "", "`on` or `off`"),
            ("bus_tag", "on", "a decimal tag of 0 to 4294967295"),
            ("bus_tag", "4294967296", "action `4294967296` for it"),
        ] {
            let error = tag(kind, action).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
