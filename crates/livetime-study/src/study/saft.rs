//! `saft`: what SAFTlib's authors measured in 2017 (paper 004), stage by stage on this machine.
//!
//! Figure 1 and Tables 1 and 2: from the deadline of an action to its client, by broker, D-Bus
//! peer to peer, pipe, ring with wake-up and ring polled, without and with twelve clients that
//! read all properties at 10 Hz. Figures 2 and 3: coefficient sets of twelve function generators
//! as message arrays, through a pipe and from a sealed memory file, without and with such clients.
//! The receiver is emulated, so the stages below the driver (interrupt, reading hardware) are the
//! paper's alone; ours begin at the deadline. Nothing is said about a real-time kernel.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use livetime_client::{
    Address, Filter, OverflowRule, SubscriptionOptions, TimingClient, TimingRecord, Wait,
};
use livetime_shm::floor::{Samples, eventfd_round_trip};
use livetime_shm::{pin_current_thread, two_cpus};
use livetime_timing_daemon::TaiClock;
use livetime_timing_daemon::bus::listener::BusChoice;
use livetime_wire::{EventId, TaiNs, TimingMessage};
use serde_json::{Value, json};

use crate::bench::BenchError;
use crate::bench::document::{latency, rounded};
use crate::bench::timing::{BenchDaemon, Monitors, at, generator_block, play_once};
use crate::plot::{Axis, LinePlot, Series};
use crate::report::{Figure, Report, Table};

/// Name of the document's format.
pub const SCHEMA: &str = "livetime.study_saft/1";
const START_NS: u64 = 5_000_000;
const PERIOD_NS: u64 = 1_000_000;
const MONITORS: usize = 12;
const PATIENCE: Duration = Duration::from_secs(20);

/// How records are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Broker,
    Peer,
    Pipe,
    RingSleep,
    RingSpin,
}

impl Way {
    const ALL: [Self; 5] = [
        Self::Broker,
        Self::Peer,
        Self::Pipe,
        Self::RingSleep,
        Self::RingSpin,
    ];

    fn key(self) -> &'static str {
        match self {
            Self::Broker => "dbus_daemon",
            Self::Peer => "dbus_peer",
            Self::Pipe => "pipe",
            Self::RingSleep => "ring_eventfd",
            Self::RingSpin => "ring_spin",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Broker => "signals through dbus-daemon",
            Self::Peer => "signals peer to peer",
            Self::Pipe => "pipe",
            Self::RingSleep => "ring, client sleeps",
            Self::RingSpin => "ring, client polls",
        }
    }

    /// The paper's 95th percentile of the same step \[ns\]: marshalling and transfer, or the pipe.
    fn paper_ns(self) -> Option<u64> {
        match self {
            Self::Broker => Some(800_000),
            Self::Pipe => Some(50_000),
            Self::Peer | Self::RingSleep | Self::RingSpin => None,
        }
    }
}

/// One way, without or with monitors.
struct Delivered {
    way: Way,
    monitors: usize,
    /// From the deadline to the record leaving the core, where the record says so.
    to_delivery: Option<Samples>,
    /// From the deadline to the client.
    to_client: Samples,
}

/// One way of bringing coefficient sets, without or with monitors.
struct Transfer {
    way: &'static str,
    monitors: usize,
    /// Sets per channel, and the median time \[ns\].
    points: Vec<(usize, u64)>,
}

/// What the study found.
pub struct SaftStudy {
    /// Everything as a document.
    pub document: Value,
    /// The same for people.
    pub report: Report,
}

/// Makes the study; `quick` takes less than a minute and knows its tails less well.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when a record was lost unreported.
pub fn run(quick: bool, command: &str) -> Result<SaftStudy, BenchError> {
    let messages = if quick { 400 } else { 10_000 };
    let repeats = if quick { 9 } else { 101 };
    let folder = Folder::new()?;
    let bus = PrivateBus::start(&folder.0)?;
    let own = BenchDaemon::start(|config| {
        config.buses = bus
            .iter()
            .map(|bus| BusChoice::Address(bus.address.clone()))
            .collect();
    })?;
    let address = |way| match (&bus, way) {
        (None, Way::Broker) => None,
        (Some(bus), Way::Broker) => Some(Address::Bus(bus.address.clone())),
        _ => Some(Address::Socket(own.socket.clone())),
    };
    let floor = eventfd_round_trip(500)?.round_trip.p50() / 2;
    let mut delivered = Vec::new();
    let mut transfers = Vec::new();
    for monitors in [0, MONITORS] {
        let running = Monitors::start(&own, monitors)?;
        for way in Way::ALL {
            if let Some(address) = address(way) {
                delivered.push(deliver(&own, &address, way, monitors, messages)?);
            }
        }
        transfers.extend(transfer_all(&own, bus.as_ref(), monitors, repeats)?);
        running.stop()?;
    }
    let floor_after = eventfd_round_trip(500)?.round_trip.p50() / 2;
    let document = document(&delivered, &transfers, floor.min(floor_after), quick);
    let report = report(&delivered, &transfers, &document, command);
    Ok(SaftStudy { document, report })
}

/// A folder that goes with the study.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, BenchError> {
        let path = std::env::temp_dir().join(format!("livetime-saft-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(file("making a folder"))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays is a folder in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn file(step: &'static str) -> impl Fn(std::io::Error) -> BenchError {
    move |source| BenchError::File { step, source }
}

/// A broker of our own, where there is one.
struct PrivateBus {
    child: Child,
    address: String,
}

impl PrivateBus {
    fn start(folder: &Path) -> Result<Option<Self>, BenchError> {
        let path = folder.join("bus.conf");
        let text = format!(
            "<busconfig><type>custom</type><listen>unix:path={}/bus</listen>\
             <auth>EXTERNAL</auth><policy context=\"default\"><allow user=\"*\"/>\
             <allow own=\"*\"/><allow send_destination=\"*\"/><allow receive_sender=\"*\"/>\
             </policy></busconfig>",
            folder.display()
        );
        std::fs::write(&path, text).map_err(file("writing the broker's configuration"))?;
        let started = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", path.display()))
            .args(["--nofork", "--print-address"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = started else {
            return Ok(None);
        };
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            let mut output = BufReader::new(output);
            output
                .read_line(&mut line)
                .map_err(file("reading the broker's address"))?;
        }
        let address = line.trim().to_owned();
        Ok(Some(Self { child, address }))
    }
}

impl Drop for PrivateBus {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures one way.
fn deliver(
    own: &BenchDaemon,
    address: &Address,
    way: Way,
    monitors: usize,
    messages: u64,
) -> Result<Delivered, BenchError> {
    let client = TimingClient::connect(address)?;
    let sink = client.new_sink("")?;
    let id = 0x5AF7_0000_0000_0000 | (way as u64) << 8 | monitors as u64;
    let filter = Filter {
        id,
        mask: u64::MAX,
        ..Filter::ALL
    };
    let options = SubscriptionOptions {
        rule: OverflowRule::DropNewest,
        wait: if way == Way::RingSpin {
            Wait::Spin
        } else {
            Wait::Sleep
        },
        ..SubscriptionOptions::default()
    };
    let reader = Reader::subscribe(&client, &sink, way, &options)?;
    sink.add(&filter)?;
    let start = own.daemon.injector().clock().now().0 + START_NS;
    let all: Vec<TimingMessage> = (0..messages)
        .map(|n| TimingMessage::new(EventId(id), n, TaiNs(start + n * PERIOD_NS)))
        .collect();
    play_once(own, &all)?;
    let thread = std::thread::spawn(move || -> Result<Vec<(u64, Option<u64>)>, BenchError> {
        pin_current_thread(two_cpus()[1])?;
        reader.read(messages)
    });
    let pairs = thread.join().map_err(|_| BenchError::Thread).flatten()?;
    let (to_client, to_delivery): (Vec<u64>, Vec<Option<u64>>) = pairs.into_iter().unzip();
    let to_delivery: Option<Vec<u64>> = to_delivery.into_iter().collect();
    Ok(Delivered {
        way,
        monitors,
        to_delivery: to_delivery.map(Samples::from_unsorted),
        to_client: Samples::from_unsorted(to_client),
    })
}

/// What a client reads from.
enum Reader {
    Signals(Box<zbus::MessageStream>),
    Pipe(std::fs::File),
    Ring(Box<livetime_client::Subscription>),
}

impl Reader {
    fn subscribe(
        client: &TimingClient,
        sink: &livetime_client::SoftwareSink<'_>,
        way: Way,
        options: &SubscriptionOptions,
    ) -> Result<Self, BenchError> {
        Ok(match way {
            Way::Broker | Way::Peer => {
                let rule = zbus::MatchRule::builder()
                    .msg_type(zbus::message::Type::Signal)
                    .member("Action")
                    .build()
                    .map_err(livetime_client::ClientError::from)?;
                let stream = zbus::block_on(zbus::MessageStream::for_match_rule(
                    rule,
                    client.connection(),
                    Some(std::num::NonZero::<usize>::MIN.saturating_add(1 << 14)),
                ));
                let stream = stream.map_err(livetime_client::ClientError::from)?;
                sink.subscribe_signals(options)?;
                Self::Signals(Box::new(stream))
            }
            Way::Pipe => Self::Pipe(sink.subscribe_pipe(options)?.into()),
            Way::RingSleep | Way::RingSpin => Self::Ring(Box::new(sink.subscribe(options)?)),
        })
    }

    /// For each record the time from its deadline to here, and to its delivery where it says so.
    fn read(mut self, messages: u64) -> Result<Vec<(u64, Option<u64>)>, BenchError> {
        let clock = TaiClock::machine();
        let mut pairs = Vec::with_capacity(messages as usize);
        while (pairs.len() as u64) < messages {
            let (deadline, delay) = match &mut self {
                Self::Signals(stream) => {
                    let next = std::future::poll_fn(|context| {
                        futures_core::Stream::poll_next(std::pin::Pin::new(&mut **stream), context)
                    });
                    let signal = zbus::block_on(next).ok_or(BenchError::Stuck)?;
                    let signal = signal.map_err(livetime_client::ClientError::from)?;
                    let body: (u64, u64, u64, u64, u16) = signal
                        .body()
                        .deserialize()
                        .map_err(livetime_client::ClientError::from)?;
                    (body.2, None)
                }
                Self::Pipe(pipe) => {
                    let mut bytes = [0u8; 64];
                    pipe.read_exact(&mut bytes)
                        .map_err(file("reading a pipe"))?;
                    let mut words = [0u64; 8];
                    for (word, place) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                        *word = u64::from_le_bytes(*place);
                    }
                    let record =
                        TimingRecord::new_checked(&words).map_err(|_| BenchError::Stuck)?;
                    (record.deadline.0, Some(record.enqueue_delay_ns))
                }
                Self::Ring(subscription) => {
                    let record = subscription
                        .next(Some(PATIENCE))?
                        .ok_or(BenchError::Stuck)?;
                    (record.deadline.0, Some(record.enqueue_delay_ns))
                }
            };
            let to_client = clock.now().0.saturating_sub(deadline);
            pairs.push((to_client, delay.map(u64::from)));
        }
        Ok(pairs)
    }
}

/// Takes arrays as messages, as the first versions of the paper's library did.
#[derive(Debug)]
struct ArraySink;

#[zbus::interface(name = "org.livetime.Study1.ArraySink")]
impl ArraySink {
    /// Coefficient sets as they lie in memory.
    fn take(&self, bytes: Vec<u8>) -> u32 {
        bytes.len() as u32
    }
}

const STUDY_NAME: &str = "org.livetime.Study1";
const STUDY_PATH: &str = "/org/livetime/Study1";

fn transfer_all(
    own: &BenchDaemon,
    bus: Option<&PrivateBus>,
    monitors: usize,
    repeats: usize,
) -> Result<Vec<Transfer>, BenchError> {
    const SETS: [usize; 4] = [100, 200, 400, 800];
    let full = generator_block()?;
    let bytes_of = |sets: usize| &full[..full.len().min(12 * 12 * sets)];
    let mut transfers = Vec::new();
    if let Some(bus) = bus {
        let zbus_failed = |error| BenchError::from(livetime_client::ClientError::from(error));
        let service = zbus::connection::Builder::address(bus.address.as_str())
            .serve_at(STUDY_PATH, ArraySink)
            .name(STUDY_NAME)
            .build();
        let _service = zbus::block_on(service).map_err(zbus_failed)?;
        let caller = zbus::connection::Builder::address(bus.address.as_str()).build();
        let caller = zbus::block_on(caller).map_err(zbus_failed)?;
        let points = timed(&SETS, repeats, |sets| {
            let bytes = bytes_of(sets).to_vec();
            let call = caller.call_method(
                Some(STUDY_NAME),
                STUDY_PATH,
                Some("org.livetime.Study1.ArraySink"),
                "Take",
                &bytes,
            );
            zbus::block_on(call).map_err(zbus_failed)?;
            Ok(())
        })?;
        transfers.push(Transfer {
            way: "dbus_daemon_array",
            monitors,
            points,
        });
    }
    let points = timed(&SETS, repeats, |sets| through_pipe(bytes_of(sets)))?;
    transfers.push(Transfer {
        way: "pipe",
        monitors,
        points,
    });
    let client = own.client()?;
    let master = "/org/livetime/Timing1/tr0/mfg";
    let points = timed(&SETS, repeats, |sets| {
        let block = crate::bench::timing::generator_block_of(sets)?;
        client.append_block(&block, false)?;
        Ok(client.call(master, "MasterFunctionGenerator", "Flush", &())?)
    })?;
    transfers.push(Transfer {
        way: "sealed_memory_file_with_validation",
        monitors,
        points,
    });
    Ok(transfers)
}

fn timed(
    sets: &[usize],
    repeats: usize,
    mut send: impl FnMut(usize) -> Result<(), BenchError>,
) -> Result<Vec<(usize, u64)>, BenchError> {
    let mut points = Vec::new();
    for sets in sets {
        let mut samples = Vec::new();
        for _ in 0..repeats {
            let start = Instant::now();
            send(*sets)?;
            samples.push(start.elapsed().as_nanos() as u64);
        }
        points.push((*sets, Samples::from_unsorted(samples).p50()));
    }
    Ok(points)
}

/// Writes into a pipe that another thread empties, and waits until it has all.
fn through_pipe(bytes: &[u8]) -> Result<(), BenchError> {
    let (mut reader, mut writer) = std::io::pipe().map_err(file("making a pipe"))?;
    let count = bytes.len();
    std::thread::scope(|scope| {
        let taker = scope.spawn(move || {
            let mut taken = vec![0u8; count];
            reader
                .read_exact(&mut taken)
                .map_err(file("reading a pipe"))
        });
        writer.write_all(bytes).map_err(file("writing a pipe"))?;
        taker.join().map_err(|_| BenchError::Thread).flatten()
    })
}

fn document(delivered: &[Delivered], transfers: &[Transfer], floor: u64, quick: bool) -> Value {
    let ways: Vec<Value> = delivered
        .iter()
        .map(|one| {
            json!({
                "way": one.way.key(),
                "monitors": one.monitors,
                "deadline_to_delivery_ns": one.to_delivery.as_ref().map(latency),
                "deadline_to_client_ns": latency(&one.to_client),
                "p95_ns": rounded(at(&one.to_client, 0.95)),
                "paper_p95_ns": one.way.paper_ns(),
            })
        })
        .collect();
    let transfers: Vec<Value> = transfers
        .iter()
        .map(|one| {
            let points: Vec<Value> = one
                .points
                .iter()
                .map(|(sets, ns)| json!({ "sets_per_channel": sets, "p50_ns": ns }))
                .collect();
            json!({ "way": one.way, "monitors": one.monitors, "channels": 12, "points": points })
        })
        .collect();
    json!({
        "schema": SCHEMA,
        "quick": quick,
        "receiver": "emulated",
        "floor": { "eventfd_one_way_ns": floor },
        "delivery": ways,
        "transfer": transfers,
        "paper": {
            "table_1_p95_us": {
                "event_to_interrupt_handler": 80, "driver_reads_hardware": 80,
                "dbus_marshalling": 200, "dbus_transfer": 600, "proxy_to_event_source": 100,
                "action_scheduler": 300, "event_to_action": 1500,
            },
            "table_2_p95_us": {
                "event_to_interrupt_handler": 80, "driver_reads_hardware": 80,
                "pipe_transfer": 50, "action_scheduler": 350, "event_to_action": 600,
            },
            "twelve_channels_800_sets_ms": { "single_calls": 120, "master": 25 },
        },
    })
}

fn report(
    delivered: &[Delivered],
    transfers: &[Transfer],
    document: &Value,
    command: &str,
) -> Report {
    let us = |ns: f64| format!("{:.1}", ns / 1e3);
    let rows = delivered
        .iter()
        .map(|one| {
            vec![
                one.way.title().to_owned(),
                one.monitors.to_string(),
                us(one.to_client.p50() as f64),
                us(at(&one.to_client, 0.95)),
                us(one.to_client.max() as f64),
                one.way
                    .paper_ns()
                    .map_or_else(|| "-".to_owned(), |ns| us(ns as f64)),
            ]
        })
        .collect();
    let latencies = Table {
        caption: "From the deadline to the client [us]; the paper's value is the 95th percentile \
                  of transfer (and marshalling) alone"
            .to_owned(),
        headings: ["way", "monitors", "median", "p95", "max", "paper"]
            .map(str::to_owned)
            .to_vec(),
        rows,
        ..Table::default()
    };
    let rows = transfers
        .iter()
        .flat_map(|one| {
            one.points.iter().map(|(sets, ns)| {
                vec![
                    one.way.replace('_', " "),
                    one.monitors.to_string(),
                    sets.to_string(),
                    format!("{:.3}", *ns as f64 / 1e6),
                ]
            })
        })
        .collect();
    let loads = Table {
        caption: "Coefficient sets for 12 generators: median time [ms]; the paper took 25 ms for \
                  800 sets through its master function generator, 120 ms in single calls"
            .to_owned(),
        headings: ["way", "monitors", "sets per channel", "median"]
            .map(str::to_owned)
            .to_vec(),
        rows,
        ..Table::default()
    };
    Report {
        title: "SAFTlib's measurements, made anew".to_owned(),
        subtitle: format!("livetime {}, emulated receiver", env!("CARGO_PKG_VERSION")),
        verdict: "every record was received or reported lost".to_owned(),
        verdict_good: true,
        figures: figures(delivered, transfers),
        tables: vec![latencies, stages(delivered), loads],
        command: command.to_owned(),
        summary_json: document.to_string(),
        ..Report::default()
    }
}

/// The paper's two tables, stage by stage, beside the stages that are here.
fn stages(delivered: &[Delivered]) -> Table {
    let row = |what: &str, dbus: &str, pipe: &str| [what, dbus, pipe].map(str::to_owned).to_vec();
    let mut rows = vec![
        row("paper: event to interrupt handler", "80", "80"),
        row("paper: driver reads the hardware", "80", "80"),
        row("paper: marshalling", "200", "-"),
        row("paper: transfer", "600", "50"),
        row("paper: proxy to event source", "100", "-"),
        row("paper: action scheduler", "300", "350"),
        row("paper: event to action", "1500", "600"),
    ];
    let us = |samples: &Samples| format!("{:.1}", at(samples, 0.95) / 1e3);
    for one in delivered.iter().filter(|one| one.monitors == 0) {
        for (stage, samples) in [
            ("deadline to delivery", one.to_delivery.as_ref()),
            ("deadline to client", Some(&one.to_client)),
        ] {
            let time = samples.map_or_else(|| "-".to_owned(), us);
            let title = format!("here, {}: {stage}", one.way.title());
            // In the column of the way that is alike: D-Bus messages, or a descriptor.
            rows.push(match one.way.key().contains("dbus") {
                true => row(&title, &time, ""),
                false => row(&title, "", &time),
            });
        }
    }
    Table {
        caption: "The paper's Tables 1 (D-Bus) and 2 (pipe) stage by stage, 95th percentiles \
                  [us]; its interrupt, driver and scheduler have no counterpart here, where the \
                  receiver is emulated and the client is the program itself"
            .to_owned(),
        headings: ["stage", "through D-Bus", "through a descriptor"]
            .map(str::to_owned)
            .to_vec(),
        rows,
        ..Table::default()
    }
}

fn figures(delivered: &[Delivered], transfers: &[Transfer]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for monitors in [0, MONITORS] {
        let series = delivered
            .iter()
            .filter(|one| one.monitors == monitors)
            .map(|one| Series {
                label: one.way.title().to_owned(),
                points: distribution(&one.to_client),
            })
            .collect();
        let plot = LinePlot {
            title: format!("From deadline to client, {monitors} monitors"),
            x: Axis::log("time [us]"),
            y: Axis::linear("records per tenth of a decade"),
            series,
        };
        figures.push(Figure {
            svg: plot.to_svg(),
            caption: format!(
                "Distribution of the time from deadline to client with {monitors} clients that \
                 read all properties at 10 Hz (the paper's Figure 1, from the driver on)"
            ),
        });
    }
    for (monitors, figure) in [(0, 2), (MONITORS, 3)] {
        let series = transfers
            .iter()
            .filter(|one| one.monitors == monitors)
            .map(|one| Series {
                label: one.way.replace('_', " "),
                points: one
                    .points
                    .iter()
                    .map(|(sets, ns)| (*sets as f64, *ns as f64 / 1e6))
                    .collect(),
            })
            .collect();
        let plot = LinePlot {
            title: format!("Coefficient sets for 12 generators, {monitors} monitors"),
            x: Axis::linear("sets per channel"),
            y: Axis::log("median time [ms]"),
            series,
        };
        figures.push(Figure {
            svg: plot.to_svg(),
            caption: format!("Time to bring the sets of a cycle (the paper's Figure {figure})"),
        });
    }
    figures
}

/// Records per tenth of a decade, by the time in us.
fn distribution(samples: &Samples) -> Vec<(f64, f64)> {
    let bin_of = |ns: u64| (ns.max(1) as f64).log10() * 10.0;
    let sorted = samples.sorted_ns();
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
        return Vec::new();
    };
    let (low, high) = (bin_of(*first).floor() as i32, bin_of(*last).floor() as i32);
    (low..=high)
        .map(|bin| {
            let edge = |bin: i32| 10f64.powf(f64::from(bin) / 10.0);
            let below = |limit: f64| sorted.partition_point(|ns| (*ns as f64) < limit);
            let count = below(edge(bin + 1)) - below(edge(bin));
            (edge(bin) * 1.122 / 1e3, count as f64)
        })
        .collect()
}
