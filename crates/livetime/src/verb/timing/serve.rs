//! `livetime timing serve`: the daemon in the foreground, until it is told to end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use livetime_client::Address;
use livetime_shm::allowed_cpus;
use livetime_shm::plain_file::{self, TEXT_BYTES_MAX};
use livetime_timing_daemon::bus::listener::BusChoice;
use livetime_timing_daemon::{AccessRules, CoreWait, Daemon, DaemonConfig};
use livetime_wire::TaiNs;

use super::{Failure, Urgency};
use crate::console::{print_line, say};
use crate::ending_signal::ending_signals;
use crate::output_place;

/// Options of the act.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Socket for clients; without it, this user's socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Also serve on a bus: `session`, `system` or its address; twice for two priorities
    #[arg(long, value_name = "BUS")]
    bus: Vec<String>,
    /// Who may what: a file with lines like `user 1000 operate`
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Keep conditions and sinks that were given up in this file, across starts of the daemon
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// A virtual clock that stands at this time [TAI ns] until a client advances it
    #[arg(long = "virtual", value_name = "TIME")]
    virtual_start: Option<u64>,
    /// Number of outputs
    #[arg(long, default_value_t = 3)]
    outputs: u16,
    /// Number of inputs
    #[arg(long, default_value_t = 2)]
    inputs: u16,
    /// Number of function generators, 1 to 64
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u8).range(1..=64))]
    generators: u8,
    /// Core of the machine for the receiver's worker
    #[arg(long)]
    cpu: Option<usize>,
    #[command(flatten)]
    urgency: Urgency,
    /// Never sleep: the lowest latency, and a core that does nothing else
    #[arg(long)]
    spin: bool,
    /// Lock the memory of the daemon, so that nothing is paged out
    #[arg(long)]
    lock_memory: bool,
}

/// How often a signal is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Serves.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in ending_signals() {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let config = daemon_config(options)?;
    if options.lock_memory
        && let Err(error) = livetime_shm::lock_memory()
    {
        say(format_args!(
            "warning: {error}; raise the limit with `ulimit -l`"
        ));
    }
    options.urgency.try_out();
    let mut daemon = Daemon::start(&config)?;
    let clock = daemon.injector().clock().source();
    if let Some(socket) = &config.socket {
        // The first line on standard output says that clients can come.
        print_line(format_args!("ready {}", socket.display()))?;
    }
    say(format_args!(
        "livetime timing {}: epoch {}, clock {}, {} generators; Ctrl-C ends it",
        env!("CARGO_PKG_VERSION"),
        daemon.control().epoch(),
        clock.name(),
        config.generators
    ));
    let mut is_kept = true;
    while !stop.load(Ordering::SeqCst) && !daemon.wait_quit(LOOK) {
        say_if_not_kept(daemon.control().kept_error(), &mut is_kept);
        for bus in daemon.take_lost_buses() {
            say(format_args!(
                "warning: {bus} has gone away, and its clients with it; clients at the socket are served \
                 on, and to be on a bus again the daemon is to be started anew"
            ));
        }
    }
    daemon.stop()?;
    // It was tried once more at the end.
    match daemon.control().kept_error() {
        None => Ok(()),
        Some(error) => Err(Failure::new(format!(
            "{error}; what has changed since it was written last is lost"
        ))),
    }
}

/// Says when the state file cannot be written, and when it is written again.
fn say_if_not_kept(error: Option<String>, was_kept: &mut bool) {
    match (std::mem::replace(was_kept, error.is_none()), error) {
        (true, Some(error)) => say(format_args!("warning: {error}; it is tried again")),
        (false, None) => say("the state file is written again"),
        _ => {}
    }
}

fn daemon_config(options: &Options) -> Result<DaemonConfig, Failure> {
    let uid = rustix::process::getuid().as_raw();
    let mut config = DaemonConfig::for_user(uid);
    if let Some(path) = &options.rules {
        let text = plain_file::read_text(path, TEXT_BYTES_MAX)
            .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))?;
        config.rules = AccessRules::parse(&text)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    config.socket = Some(options.socket.clone().unwrap_or_else(Address::usual_socket));
    config.buses = options.bus.iter().map(|bus| bus_choice(bus)).collect();
    config.virtual_start = options.virtual_start.map(TaiNs);
    if let Some(path) = &options.keep {
        output_place::check(path).map_err(Failure::new)?;
    }
    config.state_file = options.keep.clone();
    config.outputs = options.outputs;
    config.inputs = options.inputs;
    config.generators = options.generators;
    let allowed = allowed_cpus();
    if let Some(cpu) = options.cpu.filter(|cpu| !allowed.contains(cpu)) {
        let text = format!("--cpu {cpu}: this process may use the cores {allowed:?}");
        return Err(Failure::new(text));
    }
    config.core.cpu = options.cpu;
    config.core.fifo_priority = options.urgency.fifo;
    if options.spin {
        config.core.wait = CoreWait::Spin;
    }
    // Seconds since 1970 fit until 2106. The daemon takes a larger one where its last start had this.
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    config.epoch = u32::try_from(seconds).unwrap_or(u32::MAX);
    Ok(config)
}

fn bus_choice(text: &str) -> BusChoice {
    match text {
        "session" => BusChoice::Session,
        "system" => BusChoice::System,
        address => BusChoice::Address(address.to_owned()),
    }
}
