//! `livetime host NAME`: one host of a run, which starts its roles and makes what they share.
//!
//! Started by `livetime run` for each `[[host]]` of a configuration, here or by the command of its
//! launcher. It connects to the coordinator, is told everything else by it, and ends with it. What
//! it does is in `livetime_node::process::host_agent`, how it is reached in `livetime_control`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clap::Parser;
use livetime_control::HostHello;
use livetime_control::session::{CoordinatorSaid, HostSession};
use livetime_node::ChainConfig;
use livetime_node::process::host_agent::RoleCommandOf;
use livetime_node::process::host_document::HostReport;
use livetime_node::process::{HOST_PROTOCOL, HostAgent, Preparation, interface_mtu};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use crate::console::say;
use crate::ending_signal::ending_signals;
use crate::exit;
use crate::filter_of_run;
use crate::host_folder::HostFolder;
use crate::run_hosts::random_number;
use crate::verb::role::{VERSION, chain_of, reads_events, role_command};
use crate::verb::run::SourceOptions;

/// Time between two reports of counters.
const LOOK: Duration = Duration::from_millis(20);
/// How long a host goes on without its coordinator.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(30);
/// How long a host that is refused stays.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// Orders on their way.
const ORDERS_MAX: usize = 4096;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Name of the host in the configuration
    name: String,
    /// Address and port of the coordinator
    #[arg(long, value_name = "ADDRESS")]
    connect: String,
    /// What names the run
    #[arg(long)]
    key: String,
    /// Address at which other hosts reach this one
    #[arg(long)]
    address: IpAddr,
}

/// The options of a run, as the coordinator passes them on.
#[derive(Debug, Parser)]
struct PassedOptions {
    #[command(flatten)]
    source: SourceOptions,
}

/// Serves the host.
pub(crate) fn run(options: &Options) -> ExitCode {
    match serve(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("error: host {}: {error}", options.name));
            exit::PROBLEM
        }
    }
}

fn serve(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let folder = HostFolder::path_of(&options.key, &options.name);
    let config = folder.join("config.toml");
    let session: Arc<OnceLock<HostSession>> = Arc::default();
    let reports = Arc::clone(&session);
    let send = move |report: &HostReport| {
        if let Some(session) = reports.get() {
            // A coordinator that cannot be told is gone, which its token says.
            let _gone = match report.is_state() {
                true => session.report_state(&report.to_bytes()),
                false => session.report(&report.to_bytes()),
            };
        }
    };
    let name = options.name.clone();
    let mut agent = HostAgent::new(
        &options.name,
        &options.key,
        options.address,
        Box::new(move |preparation| read(&name, &config, preparation)),
        Box::new(send),
    )
    .map_err(|error| {
        let address = options.address;
        format!("cannot accept streams at {address}, its `address`: {error}")
    })?;
    let hello = HostHello {
        host: options.name.clone(),
        life: random_number()?,
        version: VERSION.to_owned(),
        protocol: HOST_PROTOCOL,
        streams_at: agent.streams_at().to_string(),
        process: std::process::id(),
        // Not known, it is not compared.
        mtu: interface_mtu(options.address).ok().flatten().unwrap_or(0),
    };
    let (tell, heard) = sync_channel(ORDERS_MAX);
    let opened = HostSession::open(&options.connect, &options.key, &hello, &tell)?;
    // Before there is anything that a death by a signal would leave behind, and not before the session
    // is there: whoever ends a host that still looks for its coordinator has not to wait for that.
    let mut signals = Signals::new(ending_signals())?;
    let folder = HostFolder::create(folder)?;
    // The only call.
    let _first = session.set(opened);
    let ended = follow(&mut agent, &heard, &mut signals);
    // Before the session, which takes its time to close when the coordinator cannot be reached.
    drop(agent);
    drop(folder);
    ended
}

/// Does what is ordered until it is told to quit, or the coordinator is gone for long.
///
/// # Errors
/// A signal that has ended it, or orders that did not come: the coordinator takes it for a host that has
/// failed. Or the coordinator has refused it.
fn follow(
    agent: &mut HostAgent,
    heard: &Receiver<CoordinatorSaid>,
    signals: &mut Signals,
) -> Result<(), Box<dyn std::error::Error>> {
    // Until the coordinator is seen, which may have gone before it could be.
    let mut alone_since = Some(Instant::now());
    let mut look_due = Instant::now();
    loop {
        let left = look_due.saturating_duration_since(Instant::now());
        match heard.recv_timeout(left) {
            Ok(CoordinatorSaid::Order(order)) => {
                if let ControlFlow::Break(end) = agent.handle_order(&order) {
                    return end.map_err(|reason| {
                        // A launcher that starts it again is not to do so many times a second.
                        std::thread::sleep(REFUSED_PAUSE);
                        format!("refused by the run: {reason}").into()
                    });
                }
            }
            Ok(CoordinatorSaid::Gap) => {
                let reason = "orders of the coordinator were lost, and its roles with them";
                agent.leave(reason);
                return Err(reason.into());
            }
            Ok(CoordinatorSaid::Token(is_there)) => {
                alone_since = (!is_there).then(Instant::now);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        if let Some(signal) = signals.pending().next() {
            let name = signal_name(signal).unwrap_or("a signal");
            let reason = format!("ended by {name}, and its roles with it");
            agent.leave(&reason);
            return Err(reason.into());
        }
        if Instant::now() >= look_due {
            look_due = Instant::now() + LOOK;
            agent.look();
        }
        if alone_since.is_some_and(|since: Instant| since.elapsed() >= ORPHAN_PATIENCE) {
            say("the coordinator is gone: the roles of this host end");
            return Ok(());
        }
    }
}

/// Reads the run that the coordinator described to the host of this name.
fn read(
    name: &str,
    config: &Path,
    preparation: &Preparation,
) -> Result<(ChainConfig, RoleCommandOf), String> {
    let write = |file: &Path, bytes: &[u8]| {
        std::fs::write(file, bytes).map_err(|error| format!("{}: {error}", file.display()))
    };
    write(config, preparation.config.as_bytes())?;
    let kept_filter = config.with_file_name(filter_of_run::FILE);
    if let Some(filter) = &preparation.filter {
        write(&kept_filter, filter)?;
    }
    // As the coordinator does, and so will the roles. A host that has no such folder stays where its
    // launcher has started it: most configurations name no file.
    let folder = &preparation.folder;
    let is_there = std::env::set_current_dir(folder).is_ok();
    let mut arguments = vec![config.display().to_string()];
    arguments.extend(preparation.arguments.iter().cloned());
    let options = std::iter::once("host".to_owned()).chain(arguments.iter().cloned());
    let options = PassedOptions::try_parse_from(options).map_err(|error| error.to_string())?;
    let mut placed = preparation.placement.iter();
    let has_source = placed.any(|(role, host)| host == name && reads_events(role));
    let read = chain_of(&options.source, has_source);
    let (_, chain, _) = read.map_err(|error| match is_there {
        true => error,
        false => format!(
            "{}\nhelp: relative paths begin in {folder}, which this host has not",
            error.trim_end()
        ),
    })?;
    let arguments = arguments.into_iter().map(OsString::from).collect();
    let kept_filter = preparation.filter.is_some().then_some(kept_filter);
    let command = role_command(arguments, kept_filter).map_err(|error| error.to_string())?;
    Ok((chain, Box::new(command)))
}
