//! `livetime timing clock`: the receiver's clock, and faults of the emulated one.

use clap::Subcommand;
use livetime_client::{TaiNs, TimingClient};

use livetime_timing_daemon::ClockSource;

use super::control::beyond_the_end;
use super::{Daemon, Failure};
use crate::console::print_line;

const RECEIVER: &str = "/org/livetime/Timing1/tr0";
const INTERFACE: &str = "TimingReceiver";

/// Options of the act.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    daemon: Daemon,
    #[command(subcommand)]
    act: Option<ClockAct>,
}

#[derive(Debug, Subcommand)]
enum ClockAct {
    /// Lose the timing network: the clock runs on its own oscillator
    Lost,
    /// Find it again: the time is right at once
    Regained,
    /// Let the time jump
    Step {
        /// Forward, or backward if negative [ns]
        #[arg(allow_hyphen_values = true)]
        ns: i64,
    },
    /// Let the oscillator run off, which is felt while the network is lost
    Drift {
        /// Fast, or slow if negative [parts in 10^9], within 1000000
        #[arg(allow_hyphen_values = true)]
        parts_per_billion: i64,
    },
    /// Advance a virtual clock
    Advance {
        /// Until it shows this time [TAI ns], or so many ns more with `+`
        time: String,
    },
}

/// Whether the daemon's clock is a virtual one, which stands still until it is advanced.
pub(super) fn is_virtual(client: &TimingClient) -> Result<bool, Failure> {
    let source: String = client.property(RECEIVER, INTERFACE, "ClockSource")?;
    Ok(source == ClockSource::Virtual.name())
}

/// The time of the receiver that `advance` asks for.
fn time_to_be(text: &str, now: TaiNs) -> Result<TaiNs, Failure> {
    let (from, number) = match text.strip_prefix('+') {
        Some(number) => (now.0, number),
        None => (0, text),
    };
    let ns: u64 = number.parse().map_err(|_| {
        Failure::new(format!(
            "time `{text}` is not decimal nanoseconds, with `+` from now"
        ))
    })?;
    let to = from.checked_add(ns).map(TaiNs);
    to.ok_or_else(|| beyond_the_end(format_args!("time `{text}`")))
}

/// Changes the clock if asked for, and prints its state.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let client = options.daemon.connect()?;
    let fault = match &options.act {
        None => None,
        Some(ClockAct::Lost) => Some(("lost", 0)),
        Some(ClockAct::Regained) => Some(("regained", 0)),
        Some(ClockAct::Step { ns }) => Some(("step", *ns)),
        Some(ClockAct::Drift { parts_per_billion }) => Some(("drift", *parts_per_billion)),
        Some(ClockAct::Advance { time }) => {
            client.advance_clock(time_to_be(time, client.raw_time()?)?)?;
            None
        }
    };
    if let Some(fault) = fault {
        client.call::<_, ()>(RECEIVER, INTERFACE, "InjectClockFault", &fault)?;
    }
    let source: String = client.property(RECEIVER, INTERFACE, "ClockSource")?;
    let state: String = client.property(RECEIVER, INTERFACE, "LockState")?;
    let offset: i64 = client.property(RECEIVER, INTERFACE, "ClockOffset")?;
    Ok(print_line(format_args!(
        "TAI {} ns, clock {source}, {state}, {offset:+} ns off",
        client.raw_time()?.0
    ))?)
}
