//! The simulation kernel: takes events in order, lets the world handle them, knows when to stop.
//!
//! A [`World`] owns all nodes as plain structs and says what an event does; the kernel owns time,
//! order and trace. The same world, seed and limits give the same run, event for event, on every
//! machine and on either queue. It knows nothing of links or protocols; faults between nodes are
//! in [`crate::fault`], streams of random numbers in [`crate::random`].
//!
//! Cost per event: one push and pop (30 to 45 ns up to 10^5 pending), one trace step (2 ns) and
//! what the world does; nothing is allocated once the queue has seen its largest load. One
//! simulation is one thread; run replicas side by side, or partitions in windows of their
//! look-ahead: [`Simulation::run`] to the end of the window, exchange, schedule, go on.

use crate::queue::{EventClass, QueueKind};
use crate::scheduler::Scheduler;
use crate::time::SimPs;
use crate::trace::{EventLabel, Trace, TraceHash};

/// The simulated system: its nodes, and what events do to them.
pub trait World {
    /// An event: small (below 32 bytes is best), naming the node and what is large by index.
    type Event;

    /// What the trace shall say of an event. Called before it is handled.
    fn label(&self, event: &Self::Event) -> EventLabel;

    /// Lets an event happen at `now`; its consequences are scheduled.
    fn handle(&mut self, now: SimPs, event: Self::Event, scheduler: &mut Scheduler<Self::Event>);
}

/// How a simulation is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimulationConfig {
    /// The queue; results do not depend on it. Default: the wheel.
    pub queue: QueueKind,
    /// Records of the trace to keep, for finding out what happened. Default: none.
    pub trace_ring: usize,
    /// The run stops when more events than this wait (a handled event may overshoot by what it
    /// schedules): a model that leaks events ends here and not in the machine's memory. Default:
    /// 16 million, about 0.5 GB; a fabric has about one event per node and active link.
    pub pending_max: usize,
}

impl Default for SimulationConfig {
    fn default() -> Self {
        Self {
            queue: QueueKind::Wheel,
            trace_ring: 0,
            pending_max: 1 << 24,
        }
    }
}

/// Where a run ends if it does not drain; both count from the start of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// Events at this time are handled, later ones are not.
    pub horizon: SimPs,
    /// The most events to handle.
    pub events_max: u64,
}

impl RunLimits {
    /// Up to `horizon`, with no more than `events_max` events.
    pub const fn new(horizon: SimPs, events_max: u64) -> Self {
        Self {
            horizon,
            events_max,
        }
    }
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// No event was left.
    Drained,
    /// The next event is after the horizon.
    Horizon,
    /// As many events as allowed have been handled.
    EventLimit,
    /// More events than allowed wait.
    PendingLimit,
    /// The world called [`Scheduler::halt`].
    Halted,
}

/// What a run did, counted from the start of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunReport {
    /// Why it ended.
    pub stop: StopReason,
    /// The clock at the end: the horizon if that was reached, else the time of the last event.
    pub now: SimPs,
    /// Events handled.
    pub events: u64,
    /// Events that still wait.
    pub pending: usize,
    /// The most events that ever waited.
    pub pending_peak: usize,
    /// Hash of the trace.
    pub trace_hash: TraceHash,
}

/// A world and its clock.
///
/// ```
/// use livetime_fabric::*;
///
/// /// A lamp that goes on and off every second.
/// struct Lamp {
///     on: bool,
/// }
///
/// impl World for Lamp {
///     type Event = ();
///
///     fn label(&self, _event: &()) -> EventLabel {
///         EventLabel { node: NodeId(0), kind: 0, key: u64::from(self.on) }
///     }
///
///     fn handle(&mut self, _now: SimPs, _event: (), scheduler: &mut Scheduler<()>) {
///         self.on = !self.on;
///         scheduler.after(DurationPs::from_ms(1_000), EventClass(0), ());
///     }
/// }
///
/// let mut simulation = Simulation::new(Lamp { on: false }, SimulationConfig::default());
/// simulation.schedule(SimPs::ZERO, EventClass(0), ());
/// let ten_seconds = SimPs::ZERO + DurationPs::from_ms(10_000);
/// let report = simulation.run(RunLimits::new(ten_seconds, 1_000));
/// assert_eq!((report.stop, report.events), (StopReason::Horizon, 11));
/// assert!(simulation.world().on);
/// ```
#[derive(Debug, Clone)]
pub struct Simulation<W: World> {
    world: W,
    scheduler: Scheduler<W::Event>,
    pending_max: usize,
    events: u64,
}

impl<W: World> Simulation<W> {
    /// A simulation at time 0 with nothing scheduled.
    pub fn new(world: W, config: SimulationConfig) -> Self {
        Self {
            world,
            scheduler: Scheduler::new(config.queue, config.trace_ring),
            pending_max: config.pending_max,
            events: 0,
        }
    }

    /// Schedules an event from outside: the first ones, and those of other partitions.
    ///
    /// # Panics
    /// As [`Scheduler::at`], if `time` is before the clock.
    pub fn schedule(&mut self, time: SimPs, class: EventClass, event: W::Event) {
        self.scheduler.at(time, class, event);
    }

    /// Handles events in order until there is a reason to stop. May be called again with wider
    /// limits: a run in pieces is the same as one run.
    pub fn run(&mut self, limits: RunLimits) -> RunReport {
        let stop = loop {
            if self.scheduler.pending() == 0 {
                break StopReason::Drained;
            }
            if self.scheduler.pending() > self.pending_max {
                break StopReason::PendingLimit;
            }
            if self.events >= limits.events_max {
                break StopReason::EventLimit;
            }
            let Some((key, event)) = self.scheduler.take_until(limits.horizon) else {
                self.scheduler.pass_to(limits.horizon);
                break StopReason::Horizon;
            };
            self.events += 1;
            self.scheduler.record(key, self.world.label(&event));
            self.world.handle(key.time, event, &mut self.scheduler);
            if self.scheduler.take_halt() {
                break StopReason::Halted;
            }
        };
        self.report(stop)
    }

    /// The world.
    pub const fn world(&self) -> &W {
        &self.world
    }

    /// The world, to be changed between runs.
    pub const fn world_mut(&mut self) -> &mut W {
        &mut self.world
    }

    /// The world and the scheduler, to start nodes that schedule their own first events.
    pub const fn parts_mut(&mut self) -> (&mut W, &mut Scheduler<W::Event>) {
        (&mut self.world, &mut self.scheduler)
    }

    /// The world, at the end.
    pub fn into_world(self) -> W {
        self.world
    }

    /// The trace so far.
    pub const fn trace(&self) -> &Trace {
        self.scheduler.trace()
    }

    fn report(&self, stop: StopReason) -> RunReport {
        RunReport {
            stop,
            now: self.scheduler.now(),
            events: self.events,
            pending: self.scheduler.pending(),
            pending_peak: self.scheduler.pending_peak(),
            trace_hash: self.trace().hash(),
        }
    }
}
