//! `livetime timing latency`: from deadline to client, beside what the machine does.
//!
//! Messages are played by the daemon; a listener reads the clock when it has a record in hand.
//! The one-way time of an eventfd (half a round trip) and half the round trip of a cache line are
//! measured before and after. Both ends read the same clock of this machine.

use std::time::Duration;

use livetime_client::{
    EventId, Filter, Listener, RecordKind, SubscriptionOptions, TaiNs, TimingMessage, Wait,
};
use livetime_shm::floor::{Samples, cache_line_ping_pong, eventfd_round_trip};
use livetime_timing_daemon::TaiClock;
use livetime_wire::DurationNs;
use serde_json::{Value, json};

use super::clock::is_virtual;
use super::{Daemon, Failure, Urgency};
use crate::console::print_line;

/// Options of the act.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    daemon: Daemon,
    /// Messages
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    messages: u64,
    /// From one to the next [us]
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    period_us: u64,
    /// The listener polls instead of sleeping
    #[arg(long)]
    spin: bool,
    #[command(flatten)]
    urgency: Urgency,
    /// Print one JSON document (livetime.timing_latency/1)
    #[arg(long)]
    json: bool,
}

const GROUP: u16 = 0xFAE;
const START_NS: u64 = 20_000_000;
const PATIENCE: Duration = Duration::from_secs(5);
/// Round trips of each floor.
const FLOOR_ROUNDS: u32 = 500;

/// Measures.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let filter = Filter::group(GROUP);
    let asked = SubscriptionOptions {
        wait: if options.spin {
            Wait::Spin
        } else {
            Wait::Sleep
        },
        ..SubscriptionOptions::default()
    };
    let address = options.daemon.address();
    let mut listener = Listener::start(&address, &[filter], &asked)?;
    let client = options.daemon.connect()?;
    if is_virtual(&client)? {
        return Err(Failure::new(
            "the daemon's clock is virtual and stands still until it is advanced, so that nothing is \
             late by it; measure a daemon that was started without --virtual",
        ));
    }
    // The floors' threads inherit it.
    options.urgency.apply();
    let mut floors = vec![measure_floors()?];
    let clock = TaiClock::machine();
    let start = client.raw_time()?.0 + START_NS;
    let messages: Vec<TimingMessage> = (0..options.messages)
        .map(|n| {
            let time = TaiNs(start + n * options.period_us * 1_000);
            TimingMessage::new(EventId(filter.id), n, time)
        })
        .collect();
    client.play(&messages, 1_000_000, 1, 0)?;
    let mut samples = Vec::with_capacity(messages.len());
    let mut lost = 0;
    while (samples.len() as u64 + lost) < options.messages {
        let Some(record) = listener.next(Some(PATIENCE))? else {
            return Err(Failure::new("the daemon plays no more"));
        };
        let now = clock.now();
        match record.kind {
            RecordKind::Message => samples.push(now.0.saturating_sub(record.deadline.0)),
            RecordKind::Gap => lost += record.id,
            RecordKind::Restart if record.is_renewal() => {
                return Err(Failure::new("the sink of the measurement was destroyed"));
            }
            RecordKind::Restart => return Err(Failure::new("the daemon was restarted")),
        }
    }
    floors.push(measure_floors()?);
    let samples = Samples::from_unsorted(samples);
    let floor = floors.iter().map(|(event, _)| *event).min().unwrap_or(0);
    let line = floors.iter().map(|(_, line)| *line).min().unwrap_or(0);
    report(options, &samples, lost, floor, line)
}

/// One way of an eventfd and of a cache line, medians in ns.
fn measure_floors() -> Result<(u64, u64), Failure> {
    let event = eventfd_round_trip(FLOOR_ROUNDS)?.round_trip.p50() / 2;
    let line = cache_line_ping_pong(8, FLOOR_ROUNDS)?.round_trip.p50() / 2;
    Ok((event, line))
}

fn report(
    options: &Options,
    samples: &Samples,
    lost: u64,
    event_floor: u64,
    line_floor: u64,
) -> Result<(), Failure> {
    let floor = if options.spin {
        line_floor
    } else {
        event_floor
    };
    let ratio = |ns: u64| ns as f64 / floor.max(1) as f64;
    if options.json {
        let document: Value = json!({
            "schema": "livetime.timing_latency/1",
            "wait": if options.spin { "spin" } else { "sleep" },
            "latency_ns": {
                "count": samples.count(), "min": samples.min(), "mean": samples.mean(),
                "p50": samples.p50(), "p90": samples.p90(), "p99": samples.p99(),
                "p99_9": samples.p99_9(), "p99_99": samples.p99_99(), "max": samples.max(),
            },
            "lost": lost,
            "floor_ns": { "eventfd_one_way": event_floor, "cache_line_one_way": line_floor },
            "ratio": { "p50": ratio(samples.p50()), "p99": ratio(samples.p99()) },
        });
        return Ok(print_line(document)?);
    }
    let text = |ns| DurationNs(ns).to_string();
    print_line(format_args!(
        "deadline to client, {}: p50 {}, p90 {}, p99 {}, max {} ({} records, {lost} lost)",
        if options.spin { "polling" } else { "sleeping" },
        text(samples.p50()),
        text(samples.p90()),
        text(samples.p99()),
        text(samples.max()),
        samples.count()
    ))?;
    print_line(format_args!(
        "floor: eventfd one way {}, cache line one way {}; p50 is {:.2} x the floor",
        text(event_floor),
        text(line_floor),
        ratio(samples.p50())
    ))?;
    Ok(())
}
