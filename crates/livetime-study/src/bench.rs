//! Benches: what the parts of the chain do on this machine, beside what the bare machine does.
//!
//! Each bench is a file of `bench/`; it measures its floor before, between and after its own
//! blocks, in one run, because a floor is not one number ([`interleave`]). A result is a
//! [`BenchDocument`], which is also the JSON that `livetime bench` prints; pages for people are
//! made from that JSON alone ([`page`]). Nothing here judges a run of real data.

pub mod builder;
pub mod builder_grid;
pub(crate) mod builder_network;
mod builder_rings;
pub mod builder_scale;
pub mod card_readout;
pub mod card_stream;
pub mod chain;
pub mod document;
pub mod fabric;
pub mod farm;
mod farm_hand_over;
mod farm_python;
pub mod floor;
pub mod front_ends;
pub(crate) mod full_menu;
pub mod interleave;
pub mod kept_document;
pub mod paced_loop;
pub mod page;
pub(crate) mod pinned_threads;
pub(crate) mod raw_tcp;
pub(crate) mod raw_udp;
pub mod readout;
pub mod ring;
pub(crate) mod stall_meter;
pub mod store;
pub mod timing;
pub mod trigger_loop;
pub mod udp;

use std::path::PathBuf;

use livetime_shm::floor::FloorError;
use livetime_shm::{PageError, PlacementError, PoolError, PushError, RingError, RingFault};
use livetime_shm::{request_fifo, request_normal};
use serde_json::Value;

pub use document::{BenchDocument, Target, latency};

/// Real-time priority of a bench that asks for one: above everything but the kernel's own.
const PRIORITY: u8 = 10;

/// A bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchName {
    /// The bare machine.
    Floor,
    /// A ring between two threads.
    Ring,
    /// A trigger packet out and its decision back.
    Loop,
    /// From the line to a checked fragment on file.
    Readout,
    /// Datagrams into pages.
    Udp,
    /// Frames of users' front-ends, to events.
    FrontEnds,
    /// From filed fragments to whole events.
    Builder,
    /// Run files.
    Store,
    /// Everything, from trigger to writer.
    Chain,
    /// The filter farm.
    Farm,
    /// The network simulator.
    Fabric,
    /// The timing daemon: from deadline to client.
    Timing,
}

impl BenchName {
    /// Every bench, in the order in which `all` runs them.
    pub const ALL: [Self; 12] = [
        // First: it measures the memory of its process, in which the others would leave theirs.
        Self::Fabric,
        Self::Floor,
        Self::Ring,
        Self::Loop,
        Self::Readout,
        Self::Udp,
        Self::FrontEnds,
        Self::Builder,
        Self::Store,
        Self::Chain,
        Self::Farm,
        Self::Timing,
    ];

    /// The name as it is written on the command line and in documents.
    pub fn key(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Ring => "ring",
            Self::Loop => "loop",
            Self::Readout => "readout",
            Self::Udp => "udp",
            Self::FrontEnds => "front-ends",
            Self::Builder => "builder",
            Self::Store => "store",
            Self::Chain => "chain",
            Self::Farm => "farm",
            Self::Fabric => "fabric",
            Self::Timing => "timing",
        }
    }
}

/// How benches are run.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// Everything short, for tests of the form: the figures mean little.
    pub quick: bool,
    /// Measuring threads ask for `SCHED_FIFO`, so that other programs do not interrupt them. They
    /// rest between blocks, which leaves every other program a twentieth of the time.
    pub realtime: bool,
    /// Where the files of the store bench are written, and removed again.
    pub directory: PathBuf,
    /// What is known of the machine; goes into every document as it is.
    pub machine: Value,
}

/// Why a bench could not be run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The floor could not be measured.
    #[error(transparent)]
    Floor(#[from] FloorError),
    /// No ring could be made.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A ring between our own threads was damaged.
    #[error(transparent)]
    RingFault(#[from] RingFault),
    /// A message found no room where there must be some.
    #[error(transparent)]
    Push(#[from] PushError),
    /// No page pool could be made.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A page was not in the state in which it must be.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A thread could not be placed.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The chain could not be started.
    #[error(transparent)]
    Chain(#[from] livetime_node::ChainError),
    /// A filter in Python could not be started.
    #[error(transparent)]
    PythonFilter(#[from] livetime_node::python_filter::batch_filter::PythonFilterError),
    /// The run file of a chain could not be made.
    #[error(transparent)]
    RunFile(#[from] livetime_node::RunFileError),
    /// A run file could not be written.
    #[error(transparent)]
    Store(#[from] livetime_store::WriteError),
    /// The timing daemon could not be started.
    #[error(transparent)]
    Daemon(#[from] livetime_timing_daemon::DaemonError),
    /// The core of the timing daemon failed.
    #[error(transparent)]
    TimingCore(#[from] livetime_timing_daemon::CoreError),
    /// The timing daemon refused something to the bench.
    #[error(transparent)]
    Control(#[from] livetime_timing_daemon::ControlError),
    /// The function generators refused something.
    #[error(transparent)]
    Generators(#[from] livetime_timing_daemon::generators::GeneratorsError),
    /// A client of the timing daemon failed.
    #[error(transparent)]
    Client(#[from] livetime_client::ClientError),
    /// Front-ends could not be listened for.
    #[error(transparent)]
    FrontEnds(#[from] livetime_node::front_end_server::AddressError),
    /// A file could not be written.
    #[error("{step} failed: {source}")]
    File {
        /// What was tried.
        step: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A network could not be simulated.
    #[error("simulation: {0}")]
    Simulation(String),
    /// A partner thread did not answer for ten seconds, or gave up.
    #[error("a partner thread does not answer")]
    Stuck,
    /// A measuring thread ended by a panic.
    #[error("a measuring thread panicked")]
    Thread,
    /// What came out is not what went in: the measurement is worthless.
    #[error("{what}: {found} where {expected} went in")]
    Conservation {
        /// What was counted.
        what: &'static str,
        /// What came out.
        found: u64,
        /// What went in.
        expected: u64,
    },
}

/// Runs one bench.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when counts are not conserved.
pub fn run(name: BenchName, options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let scheduling = Scheduling::new(options.realtime);
    let document = match name {
        BenchName::Floor => floor::run(options),
        BenchName::Ring => ring::run(options),
        BenchName::Loop => trigger_loop::run(options),
        BenchName::Readout => readout::run(options),
        BenchName::Udp => udp::run(options),
        BenchName::FrontEnds => front_ends::run(options),
        BenchName::Builder => builder::run(options),
        BenchName::Store => {
            // Most of its time is the disk's; nothing is gained by keeping others from the cores.
            scheduling.leave();
            store::run(options)
        }
        BenchName::Chain => chain::run(options),
        BenchName::Farm => farm::run(options),
        BenchName::Fabric => fabric::run(options),
        BenchName::Timing => timing::run(options),
    }?;
    Ok(as_measured(document, options, &scheduling))
}

/// Runs the builder for several numbers of units and fragment sizes, over shared memory, TCP and UDP.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when counts are not conserved.
pub fn run_builder_grid(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    in_place(options, || builder_grid::run(options))
}

/// Runs the builder with each unit on a thread of its own, on ever more cores.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when counts are not conserved.
pub fn run_builder_scale(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    in_place(options, || builder_scale::run(options))
}

/// Runs the loop at a rate.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when a decision does not come.
pub fn run_paced(
    paced: &paced_loop::PacedOptions,
    options: &BenchOptions,
) -> Result<BenchDocument, BenchError> {
    in_place(options, || paced_loop::run(paced, options))
}

/// Runs cards with their host.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when counts are not conserved.
pub fn run_cards(
    cards: &card_readout::CardOptions,
    options: &BenchOptions,
) -> Result<BenchDocument, BenchError> {
    in_place(options, || card_readout::run(cards, options))
}

/// A document with the machine and how it was used.
fn in_place(
    options: &BenchOptions,
    measure: impl FnOnce() -> Result<BenchDocument, BenchError>,
) -> Result<BenchDocument, BenchError> {
    let scheduling = Scheduling::new(options.realtime);
    let document = measure()?;
    Ok(as_measured(document, options, &scheduling))
}

/// The document with the machine, its use, and how the program was built.
fn as_measured(
    mut document: BenchDocument,
    options: &BenchOptions,
    scheduling: &Scheduling,
) -> BenchDocument {
    document.machine = options.machine.clone();
    document.add_machine("scheduling", scheduling.name());
    document.add_machine("load_average", load_average());
    document.add_machine("quick", options.quick);
    document.add_machine("assertions", livetime_wire::ASSERTIONS);
    document
}

/// The load of the machine over the last minute: measured beside a compiler, nothing is worth much.
fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The scheduling of the threads that a bench starts: they inherit that of this thread.
struct Scheduling {
    granted: bool,
}

impl Scheduling {
    fn new(realtime: bool) -> Self {
        Self {
            granted: realtime && request_fifo(PRIORITY).is_ok(),
        }
    }

    fn name(&self) -> &'static str {
        if self.granted { "fifo" } else { "normal" }
    }

    fn leave(&self) {
        if self.granted {
            // A thread may always give up its privilege.
            let _ = request_normal();
        }
    }
}

impl Drop for Scheduling {
    fn drop(&mut self) {
        self.leave();
    }
}
