//! `timing`: from a deadline to a client of the timing daemon, and what the core can do.
//!
//! Measured: deadline to client for one sleeping and one spinning client, the last of 32 sleeping
//! ones, one with and without twelve monitors that read all properties at 10 Hz; matching among
//! 10 000 conditions; messages through core and delivery on one core with a reading client;
//! 12 x 800 coefficient sets validated, loaded and armed. Clients are threads that use the memory
//! and descriptors a client process gets; a process more costs the same wake-up. The floors are
//! one way of an eventfd from a core that spins until a time to one that has slept as long as a
//! client between two messages, on the same two cores; half the round trip of a cache line; and for
//! 32 clients one wake-up from core to core and 32 hand-overs between two threads of one core.
//! Beside it stands a chain of wake-ups through 32 threads that slept as long as those clients: what
//! two threads need is in the nearest cache, which no 32 clients find.
//! Daemon, clients and floors alike ask for `SCHED_FIFO`, as such daemons and their clients do where
//! they are at work; monitors do not. The document says whether it was granted.
//! Not measured: machines with more than two cores, and real-time kernels.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use livetime_client::{Address, Subscription, TimingClient, Wait};
use livetime_shm::floor::{Samples, cache_line_ping_pong, eventfd_one_way};
use livetime_shm::{
    TscClock, WakeSource, WakeUp, Waker, pin_current_thread, request_normal, two_cpus, wake_pair,
};
use livetime_timing::{
    ActionUnit, Caller, Change, ClientId, ConditionSpec, FlagSet, IdFilter, Registry,
    RegistryConfig, Role, SchedulePlayer, SinkId, SinkKind, SinkSpec, TableLimits,
};
use livetime_timing_daemon::control::DeliveryMode;
use livetime_timing_daemon::core_handle::Core;
use livetime_timing_daemon::core_worker::CoreCommand;
use livetime_timing_daemon::{CoreConfig, Daemon, DaemonConfig, SubscriptionConfig, TaiClock};
use livetime_timing_daemon::{Routing, Subscription as DeliveryEnd};
use livetime_wire::timing_coefficient::{CoefficientSet, emit_block};
use livetime_wire::{DurationNs, EventId, PriorityClass, TaiNs, TimingMessage};
use serde_json::json;

use super::document::{BenchDocument, Quotient, Target, latency, rounded};
use super::interleave::{Interleaved, LIKE_FLOORS, Selection, interleave};
use super::pinned_threads::run_pair;
use super::{BenchError, BenchOptions, Scheduling};

/// Who measures: the owner of everything.
const ADMIN: Caller = Caller {
    client: ClientId(u64::MAX),
    role: Role::Admin,
};
/// Between two messages to a spinning client: it knows the time from its last reading.
const SPINNING_PERIOD_NS: u64 = 40_000;
const START_NS: u64 = 3_000_000;
const LEAD_NS: u64 = 500_000;
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two messages to a sleeping client, and between two wake-ups of its floor.
const SLEEPING_PERIOD_NS: u64 = 400_000;
const FAN_OUT: usize = 32;
/// Between two messages to 32 sleeping clients.
const FAN_OUT_PERIOD_NS: u64 = 2_000_000;
const MONITORS: usize = 12;
const MONITOR_PERIOD: Duration = Duration::from_millis(100);
const CONDITIONS: u64 = 10_000;
const CHANNELS: usize = 12;
const SETS: usize = 800;

struct Size {
    blocks: usize,
    messages: u64,
    floor_rounds: u32,
    pairs: usize,
    matches: u64,
    stream: u64,
    loads: usize,
}

impl Size {
    fn of(quick: bool) -> Self {
        if quick {
            Self {
                blocks: 1,
                messages: 40,
                floor_rounds: 50,
                pairs: 1,
                matches: 20_000,
                stream: 20_000,
                loads: 5,
            }
        } else {
            Self {
                blocks: 9,
                messages: 400,
                floor_rounds: 400,
                pairs: 7,
                matches: 2_000_000,
                stream: 3_000_000,
                loads: 300,
            }
        }
    }
}

/// What the bare machine does: one way each, in ns.
struct Floor {
    across: Samples,
    /// To the last of [`FAN_OUT`] threads that hand over to each other.
    to_many: Samples,
    /// Between two threads.
    same_core: Samples,
    line: Samples,
}

impl Floor {
    fn measure(rounds: u32) -> Result<Self, BenchError> {
        let halves = |samples: &Samples| {
            Samples::from_unsorted(samples.sorted_ns().iter().map(|ns| ns / 2).collect())
        };
        Ok(Self {
            across: eventfd_one_way(rounds, Duration::from_nanos(SLEEPING_PERIOD_NS))?.one_way,
            to_many: hand_overs_to_many((rounds / 4).max(1))?,
            same_core: same_core_hand_overs(rounds)?,
            line: halves(&cache_line_ping_pong(8, rounds.max(200))?.round_trip),
        })
    }
}

/// From a core that spins until a time to the last of [`FAN_OUT`] sleeping threads on another, each
/// of which wakes the next.
fn hand_overs_to_many(rounds: u32) -> Result<Samples, BenchError> {
    let failed = |source| BenchError::File {
        step: "making descriptors",
        source,
    };
    let pairs: Result<Vec<_>, _> = (0..FAN_OUT).map(|_| wake_pair()).collect();
    let (mut wakers, sources): (Vec<Waker>, Vec<WakeSource>) =
        pairs.map_err(failed)?.into_iter().unzip();
    let clock = TscClock::of_process();
    let (started, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let first = wakers.remove(0);
    let mut next = wakers.into_iter();
    std::thread::scope(|scope| {
        let (started, done) = (&started, &done);
        let threads: Vec<_> = sources
            .into_iter()
            .map(|source| {
                let next = next.next();
                // A waker outlives its thread unless that fails: as between two threads.
                scope.spawn(move || -> Result<_, BenchError> {
                    pin_current_thread(two_cpus()[1])?;
                    let mut samples = Vec::with_capacity(rounds as usize);
                    for _ in 0..rounds {
                        wait_for(&source)?;
                        match &next {
                            Some(next) => next.wake(),
                            None => {
                                // Relaxed: the wake-ups order it.
                                let start = started.load(Ordering::Relaxed);
                                samples.push(clock.ticks().wrapping_sub(start));
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                    Ok((samples, next))
                })
            })
            .collect();
        let caller = scope.spawn(move || -> Result<Waker, BenchError> {
            pin_current_thread(two_cpus()[0])?;
            let begin = Instant::now();
            for round in 1..=rounds {
                let at = Duration::from_nanos(FAN_OUT_PERIOD_NS) * round;
                // Two wake-ups of one sleep would be one.
                while begin.elapsed() < at || done.load(Ordering::Relaxed) + 1 < round.into() {
                    std::hint::spin_loop();
                    if begin.elapsed() > at + PATIENCE {
                        return Err(BenchError::Stuck);
                    }
                }
                started.store(clock.ticks(), Ordering::Relaxed);
                first.wake();
            }
            Ok(first)
        });
        let mut ticks = Vec::new();
        let mut kept = Vec::new();
        for thread in threads {
            let (samples, waker) = thread.join().map_err(|_| BenchError::Thread).flatten()?;
            ticks.extend(samples);
            kept.push(waker);
        }
        let _first = caller.join().map_err(|_| BenchError::Thread).flatten()?;
        let ns = ticks.into_iter().map(|ticks| clock.ticks_to_ns(ticks));
        Ok(Samples::from_unsorted(ns.collect()))
    })
}

/// One way of a wake-up between two threads on one core.
fn same_core_hand_overs(rounds: u32) -> Result<Samples, BenchError> {
    let core = two_cpus()[1];
    let failed = |source| BenchError::File {
        step: "making descriptors",
        source,
    };
    let (there, at_there) = wake_pair().map_err(failed)?;
    let (back, at_back) = wake_pair().map_err(failed)?;
    let clock = TscClock::of_process();
    // Each waker outlives its thread unless that fails: one that is dropped takes its last wake-up
    // with it, and tells the other side.
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || -> Result<Waker, BenchError> {
            pin_current_thread(core)?;
            for _ in 0..rounds {
                wait_for(&at_there)?;
                back.wake();
            }
            Ok(back)
        });
        let caller = scope.spawn(move || -> Result<(Vec<u64>, Waker), BenchError> {
            pin_current_thread(core)?;
            let mut samples = Vec::with_capacity(rounds as usize);
            for _ in 0..rounds {
                let start = clock.ticks();
                there.wake();
                wait_for(&at_back)?;
                samples.push(clock.ticks_to_ns(clock.ticks().wrapping_sub(start)) / 2);
            }
            Ok((samples, there))
        });
        let (samples, _there) = caller.join().map_err(|_| BenchError::Thread).flatten()?;
        let _back = echo.join().map_err(|_| BenchError::Thread).flatten()?;
        Ok(Samples::from_unsorted(samples))
    })
}

/// Sleeps as a client does: without a time limit, which would cost a timer. One that is not woken
/// is told when the other thread has given up.
fn wait_for(source: &WakeSource) -> Result<(), BenchError> {
    match source.wait(None) {
        Ok(WakeUp::Woken) => Ok(()),
        _ => Err(BenchError::Stuck),
    }
}

/// A daemon of our own at a socket that goes with it.
pub(crate) struct BenchDaemon {
    /// The daemon.
    pub(crate) daemon: Daemon,
    /// Where it is reached.
    pub(crate) socket: PathBuf,
}

impl Drop for BenchDaemon {
    fn drop(&mut self) {
        // A daemon leaves its epoch to the next one at its socket; there is none.
        let mut epoch = self.socket.clone().into_os_string();
        epoch.push(".epoch");
        let _gone = std::fs::remove_file(epoch);
    }
}

impl BenchDaemon {
    /// Starts it; its worker is pinned to the first of the cores.
    pub(crate) fn start(change: impl FnOnce(&mut DaemonConfig)) -> Result<Self, BenchError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("livetime-bench-{}-{number}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let mut config = DaemonConfig::for_user(rustix_uid());
        config.core.cpu = Some(two_cpus()[0]);
        config.socket = Some(socket.clone());
        change(&mut config);
        let daemon = Daemon::start(&config)?;
        Ok(Self { daemon, socket })
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Result<TimingClient, BenchError> {
        Ok(TimingClient::connect(&Address::Socket(
            self.socket.clone(),
        ))?)
    }

    /// Deadline to client for `count` clients of a sink that is made for it.
    fn measure(
        &self,
        id: u64,
        count: usize,
        wait: Wait,
        messages: u64,
        period_ns: u64,
    ) -> Result<Samples, BenchError> {
        let control = self.daemon.control();
        let spec = SinkSpec::new(SinkKind::Software, format!("bench{id}"));
        let sink = control.create_sink(&ADMIN, spec)?;
        let subscriptions = self.subscribe(sink, id, count, wait)?;
        let samples = deadline_to_client(self, id, subscriptions, wait, messages, period_ns)?;
        control.destroy_sink(&ADMIN, sink)?;
        Ok(samples)
    }

    /// Subscriptions to a sink that gets every message with this ID.
    fn subscribe(
        &self,
        sink: SinkId,
        id: u64,
        count: usize,
        wait: Wait,
    ) -> Result<Vec<Subscription>, BenchError> {
        let control = self.daemon.control();
        let change = Change::Add(every(sink, EventId(id), u64::MAX)?);
        control.apply(&ADMIN, &[change])?;
        (0..count)
            .map(|_| {
                let config = SubscriptionConfig::default();
                let (place, ends) = control.subscribe(&ADMIN, sink, &config, DeliveryMode::Ring)?;
                let wake = ends.wake.ok_or(BenchError::Stuck)?;
                Ok(Subscription::open(ends.data, wake, place.into(), wait)?)
            })
            .collect()
    }

    fn play(&self, id: u64, count: u64, period_ns: u64) -> Result<(), BenchError> {
        let start = self.daemon.injector().clock().now().0 + START_NS;
        let messages: Vec<TimingMessage> = (0..count)
            .map(|n| TimingMessage::new(EventId(id), n, TaiNs(start + n * period_ns)))
            .collect();
        play_once(self, &messages)
    }
}

/// Plays messages of the daemon's clock once.
pub(crate) fn play_once(own: &BenchDaemon, messages: &[TimingMessage]) -> Result<(), BenchError> {
    let lead = DurationNs(LEAD_NS);
    let player = SchedulePlayer::of_messages(messages, lead, 1, DurationNs(0));
    let player = player.ok_or(BenchError::Stuck)?;
    Ok(own.daemon.control().play(&ADMIN, player)?)
}

fn rustix_uid() -> u32 {
    // `/proc/self` belongs to the user of this process.
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").map_or(0, |data| data.uid())
}

fn every(sink: SinkId, id: EventId, mask: u64) -> Result<ConditionSpec, BenchError> {
    let filter = IdFilter::masked(id, mask).map_err(|_| BenchError::Stuck)?;
    Ok(ConditionSpec {
        accept: FlagSet::ALL,
        ..ConditionSpec::new(sink, filter, 0)
    })
}

/// TAI as a client reads it at once: from the tick counter, as the floors are measured, for some
/// microseconds after a reading of the clock.
struct ClientClock {
    clock: TaiClock,
    ticks: TscClock,
    /// The clock's time, and the ticks in the middle of its reading.
    at: TaiNs,
    read_at: u64,
}

impl ClientClock {
    /// Longest time from a reading; the kernel may slew its clock by 500 ppm, 25 ns of it.
    const READING_NS_MAX: u64 = 50_000;

    fn new(ticks: TscClock) -> Self {
        let mut own = Self {
            clock: TaiClock::machine(),
            ticks,
            at: TaiNs(0),
            read_at: 0,
        };
        own.read();
        own
    }

    /// Reads the clock, which takes some 30 ns, and looks at the ticks within it: those of the middle
    /// are wrong by a few ns to either side.
    fn read(&mut self) {
        let before = self.ticks.ticks();
        self.at = self.clock.now();
        let took = self.ticks.ticks().wrapping_sub(before);
        self.read_at = before.wrapping_add(took / 2);
    }

    fn now(&self) -> TaiNs {
        let passed = self.ticks.ticks().wrapping_sub(self.read_at);
        match self.ticks.ticks_to_ns(passed) {
            ns if ns <= Self::READING_NS_MAX => TaiNs(self.at.0 + ns),
            _ => self.clock.now(),
        }
    }
}

/// Reads `count` records and takes the time from each deadline \[ns\]. One that sleeps does so
/// without a time limit, as a client that only listens; the end of the daemon ends it.
fn read_all(
    mut subscription: Subscription,
    count: u64,
    wait: Wait,
    ticks: TscClock,
) -> Result<Vec<u64>, BenchError> {
    let mut clock = ClientClock::new(ticks);
    let mut samples = Vec::with_capacity(count as usize);
    while (samples.len() as u64) < count {
        match subscription.next(None)? {
            Some(record) => samples.push(clock.now().0.saturating_sub(record.deadline.0)),
            None => return Err(BenchError::Stuck),
        }
        // Who sleeps does so for longer than a reading is good for.
        if wait == Wait::Spin {
            clock.read();
        }
    }
    let lost = subscription.lost();
    conserved("records of a client", samples.len() as u64 + lost, count)?;
    Ok(samples)
}

fn conserved(what: &'static str, found: u64, expected: u64) -> Result<(), BenchError> {
    if found == expected {
        return Ok(());
    }
    Err(BenchError::Conservation {
        what,
        found,
        expected,
    })
}

/// Deadline to client, for clients on the other core; of several the last of each message.
fn deadline_to_client(
    own: &BenchDaemon,
    id: u64,
    subscriptions: Vec<Subscription>,
    wait: Wait,
    messages: u64,
    period_ns: u64,
) -> Result<Samples, BenchError> {
    let ready = Arc::new(Barrier::new(subscriptions.len() + 1));
    let (clients, ticks) = (subscriptions.len(), TscClock::of_process());
    let (done, all_done) = mpsc::channel();
    for subscription in subscriptions {
        let (ready, done) = (Arc::clone(&ready), done.clone());
        std::thread::spawn(move || {
            let pinned = pin_current_thread(two_cpus()[1]);
            ready.wait();
            let samples = pinned.map_err(BenchError::from);
            let samples = samples.and_then(|()| read_all(subscription, messages, wait, ticks));
            // Nobody listens any more after a time without any client done.
            let _ = done.send(samples);
        });
    }
    ready.wait();
    own.play(id, messages, period_ns)?;
    let patience = PATIENCE + Duration::from_nanos(messages * period_ns);
    let mut last = vec![0u64; messages as usize];
    for _ in 0..clients {
        let samples = all_done.recv_timeout(patience);
        let samples = samples.map_err(|_| BenchError::Stuck).flatten()?;
        for (last, own) in last.iter_mut().zip(samples) {
            *last = (*last).max(own);
        }
    }
    Ok(Samples::from_unsorted(last))
}

/// What one block measures.
struct Block {
    sleeping: Samples,
    spinning: Samples,
    last_of_many: Samples,
}

/// Measures.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when a record was lost.
pub fn run(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let size = Size::of(options.quick);
    let mut document = BenchDocument::new("timing");
    let hurried = Scheduling::new(!options.quick);
    document.add_floor("scheduling", hurried.name());
    add_latencies(&size, &mut document)?;
    add_monitors(&size, &mut document)?;
    // What follows has two of its threads share a core.
    drop(hurried);
    add_matching(&size, &mut document)?;
    add_stream(&size, &mut document)?;
    add_loads(&size, &mut document)?;
    Ok(document)
}

fn add_latencies(size: &Size, document: &mut BenchDocument) -> Result<(), BenchError> {
    let own = BenchDaemon::start(|_| {})?;
    let mut next_id = 0u64;
    let block = || {
        let mut measure = |count, wait, period_ns| {
            next_id += 1;
            own.measure(next_id, count, wait, size.messages, period_ns)
        };
        Ok(Block {
            sleeping: measure(1, Wait::Sleep, SLEEPING_PERIOD_NS)?,
            spinning: measure(1, Wait::Spin, SPINNING_PERIOD_NS)?,
            last_of_many: measure(FAN_OUT, Wait::Sleep, FAN_OUT_PERIOD_NS)?,
        })
    };
    let level = |floor: &Floor| floor.across.p50() as f64;
    let measured: Interleaved<Floor, Block> = interleave(
        size.blocks,
        LIKE_FLOORS,
        || Floor::measure(size.floor_rounds),
        block,
        level,
    )?;
    let selection = measured.select(level, |_| ());
    let merged = |samples: fn(&Block) -> &Samples| selection.merged(samples);
    let floors = |samples: fn(&Floor) -> &Samples| selection.merged_floors(samples);
    document.add_floor("eventfd_one_way_ns", latency(&floors(|f| &f.across)));
    document.add_floor(
        "eventfd_one_way_same_core_ns",
        latency(&floors(|f| &f.same_core)),
    );
    document.add_floor("eventfd_to_last_of_32_ns", latency(&floors(|f| &f.to_many)));
    document.add_floor("cache_line_one_way_ns", latency(&floors(|f| &f.line)));
    document.add_floor("blocks", selection.to_json());
    document.add_result(
        "deadline_to_sleeping_client_ns",
        latency(&merged(|b| &b.sleeping)),
    );
    document.add_result(
        "deadline_to_spinning_client_ns",
        latency(&merged(|b| &b.spinning)),
    );
    document.add_result(
        "deadline_to_last_of_32_ns",
        latency(&merged(|b| &b.last_of_many)),
    );
    add_latency_targets(&selection, document);
    Ok(())
}

fn add_latency_targets(selection: &Selection<'_, Floor, Block>, document: &mut BenchDocument) {
    let half = |samples: &Samples| samples.p50() as f64;
    let p50 =
        selection.quotient(|kept| (half(&kept.block.sleeping), kept.floor(|f| half(&f.across))));
    let p95 = selection.quotient(|kept| {
        let floor = kept.floor(|floor| at(&floor.across, 0.95));
        (at(&kept.block.sleeping, 0.95), floor)
    });
    let spin =
        selection.quotient(|kept| (half(&kept.block.spinning), kept.floor(|f| half(&f.line))));
    let fan_out = selection.quotient(|kept| {
        let hand_overs = |floor: &Floor| FAN_OUT as f64 * half(&floor.same_core);
        let floor = kept.floor(|floor| half(&floor.across) + hand_overs(floor));
        (half(&kept.block.last_of_many), floor)
    });
    let beside_chain = selection.quotient(|kept| {
        let floor = kept.floor(|floor| half(&floor.to_many));
        (half(&kept.block.last_of_many), floor)
    });
    document.add_quotient("last_of_32_to_chain_of_32", beside_chain);
    for (name, quotient, target) in [
        ("sleeping_p50", p50, 1.2),
        ("sleeping_p95", p95, 1.5),
        ("spinning_p50", spin, 3.0),
        ("last_of_32", fan_out, 1.5),
    ] {
        document.add_quotient(format!("{name}_to_floor"), quotient);
        let target = Target::by_floor(name, quotient.value(), target);
        document.add_target(selection.judged(target));
    }
}

/// The value below which a share of the samples lies.
pub(crate) fn at(samples: &Samples, fraction: f64) -> f64 {
    let sorted = samples.sorted_ns();
    let index = (fraction * sorted.len() as f64).ceil() as usize;
    sorted
        .get(index.clamp(1, sorted.len().max(1)) - 1)
        .map_or(f64::NAN, |ns| *ns as f64)
}

/// Clients that read all properties at 10 Hz while something is measured.
pub(crate) struct Monitors {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<Result<u64, BenchError>>>,
}

impl Monitors {
    /// Starts `count` of them.
    pub(crate) fn start(own: &BenchDaemon, count: usize) -> Result<Self, BenchError> {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..count)
            .map(|_| {
                let client = own.client()?;
                let stop = Arc::clone(&stop);
                Ok(std::thread::spawn(move || monitor(&client, &stop)))
            })
            .collect::<Result<_, BenchError>>()?;
        Ok(Self { stop, threads })
    }

    /// Ends them; returns how often all properties were read.
    pub(crate) fn stop(self) -> Result<u64, BenchError> {
        self.stop.store(true, Ordering::SeqCst);
        let mut reads = 0;
        for thread in self.threads {
            reads += thread.join().map_err(|_| BenchError::Thread).flatten()?;
        }
        Ok(reads)
    }
}

fn monitor(client: &TimingClient, stop: &AtomicBool) -> Result<u64, BenchError> {
    // Those who look at displays do not compete with those who act.
    let _unhurried = request_normal();
    let receiver = "/org/livetime/Timing1/tr0";
    let mut reads = 0;
    let mut next = Instant::now();
    while !stop.load(Ordering::SeqCst) {
        client.all_properties(receiver, "TimingReceiver")?;
        for output in ["IO1", "IO2", "IO3"] {
            client.all_properties(&format!("{receiver}/{output}"), "ActionSink")?;
        }
        reads += 1;
        next += MONITOR_PERIOD;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(reads)
}

fn add_monitors(size: &Size, document: &mut BenchDocument) -> Result<(), BenchError> {
    let own = BenchDaemon::start(|_| {})?;
    let mut ratios = Vec::new();
    let mut reads = 0;
    let (mut without_all, mut with_all) = (Vec::new(), Vec::new());
    for pair in 0..size.pairs as u64 {
        let measure = |id| own.measure(id, 1, Wait::Sleep, size.messages, 1_000_000);
        let without = measure(2 * pair + 1)?;
        let monitors = Monitors::start(&own, MONITORS)?;
        let with = measure(2 * pair + 2)?;
        reads += monitors.stop()?;
        ratios.push(Quotient {
            over: at(&with, 0.95),
            under: at(&without, 0.95),
        });
        without_all.extend_from_slice(without.sorted_ns());
        with_all.extend_from_slice(with.sorted_ns());
    }
    let ratio = Quotient::median(ratios);
    document.add_result(
        "without_monitors_ns",
        latency(&Samples::from_unsorted(without_all)),
    );
    document.add_result(
        "with_12_monitors_ns",
        latency(&Samples::from_unsorted(with_all)),
    );
    document.add_result("monitor_reads", reads);
    document.add_quotient("monitors_p95", ratio);
    document.add_target(Target::at_most("monitors_p95", ratio.value(), 2.0));
    Ok(())
}

/// A unit with so many conditions in groups of nested prefixes, and the IDs they match.
fn unit_of(conditions: u64) -> Result<(ActionUnit, Vec<EventId>), BenchError> {
    let config = RegistryConfig {
        limits: TableLimits::for_conditions(conditions as usize),
        ..RegistryConfig::default()
    };
    let stuck = |_| BenchError::Stuck;
    let mut registry = Registry::new(config).map_err(stuck)?;
    let spec = SinkSpec::new(SinkKind::Software, "bench");
    let sink = registry
        .create_sink(&ADMIN, spec)
        .map_err(|_| BenchError::Stuck)?;
    let mut ids = Vec::new();
    let mut changes = Vec::new();
    for n in 0..conditions {
        let id = EventId(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        ids.push(id);
        let filter = IdFilter::leading(id, 40).map_err(|_| BenchError::Stuck)?;
        changes.push(Change::Add(ConditionSpec {
            accept: FlagSet::ALL,
            ..ConditionSpec::new(sink, filter, 0)
        }));
    }
    let applied = registry
        .apply(&ADMIN, &changes)
        .map_err(|_| BenchError::Stuck)?;
    let mut unit = ActionUnit::new(CoreConfig::default().unit).map_err(stuck)?;
    unit.install(applied.table);
    Ok((unit, ids))
}

fn add_matching(size: &Size, document: &mut BenchDocument) -> Result<(), BenchError> {
    let (mut unit, ids) = unit_of(CONDITIONS)?;
    let clock = TscClock::of_process();
    let mut now = TaiNs(1_000_000_000);
    let (mut matched, mut executed) = (0u64, 0u64);
    let start = clock.ticks();
    for n in 0..size.matches {
        let id = ids[(n as usize).wrapping_mul(7_919) % ids.len()];
        now = TaiNs(now.0 + 100);
        let message = TimingMessage::new(id, n, TaiNs(now.0 + 10_000));
        matched += u64::from(unit.handle_message(now, &message));
        while unit.poll_output(now).is_some() {
            executed += 1;
        }
    }
    let ns = clock.ticks_to_ns(clock.ticks().wrapping_sub(start));
    while unit.poll_output(TaiNs(u64::MAX)).is_some() {
        executed += 1;
    }
    conserved("actions of matched messages", executed, matched)?;
    let mean = ns as f64 / size.matches as f64;
    document.add_result(
        "match_10000_conditions",
        json!({ "messages": size.matches, "actions": executed, "mean_ns": rounded(mean) }),
    );
    document.add_target(Target::at_most("match_10000_mean_ns", mean, 200.0));
    Ok(())
}

/// A core, not started, with one condition for every message, and the spinning client that gets them.
fn core_and_client(clock: &TaiClock) -> Result<(Core, Subscription), BenchError> {
    let mut core = Core::new(&CoreConfig::default(), clock.clone())?;
    let mut registry = Registry::new(RegistryConfig::default()).map_err(|_| BenchError::Stuck)?;
    let spec = SinkSpec::new(SinkKind::Software, "bench");
    let sink = registry
        .create_sink(&ADMIN, spec)
        .map_err(|_| BenchError::Stuck)?;
    let change = Change::Add(every(sink, EventId(0), 0)?);
    let applied = registry
        .apply(&ADMIN, &[change])
        .map_err(|_| BenchError::Stuck)?;
    let config = SubscriptionConfig {
        slots: 1 << 16,
        ..SubscriptionConfig::default()
    };
    let (subscription, ends) = DeliveryEnd::ring(&config).map_err(|_| BenchError::Stuck)?;
    core.handle.send(CoreCommand::Install(applied.table))?;
    core.handle.send(CoreCommand::Exchange {
        place: 0,
        subscription: Some(subscription),
        routing: Box::new(Routing::new(1, &[(0, sink.0, PriorityClass::Generic)])),
    })?;
    let data: OwnedFd = ends.data;
    let wake = ends.wake.ok_or(BenchError::Stuck)?;
    Ok((core, Subscription::open(data, wake, 0, Wait::Spin)?))
}

/// Messages as fast as they go through core and delivery on one core, a client reading on another.
fn add_stream(size: &Size, document: &mut BenchDocument) -> Result<(), BenchError> {
    let clock = TaiClock::standing_at(TaiNs(1_000_000_000));
    let (core, mut client) = core_and_client(&clock)?;
    let (injector, mut worker) = (core.injector.clone(), core.worker);
    let messages = size.stream;
    let ticks = TscClock::of_process();
    let (ns, received) = run_pair(
        |_| {
            let start = ticks.ticks();
            let mut sent = 0;
            let mut now = clock.now();
            let mut batch = [TimingMessage::default(); 64];
            while sent < messages {
                let count = (messages - sent).min(64) as usize;
                for (n, message) in (sent..).zip(&mut batch[..count]) {
                    now = TaiNs(now.0 + 10);
                    *message = TimingMessage::new(EventId(n), n, TaiNs(now.0 + 10_000));
                }
                sent += injector.inject(&batch[..count]) as u64;
                clock.advance_to(now);
                worker.turn();
            }
            clock.advance_to(TaiNs(now.0 + 100_000));
            while worker.turn() > 0 {}
            Ok(ticks.ticks_to_ns(ticks.ticks().wrapping_sub(start)))
        },
        |mut patience| {
            let mut received = 0u64;
            while received + client.lost() < messages {
                match client.try_next()? {
                    Some(record) if record.kind == livetime_wire::RecordKind::Message => {
                        received += 1;
                        patience.restart();
                    }
                    Some(_) => patience.restart(),
                    None => patience.idle()?,
                }
            }
            Ok((received, client.lost()))
        },
    )?;
    conserved("streamed records", received.0 + received.1, messages)?;
    let rate = messages as f64 * 1e9 / ns as f64;
    document.add_result(
        "stream",
        json!({
            "messages": messages,
            "received": received.0,
            "lost": received.1,
            "per_s": rounded(rate),
            "mean_ns": rounded(ns as f64 / messages as f64),
        }),
    );
    document.add_target(Target::at_least("stream_per_s", rate, 1e6));
    document.add_target(Target::at_most("stream_lost", received.1 as f64, 0.0));
    Ok(())
}

/// A block of coefficient sets for the generators of the study.
pub(crate) fn generator_block() -> Result<Vec<u8>, BenchError> {
    generator_block_of(SETS)
}

/// The same with another number of sets per channel.
pub(crate) fn generator_block_of(sets: usize) -> Result<Vec<u8>, BenchError> {
    let set = CoefficientSet {
        frequency: 7,
        ..CoefficientSet::default()
    };
    let sets = vec![set; sets];
    let channels: Vec<&[CoefficientSet]> = vec![&sets; CHANNELS];
    emit_block(&channels).map_err(|_| BenchError::Stuck)
}

fn add_loads(size: &Size, document: &mut BenchDocument) -> Result<(), BenchError> {
    let own = BenchDaemon::start(|_| {})?;
    let generators = own.daemon.generators();
    let block = generator_block()?;
    let mut inside = Vec::new();
    for _ in 0..size.loads {
        let start = Instant::now();
        generators.append_and_arm(&ADMIN, &block)?;
        inside.push(start.elapsed().as_nanos() as u64);
        empty(
            &own,
            || Ok(generators.abort(&ADMIN)?),
            || Ok(generators.flush(&ADMIN)?),
        )?;
    }
    // From here on a client of its own drives them.
    generators.client_gone(ADMIN.client);
    let client = own.client()?;
    let master = "/org/livetime/Timing1/tr0/mfg";
    let call = |method: &str| -> Result<(), BenchError> {
        Ok(client.call(master, "MasterFunctionGenerator", method, &())?)
    };
    let mut over_bus = Vec::new();
    for _ in 0..size.loads {
        let start = Instant::now();
        client.append_block(&block, true)?;
        over_bus.push(start.elapsed().as_nanos() as u64);
        empty(&own, || call("Abort"), || call("Flush"))?;
    }
    let inside = Samples::from_unsorted(inside);
    let over_bus = Samples::from_unsorted(over_bus);
    document.add_result("load_12_x_800_sets_ns", latency(&inside));
    document.add_result("load_12_x_800_sets_by_client_ns", latency(&over_bus));
    let ms = |ns: u64| ns as f64 / 1e6;
    document.add_target(Target::at_most("load_p50_ms", ms(over_bus.p50()), 0.5));
    document.add_target(Target::at_most("load_p99_ms", ms(over_bus.p99()), 5.0));
    Ok(())
}

/// Aborts, waits until all are disabled, and throws what is left away.
fn empty(
    own: &BenchDaemon,
    abort: impl Fn() -> Result<(), BenchError>,
    flush: impl Fn() -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    abort()?;
    let start = Instant::now();
    let busy = || {
        own.daemon.generators().read(|members| {
            members
                .iter()
                .any(|member| member.state().key() != "disabled")
        })
    };
    while busy() {
        if start.elapsed() > PATIENCE {
            return Err(BenchError::Stuck);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    flush()
}
