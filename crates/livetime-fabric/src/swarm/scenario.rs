//! The story of a seed: how large the builder is, how bad the network, and what happens when.
//!
//! All of it follows from the seed; [`super::shrink`] takes parts of it away. Times are those of
//! the builder's defaults for units that are watched by their heartbeat, retries shorter, so that
//! a story of two seconds holds a few deaths.

use std::fmt;

use livetime_builder::{
    BlockAssembler, BuildMode, BuilderConfig, PhaseBarrier, ShapingConfig, ShapingPace,
};
use livetime_wire::message::EventTicket;
use livetime_wire::{DurationNs, SourceId, TriggerNumber, UnitId, UnitKind};

use crate::address::NodeId;
use crate::random::{Purpose, RandomStream, RandomStreams};

/// What the story itself is drawn for.
const STORY: Purpose = Purpose(40);
/// What is drawn beside it: steps and turns.
const SHAPE: Purpose = Purpose(42);
const FILTER_DEATHS: Purpose = Purpose(43);
const INTERRUPTIONS: Purpose = Purpose(44);
const WRITER_FAULTS: Purpose = Purpose(45);
const POLICY: Purpose = Purpose(46);
const FORCED_END: Purpose = Purpose(47);
const WRITER: UnitId = UnitId {
    kind: UnitKind::Writer,
    index: 0,
};
/// Time in which the link of a readout unit takes a block of a story.
pub(super) const TURN: DurationNs = DurationNs(50 * DurationNs::MICROSECOND.0);
/// Closed triggers that a unit remembers: as many as a configuration may have at least, and fewer.
const HISTORY: u32 = 4096;
const HISTORY_SHORT: u32 = 16;
/// Payload bytes of the largest event per source.
pub(super) const FRAGMENT_BYTES_MAX: u64 = 400;

/// Something that happens to a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwarmFault {
    /// Every message to the builder unit takes so many microseconds longer.
    SlowBuilder {
        /// Which.
        builder: u16,
        /// How much longer.
        more_us: u64,
    },
    /// The unit's process stops for so many milliseconds and goes on.
    Stop {
        /// Which: the event manager, a builder, readout or filter unit, or the writer.
        unit: UnitId,
        /// For how long.
        for_ms: u64,
    },
    /// Nothing comes from the unit to another or to it for so many milliseconds. The hops of the
    /// supervisor and to filter units lose nothing.
    Cut {
        /// Which: the event manager, a builder or readout unit.
        unit: UnitId,
        /// For how long.
        for_ms: u64,
    },
    /// The builder unit dies; another process takes its place once its loss is settled.
    KillBuilder {
        /// Which.
        builder: u16,
    },
    /// The readout unit dies with all that it holds, and rejoins after so many milliseconds.
    KillReadout {
        /// Which.
        readout: u16,
        /// For how long it is away.
        for_ms: u64,
    },
    /// The filter unit dies with the events in it, and begins again after so many milliseconds.
    KillFilter {
        /// Which.
        filter: u16,
        /// For how long it is away.
        for_ms: u64,
    },
    /// The writer dies with the chunk in it, and another takes the file up after so many milliseconds.
    KillWriter {
        /// For how long there is none.
        for_ms: u64,
    },
    /// The event manager dies, and another takes its place after so many milliseconds.
    RestartManager {
        /// For how long there is none.
        for_ms: u64,
    },
}

impl SwarmFault {
    /// Whether somebody dies of it.
    pub(super) fn is_death(self) -> bool {
        match self {
            Self::SlowBuilder { .. } | Self::Stop { .. } | Self::Cut { .. } => false,
            Self::KillBuilder { .. }
            | Self::KillReadout { .. }
            | Self::KillFilter { .. }
            | Self::KillWriter { .. }
            | Self::RestartManager { .. } => true,
        }
    }
}

/// A fault and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedFault {
    /// Milliseconds from the start.
    pub at_ms: u64,
    /// What happens.
    pub fault: SwarmFault,
}

/// When a story is ended by force, and who is why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForcedEndPlan {
    /// Milliseconds from the start.
    pub at_ms: u64,
    /// So many filter units stand still from then on.
    pub hung_filters: u16,
    /// The writer stands still from then on.
    pub is_writer_hung: bool,
}

/// Whose turn it is to be sent fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwarmShaping {
    /// Whoever has asked.
    None,
    /// A barrel shifter: a block to one builder unit after the other.
    Blocks {
        /// Payload bytes of a block: a fragment may span blocks.
        block_bytes: u32,
        /// By a clock that all share, or as soon as the link has taken the block before.
        by_clock: bool,
    },
    /// A linear shift: whole fragments in phases, with a barrier between them.
    Phases {
        /// Payload bytes after which a phase takes no further fragment.
        phase_bytes: u32,
    },
}

impl SwarmShaping {
    /// As the builder is told of it.
    pub(super) fn config(self) -> Option<ShapingConfig> {
        let (block_bytes, pace) = match self {
            Self::None => return None,
            Self::Blocks {
                block_bytes,
                by_clock: true,
            } => (block_bytes, ShapingPace::Clock { step: TURN }),
            Self::Blocks { block_bytes, .. } => (block_bytes, ShapingPace::default()),
            Self::Phases { phase_bytes } => (phase_bytes, ShapingPace::BARRIER),
        };
        Some(ShapingConfig {
            block_bytes,
            pace,
            ..ShapingConfig::default()
        })
    }

    /// What stories of its kind are counted as.
    pub(super) fn kind(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Blocks { by_clock: true, .. } => Some("blocks_by_clock"),
            Self::Blocks { .. } => Some("blocks"),
            Self::Phases { .. } => Some("phases"),
        }
    }
}

/// A story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwarmScenario {
    /// Where all randomness comes from.
    pub seed: u64,
    /// Triggers to be built.
    pub triggers: u64,
    /// Mean time between two of them.
    pub interval_us: u64,
    /// Readout units.
    pub readouts: u16,
    /// Sources of each.
    pub sources: u16,
    /// Builder units.
    pub builders: u16,
    /// Filter units.
    pub filters: u16,
    /// Events that a builder unit may hold.
    pub credits: u32,
    /// Events of the largest size whose bytes a builder unit may hold; 0 for no bound.
    pub credit_events_by_bytes: u64,
    /// Triggers named in one message.
    pub requests_per_message: u32,
    /// Pull or push.
    pub mode: BuildMode,
    /// Readout units whose fragments are gathered first, and a selection made on them; 0 for none.
    pub first_step: u16,
    /// Of a hundred events whose first step is gathered, those whose rest is fetched.
    pub rest_percent: u32,
    /// Whose turn it is.
    pub shaping: SwarmShaping,
    /// Messages between cores that are lost, in parts per million.
    pub drop_ppm: u32,
    /// Messages between cores that come twice.
    pub duplicate_ppm: u32,
    /// Messages between cores that are delayed, so that later ones overtake them.
    pub delay_ppm: u32,
    /// The longest such delay.
    pub delay_max_us: u64,
    /// What happens to units, in the order of time.
    pub faults: Vec<TimedFault>,
    /// Whether the others go on without a builder unit that is lost, as long as there is one.
    pub goes_on_without: bool,
    /// The end by force; `None` for one in which all events are built.
    pub forced_end: Option<ForcedEndPlan>,
    /// How many closed triggers a unit remembers: fewer than a configuration may have, since stories are
    /// short, unless what is told late or by another would be too old by then.
    pub history: u32,
}

impl SwarmScenario {
    /// The story of a seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut random = RandomStreams::new(seed).stream(NodeId(0), STORY);
        let mut pick = |from: u64, to: u64| from + random.below(to - from + 1);
        let mut scenario = Self {
            seed,
            triggers: pick(40, 160),
            interval_us: pick(2_000, 15_000),
            readouts: pick(1, 3) as u16,
            sources: pick(1, 2) as u16,
            builders: pick(2, 3) as u16,
            filters: pick(1, 2) as u16,
            credits: pick(1, 6) as u32,
            credit_events_by_bytes: pick(0, 3),
            requests_per_message: pick(1, 8) as u32,
            mode: match pick(0, 1) {
                0 => BuildMode::Pull,
                _ => BuildMode::Push,
            },
            drop_ppm: (pick(0, 1) * pick(0, 150_000)) as u32,
            duplicate_ppm: (pick(0, 1) * pick(0, 150_000)) as u32,
            delay_ppm: (pick(0, 1) * pick(0, 300_000)) as u32,
            delay_max_us: pick(100, 40_000),
            faults: Vec::new(),
            history: HISTORY,
            goes_on_without: false,
            forced_end: None,
            first_step: 0,
            rest_percent: 0,
            shaping: SwarmShaping::None,
        };
        let span_ms = scenario.span_ms();
        for _ in 0..pick(0, 4) {
            let at_ms = pick(0, span_ms);
            let fault = scenario.draw_fault(&mut pick);
            scenario.faults.push(TimedFault { at_ms, fault });
        }
        scenario.draw_some(FILTER_DEATHS, Self::draw_filter_death);
        scenario.draw_some(INTERRUPTIONS, Self::draw_interruption);
        scenario.draw_some(WRITER_FAULTS, Self::draw_writer_fault);
        let mut policy = RandomStreams::new(seed).stream(NodeId(0), POLICY);
        scenario.goes_on_without = policy.below(4) == 0;
        scenario.faults.sort_by_key(|fault| fault.at_ms);
        scenario.draw_forced_end();
        scenario.draw_steps_and_turns();
        if !scenario.tells_late() {
            scenario.history = HISTORY_SHORT;
        }
        scenario
    }

    /// Whether messages may be lost or late, or somebody be away who is to be told.
    fn tells_late(&self) -> bool {
        let is_away = |timed: &TimedFault| {
            use SwarmFault::{Cut, KillReadout, KillWriter, RestartManager, Stop};
            match timed.fault {
                Cut { .. } | KillReadout { .. } | KillWriter { .. } | RestartManager { .. } => true,
                // What it says comes as late as what it hears.
                Stop { unit, .. } => unit.kind != UnitKind::Builder,
                _ => false,
            }
        };
        self.drop_ppm > 0 || self.delay_ppm > 0 || self.faults.iter().any(is_away)
    }

    /// In half of the stories up to three faults of a kind happen, drawn for this alone.
    fn draw_some(
        &mut self,
        purpose: Purpose,
        draw: impl Fn(&Self, &mut dyn FnMut(u64, u64) -> u64) -> SwarmFault,
    ) {
        let mut random = RandomStreams::new(self.seed).stream(NodeId(0), purpose);
        let mut pick = |from: u64, to: u64| from + random.below(to - from + 1);
        let span_ms = self.span_ms();
        for _ in 0..pick(0, 1) * pick(1, 3) {
            let at_ms = pick(0, span_ms);
            let fault = draw(self, &mut pick);
            self.faults.push(TimedFault { at_ms, fault });
        }
    }

    fn draw_filter_death(&self, pick: &mut dyn FnMut(u64, u64) -> u64) -> SwarmFault {
        SwarmFault::KillFilter {
            filter: pick(0, u64::from(self.filters) - 1) as u16,
            for_ms: pick(1, 400),
        }
    }

    /// Of a unit that is no builder unit.
    fn draw_interruption(&self, pick: &mut dyn FnMut(u64, u64) -> u64) -> SwarmFault {
        let readout = UnitId::readout(pick(0, u64::from(self.readouts) - 1) as u16);
        let filter = UnitId::filter(pick(0, u64::from(self.filters) - 1) as u16);
        let manager = UnitId::EVENT_MANAGER;
        let (kind, for_ms) = (pick(0, 4), pick(20, 1_500));
        let (is_cut, unit) = match kind {
            0 => (false, readout),
            1 => (true, readout),
            2 => (false, manager),
            3 => (true, manager),
            _ => (false, filter),
        };
        match is_cut {
            true => SwarmFault::Cut { unit, for_ms },
            false => SwarmFault::Stop { unit, for_ms },
        }
    }

    fn draw_writer_fault(&self, pick: &mut dyn FnMut(u64, u64) -> u64) -> SwarmFault {
        match pick(0, 2) {
            0 => SwarmFault::Stop {
                unit: WRITER,
                for_ms: pick(20, 1_000),
            },
            _ => SwarmFault::KillWriter {
                for_ms: pick(1, 400),
            },
        }
    }

    /// A quarter of the stories is ended by force, some of them after the last trigger.
    fn draw_forced_end(&mut self) {
        let mut random = RandomStreams::new(self.seed).stream(NodeId(0), FORCED_END);
        let mut pick = |from: u64, to: u64| from + random.below(to - from + 1);
        if pick(0, 3) == 0 {
            self.forced_end = Some(ForcedEndPlan {
                at_ms: pick(0, self.span_ms() + 200),
                hung_filters: (pick(0, 1) * pick(0, self.filters.into())) as u16,
                is_writer_hung: pick(0, 3) == 0,
            });
        }
    }

    /// Half of the stories have turns, and half of those that may have two steps do.
    fn draw_steps_and_turns(&mut self) {
        let mut random = RandomStreams::new(self.seed).stream(NodeId(0), SHAPE);
        let mut pick = |from: u64, to: u64| from + random.below(to - from + 1);
        self.shaping = match pick(0, 5) {
            kind @ (0 | 1) => SwarmShaping::Blocks {
                block_bytes: pick(256, 1_024) as u32,
                by_clock: kind == 0,
            },
            2 => SwarmShaping::Phases {
                phase_bytes: pick(256, 1_024) as u32,
            },
            _ => SwarmShaping::None,
        };
        // Who is pushed to has no first step to wait for.
        let may_have_steps = self.readouts > 1 && self.mode == BuildMode::Pull;
        if pick(0, 1) == 1 && may_have_steps {
            self.first_step = pick(1, u64::from(self.readouts) - 1) as u16;
            self.rest_percent = pick(0, 100) as u32;
        }
    }

    /// What stories like this one are counted as.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let mode = match self.mode {
            BuildMode::Pull => "pull",
            BuildMode::Push => "push",
        };
        let steps = (self.first_step > 0).then_some("two_steps");
        [Some(mode), steps, self.shaping.kind()]
            .into_iter()
            .flatten()
    }

    fn draw_fault(&self, pick: &mut impl FnMut(u64, u64) -> u64) -> SwarmFault {
        let builder = pick(0, u64::from(self.builders) - 1) as u16;
        match pick(0, 6) {
            0 => SwarmFault::SlowBuilder {
                builder,
                more_us: pick(100, 30_000),
            },
            1 => SwarmFault::Stop {
                unit: UnitId::builder(builder),
                for_ms: pick(50, 1_500),
            },
            2 => SwarmFault::Cut {
                unit: UnitId::builder(builder),
                for_ms: pick(50, 1_500),
            },
            3 | 4 => SwarmFault::KillBuilder { builder },
            5 => SwarmFault::KillReadout {
                readout: pick(0, u64::from(self.readouts) - 1) as u16,
                for_ms: pick(10, 800),
            },
            _ => SwarmFault::RestartManager {
                for_ms: pick(1, 800),
            },
        }
    }

    /// The time in which the triggers come.
    fn span_ms(&self) -> u64 {
        self.triggers * self.interval_us / 1_000
    }

    /// After this a story that has not ended makes no progress.
    pub(super) fn horizon_ms(&self) -> u64 {
        self.span_ms() * 2 + 120_000
    }

    /// The builder of the story.
    pub fn builder_config(&self) -> BuilderConfig {
        let per_unit = u32::from(self.sources);
        let readout_units = (0..u32::from(self.readouts))
            .map(|unit| {
                (0..per_unit)
                    .map(|n| SourceId(1 + unit * per_unit + n))
                    .collect()
            })
            .collect();
        let event_bytes = u64::from(self.readouts) * u64::from(self.sources) * FRAGMENT_BYTES_MAX;
        let ms = |ms| DurationNs(ms * DurationNs::MILLISECOND.0);
        BuilderConfig {
            readout_units,
            builder_units: self.builders,
            filter_units: self.filters,
            credits: self.credits,
            requests_per_message: self.requests_per_message,
            // Far above anything that a fault takes: an event that is closed by it was let down.
            timeout: ms(15_000),
            retry: ms(20),
            probe: ms(100),
            evm_queue: 16,
            filter_in_flight: 2,
            history: self.history,
            trigger_window: 256,
            mode: self.mode,
            first_step: (0..self.first_step).collect(),
            credit_bytes: self.credit_events_by_bytes * event_bytes,
            event_bytes,
            heartbeat: ms(100),
            ..BuilderConfig::default()
        }
    }

    /// The assemblers of a builder unit, one for each readout unit.
    pub(super) fn assemblers(&self) -> Vec<BlockAssembler> {
        (0..self.readouts).map(|_| BlockAssembler::new()).collect()
    }

    /// The barrier between the phases of a linear shift, if there are any.
    pub(super) fn barrier(
        &self,
        make: impl Fn(usize, DurationNs) -> PhaseBarrier,
    ) -> Option<PhaseBarrier> {
        let shaping = self.shaping.config().filter(ShapingConfig::is_linear)?;
        Some(make(self.readouts.into(), shaping.barrier_patience()))
    }

    /// Whether a filter unit fetches the rest of an event: the same for whoever builds it.
    pub(super) fn fetches_rest(&self, ticket: &EventTicket) -> bool {
        let spread = ticket.trigger.low().wrapping_mul(2_654_435_761) >> 16;
        ticket.is_first_step() && spread % 100 < self.rest_percent
    }

    /// Whether a filter unit accepts an event: the same for whoever builds it.
    pub(super) fn accepts(&self, trigger: TriggerNumber) -> bool {
        trigger.low().wrapping_mul(2_246_822_519) >> 31 == 1
    }

    pub(super) fn stream(&self, purpose: u32) -> RandomStream {
        RandomStreams::new(self.seed).stream(NodeId(0), Purpose(purpose))
    }
}

impl fmt::Display for SwarmFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SlowBuilder { builder, more_us } => {
                write!(f, "bu{builder} slower by {more_us} us")
            }
            Self::Stop { unit, for_ms } => write!(f, "{unit} stopped for {for_ms} ms"),
            Self::Cut { unit, for_ms } => write!(f, "{unit} cut off for {for_ms} ms"),
            Self::KillBuilder { builder } => write!(f, "bu{builder} killed"),
            Self::KillReadout { readout, for_ms } => {
                write!(f, "ru{readout} killed, back after {for_ms} ms")
            }
            Self::KillFilter { filter, for_ms } => {
                write!(f, "fu{filter} killed, back after {for_ms} ms")
            }
            Self::KillWriter { for_ms } => write!(f, "wr0 killed, back after {for_ms} ms"),
            Self::RestartManager { for_ms } => write!(f, "evm killed, back after {for_ms} ms"),
        }
    }
}

impl fmt::Display for SwarmScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            BuildMode::Pull => "pull",
            BuildMode::Push => "push",
        };
        write!(
            f,
            "{} triggers every {} us, {} x {} sources, {} builder units with {} credits ({mode}, {} \
             per message, bytes for {}), {} filter units; messages dropped {} ppm, twice {} ppm, \
             late {} ppm by up to {} us; {} triggers are remembered",
            self.triggers,
            self.interval_us,
            self.readouts,
            self.sources,
            self.builders,
            self.credits,
            self.requests_per_message,
            self.credit_events_by_bytes,
            self.filters,
            self.drop_ppm,
            self.duplicate_ppm,
            self.delay_ppm,
            self.delay_max_us,
            self.history,
        )?;
        if self.goes_on_without {
            f.write_str("; lost builder units are not replaced")?;
        }
        if self.first_step > 0 {
            let (first, rest) = (self.first_step, self.rest_percent);
            write!(
                f,
                "; two steps, {first} readout units first, {rest} % get the rest"
            )?;
        }
        match self.shaping {
            SwarmShaping::None => {}
            SwarmShaping::Blocks {
                block_bytes,
                by_clock,
            } => {
                let pace = if by_clock { "clock" } else { "back-pressure" };
                write!(f, "; blocks of {block_bytes} B by {pace}")?;
            }
            SwarmShaping::Phases { phase_bytes } => write!(f, "; phases of {phase_bytes} B")?,
        }
        if let Some(end) = self.forced_end {
            let (at_ms, filters) = (end.at_ms, end.hung_filters);
            write!(
                f,
                "; ended by force at {at_ms} ms, {filters} filter units hang"
            )?;
            if end.is_writer_hung {
                f.write_str(", and the writer")?;
            }
        }
        for fault in &self.faults {
            write!(f, "; {} ms: {}", fault.at_ms, fault.fault)?;
        }
        Ok(())
    }
}
