//! `livetime sim plan`: which networks and protocols carry an event builder, with margins.
//!
//! The search is `livetime_fabric::plan`; here its answer becomes a table or a document.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use livetime_fabric::DurationPs;
use livetime_fabric::builder_network::{Control, HostModel, Shaping};
use livetime_fabric::network::SizeLaw;
use livetime_fabric::plan::{
    Bottleneck, EVENTS_USUAL, NetworkKind, PlanOption, PlanRequest, PlanRun, Protocol, Verdict,
};
use livetime_fabric::replica::run_all;
use livetime_shm::plain_file::{self, TEXT_BYTES_MAX};
use livetime_wire::{BitRate, ByteSize, DurationNs, RateHz};
use serde_json::{Value, json};

use super::parse_threads;
use super::plan_progress::PlanProgress;
use super::rate_words::{RATE_DIGITS, rate_words};
use crate::config::{BUS_ALLOWED, BUS_RATES, parse_bit_rate, parse_quantity};
use crate::console::{print, print_line, say};
use crate::exit;

/// Bytes of a block where nobody asks for another, and packets are no smaller.
const BLOCK_USUAL: u32 = 4 << 10;

/// The last of the loads in words.
const LINKS_WITH_ADAPTERS: &str = "links of the sources with their adapters";

/// Options of the verb.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("of_fragments").required(true).args(["fragment", "sizes"])))]
pub(crate) struct Options {
    /// Sources (readout units)
    #[arg(long, value_name = "N")]
    sources: u32,
    /// Builders; as many as sources without it
    #[arg(long, value_name = "N")]
    builders: Option<u32>,
    /// Mean size of a fragment, such as "2 KiB"
    #[arg(long, value_name = "SIZE", value_parser = parse_quantity::<ByteSize>)]
    fragment: Option<ByteSize>,
    /// Law of the sizes; log-normal where there is --rms, else fixed
    #[arg(long, conflicts_with = "sizes")]
    law: Option<LawOption>,
    /// Standard deviation of log-normal sizes; the mean without it
    #[arg(long, value_name = "SIZE", value_parser = parse_quantity::<ByteSize>,
          conflicts_with = "sizes")]
    rms: Option<ByteSize>,
    /// A list of sizes instead of a law: a file with a size in bytes on each line
    #[arg(long, value_name = "FILE")]
    sizes: Option<PathBuf>,
    /// Rate of triggers, such as 100kHz
    #[arg(long, value_parser = parse_quantity::<RateHz>)]
    rate: RateHz,
    /// Rate of a node's link, such as "100 Gb/s"
    #[arg(long, value_name = "RATE", value_parser = parse_bit_rate)]
    link: u64,
    /// Bytes on the link for each packet besides its size
    #[arg(long, value_name = "SIZE", default_value = "0 B", value_parser = parse_quantity::<ByteSize>)]
    overhead: ByteSize,
    /// Largest packet, besides its overhead: larger fragments go in several [default: any size]
    #[arg(long, value_name = "SIZE", value_parser = parse_quantity::<ByteSize>)]
    mtu: Option<ByteSize>,
    /// Time of a header for an element and the cable behind it
    #[arg(long, value_name = "TIME", default_value = "0 ns", value_parser = parse_hop_delay)]
    hop_delay: DurationNs,
    /// Buffer of each port, where the elements have buffers
    #[arg(long, value_name = "SIZE", default_value = "1 MiB", value_parser = parse_quantity::<ByteSize>)]
    buffer: ByteSize,
    /// Block of the barrel shifter, and phase of the linear shift [default: 4 KiB, or a packet of
    /// --mtu where that is less]
    #[arg(long, value_name = "SIZE", value_parser = parse_quantity::<ByteSize>)]
    block: Option<ByteSize>,
    #[command(flatten)]
    hosts: HostOptions,
    /// Look at this kind of network only; may be given several times
    #[arg(long, value_name = "KIND")]
    network: Vec<NetworkOption>,
    /// Look at this protocol only; may be given several times
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Vec<ProtocolOption>,
    /// Events that a judged run is long enough for, to some percent; more take longer and show more
    #[arg(long, value_name = "N", default_value_t = EVENTS_USUAL)]
    events: u64,
    /// Seed of the simulations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads that simulate options side by side; results do not depend on it [default: all cores]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
    /// Print one JSON document (livetime.plan/2) on standard output
    #[arg(long)]
    json: bool,
}

/// Longest time of an element and a cable: that of one of a drawn topology. Beyond it no event would end.
const HOP_DELAY_MAX: DurationNs = DurationNs::SECOND;

fn parse_hop_delay(text: &str) -> Result<DurationNs, String> {
    let delay: DurationNs = parse_quantity(text)?;
    match delay <= HOP_DELAY_MAX {
        true => Ok(delay),
        false => Err(format!("{delay}; write a time of at most {HOP_DELAY_MAX}")),
    }
}

/// What hosts take time for: the keys of `[host]` of a scenario, and its control network.
#[derive(Debug, clap::Args)]
struct HostOptions {
    /// Processor time for a control message, sent or received
    #[arg(long, value_name = "TIME", default_value = "2 us", value_parser = parse_quantity::<DurationNs>)]
    host_message: DurationNs,
    /// Processor time of a builder unit for a fragment
    #[arg(long, value_name = "TIME", default_value = "0 ns", value_parser = parse_quantity::<DurationNs>)]
    host_fragment: DurationNs,
    /// Time of an adapter for a packet or block beside its transfer
    #[arg(long, value_name = "TIME", default_value = "0 ns", value_parser = parse_quantity::<DurationNs>)]
    host_packet: DurationNs,
    /// Time of the filter behind a builder unit for an event
    #[arg(long, value_name = "TIME", default_value = "100 us", value_parser = parse_quantity::<DurationNs>)]
    host_event: DurationNs,
    /// Rate of the bus between memory and adapter; never busy without it
    #[arg(long, value_name = "RATE", value_parser = parse_bit_rate)]
    host_bus: Option<u64>,
    /// Rate of a host's link to the control network
    #[arg(long, value_name = "RATE", default_value = "1 Gb/s", value_parser = parse_bit_rate)]
    control_rate: u64,
    /// Time of a message from host to host on the control network
    #[arg(long, value_name = "TIME", default_value = "10 us", value_parser = parse_quantity::<DurationNs>)]
    control_latency: DurationNs,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum LawOption {
    /// All alike
    Fixed,
    /// Exponential
    Exponential,
    /// Log-normal
    LogNormal,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum NetworkOption {
    /// One switch
    Crossbar,
    /// Edges and cores
    TwoLevel,
    /// A delta network
    Delta,
    /// Four layers
    FourLayer,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ProtocolOption {
    /// Fragments as they are asked for
    Pull,
    /// Fragments that are sent unasked
    Push,
    /// Blocks of equal size to one builder unit after the other
    BarrelShifter,
    /// Whole fragments to one builder unit after the other
    LinearShift,
}

/// Plans.
pub(crate) fn run(options: &Options) -> ExitCode {
    let request = match to_request(options) {
        Ok(request) => request,
        Err(problem) => {
            say(format_args!("error: {problem}"));
            return ExitCode::from(2);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or(cores);
    let mut found = simulate(&request, threads);
    found.sort_by(|a, b| {
        let order = rank(&a.verdict).cmp(&rank(&b.verdict));
        order.then(least_margin(b).total_cmp(&least_margin(a)))
    });
    let printed = if options.json {
        print_line(to_json(&request, &found))
    } else {
        print(to_text(&request, &found))
    };
    match exit::after_printing(printed) {
        ExitCode::SUCCESS if !found.iter().any(PlanOption::holds) => exit::PROBLEM,
        code => code,
    }
}

/// The answers of those options that exist; says how far it is.
fn simulate(request: &PlanRequest, threads: usize) -> Vec<PlanOption> {
    let all = request.options();
    let threads = threads.min(all.max(1));
    say(format_args!(
        "simulating {all} options on {threads} threads · seed {} · livetime {}",
        request.seed,
        env!("CARGO_PKG_VERSION")
    ));
    let progress = PlanProgress::new(all, Instant::now());
    let hear = |run: &PlanRun<'_>| {
        if let Some(line) = progress.begun(run, Instant::now()) {
            say(line);
        }
    };
    let told = request.jobs(&hear).into_iter().map(|job| {
        || {
            let option = job();
            if let Some(line) = progress.through(option.as_ref(), Instant::now()) {
                say(line);
            }
            option
        }
    });
    let found = run_all(told.collect(), threads, |_| {});
    let found: Vec<PlanOption> = found.into_iter().flatten().collect();
    if found.len() < all {
        say(format_args!(
            "{} of them are left out: their network has no such way of sending",
            all - found.len()
        ));
    }
    found
}

/// Those that hold first, those that fail last.
const fn rank(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Holds => 0,
        Verdict::NotShown(_) => 1,
        Verdict::Fails => 2,
    }
}

fn to_request(options: &Options) -> Result<PlanRequest, String> {
    let hosts = &options.hosts;
    let kind = |network: &NetworkOption| match network {
        NetworkOption::Crossbar => NetworkKind::Crossbar,
        NetworkOption::TwoLevel => NetworkKind::TwoLevel,
        NetworkOption::Delta => NetworkKind::Delta,
        NetworkOption::FourLayer => NetworkKind::FourLayer,
    };
    let protocol = |protocol: &ProtocolOption| match protocol {
        ProtocolOption::Pull => Protocol::Pull,
        ProtocolOption::Push => Protocol::Push,
        ProtocolOption::BarrelShifter => Protocol::BarrelShifter,
        ProtocolOption::LinearShift => Protocol::LinearShift,
    };
    if options.mtu == Some(ByteSize(0)) {
        return Err(
            "--mtu of 0 B, allowed are 512 B to 1 MiB; leave it out for any size".to_owned(),
        );
    }
    if let Some(rate) = hosts.host_bus.filter(|rate| !BUS_RATES.contains(rate)) {
        let found = BitRate(rate);
        return Err(format!(
            "--host-bus of {found}, allowed are {BUS_ALLOWED}; leave it out for one that is never busy"
        ));
    }
    let mtu = options.mtu.map_or(0, |mtu| saturated(mtu.0));
    let request = PlanRequest {
        sources: options.sources,
        builders: options.builders.unwrap_or(options.sources),
        sizes: size_law(options)?,
        overhead_bytes: saturated(options.overhead.0),
        mtu,
        rate_hz: options.rate.0,
        link_bits_per_s: options.link,
        hop_delay: DurationPs::from_duration_ns(options.hop_delay),
        buffer_bytes: options.buffer.0,
        block_bytes: match (options.block, mtu) {
            (Some(block), _) => saturated(block.0),
            (None, 1..BLOCK_USUAL) => mtu,
            (None, _) => BLOCK_USUAL,
        },
        hosts: HostModel {
            bus_bytes_per_s: hosts.host_bus.unwrap_or(0) / 8,
            message: DurationPs::from_duration_ns(hosts.host_message),
            fragment: DurationPs::from_duration_ns(hosts.host_fragment),
            packet: DurationPs::from_duration_ns(hosts.host_packet),
            event: DurationPs::from_duration_ns(hosts.host_event),
            interval: DurationPs::ZERO,
        },
        control: Control::Separate {
            bits_per_s: hosts.control_rate,
            latency: DurationPs::from_duration_ns(hosts.control_latency),
        },
        networks: options.network.iter().map(kind).collect(),
        protocols: options.protocol.iter().map(protocol).collect(),
        events: options.events,
        seed: options.seed,
    };
    request.problem().map_or(Ok(request), Err)
}

/// Bytes of a packet or block; more than there can be are found to be too many.
fn saturated(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn size_law(options: &Options) -> Result<SizeLaw, String> {
    if let Some(path) = &options.sizes {
        return size_list(path);
    }
    let mean = options.fragment.unwrap_or(ByteSize(0));
    let default = match options.rms {
        Some(ByteSize(1..)) => LawOption::LogNormal,
        _ => LawOption::Fixed,
    };
    let law = options.law.unwrap_or(default);
    if options.rms.is_some() {
        let law = match law {
            LawOption::Fixed if options.law.is_some() => "a fixed law, which has none",
            LawOption::Exponential => "an exponential law, whose rms is its mean",
            LawOption::Fixed | LawOption::LogNormal => "",
        };
        if !law.is_empty() {
            return Err(format!(
                "--rms with {law}; leave it out, or take `--law log-normal`"
            ));
        }
    }
    Ok(match law {
        LawOption::Fixed => SizeLaw::Fixed(saturated(mean.0)),
        LawOption::Exponential => SizeLaw::Exponential {
            mean: mean.0 as f64,
        },
        LawOption::LogNormal => SizeLaw::LogNormal {
            mean: mean.0 as f64,
            rms: options.rms.unwrap_or(mean).0 as f64,
        },
    })
}

/// The sizes of a file, one in bytes a line; `#` starts a comment.
fn size_list(path: &Path) -> Result<SizeLaw, String> {
    let name = path.display();
    let text = plain_file::read_text_from_any(path, TEXT_BYTES_MAX).map_err(|error| {
        format!("cannot read {name}: {error}; name a file with a size in bytes on each line")
    })?;
    let mut sizes = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let word = line.split('#').next().unwrap_or_default().trim();
        if word.is_empty() {
            continue;
        }
        let size = word.parse().map_err(|_| {
            let line = index + 1;
            format!(
                "{name}, line {line}: `{word}`, allowed is a size in bytes without a unit; correct \
                 the line"
            )
        })?;
        sizes.push(size);
    }
    Ok(SizeLaw::Trace(sizes))
}

fn to_json(request: &PlanRequest, found: &[PlanOption]) -> Value {
    let options: Vec<Value> = found.iter().map(option_json).collect();
    let ways = request.load_ways();
    let first = ways.first().copied().unwrap_or(Shaping::None);
    let (source, builder) = request.link_loads(first);
    let blocks = ways.iter().find(|way| **way != Shaping::None);
    let hosts = &request.hosts;
    let (Control::Separate {
        bits_per_s,
        latency,
    }
    | Control::Shared {
        bits_per_s,
        latency,
    }) = request.control;
    let ns = |time: DurationPs| time.0 as f64 / 1e3;
    json!({
        "schema": "livetime.plan/2",
        "simulated": true,
        "seed": request.seed.to_string(),
        "sources": request.sources,
        "builders": request.builders,
        "rate_hz": request.rate_hz,
        "fragment_bytes_mean": request.sizes.mean(),
        "load_source_link": source,
        "load_builder_link": builder,
        "loads": loads_json(request, first),
        "loads_in_blocks": blocks.map(|way| loads_json(request, *way)),
        "assumptions": {
            "host_message_ns": ns(hosts.message),
            "host_fragment_ns": ns(hosts.fragment),
            "host_packet_ns": ns(hosts.packet),
            "host_event_ns": ns(hosts.event),
            "host_bus_bytes_per_s": match hosts.bus_bytes_per_s {
                0 => Value::Null,
                bytes => json!(bytes),
            },
            "control_bits_per_s": bits_per_s,
            "control_latency_ns": ns(latency),
            "hop_delay_ns": ns(request.hop_delay),
            "overhead_bytes": request.overhead_bytes,
            "mtu_bytes": match request.mtu {
                0 => Value::Null,
                bytes => json!(bytes),
            },
            "buffer_bytes": request.buffer_bytes,
            "block_bytes": request.block_bytes,
        },
        "options": options,
    })
}

/// What the rate loads where fragments are sent so.
fn loads_json(request: &PlanRequest, way: Shaping) -> Value {
    let loads = request.loads(way);
    let mut loads = loads.map(|(what, load)| json!({ "of": what.name(), "load": load }));
    if let Some(both) = loads.last_mut() {
        both["of"] = json!(LINKS_WITH_ADAPTERS);
    }
    json!(loads)
}

fn option_json(option: &PlanOption) -> Value {
    let (verdict, reason) = verdict_words(&option.verdict);
    json!({
        "network": option.network,
        "elements": option.elements,
        "switches": option.sending.switches(),
        "protocol": option.sending.protocol().name(),
        "credits": option.credits,
        "requests_per_message": option.requests_per_message,
        "interval_ns": option.interval.0 as f64 / 1e3,
        "capacity_hz": option.capacity_hz,
        "capacity_reason": option.capacity_reason,
        "margin": option.margin,
        "margin_at_least": option.margin_bounds.map(|[least, _]| least),
        "margin_at_most": option.margin_bounds.map(|[_, most]| most),
        "efficiency": option.efficiency,
        "starts": option.starts,
        "converged": option.event_rate.converged,
        "mean_of_batches_hz": option.event_rate.mean,
        "ci95_hz": option.event_rate.ci95,
        "events": option.events,
        "lost": option.lost,
        "verdict": verdict,
        "reason": reason,
        "bottleneck": option.bottleneck.name(),
        "next_bottleneck": option.next_bottleneck.map(Bottleneck::name),
    })
}

/// The margin that is certain, for the order of options.
fn least_margin(option: &PlanOption) -> f64 {
    let bound = option.margin_bounds.map(|[least, _]| least);
    option.margin.or(bound).unwrap_or(-1.0)
}

/// The margin in words; where it is not known, what it is at least or at most.
pub(super) fn margin_words(option: &PlanOption) -> Option<String> {
    let percent = |margin: f64| format!("{:+.0} %", 100.0 * margin);
    match (option.margin, option.margin_bounds, &option.verdict) {
        (Some(margin), ..) => Some(percent(margin)),
        (None, Some([least, _]), Verdict::Holds) => Some(format!("> {}", percent(least))),
        (None, Some([_, most]), Verdict::Fails) => Some(format!("< {}", percent(most))),
        _ => None,
    }
}

/// The verdict in a word, and why where it needs a reason.
pub(super) fn verdict_words(verdict: &Verdict) -> (&'static str, Option<&str>) {
    match verdict {
        Verdict::Holds => ("holds", None),
        Verdict::Fails => ("fails", None),
        Verdict::NotShown(reason) => ("not shown", Some(reason)),
    }
}

const HEADINGS: [&str; 11] = [
    "network",
    "elements",
    "switches",
    "protocol",
    "credits",
    "per message",
    "interval",
    "capacity",
    "margin",
    "verdict",
    "bottleneck",
];

fn to_text(request: &PlanRequest, found: &[PlanOption]) -> String {
    let mut text = head(request);
    let mut rows: Vec<[String; 11]> = vec![HEADINGS.map(str::to_owned)];
    rows.extend(found.iter().map(row));
    let widths: [usize; 11] = std::array::from_fn(|column| {
        let of = |row: &[String; 11]| row[column].chars().count();
        rows.iter().map(of).max().unwrap_or(0)
    });
    for row in &rows {
        for (cell, width) in row.iter().zip(widths) {
            text += &format!("{cell:<width$}  ");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    if !found.iter().any(PlanOption::holds) {
        text += "nothing is shown to carry this rate: the bottlenecks say what to change\n";
    }
    text
}

/// What the rate loads, a line for each way of sending that is asked for and loads otherwise.
fn load_lines(request: &PlanRequest) -> String {
    let mut lines: Vec<String> = Vec::new();
    for way in request.load_ways() {
        let loads = loads_text(request, way);
        if !lines.iter().any(|line| line.ends_with(&loads)) {
            let words = match lines.len() {
                0 => "load at this rate",
                _ => "load in blocks of the barrel shifter",
            };
            lines.push(format!("\n  {words}:{loads}"));
        }
    }
    lines.concat()
}

/// What the rate loads where fragments are sent so, each after a blank.
fn loads_text(request: &PlanRequest, way: Shaping) -> String {
    let loads = request.loads(way);
    let (_, link) = loads[0];
    let mut shares: Vec<(&str, f64)> = loads.map(|(what, load)| (what.name(), load)).to_vec();
    if let Some(both) = shares.last_mut() {
        both.0 = LINKS_WITH_ADAPTERS;
    }
    // Where a packet costs an adapter no time, its link says it all.
    shares.retain(|(what, load)| {
        *load
            > if *what == LINKS_WITH_ADAPTERS {
                link
            } else {
                0.0
            }
    });
    let texts = shares
        .iter()
        .map(|(what, load)| format!(" {what} {:.1} %", 100.0 * load));
    texts.collect::<Vec<_>>().join(",")
}

/// What was asked for and assumed.
fn head(request: &PlanRequest) -> String {
    let mut text = format!(
        "SIMULATED: {} sources, {} builders, {} of {} each",
        request.sources,
        request.builders,
        rate_words(request.rate_hz, RATE_DIGITS),
        ByteSize(request.sizes.mean().round() as u64),
    );
    text += &load_lines(request);
    let hosts = &request.hosts;
    let (Control::Separate {
        bits_per_s,
        latency,
    }
    | Control::Shared {
        bits_per_s,
        latency,
    }) = request.control;
    let bus = match hosts.bus_bytes_per_s {
        0 => "never busy".to_owned(),
        bytes => format!("{} MB/s", bytes as f64 / 1e6),
    };
    let packets = match request.mtu {
        0 => "any size".to_owned(),
        // To the byte: 1500 is not 1.5 KiB.
        mtu => format!("up to {mtu} B"),
    };
    let blocks = match request.block_bytes {
        bytes if bytes.is_multiple_of(1 << 10) => ByteSize(bytes.into()).to_string(),
        bytes => format!("{bytes} B"),
    };
    text += &format!(
        "\n  assumed: {} for a message, {} for a fragment, {} for a packet, {} for an event, bus \
         {bus}; control network {}, {}; packets of {packets}, blocks of {blocks}, buffers of {}\n",
        rounded(hosts.message),
        rounded(hosts.fragment),
        rounded(hosts.packet),
        rounded(hosts.event),
        BitRate(bits_per_s),
        rounded(latency),
        ByteSize(request.buffer_bytes),
    );
    text
}

/// To whole nanoseconds, in which people read times.
const fn rounded(time: DurationPs) -> DurationNs {
    DurationNs(time.0 / 1_000)
}

fn row(option: &PlanOption) -> [String; 11] {
    let lost = match option.lost {
        0 => String::new(),
        lost => format!(", {lost} packets lost"),
    };
    let next = option.next_bottleneck.map(Bottleneck::name);
    let next = next.map_or_else(String::new, |next| format!(", then {next}"));
    let verdict = match verdict_words(&option.verdict) {
        (word, None) => word.to_owned(),
        (word, Some(reason)) => format!("{word}: {reason}"),
    };
    let dash = || "-".to_owned();
    let capacity = option.capacity_hz;
    let capacity = capacity.map_or_else(dash, |hz| rate_words(hz, RATE_DIGITS));
    [
        option.network.clone(),
        option.elements.to_string(),
        option.sending.switches().to_owned(),
        option.sending.protocol().name().to_owned(),
        option.credits.to_string(),
        option.requests_per_message.to_string(),
        match option.interval {
            DurationPs::ZERO => "at once".to_owned(),
            interval => rounded(interval).to_string(),
        },
        match &option.capacity_reason {
            Some(reason) => format!("{capacity}: {reason}"),
            None => capacity,
        },
        margin_words(option).unwrap_or_else(dash),
        verdict,
        format!("{}{next}{lost}", option.bottleneck.name()),
    ]
}
