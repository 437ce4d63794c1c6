//! `livetime timing clock`: the receiver's clock, and faults of the emulated one.

use clap::Subcommand;

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
        /// To this time [TAI ns], or by so many ns with `+`
        time: String,
    },
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
            let number = time.trim_start_matches('+').parse::<u64>().map_err(|_| {
                Failure::new(format!(
                    "time `{time}` is not decimal nanoseconds, with `+` from now"
                ))
            })?;
            // What is advanced is the machine's time; faults have shifted the receiver's.
            let now = client.raw_time()?.0;
            let offset: i64 = client.property(RECEIVER, INTERFACE, "ClockOffset")?;
            let machine = now.wrapping_sub(offset.cast_unsigned());
            let to = if time.starts_with('+') {
                machine.saturating_add(number)
            } else {
                number
            };
            client.advance_clock(livetime_client::TaiNs(to))?;
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
