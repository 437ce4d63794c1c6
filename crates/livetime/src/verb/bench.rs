//! `livetime bench NAME`: measurements of this machine and of the parts of the chain on it.
//!
//! The benches are in `livetime_study::bench`; here they are chosen and their documents printed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use livetime_shm::plain_file::{self, TEXT_BYTES_MAX};
use livetime_source::{ArrivalConfig, ArrivalKind};
use livetime_study::bench::card_readout::CardOptions;
use livetime_study::bench::card_stream::{BYTES_MAX, CHANNELS_MAX};
use livetime_study::bench::paced_loop::PacedOptions;
use livetime_study::bench::{self, BenchDocument, BenchName, BenchOptions, kept_document, page};
use livetime_wire::{ByteSize, DurationNs, RateHz};
use serde_json::Value;

use crate::config::parse_quantity;
use crate::console::{print, print_line, say};
use crate::exit;
use crate::output_place::{self, Remade, check_remade};
use crate::run_summary::machine;

/// For how long is measured, if nothing else is said.
const USUAL_DURATION: DurationNs = DurationNs(10_000_000_000);

/// What `--page` may replace.
const PAGE: Remade = Remade {
    begins: &[page::BEGIN],
    name: "page of benches",
};

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// What to measure
    what: What,
    /// Print one JSON document (livetime.bench/1)
    #[arg(long)]
    json: bool,
    /// Everything short: shows the form of the document, the figures mean little
    #[arg(long)]
    quick: bool,
    /// Measuring threads ask for SCHED_FIFO, so that other programs do not interrupt them; the
    /// machine hardly answers meanwhile
    #[arg(long)]
    realtime: bool,
    /// With `builder`: 1x1, 2x2 and 4x4 units, fragments of 256 B to 64 KiB, over shared memory, TCP and UDP
    #[arg(long)]
    grid: bool,
    /// With `builder`: each unit on a thread of its own, from 1x1 units to as many as there are cores for
    #[arg(long, conflicts_with = "grid")]
    scale: bool,
    /// With `loop`: triggers at this rate, such as 40kHz, instead of one after the other; with
    /// `readout --channels`: fragments of each channel
    #[arg(long, value_parser = parse_rate)]
    rate: Option<RateHz>,
    /// With `--rate`: equal or random gaps between triggers
    #[arg(long, requires = "rate", default_value = "poisson")]
    arrival: Arrival,
    /// With `--rate` or `--channels`: for how long; 10 s without it
    #[arg(long, value_parser = parse_duration)]
    duration: Option<DurationNs>,
    /// With `--rate`: seed of the random gaps
    #[arg(long, requires = "rate", default_value_t = 1)]
    seed: u64,
    /// With `readout`: so many channels of cards, one core sending and one receiving
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=CHANNELS_MAX as i64))]
    channels: Option<u16>,
    /// With `--channels`: bytes of a fragment, 64 B to 64 KiB, whole words
    #[arg(long, requires = "channels", default_value = "1000B", value_parser = parse_size)]
    size: ByteSize,
    /// With `--channels`: acknowledge entries of a block; 1 is the single-cycle firmware
    #[arg(long, requires = "channels", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=128))]
    batch: u16,
    /// Where the files of the store bench are written and removed again
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// Also write the document as a page; only a former one is replaced
    #[arg(long, value_name = "FILE.md")]
    page: Option<PathBuf>,
    /// Take a document that was printed before instead of measuring
    #[arg(long, value_name = "FILE.json")]
    from: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Arrival {
    /// All gaps equal
    Fixed,
    /// Independent of each other
    Poisson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// What the bare machine does: cache line, memory, pipe, eventfd, TCP, gaps of a polling thread
    Floor,
    /// A ring between two threads, beside the bare cache line and the rtrb crate
    Ring,
    /// A trigger packet of 34 words out and its decision back
    Loop,
    /// From the words of a link to checked fragments on file; cards with their host
    Readout,
    /// Datagrams of 1 KiB into pages, beside a bare loop of batched receives
    Udp,
    /// Frames of front-ends of users, put together to events, beside bare TCP
    FrontEnds,
    /// From fragments on file to whole events
    Builder,
    /// Events into a run file, beside plain writes
    Store,
    /// The whole chain on two cores
    Chain,
    /// The filter farm: a converter alone, 250 MB/s through the whole stage, hand-over to a sleeper
    Farm,
    /// The network simulator: packets, flits and events per second
    Fabric,
    /// The timing daemon: from deadline to client, matching, loads of coefficient sets
    Timing,
    /// All of them, in less than four minutes
    All,
}

impl What {
    /// As documents and the command line have it.
    fn key(self) -> &'static str {
        match self.names() {
            [one] => one.key(),
            _ => "all",
        }
    }

    fn names(self) -> &'static [BenchName] {
        match self {
            Self::Floor => &[BenchName::Floor],
            Self::Ring => &[BenchName::Ring],
            Self::Loop => &[BenchName::Loop],
            Self::Readout => &[BenchName::Readout],
            Self::Udp => &[BenchName::Udp],
            Self::FrontEnds => &[BenchName::FrontEnds],
            Self::Builder => &[BenchName::Builder],
            Self::Store => &[BenchName::Store],
            Self::Chain => &[BenchName::Chain],
            Self::Farm => &[BenchName::Farm],
            Self::Fabric => &[BenchName::Fabric],
            Self::Timing => &[BenchName::Timing],
            Self::All => &BenchName::ALL,
        }
    }
}

fn parse_duration(text: &str) -> Result<DurationNs, String> {
    match parse_quantity(text)? {
        DurationNs(0) => Err("nothing would be measured; write a time above 0".to_owned()),
        duration => Ok(duration),
    }
}

/// A rate at which triggers or fragments come.
fn parse_rate(text: &str) -> Result<RateHz, String> {
    let rate = parse_quantity(text)?;
    let arrival = ArrivalConfig {
        kind: ArrivalKind::FixedGap,
        rate,
    };
    match arrival.validate("").is_empty() {
        true => Ok(rate),
        false => Err("allowed are 0.001 Hz to 10 MHz".to_owned()),
    }
}

/// The size of a fragment on a card.
fn parse_size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = parse_quantity(text)?;
    let is_whole = size.0.is_multiple_of(4);
    match is_whole && (64..=BYTES_MAX as u64).contains(&size.0) {
        true => Ok(size),
        false => Err("fragments have 64 B to 64 KiB, a multiple of 4 B".to_owned()),
    }
}

/// Measures.
pub(crate) fn run(options: &Options) -> ExitCode {
    if let Err(error) = check_usage(options) {
        say(format_args!("error: {error}"));
        return exit::usage();
    }
    let place = (options.page.as_deref()).map_or(Ok(()), |path| check_remade(path, &PAGE));
    let document = place.and_then(|()| match &options.from {
        Some(path) => read(path, options.what),
        None => measure(options),
    });
    let written = document.and_then(|document| {
        if let Some(path) = &options.page {
            let page = page::to_markdown(&document);
            output_place::write(path, page)?;
        }
        Ok(document)
    });
    match written {
        Ok(document) if options.json => {
            exit::after_printing(print_line(format_args!("{document:#}")))
        }
        Ok(document) => exit::after_printing(print(page::to_text(&document))),
        Err(error) => {
            say(format_args!("error: {error}"));
            exit::PROBLEM
        }
    }
}

/// Whether the options go with each other and with the bench.
fn check_usage(options: &Options) -> Result<(), String> {
    let is_paced = options.rate.is_some() && options.channels.is_none();
    for (option, is_given, what) in [
        ("--channels", options.channels.is_some(), What::Readout),
        ("--rate", is_paced, What::Loop),
        ("--grid", options.grid, What::Builder),
        ("--scale", options.scale, What::Builder),
    ] {
        if is_given && options.what != what {
            let name = what.key();
            return Err(format!("`{option}` goes with `bench {name}`"));
        }
    }
    if options.duration.is_some() && options.rate.is_none() && options.channels.is_none() {
        return Err("`--duration` goes with `--rate` or `--channels`".to_owned());
    }
    let duration = options.duration.unwrap_or(USUAL_DURATION);
    match options.rate {
        Some(rate) if rate.0 * duration.as_seconds() < 1.0 => Err(format!(
            "--rate {rate:#} gives nothing in {duration}: nothing would be measured; raise it, or \
             --duration"
        )),
        _ => Ok(()),
    }
}

fn measure(options: &Options) -> Result<Value, String> {
    let bench_options = BenchOptions {
        quick: options.quick,
        realtime: options.realtime,
        directory: options.directory.clone(),
        machine: serde_json::to_value(machine()).unwrap_or_default(),
    };
    if let Some(channels) = options.channels {
        return measure_cards(options, channels, &bench_options);
    }
    if let Some(rate) = options.rate {
        return measure_paced(options, rate, &bench_options);
    }
    if options.grid || options.scale {
        return measure_builders(options, &bench_options);
    }
    let mut documents = Vec::new();
    for name in options.what.names() {
        say(format_args!("measuring {} ..", name.key()));
        let measured = bench::run(*name, &bench_options);
        documents.push(measured.map_err(|error| format!("bench {}: {error}", name.key()))?);
    }
    Ok(match (&options.what, documents.as_slice()) {
        (What::All, all) => BenchDocument::of_all(all),
        (_, [one]) => one.to_json(),
        (_, several) => BenchDocument::of_all(several),
    })
}

/// The builder in several shapes.
fn measure_builders(options: &Options, bench_options: &BenchOptions) -> Result<Value, String> {
    let measured = if options.grid {
        say(format_args!("measuring the grid of the builder .."));
        bench::run_builder_grid(bench_options)
    } else {
        say(format_args!("measuring the builder on ever more cores .."));
        bench::run_builder_scale(bench_options)
    };
    let document = measured.map_err(|error| format!("bench builder: {error}"))?;
    Ok(document.to_json())
}

/// The loop at a rate.
fn measure_paced(
    options: &Options,
    rate: RateHz,
    bench_options: &BenchOptions,
) -> Result<Value, String> {
    let duration = options.duration.unwrap_or(USUAL_DURATION);
    let paced = PacedOptions {
        arrival: ArrivalConfig {
            kind: match options.arrival {
                Arrival::Fixed => ArrivalKind::FixedGap,
                Arrival::Poisson => ArrivalKind::Poisson,
            },
            rate,
        },
        duration: Duration::from_nanos(duration.0),
        seed: options.seed,
    };
    say(format_args!("measuring loop at {rate} .."));
    let measured = bench::run_paced(&paced, bench_options);
    let document = measured.map_err(|error| format!("bench loop: {error}"))?;
    Ok(document.to_json())
}

/// Cards with their host.
fn measure_cards(
    options: &Options,
    channels: u16,
    bench_options: &BenchOptions,
) -> Result<Value, String> {
    let cards = CardOptions {
        channels: usize::from(channels),
        bytes: options.size.0 as usize,
        batch: usize::from(options.batch),
        rate_hz: options.rate.map(|rate| rate.0),
        seconds: options.duration.unwrap_or(USUAL_DURATION).as_seconds(),
    };
    say(format_args!("measuring readout of {channels} channels .."));
    let measured = bench::run_cards(&cards, bench_options);
    let document = measured.map_err(|error| format!("bench readout: {error}"))?;
    Ok(document.to_json())
}

/// A document of this bench that was kept.
fn read(path: &Path, what: What) -> Result<Value, String> {
    let shown = path.display();
    let text = plain_file::read_text_from_any(path, TEXT_BYTES_MAX)
        .map_err(|error| format!("cannot read {shown}: {error}"))?;
    let document =
        serde_json::from_str(&text).map_err(|error| format!("{shown} is no JSON: {error}"))?;
    let name = what.key();
    kept_document::check(&document, name).map_err(|error| {
        format!(
            "{shown} is no document of `bench {name}`: {error}\n\
             help: `livetime bench {name} --json` prints one"
        )
    })?;
    Ok(document)
}
