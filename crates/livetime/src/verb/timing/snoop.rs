//! `livetime timing snoop`: messages as they are executed, as text or JSON lines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use livetime_client::{
    ClientError, Filter, Listener, OverflowRule, PriorityClass, RecordKind, SubscriptionOptions,
    Wait,
};
use serde_json::json;

use super::text::{record_json, record_line};
use super::{Daemon, Failure, Urgency, hex};
use crate::console::{print_line, say};

/// Options of the act.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    daemon: Daemon,
    /// Event ID, hexadecimal; 0 with mask 0 is every message
    #[arg(value_parser = hex, default_value = "0")]
    id: u64,
    /// Bits of the ID that are compared, hexadecimal
    #[arg(value_parser = hex, default_value = "0")]
    mask: u64,
    /// Deadline of the record minus time of the message [ns]; put `--` before a negative one
    #[arg(default_value_t = 0)]
    offset: i64,
    /// End after so many seconds
    #[arg(long)]
    seconds: Option<f64>,
    /// End after so many messages
    #[arg(long)]
    count: Option<u64>,
    /// End with the message of this event ID, hexadecimal
    #[arg(long, value_parser = hex, value_name = "ID")]
    until: Option<u64>,
    /// Split the event ID into its fields
    #[arg(short, long)]
    verbose: bool,
    /// One JSON line per record (livetime.timing_record/1)
    #[arg(long)]
    json: bool,
    /// Print only a summary at the end, as JSON (livetime.timing_snoop/1)
    #[arg(long)]
    summary: bool,
    /// Slots of the ring
    #[arg(long, default_value_t = 4096)]
    slots: u32,
    /// What happens when they are full: drop-oldest, drop-newest or disconnect
    #[arg(long, value_parser = rule, default_value = "drop-oldest")]
    overflow: OverflowRule,
    /// How urgent: high, generic or idle
    #[arg(long, value_parser = class, default_value = "generic")]
    class: PriorityClass,
    /// Poll without pause instead of sleeping
    #[arg(long)]
    spin: bool,
    #[command(flatten)]
    urgency: Urgency,
}

fn rule(text: &str) -> Result<OverflowRule, String> {
    OverflowRule::from_name(text)
        .ok_or_else(|| format!("`{text}` is not drop-oldest, drop-newest or disconnect"))
}

fn class(text: &str) -> Result<PriorityClass, String> {
    PriorityClass::from_name(text).ok_or_else(|| format!("`{text}` is not high, generic or idle"))
}

fn asked(options: &Options) -> SubscriptionOptions {
    SubscriptionOptions {
        slots: options.slots,
        rule: options.overflow,
        class: options.class,
        wait: if options.spin {
            Wait::Spin
        } else {
            Wait::Sleep
        },
        ..SubscriptionOptions::default()
    }
}

/// Longest wait without a look for Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);

/// When it is over; never where nothing is said, or a time beyond all times.
fn end_of(seconds: Option<f64>) -> Result<Option<Instant>, Failure> {
    let Some(seconds) = seconds else {
        return Ok(None);
    };
    if seconds.is_nan() || seconds < 0.0 {
        let text = format!("--seconds {seconds}: allowed is 0 or more");
        return Err(Failure::new(text));
    }
    let time = Duration::try_from_secs_f64(seconds).ok();
    Ok(time.and_then(|time| Instant::now().checked_add(time)))
}

/// Prints what comes.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))?;
    let filter = Filter {
        id: options.id,
        mask: options.mask,
        offset_ns: options.offset,
        accept_all: true,
    };
    let asked = asked(options);
    let mut listener = Listener::start(&options.daemon.address(), &[filter], &asked)?;
    options.urgency.apply();
    if options.summary {
        print_line("listening")?;
    } else {
        say("listening; Ctrl-C ends it");
    }
    let end = end_of(options.seconds)?;
    let mut counts = Counts::default();
    let heard = listen(options, &mut listener, end, &stop, &mut counts);
    // Cut off or not: what came until then is what was asked for.
    if options.summary {
        let subscription = listener
            .subscription()
            .map(|subscription| subscription.number());
        print_line(json!({
            "schema": "livetime.timing_snoop/1",
            "subscription": subscription,
            "received": counts.received,
            "lost": counts.lost,
            "gaps": counts.gaps,
            "restarts": listener.restarts(),
            "cut_off": matches!(heard, Err(Ended::Failed(ClientError::CutOff))),
        }))?;
    }
    match heard {
        Ok(()) => Ok(()),
        Err(Ended::Failed(error)) => Err(error.into()),
        Err(Ended::Unprinted(error)) => Err(error.into()),
    }
}

/// What has come.
#[derive(Debug, Default)]
struct Counts {
    received: u64,
    lost: u64,
    gaps: u64,
}

/// Why nothing more is heard before the end.
enum Ended {
    Failed(ClientError),
    Unprinted(std::io::Error),
}

/// Counts and prints what comes until the end that was asked for.
fn listen(
    options: &Options,
    listener: &mut Listener,
    end: Option<Instant>,
    stop: &AtomicBool,
    counts: &mut Counts,
) -> Result<(), Ended> {
    while !stop.load(Ordering::SeqCst)
        && end.is_none_or(|end| Instant::now() < end)
        && options.count.is_none_or(|count| counts.received < count)
    {
        let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
        let next = listener.next(Some(left.min(LOOK)));
        let Some(record) = next.map_err(Ended::Failed)? else {
            continue;
        };
        match record.kind {
            RecordKind::Message => counts.received += 1,
            RecordKind::Gap => {
                counts.lost += record.id;
                counts.gaps += 1;
            }
            RecordKind::Restart => {}
        }
        if !options.summary {
            let printed = if options.json {
                print_line(record_json(&record))
            } else {
                print_line(record_line(&record, options.verbose))
            };
            printed.map_err(Ended::Unprinted)?;
        }
        if record.kind == RecordKind::Message && options.until == Some(record.id) {
            break;
        }
    }
    Ok(())
}
