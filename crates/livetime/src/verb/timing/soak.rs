//! `livetime timing soak`: what clients do to each other, and generators at the edge.
//!
//! Each soak starts a daemon of its own in this process and clients as processes of their own, and
//! ends with PASS or FAIL and the figures: everything is counted at both ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Subcommand;
use livetime_client::{EventId, Filter, TaiNs, TimingMessage};
use livetime_shm::{continue_process, stop_process};
use livetime_timing::function_generator::{GeneratorConfig, MasterFunctionGenerator, MasterOutput};
use livetime_timing_daemon::{Daemon, DaemonConfig};
use livetime_wire::timing_coefficient::CoefficientSet;
use serde_json::{Value, json};

use super::Failure;
use crate::console::{print_line, say};

/// Options of the act.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    soak: Soak,
    /// Print one JSON document (livetime.timing_soak/1)
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Soak {
    /// One client of eight is stopped; all must account for every message, the others gapless
    Stop {
        /// Messages
        #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
        messages: u64,
        /// Messages per second; 0 is as fast as it goes, where gaps are allowed but counted
        #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
        rate: u64,
        /// Clients: one to be stopped, and others to be watched
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=CLIENTS_MOST))]
        clients: u16,
    },
    /// Clients connect, subscribe and are killed; nothing of them may stay
    Churn {
        /// Clients, one after the other
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
        cycles: u32,
    },
    /// Twelve generators stop at the same nanosecond and are armed again at once
    Stops {
        /// Times
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
        cycles: u32,
    },
}

/// Clients that a daemon has room for beside others.
const CLIENTS_MOST: i64 = 256;
const GROUP: u16 = 0xFAF;
const LAST_NUMBER: u16 = 0xFFF;
const START_NS: u64 = 50_000_000;
/// Everything that stands still has an end.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Soaks.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let (name, (passed, figures)) = match options.soak {
        Soak::Stop {
            messages,
            rate,
            clients,
        } => ("stop", soak_stop(messages, rate, clients.into())?),
        Soak::Churn { cycles } => ("churn", soak_churn(cycles)?),
        Soak::Stops { cycles } => ("stops", soak_stops(cycles)?),
    };
    if options.json {
        print_line(json!({
            "schema": "livetime.timing_soak/1",
            "soak": name,
            "passed": passed,
            "figures": figures,
        }))?;
    } else {
        print_line(format_args!(
            "{} {name}: {figures}",
            if passed { "PASS" } else { "FAIL" }
        ))?;
    }
    match passed {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "soak {name} failed; its figures are above"
        ))),
    }
}

/// A daemon of this process at a socket in a folder that goes with it.
struct OwnDaemon {
    daemon: Daemon,
    socket: PathBuf,
    folder: PathBuf,
}

impl OwnDaemon {
    fn start() -> Result<Self, Failure> {
        let uid = rustix::process::getuid().as_raw();
        let folder = std::env::temp_dir().join(format!("livetime-soak-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let socket = folder.join("timing.sock");
        let mut config = DaemonConfig::for_user(uid);
        config.socket = Some(socket.clone());
        let daemon = Daemon::start(&config)?;
        Ok(Self {
            daemon,
            socket,
            folder,
        })
    }
}

impl Drop for OwnDaemon {
    fn drop(&mut self) {
        // What stays is a folder in the temporary directory.
        let _ = self.daemon.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A client process that prints `listening`, and a summary at its end.
struct Listening {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        // It has ended, or is not wanted any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Listening {
    fn start(socket: &Path, filter: &Filter, until: u64) -> Result<Self, Failure> {
        let hex = |value: u64| format!("{value:x}");
        let mut child = Command::new(std::env::current_exe()?)
            .args(["timing", "snoop", &hex(filter.id), &hex(filter.mask)])
            .args(["--until", &hex(until), "--summary", "--daemon"])
            .arg(socket)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().map(BufReader::new);
        let output = output.ok_or_else(|| Failure::new("a client without an output"))?;
        let mut listening = Self { child, output };
        let line = listening.line()?;
        if line.trim() != "listening" {
            return Err(Failure::new(format!("a client says `{line}`")));
        }
        Ok(listening)
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    fn summary(mut self) -> Result<Value, Failure> {
        Ok(serde_json::from_str(&self.line()?)?)
    }
}

fn soak_stop(messages: u64, rate: u64, clients: usize) -> Result<(bool, Value), Failure> {
    let own = OwnDaemon::start()?;
    let filter = Filter::group(GROUP);
    let last = Filter::number(GROUP, LAST_NUMBER).id;
    let mut listening: Vec<Listening> = (0..clients)
        .map(|_| Listening::start(&own.socket, &filter, last))
        .collect::<Result<_, _>>()?;
    let stopped = listening[0].child.id();
    stop_process(stopped)?;
    send_all(&own.daemon, &filter, last, messages, rate)?;
    let sent = messages + 1;
    // The others must come to their end while the stopped one does nothing.
    let others: Vec<Value> = listening
        .drain(1..)
        .map(Listening::summary)
        .collect::<Result<_, _>>()?;
    continue_process(stopped)?;
    let first = listening.pop().ok_or_else(|| Failure::new("no client"))?;
    let first = first.summary()?;
    let accounted = |summary: &Value| {
        summary["received"].as_u64().unwrap_or(0) + summary["lost"].as_u64().unwrap_or(0)
    };
    let all = others
        .iter()
        .chain([&first])
        .all(|summary| accounted(summary) == sent);
    let gapless = others.iter().all(|summary| summary["gaps"] == 0);
    let passed = all && (gapless || rate == 0);
    let figures = json!({
        "sent": sent,
        "rate_hz": rate,
        "clients": clients,
        "stopped": { "received": first["received"], "lost": first["lost"], "gaps": first["gaps"] },
        "others": others
            .iter()
            .map(|summary| json!({
                "received": summary["received"], "lost": summary["lost"], "gaps": summary["gaps"],
            }))
            .collect::<Vec<_>>(),
        "all_accounted_for": all,
        "others_gapless": gapless,
    });
    Ok((passed, figures))
}

/// Sends counted messages and a last one, at a rate or as fast as the daemon takes them.
fn send_all(
    daemon: &Daemon,
    filter: &Filter,
    last: u64,
    messages: u64,
    rate: u64,
) -> Result<(), Failure> {
    let injector = daemon.injector();
    let period_ns = 1_000_000_000_u64.checked_div(rate).unwrap_or(0);
    let start = injector.clock().now().0 + START_NS;
    let message = |n: u64| {
        let id = if n == messages { last } else { filter.id };
        // As fast as it goes: due almost at once, so that the channel's queue never fills.
        let time = match rate {
            0 => injector.clock().now().0 + 10_000,
            _ => start + n * period_ns,
        };
        TimingMessage::new(EventId(id), n, TaiNs(time))
    };
    let (mut moved, mut next) = (Instant::now(), 0);
    while next <= messages {
        if moved.elapsed() > PATIENCE {
            return Err(Failure::new("the daemon takes no more messages"));
        }
        // Not more than 10 ms ahead of the time, so that the queue of the channel never fills.
        let now = injector.clock().now().0;
        let until = if rate == 0 {
            next + 256
        } else {
            (now + 10 * START_NS / 50).saturating_sub(start) / period_ns.max(1)
        };
        let batch: Vec<TimingMessage> = (next..until.min(messages + 1)).map(message).collect();
        let taken = injector.inject(&batch) as u64;
        next += taken;
        if taken > 0 {
            moved = Instant::now();
        }
        if taken == 0 || rate != 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// What a process holds: descriptors, resident memory \[KiB\].
fn holdings() -> Result<(usize, u64), Failure> {
    let descriptors = std::fs::read_dir("/proc/self/fd")?.count();
    let status = std::fs::read_to_string("/proc/self/status")?;
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|line| line.split_whitespace().next()?.parse().ok());
    Ok((descriptors, resident.unwrap_or(0)))
}

fn soak_churn(cycles: u32) -> Result<(bool, Value), Failure> {
    let own = OwnDaemon::start()?;
    let control = own.daemon.control();
    let objects = || control.read(|r| r.sinks().count() + r.conditions().count());
    let filter = Filter::group(GROUP);
    let cycle = || -> Result<(), Failure> {
        let listening = Listening::start(&own.socket, &filter, 1)?;
        drop(listening);
        let start = Instant::now();
        while !control.clients().is_empty() || own.daemon.connections() > 0 {
            if start.elapsed() > PATIENCE {
                return Err(Failure::new("a killed client is still a client"));
            }
            std::thread::sleep(LOOK);
        }
        // With the answer comes back, and is freed, what the core held of the client.
        control.fresh_figures()?;
        Ok(())
    };
    // The first ones fill what is kept for later: stacks, allocator, threads of the run time.
    for _ in 0..cycles.min(20) {
        cycle()?;
    }
    let before = (holdings()?, objects());
    for done in 0..cycles {
        cycle()?;
        if done % 1_000 == 999 {
            say(format_args!(
                "{} of {cycles} clients came and were killed",
                done + 1
            ));
        }
    }
    let after = (holdings()?, objects());
    let subscriptions = control.subscriptions().len();
    // Resident memory moves by pages of the allocator; a leak would grow with the cycles.
    let leak_kib_max = 2_048;
    let grown = after.0.1.saturating_sub(before.0.1);
    let passed = after.0.0 <= before.0.0
        && after.1 == before.1
        && grown <= leak_kib_max
        && subscriptions == 0;
    let figures = json!({
        "cycles": cycles,
        "descriptors": { "before": before.0.0, "after": after.0.0 },
        "resident_kib": { "before": before.0.1, "after": after.0.1 },
        "objects": { "before": before.1, "after": after.1 },
        "subscriptions": subscriptions,
    });
    Ok((passed, figures))
}

/// Twelve generators with one short segment each, on a virtual clock.
fn soak_stops(cycles: u32) -> Result<(bool, Value), Failure> {
    const MEMBERS: usize = 12;
    const TAG: u32 = 7;
    let set = CoefficientSet {
        frequency: 7,
        ..CoefficientSet::default()
    };
    let mut master = MasterFunctionGenerator::new(MEMBERS, GeneratorConfig::default());
    let mut now = TaiNs(1_000_000_000);
    master.set_start_tag(TAG)?;
    let sets = [set];
    let channels = [&sets[..]; MEMBERS];
    let (mut stopped, mut refused, mut underflows, mut disagreements) = (0u64, 0u64, 0u64, 0u64);
    for _ in 0..cycles {
        let armed = master.append(now, &channels).and_then(|_| master.arm(now));
        if armed.is_err() {
            refused += 1;
            continue;
        }
        let mut started = false;
        let mut done = false;
        // Bounded: arming, running and stopping are a handful of steps each.
        for _ in 0..10_000 {
            while let Some(output) = master.poll_output(now) {
                match output {
                    MasterOutput::AllArmed => {
                        started =
                            master.handle_start_tag(now, TAG).count_ones() as usize == MEMBERS;
                    }
                    MasterOutput::AllStopped { underflow, .. } => {
                        done = true;
                        stopped += 1;
                        underflows += u64::from(underflow != 0);
                    }
                    _ => {}
                }
            }
            if done {
                break;
            }
            let next = master.poll_timeout().unwrap_or(TaiNs(now.0 + 1_000));
            now = TaiNs(next.0.max(now.0 + 1));
        }
        let disabled = master
            .members()
            .iter()
            .all(|member| member.state().key() == "disabled" && member.queued() == 0);
        disagreements += u64::from(!(started && done && disabled));
    }
    let passed = refused == 0 && disagreements == 0 && stopped == u64::from(cycles);
    let figures = json!({
        "cycles": cycles,
        "generators": MEMBERS,
        "all_stopped": stopped,
        "refused": refused,
        "underflows": underflows,
        "disagreements": disagreements,
    });
    Ok((passed, figures))
}
