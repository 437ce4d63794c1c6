//! `livetime timing fg feed`: coefficient sets into the function generators, their start, their end.
//!
//! The daemon aborts what a client drives when it goes, so that this command stays until the
//! waveforms have ended, and says how. The states tell that they have, the signal `AllStopped` why:
//! played to the end, aborted, or starved. What a set may be, the generators check.

use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use livetime_client::{EventId, Filter, TaiNs, TimingClient};
use livetime_wire::timing_coefficient::{CoefficientSet, emit_block};
use zbus::export::futures_core::Stream;

use super::clock::is_virtual;
use super::control::beyond_the_end;
use super::generator::{INTERFACE, MASTER, parse_channels, read_text};
use super::{Daemon, Failure, hex};
use crate::console::{print_line, say};

/// Pause between two looks at the states.
const LOOK: Duration = Duration::from_millis(20);
/// Looks for what must come at once: counted, so that a daemon that stands still has its time.
const PATIENCE_LOOKS: u32 = 100;
/// How far ahead the message is that starts the waveforms at once \[ns\].
const START_AHEAD_NS: u64 = 1_000_000;
/// Sets that the queue of a generator holds.
const QUEUE: u64 = 16_384;

/// Options of `fg feed`.
#[derive(Debug, clap::Args)]
pub(super) struct FeedArguments {
    /// Lines of `a shift_a b shift_b c step freq`, a blank line or one with a comment alone between
    /// channels; standard input without it
    file: Option<PathBuf>,
    /// Start tag, decimal
    #[arg(short, long, default_value_t = 1)]
    tag: u32,
    /// Start with this event ID, hexadecimal: adds a condition on bus1 while this command runs
    #[arg(short, long, value_parser = hex)]
    event: Option<u64>,
    /// Inject that message at once; the start may then be late
    #[arg(short, long, requires = "event")]
    go: bool,
    /// Feed the same so often, before the start: the queue of a generator holds 16384 sets in all
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
}

/// Feeds, arms, starts if that is asked for, and waits for the end.
pub(super) fn run(daemon: &Daemon, arguments: &FeedArguments) -> Result<(), Failure> {
    let text = read_text(arguments.file.as_ref())?;
    let channels = parse_channels(&text).map_err(Failure::new)?;
    check_fit(&channels, arguments.repeat)?;
    let client = daemon.connect()?;
    let mut cycle = Cycle::arm(&client, &channels, arguments)?;
    say(format_args!(
        "{} channels armed with tag {}",
        channels.len(),
        arguments.tag
    ));
    if let Some(event) = arguments.event {
        cycle.start_by(event, arguments.tag, arguments.go)?;
    }
    if is_virtual(&client)? {
        say("the clock is virtual and stands still until `livetime timing clock advance` moves it");
    }
    let end = cycle.wait_for_end()?;
    let fed: usize = channels.iter().map(Vec::len).sum();
    let executed = cycle.executed_of_cycle(end)?;
    let text = verdict(end, executed, fed as u64 * u64::from(arguments.repeat))?;
    Ok(print_line(text)?)
}

/// Whether each channel fits the queue of its generator: all is queued before the start.
fn check_fit(channels: &[Vec<CoefficientSet>], repeat: u32) -> Result<(), Failure> {
    for (channel, sets) in channels.iter().enumerate() {
        let sets = sets.len() as u64;
        let all = sets * u64::from(repeat);
        if all > QUEUE {
            return Err(Failure::new(format!(
                "channel {channel} has {all} sets ({sets}, {repeat} times), allowed is {QUEUE}, what \
                 the queue of a generator holds; feed fewer sets, or longer ones"
            )));
        }
    }
    Ok(())
}

/// How a cycle has ended: masks of generators, the first in bit 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    aborted: u64,
    underflow: u64,
}

/// What is said of an end; an error unless everything that was fed has been played.
fn verdict(end: Option<End>, executed: u64, fed: u64) -> Result<String, Failure> {
    let cause = match end {
        Some(End { aborted, underflow }) if aborted | underflow != 0 => {
            let stopped = [("underflow of", underflow), ("aborted:", aborted)];
            let stopped = stopped.into_iter().filter(|(_, members)| *members != 0);
            let named = stopped.map(|(cause, members)| format!("{cause} {}", names(members)));
            named.collect::<Vec<_>>().join(", ")
        }
        _ if executed == fed => return Ok(format!("stopped, {executed} sets executed")),
        _ => "stopped early, and the daemon has not said why".to_owned(),
    };
    let help = match end {
        Some(End { underflow: 1.., .. }) => {
            "; the daemon was too late with the next ones: feed longer sets, or keep its machine \
             less busy"
        }
        _ => "",
    };
    Err(Failure::new(format!(
        "{cause}; {executed} of {fed} sets executed{help}"
    )))
}

/// The generators of a mask.
fn names(members: u64) -> String {
    let members = (0..u64::BITS).filter(|member| members >> member & 1 == 1);
    let names: Vec<String> = members.map(|member| format!("fg-{member}")).collect();
    names.join(" ")
}

/// From arming to the end.
struct Cycle<'c> {
    client: &'c TimingClient,
    ends: EndSignals,
    /// Channels, which are the first generators.
    channels: usize,
    /// What the generators had executed before.
    executed_before: Vec<u64>,
    /// When the message that was injected for the start is due.
    start_at: Option<TaiNs>,
    /// Whether a generator was seen to be running.
    has_run: bool,
    /// Looks since that time that have found none running.
    overdue_looks: u32,
}

impl<'c> Cycle<'c> {
    /// Feeds and arms.
    fn arm(
        client: &'c TimingClient,
        channels: &[Vec<CoefficientSet>],
        arguments: &FeedArguments,
    ) -> Result<Self, Failure> {
        let slices: Vec<&[CoefficientSet]> = channels.iter().map(Vec::as_slice).collect();
        let block = emit_block(&slices)?;
        let members: Vec<u32> = (0..channels.len() as u32).collect();
        let call = "SetActiveFunctionGenerators";
        client.call::<_, ()>(MASTER, INTERFACE, call, &members)?;
        client.call::<_, ()>(MASTER, INTERFACE, "SetStartTag", &arguments.tag)?;
        let cycle = Self {
            client,
            ends: EndSignals::listen(client)?,
            channels: channels.len(),
            executed_before: executed(client)?,
            start_at: None,
            has_run: false,
            overdue_looks: 0,
        };
        for turn in 1..=arguments.repeat {
            if let Err(error) = client.append_block(&block, turn == arguments.repeat) {
                // What is queued goes with this client; it is to be gone when this command says no.
                let _flushed = client.call::<_, ()>(MASTER, INTERFACE, "Flush", &());
                return Err(error.into());
            }
        }
        Ok(cycle)
    }

    /// Has the messages of an event ID start the generators, and injects one if wanted.
    fn start_by(&mut self, event: u64, tag: u32, go: bool) -> Result<(), Failure> {
        let filter = Filter {
            id: event,
            mask: u64::MAX,
            ..Filter::ALL
        };
        let client = self.client;
        let body = (true, filter.id, filter.mask, filter.offset_ns, tag);
        let bus = "/org/livetime/Timing1/tr0/bus1";
        let condition: zbus::OwnedObjectPath =
            client.call(bus, "OutputActionSink", "NewTagCondition", &body)?;
        if !go {
            return Ok(());
        }
        // At once has no time that it could miss: a busy machine may make it late.
        for flag in ["AcceptLate", "AcceptConflict"] {
            let accepts = zbus::Variant::from(true);
            client.set_property(condition.as_str(), "Condition", flag, accepts)?;
        }
        let at = client.raw_time()?.0.checked_add(START_AHEAD_NS);
        let at = at.ok_or_else(|| beyond_the_end("the start"))?;
        client.inject(EventId(event), 0, TaiNs(at))?;
        self.start_at = Some(TaiNs(at));
        Ok(())
    }

    /// Waits until no generator is armed or running; how that came, if the daemon has said so.
    fn wait_for_end(&mut self) -> Result<Option<End>, Failure> {
        let mut end = None;
        let mut disabled_looks = 0;
        loop {
            end = self.ends.newest()?.or(end);
            let states: Vec<String> = self.client.call(MASTER, INTERFACE, "ReadStates", &())?;
            self.has_run |= states.iter().any(|state| state == "running");
            if states.iter().all(|state| state == "disabled") {
                disabled_looks += 1;
                // The signal follows at once, unless too many waited and it was dropped.
                if end.is_some() || disabled_looks > PATIENCE_LOOKS {
                    return Ok(end);
                }
            } else {
                // An end while one is still busy is that of a cycle before this one.
                end = None;
                self.check_start()?;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whether the message that was injected may still start the generators.
    fn check_start(&mut self) -> Result<(), Failure> {
        let Some(at) = self.start_at.filter(|_| !self.has_run) else {
            return Ok(());
        };
        if self.client.raw_time()? <= at {
            return Ok(());
        }
        self.overdue_looks += 1;
        if self.overdue_looks <= PATIENCE_LOOKS {
            return Ok(());
        }
        Err(Failure::new(format!(
            "not started: the message that was injected was due at TAI {} ns, and no generator runs; \
             `livetime timing status` says whether the clock is locked, and what bus1 has refused or \
             had no place for",
            at.0
        )))
    }

    /// Sets that the generators of the channels have executed in this cycle.
    fn executed_of_cycle(&self, end: Option<End>) -> Result<u64, Failure> {
        let executed = executed(self.client)?;
        // The counts are of the last start: those of generators that were aborted before theirs are
        // of a cycle before this one.
        let was_aborted = end.is_some_and(|end| end.aborted != 0);
        if was_aborted && !self.has_run && executed == self.executed_before {
            return Ok(0);
        }
        Ok(executed.iter().take(self.channels).sum())
    }
}

/// Sets that each generator has executed since its last start.
fn executed(client: &TimingClient) -> Result<Vec<u64>, Failure> {
    Ok(client.call(MASTER, INTERFACE, "ReadExecutedParameterCounts", &())?)
}

/// Signals of the daemon that a cycle has ended.
struct EndSignals(zbus::MessageStream);

impl EndSignals {
    fn listen(client: &TimingClient) -> Result<Self, Failure> {
        let rule = zbus::MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .path(MASTER)
            .member("AllStopped")
            .build()?;
        let stream = zbus::MessageStream::for_match_rule(rule, client.connection(), None);
        Ok(Self(zbus::block_on(stream)?))
    }

    /// The newest that has come since the last look.
    fn newest(&mut self) -> Result<Option<End>, Failure> {
        let mut newest = None;
        // Nobody is to be woken: the next look is by time.
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(signal)) = Pin::new(&mut self.0).poll_next(&mut context) {
            let (_time, aborted, underflow): (u64, u64, u64) = signal?.body().deserialize()?;
            newest = Some(End { aborted, underflow });
        }
        Ok(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_good_when_all_that_was_fed_was_executed() {
        let end = |aborted, underflow| Some(End { aborted, underflow });
        let said = |end, executed| verdict(end, executed, 9).map_err(|Failure(text)| text);
        for end in [end(0, 0), None] {
            assert_eq!(said(end, 9), Ok("stopped, 9 sets executed".to_owned()));
        }
        for (end, executed, expected) in [
            (end(0, 0b101), 4, "underflow of fg-0 fg-2; 4 of 9 sets"),
            (end(1 << 63, 0), 9, "aborted: fg-63; 9 of 9 sets executed"),
            (end(2, 1), 4, "underflow of fg-0, aborted: fg-1; 4 of 9"),
            (end(0, 0), 4, "stopped early, "),
            (None, 4, "has not said why; 4 of 9 sets"),
        ] {
            let error = said(end, executed).unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert_eq!(error.contains("too late"), error.contains("underflow"));
        }
    }

    #[test]
    fn the_limit_is_that_of_the_generators() {
        let generator = livetime_timing::GeneratorConfig::default();
        assert_eq!(generator.queue as u64, QUEUE);
    }
}
