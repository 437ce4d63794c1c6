//! `livetime timing ..`: the timing daemon and everything that a user does with it.
//!
//! One file per act; what the daemon is, is in `livetime_timing_daemon`, and how a client speaks to
//! it in `livetime_client`. Event IDs and parameters are read and written in hexadecimal, times in
//! decimal TAI nanoseconds, as users of such tools know them.

mod audit;
mod clock;
mod control;
mod design;
mod feed;
mod generator;
mod io;
mod known_objects;
mod latency;
mod lease;
mod serve;
mod snoop;
mod soak;
mod text;

use std::process::ExitCode;

use clap::Subcommand;
use livetime_client::{Address, ClientError, TimingClient};

use crate::console::{say, with_causes};
use crate::exit;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, Subcommand)]
enum Act {
    /// Run the daemon: an emulated receiver shared among any number of clients
    Serve(serve::Options),
    /// Print the timing messages of an event ID and mask as they are executed
    Snoop(snoop::Options),
    /// Inject one timing message; takes no sink
    Inject(control::InjectOptions),
    /// Print the state of the daemon
    Status(control::StatusOptions),
    /// List, add and remove conditions of outputs and buses
    Cond(control::ConditionOptions),
    /// Give a lease of conditions more time, or end it
    Lease(lease::Options),
    /// List inputs and outputs, drive outputs, set up inputs
    Io(io::Options),
    /// Print the receiver's clock; inject faults into the emulated one
    Clock(clock::Options),
    /// Play a schedule file: `eventID param time` per line
    Dm(control::ScheduleOptions),
    /// Design waveforms; feed, arm and abort the function generators
    Fg(generator::Options),
    /// Measure from deadline to client beside what the machine does
    Latency(latency::Options),
    /// Compare messages sent with messages received
    Audit(audit::Options),
    /// Stop, kill and flood clients and see that nobody else notices
    Soak(soak::Options),
}

/// Where the daemon is.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Daemon {
    /// Path of the daemon's socket, `session`, `system` or `bus:ADDRESS`; without it, what
    /// LIVETIME_TIMING says, else this user's socket
    #[arg(long, value_name = "ADDRESS", global = true)]
    daemon: Option<Address>,
}

impl Daemon {
    fn address(&self) -> Address {
        self.daemon.clone().unwrap_or_else(Address::usual)
    }

    fn connect(&self) -> Result<TimingClient, ClientError> {
        TimingClient::connect(&self.address())
    }
}

/// How urgent the threads are that handle records.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Urgency {
    /// Real-time priority to ask for, 1 to 99
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    fifo: Option<u8>,
}

impl Urgency {
    /// Asks for it, for this thread. A refusal is said and no error.
    fn apply(&self) {
        if let Some(Err(error)) = self.fifo.map(livetime_shm::request_fifo) {
            say(format_args!(
                "warning: {error}; give the program the right with `setcap cap_sys_nice+ep`, or raise the limit with `ulimit -r`"
            ));
        }
    }

    /// Says whether the threads that will ask for it are refused it; this one stays as it is.
    fn try_out(&self) {
        if self.fifo.is_none() {
            return;
        }
        std::thread::scope(|scope| {
            // Whoever has no thread for this has none for what is to come, and says so.
            let _none = std::thread::Builder::new().spawn_scoped(scope, || self.apply());
        });
    }
}

/// Why an act failed: a text for the user.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(with_causes(&error))
    }
}

impl Failure {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// Runs one act.
pub(crate) fn run(options: &Options) -> ExitCode {
    let done = match &options.act {
        Act::Serve(options) => serve::run(options),
        Act::Snoop(options) => snoop::run(options),
        Act::Inject(options) => control::inject(options),
        Act::Status(options) => control::status(options),
        Act::Cond(options) => control::conditions(options),
        Act::Lease(options) => lease::run(options),
        Act::Io(options) => io::run(options),
        Act::Clock(options) => clock::run(options),
        Act::Dm(options) => control::schedule(options),
        Act::Fg(options) => generator::run(options),
        Act::Latency(options) => latency::run(options),
        Act::Audit(options) => audit::run(options),
        Act::Soak(options) => soak::run(options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(text)) => {
            // A problem with a code begins with the word itself.
            let word = if text.starts_with("error[") {
                ""
            } else {
                "error: "
            };
            say(format_args!("{word}{text}"));
            exit::PROBLEM
        }
    }
}

/// Reads a hexadecimal number, with or without `0x`.
fn hex(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map_err(|_| format!("`{text}` is no hexadecimal number of up to 64 bits"))
}
